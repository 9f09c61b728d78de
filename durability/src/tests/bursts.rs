//! Bursts under a bound: many changes of every kind at about the same time are on disk in time,
//! however much is known of the disk.

use std::{cell::RefCell, rc::Rc, time::Duration};

use vfs::{Env, RemovedName};

use super::{
    fake::{dir, file, stream},
    flush::{PLAIN, World, one_world},
    sim::{join, ms},
};
use crate::{share::lock, *};

const DELAY: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Overwrite,
    WriteStream,
    Remove,
    NewFile,
    NewFileInItsOwnDirectory,
    NewDirectory,
    Rename,
}

impl Change {
    const ALL: [Self; 7] = [
        Self::Overwrite,
        Self::WriteStream,
        Self::Remove,
        Self::NewFile,
        Self::NewFileInItsOwnDirectory,
        Self::NewDirectory,
        Self::Rename,
    ];

    /// How many syncs make it stable, one after the other.
    fn syncs(self) -> u64 {
        match self {
            Self::Overwrite | Self::WriteStream | Self::Remove => 1,
            Self::NewFile | Self::NewFileInItsOwnDirectory | Self::NewDirectory => 2,
            Self::Rename => 3,
        }
    }

    /// Makes the change number `i`. Answers the names and pages that it promises.
    async fn make(self, w: &World, i: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
        let ino = 10_000 + i;
        let f = file(ino);
        let name = |dir: u64| w.fake.name(dir);
        match self {
            Self::Overwrite | Self::WriteStream => {
                let node = match self {
                    Self::Overwrite => f,
                    _ => stream(ino, "s"),
                };
                w.write(&node, 0, 1).await.unwrap();
                (Vec::new(), vec![(ino, 0)])
            }
            Self::Remove => {
                let from = dir(100 + i % 50);
                let removal = w.gate.begin_removal(&f, &from).await.unwrap();
                let gone = name(from.ino);
                drop(removal.removed(&f, RemovedName::Own, PLAIN).await.unwrap());
                (vec![gone], Vec::new())
            }
            Self::Rename => {
                let names = vec![name(10), name(11)];
                let renamed = w.gate.renamed(&f, &dir(10), &dir(11), PLAIN).await;
                drop(renamed.unwrap());
                (names, Vec::new())
            }
            Self::NewFile | Self::NewFileInItsOwnDirectory | Self::NewDirectory => {
                let parent = match self {
                    Self::NewFileInItsOwnDirectory => dir(1000 + i),
                    _ => dir(10),
                };
                let node = match self {
                    Self::NewDirectory => dir(ino),
                    _ => f,
                };
                let made = name(parent.ino);
                drop(w.gate.created(&node, &parent, PLAIN).await.unwrap());
                (vec![made], Vec::new())
            }
        }
    }
}

/// Makes `count` changes, one every `gap` ms. Returns the longest time from a change's answer until
/// it was on disk.
async fn burst(w: &Rc<World>, change: Change, count: u64, gap: u64) -> Duration {
    let oldest = Rc::new(RefCell::new(Duration::ZERO));
    let clients = (0..count).map(|i| {
        let (w, oldest) = (Rc::clone(w), Rc::clone(&oldest));
        Box::pin(async move {
            w.env.sleep(ms(gap * i)).await;
            let (names, pages) = change.make(&w, i).await;
            let answered = w.env.monotonic();
            let is_stable = || {
                let state = lock(&w.fake.state);
                let mut pages = pages.iter().map(|page| state.pages[page]);
                names.iter().all(|name| state.names[name].1)
                    && pages.all(|page| page.durable == page.live)
            };
            // The last look is at the very moment at which a sync ends.
            while !is_stable() {
                w.env.sleep(ms(5)).await;
            }
            let age = w.env.monotonic() - answered;
            let mut oldest = oldest.borrow_mut();
            *oldest = oldest.max(age);
        }) as vfs::env::LocalTask
    });
    join(&w.env, clients.collect()).await;
    oldest.take()
}

/// How much a share knows of its disk when a burst comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Nothing,
    Now,
    /// The disk was quick, and nothing has been synced for some minutes.
    LongAgo,
}

async fn learn(w: &World, known: Known, sync: u64) {
    lock(&w.fake.times).write = ms(0);
    lock(&w.fake.times).sync = ms(if known == Known::Now { sync } else { 5 });
    if known != Known::Nothing {
        for _ in 0..16 {
            w.write(&file(900), 0, 1).await.unwrap();
            w.flush(&file(900)).await.unwrap();
            w.env.sleep(ms(1000)).await;
        }
    }
    if known == Known::LongAgo {
        w.env.sleep(ms(300_000)).await;
    }
    lock(&w.fake.times).sync = ms(sync);
}

#[test]
fn a_burst_is_on_disk_in_time() {
    let disks = [
        (10, 300),
        (40, 100),
        (90, 100),
        (150, 100),
        (190, 100),
        (300, 100),
    ];
    for ((sync, count), gap) in disks.into_iter().zip([0, 0, 3, 0, 1, 0]) {
        for known in [Known::Nothing, Known::Now, Known::LongAgo] {
            for change in Change::ALL {
                let policy = &format!("bounded:{DELAY}ms,64MiB");
                one_world(policy, Limits::default(), sync, move |w| async move {
                    learn(&w, known, sync).await;
                    let oldest = burst(&w, change, count, gap).await;
                    // The sync of each directory may have to wait for one that runs. Where all of
                    // them take no longer than the bound it holds, else they begin in time.
                    let longest = sync * (2 * change.syncs() - 1);
                    let most = match sync * change.syncs() {
                        chain if chain <= DELAY && longest <= DELAY => DELAY,
                        _ if change.syncs() == 1 && sync <= DELAY => DELAY,
                        _ => DELAY + longest,
                    };
                    let what = format!("{change:?}, syncs of {sync} ms, {known:?}");
                    assert!(oldest <= ms(most), "{what}: {oldest:?} of {most} ms");
                });
            }
        }
    }
}
