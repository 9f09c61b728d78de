//! Tests of what outlives the process: when latches and flushes are handed to their stores, and
//! what waits for that.

use std::{
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use vfs::{Env, FileKey, RemovedName, VfsError};

use super::{
    fake::{dir, file, key},
    flush::{PLAIN, World, honor, world},
    sim::{TestEnv, join, ms},
};
use crate::{share::lock, *};

const IO: Result<(), VfsError> = Err(VfsError::Io);
const HOST: &str = "treat-host-as-stable-storage";

/// A store that takes its time and notes what it was given.
struct Slow {
    env: Arc<TestEnv>,
    span: Duration,
    set: Mutex<Vec<LatchRecord>>,
    log: Mutex<Vec<String>>,
    flushes: Mutex<Vec<FlushRecord>>,
    source: Mutex<Option<Arc<dyn ExposureSource>>>,
    /// When the last record handed over is stable.
    until: Mutex<Duration>,
}

impl Slow {
    fn new(w: &World, span: u64) -> Arc<Self> {
        Arc::new(Self {
            env: Arc::clone(&w.env),
            span: ms(span),
            set: Mutex::default(),
            log: Mutex::default(),
            flushes: Mutex::default(),
            source: Mutex::default(),
            until: Mutex::default(),
        })
    }

    fn restore(&self) -> Vec<LatchRecord> {
        lock(&self.set).clone()
    }

    fn log(&self, line: String) {
        lock(&self.log).push(line);
    }

    fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.log))
    }

    fn task(&self) -> StoreTask {
        *lock(&self.until) = self.env.monotonic() + self.span;
        let sleep = self.env.sleep(self.span);
        Box::pin(async move {
            sleep.await;
            Ok(())
        })
    }
}

impl LatchStore for Slow {
    fn set(&self, record: LatchRecord) -> StoreTask {
        self.log(format!("set {}", record.key.ino));
        lock(&self.set).push(record);
        self.task()
    }

    fn cleared(&self, key: FileKey) -> StoreTask {
        self.log(format!("cleared {}", key.ino));
        lock(&self.set).retain(|record| record.key != key);
        self.task()
    }

    fn set_overflow(&self, _: bool) -> StoreTask {
        Box::pin(std::future::ready(Ok(())))
    }

    fn end_of_writes(&self) -> Option<StoreTask> {
        let left = lock(&self.until).checked_sub(self.env.monotonic())?;
        let sleep = self.env.sleep(left);
        Some(Box::pin(async move {
            sleep.await;
            Ok(())
        }))
    }
}

impl FlushJournal for Slow {
    fn wants(&self, share: &str) -> bool {
        share == "share"
    }

    fn flushed(&self, record: FlushRecord) -> StoreTask {
        self.log(format!("flushed {}", record.key.ino));
        lock(&self.flushes).push(record);
        self.task()
    }

    fn promised(&self, record: FlushRecord) {
        self.log(format!("promised {}", record.key.ino));
        lock(&self.flushes).push(record);
    }

    fn cover(&self, share: &str, bytes: u64, _: Duration) -> Option<StoreTask> {
        self.log(format!("cover {share} {bytes}"));
        Some(self.task())
    }

    fn set_source(&self, source: Arc<dyn ExposureSource>) {
        *lock(&self.source) = Some(source);
    }
}

#[test]
fn a_failing_reply_waits_until_its_latch_is_kept() {
    honor(|w| async move {
        let store = Slow::new(&w, 50);
        w.engine.keep_latches(store.clone());
        let (f, g, d) = (file(5), file(6), dir(10));
        let opener = Opener {
            path: "dir/f".into(),
            ..Opener::default()
        };
        let open = w.gate.opened(&f, Arc::new(opener));
        w.write(&f, 3, 1).await.unwrap();
        w.gate.meta_changed(&f, Meta::Times, PLAIN).await.unwrap();
        w.fake.script(5, &[IO]);
        let begun = w.env.monotonic();
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(
            w.env.monotonic() - begun,
            ms(60),
            "10 of the sync, 50 of the store"
        );
        let record = lock(&store.set)[0].clone();
        assert_eq!(record.path, "dir/f");
        assert_eq!(record.shares, ["share"]);
        assert_eq!(record.unproven[0].ranges, [(3 * 4096, 4 * 4096)]);
        assert!(record.metadata && !record.size && !record.entries);
        assert_eq!(w.gate.poisoned()[0].path, "dir/f");
        // Each later failure is reported at once: there is nothing new to store.
        let begun = w.env.monotonic();
        assert_eq!(w.gate.closed(&f, PLAIN).await.err(), IO.err());
        assert_eq!(w.env.monotonic(), begun);
        assert_eq!(store.take_log(), ["set 5"]);
        // A directory's failure poisons the inodes whose names it lost; the reply waits for that.
        w.create(&g, &d).await.unwrap();
        w.fake.script(10, &[IO]);
        let begun = w.env.monotonic();
        assert_eq!(w.flush(&g).await, IO);
        assert_eq!(w.env.monotonic() - begun, ms(70));
        let mut log = store.take_log();
        log.sort();
        assert_eq!(log, ["set 10", "set 6"]);
        // The repair is passed to the store, and the reply does not wait for it.
        w.write(&f, 3, 1).await.unwrap();
        w.gate.meta_changed(&f, Meta::Times, PLAIN).await.unwrap();
        let begun = w.env.monotonic();
        assert_eq!(w.flush(&f).await, Ok(()));
        assert_eq!(w.env.monotonic() - begun, ms(10));
        assert!(w.engine.clear_latch(key(10)));
        assert_eq!(store.take_log(), ["cleared 5", "cleared 10"]);
        drop(open);
    });
}

