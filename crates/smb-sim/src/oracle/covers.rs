//! The effects that a FLUSH covers, and where an object certainly lies.

use std::{collections::BTreeSet, ops::Range};

use super::{
    Object,
    history::{Covers, Effect},
    promise::{Covered, Known, Registers, is_time},
};

impl Covered {
    /// Adds what a FLUSH covers of that which was answered before it was issued, with or without the changes by the
    /// host. One that covers no times need not cover attributes either that the host set (docs/durability.md, "Changes
    /// made on the host").
    pub(super) fn add_flush(
        &mut self,
        registers: &Registers<'_>,
        covers: &Covers,
        (flush, by_host): (&Known<'_>, bool),
        times: bool,
    ) {
        let before = flush.issued;
        let meanwhile = before..flush.answered.map_or(u64::MAX, |(at, ..)| at);
        let inside =
            |object, folder: &Object| registers.is_below(object, *folder, meanwhile.clone());
        for (number, op) in registers.ops.iter().enumerate() {
            if !op.answered_before(before) || (op.request.host && !by_host) {
                continue;
            }
            let stays = op.keeps_a_name();
            for (index, effect) in op.request.effects.iter().enumerate() {
                let own = match (covers, effect) {
                    // The server syncs the root itself and what it knows to be changed: not what another program on
                    // the host changed below it.
                    (Covers::Root, Effect::Name { dir, .. }) if op.request.host => {
                        *dir == Object::ROOT
                    }
                    (Covers::Root, other) if op.request.host => other.bearer() == Object::ROOT,
                    (Covers::Root, _) => true,
                    (Covers::Folder(flushed), other) if op.request.host => {
                        matches!(other, Effect::Name { dir, .. } if dir == flushed)
                    }
                    (Covers::Folder(flushed), Effect::Name { dir, .. }) => inside(*dir, flushed),
                    (Covers::Folder(flushed), other) => inside(other.bearer(), flushed),
                    (Covers::Object(_) | Covers::Stream(..), Effect::Name { to: None, .. })
                        if !stays =>
                    {
                        false
                    }
                    (Covers::Directory(flushed), Effect::Name { dir, .. }) => dir == flushed,
                    (Covers::Object(flushed), Effect::Name { about, .. })
                    | (Covers::Stream(flushed, _), Effect::Name { about, .. }) => about == flushed,
                    (Covers::Directory(flushed), other) | (Covers::Object(flushed), other) => {
                        other.bearer() == *flushed
                    }
                    (Covers::Stream(flushed, name), other) => {
                        other.bearer() == *flushed
                            && match other {
                                Effect::Data { stream, .. }
                                | Effect::Size { stream, .. }
                                | Effect::Stream { stream, .. } => stream == name,
                                _ => true,
                            }
                    }
                };
                let hosts = op.request.host && matches!(effect, Effect::Meta { .. });
                if own && (times || !(hosts || is_time(effect))) {
                    self.add((number, index));
                }
            }
        }
        match covers {
            Covers::Object(object)
            | Covers::Stream(object, _)
            | Covers::Directory(object)
            | Covers::Folder(object) => self.add_path(registers, *object, before),
            Covers::Root => {}
        }
    }

    /// The names of an object and of the directories above it, as answered before.
    pub(super) fn add_path(&mut self, registers: &Registers<'_>, object: Object, before: u64) {
        let mut seen = BTreeSet::from([Object::ROOT]);
        let mut next = vec![object];
        while let Some(object) = next.pop() {
            if !seen.insert(object) {
                continue;
            }
            for ((dir, _), places) in &registers.names {
                for place in places {
                    let (Effect::Name { to, about, .. }, op) =
                        (registers.effect(*place), &registers.ops[place.0])
                    else {
                        continue;
                    };
                    let covered = to.is_some() || op.keeps_a_name();
                    if *about != object || !op.answered_before(before) || !covered {
                        continue;
                    }
                    self.add(*place);
                    // Where it is now, as against where it was.
                    let moved = places.iter().any(|later| {
                        registers.ops[later.0].answered_before(before)
                            && registers.precedes(place.0, later.0)
                    });
                    if to.is_some() && !moved {
                        next.push(*dir);
                    }
                }
            }
        }
    }
}

impl Registers<'_> {
    /// Whether an object certainly was in a directory, below it or that directory itself at each of these sequence
    /// numbers, by every name that it has.
    pub(super) fn is_below(&self, object: Object, folder: Object, meanwhile: Range<u64>) -> bool {
        let (mut seen, mut next) = (BTreeSet::from([folder]), vec![object]);
        while let Some(object) = next.pop() {
            if !seen.insert(object) {
                continue;
            }
            match self.directories(object, &meanwhile) {
                Some(above) if !above.is_empty() => next.extend(above),
                _ => return false,
            }
        }
        true
    }

    /// The directories that hold the names of an object, if nobody changes that meanwhile.
    fn directories(&self, object: Object, meanwhile: &Range<u64>) -> Option<BTreeSet<Object>> {
        let mut all = BTreeSet::new();
        for ((dir, _), places) in &self.names {
            for place in places {
                let (Effect::Name { to, about, .. }, op) =
                    (self.effect(*place), &self.ops[place.0])
                else {
                    continue;
                };
                if *about != object || op.issued >= meanwhile.end {
                    continue;
                }
                if !op.answered_before(meanwhile.start) {
                    return None;
                }
                let left = places.iter().any(|later| {
                    self.ops[later.0].answered_before(meanwhile.start)
                        && self.precedes(place.0, later.0)
                });
                if to.is_some() && !left {
                    all.insert(*dir);
                }
            }
        }
        Some(all)
    }
}
