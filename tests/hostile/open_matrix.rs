//! Opens of what exists by a user who does not own it: every disposition with every access, over
//! stored access control lists, the READONLY attribute, create options and what the directory
//! above lets happen; of files, directories, and named streams of both that are there or not. The decision is that of
//! the model in `open_model.rs`, and what is refused changes nothing.
//!
//! The test needs root: only then do users have different identities on disk.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use bytes::BytesMut;
use rustix::fs::XattrFlags;
use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::state::{assert_same, by_smb, on_host, settled, xattrs};
use smb_tests::{DATA, HoldfastServer, missing};
use smb_wire::access_mask::AccessMask as Mask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, SecurityDescriptorControl, Sid};
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{CreateDisposition as Disposition, CreateOptions as With, InfoType};

use crate::{
    open_model::{
        ABOVE, ACCESSES, ALL, Case, DISPOSITIONS, Entry, FEW, OPTIONS, Part, STORED, Stored, Who,
    },
    random::is_played,
};

const CAROL: u32 = 12_345;

fn descriptor(stored: Stored) -> Option<Vec<u8>> {
    let dacl = match stored {
        Stored::Nothing => return None,
        Stored::Null => None,
        Stored::Empty => Some(Acl::new(Vec::new())),
        // The owner creates the targets and inspects them.
        Stored::List(entries) => {
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

pub(crate) fn store(tree: &Tree, name: &str, stored: Stored) {
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

/// The target of the opens, and the means to restore it.
struct Target {
    /// The file or directory.
    name: String,
    /// The part of it that is opened.
    opened: String,
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
        }
        tree.write_file(&format!("{name}:s"), b"a stream").unwrap();
        if case.readonly {
            let mut basic = vec![0; 40];
            basic[32] = 1;
            file.set(FileInformationClass::BASIC, &basic).unwrap();
        }
        file.close().unwrap();
        // If a list is stored, the permission bits must allow everything, so that the list decides.
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
            opened: match case.part {
                Part::Itself => name.clone(),
                Part::Stream => format!("{name}:s"),
                Part::NewStream => format!("{name}:new"),
            },
            name,
            path,
            directory: case.directory,
            mode,
        }
    }

    /// The times and sizes of the target and of its parent directory.
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

    /// Restores the target after it was truncated or deleted.
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
        for (name, _) in xattrs(&self.path) {
            if self.xattrs.iter().all(|(old, _)| *old != name) {
                rustix::fs::removexattr(&self.path, name.as_str()).unwrap();
            }
        }
        for (name, value) in &self.xattrs {
            rustix::fs::setxattr(&self.path, name, value, XattrFlags::empty()).unwrap();
        }
    }
}

/// A server, somebody who owns everything, and Carol.
pub(crate) struct World {
    pub(crate) server: HoldfastServer,
    pub(crate) owner: Tree,
    pub(crate) carol: Tree,
    cases: u32,
    refused: u32,
    wrong: Vec<String>,
    /// The cases so far, including those that were not played.
    drawn: u32,
}

impl World {
    pub(crate) fn new() -> Self {
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
            drawn: 0,
        }
    }

    /// One case more.
    pub(crate) fn count(&mut self, refused: bool) {
        self.cases += 1;
        self.refused += u32::from(refused);
    }

    /// Whether the next case is played.
    pub(crate) fn draw(&mut self) -> bool {
        self.drawn += 1;
        is_played(self.drawn)
    }

    /// A case that was decided otherwise than it should have been.
    pub(crate) fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// Fails if any was.
    pub(crate) fn end(self) {
        eprintln!("{} cases, {} refused", self.cases, self.refused);
        let wrong = &self.wrong;
        assert!(
            wrong.is_empty(),
            "{} wrong:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }

    /// Every disposition, access and option on one target.
    fn opens(&mut self, folder: &str, case: Case, what: &str) {
        let path = self.server.path(folder);
        self.owner.mkdir(folder).unwrap();
        // A stored list is valid only while the permission bits are the ones with which it was
        // stored.
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
            .filter(|_| self.draw())
            .partition(|case| case.decision().is_err());
        let owner = self.owner.clone();
        // An empty list denies its owner access, too.
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
            // Every change of an inode changes a time of it; all the rest is looked at in the end.
            let now = target.stamps();
            assert_eq!(stamps, now, "{what}: {case:?} changed something");
        }
        assert_same(&host, &on_host(&path), what);
        if self.wrong.is_empty() {
            assert_same(&told, &tell(), what);
        }
        for case in &granted {
            self.open(&target, case, what);
            if case.changes() {
                target.restore();
            }
        }
    }

    /// Performs one open; returns whether it was refused.
    fn open(&mut self, target: &Target, case: &Case, what: &str) -> bool {
        let args = CreateArgs::new(&target.opened, case.disposition)
            .access(Mask(case.access))
            .options(case.options);
        let decision = case.decision();
        let answer = match self.carol.create(&args) {
            Ok(file) => {
                // The rights that an overwriting open only implies are not granted to the handle.
                let granted = match decision {
                    Ok(granted) if case.changes() => granted,
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
            self.wrong(line);
        }
        self.count(answer.is_err());
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
    every_open(false, Part::Itself);
}

#[test]
fn opens_of_directories_are_decided_as_specified_and_refused_ones_change_nothing() {
    every_open(true, Part::Itself);
}

#[test]
fn opens_of_streams_are_decided_as_specified_and_refused_ones_change_nothing() {
    every_open(false, Part::Stream);
}

#[test]
fn opens_of_streams_of_directories_are_decided_as_specified_and_refused_ones_change_nothing() {
    every_open(true, Part::Stream);
}

#[test]
fn opens_of_new_streams_are_decided_as_specified_and_refused_ones_make_nothing() {
    every_open(false, Part::NewStream);
}

#[test]
fn opens_of_new_streams_of_directories_are_decided_as_specified_and_refused_ones_make_nothing() {
    every_open(true, Part::NewStream);
}

fn every_open(directory: bool, part: Part) {
    if !rustix::process::geteuid().is_root() {
        missing("root");
        return;
    }
    let mut world = World::new();
    let mut folder = 0;
    for (above_name, above) in ABOVE {
        for (name, stored) in STORED {
            // For most lists the rights on the parent directory make no difference.
            let twice = ["empty", "readers", "denied"].contains(&name);
            if above_name == "generous" && !twice {
                continue;
            }
            for readonly in [false, true] {
                folder += 1;
                let case = Case {
                    directory,
                    part,
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
    world.end();
}
