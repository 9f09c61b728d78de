//! The durability policy for administrators: suggestions for misspellings, and one plain sentence for the promise of
//! each policy.
//!
//! The type, its spelling and its bounds belong to the `durability` crate; nothing is parsed here a second time. A
//! refused text is only examined again to suggest a correction.

use std::time::Duration;

use durability::{Bound, Policy};

use super::report::nearest;

/// The reason why a text is no policy, and the correction to suggest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct PolicyError {
    reason: String,
    pub way_out: String,
}

impl PolicyError {
    fn bad_bounds(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            way_out: "write the oldest age and the most bytes, as in \"bounded:50ms,4MiB\""
                .to_owned(),
        }
    }

    /// It is `bounded` without bounds.
    pub(super) fn bounds_missing() -> Self {
        Self::bad_bounds("`bounded` without its bounds promises nothing")
    }
}

/// The names, in the order in which they are explained.
const NAMES: [&str; 4] = [
    "honor",
    "treat-host-as-stable-storage",
    "strict-sync",
    "bounded",
];

/// Parses a policy of the file or the command line.
pub fn parse(text: &str) -> Result<Policy, PolicyError> {
    let text = text.trim();
    text.parse().map_err(|error: durability::InvalidPolicy| {
        let (word, bounds) = match text.split_once(':') {
            Some((word, bounds)) => (word.trim(), Some(bounds)),
            None => (text, None),
        };
        let (reason, way_out) = match (NAMES.into_iter().find(|name| *name == word), bounds) {
            (None, _) => (
                format!("unknown durability policy `{word}`"),
                match nearest(word, NAMES.into_iter()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the policies are {}", NAMES.join(", ")),
                },
            ),
            (Some("bounded"), Some(bounds)) if bounds.contains(',') => {
                return PolicyError::bad_bounds(error.0);
            }
            (Some("bounded"), _) => return PolicyError::bounds_missing(),
            (Some(name), _) => (
                format!("`{name}` takes no bounds"),
                format!("write \"{name}\""),
            ),
        };
        PolicyError { reason, way_out }
    })
}

/// `bounded` with its two bounds.
pub fn bounded(max_delay: Duration, max_bytes: u64) -> Result<Policy, PolicyError> {
    let bound = Bound::new(max_delay, max_bytes);
    bound
        .map(Policy::Bounded)
        .map_err(|error| PolicyError::bad_bounds(error.0))
}

/// The text of a policy as a single word: `bounded(50ms,4MiB)`.
pub fn in_brackets(policy: &str) -> String {
    match policy.split_once(':') {
        Some((name, bounds)) => format!("{name}({bounds})"),
        None => policy.to_owned(),
    }
}

/// A name as a single word: in quotes if it has spaces or other special characters.
pub fn one_word(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "$-_.".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}

/// The promise to a client, in one sentence.
pub fn promise(policy: &Policy, flush_times: bool) -> String {
    match policy {
        Policy::Honor if !flush_times => {
            "when a client's flush succeeds, the file's data, size, attributes and name survive a \
             power failure; when a write-through succeeds, its data and the file's name do; the \
             modification time may be an older one (flush_times = false)"
                .to_owned()
        }
        Policy::Honor => {
            "when a client's flush succeeds, the file's data, size, times, attributes and name \
             survive a power failure; when a write-through succeeds, its data and the file's name do"
                .to_owned()
        }
        Policy::TreatHostAsStableStorage => {
            "a flush is answered at once: acknowledged data survives a crash of Holdfast, \
             but NOT a crash or power failure of this machine"
                .to_owned()
        }
        Policy::StrictSync => "every change that was answered survives a power failure, \
                               whether the client asked for it or not"
            .to_owned(),
        Policy::Bounded(_) => {
            let text = policy.to_string();
            let bounds = text.split_once(':').map_or("", |(_, bounds)| bounds);
            let (delay, bytes) = bounds.split_once(',').unwrap_or((bounds, ""));
            format!(
                "a flush is answered at once: a power failure can take at most the acknowledged \
                 changes of the last {delay}, and at most {bytes} of them"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_round_trip() {
        for text in [
            "honor",
            "treat-host-as-stable-storage",
            "strict-sync",
            "bounded:50ms,4MiB",
            "bounded:1ms,65537B",
        ] {
            assert_eq!(parse(&format!(" {text} ")).unwrap().to_string(), text);
        }
    }

    #[test]
    fn words_of_a_line() {
        let word = |text: &str| in_brackets(&parse(text).unwrap().to_string());
        assert_eq!(word("bounded:50ms,4MiB"), "bounded(50ms,4MiB)");
        assert_eq!(word("honor"), "honor");
        assert_eq!(one_word("data$"), "data$");
        assert_eq!(one_word("my \"x\"\u{1b}"), "\"my \\\"x\\\"\\u{1b}\"");
    }

    #[test]
    fn promises_name_the_bounds() {
        let bounded = parse("bounded:50ms,4MiB").unwrap();
        let bounds = "changes of the last 50ms, and at most 4MiB of them";
        assert!(promise(&bounded, true).contains(bounds));
        assert!(promise(&Policy::TreatHostAsStableStorage, true).contains("but NOT a crash"));
        assert!(promise(&Policy::Honor, true).contains("data, size, times, attributes and name"));
        let cheap = promise(&Policy::Honor, false);
        assert!(cheap.contains("data, size, attributes and name"), "{cheap}");
        assert!(
            cheap.contains("modification time may be an older one"),
            "{cheap}"
        );
    }

    #[test]
    fn refusals_say_how() {
        let way_out = |text: &str| {
            let error = parse(text).unwrap_err();
            format!("{error}; {}", error.way_out)
        };
        assert_eq!(
            way_out("honour"),
            "unknown durability policy `honour`; did you mean `honor`?"
        );
        assert_eq!(
            way_out("fast"),
            "unknown durability policy `fast`; the policies are honor, \
             treat-host-as-stable-storage, strict-sync, bounded"
        );
        assert!(way_out("bounded").starts_with("`bounded` without its bounds"));
        assert!(way_out("bounded:50ms").contains("bounded:50ms,4MiB"));
        assert!(way_out("bounded:0ms,4MiB").contains("between 1ms and 60s"));
        assert!(way_out("bounded:50ms,1KiB").contains("between 64KiB"));
        assert!(way_out("bounded:50,4MiB").contains("needs a unit"));
        assert!(way_out("honor:50ms,4MiB").contains("takes no bounds"));
    }
}
