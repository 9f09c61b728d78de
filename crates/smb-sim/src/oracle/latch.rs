//! Rule 6: what a failed sync forbids until it is repaired.
//!
//! Judged from what was written: unproven are the sectors that were certainly dirty at the
//! failure. Metadata and names are left to the other rules.

use std::collections::BTreeSet;

use durability::{Policy, PolicyKind};

use super::{
    Object, Rule, Violation,
    check::Terms,
    history::{Answer, Ask, Beneath, Content, Covers, Effect, Event, History},
    op::Op,
    promise::Registers,
};

/// A sector of a stream.
type Place = (String, u64);

impl History {
    pub(super) fn has_failed_sync(&self) -> bool {
        self.beneath.iter().any(|event| event.what.is_failure())
    }

    /// When something failed last.
    pub(crate) fn last_failure(&self) -> Option<std::time::Duration> {
        let mut failed = self.beneath.iter().filter(|event| event.what.is_failure());
        failed.next_back().map(|event| event.at)
    }
}

/// From a failed sync of an object on, no FLUSH, write-through or CLOSE of it succeeds that was
/// issued later, until all that was dirty then is rewritten.
pub(super) fn latch(registers: &Registers<'_>, history: &History, terms: &Terms) -> Vec<Violation> {
    let mut out = Vec::new();
    for event in history.beneath.iter().filter(|e| e.what.is_failure()) {
        if event.at > terms.cut.at || event.after > terms.cut.answered {
            continue;
        }
        let unproven = unproven(history, event, terms);
        for (number, op) in history.ops.iter().enumerate() {
            let Some((answered, _, Answer::Success)) = op.answered else {
                continue;
            };
            // A request of the same moment may have come before the server saw the failure.
            let later = op.issued.0 > event.after && op.issued.1 > event.at;
            if !later
                || !asks(registers, op, event)
                || op.issued.0 > terms.cut.issued
                || answered > terms.cut.answered
                || is_over(history, event, answered)
            {
                continue;
            }
            let left = unproven
                .iter()
                .find(|place| !is_rewritten(history, event, place, answered));
            if let Some((stream, sector)) = left {
                out.push(Violation::new(
                    Rule::Latch,
                    format!(
                        "a sync of {:?} failed at {:?}, and #{number} {:?} issued at {:?} \
                         succeeded; not rewritten: stream {stream:?} sector {sector}",
                        event.object, event.at, op.request.ask, op.issued.1
                    ),
                ));
            }
        }
    }
    out
}

/// Whether success says that the object is stable.
fn asks(registers: &Registers<'_>, op: &Op, event: &Event) -> bool {
    let object = event.object;
    match &op.request.ask {
        Ask::Nothing | Ask::MoveDirectory => false,
        Ask::Flush { covers, .. } => match covers {
            Covers::Root => true,
            Covers::Object(of) | Covers::Stream(of, _) | Covers::Directory(of) => *of == object,
            // Of all that was in it when the sync failed.
            Covers::Folder(of) => registers.is_below(object, *of, event.after + 1..event.after + 1),
        },
        Ask::Through => op.request.effects.iter().any(|effect| {
            matches!(effect, Effect::Data { object: of, content: Content::Version(_), .. }
                if *of == object)
        }),
        Ask::Close(of) => *of == object,
    }
}

/// The object was deleted or its latch cleared meanwhile.
fn is_over(history: &History, event: &Event, answered: u64) -> bool {
    let object = event.object;
    let cleared = history.beneath.iter().any(|other| {
        other.object == object
            && matches!(other.what, Beneath::Cleared)
            && other.after >= event.after
    });
    let gone = |op: &Op| {
        op.request.effects.iter().any(|effect| match effect {
            Effect::Name {
                to: None, about, ..
            } => *about == object && !stays(op, object),
            Effect::Name {
                to: Some(to),
                dir,
                name,
                ..
            } => *to != object && held(history, object, *dir, name),
            _ => false,
        })
    };
    cleared
        || history
            .ops
            .iter()
            .any(|op| op.issued.0 < answered && !refused(op) && gone(op))
}

/// Whether the request gives the object another name.
fn stays(op: &Op, object: Object) -> bool {
    let named =
        |effect: &Effect| matches!(effect, Effect::Name { to: Some(to), .. } if *to == object);
    op.request.effects.iter().any(named)
}

/// Whether the object ever had this name: then it may have been replaced.
fn held(history: &History, object: Object, dir: Object, name: &str) -> bool {
    history.ops.iter().any(|op| {
        op.request.effects.iter().any(|effect| {
            matches!(effect, Effect::Name { dir: d, name: n, to: Some(to), .. }
                if *to == object && *d == dir && n == name)
        })
    })
}

