//! The load of the clients: several connections at once, each in a folder of its own and in its own
//! units of one shared file, mixing everything that has to be made stable.
//!
//! A client waits for each answer and records it ([`crate::record`]). Names are never used twice
//! except when a file replaces another, so that a name on an image says whose it is.

mod host;
mod links;
mod metadata;
mod names;
mod ranges;
mod streams;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::{CopyChunk, CopyChunkCopy, FsctlCode, RequestResumeKeyResponse};
use smb_wire::msg::{CreateOptions, WriteFlags};

use crate::record::{
    BIG, Cell, Contents, DATA, Fork, Kind, Object, Promise, Recorder, SMALL, STREAMS, UNIT, Value,
};
use crate::rng::Rng;

/// Longest file, in units.
const FILE_MAX: usize = 128;
/// Longest write, in units.
const WRITE_MAX: usize = 32;
const FILES_MAX: usize = 24;
const HANDLES_MAX: usize = 8;
/// Units of a small stream.
const SMALL_MAX: usize = 3;
/// Units of the shared file for each client.
pub(crate) const SHARED_EACH: usize = 8;
/// Objects of one client.
pub(crate) const OBJECTS: Object = 1_000_000;
/// The shared file.
pub(crate) const SHARED: Object = 1;
const SHARED_PATH: &str = "shared";

/// The size and the kind of a round's load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    /// Requests of each client, those for opening and closing not counted.
    pub(crate) operations: usize,
    /// The server keeps streams in its depot, otherwise in attributes.
    pub(crate) depot: bool,
    /// Units of a big stream.
    pub(crate) big: usize,
    /// Whether what only some servers do right is asked for: attributes, FLUSH of the root, and that an open that
    /// writes through does so with more than WRITEs.
    pub(crate) all: bool,
    /// The file system shares extents among files.
    pub(crate) clones: bool,
    /// Most of what is asked for are renames, of files and of directories.
    pub(crate) renames: bool,
    /// The log must not grow beyond, bytes.
    pub(crate) log_max: u64,
}

/// The state that all clients share.
pub(crate) struct World<'a> {
    pub(crate) plan: Plan,
    /// Where the share's folder is.
    pub(crate) root: &'a Path,
    pub(crate) recorder: &'a Recorder,
    /// Held for reading while a request is under way: who holds it for writing sees none.
    pub(crate) pace: &'a RwLock<()>,
    /// No more requests.
    pub(crate) stop: &'a AtomicBool,
}

struct Directory {
    object: Object,
    path: String,
}

/// A file as its client knows it.
struct Owned {
    object: Object,
    path: String,
    handle: Option<File>,
    /// Opened with FILE_WRITE_THROUGH.
    through: bool,
    /// The present contents of each fork.
    forks: [Vec<Contents>; 3],
    /// The attributes that were set last.
    attributes: u32,
    /// Holds units of another file: says nothing about whose it is.
    mixed: bool,
    /// It may be sparse: a client has asked for that.
    sparse: bool,
}

struct Client<'a> {
    world: &'a World<'a>,
    tree: &'a Tree,
    rng: Rng,
    number: usize,
    next: Object,
    version: u32,
    directories: Vec<Directory>,
    files: Vec<Owned>,
    links: Vec<links::Link>,
    shared: File,
    /// The next request copies from this object.
    source: Option<Object>,
    left: usize,
}

/// Makes the folders of the clients and the shared file; run before the clients.
pub(crate) fn prepare(world: &World<'_>, tree: &Tree) -> Result<(), ClientError> {
    let units = world.plan.clients * SHARED_EACH;
    let contents = vec![Contents::Zero; units];
    let path = Value::Path(SHARED_PATH.to_owned());
    let effects = vec![
        (Cell::Name(SHARED), path),
        (Cell::Size(SHARED, DATA), size_of(&contents)),
    ];
    let made = world
        .recorder
        .issue(Kind::Create, effects, Promise::Nothing, None);
    let file = tree.create(&CreateArgs::create(SHARED_PATH))?;
    file.set_end_of_file((units * UNIT) as u64)?;
    world.recorder.acknowledge(made);
    let flushed = world
        .recorder
        .issue(Kind::FlushFile, Vec::new(), Promise::Object(SHARED), None);
    file.flush(false)?;
    world.recorder.acknowledge(flushed);
    file.close()
}

