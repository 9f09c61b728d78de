//! Policy by open: the strictest of an inode's handles decides.

use std::{rc::Rc, sync::Arc};

use proptest::prelude::*;
use vfs::{Env, Node, VfsError};

use super::{
    fake::{FakeNode, dir, file, key, stream},
    flush::{PLAIN, World, honor, world},
    sim::{join, ms},
};
use crate::{share::lock, *};

const HOST: &str = "treat-host-as-stable-storage";

pub(super) fn rule(pattern: &str, policy: &str) -> Rule {
    Rule {
        name: format!("rule for {pattern}"),
        paths: vec![pattern.parse().unwrap()],
        policy: policy.parse().unwrap(),
        ..Rule::default()
    }
}

pub(super) fn rules(rules: &[(&str, &str)]) -> Arc<Rules> {
    let rules = rules.iter().map(|(p, policy)| rule(p, policy)).collect();
    Arc::new(Rules::new(rules).unwrap())
}

pub(super) fn opener(path: &str) -> Arc<Opener> {
    Arc::new(Opener {
        path: path.into(),
        ..Opener::default()
    })
}

/// Whether a FLUSH waits for the disk: `sync`, or not: `no`.
pub(super) async fn flushed(w: &World, node: &FakeNode) -> &'static str {
    w.write(node, 0, 1).await.unwrap();
    w.fake.take_log();
    w.flush(node).await.unwrap();
    if w.fake.take_log().is_empty() {
        "no"
    } else {
        "sync"
    }
}

#[test]
fn a_rule_holds_for_the_handles_it_matches_while_they_are_open() {
    honor(|w| async move {
        let rules = rules(&[("*.tmp", HOST), ("db/**", "strict-sync")]);
        w.gate.set_rules(rules, "test").await;
        let (tmp, db) = (file(5), file(6));
        assert_eq!(
            flushed(&w, &tmp).await,
            "sync",
            "nobody has it open: the share's"
        );
        let open = w.gate.opened(&tmp, opener("a.tmp"));
        assert_eq!(flushed(&w, &tmp).await, "no");
        assert_eq!(
            w.gate
                .exposure()
                .of(PolicyKind::TreatHostAsStableStorage)
                .bytes,
            4096
        );
        assert_eq!(
            w.gate.exposure().of(PolicyKind::Honor),
            PolicyExposure::default()
        );
        let strict = w.gate.opened(&db, opener("db/x"));
        w.write(&db, 0, 1).await.unwrap();
        assert_eq!(w.fake.take_log(), ["write 6", "all 6"]);
        drop((open, strict));
        w.write(&db, 0, 1).await.unwrap();
        assert_eq!(w.fake.take_log(), ["write 6"]);
        assert_eq!(flushed(&w, &tmp).await, "sync");
    });
}

#[test]
fn the_strictest_handle_decides_for_all_over_shares_and_streams() {
    honor(|w| async move {
        let rules = rules(&[("*.tmp", HOST), ("*.db", "strict-sync")]);
        w.gate.set_rules(rules, "test").await;
        let host = ShareDurability::with_policy(HOST.parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), host);
        let f = file(5);
        let lazy = w.gate.opened(&f, opener("a.tmp"));
        let also = other.opened(&f, opener("x"));
        assert_eq!(flushed(&w, &f).await, "no");
        let honored = w.gate.opened(&f, opener("hard link"));
        assert_eq!(flushed(&w, &f).await, "sync");
        // This also holds through the other share, and the change is part of that share's exposure.
        drop(other.content_changed(&f, 7).await.unwrap());
        drop(other.flush(&f, FlushTarget::File, PLAIN).await.unwrap());
        assert_eq!(w.fake.take_log(), ["all 5"]);
        // A handle on a stream counts for its file.
        let strict = other.opened(&stream(5, "s"), opener("x"));
        drop((honored, strict));
        assert_eq!(flushed(&w, &f).await, "no");
        let strict = w.gate.opened(&stream(5, "s"), opener("b.db"));
        drop(other.resized(&f, 0, PLAIN).await.unwrap());
        assert_eq!(w.fake.take_log(), ["all 5"], "strict-sync decides");
        drop((lazy, also, strict));
        assert_eq!(w.engine.dirty_inodes(), 0);
    });
}

#[test]
fn a_handle_without_a_rule_follows_its_share() {
    honor(|w| async move {
        let f = file(5);
        let open = w.gate.opened(&f, opener("x"));
        assert_eq!(flushed(&w, &f).await, "sync");
        w.gate.set_policy(HOST.parse().unwrap(), "test").await;
        assert_eq!(flushed(&w, &f).await, "no");
        let report = w.gate.set_policy(Policy::Honor, "test").await;
        assert_eq!((report.inodes, w.gate.exposure().bytes), (1, 0));
        assert_eq!(flushed(&w, &f).await, "sync");
        drop(open);
    });
}

