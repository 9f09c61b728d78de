//! The metrics page, read by a strict parser.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpStream,
};

use smb_client::CreateArgs;

use crate::support::Plan;

/// Samples by name with labels.
type Samples = BTreeMap<String, f64>;

/// Prometheus text format 0.0.4, as its documentation has it, and the naming rules besides.
fn parse(text: &str) -> Result<Samples, String> {
    if !text.ends_with('\n') {
        return Err("no line feed at the end".into());
    }
    let mut samples = Samples::new();
    let mut families = BTreeSet::new();
    let (mut name, mut kind) = (String::new(), String::new());
    let mut help = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (of, words) = rest.split_once(' ').ok_or(line)?;
            if words.is_empty() || !families.insert(of.to_owned()) {
                return Err(format!("help: {line}"));
            }
            help = of.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (of, what) = rest.split_once(' ').ok_or(line)?;
            let counter = what == "counter";
            if of != help
                || !["gauge", "counter", "histogram"].contains(&what)
                || counter != of.ends_with("_total")
            {
                return Err(format!("type: {line}"));
            }
            (name, kind) = (of.to_owned(), what.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').ok_or(line)?;
            check_series(series, &name, &kind)?;
            let value: f64 = value.parse().map_err(|_| format!("value: {line}"))?;
            if samples.insert(series.to_owned(), value).is_some() {
                return Err(format!("twice: {line}"));
            }
        }
    }
    Ok(samples)
}

fn check_series(series: &str, family: &str, kind: &str) -> Result<(), String> {
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').ok_or(series)?),
        None => (series, ""),
    };
    let suffix = name.strip_prefix(family).ok_or(format!("torn: {series}"))?;
    let suffixes: &[&str] = match kind {
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    let word = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    if !suffixes.contains(&suffix) || !word(name) {
        return Err(format!("name: {series}"));
    }
    let mut rest = labels;
    while !rest.is_empty() {
        let (label, value) = rest.split_once("=\"").ok_or(series)?;
        let mut escaped = false;
        let end = value
            .find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            })
            .ok_or(series)?;
        if !word(label) {
            return Err(format!("label: {series}"));
        }
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    // Not the end of another label: `table="`.
    let le = labels.starts_with("le=\"") || labels.contains(",le=\"");
    if (suffix == "_bucket") != le {
        return Err(format!("bucket: {series}"));
    }
    Ok(())
}

/// Buckets only grow, and the last is the count.
fn check_histograms(text: &str, samples: &Samples) {
    let mut last: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("_bucket{")) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (of, bound) = series.split_once(",le=").unwrap();
        let value = samples[series];
        let before = last.insert(of.to_owned(), value).unwrap_or(0.0);
        assert!(value >= before, "{line}");
        if bound.contains("+Inf") {
            let count = format!("{}}}", of.replace("_bucket{", "_count{"));
            assert_eq!(value, samples[&count], "{line}");
        }
    }
    assert!(!last.is_empty());
}

