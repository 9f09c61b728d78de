//! The shares over which a store is divided, and the figures of each on the terminal.
//!
//! A share stands for a disk, which the server's administrator has arranged. The first share is that of the place.

use std::collections::{BTreeMap, BTreeSet};

use smb_load::{Measured, experiment::Workload};

use super::Failure;

/// The requests of each kind, and the sum of their latencies in microseconds.
type Figures<'a> = BTreeMap<&'a str, (u64, f64)>;

/// Whether the workload fills all these shares.
///
/// # Errors
/// The reason why it does not.
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
pub(super) fn lines(workload: &Workload, names: &[String], measured: &Measured) -> String {
    let mut text = String::new();
    let Workload::Jetstress { profile, .. } = workload else {
        return text;
    };
    let mut of_shares: Vec<Figures<'_>> = vec![BTreeMap::new(); names.len()];
    for (number, kinds) in measured.parts.iter().enumerate() {
        let [database, logs] = profile.preset.shares_of(number, names.len());
        let mut of_group = Vec::new();
        for (kind, of) in kinds {
            let sum = of.mean * of.count as f64;
            let share = match kind.starts_with("log-") {
                true => logs,
                false => database,
            };
            if let Some(of_share) = of_shares.get_mut(share) {
                let all = of_share.entry(kind.as_str()).or_default();
                all.0 += of.count;
                all.1 += sum;
            }
            let ms = |micros: u64| micros as f64 / 1000.0;
            let (p95, p99) = (ms(of.p95), ms(of.p99));
            let mean = figure(kind, of.count, sum, measured);
            of_group.push(format!("{mean} (95 % {p95:.2}, 99 % {p99:.2})"));
        }
        text += &line(&format!("group {}", number + 1), &of_group);
    }
    if names.len() < 2 {
        return text;
    }
    for (name, of_share) in names.iter().zip(&of_shares) {
        // Percentiles of several groups cannot be put together.
        let kinds = of_share.iter();
        let kinds = kinds.map(|(kind, (count, sum))| figure(kind, *count, *sum, measured));
        text += &line(&format!("share {name}"), &kinds.collect::<Vec<_>>());
    }
    text
}

fn figure(kind: &str, count: u64, sum: f64, measured: &Measured) -> String {
    let count = count as f64;
    let rate = count / measured.seconds.max(f64::MIN_POSITIVE);
    let mean = sum / count.max(1.0) / 1000.0;
    format!("{kind} {rate:.1}/s of {mean:.2} ms")
}

fn line(name: &str, kinds: &[String]) -> String {
    format!("\n        {name}: {}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use smb_load::Summary;

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
    fn a_share_has_the_figures_of_the_databases_and_logs_on_it() {
        let kinds = |reads, logs| {
            let of = |count, mean| Summary {
                count,
                mean,
                p95: 3000,
                p99: 4500,
                ..Summary::default()
            };
            BTreeMap::from([
                ("database-read".to_owned(), of(reads, 2000.0)),
                ("log-write".to_owned(), of(logs, 500.0)),
            ])
        };
        let measured = Measured {
            seconds: 10.0,
            parts: vec![kinds(100, 50), kinds(300, 20)],
            ..Measured::default()
        };
        let two = store(",\"groups\":2");
        let text = lines(&two, &names("data"), &measured);
        assert!(text.contains("group 2: ") && !text.contains("share "));
        // The second group has its database on the third share, and its log on the first.
        let text = lines(&two, &names("data logs more"), &measured);
        let wanted = [
            "",
            "group 1: database-read 10.0/s of 2.00 ms (95 % 3.00, 99 % 4.50), \
             log-write 5.0/s of 0.50 ms (95 % 3.00, 99 % 4.50)",
            "group 2: database-read 30.0/s of 2.00 ms (95 % 3.00, 99 % 4.50), \
             log-write 2.0/s of 0.50 ms (95 % 3.00, 99 % 4.50)",
            "share data: database-read 10.0/s of 2.00 ms, log-write 2.0/s of 0.50 ms",
            "share logs: log-write 5.0/s of 0.50 ms",
            "share more: database-read 30.0/s of 2.00 ms",
        ];
        assert_eq!(text.split('\n').map(str::trim).collect::<Vec<_>>(), wanted);
        // Both logs are on the second share.
        let text = lines(&two, &names("data logs"), &measured);
        assert!(text.ends_with("share logs: log-write 7.0/s of 0.50 ms"));
    }
}
