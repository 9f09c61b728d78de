//! Lives of clients: connect, log in, some dozens of requests of all kinds, an end.
//!
//! A refusal that a client may get (a sharing violation, a lock that is held, a name that is gone)
//! is counted; anything that no server may do (close the connection, answer nothing, break the
//! protocol, give back other bytes than were written) ends the life and fails the run. Names are
//! few, so that the folder stays as large as it is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use smb_client::{
    Break, Client, ClientError, CreateArgs, Encryption, File, Login, Options, Reply, Request,
    Session, Signing, Tree,
};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, PASSWORD, SEALED, USER};
use smb_wire::Status;
use smb_wire::create_context::{
    DurableHandleFlags, DurableHandleReconnectV2, DurableHandleRequestV2, LeaseState, name,
};
use smb_wire::fscc::FileInformationClass;
use smb_wire::ids::{Guid, LeaseKey, MessageId};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, Dialect, LockElement, LockFlags, NotifyFilter,
    OplockLevel, ShareAccess, WriteFlags,
};

use smb_tests::rng::Rng;

/// Names that all clients share.
const SHARED_NAMES: u64 = 12;
/// Handles a client keeps at a time, requests it leaves waiting.
const KEPT_MAX: usize = 12;
/// An answer that takes longer is a failure: the longest wait of a request is for a break that
/// nobody acknowledges, 35 s.
const ANSWER_MAX: Duration = Duration::from_secs(45);
/// Between two looks for breaks while waiting for an answer.
const LOOK: Duration = Duration::from_millis(20);
/// How long a durable handle is to outlive its connection.
const DURABLE_MS: u32 = 5_000;

/// The state that all clients share.
pub(crate) struct World {
    addr: SocketAddr,
    folder: PathBuf,
    counts: Mutex<BTreeMap<String, u64>>,
    failures: Mutex<Vec<String>>,
}

