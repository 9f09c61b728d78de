//! Sends every control code through every kind of handle with every right: the status is that of a
//! table derived from [MS-SMB2] 3.3.5.15, [MS-FSCC] 2.3 and [MS-FSA] 2.1.5.10, and a refused
//! request changes nothing.

use std::path::Path;

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::rpc::bind;
use smb_tests::state::{assert_same, by_smb, on_host, settled};
use smb_tests::{DATA, HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask as Mask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, Sid};
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::{
    AllocatedRange, CopyChunk, CopyChunkCopy, DuplicateExtents, DuplicateExtentsEx,
    DuplicateExtentsFlags, FsctlCode as Code, RequestResumeKeyResponse, SetZeroData,
};
use smb_wire::ids::FileId;
use smb_wire::msg::{InfoType, WriteFlags};

use crate::random::plays_all;

/// The block size of file systems that share extents, in bytes.
const BLOCK: u32 = 4096;

pub(crate) const RIGHTS: [(&str, Mask); 19] = [
    ("READ_DATA", Mask::FILE_READ_DATA),
    ("WRITE_DATA", Mask::FILE_WRITE_DATA),
    ("APPEND_DATA", Mask::FILE_APPEND_DATA),
    ("READ_EA", Mask::FILE_READ_EA),
    ("WRITE_EA", Mask::FILE_WRITE_EA),
    ("EXECUTE", Mask::FILE_EXECUTE),
    ("DELETE_CHILD", Mask::FILE_DELETE_CHILD),
    ("READ_ATTRIBUTES", Mask::FILE_READ_ATTRIBUTES),
    ("WRITE_ATTRIBUTES", Mask::FILE_WRITE_ATTRIBUTES),
    ("DELETE", Mask::DELETE),
    ("READ_CONTROL", Mask::READ_CONTROL),
    ("WRITE_DAC", Mask::WRITE_DAC),
    ("WRITE_OWNER", Mask::WRITE_OWNER),
    // SYNCHRONIZE alone grants nothing.
    ("SYNCHRONIZE", Mask::SYNCHRONIZE),
    ("GENERIC_READ", Mask::GENERIC_READ),
    ("GENERIC_WRITE", Mask::GENERIC_WRITE),
    ("GENERIC_EXECUTE", Mask::GENERIC_EXECUTE),
    ("GENERIC_ALL", Mask::GENERIC_ALL),
    ("MAXIMUM_ALLOWED", Mask::MAXIMUM_ALLOWED),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file or a named stream of one.
    Stream,
    Directory,
    Pipe,
}

