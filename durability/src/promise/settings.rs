//! The settings that an administrator chooses for a share: the policy and its options.
//!
//! Owns the types, their text form (`honor`, `treat-host-as-stable-storage`, `strict-sync`,
//! `bounded:50ms,4MiB`) and the ranges allowed. Validating is parsing: a [`Bound`] out of range
//! cannot be made. `policy.rs` decides what a policy *means*.

use std::{fmt, str::FromStr, time::Duration};

/// When a success reply may leave before its effect is on stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// A successful FLUSH or write-through reply means: on stable storage, name included.
    #[default]
    Honor,
    /// The host's memory counts as stable storage: survives the server, not the host.
    TreatHostAsStableStorage,
    /// Every change is durable before its success reply, whether or not the client asked for that.
    StrictSync,
    /// FLUSH is answered at once; every change that was acknowledged longer than the delay ago, or that exceeds the
    /// number of bytes, is durable.
    Bounded(Bound),
}

/// The two limits of [`Policy::Bounded`]. Made with [`Bound::new`] they are in range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Longest time that something acknowledged may stay volatile, 1 ms to 60 s.
    pub max_delay: Duration,
    /// Most bytes that may be acknowledged and volatile, 64 KiB to 1 TiB.
    pub max_bytes: u64,
}

impl Bound {
    /// Shortest delay.
    pub const DELAY_MIN: Duration = Duration::from_millis(1);
    /// Longest delay.
    pub const DELAY_MAX: Duration = Duration::from_secs(60);
    /// Fewest bytes.
    pub const BYTES_MIN: u64 = 64 << 10;
    /// Most bytes.
    pub const BYTES_MAX: u64 = 1 << 40;

    /// A bound, if both limits are in range.
    pub fn new(max_delay: Duration, max_bytes: u64) -> Result<Self, InvalidPolicy> {
        if !(Self::DELAY_MIN..=Self::DELAY_MAX).contains(&max_delay) {
            return Err(InvalidPolicy("the delay must be between 1ms and 60s"));
        }
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&max_bytes) {
            return Err(InvalidPolicy("the bytes must be between 64KiB and 1TiB"));
        }
        Ok(Self {
            max_delay,
            max_bytes,
        })
    }

    /// The smaller of each limit.
    pub(crate) fn tighter(self, other: Self) -> Self {
        Self {
            max_delay: self.max_delay.min(other.max_delay),
            max_bytes: self.max_bytes.min(other.max_bytes),
        }
    }

    /// The smaller of each limit of all that there are.
    pub(crate) fn tightest(all: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        all.into_iter().flatten().reduce(Self::tighter)
    }

    /// Whether going from one to the other promises something new.
    pub(crate) fn tightens(from: Option<Self>, to: Option<Self>) -> bool {
        to.is_some_and(|to| from.is_none_or(|from| from.tighter(to) != from))
    }
}

/// Why a text is no policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPolicy(pub &'static str);

/// Which of the four policies, without its limits. A greater one promises more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyKind {
    /// [`Policy::TreatHostAsStableStorage`].
    TreatHostAsStableStorage,
    /// [`Policy::Bounded`].
    Bounded,
    /// [`Policy::Honor`].
    Honor,
    /// [`Policy::StrictSync`].
    StrictSync,
}

impl PolicyKind {
    /// Every kind, the laziest first.
    pub const ALL: [Self; 4] = [
        Self::TreatHostAsStableStorage,
        Self::Bounded,
        Self::Honor,
        Self::StrictSync,
    ];

    /// The policy's word in settings and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TreatHostAsStableStorage => "treat-host-as-stable-storage",
            Self::Bounded => "bounded",
            Self::Honor => "honor",
            Self::StrictSync => "strict-sync",
        }
    }

    /// Whether a FLUSH is answered before the disk.
    pub const fn is_lazy(self) -> bool {
        matches!(self, Self::TreatHostAsStableStorage | Self::Bounded)
    }
}

