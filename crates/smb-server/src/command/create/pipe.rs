//! CREATE on IPC$, which opens a named pipe ([MS-SMB2] 3.3.5.9).

use std::sync::Arc;

use smb_wire::{
    access_mask::AccessMask,
    create_context::{CreateContextList, QueryMaximalAccessResponse, QueryOnDiskIdResponse, name},
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

use super::request::{self, Contexts};
use crate::{
    command::{Call, Handled, Reply},
    failure::Failure,
    file::OpenId,
    pipe::Pipe,
    state::{Endurance, NewOpen, Open, OpenKind, Origin},
};

/// The AllocationSize of a pipe, as in Windows and Samba.
const ALLOCATION_BYTES: u64 = 4096;

/// Opens a pipe. Its attributes, share mode and disposition are ignored ([MS-SMB2] 2.2.13, 3.3.5.9), as are the options
/// that [MS-SMB2] 2.2.13 does not have refused ([MS-FSA] 2.1.5.2), and it is neither cached nor durable; everything else
/// is checked as for a file.
pub(super) fn open<V: Vfs>(call: &Call<V>) -> Handled {
    let request = CreateRequest::read(&call.message)?;
    let name = pipe_name(request.name)?;
    let contexts = request::contexts(call, &request)?;
    // [MS-SMB2] 3.3.5.9.7, 3.3.5.9.12: no pipe is durable.
    Status::OBJECT_NAME_NOT_FOUND.when(contexts.reconnect.is_some())?;
    // [MS-SMB2] 3.3.5.9: a pipe is opened up to Impersonation.
    if request.impersonation_level == ImpersonationLevel::DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL.into());
    }
    let asked = request::desired_access(&request)?.map_generic();
    request::check_options(request.options)?;
    let option = |option| request.options.contains(option);
    let directory = option(CreateOptions::DIRECTORY_FILE);
    Status::INVALID_PARAMETER.when(directory && option(CreateOptions::NON_DIRECTORY_FILE))?;
    let interface = Interface::of_pipe(&name).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    Status::NOT_A_DIRECTORY.when(directory)?;
    let all = AccessMask::FILE_ALL_ACCESS.when(asked.contains(AccessMask::MAXIMUM_ALLOWED));
    let granted = (asked | all) & call.tree()?.maximal_access;
    Status::ACCESS_DENIED.when(granted.is_empty())?;
    let file_id = enter(call, interface, granted, request.options)?;
    let facts = FileFacts {
        allocation_size: ALLOCATION_BYTES,
        file_attributes: FileAttributes::NORMAL,
        ..FileFacts::default()
    };
    let list = answers(call, &contexts, &facts, file_id)?;
    let response = CreateResponse {
        oplock_level: OplockLevel::NONE,
        flags: CreateResponseFlags::empty(),
        create_action: CreateAction::OPENED,
        facts,
        file_id,
        contexts: list.bytes(),
    };
    Ok(Reply::unchanged(&response, "a pipe has no file"))
}

/// Decodes the name of a pipe. With a leading backslash it is that of none, as for Windows and Samba.
fn pipe_name(bytes: &[u8]) -> Result<String, Failure> {
    Status::INVALID_PARAMETER.when(!bytes.len().is_multiple_of(2))?;
    Ok(utf16::decode(bytes, "pipe").map_err(|_| Status::OBJECT_NAME_INVALID)?)
}

/// The answers to create contexts ([MS-SMB2] 3.3.5.9.5, 3.3.5.9.9): every user may do the same with a pipe, and its
/// number is that of the open, as in FileInternalInformation, since each open has an instance of its own.
fn answers<V: Vfs>(
    call: &Call<V>,
    contexts: &Contexts,
    facts: &FileFacts,
    file_id: FileId,
) -> Result<CreateContextList, Failure> {
    let mut list = CreateContextList::new();
    if let Some(asked) = contexts.maximal_access {
        let (query_status, maximal_access) = match asked.timestamp == Some(facts.change_time) {
            true => (Status::NONE_MAPPED, AccessMask::empty()),
            false => (Status::SUCCESS, call.tree()?.maximal_access),
        };
        let answer = QueryMaximalAccessResponse {
            query_status,
            maximal_access,
        };
        list.push_with(name::QUERY_MAXIMAL_ACCESS, |out| answer.encode(out));
    }
    if contexts.on_disk_id {
        let answer = QueryOnDiskIdResponse {
            disk_file_id: file_id.persistent,
            volume_id: 0,
        };
        list.push_with(name::QUERY_ON_DISK_ID, |out| answer.encode(out));
    }
    Ok(list)
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
