//! A file system in memory with the weakest legal durability: pages, metadata and names are
//! stable only by a sync of exactly the inode or directory that holds them. Syncs and writes
//! take scripted or random time, and fail as scripted: a failed sync marks its pages clean.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use vfs::{
    Attr, Env, FileKey, Kind, Node, SyncScope, Timestamp, VfsError, VfsResult, Volume, WriteMode,
    requester::{self, Requester},
};

use super::sim::{Rng, TestEnv};
use crate::share::lock;

pub(super) const PAGE: u64 = 4096;

#[derive(Debug, Clone)]
pub(super) struct FakeNode {
    pub(super) ino: u64,
    pub(super) directory: bool,
    pub(super) stream: Option<Arc<str>>,
    /// A sync has to open it first.
    unopened: bool,
    _open: Arc<()>,
}

impl Node for FakeNode {
    fn key(&self) -> FileKey {
        key(self.ino)
    }
    fn is_directory(&self) -> bool {
        self.directory
    }
    fn stream(&self) -> Option<&str> {
        self.stream.as_deref()
    }
}

/// Numbers from here on are on another file system.
pub(super) const ELSEWHERE: u64 = 1_000_000;

pub(super) fn key(ino: u64) -> FileKey {
    FileKey {
        fs: 1 + ino / ELSEWHERE,
        ino,
        generation: 0,
    }
}

pub(super) fn file(ino: u64) -> FakeNode {
    FakeNode {
        ino,
        directory: false,
        stream: None,
        unopened: false,
        _open: Arc::default(),
    }
}

/// A file or stream that was found, and not opened.
pub(super) fn unopened(node: FakeNode) -> FakeNode {
    FakeNode {
        unopened: true,
        ..node
    }
}

pub(super) fn dir(ino: u64) -> FakeNode {
    FakeNode {
        ino,
        directory: true,
        stream: None,
        unopened: false,
        _open: Arc::default(),
    }
}

pub(super) fn stream(ino: u64, name: &str) -> FakeNode {
    FakeNode {
        ino,
        directory: false,
        stream: Some(name.into()),
        unopened: false,
        _open: Arc::default(),
    }
}

impl FakeNode {
    pub(super) fn key_of(&self) -> FileKey {
        key(self.ino)
    }

    /// Nodes cloned from this one, itself included.
    pub(super) fn held(&self) -> usize {
        Arc::strong_count(&self._open)
    }
}

/// One page: what clients see and what a crash leaves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Page {
    pub(super) live: u64,
    pub(super) durable: u64,
    /// Clean as the kernel sees it, whatever the disk holds.
    clean: bool,
}

#[derive(Default)]
pub(super) struct State {
    /// Syncs and writes in order: `data 5`, `all 5`, `all 5:s`, `write 5`, `dsync 5`; with `!`
    /// if they failed.
    pub(super) log: Vec<String>,
    /// The requester of each sync.
    pub(super) requesters: Vec<Requester>,
    pub(super) pages: BTreeMap<(u64, u64), Page>,
    /// Names by id: directory, and whether stable.
    pub(super) names: BTreeMap<u64, (u64, bool)>,
    /// Versions of metadata: live, durable.
    pub(super) meta: BTreeMap<u64, (u64, u64)>,
    pub(super) links: BTreeMap<u64, u32>,
    pub(super) sizes: BTreeMap<u64, u64>,
    /// Results of the next syncs of an inode.
    pub(super) script: BTreeMap<u64, VecDeque<VfsResult<()>>>,
    version: u64,
    /// Where inodes are.
    pub(super) paths: BTreeMap<u64, Vec<u8>>,
    /// The directories of inodes. An inode that is not here has none that is known.
    pub(super) parents: BTreeMap<u64, u64>,
    /// Flushes of the device, with [`Times::merging`]: their number, and when the last begins and
    /// ends.
    pub(super) flushes: (u64, Duration, Duration),
}

pub(super) struct Fake {
    env: Arc<dyn Env>,
    pub(super) state: Mutex<State>,
    pub(super) times: Mutex<Times>,
}

/// How long things take.
pub(super) struct Times {
    pub(super) sync: Duration,
    pub(super) write: Duration,
    /// The open of a file for its sync.
    pub(super) open: Duration,
    /// A look for the directory of a file, after which it may be elsewhere.
    pub(super) look: Duration,
    pub(super) rng: Option<Rng>,
    /// One sync in so many fails; 0: none.
    pub(super) fail_one_in: u64,
    /// Number of the root directory.
    pub(super) root: u64,
    /// Whether renames are atomic.
    pub(super) atomic: bool,
    /// One flush of the device runs at a time, and serves all syncs that came before it began.
    pub(super) merging: bool,
}

