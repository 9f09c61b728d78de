//! The clients of the limit: for each operation of a workload as many requests as SMB's clients send for it, each with
//! as little behind it as there can be.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{
    HEAD,
    Operation::{
        self, Close, Create, List, Look, Open, Ping, Read, Remove, RemoveRenamed, Rename, Sync,
        Write,
    },
};
use crate::{
    LoadError, Measured, Sample, Step, Watch, Worker,
    experiment::Workload,
    pieces::{FIELD, Shape, place},
    rig::{Failure, server::Access},
    step,
};

/// Bytes of a file, and of an answer with names and states of a hundred.
const PIECE: u32 = 4096;
const LISTING: u32 = 12 * 1024;
/// The longest wait for an answer, as that of the clients of SMB.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Blocks that are written in turn.
const BLOCKS: u64 = 64;

/// Requests that are sent one after the other, and the operations, each of which is so many of them.
struct Turn {
    requests: &'static [Operation],
    kinds: &'static [(&'static str, usize)],
}

/// The requests of a workload.
enum Work {
    /// Requests that do not wait for each other, on so many connections.
    Pieces(Shape, usize),
    Turn(Turn),
}

impl Work {
    fn of(workload: &Workload) -> Option<Self> {
        let turn = |requests, kinds| Some(Self::Turn(Turn { requests, kinds }));
        if let Some((shape, connections)) = Shape::of(workload) {
            return Some(Self::Pieces(shape, connections));
        }
        match workload {
            // A request of SMB that needs no system call is a `Ping`.
            Workload::Echo => turn(&[Ping], &[("echo", 1)]),
            Workload::FlushLadder {
                one_file: false,
                bytes: 4096,
            } => turn(&[Write, Sync], &[("write", 1), ("flush", 1)]),
            // The client opens a file that stays, which is as dear as any other.
            Workload::OpenClose { depth: 1 } => turn(&[Open, Close], &[("open-close", 2)]),
            Workload::CreateRemove => turn(&[Create, Close, Ping, Remove], &[("create-remove", 4)]),
            Workload::Metadata => turn(
                &[
                    Create,
                    Close,
                    Open,
                    Look,
                    Close,
                    Ping,
                    Rename,
                    Ping,
                    Ping,
                    List,
                    Ping,
                    Ping,
                    Ping,
                    RemoveRenamed,
                ],
                &[
                    ("create", 2),
                    ("query", 3),
                    ("rename", 3),
                    ("list", 4),
                    ("delete", 2),
                ],
            ),
            Workload::SmallFiles => turn(
                &[Create, Write, Close, Open, Read, Close, Ping, Remove],
                &[
                    ("create", 1),
                    ("write", 1),
                    ("close", 1),
                    ("create", 1),
                    ("read", 1),
                    ("close", 1),
                    ("delete", 2),
                ],
            ),
            _ => None,
        }
    }
}

/// Whether a process without a protocol can be given the like of it.
pub fn has_limit(workload: &Workload) -> bool {
    Work::of(workload).is_some()
}

/// Opens a connection.
type Connect<'a> = &'a dyn Fn() -> std::io::Result<TcpStream>;

pub(crate) fn run(
    workload: &Workload,
    clients: usize,
    step: Step,
    access: &Access,
    watch: &dyn Watch,
) -> Result<Measured, Failure> {
    let connect = || {
        let stream = TcpStream::connect(access.address())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(stream)
    };
    let client = |number| Client::prepare(workload, number, &connect);
    let workers = (0..clients).map(client).collect::<Result<Vec<_>, _>>()?;
    Ok(step::run(workers, step, watch)?.0)
}

pub(super) struct Client {
    work: Work,
    streams: Vec<TcpStream>,
    under_way: VecDeque<(usize, Instant)>,
    /// Of the next request; those of different clients differ.
    number: u64,
}

impl Client {
    pub(super) fn prepare(
        workload: &Workload,
        number: usize,
        connect: Connect<'_>,
    ) -> Result<Self, Failure> {
        let work = Work::of(workload).ok_or("there is no limit of this workload")?;
        let connections = match &work {
            Work::Pieces(_, connections) => *connections,
            Work::Turn(_) => 1,
        };
        let streams = (0..connections).map(|_| connect());
        let mut streams = streams.collect::<Result<Vec<_>, _>>()?;
        // The file that is opened repeatedly; it stays for the next round.
        if matches!(workload, Workload::OpenClose { .. })
            && let Some(stream) = streams.first_mut()
            && ask(stream, Open, u64::MAX, 0).is_err()
        {
            *stream = connect()?;
            ask(stream, Create, u64::MAX, 0)?;
        }
        Ok(Self {
            work,
            streams,
            under_way: VecDeque::new(),
            number: (number as u64) << 32,
        })
    }

