//! A NetBench-like mix: the operations of dbench's load file, drawn by their frequencies.
//!
//! Frequencies, sizes, wanted failures, sequential parts and flush bursts are those counted in
//! dbench 4.0's `client.txt` (NetBench's Enterprise Disk Mix); what is drawn is the same for every
//! server and every round, since each client's numbers come from its own number. Each client has a connection, a
//! thread and a folder. Scaled down: fewer and smaller files than the 24 MB a client of the
//! original, so that 60 clients of five servers fit the page cache beside each other.

use std::{sync::Barrier, thread, time::Instant};

use smb_client::{ClientError, CreateArgs, File, Reply, Request, Tree};
use smb_wire::utf16;
use smb_wire::{
    Status,
    access_mask::AccessMask,
    fscc::{FileInformationClass, FsInformationClass},
    ids::FileId,
    msg::{
        CloseFlags, CloseRequest, InfoType, LockFlags, QueryDirectoryFlags, QueryDirectoryRequest,
        QueryInfoFlags, QueryInfoRequest, WriteFlags,
    },
};

use super::{Context, Done, Protection, Ready, connect, filled, folder, micros, names_in};
use crate::Failure;

/// Files open at once, at most.
const OPEN_MAX: usize = 23;
/// FLUSHes of one burst, each after a WRITE of 4 KiB.
const BURST: usize = 5;
/// A new file grows no further, bytes.
const GROWN_MAX: u64 = 1 << 20;

#[derive(Clone, Copy)]
enum Draw {
    Read,
    Create,
    PathInfo,
    Close,
    Write,
    Find,
    Unlink,
    FsInfo,
    FileInfo,
    SetInfo,
    Burst,
    Rename,
    Lock,
}

/// Of 9,777 draws; a burst is ten operations, a lock two.
const WEIGHTS: [(Draw, u64); 13] = [
    (Draw::Read, 2710),
    (Draw::Create, 1729),
    (Draw::PathInfo, 1567),
    (Draw::Close, 1270),
    (Draw::Write, 741),
    (Draw::Find, 606),
    (Draw::Unlink, 349),
    (Draw::FsInfo, 287),
    (Draw::FileInfo, 275),
    (Draw::SetInfo, 141),
    (Draw::Burst, 24),
    (Draw::Rename, 73),
    (Draw::Lock, 6),
];
/// Bytes of a READ, by parts of 1,000.
const READS: [(u32, u64); 6] = [
    (4096, 760),
    (61_440, 130),
    (2048, 37),
    (8192, 37),
    (16_384, 16),
    (512, 20),
];
/// Bytes of a WRITE, by parts of 1,000. One byte is the redirector's way to extend a file.
const WRITES: [(u32, u64); 6] = [
    (65_536, 320),
    (4096, 250),
    (1, 188),
    (2048, 42),
    (8192, 29),
    (1024, 171),
];

struct Opened {
    file: File,
    name: String,
    bytes: u64,
    at: u64,
    /// Made by this mix, and gone again in the end.
    new: bool,
}

/// One client.
struct Mixer {
    tree: Tree,
    folder: String,
    /// A directory handle for questions about the volume.
    home: File,
    random: u64,
    files: u64,
    /// How many new files there were.
    made: u64,
    open: Vec<Opened>,
    /// New files that are closed.
    closed: Vec<String>,
    latencies: Vec<u32>,
}

pub(super) fn ready(clients: usize, context: &Context<'_>) -> Result<Ready, Failure> {
    let sizes = context.sizes;
    let mut mixers = Vec::new();
    for number in 0..clients {
        mixers.push(Mixer::new(number, sizes.mix_files, context)?);
    }
    let each = (sizes.mix / clients.max(1) as u64).max(20);
    Ok(Ready::new(move || {
        let barrier = Barrier::new(mixers.len());
        let ended: Vec<Result<Mixer, String>> = thread::scope(|scope| {
            let threads: Vec<_> = mixers
                .into_iter()
                .map(|mut mixer| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        mixer.work(each).map_err(|error| error.to_string())?;
                        Ok(mixer)
                    })
                })
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                let ended = thread.join();
                ended.unwrap_or_else(|_| Err("a client panicked".into()))
            };
            threads.into_iter().map(join).collect()
        });
        let mut latencies = Vec::new();
        let mut keep = Vec::new();
        for mixer in ended {
            let mut mixer = mixer?;
            latencies.append(&mut mixer.latencies);
            keep.push(mixer);
        }
        let done = Done::new(latencies.len() as f64);
        Ok(done.latencies(latencies).keep(keep))
    }))
}

