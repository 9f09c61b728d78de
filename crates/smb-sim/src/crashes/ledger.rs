//! Which policy decides a request, as far as clients can know it.
//!
//! Owns the sets of rules by which opens are judged, the policies of each share in the order in which
//! they were set, and the handles that clients have. From these each request gets two policies:
//! it is treated no laxer than the first and no more strictly than the second. The truth lies
//! between: handles come and go while a request is under way, and nobody sees those that a lost
//! connection left behind. It makes no use of the server's own matching of rules.

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
    policy: Policy,
}

fn set(number: u8) -> Vec<Ruled> {
    let [honor, strict, bounded, host] = Plan::policies();
    let rule = |names, through, policy| Ruled {
        names,
        through,
        policy,
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
pub(super) fn rules(number: u8) -> Rules {
    let rules = set(number).into_iter().enumerate().map(|(index, rule)| {
        let names = rule.names.chars().map(String::from);
        Rule {
            name: format!("{number}.{index}"),
            clients: Vec::new(),
            users: Vec::new(),
            groups: Vec::new(),
            dialects: None,
            paths: names.filter_map(|name| name.parse().ok()).collect(),
            write_through: rule.through.then_some(true),
            unbuffered: None,
            policy: rule.policy,
            flush_times: None,
        }
    });
    Rules::new(rules.collect()).unwrap_or_default()
}

/// The rule for an open; `None`: it follows the share.
fn decide(number: u8, path: &str, through: bool) -> Option<Policy> {
    let path = path.split(':').next().unwrap_or_default();
    let name = path.rsplit('\\').next().unwrap_or_default();
    let found = set(number).into_iter().find(|rule| {
        let named = rule.names.is_empty() || (!name.is_empty() && rule.names.contains(name));
        named && (through || !rule.through)
    });
    found.map(|rule| rule.policy)
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
    /// The rule for it; `None`: it follows the share.
    rule: Option<Policy>,
    /// The client that has asked for it and has no answer yet. To others it may not be there when
    /// the server treats what they ask.
    asked_by: Option<usize>,
}

/// Policies and handles of a case.
#[derive(Debug)]
pub(super) struct Ledger {
    set: u8,
    /// The first share's, then the second's.
    shares: [Vec<Policy>; 2],
    /// A plan without rules, changes and a second share needs no ledger.
    mixed: bool,
    handles: BTreeMap<u64, Held>,
    next: u64,
}

impl Ledger {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            set: plan.rules,
            shares: [vec![plan.policy], Vec::from_iter(plan.second)],
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
            rule: decide(self.set, path, through),
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

    /// Between which policies it was treated, if it is answered now.
    pub(super) fn between(&self, watch: &Watch) -> (Policy, Policy) {
        let laxest = |second| {
            let policies = self.since(watch, second).iter().copied();
            policies.reduce(laxer).unwrap_or_default()
        };
        let ruled = || set(self.set).into_iter().map(|rule| rule.policy);
        let held = self.held(watch);
        let held = held.map(|held| held.rule.unwrap_or_else(|| laxest(held.second)));
        let low = held.reduce(Policy::stricter);
        let low = low.unwrap_or_else(|| ruled().fold(laxest(watch.second), laxer));
        let shares = [false, true].map(|second| self.since(watch, second));
        let high = shares.into_iter().flatten().copied().chain(ruled());
        (low, high.reduce(Policy::stricter).unwrap_or(low))
    }

    /// The time within which each share makes stable what the request changed, because the object was open through
    /// it under a bound, whichever share the request came through.
    pub(super) fn within(&self, watch: &Watch) -> [Option<Duration>; 2] {
        let longest = |held: &Held| {
            let policies = match &held.rule {
                Some(rule) => std::slice::from_ref(rule),
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
        for number in 0..SETS {
            for path in ["", "a", "b", "c\\a", "a\\d", "c\\d\\c", "e", "b\\e:s"] {
                for through in [false, true] {
                    let opener = Opener {
                        path: path.split(':').next().unwrap().replace('\\', "/").into(),
                        write_through: through,
                        ..Opener::default()
                    };
                    let told = rules(number).decide(Policy::Honor, &opener);
                    let told = told.rule.map(|rule| rule.policy);
                    assert_eq!(decide(number, path, through), told, "{number} {path}");
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