    fn stream(&mut self, number: usize) -> std::io::Result<&mut TcpStream> {
        let found = self.streams.get_mut(number);
        found.ok_or_else(|| std::io::ErrorKind::NotConnected.into())
    }

    /// Sends what is missing, and waits for the oldest answer.
    fn piece(
        &mut self,
        operation: Operation,
        bytes: u32,
        depth: usize,
    ) -> std::io::Result<Instant> {
        while self.under_way.len() < depth * self.streams.len() {
            let lane = self.number as usize % self.streams.len().max(1);
            let at = place(self.number, bytes, FIELD);
            self.number += 1;
            self.under_way.push_back((lane, Instant::now()));
            let request = request(operation, bytes, at);
            self.stream(lane)?.write_all(&request)?;
        }
        let (lane, begun) = self.under_way.pop_front().unwrap_or((0, Instant::now()));
        let mut back = vec![0; operation.answer(bytes)];
        self.stream(lane)?.read_exact(&mut back)?;
        Ok(begun)
    }

    /// Sends some requests of a turn, `whole`; the bytes that they read and wrote.
    fn requests(
        &mut self,
        requests: &[Operation],
        whole: &[Operation],
    ) -> std::io::Result<(u64, u64)> {
        let number = self.number;
        let stream = self.stream(0)?;
        let block = match whole {
            // The piece of a small file is its first.
            [Create, ..] => 0,
            _ => number % BLOCKS * u64::from(PIECE),
        };
        let (mut read, mut written) = (0, 0);
        for operation in requests {
            let number = match operation {
                Read | Write | Sync => block,
                // Only what creates files has names of its own.
                Open if whole.len() == 2 => u64::MAX,
                _ => number,
            };
            let bytes = match operation {
                Read | Write => PIECE,
                List => LISTING,
                _ => 0,
            };
            ask(stream, *operation, number, bytes)?;
            match operation {
                Read => read += u64::from(bytes),
                Write => written += u64::from(bytes),
                _ => {}
            }
        }
        Ok((read, written))
    }
}

impl Worker for Client {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        match self.work {
            Work::Pieces(shape, _) => {
                let operation = if shape.writes { Write } else { Read };
                let begun = self.piece(operation, shape.bytes, shape.depth)?;
                report(Sample::new(shape.kind, begun, shape.moved()));
            }
            Work::Turn(Turn { requests, kinds }) => {
                self.number += 1;
                let mut left = requests;
                for (kind, count) in kinds {
                    let (these, later) = left.split_at((*count).min(left.len()));
                    left = later;
                    let begun = Instant::now();
                    let moved = self.requests(these, requests)?;
                    report(Sample::new(kind, begun, moved));
                }
            }
        }
        Ok(())
    }
}

fn request(operation: Operation, bytes: u32, offset: u64) -> Vec<u8> {
    let mut request = vec![operation as u8, 0, 0, 0];
    request.extend(bytes.to_le_bytes());
    request.extend(offset.to_le_bytes());
    if operation == Write {
        request.resize(HEAD + bytes as usize, 5);
    }
    request
}

fn ask(
    stream: &mut TcpStream,
    operation: Operation,
    number: u64,
    bytes: u32,
) -> std::io::Result<()> {
    stream.write_all(&request(operation, bytes, number))?;
    let mut back = vec![0; operation.answer(bytes)];
    stream.read_exact(&mut back)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every workload that has a limit.
    pub(in super::super) fn all() -> Vec<Workload> {
        vec![
            Workload::Read {
                bytes: 4096,
                depth: 4,
                connections: 3,
            },
            Workload::Write {
                bytes: 65_536,
                depth: 2,
            },
            Workload::Echo,
            Workload::FlushLadder {
                one_file: false,
                bytes: 4096,
            },
            Workload::OpenClose { depth: 1 },
            Workload::CreateRemove,
            Workload::Metadata,
            Workload::SmallFiles,
        ]
    }

    #[test]
    fn every_request_of_a_turn_belongs_to_an_operation() {
        for workload in all() {
            if let Some(Work::Turn(Turn { requests, kinds })) = Work::of(&workload) {
                let all: usize = kinds.iter().map(|(_, count)| count).sum();
                assert_eq!(all, requests.len(), "{workload:?}");
            }
        }
    }

    #[test]
    fn only_what_needs_no_protocol_has_a_limit() {
        assert!(all().iter().all(has_limit));
        assert!(!has_limit(&Workload::Session));
        assert!(!has_limit(&Workload::OpenClose { depth: 8 }));
    }
}
