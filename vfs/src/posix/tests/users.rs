//! The rights that the kernel's permissions give to users. Needs root on a real disk.

use super::super::name_cache::SETTLED;
use super::{cuts::mount, streams::folder_in_depot, *};
use crate::{
    Timestamp,
    identity::LocalUser,
    sim::{SimOp, SimYield},
};

pub(super) fn user(uid: u32, groups: &[u32]) -> Identity {
    Identity::User(Arc::new(LocalUser {
        uid,
        gid: uid,
        groups: groups.to_vec(),
    }))
}

/// Alice, bob, and the root of a share in which everybody may change names.
pub(super) async fn open_to_all(t: &Case<SimDisk>) -> (Identity, Identity, PosixNode<SimDisk>) {
    let root = t.vfs.root();
    let set = t.vfs.disk().set_mode(ME, root.fd(), 0o777).await;
    set.unwrap();
    (user(4001, &[]), user(4002, &[]), root)
}

/// The share's root with `f`, alice's and her group's to read; with bob and carol (of the group).
struct Three<D: Disk> {
    t: Case<D>,
    root: PosixNode<D>,
    found: PosixNode<D>,
    alice: Identity,
    bob: Identity,
    carol: Identity,
}

impl<D: Disk> Three<D> {
    /// A directory `closed` of alice's with these permission bits, and a file of hers in it.
    async fn closed(&self, mode: u32, name: &str) -> (PosixNode<D>, PosixNode<D>) {
        let (vfs, alice, new) = (&self.t.vfs, &self.alice, NewNode::default());
        let closed = NewNode {
            mode: Some(mode),
            ..new.clone()
        };
        let dir = vfs.create(alice, &self.root, "closed", &closed, true).await;
        let dir = dir.unwrap().0;
        let file = vfs.create(alice, &dir, name, &new, false).await;
        (dir, file.unwrap().0)
    }

    /// Removes what [`Self::closed`] has made.
    async fn remove_closed(&self, (dir, file): (PosixNode<D>, PosixNode<D>), name: &str) {
        let (vfs, alice) = (&self.t.vfs, &self.alice);
        vfs.remove(alice, &file, &dir, name).await.unwrap();
        let gone = vfs.remove(alice, &dir, &self.root, "closed").await;
        gone.unwrap();
    }
}

const READ: IoAccess = IoAccess {
    read: true,
    write: false,
};
const DENIED: VfsError = VfsError::AccessDenied;

async fn owners<D: Disk>(t: Case<D>) {
    let three = three(t).await;
    strangers_change_nothing(&three).await;
    links_do_not_reveal_what_is_closed(&three).await;
    nothing_is_revealed_of_what_may_not_be_searched(&three).await;
    writers_may_what_windows_lets_them(&three).await;
    names_belong_to_the_directory(&three).await;
}

async fn three<D: Disk>(t: Case<D>) -> Three<D> {
    let (alice, bob, carol) = (user(4001, &[]), user(4002, &[]), user(4003, &[4001]));
    let root = t.vfs.root();
    t.vfs.disk().set_mode(ME, root.fd(), 0o1777).await.unwrap();
    let new = NewNode {
        mode: Some(0o640),
        ..NewNode::default()
    };
    let (file, attr) = t.vfs.create(&alice, &root, "f", &new, false).await.unwrap();
    assert_eq!((attr.uid, attr.gid), (4001, 4001));
    t.write(&file, 0, b"hers").await;
    let found = t
        .vfs
        .lookup(&bob, &["F".into()])
        .await
        .unwrap()
        .found
        .unwrap()
        .0;
    Three {
        t,
        root,
        found,
        alice,
        bob,
        carol,
    }
}

