//! The limit: the same bytes over the same loopback without a real protocol.
//!
//! A separate process, in its own control group, takes requests of 16 bytes (operation, length, offset) and answers
//! with the file's contents, or with the request once the payload is in the file: pread and send, recv and pwrite,
//! recv and send. Work on names is done with the fewest system calls possible (`names.rs`), in as many requests as
//! the clients of SMB need (`turns.rs`). It takes its turn in every round like the servers, so its cost belongs to
//! the same minute of the same machine. It is the least that a server pays the kernel if its data pass through user
//! space. A second such process answers reads by sendfile, which can be below it: on loopback a part of the copy is
//! charged to the receiver then.

mod names;
mod turns;

use std::{
    collections::{BTreeMap, VecDeque},
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
    time::Instant,
};

use clap::Args;
use rustix::event::epoll;

pub(crate) use turns::{Turn, turns};

use super::load::{Context, Done, FIELD_BYTES, Ready, micros, place};
use crate::Failure;
use names::Names;

/// Name of the chore that serves.
pub(crate) const CHORE: &str = "limit-server";

/// The options of that chore.
#[derive(Args)]
pub(crate) struct Options {
    port: u16,
    file: PathBuf,
    /// Reads are answered by sendfile.
    #[arg(long)]
    sendfile: bool,
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
pub(crate) enum Operation {
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

/// The work that a workload has its limit in.
#[derive(Clone, Copy)]
pub(crate) struct Same {
    pub(crate) operation: Operation,
    /// Bytes each.
    pub(crate) len: u32,
    /// Outstanding on each connection.
    pub(crate) depth: usize,
    pub(crate) connections: usize,
}

/// The command of the serving process.
pub(crate) fn command(port: u16, file: &Path, sendfile: bool) -> Result<Command, Failure> {
    File::create(file)?.write_all(&vec![7; FIELD_BYTES])?;
    names::prepare(file)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHORE).arg(port.to_string()).arg(file);
    command.args(sendfile.then_some("--sendfile"));
    Ok(command)
}

/// The serving process, for ever.
pub(crate) fn serve(options: &Options) -> Result<(), Failure> {
    let names = Names::beside(&options.file)?;
    let file = File::options().read(true).write(true).open(&options.file)?;
    let listener = TcpListener::bind(("127.0.0.1", options.port))?;
    let crowd = Arc::new(Crowd {
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        lanes: Mutex::new(BTreeMap::new()),
    });
    let serving = Arc::clone(&crowd);
    thread::spawn(move || serving.serve());
    let threads = Arc::new(AtomicUsize::new(0));
    for (number, stream) in listener.incoming().enumerate() {
        let mut lane = Lane::new(stream?, file.try_clone()?, names.clone(), options.sendfile)?;
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

/// One connection.
struct Lane {
    input: BufReader<TcpStream>,
    file: File,
    names: Names,
    buffer: Vec<u8>,
    sendfile: bool,
}

impl Lane {
    fn new(stream: TcpStream, file: File, names: Names, sendfile: bool) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            input: BufReader::with_capacity(HEAD * 64, stream),
            file,
            names,
            buffer: Vec::new(),
            sendfile,
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
            Operation::Read if self.sendfile => {
                return send(self.input.get_ref(), file, offset, len);
            }
            Operation::Read => file.read_exact_at(&mut self.buffer, offset)?,
            Operation::Write => {
                self.input.read_exact(&mut self.buffer)?;
                file.write_all_at(&self.buffer, offset)?;
            }
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

fn head(operation: Operation, len: u32, offset: u64) -> Vec<u8> {
    let mut head = vec![operation as u8, 0, 0, 0];
    head.extend(len.to_le_bytes());
    head.extend(offset.to_le_bytes());
    head
}

fn connect(context: &Context<'_>) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(context.access.address())?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Opens the connections; the work is to be done `context.count(...)` times.
pub(crate) fn ready(same: Same, count: u64, context: &Context<'_>) -> Result<Ready, Failure> {
    let mut streams = Vec::new();
    for _ in 0..same.connections {
        streams.push(connect(context)?);
    }
    Ok(Ready::new(move || {
        let latencies = work(same, count, &mut streams)?;
        Ok(Done::new(count as f64).latencies(latencies).keep(streams))
    }))
}

fn work(same: Same, count: u64, streams: &mut [TcpStream]) -> Result<Vec<u32>, Failure> {
    let len = same.len as usize;
    let more = match same.operation {
        Operation::Write => vec![9; len],
        _ => Vec::new(),
    };
    let mut back = vec![0; same.operation.answer(same.len)];
    let mut latencies = Vec::new();
    let lanes = same.depth * streams.len();
    let mut under_way = VecDeque::new();
    for number in 0..count {
        if under_way.len() >= lanes
            && let Some((index, sent)) = under_way.pop_front()
        {
            receive(streams, index, &mut back)?;
            latencies.push(micros(sent));
        }
        let index = usize::try_from(number)? % streams.len();
        let mut request = head(same.operation, same.len, place(number, same.len));
        request.extend_from_slice(&more);
        let stream = streams.get_mut(index).ok_or("no such stream")?;
        under_way.push_back((index, Instant::now()));
        stream.write_all(&request)?;
    }
    for (index, sent) in under_way {
        receive(streams, index, &mut back)?;
        latencies.push(micros(sent));
    }
    Ok(latencies)
}

fn receive(streams: &mut [TcpStream], index: usize, back: &mut [u8]) -> Result<(), Failure> {
    let stream = streams.get_mut(index).ok_or("no such stream")?;
    Ok(stream.read_exact(back)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_with_the_files_bytes() {
        for sendfile in [false, true] {
            answered(sendfile);
        }
    }

    fn answered(sendfile: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("field");
        let mut options = File::options();
        let options = options.create_new(true).read(true).write(true);
        let file = options.open(&path).unwrap();
        file.set_len(FIELD_BYTES as u64).unwrap();
        names::prepare(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = file.try_clone().unwrap();
        let server = thread::spawn(move || {
            let stream = listener.accept().unwrap().0;
            let names = Names::beside(&path).unwrap();
            let mut lane = Lane::new(stream, serving, names, sendfile).unwrap();
            while lane.answer().is_ok() {}
        });
        let mut streams = vec![TcpStream::connect(address).unwrap()];
        for operation in [
            Operation::Ping,
            Operation::Write,
            Operation::Sync,
            Operation::Read,
        ] {
            let same = Same {
                operation,
                len: match operation {
                    Operation::Read | Operation::Write => 4096,
                    _ => 0,
                },
                depth: 4,
                connections: 1,
            };
            let latencies = work(same, 10, &mut streams).unwrap();
            assert_eq!(latencies.len(), 10);
        }
        let mut written = [0; 4096];
        file.read_exact_at(&mut written, 0).unwrap();
        assert_eq!(written, [9; 4096]);
        turns::tests::all_leave_nothing(&mut streams[0], folder.path());
        drop(streams);
        server.join().unwrap();
    }
}
