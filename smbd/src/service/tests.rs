//! A reload of a server with all its parts, without a socket.

use std::path::Path;

use durability::{LatchRecord, LatchStore, Policy};
use smb_server::Client;
use vfs::{Disk, FileKey, Node, VfsError, Volume, linux::LinuxDisk};

use super::*;
use crate::{
    accounts::users,
    host::loop_mount::LoopMount,
    host_vfs::apart,
    runtime::transport,
    state::{flush_journal, latches, state_dir},
};

struct Place {
    state: tempfile::TempDir,
    top: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            state: tempfile::tempdir().unwrap(),
            top: tempfile::tempdir().unwrap(),
        };
        for share in ["a", "b"] {
            let folder = place.top.path().join(share);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("f"), "x").unwrap();
        }
        place
    }

    fn config(&self, shares: &[&str], more: &str) -> Arc<Config> {
        let state = self.state.path();
        let mut text = format!("[server]\nstate_dir = {state:?}\n");
        for share in shares {
            let path = self.top.path().join(share);
            text += &format!("[[share]]\nname = {share:?}\npath = {path:?}\n{more}\n");
        }
        Arc::new(config::parse(&text, Path::new("test.toml")).unwrap())
    }

    fn record(&self, share: &str) -> LatchRecord {
        let disk = LinuxDisk::open(&self.top.path().join(share)).unwrap();
        let key = apart(|| async { disk.stat_at(&disk.root(), b"f").await })
            .unwrap()
            .key;
        LatchRecord {
            path: "f".into(),
            shares: vec![share.into()],
            ..LatchRecord::whole(key, VfsError::Io)
        }
    }
}

pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let options = tokio::runtime::LocalOptions::default();
    let runtime = builder.enable_all().build_local(options).unwrap();
    runtime.block_on(test)
}

const RULE: &str =
    "[[share.durability_rule]]\npaths = [\"*.db\"]\ndurability = \"bounded:1s,1MiB\"\n";

/// An opening that hangs may still write in the state folder when its disk answers again.
#[test]
fn the_first_stores_are_not_opened_while_an_earlier_opening_hangs() {
    let place = Place::new();
    run(async {
        let users = || users::empty().unwrap();
        let holdfast = Holdfast::new(place.config(&["a"], ""), users()).unwrap();
        let apply = |more: &str| {
            let config = place.config(&["a"], more);
            Arc::clone(&holdfast).apply(config, users(), ApplyReason::Reload)
        };
        let hangs = Arc::clone(&holdfast.opening).try_lock_owned().unwrap();
        for first in ["flush_journal = true", "continuous_availability = true"] {
            let Err(error) = apply(first).await else {
                panic!("{first} is in force");
            };
            assert!(error.to_string().contains("the state folder /"), "{error}");
            assert!(error.to_string().contains("\n  = is its disk"), "{error}");
        }
        apply("read_only = true").await.unwrap();
        drop(hangs);
        let both = "flush_journal = true\ncontinuous_availability = true";
        apply(both).await.unwrap();
        assert!(holdfast.server.persistent_opens().is_some());
        assert!(holdfast.stores.status().flush_journal.is_some());
        let hangs = Arc::clone(&holdfast.opening).try_lock_owned().unwrap();
        apply(both).await.unwrap();
        drop(hangs);
    });
}

