//! Opens of what exists by a user who does not own it: every disposition with every access, over
//! stored access control lists, the READONLY attribute, create options and what the directory
//! above lets happen. The decision is that of a model made of [MS-FSA] 2.1.5.1, 2.1.5.1.2 and
//! 2.1.5.1.2.1, and what is refused changes nothing.
//!
//! Needs root: only then is a user somebody else on disk.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use bytes::BytesMut;
use rustix::fs::XattrFlags;
use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::state::{assert_same, by_smb, on_host, settled, xattrs};
use smb_tests::{DATA, HoldfastServer, missing};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask as Mask;
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, SecurityDescriptorControl, Sid};
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{
    CreateDisposition as Disposition, CreateOptions as With, InfoType, SecurityInformation,
};

const CAROL: u32 = 12_345;

/// FILE_GENERIC_READ and FILE_GENERIC_WRITE ([MS-SMB2] 2.2.13.1).
const GENERIC_READ: u32 = 0x0012_0089;
const GENERIC_WRITE: u32 = 0x0012_0116;
const GENERIC_EXECUTE: u32 = 0x0012_00a0;
const ALL: u32 = 0x001f_01ff;
const READ_DATA: u32 = 0x1;
const WRITE_DATA: u32 = 0x2;
const APPEND_DATA: u32 = 0x4;
const WRITE_EA: u32 = 0x10;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
const READ_ATTRIBUTES: u32 = 0x80;
const WRITE_ATTRIBUTES: u32 = 0x100;
const DELETE: u32 = 0x1_0000;
const MAXIMUM: u32 = 0x0200_0000;

const ACCESSES: [u32; 24] = [
    READ_DATA,
    WRITE_DATA,
    APPEND_DATA,
    0x8,
    WRITE_EA,
    EXECUTE,
    DELETE_CHILD,
    READ_ATTRIBUTES,
    WRITE_ATTRIBUTES,
    DELETE,
    0x2_0000,
    0x4_0000,
    0x8_0000,
    0x10_0000,
    // Generic rights.
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
    0x8000_0000,
    MAXIMUM,
    // What clients ask for together.
    READ_DATA | WRITE_DATA,
    READ_DATA | DELETE,
    GENERIC_READ | GENERIC_WRITE | DELETE,
    MAXIMUM | DELETE,
    MAXIMUM | WRITE_DATA,
];

const DISPOSITIONS: [Disposition; 6] = [
    Disposition::SUPERSEDE,
    Disposition::OPEN,
    Disposition::CREATE,
    Disposition::OPEN_IF,
    Disposition::OVERWRITE,
    Disposition::OVERWRITE_IF,
];

/// The accesses with which everything is asked that is refused whatever the access.
const FEW: [u32; 4] = [
    READ_DATA,
    DELETE,
    MAXIMUM,
    GENERIC_READ | GENERIC_WRITE | DELETE,
];

const OPTIONS: [With; 6] = [
    With::empty(),
    With::DELETE_ON_CLOSE,
    With::DIRECTORY_FILE,
    With::NON_DIRECTORY_FILE,
    With(With::DIRECTORY_FILE.0 | With::DELETE_ON_CLOSE.0),
    With(With::DIRECTORY_FILE.0 | With::NON_DIRECTORY_FILE.0),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Everyone,
    Carol,
    Owner,
    OwnerRights,
}

/// An entry: whether it allows, whom, what, and whether it is only for what is made below.
type Entry = (bool, Who, u32, bool);

