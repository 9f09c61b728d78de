//! Random operations on the simulated and on a real disk must give the same answers, the same errors and the same tree
//! in the end. The simulator's assumptions about Linux are checked here against Linux.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    linux::LinuxDisk,
    sim::{SimDisk, SimOptions},
    testing::block_on,
};

/// One step. Files and directories are numbers below [`NAMES`].
#[derive(Debug, Clone)]
enum Step {
    Create(u8, u8),
    MakeDir(u8, u8),
    Unlink(u8, u8, bool),
    Rename(u8, u8, u8, u8, bool),
    Link(u8, u8, u8, u8),
    Write(u8, u8, u32, u16),
    Truncate(u8, u8, u32),
    Punch(u8, u8, u32, u32),
    Reserve(u8, u8, u32),
    Copy(u8, u8, u32, u32, u32),
    Xattr(u8, u8, u8, Option<u8>),
    Mode(u8, u8, u16),
    List(u8),
}

/// The number of names used; the last ones are tried as directories too.
const NAMES: u8 = 5;

fn step() -> impl Strategy<Value = Step> {
    let d = || 0..3u8;
    let n = || 0..NAMES;
    let at = || prop_oneof![0..20_000u32, Just(4096), Just(8192), Just(0)];
    prop_oneof![
        4 => (d(), n()).prop_map(|(d, n)| Step::Create(d, n)),
        3 => (d(), n()).prop_map(|(d, n)| Step::MakeDir(d, n)),
        2 => (d(), n(), any::<bool>()).prop_map(|(d, n, k)| Step::Unlink(d, n, k)),
        4 => (d(), n(), d(), n(), any::<bool>())
            .prop_map(|(d, n, e, m, r)| Step::Rename(d, n, e, m, r)),
        2 => (d(), n(), d(), n()).prop_map(|(d, n, e, m)| Step::Link(d, n, e, m)),
        4 => (d(), n(), at(), 0..9000u16).prop_map(|(d, n, at, l)| Step::Write(d, n, at, l)),
        2 => (d(), n(), at()).prop_map(|(d, n, at)| Step::Truncate(d, n, at)),
        2 => (d(), n(), at(), at()).prop_map(|(d, n, at, l)| Step::Punch(d, n, at, l)),
        1 => (d(), n(), at()).prop_map(|(d, n, l)| Step::Reserve(d, n, l)),
        1 => (d(), n(), at(), at(), at()).prop_map(|(d, n, f, t, l)| Step::Copy(d, n, f, t, l)),
        2 => (d(), n(), 0..3u8, any::<Option<u8>>())
            .prop_map(|(d, n, k, v)| Step::Xattr(d, n, k, v)),
        1 => (d(), n(), 0..0o10000u16).prop_map(|(d, n, m)| Step::Mode(d, n, m)),
        1 => d().prop_map(Step::List),
    ]
}

/// A directory by number: 0 is the root, others are names in the root.
async fn dir<D: Disk>(disk: &D, number: u8) -> Result<D::Fd, Errno> {
    if number == 0 {
        return Ok(disk.root());
    }
    let how = OpenHow {
        directory: true,
        ..how(true, false, None)
    };
    disk.open_at(ME, &disk.root(), &[b'a' + number], how).await
}

async fn file<D: Disk>(disk: &D, d: u8, n: u8) -> Result<D::Fd, Errno> {
    disk.open_at(ME, &dir(disk, d).await?, &[b'a' + n], how(true, true, None))
        .await
}

