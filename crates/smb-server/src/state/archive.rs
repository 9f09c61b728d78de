//! Sets FILE_ATTRIBUTE_ARCHIVE of a file, which changes of its data, attributes and names do ([MS-FSA] 2.1.4.17,
//! 2.1.5.5).

use durability::{Meta, RequestFlags};
use vfs::{Identity, Node, SetAttr, Vfs, VfsError};

use super::{Server, Share};

/// Sets the attribute of a file that lacks it. It is rare, so callers box it.
pub(crate) async fn set<V: Vfs>(
    server: &Server<V>,
    share: &Share<V>,
    node: &V::Node,
    flags: RequestFlags,
) -> Result<(), VfsError> {
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

/// As [`set`], after a name of the file was removed, if the file has another one ([MS-FSA] 2.1.5.5, phase 10).
pub(crate) async fn set_of_others<V: Vfs>(
    server: &Server<V>,
    share: &Share<V>,
    node: &V::Node,
    flags: RequestFlags,
) -> Result<(), VfsError> {
    match share.vfs.links(node).await {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => set(server, share, node, flags).await,
    }
}