#[test]
fn a_change_of_rules_judges_open_handles_anew_and_pays_what_is_dirty() {
    honor(|w| async move {
        let f = file(5);
        w.gate.set_rules(rules(&[("*.tmp", HOST)]), "test").await;
        let open = w.gate.opened(&f, opener("a.tmp"));
        assert_eq!(flushed(&w, &f).await, "no");
        let report = w.gate.set_rules(rules(&[("*.bak", HOST)]), "Anna").await;
        assert_eq!((report.inodes, report.failed), (1, 0));
        assert_eq!(w.gate.exposure(), Exposure::default());
        assert_eq!(flushed(&w, &f).await, "sync");
        w.write(&f, 0, 1).await.unwrap();
        let before = w.env.monotonic();
        w.gate.set_rules(rules(&[("*", HOST)]), "test").await;
        // The rule that is gone was lazy, so this syncs whatever replaces it; a loosening alone does not wait.
        assert!(w.env.monotonic() > before);
        w.gate.set_rules(rules(&[]), "test").await;
        w.write(&f, 0, 1).await.unwrap();
        let before = w.env.monotonic();
        w.gate.set_rules(rules(&[("*", HOST)]), "test").await;
        assert_eq!(w.env.monotonic(), before);
        assert_eq!(w.gate.exposure().bytes, 4096);
        drop(open);
    });
}

#[test]
fn a_file_that_was_closed_is_synced_when_a_stricter_rule_comes_for_it() {
    for (policy, synced) in [("honor", 1), ("strict-sync", 1), (HOST, 0)] {
        world(HOST, Limits::default(), move |w| async move {
            let f = file(5);
            let open = w.gate.opened(&f, opener("a.db"));
            assert_eq!(flushed(&w, &f).await, "no");
            drop(open);
            let report = w.gate.set_rules(rules(&[("*.db", policy)]), "test").await;
            assert_eq!((report.inodes, report.failed), (synced, 0));
            assert_eq!(w.gate.exposure().inodes, 1 - synced);
        });
    }
}

/// Neither of the two rules is new.
#[test]
fn a_file_that_was_closed_is_synced_when_a_stricter_rule_comes_first_from_now_on() {
    honor(|w| async move {
        let f = file(5);
        let (lazy, strict) = (("*", HOST), ("*.db", "honor"));
        w.gate.set_rules(rules(&[lazy, strict]), "test").await;
        let open = w.gate.opened(&f, opener("a.db"));
        assert_eq!(flushed(&w, &f).await, "no");
        drop(open);
        let report = w.gate.set_rules(rules(&[strict, lazy]), "test").await;
        assert_eq!((report.inodes, w.gate.exposure().inodes), (1, 0));
    });
}

#[test]
fn a_file_that_was_closed_is_synced_when_a_rule_goes_and_its_share_is_stricter() {
    for (policy, synced) in [("strict-sync", 1), ("honor", 0)] {
        world(policy, Limits::default(), move |w| async move {
            let f = file(5);
            w.gate.set_rules(rules(&[("*.db", "honor")]), "test").await;
            let open = w.gate.opened(&f, opener("a.db"));
            w.write(&f, 0, 1).await.unwrap();
            drop(open);
            assert_eq!(w.gate.exposure().inodes, 1);
            let report = w.gate.set_rules(rules(&[]), "test").await;
            assert_eq!((report.inodes, report.failed), (synced, 0));
            assert_eq!(w.gate.exposure().inodes, 1 - synced);
        });
    }
}

#[test]
fn a_tripped_share_honors_whatever_its_rules_say() {
    honor(|w| async move {
        w.gate.set_rules(rules(&[("*.tmp", HOST)]), "test").await;
        let (f, g) = (file(5), file(6));
        let open = [(&f, "a.tmp"), (&g, "b.tmp")].map(|(n, p)| w.gate.opened(n, opener(p)));
        assert_eq!(flushed(&w, &g).await, "no");
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[Err(VfsError::Io)]);
        w.env.sleep(ms(31_000)).await;
        assert_eq!(w.gate.counters().trips, 1);
        assert_eq!(w.gate.explain(&opener("c.tmp")).policy, Policy::Honor);
        assert_eq!(flushed(&w, &g).await, "sync");
        assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        assert_eq!(w.gate.clear_latches(), 1);
        assert_eq!(flushed(&w, &g).await, "no");
        drop(open);
    });
}