impl Mixer {
    fn new(number: usize, files: u64, context: &Context<'_>) -> Result<Self, Failure> {
        let tree = connect(context.access, Protection::Plain)?;
        let name = format!("mix-{number:02}");
        folder(&tree, &name)?;
        for left in names_in(&tree, &name)? {
            if left.starts_with("new-") {
                tree.delete(&format!("{name}\\{left}"))?;
            }
        }
        for file in 0..files {
            let path = format!("{name}\\{}", old(file));
            filled(&tree, &path, usize::try_from(old_bytes(file))?)?.close()?;
        }
        let home = tree.create(&CreateArgs::directory(&name))?;
        Ok(Self {
            tree,
            folder: name,
            home,
            random: 0x5851_F42D_4C95_7F2D ^ (number as u64 + 1),
            files,
            made: 0,
            open: Vec::new(),
            closed: Vec::new(),
            latencies: Vec::new(),
        })
    }

    /// Below `below`, the same in every run.
    fn below(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below.max(1)
    }

    fn of<T: Copy>(&mut self, weights: &[(T, u64)]) -> Option<T> {
        let mut left = self.below(weights.iter().map(|(_, weight)| weight).sum());
        for (what, weight) in weights {
            if left < *weight {
                return Some(*what);
            }
            left -= weight;
        }
        None
    }

    fn path(&self, name: &str) -> String {
        format!("{}\\{name}", self.folder)
    }

    fn work(&mut self, count: u64) -> Result<(), Failure> {
        while (self.latencies.len() as u64) < count {
            let Some(draw) = self.of(&WEIGHTS) else {
                break;
            };
            self.draw(draw)?;
        }
        Ok(())
    }

    /// One operation, timed.
    fn timed<T>(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        let done = operation(self)?;
        self.latencies.push(micros(begun));
        Ok(done)
    }

    fn draw(&mut self, draw: Draw) -> Result<(), Failure> {
        let open = self.open.len();
        let which = usize::try_from(self.below(open as u64))?;
        let opened = open > 0;
        match draw {
            Draw::Close if opened => self.close(which),
            Draw::Create if open >= OPEN_MAX => self.close(which),
            Draw::Read if opened => self.read(which),
            Draw::Write if opened => self.write(which),
            Draw::Burst if opened => self.burst(which),
            Draw::Lock if opened => self.lock(which),
            Draw::FileInfo | Draw::SetInfo if opened => self.file_info(which, draw),
            Draw::PathInfo => self.path_info(),
            Draw::Find => self.find(),
            Draw::FsInfo => self.timed(|this| {
                let class = FsInformationClass::SIZE.0;
                this.home.query_info(InfoType::FILESYSTEM, class, 0)?;
                Ok(())
            }),
            Draw::Unlink | Draw::Rename if !self.closed.is_empty() => self.unname(draw),
            _ => self.create(),
        }
    }

    fn create(&mut self) -> Result<(), Failure> {
        let kind = self.below(1000);
        if kind < 265 {
            let path = self.path("not there.doc");
            let status =
                self.timed(|this| Ok(this.tree.create_status(&CreateArgs::open(&path))?))?;
            return expect(status, Status::OBJECT_NAME_NOT_FOUND);
        }
        let new = kind > 850;
        let (name, bytes) = if new {
            self.made += 1;
            (format!("new-{:06}", self.made), 0)
        } else {
            let number = self.below(self.files);
            (old(number), old_bytes(number))
        };
        let path = self.path(&name);
        let args = if new {
            CreateArgs::create(&path)
        } else {
            CreateArgs::open(&path)
        };
        let file = self.timed(|this| Ok(this.tree.create(&args)?))?;
        self.open.push(Opened {
            file,
            name,
            bytes,
            at: 0,
            new,
        });
        Ok(())
    }