impl Fake {
    pub(super) fn new(env: &Arc<TestEnv>, sync: Duration, write: Duration) -> Arc<Self> {
        Self::over(&(Arc::clone(env) as Arc<dyn Env>), sync, write)
    }

    pub(super) fn over(env: &Arc<dyn Env>, sync: Duration, write: Duration) -> Arc<Self> {
        let times = Mutex::new(Times {
            sync,
            write,
            open: Duration::ZERO,
            look: Duration::ZERO,
            rng: None,
            fail_one_in: 0,
            root: 1,
            atomic: true,
            merging: false,
        });
        Arc::new(Self {
            env: Arc::clone(env),
            state: Mutex::default(),
            times,
        })
    }

    pub(super) fn note(&self, what: String) {
        lock(&self.state).log.push(what);
    }

    pub(super) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).log)
    }

    pub(super) fn script(&self, ino: u64, results: &[VfsResult<()>]) {
        lock(&self.state)
            .script
            .entry(ino)
            .or_default()
            .extend(results);
    }

    /// A name made or removed in `dir`, done at once.
    pub(super) fn name(&self, dir: u64) -> u64 {
        let mut state = lock(&self.state);
        state.version += 1;
        let id = state.version;
        state.names.insert(id, (dir, false));
        id
    }

    /// Whether all names made or removed in `dir` are stable.
    pub(super) fn is_stable_in(&self, dir: u64) -> bool {
        let state = lock(&self.state);
        state
            .names
            .values()
            .all(|(of, stable)| *of != dir || *stable)
    }

    pub(super) fn set_meta(&self, ino: u64) -> u64 {
        let mut state = lock(&self.state);
        state.version += 1;
        let version = state.version;
        state.meta.entry(ino).or_default().0 = version;
        version
    }

    fn random(&self, span: Duration) -> Duration {
        match &mut lock(&self.times).rng {
            Some(rng) => Duration::from_micros(rng.below(span.as_micros() as u64 + 1)),
            None => span,
        }
    }

    /// How long a sync takes that begins now, if a flush of the device takes `span`.
    fn flushed_in(&self, span: Duration) -> Duration {
        if !lock(&self.times).merging {
            return span;
        }
        let now = self.env.monotonic();
        let mut state = lock(&self.state);
        let (count, begins, ends) = &mut state.flushes;
        if now > *begins {
            *count += 1;
            *begins = now.max(*ends);
            *ends = *begins + span;
        }
        *ends - now
    }

    fn fails(&self, ino: u64) -> VfsResult<()> {
        if let Some(result) = lock(&self.state)
            .script
            .get_mut(&ino)
            .and_then(VecDeque::pop_front)
        {
            return result;
        }
        let mut times = lock(&self.times);
        let one_in = times.fail_one_in;
        let unlucky = times
            .rng
            .as_mut()
            .is_some_and(|rng| one_in > 0 && rng.below(one_in) == 0);
        if unlucky { Err(VfsError::Io) } else { Ok(()) }
    }

    fn write_pages(&self, ino: u64, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let mut state = lock(&self.state);
        state.version += 1;
        let version = state.version;
        let mut written = Vec::new();
        for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
            let page_state = state.pages.entry((ino, page)).or_default();
            page_state.live = version;
            page_state.clean = false;
            written.push((page, version));
        }
        written
    }

    /// The version a page shows now.
    pub(super) fn live(&self, ino: u64, page: u64) -> u64 {
        lock(&self.state)
            .pages
            .get(&(ino, page))
            .map_or(0, |page| page.live)
    }
}

impl Volume for Fake {
    type Node = FakeNode;

    async fn write(
        &self,
        node: &FakeNode,
        offset: u64,
        data: Bytes,
        mode: WriteMode,
    ) -> VfsResult<()> {
        let span = lock(&self.times).write;
        let span = self.random(span);
        self.env.sleep(span / 2).await;
        let written = self.write_pages(node.ino, offset, data.len() as u64);
        self.env.sleep(span / 2).await;
        let word = if mode.durable { "dsync" } else { "write" };
        if mode.durable {
            let result = self.fails(node.ino);
            let mut state = lock(&self.state);
            for (page, version) in written {
                let page = state.pages.entry((node.ino, page)).or_default();
                if !page.clean && result.is_ok() {
                    page.durable = page.durable.max(version);
                }
                page.clean |= page.live == version;
            }
            state.log.push(format!(
                "{word} {}{}",
                node.ino,
                if result.is_ok() { "" } else { "!" }
            ));
            return result;
        }
        lock(&self.state).log.push(format!("{word} {}", node.ino));
        Ok(())
    }