/// What is stored.
#[derive(Debug, Clone, Copy)]
enum Stored {
    /// Nothing: permission bits by which others may only read.
    Nothing,
    /// A descriptor without a list lets everybody in.
    Null,
    /// A list without entries lets nobody in.
    Empty,
    List(&'static [Entry]),
}

use Stored::List;

const EVERYBODY: Stored = List(&[(true, Who::Everyone, ALL, false)]);
const READERS: Stored = List(&[(true, Who::Everyone, GENERIC_READ, false)]);

const STORED: [(&str, Stored); 13] = [
    ("nothing", Stored::Nothing),
    ("null", Stored::Null),
    ("empty", Stored::Empty),
    ("readers", READERS),
    (
        "writer",
        List(&[(true, Who::Carol, GENERIC_READ | GENERIC_WRITE, false)]),
    ),
    (
        "data only",
        List(&[(
            true,
            Who::Carol,
            READ_DATA | WRITE_DATA | APPEND_DATA,
            false,
        )]),
    ),
    (
        "attributes only",
        List(&[(true, Who::Carol, WRITE_EA | WRITE_ATTRIBUTES, false)]),
    ),
    ("delete only", List(&[(true, Who::Everyone, DELETE, false)])),
    (
        "denied",
        List(&[
            (false, Who::Carol, WRITE_DATA | DELETE, false),
            (true, Who::Everyone, ALL, false),
        ]),
    ),
    (
        "denied too late",
        List(&[
            (true, Who::Everyone, ALL, false),
            (false, Who::Carol, WRITE_DATA | DELETE, false),
        ]),
    ),
    ("owner", List(&[(true, Who::Owner, ALL, false)])),
    (
        "owner rights",
        List(&[(true, Who::OwnerRights, ALL, false)]),
    ),
    (
        "for what is below",
        List(&[(true, Who::Everyone, ALL, true)]),
    ),
];

/// What the directory above has stored: it gives nothing, or it gives DELETE and READ_ATTRIBUTES.
const ABOVE: [(&str, Stored); 2] = [
    ("strict", List(&[(true, Who::Everyone, EXECUTE, false)])),
    ("generous", EVERYBODY),
];

/// [MS-DTYP] 2.5.3.2 for one right of somebody who is not the owner: the first entry for him that
/// names it decides.
fn allows(stored: Stored, right: u32, directory: bool) -> bool {
    let entries = match stored {
        Stored::Null => return true,
        Stored::Empty => return false,
        // Others may read, and run what they can read; folders they may list and pass.
        Stored::Nothing => {
            let may = if directory {
                GENERIC_READ | GENERIC_EXECUTE
            } else {
                GENERIC_READ | EXECUTE
            };
            return may & right != 0;
        }
        List(entries) => entries,
    };
    for (allow, who, mask, below) in entries {
        let his = matches!(who, Who::Everyone | Who::Carol);
        if his && !below && mask & right != 0 {
            return *allow;
        }
    }
    false
}

/// One open.
#[derive(Debug, Clone, Copy)]
struct Case {
    directory: bool,
    readonly: bool,
    stored: Stored,
    above: Stored,
    disposition: Disposition,
    access: u32,
    options: With,
}

impl Case {
    fn overwrites(&self) -> bool {
        use Disposition as D;
        matches!(
            self.disposition,
            D::SUPERSEDE | D::OVERWRITE | D::OVERWRITE_IF
        )
    }

    /// The access asked for, generic rights by their meaning.
    fn desired(&self) -> u32 {
        let meanings = [
            (0x8000_0000, GENERIC_READ),
            (0x4000_0000, GENERIC_WRITE),
            (0x2000_0000, GENERIC_EXECUTE),
            (0x1000_0000, ALL),
        ];
        let named = |(bit, meaning)| if self.access & bit == 0 { 0 } else { meaning };
        self.access & 0x0fff_ffff | meanings.into_iter().map(named).fold(0, |a, b| a | b)
    }

    /// Phase 1 of 2.1.5.1: what is refused without a look at the file.
    fn parameters(&self) -> Result<(), Status> {
        let directory = self.options.contains(With::DIRECTORY_FILE);
        let deletes = self.options.contains(With::DELETE_ON_CLOSE);
        // MAXIMUM_ALLOWED counts as asking; it must then be granted.
        if (deletes && self.desired() & (DELETE | MAXIMUM) == 0)
            || (directory && self.options.contains(With::NON_DIRECTORY_FILE))
            || (directory && self.overwrites())
        {
            return Err(Status::INVALID_PARAMETER);
        }
        Ok(())
    }

