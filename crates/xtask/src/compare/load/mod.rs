//! The work that each server is given: what there is of it, and how it is begun.
//!
//! Every workload is made ready (connections open, files filled, listings in place) before the
//! clock starts, and what it leaves behind is taken away after the last reading. Copies are
//! smbclient's and `--client` names any other program; the rest is `smb-client`'s.

mod beside;
mod catalogue;
mod copies;
mod crowd;
mod logins;
mod names;
mod pieces;
mod workers;

use std::{
    any::Any,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use smb_client::{Client, CreateArgs, File, Options, Tree};

use smb_load::rig::server::Access;

use super::{limit, report::Goal};
use crate::Failure;

pub(crate) use catalogue::workloads;

/// Bytes of the file that reads and writes of pieces go to.
pub(crate) const FIELD_BYTES: usize = 16 << 20;

/// Sizes and counts.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Of the file that smbclient copies.
    pub(crate) big_mib: u64,
    small_files: u64,
    /// Reads and writes of 4 KiB; what is larger or dearer is done a fixed part as often.
    operations: u64,
    sessions: u64,
    /// NetBench-like operations, of all clients together.
    mix: u64,
    mix_files: u32,
    connections: usize,
    connections_many: usize,
}

impl Sizes {
    pub(crate) const QUICK: Self = Self {
        big_mib: 48,
        small_files: 100,
        operations: 2000,
        sessions: 10,
        mix: 1500,
        mix_files: 8,
        connections: 100,
        connections_many: 300,
    };
    pub(crate) const FULL: Self = Self {
        big_mib: 256,
        small_files: 400,
        operations: 20_000,
        sessions: 60,
        mix: 12_000,
        mix_files: 24,
        connections: 1000,
        connections_many: 10_000,
    };

    /// The same with so many operations; what is counted otherwise keeps its proportion, files and
    /// connections stay.
    pub(crate) fn with_operations(self, operations: u64) -> Self {
        let part = |count: u64| (count * operations).div_ceil(self.operations.max(1));
        Self {
            small_files: part(self.small_files),
            operations,
            sessions: part(self.sessions),
            mix: part(self.mix),
            ..self
        }
    }
}

/// The unit of a cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Gib,
    Operation,
    /// No work: memory is what counts.
    Connection,
}

/// How a connection protects its messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    Plain,
    /// 3.0, AES-CMAC.
    Cmac,
    /// 3.1.1, AES-GMAC.
    Gmac,
    /// 3.1.1, AES-128-GCM.
    Gcm,
}

/// The kind of work.
#[derive(Clone)]
enum Task {
    Copy(copies::Copy, &'static str),
    /// Bytes each, how many outstanding.
    Read(u32, usize, Protection),
    Write(u32, usize, Protection),
    /// As many as the operations divided by the first, by so many clients, each with a file of its own.
    WriteFlush(u64, usize),
    /// By how many threads of one storage group.
    MailStore(usize),
    Echo,
    /// 4 KiB reads while another client does that.
    ReadBeside(beside::Noise),
    /// By how many clients.
    Names(names::Kind, usize),
    NewConnection,
    NewSession,
    /// Reads by how many connections, or all of them idle; `true` for the larger number.
    CrowdReads,
    CrowdIdle {
        many: bool,
    },
    Mix(usize),
    Outside(String),
}

/// One kind of work.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// The goals of Holdfast.
    pub(crate) goals: Vec<Goal>,
    /// For the servers that answer FLUSH at once.
    pub(crate) lax: bool,
    /// Not for Samba, whose processes would not fit.
    pub(crate) holdfast_only: bool,
    /// The same bytes without a protocol; work of several requests in turn has [`Workload::turns`].
    limit: Option<limit::Same>,
    task: Task,
}

/// Whom to work on and with what.
pub(crate) struct Context<'a> {
    pub(crate) access: &'a Access,
    /// The server's first process, if it is known.
    pub(crate) pid: Option<u32>,
    /// Folder of the files that clients send.
    pub(crate) input: &'a Path,
    pub(crate) sizes: Sizes,
}

/// The work that was done.
pub(crate) struct Done {
    /// GiB or operations.
    pub(crate) units: f64,
    /// Of each operation, microseconds.
    pub(crate) latencies: Vec<u32>,
    /// Dropped after the last reading.
    keep: Vec<Box<dyn Any>>,
}

