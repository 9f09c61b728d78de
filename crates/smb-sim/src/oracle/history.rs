//! The requests of clients and the answers they got.

use std::{collections::BTreeMap, fmt, ops::Range, time::Duration};

use durability::Policy;

use super::{Object, op::Op, stamp::SECTOR};

/// A request in its [`History`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub(super) usize);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// DOS attributes (the recorder chooses which bits).
    Attributes,
    /// Time of creation.
    Created,
    /// Time of last write.
    Written,
    Ea(String),
    Security,
    /// Whether the file is sparse.
    Sparse,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Nothing,
    Bytes(Vec<u8>),
    /// Nothing is known: anything found is right.
    Unknown,
    /// A time no earlier than this; as found, this time.
    NotBefore(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Version(u64),
    Zero,
    /// The contents of a stream of another object, from this sector on.
    Copy {
        object: Object,
        stream: String,
        /// From here.
        first: u64,
    },
}

/// The change of an end of file, in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// It grows to this if it is smaller.
    AtLeast(u64),
    /// It is set to this.
    Exactly(u64),
}

/// The effect of a request on one register (or, for data, on adjoining ones).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Name {
        dir: Object,
        name: String,
        /// The object that it names afterwards.
        to: Option<Object>,
        /// The object that has or had the name.
        about: Object,
    },
    Data {
        object: Object,
        stream: String,
        sectors: Range<u64>,
        content: Content,
    },
    Size {
        object: Object,
        stream: String,
        size: Size,
    },
    Stream {
        object: Object,
        stream: String,
        present: bool,
    },
    Meta {
        object: Object,
        key: Key,
        value: Value,
    },
}

impl Effect {
    /// The inode whose loss it would be: for a name that goes, the directory.
    pub(super) fn bearer(&self) -> Object {
        match self {
            Self::Name { dir, to: None, .. } => *dir,
            Self::Name { about, .. } => *about,
            Self::Data { object, .. }
            | Self::Size { object, .. }
            | Self::Stream { object, .. }
            | Self::Meta { object, .. } => *object,
        }
    }
}

/// The changes that a FLUSH covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Covers {
    /// A file with all its streams and metadata, and its path.
    Object(Object),
    /// One stream, the metadata and the path.
    Stream(Object, String),
    /// A directory: its names, its metadata and its path.
    Directory(Object),
    /// The root of a share over this directory: everything in it and below it that was changed through any share, and
    /// the directory itself.
    Folder(Object),
    /// The root of the share that holds everything.
    Root,
}

/// The promise of a success answer to the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// None of its own.
    Nothing,
    /// FLUSH; `full` is Apple's full sync.
    Flush {
        covers: Covers,
        /// Whether it is a full sync.
        full: bool,
    },
    /// Write-through: its own effects, and the path.
    Through,
    /// The rename of a directory: its names and its path, also under `bounded`.
    MoveDirectory,
    Close(Object),
}

/// A request before it is issued.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Request {
    pub effects: Vec<Effect>,
    /// The promise it asks for.
    pub ask: Ask,
    /// It makes a further name of a file.
    pub links: bool,
    /// No client asked for it: somebody on the host did it behind the server's back. It is promised
    /// only by what a client asks for later.
    pub host: bool,
    /// It came through the second share.
    pub second: bool,
}

impl Request {
    /// A request with these effects that asks for nothing more.
    pub fn new(effects: Vec<Effect>) -> Self {
        Self {
            effects,
            ask: Ask::Nothing,
            links: false,
            host: false,
            second: false,
        }
    }

    pub fn create(dir: Object, name: &str, object: Object) -> Self {
        Self::new(vec![named(dir, name, Some(object), object)])
    }

    pub fn remove(dir: Object, name: &str, object: Object) -> Self {
        Self::new(vec![named(dir, name, None, object)])
    }

    pub fn rename(object: Object, from: (Object, &str), to: (Object, &str)) -> Self {
        let mut effects = vec![named(to.0, to.1, Some(object), object)];
        if from != to {
            effects.push(named(from.0, from.1, None, object));
        }
        Self::new(effects)
    }

    pub fn move_directory(object: Object, from: (Object, &str), to: (Object, &str)) -> Self {
        Self {
            ask: Ask::MoveDirectory,
            ..Self::rename(object, from, to)
        }
    }

    pub fn link(object: Object, dir: Object, name: &str) -> Self {
        Self {
            links: true,
            ..Self::new(vec![named(dir, name, Some(object), object)])
        }
    }

    /// Sectors are written; see [`super::fill`].
    pub fn write(object: Object, stream: &str, sectors: Range<u64>, version: u64) -> Self {
        let end = sectors.end;
        Self::new(vec![
            Effect::Data {
                object,
                stream: stream.to_owned(),
                sectors,
                content: Content::Version(version),
            },
            grown(object, stream, end),
        ])
    }