/// Latches from an earlier run are active when their share can be reached; a latch that is being stored meanwhile
/// refuses no rules.
#[test]
fn a_new_share_has_its_latches_and_its_rules() {
    let place = Place::new();
    let env: Arc<dyn vfs::Env> = Arc::new(TokioEnv::new());
    // The latch is of an unknown file system and is found by its path.
    let unknown = FileKey {
        fs: 3,
        ..place.record("b").key
    };
    run(async {
        let store = latches::open(place.state.path(), &[], Vec::new(), env).unwrap();
        let record = LatchRecord {
            key: unknown,
            ..place.record("b")
        };
        store.set(record).await.unwrap();
    });
    run(async {
        let users = || users::empty().unwrap();
        let holdfast = Holdfast::new(place.config(&["a"], ""), users()).unwrap();
        let durability = Arc::clone(&holdfast.server.durability);
        assert_eq!(durability.poisoned(), []);
        drop(holdfast.stores.latches().set(place.record("a")));
        let config = place.config(&["a", "b"], RULE);
        let applied = Arc::clone(&holdfast)
            .apply(config, users(), ApplyReason::Reload)
            .await;
        let applied = applied.unwrap();
        assert_eq!(applied.in_force.shares, ["a", "b"]);
        applied.stable.await.unwrap();
        let poisoned = durability.poisoned();
        assert_eq!(poisoned.len(), 1);
        assert_eq!(poisoned[0].key, place.record("b").key);
        let shares = holdfast.server.shares();
        for share in shares.iter() {
            assert_eq!(share.gate.rules().iter().count(), 1);
        }
        // Rules wait for a latch that is being stored, and are taken.
        let gate = durability.share(
            "c",
            Arc::clone(&shares.find("a").unwrap().vfs),
            Default::default(),
        );
        let share = &place.config(&["a"], RULE).shares[0];
        drop(holdfast.stores.latches().set(place.record("a")));
        let other = durability.share(
            "d",
            Arc::clone(&shares.find("a").unwrap().vfs),
            Default::default(),
        );
        promises::rules_at_start(&other, share).unwrap_err();
        let terms = || promises::first_terms(gate.clone(), share.clone());
        assert!(terms().await);
        assert_eq!(gate.rules().iter().count(), 1);
        // A change that cannot be made stable is no success.
        durability.restore_latch(&LatchRecord {
            shares: vec!["c".into()],
            ..place.record("a")
        });
        assert!(!terms().await);
    });
}

/// A removed share is remembered while something of it is poisoned, or while a handle of it is being closed. When a
/// share of that name is added again, the configuration of that day holds.
#[test]
fn a_share_that_comes_back_has_its_new_policy_and_rules() {
    for closing in [false, true] {
        let place = Place::new();
        let env: Arc<dyn vfs::Env> = Arc::new(TokioEnv::new());
        run(async {
            let store = latches::open(place.state.path(), &[], Vec::new(), env).unwrap();
            store.set(place.record("a")).await.unwrap();
        });
        run(async {
            let users = || users::empty().unwrap();
            let lazy = format!("durability = \"bounded:1s,1MiB\"\n{RULE}");
            let holdfast = Holdfast::new(place.config(&["a", "b"], &lazy), users()).unwrap();
            assert_eq!(holdfast.server.durability.poisoned().len(), 1);
            let old = holdfast.server.shares();
            let old = closing.then(|| Arc::clone(&old.find("a").unwrap().gate));
            for (shares, not_stable) in [(&["b"][..], false), (&["a", "b"][..], true)] {
                let config = place.config(shares, "");
                let applied = Arc::clone(&holdfast)
                    .apply(config, users(), ApplyReason::Reload)
                    .await;
                let applied = applied.unwrap();
                let named = applied.in_force.not_stable == ["a"];
                applied.stable.await.unwrap();
                assert_eq!(named, not_stable, "{closing}");
            }
            let gate = Arc::clone(&holdfast.server.shares().find("a").unwrap().gate);
            assert_eq!(gate.rules().iter().count(), 0, "{closing}");
            assert_eq!(gate.settings().policy, Policy::Honor, "{closing}");
            drop(old);
        });
    }
}

/// The stricter policy promises what was dirty when the share was removed, too.
#[test]
fn a_share_that_comes_back_with_a_stricter_policy_has_nothing_dirty() {
    let place = Place::new();
    let lazy = "durability = \"treat-host-as-stable-storage\"\naccept_loss = true\n";
    run(async {
        let users = || users::empty().unwrap();
        let holdfast = Holdfast::new(place.config(&["a", "b"], lazy), users()).unwrap();
        let share = Arc::clone(holdfast.server.shares().find("a").unwrap());
        drop(power_tests::write(&share, "new").await);
        drop(share);
        for (shares, dirty) in [(&["b"][..], true), (&["a", "b"][..], false)] {
            let config = place.config(shares, "durability = \"strict-sync\"\n");
            let applied = Arc::clone(&holdfast).apply(config, users(), ApplyReason::Reload);
            applied.await.unwrap().stable.await.unwrap();
            let inodes = holdfast.server.durability.dirty_inodes();
            assert_eq!(inodes > 0, dirty, "{shares:?}");
            // Until the share is back, the status shows what it left.
            let left = holdfast.removed_shares();
            let shown = left
                .iter()
                .any(|left| left.share == "a" && left.exposed_bytes == 4096);
            assert_eq!(shown, dirty, "{left:?}");
            let mut page = Page::default();
            holdfast.metrics(&mut page);
            let sample = "holdfast_exposed_bytes{share=\"a\"} 4096\n";
            assert_eq!(page.finish().contains(sample), dirty);
        }
    });
}

