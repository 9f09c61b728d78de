//! Requests: each rightful in form, on handles and names that exist more often than not.
//!
//! Requests about a user's own private files are chosen so that they spread none of their content:
//! the files are read, and never renamed to where others look, linked, copied or described anew.
//! Those requests are marked [`Made::careful`], and nobody spoils those.

use bytes::{BufMut, BytesMut};
use smb_client::{CreateArgs, Request};
use smb_tests::durable;
use smb_tests::rng::Rng;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseState, name};
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, Sid};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fsctl::{FsctlCode, ResumeKey};
use smb_wire::ids::{FileId, Guid, LeaseKey};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, Channel, CloseFlags, CloseRequest, CreateDisposition,
    CreateOptions, EchoRequest, InfoType, IoctlFlags, IoctlRequest, LeaseBreak, LockElement,
    LockFlags, LockRequest, NotifyFilter, OplockBreak, OplockLevel, QueryDirectoryFlags,
    QueryDirectoryRequest, ReadFlags, ReadRequest, ShareAccess, WriteFlags,
};
use smb_wire::utf16;

use crate::world::{
    FIXED_FILE, OPEN, USERS, by_descriptor, in_common, in_own_share, marker, private_folder,
};

/// The kind of file of a handle: it decides what its user may do without spreading anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anything that is not the user's own private property, other users' included.
    Play,
    /// A private file or folder of his own, which nobody changes.
    Secret,
    /// A private file of his own that he changes.
    Own,
}

/// A handle of the case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handle {
    pub(crate) id: FileId,
    pub(crate) session: u64,
    pub(crate) tree: u32,
    pub(crate) user: usize,
    pub(crate) kind: Kind,
    pub(crate) directory: bool,
}

/// Which share a tree is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// The private one of a user.
    Private(usize),
    Common,
    Fixed,
    Ipc,
}

/// A request, and what is to be known of it.
pub(crate) struct Made {
    pub(crate) request: Request,
    /// Goes out as it is.
    pub(crate) careful: bool,
    /// A CREATE: what its handle will be.
    pub(crate) opens: Option<Kind>,
    /// The handle that it is about: it goes to that handle's tree.
    pub(crate) about: Option<Handle>,
}

impl Made {
    /// About no handle.
    pub(crate) fn plain(request: Request) -> Self {
        Self {
            request,
            careful: false,
            opens: None,
            about: None,
        }
    }

    fn on(kind: Kind, request: Request) -> Self {
        Self {
            careful: kind != Kind::Play,
            ..Self::plain(request)
        }
    }
}

/// Makes a CREATE by `user` on a tree of `share`; `known` are handles of the case.
pub(crate) fn create(rng: &mut Rng, user: usize, share: Share, known: &[Handle]) -> Made {
    let (name, kind) = named(rng, user, share);
    let mut args = match kind {
        Kind::Secret => CreateArgs::open(&name).access(AccessMask::FILE_GENERIC_READ),
        Kind::Own => CreateArgs::open_if(&name),
        Kind::Play => anyhow(rng, &name),
    };
    args.oplock_level = rng.pick(&[
        OplockLevel::NONE,
        OplockLevel::NONE,
        OplockLevel::II,
        OplockLevel::EXCLUSIVE,
        OplockLevel::BATCH,
    ]);
    if rng.once_in(4) {
        args.share_access = ShareAccess(rng.below(8) as u32);
    }
    for _ in 0..rng.pick(&[0, 0, 1, 1, 2]) {
        args = context(rng, user, kind, known, args);
    }
    Made {
        request: args.request(),
        careful: kind != Kind::Play,
        opens: Some(kind),
        about: None,
    }
}

