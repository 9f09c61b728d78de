//! Directories whose names or moves were lost by a failed sync: which promises below them fail, and for how long.

use std::sync::Arc;

use bytes::Bytes;
use vfs::{Env, VfsError};

use super::{
    fake::{dir, file, key, stream},
    flush::{PLAIN, THROUGH, honor},
    opens::opener,
    sim::ms,
};
use crate::{share::lock, *};

const IO: Result<(), VfsError> = Err(VfsError::Io);

/// The sync of a directory's stream is that of the directory.
#[test]
fn a_directory_whose_stream_could_not_be_synced_has_dirty_names_for_good() {
    honor(|w| async move {
        let (d, f) = (dir(10), file(5));
        w.create(&f, &d).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.flush(&stream(10, "s")).await, IO);
        assert_eq!(w.flush(&f).await, IO, "its name is lost");
        assert_eq!(w.flush(&f).await, IO, "and stays lost");
    });
}

#[test]
fn a_lost_move_of_a_directory_fails_what_is_below_and_nothing_else() {
    honor(|w| async move {
        let (root, a, m, f, g) = (dir(1), dir(10), dir(11), file(5), file(6));
        let other = w.engine.share(
            "other",
            Arc::clone(&w.fake),
            ShareDurability::with_policy("bounded:50ms,64KiB".parse().unwrap()),
        );
        w.create(&f, &m).await.unwrap();
        w.flush(&f).await.unwrap();
        for (node, path) in [(&a, "a"), (&m, "A/M"), (&f, "a/m/sub/F"), (&g, "a/more")] {
            w.is_at(node, path);
        }
        let open_below = w.gate.opened(&f, opener("a/m/sub/F"));
        w.flush(&f).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.rename(&m, &root, &a).await, IO);
        for _ in 0..3 {
            assert_eq!(w.flush(&f).await, IO);
        }
        assert_eq!(w.write_as(&f, 0, 1, THROUGH).await, IO);
        let below = other.flush(&f, FlushTarget::File, PLAIN).await;
        assert_eq!(below.err(), Some(VfsError::Io), "under no policy");
        let open = w.gate.opened(&g, opener("a/more"));
        assert_eq!(w.flush(&g).await, Ok(()), "it is beside");
        assert_eq!(w.write_as(&g, 0, 1, THROUGH).await, Ok(()));
        let closed = w.gate.closed(&f, PLAIN).await;
        assert!(closed.is_ok(), "nothing is promised by a CLOSE");
        // The directory above moves, and with it both.
        w.is_at(&m, "z/m");
        w.is_at(&f, "z/m/sub/f");
        let _ = w.rename(&a, &root, &root).await;
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.flush(&g).await, Ok(()));
        drop(open);
        lock(&w.fake.state).paths.remove(&g.ino);
        assert_eq!(w.flush(&g).await, IO, "nobody knows where it is");
        // The share that the loss affects lists the latch, and can end it.
        assert!(
            other
                .poisoned()
                .iter()
                .any(|poisoned| poisoned.key == key(11))
        );
        assert!(w.engine.clear_latch(key(11)));
        assert!(w.engine.clear_latch(key(5)), "its new path was found below");
        w.flush(&f).await.unwrap();
        w.flush(&g).await.unwrap();
        // It moves again, and that is proven.
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.rename(&m, &root, &a).await, IO);
        assert_eq!(w.flush(&f).await, IO);
        assert!(w.engine.clear_latch(key(10)), "what else it lost");
        w.rename(&m, &a, &root).await.unwrap();
        w.flush(&f).await.unwrap();
        drop(open_below);
    });
}

/// The FLUSH waits as under `honor`, and nothing of the file is dirty: only the request shows where the file is.
#[test]
fn a_clean_file_beside_a_lost_directory_is_flushed_on_a_disk_too_slow_for_the_bound() {
    honor(|w| async move {
        let (root, a, m, g) = (dir(1), dir(10), dir(11), file(6));
        for (node, path) in [(&a, "a"), (&m, "a/m"), (&g, "a/more")] {
            w.is_at(node, path);
        }
        lock(&w.fake.times).sync = ms(80);
        let bounded = ShareDurability::with_policy("bounded:50ms,64KiB".parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
        let open = other.opened(&g, opener("a/more"));
        let data = Bytes::from(vec![1; 4096]);
        drop(other.write(&g, 0, data, PLAIN).await.unwrap());
        w.env.sleep(ms(1000)).await;
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.rename(&m, &root, &a).await, IO);
        let dirty = w.engine.peek(key(6), |inode| inode.is_dirty());
        assert_eq!(dirty, Some(false));
        let flushed = other.flush(&g, FlushTarget::File, PLAIN).await;
        assert_eq!(flushed.err(), None, "it is beside");
        assert_eq!(other.counters().flushes_honored, 1, "it waited");
        drop(open);
    });
}