/// Runs client `number` to its end.
pub(crate) fn run(world: &World<'_>, tree: &Tree, number: usize) -> Result<(), String> {
    let shared = tree
        .create(&CreateArgs::open(SHARED_PATH))
        .map_err(|error| format!("the shared file: {error}"))?;
    let mut client = Client {
        world,
        tree,
        rng: Rng::new(world.plan.seed, 100 + number as u64),
        number,
        next: OBJECTS * (number as Object + 1),
        version: 0,
        directories: Vec::new(),
        files: Vec::new(),
        links: Vec::new(),
        shared,
        source: None,
        left: world.plan.operations,
    };
    client.make_directory(None).ok_or("no folder")?;
    client.make_directory(Some(0)).ok_or("no folder")?;
    while client.left > 0 && !world.stop.load(Relaxed) {
        let before = client.left;
        client.step();
        if client.left == before {
            client.left -= 1;
        }
        if world.recorder.logged().0 > world.plan.log_max {
            break;
        }
    }
    // No closing: the cut finds open handles.
    Ok(())
}

fn size_of(contents: &[Contents]) -> Value {
    Value::Size((contents.len() * UNIT) as u32)
}

fn bytes_of(contents: &[Contents]) -> Vec<u8> {
    contents.iter().flat_map(|unit| unit.bytes()).collect()
}