fn anyhow(rng: &mut Rng, name: &str) -> CreateArgs {
    let mut args = CreateArgs::new(name, CreateDisposition(rng.below(6) as u32));
    if rng.once_in(2) {
        args.disposition = CreateDisposition::OPEN_IF;
    }
    args.desired_access = rng.pick(&[
        args.desired_access,
        AccessMask::FILE_GENERIC_READ,
        AccessMask::FILE_ALL_ACCESS,
        AccessMask::MAXIMUM_ALLOWED,
        AccessMask::GENERIC_READ | AccessMask::GENERIC_WRITE,
        AccessMask::WRITE_DAC | AccessMask::READ_CONTROL | AccessMask::WRITE_OWNER,
        AccessMask::FILE_READ_ATTRIBUTES,
        AccessMask::DELETE,
        AccessMask::FILE_WRITE_ATTRIBUTES | AccessMask::FILE_WRITE_EA,
    ]);
    args.options = CreateOptions(rng.pick(&[0, 0, 0, 1, 1, 0x40, 0x1000, 0x20_0000, 0x2, 0x4000]));
    args.file_attributes = FileAttributes(rng.pick(&[0, 0, 0x80, 1, 2, 0x20]));
    args
}

/// A name, and what it is to `user`.
fn named(rng: &mut Rng, user: usize, share: Share) -> (String, Kind) {
    let wide = |path: String| path.replace('/', "\\");
    let own = format!("own-{}-{}", marker(user), rng.below(4));
    match share {
        Share::Private(of) if of == user => match rng.below(4) {
            0 => (String::new(), Kind::Secret),
            1 => (
                in_own_share(user)[rng.below(2) as usize].clone(),
                Kind::Secret,
            ),
            _ => (own, Kind::Own),
        },
        Share::Private(of) => {
            let names = in_own_share(of);
            (
                names[rng.below(names.len() as u64) as usize].clone(),
                Kind::Play,
            )
        }
        Share::Common => {
            let of = rng.below(USERS.len() as u64) as usize;
            let kind = if of == user { Kind::Secret } else { Kind::Play };
            let names = in_common(of);
            let name = names[rng.below(names.len() as u64) as usize].clone();
            match rng.below(16) {
                0 | 1 => (wide(name), kind),
                2 => (private_folder(of), kind),
                3 if of == user => (format!("{}\\{own}", private_folder(of)), Kind::Own),
                3 => (stranger(rng, &wide(name)), Kind::Play),
                4 => (String::new(), Kind::Play),
                5 => (OPEN.to_owned(), Kind::Play),
                6 => (format!("{OPEN}\\d{}", rng.below(3)), Kind::Play),
                7 => (format!("{OPEN}\\d0\\p{}", rng.below(3)), Kind::Play),
                8 => (format!("{OPEN}\\p{}:s", rng.below(4)), Kind::Play),
                9 => (format!("p{}", rng.below(4)), Kind::Play),
                _ => (format!("{OPEN}\\p{}", rng.below(8)), Kind::Play),
            }
        }
        Share::Fixed => (
            rng.pick(&[FIXED_FILE, FIXED_FILE, "", "new"]).to_owned(),
            Kind::Play,
        ),
        Share::Ipc => (
            rng.pick(&["srvsvc", "lsarpc", "samr", "wkssvc", "", "\\pipe\\srvsvc"])
                .to_owned(),
            Kind::Play,
        ),
    }
}

/// Ways around the name of somebody else's file.
fn stranger(rng: &mut Rng, name: &str) -> String {
    match rng.below(7) {
        0 => format!("{name}:stream"),
        1 => format!("{name}::$DATA"),
        2 => format!("{OPEN}\\..\\{name}"),
        3 => name.to_uppercase(),
        4 => format!("{name}\\"),
        5 => format!("\\{name}"),
        _ => format!("{name}:security.NTACL"),
    }
}

