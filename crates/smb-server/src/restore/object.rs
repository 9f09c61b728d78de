//! The object of a recorded open: found again by its name, and the same inode as before.

use vfs::{Identity, Lookup, Node, StreamOpen, Vfs, VfsError};

use super::refusal::Refusal;
use crate::{access, persistent::OpenRecord, state::Share};

/// Finds the object of an open by its name; the service may open every file that the owner could open.
pub(super) async fn find<V: Vfs>(
    share: &Share<V>,
    record: &OpenRecord,
) -> Result<(Lookup<V::Node>, V::Node), Refusal> {
    let (me, vfs) = (&Identity::Service, &share.vfs);
    let mut why = Refusal::from("nothing has its name now");
    let mut at = None;
    for path in std::iter::once(&record.path).chain(&record.moving) {
        let refusal = match vfs.lookup(me, path).await {
            Ok(lookup) => match &lookup.found {
                Some((node, _)) if is_it(node, record) => {
                    at = Some((node.clone(), lookup));
                    break;
                }
                Some(_) => "another file has its name now".into(),
                None => continue,
            },
            Err(error) => error.into(),
        };
        // The object may be at a path that could not be examined.
        if !matches!(why, Refusal::Unknown(_)) {
            why = refusal;
        }
    }
    let (node, lookup) = at.ok_or(why)?;
    let node = match &record.stream {
        Some(stream) => find_stream(&**vfs, &node, stream, record.stream_to.as_deref()).await?,
        None => node,
    };
    let io = access::io_access(record.engine.access, record.directory);
    let node = if io == Default::default() {
        node
    } else {
        vfs.open(me, &node, io).await?
    };
    Ok((lookup, node))
}

/// The stream of an open, which a rename may have been giving the name `to`. Such a rename replaces at most an empty
/// stream, so if the stream of that name is not empty, it is the renamed one.
async fn find_stream<V: Vfs>(
    vfs: &V,
    file: &V::Node,
    name: &str,
    to: Option<&str>,
) -> Result<V::Node, VfsError> {
    let (me, how) = (&Identity::Service, StreamOpen::Existing);
    let mut moved = None;
    if let Some(to) = to {
        moved = match vfs.open_stream(me, file, to, how).await {
            Ok((node, _)) => Some(node),
            Err(VfsError::NotFound | VfsError::NoAttribute) => None,
            Err(error) => return Err(error),
        };
    }
    if let Some(node) = &moved
        && vfs.attr(node).await?.size > 0
    {
        return Ok(node.clone());
    }
    match (vfs.open_stream(me, file, name, how).await, moved) {
        (Err(VfsError::NotFound | VfsError::NoAttribute), Some(node)) => Ok(node),
        (found, _) => Ok(found?.0),
    }
}

/// Whether a file or directory is that of the open. A stream is no directory, but a directory may carry it.
fn is_it<N: Node>(node: &N, record: &OpenRecord) -> bool {
    let key = node.key();
    let same_kind = record.stream.is_some() || node.is_directory() == record.directory;
    (key.ino, key.generation) == record.inode && same_kind
}