    /// Phase 7 of 2.1.5.1 and the beginning of 2.1.5.1.2. What exists is not created, whatever its
    /// kind: clients tell a collision from a wrong kind.
    fn kind(&self) -> Result<(), Status> {
        if self.disposition == Disposition::CREATE {
            return Err(Status::OBJECT_NAME_COLLISION);
        }
        if self.directory && self.options.contains(With::NON_DIRECTORY_FILE) {
            return Err(Status::FILE_IS_A_DIRECTORY);
        }
        if !self.directory && self.options.contains(With::DIRECTORY_FILE) {
            return Err(Status::NOT_A_DIRECTORY);
        }
        if self.directory && self.overwrites() {
            return Err(Status::OBJECT_NAME_COLLISION);
        }
        Ok(())
    }

    /// 2.1.5.1.2.1.
    fn access(&self) -> Result<u32, Status> {
        let desired = self.desired();
        let writes = WRITE_DATA | APPEND_DATA;
        let deletes = self.options.contains(With::DELETE_ON_CLOSE);
        if !self.directory && self.readonly && desired & writes != 0 {
            return Err(Status::ACCESS_DENIED);
        }
        if self.readonly && deletes {
            return Err(Status::CANNOT_DELETE);
        }
        // The text looks only at what is named; Windows and Samba empty no such file.
        if self.readonly && self.overwrites() {
            return Err(Status::ACCESS_DENIED);
        }
        let mut wanted = desired;
        if self.overwrites() {
            wanted |= WRITE_EA | WRITE_ATTRIBUTES;
            wanted |= match self.disposition {
                Disposition::SUPERSEDE => DELETE,
                _ => WRITE_DATA,
            };
        }
        let maximum = wanted & MAXIMUM != 0;
        let mut granted = 0;
        for bit in (0..32).map(|bit| 1 << bit).filter(|bit| ALL & bit != 0) {
            if (maximum || wanted & bit != 0) && allows(self.stored, bit, self.directory) {
                granted |= bit;
            }
        }
        if maximum && self.readonly {
            granted &= !(writes | DELETE_CHILD);
        }
        for (right, by) in [(DELETE, DELETE_CHILD), (READ_ATTRIBUTES, READ_DATA)] {
            if (maximum || wanted & right != 0) && allows(self.above, by, true) {
                granted |= right;
            }
        }
        if wanted & !(granted | MAXIMUM) != 0 || granted == 0 {
            return Err(Status::ACCESS_DENIED);
        }
        if deletes && granted & DELETE == 0 {
            return Err(Status::ACCESS_DENIED);
        }
        Ok(granted)
    }

    fn depends_on_access(&self) -> bool {
        let both = With::DIRECTORY_FILE | With::NON_DIRECTORY_FILE;
        self.kind().is_ok() && !self.options.contains(both)
    }

