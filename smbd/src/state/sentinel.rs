//! The sentinel watches each file system of the shares for failed write-back of inodes that the engine does not
//! hold.
//!
//! The engine holds a descriptor of every dirty inode, so it sees and latches their failures. It does not see those
//! of data that other processes wrote, nor of data that an earlier server left and the sync at the start lost. One
//! descriptor for each file system sees all of them (`syncfs` answers the first error since its last call); it is
//! asked every half minute while something changes through the shares. It is never a barrier.
//!
//! Such an error names no inode. So no inode is poisoned, and no later FLUSH fails for it: a sync through the
//! server's own descriptors is proven, whatever happened elsewhere. But the disk is failing, so there is an event, a
//! metric, and every share of the file system with a lazy policy honors flushes from now on, as after a failed sync,
//! until its policy is set or its latches are cleared. Everything dirty of the shares is synced at once, because the
//! descriptors that the engine holds report what was lost of it, and those of a later server would not. An error that
//! also poisoned an inode is reported twice.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use durability::{Durability, KnownFs};
use vfs::{disk::Errno, linux::SuperBlock};

use crate::{
    answers::WatchedFileSystem, config, host_vfs::HostVfs, lock, metrics::exposition::Page,
    state::recovery,
};

/// How often each file system is asked.
pub(crate) const PERIOD: Duration = Duration::from_secs(30);

/// A file system that the sentinel asks for write-back errors.
pub(crate) struct Watched {
    block: SuperBlock,
    root: String,
    shares: Vec<String>,
    /// The shares' counters when it was last asked.
    seen: Mutex<Option<u64>>,
    errors: Arc<AtomicU64>,
    /// The file system is being asked now. One that hangs is not asked again.
    asking: Arc<AtomicBool>,
}

/// The facts about some shares' file systems.
#[derive(Default)]
pub(crate) struct Look {
    shares: Vec<String>,
    found: Vec<(String, SuperBlock, String)>,
}

impl Look {
    /// The file systems, as the store of latches knows them.
    pub(crate) fn known(&self) -> Vec<KnownFs> {
        let known = self.found.iter().map(|(_, block, root)| KnownFs {
            dev: block.dev(),
            identity: block.identity(),
            root: root.clone(),
        });
        known.collect()
    }
}

/// Opens the file systems of shares. May wait for their disks.
pub(crate) fn look(shares: &[config::ShareSettings]) -> Look {
    let mut seen = Look::default();
    for share in shares {
        seen.shares.push(share.name.clone());
        for (block, root) in recovery::file_systems(&share.name, &share.path) {
            seen.found.push((share.name.clone(), block, root));
        }
    }
    seen
}

/// One descriptor for each file system of the shares.
#[derive(Default)]
pub(crate) struct Sentinels {
    watched: Mutex<Vec<Arc<Watched>>>,
}

impl Sentinels {
    /// Watches the file systems of `seen`, and continues to watch the others that still belong to a share.
    pub(crate) fn adopt(&self, seen: Look, stays: impl Fn(&str) -> bool) {
        let mut watched = lock(&self.watched);
        let mut next: Vec<Watched> = Vec::new();
        for old in watched.iter() {
            let names = old.shares.iter();
            let names = names.filter(|name| stays(name) && !seen.shares.contains(name));
            next.push(Watched {
                // The old descriptor is kept, because it may have an error to report that a new one would not get.
                block: old.block.clone(),
                root: old.root.clone(),
                shares: names.cloned().collect(),
                seen: Mutex::default(),
                errors: Arc::clone(&old.errors),
                asking: Arc::clone(&old.asking),
            });
        }
        for (share, block, root) in seen.found {
            if !stays(&share) {
                continue;
            }
            let same = |one: &&mut Watched| {
                one.block.dev() == block.dev() && one.block.identity() == block.identity()
            };
            match next.iter_mut().find(same) {
                Some(known) if known.shares.contains(&share) => {}
                Some(known) => known.shares.push(share),
                None => next.push(Watched {
                    block,
                    root,
                    shares: vec![share],
                    seen: Mutex::default(),
                    errors: Arc::default(),
                    asking: Arc::default(),
                }),
            }
        }
        next.retain(|one| !one.shares.is_empty());
        next.sort_by_key(|one| one.block.dev());
        *watched = next.into_iter().map(Arc::new).collect();
    }

