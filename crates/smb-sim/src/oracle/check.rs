//! The entry point of the oracle: its terms, the comparison with the state that was found, and violations.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use durability::Policy;

use super::{
    Object, Rule, Violation,
    history::{Effect, History},
    latch,
    promise::{Covered, Place, Registers},
    rules::{self, Loss, Miss},
    view::{Found, View},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The power, or the host: what was not stable may be lost.
    Power,
    /// The server's process: the host's memory stays.
    Process,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    pub crash: Crash,
    /// The time, by the recorder's clock.
    pub at: Duration,
    /// Answers with a higher sequence number count as not given.
    pub answered: u64,
    /// Requests with a higher sequence number count as not issued. No lower than `answered`.
    pub issued: u64,
}

impl Cut {
    /// At the end of a history.
    #[must_use]
    pub fn after(history: &History, crash: Crash, at: Duration) -> Self {
        Self {
            crash,
            at,
            answered: history.now(),
            issued: history.now(),
        }
    }
}

/// The exposure as the server reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exposed {
    /// It is the second share's.
    pub second: bool,
    /// When, by the recorder's clock.
    pub at: Duration,
    /// Bytes acknowledged and not known to be stable.
    pub bytes: u64,
    pub inodes: u64,
    pub oldest_age: Duration,
    /// Bytes left unproven by failed syncs.
    pub unproven_bytes: u64,
    /// Inodes that these failures poisoned.
    pub poisoned_inodes: u64,
}

/// The promises, and their end.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The policy in force all the time, or at first.
    pub policy: Policy,
    /// Other policies may have decided requests: see [`History::decided`].
    pub mixed: bool,
    /// Apple's full sync counts as a FLUSH.
    pub ignore_full_sync: bool,
    /// A security descriptor is stable before its answer.
    pub durable_acl: bool,
    /// A FLUSH covers the time of last write, as a write-through change other than a WRITE always does.
    pub flush_times: bool,
    pub cut: Cut,
    /// The last exposures reported before the end, if any.
    pub exposure: Vec<Exposed>,
    /// The file system keeps a rename whole: one name, whether it was synced or not.
    pub renames_atomic: bool,
    /// The file system keeps or loses no part of a rename on its own account: only what the
    /// server synced is there, or renames are whole.
    pub renames_synced: bool,
    /// The server makes the rename of a file between two directories stable before its answer, except under
    /// `treat-host-as-stable-storage`, because it takes the file system for one that may keep half a rename.
    pub moves_stable: bool,
    /// No sync took so long that a bound in time could not be kept.
    pub device_keeps_up: bool,
    /// The disk does no less of a write than it is asked for.
    pub writes_whole: bool,
}

impl Terms {
    /// The strictest reading for a policy.
    pub fn new(policy: Policy, cut: Cut) -> Self {
        Self {
            policy,
            mixed: false,
            ignore_full_sync: false,
            durable_acl: false,
            flush_times: true,
            cut,
            exposure: Vec::new(),
            renames_atomic: false,
            renames_synced: false,
            moves_stable: false,
            device_keeps_up: true,
            writes_whole: true,
        }
    }
}

/// Everything in `found` that breaks a promise made in `history`.
#[must_use]
pub fn check(history: &History, found: &View, terms: &Terms) -> Vec<Violation> {
    let registers = Registers::new(history, &terms.cut);
    let promised = Covered::promised(&registers, history, terms);
    let walk = Walk::new(&registers, history, found, &promised);
    let rule = match (terms.cut.crash, terms.policy) {
        (Crash::Process, _) => Rule::Process,
        (_, Policy::StrictSync) => Rule::Strict,
        (_, Policy::Bounded(_)) => Rule::Bound,
        _ => Rule::Acknowledged,
    };
    let broken = |miss: Miss| Violation::new(rule, miss.what);
    let mut out: Vec<_> = walk.names(&promised).into_iter().map(broken).collect();
    for (object, entry) in &walk.objects {
        let misses = rules::contents(&registers, &promised, *object, entry);
        out.extend(misses.into_iter().map(broken));
        out.extend(rules::torn(&registers, *object, entry, terms.writes_whole));
    }
    out.extend(walk.one_name(&promised, terms));
    // The host's memory has every rename whole.
    let whole = terms.renames_synced || terms.cut.crash == Crash::Process;
    if whole && !history.has_failed_sync() {
        out.extend(walk.no_name(&promised, terms));
    }
    out.extend(latch::latch(&registers, history, terms));
    out.extend(walk.exposure(history, terms));
    out
}

