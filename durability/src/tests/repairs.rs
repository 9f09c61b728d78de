//! Repairs after failed syncs: a loss is repaired only when the same data, name or metadata are set again and synced.

use std::sync::Arc;

use vfs::{Env, VfsError};

use super::{
    fake::{Fake, dir, file, key, stream},
    flush::{PLAIN, honor},
    latch::IO,
    sim::ms,
};
use crate::{share::lock, *};

#[test]
fn a_size_or_metadata_that_failed_is_repaired_by_setting_it_again() {
    honor(|w| async move {
        let f = file(5);
        w.gate.resized(&f, 0, PLAIN).await.unwrap();
        w.gate
            .meta_changed(&f, Meta::Security, PLAIN)
            .await
            .unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.write(&f, 0, 1).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate.resized(&f, 0, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate
            .meta_changed(&f, Meta::Security, PLAIN)
            .await
            .unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn a_size_that_failed_is_not_repaired_by_that_of_another_stream() {
    honor(|w| async move {
        let (f, s) = (file(5), stream(5, "s"));
        for (lost, other) in [(&f, &s), (&s, &f)] {
            w.gate.resized(lost, 0, PLAIN).await.unwrap();
            w.fake.script(5, &[IO, IO]);
            assert_eq!(w.flush(&f).await, IO);
            lock(&w.fake.state).script.clear();
            w.gate.resized(other, 0, PLAIN).await.unwrap();
            w.gate.begin(lost).resized(lost, None, PLAIN).await.unwrap();
            assert_eq!(w.flush(&f).await, IO);
            w.gate.resized(lost, 0, PLAIN).await.unwrap();
            assert_eq!(w.flush(&f).await, Ok(()));
        }
    });
}

#[test]
fn streams_are_repaired_by_their_own_ranges() {
    honor(|w| async move {
        let (f, s) = (file(5), stream(5, "s"));
        w.write(&s, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.write(&f, 0, 1).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.write(&s, 0, 1).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// Data that a stream lost are not proven by writing a new stream of its old name.
#[test]
fn a_stream_that_is_renamed_takes_along_what_it_lost() {
    honor(|w| async move {
        let (old, new) = (stream(5, "s"), stream(5, "t"));
        w.write(&old, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&old).await, IO);
        w.gate.stream_renamed(&new, "s", PLAIN).await.unwrap();
        w.gate.stream_created(&old, PLAIN).await.unwrap();
        w.write(&old, 0, 1).await.unwrap();
        assert_eq!(w.flush(&old).await, IO);
        w.gate.stream_removed(&old, PLAIN).await.unwrap();
        assert_eq!(w.flush(&new).await, IO);
        w.write(&new, 0, 1).await.unwrap();
        assert_eq!(w.flush(&new).await, Ok(()));
    });
    // An earlier stream of the new name was written to, cut or removed: that is not this one.
    for removed in [false, true] {
        honor(move |w| async move {
            let (old, new) = (stream(5, "s"), stream(5, "t"));
            w.write(&old, 0, 1).await.unwrap();
            w.fake.script(5, &[IO]);
            assert_eq!(w.flush(&old).await, IO);
            w.write(&new, 0, 1).await.unwrap();
            match removed {
                true => drop(w.gate.stream_removed(&new, PLAIN).await.unwrap()),
                false => drop(w.gate.resized(&new, 0, PLAIN).await.unwrap()),
            }
            w.gate.stream_renamed(&new, "s", PLAIN).await.unwrap();
            assert_eq!(w.flush(&new).await, IO, "removed: {removed}");
        });
    }
}

#[test]
fn other_metadata_repairs_none_that_was_lost() {
    honor(|w| async move {
        let (f, s) = (file(5), stream(5, "s"));
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        w.gate.stream_created(&s, PLAIN).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        for what in [Meta::Security, Meta::Times, Meta::Attributes] {
            w.gate.meta_changed(&f, what, PLAIN).await.unwrap();
            assert_eq!(w.flush(&f).await, IO, "{what:?}");
        }
        let other = stream(5, "other");
        w.gate.stream_created(&other, PLAIN).await.unwrap();
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO, "the stream");
        // The mark that streams are found by (the depot's) is not written again with one of them.
        w.gate.stream_removed(&s, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate.stream_created(&s, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.gate.clear_latches(), 1);
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// The descriptor and attributes that a file was made with are lost with the sync that was to store them, and
/// another name does not bring them back.
#[test]
fn metadata_given_at_the_creation_are_unproven_after_a_failure() {
    honor(|w| async move {
        let (f, d) = (file(5), dir(50));
        w.gate.created(&f, &d, PLAIN).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.renamed(&f, &d, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO, "the name is stable, the rest is not");
        for what in [Meta::Security, Meta::Times, Meta::Attributes] {
            w.gate.meta_changed(&f, what, PLAIN).await.unwrap();
        }
        w.gate.eas_changed(&f, &["one"]).await.unwrap();
        assert_eq!(
            w.flush(&f).await,
            IO,
            "the names of the others are not known"
        );
        w.gate.overwritten(&f).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// Setting one extended attribute proves nothing of another.
#[test]
fn an_extended_attribute_that_failed_is_repaired_by_setting_it_again() {
    honor(|w| async move {
        let f = file(5);
        w.gate.eas_changed(&f, &["One", "two"]).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.eas_changed(&f, &["two", "three"]).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate.overwritten(&f).await.unwrap();
        assert_eq!(w.flush(&f).await, IO, "its removal may be lost");
        // Nothing was written.
        w.gate.eas_changed(&f, &[]).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate.eas_changed(&f, &["ONE"]).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// A change that failed midway may have set any of them.
#[test]
fn extended_attributes_of_which_nothing_is_known_are_unproven_after_a_failure() {
    honor(|w| async move {
        let f = file(5);
        w.gate.eas_doubtful(&f).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate
            .meta_changed(&f, Meta::Attributes, PLAIN)
            .await
            .unwrap();
        w.gate.eas_changed(&f, &["one"]).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate.overwritten(&f).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// More names than one inode may have dirty are stable before their answer.
#[test]
fn many_extended_attributes_are_synced_before_their_answer() {
    honor(|w| async move {
        let f = file(5);
        let names: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        w.gate.eas_changed(&f, &names[..256]).await.unwrap();
        assert_eq!(w.engine.dirty_inodes(), 1);
        w.gate.eas_changed(&f, &names).await.unwrap();
        assert_eq!(w.engine.dirty_inodes(), 0);
        // A latch that cannot name them all is ended by an administrator.
        w.gate.eas_changed(&f, &names[..200]).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.eas_changed(&f, &names).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
        w.fake.script(5, &[IO]);
        for _ in 0..2 {
            w.gate.eas_changed(&f, &names).await.unwrap_err();
        }
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.gate.clear_latches(), 1);
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// Long names are not all remembered while they are dirty, and nothing is proven of any then.
#[test]
fn long_names_of_extended_attributes_take_a_bounded_amount_of_memory() {
    honor(|w| async move {
        let f = file(5);
        let names: Vec<String> = (0..200).map(|n| format!("{n:0>255}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let known = || {
            let count = |inode: &crate::dirty::Inode<Fake>| inode.pending.set_meta.len();
            w.engine.peek(key(5), count)
        };
        w.gate.eas_changed(&f, &names[..16]).await.unwrap();
        assert_eq!(known(), Some(16));
        w.gate.eas_changed(&f, &names).await.unwrap();
        assert_eq!(known(), Some(1));
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        for some in names.chunks(16) {
            w.gate.eas_changed(&f, some).await.unwrap();
            assert_eq!(w.flush(&f).await, IO, "there may have been others");
        }
        w.gate.overwritten(&f).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
        // A latch that names one is ended by the same name, unless so many are set with it.
        w.gate.eas_changed(&f, &names[..1]).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.eas_changed(&f, &names).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate.eas_changed(&f, &names[..1]).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// Each sync that fails loses other attributes, and fewer than a latch can name.
#[test]
fn a_latch_of_many_failed_syncs_names_a_bounded_number_of_attributes() {
    honor(|w| async move {
        let f = file(5);
        let names: Vec<String> = (0..20).map(|n| format!("{n:0>255}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let set = async |names: &[&str]| drop(w.gate.eas_changed(&f, names).await.unwrap());
        for some in names.chunks(10) {
            set(some).await;
            w.fake.script(5, &[IO]);
            assert_eq!(w.flush(&f).await, IO);
        }
        for some in names.chunks(10) {
            set(some).await;
            assert_eq!(w.flush(&f).await, IO, "their names are not known");
        }
        w.gate.overwritten(&f).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn a_latch_of_many_failed_syncs_names_a_bounded_number_of_streams() {
    honor(|w| async move {
        let f = file(5);
        for n in 0..300 {
            let one = stream(5, &n.to_string());
            w.write(&one, 0, 1).await.unwrap();
            w.fake.script(5, &[IO]);
            assert_eq!(w.flush(&f).await, IO);
        }
        let poisoned = w.gate.poisoned();
        assert_eq!(
            (poisoned[0].unproven.len(), poisoned[0].entries),
            (256, true)
        );
        w.gate.overwritten(&f).await.unwrap();
        assert_eq!(w.flush(&f).await, IO, "only an administrator ends it");
    });
}

/// A truncation ends what is unproven behind the new end only once a sync has stored it.
#[test]
fn what_is_cut_off_stays_unproven_until_that_is_on_disk() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 2).await.unwrap();
        w.fake.script(5, &[Err(VfsError::Io)]);
        assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        drop(w.gate.resized(&f, 4096, PLAIN).await.unwrap());
        let unproven = || w.gate.poisoned()[0].unproven_bytes();
        assert_eq!(unproven(), 8192, "a crash brings the old end back");
        assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        assert_eq!(unproven(), 4096);
        drop(w.gate.resized(&f, 0, PLAIN).await.unwrap());
        w.flush(&f).await.unwrap();
        assert!(w.gate.poisoned().is_empty());
    });
}

#[test]
fn what_is_cut_off_beside_a_failed_sync_stays_unproven() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 2).await.unwrap();
        let begun = w.gate.begin(&f);
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        drop(begun.resized(&f, Some(0), PLAIN).await.unwrap());
        assert_eq!(w.flush(&f).await, IO);
        let unproven = w.gate.poisoned()[0].unproven_bytes();
        assert_eq!(
            unproven,
            u64::MAX,
            "the failed sync may have lost the new end"
        );
        drop(w.gate.resized(&f, 0, PLAIN).await.unwrap());
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// A sync that began after the failure, and before the change was marked, need not have covered it.
#[test]
fn a_sync_under_way_does_not_repair_what_joins_the_latch_meanwhile() {
    honor(|w| async move {
        let f = file(5);
        let begun = w.gate.begin(&f);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.write(&f, 0, 1).await.unwrap();
        let hidden = w.gate.meta_changed(&f, Meta::Attributes, PLAIN);
        drop(hidden.await.unwrap());
        let (gate, node) = (Arc::clone(&w.gate), f.clone());
        w.env.spawn(Box::pin(async move {
            drop(gate.flush(&node, FlushTarget::File, PLAIN).await);
        }));
        w.env.sleep(ms(5)).await;
        let created = begun.metadata_changed(&f, Meta::Attributes, PLAIN);
        drop(created.await.unwrap());
        w.env.sleep(ms(20)).await;
        assert_eq!(w.flush(&f).await, IO);
        let again = w.gate.meta_changed(&f, Meta::Attributes, PLAIN);
        drop(again.await.unwrap());
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// All extended attributes were set anew before the sync began, and some of them may have changed since.
#[test]
fn a_sync_under_way_does_not_repair_extended_attributes_that_become_doubtful() {
    honor(|w| async move {
        let f = file(5);
        let begun = w.gate.begin(&f);
        drop(w.gate.overwritten(&f).await.unwrap());
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        drop(w.gate.overwritten(&f).await.unwrap());
        let (gate, node) = (Arc::clone(&w.gate), f.clone());
        w.env.spawn(Box::pin(async move {
            drop(gate.flush(&node, FlushTarget::File, PLAIN).await);
        }));
        w.env.sleep(ms(5)).await;
        drop(begun.eas_doubtful(&f, PLAIN).await.unwrap());
        w.env.sleep(ms(20)).await;
        assert_eq!(w.flush(&f).await, IO);
        drop(w.gate.overwritten(&f).await.unwrap());
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// After a crash the lost bytes may be there again, and then stand within the larger size.
#[test]
fn a_larger_size_does_not_repair_a_truncation_whose_sync_failed() {
    honor(|w| async move {
        let f = file(5);
        let sized = async |size: u64| drop(w.gate.resized(&f, size, PLAIN).await.unwrap());
        for beside in [false, true] {
            let begun = w.gate.begin(&f);
            if !beside {
                sized(4096).await;
            }
            w.write(&f, 0, 1).await.unwrap();
            w.fake.script(5, &[IO]);
            assert_eq!(w.flush(&f).await, IO);
            if beside {
                drop(begun.resized(&f, Some(4096), PLAIN).await.unwrap());
            }
            w.write(&f, 0, 1).await.unwrap();
            sized(8192).await;
            assert_eq!(w.flush(&f).await, IO, "{beside}");
            assert_eq!(w.gate.poisoned()[0].unproven_bytes(), 4096);
            w.write(&f, 1, 1).await.unwrap();
            assert_eq!(w.flush(&f).await, Ok(()), "{beside}");
        }
    });
}
