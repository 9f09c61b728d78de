//! Acknowledgments of oplock and lease breaks ([MS-SMB2] 3.3.5.22).

use smb_wire::{
    msg::{Dialect, LeaseBreakResponse, OplockBreakRequest, OplockBreakResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, breaks, durable, engine};
use crate::{file::Owner, persistent};

/// Takes an acknowledgment.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let server = call.server();
    match OplockBreakRequest::read(&call.message)? {
        OplockBreakRequest::Oplock(ack) => {
            let open = call.open(ack.file_id)?;
            let disk = open.disk()?;
            let (answer, effects) =
                server
                    .files
                    .acknowledge_oplock(disk.place, open.engine, ack.oplock_level);
            let owner = Owner::Oplock(open.engine);
            breaks::acknowledged(server, owner);
            persistent::caching_changed(server, owner);
            engine::perform(server, effects);
            Ok(Reply::read_only(&OplockBreakResponse {
                oplock_level: answer?,
                file_id: open.file_id,
            }))
        }
        OplockBreakRequest::Lease(ack) => {
            // [MS-SMB2] 3.3.5.22: 2.0.2 knows no leases.
            if call.connection.dialect() < Dialect::SMB_2_1 {
                return Err(Status::INVALID_PARAMETER.into());
            }
            let facts = call.connection.negotiated();
            let client = facts.ok_or(Status::INVALID_PARAMETER)?.client_guid;
            let (answer, effects) =
                server
                    .files
                    .acknowledge_lease(client, ack.lease_key, ack.lease_state);
            let owner = Owner::Lease(client, ack.lease_key);
            persistent::caching_changed(server, owner);
            let over = answer.is_ok().then(|| breaks::acknowledged(server, owner));
            engine::perform(server, effects);
            for broken in over.into_iter().flatten() {
                // [MS-SMB2] 3.3.5.22.2: the client knows its opens.
                for open in broken.opens.iter().filter_map(|open| server.open(*open)) {
                    open.used();
                }
                durable::sweep(server, &broken.opens);
            }
            Ok(Reply::read_only(&LeaseBreakResponse {
                lease_key: ack.lease_key,
                lease_state: answer?,
            }))
        }
    }
}
