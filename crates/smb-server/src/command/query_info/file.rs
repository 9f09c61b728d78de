//! QUERY_INFO of the file information classes ([MS-FSCC] 2.4, [MS-FSA] 2.1.5.12).
//!
//! SMB2 has the classes listed in [MS-SMB2] 2.2.37. Other classes of [MS-FSCC] get NOT_SUPPORTED,
//! and unknown numbers get INVALID_INFO_CLASS.

use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fscc::{
        ClassUse, FileAccessInformation, FileAlignmentInformation, FileAllInformation,
        FileAttributeTagInformation, FileBasicInformation, FileCompressionInformation,
        FileEaInformation, FileIdInformation, FileInformationClass, FileInternalInformation,
        FileModeInformation, FileNameInformation, FileNetworkOpenInformation, FilePipeInformation,
        FilePipeLocalInformation, FilePositionInformation, FileStandardInformation, StreamEntry,
        encode_stream_list,
    },
    msg::{CreateOptions, Dialect, QueryInfoRequest},
    status::Status,
};
use vfs::{Attr, Node, Vfs, VfsError};

use super::{InfoAnswer, ea};
use crate::{
    command::{Call, eas, engine::OnDisk, facts, file_time},
    failure::Failure,
    pipe::Pipe,
    state::{Open, OpenKind, need},
};

/// The create options that FileModeInformation shows. [MS-FSCC] 2.4.31 has FILE_DELETE_ON_CLOSE always returned as not
/// set.
const MODE_OPTIONS: u32 = CreateOptions::WRITE_THROUGH.0
    | CreateOptions::SEQUENTIAL_ONLY.0
    | CreateOptions::NO_INTERMEDIATE_BUFFERING.0
    | CreateOptions::SYNCHRONOUS_IO_ALERT.0
    | CreateOptions::SYNCHRONOUS_IO_NONALERT.0;

pub(super) async fn query<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    request: &QueryInfoRequest<'_>,
    max: usize,
) -> Result<InfoAnswer, Failure> {
    use FileInformationClass as Class;
    let class = Class(request.info_class);
    check_access(class, open.granted)?;
    if let OpenKind::Pipe(pipe) = &open.kind {
        return of_pipe(open, pipe, class, max);
    }
    let on = &OnDisk::new(call, open)?;
    let attr = || on.attr();
    match class {
        Class::BASIC => InfoAnswer::fixed(max, &basic(&attr().await?)),
        Class::STANDARD => InfoAnswer::fixed(max, &standard(on, &attr().await?)),
        Class::INTERNAL => InfoAnswer::fixed(max, &internal(&attr().await?)),
        Class::EA => InfoAnswer::fixed(max, &ea_size(on).await?),
        Class::ALL => all(on, max).await,
        Class::NORMALIZED_NAME => normalized_name(on, max),
        Class::ALTERNATE_NAME => alternate_name(on, max),
        Class::FULL_EA => ea::query(on, request, max).await,
        // It is boxed because it is seldom needed and its future is as large as all others
        // together.
        Class::STREAM => Box::pin(streams(on, max)).await,
        Class::COMPRESSION => {
            let attr = attr().await?;
            let compression = FileCompressionInformation {
                compressed_file_size: attr.allocated.min(attr.size),
                ..FileCompressionInformation::default()
            };
            InfoAnswer::fixed(max, &compression)
        }
        Class::NETWORK_OPEN => {
            let facts = facts(&attr().await?);
            InfoAnswer::fixed(max, &FileNetworkOpenInformation { facts })
        }
        Class::ATTRIBUTE_TAG => {
            let attr = attr().await?;
            let tag = FileAttributeTagInformation {
                file_attributes: FileAttributes(attr.dos_attributes),
                reparse_tag: 0,
            };
            InfoAnswer::fixed(max, &tag)
        }
        // [MS-SMB2] 3.3.5.20.1: a server with SMB 3.x answers it on every dialect.
        Class::ID => InfoAnswer::fixed(max, &id(&attr().await?, on.vfs().volume_id())),
        _ => of_the_open(open, class, max),
    }
}

/// Classes that are answered without the disk.
fn of_the_open<V: Vfs>(
    open: &Open<V>,
    class: FileInformationClass,
    max: usize,
) -> Result<InfoAnswer, Failure> {
    use FileInformationClass as Class;
    match class {
        Class::ACCESS => InfoAnswer::fixed(max, &access(open)),
        Class::POSITION => InfoAnswer::fixed(max, &position(open)),
        Class::MODE => InfoAnswer::fixed(max, &mode(open)),
        Class::ALIGNMENT => InfoAnswer::fixed(max, &FileAlignmentInformation::default()),
        Class::PIPE | Class::PIPE_LOCAL | Class::PIPE_REMOTE => {
            Err(Status::INVALID_PARAMETER.into())
        }
        _ => Err(refusal(class).into()),
    }
}

