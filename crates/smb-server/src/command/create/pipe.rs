//! CREATE on IPC$, which opens a named pipe ([MS-SMB2] 3.3.5.9).

use std::sync::Arc;

use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fscc::FileFacts,
    ids::FileId,
    msg::{
        CreateAction, CreateOptions, CreateRequest, CreateResponse, CreateResponseFlags,
        ImpersonationLevel, OplockLevel,
    },
    rpc::Interface,
    status::Status,
    utf16,
};
use vfs::Vfs;

use crate::{
    command::{Call, Handled, Reply},
    failure::Failure,
    file::OpenId,
    pipe::Pipe,
    state::{Endurance, NewOpen, Open, OpenKind, Origin},
};

/// The AllocationSize of a pipe, as in Windows and Samba.
const ALLOCATION_BYTES: u64 = 4096;

pub(super) fn open<V: Vfs>(call: &Call<V>) -> Handled {
    let request = CreateRequest::read(&call.message)?;
    // [MS-SMB2] 3.3.5.9: a pipe is opened up to Impersonation.
    if request.impersonation_level >= ImpersonationLevel::DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL.into());
    }
    // As for a file ([MS-SMB2] 3.3.5.9).
    Status::INVALID_PARAMETER.when(!request.name.len().is_multiple_of(2))?;
    let name = utf16::decode(request.name, "pipe").map_err(|_| Status::OBJECT_NAME_INVALID)?;
    let interface = Interface::of_pipe(&name).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    Status::NOT_A_DIRECTORY.when(request.options.contains(CreateOptions::DIRECTORY_FILE))?;
    let asked = request.desired_access.map_generic();
    let all = AccessMask::FILE_ALL_ACCESS.when(asked.contains(AccessMask::MAXIMUM_ALLOWED));
    let granted = (asked | all) & call.tree()?.maximal_access;
    Status::ACCESS_DENIED.when(granted.is_empty())?;
    let file_id = enter(call, interface, granted, request.options)?;
    let response = CreateResponse {
        oplock_level: OplockLevel::NONE,
        flags: CreateResponseFlags::empty(),
        create_action: CreateAction::OPENED,
        facts: FileFacts {
            allocation_size: ALLOCATION_BYTES,
            file_attributes: FileAttributes::NORMAL,
            ..FileFacts::default()
        },
        file_id,
        contexts: &[],
    };
    Ok(Reply::unchanged(&response, "a pipe has no file"))
}

fn enter<V: Vfs>(
    call: &Call<V>,
    interface: Interface,
    granted: AccessMask,
    options: CreateOptions,
) -> Result<FileId, Failure> {
    let server = call.server();
    let session = call.session()?;
    let file_id = server.fresh_file_id();
    let open = Arc::new(Open::new(NewOpen {
        file_id,
        tree: Arc::clone(call.tree()?),
        granted,
        options,
        kind: OpenKind::Pipe(Box::new(Pipe::new(interface))),
        user: session.token().user.clone(),
        engine: OpenId(server.fresh_id()),
        channel_sequence: call.header.channel_sequence(),
        parent_lease: None,
        policy: None,
        place: call.place.borrow_mut().take(),
        origin: Origin::plain(session.id, session.token()),
        endurance: Endurance::None,
    }));
    session.insert(open)?;
    call.chain.set_file_id(file_id);
    Ok(file_id)
}
