//! The power guard in a server with all its parts, on power supplies that are made up.

use std::{
    fs,
    path::{Path, PathBuf},
};

use durability::{Earlier, FlushTarget, OpenPolicy, Opener, Policy, RequestFlags};
use vfs::{Creation, Identity, NewNode, Volume};

use super::{tests::run, *};
use crate::{accounts::users, answers::SetAsideReason, host::protection, status};

/// Bound on the waits for the guard, in steps of 5 ms: it checks every 5 ms.
const STEPS: u32 = 4_000;

/// A server with one share, on a machine with one UPS.
struct Host {
    top: tempfile::TempDir,
}

impl Host {
    fn new(status: &str) -> Self {
        let host = Self {
            top: tempfile::tempdir().unwrap(),
        };
        for folder in ["state", "a", "sys/class/power_supply/ups"] {
            fs::create_dir_all(host.path(folder)).unwrap();
        }
        fs::write(host.path("sys/class/power_supply/ups/type"), "UPS\n").unwrap();
        host.ups(status);
        host
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.top.path().join(inside)
    }

    fn ups(&self, status: &str) {
        let new = self.path("status");
        fs::write(&new, format!("{status}\n")).unwrap();
        fs::rename(new, self.path("sys/class/power_supply/ups/status")).unwrap();
    }

    fn config(&self, protection: &str, share: &str) -> Arc<Config> {
        let text = format!(
            "[server]\nstate_dir = {:?}\nfile_io = \"threads\"\n\
             [durability]\nprotection = \"{protection}\"\n\
             [[share]]\nname = \"a\"\npath = {:?}\n{share}\n",
            self.path("state"),
            self.path("a"),
        );
        Arc::new(config::parse(&text, Path::new("test.toml")).unwrap())
    }

    fn start(&self, config: Arc<Config>) -> Arc<Holdfast> {
        let root = protection::Root {
            sys: self.path("sys"),
            proc: self.path("proc"),
        };
        let period = Duration::from_millis(5);
        let source = Source { root, period };
        Holdfast::on(config, users::empty().unwrap(), source).unwrap()
    }
}

