//! Requests that several of the programs send in the same form.

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, File, Reply, Request, Tree};
use smb_tests::status;
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseContext, LeaseFlags, LeaseState, LeaseV2, name};
use smb_wire::dtyp::SecurityInformation;
use smb_wire::dtyp::{Ace, SecurityDescriptor, SecurityDescriptorControl};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    DispositionFlags, FileBasicInformation, FileInformationClass as Class, FileStandardInformation,
    FsInformationClass, OwnedDirectoryEntry, read_stream_list,
};
use smb_wire::ids::{FileId, FileTime, LeaseKey};
use smb_wire::msg::{CloseFlags, CloseRequest, CreateOptions, InfoType};

/// 2021-03-04 05:06:07 and a fraction that needs the full resolution of 100 ns.
pub(crate) const LONG_AGO: u64 = 132_593_079_671_234_567;
/// The parts of a descriptor that Explorer's security tab shows without the audit entries.
pub(crate) const OWNER_GROUP_DACL: SecurityInformation = SecurityInformation(7);

/// Adds MxAc and QFid, which the redirector of Windows adds to each of its opens.
pub(crate) fn asking(args: CreateArgs) -> CreateArgs {
    args.context(name::QUERY_MAXIMAL_ACCESS, &[])
        .context(name::QUERY_ON_DISK_ID, &[])
}

/// Adds a lease below the directory whose lease has the key `parent`.
pub(crate) fn leased(args: CreateArgs, key: LeaseKey, parent: LeaseKey) -> CreateArgs {
    args.lease_context(&LeaseContext {
        lease_key: key,
        lease_state: LeaseState::RWH,
        flags: LeaseFlags::PARENT_LEASE_KEY_SET,
        v2: Some(LeaseV2 {
            parent_lease_key: parent,
            epoch: 0,
        }),
    })
}

/// Returns the granted lease state of an open.
#[track_caller]
pub(crate) fn granted(file: &File) -> LeaseState {
    file.created().lease().expect("a lease").lease_state
}

/// Opens a file as MoveFile and DeleteFile do.
#[track_caller]
pub(crate) fn open_to_delete(tree: &Tree, name: &str) -> File {
    let access = AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    let args = CreateArgs::open(name)
        .access(access)
        .options(CreateOptions::OPEN_REPARSE_POINT | CreateOptions::SYNCHRONOUS_IO_NONALERT);
    tree.create(&asking(args)).unwrap()
}

/// Builds a related QUERY_INFO for a compound.
pub(crate) fn related_query(tree: &Tree, info_type: InfoType, info_class: u8, max: u32) -> Request {
    tree.address(Request::query_info(
        FileId::ANY,
        info_type,
        info_class,
        0,
        max,
    ))
    .related()
}

/// Builds a related CLOSE for a compound.
pub(crate) fn related_close(tree: &Tree) -> Request {
    tree.address(Request::new(&CloseRequest {
        flags: CloseFlags::POSTQUERY_ATTRIB,
        file_id: FileId::ANY,
    }))
    .related()
}

/// Returns the statuses of a compound's replies.
pub(crate) fn statuses(replies: &[Reply]) -> Vec<Status> {
    replies.iter().map(Reply::status).collect()
}

#[track_caller]
pub(crate) fn basic(file: &File) -> FileBasicInformation {
    FileBasicInformation::read(&file.query(Class::BASIC).unwrap()).unwrap()
}

#[track_caller]
pub(crate) fn standard(file: &File) -> FileStandardInformation {
    FileStandardInformation::read(&file.query(Class::STANDARD).unwrap()).unwrap()
}

/// Sets the times of creation and last write, and attributes; values of 0 or empty change nothing.
#[track_caller]
pub(crate) fn set_basic(file: &File, creation: u64, last_write: u64, attributes: FileAttributes) {
    let mut buffer = BytesMut::new();
    FileBasicInformation {
        creation_time: FileTime(creation),
        last_access_time: FileTime(0),
        last_write_time: FileTime(last_write),
        change_time: FileTime(0),
        file_attributes: attributes,
    }
    .encode(&mut buffer);
    file.set(Class::BASIC, &buffer).unwrap();
}

