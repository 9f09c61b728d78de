//! TREE_DISCONNECT ends a tree connect and closes its opens ([MS-SMB2] 3.3.5.8).

use std::sync::Arc;

use smb_wire::{
    msg::{TreeDisconnectRequest, TreeDisconnectResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply};
use crate::state::{EndReason, Open, Session, TreeConnect, close};

/// Closes the opens on the tree, then the tree. Of several at once exactly one succeeds
/// (CVE-2023-32254).
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    TreeDisconnectRequest::read(&call.message)?;
    let session = call.session()?;
    let tree = call.tree()?.id;
    let Detached { trees, opens } = leave(session, |known| known.id == tree);
    Status::NETWORK_NAME_DELETED.when(trees.is_empty())?;
    let opens = close::begin(opens, EndReason::Gone);
    // This wait has no bound, for the same reason as in LOGOFF.
    close::in_tasks(call.server(), session, opens).ended().await;
    Ok(Reply::read_only(&TreeDisconnectResponse))
}

/// The objects that left a session's tables at once.
pub(super) struct Detached<V: Vfs> {
    pub(super) trees: Vec<Arc<TreeConnect<V>>>,
    pub(super) opens: Vec<Arc<Open<V>>>,
}

impl<V: Vfs> Detached<V> {
    /// Ends the CREATEs that wait on the trees. Requests that wait on an open end with it.
    pub(super) fn new(trees: Vec<Arc<TreeConnect<V>>>, opens: Vec<Arc<Open<V>>>) -> Self {
        for tree in &trees {
            tree.parked.end(EndReason::Gone);
        }
        Self { trees, opens }
    }
}

/// Takes the trees that `which` selects out of the tables, with their opens. Nothing can be opened
/// on them any more.
pub(super) fn leave<V: Vfs>(
    session: &Session<V>,
    which: impl Fn(&TreeConnect<V>) -> bool,
) -> Detached<V> {
    let mut tables = session.tables();
    let mut trees = Vec::new();
    tables.trees.retain(|_, tree| {
        let stays = !which(tree);
        if !stays {
            trees.push(Arc::clone(tree));
        }
        stays
    });
    let gone = |open: &&Arc<Open<V>>| {
        trees
            .iter()
            .any(|tree: &Arc<TreeConnect<V>>| tree.id == open.tree.id)
    };
    let opens = tables.opens.values().filter(gone).cloned().collect();
    drop(tables);
    Detached::new(trees, opens)
}
