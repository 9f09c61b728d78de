//! One client: its handles, what the server has acknowledged to it, and the load it makes.
//!
//! Of every block, lock and name the client knows the last answer, and what a request that got no
//! answer may have made of it. A server that refuses what nobody else can be in the way of is
//! wrong, too.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use smb_client::{ClientError, CreateArgs, File, Options, Tree};
use smb_tests::durable::{granted_v2, persistent, persistent_again};
use smb_tests::rng::Rng;
use smb_tests::{DATA, HoldfastServer, PASSWORD, USER};
use smb_wire::Status;
use smb_wire::create_context::{DurableHandleFlags, LeaseState};
use smb_wire::ids::{FileId, Guid, LeaseKey};
use smb_wire::msg::{Dialect, LockFlags, OplockLevel};

/// Bytes of a block: one stamp over and over.
pub(crate) const BLOCK: usize = 512;
/// Blocks of a client in a file.
const BLOCKS: u64 = 40;
/// Locks of a client in a file, far behind its blocks.
const LOCKS: u64 = 12;
const LOCKS_AT: u64 = 1 << 40;
pub(crate) const LOCK_LENGTH: u64 = 100;
/// How long the server keeps a handle: longer than any restart takes.
const TIMEOUT_MS: u32 = 120_000;
const EXCLUSIVE: LockFlags = LockFlags(0x12);
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The file that all clients have open.
pub(crate) const SHARED: &str = "shared";

/// Counts of what happened.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) locks: u64,
    pub(crate) renames: u64,
    pub(crate) opened: u64,
    pub(crate) back: u64,
    pub(crate) blocks_checked: u64,
    pub(crate) locks_checked: u64,
    pub(crate) leases_checked: u64,
    pub(crate) in_doubt: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.locks += other.locks;
        self.renames += other.renames;
        self.opened += other.opened;
        self.back += other.back;
        self.blocks_checked += other.blocks_checked;
        self.locks_checked += other.locks_checked;
        self.leases_checked += other.leases_checked;
        self.in_doubt += other.in_doubt;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "acknowledged: {} writes, {} locks and unlocks, {} renames, {} further handles; came \
             back: {} handles, {} leases; looked at: {} blocks, {} locks; unanswered: {}",
            self.writes,
            self.locks,
            self.renames,
            self.opened,
            self.back,
            self.leases_checked,
            self.blocks_checked,
            self.locks_checked,
            self.in_doubt,
        )
    }
}

/// The caching of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caches {
    Nothing,
    Batch,
    /// Under this key; what is held.
    Lease(LeaseKey, LeaseState),
}

/// A value as acknowledged, and as a request without an answer may have left it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<T> {
    pub(crate) told: T,
    pub(crate) maybe: Option<T>,
}

impl<T: Copy> Known<T> {
    fn new(told: T) -> Self {
        Self { told, maybe: None }
    }

    fn settle(&mut self, told: T) {
        *self = Self::new(told);
    }
}

/// A persistent handle.
pub(crate) struct Handle {
    pub(crate) name: Known<&'static str>,
    names: [&'static str; 2],
    guid: Guid,
    pub(crate) caches: Caches,
    id: FileId,
    pub(crate) file: Option<File>,
    /// Where this client's blocks begin.
    base: u64,
    blocks: BTreeMap<u64, Known<u64>>,
    /// Held or not, by offset.
    pub(crate) locks: BTreeMap<u64, Known<bool>>,
}

/// A client.
pub(crate) struct Client {
    number: u64,
    options: Options,
    tree: Option<Tree>,
    pub(crate) handles: Vec<Handle>,
    /// A further handle that was being opened or closed.
    further: Option<(String, Guid)>,
    rng: Rng,
    stamp: u64,
    pub(crate) counts: Counts,
    pub(crate) wrong: Vec<String>,
}

fn leak(name: String) -> &'static str {
    // A few for each client, for the life of the process.
    Box::leak(name.into_boxed_str())
}

fn guid(client: u64, number: u64) -> Guid {
    let mut bytes = [0x4b; 16];
    bytes[..8].copy_from_slice(&(client + 1).to_le_bytes());
    bytes[8..].copy_from_slice(&(number + 1).to_le_bytes());
    Guid(bytes)
}