impl Client<'_> {
    /// One request, recorded.
    fn act<R>(
        &mut self,
        kind: Kind,
        effects: Vec<(Cell, Value)>,
        promise: Promise,
        request: impl FnOnce() -> Result<R, ClientError>,
    ) -> Option<R> {
        self.left = self.left.saturating_sub(1);
        let source = self.source.take();
        let _turn = self.world.pace.read();
        if self.world.stop.load(Relaxed) {
            return None;
        }
        let operation = self.world.recorder.issue(kind, effects, promise, source);
        match request() {
            Ok(done) => {
                self.world.recorder.acknowledge(operation);
                Some(done)
            }
            Err(error) => {
                self.world.recorder.fail(operation, &error.to_string());
                if error.status().is_none() {
                    self.world.stop.store(true, Relaxed);
                }
                None
            }
        }
    }

    fn object(&mut self) -> Object {
        self.next += 1;
        self.next
    }

    /// The promise of a change of an object, other than by a WRITE, through an open that writes through or not.
    fn promise(&self, object: Object, through: bool) -> Promise {
        match through && self.world.plan.all {
            true => Promise::Itself(object),
            false => Promise::Nothing,
        }
    }

    fn fill(&mut self, object: Object, fork: Fork, from: usize, count: usize) -> Vec<Contents> {
        self.version += 1;
        let version = self.version;
        let unit = |unit| Contents::Fill {
            object,
            fork,
            version,
            unit: unit as u32,
        };
        (from..from + count).map(unit).collect()
    }

    fn step(&mut self) {
        if self.world.plan.renames && self.rng.percent(60) {
            return match self.rng.below(10) {
                0..6 => self.change(Self::rename),
                6..8 => self.replace(),
                _ => self.rename_directory(),
            };
        }
        // Not everything is asked of every server.
        let kinds = if self.world.plan.all { 118 } else { 100 };
        match self.rng.below(kinds) {
            100..102 => self.change(Self::extended_attribute),
            102..104 => self.change(Self::descriptor),
            104 => self.change(Self::sparse),
            105..108 => self.change(Self::overwrite),
            108..110 => self.change(Self::allocate),
            110 => self.change(Self::delete_stream),
            111 => self.change(Self::rename_stream),
            114..117 => {
                let _ = self.link();
            }
            117 => self.unlink(),
            112..114 if self.world.plan.clones => self.duplicate(),
            0..18 => self.create(),
            18..42 => self.change(Self::write),
            42..50 => self.change(Self::flush),
            50..57 => self.change(|client, at| client.stream(at, SMALL)),
            57..63 => self.change(|client, at| client.stream(at, BIG)),
            63..68 if self.world.plan.all => self.change(Self::attributes),
            68..71 => self.change(Self::set_end),
            71..73 => self.change(Self::zero),
            73..80 => self.change(Self::rename),
            80..84 => self.replace(),
            84..88 => self.delete(),
            88 => self.rename_directory(),
            89 => {
                let above = self.rng.below(self.directories.len());
                let _ = self.make_directory(Some(above));
            }
            90 if self.world.plan.all => {
                self.flush_folder("", Kind::FlushRoot, Promise::Everything);
            }
            90..93 => {
                let at = self.rng.below(self.directories.len());
                self.flush_directory(at);
            }
            93..95 => self.copy(),
            95..98 if self.world.plan.all => self.host(),
            _ => self.write_shared(),
        }
    }

    /// Does something to some file, and perhaps flushes it; one that failed is left alone.
    fn change(&mut self, what: impl FnOnce(&mut Self, usize) -> Option<()>) {
        if self.files.is_empty() {
            return self.create();
        }
        let at = self.rng.below(self.files.len());
        if self.opened(at).is_none() || what(self, at).is_none() {
            self.files.swap_remove(at);
            return;
        }
        if self.rng.percent(40) && self.flush(at).is_none() {
            self.files.swap_remove(at);
        }
    }

    /// The file's handle; another one may be closed for it.
    fn opened(&mut self, at: usize) -> Option<File> {
        if let Some(handle) = &self.files[at].handle {
            return Some(handle.clone());
        }
        let open = |file: &Owned| file.handle.is_some();
        if self.files.iter().filter(|file| open(file)).count() >= HANDLES_MAX {
            let victim = self.files.iter().position(open)?;
            self.close(victim)?;
        }
        let through = self.rng.percent(10);
        let mut args = CreateArgs::open(&wire(&self.files[at].path));
        if through {
            args = args.options(CreateOptions::WRITE_THROUGH);
        }
        let handle = self.quietly(|tree| tree.create(&args))?;
        self.files[at].through = through;
        self.files[at].handle = Some(handle.clone());
        Some(handle)
    }

    /// A request that changes nothing that is judged.
    fn quietly<R>(&mut self, what: impl FnOnce(&Tree) -> Result<R, ClientError>) -> Option<R> {
        let tree = self.tree;
        let _turn = self.world.pace.read();
        match what(tree) {
            Ok(done) => Some(done),
            Err(error) => {
                // The record's operations are for changes; a failed open shows in what follows.
                if !self.world.stop.load(Relaxed) {
                    eprintln!("client {}: {error}", self.number);
                }
                if error.status().is_none() {
                    self.world.stop.store(true, Relaxed);
                }
                None
            }
        }
    }

    fn close(&mut self, at: usize) -> Option<()> {
        match self.files[at].handle.take() {
            Some(handle) => self.quietly(|_| handle.close()),
            None => Some(()),
        }
    }

    fn create(&mut self) {
        if self.files.len() >= FILES_MAX {
            return self.delete();
        }
        let directory = self.rng.below(self.directories.len());
        let object = self.object();
        let path = format!("{}/f{object}", self.directories[directory].path);
        let through = self.rng.percent(10);
        let mut args = CreateArgs::create(&wire(&path));
        if through {
            args = args.options(CreateOptions::WRITE_THROUGH);
        }
        let effects = vec![(Cell::Name(object), Value::Path(path.clone()))];
        let (tree, promise) = (self.tree, self.promise(object, through));
        let made = self.act(Kind::Create, effects, promise, || tree.create(&args));
        let Some(handle) = made else { return };
        if let Ok(meta) = std::fs::metadata(self.world.root.join(&path)) {
            self.world.recorder.identify(object, meta.ino());
        }
        self.files.push(Owned {
            object,
            path,
            handle: Some(handle),
            through,
            forks: Default::default(),
            attributes: 0,
            mixed: false,
            sparse: false,
        });
        let at = self.files.len() - 1;
        if self.rng.percent(85) && self.write(at).is_none()
            || self.rng.percent(50) && self.flush(at).is_none()
        {
            self.files.swap_remove(at);
        }
    }

    /// Puts `contents` into a fork as the client knows it; the cells that change.
    fn put(
        &mut self,
        at: usize,
        fork: Fork,
        from: usize,
        contents: &[Contents],
    ) -> Vec<(Cell, Value)> {
        let file = &mut self.files[at];
        let object = file.object;
        let known = &mut file.forks[usize::from(fork)];
        let mut effects = Vec::new();
        if from + contents.len() > known.len() {
            known.resize(from + contents.len(), Contents::Zero);
            effects.push((Cell::Size(object, fork), size_of(known)));
        }
        for (unit, contents) in (from..).zip(contents) {
            known[unit] = *contents;
            let cell = Cell::Unit(object, fork, unit as u32);
            effects.push((cell, Value::Contents(*contents)));
        }
        if fork == DATA {
            effects.extend(self.written(object));
        }
        effects
    }

    /// A request that is about to change contents sets the time. Other servers do so in their own
    /// time.
    fn written(&self, object: Object) -> Option<(Cell, Value)> {
        let judged = self.world.plan.all;
        judged.then(|| (Cell::Written(object), Value::written_now()))
    }

    fn write(&mut self, at: usize) -> Option<()> {
        let handle = self.opened(at)?;
        let (object, through) = (self.files[at].object, self.files[at].through);
        let size = self.files[at].forks[0].len();
        let from = self.rng.below(size.min(FILE_MAX - WRITE_MAX) + 1);
        let most = if self.rng.percent(70) { 8 } else { WRITE_MAX };
        let count = 1 + self.rng.below(most);
        let contents = self.fill(object, DATA, from, count);
        let effects = self.put(at, DATA, from, &contents);
        let asked = self.rng.percent(20);
        let flags = if asked {
            WriteFlags::WRITE_THROUGH
        } else {
            WriteFlags::empty()
        };
        let (kind, promise) = if asked || through {
            (Kind::WriteThrough, Promise::Itself(object))
        } else {
            (Kind::Write, Promise::Nothing)
        };
        let data = bytes_of(&contents);
        self.act(kind, effects, promise, || {
            handle.write((from * UNIT) as u64, &data, flags)
        })
        .map(drop)
    }

    fn flush(&mut self, at: usize) -> Option<()> {
        let handle = self.opened(at)?;
        let promise = Promise::Object(self.files[at].object);
        self.act(Kind::FlushFile, Vec::new(), promise, || handle.flush(false))
    }

    fn stream(&mut self, at: usize, fork: Fork) -> Option<()> {
        // One kind to a file: where Samba keeps both as attributes, ext4 has no room for them.
        let other = if fork == SMALL { BIG } else { SMALL };
        if !self.files[at].forks[usize::from(other)].is_empty() {
            return Some(());
        }
        let object = self.files[at].object;
        let name = format!(
            "{}:{}",
            wire(&self.files[at].path),
            STREAMS[usize::from(fork)]
        );
        let (tree, args) = (self.tree, CreateArgs::open_if(&name));
        let known = self.files[at].forks[usize::from(fork)].len();
        let handle = if known == 0 {
            let effects = vec![(Cell::Size(object, fork), size_of(&[]))];
            let nothing = Promise::Nothing;
            self.act(Kind::CreateStream, effects, nothing, || tree.create(&args))?
        } else {
            self.quietly(|tree| tree.create(&args))?
        };
        let most = if fork == SMALL {
            SMALL_MAX
        } else {
            self.world.plan.big
        };
        let (from, count) = if known == 0 {
            (
                0,
                if fork == SMALL {
                    1 + self.rng.below(most)
                } else {
                    most
                },
            )
        } else {
            let from = self.rng.below(known);
            (from, 1 + self.rng.below(most - from))
        };
        // A big stream may begin as a small one and grow.
        let pieces = if fork == BIG && known == 0 && self.rng.percent(30) {
            vec![(0, SMALL_MAX), (SMALL_MAX, count - SMALL_MAX)]
        } else {
            vec![(from, count)]
        };
        for (from, count) in pieces {
            let contents = self.fill(object, fork, from, count);
            let effects = self.put(at, fork, from, &contents);
            let data = bytes_of(&contents);
            self.act(Kind::WriteStream, effects, Promise::Nothing, || {
                handle.write((from * UNIT) as u64, &data, WriteFlags::empty())
            })?;
        }
        if self.rng.percent(70) {
            let kind = if fork == SMALL {
                Kind::FlushSmallStream
            } else {
                Kind::FlushBigStream
            };
            let promise = Promise::Object(object);
            self.act(kind, Vec::new(), promise, || handle.flush(false))?;
        }
        self.quietly(|_| handle.close())
    }

    fn attributes(&mut self, at: usize) -> Option<()> {
        let handle = self.opened(at)?;
        let object = self.files[at].object;
        let promise = self.promise(object, self.files[at].through);
        let value = [0, 2, 4, 6][self.rng.below(4)];
        self.files[at].attributes = value;
        let effects = vec![(Cell::Attributes(object), Value::Attributes(value))];
        // Times 0: left alone. FILE_ATTRIBUTE_NORMAL says "none".
        let mut buffer = [0; 40];
        let wire = if value == 0 { 0x80 } else { value };
        buffer[32..36].copy_from_slice(&wire.to_le_bytes());
        self.act(Kind::Attributes, effects, promise, || {
            handle.set(FileInformationClass::BASIC, &buffer)
        })
    }

    fn copy(&mut self) {
        if self.files.len() < 2 {
            return self.create();
        }
        let (from, to) = (
            self.rng.below(self.files.len()),
            self.rng.below(self.files.len()),
        );
        let units = self.files[from].forks[0].len().min(WRITE_MAX);
        if from == to || units == 0 {
            return;
        }
        let (Some(source), Some(target)) = (self.opened(from), self.opened(to)) else {
            return;
        };
        // Opening the second may have closed the first.
        if self.files[from].handle.is_none() {
            return;
        }
        let key = self.quietly(|_| source.ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32));
        let key = key.and_then(|key| RequestResumeKeyResponse::read(&key).ok());
        let Some(key) = key else { return };
        let place = self
            .rng
            .below(self.files[to].forks[0].len().min(FILE_MAX - WRITE_MAX) + 1);
        let contents = self.files[from].forks[0][..units].to_vec();
        let effects = self.put(to, DATA, place, &contents);
        self.files[to].mixed = true;
        let promise = self.promise(self.files[to].object, self.files[to].through);
        self.source = Some(self.files[from].object);
        let mut input = BytesMut::new();
        CopyChunkCopy {
            source_key: key.resume_key,
            chunk_count: 1,
            chunks: vec![CopyChunk {
                source_offset: 0,
                target_offset: (place * UNIT) as u64,
                length: (units * UNIT) as u32,
            }],
        }
        .encode(&mut input);
        let done = self.act(Kind::Copy, effects, promise, || {
            target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12)
        });
        if done.is_none() || self.rng.percent(60) && self.flush(to).is_none() {
            self.files.swap_remove(to);
        }
    }

    fn write_shared(&mut self) {
        let unit = self.number * SHARED_EACH + self.rng.below(SHARED_EACH);
        let contents = self.fill(SHARED, DATA, unit, 1);
        let cell = Cell::Unit(SHARED, DATA, unit as u32);
        let mut effects = vec![(cell, Value::Contents(contents[0]))];
        effects.extend(self.written(SHARED));
        let data = bytes_of(&contents);
        let through = self.rng.percent(30);
        let shared = self.shared.clone();
        let (kind, promise, flags) = if through {
            (
                Kind::WriteThrough,
                Promise::Itself(SHARED),
                WriteFlags::WRITE_THROUGH,
            )
        } else {
            (Kind::Write, Promise::Nothing, WriteFlags::empty())
        };
        let written = self.act(kind, effects, promise, || {
            shared.write((unit * UNIT) as u64, &data, flags)
        });
        if written.is_some() && !through && self.rng.percent(70) {
            let _ = self.act(Kind::FlushFile, Vec::new(), Promise::Object(SHARED), || {
                shared.flush(false)
            });
        }
    }
}

/// A path as it goes over the wire.
fn wire(path: &str) -> String {
    path.replace('/', "\\")
}
