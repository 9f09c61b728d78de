//! The simulator's oracle over the same record: a second opinion.
//!
//! [`crate::judge`] counts, this one knows every rule of the simulator ([`smb_sim::oracle`]): pages
//! that mix more than two states, a file under two names, the exposure that the server reported.
//! Both were written apart from each other; where they disagree, one of them is wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use durability::Policy;
use smb_sim::oracle::{
    self, Answer, Covers, Crash, Effect, Exposed, Found, FoundStream, Key, Request, Sector, Size,
    Stamp, Terms, fill, sectors_of,
};

use crate::judge::Cut;
use crate::record::{
    Cell, Contents, DATA, Fork, Gauge, History, Kind, MARK, Moment, Object, Operation, Promise,
    SMALL, STREAMS, UNIT, Value,
};
use crate::view::{Node, View};
use crate::workload::{OBJECTS, SHARED, SHARED_EACH};

/// A record in the oracle's words.
pub(crate) struct Oracle {
    history: oracle::History,
    /// A FLUSH covers times.
    flush_times: bool,
    /// Order of each moment, and its sequence number in `history`.
    sequence: Vec<(u64, u64)>,
    /// The number that a stamp has for each stream.
    streams: [u32; 3],
    /// Inode numbers of those that ever were at a path. A number may belong to a dead object, and
    /// the new one be unknown because its creation was not answered: then it says nothing.
    inodes: BTreeMap<String, Vec<u64>>,
}

/// An event of an operation: it was issued, or answered.
enum Event<'a> {
    Issued(usize, &'a Operation),
    Answered(usize),
}

/// Where objects are while the record is read from its beginning.
#[derive(Default)]
struct Places<'a> {
    of: BTreeMap<Object, &'a str>,
    at: BTreeMap<&'a str, Object>,
    /// The files that objects are further names of.
    links: BTreeMap<Object, Object>,
}

impl<'a> Places<'a> {
    fn file(&self, object: Object) -> oracle::Object {
        let file = self.links.get(&object).copied().unwrap_or(object);
        oracle::Object(u64::from(file))
    }

    fn slot(&self, path: &'a str) -> (oracle::Object, &'a str) {
        match path.rsplit_once('/') {
            Some((above, name)) => {
                let above = self.at.get(above).copied().unwrap_or(0);
                (oracle::Object(u64::from(above)), name)
            }
            None => (oracle::Object::ROOT, path),
        }
    }
}

impl<'a> Places<'a> {
    /// The object got a name, instead of the one it had if it had one. In a rename of a directory
    /// what is below keeps its own name.
    fn named(&mut self, object: Object, path: &'a str, directory_moved: bool) -> Vec<Effect> {
        let own_name = |path: &'a str| path.rsplit('/').next();
        let about = self.file(object);
        let effect = |(dir, name): (oracle::Object, &str), to| Effect::Name {
            dir,
            name: name.to_owned(),
            to,
            about,
        };
        let mut effects = vec![effect(self.slot(path), Some(about))];
        let old = self.of.insert(object, path);
        if let Some(old) = old {
            effects.push(effect(self.slot(old), None));
            self.at.remove(old);
        }
        self.at.insert(path, object);
        match old {
            Some(old) if directory_moved && own_name(old) == own_name(path) => Vec::new(),
            _ => effects,
        }
    }
}