/// The share of a stored latch has another name at the start, and yet another one after a reload. A share on another
/// file system is not concerned.
#[test]
fn a_latch_concerns_its_share_under_another_name() {
    let place = Place::new();
    let env: Arc<dyn vfs::Env> = Arc::new(TokioEnv::new());
    run(async {
        let store = latches::open(place.state.path(), &[], Vec::new(), env).unwrap();
        store.set(place.record("a")).await.unwrap();
    });
    let mount = LoopMount::new("ext4", 16);
    let lazy = "durability = \"treat-host-as-stable-storage\"\naccept_loss = true\n";
    let other = mount.as_ref().map(|mount| {
        let path = mount.path();
        format!("{lazy}[[share]]\nname = \"other\"\npath = {path:?}\n{lazy}")
    });
    let config = |name: &str| {
        let config = place.config(&["a"], other.as_deref().unwrap_or(lazy));
        let mut config = Config::clone(&config);
        config.shares[0].name = name.to_owned();
        Arc::new(config)
    };
    run(async {
        let users = || users::empty().unwrap();
        let holdfast = Holdfast::new(config("c"), users()).unwrap();
        let gate = |name: &str| {
            let shares = holdfast.server.shares();
            shares.find(name).map(|share| Arc::clone(&share.gate))
        };
        for name in ["c", "d"] {
            let applied = Arc::clone(&holdfast).apply(config(name), users(), ApplyReason::Reload);
            applied.await.unwrap().stable.await.unwrap();
            let renamed = gate(name).unwrap();
            assert_eq!(renamed.effective_policy(), Policy::Honor, "{name}");
            assert_eq!(renamed.poisoned().len(), 1, "{name}");
            if let Some(other) = gate("other") {
                let policy = other.effective_policy();
                assert_eq!(policy, Policy::TreatHostAsStableStorage, "{name}");
                assert_eq!(other.poisoned(), [], "{name}");
            }
        }
        let mut name = "d";
        if mount.is_some() {
            // A folder on another file system gets the name that the store knows.
            name = "e";
            let mut moved = Config::clone(&config(name));
            moved.shares[1].name = "a".to_owned();
            let applied =
                Arc::clone(&holdfast).apply(Arc::new(moved), users(), ApplyReason::Reload);
            applied.await.unwrap().stable.await.unwrap();
            assert_eq!(gate(name).unwrap().effective_policy(), Policy::Honor);
        }
        let cleared = Arc::clone(&holdfast).clear_latch(Some(name.to_owned()));
        assert_eq!(cleared.await.unwrap()[0].cleared_inodes, 1);
        assert_eq!(holdfast.server.durability.poisoned(), []);
    });
}

/// As where the file system of the share hung at the start.
#[test]
fn a_latch_concerns_its_share_when_that_is_served_again() {
    let place = Place::new();
    let env: Arc<dyn vfs::Env> = Arc::new(TokioEnv::new());
    run(async {
        let store = latches::open(place.state.path(), &[], Vec::new(), env).unwrap();
        let record = LatchRecord {
            shares: vec!["b".into()],
            ..place.record("a")
        };
        store.set(record).await.unwrap();
    });
    let lazy = "durability = \"treat-host-as-stable-storage\"\naccept_loss = true\n";
    run(async {
        let users = || users::empty().unwrap();
        let holdfast = Holdfast::new(place.config(&["a"], lazy), users()).unwrap();
        let both = place.config(&["a", "b"], lazy);
        let applied = Arc::clone(&holdfast).apply(both, users(), ApplyReason::LateShares);
        applied.await.unwrap().stable.await.unwrap();
        for share in holdfast.server.shares().iter() {
            let name = &share.config.name;
            assert_eq!(share.gate.effective_policy(), Policy::Honor, "{name}");
            assert_eq!(share.gate.poisoned().len(), 1, "{name}");
        }
    });
}