    fn close(&mut self, which: usize) -> Result<(), Failure> {
        let opened = self.open.swap_remove(which);
        self.timed(|_| Ok(opened.file.close()?))?;
        if opened.new {
            self.closed.push(opened.name);
        }
        Ok(())
    }

    /// Where the next piece of an open goes: after the last one in `sequential` of 1,000 cases.
    fn next(&mut self, which: usize, len: u64, sequential: u64) -> Result<u64, Failure> {
        let follows = self.below(1000) < sequential;
        let random = self.random >> 20;
        let open = self.open.get_mut(which).ok_or("no such open")?;
        let room = open.bytes.saturating_sub(len);
        let at = match (follows, open.at > room) {
            (true, true) => 0,
            (true, false) => open.at,
            (false, _) => random % (room + 1),
        };
        open.at = at + len;
        Ok(at)
    }

    fn read(&mut self, which: usize) -> Result<(), Failure> {
        let bytes = self.open.get(which).map_or(0, |open| open.bytes);
        if bytes == 0 {
            return self.write(which);
        }
        let len = self.of(&READS).unwrap_or(4096).min(u32::try_from(bytes)?);
        let at = self.next(which, u64::from(len), 715)?;
        self.timed(|this| {
            let open = this.open.get(which).ok_or("no such open")?;
            let got = open.file.read(at, len)?.len();
            if got != usize::try_from(len)? {
                return Err("a short READ".into());
            }
            Ok(())
        })
    }

    fn write(&mut self, which: usize) -> Result<(), Failure> {
        let len = self.of(&WRITES).unwrap_or(4096);
        let open = self.open.get_mut(which).ok_or("no such open")?;
        let extends = open.new && open.bytes + u64::from(len) <= GROWN_MAX;
        let at = if extends {
            let end = open.bytes;
            open.bytes += u64::from(len);
            end
        } else {
            self.next(which, u64::from(len), 484)?
        };
        let data = vec![8; usize::try_from(len)?];
        self.timed(|this| {
            let open = this.open.get(which).ok_or("no such open")?;
            open.file.write(at, &data, WriteFlags::empty())?;
            Ok(())
        })?;
        if len == 1 {
            return self.file_info(which, Draw::FileInfo);
        }
        Ok(())
    }

    fn burst(&mut self, which: usize) -> Result<(), Failure> {
        for _ in 0..BURST {
            let at = self.next(which, 4096, 500)?;
            let of = |this: &Self| -> Result<File, Failure> {
                let open = this.open.get(which).ok_or("no such open")?;
                Ok(open.file.clone())
            };
            self.timed(|this| Ok(of(this)?.write(at, &[6; 4096], WriteFlags::empty())?))?;
            self.timed(|this| Ok(of(this)?.flush(false)?))?;
        }
        let open = self.open.get_mut(which).ok_or("no such open")?;
        open.bytes = open.bytes.max(4096);
        Ok(())
    }

    fn lock(&mut self, which: usize) -> Result<(), Failure> {
        let open = self.open.get(which).ok_or("no such open")?;
        let file = open.file.clone();
        // Only this client opens the file, and holds no other lock.
        let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        self.timed(|_| Ok(file.lock(0, 1, flags)?))?;
        self.timed(|_| Ok(file.unlock(0, 1)?))
    }

    fn file_info(&mut self, which: usize, draw: Draw) -> Result<(), Failure> {
        self.timed(|this| {
            let open = this.open.get(which).ok_or("no such open")?;
            if matches!(draw, Draw::SetInfo) {
                // [MS-FSCC] 2.4.7: zeros change nothing.
                open.file.set(FileInformationClass::BASIC, &[0; 40])?;
            } else {
                open.file.query(FileInformationClass::STANDARD)?;
            }
            Ok(())
        })
    }