/// [MS-SMB2] 3.3.5.20.1: the status for a class that is not queried. Notes 415 and 416 list the classes for which
/// Windows has another status than the text (docs/protocol-notes.md, "Statuses of information classes").
fn refusal(class: FileInformationClass) -> Status {
    match (class.0, class.class_use()) {
        // [MS-FSA] 2.1.5.12.24: quotas have an information type of their own.
        (32, _) => Status::INVALID_PARAMETER,
        (52, _) => Status::INFO_LENGTH_MISMATCH,
        (41 | 43 | 47 | 49 | 51 | 53, _) => Status::NOT_SUPPORTED,
        (1..=3 | 10..=13 | 19 | 20 | 27 | 31 | 36..=40 | 50, _) | (_, ClassUse::Unknown) => {
            Status::INVALID_INFO_CLASS
        }
        _ => Status::NOT_SUPPORTED,
    }
}

/// [MS-SMB2] 3.3.5.20.1: the rights a class needs.
fn check_access(class: FileInformationClass, granted: AccessMask) -> Result<(), Failure> {
    use FileInformationClass as Class;
    let needed = match class {
        Class::BASIC
        | Class::ALL
        | Class::PIPE
        | Class::PIPE_LOCAL
        | Class::PIPE_REMOTE
        | Class::NETWORK_OPEN
        | Class::ATTRIBUTE_TAG => AccessMask::FILE_READ_ATTRIBUTES,
        Class::FULL_EA => AccessMask::FILE_READ_EA,
        _ => AccessMask::empty(),
    };
    need(granted, needed)
}

fn basic(attr: &Attr) -> FileBasicInformation {
    FileBasicInformation {
        creation_time: file_time(attr.created),
        last_access_time: file_time(attr.accessed),
        last_write_time: file_time(attr.written),
        change_time: file_time(attr.changed),
        file_attributes: FileAttributes(attr.dos_attributes),
    }
}

/// [MS-FSA] 2.1.5.12.27: links that are marked deleted, through whichever handle, are no longer counted.
fn standard<V: Vfs>(on: &OnDisk<'_, V>, attr: &Attr) -> FileStandardInformation {
    let (files, place) = (&on.server.files, &on.disk.place);
    let pending = on.is_delete_pending();
    // The kernel no longer counts a removed link.
    let removed = pending && files.is_unlinked(place, on.open.engine);
    let gone = u32::try_from(files.pending_links(place.key)).unwrap_or(u32::MAX);
    // A directory has one name, whatever POSIX counts, also where the handle is one of its named streams.
    let links = match (attr.is_of_directory(), removed) {
        (false, true) => attr.links,
        (false, false) => attr.links.max(1),
        (true, removed) => u32::from(!removed),
    };
    FileStandardInformation {
        allocation_size: attr.allocated,
        end_of_file: attr.size,
        number_of_links: links.saturating_sub(gone),
        delete_pending: pending,
        directory: on.disk.directory,
    }
}

fn internal(attr: &Attr) -> FileInternalInformation {
    FileInternalInformation {
        index_number: attr.file_id,
    }
}

fn id(attr: &Attr, volume: u64) -> FileIdInformation {
    FileIdInformation {
        volume_serial_number: volume,
        file_id: u128::from(attr.file_id).to_le_bytes(),
    }
}

fn access<V: Vfs>(open: &Open<V>) -> FileAccessInformation {
    FileAccessInformation {
        access_flags: open.granted,
    }
}

/// Returns the position that was set through this open (docs/protocol-notes.md, "The position of an
/// open").
fn position<V: Vfs>(open: &Open<V>) -> FilePositionInformation {
    FilePositionInformation {
        current_byte_offset: i64::try_from(open.state().position).unwrap_or(i64::MAX),
    }
}

pub(in crate::command) fn mode<V: Vfs>(open: &Open<V>) -> FileModeInformation {
    FileModeInformation {
        mode: (open.state().mode).unwrap_or(open.options.bits() & MODE_OPTIONS),
    }
}

async fn ea_size<V: Vfs>(on: &OnDisk<'_, V>) -> Result<FileEaInformation, Failure> {
    let vfs = on.vfs();
    let file = vfs.carrier(&on.disk.node);
    // The change time of the disk, not the one that clients see, shows whether the size is still known.
    let attr = vfs.attr(&file).await?;
    let ea_size = match vfs.ea_size(&file, &attr).await {
        // The EAs are too many to be read, but all else about the file can be. Clients make buffers of this size.
        Err(VfsError::TooLarge) => eas::SIZE_MAX,
        Err(VfsError::NotSupported) => 0,
        other => other?,
    };
    Ok(FileEaInformation { ea_size })
}

/// [MS-FSA] 2.1.5.12.4: the length is checked first, also where there is no short name.
fn alternate_name<V: Vfs>(on: &OnDisk<'_, V>, max: usize) -> Result<InfoAnswer, Failure> {
    Status::INFO_LENGTH_MISMATCH.when(max < FileNameInformation::MIN)?;
    let path = on.server.path_of(on.open)?;
    let mut short = FileNameInformation::default();
    if let Some(name) = path.names().last() {
        on.vfs().short_name(name, &mut short.file_name);
    }
    Status::OBJECT_NAME_NOT_FOUND.when(short.file_name.is_empty())?;
    named!(max, FileNameInformation, short)
}

