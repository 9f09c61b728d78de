//! SET_INFO ([MS-SMB2] 3.3.5.21): changes of an open and of the object behind it.
//!
//! Owns the table of classes; each change has its own file in `set_info/`. [MS-SMB2] 3.3.5.21.1 checks the right that
//! a class needs before the object store ([MS-FSA] 2.1.5.15) sees the buffer, except for a rename. Every success
//! carries the receipt of the durability gate. The caching of others is broken before anything changes; watchers
//! and directory leases are notified afterwards.

/// A structure of fixed size from the buffer; INFO_LENGTH_MISMATCH when it is not whole.
macro_rules! parse {
    ($structure:ident, $buffer:expr) => {
        match $buffer.len() >= $structure::MIN {
            true => $structure::read($buffer)?,
            false => return Err(Status::INFO_LENGTH_MISMATCH.into()),
        }
    };
}

mod basic;
mod disposition;
mod ea;
mod handle;
mod link;
mod rename;
mod replaced;
mod security;
mod size;
mod stream;
mod target;

use durability::Completion;
use smb_wire::{
    access_mask::AccessMask,
    fscc::{
        ClassUse, FileFsControlInformation, FileFsObjectIdInformation, FileInformationClass,
        FsInformationClass,
    },
    msg::{InfoType, NotifyFilter, SetInfoRequest, SetInfoResponse},
    status::Status,
};
use vfs::{FileKey, Node, Vfs};

use super::{Call, Handled, Reply, engine::OnDisk};
use crate::{
    failure::Failure,
    file::Change,
    state::{Open, OpenKind, breaks::perform, notices},
};

type Changed = Result<Completion, Failure>;

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = SetInfoRequest::read(&call.message)?;
    // [MS-SMB2] 3.3.5.21: the open is looked up before the length is checked.
    let open = call.open(request.file_id)?;
    let length = request.buffer.len();
    if length == 0 || u32::try_from(length).is_ok_and(|length| length > call.io_max()) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    call.check_charge(length, 0)?;
    let receipt = match request.info_type {
        InfoType::FILE => {
            let class = FileInformationClass(request.info_class);
            file(call, &open, class, request.buffer).await?
        }
        InfoType::FILESYSTEM => {
            let class = FsInformationClass(request.info_class);
            return Err(filesystem(&open, class, length));
        }
        InfoType::SECURITY => {
            let on = writable(call, &open)?;
            security::set(&on, request.additional_information, request.buffer).await?
        }
        // [MS-SMB2] 3.3.5.21.4: the object store has no quotas.
        InfoType::QUOTA => return Err(Status::NOT_SUPPORTED.into()),
        _ => return Err(Status::INVALID_PARAMETER.into()),
    };
    Ok(Reply::changed(&SetInfoResponse, receipt))
}

/// [MS-SMB2] 3.3.5.21.1, 2.2.39.
async fn file<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    class: FileInformationClass,
    buffer: &[u8],
) -> Changed {
    use FileInformationClass as Class;
    match class.class_use() {
        ClassUse::Set | ClassUse::QueryAndSet if class != Class::QUOTA => {}
        ClassUse::QueryAndSet => return Err(Status::NOT_SUPPORTED.into()),
        // Note 428: Windows has classes of these numbers. [MS-FSA] 2.1.5.15.9 and 2.1.5.15.13 have the status for an
        // object id (29) and a reservation of bandwidth (44).
        _ if matches!(class.0, 29 | 30 | 41..=44) => return Err(Status::NOT_SUPPORTED.into()),
        _ => return Err(Status::INVALID_INFO_CLASS.into()),
    }
    if let (Class::POSITION | Class::MODE, OpenKind::Disk { .. }) = (class, &open.kind) {
        // [MS-FSA] 2.1.5.15: a read-only volume refuses also the classes that reach no disk.
        let on = writable(call, open)?;
        Status::MEDIA_WRITE_PROTECTED.when(on.vfs().is_read_only(&on.disk.node).await?)?;
    }
    match class {
        Class::POSITION => return handle::position(open, buffer),
        Class::MODE => return handle::mode(open, buffer),
        Class::PIPE => return handle::pipe(open, buffer),
        _ => {}
    }
    if let OpenKind::Pipe(_) = open.kind {
        return Err(Status::NOT_SUPPORTED.into());
    }
    let on = &writable(call, open)?;
    match class {
        Class::BASIC => basic::set(on, buffer).await,
        Class::RENAME | Class::RENAME_EX => rename::set(on, class, buffer).await,
        Class::LINK | Class::LINK_EX => link::set(on, class, buffer).await,
        Class::DISPOSITION => disposition::set(on, buffer).await,
        Class::DISPOSITION_EX => disposition::set_ex(on, buffer).await,
        Class::ALLOCATION => size::allocation(on, buffer).await,
        Class::END_OF_FILE => size::end_of_file(on, buffer).await,
        Class::FULL_EA => ea::set(on, buffer).await,
        Class::VALID_DATA_LENGTH => handle::valid_data_length(on, buffer),
        Class::SHORT_NAME => handle::short_name(on, buffer),
        _ => Err(Status::NOT_SUPPORTED.into()),
    }
}

