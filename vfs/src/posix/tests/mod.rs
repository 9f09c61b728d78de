//! The back end on every disk: the same conformance tests on the simulated one, on system calls and
//! on the ring, and tests that need a particular disk (counting, faults, identities).

mod conformance;
mod conversions;
mod counts;
mod cuts;
mod links;
mod meta;
mod names;
mod nfs;
mod service;
mod space;
mod streams;
mod users;

use std::{path::Path, rc::Rc, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::*;
use crate::{
    Attr, Identity, IoAccess, Lookup, NewNode, Node, Permissions, Range, SetAttr, StreamOpen,
    SyncScope, Timestamp, WriteMode,
    disk::DiskResult,
    env::Clock,
    linux::LinuxDisk,
    sim::{Fault, FaultAction, SimDisk, SimOp, SimOptions},
    testing::{block_on, key, on_ring},
    uring::UringOptions,
    vfs::*,
};

pub(super) const ME: &Identity = &Identity::Service;

/// Makes a symbolic link `name` to `target` in the root.
pub(super) type MakeLink = dyn Fn(&str, &str);

pub(super) struct Case<D: Disk> {
    pub(super) vfs: PosixVfs<D>,
    pub(super) link: Box<MakeLink>,
}

impl<D: Disk> Case<D> {
    pub(super) async fn new(disk: D, link: Box<MakeLink>) -> Self {
        Self::with(disk, link, default_options()).await
    }

    pub(super) async fn with(disk: D, link: Box<MakeLink>, options: PosixOptions) -> Self {
        Self {
            vfs: PosixVfs::new(disk, options).await.unwrap(),
            link,
        }
    }

    pub(super) async fn find(&self, path: &str) -> VfsResult<Lookup<PosixNode<D>>> {
        let path: Vec<String> = path
            .split('/')
            .filter(|c| !c.is_empty())
            .map(str::to_owned)
            .collect();
        self.vfs.lookup(ME, &path).await
    }

    pub(super) async fn node(&self, path: &str) -> PosixNode<D> {
        self.find(path)
            .await
            .unwrap()
            .found
            .unwrap_or_else(|| panic!("{path} is not there"))
            .0
    }

    pub(super) async fn is_there(&self, path: &str) -> bool {
        self.find(path).await.unwrap().found.is_some()
    }

    pub(super) async fn file(&self, path: &str) -> PosixNode<D> {
        self.new_file(path, &NewNode::default()).await.unwrap().0
    }

    pub(super) async fn new_file(
        &self,
        path: &str,
        new: &NewNode<'_>,
    ) -> VfsResult<(PosixNode<D>, Attr)> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.node(above).await;
        self.vfs.create(ME, &parent, name, new, false).await
    }

    pub(super) async fn dir(&self, path: &str) -> PosixNode<D> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.node(above).await;
        let new = NewNode::default();
        self.vfs
            .create(ME, &parent, name, &new, true)
            .await
            .unwrap()
            .0
    }

    /// The same inode or stream, opened for reading and perhaps for writing.
    pub(super) async fn opened(&self, node: &PosixNode<D>, write: bool) -> PosixNode<D> {
        let io = IoAccess { read: true, write };
        self.vfs.open(ME, node, io).await.unwrap()
    }

    pub(super) async fn write(&self, node: &PosixNode<D>, offset: u64, data: &[u8]) {
        let data = Bytes::copy_from_slice(data);
        self.vfs
            .write(node, offset, data, WriteMode::default())
            .await
            .unwrap();
    }

    pub(super) async fn read(&self, node: &PosixNode<D>) -> Vec<u8> {
        self.vfs
            .read(node, 0, 1 << 20, BytesMut::new())
            .await
            .unwrap()
            .to_vec()
    }

    pub(super) async fn names(&self, path: &str) -> Vec<String> {
        let dir = self.node(path).await;
        let mut names: Vec<String> = self
            .vfs
            .list(ME, &dir, 1000)
            .await
            .unwrap()
            .into_iter()
            .map(|n| n.name)
            .collect();
        names.sort();
        names
    }

    pub(super) async fn rename(&self, from: &str, to: &str, replace: bool) -> VfsResult<()> {
        let node = self.node(from).await;
        let (above, name) = from.rsplit_once('/').unwrap_or(("", from));
        let (to_above, to_name) = to.rsplit_once('/').unwrap_or(("", to));
        let (parent, to_parent) = (self.node(above).await, self.node(to_above).await);
        let replaced = match replace {
            true => self.key(to).await,
            false => None,
        };
        self.vfs
            .rename(ME, &node, &parent, name, &to_parent, to_name, replaced)
            .await
    }

    /// The object that a path refers to.
    pub(super) async fn key(&self, path: &str) -> Option<FileKey> {
        let found = self.find(path).await.ok()?.found;
        found.map(|(node, _)| node.key())
    }

    pub(super) async fn remove(&self, path: &str) -> VfsResult<()> {
        let node = self.node(path).await;
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.node(above).await;
        self.vfs.remove(ME, &node, &parent, name).await.map(drop)
    }

    /// Makes a file without the back end.
    pub(super) async fn outside(&self, name: &[u8], mode: u32) -> DiskResult<D::Fd> {
        let how = crate::disk::OpenHow {
            read: true,
            write: true,
            create: Some(mode),
            ..Default::default()
        };
        let root = self.vfs.disk().root();
        self.vfs.disk().open_at(ME, &root, name, how).await
    }

    pub(super) async fn gone_outside(&self, name: &[u8]) -> bool {
        let root = self.vfs.disk().root();
        self.vfs.disk().stat_at(&root, name).await.is_err()
    }
}