impl Handle {
    fn args(&self) -> CreateArgs {
        let args = CreateArgs::open_if(self.name.told);
        match self.caches {
            Caches::Nothing => args,
            Caches::Batch => args.oplock(OplockLevel::BATCH),
            Caches::Lease(key, _) => args.lease_v2(key, LeaseState::RWH, 0),
        }
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("the handle is there")
    }
}

/// A request was answered as it must be, or the server is gone. Anything else is wrong.
fn answered<T>(
    wrong: &mut Vec<String>,
    what: impl FnOnce() -> String,
    result: Result<T, ClientError>,
) -> Result<T, ()> {
    match result {
        Ok(value) => Ok(value),
        Err(ClientError::Status(status)) => {
            wrong.push(format!("{}: {status:?}", what()));
            Err(())
        }
        Err(_) => Err(()),
    }
}

impl Client {
    /// Connects and opens its handles.
    pub(crate) fn new(server: &HoldfastServer, number: u64, seed: u64) -> Self {
        let mut options = Options::dialect(Dialect::SMB_3_1_1).guid(guid(number, 1000));
        options.timeout = ANSWER_MAX;
        let mut client = Self {
            number,
            options,
            tree: None,
            handles: Vec::new(),
            further: None,
            rng: Rng::new(seed.wrapping_mul(1_000) + number + 7),
            stamp: (number + 1) << 40,
            counts: Counts::default(),
            wrong: Vec::new(),
        };
        let tree = client.connect(server).unwrap();
        let key = LeaseKey(guid(number, 2000).0);
        let own = |what: &str| leak(format!("{what}-{number}"));
        for (at, (name, caches)) in [
            (own("leased"), Caches::Lease(key, LeaseState::RWH)),
            (own("batch"), Caches::Batch),
            (own("plain"), Caches::Nothing),
            (SHARED, Caches::Nothing),
        ]
        .into_iter()
        .enumerate()
        {
            let other = if at == 2 { own("moved") } else { name };
            let mut handle = Handle {
                name: Known::new(name),
                names: [name, other],
                guid: guid(number, at as u64),
                caches,
                id: FileId::default(),
                file: None,
                base: number * BLOCKS * BLOCK as u64,
                blocks: BTreeMap::new(),
                locks: BTreeMap::new(),
            };
            let asked = persistent(handle.args(), handle.guid, TIMEOUT_MS);
            let file = tree.create(&asked).unwrap();
            assert!(is_persistent(&file), "{name}: not persistent");
            handle.id = file.id();
            handle.file = Some(file);
            client.handles.push(handle);
        }
        client.tree = Some(tree);
        client
    }

    fn connect(&self, server: &HoldfastServer) -> Result<Tree, ClientError> {
        let client = smb_client::Client::connect(server.addr(), self.options.clone())?;
        client.login(USER, PASSWORD, "")?.tree(DATA)
    }

    /// Works until the server is gone.
    pub(crate) fn load(&mut self) {
        // The first error ends it: what it says is in `wrong`, unless it is the loss.
        while self.deed().is_ok() {}
        self.counts.in_doubt += 1;
    }

    fn deed(&mut self) -> Result<(), ()> {
        let at = self.rng.below(self.handles.len() as u64) as usize;
        match self.rng.below(100) {
            0..60 => self.write(at),
            60..85 => self.lock(at),
            85..90 => self.flush(at),
            90..95 => self.rename(),
            _ => self.further(),
        }
    }

    fn write(&mut self, at: usize) -> Result<(), ()> {
        self.stamp += 1;
        let (stamp, block) = (self.stamp, self.rng.below(BLOCKS));
        let handle = &mut self.handles[at];
        let offset = handle.base + block * BLOCK as u64;
        let known = handle.blocks.entry(offset).or_insert(Known::new(0));
        known.maybe = Some(stamp);
        let data = stamp.to_le_bytes().repeat(BLOCK / 8);
        let file = handle.file.as_ref().expect("the handle is there");
        let written = file.write_all(offset, &data);
        let name = handle.name.told;
        answered(&mut self.wrong, || format!("write to {name}"), written)?;
        known.settle(stamp);
        self.counts.writes += 1;
        Ok(())
    }