impl Done {
    pub(crate) fn new(units: f64) -> Self {
        Self {
            units,
            latencies: Vec::new(),
            keep: Vec::new(),
        }
    }

    pub(crate) fn latencies(mut self, latencies: Vec<u32>) -> Self {
        self.latencies = latencies;
        self
    }

    pub(crate) fn keep(mut self, what: impl Any) -> Self {
        self.keep.push(Box::new(what));
        self
    }

    /// Whether connections are still open, so that their end is not the workload's.
    pub(crate) fn keeps(&self) -> bool {
        !self.keep.is_empty()
    }
}

/// The work of a [`Ready`].
type Run = Box<dyn FnOnce() -> Result<Done, Failure>>;

/// Everything is in place.
pub(crate) struct Ready {
    /// KiB (PSS) for each idle connection, where that was looked at.
    pub(crate) kib: Option<f64>,
    run: Run,
}

impl Ready {
    pub(crate) fn new(run: impl FnOnce() -> Result<Done, Failure> + 'static) -> Self {
        Self {
            kib: None,
            run: Box::new(run),
        }
    }

    /// Does it.
    pub(crate) fn run(self) -> Result<Done, Failure> {
        (self.run)()
    }
}

impl Workload {
    /// Brings a server into the state it begins with.
    pub(crate) fn ready(&self, context: &Context<'_>) -> Result<Ready, Failure> {
        let sizes = context.sizes;
        match &self.task {
            Task::Copy(what, protection) => copies::ready(*what, protection, context),
            Task::Read(..) | Task::Write(..) | Task::Echo => pieces::ready(&self.task, context),
            Task::WriteFlush(part, clients) => {
                workers::flushes(*clients, sizes.operations / part, context)
            }
            Task::MailStore(threads) => workers::mail_store(*threads, context),
            Task::ReadBeside(noise) => beside::ready(*noise, context),
            Task::Names(kind, clients) => names::ready(*kind, *clients, context),
            Task::NewConnection => logins::connections(sizes.sessions, context),
            Task::NewSession => logins::sessions(sizes.sessions * 4, context),
            Task::CrowdReads => crowd::reads(context),
            Task::CrowdIdle { many } => crowd::idle(*many, context),
            Task::Mix(clients) => workers::mix(*clients, context),
            Task::Outside(command) => copies::outside(command, context),
        }
    }

    /// The same for the process without a protocol.
    pub(crate) fn ready_limit(&self, context: &Context<'_>) -> Result<Option<Ready>, Failure> {
        if let Some((turn, clients, count)) = self.turns(context.sizes.operations) {
            return limit::turns(turn, clients, count, context).map(Some);
        }
        let Some(same) = self.limit else {
            return Ok(None);
        };
        let connections = same.connections.min(context.sizes.connections);
        let same = limit::Same {
            connections,
            ..same
        };
        limit::ready(same, count(context.sizes, same.len), context).map(Some)
    }

    /// The limit's operations in turn for this work, the number of clients, and the repetitions of each.
    fn turns(&self, operations: u64) -> Option<(limit::Turn, usize, u64)> {
        match self.task {
            Task::Names(kind, clients) => {
                Some((kind.limit(), clients, kind.turns(operations, clients)))
            }
            Task::WriteFlush(part, clients) => {
                let turn = match self.lax {
                    true => limit::Turn::WritePing,
                    false => limit::Turn::WriteSync,
                };
                Some((turn, clients, operations / part / clients as u64))
            }
            _ => None,
        }
    }

    /// Whether a process without a protocol is given it, by sendfile or not.
    pub(crate) fn has_limit(&self, sendfile: bool) -> bool {
        // Only reads differ by sendfile.
        let reads = |same: limit::Same| same.operation == limit::Operation::Read;
        match sendfile {
            true => self.limit.is_some_and(reads),
            false => self.limit.is_some() || self.turns(0).is_some(),
        }
    }
}

/// How many pieces of that length make a workload.
fn count(sizes: Sizes, len: u32) -> u64 {
    match len {
        0..=4096 => sizes.operations,
        4097..=65_536 => sizes.operations / 4,
        _ => sizes.operations / 40,
    }
}

/// Where the piece of that number begins: all over the file.
pub(crate) fn place(number: u64, len: u32) -> u64 {
    let len = u64::from(len.max(1));
    let places = FIELD_BYTES as u64 / len;
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % places * len
}