/// The expected answer to a code.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// The same status for every handle of the kind.
    Always(Status),
    /// This status for a handle with one right of each set, ACCESS_DENIED for others.
    Needing(&'static [Mask], Status),
    /// As above; INVALID_DEVICE_REQUEST if the file system cannot share extents.
    Sharing(&'static [Mask]),
}

use Answer::{Always, Needing, Sharing};

const READ: Mask = Mask::FILE_READ_DATA;
const WRITE: Mask = Mask::FILE_WRITE_DATA;
const WRITE_OR_APPEND: Mask = Mask(WRITE.0 | Mask::FILE_APPEND_DATA.0);
const DESCRIBE: Mask = Mask(WRITE.0 | Mask::FILE_WRITE_ATTRIBUTES.0);
/// [MS-FSA] 2.1.5.10.38 names the first two; Windows accepts FILE_APPEND_DATA as well.
const SPARSE: Mask = Mask(DESCRIBE.0 | Mask::FILE_APPEND_DATA.0);

const GOOD: Answer = Always(Status::SUCCESS);
const NOT_OF_THIS: Answer = Always(Status::INVALID_DEVICE_REQUEST);
const NOT_ALLOWED: Answer = Always(Status::NOT_SUPPORTED);
const WRONG: Answer = Always(Status::INVALID_PARAMETER);

/// The codes that have an effect, or are refused with another status than unsupported: the answers
/// for a stream, a directory and a pipe.
const TABLE: &[(Code, [Answer; 3])] = &[
    // 3.3.5.15: these codes use no handle.
    (Code::DFS_GET_REFERRALS, [WRONG; 3]),
    (Code::DFS_GET_REFERRALS_EX, [WRONG; 3]),
    (Code::QUERY_NETWORK_INTERFACE_INFO, [WRONG; 3]),
    (Code::VALIDATE_NEGOTIATE_INFO, [WRONG; 3]),
    (Code::PIPE_WAIT, [WRONG; 3]),
    // 3.3.5.15.3 and 3.3.5.15.4: both directions, and only on pipes.
    (
        Code::PIPE_TRANSCEIVE,
        [
            NOT_ALLOWED,
            NOT_ALLOWED,
            Needing(&[READ, WRITE], Status::SUCCESS),
        ],
    ),
    (
        Code::PIPE_PEEK,
        [NOT_ALLOWED, NOT_ALLOWED, Needing(&[READ], Status::SUCCESS)],
    ),
    // 3.3.5.15.5: any handle.
    (Code::SRV_REQUEST_RESUME_KEY, [GOOD; 3]),
    // 3.3.5.15.6: INVALID_PARAMETER if one of the handles is a pipe. A directory has no data to
    // write.
    (
        Code::SRV_COPYCHUNK,
        [
            Needing(&[READ, WRITE_OR_APPEND], Status::SUCCESS),
            Needing(&[READ, WRITE_OR_APPEND], Status::INVALID_DEVICE_REQUEST),
            WRONG,
        ],
    ),
    (
        Code::SRV_COPYCHUNK_WRITE,
        [
            Needing(&[WRITE_OR_APPEND], Status::SUCCESS),
            Needing(&[WRITE_OR_APPEND], Status::INVALID_DEVICE_REQUEST),
            WRONG,
        ],
    ),
    // [MS-FSA] 2.1.5.10.4: NOT_SUPPORTED unless the handle is a data stream.
    (
        Code::DUPLICATE_EXTENTS_TO_FILE,
        [Sharing(&[WRITE]), NOT_ALLOWED, NOT_OF_THIS],
    ),
    (
        Code::DUPLICATE_EXTENTS_TO_FILE_EX,
        [Sharing(&[WRITE]), NOT_ALLOWED, NOT_OF_THIS],
    ),
    // [MS-FSA] 2.1.5.10.38, .39 and .22: INVALID_PARAMETER unless the handle is a data stream.
    (
        Code::SET_SPARSE,
        [Needing(&[SPARSE], Status::SUCCESS), WRONG, NOT_OF_THIS],
    ),
    (
        Code::SET_ZERO_DATA,
        [Needing(&[WRITE], Status::SUCCESS), WRONG, NOT_OF_THIS],
    ),
    (
        Code::QUERY_ALLOCATED_RANGES,
        [Needing(&[READ], Status::SUCCESS), WRONG, NOT_OF_THIS],
    ),
    (Code::GET_COMPRESSION, [GOOD, GOOD, NOT_OF_THIS]),
    // The request is for no compression, which is the current state.
    (
        Code::SET_COMPRESSION,
        [
            Needing(&[WRITE], Status::SUCCESS),
            Needing(&[WRITE], Status::SUCCESS),
            NOT_OF_THIS,
        ],
    ),
    (Code::CREATE_OR_GET_OBJECT_ID, [GOOD, GOOD, NOT_OF_THIS]),
    (Code::GET_OBJECT_ID, [GOOD, GOOD, NOT_OF_THIS]),
    (Code::SRV_ENUMERATE_SNAPSHOTS, [GOOD, GOOD, NOT_OF_THIS]),
    (
        Code::GET_REPARSE_POINT,
        [
            Always(Status::NOT_A_REPARSE_POINT),
            Always(Status::NOT_A_REPARSE_POINT),
            NOT_OF_THIS,
        ],
    ),
    (
        Code::DELETE_REPARSE_POINT,
        [
            Needing(&[DESCRIBE], Status::NOT_A_REPARSE_POINT),
            Needing(&[DESCRIBE], Status::NOT_A_REPARSE_POINT),
            NOT_OF_THIS,
        ],
    ),
    // 3.3.5.15.9: affects only the open itself.
    (Code::LMR_REQUEST_RESILIENCY, [GOOD, GOOD, NOT_OF_THIS]),
    // 3.3.5.15.19: the input asks for neither kind of copy.
    (Code::MARK_HANDLE, [NOT_ALLOWED, NOT_ALLOWED, NOT_OF_THIS]),
    // 3.3.5.15.7, and 3.3.5.15 with its note about codes that are not allowed over the network.
    (Code::SRV_READ_HASH, [NOT_ALLOWED; 3]),
    (Code::REQUEST_OPLOCK_LEVEL_1, [NOT_ALLOWED; 3]),
    (Code::REQUEST_OPLOCK_LEVEL_2, [NOT_ALLOWED; 3]),
    (Code::REQUEST_BATCH_OPLOCK, [NOT_ALLOWED; 3]),
    (Code::OPLOCK_BREAK_ACKNOWLEDGE, [NOT_ALLOWED; 3]),
    (Code::OPBATCH_ACK_CLOSE_PENDING, [NOT_ALLOWED; 3]),
    (Code::OPLOCK_BREAK_NOTIFY, [NOT_ALLOWED; 3]),
    (Code::OPLOCK_BREAK_ACK_NO_2, [NOT_ALLOWED; 3]),
    (Code::REQUEST_FILTER_OPLOCK, [NOT_ALLOWED; 3]),
    // 3.3.5.15.8: these are passed to no file system.
    (Code::QUERY_FILE_REGIONS, [NOT_ALLOWED; 3]),
    (Code(0x0011_0000), [NOT_ALLOWED; 3]),
];

/// Codes of [MS-FSCC] 2.3 and [MS-RSVD] without a constant here, and numbers that are not defined.
const UNNAMED: [u32; 16] = [
    0x0009_03d3,
    0x0009_0440,
    0x0009_042b,
    0x0009_0300,
    0x0009_0304,
    0x0009_0364,
    0x0009_0350,
    0x0009_c108,
    0x0000_0000,
    0x0000_0001,
    0x0009_9999,
    0x0011_0000,
    0x0014_ffff,
    0x0014_0000,
    0x7fff_ffff,
    0xffff_ffff,
];

/// Returns the answers of the table; other codes are optional, so INVALID_DEVICE_REQUEST.
fn expected(code: Code, kind: Kind, granted: Mask) -> &'static [Status] {
    const DENIED: &[Status] = &[Status::ACCESS_DENIED];
    let row = TABLE.iter().find(|(known, _)| *known == code);
    let answer = row.map_or(&NOT_OF_THIS, |(_, answers)| &answers[kind as usize]);
    let may = |sets: &[Mask]| sets.iter().all(|set| granted.intersects(*set));
    match answer {
        Always(status) => std::slice::from_ref(status),
        Needing(sets, status) if may(sets) => std::slice::from_ref(status),
        Sharing(sets) if may(sets) => &[Status::SUCCESS, Status::INVALID_DEVICE_REQUEST],
        Needing(..) | Sharing(..) => DENIED,
    }
}

