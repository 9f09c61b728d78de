//! The limit: the same bytes over the same loopback without a real protocol.
//!
//! A separate process, in its own control group, takes requests of 16 bytes (operation, length, offset) and answers
//! with the file's contents, or with the request once the payload is in the file: pread and send, recv and pwrite,
//! recv and send. Work on names is done with the fewest system calls possible (`names.rs`), in as many requests as
//! the clients of SMB need (`client.rs`). It takes its turn in every round like the servers, so its cost belongs to
//! the same minute of the same machine. It is the least that a server pays the kernel if its data pass through user
//! space. One that answers reads by sendfile can be below it: on loopback a part of the copy is charged to the receiver
//! then.

mod client;
mod names;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustix::event::epoll;
use serde::{Deserialize, Serialize};

pub use client::has_limit;
pub(crate) use client::run;

use crate::{pieces::FIELD, rig::Failure};
use names::Names;

/// The arguments of the program that serves, before the port and the file.
const ARGUMENTS: [&str; 2] = ["bench", "limit-server"];

/// How it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// By copies, and a sync waits for the disk.
    #[default]
    Copy,
    Sendfile,
    /// A sync is answered at once.
    Lax,
}

impl Way {
    /// The name on the command line and in plans.
    const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Sendfile => "sendfile",
            Self::Lax => "lax",
        }
    }
}

const HEAD: usize = 16;
/// Connections that have a thread each; more share one.
const THREADS_MAX: usize = 8;
/// Connections looked at in one turn.
const EVENTS_MAX: usize = 256;
/// Longest payload, bytes.
const PAYLOAD_MAX: usize = 1 << 20;

/// The requested operation.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Operation {
    Ping,
    /// Of the open file of the connection if there is one, else of the one that all have.
    Read,
    Write,
    /// fdatasync.
    Sync,
    /// The file of that number, which stays open.
    Create,
    Open,
    Close,
    /// State of the open file.
    Look,
    /// To the other name of that number.
    Rename,
    Remove,
    RemoveRenamed,
    /// The folder of listed files, with the state of each: answered with `len` bytes.
    List,
}

impl Operation {
    const ALL: [Self; 12] = [
        Self::Ping,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Create,
        Self::Open,
        Self::Close,
        Self::Look,
        Self::Rename,
        Self::Remove,
        Self::RemoveRenamed,
        Self::List,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as u8 == number)
    }

    fn answers_with_data(self) -> bool {
        matches!(self, Self::Read | Self::List)
    }

    /// Bytes of the answer to a request of that length.
    fn answer(self, len: u32) -> usize {
        match self.answers_with_data() {
            true => len as usize,
            false => HEAD,
        }
    }
}

/// The command of the serving process, which is `program`.
///
/// # Errors
/// A file that cannot be made.
pub fn command(program: &Path, port: u16, file: &Path, way: Way) -> Result<Command, Failure> {
    File::create(file)?.write_all(&vec![7; FIELD as usize])?;
    names::prepare(file)?;
    let mut command = Command::new(program);
    command.args(ARGUMENTS).arg(port.to_string()).arg(file);
    command.arg(way.name());
    Ok(command)
}