/// All clients at once, each with a thread and its number; what each operation took.
pub(crate) fn at_once<C: Send>(
    clients: &mut [C],
    work: impl Fn(usize, &mut C) -> Result<Vec<u32>, Failure> + Sync,
) -> Result<Vec<u32>, Failure> {
    let work = &work;
    let ended: Vec<Result<Vec<u32>, String>> = thread::scope(|scope| {
        let begin = |(number, client)| {
            scope.spawn(move || work(number, client).map_err(|error| error.to_string()))
        };
        let threads: Vec<_> = clients.iter_mut().enumerate().map(begin).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err("a client panicked".to_owned()))
        };
        threads.into_iter().map(join).collect()
    });
    let mut latencies = Vec::new();
    for client in ended {
        latencies.extend(client?);
    }
    Ok(latencies)
}

/// Microseconds since then.
pub(crate) fn micros(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX)
}

impl Protection {
    fn options(self) -> Options {
        use smb_client::{Encryption, Signing};
        use smb_crypto::{Cipher, SigningAlgorithm};
        use smb_wire::msg::Dialect;
        let options = match self {
            Self::Plain => Options::default(),
            Self::Cmac => Options::dialect(Dialect::SMB_3_0).signing(Signing::Required),
            Self::Gmac => Options::dialect(Dialect::SMB_3_1_1)
                .signing(Signing::Required)
                .signing_algorithm(SigningAlgorithm::AesGmac),
            Self::Gcm => Options::dialect(Dialect::SMB_3_1_1)
                .encryption(Encryption::Always)
                .cipher(Cipher::Aes128Gcm),
        };
        Options {
            timeout: Duration::from_secs(120),
            ..options
        }
    }

    /// That the server agreed: another algorithm would be another measurement.
    fn check(self, client: &Client) -> Result<(), Failure> {
        use smb_crypto::{Cipher, SigningAlgorithm};
        let told = client.negotiated();
        let agreed = match self {
            Self::Plain => !told.server_requires_signing,
            Self::Cmac => told.signing_algorithm == SigningAlgorithm::AesCmac,
            Self::Gmac => told.signing_algorithm == SigningAlgorithm::AesGmac,
            Self::Gcm => told.cipher == Some(Cipher::Aes128Gcm),
        };
        if !agreed {
            return Err("the server does not agree to this protection".into());
        }
        Ok(())
    }
}

/// A connection with a session and a tree.
fn connect(access: &Access, protection: Protection) -> Result<Tree, Failure> {
    let client = Client::connect(access.address(), protection.options())?;
    protection.check(&client)?;
    let session = client.login(&access.user, &access.password, "")?;
    Ok(session.tree(&access.share)?)
}

/// An open file full of bytes.
fn field(tree: &Tree) -> Result<File, Failure> {
    filled(tree, "field", FIELD_BYTES)
}

/// The same of any name and size; written only if it is not there at that size.
fn filled(tree: &Tree, name: &str, bytes: usize) -> Result<File, Failure> {
    let file = tree.create(&CreateArgs::open_if(name))?;
    let whole = bytes as u64;
    if file.read(whole - 1, 1).is_err() {
        file.write_all(0, &vec![7; bytes])?;
    }
    Ok(file)
}

/// A folder, made unless it is there.
fn folder(tree: &Tree, name: &str) -> Result<(), Failure> {
    use smb_wire::msg::{CreateDisposition, CreateOptions};
    let args =
        CreateArgs::new(name, CreateDisposition::OPEN_IF).options(CreateOptions::DIRECTORY_FILE);
    Ok(tree.create(&args)?.close()?)
}

/// The names in a folder.
fn names_in(tree: &Tree, folder: &str) -> Result<Vec<String>, Failure> {
    let entries = tree.list(folder, "*")?;
    let names = entries.into_iter().map(|entry| entry.file_name);
    Ok(names.filter(|name| name != "." && name != "..").collect())
}

/// Makes the files that clients send; returns their folder.
pub(crate) fn prepare(scratch: &Path, sizes: &Sizes) -> Result<PathBuf, Failure> {
    copies::prepare(scratch, sizes.big_mib, sizes.small_files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_within_the_field() {
        for len in [4096, 65_536, 1 << 20] {
            let places: Vec<u64> = (0..100).map(|number| place(number, len)).collect();
            let last = FIELD_BYTES as u64 - u64::from(len);
            assert!(
                places
                    .iter()
                    .all(|at| *at <= last && at % u64::from(len) == 0)
            );
            assert!(places.iter().any(|at| *at > 0));
        }
    }
}
