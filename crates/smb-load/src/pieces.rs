//! READs and WRITEs at random places of files that fit into memory, several outstanding on each of many connections.

use std::{collections::VecDeque, time::Instant};

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    ids::MessageId,
    msg::{WriteFlags, WriteResponse},
};

use crate::{
    Home, LoadError, Sample, Worker,
    error::{check_length, check_written, refused},
    workload::Workload,
};

/// Bytes of the file of one connection.
pub(crate) const FIELD: u64 = 16 << 20;
/// Bytes of each file of many connections, and how many files there are at most.
const SMALL_FIELD: u64 = 1 << 20;
const FILES_MAX: usize = 64;
/// Bytes before the data in the answer to a READ: [MS-SMB2] 2.2.1 and 2.2.20.
const READ_HEAD: usize = 64 + 16;

/// Where the piece of that number begins: all over a file of `size` bytes.
pub(crate) fn place(number: u64, bytes: u32, size: u64) -> u64 {
    let bytes = u64::from(bytes.max(1));
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (size / bytes).max(1) * bytes
}

/// The kind, the size and the number of outstanding requests.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The kind under which they are reported.
    pub kind: &'static str,
    /// They are WRITEs, not READs.
    pub writes: bool,
    pub bytes: u32,
    /// Outstanding on each connection.
    pub depth: usize,
}

impl Shape {
    /// The requests of a workload of READs or WRITEs, and on how many connections each client sends them.
    pub(crate) fn of(workload: &Workload) -> Option<(Self, usize)> {
        let (kind, bytes, depth, connections) = match *workload {
            Workload::Read {
                bytes,
                depth,
                connections,
            } => ("read", bytes, depth, connections),
            Workload::Write { bytes, depth } => ("write", bytes, depth, 1),
            _ => return None,
        };
        let shape = Self {
            kind,
            writes: kind == "write",
            bytes,
            depth,
        };
        Some((shape, connections))
    }

    /// Bytes that one of them reads and writes.
    pub(crate) fn moved(self) -> (u64, u64) {
        match self.writes {
            true => (0, u64::from(self.bytes)),
            false => (u64::from(self.bytes), 0),
        }
    }
}

/// One client with one or many connections, whose requests it sends in turn.
pub struct Pieces {
    shape: Shape,
    lanes: Vec<(Tree, File)>,
    /// Bytes of each file.
    size: u64,
    data: Vec<u8>,
    number: u64,
    under_way: VecDeque<(usize, MessageId, Instant)>,
}

impl Pieces {
    /// Client `number`; fills the files.
    pub fn prepare(number: usize, homes: Vec<Home>, shape: Shape) -> Result<Self, LoadError> {
        let size = match homes.len() {
            0 | 1 => FIELD,
            _ => SMALL_FIELD,
        };
        let mut lanes = Vec::with_capacity(homes.len());
        for (lane, home) in homes.into_iter().enumerate() {
            let name = format!("pieces-{size}-{:02}", (number + lane) % FILES_MAX);
            let file = filled(&home.tree, &home.path(&name), size).map_err(refused("prepare"))?;
            lanes.push((home.tree, file));
        }
        Ok(Self {
            data: vec![
                9;
                if shape.writes {
                    shape.bytes as usize
                } else {
                    0
                }
            ],
            shape,
            lanes,
            size,
            number: 0,
            under_way: VecDeque::new(),
        })
    }

    fn send(&mut self) -> Result<(), LoadError> {
        let Shape { bytes, kind, .. } = self.shape;
        let lane = self.number as usize % self.lanes.len().max(1);
        let (tree, file) = self.lanes.get(lane).ok_or(LoadError::NotOpen)?;
        let at = place(self.number, bytes, self.size);
        self.number += 1;
        let request = match self.shape.writes {
            true => file.write_request(at, &self.data, WriteFlags::empty()),
            false => file.read_request(at, bytes, 0),
        };
        let begun = Instant::now();
        let id = tree.send(request).map_err(refused(kind))?;
        self.under_way.push_back((lane, id, begun));
        Ok(())
    }
}

/// An open file full of bytes that are stable; written only if it is not there at that size.
fn filled(tree: &Tree, name: &str, size: u64) -> Result<File, smb_client::ClientError> {
    let file = tree.create(&CreateArgs::open_if(name))?;
    if file.read(size - 1, 1).is_err() {
        file.write_all(0, &vec![7; size as usize])?;
        file.flush(false)?;
    }
    Ok(file)
}

impl Worker for Pieces {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let Shape { bytes, kind, .. } = self.shape;
        while self.under_way.len() < self.shape.depth * self.lanes.len() {
            self.send()?;
        }
        let Some((lane, id, begun)) = self.under_way.pop_front() else {
            return Err(LoadError::NotOpen);
        };
        let (tree, _) = self.lanes.get(lane).ok_or(LoadError::NotOpen)?;
        let reply = tree.client().wait(id).and_then(smb_client::Reply::ok);
        let reply = reply.map_err(refused(kind))?;
        if self.shape.writes {
            let written = WriteResponse::read(&reply.message).map_err(ClientError::from);
            written
                .and_then(|response| check_written(response.count, bytes as usize))
                .map_err(refused(kind))?;
        } else {
            let got = reply.message.len().saturating_sub(READ_HEAD);
            check_length(got.min(bytes as usize), bytes as usize)?;
        }
        report(Sample::new(kind, begun, self.shape.moved()));
        Ok(())
    }
}

/// A client that works and is not counted.
pub(crate) struct Uncounted<W>(pub(crate) W);

impl<W: Worker> Worker for Uncounted<W> {
    fn turn(&mut self, _: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        self.0.turn(&mut |_| {})
    }
}

/// Writes 64 MiB in pieces and flushes, over and over: the disturbance of another client.
pub(crate) struct Flood {
    file: File,
    data: Vec<u8>,
    piece: u64,
}

impl Flood {
    const PIECES: u64 = 64;

    pub(crate) fn prepare(home: &Home) -> Result<Self, LoadError> {
        let file = home.tree.create(&CreateArgs::open_if(&home.path("flood")));
        Ok(Self {
            file: file.map_err(refused("prepare"))?,
            data: vec![1; 1 << 20],
            piece: 0,
        })
    }
}

impl Worker for Flood {
    fn turn(&mut self, _: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let offset = self.piece % Self::PIECES * self.data.len() as u64;
        self.piece += 1;
        let done = self.file.write_all(offset, &self.data);
        done.map_err(refused("write"))?;
        if self.piece.is_multiple_of(Self::PIECES) {
            self.file.flush(false).map_err(refused("flush"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_only_disturbs_reports_nothing() {
        struct Loud;
        impl Worker for Loud {
            fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
                report(Sample::new("stream", Instant::now(), (1, 0)));
                Err(LoadError::NotOpen)
            }
        }
        let turned = Uncounted(Loud).turn(&mut |_| panic!("it is not counted"));
        // Its error is one of the step all the same.
        assert!(turned.is_err());
    }

    #[test]
    fn pieces_lie_within_the_file() {
        for bytes in [4096, 65_536, 1 << 20] {
            for size in [SMALL_FIELD, FIELD] {
                let places: Vec<u64> = (0..100).map(|n| place(n, bytes, size)).collect();
                let last = size - u64::from(bytes);
                let fits = |at: &u64| *at <= last && at.is_multiple_of(u64::from(bytes));
                assert!(places.iter().all(fits));
                assert_eq!(places.iter().any(|at| *at > 0), last > 0);
            }
        }
    }
}
