//! The requests of the clients and their answers, with the end of the device's log at each moment.
//!
//! An operation's request is recorded before it is sent and its success after the answer came;
//! each with the number of log entries found then. So for a cut before entry `m`: what was
//! acknowledged with `log <= m` had everything it needs among the entries before `m`, and what
//! was issued with `log > m` has left no trace there.
//!
//! State is kept in cells, each with the versions it went through: a name, a length, 512 bytes of
//! contents, the attributes. Every cell is written by one client, one request after the other.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::block_log::BlockLog;

/// A file or directory, by its number.
pub(crate) type Object = u32;
/// Unnamed data, then the streams [`STREAMS`].
pub(crate) type Fork = u8;

/// The unnamed data.
pub(crate) const DATA: Fork = 0;
/// A stream that stays small.
pub(crate) const SMALL: Fork = 1;
/// A stream that grows as large as it can be where it is.
pub(crate) const BIG: Fork = 2;
/// Names of the streams; the first is no stream.
pub(crate) const STREAMS: [&str; 3] = ["", "small", "big"];

/// Contents are judged in pieces of this size, which a device writes all or not.
pub(crate) const UNIT: usize = 512;

/// A piece of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    /// Where the object is.
    Name(Object),
    /// How long a fork is; 0 for a stream that does not exist.
    Size(Object, Fork),
    /// One unit of a fork.
    Unit(Object, Fork, u32),
    /// The attributes [`ATTRIBUTES`].
    Attributes(Object),
    /// When the unnamed data were written to.
    Written(Object),
    /// The extended attribute [`MARK`], which the host sets.
    Mark(Object),
    /// The extended attribute [`EA`], which clients set.
    Ea(Object),
    /// The [`account`] that the security descriptor names.
    Descriptor(Object),
    /// Whether the file is sparse, as 1 or 0.
    Sparse(Object),
}

/// The attribute that clients set.
pub(crate) const EA: &str = "CUT";

/// The SID of an account that exists nowhere ([MS-DTYP] 2.4.2.2). Only its last part differs.
pub(crate) fn account(number: u32) -> [u8; 28] {
    let mut sid = [0; 28];
    sid[..8].copy_from_slice(&[1, 5, 0, 0, 0, 0, 0, 5]);
    for (place, part) in sid[8..]
        .chunks_mut(4)
        .zip([21, MAGIC, MAGIC, MAGIC, number])
    {
        place.copy_from_slice(&part.to_le_bytes());
    }
    sid
}

/// The attribute that the host sets behind the server's back.
pub(crate) const MARK: &str = "user.blockcut";
/// The kernel stamps files with a clock that may be that much late, in nanoseconds.
const STAMP_LATE: u64 = 20_000_000;

/// Attributes that are set and judged: hidden and system.
pub(crate) const ATTRIBUTES: u32 = 0x6;

impl Cell {
    pub(crate) fn object(self) -> Object {
        match self {
            Self::Name(object)
            | Self::Size(object, _)
            | Self::Unit(object, ..)
            | Self::Attributes(object)
            | Self::Written(object)
            | Self::Mark(object)
            | Self::Ea(object)
            | Self::Descriptor(object)
            | Self::Sparse(object) => object,
        }
    }
}

/// 512 bytes that say where they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contents {
    Zero,
    Fill {
        object: Object,
        fork: Fork,
        version: u32,
        unit: u32,
    },
}

const MAGIC: u32 = 0x7574_6342;

impl Contents {
    /// The bytes.
    pub(crate) fn bytes(self) -> [u8; UNIT] {
        let Self::Fill {
            object,
            fork,
            version,
            unit,
        } = self
        else {
            return [0; UNIT];
        };
        let mut bytes = [(version % 251 + 1) as u8; UNIT];
        let words = [MAGIC, object, version, unit << 2 | u32::from(fork)];
        for (place, word) in bytes.chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads whose contents these are; `None` for bytes that no client wrote.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes == &[0; UNIT][..] {
            return Some(Self::Zero);
        }
        let place = word(12)?;
        let fill = Self::Fill {
            object: word(4)?,
            fork: (place & 3) as u8,
            version: word(8)?,
            unit: place >> 2,
        };
        (word(0)? == MAGIC && fill.bytes() == bytes).then_some(fill)
    }
}

