//! Which effects had to be stable at the cut.

use std::{collections::BTreeMap, time::Duration};

use durability::{Policy, PolicyKind};

use super::{
    Object,
    check::{Crash, Cut, Terms},
    history::{Answer, Ask, Content, Effect, History, Key, Request, Switch},
};

/// The age of a change at which the server syncs it although nobody asked (`dirty_age_max`), and the time for the sync.
const DIRTY_AGE_MAX: Duration = Duration::from_millis(30_500);

/// One effect: number of the request, number of the effect in it.
pub(super) type Place = (usize, usize);

pub(super) struct Known<'h> {
    pub(super) request: &'h Request,
    pub(super) issued: u64,
    pub(super) answered: Option<(u64, Duration, Answer)>,
    /// It was treated no laxer, no more strictly.
    between: Option<(Policy, Policy)>,
    /// Each share makes it stable within this time, if it has a bound for it.
    within: [Option<Duration>; 2],
    /// Whether it certainly covers times if it is a FLUSH; `None`: by the terms.
    times: Option<bool>,
}

impl Known<'_> {
    /// Whether a client got the answer that it was done.
    fn was_answered(&self) -> bool {
        self.succeeded() && !self.request.host
    }

    pub(super) fn succeeded(&self) -> bool {
        matches!(self.answered, Some((_, _, Answer::Success)))
    }

    pub(super) fn possible(&self) -> bool {
        !matches!(self.answered, Some((_, _, Answer::Refused)))
    }

    pub(super) fn answered_before(&self, sequence: u64) -> bool {
        self.succeeded() && self.answered.is_some_and(|(at, _, _)| at < sequence)
    }

    /// Whether a name that the request takes away is the business of a FLUSH of the object: it is in a rename by a
    /// client. A deleted name is its directory's business, and so is one that the host took away, for a FLUSH makes
    /// stable where the object is, not that nobody else has left it under another name.
    pub(super) fn keeps_a_name(&self) -> bool {
        let renamed = |effect: &Effect| matches!(effect, Effect::Name { to: Some(to), about, .. } if to == about);
        !self.request.host && self.request.effects.iter().any(renamed)
    }

    pub(super) fn answered_at(&self) -> Option<Duration> {
        self.answered.map(|(_, at, _)| at)
    }
}