/// A create context more.
fn context(
    rng: &mut Rng,
    user: usize,
    kind: Kind,
    known: &[Handle],
    args: CreateArgs,
) -> CreateArgs {
    let guid = Guid([rng.below(12) as u8; 16]);
    let mut key = [rng.below(6) as u8; 16];
    // Now and then another's lease.
    key[0] = if rng.once_in(8) { 0 } else { user as u8 };
    let state = LeaseState(rng.below(8) as u32);
    // To come back to one's own private file is to have it under its kind.
    let to: Vec<&Handle> = (known.iter())
        .filter(|handle| handle.user != user || handle.kind == kind)
        .collect();
    let old = match to.len() {
        0 => FileId::ANY,
        many => to[rng.below(many as u64) as usize].id,
    };
    match rng.below(20) {
        12..=14 => args.context(name::QUERY_MAXIMAL_ACCESS, b""),
        15..=17 => args.lease_v2(LeaseKey(key), state, 1),
        0 => args.lease(LeaseKey(key), state),
        1 => args.lease_v2(LeaseKey(key), state, rng.below(4) as u16),
        2 => durable::v1(args).oplock(OplockLevel::BATCH),
        3 => durable::v2(args, guid, 2_000).oplock(OplockLevel::BATCH),
        4 => durable::persistent(args, guid, 2_000),
        5 => durable::v1_again(args, old),
        6 => durable::v2_again(args, old, guid),
        7 => durable::app_instance(args, guid),
        8 => args.context(name::QUERY_MAXIMAL_ACCESS, b""),
        9 => args.context(name::QUERY_ON_DISK_ID, b""),
        18 => args.context(name::APPLE, &apple(rng)),
        10 => args.context(name::ALLOCATION_SIZE, &rng.below(1 << 20).to_le_bytes()),
        _ if kind == Kind::Play => args.context(name::SECURITY_DESCRIPTOR, &descriptor(rng, user)),
        _ => args,
    }
}

/// A question as a Mac asks it, or bytes that are none.
fn apple(rng: &mut Rng) -> Vec<u8> {
    let mut query = vec![0; rng.pick(&[24, 24, 24, 24, 0, 8, 16, 23, 32])];
    for (at, byte) in query.iter_mut().enumerate() {
        *byte = match at {
            0 => rng.pick(&[1, 1, 1, 1, 0, 2, 3]),
            8 => rng.pick(&[7, 7, 7, 0, 2, 255]),
            16 => rng.below(64) as u8,
            _ => 0,
        };
    }
    query
}

/// A descriptor: everybody, the user or nobody may, some or everything.
fn descriptor(rng: &mut Rng, user: usize) -> Vec<u8> {
    let who = rng.pick(&[
        Sid::EVERYONE,
        Sid::unix_user(USERS[user].uid),
        Sid::unix_user(USERS[0].uid),
    ]);
    let what = rng.pick(&[
        AccessMask::FILE_ALL_ACCESS,
        AccessMask::FILE_GENERIC_READ,
        AccessMask::WRITE_DAC,
    ]);
    let aces = match rng.below(4) {
        0 => Vec::new(),
        _ => vec![Ace::allow(who, what, AceFlags::empty())],
    };
    encoded(&SecurityDescriptor {
        owner: rng.once_in(4).then_some(who),
        dacl: (!rng.once_in(6)).then(|| Acl::new(aces)),
        ..SecurityDescriptor::default()
    })
}

/// The descriptor that lets in nobody but `user`.
pub(crate) fn owner_only(user: usize) -> Vec<u8> {
    let owner = Sid::unix_user(USERS[user].uid);
    let all = AccessMask::FILE_ALL_ACCESS;
    encoded(&SecurityDescriptor {
        dacl: Some(Acl::new(vec![Ace::allow(owner, all, AceFlags::empty())])),
        ..SecurityDescriptor::default()
    })
}

fn encoded(descriptor: &SecurityDescriptor) -> Vec<u8> {
    let mut out = BytesMut::new();
    // It is small.
    descriptor.encode(&mut out).unwrap();
    out.to_vec()
}

/// The CREATE of the file that a descriptor is to make private, and the SET_INFO that does.
pub(crate) fn described(user: usize, file: Option<FileId>) -> Request {
    match file {
        None => CreateArgs::open(&by_descriptor(user))
            .access(AccessMask::WRITE_DAC | AccessMask::READ_CONTROL)
            .request(),
        Some(file_id) => Request::set_info(file_id, InfoType::SECURITY, 0, 4, &owner_only(user)),
    }
}