/// The name is the path (docs/protocol-notes.md, "The name in FileAllInformation").
async fn all<V: Vfs>(on: &OnDisk<'_, V>, max: usize) -> Result<InfoAnswer, Failure> {
    let attr = on.attr().await?;
    let all = FileAllInformation {
        basic: basic(&attr),
        standard: standard(on, &attr),
        internal: internal(&attr),
        ea: ea_size(on).await?,
        access: access(on.open),
        position: position(on.open),
        mode: mode(on.open),
        alignment: FileAlignmentInformation::default(),
        file_name: format!("\\{}", path(on)?),
    };
    named!(max, FileAllInformation, all)
}

/// The path from the share's root, with the stream.
fn path<V: Vfs>(on: &OnDisk<'_, V>) -> Result<String, Failure> {
    let mut path = on.server.path_of(on.open)?.text();
    if let Some(stream) = on.disk.node.stream() {
        path.push(':');
        path.push_str(stream);
    }
    Ok(path)
}

/// [MS-SMB2] 3.3.5.20.1: known from 3.1.1 on, relative to the share.
fn normalized_name<V: Vfs>(on: &OnDisk<'_, V>, max: usize) -> Result<InfoAnswer, Failure> {
    Status::NOT_SUPPORTED.when(on.call.connection.dialect() < Dialect::SMB_3_1_1)?;
    let name = FileNameInformation {
        file_name: path(on)?,
    };
    named!(max, FileNameInformation, name)
}

/// [MS-FSA] 2.1.5.12.29; the unnamed stream comes first, and directories have none.
async fn streams<V: Vfs>(on: &OnDisk<'_, V>, max: usize) -> Result<InfoAnswer, Failure> {
    Status::INFO_LENGTH_MISMATCH.when(max < StreamEntry::MIN)?;
    let mut entries = Vec::from_iter(unnamed(on).await?);
    let named = match on.vfs().streams(&on.disk.node).await {
        Err(VfsError::NotSupported) => Vec::new(),
        other => other?,
    };
    entries.extend(named.into_iter().map(|stream| StreamEntry {
        name: format!(":{}:$DATA", stream.name),
        size: stream.size,
        allocation_size: stream.allocated,
    }));
    let (bytes, fitted) = encode_stream_list(&entries, max);
    let cut = fitted < entries.len();
    Ok(InfoAnswer { bytes, cut })
}

/// The unnamed stream of the file, even if the handle is one of a named stream.
async fn unnamed<V: Vfs>(on: &OnDisk<'_, V>) -> Result<Option<StreamEntry>, Failure> {
    let attr = match on.disk.node.stream() {
        None => on.attr().await?,
        Some(_) => on.vfs().attr(&on.vfs().carrier(&on.disk.node)).await?,
    };
    Ok((attr.kind == vfs::Kind::File).then(|| StreamEntry {
        name: "::$DATA".to_owned(),
        size: attr.size,
        allocation_size: attr.allocated,
    }))
}

/// Most bytes a pipe takes or gives at once.
const PIPE_QUOTA: u32 = 4096;

/// Answers for a pipe: it carries messages in both directions, is connected, and the handle is the
/// client's end.
fn of_pipe<V: Vfs>(
    open: &Open<V>,
    pipe: &Pipe,
    class: FileInformationClass,
    max: usize,
) -> Result<InfoAnswer, Failure> {
    use FileInformationClass as Class;
    match class {
        Class::PIPE => {
            let pipe = FilePipeInformation {
                read_mode: 1,
                completion_mode: 0,
            };
            InfoAnswer::fixed(max, &pipe)
        }
        Class::PIPE_LOCAL => {
            // A pipe that is broken has nothing more to read.
            let waiting = pipe.peek(0).map_or(0, |(_, seen)| seen.read_data_available);
            let pipe = FilePipeLocalInformation {
                named_pipe_type: 1,
                named_pipe_configuration: 2,
                maximum_instances: u32::MAX,
                current_instances: 1,
                inbound_quota: PIPE_QUOTA,
                read_data_available: waiting,
                outbound_quota: PIPE_QUOTA,
                write_quota_available: PIPE_QUOTA,
                named_pipe_state: 3,
                named_pipe_end: 0,
            };
            InfoAnswer::fixed(max, &pipe)
        }
        Class::STANDARD => {
            // Windows reports that a pipe is deleted with its handle.
            let standard = FileStandardInformation {
                allocation_size: PIPE_QUOTA.into(),
                end_of_file: 0,
                number_of_links: 1,
                delete_pending: true,
                directory: false,
            };
            InfoAnswer::fixed(max, &standard)
        }
        // The number that a CREATE returns for the pipe ([MS-SMB2] 3.3.5.9.9).
        Class::INTERNAL => {
            let internal = FileInternalInformation {
                index_number: open.file_id.persistent,
            };
            InfoAnswer::fixed(max, &internal)
        }
        Class::ACCESS | Class::POSITION | Class::MODE | Class::ALIGNMENT => {
            of_the_open(open, class, max)
        }
        _ => Err(refusal(class).into()),
    }
}
