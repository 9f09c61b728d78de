//! Checks the filter of the log, of the configuration and of the environment.

use tracing_subscriber::filter::{EnvFilter, LevelFilter};

use super::{
    raw,
    validate::{Findings, get, span},
};

/// Advice for a filter that is wrong.
pub(crate) const FILTER_EXAMPLE: &str = "as in \"info\" or \"warn,smb_server=debug\"";
/// The crates that log.
const LOG_TARGETS: [&str; 5] = ["durability", "smb_auth", "smb_server", "smbd", "vfs"];

pub(super) fn log_filter(table: &raw::LogTable, findings: &mut Findings) -> String {
    let filter = get(&table.filter, "info".to_owned());
    if let Err(mistake) = check_filter(&filter) {
        findings.add(
            span(&table.filter),
            format!("log filter: {mistake}"),
            FILTER_EXAMPLE,
        );
    }
    filter
}

/// Checks that a filter can be parsed, and that it names no target that nothing logs under: a word that is no level is
/// a target, and with that alone nothing would be logged, not even errors.
pub(crate) fn check_filter(filter: &str) -> Result<EnvFilter, String> {
    let parsed = filter.parse::<EnvFilter>();
    let parsed = parsed.map_err(|error| error.to_string())?;
    let is_known = |word: &&str| {
        let level = word.parse::<LevelFilter>();
        word.contains(['=', '[']) || level.is_ok() || LOG_TARGETS.contains(word)
    };
    let mut words = filter.split(',').map(str::trim);
    match words.find(|word| !word.is_empty() && !is_known(word)) {
        Some(word) => Err(format!("`{word}` is no level and no part of Holdfast")),
        None => Ok(parsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_hide_all_is_refused() {
        for good in ["info", "DEBUG", "warn,smb_server=debug", "smbd"] {
            check_filter(good).unwrap();
        }
        assert!(check_filter("a=b=c").is_err());
        let mistake = check_filter("verbose").unwrap_err();
        assert_eq!(mistake, "`verbose` is no level and no part of Holdfast");
    }
}