/// A listing shows the attributes of names, but follows a link only if the user may reach its target.
async fn links_do_not_reveal_what_is_closed<D: Disk>(three: &Three<D>) {
    let (t, root) = (&three.t, &three.root);
    let (alice, bob) = (&three.alice, &three.bob);
    let (dir, inside) = three.closed(0o700, "in").await;
    t.write(&inside, 0, b"hers").await;
    (t.link)("way-in", "closed/in");
    // One name, and a listing that queries many at once.
    let names = t.vfs.list(bob, root, 20).await.unwrap();
    let place = names.iter().position(|name| name.name == "way-in").unwrap();
    let one = std::slice::from_ref(&names[place]);
    assert_eq!(t.vfs.attrs_at(bob, root, one).await, [Err(DENIED)]);
    let hers = t.vfs.attrs_at(alice, root, one).await.remove(0);
    assert_eq!(hers.unwrap().size, 4);
    let (listed, looked) = t.vfs.list_looked(bob, root, 20, 20).await.unwrap();
    let mut seen = listed.iter().zip(looked);
    assert!(seen.any(|(name, attr)| name.name == "way-in" && attr == Err(DENIED)));
    t.vfs
        .disk()
        .unlink(ME, root.fd(), b"way-in", false)
        .await
        .unwrap();
    three.remove_closed((dir, inside), "in").await;
}

/// This holds even if a cached listing does not have the name.
async fn nothing_is_revealed_of_what_may_not_be_searched<D: Disk>(three: &Three<D>) {
    let t = &three.t;
    let (alice, bob, carol) = (&three.alice, &three.bob, &three.carol);
    let (dir, there) = three.closed(0o755, "there").await;
    let absent = async |who: &Identity| {
        let path = ["closed", "absent"].map(String::from);
        let found = t.vfs.lookup(who, &path).await;
        found.map(|found| assert!(found.found.is_none()))
    };
    for (mode, bobs, carols) in [
        (0o755, Ok(()), Ok(())),
        (0o754, Err(DENIED), Ok(())),
        // The group's bits hold for the group, whatever others may.
        (0o745, Ok(()), Err(DENIED)),
        (0o744, Err(DENIED), Err(DENIED)),
        (0o700, Err(DENIED), Err(DENIED)),
    ] {
        t.vfs.disk().set_mode(ME, dir.fd(), mode).await.unwrap();
        // The listing is cached from then on.
        std::thread::sleep(2 * SETTLED);
        for _ in 0..2 {
            assert_eq!(absent(alice).await, Ok(()), "{mode:o}");
            assert_eq!(absent(ME).await, Ok(()), "{mode:o}");
            assert_eq!(absent(bob).await, bobs, "{mode:o}");
            assert_eq!(absent(carol).await, carols, "{mode:o}");
        }
    }
    three.remove_closed((dir, there), "there").await;
}

async fn strangers_change_nothing<D: Disk>(three: &Three<D>) {
    let (t, root, found) = (&three.t, &three.root, &three.found);
    let (alice, bob, carol) = (&three.alice, &three.bob, &three.carol);
    let write = IoAccess {
        read: false,
        write: true,
    };
    assert_eq!(t.vfs.open(bob, found, READ).await.unwrap_err(), DENIED);
    assert!(t.vfs.open(carol, found, READ).await.is_ok());
    assert_eq!(t.vfs.open(carol, found, write).await.unwrap_err(), DENIED);
    let hide = SetAttr {
        dos_attributes: Some(2),
        ..SetAttr::default()
    };
    for other in [bob, carol] {
        assert_eq!(
            t.vfs.set_attr(other, found, &hide).await.unwrap_err(),
            DENIED
        );
        let stream = t
            .vfs
            .open_stream(other, found, "s", StreamOpen::Either)
            .await;
        assert_eq!(stream.unwrap_err(), DENIED);
        assert_eq!(
            t.vfs.remove(other, found, root, "f").await.unwrap_err(),
            DENIED
        );
        let moved = t.vfs.rename(other, found, root, "f", root, "g", None).await;
        assert_eq!(moved.unwrap_err(), DENIED);
    }
    let set = t.vfs.disk().set_mode(alice, found.fd(), 0o660).await;
    set.unwrap();
}

