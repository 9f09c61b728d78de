//! An overwritten program loses its privileges, on every disk: a user who may write a set-user-ID program could
//! otherwise run his own code as its owner.
//!
//! These checks are for disks whose service is root. The set-group-ID bit of a file that its group may not execute does
//! not affect the identity under which it runs; whether it stays depends on the groups of the writer, which for data
//! are those of the last user that the thread acted as. That case is left out here.

use super::*;

/// The files' owner and group, who may set any bit of them.
const OWNER: u32 = 64_301;
const GROUP: u32 = 64_302;
/// Modes before and after a change.
const MODES: [(u32, u32); 5] = [
    (0o4775, 0o775),
    (0o6777, 0o777),
    (0o2775, 0o775),
    (0o4644, 0o644),
    (0o1775, 0o1775),
];
/// `struct vfs_cap_data`, revision 2: CAP_DAC_OVERRIDE permitted.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const CAPABILITY_NAME: &str = "security.capability";
const BLOCK: u64 = 4096;

/// The operation that changes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Changing {
    Write { durable: bool },
    Truncate(u64),
    Allocate(Allocate),
    Copy,
    Clone,
    OwnerByService,
    OwnerByOwner,
}

const CHANGES: [Changing; 10] = [
    Changing::Write { durable: false },
    Changing::Write { durable: true },
    Changing::Truncate(0),
    Changing::Truncate(5 * BLOCK),
    Changing::Allocate(Allocate::Reserve),
    Changing::Allocate(Allocate::Punch),
    Changing::Copy,
    Changing::Clone,
    Changing::OwnerByService,
    Changing::OwnerByOwner,
];

impl Changing {
    async fn run<D: Disk>(self, disk: &D, fd: &D::Fd, source: &D::Fd) -> Result<(), Errno> {
        match self {
            Self::Write { durable } => {
                let data = Bytes::from_static(b"something else");
                disk.write(fd, 0, data, durable).await.map(drop)
            }
            Self::Truncate(size) => disk.truncate(fd, size).await,
            Self::Allocate(how) => disk.allocate(fd, how, 0, 3 * BLOCK).await,
            Self::Copy => disk.copy_range((source, 0), (fd, 0), BLOCK).await.map(drop),
            Self::Clone => disk.clone_range((source, 0), (fd, 0), BLOCK).await,
            Self::OwnerByService => disk.set_owner(ME, fd, Some(64_303), None).await,
            Self::OwnerByOwner => disk.set_owner(&owner(), fd, None, Some(GROUP)).await,
        }
    }
}

fn owner() -> Identity {
    Identity::User(Arc::new(LocalUser {
        uid: OWNER,
        gid: OWNER,
        groups: vec![GROUP],
    }))
}

/// A file of two blocks with this mode and a file capability, opened to be changed.
async fn program<D: Disk>(disk: &D, dir: &D::Fd, name: &[u8], mode: u32) -> D::Fd {
    let fd = new_file(disk, dir, name).await;
    put(disk, &fd, 0, &vec![7; 2 * 4096]).await;
    ok!(disk.fsync(&fd));
    ok!(disk.set_owner(ME, &fd, Some(OWNER), Some(GROUP)));
    ok!(disk.set_mode(&owner(), &fd, mode));
    ok!(disk.set_xattr(ME, &fd, CAPABILITY_NAME, &CAPABILITY, XattrSet::Either));
    fd
}

/// The permission bits, and whether there are file capabilities.
async fn privileges<D: Disk>(disk: &D, fd: &D::Fd) -> (u32, bool) {
    let mode = ok!(disk.stat(fd)).mode & 0o7777;
    (mode, disk.get_xattr(fd, CAPABILITY_NAME).await.is_ok())
}

/// Checks that every change removes the privileges, and that an operation that changes nothing keeps them.
pub(crate) async fn set_ids<D: Disk>(disk: &D) {
    let dir = new_dir(disk, &disk.root(), b"set-ids", 0o755).await;
    let source = new_file(disk, &dir, b"source").await;
    put(disk, &source, 0, &vec![9; 2 * 4096]).await;
    ok!(disk.fsync(&source));
    for change in CHANGES {
        for (mode, left) in MODES {
            let name = format!("{change:?} {mode:o}");
            let fd = program(disk, &dir, name.as_bytes(), mode).await;
            assert_eq!(privileges(disk, &fd).await, (mode, true), "{name}");
            match change.run(disk, &fd, &source).await {
                Ok(()) => assert_eq!(privileges(disk, &fd).await, (left, false), "{name}"),
                // This disk cannot clone or zero, so nothing was changed.
                Err(Errno(libc::EOPNOTSUPP)) => {
                    assert!(matches!(change, Changing::Clone | Changing::Allocate(_)));
                    assert_eq!(privileges(disk, &fd).await, (mode, true), "{name}");
                }
                Err(errno) => panic!("{name}: {errno:?}"),
            }
        }
    }
    unchanged(disk, &dir, &source).await;
    chosen(disk, &dir).await;
}

async fn unchanged<D: Disk>(disk: &D, dir: &D::Fd, source: &D::Fd) {
    let fd = program(disk, dir, b"unchanged", 0o6775).await;
    assert_eq!(get(disk, &fd, 0, 4).await, [7; 4]);
    let nothing = disk.write(&fd, 0, Bytes::new(), false).await;
    assert_eq!(nothing, Ok(0));
    assert_eq!(disk.copy_range((source, 0), (&fd, 0), 0).await, Ok(0));
    ok!(disk.copy_range((&fd, 0), (source, 0), BLOCK));
    ok!(disk.set_times(ME, &fd, Some(Timestamp { secs: 5, nanos: 0 }), None));
    ok!(disk.set_xattr(ME, &fd, "user.stream", b"bytes", XattrSet::Either));
    assert_eq!(privileges(disk, &fd).await, (0o6775, true));
    // A directory's set-group-ID bit decides the group of its new entries; a directory is not executed.
    let below = new_dir(disk, dir, b"below", 0o755).await;
    ok!(disk.set_owner(ME, &below, Some(OWNER), Some(GROUP)));
    ok!(disk.set_mode(&owner(), &below, 0o2775));
    new_file(disk, &below, b"f").await;
    ok!(disk.set_owner(ME, &below, Some(64_303), None));
    assert_eq!(ok!(disk.stat(&below)).mode & 0o7777, 0o2775);
}

/// Checks that nobody can set the set-group-ID bit for a group that he is not in, not even root, which is the service
/// here.
async fn chosen<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = program(disk, dir, b"chosen", 0o755).await;
    let outsider = stranger(OWNER);
    for who in [&outsider, ME] {
        ok!(disk.set_mode(who, &fd, 0o6755));
        assert_eq!(privileges(disk, &fd).await.0, 0o4755);
    }
    ok!(disk.set_mode(&owner(), &fd, 0o6755));
    assert_eq!(privileges(disk, &fd).await.0, 0o6755);
}
