//! Changes that begin and are reported at once, for tests of something else.

use bytes::Bytes;
use vfs::{Range, RemovedName, VfsError, Volume};

use crate::{
    Completion, Earlier, FlushTarget, Gate, Meta, PendingContents, Receipt, RequestFlags,
    dirty::ChangedRange,
};

type Said = Result<Receipt, VfsError>;

impl<V: Volume> Gate<V> {
    pub(super) async fn write(
        &self,
        n: &V::Node,
        offset: u64,
        data: Bytes,
        how: RequestFlags,
    ) -> Said {
        self.contents(n).write(offset, data, how).await
    }
    pub(super) async fn flush(&self, n: &V::Node, target: FlushTarget, how: RequestFlags) -> Said {
        self.flush_after(n, target, how, Earlier::All).await
    }
    pub(super) async fn created(&self, n: &V::Node, to: &V::Node, how: RequestFlags) -> Said {
        self.begin(to).created(n, to, how).await
    }
    pub(super) async fn linked(&self, n: &V::Node, to: &V::Node, how: RequestFlags) -> Said {
        self.begin(n).linked(n, to, how).await
    }
    pub(super) async fn renamed(
        &self,
        n: &V::Node,
        from: &V::Node,
        to: &V::Node,
        how: RequestFlags,
    ) -> Said {
        self.begin_rename(from, to, None)
            .await?
            .renamed(n, how)
            .await
    }
    pub(super) async fn removed(&self, n: &V::Node, from: &V::Node, how: RequestFlags) -> Said {
        self.begin_removal(n, from)
            .await?
            .removed(n, RemovedName::Own, how)
            .await
    }
    pub(super) async fn stream_created(&self, n: &V::Node, how: RequestFlags) -> Said {
        self.begin(n).stream_created(n, how).await
    }
    pub(super) async fn stream_renamed(&self, n: &V::Node, from: &str, how: RequestFlags) -> Said {
        self.begin(n).stream_renamed(n, from, how).await
    }
    pub(super) async fn stream_removed(&self, n: &V::Node, how: RequestFlags) -> Said {
        self.begin(n).stream_removed(n, how).await
    }
    pub(super) async fn meta_changed(&self, n: &V::Node, what: Meta, how: RequestFlags) -> Said {
        self.begin(n).metadata_changed(n, what, how).await
    }
    pub(super) async fn eas_changed(&self, n: &V::Node, names: &[&str]) -> Said {
        let names = names.iter().copied();
        self.begin(n)
            .eas_changed(n, names, RequestFlags::default())
            .await
    }
    pub(super) async fn eas_doubtful(&self, n: &V::Node) -> Said {
        self.begin(n).eas_doubtful(n, RequestFlags::default()).await
    }
    pub(super) async fn overwritten(&self, n: &V::Node) -> Said {
        self.begin(n)
            .overwritten(n, [], RequestFlags::default())
            .await
    }
    pub(super) async fn resized(&self, n: &V::Node, size: u64, how: RequestFlags) -> Said {
        self.begin(n).resized(n, Some(size), how).await
    }
    /// The caller does not report where.
    pub(super) async fn content_changed(&self, n: &V::Node, bytes: u64) -> Said {
        let mut change = self.changing(n);
        change.add(ChangedRange::Within(0, u64::MAX), bytes);
        receipt(change.end(RequestFlags::default()).await?)
    }
    pub(super) async fn range_changed(&self, n: &V::Node, range: Range, how: RequestFlags) -> Said {
        let mut change = self.changing(n);
        change.rewrote(range);
        receipt(change.end(how).await?)
    }
    /// A change of contents that has begun.
    pub(super) fn changing(&self, n: &V::Node) -> PendingContents<'_, V> {
        let mut change = self.contents(n);
        change.start();
        change
    }
    /// A change of contents that waits, through an open.
    pub(super) fn queued(&self, n: &V::Node, open: u64) -> PendingContents<'_, V> {
        let mut change = self.contents(n);
        change.queue(Some(open));
        change
    }
}

fn receipt(completion: Completion) -> Said {
    match completion {
        Completion::Changed(receipt) => Ok(receipt),
        Completion::Unchanged(why) => panic!("{}", why.reason),
    }
}