    fn all(&self) -> Vec<Arc<Watched>> {
        lock(&self.watched).clone()
    }

    /// The shares that have a file system of this device.
    pub(crate) fn shares_on(&self, device: u64) -> Vec<String> {
        let all = self.all().into_iter();
        let on = all.filter(|watched| watched.block.dev() == device);
        on.flat_map(|watched| watched.shares.clone()).collect()
    }

    /// The file systems whose shares counted anything since they were last asked, and which [`Watched::ask`] is to ask
    /// now. `activity` returns the count of a share.
    pub(crate) fn due(&self, activity: impl Fn(&str) -> u64) -> Vec<Arc<Watched>> {
        let mut all = self.all();
        all.retain(|watched| {
            let shares = watched.shares.iter();
            let counted = shares.fold(0, |sum: u64, share| sum.wrapping_add(activity(share)));
            let mut seen = lock(&watched.seen);
            let due = *seen != Some(counted) && !watched.asking.swap(true, Relaxed);
            if due {
                *seen = Some(counted);
            }
            due
        });
        all
    }

    /// The watched file systems with their write-back errors, for `holdfast status`.
    pub(crate) fn status(&self) -> Vec<WatchedFileSystem> {
        let all = self.all();
        let all = all.iter().map(|watched| WatchedFileSystem {
            file_system: watched.root.clone(),
            device: watched.device(),
            shares: watched.shares.clone(),
            write_back_errors: watched.errors.load(Relaxed),
        });
        all.collect()
    }

    /// Writes the number of write-back errors of each file system to the metrics page.
    pub(crate) fn metrics(&self, page: &mut Page) {
        let help = "Failed write-backs that a file system reported, perhaps of files that nobody has open.";
        let mut family = page.family("holdfast_write_back_errors_total", help);
        for watched in self.all() {
            // Another file system may have been mounted there since, so the path alone may name two of them.
            let device = watched.device();
            let labels = [("file_system", &*watched.root), ("device", &*device)];
            family.sample("", &labels, watched.errors.load(Relaxed));
        }
    }
}

impl Watched {
    fn device(&self) -> String {
        format!("{:#x}", self.block.dev())
    }

    /// Asks the file system; informs the engine if it lost something.
    pub(crate) async fn ask(&self, durability: &Durability<HostVfs>) {
        let answer = self.block.write_back().await;
        self.answered(answer, durability);
    }

    fn answered(&self, answer: Result<(), Errno>, durability: &Durability<HostVfs>) {
        match answer {
            Ok(()) => {}
            Err(Errno(libc::EAGAIN)) => {
                // The call was never begun, so it is repeated the next time in any case.
                *lock(&self.seen) = None;
            }
            Err(errno) => self.report(errno, durability),
        }
        self.asking.store(false, Relaxed);
    }

