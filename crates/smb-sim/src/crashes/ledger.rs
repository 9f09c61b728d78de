//! Which policy decides a request, as far as clients can know it.
//!
//! Owns the sets of rules by which opens are judged, the share's policies in the order in which
//! they were set, and the handles that clients have. From these each request gets two policies:
//! it is treated no laxer than the first and no more strictly than the second. The truth lies
//! between: handles come and go while a request is under way, and nobody sees those that a lost
//! connection left behind. It makes no use of the server's own matching of rules.

use std::collections::BTreeMap;

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

/// The facts that were known when a request was issued.
pub(super) struct Watch {
    object: Object,
    /// The policies of the share from this one on.
    from: usize,
    handles: Vec<u64>,
}

#[derive(Debug)]
struct Held {
    object: Object,
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
    shares: Vec<Policy>,
    /// A plan without rules and changes needs no ledger.
    mixed: bool,
    handles: BTreeMap<u64, Held>,
    next: u64,
}

impl Ledger {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            set: plan.rules,
            shares: vec![plan.policy],
            mixed: plan.is_mixed(),
            handles: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn policy(&self) -> Policy {
        self.shares.last().copied().unwrap_or_default()
    }

    pub(super) fn change(&mut self, policy: Policy) {
        self.shares.push(policy);
    }

    /// The server has made a handle.
    pub(super) fn hold(&mut self, object: Object, path: &str, through: bool) -> u64 {
        self.next += 1;
        let held = Held {
            object,
            rule: decide(self.set, path, through),
            asked_by: None,
        };
        self.handles.insert(self.next, held);
        self.next
    }

    /// A client is about to ask for a handle.
    pub(super) fn ask(&mut self, client: usize, object: Object, path: &str, through: bool) -> u64 {
        let handle = self.hold(object, path, through);
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

    /// The server is gone, and every handle with it.
    pub(super) fn clear(&mut self) {
        self.handles.clear();
    }

    /// A client issues a request.
    pub(super) fn watch(&self, client: usize, request: &Request) -> Option<Watch> {
        if !self.mixed {
            return None;
        }
        let object = subject(request);
        let there = |held: &Held| held.asked_by.is_none_or(|by| by == client);
        let mine = (self.handles.iter()).filter(|(_, held)| held.object == object && there(held));
        Some(Watch {
            object,
            from: self.shares.len() - 1,
            handles: mine.map(|(id, _)| *id).collect(),
        })
    }

    /// Between which policies it was treated, if it is answered now.
    pub(super) fn between(&self, watch: &Watch) -> (Policy, Policy) {
        let shares = self.shares.get(watch.from..).unwrap_or_default();
        let share = shares.iter().copied().reduce(laxer).unwrap_or_default();
        let ruled = || set(self.set).into_iter().map(|rule| rule.policy);
        let handles = watch.handles.iter().filter_map(|id| self.handles.get(id));
        let handles = handles.filter(|held| held.object == watch.object);
        let held = handles.map(|held| held.rule.unwrap_or(share));
        let low = held.reduce(Policy::stricter);
        let low = low.unwrap_or_else(|| ruled().fold(share, laxer));
        let high = shares.iter().copied().chain(ruled());
        (low, high.reduce(Policy::stricter).unwrap_or(share))
    }
}

/// The object whose opens decide.
fn subject(request: &Request) -> Object {
    match &request.ask {
        Ask::Flush { covers, .. } => match covers {
            Covers::Object(of) | Covers::Stream(of, _) | Covers::Directory(of) => *of,
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
        let named_b = ledger.hold(file, "b", false);
        let watch = ledger.watch(0, &flush).unwrap();
        assert_eq!(ledger.between(&watch), (host, strict));
        let plain = ledger.hold(file, "c", false);
        ledger.hold(other, "a", false);
        let watch = ledger.watch(0, &flush).unwrap();
        assert_eq!(ledger.between(&watch).0, honor);
        // The share's policy changes while the request is under way, then a handle goes.
        ledger.change(host);
        assert_eq!(ledger.between(&watch).0, host);
        ledger.change(honor);
        ledger.let_go(plain);
        ledger.let_go(named_b);
        assert_eq!(ledger.between(&watch).0, host);
        let named_a = ledger.hold(file, "a", false);
        assert_eq!(ledger.between(&watch).0, host);
        let watch = ledger.watch(0, &flush).unwrap();
        assert_eq!(ledger.between(&watch).0, strict);
        ledger.let_go(named_a);
    }

    #[test]
    fn a_handle_that_another_client_has_asked_for_may_come_too_late() {
        let mut plan = Plan::empty(1, Policy::Honor, vfs::sim::Profile::PosixMin);
        plan.rules = 1;
        let [_, strict, _, host] = Plan::policies();
        let mut ledger = Ledger::new(&plan);
        let flush = Request::flush(Covers::Object(Object(1)));
        ledger.hold(Object(1), "b", false);
        let asked = ledger.ask(1, Object(1), "a", false);
        let low = |ledger: &Ledger, client| {
            let watch = ledger.watch(client, &flush).unwrap();
            ledger.between(&watch).0
        };
        // A request through the handle itself follows the handle's policy.
        assert_eq!((low(&ledger, 0), low(&ledger, 1)), (host, strict));
        ledger.made(asked);
        assert_eq!(low(&ledger, 0), strict);
    }
}