impl Policy {
    /// Which of the four it is.
    pub const fn kind(&self) -> PolicyKind {
        match self {
            Self::TreatHostAsStableStorage => PolicyKind::TreatHostAsStableStorage,
            Self::Bounded(_) => PolicyKind::Bounded,
            Self::Honor => PolicyKind::Honor,
            Self::StrictSync => PolicyKind::StrictSync,
        }
    }

    pub(crate) fn bound(&self) -> Option<Bound> {
        match self {
            Self::Bounded(bound) => Some(*bound),
            _ => None,
        }
    }

    /// Whether a FLUSH is answered before the disk.
    pub(crate) fn is_lazy(&self) -> bool {
        self.kind().is_lazy()
    }

    /// Whether a FLUSH covers the times of a file whose contents changed, where `flush_times` is set
    /// so. Under strict-sync every answer does.
    #[must_use]
    pub fn flushes_times(&self, flush_times: bool) -> bool {
        flush_times || *self == Self::StrictSync
    }

    /// The stricter of two; of two bounds the smaller of each limit.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bounded(a), Self::Bounded(b)) => Self::Bounded(a.tighter(b)),
            _ if other.kind() > self.kind() => other,
            _ => self,
        }
    }

    /// Whether going from `self` to `to` promises something that `self` did not.
    pub fn tightens_to(&self, to: &Policy) -> bool {
        match (self, to) {
            (Self::Bounded(a), Self::Bounded(b)) => Bound::tightens(Some(*a), Some(*b)),
            // `bounded` covers plain writes that nobody flushed, `honor` does not: neither
            // promise contains the other.
            (Self::Honor, Self::Bounded(_)) => true,
            _ => to.kind() > self.kind(),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        let Some(bound) = self.bound() else {
            return Ok(());
        };
        let micros = bound.max_delay.as_micros();
        match micros.is_multiple_of(1000) {
            true => write!(f, ":{}ms", micros / 1000)?,
            false => write!(f, ":{micros}us")?,
        }
        let mut units = BYTES.iter();
        let whole = units.find(|(_, factor)| bound.max_bytes.is_multiple_of(*factor));
        let (unit, factor) = whole.unwrap_or(&("B", 1));
        write!(f, ",{}{unit}", bound.max_bytes / factor)
    }
}

/// Units of a delay, in microseconds.
const DELAYS: [(&str, u64); 3] = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
/// Units of bytes, largest first.
const BYTES: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

impl FromStr for Policy {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        let plain = [
            Self::Honor,
            Self::TreatHostAsStableStorage,
            Self::StrictSync,
        ];
        if let Some(known) = plain.iter().find(|one| one.kind().name() == text) {
            return Ok(*known);
        }
        let bound = text.strip_prefix("bounded:").ok_or(InvalidPolicy(
            "expected honor, treat-host-as-stable-storage, strict-sync or bounded:50ms,4MiB",
        ))?;
        let (delay, bytes) = bound
            .split_once(',')
            .ok_or(InvalidPolicy("expected a delay, a comma and bytes"))?;
        let micros = parse(delay, &DELAYS, "a delay needs a unit: us, ms or s")?;
        let bytes = parse(bytes, &BYTES, "bytes need a unit: B, KiB, MiB, GiB or TiB")?;
        Bound::new(Duration::from_micros(micros), bytes).map(Self::Bounded)
    }
}

/// A whole number with one of these units; `unknown` says which they are.
fn parse(text: &str, units: &[(&str, u64)], unknown: &'static str) -> Result<u64, InvalidPolicy> {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.strip_suffix(unit).unwrap_or_default();
    let number: u64 = digits
        .parse()
        .map_err(|_| InvalidPolicy("expected a number"))?;
    let known = units.iter().find(|(name, _)| *name == unit.trim());
    let (_, factor) = known.ok_or(InvalidPolicy(unknown))?;
    let product = number.checked_mul(*factor);
    product.ok_or(InvalidPolicy("the number is too large"))
}