    fn lock(&mut self, at: usize) -> Result<(), ()> {
        let slot = self.number * LOCKS + self.rng.below(LOCKS);
        let handle = &mut self.handles[at];
        let offset = LOCKS_AT + slot * LOCK_LENGTH;
        let known = handle.locks.entry(offset).or_insert(Known::new(false));
        let lock = !known.told;
        known.maybe = Some(lock);
        let file = handle.file.as_ref().expect("the handle is there");
        let done = if lock {
            file.lock(offset, LOCK_LENGTH, EXCLUSIVE)
        } else {
            file.unlock(offset, LOCK_LENGTH)
        };
        let name = handle.name.told;
        answered(
            &mut self.wrong,
            || format!("lock ({lock}) of {offset} in {name}"),
            done,
        )?;
        known.settle(lock);
        self.counts.locks += 1;
        Ok(())
    }

    fn flush(&mut self, at: usize) -> Result<(), ()> {
        let handle = &self.handles[at];
        let done = handle.file().flush(false);
        let name = handle.name.told;
        answered(&mut self.wrong, || format!("flush of {name}"), done)
    }

    /// Of the handle that has two names.
    fn rename(&mut self) -> Result<(), ()> {
        let mut handles = self.handles.iter_mut();
        let Some(handle) = handles.find(|handle| handle.names[0] != handle.names[1]) else {
            return Ok(());
        };
        let [one, other] = handle.names;
        let to = if handle.name.told == one { other } else { one };
        handle.name.maybe = Some(to);
        let done = handle.file().rename(to, false);
        answered(&mut self.wrong, || format!("rename to {to}"), done)?;
        handle.name.settle(to);
        self.counts.renames += 1;
        Ok(())
    }

    /// A handle that is opened, used and closed.
    fn further(&mut self) -> Result<(), ()> {
        self.stamp += 1;
        let name = format!("further-{}", self.stamp);
        let create = guid(self.number, self.stamp);
        let tree = self.tree.clone().ok_or(())?;
        self.further = Some((name.clone(), create));
        let levels = [OplockLevel::BATCH, OplockLevel::II, OplockLevel::NONE];
        let args = CreateArgs::open_if(&name).oplock(self.rng.pick(&levels));
        let opened = tree.create(&persistent(args, create, TIMEOUT_MS));
        let file = answered(&mut self.wrong, || format!("open of {name}"), opened)?;
        let written = file.write_all(0, name.as_bytes());
        answered(&mut self.wrong, || format!("write to {name}"), written)?;
        if self.rng.once_in(2) {
            let marked = file.set_delete(true);
            answered(&mut self.wrong, || format!("deletion of {name}"), marked)?;
        }
        answered(&mut self.wrong, || format!("close of {name}"), file.close())?;
        self.further = None;
        self.counts.opened += 1;
        Ok(())
    }

    /// Connects again and takes every handle back; looks at what the server said had happened.
    pub(crate) fn come_back(&mut self, server: &HoldfastServer) {
        let tree = match self.connect(server) {
            Ok(tree) => tree,
            Err(error) => {
                self.wrong.push(format!("no connection: {error}"));
                return;
            }
        };
        self.tree = Some(tree.clone());
        for at in 0..self.handles.len() {
            if let Err(why) = self.take_back(&tree, at) {
                let name = self.handles[at].name.told;
                self.wrong.push(format!("{name}: {why}"));
                continue;
            }
            self.look(server, at);
        }
        self.finish_further(&tree);
    }