/// A request about a handle.
pub(crate) fn about(rng: &mut Rng, user: usize, handle: Handle, keys: &[ResumeKey]) -> Made {
    let Handle { id, kind, .. } = handle;
    let kind = if handle.user == user {
        kind
    } else {
        Kind::Play
    };
    // Directories get their requests and files theirs; now and then the other way.
    let directory = handle.directory != rng.once_in(10);
    let request = match (directory, rng.below(24)) {
        (_, 0..=1) => query(rng, id),
        (_, 2..=4) => set(rng, user, id, kind),
        (_, 5) if rng.once_in(2) => close(rng, id),
        (_, 6) => acknowledge(rng, id),
        (_, 7) => Request::flush(id),
        (_, 8..=10) if kind == Kind::Play => ioctl(rng, id, keys),
        (true, 11..=16) => notify(rng, id),
        (true, 17..) => directory_listing(rng, id),
        (false, 11..=13) if kind != Kind::Secret => write(rng, user, id, kind),
        (false, 14..=16) => lock(rng, id),
        (false, 17..) => read(rng, id),
        _ => query(rng, id),
    };
    Made {
        about: Some(handle),
        ..Made::on(kind, request)
    }
}

/// ECHO.
pub(crate) fn echo() -> Made {
    Made::plain(Request::new(&EchoRequest))
}

fn close(rng: &mut Rng, file_id: FileId) -> Request {
    Request::new(&CloseRequest {
        flags: CloseFlags(rng.below(2) as u16),
        file_id,
    })
}

fn acknowledge(rng: &mut Rng, file_id: FileId) -> Request {
    if rng.once_in(2) {
        return Request::new(&OplockBreak {
            oplock_level: rng.pick(&[OplockLevel::NONE, OplockLevel::II]),
            file_id,
        });
    }
    Request::new(&LeaseBreak {
        lease_key: LeaseKey([rng.below(6) as u8; 16]),
        lease_state: LeaseState(rng.below(8) as u32),
    })
}

fn offset(rng: &mut Rng) -> u64 {
    match rng.below(12) {
        0 => u64::MAX - rng.below(3),
        1 => i64::MAX as u64 - rng.below(3),
        2 => rng.below(10_000),
        _ => rng.below(600),
    }
}

fn length(rng: &mut Rng) -> u32 {
    match rng.below(12) {
        0 => 1 << 16,
        1 => 1 << 20,
        2 => 0,
        _ => rng.below(6_000) as u32,
    }
}

fn read(rng: &mut Rng, file_id: FileId) -> Request {
    Request::new(&ReadRequest {
        padding: 0x50,
        flags: ReadFlags(rng.pick(&[0, 0, 0, 1, 2])),
        length: length(rng),
        offset: offset(rng),
        file_id,
        minimum_count: rng.pick(&[0, 0, 0, 1, 10_000]),
        channel: Channel::NONE,
        remaining_bytes: 0,
        channel_info: &[],
    })
}

fn write(rng: &mut Rng, user: usize, file_id: FileId, kind: Kind) -> Request {
    let data = match kind {
        Kind::Play => vec![b'x'; rng.below(3_000) as usize],
        _ => marker(user).repeat(rng.below(40) as usize).into_bytes(),
    };
    // A file of the disk's size is of no use to anybody.
    let offset = match offset(rng) {
        far if far > u64::from(u32::MAX) && kind != Kind::Play => 0,
        offset => offset,
    };
    Request::write(file_id, offset, &data, WriteFlags(rng.pick(&[0, 0, 0, 1])))
}

fn lock(rng: &mut Rng, file_id: FileId) -> Request {
    let element = |rng: &mut Rng| LockElement {
        offset: offset(rng) % 64,
        length: rng.pick(&[1, 1, 10, 0, u64::MAX]),
        flags: LockFlags(rng.pick(&[0x11, 0x12, 0x12, 1, 2, 4, 4])),
    };
    let many = 1 + rng.below(3);
    Request::new(&LockRequest {
        lock_sequence: rng.pick(&[0, 0, 0x11, 0x21]),
        file_id,
        locks: (0..many).map(|_| element(rng)).collect(),
    })
}