    fn decision(&self) -> Result<u32, Status> {
        self.parameters()?;
        self.kind()?;
        self.access()
    }
}

fn descriptor(stored: Stored) -> Option<Vec<u8>> {
    let dacl = match stored {
        Stored::Nothing => return None,
        Stored::Null => None,
        Stored::Empty => Some(Acl::new(Vec::new())),
        // The owner makes the targets and looks at them.
        List(entries) => {
            let owner = (true, Who::Owner, ALL, false);
            Some(Acl::new(entries.iter().chain([&owner]).map(ace).collect()))
        }
    };
    let mut out = BytesMut::new();
    SecurityDescriptor {
        control: SecurityDescriptorControl::empty(),
        dacl,
        ..SecurityDescriptor::default()
    }
    .encode(&mut out)
    .unwrap();
    Some(out.to_vec())
}

fn ace((allow, who, mask, below): &Entry) -> Ace {
    let sid = match who {
        Who::Everyone => Sid::EVERYONE,
        Who::Carol => Sid::unix_user(CAROL),
        Who::Owner => Sid::unix_user(0),
        Who::OwnerRights => Sid::OWNER_RIGHTS,
    };
    let flags = if *below {
        AceFlags::INHERIT_ONLY | AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT
    } else {
        AceFlags::empty()
    };
    if *allow {
        Ace::allow(sid, Mask(*mask), flags)
    } else {
        Ace::deny(sid, Mask(*mask), flags)
    }
}

fn store(tree: &Tree, name: &str, stored: Stored) {
    let Some(bytes) = descriptor(stored) else {
        return;
    };
    let args = CreateArgs::open(name).access(Mask::WRITE_DAC);
    let file = tree.create(&args).unwrap();
    let dacl = SecurityInformation::DACL.bits();
    tree.call(file.set_info_request(InfoType::SECURITY, 0, dacl, &bytes))
        .unwrap();
    file.close().unwrap();
}

/// The target of the opens, and how to have it again.
struct Target {
    name: String,
    path: PathBuf,
    directory: bool,
    mode: u32,
    xattrs: Vec<(String, Vec<u8>)>,
}

const CONTENT: &[u8] = b"what was there before";

impl Target {
    fn new(world: &World, folder: &str, case: &Case) -> Self {
        let name = format!("{folder}\\t");
        let path = world.server.path(folder).join("t");
        let tree = &world.owner;
        let mut args = CreateArgs::create(&name).access(Mask::FILE_ALL_ACCESS);
        if case.directory {
            args = args.options(With::DIRECTORY_FILE);
        }
        let file = tree.create(&args).unwrap();
        if !case.directory {
            file.write_all(0, CONTENT).unwrap();
            tree.write_file(&format!("{name}:s"), b"a stream").unwrap();
        }
        if case.readonly {
            let mut basic = vec![0; 40];
            basic[32] = 1;
            file.set(FileInformationClass::BASIC, &basic).unwrap();
        }
        file.close().unwrap();
        // Where a list is stored, the kernel shall leave the decision to it.
        let mode = match (case.stored, case.directory) {
            (Stored::Nothing, false) => 0o644,
            (Stored::Nothing, true) => 0o755,
            (_, false) => 0o666,
            (_, true) => 0o777,
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        store(tree, &name, case.stored);
        Self {
            xattrs: xattrs(&path),
            name,
            path,
            directory: case.directory,
            mode,
        }
    }

    /// The times and sizes of it and of the directory above.
    fn stamps(&self) -> [[i64; 8]; 2] {
        let above = self.path.parent().unwrap();
        [self.path.as_path(), above].map(|path| {
            let meta = fs::symlink_metadata(path).unwrap();
            let number = |number| i64::try_from(number).unwrap();
            [
                meta.atime(),
                meta.atime_nsec(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.ctime(),
                meta.ctime_nsec(),
                number(meta.ino()),
                number(meta.size()),
            ]
        })
    }

    /// As it was, after it was emptied or deleted.
    fn restore(&self) {
        if !self.path.exists() {
            if self.directory {
                fs::create_dir(&self.path).unwrap();
            } else {
                fs::write(&self.path, b"").unwrap();
            }
        }
        if !self.directory {
            fs::write(&self.path, CONTENT).unwrap();
        }
        fs::set_permissions(&self.path, fs::Permissions::from_mode(self.mode)).unwrap();
        for (name, value) in &self.xattrs {
            rustix::fs::setxattr(&self.path, name, value, XattrFlags::empty()).unwrap();
        }
    }
}

struct World {
    server: HoldfastServer,
    owner: Tree,
    carol: Tree,
    cases: u32,
    refused: u32,
    wrong: Vec<String>,
}

impl World {
    fn new() -> Self {
        let server = HoldfastServer::new();
        let owner = format!("{CAROL}:{CAROL}");
        server.add_user("carol", "Carol-pw-3", &["--owner", &owner]);
        for (path, mode) in [(server.path(""), 0o777), (server.path(".."), 0o755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let client = server.client(Options::default());
        let carol = client.login("carol", "Carol-pw-3", "").unwrap();
        Self {
            owner: server.tree(),
            carol: carol.tree(DATA).unwrap(),
            server,
            cases: 0,
            refused: 0,
            wrong: Vec::new(),
        }
    }

    /// Every disposition, access and option on one target.
    fn opens(&mut self, folder: &str, case: Case, what: &str) {
        let path = self.server.path(folder);
        self.owner.mkdir(folder).unwrap();
        // A list counts as long as the permission bits are those of when it was stored.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let target = Target::new(self, folder, &case);
        store(&self.owner, folder, case.above);
        let all = DISPOSITIONS.into_iter().flat_map(|disposition| {
            let with = move |access| OPTIONS.map(|options| (disposition, access, options));
            ACCESSES.into_iter().flat_map(with)
        });
        let (refused, granted): (Vec<Case>, Vec<Case>) = all
            .map(|(disposition, access, options)| Case {
                disposition,
                access,
                options,
                ..case
            })
            .filter(|case| case.depends_on_access() || FEW.contains(&case.access))
            .partition(|case| case.decision().is_err());
        let owner = self.owner.clone();
        // An empty list keeps its owner out, too.
        let tell = || match case.stored {
            Stored::Empty => Vec::new(),
            _ => by_smb(&owner, &target.name),
        };
        let (told, mut host) = settled(|| (tell(), on_host(&path)));
        let mut stamps = target.stamps();
        for case in &refused {
            if !self.open(&target, case, what) {
                target.restore();
                host = settled(|| on_host(&path));
                stamps = target.stamps();
                continue;
            }
            self.refused += 1;
            // Whatever changes an inode changes a time of it; all the rest is looked at in the end.
            let now = target.stamps();
            assert_eq!(stamps, now, "{what}: {case:?} changed something");
        }
        assert_same(&host, &on_host(&path), what);
        if self.wrong.is_empty() {
            assert_same(&told, &tell(), what);
        }
        for case in &granted {
            self.open(&target, case, what);
            if case.overwrites() || case.options.contains(With::DELETE_ON_CLOSE) {
                target.restore();
            }
        }
    }

    /// One open; whether it was refused.
    fn open(&mut self, target: &Target, case: &Case, what: &str) -> bool {
        self.cases += 1;
        let args = CreateArgs::new(&target.name, case.disposition)
            .access(Mask(case.access))
            .options(case.options);
        let decision = case.decision();
        let answer = match self.carol.create(&args) {
            Ok(file) => {
                // Of an overwriting one the rights it only implies do not count.
                let granted = match decision {
                    Ok(granted) if case.overwrites() => granted,
                    _ => granted(&file),
                };
                file.close().unwrap();
                Ok(granted)
            }
            Err(smb_client::ClientError::Status(status)) => Err(status),
            Err(other) => panic!("{what}: {case:?}: {other}"),
        };
        if answer != decision {
            let line = format!("{what}: {case:?}: {answer:x?}, not {decision:x?}");
            self.wrong.push(line);
        }
        answer.is_err()
    }
}

/// AccessFlags ([MS-FSCC] 2.4.1).
fn granted(file: &File) -> u32 {
    let bytes = file.query(FileInformationClass::ACCESS).unwrap();
    u32::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn opens_of_files_are_decided_as_specified_and_refused_ones_change_nothing() {
    every_open(false);
}

#[test]
fn opens_of_directories_are_decided_as_specified_and_refused_ones_change_nothing() {
    every_open(true);
}

fn every_open(directory: bool) {
    if !rustix::process::geteuid().is_root() {
        missing("root");
        return;
    }
    let mut world = World::new();
    let mut folder = 0;
    for (above_name, above) in ABOVE {
        for (name, stored) in STORED {
            // What the directory above gives is the same beside most lists.
            let twice = ["empty", "readers", "denied"].contains(&name);
            if above_name == "generous" && !twice {
                continue;
            }
            for readonly in [false, true] {
                folder += 1;
                let case = Case {
                    directory,
                    readonly,
                    stored,
                    above,
                    disposition: Disposition::OPEN,
                    access: 0,
                    options: With::empty(),
                };
                let what = format!("{name} below {above_name}");
                world.opens(&format!("m{folder}"), case, &what);
            }
        }
    }
    eprintln!("{} cases, {} refused", world.cases, world.refused);
    let wrong = &world.wrong;
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