fn encoded(encode: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.to_vec()
}

/// An input with which the code would have its effect.
fn input(code: Code, source: &File, key: [u8; 24]) -> Vec<u8> {
    match code {
        Code::SRV_COPYCHUNK | Code::SRV_COPYCHUNK_WRITE => encoded(|out| {
            CopyChunkCopy {
                source_key: key,
                chunk_count: 1,
                chunks: vec![CopyChunk {
                    source_offset: 0,
                    target_offset: 0,
                    length: BLOCK,
                }],
            }
            .encode(out);
        }),
        Code::DUPLICATE_EXTENTS_TO_FILE => encoded(|out| {
            DuplicateExtents {
                source_file_id: source.id(),
                source_file_offset: 0,
                target_file_offset: 0,
                byte_count: BLOCK.into(),
            }
            .encode(out);
        }),
        Code::DUPLICATE_EXTENTS_TO_FILE_EX => encoded(|out| {
            DuplicateExtentsEx {
                structure_size: DuplicateExtentsEx::STRUCTURE_SIZE,
                extents: DuplicateExtents {
                    source_file_id: source.id(),
                    source_file_offset: 0,
                    target_file_offset: 0,
                    byte_count: BLOCK.into(),
                },
                flags: DuplicateExtentsFlags::empty(),
            }
            .encode(out);
        }),
        Code::SET_ZERO_DATA => encoded(|out| {
            SetZeroData {
                file_offset: 0,
                beyond_final_zero: BLOCK.into(),
            }
            .encode(out);
        }),
        Code::QUERY_ALLOCATED_RANGES => encoded(|out| {
            AllocatedRange {
                file_offset: 0,
                length: BLOCK.into(),
            }
            .encode(out);
        }),
        Code::PIPE_TRANSCEIVE => bind(),
        // Sparse; no compression; a resiliency with the server's default timeout.
        Code::SET_SPARSE => vec![1],
        Code::SET_COMPRESSION => vec![0; 2],
        _ => vec![0; 64],
    }
}

