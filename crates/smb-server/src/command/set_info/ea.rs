//! FileFullEaInformation sets and removes extended attributes ([MS-FSA] 2.1.5.15.6). The whole list is checked before
//! the first attribute is stored.

use std::collections::HashSet;

use smb_wire::{access_mask::AccessMask, fscc::read_ea_list, msg::NotifyFilter, status::Status};
use vfs::{Vfs, VfsError};

use super::{Changed, report_change};
use crate::{
    command::{
        eas::{self, Ea},
        engine::OnDisk,
        modified::KeptChange,
    },
    failure::of_eas,
};

/// Sets, replaces and (with empty values) removes attributes.
pub(super) async fn set<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    on.open.need(AccessMask::FILE_WRITE_EA)?;
    // [MS-SMB2] 3.3.5.21.1: a list that is cut off is refused as any other of wrong form.
    let entries = read_ea_list(buffer).map_err(|_| Status::EA_LIST_INCONSISTENT)?;
    let (node, token) = (&on.disk.node, on.token()?);
    let turn = on.disk.quick.turn().lock().await;
    // A list that is refused is undone, and this must not undo an attribute that another request sets meanwhile.
    // The attributes are those of the file, whichever of its streams is open ([MS-FSA] 2.1.1.3).
    let merging = on.server.merges.inode(on.disk.place.key).await;
    let begun = on.share.gate.begin(node);
    let known = on.vfs().eas(node).await.map_err(of_eas)?;
    let changes = eas::changes(&known, entries)?;
    let kept = KeptChange::begin(on, Some(turn)).await;
    let flags = on.open.flags();
    match on.vfs().set_eas(&token.identity, node, &changes).await {
        Ok(()) => drop(merging),
        Err(error @ VfsError::NotSupported) => return Err(of_eas(error)),
        Err(error) => {
            // [MS-FSA] 2.1.5.15.6: nothing of a refused list stays, unless the disk refuses to restore the old values.
            let _back = on
                .vfs()
                .set_eas(&token.identity, node, &former(&known, &changes))
                .await;
            drop((merging, kept));
            // It is not known which were changed and restored. The client gets this error, whatever the gate says.
            drop(begun.eas_doubtful(node, flags).await);
            return Err(of_eas(error));
        }
    }
    let ended = kept.end(on).await;
    report_change(on, NotifyFilter::EA | NotifyFilter::ATTRIBUTES);
    let names = written(&known, &changes);
    let receipt = begun.eas_changed(node, names, flags).await?;
    ended?;
    Ok(receipt.into())
}

/// The names of the attributes that are set or, being there, removed.
fn written<'n>(known: &[Ea], changes: &'n [Ea]) -> Vec<&'n str> {
    let known: HashSet<_> = known.iter().map(|(name, _)| vfs::fold(name)).collect();
    let is_written = |(name, value): &&Ea| !value.is_empty() || known.contains(&vfs::fold(name));
    let written = changes.iter().filter(is_written);
    written.map(|(name, _)| name.as_str()).collect()
}

/// The changes that restore the attributes which `changes` names. Attributes that were not there are removed first, so
/// that the others have room again.
fn former(known: &[Ea], changes: &[Ea]) -> Vec<Ea> {
    let named: HashSet<_> = changes.iter().map(|(name, _)| vfs::fold(name)).collect();
    let mut former: Vec<Ea> = (changes.iter())
        .map(|(name, _)| (name.clone(), Vec::new()))
        .collect();
    let is_named = |(name, _): &&Ea| named.contains(&vfs::fold(name));
    former.extend(known.iter().filter(is_named).cloned());
    former
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_refused_halfway_is_taken_back() {
        let ea = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        let known = [ea("One", b"1"), ea("Other", b"2")];
        let changes = [ea("new", b"n"), ea("ONE", b"long")];
        // An empty value removes, and the last of a name counts.
        let back = [ea("new", b""), ea("ONE", b""), ea("One", b"1")];
        assert_eq!(former(&known, &changes), back);
    }
}