/// The loss of everything that was answered with success by `at`, promised or not.
#[must_use]
pub fn loss(history: &History, found: &View, cut: &Cut, at: Duration) -> Loss {
    let registers = Registers::new(history, cut);
    let answered = Covered::answered(&registers, at, None);
    Walk::new(&registers, history, found, &answered).loss(&answered)
}

/// The state that was found, with objects in place of paths.
struct Walk<'a> {
    registers: &'a Registers<'a>,
    /// Names of the directories found: what they lead to.
    slots: BTreeMap<(Object, &'a str), Object>,
    directories: BTreeSet<Object>,
    objects: BTreeMap<Object, &'a Found>,
    /// Names nobody gave.
    strangers: Vec<String>,
}

impl<'a> Walk<'a> {
    fn new(
        registers: &'a Registers<'a>,
        history: &History,
        view: &'a View,
        covered: &Covered,
    ) -> Self {
        let mut this = Self {
            registers,
            slots: BTreeMap::new(),
            directories: BTreeSet::from([Object::ROOT]),
            objects: BTreeMap::new(),
            strangers: Vec::new(),
        };
        let mut paths: BTreeMap<&[String], Object> = BTreeMap::from([(&[][..], Object::ROOT)]);
        // Parents sort before children.
        for (path, found) in &view.entries {
            let Some((name, above)) = path.split_last() else {
                continue;
            };
            let Some(dir) = paths.get(above).copied() else {
                continue;
            };
            let Some(object) = this.identify(history, (dir, name), found, covered) else {
                this.strangers.push(path.join("/"));
                continue;
            };
            this.slots.insert((dir, name), object);
            this.objects.insert(object, found);
            if found.directory {
                this.directories.insert(object);
            }
            paths.insert(path, object);
        }
        this
    }

