//! SMB2_CREATE_APP_INSTANCE_ID and -_VERSION ([MS-SMB2] 3.3.5.9.13): when an application was moved
//! to another client and opens its files there, the opens of its instance on the old client are
//! closed first.

use std::sync::Arc;

use smb_wire::{access_mask::AccessMask, status::Status};
use vfs::Vfs;

use super::name::Name;
use crate::{
    access,
    command::Call,
    failure::Failure,
    file::SharePath,
    state::{AppInstance, Open, disconnected},
};

/// Closes the opens that other clients have as the same instance on the same path, if the user may
/// read the file.
///
/// # Errors
/// `FILE_FORCED_CLOSED` if such an open has the same version or a later one, or has a version and
/// the request has none.
pub(super) async fn close_other_instances<V: Vfs>(
    call: &Call<V>,
    app: AppInstance,
    name: &Name,
) -> Result<(), Failure> {
    let opens = others(call, &app, name)?;
    for open in &opens {
        check_version(app, open)?;
    }
    for open in opens {
        if may_read(call, &open).await? {
            disconnected::close(call.server(), &open).await;
        }
    }
    Ok(())
}

fn others<V: Vfs>(
    call: &Call<V>,
    app: &AppInstance,
    name: &Name,
) -> Result<Vec<Arc<Open<V>>>, Failure> {
    let server = call.server();
    let client = call.client()?;
    let share = call.share()?.id;
    let path = SharePath::of(share, &name.path);
    let stream = name.folded_stream();
    // The path is compared first: an application has many opens, but few of one file.
    let mut opens = server
        .durables
        .of_instance(app.id, &server.files.opens_at(&path));
    opens.retain(|open| {
        let here = open.tree.share.as_ref().is_some_and(|own| own.id == share);
        let same_stream = open
            .disk()
            .is_ok_and(|disk| disk.place.stream.as_deref() == stream.as_deref());
        here && same_stream && open.origin.client != client
    });
    Ok(opens)
}

fn check_version<V: Vfs>(app: AppInstance, open: &Open<V>) -> Result<(), Failure> {
    let Some(there) = open.origin.app.and_then(|app| app.version) else {
        return Ok(());
    };
    match app.version {
        Some(here) if there < here => Ok(()),
        _ => Err(Status::FILE_FORCED_CLOSED.into()),
    }
}

/// Whether the user's maximal access to the open's file has GENERIC_READ.
async fn may_read<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<bool, Failure> {
    let disk = open.disk()?;
    let Ok(attr) = call.share()?.vfs.attr(&disk.node).await else {
        return Ok(false);
    };
    let token = call.token()?;
    let subject = call.subject(&disk.node, &attr)?;
    let access = access::maximum(&subject, &token).await;
    Ok(access.is_ok_and(|access| access.contains(AccessMask::FILE_GENERIC_READ)))
}