#[test]
fn the_parser_is_strict() {
    let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"\\\"\"} 1\n";
    assert_eq!(parse(good).unwrap().len(), 1);
    for bad in [
        "a 1\n",
        "# HELP a A.\n# TYPE a counter\na 1\n",
        "# HELP a A.\n# TYPE a gauge\nb 1\n",
        "# HELP a A.\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a A.\n# TYPE a gauge\na x\n",
        "# HELP a A.\n# TYPE a gauge\na{x=\"1} 1\n",
        "# HELP a A.\n# TYPE a gauge\na 1\n# HELP a A.\n# TYPE a gauge\n",
        "# HELP a A.\n# TYPE a gauge\na 1",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

/// Every durability figure of the page: name, kind.
const DURABILITY: [(&str, &str); 33] = [
    ("bound_too_slow_seconds", "gauge"),
    ("share_tripped", "gauge"),
    ("share_guarded", "gauge"),
    ("power_supply", "gauge"),
    ("power_guard_trips_total", "counter"),
    ("exposed_by_policy_bytes", "gauge"),
    ("exposed_by_policy_inodes", "gauge"),
    ("exposed_by_policy_oldest_seconds", "gauge"),
    ("share_policy", "gauge"),
    ("exposed_bytes", "gauge"),
    ("exposed_inodes", "gauge"),
    ("exposed_oldest_seconds", "gauge"),
    ("poisoned_inodes", "gauge"),
    ("unproven_bytes", "gauge"),
    ("share_protection", "gauge"),
    ("share_volatile_devices", "gauge"),
    ("share_finding", "gauge"),
    ("flushes_honored_total", "counter"),
    ("flushes_deferred_total", "counter"),
    ("flushes_ignored_total", "counter"),
    ("flushes_failed_total", "counter"),
    ("writes_durable_total", "counter"),
    ("writes_deferred_total", "counter"),
    ("syncs_failed_total", "counter"),
    ("dirty_at_close_total", "counter"),
    ("bound_exceeded_total", "counter"),
    ("backpressure_total", "counter"),
    ("latches_total", "counter"),
    ("trips_total", "counter"),
    ("flush_seconds", "histogram"),
    ("sync_seconds", "histogram"),
    ("flush_bytes", "histogram"),
    ("join_factor", "histogram"),
];

/// Every family has a sentence of help.
fn check_durability(text: &str) {
    for (name, kind) in DURABILITY {
        let declared = format!("# TYPE holdfast_{name} {kind}\n");
        assert!(text.contains(&declared), "no {declared} in\n{text}");
    }
    for line in text.lines().filter(|line| line.starts_with("# HELP")) {
        assert!(line.ends_with('.'), "{line}");
        assert!(!line.contains(" Durability: "), "not explained: {line}");
    }
}

#[test]
fn the_page_is_right_and_counts() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let plan = Plan {
        tables: format!(
            "[[share]]\nname = \"o'dd & co\"\npath = \"data\"\n\
             durability = \"bounded:60s,1GiB\"\n[metrics]\nlisten = \"127.0.0.1:{port}\"\n"
        ),
        ..Plan::default()
    };
    let daemon = plan.start();
    let page = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let tree = daemon.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &[1; 8_192]).unwrap();
    file.flush(false).unwrap();
    file.write_all(0, &[2; 8_192]).unwrap();
    assert!(tree.read_file("none").is_err());
    let text = page();
    let samples = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    check_histograms(&text, &samples);
    check_durability(&text);
    let verdicts = ["protected", "unprotected", "unknown"];
    let verdicts = verdicts.map(|verdict| {
        samples[&format!("holdfast_share_protection{{share=\"data\",verdict=\"{verdict}\"}}")]
    });
    assert_eq!(verdicts.iter().sum::<f64>(), 1.0);
    let data = |name: &str| samples[&format!("holdfast_{name}{{share=\"data\"}}")];
    assert_eq!(data("flushes_honored_total"), 1.0);
    assert_eq!(data("flush_seconds_count"), 1.0);
    assert_eq!(data("exposed_bytes"), 8_192.0);
    let part = "holdfast_exposed_by_policy_bytes{share=\"data\",policy=\"honor\"}";
    assert_eq!(samples[part], 8_192.0);
    assert!(data("syncs_all_total") + data("syncs_data_total") >= 1.0);
    let command = |family: &str, command: &str| {
        samples[&format!("holdfast_requests{family}_total{{command=\"{command}\"}}")]
    };
    assert_eq!(command("", "flush"), 1.0);
    assert_eq!(command("_refused", "create"), 1.0);
    assert_eq!(samples["holdfast_opens"], 1.0);
    assert_eq!(
        samples["holdfast_share_policy{share=\"data\",policy=\"honor\"}"],
        1.0
    );
    file.close().unwrap();
    let samples = parse(&page()).unwrap();
    assert_eq!(
        samples["holdfast_dirty_at_close_total{share=\"data\"}"],
        1.0
    );
}