/// Carries out a step and returns the part of the result that can be compared.
async fn apply<D: Disk>(disk: &D, step: &Step) -> Result<String, Errno> {
    match *step {
        Step::Create(d, n) => {
            let make = how(true, true, Some(0o644));
            disk.open_at(ME, &dir(disk, d).await?, &[b'a' + n], make)
                .await?;
        }
        Step::MakeDir(d, n) => {
            disk.make_dir(ME, &dir(disk, d).await?, &[b'a' + n], 0o755)
                .await?;
        }
        Step::Unlink(d, n, k) => {
            disk.unlink(ME, &dir(disk, d).await?, &[b'a' + n], k)
                .await?;
        }
        Step::Rename(d, n, e, m, replace) => {
            let (from, to) = (dir(disk, d).await?, dir(disk, e).await?);
            let moved = disk
                .rename(ME, &from, &[b'a' + n], &to, &[b'a' + m], replace)
                .await;
            // rename(2) allows both errors for a directory that is not empty; XFS returns EEXIST.
            moved.map_err(|e| {
                Errno(if e.0 == libc::ENOTEMPTY {
                    libc::EEXIST
                } else {
                    e.0
                })
            })?;
        }
        Step::Link(d, n, e, m) => {
            let only = OpenHow {
                path_only: true,
                ..OpenHow::default()
            };
            let fd = disk
                .open_at(ME, &dir(disk, d).await?, &[b'a' + n], only)
                .await?;
            disk.link(ME, &fd, &dir(disk, e).await?, &[b'a' + m])
                .await?;
        }
        Step::Xattr(d, n, k, value) => {
            let fd = file(disk, d, n).await?;
            let name = format!("user.{k}");
            match value {
                Some(v) => {
                    let value = vec![v; usize::from(v)];
                    disk.set_xattr(ME, &fd, &name, &value, XattrSet::Either)
                        .await?;
                }
                None => disk.remove_xattr(ME, &fd, &name).await?,
            }
        }
        Step::Mode(d, n, mode) => {
            disk.set_mode(ME, &file(disk, d, n).await?, u32::from(mode))
                .await?;
        }
        Step::List(d) => return Ok(names(disk, &dir(disk, d).await?).await.concat()),
        _ => return apply_data(disk, step).await,
    }
    Ok(String::new())
}

async fn apply_data<D: Disk>(disk: &D, step: &Step) -> Result<String, Errno> {
    match *step {
        Step::Write(d, n, at, len) => {
            let data = Bytes::from(vec![(len % 255) as u8 + 1; usize::from(len)]);
            let put = disk
                .write(&file(disk, d, n).await?, u64::from(at), data, false)
                .await?;
            return Ok(put.to_string());
        }
        Step::Truncate(d, n, at) => disk.truncate(&file(disk, d, n).await?, at.into()).await?,
        Step::Punch(d, n, at, len) => {
            let fd = file(disk, d, n).await?;
            disk.allocate(&fd, Allocate::Punch, at.into(), len.into())
                .await?;
        }
        Step::Reserve(d, n, len) => {
            let fd = file(disk, d, n).await?;
            disk.allocate(&fd, Allocate::Reserve, 0, len.into()).await?;
        }
        Step::Copy(d, n, from, to, len) => {
            let fd = file(disk, d, n).await?;
            let (from, to) = (u64::from(from), u64::from(to));
            let copied = disk.copy_range((&fd, from), (&fd, to), len.into()).await?;
            return Ok(copied.to_string());
        }
        _ => unreachable!("a step on names"),
    }
    Ok(String::new())
}

/// Everything that is visible: path to kind, links, size, mode, bytes, attributes.
async fn tree<D: Disk>(disk: &D) -> BTreeMap<Vec<u8>, String> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![(Vec::new(), disk.root())];
    while let Some((path, fd)) = todo.pop() {
        for entry in ok!(disk.entries(&fd, 1000)) {
            let here = [&path[..], b"/", &entry.name].concat();
            let stat = ok!(disk.stat_at(&fd, &entry.name));
            let is_dir = stat.mode & libc::S_IFMT == libc::S_IFDIR;
            // btrfs does not count subdirectories.
            let links = if is_dir { 0 } else { stat.links };
            let mut text = format!("{:o} {links}", stat.mode);
            let one = ok!(disk.open_at(ME, &fd, &entry.name, how(true, false, None)));
            if is_dir {
                todo.push((here.clone(), one));
            } else {
                let bytes = get(disk, &one, 0, 1 << 20).await;
                let mut xattrs = ok!(disk.list_xattr(&one));
                xattrs.sort();
                for name in xattrs.iter().filter(|n| n.starts_with("user.")) {
                    let value = ok!(disk.get_xattr(&one, name));
                    text += &format!(" {name}={value:?}");
                }
                text += &format!(" {} {bytes:?}", stat.size);
            }
            seen.insert(here, text);
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]
    #[test]
    fn the_simulator_does_as_linux_does(steps in prop::collection::vec(step(), 1..40)) {
        if !rustix::process::geteuid().is_root() {
            return Ok(()); // Modes without our own rights would stop the comparison.
        }
        let place = tempfile::tempdir().unwrap();
        let real = LinuxDisk::open(place.path()).unwrap();
        let sim = SimDisk::new(SimOptions::default());
        for (index, step) in steps.iter().enumerate() {
            let (want, got) = (block_on(apply(&real, step)), block_on(apply(&sim, step)));
            prop_assert_eq!(want, got, "step {}: {:?}", index, step);
        }
        prop_assert_eq!(block_on(tree(&real)), block_on(tree(&sim)));
    }
}
