//! TREE_DISCONNECT ([MS-SMB2] 3.3.5.8).

use std::sync::Arc;

use smb_wire::{
    msg::{TreeDisconnectRequest, TreeDisconnectResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, close};
use crate::state::{EndReason, Open};

/// Closes what is open on the tree, then the tree. Of several at once exactly one succeeds
/// (CVE-2023-32254).
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    TreeDisconnectRequest::read(&call.message)?;
    let session = call.session()?;
    let tree = call.tree()?.id;
    let opens: Vec<Arc<Open<V>>> = {
        let mut tables = session.tables();
        if tables.trees.remove(&tree).is_none() {
            return Err(Status::NETWORK_NAME_DELETED.into());
        }
        tables
            .opens
            .values()
            .filter(|open| open.tree.id == tree)
            .cloned()
            .collect()
    };
    close::all(call.server(), session, opens, EndReason::Gone).await;
    Ok(Reply::read_only(&TreeDisconnectResponse))
}