    fn take_back(&mut self, tree: &Tree, at: usize) -> Result<(), String> {
        let handle = &mut self.handles[at];
        let asked = persistent_again(handle.args(), handle.id, handle.guid);
        let file = tree.create(&asked).map_err(|e| format!("not back: {e}"))?;
        if file.id().persistent != handle.id.persistent {
            return Err("back as another one".to_owned());
        }
        let got = file.created();
        match handle.caches {
            Caches::Nothing => {}
            Caches::Batch if got.oplock_level == OplockLevel::BATCH => {}
            Caches::Batch => return Err(format!("its oplock is {:?}", got.oplock_level)),
            Caches::Lease(key, held) => {
                let lease = got.lease().ok_or("its lease is gone")?;
                if (lease.lease_key, lease.lease_state) != (key, held) {
                    return Err(format!(
                        "its lease is {:?}, not {held:?}",
                        lease.lease_state
                    ));
                }
                self.counts.leases_checked += 1;
            }
        }
        handle.id = file.id();
        handle.file = Some(file);
        self.counts.back += 1;
        Ok(())
    }

    /// Data by the handle and on the disk, and what unanswered requests came to.
    fn look(&mut self, server: &HoldfastServer, at: usize) {
        let (handle, wrong) = (&mut self.handles[at], &mut self.wrong);
        if let Some(maybe) = handle.name.maybe {
            let there = server.path(maybe).exists();
            let told = if there { maybe } else { handle.name.told };
            handle.name.settle(told);
        }
        let name = handle.name.told;
        let Ok(bytes) = handle.file().read_all() else {
            wrong.push(format!("{name}: cannot be read"));
            return;
        };
        match std::fs::read(server.path(name)) {
            // Other clients may be writing to a shared file; this one's blocks are compared.
            Ok(on_disk) if name == SHARED || on_disk == bytes => {}
            Ok(_) => wrong.push(format!("{name}: the disk has other bytes than the handle")),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
        for (offset, known) in &mut handle.blocks {
            self.counts.blocks_checked += 1;
            match look_at(&bytes, *offset, known) {
                Ok(now) => known.settle(now),
                Err(why) => wrong.push(format!(
                    "{name}: block at {offset}: {why}, told {:#x}, perhaps {:x?}",
                    known.told, known.maybe
                )),
            }
        }
        for (offset, known) in &mut handle.locks {
            if known.maybe.is_some() {
                let file = handle.file.as_ref().expect("the handle is there");
                match file.unlock(*offset, LOCK_LENGTH) {
                    Ok(()) | Err(ClientError::Status(Status::RANGE_NOT_LOCKED)) => {
                        known.settle(false);
                    }
                    Err(error) => wrong.push(format!("{name}: unlock of {offset}: {error}")),
                }
            }
        }
    }

    /// The handle that was being opened or closed is there or not; then it is closed.
    fn finish_further(&mut self, tree: &Tree) {
        let Some((name, create)) = self.further.take() else {
            return;
        };
        let args = CreateArgs::open_if(&name);
        let nobody = FileId {
            persistent: u64::MAX - 1,
            volatile: 0,
        };
        let back = tree.create(&persistent_again(args, nobody, create));
        let end = back.and_then(|file| file.close());
        match end {
            Ok(()) | Err(ClientError::Status(Status::OBJECT_NAME_NOT_FOUND)) => {}
            Err(error) => self.wrong.push(format!("{name}: {error}")),
        }
    }
}

fn is_persistent(file: &File) -> bool {
    granted_v2(file).is_some_and(|got| got.flags.contains(DurableHandleFlags::PERSISTENT))
}

/// The stamp of a block, if it is one of those it can be.
fn look_at(bytes: &[u8], offset: u64, known: &Known<u64>) -> Result<u64, &'static str> {
    let from = offset as usize;
    let mut block = bytes.get(from..from + BLOCK).unwrap_or_default().to_vec();
    if block.is_empty() && known.told == 0 {
        return Ok(0);
    }
    // The end of the file may be within what was not answered.
    block.resize(BLOCK, 0);
    let mut words = block.chunks(8).map(|word| {
        let mut stamp = [0; 8];
        stamp.copy_from_slice(word);
        u64::from_le_bytes(stamp)
    });
    let first = words.next().unwrap_or(0);
    let legal = first == known.told || Some(first) == known.maybe;
    if !legal {
        return Err("is something else");
    }
    if !words.all(|word| word == first) {
        return Err("is torn");
    }
    Ok(first)
}