/// Linux ties times and attributes to the owner, Windows to a right that writers also have.
async fn writers_may_what_windows_lets_them<D: Disk>(three: &Three<D>) {
    let (t, found) = (&three.t, &three.found);
    let (bob, carol) = (&three.bob, &three.carol);
    let times = SetAttr {
        written: Some(Timestamp::default()),
        dos_attributes: Some(2),
        ..SetAttr::default()
    };
    t.vfs.set_attr(carol, found, &times).await.unwrap();
    let attr = t.vfs.attr(found).await.unwrap();
    assert_eq!(
        (attr.written, attr.dos_attributes),
        (Timestamp::default(), 2)
    );
    let (stream, _) = t
        .vfs
        .open_stream(carol, found, "s", StreamOpen::New)
        .await
        .unwrap();
    t.write(&stream, 0, &[1; 900]).await;
    assert_eq!(t.vfs.open(bob, &stream, READ).await.unwrap_err(), DENIED);
    assert!(t.vfs.open(carol, &stream, READ).await.is_ok());
}

async fn names_belong_to_the_directory<D: Disk>(three: &Three<D>) {
    let (t, root, found) = (&three.t, &three.root, &three.found);
    let (alice, bob, carol) = (&three.alice, &three.bob, &three.carol);
    let of = |who| t.vfs.permitted(who, found);
    assert_eq!(of(bob).await.unwrap(), IoAccess::default());
    let both = IoAccess {
        read: true,
        write: true,
    };
    assert_eq!(of(carol).await.unwrap(), both);
    assert_eq!(of(alice).await.unwrap(), both);
    promises_are_kept(three).await;
    t.vfs.disk().set_mode(ME, root.fd(), 0o777).await.unwrap();
    t.vfs.remove(bob, found, root, "f").await.unwrap();
    // A directory that may not be searched.
    let closed = NewNode {
        mode: Some(0o700),
        ..NewNode::default()
    };
    t.vfs.create(alice, root, "d", &closed, true).await.unwrap();
    let path = ["D".to_owned(), "x".to_owned()];
    assert_eq!(t.vfs.lookup(bob, &path).await.unwrap_err(), DENIED);
    assert!(t.vfs.lookup(alice, &path).await.unwrap().found.is_none());
    // A user who holds a file in there and its directory cannot use its name, in any case of letters.
    t.file("d/x").await;
    let (dir, file) = (t.node("d").await, t.node("d/x").await);
    for name in ["x", "X"] {
        let gone = t.vfs.remove(bob, &file, &dir, name).await;
        assert_eq!(gone.unwrap_err(), DENIED);
        let moved = t.vfs.rename(bob, &file, &dir, name, root, "z", None).await;
        assert_eq!(moved.unwrap_err(), DENIED);
    }
    let outside = t.file("outside").await;
    let into = t
        .vfs
        .rename(bob, &outside, root, "outside", &dir, "z", None);
    assert_eq!(into.await.unwrap_err(), DENIED);
    let listed = t.vfs.list(bob, &t.node("d").await, 9).await;
    assert_eq!(listed.unwrap_err(), DENIED);
}

/// The prediction about a removal agrees with its result.
async fn promises_are_kept<D: Disk>(three: &Three<D>) {
    let (t, root) = (&three.t, &three.root);
    let (alice, bob) = (&three.alice, &three.bob);
    let new = NewNode::default();
    // The owner of the directory: root here.
    for mode in [0o1777, 0o777, 0o1755, 0o755] {
        for (owner, remover) in [(alice, alice), (alice, bob), (alice, ME), (ME, bob)] {
            t.vfs.disk().set_mode(ME, root.fd(), 0o777).await.unwrap();
            let file = t.vfs.create(owner, root, "promised", &new, false).await;
            let file = file.unwrap().0;
            t.vfs.disk().set_mode(ME, root.fd(), mode).await.unwrap();
            let said = t.vfs.may_remove(remover, &file, root, "promised").await;
            let done = t.vfs.remove(remover, &file, root, "promised").await;
            let done = done.map(drop);
            assert_eq!(said, done, "{mode:o} {owner:?} {remover:?}");
            if done.is_err() {
                t.vfs.remove(ME, &file, root, "promised").await.unwrap();
            }
        }
    }
    t.vfs.disk().set_mode(ME, root.fd(), 0o1777).await.unwrap();
}