impl World {
    /// The world of a server.
    pub(crate) fn new(server: &HoldfastServer) -> Self {
        Self {
            addr: server.addr(),
            folder: server.path(""),
            counts: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    fn count(&self, what: impl Into<String>) {
        *self.counts.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    /// Each event, and how often it happened.
    pub(crate) fn tally(&self) -> String {
        let counts = self.counts.lock().unwrap();
        let each = counts
            .iter()
            .map(|(what, times)| format!("  {what}: {times}"));
        each.collect::<Vec<_>>().join("\n")
    }

    /// The requests that clients tried, and how many of them were refused.
    pub(crate) fn deeds(&self) -> (u64, u64) {
        let counts = self.counts.lock().unwrap();
        let sum = |prefix: &str| {
            let of = counts.iter().filter(|(what, _)| what.starts_with(prefix));
            of.map(|(_, times)| times).sum()
        };
        (sum("deed: "), sum("refused "))
    }

    /// Events that may not happen.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap().clone()
    }
}

/// One client after the other until `stop`.
pub(crate) fn lives(
    world: &World,
    number: u64,
    rng: &mut Rng,
    stop: &AtomicBool,
    pause: &AtomicU64,
) {
    while !stop.load(Ordering::SeqCst) {
        world.count("lives");
        if let Err(why) = life(world, number, rng, stop, pause) {
            let mut failures = world.failures.lock().unwrap();
            // Enough to see what it is.
            if failures.len() < 20 {
                println!("client {number}: {why}");
                failures.push(format!("client {number}: {why}"));
            }
            drop(failures);
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

/// Another process of the machine that changes files of the share.
pub(crate) fn host(world: &World, rng: &mut Rng, stop: &AtomicBool, pause: &AtomicU64) {
    let name = |rng: &mut Rng| world.folder.join(format!("host-{}", rng.below(6)));
    while !stop.load(Ordering::SeqCst) {
        world.count("changes on the host");
        // Others do the same to the same files: any of it can fail.
        let _done = match rng.below(5) {
            0 => std::fs::write(name(rng), b"by the host"),
            1 => std::fs::rename(name(rng), name(rng)),
            2 => std::fs::remove_file(name(rng)),
            3 => std::fs::create_dir(name(rng)).and_then(|()| std::fs::remove_dir(name(rng))),
            _ => std::fs::write(world.folder.join(shared(rng)), b"by the host"),
        };
        std::thread::sleep(Duration::from_micros(4 * pause.load(Ordering::Relaxed)));
    }
}

fn shared(rng: &mut Rng) -> String {
    format!("shared-{}", rng.below(SHARED_NAMES))
}

fn profile(number: u64, rng: &mut Rng) -> Options {
    let dialect = rng.pick(&[&Dialect::ALL[..], &[Dialect::SMB_3_1_1; 2]].concat());
    let mut options = Options::dialect(dialect).signing(Signing::Required);
    if dialect >= Dialect::SMB_3_0 && rng.once_in(2) {
        options = options.encryption(Encryption::Always);
    }
    // A machine keeps its name over reconnects, but not over dialects ([MS-SMB2] 3.3.5.5.3).
    let at = Dialect::ALL.iter().position(|known| *known == dialect);
    let machine = number as u8 * 8 + at.unwrap_or(0) as u8 + 1;
    options.timeout = ANSWER_MAX;
    options.guid(Guid([machine; 16]))
}

/// A client with a session and what it holds.
struct Guest<'a> {
    world: &'a World,
    number: u64,
    rng: &'a mut Rng,
    session: Session,
    tree: Tree,
    login: Login,
    files: Vec<File>,
    waiting: Vec<MessageId>,
}

fn life(
    world: &World,
    number: u64,
    rng: &mut Rng,
    stop: &AtomicBool,
    pause: &AtomicU64,
) -> Result<(), ClientError> {
    if rng.once_in(25) {
        return strange(world, rng);
    }
    let options = profile(number, rng);
    let sealed = options.dialects[0] >= Dialect::SMB_3_0 && rng.once_in(6);
    let login = if rng.once_in(4) {
        Login::user(OTHER_USER, OTHER_PASSWORD, "")
    } else {
        Login::user(USER, PASSWORD, "")
    };
    let session = Client::connect(world.addr, options)?.login_with(&login)?;
    let tree = session.tree(if sealed { SEALED } else { DATA })?;
    let mut guest = Guest {
        world,
        number,
        rng,
        session,
        tree,
        login,
        files: Vec::new(),
        waiting: Vec::new(),
    };
    let deeds = 5 + guest.rng.below(60);
    for _ in 0..deeds {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let half = pause.load(Ordering::Relaxed) / 2;
        let wait = half + guest.rng.below(2 * half);
        guest.look(Duration::from_micros(wait.max(1)))?;
        match guest.deed() {
            Ok(()) => {}
            Err(ClientError::Status(status)) => world.count(format!("refused {status}")),
            Err(other) => return Err(other),
        }
    }
    guest.leave()
}

/// Somebody who is no client: garbage, a wrong password, a connection that says nothing.
fn strange(world: &World, rng: &mut Rng) -> Result<(), ClientError> {
    world.count("strangers");
    match rng.below(3) {
        0 => drop(std::net::TcpStream::connect(world.addr)?),
        1 => {
            let mut connection = Client::open(world.addr, Options::default())?;
            connection
                .send_bytes(&[0, 0, 0, 12, 0xfe, b'S', b'M', b'B', 1, 2, 3, 4, 5, 6, 7, 8])?;
        }
        _ => {
            let client = Client::connect(world.addr, Options::default())?;
            let refused = client.login("stranger", "wrong", "");
            assert!(refused.is_err(), "let in");
        }
    }
    Ok(())
}

impl Guest<'_> {
    /// Answers breaks for a while.
    fn look(&mut self, span: Duration) -> Result<(), ClientError> {
        let end = Instant::now() + span;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(broken) = self.tree.client().next_break(left)? else {
                return Ok(());
            };
            self.acknowledge(&broken)?;
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    fn acknowledge(&mut self, broken: &Break) -> Result<(), ClientError> {
        self.world.count("breaks");
        let done = match broken {
            Break::Oplock { file_id, level } => {
                let mut files = self.files.iter();
                match files.find(|file| file.id() == *file_id) {
                    Some(file) if *level != OplockLevel::NONE || self.rng.once_in(2) => {
                        file.acknowledge_oplock(*level)
                    }
                    // Closing answers as well.
                    Some(file) => file.close(),
                    None => Ok(()),
                }
            }
            Break::Lease {
                key,
                new,
                ack_required: true,
                ..
            } => self.tree.acknowledge_lease(*key, *new),
            Break::Lease { .. } => Ok(()),
        };
        match done {
            // The handle can be closed by now, or wait for nothing (level II).
            Err(ClientError::Status(_)) | Ok(()) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// The answer to a request that others may hold up: breaks are answered meanwhile, or two
    /// clients would wait for each other.
    fn call(&mut self, request: Request) -> Result<Reply, ClientError> {
        let client = self.tree.client().clone();
        let id = self.tree.send(request)?;
        let end = Instant::now() + ANSWER_MAX;
        while !client.connection().answered(id, LOOK)? {
            if Instant::now() > end {
                return Err(ClientError::TimedOut);
            }
            self.look(Duration::ZERO)?;
        }
        client.wait(id)?.ok()
    }

    fn create(&mut self, args: &CreateArgs) -> Result<File, ClientError> {
        let reply = self.call(args.request())?;
        self.tree.file(&reply)
    }

    fn keep(&mut self, file: File) -> Result<(), ClientError> {
        self.files.push(file);
        if self.files.len() > KEPT_MAX {
            let at = self.rng.below(self.files.len() as u64) as usize;
            let file = self.files.swap_remove(at);
            self.call(file.close_request(smb_wire::msg::CloseFlags::empty()))?;
        }
        Ok(())
    }

    fn deed(&mut self) -> Result<(), ClientError> {
        type Deed<'a> = fn(&mut Guest<'a>) -> Result<(), ClientError>;
        let deeds: [(&str, Deed<'_>); 14] = [
            ("own file", Self::own_file),
            ("open shared", Self::open_shared),
            ("open shared", Self::open_shared),
            ("use kept", Self::use_kept),
            ("use kept", Self::use_kept),
            ("lock", Self::lock),
            ("lock", Self::lock),
            ("watch", Self::watch),
            ("list", Self::list),
            ("rename and delete", Self::rename_and_delete),
            ("directory lease", Self::directory_lease),
            ("second channel", Self::second_channel),
            ("durable", Self::durable),
            ("log in again", Self::log_in_again),
        ];
        let (what, deed) = self.rng.pick(&deeds);
        self.world.count(format!("deed: {what}"));
        deed(self)
    }

    /// Writes, reads back and compares.
    fn own_file(&mut self) -> Result<(), ClientError> {
        let name = format!("own-{}-{}", self.number, self.rng.below(4));
        let file = self.create(&CreateArgs::open_if(&name))?;
        let data = vec![self.rng.below(256) as u8; 1 + self.rng.below(100_000) as usize];
        let flags = if self.rng.once_in(50)
            && self.session.client().negotiated().dialect > Dialect::SMB_2_0_2
        {
            WriteFlags::WRITE_THROUGH
        } else {
            WriteFlags::empty()
        };
        let length = data.len().min(60_000);
        let data = &data[..length];
        self.call(file.write_request(0, data, flags))?;
        let read = file.read(0, length as u32)?;
        if read != data {
            return Err(ClientError::Protocol("other bytes than were written"));
        }
        if self.rng.once_in(30) {
            self.call(file.flush_request(false))?;
        }
        file.query(FileInformationClass::ALL)?;
        self.keep(file)
    }

    fn open_shared(&mut self) -> Result<(), ClientError> {
        let mut args = CreateArgs::open_if(&shared(self.rng));
        let dialect = self.session.client().negotiated().dialect;
        args = match self.rng.below(4) {
            0 => args.oplock(self.rng.pick(&[
                OplockLevel::II,
                OplockLevel::EXCLUSIVE,
                OplockLevel::BATCH,
            ])),
            1 if dialect >= Dialect::SMB_2_1 => args.lease(self.key(), LeaseState::RWH),
            2 if dialect >= Dialect::SMB_3_0 => args.lease_v2(self.key(), LeaseState::RWH, 1),
            _ => args,
        };
        if self.rng.once_in(8) {
            args = args.share(ShareAccess::READ);
        }
        let file = self.create(&args)?;
        self.keep(file)
    }

    /// A lease key of this client; some belong to one name, some to none yet.
    fn key(&mut self) -> LeaseKey {
        LeaseKey([1 + self.rng.below(200) as u8; 16])
    }

    fn kept(&mut self) -> Option<File> {
        let at = self.rng.below(self.files.len() as u64) as usize;
        self.files.get(at).cloned()
    }

    fn use_kept(&mut self) -> Result<(), ClientError> {
        let Some(file) = self.kept() else {
            return Ok(());
        };
        match self.rng.below(4) {
            0 => self
                .call(file.write_request(0, b"shared bytes", WriteFlags::empty()))
                .map(drop),
            1 => self.call(file.read_request(0, 4_096, 0)).map(drop),
            2 => file.query(FileInformationClass::STANDARD).map(drop),
            _ => {
                self.files.retain(|kept| kept.id() != file.id());
                file.close()
            }
        }
    }

    fn lock(&mut self) -> Result<(), ClientError> {
        let Some(file) = self.kept() else {
            return Ok(());
        };
        let blocking = self.rng.once_in(4);
        let wait = if blocking {
            LockFlags::empty()
        } else {
            LockFlags::FAIL_IMMEDIATELY
        };
        let element = LockElement {
            offset: self.rng.below(8) * 10,
            length: 10,
            flags: self.rng.pick(&[LockFlags::EXCLUSIVE, LockFlags::SHARED]) | wait,
        };
        let id = self.tree.send(file.lock_request(0, &[element]))?;
        let client = self.tree.client().clone();
        let mut connection = client.connection();
        if !connection.answered(id, Duration::from_millis(100))? {
            if self.rng.once_in(3) && self.waiting.len() < KEPT_MAX {
                // It goes on waiting, perhaps for ever.
                self.waiting.push(id);
                return Ok(());
            }
            connection.cancel(id, self.session.id())?;
            self.world.count("locks cancelled");
        }
        connection.wait(id)?.ok()?;
        drop(connection);
        if self.rng.once_in(2) {
            file.unlock(element.offset, element.length)?;
        }
        Ok(())
    }

    fn watch(&mut self) -> Result<(), ClientError> {
        // News of what was asked before.
        let client = self.tree.client().clone();
        let mut still = Vec::new();
        for id in std::mem::take(&mut self.waiting) {
            if client.connection().answered(id, Duration::from_millis(1))? {
                let status = client.wait(id)?.status();
                self.world.count(format!("waited for {status}"));
            } else if self.rng.once_in(4) {
                client.connection().cancel(id, self.session.id())?;
                client.wait(id)?;
            } else {
                still.push(id);
            }
        }
        self.waiting = still;
        if self.waiting.len() >= KEPT_MAX {
            return Ok(());
        }
        let directory = self.create(&CreateArgs::directory(""))?;
        let request = Request::new(&ChangeNotifyRequest {
            flags: self
                .rng
                .pick(&[ChangeNotifyFlags::WATCH_TREE, ChangeNotifyFlags::empty()]),
            output_buffer_length: self.rng.pick(&[0, 64, 65_536]),
            file_id: directory.id(),
            completion_filter: NotifyFilter(0xfff),
        });
        let id = self.tree.send(request)?;
        self.waiting.push(id);
        self.keep(directory)
    }

    fn list(&mut self) -> Result<(), ClientError> {
        let directory = self.create(&CreateArgs::directory(""))?;
        directory.list("*")?;
        directory.close()
    }

    fn rename_and_delete(&mut self) -> Result<(), ClientError> {
        let (from, to) = (
            format!("from-{}", self.number),
            format!("to-{}", self.number),
        );
        let file = self.create(&CreateArgs::open_if(&from))?;
        file.rename(&to, true)?;
        file.set_delete(true)?;
        file.close()
    }

    fn directory_lease(&mut self) -> Result<(), ClientError> {
        if self.session.client().negotiated().dialect < Dialect::SMB_3_0 {
            return Ok(());
        }
        let key = self.key();
        let directory = CreateArgs::directory("").lease_v2(key, LeaseState(3), 1);
        let directory = self.create(&directory)?;
        self.keep(directory)
    }

    /// A second connection of the session, which does something and goes.
    fn second_channel(&mut self) -> Result<(), ClientError> {
        let Some(secret) = self.session.secret() else {
            return Ok(());
        };
        if self.session.client().negotiated().dialect < Dialect::SMB_3_0 {
            return Ok(());
        }
        let second = Client::connect(self.world.addr, self.session.client().options().clone())?;
        let second = second.bind(secret, &self.login)?;
        let tree = second.tree_of(self.tree.id(), *self.tree.info());
        let name = format!("channel-{}", self.number);
        let file = self.create(&CreateArgs::open_if(&name))?;
        file.through(&tree)
            .write(0, b"over the second", WriteFlags::empty())?;
        let read = file.read(0, 15)?;
        if read != b"over the second" {
            return Err(ClientError::Protocol("the channels disagree"));
        }
        self.keep(file)
        // Dropped: the connection goes, the session stays.
    }

    /// A durable handle, a lost connection, and perhaps a return.
    fn durable(&mut self) -> Result<(), ClientError> {
        let mut options = self.session.client().options().clone();
        if options.dialects[0] < Dialect::SMB_3_0 {
            return Ok(());
        }
        // Another machine: leases and dialects of this one are not touched.
        options.guid = Some(Guid([0x80 + self.number as u8; 16]));
        options.dialects = vec![Dialect::SMB_3_1_1];
        let create_guid = Guid(std::array::from_fn(|_| self.rng.below(256) as u8));
        let name = format!("durable-{}", self.number);
        let connect = || -> Result<Tree, ClientError> {
            let client = Client::connect(self.world.addr, options.clone())?;
            client.login_with(&self.login)?.tree(DATA)
        };
        let lost = connect()?;
        let mut data = BytesMut::new();
        let asked = DurableHandleRequestV2 {
            timeout_ms: DURABLE_MS,
            flags: DurableHandleFlags::empty(),
            create_guid,
        };
        asked.encode(&mut data);
        let args = CreateArgs::open_if(&name)
            .oplock(OplockLevel::BATCH)
            .context(name::DURABLE_HANDLE_REQUEST_V2, &data);
        let file = lost.create(&args)?;
        let granted = file
            .created()
            .context(name::DURABLE_HANDLE_REQUEST_V2)
            .is_some();
        self.world.count(if granted {
            "durable granted"
        } else {
            "durable not granted"
        });
        let id = file.id();
        crash(&lost);
        drop((file, lost));
        if !granted || self.rng.once_in(3) {
            return Ok(());
        }
        let tree = connect()?;
        let mut data = BytesMut::new();
        let back = DurableHandleReconnectV2 {
            file_id: id,
            create_guid,
            flags: DurableHandleFlags::empty(),
        };
        back.encode(&mut data);
        let args = CreateArgs::open(&name)
            .oplock(OplockLevel::BATCH)
            .context(name::DURABLE_HANDLE_RECONNECT_V2, &data);
        // The server may not have seen the end of the old connection yet.
        for _ in 0..20 {
            match tree.create(&args) {
                Ok(file) => {
                    self.world.count("durable back");
                    return file.close();
                }
                Err(ClientError::Status(_)) => std::thread::sleep(LOOK),
                Err(other) => return Err(other),
            }
        }
        self.world.count("durable not back");
        Ok(())
    }

    fn log_in_again(&mut self) -> Result<(), ClientError> {
        self.session.reauthenticate(&self.login)
    }

    fn leave(mut self) -> Result<(), ClientError> {
        match self.rng.below(5) {
            0 => {
                self.world.count("ends: everything closed");
                for file in std::mem::take(&mut self.files) {
                    match file.close() {
                        Ok(()) | Err(ClientError::Status(Status::FILE_CLOSED)) => {}
                        Err(other) => return Err(other),
                    }
                }
                self.session.logoff()
            }
            1 => {
                self.world.count("ends: logoff");
                self.session.logoff()
            }
            2 => {
                self.world.count("ends: tree disconnect");
                self.tree.disconnect()
            }
            3 => {
                self.world.count("ends: dropped");
                Ok(())
            }
            _ => {
                self.world.count("ends: crash with a request under way");
                if let Some(file) = self.kept() {
                    self.tree.send(file.read_request(0, 65_536, 0))?;
                }
                crash(&self.tree);
                Ok(())
            }
        }
    }
}

/// The connection ends in the middle of everything.
fn crash(tree: &Tree) {
    let client = tree.client().clone();
    let mut connection = client.connection();
    // It may be gone already.
    let _gone = connection.stream_mut().shutdown(std::net::Shutdown::Both);
}
