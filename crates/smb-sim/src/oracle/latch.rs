//! Rule 6: what a failed sync forbids until it is repaired.
//!
//! Judged from what was written: unproven are the sectors whose write was answered before the
//! failure and that no sync covered since. Metadata and names are left to the other rules.

use std::{collections::BTreeSet, time::Duration};

use durability::Policy;

use super::{
    Object, Rule, Violation,
    check::Terms,
    history::{Answer, Ask, Beneath, Content, Covers, Effect, History, Op},
};

impl History {
    pub(super) fn has_failed_sync(&self) -> bool {
        self.beneath
            .iter()
            .any(|(_, _, what)| matches!(what, Beneath::Failed))
    }
}

/// Rule 6: from a failed sync of an object on, no FLUSH, write-through or CLOSE of it succeeds
/// that was issued later, until all that was dirty then is rewritten.
pub(super) fn latch(history: &History, terms: &Terms) -> Vec<Violation> {
    let mut out = Vec::new();
    for (object, failed, what) in &history.beneath {
        if !matches!(what, Beneath::Failed) || *failed > terms.cut.at {
            continue;
        }
        let unproven = unproven(history, *object, *failed, &terms.policy);
        for (number, op) in history.ops.iter().enumerate() {
            let (Some((answered, _, Answer::Success)), (issued, at)) = (op.answered, op.issued)
            else {
                continue;
            };
            let asks = match &op.request.ask {
                Ask::Nothing => false,
                Ask::Flush { covers, .. } => match covers {
                    Covers::Root => true,
                    Covers::Object(of) | Covers::Stream(of, _) | Covers::Directory(of) => {
                        of == object
                    }
                },
                Ask::Through => op.request.effects.iter().any(
                    |e| matches!(e, Effect::Data { object: of, content: Content::Version(_), .. } if of == object),
                ),
                Ask::Close(of) => of == object,
            };
            if !asks
                || at <= *failed
                || issued > terms.cut.issued
                || answered > terms.cut.answered
                || over(history, *object, *failed, answered)
            {
                continue;
            }
            let left = unproven
                .iter()
                .find(|place| !rewritten(history, *object, place, *failed, answered));
            if let Some((stream, sector)) = left {
                out.push(Violation::new(
                    Rule::Latch,
                    format!(
                        "a sync of {object:?} failed at {failed:?}, and #{number} {:?} issued at \
                         {at:?} succeeded; not rewritten: stream {stream:?} sector {sector}",
                        op.request.ask
                    ),
                ));
            }
        }
    }
    out
}

/// The object was deleted or its latch cleared meanwhile.
fn over(history: &History, object: Object, failed: Duration, answered: u64) -> bool {
    history
        .beneath
        .iter()
        .any(|(of, at, what)| of == &object && matches!(what, Beneath::Cleared) && *at >= failed)
        || history.ops.iter().any(|op| {
            op.issued.0 < answered
                && !refused(op)
                && op.request.effects.iter().any(|effect| match effect {
                    Effect::Name {
                        to: None, about, ..
                    } => {
                        *about == object && op.request.effects.len() == 1
                            || matches!(op.request.ask, Ask::Close(of) if of == object)
                    }
                    Effect::Name {
                        to: Some(to),
                        dir,
                        name,
                        ..
                    } => {
                        // Perhaps it was replaced.
                        *to != object && held(history, object, *dir, name)
                    }
                    _ => false,
                })
        })
}

/// Whether the object ever had this name.
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

/// Sectors certainly dirty when the sync failed: their write was answered, and no sync that began
/// later succeeded.
fn unproven(
    history: &History,
    object: Object,
    failed: Duration,
    policy: &Policy,
) -> Vec<(String, u64)> {
    let honors = *policy == Policy::Honor;
    let flushed = |op: &Op| {
        let of = match &op.request.ask {
            Ask::Flush { covers, .. } => match covers {
                Covers::Root => true,
                Covers::Object(of) | Covers::Stream(of, _) => *of == object,
                Covers::Directory(_) => false,
            },
            _ => false,
        };
        let before = matches!(op.answered, Some((_, at, Answer::Success)) if at <= failed);
        (honors && of && before).then_some(op.issued.0)
    };
    let synced = history
        .beneath
        .iter()
        .filter(|(of, at, _)| *of == object && *at <= failed)
        .filter_map(|(_, _, what)| match what {
            Beneath::Synced(covered) => Some(*covered),
            _ => None,
        });
    let flushes = history.ops.iter().filter_map(flushed);
    let clean = synced.chain(flushes).max().unwrap_or(0);
    let mut out = BTreeSet::new();
    for op in &history.ops {
        let through = op.request.ask == Ask::Through || *policy == Policy::StrictSync;
        let dirty = match op.answered {
            Some((answered, at, Answer::Success)) => at <= failed && answered > clean && !through,
            // Its own sync is the one that failed.
            Some((_, at, Answer::Failed)) => through && op.issued.1 <= failed && failed <= at,
            _ => false,
        };
        if !dirty {
            continue;
        }
        for effect in &op.request.effects {
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
        }
    }
    // Cut off before the failure: not dirty any more.
    out.retain(|place| !truncated(history, object, place, failed));
    out.into_iter().collect()
}

fn truncated(history: &History, object: Object, place: &(String, u64), failed: Duration) -> bool {
    history
        .ops
        .iter()
        .any(|op| op.issued.1 <= failed && !refused(op) && touches(op, object, place, true))
}

fn touches(op: &Op, object: Object, (name, number): &(String, u64), zero: bool) -> bool {
    op.request.effects.iter().any(|effect| {
        matches!(effect, Effect::Data { object: of, stream, sectors, content }
            if *of == object && stream == name && sectors.contains(number)
                && (!zero || *content == Content::Zero))
    })
}

/// Written again by a request that was not over when the sync failed.
fn rewritten(
    history: &History,
    object: Object,
    place: &(String, u64),
    failed: Duration,
    answered: u64,
) -> bool {
    history.ops.iter().any(|op| {
        op.issued.0 < answered
            && op.answered.is_none_or(|(_, at, _)| at > failed)
            && !refused(op)
            && touches(op, object, place, false)
    })
}