#[test]
fn who_decides_is_reported() {
    honor(|w| async move {
        w.gate.set_rules(rules(&[("*.tmp", HOST)]), "test").await;
        let f = file(5);
        assert!(w.gate.in_force(key(5)).is_none());
        let a = w.gate.opened(&f, opener("dir/A.tmp"));
        let why = w.gate.in_force_at("DIR/a.TMP").unwrap();
        assert_eq!((why.opens, why.policy.to_string()), (1, HOST.to_owned()));
        assert_eq!(why.rule.unwrap().name, "rule for *.tmp");
        let b = w.gate.opened(&f, opener("hard link"));
        let why = w.gate.in_force(key(5)).unwrap();
        assert_eq!((why.opens, why.policy), (2, Policy::Honor));
        assert_eq!(
            (&*why.because.path, why.share.as_str()),
            ("hard link", "share")
        );
        assert!(why.rule.is_none());
        drop((a, b));
        assert!(w.gate.in_force_at("dir/a.tmp").is_none());
    });
}

#[test]
fn an_open_inode_is_kept_and_is_not_dirty() {
    honor(|w| async move {
        let f = file(5);
        let open = w.gate.opened(&f, opener("x"));
        assert_eq!(w.engine.dirty_inodes(), 0);
        assert!(w.engine.is_stable());
        assert_eq!(f.held(), 1, "no descriptor either");
        drop(open);
    });
}

/// Data written to a deleted file that is still open cannot be lost by anybody: the file's number
/// never comes back as poisoned.
#[test]
fn a_deleted_file_that_is_open_cannot_be_poisoned() {
    honor(|w| async move {
        let (f, d) = (file(5), dir(10));
        let open = w.gate.opened(&f, opener("x"));
        vfs_unlink(&w, 5);
        w.gate.removed(&f, &d, PLAIN).await.unwrap();
        w.flush(&d).await.unwrap();
        // Long enough for its entry to be forgotten if nothing held it.
        w.env.sleep(ms(60_000)).await;
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[Err(VfsError::Io)]);
        assert_eq!(
            w.flush(&f).await,
            Err(VfsError::Io),
            "told once, true as it is"
        );
        assert!(w.gate.poisoned().is_empty());
        drop(open);
        // The number is another file's now.
        w.write(&file(5), 0, 1).await.unwrap();
        assert_eq!(w.flush(&file(5)).await, Ok(()));
    });
}

fn vfs_unlink(w: &World, ino: u64) {
    lock(&w.fake.state).links.insert(ino, 0);
}

#[test]
fn no_more_inodes_are_dirty_than_the_limit_and_two_per_request() {
    const REQUESTS: u64 = 24;
    let limits = Limits {
        dirty_inodes_max: 4,
        ..Limits::default()
    };
    world(HOST, limits, |w| async move {
        let request = |n: u64| {
            let w = Rc::clone(&w);
            Box::pin(async move {
                for turn in 0..6 {
                    let f = file(100 + n * 10 + turn);
                    let (a, b) = (dir(5000 + n * 10 + turn), dir(6000 + n));
                    w.write(&f, 0, 1).await.unwrap();
                    w.rename(&f, &a, &b).await.unwrap();
                    let most = 4 + 2 * REQUESTS as usize;
                    assert!(
                        w.engine.dirty_inodes() <= most,
                        "{}",
                        w.engine.dirty_inodes()
                    );
                }
            }) as vfs::env::LocalTask
        };
        join(&w.env, (0..REQUESTS).map(request).collect()).await;
        assert!(w.engine.dirty_inodes() <= 4);
    });
}

#[derive(Debug, Clone)]
enum Step {
    Open {
        share: usize,
        path: usize,
    },
    Close(usize),
    Policy {
        share: usize,
        policy: usize,
    },
    Rules {
        share: usize,
        rules: Vec<(usize, usize)>,
    },
    Ask {
        share: usize,
    },
}

const PATHS: [&str; 4] = ["a.tmp", "db/a.db", "x", "db/log/y.tmp"];
const PATTERNS: [&str; 4] = ["*.tmp", "db/**", "*", "**/log/*"];
const POLICIES: [&str; 5] = [
    "honor",
    "strict-sync",
    HOST,
    "bounded:1s,4MiB",
    "bounded:2s,1MiB",
];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2usize, 0..PATHS.len()).prop_map(|(share, path)| Step::Open { share, path }),
        3 => (0..8usize).prop_map(Step::Close),
        2 => (0..2usize, 0..POLICIES.len()).prop_map(|(share, policy)| Step::Policy { share, policy }),
        2 => (0..2usize, prop::collection::vec((0..PATTERNS.len(), 0..POLICIES.len()), 0..3))
            .prop_map(|(share, rules)| Step::Rules { share, rules }),
        5 => (0..2usize).prop_map(|share| Step::Ask { share }),
    ]
}