/// [MS-SMB2] 3.3.5.21.2, [MS-FSA] 2.1.5.16.6 and 2.1.5.16.8: the volume has no quotas, and an id that is not set.
fn filesystem<V: Vfs>(open: &Open<V>, class: FsInformationClass, length: usize) -> Failure {
    use FsInformationClass as Class;
    if class.class_use() == ClassUse::QueryAndSet
        && let Err(denied) = open.need(AccessMask::FILE_WRITE_DATA)
    {
        return denied;
    }
    let status = match class {
        Class::CONTROL if length < FileFsControlInformation::MIN => Status::INFO_LENGTH_MISMATCH,
        Class::CONTROL => Status::VOLUME_NOT_UPGRADED,
        Class::OBJECT_ID if length >= FileFsObjectIdInformation::MIN => Status::INVALID_PARAMETER,
        _ if class.class_use() == ClassUse::Local => Status::NOT_SUPPORTED,
        _ => Status::INVALID_INFO_CLASS,
    };
    status.into()
}

/// Nothing on a read-only share is changed, whatever the handle says (docs/protocol-notes.md, "A read-only share").
fn writable<'a, V: Vfs>(call: &'a Call<V>, open: &'a Open<V>) -> Result<OnDisk<'a, V>, Failure> {
    Status::ACCESS_DENIED.when(call.share()?.config.read_only)?;
    OnDisk::new(call, open)
}

/// Notifies watchers, and breaks leases on the directory, after a property of the object changed.
pub(super) fn report_change<V: Vfs>(on: &OnDisk<'_, V>, filter: NotifyFilter) {
    notices::modified(on.server, on.open, filter);
    break_parent_leases(on);
}

/// Only breaks leases on the directory that has the name, wherever that is now.
pub(super) fn break_parent_leases<V: Vfs>(on: &OnDisk<'_, V>) {
    let files = &on.server.files;
    if let Some(parent) = files.parent_of(&on.disk.place, on.open.engine) {
        entries_changed(on, parent);
    }
}

/// Reports that the size or contents of the open's file or stream changed.
fn report_size<V: Vfs>(on: &OnDisk<'_, V>) {
    match on.disk.node.stream() {
        None => report_change(on, NotifyFilter::SIZE | NotifyFilter::LAST_WRITE),
        Some(stream) => {
            let written = (Change::MODIFIED_STREAM, notices::STREAM_DATA);
            notices::stream_changed(on.server, on.open, stream, written);
        }
    }
}

/// [MS-FSA] 2.1.4.12 with PARENT_OBJECT: leases on the directory, except the actor's own.
fn entries_changed<V: Vfs>(on: &OnDisk<'_, V>, directory: FileKey) {
    let files = &on.server.files;
    let after = files.entries_changed(directory, on.open.parent_lease);
    perform(on.server, after);
}
