//! Checks the filter of the log.

use super::{
    raw,
    validate::{Findings, get, span},
};

/// Advice for a filter that is wrong.
const FILTER_EXAMPLE: &str = "as in \"info\" or \"warn,smb_server=debug\"";
/// The crates that log.
const LOG_TARGETS: [&str; 5] = ["durability", "smb_auth", "smb_server", "smbd", "vfs"];

pub(super) fn log_filter(table: &raw::LogTable, findings: &mut Findings) -> String {
    let filter = get(&table.filter, "info".to_owned());
    if let Err(error) = filter.parse::<tracing_subscriber::filter::EnvFilter>() {
        findings.add(
            span(&table.filter),
            format!("log filter: {error}"),
            FILTER_EXAMPLE,
        );
    }
    // A word that is no level names a target, and with that alone nothing else would be logged, not even errors.
    let is_known = |word: &&str| {
        let level = word.parse::<tracing_subscriber::filter::LevelFilter>();
        word.contains(['=', '[']) || level.is_ok() || LOG_TARGETS.contains(word)
    };
    let mut words = filter.split(',').map(str::trim);
    if let Some(word) = words.find(|word| !word.is_empty() && !is_known(word)) {
        findings.add(
            span(&table.filter),
            format!("log filter: `{word}` is no level and no part of Holdfast"),
            FILTER_EXAMPLE,
        );
    }
    filter
}