fn directory_listing(rng: &mut Rng, file_id: FileId) -> Request {
    let pattern = rng.pick(&["*", "*", "*", "p?", "<.*", "nothing", "*secret*", ""]);
    Request::new(&QueryDirectoryRequest {
        info_class: rng.pick(&[1, 2, 3, 12, 37, 38, 60, 78, 79, 80, 81]),
        flags: QueryDirectoryFlags(rng.pick(&[0, 1, 1, 2, 4, 0x10])),
        file_index: 0,
        file_id,
        pattern: &utf16::encode(pattern),
        output_buffer_length: rng.pick(&[65_536, 65_536, 4_096, 300, 0]),
    })
}

fn notify(rng: &mut Rng, file_id: FileId) -> Request {
    Request::new(&ChangeNotifyRequest {
        flags: ChangeNotifyFlags(rng.below(2) as u16),
        output_buffer_length: rng.pick(&[4_096, 4_096, 100, 0]),
        file_id,
        completion_filter: NotifyFilter(rng.pick(&[0xfff, 0xfff, 3, 0x10, 0])),
    })
}

fn query(rng: &mut Rng, file_id: FileId) -> Request {
    let (info_type, info_class) = match rng.below(8) {
        0 => (InfoType::FILESYSTEM, 1 + rng.below(12) as u8),
        1 => (InfoType::SECURITY, 0),
        2 => (InfoType::QUOTA, 0),
        3 => (InfoType::FILE, 1 + rng.below(81) as u8),
        _ => {
            let known = [4, 5, 6, 7, 8, 9, 14, 16, 17, 18, 21, 22, 34, 35, 48, 59];
            (InfoType::FILE, rng.pick(&known))
        }
    };
    Request::query_info(
        file_id,
        info_type,
        info_class,
        rng.pick(&[7, 7, 4, 1, 8, 0]),
        rng.pick(&[65_536, 4_096, 4_096, 100, 8, 0]),
    )
}

/// [MS-FSCC] 2.4.42.2 and 2.4.27.2 have one form.
fn renaming(replace: bool, to: &str) -> Vec<u8> {
    let name = utf16::encode(to);
    let mut out = BytesMut::new();
    out.put_u64_le(replace.into());
    out.put_u64_le(0);
    out.put_u32_le(name.len() as u32);
    out.put_slice(&name);
    out.to_vec()
}

fn set(rng: &mut Rng, user: usize, file_id: FileId, kind: Kind) -> Request {
    let target = match rng.below(6) {
        0 => format!("p{}", rng.below(4)),
        1 => format!("{OPEN}\\d{}\\p{}", rng.below(3), rng.below(3)),
        2 => {
            let of = (user + 1 + rng.below(USERS.len() as u64 - 1) as usize) % USERS.len();
            let names = in_common(of);
            names[rng.below(names.len() as u64) as usize].replace('/', "\\")
        }
        _ => format!("{OPEN}\\p{}", rng.below(8)),
    };
    let size = rng.below(20_000).to_le_bytes();
    // Most of these are refused on a handle for reading; none spreads what is in the file.
    let harmless = [
        (4, vec![0x11; 40]),
        (20, size.to_vec()),
        (19, size.to_vec()),
        (13, vec![rng.below(2) as u8]),
        (64, vec![rng.below(32) as u8, 0, 0, 0]),
        (14, size.to_vec()),
        (16, vec![0; 4]),
    ];
    let (info_type, info_class, buffer) = match rng.below(12) {
        0 | 1 if kind == Kind::Play => (InfoType::FILE, 10, renaming(rng.once_in(2), &target)),
        2 if kind == Kind::Play => (InfoType::FILE, 11, renaming(rng.once_in(2), &target)),
        3 if kind == Kind::Play => (InfoType::FILE, 65, renaming(rng.once_in(2), &target)),
        4 if kind == Kind::Play => (InfoType::SECURITY, 0, descriptor(rng, user)),
        5 if kind == Kind::Play => (InfoType::FILE, 15, attribute(rng)),
        6 if kind == Kind::Play => (InfoType::FILE, rng.below(82) as u8, vec![0; 40]),
        7 if kind == Kind::Play => (InfoType::FILESYSTEM, rng.below(12) as u8, vec![0; 48]),
        _ => {
            let (class, buffer) = harmless[rng.below(harmless.len() as u64) as usize].clone();
            (InfoType::FILE, class, buffer)
        }
    };
    Request::set_info(
        file_id,
        info_type,
        info_class,
        if info_type == InfoType::SECURITY {
            rng.pick(&[4, 4, 5, 7, 8, 1])
        } else {
            0
        },
        &buffer,
    )
}

