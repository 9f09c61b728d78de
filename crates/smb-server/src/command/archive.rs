//! FILE_ATTRIBUTE_ARCHIVE of a file that was changed ([MS-FSA] 2.1.4.17): backup programs clear it, and the next change
//! sets it again.
//!
//! The engine knows which open files lack it ([`crate::file::Quick::lacks_archive`]): a CREATE has read it, and the
//! server itself clears it. Changes of all others, which are nearly all, ask no disk. A program on the host that clears
//! it while clients have the file open is not seen.

use durability::{Meta, RequestFlags};
use vfs::{Attr, Identity, Kind, Node, SetAttr, Vfs};

use super::{engine::OnDisk, set_info::break_parent_leases};
use crate::{
    failure::Failure,
    state::{Server, Share},
};

/// Whether the attributes are those of a file without FILE_ATTRIBUTE_ARCHIVE.
pub(super) fn is_absent(attr: &Attr) -> bool {
    use smb_wire::file_attributes::FileAttributes as Has;
    attr.kind == Kind::File && !Has(attr.dos_attributes).contains(Has::ARCHIVE)
}

/// Called when the file of an open was changed.
///
/// # Errors
/// The error of the durability gate. An attribute that the file system refuses is only logged, because the change
/// itself was made.
pub(super) async fn changed<V: Vfs>(on: &OnDisk<'_, V>) -> Result<(), Failure> {
    if !on.disk.quick.lacks_archive() {
        return Ok(());
    }
    let flags = on.open.flags();
    let done = Box::pin(set(on.server, on.share, &on.disk.node, flags)).await;
    // Listings show the attribute, and a named stream is changed without any other break of these leases. The
    // attribute is still missing where the file system refused it.
    if !on.disk.quick.lacks_archive() {
        break_parent_leases(on);
    }
    done
}

/// Sets the attribute of a file that lacks it. It is rare, so callers box it.
pub(super) async fn set<V: Vfs>(
    server: &Server<V>,
    share: &Share<V>,
    node: &V::Node,
    flags: RequestFlags,
) -> Result<(), Failure> {
    let key = node.key();
    // This comes first, because another request that clears the attribute meanwhile sets the flag.
    server.files.lacks_archive(key, false);
    let begun = share.gate.begin(node);
    let archive = SetAttr {
        archive: true,
        ..SetAttr::default()
    };
    // A user who may write the data need not be allowed to set attributes.
    match share.vfs.set_attr(&Identity::Service, node, &archive).await {
        Ok(()) => drop(
            begun
                .metadata_changed(node, Meta::Attributes, flags)
                .await?,
        ),
        Err(error) => {
            server.files.lacks_archive(key, true);
            tracing::debug!(%error, "FILE_ATTRIBUTE_ARCHIVE of a changed file stays clear");
        }
    }
    Ok(())
}
