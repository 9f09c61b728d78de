//! Faults that a test plants in a simulated disk, and the hook that makes operations slow.

use std::{future::Future, pin::Pin, sync::Arc};

/// At most this many faults may be planted at a time; further ones are refused.
pub const FAULTS_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimOp {
    Read,
    /// `write`, durable ones included, and `copy_range`.
    Write,
    /// `fsync`, `fdatasync`, and the syncing half of a durable write.
    Sync,
    /// Everything that changes names, attributes, sizes or allocation.
    Change,
    /// Everything that only queries.
    Look,
    /// A write, a change or a sync has taken place, and its caller does not know the result yet. No fault hits this.
    Answer,
}

/// The action of a planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAction {
    /// The operation fails with this errno and changes nothing. A failed [`SimOp::Sync`] loses
    /// the inode's waiting blocks by chance and counts them clean; every descriptor open at that time gets the error
    /// once.
    Fail(i32),
    /// A read or write transfers about half of the bytes requested: at least one byte, and whole sectors if there is
    /// more than one.
    Short,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub on: SimOp,
    /// The number of such operations that pass first: 0 hits the next one.
    pub after: u64,
    pub action: FaultAction,
}

/// The future that an operation awaits before it takes place.
pub type SimYield = Pin<Box<dyn Future<Output = ()>>>;

/// Called before every operation, and once more before a write, change or sync returns ([`SimOp::Answer`]), in the
/// order of arrival. With `None` the operation continues at once; a future is awaited first. An executor that
/// interleaves, delays or counts operations supplies it.
pub type SimHook = Arc<dyn Fn(SimOp) -> Option<SimYield> + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncKind {
    All,
    Data,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSeen {
    pub ino: u64,
    pub kind: SyncKind,
    /// The error that the caller got, `None` for success.
    pub error: Option<i32>,
}

/// Called for every sync before its caller gets the answer: for a success when it takes place, for a failure when
/// the call returns.
pub type SyncObserver = Arc<dyn Fn(SyncSeen) + Send + Sync>;

/// The faults that have not happened yet.
#[derive(Debug, Clone, Default)]
pub(super) struct FaultPlan(Vec<Fault>);

impl FaultPlan {
    /// Adds a fault. Returns false if there are too many.
    pub(super) fn add(&mut self, fault: Fault) -> bool {
        let fits = self.0.len() < FAULTS_MAX;
        if fits {
            self.0.push(fault);
        }
        fits
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts one operation and returns the fault that hits it, the oldest first.
    pub(super) fn hit(&mut self, on: SimOp) -> Option<FaultAction> {
        let mut hit = None;
        self.0.retain_mut(|fault| {
            if fault.on != on {
                return true;
            }
            if fault.after == 0 && hit.is_none() {
                hit = Some(fault.action);
                return false;
            }
            fault.after = fault.after.saturating_sub(1);
            true
        });
        hit
    }
}