/// Lets an operation of this kind fail, after so many others of the kind.
pub(super) fn fail_once(disk: &SimDisk, on: SimOp, after: u64, errno: i32) {
    let action = FaultAction::Fail(errno);
    assert!(disk.inject(Fault { on, after, action }));
}

/// The options of a test, with the clock of the machine: only with one are names remembered.
pub(super) fn default_options() -> PosixOptions {
    let now = || {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        Timestamp {
            secs: i64::try_from(since.as_secs()).unwrap(),
            nanos: since.subsec_nanos(),
        }
    };
    PosixOptions {
        clock: Clock::new(now),
        ..PosixOptions::default()
    }
}

async fn all<D: Disk>(mut make: impl FnMut(PosixOptions) -> (D, Box<MakeLink>, PosixOptions)) {
    macro_rules! run {
        ($($test:path),* $(,)?) => {$(
            let (disk, link, options) = make(default_options());
            eprintln!(stringify!($test));
            $test(Case::with(disk, link, options).await).await;
        )*};
    }
    run!(
        conformance::names,
        conformance::case,
        conformance::bytes_that_are_no_text,
        conformance::data,
        conformance::holes,
        conformance::copies,
        conformance::listing,
        conformance::renames,
        conformance::renames_between_directories,
        conformance::links,
        conformance::removal,
        conformance::removal_of_directories,
        conformance::attributes_changed_at_once,
        conformance::attributes_changed_outside,
        conformance::symlinks,
        conformance::deep,
        meta::attributes,
        meta::derived_attributes,
        meta::times,
        meta::security,
        meta::security_behind_our_back,
        meta::extended_attributes,
        meta::creation_is_whole,
        meta::file_system,
        streams::small,
        streams::limits,
        streams::many,
        streams::renamed,
        streams::times,
        streams::futures,
        conversions::in_several_attributes,
        conversions::found_in_the_depot,
        conversions::converted,
        conversions::not_converted,
    );
    macro_rules! in_the_depot {
        ($($test:path),* $(,)?) => {$(
            let (disk, link, mut options) = make(default_options());
            options.streams = StreamStore::Depot;
            eprintln!(stringify!($test));
            $test(Case::with(disk, link, options).await).await;
        )*};
    }
    in_the_depot!(
        streams::growing,
        streams::moving,
        streams::renamed,
        streams::times,
        streams::removed,
        streams::of_directories,
        streams::all_in_the_depot,
        conversions::after_a_restart,
        conversions::of_another_inode,
        conversions::converted,
    );
    with_other_options(&mut make).await;
}

async fn with_other_options<D: Disk>(
    make: &mut impl FnMut(PosixOptions) -> (D, Box<MakeLink>, PosixOptions),
) {
    let (disk, link, mut options) = make(default_options());
    options.symlinks = SymlinkPolicy::Hide;
    conformance::symlinks_hidden(Case::with(disk, link, options).await).await;
    let (disk, link, mut options) = make(default_options());
    options.symlinks = SymlinkPolicy::Refuse;
    conformance::symlinks_refused(Case::with(disk, link, options).await).await;
    let (disk, link, mut options) = make(default_options());
    options.read_only = true;
    meta::read_only(Case::with(disk, link, options).await).await;
}

pub(super) fn sim(options: SimOptions) -> (SimDisk, Box<MakeLink>) {
    let disk = SimDisk::new(options);
    let inner = disk.clone();
    let link = move |name: &str, target: &str| {
        inner
            .symlink(&inner.root(), name.as_bytes(), target.as_bytes())
            .unwrap();
    };
    (disk, Box::new(link))
}