/// Serves for ever.
pub fn serve(port: u16, path: &PathBuf, way: Way) -> Result<(), Failure> {
    let names = Names::beside(path)?;
    let file = File::options().read(true).write(true).open(path)?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let crowd = Arc::new(Crowd {
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        lanes: Mutex::new(BTreeMap::new()),
    });
    let serving = Arc::clone(&crowd);
    thread::spawn(move || serving.serve());
    let threads = Arc::new(AtomicUsize::new(0));
    for (number, stream) in listener.incoming().enumerate() {
        let mut lane = Lane::new(stream?, file.try_clone()?, names.clone(), way)?;
        if threads.load(Ordering::Relaxed) >= THREADS_MAX {
            crowd.add(number as u64, lane)?;
            continue;
        }
        threads.fetch_add(1, Ordering::Relaxed);
        let threads = Arc::clone(&threads);
        thread::spawn(move || {
            // It ends with its connection, by an error of the read.
            while lane.answer().is_ok() {}
            threads.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// The connections that one thread serves together: a thread each is not the cheapest for many.
struct Crowd {
    epoll: OwnedFd,
    lanes: Mutex<BTreeMap<u64, Lane>>,
}

impl Crowd {
    fn lanes(&self) -> MutexGuard<'_, BTreeMap<u64, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: u64, lane: Lane) -> Result<(), Failure> {
        let mut lanes = self.lanes();
        let data = epoll::EventData::new_u64(number);
        let stream = lane.input.get_ref();
        epoll::add(&self.epoll, stream, data, epoll::EventFlags::IN)?;
        lanes.insert(number, lane);
        Ok(())
    }

    fn serve(&self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let mut lanes = self.lanes();
            for event in &events {
                let number = event.data.u64();
                let Some(lane) = lanes.get_mut(&number) else {
                    continue;
                };
                // A request comes in one piece, so reading the rest of one does not wait.
                let mut answered = lane.answer();
                while answered.is_ok() && !lane.input.buffer().is_empty() {
                    answered = lane.answer();
                }
                if answered.is_err() {
                    lanes.remove(&number);
                }
            }
        }
    }
}

struct Lane {
    input: BufReader<TcpStream>,
    file: File,
    names: Names,
    buffer: Vec<u8>,
    way: Way,
}

impl Lane {
    fn new(stream: TcpStream, file: File, names: Names, way: Way) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            input: BufReader::with_capacity(HEAD * 64, stream),
            file,
            names,
            buffer: Vec::new(),
            way,
        })
    }

    /// Takes one request and answers it.
    fn answer(&mut self) -> std::io::Result<()> {
        let mut head = [0; HEAD];
        self.input.read_exact(&mut head)?;
        let [kind, _, _, _, l0, l1, l2, l3, offset @ ..] = head;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let offset = u64::from_le_bytes(offset);
        let Some(operation) = Operation::of(kind).filter(|_| len <= PAYLOAD_MAX) else {
            return Err(std::io::ErrorKind::InvalidInput.into());
        };
        let file = self.names.open_file().unwrap_or(&self.file);
        self.buffer.resize(len, 0);
        match operation {
            Operation::Ping => {}
            Operation::Read if self.way == Way::Sendfile => {
                return send(self.input.get_ref(), file, offset, len);
            }
            Operation::Read => file.read_exact_at(&mut self.buffer, offset)?,
            Operation::Write => {
                self.input.read_exact(&mut self.buffer)?;
                file.write_all_at(&self.buffer, offset)?;
            }
            Operation::Sync if self.way == Way::Lax => {}
            Operation::Sync => file.sync_data()?,
            of_names => self.names.answer(of_names, offset)?,
        }
        let data: &[u8] = match operation.answers_with_data() {
            true => &self.buffer,
            false => &head,
        };
        self.input.get_ref().write_all(data)
    }
}

fn send(stream: &TcpStream, file: &File, mut offset: u64, len: usize) -> std::io::Result<()> {
    let mut left = len;
    while left > 0 {
        let sent = rustix::fs::sendfile(stream, file, Some(&mut offset), left)?;
        if sent == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        left = left.saturating_sub(sent);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Step, Worker, experiment::Workload};
    use client::Client;

    #[test]
    fn requests_are_answered_with_the_files_bytes() {
        for way in [Way::Copy, Way::Sendfile, Way::Lax] {
            answered(way);
        }
    }

    fn answered(way: Way) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("field");
        let mut options = File::options();
        let options = options.create_new(true).read(true).write(true);
        let file = options.open(&path).unwrap();
        file.set_len(FIELD).unwrap();
        names::prepare(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = file.try_clone().unwrap();
        let names = Names::beside(&path).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = serving.try_clone().unwrap();
                let mut lane = Lane::new(stream.unwrap(), serving, names.clone(), way).unwrap();
                thread::spawn(move || while lane.answer().is_ok() {});
            }
        });
        let workloads = client::tests::all();
        for workload in &workloads {
            let connect = || TcpStream::connect(address);
            let mut client = Client::prepare(workload, 3, &connect).unwrap();
            let mut kinds = Vec::new();
            let (mut read, mut written) = (0, 0);
            for _ in 0..5 {
                let mut last: Option<std::time::Instant> = None;
                let mut report = |sample: crate::Sample| {
                    kinds.push(sample.kind);
                    read += sample.read;
                    written += sample.written;
                    // The latency of an operation is not that of the whole turn.
                    assert!(last.is_none_or(|last| sample.begun > last), "{workload:?}");
                    last = Some(sample.begun);
                };
                client.turn(&mut report).unwrap();
            }
            let of = |kind: &str| kinds.iter().filter(|one| **one == kind).count() as u64;
            if let Workload::SmallFiles | Workload::FlushLadder { .. } = workload {
                assert_eq!((read, written), (of("read") * 4096, of("write") * 4096));
            }
            assert!(kinds.len() >= 5, "{workload:?}: {kinds:?}");
            // Every name that was made is gone, but for the file that is opened repeatedly.
            let left = std::fs::read_dir(folder.path().join(names::CHANGING)).unwrap();
            assert!(left.count() <= 1, "{workload:?}");
        }
        let mut written = [0; 4096];
        file.read_exact_at(&mut written, 0).unwrap();
        assert!(written.iter().all(|byte| *byte == 5 || *byte == 9));
        let step = Step {
            warm_up: std::time::Duration::from_millis(1),
            length: std::time::Duration::from_millis(50),
        };
        let access = crate::rig::server::Access::local("127.0.0.1", address.port());
        let measured = run(&workloads[0], 2, step, &access, &()).unwrap();
        assert!(measured.operations > 2 && measured.clients == 2);
    }
}
