//! WRITE of 4 KiB, FLUSH, and again, by a number of opens at once.
//!
//! Each open has a region of its own in its file and one request on its way; opens share up to
//! [`CONNECTIONS_MAX`] connections, each with a thread that sends the next request when a reply
//! comes. Files are filled before, so that writes change no size. A region is 256 KiB and is written
//! over and over: a policy that syncs later finds many writes in one page, which flatters it.

use std::{
    collections::BTreeMap,
    sync::Barrier,
    time::{Duration, Instant},
};

use smb_client::{Client, CreateArgs, File, Options, Reply, Tree};
use smb_wire::{ids::MessageId, msg::WriteFlags};

use smb_load::rig::server::{PASSWORD, SHARE, USER};

use crate::Failure;

const CONNECTIONS_MAX: usize = 16;
const BLOCK: usize = 4096;
/// Blocks that each open writes in turn.
const REGION: u64 = 64;

/// The openers, and the files to which they write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    pub(crate) openers: usize,
    /// All open the same file; else each its own.
    pub(crate) one_file: bool,
}

impl Shape {
    pub(crate) const ALL: [Self; 5] = [
        Self::new(1, true),
        Self::new(16, true),
        Self::new(64, true),
        Self::new(16, false),
        Self::new(64, false),
    ];
    /// Shapes that differ by the number of sync threads.
    pub(crate) const LANES: [Self; 1] = [Self::new(64, false)];
    /// On a disk that is slow.
    pub(crate) const SLOW: [Self; 3] =
        [Self::new(1, true), Self::new(8, true), Self::new(8, false)];

    const fn new(openers: usize, one_file: bool) -> Self {
        Self { openers, one_file }
    }

    pub(crate) fn name(self) -> String {
        match (self.openers, self.one_file) {
            (1, _) => "1 opener".into(),
            (openers, true) => format!("{openers} openers, one file"),
            (openers, false) => format!("{openers} openers, many files"),
        }
    }
}

/// One open.
struct Opened {
    file: File,
    /// First block of its region.
    base: u64,
    next: u64,
    flushing: bool,
    sent: Instant,
}

/// One connection with its opens.
struct Connected {
    tree: Tree,
    opens: Vec<Opened>,
}

/// Ready to run.
pub(crate) struct Load {
    connections: Vec<std::sync::Mutex<Connected>>,
}

/// The result of the load.
pub(crate) struct Done {
    /// Of each acknowledged FLUSH, microseconds.
    pub(crate) latencies: Vec<u32>,
}

impl Load {
    /// Opens and fills everything.
    pub(crate) fn prepare(shape: Shape, port: u16) -> Result<Self, Failure> {
        let count = shape.openers.min(CONNECTIONS_MAX);
        let mut connections = Vec::new();
        let fill = vec![7; BLOCK * REGION as usize];
        for number in 0..count {
            let options = Options {
                timeout: Duration::from_secs(60),
                ..Options::default()
            };
            let client = Client::connect(("127.0.0.1", port), options)?;
            let tree = client.login(USER, PASSWORD, "")?.tree(SHARE)?;
            let mut opens = Vec::new();
            for opener in (number..shape.openers).step_by(count) {
                let base = if shape.one_file {
                    opener as u64 * REGION
                } else {
                    0
                };
                let name = if shape.one_file {
                    "one".to_owned()
                } else {
                    format!("many-{opener:03}")
                };
                let file = tree.create(&CreateArgs::open_if(&name))?;
                file.write_all(base * BLOCK as u64, &fill)?;
                file.flush(false)?;
                opens.push(Opened {
                    file,
                    base,
                    next: 0,
                    flushing: false,
                    sent: Instant::now(),
                });
            }
            connections.push(std::sync::Mutex::new(Connected { tree, opens }));
        }
        Ok(Self { connections })
    }

    /// Works for that long, and until the last FLUSH is answered.
    pub(crate) fn run(&self, length: Duration) -> Result<Done, Failure> {
        let barrier = Barrier::new(self.connections.len());
        let results: Vec<Result<Vec<u32>, String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .connections
                .iter()
                .map(|connection| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        let mut connection = connection.lock().map_err(|e| e.to_string())?;
                        connection.work(Instant::now() + length)
                    })
                })
                .collect();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a thread panicked".into()))
            };
            threads.into_iter().map(ended).collect()
        });
        let mut latencies = Vec::new();
        for result in results {
            latencies.extend(result?);
        }
        Ok(Done { latencies })
    }

    /// Closes everything.
    pub(crate) fn end(self) {
        for connection in self.connections {
            let Ok(connection) = connection.into_inner() else {
                continue;
            };
            for open in connection.opens {
                // The connection goes next, and its opens with it.
                let _ = open.file.close();
            }
        }
    }
}

impl Connected {
    fn work(&mut self, end: Instant) -> Result<Vec<u32>, String> {
        let data = vec![9; BLOCK];
        let tree = self.tree.clone();
        let client = tree.client().clone();
        let mut connection = client.connection();
        let mut waiting: BTreeMap<MessageId, usize> = BTreeMap::new();
        let mut latencies = Vec::new();
        for (number, open) in self.opens.iter_mut().enumerate() {
            let id = connection.send(tree.address(open.write(&data)));
            waiting.insert(id.map_err(|e| e.to_string())?, number);
        }
        while !waiting.is_empty() {
            let reply = connection.receive().map_err(|e| e.to_string())?;
            let id = reply.header.message_id;
            let number = waiting.remove(&id).ok_or("a reply to nothing")?;
            let open = self.opens.get_mut(number).ok_or("no such open")?;
            let next = open.answered(&reply, &data, end, &mut latencies)?;
            if let Some(request) = next {
                let id = connection.send(tree.address(request));
                waiting.insert(id.map_err(|e| e.to_string())?, number);
            }
        }
        Ok(latencies)
    }
}

impl Opened {
    fn write(&mut self, data: &[u8]) -> smb_client::Request {
        let block = self.base + self.next % REGION;
        self.next += 1;
        self.flushing = false;
        let at = block * BLOCK as u64;
        self.file.write_request(at, data, WriteFlags::empty())
    }

    /// Decides what follows a reply.
    fn answered(
        &mut self,
        reply: &Reply,
        data: &[u8],
        end: Instant,
        latencies: &mut Vec<u32>,
    ) -> Result<Option<smb_client::Request>, String> {
        if !reply.status().is_success() {
            return Err(format!("the server answered {}", reply.status()));
        }
        if !self.flushing {
            self.flushing = true;
            self.sent = Instant::now();
            return Ok(Some(self.file.flush_request(false)));
        }
        let micros = self.sent.elapsed().as_micros();
        latencies.push(u32::try_from(micros).unwrap_or(u32::MAX));
        Ok((Instant::now() < end).then(|| self.write(data)))
    }
}