#[test]
fn owners_on_the_simulated_disk() {
    let (disk, link) = sim(SimOptions::default());
    block_on(async { owners(Case::new(disk, link).await).await });
}

#[test]
fn owners_on_system_calls() {
    if !crate::testing::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let base = dir.path().to_owned();
    let link = Box::new(move |name: &str, target: &str| {
        std::os::unix::fs::symlink(target, base.join(name)).unwrap();
    });
    block_on(async { owners(Case::new(disk, link).await).await });
}

/// In a sticky directory nobody removes another user's link.
#[test]
fn links_of_a_directory_go_together_or_stay() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    if !crate::testing::root() {
        return;
    }
    let top = tempfile::tempdir().unwrap();
    let below = top.path().join("d");
    std::fs::create_dir(&below).unwrap();
    for (path, mode) in [(top.path(), 0o777), (&*below, 0o1777)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    }
    let belongs = |name: &str, uid| lchown(below.join(name), Some(uid), Some(uid)).unwrap();
    for (name, uid) in [("bobs", 4002), ("hers", 4001)] {
        symlink("nothing", below.join(name)).unwrap();
        belongs(name, uid);
    }
    let disk = LinuxDisk::open(top.path()).unwrap();
    block_on(async {
        let t = Case::new(disk, Box::new(|_, _| ())).await;
        let (bob, root, dir) = (user(4002, &[]), t.vfs.root(), t.node("d").await);
        let refused = t.vfs.remove(&bob, &dir, &root, "d").await;
        assert_eq!(refused.err(), Some(DENIED));
        assert_eq!(std::fs::read_dir(&below).unwrap().count(), 2);
        belongs("hers", 4002);
        t.vfs.remove(&bob, &dir, &root, "d").await.unwrap();
        assert!(!below.exists());
    });
}

/// Samba makes the folder of a file's streams as a user, who may move another user's file into it.
#[test]
fn a_file_that_a_user_moved_into_the_depot_is_no_stream() {
    let disk = SimDisk::new(SimOptions::default());
    block_on(async {
        let t = mount(disk.clone(), StreamStore::Depot).await;
        let (alice, _, root) = open_to_all(&t).await;
        let new = NewNode::default();
        let file = t.vfs.create(&alice, &root, "f", &new, false).await;
        let file = file.unwrap().0;
        let size = async |stream: &str| {
            let how = StreamOpen::Either;
            let opened = t.vfs.open_stream(&alice, &file, stream, how).await;
            let attr = t.vfs.attr(&opened.unwrap().0).await;
            attr.map(|attr| attr.size)
        };
        assert_eq!(size("own").await, Ok(0));
        let folder = folder_in_depot(&t, &file).await.unwrap();
        let how = crate::disk::OpenHow::new_file(0o600);
        let moved = b":moved:$DATA";
        let secret = disk.open_at(ME, &folder, moved, how).await.unwrap();
        // Only the service puts files into a folder of its own.
        assert_eq!(size("moved").await, Ok(0));
        let owner = Some(4001);
        disk.set_owner(ME, &folder, owner, owner).await.unwrap();
        assert_eq!(size("moved").await, Err(DENIED));
        assert_eq!(size("own").await, Ok(0));
        disk.set_mode(ME, &secret, 0o666).await.unwrap();
        assert_eq!(size("moved").await, Ok(0));
        // Others may put there what she alone may read.
        disk.set_mode(ME, &folder, 0o775).await.unwrap();
        disk.set_owner(ME, &secret, owner, owner).await.unwrap();
        disk.set_mode(ME, &secret, 0o600).await.unwrap();
        assert_eq!(size("moved").await, Err(DENIED));
        // This has the permissions of the file itself.
        assert_eq!(size("own").await, Ok(0));
    });
}

