//! Which policy decides a request, as far as clients can know it.
//!
//! Owns the sets of rules by which opens are judged, the policies of each share in the order in which
//! they were set, and the handles that clients have. From these each request gets two policies:
//! it is treated no laxer than the first and no more strictly than the second. The truth lies
//! between: handles come and go while a request is under way, and nobody sees those that a lost
//! connection left behind. In the same way a FLUSH is known to cover times, or may not. It makes no
//! use of the server's own matching of rules.

use std::{collections::BTreeMap, time::Duration};

use durability::{Policy, Rule, Rules};

use super::plan::Plan;
use crate::oracle::{Ask, Covers, Effect, Object, Request};

/// Sets of rules there are; 0 is none.
pub(super) const SETS: u8 = 4;

/// A rule as a plan knows it.
struct Ruled {
    /// Last components, of one letter each, for which it holds; empty: all.
    names: &'static str,
    /// Opened with FILE_WRITE_THROUGH.
    through: bool,
    ruling: Ruling,
}

/// The decision of a rule about an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ruling {
    policy: Policy,
    /// Whether a FLUSH covers times; `None`: as the share has it.
    times: Option<bool>,
}

/// A set of rules, with this setting for times in each of them where it has an effect.
fn set((number, times): (u8, Option<bool>)) -> Vec<Ruled> {
    let [honor, strict, bounded, host] = Plan::policies();
    let rule = |names, through, policy| Ruled {
        names,
        through,
        ruling: Ruling {
            policy,
            times: times.filter(|_| policy != strict),
        },
    };
    match number {
        1 => vec![rule("a", false, strict), rule("b", false, host)],
        2 => vec![rule("", true, strict), rule("ab", false, honor)],
        3 => vec![
            rule("c", false, strict),
            rule("a", false, bounded),
            rule("d", true, honor),
        ],
        _ => Vec::new(),
    }
}

/// The same for a server.
pub(super) fn rules(plan: &Plan) -> Rules {
    let rules = set((plan.rules, plan.rule_times)).into_iter().enumerate();
    let rules = rules.map(|(index, rule)| {
        let names = rule.names.chars().map(String::from);
        Rule {
            name: format!("{}.{index}", plan.rules),
            clients: Vec::new(),
            users: Vec::new(),
            groups: Vec::new(),
            dialects: None,
            paths: names.filter_map(|name| name.parse().ok()).collect(),
            write_through: rule.through.then_some(true),
            unbuffered: None,
            policy: rule.ruling.policy,
            flush_times: rule.ruling.times,
        }
    });
    Rules::new(rules.collect()).unwrap_or_default()
}

/// The decision about an open; `None`: it follows the share.
fn decide(rules: (u8, Option<bool>), path: &str, through: bool) -> Option<Ruling> {
    let path = path.split(':').next().unwrap_or_default();
    let name = path.rsplit('\\').next().unwrap_or_default();
    let found = set(rules).into_iter().find(|rule| {
        let named = rule.names.is_empty() || (!name.is_empty() && rule.names.contains(name));
        named && (through || !rule.through)
    });
    found.map(|rule| rule.ruling)
}

fn laxer(a: Policy, b: Policy) -> Policy {
    if a.kind() <= b.kind() { a } else { b }
}

/// Within which time a change is stable under such a policy without a request.
fn delay(policy: &Policy) -> Option<Duration> {
    match policy {
        Policy::Bounded(bound) => Some(bound.max_delay),
        _ => None,
    }
}

/// A client, and whether it asks through the second share.
pub(super) type Via = (usize, bool);

/// The facts that were known when a request was issued.
pub(super) struct Watch {
    object: Object,
    second: bool,
    /// The policies of each share from this one on.
    from: [usize; 2],
    handles: Vec<u64>,
}

#[derive(Debug)]
struct Held {
    object: Object,
    second: bool,
    /// The decision about it; `None`: it follows the share.
    rule: Option<Ruling>,
    /// The client that has asked for it and has no answer yet. To others it may not be there when
    /// the server treats what they ask.
    asked_by: Option<usize>,
}