/// FILE_FULL_EA_INFORMATION with one attribute ([MS-FSCC] 2.4.16).
fn attribute(rng: &mut Rng) -> Vec<u8> {
    let name = format!("EA{}", rng.below(4));
    let value = vec![b'v'; rng.below(60) as usize];
    let mut out = BytesMut::new();
    out.put_u32_le(0);
    out.put_u8(0);
    out.put_u8(name.len() as u8);
    out.put_u16_le(value.len() as u16);
    out.put_slice(name.as_bytes());
    out.put_u8(0);
    out.put_slice(&value);
    out.to_vec()
}

fn ioctl(rng: &mut Rng, file_id: FileId, keys: &[ResumeKey]) -> Request {
    let useful = [
        FsctlCode::SRV_REQUEST_RESUME_KEY,
        FsctlCode::SRV_COPYCHUNK,
        FsctlCode::SRV_COPYCHUNK_WRITE,
        FsctlCode::SET_SPARSE,
        FsctlCode::SET_ZERO_DATA,
        FsctlCode::QUERY_ALLOCATED_RANGES,
        FsctlCode::LMR_REQUEST_RESILIENCY,
        FsctlCode::CREATE_OR_GET_OBJECT_ID,
        FsctlCode::QUERY_NETWORK_INTERFACE_INFO,
        FsctlCode::SRV_ENUMERATE_SNAPSHOTS,
        FsctlCode::PIPE_TRANSCEIVE,
    ];
    let code = if rng.once_in(3) {
        rng.pick(FsctlCode::KNOWN)
    } else {
        rng.pick(&useful)
    };
    let mut input = BytesMut::new();
    match code {
        FsctlCode::SRV_COPYCHUNK | FsctlCode::SRV_COPYCHUNK_WRITE => {
            // The key of any handle of the case, of any user.
            match keys.len() {
                0 => input.put_slice(&[7; 24]),
                many => input.put_slice(&keys[rng.below(many as u64) as usize]),
            }
            let chunks = rng.below(4) as u32;
            input.put_u32_le(chunks);
            input.put_u32_le(0);
            for _ in 0..chunks {
                input.put_u64_le(offset(rng));
                input.put_u64_le(offset(rng) % 100_000);
                input.put_u32_le(length(rng));
                input.put_u32_le(0);
            }
        }
        FsctlCode::SET_ZERO_DATA | FsctlCode::QUERY_ALLOCATED_RANGES => {
            input.put_u64_le(offset(rng));
            input.put_u64_le(offset(rng));
        }
        FsctlCode::LMR_REQUEST_RESILIENCY => {
            input.put_u32_le(rng.below(3_000) as u32);
            input.put_u32_le(0);
        }
        _ => {
            for _ in 0..rng.below(96) {
                input.put_u8(rng.pick(&[0, 0, 0, 1, 16, 255]));
            }
        }
    }
    let none = [
        FsctlCode::QUERY_NETWORK_INTERFACE_INFO,
        FsctlCode::VALIDATE_NEGOTIATE_INFO,
    ];
    Request::new(&IoctlRequest {
        ctl_code: code.0,
        file_id: if none.contains(&code) {
            FileId::ANY
        } else {
            file_id
        },
        input: &input,
        max_input_response: 0,
        output_count: 0,
        max_output_response: rng.pick(&[4_096, 4_096, 65_536, 32, 0]),
        flags: IoctlFlags(rng.pick(&[1, 1, 1, 1, 1, 0])),
    })
}