#[test]
fn what_a_failed_sync_may_have_dropped_is_kept_before_its_write_is_answered() {
    honor(|w| async move {
        let store = Slow::new(&w, 50);
        w.engine.keep_latches(store.clone());
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        lock(&w.fake.times).write = ms(30);
        let tasks = [true, false].map(|write| {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move {
                if write {
                    let begun = w.env.monotonic();
                    w.write(&f, 7, 1).await.unwrap();
                    assert_eq!(w.env.monotonic() - begun, ms(80));
                } else {
                    w.env.sleep(ms(1)).await;
                    assert_eq!(w.engine.barrier(key(5), None).await, IO);
                }
            }) as vfs::env::LocalTask
        });
        join(&w.env, tasks.into()).await;
        assert_eq!(store.take_log(), ["set 5", "set 5"]);
        let record = lock(&store.set)[1].clone();
        let ranges = &record.unproven[0].ranges;
        assert_eq!(*ranges, [(0, 4096), (7 * 4096, 8 * 4096)]);
    });
}

#[test]
fn a_latch_read_back_holds_until_repaired() {
    honor(|w| async move {
        let store = Slow::new(&w, 1);
        w.engine.keep_latches(store.clone());
        let f = file(5);
        w.write(&f, 2, 1).await.unwrap();
        w.fake.script(5, &[Err(VfsError::NoSpace)]);
        assert_eq!(w.flush(&f).await, Err(VfsError::NoSpace));
        // The next run of the server.
        let env = Arc::clone(&w.env) as Arc<dyn Env>;
        let engine = Durability::new(env, Limits::default());
        let host = ShareDurability::with_policy(HOST.parse().unwrap());
        let gate = engine.share("share", Arc::clone(&w.fake), host);
        store
            .restore()
            .iter()
            .for_each(|record| engine.restore_latch(record));
        engine.keep_latches(store.clone());
        assert_eq!(gate.effective_policy(), Policy::Honor);
        assert_eq!(gate.poisoned()[0].unproven_bytes(), 4096);
        let flush = || gate.flush(&f, FlushTarget::File, PLAIN);
        assert_eq!(
            flush().await.err(),
            Some(VfsError::NoSpace),
            "under a lazy policy too"
        );
        let write = |page: u64| gate.write(&f, page * 4096, vec![1; 4096].into(), PLAIN);
        write(1).await.unwrap();
        engine.sync_all().await;
        assert_eq!(
            flush().await.err(),
            Some(VfsError::NoSpace),
            "something else"
        );
        write(2).await.unwrap();
        engine.sync_all().await;
        assert!(flush().await.is_ok());
        assert!(lock(&store.set).is_empty());
    });
}

/// Until the removal of its last name is on disk, a power failure brings a file back, with what is lost of it.
#[test]
fn the_stored_latch_of_a_removed_file_ends_when_its_removal_is_on_disk() {
    for (replaced, fails) in [(false, false), (true, false), (false, true), (true, true)] {
        honor(move |w| async move {
            let store = Slow::new(&w, 1);
            w.engine.keep_latches(store.clone());
            let (f, d) = (file(5), dir(10));
            w.write(&f, 0, 1).await.unwrap();
            w.fake.script(5, &[IO]);
            assert_eq!(w.flush(&f).await, IO);
            w.fake.take_log();
            store.take_log();
            lock(&w.fake.state).links.insert(5, 0);
            if fails {
                w.fake.script(10, &[IO]);
            }
            if replaced {
                w.gate.begin_replacement(&f, &d).await.unwrap();
                drop(w.gate.replaced(&f, &d, PLAIN).await);
            } else {
                drop(w.gate.removed(&f, &d, PLAIN).await.unwrap());
            }
            assert!(w.gate.poisoned().is_empty());
            w.env.sleep(ms(5)).await;
            assert_eq!(store.take_log(), [""; 0], "the directory is being synced");
            w.env.sleep(ms(100)).await;
            let (synced, stored) = match fails {
                false => ("all 10", "cleared 5"),
                true => ("all 10!", "set 10"),
            };
            assert_eq!(w.fake.take_log(), [synced]);
            assert_eq!(store.take_log(), [stored]);
        });
    }
}