#[test]
fn on_the_simulated_disk() {
    block_on(all(|options| {
        let (disk, link) = sim(SimOptions::default());
        (disk, link, options)
    }));
}

/// A fresh folder on the file system of the temporary directory, which must support attributes.
fn folder(dir: &Path, number: &mut u32) -> (std::path::PathBuf, Box<MakeLink>) {
    *number += 1;
    let path = dir.join(number.to_string());
    std::fs::create_dir(&path).unwrap();
    let base = path.clone();
    let link = move |name: &str, target: &str| {
        std::os::unix::fs::symlink(target, base.join(name)).unwrap();
    };
    (path, Box::new(link))
}

/// Only root may write `security.`.
fn options_here(mut options: PosixOptions) -> PosixOptions {
    if !rustix::process::geteuid().is_root() {
        options.acl = AclNamespace::User;
    }
    options
}

#[test]
fn on_system_calls() {
    let dir = tempfile::tempdir().unwrap();
    let mut number = 0;
    block_on(all(|options| {
        let (path, link) = folder(dir.path(), &mut number);
        (LinuxDisk::open(&path).unwrap(), link, options_here(options))
    }));
}

/// Not on the simulated disk, whose operations take longer the more files there are.
#[test]
fn most_streams_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let (path, link) = folder(dir.path(), &mut 0);
        let mut options = options_here(default_options());
        options.streams = StreamStore::Depot;
        let case = Case::with(LinuxDisk::open(&path).unwrap(), link, options);
        streams::most_in_the_depot(case.await).await;
    });
}

#[test]
fn on_the_ring() {
    let dir = tempfile::tempdir().unwrap();
    on_ring(UringOptions::default(), |_| async {
        let mut number = 0;
        all(|options| {
            let (path, link) = folder(dir.path(), &mut number);
            (
                LinuxDisk::open(&path).unwrap().with_rings(true),
                link,
                options_here(options),
            )
        })
        .await;
    });
}

/// Nothing here needs a `Send` future, but the value itself crosses threads.
#[test]
fn the_back_end_is_shared() {
    fn shared<T: Send + Sync>(_: &T) {}
    let (disk, _) = sim(SimOptions::default());
    let vfs = Arc::new(block_on(PosixVfs::new(disk, default_options())).unwrap());
    shared(&vfs);
    let both = std::thread::spawn({
        let vfs = Arc::clone(&vfs);
        move || {
            block_on(async {
                vfs.create(ME, &vfs.root(), "a", &NewNode::default(), false)
                    .await
                    .is_ok()
            })
        }
    });
    assert!(both.join().unwrap());
}

#[test]
fn inodes_and_names_are_locked_for_every_share_of_a_disk() {
    let key = key(7, 77);
    let disk = SimDisk::new(SimOptions::default());
    let [one, two] = [(); 2].map(|()| disk.clone().inode_locks());
    let elsewhere = SimDisk::new(SimOptions::default()).inode_locks();
    let held = block_on(one.inode(key));
    let mut other = std::pin::pin!(two.inode(key));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(other.as_mut().poll(&mut context).is_pending());
    drop(block_on(elsewhere.inode(key)));
    drop(held);
    drop(block_on(other));
    // Names are locked in the same way, whatever inode their request has locked.
    let (held, _inode) = (block_on(one.name(key, "f")), block_on(one.inode(key)));
    let mut other = std::pin::pin!(two.name(key, "F"));
    assert!(other.as_mut().poll(&mut context).is_pending());
    drop(block_on(elsewhere.name(key, "f")));
    drop(held);
    drop(block_on(other));
}

#[test]
fn a_file_system_that_hangs_holds_no_name_of_another() {
    let locks = SimDisk::new(SimOptions::default()).inode_locks();
    let [here, mounted] = [1, 2].map(|fs| key(fs, 7));
    let _held = block_on(locks.name(mounted, "f"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut free = std::pin::pin!(locks.names((here, "f"), (here, "F")));
    assert!(free.as_mut().poll(&mut context).is_ready());
    let mut held = std::pin::pin!(locks.name_after(mounted, "F", Some(())));
    assert!(held.as_mut().poll(&mut context).is_pending());
}

#[test]
fn disks_of_the_host_share_the_locks_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| LinuxDisk::open(folder.path()).unwrap());
    assert!(Arc::ptr_eq(&one.inode_locks(), &two.inode_locks()));
}
