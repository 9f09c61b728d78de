//! A client that caches, as the redirectors of Windows do: the programs above it see files, and the server sees fewer
//! and larger requests.
//!
//! Each file is opened with a lease. Under READ caching, data that were read stay and are read ahead; under WRITE
//! caching, data that are written stay and go to the server later, in large pieces; under HANDLE caching, the server's
//! open stays for a time after the program's CLOSE and serves the next open. CLOSE and FLUSH write back first. A break
//! takes away what its lease permitted: dirty data are written, pages forgotten, delayed closes carried out, and then
//! it is acknowledged. Several opens of a file share one open of the server. Names, searches and locks are not cached.
//!
//! Nobody reads the socket while the program does something else, so a break is seen at the next call, or by
//! [`Redirector::serve`]. All waits that may depend on another client's break look for breaks too.

mod held;
mod pages;

use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smb_client::{Break, ClientError, CreateArgs, File, Reply, Request, Tree};
use smb_wire::{
    Status,
    create_context::LeaseState,
    ids::LeaseKey,
    msg::{CreateDisposition, LockElement, LockFlags, ReadResponse, WriteFlags, WriteResponse},
};

use crate::error::check_written;
use held::Held;
use pages::Pages;

/// Bytes that are read ahead of a program that reads in order.
const READ_AHEAD: u64 = 65_536;
/// Bytes of one file that the server may lack.
const DIRTY_MAX: u64 = 1 << 20;
/// The time that the server may lack them, as long as the program makes calls.
const DIRTY_TIME: Duration = Duration::from_secs(1);
/// Bytes of all files in the cache.
const CACHE_MAX: u64 = 32 << 20;
/// Files whose CLOSE is delayed, and for how long: `DormantFileLimit` and `ScavengerTimeLimit` of Windows XP.
const DORMANT_MAX: usize = 45;
const DORMANT_TIME: Duration = Duration::from_secs(10);
/// The time between two looks for breaks while an answer is awaited.
const LOOK: Duration = Duration::from_millis(2);
/// The longest wait for an answer: a server gives the holder of a lease 35 seconds to acknowledge.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Numbers the leases of this process.
static LEASES: AtomicU64 = AtomicU64::new(1);

/// The files of one connection, with their cache.
///
/// # Errors
/// Where a function says nothing else: the server's status, or any other error.
pub struct Redirector {
    tree: Tree,
    files: HashMap<String, Held>,
    /// Files without users, the longest closed first.
    dormant: VecDeque<(String, Instant)>,
    /// When the server began to lack something.
    dirty_since: Option<Instant>,
    /// The lease that a CREATE under way asks for, and a break of it that came before the answer was looked at.
    opening: Option<LeaseKey>,
    early: Option<(LeaseState, bool)>,
}

