//! placeholder head
use crate::{
    Counters, Exposure, LatchedInode, Limits, Meta, Policy, Receipt, RequestFlags, ShareDurability,
    StopReport,
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use vfs::{Env, FileKey, Range, Vfs, VfsError};

/// Durability of a server.
pub struct Durability<V: Vfs> {
    _v: std::marker::PhantomData<V>,
}
impl<V: Vfs> Durability<V> {
    /// New.
    pub fn new(_env: Arc<dyn Env>, _limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            _v: std::marker::PhantomData,
        })
    }
    /// Share.
    pub fn share(&self, name: &str, vfs: Arc<V>, settings: ShareDurability) -> Arc<Gate<V>> {
        Arc::new(Gate {
            vfs,
            name: name.into(),
            settings,
        })
    }
    /// Sync all.
    pub async fn sync_all(&self) -> StopReport {
        StopReport::default()
    }
}
/// What a FLUSH is for.
#[derive(Debug, Clone)]
pub enum FlushTarget<N> {
    /// A file or stream.
    File,
    /// A directory, with the directory that holds its name where known.
    Directory {
        /// Where its name is.
        parent: Option<N>,
    },
    /// The root of the share: every dirty inode of it.
    ShareRoot,
}
/// Durability of one share.
pub struct Gate<V: Vfs> {
    vfs: Arc<V>,
    name: String,
    settings: ShareDurability,
}
type R = Result<Receipt, VfsError>;
#[allow(missing_docs, unused_variables)]
impl<V: Vfs> Gate<V> {
    pub fn settings(&self) -> ShareDurability {
        self.settings
    }
    pub fn name(&self) -> &str {
        &self.name
    }
    pub async fn set_policy(&self, policy: Policy) -> StopReport {
        StopReport::default()
    }
    pub async fn write(&self, node: &V::Node, offset: u64, data: Bytes, flags: RequestFlags) -> R {
        let _ = &self.vfs;
        Err(VfsError::NotSupported)
    }
    pub async fn created(&self, node: &V::Node, parent: &V::Node) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn linked(&self, node: &V::Node, new_parent: &V::Node) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn renamed(&self, node: &V::Node, old_parent: &V::Node, new_parent: &V::Node) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn removed(&self, node: &V::Node, parent: &V::Node) -> R {
        Err(VfsError::NotSupported)
    }
    pub fn gone(&self, key: FileKey) {}
    pub async fn stream_created(&self, node: &V::Node) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn stream_removed(&self, node: &V::Node) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn resized(&self, node: &V::Node, through: RequestFlags) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn content_changed(&self, node: &V::Node, bytes: u64) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn range_changed(&self, node: &V::Node, range: Range, flags: RequestFlags) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn meta_changed(&self, node: &V::Node, what: Meta, flags: RequestFlags) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn flush(
        &self,
        node: &V::Node,
        target: FlushTarget<V::Node>,
        flags: RequestFlags,
    ) -> R {
        Err(VfsError::NotSupported)
    }
    pub async fn closed(&self, node: &V::Node, flags: RequestFlags) -> R {
        Err(VfsError::NotSupported)
    }
    pub fn unchanged(&self) -> Receipt {
        Receipt::new()
    }
    pub fn exposure(&self) -> Exposure {
        Exposure::default()
    }
    pub fn counters(&self) -> Counters {
        crate::metrics::Metrics::default().read()
    }
    pub fn latched(&self) -> Vec<LatchedInode> {
        Vec::new()
    }
    pub fn clear_latch(&self, key: FileKey) -> bool {
        false
    }
    pub fn effective_policy(&self) -> Policy {
        self.settings.policy
    }
}
/// Keep.
pub const _D: Duration = Duration::ZERO;
