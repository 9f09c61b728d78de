//! Faults planted on purpose, so that the simulator can prove that it finds each of them.
//!
//! Only with the cargo feature `planted-faults`, which is for tests and never a default: without
//! it [`Durability::planted`] is the constant `false` and every hook is compiled away. A fault is
//! planted in one engine, not globally. Each hook breaks exactly one promise, in the way that a
//! server in the field does or did.

use vfs::Vfs;

use crate::table::Durability;

/// One promise to break.
#[cfg_attr(not(feature = "planted-faults"), allow(unreachable_pub))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// A file is synced, the directory that holds its name is not.
    NoParentSync,
    /// A rename between directories syncs the new one only.
    OneParentOnRename,
    /// `fdatasync` whatever changed.
    FdatasyncForFlush,
    /// A failed sync counts as a good one.
    SwallowedError,
    /// The reply leaves when the sync has started.
    EarlyAcknowledgement,
    /// `honor` behaves as `treat-host-as-stable-storage`.
    HostStableTakenForHonor,
    /// FLUSH of a stream answers success without a sync.
    StreamFlushWithoutSync,
    /// Nothing is paid within its bound and nothing held back.
    BoundExceeded,
    /// Only writes under way count as exposed.
    ExposureUnderReported,
}

impl Planted {
    /// Every fault.
    #[cfg(feature = "planted-faults")]
    pub const ALL: [Self; 9] = [
        Self::NoParentSync,
        Self::OneParentOnRename,
        Self::FdatasyncForFlush,
        Self::SwallowedError,
        Self::EarlyAcknowledgement,
        Self::HostStableTakenForHonor,
        Self::StreamFlushWithoutSync,
        Self::BoundExceeded,
        Self::ExposureUnderReported,
    ];
}

#[cfg(feature = "planted-faults")]
impl<V: Vfs> Durability<V> {
    /// Plants a fault in this engine, or digs it out. Do it before the first request.
    pub fn plant(&self, fault: Option<Planted>) {
        *crate::share::lock(&self.planted) = fault;
    }

    pub(crate) fn planted(&self, fault: Planted) -> bool {
        *crate::share::lock(&self.planted) == Some(fault)
    }
}

#[cfg(not(feature = "planted-faults"))]
impl<V: Vfs> Durability<V> {
    #[inline(always)]
    #[allow(clippy::unused_self)]
    pub(crate) const fn planted(&self, _: Planted) -> bool {
        false
    }
}
