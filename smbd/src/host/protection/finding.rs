//! A finding under a share that concerns its durability, as a word and as a sentence.
//!
//! Each [`FindingKind`] has a fixed weight; [`super::Assessment`] derives the verdict from them. Words are for logs and
//! metrics and do not change; sentences are for people.

use std::fmt;

/// How a finding bears on the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Worth knowing; changes nothing.
    Note,
    /// It depends on something that cannot be seen from here.
    Unknown,
    /// Something is known to lose data that it has accepted.
    Unprotected,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $weight:ident, $word:literal, $predicate:literal;)*) => {
        /// The kind of finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingKind { $($(#[$doc])* $kind,)* }

        impl FindingKind {
            /// The name in logs, metrics and JSON.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$kind => $word,)* }
            }

            /// How it bears on the verdict.
            #[must_use]
            pub fn weight(self) -> Weight {
                match self { $(Self::$kind => Weight::$weight,)* }
            }

            /// The rest of a sentence that begins with the subject.
            fn predicate(self) -> &'static str {
                match self { $(Self::$kind => $predicate,)* }
            }
        }
    };
}

kinds! {
    /// A device says that its write cache is volatile.
    VolatileCache: Unprotected, "volatile-cache",
        " has a volatile write cache: only what is flushed is stable";
    /// A layer takes no flush although something below it has a volatile cache.
    FlushNotPassedOn: Unprotected, "flush-not-passed-on",
        " takes no flush although what is below it has a volatile cache: SYNCS DO NOT \
         REACH THE DISK";
    /// The kernel assumes "write through", the drive itself reports "write back".
    CacheContradicts: Unprotected, "cache-contradicts",
        " says that its cache is volatile, but the kernel is set to send no flush \
         (queue/write_cache): SYNCS DO NOT REACH THE DISK";
    /// The device is memory.
    Memory: Unprotected, "memory", " is memory: nothing survives the host";
    /// A file system without a journal: a power failure can tear it.
    NoJournal: Unprotected, "no-journal", " has no journal: a power failure can leave it torn";
    /// `data=writeback`: after a crash files can hold other files' old blocks.
    DataWriteback: Unprotected, "data-writeback",
        " is mounted data=writeback: after a crash a file can hold stale blocks";
    /// The file system never flushes the device's cache.
    NoBarrier: Unprotected, "no-barrier",
        " is mounted without barriers: SYNCS DO NOT REACH THE DISK where its cache is \
         volatile";
    /// Mounted so that syncs do nothing.
    SyncIgnored: Unprotected, "sync-ignored", " is mounted so that SYNCS DO NOTHING";
    /// Another machine's file system.
    NetworkFileSystem: Unknown, "network-file-system",
        " is on another machine, which cannot be seen from here";
    /// Another machine's device.
    NetworkDevice: Unknown, "network-device",
        " is a device of another machine, which cannot be seen from here";
    /// A file system in a process.
    Fuse: Unknown, "fuse", " is a file system in a process: what its syncs do cannot be seen";
    /// Layers of file systems.
    Overlay: Unknown, "overlay", " is an overlay over other file systems";
    /// A hypervisor's device: its cache mode cannot be seen.
    Virtual: Unknown, "virtual", " is a hypervisor's: its cache mode cannot be seen";
    /// A RAID controller: whether its cache has a battery cannot be seen.
    Controller: Unknown, "raid-controller",
        " is a RAID controller's: whether its cache has a battery cannot be seen";
    /// A USB bridge: many answer a flush that they do not pass on.
    UsbBridge: Unknown, "usb-bridge", " is behind USB: not every bridge passes on a flush";
    /// The journal is on a device that was not found.
    ExternalJournal: Unknown, "external-journal",
        " has its journal on another device, which was not found";
    /// A file system that nothing is known of here.
    FileSystemNotKnown: Unknown, "file-system-not-known",
        ": what its syncs promise is not known here";
    /// Something could not be read, or there was no end to it.
    CannotSee: Unknown, "cannot-see", " could not be looked at";
    /// The device is a file.
    Loop: Note, "loop", " is a file used as a device";
    /// btrfs syncs by whole transactions: right, and slow.
    NoTreeLog: Note, "no-tree-log",
        " is mounted notreelog: each sync is a whole transaction (right, and slow)";
    /// RAID 4, 5 or 6 without journal: a power failure can tear a stripe.
    WriteHole: Note, "write-hole",
        " is RAID with parity and no journal: a power failure can tear a stripe";
    /// The machine runs on a battery.
    OnBattery: Note, "on-battery", " says that THE MACHINE RUNS ON A BATTERY";
}

/// A finding and its subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The kind of finding.
    pub kind: FindingKind,
    /// Device, mount point, file system or file; printable.
    pub subject: String,
}

impl FindingKind {
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

impl fmt::Display for Finding {
    /// One sentence without a full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.subject, self.kind.predicate())
    }
}