    /// Which object an entry is: by its number, else the one that explains what is found best.
    fn identify(
        &self,
        history: &History,
        slot: (Object, &'a str),
        found: &Found,
        covered: &Covered,
    ) -> Option<Object> {
        let mut given: Vec<Object> = Vec::new();
        let places = self.registers.names.get(&slot);
        for place in places.into_iter().flatten() {
            if let Effect::Name { to: Some(to), .. } = self.registers.effect(*place)
                && !given.contains(to)
            {
                given.push(*to);
            }
        }
        if let Some(known) = found.index.and_then(|index| history.identities.get(&index)) {
            let here = given.iter().copied().filter(|one| known.contains(one));
            given = here.collect();
            if given.is_empty() {
                return known.last().copied();
            }
        } else if found.index.is_some() {
            // One whose creation was never answered has no known number.
            let nameless = |one: &Object| !history.identities.values().flatten().any(|o| o == one);
            given.retain(nameless);
        }
        given.into_iter().rev().min_by_key(|object| {
            let name = rules::name(self.registers, covered, slot, Some(*object)).len();
            name * 1000 + rules::contents(self.registers, covered, *object, found).len()
        })
    }

    /// Names that are not what they must be.
    fn names(&self, covered: &Covered) -> Vec<Miss> {
        let mut misses: Vec<Miss> = self
            .strangers
            .iter()
            .map(|path| Miss::new(Object::ROOT, format!("{path}: nobody gave this name")))
            .collect();
        for (dir, name) in self.registers.names.keys() {
            if self.directories.contains(dir) {
                let to = self.slots.get(&(*dir, *name)).copied();
                misses.extend(rules::name(self.registers, covered, (*dir, name), to));
            }
        }
        for (slot, to) in &self.slots {
            if !self.registers.names.contains_key(slot) {
                let what = format!("{to:?} is found as {slot:?}, a name it never had");
                misses.push(Miss::new(*to, what));
            }
        }
        misses
    }

    /// Rule 7.
    fn one_name(&self, covered: &Covered, terms: &Terms) -> Vec<Violation> {
        let mut out = Vec::new();
        let mut moved: BTreeMap<Object, bool> = BTreeMap::new();
        let mut exempt = BTreeSet::new();
        for (number, op) in self.registers.ops.iter().enumerate() {
            let names: Vec<_> = op
                .request
                .effects
                .iter()
                .enumerate()
                .filter_map(|(index, effect)| match effect {
                    Effect::Name { to, about, .. } => Some((index, *to, *about)),
                    _ => None,
                })
                .collect();
            if let [(first, Some(object), _), (second, None, about)] = names[..]
                && object == about
            {
                let both = covered.has((number, first)) && covered.has((number, second));
                *moved.entry(object).or_default() |= both;
            } else if op.request.links || names.iter().any(|(_, to, _)| to.is_none()) {
                // Linked, or deleted: any number of names may be right.
                exempt.extend(names.iter().map(|(_, _, about)| *about));
            }
        }
        for (object, promised) in moved {
            let names: Vec<_> = self
                .slots
                .iter()
                .filter(|(_, to)| **to == object)
                .map(|(slot, _)| slot)
                .collect();
            if exempt.contains(&object) || names.len() < 2 || !(promised || terms.renames_atomic) {
                continue;
            }
            // A rename that came later and was not promised may have left both, unless the file
            // system keeps renames whole.
            let settled = names
                .iter()
                .all(|slot| rules::name(self.registers, covered, **slot, Some(object)).is_empty());
            if terms.renames_atomic || !settled {
                out.push(Violation::new(
                    Rule::OneName,
                    format!(
                        "{object:?} was renamed and has {} names: {names:?}",
                        names.len()
                    ),
                ));
            }
        }
        out
    }

    /// Rule 7, the other way: what had a promised name is found, where it was or where it went,
    /// at whatever moment of whatever later rename. A file system that may keep half a rename may lose what the host
    /// moved: the server cannot order the syncs of directories that it does not know to be changed.
    fn no_name(&self, covered: &Covered, terms: &Terms) -> Vec<Violation> {
        let doomed = self.lost_with_parent(false);
        let mut promised = BTreeSet::new();
        let mut moved_by_host = BTreeSet::new();
        for (number, op) in self.registers.ops.iter().enumerate() {
            for (index, effect) in op.request.effects.iter().enumerate() {
                let Effect::Name { to: Some(to), .. } = effect else {
                    continue;
                };
                if !covered.has((number, index)) {
                    if op.request.host && !terms.renames_atomic {
                        moved_by_host.insert(*to);
                    }
                } else if !doomed.contains_key(to) {
                    promised.insert(*to);
                }
            }
        }
        promised
            .retain(|object| !self.objects.contains_key(object) && !moved_by_host.contains(object));
        let gone = |object| format!("{object:?} had a promised name and is found under none");
        let gone = |object| Violation::new(Rule::OneName, gone(object));
        promised.into_iter().map(gone).collect()
    }

    /// The loss of the covered requests.
    fn loss(&self, covered: &Covered) -> Loss {
        let mut loss = Loss::default();
        let (gone, replaced) = (self.lost_with_parent(false), self.lost_with_parent(true));
        for miss in self.names(covered) {
            loss.add(&miss.without(&replaced));
        }
        for (object, found) in &self.objects {
            // Of what was to be deleted, nobody misses anything but that it is gone.
            if gone.contains_key(object) {
                continue;
            }
            for miss in rules::contents(self.registers, covered, *object, found) {
                // Charged as its name is, or one inode would count as two.
                loss.add(&miss.charged(&replaced));
            }
        }
        loss
    }

    /// The objects that a client wanted to delete or replace, answered or not; and the directory that loses the name.
    /// With `either`, all that shared a name, one after the other: a name that is missing may be older than its last
    /// object.
    fn lost_with_parent(&self, either: bool) -> BTreeMap<Object, Object> {
        let mut doomed = BTreeMap::new();
        let ops = self.registers.ops.iter().enumerate();
        for (number, op) in ops.filter(|(_, op)| op.possible()) {
            let names = op.request.effects.iter().filter_map(|effect| match effect {
                Effect::Name {
                    dir,
                    name,
                    to,
                    about,
                } => Some(((*dir, name.as_str()), *to, *about)),
                _ => None,
            });
            let names: Vec<_> = names.collect();
            for ((dir, name), to, about) in &names {
                let stays = names.iter().any(|(_, to, _)| *to == Some(*about));
                if to.is_none() && !stays {
                    doomed.insert(*about, *dir);
                }
                if to.is_some() {
                    for place in self
                        .registers
                        .names
                        .get(&(*dir, *name))
                        .into_iter()
                        .flatten()
                    {
                        if let Effect::Name { to: Some(old), .. } = self.registers.effect(*place)
                            && old != about
                            && (either || self.may_replace(number, *place))
                        {
                            doomed.insert(*old, *dir);
                        }
                    }
                }
            }
        }
        doomed
    }

    /// Whether a request that gives a name to an object may have found there the one that got it by `named`: not if it
    /// was over before that, nor if it began after that object had moved away.
    fn may_replace(&self, number: usize, named: Place) -> bool {
        let registers = self.registers;
        let Effect::Name {
            dir,
            name,
            to: Some(old),
            ..
        } = registers.effect(named)
        else {
            return false;
        };
        let left = |place: &Place| {
            let effect = registers.effect(*place);
            matches!(effect, Effect::Name { to: None, about, .. } if about == old)
                && registers.ops[place.0].succeeded()
                && registers.precedes(named.0, place.0)
                && registers.precedes(place.0, number)
        };
        let places = registers.names.get(&(*dir, name.as_str()));
        let has_left = places.is_some_and(|places| places.iter().any(left));
        !has_left && !registers.precedes(number, named.0)
    }

    /// Rules 3 (bytes) and 8.
    fn exposure(&self, history: &History, terms: &Terms) -> Vec<Violation> {
        let mut out = Vec::new();
        if terms.cut.crash == Crash::Process {
            return out;
        }
        if let Policy::Bounded(bound) = terms.policy
            && !terms.mixed
            && !history.has_failed_sync()
        {
            let lost = self.loss(&Covered::answered(self.registers, terms.cut.at, None));
            if lost.bytes > bound.max_bytes {
                out.push(Violation::new(
                    Rule::Bound,
                    format!(
                        "{} bytes are lost, the bound is {}",
                        lost.bytes, bound.max_bytes
                    ),
                ));
            }
        }
        for reported in &terms.exposure {
            out.extend(self.above(reported));
        }
        out
    }

    /// The loss of the requests through one share, as far as it is beyond the exposure of that share.
    fn above(&self, reported: &Exposed) -> Vec<Violation> {
        let mut out = Vec::new();
        let answered = Covered::answered(self.registers, reported.at, Some(reported.second));
        let lost = self.loss(&answered);
        let mut over = |what: String| out.push(Violation::new(Rule::Exposure, what));
        if lost.bytes > reported.bytes.saturating_add(reported.unproven_bytes) {
            over(format!(
                "{} bytes are lost, reported was {reported:?}: {:?}",
                lost.bytes, lost.what
            ));
        }
        let inodes = lost.inodes.len() as u64;
        if inodes > reported.inodes.saturating_add(reported.poisoned_inodes) {
            over(format!(
                "{inodes} inodes lost something, reported was {reported:?}: {:?}",
                lost.what
            ));
        }
        if let Some(oldest) = lost.oldest
            && reported.poisoned_inodes == 0
            && reported.at.saturating_sub(oldest) > reported.oldest_age
        {
            over(format!(
                "lost is what was answered {:?} before, reported was {reported:?}: {:?}",
                reported.at.saturating_sub(oldest),
                lost.what
            ));
        }
        out
    }
}
