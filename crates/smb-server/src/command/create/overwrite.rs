//! Overwriting an existing file ([MS-FSA] 2.1.5.1.2): its data, named streams and EAs are deleted, and its
//! attributes are replaced.
//!
//! The order lets a refusal change nothing: first the checks, then the steps that can be undone (attributes, EAs),
//! then the truncation, which cannot, then the steps that would be wrong without the truncation (streams, the
//! reservation). After a failure, all that is still changed or was restored is marked dirty at the gate, and the next
//! FLUSH makes it stable.

use std::collections::HashSet;

use durability::{Meta, PendingChange, Receipt, RequestFlags};
use smb_wire::status::Status;
use vfs::{Attr, Node, SetAttr, Vfs, VfsError};

use super::{Opening, request::Wanted};
use crate::{
    command::{Call, eas::Ea},
    failure::{Failure, of_eas},
    file::{Deleter, Place, Remove},
    state::records,
    turn::NAME_WORK,
};

/// Bits of an existing file that an overwrite keeps.
const KEPT: u32 = smb_wire::file_attributes::FileAttributes::SPARSE_FILE.bits();

/// Overwrites `node`, opened for writing, whose attributes are `attr`.
pub(super) async fn overwrite<V: Vfs>(
    on: &Opening<'_, V>,
    node: &V::Node,
    attr: &Attr,
) -> Result<Receipt, Failure> {
    let share = on.share()?;
    let (vfs, gate) = (&share.vfs, &share.gate);
    let new = on.contexts.eas()?;
    let free = vfs.fs_info(node).await?.available;
    // The space of the old contents is free, too, when the file is empty.
    Status::DISK_FULL.when(on.contexts.allocation > free.saturating_add(attr.allocated))?;
    let streams = named_streams(on, node).await?;
    // A refused overwrite restores the EAs, and must not undo one that another request sets meanwhile.
    let merging = on.server().merges.inode(node.key()).await;
    let old = vfs.eas(node).await.map_err(of_eas)?;
    // Without EAs it restores none, and other files share the lock.
    let restores = !old.is_empty() || !new.is_empty();
    let merging = restores.then_some(merging);
    let bits = on.wanted.stored_attributes(false);
    gate.watch_write_back(node).await;
    let begun = gate.begin(node);
    let mut overwriting = Overwriting {
        call: on,
        begun: &begun,
        node,
        attributes: None,
        eas: Vec::new(),
    };
    let described = async {
        overwriting.describe(bits, attr, &new, &old).await?;
        Ok(vfs.set_size(node, 0).await?)
    };
    if let Err(failure) = described.await {
        overwriting.take_back().await?;
        return Err(failure);
    }
    drop(merging);
    // From here on nothing can be undone.
    let flags = on.wanted.flags();
    let rest = async {
        for stream in &streams {
            on.connection.turn.did(NAME_WORK);
            on.connection.turn.wait().await;
            remove_stream(on, stream, flags).await?;
        }
        reserve(on, node).await
    };
    let rest: Result<(), Failure> = rest.await;
    // The attributes that were set, and the old ones, which were replaced or removed.
    let set = new.iter().filter(|(_, value)| !value.is_empty());
    let names = set.chain(&old).map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    let marked = begun.overwritten(node, names, flags).await;
    rest.and(Ok(marked?))
}

/// Reserves the space that the request asks for. As for a new file, DISK_FULL refuses a request for which there is no
/// space, but only before the file is emptied: a quota, for which the disk cannot be asked, refuses nothing any more.
async fn reserve<V: Vfs>(on: &Opening<'_, V>, node: &V::Node) -> Result<(), Failure> {
    let size = on.contexts.allocation;
    if size == 0 {
        return Ok(());
    }
    match on.share()?.vfs.allocate(node, size).await {
        Err(error @ (VfsError::NoSpace | VfsError::QuotaExceeded | VfsError::TooLarge)) => {
            tracing::debug!(%error, size, "an overwritten file has no space reserved");
            Ok(())
        }
        reserved => Ok(reserved?),
    }
}

/// The attributes of a file that was just overwritten, if querying it fails: the overwrite cannot be undone then.
pub(super) fn overwritten(wanted: &Wanted, before: &Attr) -> Attr {
    Attr {
        size: 0,
        allocated: 0,
        dos_attributes: wanted.stored_attributes(false) | before.dos_attributes & KEPT,
        ..before.clone()
    }
}