    /// Sectors are copied (copychunk, duplicate extents).
    pub fn copy(from: (Object, &str, u64), to: (Object, &str, u64), count: u64) -> Self {
        Self::new(vec![
            Effect::Data {
                object: to.0,
                stream: to.1.to_owned(),
                sectors: to.2..to.2 + count,
                content: Content::Copy {
                    object: from.0,
                    stream: from.1.to_owned(),
                    first: from.2,
                },
            },
            grown(to.0, to.1, to.2 + count),
        ])
    }

    /// Sectors are made zeros, the end of file stays.
    pub fn zero(object: Object, stream: &str, sectors: Range<u64>) -> Self {
        Self::new(vec![zeroed(object, stream, sectors)])
    }

    /// The end of file is set, in sectors.
    pub fn set_size(object: Object, stream: &str, sectors: u64) -> Self {
        Self::new(vec![
            zeroed(object, stream, sectors..u64::MAX),
            Effect::Size {
                object,
                stream: stream.to_owned(),
                size: Size::Exactly(sectors),
            },
        ])
    }

    pub fn stream(object: Object, stream: &str, present: bool) -> Self {
        let mut this = Self::set_size(object, stream, 0);
        this.effects.push(Effect::Stream {
            object,
            stream: stream.to_owned(),
            present,
        });
        this
    }

    pub fn meta(object: Object, key: Key, value: Value) -> Self {
        Self::new(vec![Effect::Meta { object, key, value }])
    }

    pub fn flush(covers: Covers) -> Self {
        Self {
            ask: Ask::Flush {
                covers,
                full: false,
            },
            ..Self::new(Vec::new())
        }
    }

    pub fn full_sync(covers: Covers) -> Self {
        Self {
            ask: Ask::Flush { covers, full: true },
            ..Self::new(Vec::new())
        }
    }

    /// A CLOSE, with what it does (delete on close).
    pub fn close(object: Object, effects: Vec<Effect>) -> Self {
        Self {
            ask: Ask::Close(object),
            ..Self::new(effects)
        }
    }

    /// It changes contents, which sets the time of last write: no earlier than to this.
    pub fn written(mut self, object: Object, at: u64) -> Self {
        self.effects.push(Effect::Meta {
            object,
            key: Key::Written,
            value: Value::NotBefore(at),
        });
        self
    }

    /// Done on the host, behind the server's back.
    pub fn by_host(mut self) -> Self {
        self.host = true;
        self
    }

    /// Through the second share only if it is so.
    pub fn second_if(mut self, second: bool) -> Self {
        self.second = second;
        self
    }

    /// Write-through, of the request or of its open.
    pub fn through(mut self) -> Self {
        self.ask = Ask::Through;
        self
    }

    /// The same only if it is so.
    pub fn through_if(self, through: bool) -> Self {
        if through { self.through() } else { self }
    }
}

fn named(dir: Object, name: &str, to: Option<Object>, about: Object) -> Effect {
    Effect::Name {
        dir,
        name: name.to_owned(),
        to,
        about,
    }
}

fn zeroed(object: Object, stream: &str, sectors: Range<u64>) -> Effect {
    Effect::Data {
        object,
        stream: stream.to_owned(),
        sectors,
        content: Content::Zero,
    }
}

fn grown(object: Object, stream: &str, end: u64) -> Effect {
    Effect::Size {
        object,
        stream: stream.to_owned(),
        size: Size::AtLeast(end),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Success,
    /// Not done, and nothing of it was (sharing violation, no such name, access denied, ...).
    Refused,
    /// An error after which a part, or all, may have been done (disk full, I/O error, ...).
    Failed,
}

/// An administrator sets the policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Switch {
    pub(super) begun: (u64, Duration),
    /// That of the second share.
    pub(super) second: bool,
    /// The sequence number at which it completed with the promise that everything dirty before is stable.
    pub(super) stable: Option<u64>,
}

/// Something that happened to the inode beneath, if the recorder can know.
#[derive(Debug, Clone, Copy)]
pub(super) enum Beneath {
    Failed,
    WriteFailed,
    /// A sync succeeded that covers what was answered before this sequence number.
    Synced(u64),
    Cleared,
}

impl Beneath {
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::WriteFailed)
    }
}

/// When something happened to which inode.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) object: Object,
    pub(super) at: Duration,
    /// The sequence number of the last request or answer before.
    pub(super) after: u64,
    pub(super) what: Beneath,
}

/// Everything that clients issued and were answered, in one order.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(super) ops: Vec<Op>,
    pub(super) beneath: Vec<Event>,
    pub(super) identities: BTreeMap<u64, Vec<Object>>,
    pub(super) switches: Vec<Switch>,
    sequence: u64,
    objects: u64,
    versions: u64,
}

impl History {
    /// An empty history: a share with nothing in it but its root.
    pub fn new() -> Self {
        Self::default()
    }

    /// A number for a file or directory about to be made.
    pub fn object(&mut self) -> Object {
        self.objects += 1;
        Object(self.objects)
    }

    /// A version for a write about to be issued.
    pub fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// The server's index number of an object, as `FileInternalInformation` reports it. May be used again after the
    /// object is deleted.
    pub fn identify(&mut self, object: Object, index: u64) {
        let known = self.identities.entry(index).or_default();
        if !known.contains(&object) {
            known.push(object);
        }
    }