/// A reload may have come into force since the front checked the consent.
#[test]
fn consent_is_that_of_the_configuration_in_force() {
    let place = Place::new();
    run(async {
        let users = || users::empty().unwrap();
        let consents = place.config(&["a"], "accept_loss = true\n");
        let holdfast = Holdfast::new(Arc::clone(&consents), users()).unwrap();
        let setting = PolicySetting {
            share: Some("A".to_owned()),
            policy: Policy::TreatHostAsStableStorage,
            accept_loss: false,
            without_rules: false,
            who: "root".to_owned(),
        };
        setting.check(&consents).unwrap();
        let strict = place.config(&["a"], "");
        let applied = Arc::clone(&holdfast).apply(strict, users(), ApplyReason::Reload);
        applied.await.unwrap().stable.await.unwrap();
        let refused = Arc::clone(&holdfast).set_policy(setting.clone()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("--accept-loss"), "{refused}");
        let gate = Arc::clone(&holdfast.server.shares().find("a").unwrap().gate);
        assert_eq!(gate.settings().policy, Policy::Honor);
        let agreed = PolicySetting {
            accept_loss: true,
            ..setting
        };
        let set = Arc::clone(&holdfast).set_policy(agreed).await;
        assert_eq!(set.unwrap().len(), 1);
        assert_eq!(gate.settings().policy, Policy::TreatHostAsStableStorage);
    });
}

/// A policy that an administrator has set holds until the next reload, whatever share is taken in meanwhile.
#[test]
fn a_late_share_leaves_the_policies_of_the_others() {
    let place = Place::new();
    run(async {
        let users = || users::empty().unwrap();
        let lazy = format!("durability = \"bounded:1s,1MiB\"\n{RULE}");
        let holdfast = Holdfast::new(place.config(&["a"], &lazy), users()).unwrap();
        let setting = PolicySetting {
            share: None,
            policy: Policy::Honor,
            accept_loss: false,
            without_rules: true,
            who: "root".to_owned(),
        };
        Arc::clone(&holdfast).set_policy(setting).await.unwrap();
        let policy = |share: &str| {
            let gate = Arc::clone(&holdfast.server.shares().find(share).unwrap().gate);
            (
                gate.settings().policy.to_string(),
                gate.rules().iter().count(),
            )
        };
        let apply = async |why| {
            let config = place.config(&["a", "b"], &lazy);
            let applied = Arc::clone(&holdfast).apply(config, users(), why).await;
            applied.unwrap().stable.await.unwrap();
        };
        let of_file = ("bounded:1000ms,1MiB".to_owned(), 1);
        apply(ApplyReason::LateShares).await;
        assert_eq!(policy("a"), ("honor".to_owned(), 0));
        assert_eq!(policy("b"), of_file);
        apply(ApplyReason::Reload).await;
        assert_eq!(policy("a"), of_file);
    });
}

#[test]
fn a_share_that_is_not_there_is_named() {
    let place = Place::new();
    run(async {
        let holdfast = Holdfast::new(place.config(&["a"], ""), users::empty().unwrap()).unwrap();
        let refused = holdfast.policies(Some("c")).unwrap_err().to_string();
        assert!(refused.contains("no share `c`"), "{refused}");
    });
}

/// A disk was mounted over the folder, or the folder was replaced.
#[test]
fn a_reload_serves_what_the_path_leads_to_now() {
    let place = Place::new();
    run(async {
        let users = || users::empty().unwrap();
        let holdfast = Holdfast::new(place.config(&["a", "b"], ""), users()).unwrap();
        let served = |share: &str| {
            let share = Arc::clone(holdfast.server.shares().find(share).unwrap());
            (share.id, share.vfs.root().key())
        };
        let (old, kept) = (served("a"), served("b"));
        let at = |name: &str| place.top.path().join(name);
        std::fs::rename(at("a"), at("old")).unwrap();
        std::fs::create_dir(at("a")).unwrap();
        let covered = || holdfast.replaced_folders(&holdfast.config());
        assert_eq!(covered(), ["a"]);
        let config = place.config(&["a", "b"], "");
        std::fs::rename(at("b"), at("moved")).unwrap();
        assert_eq!(covered(), ["a", "b"], "nothing is at the path of `b`");
        let applied = Arc::clone(&holdfast)
            .apply(config, users(), ApplyReason::Reload)
            .await;
        applied.unwrap().stable.await.unwrap();
        let new = served("a");
        assert_ne!(new.0, old.0, "its tree connects end");
        assert_ne!(new.1, old.1);
        assert_eq!(served("b"), kept, "it is served as it is");
        std::fs::rename(at("moved"), at("b")).unwrap();
        assert!(covered().is_empty());
    });
}