/// Policies and handles of a case.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The set of rules, and their setting for times.
    rules: (u8, Option<bool>),
    /// The first share's, then the second's.
    shares: [Vec<Policy>; 2],
    /// Whether a FLUSH covers times by the setting of each share.
    times: [bool; 2],
    /// A plan without rules, changes and a second share needs no ledger.
    mixed: bool,
    handles: BTreeMap<u64, Held>,
    next: u64,
}

impl Ledger {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            rules: (plan.rules, plan.rule_times),
            shares: [vec![plan.policy], Vec::from_iter(plan.second)],
            times: plan.flush_times,
            mixed: plan.is_mixed(),
            handles: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn policy(&self, second: bool) -> Policy {
        let policies = &self.shares[usize::from(second)];
        policies.last().copied().unwrap_or_default()
    }

    pub(super) fn change(&mut self, second: bool, policy: Policy) {
        self.shares[usize::from(second)].push(policy);
    }

    /// The server has made a handle.
    pub(super) fn hold(&mut self, second: bool, object: Object, path: &str, through: bool) -> u64 {
        self.next += 1;
        let held = Held {
            object,
            second,
            rule: decide(self.rules, path, through),
            asked_by: None,
        };
        self.handles.insert(self.next, held);
        self.next
    }

    /// A client is about to ask for a handle.
    pub(super) fn ask(
        &mut self,
        (client, second): Via,
        object: Object,
        path: &str,
        through: bool,
    ) -> u64 {
        let handle = self.hold(second, object, path, through);
        if let Some(held) = self.handles.get_mut(&handle) {
            held.asked_by = Some(client);
        }
        handle
    }

    /// The handle that was asked for is there.
    pub(super) fn made(&mut self, handle: u64) {
        if let Some(held) = self.handles.get_mut(&handle) {
            held.asked_by = None;
        }
    }

    /// A handle is about to be closed.
    pub(super) fn let_go(&mut self, handle: u64) {
        self.handles.remove(&handle);
    }

    /// A share is removed, and every handle through it is about to be closed.
    pub(super) fn end(&mut self, second: bool) {
        self.handles.retain(|_, held| held.second != second);
    }

    /// The server is gone, and every handle with it.
    pub(super) fn clear(&mut self) {
        self.handles.clear();
    }

    /// A client issues a request.
    pub(super) fn watch(&self, (client, second): Via, request: &Request) -> Option<Watch> {
        if !self.mixed {
            return None;
        }
        let object = subject(request);
        let there = |held: &Held| held.asked_by.is_none_or(|by| by == client);
        let mine = (self.handles.iter()).filter(|(_, held)| held.object == object && there(held));
        Some(Watch {
            object,
            second,
            from: [0, 1].map(|share: usize| self.shares[share].len().saturating_sub(1)),
            handles: mine.map(|(id, _)| *id).collect(),
        })
    }

    /// The policies of a share since a request was issued.
    fn since(&self, watch: &Watch, second: bool) -> &[Policy] {
        let share = usize::from(second);
        let policies = self.shares[share].get(watch.from[share]..);
        policies.unwrap_or_default()
    }

    /// The handles of its object that were there all the time.
    fn held(&self, watch: &Watch) -> impl Iterator<Item = &Held> {
        let handles = watch.handles.iter().filter_map(|id| self.handles.get(id));
        handles.filter(|held| held.object == watch.object)
    }

    /// The laxest policy of a share since a request was issued.
    fn laxest(&self, watch: &Watch, second: bool) -> Policy {
        let policies = self.since(watch, second).iter().copied();
        policies.reduce(laxer).unwrap_or_default()
    }

    /// Between which policies it was treated, if it is answered now.
    pub(super) fn between(&self, watch: &Watch) -> (Policy, Policy) {
        let ruled = || set(self.rules).into_iter().map(|rule| rule.ruling.policy);
        let of = |held: &Held| match held.rule {
            Some(ruling) => ruling.policy,
            None => self.laxest(watch, held.second),
        };
        let low = self.held(watch).map(of).reduce(Policy::stricter);
        let low = low.unwrap_or_else(|| ruled().fold(self.laxest(watch, watch.second), laxer));
        let shares = [false, true].map(|second| self.since(watch, second));
        let high = shares.into_iter().flatten().copied().chain(ruled());
        (low, high.reduce(Policy::stricter).unwrap_or(low))
    }