impl Oracle {
    pub(crate) fn new(record: &History, flush_times: bool) -> Self {
        let mut events: Vec<(Moment, Event<'_>)> = Vec::new();
        for (number, operation) in record.operations.iter().enumerate() {
            events.push((operation.issued, Event::Issued(number, operation)));
            if let Some(at) = operation.acknowledged {
                events.push((at, Event::Answered(number)));
            }
        }
        events.sort_by_key(|(moment, _)| moment.order);
        let mut this = Self {
            history: oracle::History::new(),
            flush_times,
            sequence: Vec::new(),
            streams: STREAMS.map(|name| {
                match sectors_of(&fill(oracle::Object(1), name, 0, 1, 1)).first() {
                    Some(Sector::Stamp(stamp)) => stamp.stream,
                    _ => 0,
                }
            }),
            inodes: BTreeMap::new(),
        };
        for operation in &record.operations {
            for (cell, value) in &operation.effects {
                if let (Value::Path(path), Some(inode)) = (value, record.inodes.get(&cell.object()))
                {
                    this.inodes.entry(path.clone()).or_default().push(*inode);
                }
            }
        }
        let (mut places, mut ids) = (Places::default(), BTreeMap::new());
        places.links.clone_from(&record.links);
        for (moment, event) in events {
            match event {
                Event::Issued(number, operation) => {
                    let request = request(operation, &mut places);
                    ids.insert(number, this.history.issue(moment.at, request));
                }
                Event::Answered(number) => {
                    this.history
                        .answer(ids[&number], moment.at, Answer::Success);
                }
            }
            this.sequence.push((moment.order, this.history.now()));
        }
        for (object, inode) in &record.inodes {
            let file = record.file(*object);
            this.history
                .identify(oracle::Object(u64::from(file)), *inode);
        }
        this
    }

    /// Every rule of a policy that is broken.
    pub(crate) fn check(
        &self,
        view: &View,
        cut: Cut,
        gauge: Option<Gauge>,
        policy: Policy,
        keeps_up: bool,
    ) -> Vec<String> {
        let seen = self
            .sequence
            .partition_point(|(order, _)| *order <= cut.order);
        let last = seen.checked_sub(1).map_or(0, |last| self.sequence[last].1);
        let cut = oracle::Cut {
            crash: Crash::Power,
            at: cut.at,
            answered: last,
            issued: last,
        };
        let mut terms = Terms::new(policy, cut);
        terms.device_keeps_up = keeps_up;
        terms.flush_times = self.flush_times;
        // On all three file systems no rename takes the only stable name away (ARCHITECTURE.md, Renames).
        terms.renames_synced = true;
        let exposed = gauge.map(|gauge| Exposed {
            at: cut.at,
            bytes: gauge.bytes,
            inodes: gauge.inodes,
            // The server reports whole milliseconds.
            oldest_age: gauge.oldest + Duration::from_millis(1),
            ..Exposed::default()
        });
        terms.exposure = Vec::from_iter(exposed);
        let mut found = oracle::View::new();
        for (path, node) in view {
            found.add(path, self.found(path, node));
        }
        let broken = oracle::check(&self.history, &found, &terms);
        let told = broken.into_iter();
        told.map(|broken| format!("{:?}: {}", broken.rule, broken.what))
            .collect()
    }

    fn found(&self, path: &str, node: &Node) -> Found {
        let mut streams = BTreeMap::new();
        for (fork, data) in node.forks.iter().enumerate() {
            if let Some(data) = data {
                let sector = |bytes: &[u8]| self.sector(bytes);
                let stream = FoundStream {
                    size: data.len() as u64,
                    sectors: data.chunks(UNIT).map(sector).collect(),
                };
                streams.insert(STREAMS[fork].to_owned(), stream);
            }
        }
        Found {
            index: node.inode.filter(|inode| {
                let here = self.inodes.get(path);
                here.is_some_and(|here| here.contains(inode))
            }),
            directory: node.forks[usize::from(DATA)].is_none(),
            streams,
            meta: meta(node),
        }
    }

    fn sector(&self, bytes: &[u8]) -> Sector {
        match Contents::read(bytes) {
            None => Sector::Garbage,
            Some(Contents::Zero) => Sector::Zero,
            Some(Contents::Fill {
                object,
                fork,
                version,
                unit,
            }) => Sector::Stamp(Stamp {
                object: oracle::Object(u64::from(object)),
                stream: self.streams[usize::from(fork).min(2)],
                sector: u64::from(unit),
                version: unique(object, unit, version),
            }),
        }
    }
}

/// The marks of clients, in the order of [`Node::client_marks`]; all count as extended attributes here.
const CLIENT_MARKS: [&str; 3] = ["ea", "descriptor", "sparse"];

fn mark_name(cell: Cell) -> &'static str {
    match cell {
        Cell::Ea(_) => CLIENT_MARKS[0],
        Cell::Descriptor(_) => CLIENT_MARKS[1],
        Cell::Sparse(_) => CLIENT_MARKS[2],
        _ => MARK,
    }
}

fn meta(node: &Node) -> Vec<(Key, oracle::Value)> {
    let mut meta = vec![(Key::Attributes, attributes(node.attributes))];
    let written = node.written.map(oracle::Value::NotBefore);
    meta.extend(written.map(|at| (Key::Written, at)));
    let mark = node.mark.map(attributes);
    meta.extend(mark.map(|mark| (Key::Ea(MARK.to_owned()), mark)));
    let keys = CLIENT_MARKS.into_iter();
    let marks = keys.zip(node.client_marks.into_iter().flatten());
    meta.extend(marks.map(|(key, mark)| (Key::Ea(key.to_owned()), attributes(mark))));
    meta
}

fn attributes(value: u32) -> oracle::Value {
    oracle::Value::Bytes(value.to_le_bytes().to_vec())
}

/// A client's version, among those of all clients.
fn unique(object: Object, unit: u32, version: u32) -> u64 {
    let client = if object == SHARED {
        unit / SHARED_EACH as u32
    } else {
        object / OBJECTS
    };
    u64::from(client) << 32 | u64::from(version)
}

