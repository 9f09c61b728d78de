//! Share modes and deletion against a model that keeps a plain list of opens.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Open {
        file: u64,
        stream: u8,
        second_link: bool,
        access: u8,
        share: u32,
        doomed: bool,
        effect: AccessMask,
    },
    Close {
        nth: usize,
    },
    Delete {
        nth: usize,
        posix: bool,
    },
    Undelete {
        nth: usize,
    },
    Removed,
}

fn op() -> impl Strategy<Value = Op> {
    let bits = prop_oneof![Just(0u8), 1u8..16];
    let share = prop_oneof![Just(7u32), 0u32..8];
    let effect = prop_oneof![
        6 => Just(AccessMask::empty()),
        1 => Just(WRITE),
        1 => Just(WRITE | DELETE),
    ];
    prop_oneof![
        8 => (1u64..3, 0u8..3, any::<bool>(), bits, share, prop::bool::weighted(0.1), effect)
            .prop_map(|(file, stream, second_link, access, share, doomed, effect)| Op::Open {
                file, stream, second_link, access, share, doomed, effect
            }),
        5 => (0..6usize).prop_map(|nth| Op::Close { nth }),
        1 => (0..6usize, any::<bool>()).prop_map(|(nth, posix)| Op::Delete { nth, posix }),
        1 => (0..6usize).prop_map(|nth| Op::Undelete { nth }),
        2 => Just(Op::Removed),
    ]
}

fn access(bits: u8) -> AccessMask {
    READ.when(bits & 1 != 0)
        | AccessMask::FILE_APPEND_DATA.when(bits & 2 != 0)
        | DELETE.when(bits & 4 != 0)
        | AccessMask::FILE_EXECUTE.when(bits & 8 != 0)
        | STAT
}

/// The object that can be marked: a link of a file, or one of its named streams.
#[derive(Debug, Clone, PartialEq)]
enum Target {
    Link(u64, Link),
    Stream(Place),
}

fn target(request: &OpenRequest) -> Target {
    match &request.place.stream {
        None => link_target(request),
        Some(_) => Target::Stream(request.place.clone()),
    }
}

fn link_target(request: &OpenRequest) -> Target {
    Target::Link(request.place.key.ino, request.link.clone())
}

#[derive(Default)]
struct Model {
    opens: Vec<OpenRequest>,
    nameless: Vec<OpenId>,
    /// The marked targets, with the open that asked for POSIX semantics.
    pending: Vec<(Target, Option<OpenId>)>,
    /// The removals that were requested and not yet reported back.
    removing: Vec<(Target, Place, Remove, OpenId)>,
}

impl Model {
    fn is_gone(&self, target: &Target) -> bool {
        self.pending.iter().any(|(other, _)| other == target)
            || self.removing.iter().any(|(other, ..)| other == target)
    }

    fn judge(&self, new: &OpenRequest) -> Status {
        if self.is_gone(&target(new)) || self.is_gone(&link_target(new)) {
            return Status::DELETE_PENDING;
        }
        let conflict = self.opens.iter().any(|old| conflicts(old, new));
        if conflict {
            Status::SHARING_VIOLATION
        } else {
            Status::SUCCESS
        }
    }

    fn mark(&mut self, target: Target, posix: Option<OpenId>) {
        if self.removing.iter().any(|(other, ..)| *other == target) {
            return;
        }
        match self.pending.iter_mut().find(|(other, _)| *other == target) {
            Some((_, by)) => *by = posix.or(*by),
            None => self.pending.push((target, posix)),
        }
    }

    fn close(&mut self, at: usize) -> Option<Remove> {
        let closing = self.opens.remove(at);
        if closing.delete_on_close && !self.nameless.contains(&closing.open) {
            self.mark(target(&closing), None);
        }
        let of_link = |open: &&OpenRequest| link_target(open) == link_target(&closing);
        let links_left = self.opens.iter().filter(of_link).count();
        let streams_left = self
            .opens
            .iter()
            .filter(|o| o.place == closing.place)
            .count();
        let by_link = (
            link_target(&closing),
            Remove::Link(closing.link.clone()),
            links_left,
        );
        let by_stream = (target(&closing), Remove::Stream, streams_left);
        for (goes, remove, left) in [by_link, by_stream] {
            let at = self.pending.iter().position(|(target, posix)| {
                let right_kind =
                    matches!(goes, Target::Link(..)) == matches!(remove, Remove::Link(_));
                right_kind && *target == goes && (left == 0 || *posix == Some(closing.open))
            });
            let Some(at) = at else { continue };
            self.pending.remove(at);
            if let Remove::Link(_) = remove {
                let left = self.opens.iter().filter(of_link).map(|open| open.open);
                self.nameless.extend(left);
            }
            self.removing
                .push((goes, closing.place.clone(), remove.clone(), closing.open));
            self.forget_streams();
            return Some(remove);
        }
        self.forget_streams();
        None
    }