fn ask(tree: &Tree, code: Code, file_id: FileId, input: &[u8]) -> Status {
    let request = Request::ioctl(file_id, code, input, 4096);
    status(tree.call(request))
}

fn codes() -> impl Iterator<Item = Code> {
    let unnamed = UNNAMED.into_iter().map(Code);
    Code::KNOWN.iter().copied().chain(unnamed)
}

/// The files of the matrix and the source of its copies.
struct World {
    _server: HoldfastServer,
    folder: std::path::PathBuf,
    tree: Tree,
    source: File,
    key: [u8; 24],
    cases: u32,
    wrong: Vec<String>,
}

const NAMES: [&str; 4] = ["m\\f", "m\\f:s", "m\\d", "m\\source"];

impl World {
    fn new() -> Self {
        // Extended attributes are too small for the stream.
        let server = HoldfastServer::start(&smb_tests::Options {
            share: "streams = \"depot\"".to_owned(),
            ..smb_tests::Options::default()
        });
        let tree = server.session(Options::default()).tree(DATA).unwrap();
        tree.mkdir("m").unwrap();
        tree.mkdir("m\\d").unwrap();
        tree.write_file("m\\d\\inside", b"inside").unwrap();
        let block = usize::try_from(BLOCK).unwrap();
        for (name, byte) in [("m\\f", b'f'), ("m\\f:s", b's'), ("m\\source", b'o')] {
            tree.write_file(name, &vec![byte; 2 * block]).unwrap();
        }
        for name in ["m\\f", "m\\d"] {
            describe(&tree, name);
        }
        let open = CreateArgs::open("m\\source").access(READ);
        let source = tree.create(&open).unwrap();
        let key = source.ioctl(Code::SRV_REQUEST_RESUME_KEY, &[], 32).unwrap();
        let key = RequestResumeKeyResponse::read(&key).unwrap().resume_key;
        Self {
            folder: server.path("m"),
            _server: server,
            tree,
            source,
            key,
            cases: 0,
            wrong: Vec::new(),
        }
    }

    fn host(&self) -> Vec<String> {
        on_host(Path::new(&self.folder))
    }

    fn by_clients(&self) -> Vec<String> {
        NAMES
            .iter()
            .flat_map(|name| by_smb(&self.tree, name))
            .collect()
    }

    fn judge(&mut self, answer: Status, allowed: &[Status], why: &str) {
        if !allowed.contains(&answer) {
            self.wrong.push(format!("{why}: {answer}, not {allowed:?}"));
        }
    }

    /// Sends every code through one handle, first those that are refused.
    fn every_code(&mut self, tree: &Tree, file: &File, kind: Kind, granted: Mask, what: &str) {
        let (told, host) = settled(|| (self.by_clients(), self.host()));
        let refused = |code| expected(code, kind, granted)[0].is_error();
        for code in codes().filter(|code| refused(*code)) {
            let input = input(code, &self.source, self.key);
            // Twice, so that the second would reveal what a refused one leaves behind.
            for _ in 0..2 {
                let why = format!("{code} on {what}");
                let answer = ask(tree, code, file.id(), &input);
                let allowed = expected(code, kind, granted);
                self.judge(answer, allowed, &why);
                if plays_all() {
                    assert_same(&host, &self.host(), &why);
                }
            }
            self.cases += 1;
        }
        assert_same(&host, &self.host(), what);
        assert_same(&told, &self.by_clients(), what);
        for code in codes().filter(|code| !refused(*code)) {
            let host = self.host();
            let input = input(code, &self.source, self.key);
            let answer = ask(tree, code, file.id(), &input);
            let allowed = expected(code, kind, granted);
            let why = format!("{code} on {what}");
            self.judge(answer, allowed, &why);
            if answer.is_error() {
                assert_same(&host, &self.host(), &why);
            }
            self.cases += 1;
        }
    }
}