/// Removes a named stream of the overwritten file. A stream that is open is removed when its last handle is closed,
/// since everybody who has it open agreed to its deletion.
async fn remove_stream<V: Vfs>(
    call: &Call<V>,
    stream: &V::Node,
    flags: RequestFlags,
) -> Result<(), Failure> {
    let (server, share) = (call.server(), call.share()?);
    let identity = &call.token()?.identity;
    let place = Place::of(stream);
    // A client that has it open may close it between the two questions.
    while !server.files.take_out(&place, &Remove::Stream) {
        let deleter = Deleter::new(identity, None, flags.open_write_through);
        if server.files.remove_at_last_close(&place, &deleter) {
            records::inode_changed(server, place.key).await;
            return Ok(());
        }
    }
    let begun = share.gate.begin(stream);
    let removed = share.vfs.remove_stream(identity, stream).await;
    server.files.removed(&place, &Remove::Stream, None);
    removed?;
    // The barrier of the overwrite itself covers this removal.
    let removal = begun.stream_removed(stream, RequestFlags::default());
    drop(removal.await?);
    Ok(())
}

/// The named streams go with the data they belonged to.
async fn named_streams<V: Vfs>(call: &Call<V>, node: &V::Node) -> Result<Vec<V::Node>, Failure> {
    let vfs = &call.share()?.vfs;
    let identity = &call.token()?.identity;
    let mut streams = Vec::new();
    for info in vfs.streams(node).await? {
        call.connection.turn.did(NAME_WORK);
        call.connection.turn.wait().await;
        let how = vfs::StreamOpen::Existing;
        let (stream, _) = vfs.open_stream(identity, node, &info.name, how).await?;
        streams.push(stream);
    }
    Ok(streams)
}

/// The part of an overwrite that can be undone.
struct Overwriting<'a, V: Vfs> {
    call: &'a Call<V>,
    /// Begun before the first change.
    begun: &'a PendingChange<'a, V>,
    node: &'a V::Node,
    /// The old DOS attributes, once they were changed.
    attributes: Option<u32>,
    /// The changes that restore the old EAs, once some may have changed.
    eas: Vec<Ea>,
}

impl<V: Vfs> Overwriting<'_, V> {
    /// Replaces attributes and EAs.
    async fn describe(
        &mut self,
        bits: u32,
        attr: &Attr,
        new: &[Ea],
        old: &[Ea],
    ) -> Result<(), Failure> {
        self.set_attributes(bits).await?;
        self.attributes = Some(attr.dos_attributes);
        // The new EAs are set first, since there may be no room for them.
        let mut set = new.to_vec();
        let named: HashSet<_> = set.iter().map(|(name, _)| vfs::fold(name)).collect();
        for (name, _) in old {
            if !named.contains(&vfs::fold(name)) {
                set.push((name.clone(), Vec::new()));
            }
        }
        if set.is_empty() {
            return Ok(());
        }
        // To undo this, attributes that were not there are removed first, so that the old ones have room again.
        self.eas = set
            .iter()
            .map(|(name, _)| (name.clone(), Vec::new()))
            .collect();
        self.eas.extend_from_slice(old);
        let (vfs, token) = (&self.call.share()?.vfs, self.call.token()?);
        let set = vfs.set_eas(&token.identity, self.node, &set);
        set.await.map_err(of_eas)
    }

    async fn set_attributes(&self, bits: u32) -> Result<(), Failure> {
        let set = SetAttr {
            dos_attributes: Some(bits),
            ..SetAttr::default()
        };
        let (vfs, token) = (&self.call.share()?.vfs, self.call.token()?);
        Ok(vfs.set_attr(&token.identity, self.node, &set).await?)
    }

    async fn take_back(mut self) -> Result<(), Failure> {
        let (share, token) = (self.call.share()?, self.call.token()?);
        let mut back = Ok(());
        // Either change may have reached the disk, in any order, so the present state is marked dirty for the next
        // FLUSH. The client already gets the error, so nobody waits for this.
        let flags = RequestFlags::default();
        if !self.eas.is_empty() {
            let set = share.vfs.set_eas(&token.identity, self.node, &self.eas);
            back = set.await;
            // It is not known which were changed and restored.
            drop(self.begun.eas_doubtful(self.node, flags).await);
        }
        let mut attributes = Ok(());
        if let Some(bits) = self.attributes.take() {
            attributes = self.set_attributes(bits).await;
            let marked = self
                .begun
                .metadata_changed(self.node, Meta::Attributes, flags);
            drop(marked.await);
        }
        if back.is_err() || attributes.is_err() {
            tracing::warn!("attributes changed by a refused overwrite stay");
        }
        Ok(())
    }
}