/// A version of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Here, relative to the share.
    Path(String),
    /// Deleted or replaced.
    Gone,
    Size(u32),
    Contents(Contents),
    Attributes(u32),
    /// No earlier than this, in nanoseconds since 1970.
    Written(u64),
    Mark(u32),
}

impl Value {
    /// The least time that a request issued now leaves a file with.
    pub(crate) fn written_now() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos() as u64);
        Self::Written(now.saturating_sub(STAMP_LATE))
    }
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Create,
    Mkdir,
    Write,
    WriteThrough,
    WriteStream,
    SetEof,
    Zero,
    Allocate,
    Overwrite,
    Link,
    LinkOver,
    CreateStream,
    DeleteStream,
    RenameStream,
    Copy,
    Duplicate,
    Attributes,
    Ea,
    Descriptor,
    Sparse,
    Rename,
    RenameDirectory,
    Replace,
    Delete,
    FlushFile,
    FlushSmallStream,
    FlushBigStream,
    FlushDirectory,
    FlushRoot,
    HostMove,
    HostMark,
    HostCreate,
}

impl Kind {
    /// Nobody asked the server for it, and it is promised only by a FLUSH later.
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Self::HostMove | Self::HostMark | Self::HostCreate)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Mkdir => "mkdir",
            Self::Write => "write",
            Self::WriteThrough => "write-through",
            Self::WriteStream => "write to a stream",
            Self::SetEof => "set end of file",
            Self::Zero => "set zero data",
            Self::Allocate => "set allocation",
            Self::Overwrite => "overwrite or supersede",
            Self::Link => "link",
            Self::LinkOver => "link over a file",
            Self::CreateStream => "create a stream",
            Self::DeleteStream => "delete a stream",
            Self::RenameStream => "rename of a stream",
            Self::Copy => "copychunk",
            Self::Duplicate => "duplicate extents",
            Self::Attributes => "set attributes",
            Self::Ea => "set an extended attribute",
            Self::Descriptor => "set a security descriptor",
            Self::Sparse => "set sparse",
            Self::Rename => "rename",
            Self::RenameDirectory => "rename of a directory",
            Self::Replace => "rename over a file",
            Self::Delete => "delete",
            Self::FlushFile => "FLUSH of a file",
            Self::FlushSmallStream => "FLUSH of a small stream",
            Self::FlushBigStream => "FLUSH of a big stream",
            Self::FlushDirectory => "FLUSH of a directory",
            Self::FlushRoot => "FLUSH of the share's root",
            Self::HostMove => "mv on the host",
            Self::HostMark => "chmod and setfattr on the host",
            Self::HostCreate => "create on the host",
        }
    }
}

/// The promise of a success under `honor`, besides the operation's own effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    Nothing,
    /// Everything about an object: contents of all forks, attributes, name ([MS-FSA] 2.1.5.7).
    Object(Object),
    /// The effects of the operation on the object, and the object's name. The time that a WRITE sets follows later.
    Itself(Object),
    /// A directory's own name and the names in it.
    Directory(Object),
    /// Everything in the share.
    Everything,
}

/// A point in a client's time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Order among all moments.
    pub(crate) order: u64,
    /// Since the round began.
    pub(crate) at: Duration,
    /// Entries in the device's log.
    pub(crate) log: usize,
}

/// One request and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) effects: Vec<(Cell, Value)>,
    pub(crate) promise: Promise,
    /// Of a copy: from this object's data, beginning with its first unit.
    pub(crate) source: Option<Object>,
    pub(crate) issued: Moment,
    /// `None`: failed, or not answered any more.
    pub(crate) acknowledged: Option<Moment>,
}