/// The file was moved before its sync failed, or one of its hard links was removed after that, so it may come back in
/// another directory, too.
#[test]
fn a_stored_latch_waits_for_every_directory_that_the_removed_file_was_in() {
    for moved in [true, false] {
        honor(move |w| async move {
            let store = Slow::new(&w, 1);
            w.engine.keep_latches(store.clone());
            let (f, old, new) = (file(5), dir(10), dir(11));
            if moved {
                w.rename(&f, &old, &new).await.unwrap();
            }
            w.fake.script(5, &[IO]);
            assert_eq!(w.flush(&f).await, IO);
            if !moved {
                drop(w.gate.removed(&f, &old, PLAIN).await.unwrap());
            }
            w.fake.take_log();
            store.take_log();
            lock(&w.fake.state).links.insert(5, 0);
            drop(w.gate.removed(&f, &new, PLAIN).await.unwrap());
            w.env.sleep(ms(15)).await;
            assert_eq!(store.take_log(), [""; 0]);
            w.env.sleep(ms(100)).await;
            assert_eq!(w.fake.take_log(), ["all 11", "all 10"]);
            assert_eq!(store.take_log(), ["cleared 5"]);
        });
    }
}

/// Another request removes its other name at the same time, and has not marked that yet when the last name is gone.
#[test]
fn a_stored_latch_waits_for_a_hard_link_that_is_removed_beside() {
    honor(|w| async move {
        let store = Slow::new(&w, 1);
        w.engine.keep_latches(store.clone());
        let (f, d, e) = (file(5), dir(10), dir(11));
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.fake.take_log();
        store.take_log();
        lock(&w.fake.state).links.insert(5, 0);
        let beside = w.gate.begin_removal(&f, &e).await.unwrap();
        drop(w.gate.removed(&f, &d, PLAIN).await.unwrap());
        w.env.sleep(ms(5)).await;
        drop(beside.removed(&f, RemovedName::Own, PLAIN).await.unwrap());
        w.env.sleep(ms(10)).await;
        assert_eq!(store.take_log(), [""; 0], "the second one is being synced");
        w.env.sleep(ms(100)).await;
        assert_eq!(w.fake.take_log(), ["all 10", "all 11"]);
        assert_eq!(store.take_log(), ["cleared 5"]);
    });
}

/// The removal of one of its hard links is lost by a failed sync, so that name may come back.
#[test]
fn a_stored_latch_stays_if_a_directory_that_lost_a_hard_link_is_poisoned() {
    honor(|w| async move {
        let store = Slow::new(&w, 1);
        w.engine.keep_latches(store.clone());
        let (f, old, new) = (file(5), dir(10), dir(11));
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        drop(w.gate.removed(&f, &old, PLAIN).await.unwrap());
        w.fake.script(10, &[IO]);
        assert_eq!(w.flush(&old).await, IO);
        w.fake.take_log();
        store.take_log();
        lock(&w.fake.state).links.insert(5, 0);
        drop(w.gate.removed(&f, &new, PLAIN).await.unwrap());
        w.env.sleep(ms(100)).await;
        assert_eq!(w.fake.take_log(), ["all 11"]);
        assert_eq!(store.take_log(), [""; 0]);
    });
}

#[test]
fn an_honored_flush_is_answered_when_the_journal_has_it() {
    honor(|w| async move {
        let journal = Slow::new(&w, 50);
        w.engine.keep_journal(journal.clone());
        let f = file(5);
        lock(&w.fake.state).sizes.insert(5, 4096);
        w.write(&f, 0, 1).await.unwrap();
        let begun = w.env.monotonic();
        w.flush(&f).await.unwrap();
        assert_eq!(w.env.monotonic() - begun, ms(60));
        assert_eq!(journal.take_log(), ["flushed 5"]);
        let record = lock(&journal.flushes).remove(0);
        assert_eq!((record.size, record.bytes), (4096, 4096));
        assert_eq!(
            (record.share.as_str(), record.policy),
            ("share", Policy::Honor)
        );
        // A FLUSH that failed is not recorded.
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        assert!(journal.take_log().is_empty());
    });
}

#[test]
fn what_is_answered_before_the_disk_is_covered_first() {
    world(HOST, Limits::default(), |w| async move {
        let journal = Slow::new(&w, 50);
        w.engine.keep_journal(journal.clone());
        let f = file(5);
        let begun = w.env.monotonic();
        w.write(&f, 0, 1).await.unwrap();
        assert_eq!(w.env.monotonic() - begun, ms(60), "10 of the write");
        assert_eq!(journal.take_log(), ["cover share 4096"]);
        let begun = w.env.monotonic();
        w.flush(&f).await.unwrap();
        assert_eq!(w.env.monotonic() - begun, ms(50));
        let log = journal.take_log();
        assert_eq!(log, ["cover share 4096", "promised 5"]);
        let source = lock(&journal.source).clone().unwrap();
        let exposed = source.exposure_of("share").unwrap();
        assert_eq!(exposed.exposure.bytes, 4096);
        assert_eq!((exposed.files.len(), exposed.files[0].bytes), (1, 4096));
        assert!(source.exposure_of("other").is_none());
    });
}