/// Durability of one share. The default is `honor` with the safe side of every option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareDurability {
    /// The policy.
    pub policy: Policy,
    /// Treat Apple's full sync as an ordinary FLUSH. Off: a full sync is honored under every
    /// policy.
    pub ignore_full_sync: bool,
    /// A change of a security descriptor is stable before its reply (a lost revocation is a
    /// security fault). Under `bounded` it stays dirty like the rest.
    pub durable_acl: bool,
    /// Unbuffered requests and opens count as write-through.
    pub unbuffered_is_write_through: bool,
    /// Sync everything dirty when the server stops.
    pub sync_on_stop: bool,
    /// A FLUSH covers the times that a change of contents set. Off: where nothing else changed it
    /// makes data and size stable (`fdatasync`), and the times become stable by age.
    pub flush_times: bool,
}

impl Default for ShareDurability {
    fn default() -> Self {
        Self {
            policy: Policy::Honor,
            ignore_full_sync: false,
            durable_acl: false,
            unbuffered_is_write_through: true,
            sync_on_stop: true,
            flush_times: true,
        }
    }
}

impl ShareDurability {
    /// Durability of a share with this policy and the default options.
    pub fn with_policy(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Whether a continuously available share may have these settings: its handles promise
    /// write-through, which `treat-host-as-stable-storage` and `bounded` cannot give.
    pub fn check_continuous_availability(&self) -> Result<(), InvalidPolicy> {
        match self.policy.is_lazy() {
            true => Err(InvalidPolicy(
                "a continuously available share needs the policy honor or strict-sync",
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_both_ways() {
        for text in [
            "honor",
            "treat-host-as-stable-storage",
            "strict-sync",
            "bounded:50ms,4MiB",
            "bounded:1500us,65537B",
            "bounded:60000ms,1TiB",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        let two_seconds: Policy = "bounded:2s, 128KiB".parse().unwrap();
        assert_eq!(two_seconds.to_string(), "bounded:2000ms,128KiB");
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        for text in [
            "",
            "Honor",
            "strict",
            "bounded",
            "bounded:",
            "bounded:50ms",
            "bounded:50,4MiB",
            "bounded:0ms,4MiB",
            "bounded:61s,4MiB",
            "bounded:50ms,1KiB",
            "bounded:50ms,2TiB",
            "bounded:50ms,4MB",
            "bounded:-5ms,4MiB",
            "bounded:99999999999999999999s,4MiB",
            "bounded:50ms,18446744073709551615TiB",
        ] {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
    }

    #[test]
    fn tightening() {
        let b = |text: &str| text.parse::<Policy>().unwrap();
        let (honor, host, strict) = (
            Policy::Honor,
            Policy::TreatHostAsStableStorage,
            Policy::StrictSync,
        );
        assert!(host.tightens_to(&honor) && host.tightens_to(&strict));
        assert!(honor.tightens_to(&strict) && !strict.tightens_to(&honor));
        assert!(host.tightens_to(&b("bounded:1s,4MiB")));
        assert!(b("bounded:1s,4MiB").tightens_to(&b("bounded:900ms,8MiB")));
        assert!(!b("bounded:1s,4MiB").tightens_to(&b("bounded:2s,4MiB")));
        assert!(honor.tightens_to(&b("bounded:1s,4MiB")));
        assert!(b("bounded:1s,4MiB").tightens_to(&honor));
    }

    #[test]
    fn continuous_availability_needs_a_policy_that_writes_through() {
        let check = |text: &str| {
            ShareDurability::with_policy(text.parse().unwrap()).check_continuous_availability()
        };
        assert!(check("honor").is_ok() && check("strict-sync").is_ok());
        assert!(check("treat-host-as-stable-storage").is_err());
        assert!(check("bounded:50ms,4MiB").is_err());
    }
}
