//! The requests of a player, and what their answers say.

use bytes::BytesMut;
use smb_client::{CreateArgs, Reply, Request};
use smb_sim::SimRng;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseContext, LeaseFlags, LeaseState, LeaseV2, name};
use smb_wire::fscc::{FileInformationClass, FileRenameInformation};
use smb_wire::ids::{FileId, LeaseKey};
use smb_wire::msg::{
    CreateDisposition, InfoType, LeaseBreak, OplockBreak, OplockLevel, QueryDirectoryFlags,
    QueryDirectoryRequest, QueryDirectoryResponse, ShareAccess,
};

/// Everything happens in this directory.
pub(crate) const DIRECTORY: &str = "d";
const NAMES: [&str; 3] = ["d\\a", "d\\b", "d\\c"];

/// The caching that an open requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish {
    Nothing,
    Oplock(OplockLevel),
    /// A key, and whether by version 2.
    Lease(u8, LeaseState, bool),
}

pub(crate) fn wish(rng: &mut SimRng, machine: u8) -> Wish {
    let states = [1, 3, 5, 7, 7, 3, 0];
    match rng.below(8) {
        0 => Wish::Nothing,
        1 => Wish::Oplock(OplockLevel::II),
        2 => Wish::Oplock(OplockLevel::BATCH),
        3 => Wish::Oplock(OplockLevel::EXCLUSIVE),
        _ => {
            let key = machine * 16 + u8::try_from(rng.below(4)).unwrap();
            let state = LeaseState(states[rng.index(states.len())]);
            Wish::Lease(key, state, rng.below(3) > 0)
        }
    }
}

pub(crate) fn key(number: u8) -> LeaseKey {
    LeaseKey([number; 16])
}

pub(crate) fn any_name(rng: &mut SimRng) -> &'static str {
    NAMES[rng.index(NAMES.len())]
}

/// Opens a file as chance will have it.
pub(crate) fn open(
    rng: &mut SimRng,
    wish: Wish,
    epoch: u16,
    parent: Option<u8>,
) -> (CreateArgs, bool) {
    let overwrites = rng.below(6) == 0;
    let disposition = if overwrites {
        CreateDisposition::OVERWRITE_IF
    } else {
        CreateDisposition::OPEN_IF
    };
    let access = match rng.below(8) {
        0 => AccessMask::FILE_READ_ATTRIBUTES,
        1 | 2 => AccessMask::FILE_GENERIC_READ,
        _ => AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE,
    };
    let all = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    let share = if rng.below(6) == 0 {
        ShareAccess::READ
    } else {
        all
    };
    let args = CreateArgs::new(any_name(rng), disposition)
        .access(access)
        .share(share);
    (cached(args, wish, epoch, parent), overwrites)
}

/// Opens the directory for listing.
pub(crate) fn open_directory(wish: Wish, epoch: u16) -> CreateArgs {
    cached(CreateArgs::directory(DIRECTORY), wish, epoch, None)
}

fn cached(args: CreateArgs, wish: Wish, epoch: u16, parent: Option<u8>) -> CreateArgs {
    let args = args.context(name::QUERY_ON_DISK_ID, &[]);
    match wish {
        Wish::Nothing => args,
        Wish::Oplock(level) => args.oplock(level),
        Wish::Lease(number, state, v2) => args.lease_context(&LeaseContext {
            lease_key: key(number),
            lease_state: state,
            flags: LeaseFlags::PARENT_LEASE_KEY_SET.when(v2 && parent.is_some()),
            v2: v2.then(|| LeaseV2 {
                parent_lease_key: parent.map(key).unwrap_or_default(),
                epoch,
            }),
        }),
    }
}

pub(crate) fn rename(rng: &mut SimRng, file_id: FileId) -> Request {
    let mut buffer = BytesMut::new();
    FileRenameInformation {
        replace_if_exists: rng.below(2) == 0,
        root_directory: 0,
        file_name: any_name(rng).to_owned(),
    }
    .encode(&mut buffer);
    set(file_id, FileInformationClass::RENAME, &buffer)
}

pub(crate) fn set_end(rng: &mut SimRng, file_id: FileId) -> Request {
    let end = rng.below(40).to_le_bytes();
    set(file_id, FileInformationClass::END_OF_FILE, &end)
}

pub(crate) fn delete(file_id: FileId) -> Request {
    set(file_id, FileInformationClass::DISPOSITION, &[1])
}

fn set(file_id: FileId, class: FileInformationClass, buffer: &[u8]) -> Request {
    Request::set_info(file_id, InfoType::FILE, class.0, 0, buffer)
}

pub(crate) fn list(file_id: FileId) -> Request {
    Request::new(&QueryDirectoryRequest {
        info_class: FileInformationClass::NAMES.0,
        flags: QueryDirectoryFlags::RESTART_SCANS,
        file_index: 0,
        file_id,
        pattern: &smb_wire::utf16::encode("*"),
        output_buffer_length: 4096,
    })
}

/// The names of a listing, sorted.
pub(crate) fn names(reply: &Reply) -> Vec<u8> {
    let response = QueryDirectoryResponse::read(&reply.message).unwrap();
    let mut rest = response.buffer;
    let mut names = Vec::new();
    loop {
        let number = |at: usize| {
            let bytes: [u8; 4] = rest[at..at + 4].try_into().unwrap();
            usize::try_from(u32::from_le_bytes(bytes)).unwrap()
        };
        let (next, length) = (number(0), number(8));
        names.push(rest[12..12 + length].to_vec());
        if next == 0 {
            break;
        }
        rest = &rest[next..];
    }
    names.sort();
    names.join(&b'|')
}

pub(crate) fn acknowledge_lease(number: u8, state: LeaseState) -> Request {
    Request::new(&LeaseBreak {
        lease_key: key(number),
        lease_state: state,
    })
}

pub(crate) fn acknowledge_oplock(file_id: FileId, level: OplockLevel) -> Request {
    Request::new(&OplockBreak {
        oplock_level: level,
        file_id,
    })
}