    fn path_info(&mut self) -> Result<(), Failure> {
        let missing = self.below(1000) < 338;
        let name = old(self.below(self.files));
        let path = self.path(if missing { "not there.tmp" } else { &name });
        let class = if self.below(1000) < 730 {
            FileInformationClass::BASIC
        } else {
            FileInformationClass::NETWORK_OPEN
        };
        let query = Request::new(&QueryInfoRequest {
            info_type: InfoType::FILE,
            info_class: class.0,
            output_buffer_length: 256,
            additional_information: 0,
            flags: QueryInfoFlags::empty(),
            file_id: FileId::ANY,
            input: &[],
        });
        let open = CreateArgs::open(&path).access(AccessMask::FILE_READ_ATTRIBUTES);
        let wanted = if missing {
            Status::OBJECT_NAME_NOT_FOUND
        } else {
            Status::SUCCESS
        };
        self.timed(|this| {
            let replies = this.compound(&open, query)?;
            let status = replies.get(1).map_or(Status::SUCCESS, Reply::status);
            expect(status, wanted)
        })
    }

    fn find(&mut self) -> Result<(), Failure> {
        let missing = self.below(1000) < 516;
        let name = old(self.below(self.files));
        let pattern = if missing { "not there.*" } else { &name };
        let query = Request::new(&QueryDirectoryRequest {
            info_class: FileInformationClass::ID_BOTH_DIRECTORY.0,
            flags: QueryDirectoryFlags::RESTART_SCANS,
            file_index: 0,
            file_id: FileId::ANY,
            pattern: &utf16::encode(pattern),
            output_buffer_length: 16_384,
        });
        let wanted = if missing {
            Status::NO_SUCH_FILE
        } else {
            Status::SUCCESS
        };
        let open = CreateArgs::directory(&self.folder);
        self.timed(|this| {
            let replies = this.compound(&open, query)?;
            let status = replies.get(1).map_or(Status::SUCCESS, Reply::status);
            expect(status, wanted)
        })
    }

    /// CREATE, this, CLOSE.
    fn compound(&self, open: &CreateArgs, query: Request) -> Result<Vec<Reply>, ClientError> {
        let close = Request::new(&CloseRequest {
            flags: CloseFlags::empty(),
            file_id: FileId::ANY,
        });
        let requests = vec![
            self.tree.address(open.request()),
            self.tree.address(query).related(),
            self.tree.address(close).related(),
        ];
        self.tree.client().compound(requests)
    }

    /// Deletes or renames a new file.
    fn unname(&mut self, draw: Draw) -> Result<(), Failure> {
        let which = usize::try_from(self.below(self.closed.len() as u64))?;
        let name = self.closed.swap_remove(which);
        let path = self.path(&name);
        if matches!(draw, Draw::Unlink) {
            return self.timed(|this| Ok(this.tree.delete(&path)?));
        }
        self.made += 1;
        let to = format!("new-{:06}", self.made);
        let new_path = self.path(&to);
        self.timed(|this| Ok(this.tree.rename(&path, &new_path, false)?))?;
        self.closed.push(to);
        Ok(())
    }
}

fn old(number: u64) -> String {
    format!("old-{number:03}.dat")
}

/// 64 KiB to 400 KiB.
fn old_bytes(number: u64) -> u64 {
    65_536 + number * 7 % 23 * 15_360
}

fn expect(status: Status, wanted: Status) -> Result<(), Failure> {
    if status != wanted {
        return Err(format!("{status:?} instead of {wanted:?}").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_load_file() {
        let draws: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let bursts: u64 = WEIGHTS
            .iter()
            .filter(|(draw, _)| matches!(draw, Draw::Burst))
            .map(|(_, weight)| weight * BURST as u64)
            .sum();
        let operations = draws + 9 * 24 + 6;
        let flushes = bursts as f64 / operations as f64;
        assert!((0.0115..0.0127).contains(&flushes), "{flushes}");
        for sizes in [&READS, &WRITES] {
            assert_eq!(sizes.iter().map(|(_, part)| part).sum::<u64>(), 1000);
        }
        assert!((0..24).all(|number| old_bytes(number) < 410_000));
    }
}