/// The exposure that the server reports, at a moment when nothing was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gauge {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) oldest: Duration,
}

/// Everything that happened in a round.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    /// Moments at which nothing but the time was looked at, and those with a gauge.
    pub(crate) samples: Vec<(Moment, Option<Gauge>)>,
    /// Inode numbers of the objects; one may be used again when its object is gone.
    pub(crate) inodes: BTreeMap<Object, u64>,
    /// Further names of files, each an object of its own, and whose they are.
    pub(crate) links: BTreeMap<Object, Object>,
    /// Statuses that were not expected.
    pub(crate) failures: BTreeMap<String, usize>,
}

struct Inner {
    log: BlockLog,
    order: u64,
    history: History,
}

impl Inner {
    fn moment(&mut self, begun: Instant) -> Moment {
        // The time first: what the log shows is at least as new.
        let at = begun.elapsed();
        self.order += 1;
        Moment {
            order: self.order,
            at,
            log: self.log.scan(),
        }
    }
}

/// Where clients record.
pub(crate) struct Recorder {
    begun: Instant,
    inner: Mutex<Inner>,
}

impl History {
    /// The file that an object is, or is a further name of.
    pub(crate) fn file(&self, object: Object) -> Object {
        self.links.get(&object).copied().unwrap_or(object)
    }
}

impl Recorder {
    pub(crate) fn new(log: BlockLog) -> Self {
        Self {
            begun: Instant::now(),
            inner: Mutex::new(Inner {
                log,
                order: 0,
                history: History::default(),
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request that is about to be sent.
    pub(crate) fn issue(
        &self,
        kind: Kind,
        effects: Vec<(Cell, Value)>,
        promise: Promise,
        source: Option<Object>,
    ) -> usize {
        let mut inner = self.inner();
        let issued = inner.moment(self.begun);
        inner.history.operations.push(Operation {
            kind,
            effects,
            promise,
            source,
            issued,
            acknowledged: None,
        });
        inner.history.operations.len() - 1
    }

    /// Records a success that has arrived.
    pub(crate) fn acknowledge(&self, operation: usize) {
        let mut inner = self.inner();
        let moment = inner.moment(self.begun);
        inner.history.operations[operation].acknowledged = Some(moment);
    }

    /// Records the inode number of an object that was made.
    pub(crate) fn identify(&self, object: Object, inode: u64) {
        self.inner().history.inodes.insert(object, inode);
    }

    /// Records that an object is a further name of a file.
    pub(crate) fn link(&self, object: Object, file: Object) {
        let history = &mut self.inner().history;
        history.links.insert(object, file);
        if let Some(inode) = history.inodes.get(&file).copied() {
            history.inodes.insert(object, inode);
        }
    }

    /// Records a failure.
    pub(crate) fn fail(&self, operation: usize, why: &str) {
        let mut inner = self.inner();
        let kind = inner.history.operations[operation].kind.name();
        let text = format!("{kind}: {why}");
        *inner.history.failures.entry(text).or_default() += 1;
    }

    /// Records the time, and a gauge that was read while nothing was under way.
    pub(crate) fn sample(&self, gauge: impl FnOnce() -> Option<Gauge>) {
        let mut inner = self.inner();
        let before = inner.moment(self.begun);
        let Some(gauge) = gauge() else {
            inner.history.samples.push((before, None));
            return;
        };
        // A sync in the background may have ended before the gauge was read.
        if inner.log.scan() == before.log {
            inner.history.samples.push((before, Some(gauge)));
        }
    }

    /// Bytes and entries of log so far.
    pub(crate) fn logged(&self) -> (u64, usize) {
        let mut inner = self.inner();
        let entries = inner.log.scan();
        (inner.log.len(), entries)
    }

    /// Everything, when all have recorded.
    pub(crate) fn finish(self) -> (BlockLog, History) {
        let inner = self
            .inner
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        (inner.log, inner.history)
    }
}