#[test]
fn administrators_are_a_group_that_exists() {
    let place = Place::new();
    let mut config = Config::clone(&place.config(&["a"], ""));
    let mut users = users::empty().unwrap();
    assert_eq!(settings::server(&config, &users).administrators, None);
    config.server.administrators = Some("staff".to_owned());
    let refused = check_groups(&config, &users).unwrap_err().to_string();
    assert!(refused.contains("holdfast group add staff"), "{refused}");
    let rid = users.add_group("Staff").unwrap();
    check_groups(&config, &users).unwrap();
    assert_eq!(settings::server(&config, &users).administrators, Some(rid));
}

#[test]
fn the_folder_of_the_user_file_behind_a_link_is_hidden() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let place = Place::new();
    let real = tempfile::tempdir().unwrap();
    let file = real.path().join("users");
    std::fs::write(&file, "").unwrap();
    symlink(&file, place.state.path().join("users")).unwrap();
    let hidden = settings::hidden(&place.config(&["a"], ""));
    for folder in [place.state.path(), real.path()] {
        let meta = std::fs::metadata(folder).unwrap();
        assert!(hidden.contains(&(meta.dev(), meta.ino())));
    }
    assert_eq!(hidden.len(), 2);
}

/// Without the sync at the end, too.
#[test]
fn the_end_is_recorded() {
    let place = Place::new();
    let journal = place.state.path().join(flush_journal::FOLDER);
    run(async {
        let config = place.config(&["a"], "flush_journal = true\n");
        let holdfast = Holdfast::new(config, users::empty().unwrap()).unwrap();
        assert!(
            state_dir::is_owned(&journal),
            "a report must see who writes"
        );
        holdfast.close().await;
    });
    assert!(!state_dir::is_owned(&journal));
    let segments = std::fs::read_dir(journal).unwrap();
    let records = segments.flat_map(|segment| {
        let bytes = std::fs::read(segment.unwrap().path()).unwrap();
        durability::read_segment(&bytes).records
    });
    let ends = records.filter_map(|record| match record {
        durability::JournalRecord::Stop { stable, .. } => Some(stable),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [true]);
}

/// The objects of a connection are cleaned up, whatever its request does.
#[test]
fn a_panic_leaves_nothing_of_its_connection() {
    let place = Place::new();
    let mut users = users::empty().unwrap();
    let password = smb_auth::NtHash::from_password("secret");
    users.add_user("alice").unwrap();
    users.set_password("alice", Some(password), 1).unwrap();
    run(async {
        let holdfast = Holdfast::new(place.config(&["a"], ""), users).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || {
            let client = smb_client::Client::connect(address, Default::default())?;
            client.login("alice", "secret", "").map(drop)
        });
        let (stream, peer) = listener.accept().await.unwrap();
        let (mut receiver, transmitter) = transport::split(stream);
        let server = Arc::clone(&holdfast.server);
        let serving = async move {
            smb_server::serve(
                server,
                Client::New(peer),
                &mut receiver,
                transmitter,
                // Within the request that has just made the session.
                Box::new(|| panic!("as a bug would")),
                std::future::pending(),
                || false,
            )
            .await
            .is_none()
        };
        let serving = tokio::task::spawn_local(serving);
        let ended = tokio::time::timeout(Duration::from_secs(10), serving).await;
        let ended = ended.expect("the connection goes on");
        assert!(ended.unwrap_err().is_panic());
        let left = || {
            let report = holdfast.server.report();
            report.connections.len() + report.sessions.len()
        };
        for _ in 0..2_000 {
            if left() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(left(), 0);
        // The socket is closed with the connection.
        assert!(client.join().unwrap().is_err());
    });
}
