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

/// A directory and a name in it. Files and directories are numbers below [`NAMES`].
type Spot = (u8, u8);

#[derive(Debug, Clone)]
enum Step {
    Create(Spot),
    MakeDir(Spot),
    Unlink(Spot, bool),
    Rename(Spot, Spot, bool),
    Link(Spot, Spot),
    Write(Spot, u32, u16),
    Truncate(Spot, u32),
    Punch(Spot, u32, u32),
    Reserve(Spot, u32),
    Copy(Spot, u32, u32, u32),
    Xattr(Spot, u8, Option<u8>),
    Mode(Spot, u16),
    List(u8),
}

/// The number of names used; the last ones are tried as directories too.
const NAMES: u8 = 5;

fn step() -> impl Strategy<Value = Step> {
    let s = || (0..3u8, 0..NAMES);
    let at = || prop_oneof![0..20_000u32, Just(4096), Just(8192), Just(0)];
    prop_oneof![
        4 => s().prop_map(Step::Create),
        3 => s().prop_map(Step::MakeDir),
        2 => (s(), any::<bool>()).prop_map(|(s, k)| Step::Unlink(s, k)),
        4 => (s(), s(), any::<bool>()).prop_map(|(s, t, r)| Step::Rename(s, t, r)),
        2 => (s(), s()).prop_map(|(s, t)| Step::Link(s, t)),
        4 => (s(), at(), 0..9000u16).prop_map(|(s, at, l)| Step::Write(s, at, l)),
        2 => (s(), at()).prop_map(|(s, at)| Step::Truncate(s, at)),
        2 => (s(), at(), at()).prop_map(|(s, at, l)| Step::Punch(s, at, l)),
        1 => (s(), at()).prop_map(|(s, l)| Step::Reserve(s, l)),
        1 => (s(), at(), at(), at()).prop_map(|(s, f, t, l)| Step::Copy(s, f, t, l)),
        2 => (s(), 0..3u8, any::<Option<u8>>()).prop_map(|(s, k, v)| Step::Xattr(s, k, v)),
        1 => (s(), 0..0o10000u16).prop_map(|(s, m)| Step::Mode(s, m)),
        1 => (0..3u8).prop_map(Step::List),
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

async fn open<D: Disk>(disk: &D, (d, n): Spot, how: OpenHow) -> Result<D::Fd, Errno> {
    disk.open_at(ME, &dir(disk, d).await?, &[b'a' + n], how)
        .await
}

async fn file<D: Disk>(disk: &D, spot: Spot) -> Result<D::Fd, Errno> {
    open(disk, spot, how(true, true, None)).await
}

/// Carries out a step and returns the part of the result that can be compared.
async fn apply<D: Disk>(disk: &D, step: &Step) -> Result<String, Errno> {
    match *step {
        Step::Create(spot) => drop(open(disk, spot, how(true, true, Some(0o644))).await?),
        Step::MakeDir((d, n)) => {
            let dir = dir(disk, d).await?;
            disk.make_dir(ME, &dir, &[b'a' + n], 0o755).await?;
        }
        Step::Unlink((d, n), directory) => {
            let dir = dir(disk, d).await?;
            disk.unlink(ME, &dir, &[b'a' + n], directory).await?;
        }
        Step::Rename((d, n), (e, m), replace) => {
            let (from, to) = (dir(disk, d).await?, dir(disk, e).await?);
            let (name, new) = ([b'a' + n], [b'a' + m]);
            match disk.rename(ME, (&from, &name), (&to, &new), replace).await {
                // rename(2) allows both errors for a directory that is not empty; XFS returns EEXIST.
                Err(Errno(libc::ENOTEMPTY)) => return Err(Errno(libc::EEXIST)),
                moved => moved?,
            }
        }
        Step::Link(spot, (e, m)) => {
            let fd = open(disk, spot, OpenHow::PATH_ONLY).await?;
            let dir = dir(disk, e).await?;
            disk.link(ME, &fd, &dir, &[b'a' + m]).await?;
        }
        Step::Xattr(spot, k, value) => {
            let fd = file(disk, spot).await?;
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
        Step::Mode(spot, mode) => {
            let fd = file(disk, spot).await?;
            disk.set_mode(ME, &fd, mode.into()).await?;
        }
        Step::List(d) => return Ok(names(disk, &dir(disk, d).await?).await.concat()),
        _ => return apply_data(disk, step).await,
    }
    Ok(String::new())
}

async fn apply_data<D: Disk>(disk: &D, step: &Step) -> Result<String, Errno> {
    match *step {
        Step::Write(spot, at, len) => {
            let data = Bytes::from(vec![(len % 255) as u8 + 1; usize::from(len)]);
            let fd = file(disk, spot).await?;
            return Ok(disk.write(&fd, at.into(), data, false).await?.to_string());
        }
        Step::Truncate(spot, at) => disk.truncate(&file(disk, spot).await?, at.into()).await?,
        Step::Punch(spot, at, len) => {
            let fd = file(disk, spot).await?;
            disk.allocate(&fd, Allocate::Punch, at.into(), len.into())
                .await?;
        }
        Step::Reserve(spot, len) => {
            let fd = file(disk, spot).await?;
            disk.allocate(&fd, Allocate::Reserve, 0, len.into()).await?;
        }
        Step::Copy(spot, from, to, len) => {
            let fd = file(disk, spot).await?;
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
