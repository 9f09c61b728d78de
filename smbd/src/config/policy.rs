//! The durability policy as people write it.
//!
//! One spelling for file and command line: `honor`, `strict-sync`,
//! `treat-host-as-stable-storage`, `bounded:50ms,4MiB`. Also the one plain sentence that tells an
//! administrator what each promises. What the policies *do* lives in the `durability` crate.

use std::{fmt, str::FromStr, time::Duration};

use super::{
    report::nearest,
    values::{ByteSize, Span},
};

/// Shortest and longest delay; the same as in the `durability` crate.
const DELAY_MIN: Duration = Duration::from_millis(1);
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Fewest and most bytes; the same as in the `durability` crate.
const BYTES_MIN: u64 = 64 << 10;
const BYTES_MAX: u64 = 1 << 40;

/// When a change is made stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A successful FLUSH or write-through means stable storage.
    Honor,
    /// The host's memory counts as stable storage.
    TreatHostAsStableStorage,
    /// Every acknowledged change is on stable storage.
    StrictSync,
    /// FLUSH answers at once; what is owed is bounded in age and bytes.
    Bounded {
        /// Oldest acknowledged change that may be volatile.
        max_delay: Duration,
        /// Most acknowledged bytes that may be volatile.
        max_bytes: u64,
    },
}

/// Why a text is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Not a name of a policy.
    #[error("unknown durability policy `{word}`")]
    Unknown {
        /// As written.
        word: String,
        /// The name it was probably meant to be.
        suggestion: Option<&'static str>,
    },
    /// `bounded` alone.
    #[error("`bounded` without its bounds promises nothing")]
    BoundsMissing,
    /// Bounds that cannot be read or kept.
    #[error("{0}")]
    BadBounds(String),
    /// Bounds after a policy that has none.
    #[error("`{0}` takes no bounds")]
    UnexpectedBounds(&'static str),
}

/// The names, in the order in which they are explained.
const NAMES: [&str; 4] = [
    "honor",
    "treat-host-as-stable-storage",
    "strict-sync",
    "bounded",
];

impl PolicyError {
    /// What to write instead.
    #[must_use]
    pub fn way_out(&self) -> String {
        match self {
            Self::Unknown {
                suggestion: Some(near),
                ..
            } => format!("did you mean `{near}`?"),
            Self::Unknown { .. } => format!("the policies are {}", NAMES.join(", ")),
            Self::BoundsMissing | Self::BadBounds(_) => {
                "write the oldest age and the most bytes, as in \"bounded:50ms,4MiB\"".to_owned()
            }
            Self::UnexpectedBounds(name) => format!("write \"{name}\""),
        }
    }
}

impl Policy {
    /// The name without bounds.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Honor => "honor",
            Self::TreatHostAsStableStorage => "treat-host-as-stable-storage",
            Self::StrictSync => "strict-sync",
            Self::Bounded { .. } => "bounded",
        }
    }

    /// What a client can rely on, in one sentence.
    #[must_use]
    pub fn promise(&self) -> String {
        match self {
            Self::Honor => "when a client's flush or write-through succeeds, that data and its \
                            name survive a power failure"
                .to_owned(),
            Self::TreatHostAsStableStorage => {
                "a flush is answered at once: acknowledged data survives a crash of Holdfast, \
                 but NOT a crash or power failure of this machine"
                    .to_owned()
            }
            Self::StrictSync => "every change that was answered survives a power failure, \
                                 whether the client asked for it or not"
                .to_owned(),
            Self::Bounded {
                max_delay,
                max_bytes,
            } => format!(
                "a flush is answered at once: a power failure can take at most the last {} ms or \
                 {} of acknowledged changes",
                max_delay.as_millis(),
                in_words(*max_bytes)
            ),
        }
    }

    /// `bounded` with bounds that can be kept.
    ///
    /// # Errors
    /// [`PolicyError::BadBounds`] outside 1 ms to 60 s and 64 KiB to 1 TiB.
    pub fn bounded(max_delay: Duration, max_bytes: u64) -> Result<Self, PolicyError> {
        if !(DELAY_MIN..=DELAY_MAX).contains(&max_delay) {
            return Err(PolicyError::BadBounds(
                "the delay must lie between 1ms and 60s".into(),
            ));
        }
        if !(BYTES_MIN..=BYTES_MAX).contains(&max_bytes) {
            return Err(PolicyError::BadBounds(
                "the bytes must lie between 64KiB and 1TiB".into(),
            ));
        }
        Ok(Self::Bounded {
            max_delay,
            max_bytes,
        })
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (word, bounds) = match text.split_once(':') {
            Some((word, bounds)) => (word.trim(), Some(bounds)),
            None => (text.trim(), None),
        };
        let plain = match word {
            "honor" => Self::Honor,
            "treat-host-as-stable-storage" => Self::TreatHostAsStableStorage,
            "strict-sync" => Self::StrictSync,
            "bounded" => return bounds.map_or(Err(PolicyError::BoundsMissing), parse_bounds),
            _ => {
                let suggestion = nearest(word, NAMES.into_iter());
                return Err(PolicyError::Unknown {
                    word: word.to_owned(),
                    suggestion,
                });
            }
        };
        match bounds {
            None => Ok(plain),
            Some(_) => Err(PolicyError::UnexpectedBounds(plain.name())),
        }
    }
}

fn parse_bounds(text: &str) -> Result<Policy, PolicyError> {
    let (delay, bytes) = text.split_once(',').ok_or(PolicyError::BoundsMissing)?;
    let delay: Span = delay.trim().parse().map_err(PolicyError::BadBounds)?;
    let bytes: ByteSize = bytes.trim().parse().map_err(PolicyError::BadBounds)?;
    Policy::bounded(delay.0, bytes.0)
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Bounded {
                max_delay,
                max_bytes,
            } => {
                write!(f, ":{}ms,{}", max_delay.as_millis(), in_words(*max_bytes))
            }
            _ => Ok(()),
        }
    }
}

fn in_words(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let whole = bytes >> shift;
        if whole > 0 && whole << shift == bytes {
            return format!("{whole}{unit}");
        }
    }
    format!("{bytes}B")
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
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!(
            "bounded:2s, 64KiB".parse::<Policy>().unwrap().to_string(),
            "bounded:2000ms,64KiB"
        );
    }

    #[test]
    fn refusals_say_how() {
        let way_out = |text: &str| {
            let error = text.parse::<Policy>().unwrap_err();
            format!("{error}; {}", error.way_out())
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
        assert!(way_out("bounded:50ms,0").contains("between 64KiB"));
        assert!(way_out("bounded:50,4MiB").contains("no span of time"));
        assert!(way_out("honor:50ms,4MiB").contains("takes no bounds"));
    }
}