    /// Whether it certainly covers times if it is a FLUSH: because one of the handles asks for it, or all that could be
    /// there do.
    pub(super) fn covers_times(&self, watch: &Watch) -> bool {
        let asks = |rule: Option<Ruling>, second: bool| {
            let share = self.times[usize::from(second)];
            let policy = rule.map_or_else(|| self.laxest(watch, second), |ruling| ruling.policy);
            policy.flushes_times(rule.and_then(|ruling| ruling.times).unwrap_or(share))
        };
        let rules = || set(self.rules).into_iter().map(|rule| Some(rule.ruling));
        let all = |second| {
            std::iter::once(None)
                .chain(rules())
                .all(|rule| asks(rule, second))
        };
        let mut held = self.held(watch);
        held.any(|held| asks(held.rule, held.second)) || (all(false) && all(true))
    }

    /// The time within which each share makes stable what the request changed, because the object was open through
    /// it under a bound, whichever share the request came through.
    pub(super) fn within(&self, watch: &Watch) -> [Option<Duration>; 2] {
        let longest = |held: &Held| {
            let policies = match &held.rule {
                Some(ruling) => std::slice::from_ref(&ruling.policy),
                None => self.since(watch, held.second),
            };
            let delays = policies.iter().map(delay);
            delays.reduce(|one, other| Some(one?.max(other?))).flatten()
        };
        [false, true].map(|second| {
            let held = self.held(watch).filter(|held| held.second == second);
            held.filter_map(longest).max()
        })
    }
}

/// The object whose opens decide.
fn subject(request: &Request) -> Object {
    match &request.ask {
        Ask::Flush { covers, .. } => match covers {
            Covers::Object(of)
            | Covers::Stream(of, _)
            | Covers::Directory(of)
            | Covers::Folder(of) => *of,
            Covers::Root => Object::ROOT,
        },
        Ask::Close(of) => *of,
        _ => match request.effects.first() {
            Some(Effect::Name { about, .. }) => *about,
            Some(
                Effect::Data { object, .. }
                | Effect::Size { object, .. }
                | Effect::Stream { object, .. }
                | Effect::Meta { object, .. },
            ) => *object,
            None => Object::ROOT,
        },
    }
}

#[cfg(test)]
mod tests {
    use durability::Opener;

    use super::*;

    #[test]
    fn the_server_decides_the_same() {
        let sets =
            (0..SETS).flat_map(|set| [None, Some(true), Some(false)].map(|times| (set, times)));
        for (number, times) in sets {
            let mut plan = Plan::empty(1, Policy::Honor, vfs::sim::Profile::PosixMin);
            (plan.rules, plan.rule_times) = (number, times);
            for path in ["", "a", "b", "c\\a", "a\\d", "c\\d\\c", "e", "b\\e:s"] {
                for through in [false, true] {
                    let opener = Opener {
                        path: path.split(':').next().unwrap().replace('\\', "/").into(),
                        write_through: through,
                        ..Opener::default()
                    };
                    let found = rules(&plan).decide(Policy::Honor, &opener).rule;
                    let found = found.map(|rule| Ruling {
                        policy: rule.policy,
                        times: rule.flush_times,
                    });
                    let decided = decide((number, times), path, through);
                    assert_eq!(decided, found, "{number} {times:?} {path}");
                }
            }
        }
    }

    #[test]
    fn the_truth_lies_between() {
        let mut plan = Plan::empty(1, Policy::Honor, vfs::sim::Profile::PosixMin);
        plan.rules = 1;
        let [honor, strict, _, host] = Plan::policies();
        let mut ledger = Ledger::new(&plan);
        let (file, other) = (Object(1), Object(2));
        let flush = Request::flush(Covers::Object(file));
        let named_b = ledger.hold(false, file, "b", false);
        let watch = ledger.watch((0, false), &flush).unwrap();
        assert_eq!(ledger.between(&watch), (host, strict));
        let plain = ledger.hold(false, file, "c", false);
        ledger.hold(false, other, "a", false);
        let watch = ledger.watch((0, false), &flush).unwrap();
        assert_eq!(ledger.between(&watch).0, honor);
        // The share's policy changes while the request is under way, then a handle goes.
        ledger.change(false, host);
        assert_eq!(ledger.between(&watch).0, host);
        ledger.change(false, honor);
        ledger.let_go(plain);
        ledger.let_go(named_b);
        assert_eq!(ledger.between(&watch).0, host);
        let named_a = ledger.hold(false, file, "a", false);
        assert_eq!(ledger.between(&watch).0, host);
        let watch = ledger.watch((0, false), &flush).unwrap();
        assert_eq!(ledger.between(&watch).0, strict);
        ledger.let_go(named_a);
    }