    /// Drops marks on streams that nobody has open: they ended with the stream's last close.
    fn forget_streams(&mut self) {
        let opens = &self.opens;
        self.pending.retain(|(target, _)| match target {
            Target::Stream(place) => opens.iter().any(|open| open.place == *place),
            Target::Link(..) => true,
        });
    }
}

fn conflicts(old: &OpenRequest, new: &OpenRequest) -> bool {
    let data = READ | WRITE | DELETE | AccessMask::FILE_APPEND_DATA | AccessMask::FILE_EXECUTE;
    let does = |who: &OpenRequest| who.access | who.effect;
    if old.place.key != new.place.key || !does(old).intersects(data) || !does(new).intersects(data)
    {
        return false;
    }
    let lasts = |open: &OpenRequest| open.place.stream.is_some() && open.share.0 & 4 == 0;
    if old.place.stream != new.place.stream {
        return match (&old.place.stream, &new.place.stream) {
            (Some(_), Some(_)) => false,
            (None, _) => old.access.contains(DELETE) && lasts(new),
            // Overwriting a file removes its streams.
            (_, None) => (new.access.contains(DELETE) || new.overwrites()) && lasts(old),
        };
    }
    let denied = |who: &OpenRequest, by: &OpenRequest| {
        let reads = does(who).intersects(READ | AccessMask::FILE_EXECUTE);
        let writes = does(who).intersects(WRITE | AccessMask::FILE_APPEND_DATA);
        let deletes = does(who).contains(DELETE);
        (reads && by.share.0 & 1 == 0)
            || (writes && by.share.0 & 2 == 0)
            || (deletes && by.share.0 & 4 == 0)
    };
    denied(old, new) || denied(new, old)
}

fn open(rig: &Rig, model: &mut Model, request: OpenRequest) {
    let expected = model.judge(&request);
    let (decision, effects) = rig.files.open(&request);
    assert!(effects.is_empty());
    match decision {
        Decision::Granted(_) => {
            assert_eq!(expected, Status::SUCCESS);
            rig.files
                .overwritten(&request.place, request.open, request.access);
            model.opens.push(OpenRequest {
                effect: AccessMask::empty(),
                ..request
            });
        }
        Decision::Conflict(status) => assert_eq!(status, expected),
        Decision::MustBreak => panic!("nobody caches"),
    }
}

fn step(rig: &Rig, model: &mut Model, op: &Op) {
    match *op {
        Op::Open {
            file,
            stream: on,
            second_link,
            access: bits,
            share,
            doomed,
            effect,
        } => {
            let name = if second_link { "other" } else { "one" };
            let request = OpenRequest {
                place: match on {
                    0 => place(file),
                    n => stream(file, if n == 1 { "S" } else { "T" }),
                },
                link: link(file, name),
                share: ShareAccess(share),
                delete_on_close: doomed,
                effect,
                ..rig.request(file, access(bits))
            };
            open(rig, model, request);
        }
        Op::Close { nth } if nth < model.opens.len() => {
            let request = model.opens[nth].clone();
            let expected = model.close(nth);
            let closed = rig.close(&request);
            assert_eq!(closed.remove.map(|(remove, _)| remove), expected);
            let same_file = |o: &&OpenRequest| o.place.key == request.place.key;
            let left: Vec<_> = model.opens.iter().filter(same_file).collect();
            let none = rig.files.count(request.place.key, None) == 0;
            assert_eq!(none, left.is_empty());
            let streams = left.iter().filter(|o| o.place == request.place).count();
            assert_eq!(rig.files.is_stream_open(&request.place), streams > 0);
        }
        Op::Delete { nth, posix } if nth < model.opens.len() => {
            let request = &model.opens[nth];
            let marked = rig
                .files
                .set_delete_pending(&request.place, request.open, posix, ME);
            assert_eq!(marked, Ok(Effects::default()));
            let (target, open) = (target(request), request.open);
            if !model.nameless.contains(&open) {
                let posix = posix && matches!(target, Target::Link(..));
                model.mark(target, posix.then_some(open));
            }
        }
        Op::Undelete { nth } if nth < model.opens.len() => {
            let request = &model.opens[nth];
            assert_eq!(
                rig.files.clear_delete_pending(&request.place, request.open),
                Ok(())
            );
            let target = target(request);
            model.pending.retain(|(other, _)| *other != target);
        }
        Op::Removed => {
            for (_, place, remove, by) in model.removing.drain(..) {
                rig.files.removed(&place, &remove, Some(by));
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases())
    })]

    #[test]
    fn opens_match_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let rig = Rig::new();
        let mut model = Model::default();
        for op in &ops {
            step(&rig, &mut model, op);
        }
        while !model.opens.is_empty() {
            step(&rig, &mut model, &Op::Close { nth: 0 });
        }
        step(&rig, &mut model, &Op::Removed);
        assert!(rig.files.is_empty());
    }
}
