//! A finding under a share that concerns its durability, as a word and as a sentence.
//!
//! Each [`What`] has a fixed weight; [`super::Assessment`] derives the verdict from them. Words are for logs and
//! metrics and do not change; sentences are for people.

use std::fmt;

/// How a finding bears on the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Worth knowing; changes nothing.
    Note,
    /// Something decides that cannot be seen from here.
    Unknown,
    /// Something is known to lose data that it has accepted.
    Unprotected,
}

/// The kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A device says that its write cache is volatile.
    VolatileCache,
    /// A layer takes no flush although something below it has a volatile cache.
    FlushNotPassedOn,
    /// The kernel assumes "write through", the drive itself reports "write back".
    CacheContradicts,
    /// The device is memory.
    Memory,
    /// A file system without a journal: a power failure can tear it.
    NoJournal,
    /// `data=writeback`: after a crash files can hold other files' old blocks.
    DataWriteback,
    /// The file system never flushes the device's cache.
    NoBarrier,
    /// Mounted so that syncs do nothing.
    SyncIgnored,
    /// Another machine's file system.
    NetworkFileSystem,
    /// Another machine's device.
    NetworkDevice,
    /// A file system in a process.
    Fuse,
    /// Layers of file systems.
    Overlay,
    /// A hypervisor's device: its cache mode cannot be seen.
    Virtual,
    /// A RAID controller: whether its cache has a battery cannot be seen.
    Controller,
    /// A USB bridge: many answer a flush that they do not pass on.
    UsbBridge,
    /// The journal is on a device that was not found.
    ExternalJournal,
    /// A file system that nothing is known of here.
    FileSystemNotKnown,
    /// Something could not be read, or there was no end to it.
    CannotSee,
    /// The device is a file.
    Loop,
    /// btrfs syncs by whole transactions: right, and slow.
    NoTreeLog,
    /// RAID 4, 5 or 6 without journal: a power failure can tear a stripe.
    WriteHole,
    /// The machine runs on a battery.
    OnBattery,
}

/// A finding and its subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The kind of finding.
    pub what: What,
    /// Device, mount point, file system or file; printable.
    pub subject: String,
}

impl What {
    /// The name in logs, metrics and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::VolatileCache => "volatile-cache",
            Self::FlushNotPassedOn => "flush-not-passed-on",
            Self::CacheContradicts => "cache-contradicts",
            Self::Memory => "memory",
            Self::NoJournal => "no-journal",
            Self::DataWriteback => "data-writeback",
            Self::NoBarrier => "no-barrier",
            Self::SyncIgnored => "sync-ignored",
            Self::NetworkFileSystem => "network-file-system",
            Self::NetworkDevice => "network-device",
            Self::Fuse => "fuse",
            Self::Overlay => "overlay",
            Self::Virtual => "virtual",
            Self::Controller => "raid-controller",
            Self::UsbBridge => "usb-bridge",
            Self::ExternalJournal => "external-journal",
            Self::FileSystemNotKnown => "file-system-not-known",
            Self::CannotSee => "cannot-see",
            Self::Loop => "loop",
            Self::NoTreeLog => "no-tree-log",
            Self::WriteHole => "write-hole",
            Self::OnBattery => "on-battery",
        }
    }

    /// How it bears on the verdict.
    #[must_use]
    pub fn weight(self) -> Weight {
        match self {
            Self::VolatileCache
            | Self::FlushNotPassedOn
            | Self::CacheContradicts
            | Self::Memory
            | Self::NoJournal
            | Self::DataWriteback
            | Self::NoBarrier
            | Self::SyncIgnored => Weight::Unprotected,
            Self::NetworkFileSystem
            | Self::NetworkDevice
            | Self::Fuse
            | Self::Overlay
            | Self::Virtual
            | Self::Controller
            | Self::UsbBridge
            | Self::ExternalJournal
            | Self::FileSystemNotKnown
            | Self::CannotSee => Weight::Unknown,
            Self::Loop | Self::NoTreeLog | Self::WriteHole | Self::OnBattery => Weight::Note,
        }
    }

    /// Whether even a sync that succeeded may not have reached stable storage: no policy can make
    /// up for that.
    #[must_use]
    pub fn breaks_syncs(self) -> bool {
        matches!(
            self,
            Self::FlushNotPassedOn
                | Self::CacheContradicts
                | Self::Memory
                | Self::NoBarrier
                | Self::SyncIgnored
        )
    }
}

impl What {
    /// The rest of a sentence that begins with the subject.
    fn predicate(self) -> &'static str {
        match self {
            Self::VolatileCache => " has a volatile write cache: only what is flushed is stable",
            Self::FlushNotPassedOn => {
                " takes no flush although what is below it has a volatile cache: SYNCS DO NOT \
                 REACH THE DISK"
            }
            Self::CacheContradicts => {
                " says that its cache is volatile, but the kernel was told to send no flush \
                 (queue/write_cache): SYNCS DO NOT REACH THE DISK"
            }
            Self::Memory => " is memory: nothing survives the host",
            Self::NoJournal => " has no journal: a power failure can leave it torn",
            Self::DataWriteback => {
                " is mounted data=writeback: after a crash a file can hold stale blocks"
            }
            Self::NoBarrier => {
                " is mounted without barriers: SYNCS DO NOT REACH THE DISK where its cache is \
                 volatile"
            }
            Self::SyncIgnored => " is mounted so that SYNCS DO NOTHING",
            Self::NetworkFileSystem => " is on another machine, which cannot be seen from here",
            Self::NetworkDevice => {
                " is a device of another machine, which cannot be seen from here"
            }
            Self::Fuse => " is a file system in a process: what its syncs do cannot be seen",
            Self::Overlay => " is an overlay over other file systems",
            Self::Virtual => " is a hypervisor's: its cache mode cannot be seen",
            Self::Controller => {
                " is a RAID controller's: whether its cache has a battery cannot be seen"
            }
            Self::UsbBridge => " is behind USB: not every bridge passes on a flush",
            Self::ExternalJournal => " has its journal on another device, which was not found",
            Self::FileSystemNotKnown => ": what its syncs promise is not known here",
            Self::CannotSee => " could not be looked at",
            Self::Loop => " is a file used as a device",
            Self::NoTreeLog => {
                " is mounted notreelog: each sync is a whole transaction (right, and slow)"
            }
            Self::WriteHole => {
                " is RAID with parity and no journal: a power failure can tear a stripe"
            }
            Self::OnBattery => " says that THE MACHINE RUNS ON A BATTERY",
        }
    }
}

impl fmt::Display for Finding {
    /// One sentence without a full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.subject, self.what.predicate())
    }
}