#[test]
fn what_is_dirty_beside_a_lost_directory_is_synced_without_an_error() {
    honor(|w| async move {
        let (root, a, m, g) = (dir(1), dir(10), dir(11), file(6));
        for (node, path) in [(&a, "a"), (&m, "a/m"), (&g, "a/more")] {
            w.is_at(node, path);
        }
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.rename(&m, &root, &a).await, IO);
        w.write(&g, 0, 1).await.unwrap();
        let report = w.gate.sync().await;
        let failed: Vec<_> = report.errors.iter().map(|(key, _)| *key).collect();
        assert!(
            !failed.is_empty() && !failed.contains(&key(6)),
            "{failed:?}"
        );
    });
}

#[test]
fn a_lost_directory_is_known_after_a_restart() {
    honor(|w| async move {
        let (m, f, g) = (dir(11), file(5), file(6));
        w.is_at(&f, "a/m/f");
        w.is_at(&g, "a/g");
        w.engine.restore_latch(&LatchRecord {
            key: m.key_of(),
            error: VfsError::Io,
            at: Default::default(),
            sequence: 1,
            unproven: Vec::new(),
            metadata: false,
            size: false,
            entries: false,
            file: false,
            names: vec![key(10)],
            path: "a/m".into(),
            shares: vec!["share".into()],
        });
        assert_eq!(w.flush(&f).await, IO);
        let open = w.gate.opened(&g, opener("a/g"));
        assert_eq!(w.flush(&g).await, Ok(()));
        // Where it is by now nobody knows.
        let other = dir(12);
        w.is_at(&other, "other");
        let _ = w.rename(&other, &dir(1), &dir(1)).await;
        assert_eq!(w.flush(&g).await, IO);
        assert!(w.engine.clear_latch(m.key_of()));
        let _ = w.engine.clear_latch(other.key_of());
        assert_eq!(w.flush(&g).await, Ok(()));
        drop(open);
    });
}

#[test]
fn what_is_made_in_a_lost_directory_is_lost_with_it() {
    honor(|w| async move {
        let (root, d, f) = (dir(1), dir(10), file(5));
        w.is_at(&d, "d");
        w.is_at(&f, "d/f");
        w.create(&d, &root).await.unwrap();
        w.fake.script(1, &[Err(VfsError::Io)]);
        assert_eq!(w.flush(&d).await, IO);
        w.create(&f, &d).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.flush(&f).await, IO);
    });
}

/// The file is found by a name elsewhere, too.
#[test]
fn a_link_made_in_a_lost_directory_is_lost_whatever_other_name_is_flushed() {
    honor(|w| async move {
        let (root, d, e, f) = (dir(1), dir(10), dir(11), file(5));
        w.is_at(&d, "d");
        w.is_at(&e, "d/e");
        w.is_at(&f, "f");
        w.create(&e, &d).await.unwrap();
        w.flush(&e).await.unwrap();
        w.fake.script(1, &[Err(VfsError::Io)]);
        assert_eq!(w.rename(&d, &root, &root).await, IO);
        w.gate.linked(&f, &e, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.flush(&f).await, IO, "nor later");
    });
}

/// A directory whose sync failed has lost what was made in it, whatever becomes of its own name.
#[test]
fn a_directory_that_moves_has_still_lost_what_was_in_it() {
    honor(|w| async move {
        let (root, to, d, f) = (dir(1), dir(12), dir(10), file(5));
        w.create(&d, &root).await.unwrap();
        w.create(&f, &d).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.rename(&d, &root, &to).await, IO);
        assert_eq!(w.flush(&d).await, IO);
    });
}

#[test]
fn a_directory_that_may_come_back_takes_what_is_below_along() {
    honor(|w| async move {
        let (old, new, d, f) = (dir(10), dir(11), dir(12), file(5));
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.rename(&d, &old, &new).await, IO, "it may come back there");
        assert_eq!(w.flush(&f).await, IO, "under its old path");
    });
}