    fn report(&self, errno: Errno, durability: &Durability<HostVfs>) {
        self.errors.fetch_add(1, Relaxed);
        let poisoned = durability.poisoned();
        let here = poisoned.iter().filter(|one| one.key.fs == self.block.dev());
        tracing::error!(
            file_system = self.root,
            error = %errno,
            poisoned_inodes = here.count(),
            "write-back failed: data of some file is lost, perhaps of one that nobody has open \
             and that was not written through this server; what was flushed through this server \
             and is not poisoned is not concerned"
        );
        for share in &self.shares {
            durability.write_back_lost(share);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Write,
    };

    use durability::{Limits, Policy, ShareDurability};
    use vfs::{linux::LinuxDisk, posix::PosixVfs};

    use super::*;
    use crate::{host::loop_mount::LoopMount, host_vfs::apart, runtime::env::TokioEnv};

    fn share(name: &str, path: &std::path::Path) -> config::ShareSettings {
        let text = format!("[[share]]\nname = \"{name}\"\npath = {path:?}\n");
        crate::config::parse(&text, std::path::Path::new("t.toml"))
            .unwrap()
            .shares
            .remove(0)
    }

    /// A real disk that runs full below the file system.
    #[test]
    fn a_lost_write_back_trips_the_shares_of_its_file_system() {
        for kind in ["ext4", "xfs"] {
            let (Some(bad), Some(good)) =
                (LoopMount::on_tmpfs(kind, 400), LoopMount::new("ext4", 16))
            else {
                continue;
            };
            let shares = [share("bad", bad.path()), share("good", good.path())];
            let durability = Durability::new(Arc::new(TokioEnv::new()), Limits::default());
            let lazy = ShareDurability {
                policy: Policy::TreatHostAsStableStorage,
                ..ShareDurability::default()
            };
            let gates: Vec<_> = shares
                .iter()
                .map(|share| {
                    let disk = LinuxDisk::open(&share.path).unwrap();
                    let vfs = apart(|| PosixVfs::new(disk, Default::default())).unwrap();
                    durability.share(&share.name, Arc::new(vfs), lazy)
                })
                .collect();
            let sentinels = Sentinels::default();
            sentinels.adopt(look(&shares), |_| true);
            let count = AtomicU64::new(1);
            let ask = || {
                let due = sentinels.due(|_| count.fetch_add(1, Relaxed));
                due.iter().for_each(|one| apart(|| one.ask(&durability)));
            };
            ask();
            assert_eq!(gates[0].effective_policy(), lazy.policy);

            let mut file = File::create(bad.path().join("f")).unwrap();
            file.write_all(&vec![1; 1 << 20]).unwrap();
            file.sync_all().unwrap();
            rustix::fs::sync();
            bad.starve(512);
            file.write_all(&vec![2; 24 << 20]).unwrap();
            // No descriptor of the file is open any more.
            drop(file);
            ask();
            assert_eq!(gates[0].effective_policy(), Policy::Honor, "{kind}");
            assert_eq!(gates[1].effective_policy(), lazy.policy);
            let status = sentinels.status();
            let errors = |n: usize| status[n].write_back_errors;
            assert_eq!(errors(0).min(1) + errors(1).min(1), 1, "{status:?}");
            // Reported once; a reload forgets nothing.
            gates[0].clear_latches();
            assert_eq!(gates[0].effective_policy(), lazy.policy);
            sentinels.adopt(look(&shares), |_| true);
            assert_eq!(sentinels.status(), status);
            let _ = fs::remove_file(bad.path().join("f"));
        }
    }

    /// The error that a syncfs which never began would have reported is reported without new activity.
    #[test]
    fn an_answer_that_did_not_come_is_asked_for_again() {
        let top = tempfile::tempdir().unwrap();
        let sentinels = Sentinels::default();
        sentinels.adopt(look(&[share("a", top.path())]), |_| true);
        let due = sentinels.due(|_| 4);
        let durability = Durability::new(Arc::new(TokioEnv::new()), Limits::default());
        due[0].answered(Err(Errno(libc::EAGAIN)), &durability);
        assert_eq!(sentinels.due(|_| 4).len(), 1);
    }

    #[test]
    fn a_quiet_file_system_is_not_asked() {
        let top = tempfile::tempdir().unwrap();
        let sentinels = Sentinels::default();
        let shares = [share("a", top.path()), share("b", top.path())];
        sentinels.adopt(look(&shares), |_| true);
        assert_eq!(sentinels.all().len(), 1, "one for two shares");
        assert_eq!(sentinels.all()[0].shares.len(), 2);
        let durability = Durability::new(Arc::new(TokioEnv::new()), Limits::default());
        let seen = || *sentinels.all()[0].seen.lock().unwrap();
        let due = sentinels.due(|_| 4);
        assert_eq!((due.len(), seen()), (1, Some(8)));
        assert!(sentinels.due(|_| 5).is_empty(), "it is being asked");
        apart(|| due[0].ask(&durability));
        assert!(sentinels.due(|_| 4).is_empty());
        assert_eq!(sentinels.due(|_| 5).len(), 1);
        let mut page = Page::default();
        sentinels.metrics(&mut page);
        let page = page.finish();
        assert!(page.contains("holdfast_write_back_errors_total{file_system="));
        assert!(page.contains(&format!(",device=\"{}\"}} 0", sentinels.all()[0].device())));
        // A reload examines only new shares; the others stay as they were seen.
        let asked = sentinels.all()[0].clone();
        asked.asking.store(true, Relaxed);
        sentinels.adopt(look(&[share("c", top.path())]), |name| name != "b");
        let all = sentinels.all();
        assert_eq!(
            (all.len(), all[0].shares.clone()),
            (1, vec!["a".into(), "c".into()])
        );
        assert!(all[0].asking.load(Relaxed), "it is still being asked");
        sentinels.adopt(Look::default(), |_| false);
        assert!(sentinels.all().is_empty());
    }
}
