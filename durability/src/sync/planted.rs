//! Faults planted in the engine on purpose, so that the tests can prove that they find each of them.
//!
//! Only in the engine's own unit tests and with the cargo feature `planted-faults`, which is for tests and never a
//! default: elsewhere [`Durability::planted`] is the constant `false` and every hook is compiled away. Each hook breaks
//! exactly one promise of one engine, in the way that a server in the field does or did. This list has only faults that
//! nothing around the engine can make: a disk that does not sync as asked, a restart that forgets and a policy that is
//! not handed on are made by the simulator (`smb_sim::crashes::Fault`, which includes these as well).
//!
//! A fault that waits for less than the event table says is in [`Durability::weakened`]; others stand where they act.

use vfs::Volume;

use crate::{
    policy::{Barriers, Event, FlushTarget, Wait},
    sync::Durability,
};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One promise to break.
        #[cfg_attr(not(feature = "planted-faults"), allow(unreachable_pub))]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Planted { $($(#[$doc])* $name,)* }

        impl Planted {
            /// Every fault.
            #[cfg(feature = "planted-faults")]
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

faults! {
    /// A file is synced, the directory that holds its name is not.
    NoParentSync,
    /// A rename between directories syncs the new one only.
    OneParentOnRename,
    /// The reply leaves when the sync has started.
    EarlyAcknowledgement,
    /// FLUSH of a stream answers success without a sync.
    StreamFlushWithoutSync,
    /// FLUSH of a directory syncs nothing.
    DirectoryFlushWithoutSync,
    /// FLUSH of a directory does not sync the directory in which it is found.
    DirectoryFlushWithoutParent,
    /// FLUSH of the share's root syncs the root alone.
    RootFlushOfRootAlone,
    /// FLUSH joins a sync that began before it.
    JoinsRunningSync,
    /// FLUSH does not wait for the writes under way.
    FlushBeforeEarlierWrites,
    /// FLUSH does not wait for the writes that were accepted and are not under way.
    FlushBeforeAcceptedWrites,
    /// A write-through WRITE does not sync the names of its file.
    WriteThroughWithoutNames,
    /// A write-through WRITE to a stream is answered before the disk.
    StreamWriteThroughLazy,
    /// COPYCHUNK and SET_ZERO_DATA through a write-through open are answered before the disk.
    ContentThroughLazy,
    /// Attributes, times and EAs set through a write-through open are answered before the disk.
    MetadataThroughLazy,
    /// Creations, renames and links through a write-through open are answered before the disk.
    NameThroughLazy,
    /// Removals through a write-through open are answered before the disk.
    RemovalThroughLazy,
    /// An end of file set through a write-through open is answered before the disk.
    ResizeThroughLazy,
    /// A sync goes through the first descriptor held of the inode, not through the writer's.
    KeepFirstDescriptor,
    /// `fdatasync` of a poisoned inode, where a full sync is due.
    DataSyncAfterFailure,
    /// An inode counts as clean when its sync starts.
    CleanBeforeResult,
    /// The next sync that succeeds ends a latch, whatever was rewritten.
    LatchEndsWithNextSync,
    /// A latch ends with the last handle on its inode.
    LatchForgottenOnClose,
    /// A write that was under way when a sync failed counts as an ordinary dirty one.
    WriteBesideFailureTrusted,
    /// Any other change that was under way when a sync failed counts as an ordinary one.
    ChangeBesideFailureTrusted,
    /// A write-through WRITE that fails leaves only its own range unproven.
    FailedThroughTrustsOthers,
    /// Setting a stricter policy returns before everything dirty is stable.
    PolicySetWithoutSync,
    /// Only writes under way count as exposed.
    ExposureUnderReported,
}

#[cfg(any(test, feature = "planted-faults"))]
impl<V: Volume> Durability<V> {
    /// Plants a fault in this engine, or removes it. Call this before the first request.
    pub fn plant(&self, fault: Option<Planted>) {
        *vfs::lock(&self.planted) = fault;
    }

    pub(crate) fn planted(&self, fault: Planted) -> bool {
        *vfs::lock(&self.planted) == Some(fault)
    }
}

#[cfg(not(any(test, feature = "planted-faults")))]
impl<V: Volume> Durability<V> {
    #[inline(always)]
    #[allow(clippy::unused_self)]
    pub(crate) const fn planted(&self, _: Planted) -> bool {
        false
    }
}

impl<V: Volume> Durability<V> {
    /// The barriers of an event, without those that a planted fault leaves out.
    #[inline(always)]
    pub(crate) fn weakened(&self, event: Event, mut barriers: Barriers) -> Barriers {
        let fault = match event {
            Event::Flush(FlushTarget::Directory) => Planted::DirectoryFlushWithoutSync,
            Event::Write => Planted::WriteThroughWithoutNames,
            Event::WriteStream => Planted::StreamWriteThroughLazy,
            Event::Content => Planted::ContentThroughLazy,
            Event::Meta(_) => Planted::MetadataThroughLazy,
            Event::Create | Event::Rename | Event::Move | Event::Link => Planted::NameThroughLazy,
            Event::Remove => Planted::RemovalThroughLazy,
            Event::Resize => Planted::ResizeThroughLazy,
            Event::Flush(_) | Event::Close | Event::Stream => return barriers,
        };
        if self.planted(fault) {
            barriers.wait = Wait::Nothing;
        }
        barriers
    }
}
