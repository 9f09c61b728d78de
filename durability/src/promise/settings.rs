//! The settings that an administrator chooses for a share: the options of its policy, and the text form
//! of a policy (`honor`, `treat-host-as-stable-storage`, `strict-sync`, `bounded:50ms,4MiB`).
//!
//! Validating is parsing: a [`Bound`] out of range cannot be made.

use std::{fmt, str::FromStr, time::Duration};

use super::policy::{Bound, InvalidPolicy, Policy};

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
        let limits = bound.split_once(',');
        let (delay, bytes) = limits.ok_or(InvalidPolicy("expected a delay, a comma and bytes"))?;
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
    let number = digits.parse::<u64>();
    let number = number.map_err(|_| InvalidPolicy("expected a number"))?;
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
    /// Treat Apple's full sync as an ordinary FLUSH. Off: a full sync is honored under every policy.
    pub ignore_full_sync: bool,
    /// A change of a security descriptor is stable before its reply (a lost revocation is a
    /// security fault). Under `bounded` it stays dirty like the rest.
    pub durable_acl: bool,
    /// Unbuffered requests and opens count as write-through.
    pub unbuffered_is_write_through: bool,
    /// Sync everything dirty when the server stops.
    pub sync_on_stop: bool,
    /// A FLUSH covers the times that a change of contents set. Off: where nothing else changed, a FLUSH
    /// makes only data and size stable (`fdatasync`); a background sync saves the times later.
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

    /// Refuses settings that a continuously available share cannot have: its handles promise
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
