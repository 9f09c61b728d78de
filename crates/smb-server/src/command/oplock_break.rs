//! OPLOCK_BREAK: acknowledgments of oplock and lease breaks ([MS-SMB2] 3.3.5.22).

use smb_wire::{
    msg::{Dialect, LeaseBreakResponse, OplockBreakRequest, OplockBreakResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply};
use crate::state::breaks;

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let server = call.server();
    match OplockBreakRequest::read(&call.message)? {
        OplockBreakRequest::Oplock(ack) => {
            let open = call.open(ack.file_id)?;
            // A pipe has no oplock that could be breaking.
            let disk = open.disk().map_err(|_| Status::INVALID_DEVICE_STATE)?;
            let oplock_level =
                breaks::acknowledge_oplock(server, &open, &disk.place, ack.oplock_level)?;
            Ok(Reply::read_only(&OplockBreakResponse {
                oplock_level,
                file_id: open.file_id,
            }))
        }
        OplockBreakRequest::Lease(ack) => {
            // [MS-SMB2] 3.3.5.22: 2.0.2 knows no leases.
            Status::INVALID_PARAMETER.when(call.connection.dialect() < Dialect::SMB_2_1)?;
            // A session that has become anonymous keeps the opens of its user, and on a share may be a guest.
            let established = call.session()?.established.user_sid;
            let users = [established, call.token()?.user_sid];
            let (client, lease_key) = (call.client()?, ack.lease_key);
            let state = ack.lease_state;
            Ok(Reply::read_only(&LeaseBreakResponse {
                lease_key,
                lease_state: breaks::acknowledge_lease(server, &users, client, lease_key, state)?,
            }))
        }
    }
}