fn request<'a>(operation: &'a Operation, places: &mut Places<'a>) -> Request {
    let mut request = Request::new(Vec::new());
    let mut run: Option<Effect> = None;
    for (cell, value) in &operation.effects {
        let next = match (cell, value) {
            (Cell::Unit(object, fork, unit), Value::Contents(contents)) => {
                data(operation, (*object, *fork, *unit), *contents)
            }
            (cell, value) => {
                request
                    .effects
                    .extend(other(operation, *cell, value, places));
                continue;
            }
        };
        // Neighbouring units of one write are one effect.
        if let (
            Some(Effect::Data {
                sectors, content, ..
            }),
            Effect::Data {
                sectors: more,
                content: of_more,
                ..
            },
        ) = (&mut run, &next)
            && sectors.end == more.start
            && (content == of_more || operation.source.is_some())
        {
            sectors.end = more.end;
            continue;
        }
        request.effects.extend(run.replace(next));
    }
    request.effects.extend(run);
    if operation.kind.is_host() {
        request = request.by_host();
    }
    request.links = matches!(operation.kind, Kind::Link | Kind::LinkOver);
    let object = |object: Object| oracle::Object(u64::from(object));
    match operation.promise {
        Promise::Nothing => request,
        Promise::Itself(_) => request.through(),
        Promise::Everything => Request::flush(Covers::Root),
        Promise::Object(flushed) => Request::flush(Covers::Object(object(flushed))),
        Promise::Directory(flushed) => Request::flush(Covers::Directory(object(flushed))),
    }
}

fn data(
    operation: &Operation,
    (object, fork, unit): (Object, Fork, u32),
    contents: Contents,
) -> Effect {
    let renamed = operation.kind == Kind::RenameStream;
    let stream = if renamed {
        STREAMS[usize::from(SMALL)]
    } else {
        ""
    };
    let content = match (operation.source, contents) {
        (Some(_), _) if renamed && fork == SMALL => oracle::Content::Zero,
        (Some(source), _) => oracle::Content::Copy {
            object: oracle::Object(u64::from(source)),
            stream: stream.to_owned(),
            first: 0,
        },
        (None, Contents::Zero) => oracle::Content::Zero,
        (None, Contents::Fill { version, .. }) => {
            oracle::Content::Version(unique(object, unit, version))
        }
    };
    Effect::Data {
        object: oracle::Object(u64::from(object)),
        stream: STREAMS[usize::from(fork)].to_owned(),
        sectors: u64::from(unit)..u64::from(unit) + 1,
        content,
    }
}

/// Effects on anything but contents.
fn other<'a>(
    operation: &Operation,
    cell: Cell,
    value: &'a Value,
    places: &mut Places<'a>,
) -> Vec<Effect> {
    let object = places.file(cell.object());
    match (cell, value) {
        (Cell::Name(moved), Value::Path(path)) => {
            let below = operation.kind == Kind::RenameDirectory;
            places.named(moved, path, below)
        }
        // A replaced object is removed with the name it had, which another one has now.
        (Cell::Name(gone), _) => match places.of.remove(&gone) {
            Some(old) if operation.kind == Kind::Delete => {
                places.at.remove(old);
                let (dir, name) = places.slot(old);
                let name = name.to_owned();
                vec![Effect::Name {
                    dir,
                    name,
                    to: None,
                    about: object,
                }]
            }
            _ => Vec::new(),
        },
        (Cell::Size(_, fork), Value::Size(bytes)) => {
            let stream = STREAMS[usize::from(fork)].to_owned();
            let units = u64::from(*bytes) / UNIT as u64;
            let is_set = matches!(
                operation.kind,
                Kind::SetEof | Kind::Create | Kind::Allocate | Kind::Overwrite
            );
            // A stream of no length is one that is made or removed.
            let made = operation.kind == Kind::CreateStream;
            let size = if is_set || units == 0 {
                Size::Exactly(units)
            } else {
                Size::AtLeast(units)
            };
            let mut effects = Vec::new();
            if fork != DATA {
                effects.push(Effect::Stream {
                    object,
                    stream: stream.clone(),
                    present: units > 0 || made,
                });
            }
            effects.push(Effect::Size {
                object,
                stream,
                size,
            });
            effects
        }
        (Cell::Attributes(_), Value::Attributes(value)) => vec![Effect::Meta {
            object,
            key: Key::Attributes,
            value: attributes(*value),
        }],
        (Cell::Written(_), Value::Written(least)) => vec![Effect::Meta {
            object,
            key: Key::Written,
            value: oracle::Value::NotBefore(*least),
        }],
        (cell, Value::Mark(value)) => vec![Effect::Meta {
            object,
            key: Key::Ea(mark_name(cell).to_owned()),
            value: attributes(*value),
        }],
        _ => Vec::new(),
    }
}
