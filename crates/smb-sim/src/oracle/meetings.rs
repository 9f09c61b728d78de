//! Counts the events that were in progress at the same time on one inode: which kinds of requests coincided with each
//! other, and which with a failing sync.
//!
//! Owns the kinds of events that are distinguished and how a history is counted. Two requests meet when both
//! concern one object and each was issued before the other was answered; a request meets a failing sync that
//! answered its error meanwhile. It judges nothing: it says how much a run of cases has tried.

use std::{collections::BTreeMap, fmt};

use super::{
    Object,
    history::{Ask, Covers, Effect, History},
    op::Op,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// FLUSH of the file or of a stream of it.
    Flush,
    /// WRITE, or any other change of contents.
    Write,
    /// The same, write-through.
    WriteThrough,
    Resize,
    /// Attributes, times, EAs or the security descriptor are set.
    Metadata,
    /// A name is made, moved or removed.
    Name,
    Close,
    FailedSync,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flush => "FLUSH",
            Self::Write => "WRITE",
            Self::WriteThrough => "write-through WRITE",
            Self::Resize => "end of file",
            Self::Metadata => "metadata",
            Self::Name => "name",
            Self::Close => "CLOSE",
            Self::FailedSync => "failed sync",
        })
    }
}

/// How often each pair of kinds met, the lesser kind first.
pub type Meetings = BTreeMap<(Event, Event), u64>;

/// The pairs that a run of some hundred cases has to have tried: each is a place where a server can
/// take one's effect for covered by the other's sync.
pub const WANTED: [(Event, Event); 17] = [
    (Event::Flush, Event::Flush),
    (Event::Flush, Event::Write),
    (Event::Flush, Event::WriteThrough),
    (Event::Flush, Event::Resize),
    (Event::Flush, Event::Metadata),
    (Event::Flush, Event::Name),
    (Event::Flush, Event::Close),
    (Event::Flush, Event::FailedSync),
    (Event::Write, Event::Write),
    (Event::Write, Event::WriteThrough),
    (Event::Write, Event::Resize),
    (Event::Write, Event::FailedSync),
    (Event::WriteThrough, Event::WriteThrough),
    (Event::WriteThrough, Event::FailedSync),
    (Event::Resize, Event::FailedSync),
    (Event::Metadata, Event::FailedSync),
    (Event::Name, Event::FailedSync),
];

impl History {
    /// Which events were under way at once on one inode, and how often.
    pub fn meetings(&self) -> Meetings {
        let mut met = Meetings::new();
        let mut count = |one: Event, other: Event| {
            *met.entry((one.min(other), one.max(other))).or_default() += 1;
        };
        let known: Vec<_> = self
            .ops
            .iter()
            .filter_map(|op| Some((kind(op)?, op)))
            .collect();
        for (index, ((kind, object), op)) in known.iter().enumerate() {
            for ((other_kind, other_object), other) in known.iter().skip(index + 1) {
                // In the order in which they were issued.
                let under_way = op.answered.is_none_or(|(at, ..)| at > other.issued.0);
                if under_way && object == other_object {
                    count(*kind, *other_kind);
                }
            }
            for event in self.beneath.iter().filter(|event| event.what.is_failure()) {
                let begun = op.issued.0 <= event.after;
                let under_way = begun && op.answered.is_none_or(|(at, ..)| at > event.after);
                if under_way && event.object == *object {
                    count(*kind, Event::FailedSync);
                }
            }
        }
        met
    }
}

/// The kind of a request, and its object.
fn kind(op: &Op) -> Option<(Event, Object)> {
    match &op.request.ask {
        Ask::Flush { covers, .. } => match covers {
            Covers::Object(of)
            | Covers::Stream(of, _)
            | Covers::Directory(of)
            | Covers::Folder(of) => return Some((Event::Flush, *of)),
            Covers::Root => return Some((Event::Flush, Object::ROOT)),
        },
        Ask::Close(of) if op.request.effects.is_empty() => return Some((Event::Close, *of)),
        _ => {}
    }
    let through = op.request.ask == Ask::Through;
    let effects = &op.request.effects;
    let named = effects.iter().find_map(|effect| match effect {
        Effect::Name { about, .. } => Some((Event::Name, *about)),
        Effect::Size {
            object,
            size: super::Size::Exactly(_),
            ..
        } => Some((Event::Resize, *object)),
        _ => None,
    });
    named.or_else(|| match effects.first()? {
        Effect::Data { object, .. } if through => Some((Event::WriteThrough, *object)),
        Effect::Data { object, .. } => Some((Event::Write, *object)),
        Effect::Meta { object, .. } | Effect::Stream { object, .. } => {
            Some((Event::Metadata, *object))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::oracle::{Answer, Request};

    #[test]
    fn requests_meet_while_both_are_under_way_on_one_inode() {
        let (mut history, at) = (History::new(), Duration::ZERO);
        let (file, other) = (Object(1), Object(2));
        let write = history.issue(at, Request::write(file, "", 0..1, 1));
        let flush = history.issue(at, Request::flush(Covers::Object(file)));
        history.issue(at, Request::flush(Covers::Object(other)));
        history.answer(write, at, Answer::Success);
        // Too late for the write.
        history.sync_failed(file, at);
        history.answer(flush, at, Answer::Failed);
        history.issue(at, Request::close(file, Vec::new()));
        let met = history.meetings();
        let expected = Meetings::from([
            ((Event::Flush, Event::Write), 1),
            ((Event::Flush, Event::FailedSync), 1),
        ]);
        assert_eq!(met, expected);
    }
}
