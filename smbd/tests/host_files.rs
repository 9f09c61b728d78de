//! Files of the host that local users could turn against each other through the server: programs
//! with set-user-ID bits, programs that are to be run, names that the kernel lets nobody remove.
//!
//! The tests need root; without it they print that they were not run, or fail with `HOLDFAST_REQUIRE_ROOT=1`.

#[path = "daemon/support.rs"]
mod support;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fscc::{FileBasicInformation, FileInformationClass, FileLinkInformation},
    fsctl::FsctlCode,
    ids::FileTime,
    msg::{CreateDisposition, CreateOptions, WriteFlags},
};

use support::{Daemon, PASSWORD, Plan, missing, possible};

const ALICE: u32 = 12_345;
const BOB: u32 = 12_346;

/// A server whose share everybody may write, in a folder of its own.
fn start(file_io: &str) -> Daemon {
    let daemon = Plan {
        server: format!("file_io = \"{file_io}\""),
        users: vec![("alice", "12345:12345"), ("bob", "12346:12346")],
        ..Plan::default()
    }
    .start();
    fs::set_permissions(daemon.path("data"), fs::Permissions::from_mode(0o777)).unwrap();
    daemon
}

fn tree_of(daemon: &Daemon, user: &str) -> Tree {
    let session = daemon.client().login(user, PASSWORD, "").unwrap();
    session.tree("data").unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn make(path: &Path, owner: (u32, u32), mode: u32) {
    fs::write(path, vec![7; 20_000]).unwrap();
    chown(path, Some(owner.0), Some(owner.1)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A request on a program that changes it; the file is open for reading and writing.
type Change = fn(&Tree, &File);

fn copy(tree: &Tree, target: &File) {
    copy_all(tree, target, 100);
}

fn copy_all(tree: &Tree, target: &File, length: usize) {
    let source = tree.create(&CreateArgs::open("source")).unwrap();
    let length = u32::try_from(length).unwrap();
    let input = source.copy_chunks(&[(0, 0, length)]).unwrap();
    target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12).unwrap();
}

fn zero(_: &Tree, file: &File) {
    let range = [4096u64.to_le_bytes(), 12_288u64.to_le_bytes()].concat();
    file.ioctl(FsctlCode::SET_ZERO_DATA, &range, 0).unwrap();
}

const CHANGES: [(&str, Change); 7] = [
    ("write", |_, file| {
        file.write_all(0, b"#!/bin/sh\nid\n").unwrap()
    }),
    ("write through", |_, file| {
        file.write(0, b"#!", WriteFlags::WRITE_THROUGH).unwrap();
    }),
    ("shorter", |_, file| file.set_end_of_file(10).unwrap()),
    ("longer", |_, file| file.set_end_of_file(100_000).unwrap()),
    ("allocation", |_, file| {
        let size = (1u64 << 20).to_le_bytes();
        file.set(FileInformationClass::ALLOCATION, &size).unwrap();
    }),
    ("zero data", zero),
    ("copy chunk", copy),
];

/// A user who overwrites the program of another must not get it run as that other user.
#[test]
fn what_is_overwritten_runs_as_nobody_else() {
    if !possible(&[]) {
        return;
    }
    for file_io in ["threads", "auto"] {
        let daemon = start(file_io);
        let tree = tree_of(&daemon, "alice");
        tree.write_file("source", &[1; 4096]).unwrap();
        let path = daemon.path("data/program");
        // Root's and another user's, that alice may write as one of the group.
        for (owner, bits) in [(0, 0o4775), (BOB, 0o6777), (0, 0o2770)] {
            for (what, change) in CHANGES {
                make(&path, (owner, ALICE), bits);
                let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
                let open = CreateArgs::open("program").access(access);
                let file = tree.create(&open).unwrap();
                assert_eq!(mode(&path), bits, "{what}: it is only open");
                change(&tree, &file);
                assert_eq!(mode(&path), bits & 0o777, "{what}, {bits:o}, {file_io}");
                file.close().unwrap();
                fs::remove_file(&path).unwrap();
            }
            for disposition in [
                CreateDisposition::OVERWRITE,
                CreateDisposition::OVERWRITE_IF,
            ] {
                make(&path, (owner, ALICE), bits);
                let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
                let open = CreateArgs::new("program", disposition).access(access);
                tree.create(&open).unwrap().close().unwrap();
                assert_eq!(mode(&path), bits & 0o777, "{disposition:?}, {bits:o}");
                fs::remove_file(&path).unwrap();
            }
        }
        // A stream is stored separately, so the contents stay as their owner made them.
        make(&path, (ALICE, ALICE), 0o4755);
        tree.write_file("program:stream", b"beside it").unwrap();
        assert_eq!(mode(&path), 0o4755);
        tree.write_file("program", b"itself").unwrap();
        assert_eq!(mode(&path), 0o755);
    }
}

/// Runs a program as its owner does on the host.
fn says(path: &Path) -> String {
    let output = Command::new(path).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8(output.stdout).unwrap()
}

/// A program that was changed over SMB and closed can be run at once, not only when it is on disk.
#[test]
fn a_program_can_be_run_as_soon_as_it_is_closed() {
    if !possible(&[]) {
        return;
    }
    for file_io in ["threads", "auto"] {
        let daemon = start(file_io);
        let tree = tree_of(&daemon, "alice");
        let path = daemon.path("data/program");
        let text = b"#!/bin/sh\necho it runs\n";
        tree.write_file("source", text).unwrap();
        let longer = |file: &File| file.write_all(text.len() as u64, b"# more\n").unwrap();
        type Act<'a> = &'a dyn Fn(&File);
        let changes: [(&str, Act<'_>); 5] = [
            ("written", &|file| file.write_all(0, text).unwrap()),
            ("flushed in between", &|file| {
                file.write_all(0, text).unwrap();
                file.flush(false).unwrap();
                longer(file);
            }),
            ("cut", &|file| {
                file.set_end_of_file(text.len() as u64).unwrap();
            }),
            ("copied", &|file| copy_all(&tree, file, text.len())),
            ("metadata only", &|file| {
                // FileBasicInformation: the time of the last write, the rest as it is.
                let mut basic = [0; 40];
                basic[16..24].copy_from_slice(&132_000_000_000_000_000u64.to_le_bytes());
                file.set(FileInformationClass::BASIC, &basic).unwrap();
            }),
        ];
        for (what, change) in changes {
            // Nobody else may have it open for writing, this process least of all.
            let source = daemon.path("data/source");
            assert!(run(Command::new("cp").arg(source).arg(&path)));
            assert!(run(Command::new("chmod").arg("0777").arg(&path)));
            if what == "cut" {
                let more = format!("echo '# more' >> {}", path.display());
                assert!(run(Command::new("sh").args(["-c", &more])));
            }
            let file = tree.create(&CreateArgs::open("program")).unwrap();
            change(&file);
            file.close().unwrap();
            assert_eq!(says(&path), "it runs\n", "{what}, {file_io}");
            fs::remove_file(&path).unwrap();
        }
        // One that is new, and not even flushed.
        tree.write_file("program", text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(says(&path), "it runs\n");
    }
}

fn run(command: &mut Command) -> bool {
    command.status().unwrap().success()
}

fn outcome<T>(result: Result<T, ClientError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(error) => error.status().unwrap_or_else(|| panic!("{error}")),
    }
}

/// Every way to ask for the deletion of a file, and the status of each.
fn deletions(tree: &Tree, name: &str) -> [(&'static str, Status); 4] {
    let open = |access| CreateArgs::open(name).access(access);
    let on_close = open(AccessMask::DELETE).options(CreateOptions::DELETE_ON_CLOSE);
    let closed = |file: File| file.close();
    let marked = |file: File| {
        let marked = file.set_delete(true);
        file.close().unwrap();
        marked
    };
    let most = AccessMask::MAXIMUM_ALLOWED;
    [
        (
            "DELETE",
            outcome(tree.create(&open(AccessMask::DELETE)).and_then(closed)),
        ),
        ("on close", outcome(tree.create(&on_close).and_then(closed))),
        (
            "disposition",
            outcome(tree.create(&open(AccessMask::DELETE)).and_then(marked)),
        ),
        (
            "of the most",
            outcome(tree.create(&open(most)).and_then(marked)),
        ),
    ]
}

/// A folder in the share with this mode.
fn folder(daemon: &Daemon, name: &str, mode: u32) -> PathBuf {
    let path = daemon.path("data").join(name);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// Checks that the deletions named in `refused` are refused, and that the file still exists after all ways of
/// [`deletions`].
fn stays(daemon: &Daemon, name: &str, refused: &[&str]) {
    for (what, status) in deletions(&tree_of(daemon, "alice"), name) {
        if refused.contains(&what) {
            assert_eq!(status, Status::ACCESS_DENIED, "{name}: {what}");
        }
    }
    let path = daemon.path("data").join(name.replace('\\', "/"));
    assert!(fs::symlink_metadata(path).is_ok(), "{name} is there");
}

/// A deletion that the kernel will not carry out is refused when it is requested, not answered with success: in a
/// sticky folder everybody may write the files, and only their owner, and the folder's, deletes them.
#[test]
fn what_stays_in_a_sticky_folder_is_not_said_to_be_deleted() {
    if !possible(&[]) {
        return;
    }
    let daemon = start("auto");
    let tree = tree_of(&daemon, "alice");
    let sticky = folder(&daemon, "sticky", 0o1777);
    make(&sticky.join("his"), (BOB, BOB), 0o666);
    folder(&daemon, "sticky/his-dir", 0o777);
    chown(sticky.join("his-dir"), Some(BOB), Some(BOB)).unwrap();
    let every = ["DELETE", "on close", "disposition", "of the most"];
    stays(&daemon, "sticky\\his", &every);
    stays(&daemon, "sticky\\his-dir", &every);
    let his = CreateArgs::open("sticky\\his").access(AccessMask::FILE_GENERIC_WRITE);
    let his = tree.create(&his).unwrap();
    his.write_all(0, b"hers").unwrap();
    his.close().unwrap();
    // It can neither be moved away nor replaced.
    tree.write_file("sticky\\hers", b"x").unwrap();
    for (from, to) in [("his", "new"), ("hers", "his")] {
        let moved = tree.rename(&format!("sticky\\{from}"), &format!("sticky\\{to}"), true);
        assert_eq!(outcome(moved), Status::ACCESS_DENIED, "{from} to {to}");
    }
    assert_eq!(fs::read(sticky.join("hers")).unwrap(), b"x");
    assert_eq!(&fs::read(sticky.join("his")).unwrap()[..4], b"hers");
    // Her own file can be deleted, and everything in a folder of her own.
    tree.delete("sticky\\hers").unwrap();
    assert!(!sticky.join("hers").exists());
    chown(&sticky, Some(ALICE), None).unwrap();
    tree.delete("sticky\\his").unwrap();
    assert!(!sticky.join("his").exists());
}

/// The owner of a link decides about its deletion, not the owner of its target.
#[test]
fn links_in_a_sticky_folder_are_their_owners() {
    if !possible(&[]) {
        return;
    }
    let daemon = start("auto");
    let tree = tree_of(&daemon, "alice");
    let sticky = folder(&daemon, "sticky", 0o1777);
    make(&daemon.path("data/his"), (BOB, BOB), 0o666);
    make(&daemon.path("data/hers"), (ALICE, ALICE), 0o666);
    for (link, owner, target) in [("her-link", ALICE, "../his"), ("his-link", BOB, "../hers")] {
        symlink(target, sticky.join(link)).unwrap();
        lchown(sticky.join(link), Some(owner), Some(owner)).unwrap();
    }
    stays(
        &daemon,
        "sticky\\his-link",
        &["on close", "disposition", "of the most"],
    );
    assert_eq!(tree.read_file("sticky\\her-link").unwrap().len(), 20_000);
    tree.delete("sticky\\her-link").unwrap();
    assert!(fs::symlink_metadata(sticky.join("her-link")).is_err());
    assert!(daemon.path("data/his").exists() && daemon.path("data/hers").exists());
}

#[test]
fn what_the_kernel_keeps_is_not_said_to_be_deleted() {
    if !possible(&[]) {
        return;
    }
    let daemon = start("auto");
    // In a folder that she may not write nothing can be deleted, not even her own file. A request for the right alone
    // is not refused, because the file's own descriptor grants it.
    let shut = folder(&daemon, "shut", 0o755);
    make(&shut.join("hers"), (ALICE, ALICE), 0o644);
    stays(
        &daemon,
        "shut\\hers",
        &["on close", "disposition", "of the most"],
    );
    // Files that are immutable or append-only, and files in such a folder.
    let fixed = folder(&daemon, "fixed", 0o777);
    make(&fixed.join("hers"), (ALICE, ALICE), 0o644);
    let chattr = |set: &str, path: &Path| {
        let output = Command::new("chattr").arg(set).arg(path).output();
        output.is_ok_and(|output| output.status.success())
    };
    for (on, off) in [("+i", "-i"), ("+a", "-a")] {
        if !chattr(on, &fixed.join("hers")) {
            missing("chattr, or file system that keeps what it sets");
            break;
        }
        stays(&daemon, "fixed\\hers", &["on close", "disposition"]);
        assert!(chattr(off, &fixed.join("hers")) && chattr(on, &fixed));
        stays(&daemon, "fixed\\hers", &["on close", "disposition"]);
        assert!(chattr(off, &fixed));
    }
    tree_of(&daemon, "alice").delete("fixed\\hers").unwrap();
    assert!(!fixed.join("hers").exists());
}

/// Deletes as smbprotocol does, which first clears the read-only attribute of any object.
fn cleared_of_attributes_and_deleted(tree: &Tree, data: &Path, name: &str) {
    let both = AccessMask::DELETE | AccessMask::FILE_WRITE_ATTRIBUTES;
    let file = tree.create(&CreateArgs::open(name).access(both)).unwrap();
    let basic = |attributes| {
        let mut out = BytesMut::new();
        FileBasicInformation {
            last_write_time: FileTime(132_223_104_000_000_000),
            file_attributes: attributes,
            ..FileBasicInformation::default()
        }
        .encode(&mut out);
        outcome(file.set(FileInformationClass::BASIC, &out))
    };
    assert_eq!(basic(FileAttributes::READONLY), Status::NOT_SUPPORTED);
    assert_eq!(basic(FileAttributes::NORMAL), Status::SUCCESS);
    let written = fs::symlink_metadata(data.join(name)).unwrap().modified();
    assert_eq!(
        written.unwrap(),
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_577_836_800)
    );
    let mut link = BytesMut::new();
    FileLinkInformation {
        replace_if_exists: false,
        root_directory: 0,
        file_name: "linked".to_owned(),
    }
    .encode(&mut link);
    file.set(FileInformationClass::LINK, &link).unwrap();
    file.set_delete(true).unwrap();
    file.close().unwrap();
    assert!(fs::symlink_metadata(data.join(name)).is_err());
    fs::remove_file(data.join("linked")).unwrap();
}

/// A special file can be queried, renamed and deleted, but is never opened: the process at its other end notices
/// nothing.
#[test]
fn special_files_can_be_cleared_away() {
    if !possible(&[]) {
        return;
    }
    let daemon = start("auto");
    let tree = tree_of(&daemon, "alice");
    let data = daemon.path("data");
    let make = |name: &str| {
        let path = data.join(name);
        match name {
            "socket" => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
            "null" => assert!(run(Command::new("mknod").arg(&path).args(["c", "1", "3"]))),
            _ => assert!(run(Command::new("mkfifo").arg(&path))),
        }
        chown(&path, Some(ALICE), Some(ALICE)).unwrap();
    };
    for name in ["fifo", "socket", "null"] {
        make(name);
        let look = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::DELETE | AccessMask::SYNCHRONIZE;
        let open = CreateArgs::open(name).access(look);
        let file = tree.create(&open).unwrap();
        file.query(FileInformationClass::BASIC).unwrap();
        file.query(FileInformationClass::STANDARD).unwrap();
        file.query(FileInformationClass::ALL).unwrap();
        let moved = format!("{name}-moved");
        file.rename(&moved, false).unwrap();
        file.close().unwrap();
        assert!(!data.join(name).exists() && fs::symlink_metadata(data.join(&moved)).is_ok());
        for refused in [
            CreateArgs::open(&moved).access(AccessMask::FILE_READ_DATA),
            CreateArgs::open(&moved).access(AccessMask::FILE_WRITE_DATA),
            CreateArgs::open(&moved).access(AccessMask::FILE_WRITE_EA),
            CreateArgs::open(&moved).access(AccessMask(0x1000_0000)),
            CreateArgs::new(&moved, CreateDisposition::OVERWRITE).access(look),
            CreateArgs::new(&moved, CreateDisposition::SUPERSEDE).access(look),
            CreateArgs::open_if(&format!("{moved}:stream")).access(look),
        ] {
            assert_eq!(tree.create_status(&refused).unwrap(), Status::ACCESS_DENIED);
        }
        let most = CreateArgs::open(&moved).access(AccessMask::MAXIMUM_ALLOWED);
        let file = tree.create(&most).unwrap();
        assert_eq!(outcome(file.read(0, 1)), Status::ACCESS_DENIED);
        assert_eq!(outcome(file.write_all(0, b"x")), Status::ACCESS_DENIED);
        assert_eq!(outcome(file.flush(false)), Status::ACCESS_DENIED);
        file.set_delete(true).unwrap();
        file.close().unwrap();
        assert!(fs::symlink_metadata(data.join(&moved)).is_err());
        make(name);
        cleared_of_attributes_and_deleted(&tree, &data, name);
        make(name);
        let on_close = open.options(CreateOptions::DELETE_ON_CLOSE);
        tree.create(&on_close).unwrap().close().unwrap();
        assert!(fs::symlink_metadata(data.join(name)).is_err());
    }
}