/// The definition of the policy in force, without any shortcut: of all opens, each by its share's
/// first matching rule or its policy, the strictest; the asking share's policy too if it has none.
#[derive(Default)]
struct Naive {
    policies: [Policy; 2],
    rules: [Vec<(usize, usize)>; 2],
    opens: Vec<(usize, usize)>,
}

impl Naive {
    fn of(&self, share: usize, path: usize) -> Policy {
        let matching = self.rules[share].iter().find(|(pattern, _)| {
            let pattern: PathPattern = PATTERNS[*pattern].parse().unwrap();
            pattern.matches(PATHS[path])
        });
        matching.map_or(self.policies[share], |(_, policy)| {
            POLICIES[*policy].parse().unwrap()
        })
    }

    fn strictest(&self, asking: usize) -> Policy {
        let mut all: Vec<Policy> = (self.opens.iter()).map(|(s, p)| self.of(*s, *p)).collect();
        if !self.opens.iter().any(|(share, _)| *share == asking) {
            all.push(self.policies[asking]);
        }
        let rank = |policy: &Policy| match policy {
            Policy::StrictSync => 3,
            Policy::Honor => 2,
            Policy::Bounded(_) => 1,
            Policy::TreatHostAsStableStorage => 0,
        };
        let most = all.iter().map(rank).max().unwrap();
        let bounds = all.iter().filter_map(|policy| match policy {
            Policy::Bounded(bound) => Some((bound.max_delay, bound.max_bytes)),
            _ => None,
        });
        match most {
            3 => Policy::StrictSync,
            2 => Policy::Honor,
            0 => Policy::TreatHostAsStableStorage,
            _ => {
                let (delays, bytes): (Vec<_>, Vec<_>) = bounds.unzip();
                let (delay, bytes) = (delays.into_iter().min(), bytes.into_iter().min());
                Policy::Bounded(Bound::new(delay.unwrap(), bytes.unwrap()).unwrap())
            }
        }
    }
}

proptest! {
    #[test]
    fn the_strictest_of_the_opens_decides(steps in prop::collection::vec(step(), 1..40)) {
        let steps = Rc::new(steps);
        honor(move |w| {
            let steps = Rc::clone(&steps);
            async move {
                let other = w.engine.share("other", Arc::clone(&w.fake), ShareDurability::default());
                let gates = [Arc::clone(&w.gate), other];
                let mut naive = Naive::default();
                let mut held = Vec::new();
                for step in steps.iter() {
                    match step {
                        Step::Open { share, path } => {
                            let node = if held.len() % 2 == 0 { file(5) } else { stream(5, "s") };
                            held.push(gates[*share].opened(&node, opener(PATHS[*path])));
                            naive.opens.push((*share, *path));
                        }
                        Step::Close(which) if !held.is_empty() => {
                            let which = which % held.len();
                            drop(held.swap_remove(which));
                            naive.opens.swap_remove(which);
                        }
                        Step::Close(_) => {}
                        Step::Policy { share, policy } => {
                            let policy: Policy = POLICIES[*policy].parse().unwrap();
                            gates[*share].set_policy(policy, "test").await;
                            naive.policies[*share] = policy;
                        }
                        Step::Rules { share, rules: new } => {
                            let of: Vec<_> = (new.iter())
                                .map(|(p, policy)| (PATTERNS[*p], POLICIES[*policy]))
                                .collect();
                            gates[*share].set_rules(rules(&of), "test").await;
                            naive.rules[*share] = new.clone();
                        }
                        Step::Ask { share } => {
                            let asked = gates[*share].policy_of(file(5).key());
                            assert_eq!(asked, naive.strictest(*share), "{steps:?}");
                        }
                    }
                }
                drop(held);
                assert!(w.gate.in_force(key(5)).is_none(), "forgotten with the last handle");
            }
        });
    }
}

#[test]
fn rules_set_once_more_answer_when_nothing_is_dirty() {
    world("bounded:10s,64MiB", Limits::default(), |w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        w.fake.take_log();
        let report = w.gate.set_rules(Arc::default(), "test").await;
        assert_eq!((report.inodes, report.failed), (1, 0));
        assert_eq!(w.fake.take_log(), ["all 5"]);
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}