    #[test]
    fn one_handle_that_asks_for_times_is_enough() {
        let mut plan = Plan::empty(1, Policy::Honor, vfs::sim::Profile::PosixMin);
        (plan.rules, plan.rule_times) = (2, Some(true));
        plan.flush_times = [false, true];
        let mut ledger = Ledger::new(&plan);
        let flush = Request::flush(Covers::Object(Object(1)));
        let covers_times = |ledger: &Ledger| {
            let watch = ledger.watch((0, false), &flush).unwrap();
            ledger.covers_times(&watch)
        };
        // Nobody knows which handles there are.
        assert!(!covers_times(&ledger));
        ledger.hold(false, Object(1), "c", false);
        assert!(!covers_times(&ledger));
        for (second, path, through) in [
            (false, "a", false),
            // Under `strict-sync` every answer covers them.
            (false, "c", true),
            (true, "c", false),
        ] {
            let handle = ledger.hold(second, Object(1), path, through);
            assert!(covers_times(&ledger), "{second} {path} {through}");
            ledger.let_go(handle);
        }
        assert!(!covers_times(&ledger));
        ledger.change(false, Policy::StrictSync);
        assert!(covers_times(&ledger));
    }

    #[test]
    fn a_bound_holds_for_changes_through_the_other_share() {
        let [honor, _, bounded, host] = Plan::policies();
        let mut plan = Plan::empty(1, host, vfs::sim::Profile::PosixMin);
        plan.second = Some(bounded);
        let mut ledger = Ledger::new(&plan);
        let flush = Request::flush(Covers::Object(Object(1)));
        ledger.hold(false, Object(1), "a", false);
        let watch = ledger.watch((0, false), &flush).unwrap();
        assert_eq!(ledger.between(&watch), (host, bounded));
        assert_eq!(ledger.within(&watch), [None; 2]);
        ledger.hold(true, Object(1), "a", false);
        let watch = ledger.watch((0, false), &flush).unwrap();
        assert_eq!(ledger.between(&watch), (bounded, bounded));
        assert_eq!(ledger.within(&watch), [None, delay(&bounded)]);
        ledger.change(false, honor);
        let stricter = ledger.watch((0, false), &flush).unwrap();
        assert_eq!(ledger.between(&stricter), (honor, honor));
        assert_eq!(ledger.within(&stricter), [None, delay(&bounded)]);
        // The bound ends while the request is under way.
        ledger.change(true, honor);
        assert_eq!(ledger.within(&stricter), [None; 2]);
        assert_eq!(ledger.between(&watch), (bounded, honor));
    }

    #[test]
    fn a_handle_that_another_client_has_asked_for_may_come_too_late() {
        let mut plan = Plan::empty(1, Policy::Honor, vfs::sim::Profile::PosixMin);
        plan.rules = 1;
        let [_, strict, _, host] = Plan::policies();
        let mut ledger = Ledger::new(&plan);
        let flush = Request::flush(Covers::Object(Object(1)));
        ledger.hold(false, Object(1), "b", false);
        let asked = ledger.ask((1, false), Object(1), "a", false);
        let low = |ledger: &Ledger, client| {
            let watch = ledger.watch((client, false), &flush).unwrap();
            ledger.between(&watch).0
        };
        // A request through the handle itself follows the handle's policy.
        assert_eq!((low(&ledger, 0), low(&ledger, 1)), (host, strict));
        ledger.made(asked);
        assert_eq!(low(&ledger, 0), strict);
    }
}
