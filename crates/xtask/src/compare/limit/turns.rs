//! The limit of work that takes several requests, one after the other: as many as SMB's clients
//! send for it, each with as little behind it as there can be.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Instant,
};

use super::{
    HEAD,
    Operation::{
        self, Close, Create, List, Look, Open, Ping, Read, Remove, RemoveRenamed, Rename, Sync,
        Write,
    },
    connect, head,
};
use crate::{
    Failure,
    compare::load::{Context, Done, Ready, at_once, micros},
};

/// Bytes of a file, and of an answer with names and states of a hundred.
const PIECE: u32 = 4096;
const LISTING: u32 = 12 * 1024;
/// Blocks that are written in turn.
const BLOCKS: u64 = 1000;

/// The operations in turn. A request of SMB that needs no system call is a [`Ping`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    WriteSync,
    WritePing,
    OpenClose,
    CreateRemove,
    /// Create, stat, rename, list, delete: five units.
    Mix,
    SmallFiles,
}

impl Turn {
    fn requests(self) -> &'static [Operation] {
        match self {
            Self::WriteSync => &[Write, Sync],
            Self::WritePing => &[Write, Ping],
            // The client opens a file that stays, which is as dear as any other.
            Self::OpenClose => &[Open, Close],
            Self::CreateRemove => &[Create, Close, Ping, Remove],
            Self::Mix => &[
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
            Self::SmallFiles => &[Create, Write, Close, Open, Read, Close, Ping, Remove],
        }
    }

    fn units(self) -> u64 {
        if self == Self::Mix { 5 } else { 1 }
    }
}

/// Opens the connections; each does `count` turns.
pub(crate) fn turns(
    turn: Turn,
    clients: usize,
    count: u64,
    context: &Context<'_>,
) -> Result<Ready, Failure> {
    let connections = (0..clients).map(|_| connect(context));
    let mut streams: Vec<TcpStream> = connections.collect::<Result<_, Failure>>()?;
    // The file that is opened repeatedly; it stays for the next round.
    if turn == Turn::OpenClose && ask(&mut streams[0], Open, u64::MAX).is_err() {
        streams[0] = connect(context)?;
        ask(&mut streams[0], Create, u64::MAX)?;
    }
    Ok(Ready::new(move || {
        let latencies = at_once(&mut streams, |client, stream| {
            let numbers = client as u64 * count..(client as u64 + 1) * count;
            let done = numbers.map(|number| one(turn, stream, number));
            done.collect::<Result<Vec<u32>, Failure>>()
        })?;
        let units = count * turn.units() * streams.len() as u64;
        Ok(Done::new(units as f64).latencies(latencies).keep(streams))
    }))
}

fn one(turn: Turn, stream: &mut TcpStream, number: u64) -> Result<u32, Failure> {
    let begun = Instant::now();
    let number = match turn {
        Turn::WriteSync | Turn::WritePing => number % BLOCKS * u64::from(PIECE),
        Turn::OpenClose => u64::MAX,
        _ => number,
    };
    for operation in turn.requests() {
        // The piece of a small file is its first.
        let small = turn == Turn::SmallFiles && matches!(operation, Read | Write);
        ask(stream, *operation, if small { 0 } else { number })?;
    }
    Ok(micros(begun))
}

fn ask(stream: &mut TcpStream, operation: Operation, number: u64) -> Result<(), Failure> {
    let len = match operation {
        Read | Write => PIECE,
        List => LISTING,
        _ => 0,
    };
    let mut request = head(operation, len, number);
    if operation == Write {
        request.resize(HEAD + PIECE as usize, 5);
    }
    stream.write_all(&request)?;
    let mut back = vec![0; operation.answer(len)];
    Ok(stream.read_exact(&mut back)?)
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::compare::limit::names::CHANGING;

    /// Every turn but the one that needs a file that stays, twice.
    pub(in super::super) fn all_leave_nothing(stream: &mut TcpStream, folder: &Path) {
        let turns = [
            Turn::WriteSync,
            Turn::WritePing,
            Turn::CreateRemove,
            Turn::Mix,
            Turn::SmallFiles,
        ];
        for turn in turns {
            for number in [1, 2] {
                one(turn, stream, number).unwrap();
            }
            let names = std::fs::read_dir(folder.join(CHANGING)).unwrap();
            assert_eq!(names.count(), 0);
        }
        ask(stream, Create, u64::MAX).unwrap();
        one(Turn::OpenClose, stream, 1).unwrap();
    }
}