    pub fn issue(&mut self, at: Duration, request: Request) -> OpId {
        self.sequence += 1;
        self.ops.push(Op {
            request,
            issued: (self.sequence, at),
            answered: None,
            between: None,
            within: [None; 2],
            times: None,
        });
        OpId(self.ops.len() - 1)
    }

    /// Its final answer came. The first one counts.
    pub fn answer(&mut self, op: OpId, at: Duration, answer: Answer) {
        self.sequence += 1;
        if let Some(op) = self.ops.get_mut(op.0)
            && op.answered.is_none()
        {
            op.answered = Some((self.sequence, at, answer));
        }
    }

    /// The request was treated no laxer and no more strictly than under these policies (without, the terms' policy
    /// decided), and each share makes it stable within such a time if it has one. With `times`, a FLUSH covers times.
    pub fn decided(
        &mut self,
        op: OpId,
        between: (Policy, Policy),
        within: [Option<Duration>; 2],
        times: bool,
    ) {
        if let Some(op) = self.ops.get_mut(op.0) {
            (op.between, op.within, op.times) = (Some(between), within, Some(times));
        }
    }

    /// The policy of the first or the second share is about to be set. Answers its number.
    pub fn switching(&mut self, at: Duration, second: bool) -> usize {
        self.sequence += 1;
        self.switches.push(Switch {
            begun: (self.sequence, at),
            second,
            stable: None,
        });
        self.switches.len() - 1
    }

    /// The switch is complete, and everything answered before it began is promised to be stable.
    pub fn switched(&mut self, number: usize) {
        self.sequence += 1;
        if let Some(switch) = self.switches.get_mut(number) {
            switch.stable = Some(self.sequence);
        }
    }

    /// Issued and answered with success at one moment: for what was there before.
    pub fn happened(&mut self, at: Duration, request: Request) -> OpId {
        let op = self.issue(at, request);
        self.answer(op, at, Answer::Success);
        op
    }

    /// A sync of the inode (or of the directory) answered an error to the server at this moment.
    /// Leave it out where the recorder cannot know.
    pub fn sync_failed(&mut self, object: Object, at: Duration) {
        self.happens(object, at, Beneath::Failed);
    }

    /// The sync of one durable write of the inode answered an error.
    pub fn write_sync_failed(&mut self, object: Object, at: Duration) {
        self.happens(object, at, Beneath::WriteFailed);
    }

    fn happens(&mut self, object: Object, at: Duration, what: Beneath) {
        self.beneath.push(Event {
            object,
            at,
            after: self.sequence,
            what,
        });
    }

    /// A sync of the inode that began after everything answered up to the sequence number
    /// `covered` (see [`History::now`]) succeeded.
    pub fn synced(&mut self, object: Object, at: Duration, covered: u64) {
        self.happens(object, at, Beneath::Synced(covered));
    }

    /// An administrator cleared the inode's latch.
    pub fn cleared(&mut self, object: Object, at: Duration) {
        self.happens(object, at, Beneath::Cleared);
    }

    /// The sequence number of the last request or answer.
    pub fn now(&self) -> u64 {
        self.sequence
    }

    /// Requests without an answer will never happen: their process is gone.
    pub fn abandon(&mut self, at: Duration) {
        for number in 0..self.ops.len() {
            self.answer(OpId(number), at, Answer::Failed);
        }
    }

    /// The last object that had this index number.
    pub fn object_of(&self, index: u64) -> Option<Object> {
        self.identities.get(&index)?.last().copied()
    }

    /// Whether a bound of one share holds for a change through the other one.
    pub fn charges_beside(&self) -> bool {
        self.ops.iter().any(Op::is_charged_beside)
    }

    /// How many promises were made: FLUSHes and write-through requests answered with success.
    pub fn promises(&self) -> u64 {
        let made = |op: &&Op| {
            matches!(
                op.request.ask,
                Ask::Flush { .. } | Ask::Through | Ask::MoveDirectory
            ) && matches!(op.answered, Some((_, _, Answer::Success)))
        };
        self.ops.iter().filter(made).count() as u64
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub fn bytes(sectors: u64) -> u64 {
        sectors.saturating_mul(SECTOR as u64)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, op) in self.ops.iter().enumerate() {
            let (issued, at) = op.issued;
            let second = if op.request.second { "second " } else { "" };
            write!(f, "#{number} {issued} at {at:?}: {second}")?;
            if op.request.ask != Ask::Nothing {
                write!(f, "{:?} ", op.request.ask)?;
            }
            write!(f, "{:?}", op.request.effects)?;
            match op.answered {
                Some((sequence, at, answer)) => {
                    writeln!(f, " -> {sequence} at {at:?}: {answer:?}")?;
                }
                None => writeln!(f, " -> never")?,
            }
        }
        for switch in &self.switches {
            writeln!(f, "{switch:?}")?;
        }
        for event in &self.beneath {
            writeln!(
                f,
                "after {} at {:?}: {:?} {:?}",
                event.after, event.at, event.object, event.what
            )?;
        }
        Ok(())
    }
}
