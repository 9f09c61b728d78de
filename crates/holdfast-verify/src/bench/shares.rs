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

/// The figures of each group and of each share, below the line of a step; nothing if there is one share only.
pub(super) fn lines(workload: &Workload, names: &[String], measured: &Measured) -> String {
    let mut text = String::new();
    let Workload::Jetstress { profile, .. } = workload else {
        return text;
    };
    if names.len() < 2 {
        return text;
    }
    let mut of_shares: Vec<Figures<'_>> = vec![BTreeMap::new(); names.len()];
    for (number, kinds) in measured.parts.iter().enumerate() {
        let [database, logs] = profile.preset.shares_of(number, names.len());
        let sums = kinds.iter().map(|(kind, of)| {
            let sum = of.mean * of.count as f64;
            (kind.as_str(), (of.count, sum))
        });
        let of_group: Figures<'_> = sums.collect();
        for (kind, (count, sum)) in &of_group {
            let share = match kind.starts_with("log-") {
                true => logs,
                false => database,
            };
            if let Some(of_share) = of_shares.get_mut(share) {
                let all = of_share.entry(*kind).or_default();
                all.0 += *count;
                all.1 += *sum;
            }
        }
        text += &line(&format!("group {}", number + 1), &of_group, measured);
    }
    for (name, of_share) in names.iter().zip(&of_shares) {
        text += &line(&format!("share {name}"), of_share, measured);
    }
    text
}

fn line(name: &str, figures: &Figures<'_>, measured: &Measured) -> String {
    let seconds = measured.seconds.max(f64::MIN_POSITIVE);
    let kinds = figures.iter().map(|(kind, (count, sum))| {
        let count = *count as f64;
        let (rate, mean) = (count / seconds, sum / count.max(1.0) / 1000.0);
        format!("{kind} {rate:.1}/s of {mean:.2} ms")
    });
    let kinds: Vec<String> = kinds.collect();
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
        assert_eq!(lines(&two, &names("data"), &measured), "");
        // The second group has its database on the third share, and its log on the first.
        let text = lines(&two, &names("data logs more"), &measured);
        let wanted = [
            "",
            "group 1: database-read 10.0/s of 2.00 ms, log-write 5.0/s of 0.50 ms",
            "group 2: database-read 30.0/s of 2.00 ms, log-write 2.0/s of 0.50 ms",
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