/// As worker 0 does.
fn watch(holdfast: &Arc<Holdfast>) -> tokio::task::JoinHandle<()> {
    let (me, durability) = (
        Arc::clone(holdfast),
        Arc::clone(&holdfast.server.durability),
    );
    let protection = move || me.config().durability.protection;
    let power = Arc::clone(&holdfast.power);
    tokio::task::spawn_local(power.watch(durability, std::future::pending(), protection))
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..STEPS {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within {STEPS} steps: {what}");
}

/// A new file with something acknowledged, and flushed as its policy has it; still open.
pub(super) async fn write(share: &Share<HostVfs>, name: &str) -> OpenPolicy<HostVfs> {
    let (vfs, gate, plain) = (&share.vfs, &share.gate, RequestFlags::default());
    let (root, new) = (vfs.root(), NewNode::default());
    let begun = gate.begin(&root);
    let made = vfs.create(&Identity::Service, &root, name, &new, false);
    let (node, _) = made.await.unwrap();
    let open = gate.opened(&node, Arc::new(opener(name)));
    let _ = begun.created(&node, &root, plain).await.unwrap();
    let data = vec![7; 4096].into();
    let mut change = gate.contents(&node);
    let _ = change.write(0, data, plain).await.unwrap();
    let flushed = gate.flush_after(&node, FlushTarget::File, plain, Earlier::All);
    let _ = flushed.await.unwrap();
    open
}

fn opener(path: &str) -> Opener {
    Opener {
        path: path.into(),
        ..Opener::default()
    }
}

fn said(holdfast: &Holdfast) -> (ShareStatus, String, String) {
    let mut page = Page::default();
    holdfast.metrics(&mut page);
    let shares = holdfast.shares_status();
    let words = status::shares::in_words(&shares);
    (shares[0].clone(), words, page.finish())
}

#[test]
fn on_the_battery_flushes_are_honored_and_what_was_dirty_is_made_stable() {
    let lazy = Policy::TreatHostAsStableStorage.to_string();
    for (policy, aside) in [
        (
            format!("durability = \"{lazy}\""),
            format!("configured is {lazy}, set aside"),
        ),
        (
            "durability = \"bounded:60s,64MiB\"".to_owned(),
            "configured is bounded:60000ms,64MiB, set aside".to_owned(),
        ),
        (
            format!("[[share.durability_rule]]\npaths = [\"*\"]\ndurability = \"{lazy}\""),
            "lazy rules are set aside for honor".to_owned(),
        ),
    ] {
        let host = Host::new("Full");
        run(async {
            let holdfast = host.start(host.config("ups", &policy));
            let watching = watch(&holdfast);
            let shares = holdfast.server.shares();
            let share = shares.find("a").unwrap();
            let decided = || share.gate.explain(&opener("f")).policy;
            let configured = decided();
            assert_ne!(configured, Policy::Honor);
            let _f = write(share, "f").await;
            assert_eq!(share.gate.exposure().inodes, 1);

            host.ups("Discharging");
            until("owed is paid", || share.gate.exposure().inodes == 0).await;
            assert_eq!(decided(), Policy::Honor);
            let (status, words, page) = said(&holdfast);
            assert_eq!(status.set_aside, [SetAsideReason::PowerGuard]);
            assert_eq!(status.policy, "honor");
            let aside = format!("{aside} because this machine runs on a battery");
            assert!(words.contains(&aside), "{words}");
            assert!(
                page.contains("holdfast_share_guarded{share=\"a\"} 1\n"),
                "{page}"
            );
            assert!(page.contains("holdfast_share_tripped{share=\"a\"} 0\n"));
            assert!(page.contains("holdfast_power_supply{power=\"battery\"} 1\n"));
            assert!(page.contains("holdfast_power_guard_trips_total 1\n"));
            assert_eq!(holdfast.status().power.supply.as_deref(), Some("ups"));
            let _g = write(share, "g").await;
            assert_eq!(share.gate.exposure().inodes, 0, "honored");

            host.ups("Charging");
            until("policies hold again", || decided() == configured).await;
            let (status, words, page) = said(&holdfast);
            assert_eq!(status.set_aside, []);
            assert!(!words.contains("set aside"), "{words}");
            assert!(page.contains("holdfast_share_guarded{share=\"a\"} 0\n"));
            watching.abort();
        });
    }
}

#[test]
fn from_the_start_and_until_the_configuration_says_otherwise() {
    let host = Host::new("Discharging");
    let lazy = "durability = \"treat-host-as-stable-storage\"\naccept_loss = true";
    run(async {
        let holdfast = host.start(host.config("ups", lazy));
        let policy = || {
            let shares = holdfast.server.shares();
            shares.find("a").unwrap().gate.effective_policy()
        };
        assert_eq!(policy(), Policy::Honor, "before anybody is served");
        let watching = watch(&holdfast);
        // An administrator's change meanwhile does not relax it.
        let change = PolicySetting {
            share: None,
            policy: "bounded:1s,1MiB".parse().unwrap(),
            accept_loss: false,
            without_rules: false,
            who: "somebody".to_owned(),
        };
        let answer = Arc::clone(&holdfast).set_policy(change).await.unwrap();
        assert_eq!(answer[0].share.policy, "honor");
        assert_eq!(answer[0].share.set_aside, [SetAsideReason::PowerGuard]);
        let users = users::empty().unwrap();
        let applied =
            Arc::clone(&holdfast).apply(host.config("none", lazy), users, ApplyReason::Reload);
        applied.await.unwrap();
        until("no UPS to rely on", || policy() != Policy::Honor).await;
        watching.abort();
    });
    // Where nobody asserts a UPS nothing is guarded.
    run(async {
        let holdfast = host.start(host.config("none", lazy));
        let shares = holdfast.server.shares();
        let gate = &shares.find("a").unwrap().gate;
        assert_eq!(gate.effective_policy(), Policy::TreatHostAsStableStorage);
        assert_eq!(holdfast.status().power.power, "battery");
    });
}