/// Gives a file an extended attribute and a security descriptor of its own.
fn describe(tree: &Tree, name: &str) {
    let file = tree
        .create(&CreateArgs::open(name).access(Mask::FILE_ALL_ACCESS))
        .unwrap();
    let attribute = [0, 0, 0, 0, 0, 4, 5, 0, b'N', b'A', b'M', b'E', 0];
    let attribute = [&attribute[..], b"value"].concat();
    file.set(FileInformationClass::FULL_EA, &attribute).unwrap();
    let everyone = Ace::allow(Sid::EVERYONE, Mask::FILE_ALL_ACCESS, AceFlags::empty());
    let mut sd = BytesMut::new();
    SecurityDescriptor {
        dacl: Some(Acl::new(vec![everyone])),
        ..SecurityDescriptor::default()
    }
    .encode(&mut sd)
    .unwrap();
    let dacl = SecurityInformation::DACL.bits();
    let set = file.set_info_request(InfoType::SECURITY, 0, dacl, &sd);
    tree.call(set).unwrap();
    file.close().unwrap();
}

/// The access granted to a CREATE with this desired access, if all rights can be granted.
fn granted(access: Mask, all: Mask) -> Mask {
    if access.contains(Mask::MAXIMUM_ALLOWED) {
        return all;
    }
    access.map_generic() & all
}

#[test]
fn every_code_checks_its_rights_and_a_refused_one_changes_nothing() {
    let mut world = World::new();
    let tree = world.tree.clone();
    for (name, kind) in [
        ("m\\f", Kind::Stream),
        ("m\\f:s", Kind::Stream),
        ("m\\d", Kind::Directory),
    ] {
        for (right, access) in RIGHTS {
            let file = tree.create(&CreateArgs::open(name).access(access)).unwrap();
            let granted = granted(access, Mask::FILE_ALL_ACCESS);
            let what = format!("{name} with {right}");
            world.every_code(&tree, &file, kind, granted, &what);
            file.close().unwrap();
        }
    }
    let pipes = tree.session().tree("IPC$").unwrap();
    let all = pipes.info().maximal_access;
    for (right, access) in RIGHTS {
        let granted = granted(access, all);
        let opened = pipes.create(&CreateArgs::open("srvsvc").access(access));
        if granted.is_empty() {
            assert_eq!(status(opened), Status::ACCESS_DENIED, "{right}");
            continue;
        }
        let what = format!("a pipe with {right}");
        let pipe = opened.unwrap();
        world.every_code(&pipes, &pipe, Kind::Pipe, granted, &what);
        pipe.close().unwrap();
    }
    eprintln!("{} cases", world.cases);
    assert!(world.wrong.is_empty(), "{}", world.wrong.join("\n"));
}

/// Sends codes with a closed handle, and without a handle.
#[test]
fn codes_without_their_handle_are_refused() {
    let world = World::new();
    let tree = &world.tree;
    let file = tree.create(&CreateArgs::open("m\\f")).unwrap();
    file.write(0, b"f", WriteFlags::empty()).unwrap();
    file.close().unwrap();
    let (told, host) = settled(|| (world.by_clients(), world.host()));
    for code in codes() {
        let takes_none = matches!(expected(code, Kind::Stream, Mask::FILE_ALL_ACCESS), [status]
            if *status == Status::INVALID_PARAMETER);
        let input = input(code, &world.source, world.key);
        let closed = ask(tree, code, file.id(), &input);
        if takes_none {
            assert_eq!(closed, Status::INVALID_PARAMETER, "{code}");
        } else {
            assert_eq!(closed, Status::FILE_CLOSED, "{code}");
            let none = ask(tree, code, FileId::ANY, &input);
            assert_eq!(none, Status::FILE_CLOSED, "{code}");
        }
        assert_same(&host, &world.host(), &code.to_string());
    }
    assert_same(&told, &world.by_clients(), "codes on a closed handle");
    // [MS-SMB2] 3.3.5.15.2: a server without DFS has no driver for it.
    for code in [Code::DFS_GET_REFERRALS, Code::DFS_GET_REFERRALS_EX] {
        let answer = ask(tree, code, FileId::ANY, &[4, 0, b'x', 0, 0, 0]);
        assert_eq!(answer, Status::FS_DRIVER_REQUIRED, "{code}");
    }
}
