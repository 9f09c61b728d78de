//! The shares over which a store is divided, and the figures of each on the terminal.
//!
//! A share stands for a disk, which the server's administrator has arranged. The first share is that of the place.

use std::collections::{BTreeMap, BTreeSet};

use smb_load::{Measured, Summary, experiment::Workload};

use super::Failure;

/// Whether the workload fills all these shares.
pub(super) fn check(workload: &Workload, names: &[String]) -> Result<(), Failure> {
    let Workload::Jetstress { groups, profile } = workload else {
        return Ok(());
    };
    let (count, most) = (names.len(), profile.preset.shares_max(*groups));
    if count > most {
        return Err(format!(
            "{count} shares with the one of the place, and groups = {groups} fills at most {most}; \
             name fewer, or ask for more groups"
        ));
    }
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(name.to_lowercase())) {
        Some(name) => Err(format!(
            "the share {name} is named twice, and the first share is that of the place"
        )),
        None => Ok(()),
    }
}

/// The figures of each group and, if there are several, of each share, below the line of a step.
pub(super) fn lines(names: &[String], measured: &Measured) -> String {
    let mut text = String::new();
    for (number, kinds) in measured.parts.iter().enumerate() {
        text += &line(&format!("group {}", number + 1), kinds, measured.seconds);
    }
    for (name, kinds) in names.iter().zip(&measured.shares) {
        text += &line(&format!("share {name}"), kinds, measured.seconds);
    }
    text
}

fn line(name: &str, kinds: &BTreeMap<String, Summary>, seconds: f64) -> String {
    let kinds = kinds.iter().map(|(kind, of)| figure(kind, of, seconds));
    format!("\n        {name}: {}", kinds.collect::<Vec<_>>().join(", "))
}

/// The rate and the mean latency of a kind of request, and the percentiles for which there were enough.
fn figure(kind: &str, of: &Summary, seconds: f64) -> String {
    let rate = of.count as f64 / seconds.max(f64::MIN_POSITIVE);
    let ms = |micros: f64| micros / 1000.0;
    let mean = format!("{kind} {rate:.1}/s of {:.2} ms", ms(of.mean));
    let percentiles = [("95", of.p95), ("99", of.p99)];
    let there = percentiles
        .into_iter()
        .filter_map(|(part, micros)| Some(format!("{part} % {:.2}", ms(micros? as f64))));
    match there.collect::<Vec<_>>().join(", ").as_str() {
        "" => mean,
        there => format!("{mean} ({there})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(text: &str) -> Workload {
        serde_json::from_str(&format!("{{\"workload\":\"jetstress\"{text}}}")).unwrap()
    }

    fn names(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn shares_that_would_stay_empty_and_shares_named_twice_are_refused() {
        let one = store("");
        assert!(check(&one, &names("data")).is_ok());
        assert!(check(&one, &names("data logs")).is_ok());
        let many = check(&one, &names("data logs more")).unwrap_err();
        assert!(many.contains("3 shares") && many.contains("at most 2"));
        let two = store(",\"groups\":2");
        assert!(check(&two, &names("data logs more last")).is_ok());
        let twice = check(&two, &names("data logs Data")).unwrap_err();
        assert!(twice.contains("Data is named twice"), "{twice}");
        let machines = store(",\"preset\":\"hyper-v\"");
        assert!(check(&machines, &names("data logs")).is_err());
    }

    #[test]
    fn groups_and_shares_have_the_percentiles_that_their_counts_support() {
        let kinds = |reads, logs| {
            let of = |count, mean, p95, p99| Summary {
                count,
                mean,
                p95,
                p99,
                ..Summary::default()
            };
            BTreeMap::from([
                (
                    "database-read".to_owned(),
                    of(reads, 2000.0, Some(3000), Some(4500)),
                ),
                ("log-write".to_owned(), of(logs, 500.0, Some(700), None)),
            ])
        };
        let mut measured = Measured {
            seconds: 10.0,
            parts: vec![kinds(100, 50), kinds(300, 20)],
            ..Measured::default()
        };
        // One share is all that the groups have.
        let text = lines(&names("data"), &measured);
        assert!(text.contains("group 2: ") && !text.contains("share "));
        let few = Summary {
            count: 7,
            mean: 1000.0,
            ..Summary::default()
        };
        measured.shares = vec![kinds(400, 70), [("log-write".to_owned(), few)].into()];
        let text = lines(&names("data logs"), &measured);
        let wanted = [
            "",
            "group 1: database-read 10.0/s of 2.00 ms (95 % 3.00, 99 % 4.50), \
             log-write 5.0/s of 0.50 ms (95 % 0.70)",
            "group 2: database-read 30.0/s of 2.00 ms (95 % 3.00, 99 % 4.50), \
             log-write 2.0/s of 0.50 ms (95 % 0.70)",
            "share data: database-read 40.0/s of 2.00 ms (95 % 3.00, 99 % 4.50), \
             log-write 7.0/s of 0.50 ms (95 % 0.70)",
            "share logs: log-write 0.7/s of 1.00 ms",
        ];
        assert_eq!(text.split('\n').map(str::trim).collect::<Vec<_>>(), wanted);
    }
}