    async fn sync(&self, node: &FakeNode, scope: SyncScope) -> VfsResult<()> {
        self.keeper(node).await;
        let (dirty, names, meta) = {
            let mut state = lock(&self.state);
            state.requesters.push(requester::current());
            let mine = state.pages.range((node.ino, 0)..=(node.ino, u64::MAX));
            let dirty: Vec<_> = mine
                .filter(|(_, p)| !p.clean)
                .map(|(k, p)| (*k, p.live))
                .collect();
            let names: Vec<u64> = (state.names.iter())
                .filter(|(_, (dir, stable))| *dir == node.ino && !stable)
                .map(|(id, _)| *id)
                .collect();
            (
                dirty,
                names,
                state.meta.get(&node.ino).map_or(0, |meta| meta.0),
            )
        };
        let span = lock(&self.times).sync;
        let span = self.flushed_in(self.random(span));
        self.env.sleep(span).await;
        let result = self.fails(node.ino);
        let mut state = lock(&self.state);
        for (place, version) in dirty {
            let page = state.pages.entry(place).or_default();
            if result.is_ok() && !page.clean {
                page.durable = page.durable.max(version);
            }
            // Linux marks the pages clean also when the write-back failed.
            page.clean |= page.live == version;
        }
        if scope == SyncScope::All && result.is_ok() {
            for id in names {
                state.names.entry(id).and_modify(|name| name.1 = true);
            }
            if let Some(now) = state.meta.get_mut(&node.ino) {
                now.1 = now.1.max(meta);
            }
        } else if scope == SyncScope::All {
            // The directory's blocks are clean too: the names never come back by themselves.
            for id in names {
                state.names.entry(id).and_modify(|name| name.0 = u64::MAX);
            }
        }
        let word = if scope == SyncScope::Data {
            "data"
        } else {
            "all"
        };
        let on = node
            .stream
            .as_ref()
            .map_or(String::new(), |name| format!(":{name}"));
        let bad = if result.is_ok() { "" } else { "!" };
        state.log.push(format!("{word} {}{on}{bad}", node.ino));
        result
    }

    async fn keeper(&self, node: &FakeNode) -> Option<FakeNode> {
        if !node.unopened {
            return None;
        }
        let open = lock(&self.times).open;
        self.env.sleep(open).await;
        Some(file(node.ino))
    }

    async fn attr(&self, node: &FakeNode) -> VfsResult<Attr> {
        let state = lock(&self.state);
        let links = state.links.get(&node.ino).copied().unwrap_or(1);
        let size = state.sizes.get(&node.ino).copied().unwrap_or(1 << 40);
        Ok(Attr {
            key: node.key(),
            file_id: node.key().ino,
            hidden_by_name: false,
            kind: Kind::File,
            size,
            allocated: 0,
            links,
            created: Timestamp::default(),
            accessed: Timestamp::default(),
            written: Timestamp::default(),
            changed: Timestamp::default(),
            dos_attributes: 0x80,
            uid: 0,
            gid: 0,
            mode: 0,
        })
    }

    fn renames_are_atomic(&self, _: u64) -> bool {
        lock(&self.times).atomic
    }

    fn with_path<T>(&self, node: &FakeNode, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let root = node.ino == lock(&self.times).root;
        let known = lock(&self.state).paths.get(&node.ino).cloned();
        known
            .or_else(|| root.then(Vec::new))
            .map(|path| look(&path))
    }

    async fn sync_unknown_name(&self, node: &FakeNode) -> VfsResult<()> {
        let root = lock(&self.times).root;
        let named = lock(&self.state).parents.contains_key(&node.ino);
        if node.ino == root || !named {
            return Ok(());
        }
        self.note(format!("file system of {}", node.ino));
        self.fails(root)
    }

    fn root(&self) -> FakeNode {
        dir(lock(&self.times).root)
    }

    async fn parent_of(&self, node: &FakeNode) -> VfsResult<Option<FakeNode>> {
        let parent = lock(&self.state).parents.get(&node.ino).map(|at| dir(*at));
        let look = lock(&self.times).look;
        if look > Duration::ZERO {
            self.env.sleep(look).await;
        }
        Ok(parent)
    }
}
