//! Checks the filter of the log, of the configuration and of the environment.

use tracing_subscriber::filter::{EnvFilter, LevelFilter};

use super::{
    raw,
    validate::{Findings, get, span},
};

/// Advice for a filter that is wrong.
pub(crate) const FILTER_EXAMPLE: &str = "as in \"info\" or \"warn,smb_server=debug\"";
/// The crates that log.
const LOG_TARGETS: [&str; 4] = ["durability", "smb_server", "smbd", "vfs"];

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
    let words = filter.split(',').map(str::trim);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Err("it is empty".to_owned());
    }
    // Without the blanks: the parser takes them for a part of the target.
    let parsed = words.join(",").parse::<EnvFilter>();
    let parsed = parsed.map_err(|error| error.to_string())?;
    match words.iter().find(|word| !is_known(word)) {
        Some(word) => Err(format!("`{word}` is no level and no part of Holdfast")),
        None => Ok(parsed),
    }
}

/// Whether a word of a filter is a level, or is for a target that something logs under. A target means all that begin
/// with it; before the brackets of a span it may be left out.
fn is_known(word: &str) -> bool {
    let target = word.split(['=', '[']).next().unwrap_or(word);
    let means = |part: &str| {
        let module = target.strip_prefix(part);
        part.starts_with(target) || module.is_some_and(|module| module.starts_with("::"))
    };
    word.parse::<LevelFilter>().is_ok() || LOG_TARGETS.into_iter().any(means)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_hide_all_is_refused() {
        for good in [
            "info",
            "DEBUG",
            "warn,smb_server=debug",
            "smbd",
            "smb=debug",
            "smbd::runtime=trace",
            "warn,[request]=debug",
            "info,durability=warn",
            "vfs",
        ] {
            check_filter(good).unwrap();
        }
        assert!(check_filter("a=b=c").is_err());
        for word in ["verbose", "smb_servr=debug", "smb_servr[a]", "smb_auth"] {
            let mistake = check_filter(word).unwrap_err();
            assert_eq!(
                mistake,
                format!("`{word}` is no level and no part of Holdfast")
            );
        }
        for empty in ["", " ", ","] {
            assert_eq!(check_filter(empty).unwrap_err(), "it is empty");
        }
    }

    #[test]
    fn blanks_around_a_word_mean_nothing() {
        let of = |filter: &str| check_filter(filter).unwrap().to_string();
        assert_eq!(of(" info "), of("info"));
        assert_eq!(of("warn, smb_server=debug"), of("warn,smb_server=debug"));
    }
}