/// Another program gives the name of a directory that is being made to another user's.
#[test]
fn a_directory_in_the_place_of_a_new_one_stays_as_it_is() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let (disk, link) = sim(SimOptions::default());
    block_on(async {
        let t = Case::new(disk.clone(), link).await;
        let (alice, bob, root) = open_to_all(&t).await;
        let plain = NewNode::default();
        let hers = t.vfs.create(&alice, &root, "hers", &plain, true).await;
        let hers = hers.unwrap().0;
        let before = t.vfs.attr(&hers).await.unwrap().dos_attributes;
        let (made, moved, on) = (AtomicBool::new(false), AtomicBool::new(false), disk.clone());
        disk.set_hook(Some(Arc::new(move |op| {
            if op == SimOp::Change {
                made.store(true, SeqCst);
            }
            let now = op == SimOp::Look && made.load(SeqCst) && !moved.swap(true, SeqCst);
            let on = on.clone();
            let exchange = async move {
                let root = on.root();
                for (from, to) in [(&b"new"[..], &b"away"[..]), (b"hers", b"new")] {
                    let renamed = on.rename(ME, (&root, from), (&root, to), false);
                    renamed.await.unwrap();
                }
            };
            now.then(|| Box::pin(exchange) as SimYield)
        })));
        let hidden = NewNode {
            dos_attributes: 2,
            eas: vec![("his".into(), b"1".to_vec())],
            ..NewNode::default()
        };
        let refused = t.vfs.create(&bob, &root, "new", &hidden, true).await;
        disk.set_hook(None);
        assert_eq!(refused.unwrap_err(), DENIED);
        assert_eq!(t.names("").await, ["away", "new"]);
        assert_eq!(t.key("new").await, Some(hers.key()));
        let after = t.vfs.attr(&hers).await.unwrap().dos_attributes;
        assert_eq!((after, t.vfs.eas(&hers).await), (before, Ok(vec![])));
    });
}

/// A program may give its file a name like those that a dead server has left.
#[test]
fn a_directory_goes_only_with_leftovers_that_the_user_may_remove() {
    let (disk, link) = sim(SimOptions::default());
    block_on(async {
        let t = Case::new(disk.clone(), link).await;
        let (alice, bob, root) = open_to_all(&t).await;
        let new = NewNode::default();
        let dir = t.vfs.create(&alice, &root, "d", &new, true).await;
        let dir = dir.unwrap().0;
        let (left, how) = (b".holdfast-tmp-hers", crate::disk::OpenHow::new_file(0o600));
        drop(disk.open_at(&alice, dir.fd(), left, how).await.unwrap());
        let refused = t.vfs.remove(&bob, &dir, &root, "d").await;
        assert_eq!(refused.err(), Some(DENIED));
        assert!(disk.stat_at(dir.fd(), left).await.is_ok());
        t.vfs.remove(&alice, &dir, &root, "d").await.unwrap();
        assert!(!t.is_there("d").await);
    });
}

#[test]
fn one_owner_for_all() {
    let (disk, link) = sim(SimOptions::default());
    let options = PosixOptions {
        owner: Some((7, 8)),
        file_mask: 0o600,
        ..default_options()
    };
    block_on(async {
        let t = Case::with(disk, link, options).await;
        t.vfs
            .disk()
            .set_mode(ME, t.vfs.root().fd(), 0o777)
            .await
            .unwrap();
        let new = NewNode::default();
        let who = user(4001, &[]);
        let (_, attr) = t
            .vfs
            .create(&who, &t.vfs.root(), "f", &new, false)
            .await
            .unwrap();
        assert_eq!((attr.uid, attr.gid, attr.mode & 0o777), (7, 8, 0o600));
    });
}