impl Redirector {
    /// Caches the files of a tree.
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            files: HashMap::new(),
            dormant: VecDeque::new(),
            dirty_since: None,
            opening: None,
            early: None,
        }
    }

    /// Requests that were sent so far; one of more than 64 KiB counts for several.
    pub fn sent(&self) -> u64 {
        self.tree.client().connection().core().next_message_id().0
    }

    /// Opens a file; several opens of one name count.
    pub fn open(&mut self, name: &str, disposition: CreateDisposition) -> Result<(), ClientError> {
        self.serve()?;
        let is_new = disposition == CreateDisposition::CREATE;
        if let Some(held) = self.files.get_mut(name).filter(|_| !is_new) {
            held.users += 1;
            self.dormant.retain(|(other, _)| other != name);
            return Ok(());
        }
        let mut key = [0; 16];
        key[..8].copy_from_slice(&LEASES.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        let key = LeaseKey(key);
        let args = CreateArgs::new(name, disposition).lease(key, LeaseState::RWH);
        self.opening = Some(key);
        let reply = self.call(args.request());
        self.opening = None;
        let early = self.early.take();
        let file = self.tree.file(&reply?)?;
        let created = file.created();
        let held = Held {
            key,
            state: created.lease().map_or(LeaseState(0), |of| of.lease_state),
            users: 1,
            bytes: created.facts.end_of_file,
            stored: created.facts.end_of_file,
            pages: Pages::default(),
            next_read: 0,
            file,
        };
        self.files.insert(name.to_owned(), held);
        match early {
            Some((state, is_awaited)) => self.broken(key, state, is_awaited),
            None => Ok(()),
        }
    }

    /// Reads; fewer bytes are there only at the end of the file.
    pub fn read(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, ClientError> {
        self.serve()?;
        let held = self.held(name)?;
        if !held.may(LeaseState::READ) {
            let request = held.file.read_request(offset, length, 0);
            let reply = self.call(request);
            return match reply {
                Err(ClientError::Status(Status::END_OF_FILE)) => Ok(Vec::new()),
                reply => Ok(ReadResponse::read(&reply?.message)?.data.to_vec()),
            };
        }
        let end = (offset + u64::from(length)).min(held.bytes).max(offset);
        let bytes = offset..end;
        if let Some(mut range) = held.pages.lacks(&bytes) {
            if held.next_read == offset {
                let ahead = range.start..(range.end + READ_AHEAD).min(held.bytes);
                range = held.pages.lacks(&ahead).unwrap_or(range);
            }
            held.fetch(&range)?;
        }
        held.next_read = end;
        let data = held.pages.read(&bytes);
        self.trim()?;
        Ok(data)
    }

    pub fn write(&mut self, name: &str, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.serve()?;
        let bytes = offset..offset + data.len() as u64;
        let held = self.held(name)?;
        if !held.may(LeaseState::READ | LeaseState::WRITE) {
            let request = held.file.write_request(offset, data, WriteFlags::empty());
            let reply = self.call(request)?;
            check_written(WriteResponse::read(&reply.message)?.count, data.len())?;
            let held = self.held(name)?;
            held.pages.write(&bytes, data, false);
            held.bytes = held.bytes.max(bytes.end);
            held.stored = held.stored.max(bytes.end);
            return Ok(());
        }
        while let Some(range) = held.pages.lacks_around(&bytes) {
            held.fetch(&range)?;
        }
        held.pages.write(&bytes, data, true);
        held.bytes = held.bytes.max(bytes.end);
        if held.pages.dirty() > DIRTY_MAX {
            held.write_back()?;
        }
        self.dirty_since.get_or_insert_with(Instant::now);
        self.trim()
    }

    /// The size of an open file; the server is asked unless a lease says that nobody else can have changed it.
    pub fn size(&mut self, name: &str) -> Result<u64, ClientError> {
        self.serve()?;
        let held = self.held(name)?;
        if !held.may(LeaseState::READ) {
            let class = smb_wire::fscc::FileInformationClass::STANDARD;
            let standard = held.file.query(class)?;
            let end = standard.get(8..16).and_then(|end| end.try_into().ok());
            held.bytes = end.map_or(held.bytes, u64::from_le_bytes);
            held.stored = held.bytes;
        }
        Ok(held.bytes)
    }

    /// Whether this client may answer queries about a name by itself.
    pub fn knows(&self, name: &str) -> bool {
        let held = self.files.get(name);
        held.is_some_and(|held| held.may(LeaseState::READ | LeaseState::HANDLE))
    }

    /// Writes back, and asks the server to make it stable.
    pub fn flush(&mut self, name: &str) -> Result<(), ClientError> {
        self.serve()?;
        let held = self.held(name)?;
        held.write_back()?;
        held.file.flush(false)
    }

    /// Locks a range, and waits for the one that has it.
    pub fn lock(&mut self, name: &str, offset: u64, length: u64) -> Result<(), ClientError> {
        self.serve()?;
        let lock = LockElement {
            offset,
            length,
            flags: LockFlags::EXCLUSIVE,
        };
        let request = self.held(name)?.file.lock_request(0, &[lock]);
        self.call(request).map(|_| ())
    }

    /// Unlocks a range; what was written under the lock is on the server before.
    pub fn unlock(&mut self, name: &str, offset: u64, length: u64) -> Result<(), ClientError> {
        self.serve()?;
        let held = self.held(name)?;
        held.write_back()?;
        held.file.unlock(offset, length)
    }

    /// The server's open of a file that a program has open.
    pub fn file(&self, name: &str) -> Result<&File, ClientError> {
        let held = self.files.get(name).ok_or(NOT_OPEN)?;
        Ok(&held.file)
    }

    /// Closes a file: dirty data are written, and the CLOSE of the server's open may be delayed.
    pub fn close(&mut self, name: &str) -> Result<(), ClientError> {
        self.serve()?;
        let held = self.held(name)?;
        held.users = held.users.saturating_sub(1);
        if held.users > 0 {
            return Ok(());
        }
        held.write_back()?;
        if !held.may(LeaseState::HANDLE) {
            return self.release(name);
        }
        self.dormant.push_back((name.to_owned(), Instant::now()));
        match self.dormant.front().cloned() {
            Some((oldest, _)) if self.dormant.len() > DORMANT_MAX => self.release(&oldest),
            _ => Ok(()),
        }
    }

    /// Deletes a file that no program has open.
    pub fn delete(&mut self, name: &str) -> Result<(), ClientError> {
        self.serve()?;
        let Some(held) = self.files.get(name) else {
            return self.tree.delete(name);
        };
        held.file.set_delete(true)?;
        self.release(name)
    }

    /// Renames a file that no program has open.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), ClientError> {
        self.serve()?;
        let Some(held) = self.files.remove(from) else {
            return self.tree.rename(from, to, false);
        };
        let renamed = held.file.rename(to, false);
        let name = if renamed.is_ok() { to } else { from };
        self.files.insert(name.to_owned(), held);
        for (dormant, _) in &mut self.dormant {
            if dormant == from {
                name.clone_into(dormant);
            }
        }
        renamed
    }

    /// Carries out every CLOSE that is delayed.
    pub fn settle(&mut self) -> Result<(), ClientError> {
        while let Some((name, _)) = self.dormant.front().cloned() {
            self.release(&name)?;
        }
        Ok(())
    }

    /// Takes care of breaks that have come, and of what has waited long enough.
    pub fn serve(&mut self) -> Result<(), ClientError> {
        while let Some(broken) = self.next_break()? {
            if let Break::Lease {
                key,
                new,
                ack_required,
                ..
            } = broken
            {
                self.broken(key, new, ack_required)?;
            }
        }
        let is_old = |since: Instant, time| since.elapsed() > time;
        if self.dirty_since.is_some_and(|t| is_old(t, DIRTY_TIME)) {
            self.dirty_since = None;
            for held in self.files.values_mut() {
                held.write_back()?;
            }
        }
        while let Some((name, since)) = self.dormant.front().cloned() {
            if !is_old(since, DORMANT_TIME) {
                break;
            }
            self.release(&name)?;
        }
        Ok(())
    }

    fn held(&mut self, name: &str) -> Result<&mut Held, ClientError> {
        self.files.get_mut(name).ok_or(NOT_OPEN)
    }

    /// A break that has come, without waiting for one.
    fn next_break(&self) -> Result<Option<Break>, ClientError> {
        let mut connection = self.tree.client().connection();
        if !connection.has_break() {
            let socket = connection.stream_mut();
            let mut sockets = [PollFd::new(socket, PollFlags::IN)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let ready = poll(&mut sockets, Some(&now));
            if ready.map_err(|error| ClientError::Io(error.into()))? == 0 {
                return Ok(None);
            }
        }
        connection.next_break(Duration::ZERO)
    }

    /// Does what a break asks for.
    fn broken(
        &mut self,
        key: LeaseKey,
        state: LeaseState,
        is_awaited: bool,
    ) -> Result<(), ClientError> {
        let found = self.files.iter_mut().find(|(_, held)| held.key == key);
        let Some((name, held)) = found else {
            // One of a file that has been closed since says nothing.
            if self.opening == Some(key) {
                self.early = Some((state, is_awaited));
            }
            return Ok(());
        };
        if !state.contains(LeaseState::WRITE) {
            held.write_back()?;
        }
        if !state.contains(LeaseState::READ) {
            held.pages.clear();
        }
        held.state = state;
        if held.users == 0 && !state.contains(LeaseState::HANDLE) {
            let name = name.clone();
            return self.release(&name);
        }
        match is_awaited {
            true => self.tree.acknowledge_lease(key, state),
            false => Ok(()),
        }
    }

    /// Closes the server's open, with which its lease ends.
    fn release(&mut self, name: &str) -> Result<(), ClientError> {
        self.dormant.retain(|(other, _)| other != name);
        match self.files.remove(name) {
            Some(held) => held.file.close(),
            None => Ok(()),
        }
    }

    /// Makes room: what the server lacks is written, and everything is forgotten.
    fn trim(&mut self) -> Result<(), ClientError> {
        let cached: u64 = self.files.values().map(|held| held.pages.size()).sum();
        if cached > CACHE_MAX {
            for held in self.files.values_mut() {
                held.write_back()?;
                held.pages.clear();
            }
        }
        Ok(())
    }

    /// Sends a request and waits for its answer; breaks that come meanwhile are taken care of, because the answer may
    /// have to wait for them at another client.
    fn call(&mut self, request: Request) -> Result<Reply, ClientError> {
        let client = self.tree.client().clone();
        let id = self.tree.send(request)?;
        let deadline = Instant::now() + ANSWER_MAX;
        loop {
            let is_answered = client.connection().answered(id, LOOK)?;
            if is_answered {
                return client.wait(id)?.ok();
            }
            if Instant::now() > deadline {
                return Err(ClientError::TimedOut);
            }
            self.serve()?;
        }
    }
}

const NOT_OPEN: ClientError = ClientError::Usage("the file is not open");