/// Deletes a file like DeleteFile of Windows 10 and later: flags 0x13, with POSIX semantics and
/// including read-only files.
#[track_caller]
pub(crate) fn delete(tree: &Tree, name: &str) -> Status {
    let access = AccessMask::DELETE
        | AccessMask::FILE_READ_ATTRIBUTES
        | AccessMask::FILE_WRITE_ATTRIBUTES
        | AccessMask::SYNCHRONIZE;
    let args = CreateArgs::open(name)
        .access(access)
        .options(CreateOptions::OPEN_REPARSE_POINT);
    let file = tree.create(&args).unwrap();
    let flags = DispositionFlags::DELETE
        | DispositionFlags::POSIX_SEMANTICS
        | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
    let set = status(file.set(Class::DISPOSITION_EX, &flags.bits().to_le_bytes()));
    file.close().unwrap();
    set
}

/// Queries an information class of the file system.
#[track_caller]
pub(crate) fn file_system(file: &File, class: FsInformationClass) -> Vec<u8> {
    file.query_info(InfoType::FILESYSTEM, class.0, 0).unwrap()
}

/// Queries the descriptor as Windows does: first the size, then the content.
#[track_caller]
pub(crate) fn descriptor(file: &File, parts: SecurityInformation) -> SecurityDescriptor {
    let short = Request::query_info(file.id(), InfoType::SECURITY, 0, parts.bits(), 0);
    let refused = file.tree().reply(short).unwrap();
    assert_eq!(refused.status(), Status::BUFFER_TOO_SMALL);
    let bytes = file.query_info(InfoType::SECURITY, 0, parts.bits());
    SecurityDescriptor::read(&bytes.unwrap()).unwrap()
}

/// Returns the entries of the DACL.
#[track_caller]
pub(crate) fn entries(file: &File) -> Vec<Ace> {
    let sd = descriptor(file, OWNER_GROUP_DACL);
    sd.dacl.expect("a DACL").aces
}

/// Sets a DACL as SetNamedSecurityInfo does.
pub(crate) fn set_entries(
    file: &File,
    entries: &[Ace],
    control: SecurityDescriptorControl,
) -> Result<(), ClientError> {
    let sd = SecurityDescriptor {
        control: control | SecurityDescriptorControl::DACL_AUTO_INHERIT_REQ,
        owner: None,
        group: None,
        sacl: None,
        dacl: Some(smb_wire::dtyp::Acl::new(entries.to_vec())),
    };
    let mut bytes = BytesMut::new();
    sd.encode(&mut bytes).unwrap();
    let parts = SecurityInformation::DACL.bits();
    let request = file.set_info_request(InfoType::SECURITY, 0, parts, &bytes);
    file.tree().call(request).map(|_| ())
}

/// Returns the names and sizes of a file's streams, including the data stream.
#[track_caller]
pub(crate) fn streams(tree: &Tree, name: &str) -> Vec<(String, u64)> {
    let args = CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES);
    let file = tree.create(&args).unwrap();
    let bytes = file.query(Class::STREAM).unwrap();
    file.close().unwrap();
    let list = read_stream_list(&bytes).unwrap().into_iter();
    let mut list: Vec<_> = list.map(|stream| (stream.name, stream.size)).collect();
    list.sort();
    list
}

/// Lists a directory without itself and its parent, sorted by name.
#[track_caller]
pub(crate) fn listed(tree: &Tree, folder: &str) -> Vec<OwnedDirectoryEntry> {
    let mut entries = tree.list(folder, "*").unwrap();
    entries.retain(|entry| entry.file_name != "." && entry.file_name != "..");
    entries.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    entries
}

#[track_caller]
pub(crate) fn names(tree: &Tree, folder: &str) -> Vec<String> {
    let entries = listed(tree, folder).into_iter();
    entries.map(|entry| entry.file_name).collect()
}