fn refused(op: &Op) -> bool {
    matches!(op.answered, Some((_, _, Answer::Refused)))
}

/// Sectors certainly dirty when the sync failed: issued after the last successful sync began to
/// be answered, answered before the failure, not write-through.
fn unproven(history: &History, event: &Event, terms: &Terms) -> Vec<Place> {
    let clean = clean_until(history, event, terms);
    // Perhaps, and certainly.
    let is_through =
        |op: &Op| op.request.ask == Ask::Through || op.at_most(terms) == PolicyKind::StrictSync;
    let was_through =
        |op: &Op| op.request.ask == Ask::Through || op.at_least(terms) == PolicyKind::StrictSync;
    let mut out = BTreeSet::new();
    for op in &history.ops {
        let dirty = match op.answered {
            Some((answered, _, Answer::Success)) => {
                op.issued.0 > clean && answered <= event.after && !is_through(op)
            }
            // Its own sync is the one that failed.
            Some((answered, _, Answer::Failed)) => {
                matches!(event.what, Beneath::WriteFailed)
                    && was_through(op)
                    && op.issued.0 <= event.after
                    && answered > event.after
            }
            _ => false,
        };
        if dirty {
            out.extend(written(op, event.object));
        }
    }
    // Cut off before the failure, or perhaps made durable by a write of its own.
    out.retain(|place| {
        !history.ops.iter().any(|op| {
            op.issued.0 <= event.after
                && !refused(op)
                && (touches(op, event.object, place, true)
                    || (is_through(op)
                        && !own_sync_failed(history, op, event.object)
                        && touches(op, event.object, place, false)))
        })
    });
    out.into_iter().collect()
}

/// Whether a request failed because a sync of the object did so meanwhile. One that failed for an earlier failure alone
/// may be durable itself.
fn own_sync_failed(history: &History, op: &Op, object: Object) -> bool {
    let Some((answered, _, Answer::Failed)) = op.answered else {
        return false;
    };
    let meanwhile = op.issued.0..answered;
    let mut events = history
        .beneath
        .iter()
        .filter(|other| other.object == object);
    events.any(|other| other.what.is_failure() && meanwhile.contains(&other.after))
}

/// Requests issued by this sequence number may be durable.
fn clean_until(history: &History, event: &Event, terms: &Terms) -> u64 {
    let object = event.object;
    let flushed = |op: &Op| {
        let of = match &op.request.ask {
            Ask::Flush { covers, .. } => match covers {
                Covers::Root | Covers::Folder(_) => true,
                Covers::Object(of) | Covers::Stream(of, _) => *of == object,
                Covers::Directory(_) => false,
            },
            _ => false,
        };
        let before = matches!(op.answered, Some((answered, _, Answer::Success))
            if answered <= event.after);
        let honored = match terms.mixed {
            true => op.at_most(terms) >= PolicyKind::Honor,
            false => terms.policy == Policy::Honor,
        };
        (honored && of && before).then_some(op.issued.0)
    };
    let synced = history
        .beneath
        .iter()
        .filter(|other| other.object == object && other.after <= event.after)
        .filter_map(|other| match other.what {
            Beneath::Synced(covered) => Some(covered),
            _ => None,
        });
    let flushes = history.ops.iter().filter_map(flushed);
    synced.chain(flushes).max().unwrap_or(0)
}

/// Sectors that a request writes to an object.
fn written(op: &Op, object: Object) -> impl Iterator<Item = Place> {
    op.request.effects.iter().flat_map(move |effect| {
        let mut out = Vec::new();
        if let Effect::Data {
            object: of,
            stream,
            sectors,
            content: Content::Version(_) | Content::Copy { .. },
        } = effect
            && *of == object
        {
            out.extend(sectors.clone().map(|sector| (stream.clone(), sector)));
        }
        out
    })
}

fn touches(op: &Op, object: Object, (name, number): &Place, zero: bool) -> bool {
    op.request.effects.iter().any(|effect| {
        matches!(effect, Effect::Data { object: of, stream, sectors, content }
            if *of == object && stream == name && sectors.contains(number)
                && (!zero || *content == Content::Zero))
    })
}

/// Written again by a request that was not over when the sync failed.
fn is_rewritten(history: &History, event: &Event, place: &Place, answered: u64) -> bool {
    history.ops.iter().any(|op| {
        op.issued.0 < answered
            && op.answered.is_none_or(|(at, _, _)| at > event.after)
            && !refused(op)
            && touches(op, event.object, place, false)
    })
}
