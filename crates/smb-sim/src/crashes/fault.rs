//! A fault of the server, planted for the simulator to find.
//!
//! Where possible it is made from outside, without a line in the code that ships: the disk answers a sync and does
//! not carry it out as requested ([`Deceit`]), or the code that starts the server leaves something out
//! ([`Neglect`]). All others are planted in the engine, which only the cargo feature `planted-faults` makes
//! possible. Owns the list of all faults, and the policies under which each breaks a promise.

use std::{fmt, str::FromStr, time::Duration};

#[cfg(feature = "planted-faults")]
use durability::Planted;
use durability::{Bound, Policy, ShareDurability};
use vfs::sim::Deceit;

use super::plan::Plan;

/// A step that the start of the server leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Neglect {
    /// The engine is given `treat-host-as-stable-storage` where `honor` is configured.
    HostStableTakenForHonor,
    /// The engine is given a bound that is never reached.
    BoundExceeded,
    /// The engine is given `flush_times = false` where it is on.
    TimesLeftOut,
    /// The engine is given `ignore_full_sync = true` where it is off.
    FullSyncIgnored,
    /// Stored latches are not given back to the engine when the server starts.
    LatchesForgottenAtStart,
    LatchesNotStored,
    /// The file system is not synced when the server starts after an unclean end.
    NoSyncAtStart,
}

impl Neglect {
    const ALL: [Self; 7] = [
        Self::HostStableTakenForHonor,
        Self::BoundExceeded,
        Self::TimesLeftOut,
        Self::FullSyncIgnored,
        Self::LatchesForgottenAtStart,
        Self::LatchesNotStored,
        Self::NoSyncAtStart,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    #[cfg(feature = "planted-faults")]
    Engine(Planted),
    /// Between the engine and the disk of the share.
    Disk(Deceit),
    /// Between the store of latches and its disk.
    Store(Deceit),
    /// Around the engine.
    Start(Neglect),
}

impl Fault {
    pub fn all() -> impl Iterator<Item = Self> {
        let disk = Deceit::ALL.into_iter().map(Self::Disk);
        let start = Neglect::ALL.into_iter().map(Self::Start);
        // Records are written durably, each segment's name is synced once.
        let store = [Deceit::DsyncIgnored, Deceit::DirectorySyncSkipped];
        let outside = disk.chain(store.map(Self::Store)).chain(start);
        #[cfg(feature = "planted-faults")]
        let outside = outside.chain(Planted::ALL.iter().copied().map(Self::Engine));
        outside
    }

    /// The policy whose promise it breaks.
    #[must_use]
    pub fn policy(self) -> Policy {
        match self {
            Self::Start(Neglect::BoundExceeded) => Plan::policies()[2],
            Self::Start(Neglect::FullSyncIgnored) => Policy::TreatHostAsStableStorage,
            _ => Policy::Honor,
        }
    }

    /// The settings that the engine is given in place of the configured ones.
    pub(crate) fn given(self, mut settings: ShareDurability) -> ShareDurability {
        let Self::Start(neglect) = self else {
            return settings;
        };
        match (neglect, settings.policy) {
            (Neglect::HostStableTakenForHonor, Policy::Honor) => {
                settings.policy = Policy::TreatHostAsStableStorage;
            }
            (Neglect::BoundExceeded, Policy::Bounded(_)) => {
                settings.policy = Policy::Bounded(Bound {
                    max_delay: Duration::from_secs(3600),
                    max_bytes: 1 << 40,
                });
            }
            (Neglect::TimesLeftOut, _) => settings.flush_times = false,
            (Neglect::FullSyncIgnored, _) => settings.ignore_full_sync = true,
            _ => {}
        }
        settings
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "planted-faults")]
            Self::Engine(fault) => write!(f, "{fault:?}"),
            Self::Disk(fault) => write!(f, "{fault:?}"),
            Self::Store(fault) => write!(f, "Store{fault:?}"),
            Self::Start(fault) => write!(f, "{fault:?}"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::all().find(|fault| fault.to_string() == text);
        found.ok_or_else(|| {
            let all: Vec<_> = Self::all().map(|fault| fault.to_string()).collect();
            format!("{text} is none of {}", all.join(", "))
        })
    }
}