/// The registers of a history as known at a cut, each with the effects on it.
pub(super) struct Registers<'h> {
    pub(super) ops: Vec<Known<'h>>,
    pub(super) names: BTreeMap<(Object, &'h str), Vec<Place>>,
    /// Data, size and existence of a stream.
    pub(super) streams: BTreeMap<(Object, &'h str), Vec<Place>>,
    pub(super) meta: BTreeMap<(Object, &'h Key), Vec<Place>>,
}

impl<'h> Registers<'h> {
    pub(super) fn new(history: &'h History, cut: &Cut) -> Self {
        let ops = history
            .ops
            .iter()
            .take_while(|op| op.issued.0 <= cut.issued)
            .map(|op| Known {
                request: &op.request,
                issued: op.issued.0,
                answered: op.answered.filter(|(at, _, _)| *at <= cut.answered),
                between: op.between,
                within: op.within,
                times: op.times,
            })
            .collect();
        let mut this = Self {
            ops,
            names: BTreeMap::new(),
            streams: BTreeMap::new(),
            meta: BTreeMap::new(),
        };
        this.sort();
        this
    }

    fn sort(&mut self) {
        for (number, op) in self.ops.iter().enumerate() {
            if !op.possible() {
                continue;
            }
            let request: &'h Request = op.request;
            for (index, effect) in request.effects.iter().enumerate() {
                let places = match effect {
                    Effect::Name { dir, name, .. } => self.names.entry((*dir, name)).or_default(),
                    Effect::Data { object, stream, .. }
                    | Effect::Size { object, stream, .. }
                    | Effect::Stream { object, stream, .. } => {
                        self.streams.entry((*object, stream)).or_default()
                    }
                    Effect::Meta { object, key, .. } => {
                        self.meta.entry((*object, key)).or_default()
                    }
                };
                places.push((number, index));
            }
        }
    }

    pub(super) fn effect(&self, place: Place) -> &'h Effect {
        &self.ops[place.0].request.effects[place.1]
    }

    /// Whether one request was answered before the other was issued.
    pub(super) fn precedes(&self, first: usize, second: usize) -> bool {
        self.ops[first]
            .answered
            .is_some_and(|(at, _, _)| at < self.ops[second].issued)
    }
}

/// Which effects are covered.
pub(super) struct Covered(Vec<Vec<bool>>);

impl Covered {
    pub(super) fn has(&self, place: Place) -> bool {
        self.0
            .get(place.0)
            .and_then(|effects| effects.get(place.1))
            .copied()
            .unwrap_or(false)
    }

    fn none(registers: &Registers<'_>) -> Self {
        let of = |op: &Known<'_>| vec![false; op.request.effects.len()];
        Self(registers.ops.iter().map(of).collect())
    }

    pub(super) fn add(&mut self, (op, effect): Place) {
        if let Some(covered) = self
            .0
            .get_mut(op)
            .and_then(|effects| effects.get_mut(effect))
        {
            *covered = true;
        }
    }

    fn add_all(&mut self, op: usize) {
        if let Some(effects) = self.0.get_mut(op) {
            effects.fill(true);
        }
    }

    /// All that was answered with success by `at`, through either share or one of them. A time or a name that a request
    /// through the other share has changed since counts for that share.
    pub(super) fn answered(registers: &Registers<'_>, at: Duration, second: Option<bool>) -> Self {
        let mut this = Self::none(registers);
        for (number, op) in registers.ops.iter().enumerate() {
            let through = second.is_none_or(|second| op.request.second == second);
            if !through || !op.was_answered() || op.answered_at().is_none_or(|then| then > at) {
                continue;
            }
            let later = registers.ops.iter().skip(number + 1);
            let possible = later.filter(|other| other.possible());
            let others = possible.filter(|other| other.request.second != op.request.second);
            let effects = others.flat_map(|other| &other.request.effects);
            let changed: Vec<_> = effects.filter_map(replaceable).collect();
            for (index, effect) in op.request.effects.iter().enumerate() {
                let elsewhere = replaceable(effect).is_some_and(|one| changed.contains(&one));
                if second.is_none() || !elsewhere {
                    this.add((number, index));
                }
            }
        }
        this
    }

    /// The promises of the policy at the cut, beginning with those that need no request.
    pub(super) fn promised(registers: &Registers<'_>, history: &History, terms: &Terms) -> Self {
        // No bound is in force any more once a sync has failed.
        let failed = history
            .beneath
            .iter()
            .filter(|event| event.what.is_failure())
            .map(|event| event.at);
        let end = failed.min().map_or(terms.cut.at, |at| at.min(terms.cut.at));
        let mut this = Self::none(registers);
        for (number, op) in registers.ops.iter().enumerate() {
            let policy = match (op.between, terms.mixed) {
                (Some((low, _)), _) => low,
                (None, true) => Policy::TreatHostAsStableStorage,
                (None, false) => terms.policy,
            };
            // No age counts of a policy that was set anew since, nor on a disk that cannot keep up.
            let aged = |age, shares: &[bool]| {
                let later = |one: &&Switch| one.begun.0 > op.issued;
                let mut later = history.switches.iter().filter(later);
                let next = later.find(|one| shares.contains(&one.second));
                let end = next.map_or(end, |one| one.begun.1.min(end));
                end.checked_sub(age).filter(|_| terms.device_keeps_up)
            };
            let unasked = match (terms.cut.crash, policy) {
                (Crash::Process, _) | (_, Policy::StrictSync) => Some(Duration::MAX),
                (Crash::Power, policy) => {
                    let own = match policy {
                        Policy::Bounded(bound) => aged(bound.max_delay, &[false, true]),
                        _ => None,
                    };
                    let [first, second] = op.within;
                    let first = first.and_then(|delay| aged(delay, &[false]));
                    let second = second.and_then(|delay| aged(delay, &[true]));
                    own.max(first).max(second)
                }
            };
            let dated = aged(DIRTY_AGE_MAX, &[false, true]);
            this.add_op(registers, number, (policy, unasked, dated), terms);
        }
        this.add_switches(registers, history, terms);
        this
    }

    /// Adds a policy that was set and must hold for everything that its share was charged with before it, except for
    /// objects that a request through the other share has deleted since: nothing of them is dirty any more, and that
    /// share decides whether they come back.
    fn add_switches(&mut self, registers: &Registers<'_>, history: &History, terms: &Terms) {
        for switch in &history.switches {
            let Some(done) = switch.stable.filter(|done| *done <= terms.cut.answered) else {
                continue;
            };
            let mut failures = history.beneath.iter().filter(|e| e.what.is_failure());
            if failures.any(|event| event.after < done) {
                continue;
            }
            for (number, op) in registers.ops.iter().enumerate() {
                let [first, second] = op.within.map(|within| within.is_some());
                let bounded = if switch.second { second } else { first };
                let charged = bounded || op.request.second == switch.second;
                if !charged || !op.was_answered() || !op.answered_before(switch.begun.0) {
                    continue;
                }
                for (index, effect) in op.request.effects.iter().enumerate() {
                    let deleted = registers.ops.iter().any(|other| {
                        other.possible()
                            && other.request.second != switch.second
                            && other.issued < done
                            && takes_last_name(other.request, effect.bearer())
                    });
                    if matches!(effect, Effect::Name { .. }) || !deleted {
                        self.add((number, index));
                    }
                }
            }
        }
    }

    fn add_op(
        &mut self,
        registers: &Registers<'_>,
        number: usize,
        (policy, unasked, dated): (Policy, Option<Duration>, Option<Duration>),
        terms: &Terms,
    ) {
        let op = &registers.ops[number];
        let Some((_, at, Answer::Success)) = op.answered else {
            return;
        };
        let due = op.was_answered() && unasked.is_some_and(|before| at < before);
        if due {
            self.add_all(number);
        }
        let honors = matches!(policy, Policy::Honor | Policy::StrictSync);
        let is_dated = honors && dated.is_some_and(|before| at < before);
        let asked = op.times.unwrap_or(terms.flush_times && !terms.mixed);
        let times = is_dated || policy.flushes_times(asked);
        match &op.request.ask {
            Ask::Flush { covers, full } if honors || (*full && !terms.ignore_full_sync) => {
                self.add_flush(registers, covers, (op, true), times);
            }
            // Everything that it promised, through whichever share that was changed, is stable by now.
            Ask::Flush { covers, .. } if due => {
                self.add_flush(registers, covers, (op, false), times);
            }
            Ask::Through if honors || due => {
                // `RWF_DSYNC` stores no time; any other sync does.
                self.add_through(registers, number, is_dated || !writes(op.request));
            }
            _ => {}
        }
        let moves = op.request.ask == Ask::MoveDirectory
            || (terms.moves_stable && between_directories(op.request));
        if moves && !op.request.host && policy.kind() >= PolicyKind::Bounded {
            self.add_move(registers, number);
        }
        let security = |effect: &Effect| match effect {
            Effect::Meta { key, .. } => *key == Key::Security,
            _ => false,
        };
        if terms.durable_acl
            && cannot_be_bounded(op, policy)
            && op.request.effects.iter().any(security)
        {
            self.add_through(registers, number, true);
        }
    }

    /// A write-through request is stable, with the time of last write if `times` are covered.
    fn add_through(&mut self, registers: &Registers<'_>, number: usize, times: bool) {
        let op = &registers.ops[number];
        for (index, effect) in op.request.effects.iter().enumerate() {
            if times || !is_time(effect) {
                self.add((number, index));
            }
        }
        for effect in &op.request.effects {
            match effect {
                Effect::Name {
                    dir,
                    to: Some(about),
                    ..
                } => {
                    self.add_path(registers, *about, op.issued);
                    self.add_path(registers, *dir, op.issued);
                }
                // Of what is gone nothing is left but that it is gone, under each name that it had.
                Effect::Name { about, .. } if deletes(op.request, *about) => {
                    self.add_left(registers, *about, op.issued);
                }
                Effect::Name { .. } => {}
                other if deletes(op.request, other.bearer()) => {}
                other => self.add_path(registers, other.bearer(), op.issued),
            }
        }
    }

    /// A rename that is stable before its answer (docs/durability.md, "Renames"): that the name is where it went, and
    /// no longer where it was.
    fn add_move(&mut self, registers: &Registers<'_>, number: usize) {
        let op = &registers.ops[number];
        for (index, effect) in op.request.effects.iter().enumerate() {
            if let Effect::Name { dir, to, about, .. } = effect {
                self.add((number, index));
                if to.is_some() {
                    self.add_path(registers, *about, op.issued);
                    self.add_path(registers, *dir, op.issued);
                }
            }
        }
    }

    /// The names that renames by clients took away from an object, as answered before. Nothing is added if it ever had
    /// several names at once: after a failed sync one of them may be removed although another one is lost.
    fn add_left(&mut self, registers: &Registers<'_>, object: Object, before: u64) {
        let is_about =
            |effect: &Effect| matches!(effect, Effect::Name { about, .. } if *about == object);
        let links = |op: &Known<'_>| op.request.links && op.request.effects.iter().any(is_about);
        if registers.ops.iter().any(links) {
            return;
        }
        for place in registers.names.values().flatten() {
            let (effect, op) = (registers.effect(*place), &registers.ops[place.0]);
            let leaves = is_about(effect) && matches!(effect, Effect::Name { to: None, .. });
            if leaves && op.keeps_a_name() && op.answered_before(before) {
                self.add(*place);
            }
        }
    }
}

/// Whether an effect is that contents changed at some time.
pub(super) fn is_time(effect: &Effect) -> bool {
    let key = Key::Written;
    matches!(effect, Effect::Meta { key: is, .. } if *is == key)
}

/// The register of a name, or of the time of last write, of which only the last change can be lost: its object, the
/// directory for a name, and the name.
fn replaceable(effect: &Effect) -> Option<(Object, &str)> {
    match effect {
        Effect::Name { dir, name, .. } => Some((*dir, name)),
        other => is_time(other).then(|| (other.bearer(), "")),
    }
}

/// Whether a request is a WRITE, as opposed to another change of contents or of their end.
fn writes(request: &Request) -> bool {
    let version = |effect: &Effect| {
        matches!(
            effect,
            Effect::Data {
                content: Content::Version(_),
                ..
            }
        )
    };
    request.effects.iter().any(version)
}

/// Whether a request takes the name of an object in one directory and gives it one in another.
fn between_directories(request: &Request) -> bool {
    let name = |effect: &Effect| match effect {
        Effect::Name { dir, to, about, .. } => Some((*dir, *to, *about)),
        _ => None,
    };
    let mut names = request.effects.iter().filter_map(name);
    matches!((names.next(), names.next()), (Some((new, Some(to), about)), Some((old, None, left)))
        if to == about && about == left && new != old)
}

/// Whether `bounded` cannot have decided a request that was treated no laxer than `policy`.
fn cannot_be_bounded(op: &Known<'_>, policy: Policy) -> bool {
    let high = op.between.map_or(policy, |(_, high)| high);
    policy.kind() > PolicyKind::Bounded || high.kind() < PolicyKind::Bounded
}

/// Whether an object has no name after a request, and so no streams either.
fn takes_last_name(request: &Request, object: Object) -> bool {
    let is_name = |effect: &Effect| matches!(effect, Effect::Name { .. });
    let empties = |effect: &Effect| match effect {
        Effect::Stream {
            object: of,
            present,
            ..
        } => *of == object && !*present,
        _ => false,
    };
    let effects = &request.effects;
    effects.iter().any(is_name) && effects.iter().any(empties)
}

/// Whether a request takes a name of the object and gives it no other.
fn deletes(request: &Request, object: Object) -> bool {
    let names = || {
        request.effects.iter().filter_map(|effect| match effect {
            Effect::Name { to, about, .. } if *about == object => Some(*to),
            _ => None,
        })
    };
    names().any(|to| to.is_none()) && names().all(|to| to.is_none())
}
