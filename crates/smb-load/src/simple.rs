//! Workloads of one kind of work: flushes, large files, small files, names, opens.

use std::time::Instant;

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    access_mask::AccessMask,
    fscc::FileInformationClass,
    msg::{CloseFlags, CreateDisposition},
};

use crate::{
    Home, LoadError, Sample, Worker,
    error::{check_same, refused},
    home::open_directory,
    step::timed,
};

/// Bytes of a small file.
const SMALL: usize = 4096;
/// Blocks that one opener of the flush ladder overwrites in turn.
const REGION: u64 = 64;
/// Bytes of a piece of a large file.
const PIECE: usize = 1 << 20;
/// Files of the folder that is listed.
pub(crate) const LISTED: usize = 100;
/// Their names begin with this.
const ENTRY: &str = "entry-";

struct Folder {
    tree: Tree,
    path: String,
    next: u64,
}

impl Folder {
    fn make(home: &Home, name: &str) -> Result<Self, LoadError> {
        let path = home.path(name);
        let opened = open_directory(&home.tree, &path).and_then(|directory| directory.close());
        opened.map_err(refused("prepare"))?;
        Ok(Self {
            tree: home.tree.clone(),
            path,
            next: 0,
        })
    }

    /// A name that the folder has not had.
    fn name(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{}\\{kind}-{:08}", self.path, self.next)
    }
}

/// Overwrites a piece of a file and flushes, over and over; at the end it reads what it wrote last in each place.
pub struct Flusher {
    file: File,
    name: String,
    base: u64,
    next: u64,
    data: Vec<u8>,
}

impl Flusher {
    /// Opener `number`, of one file for all or of a file of its own, with pieces of so many bytes.
    pub fn prepare(
        home: &Home,
        number: u64,
        one_file: bool,
        bytes: u32,
    ) -> Result<Self, LoadError> {
        let bytes = bytes as usize;
        let (name, base) = match one_file {
            true => ("flush-one".to_owned(), number * REGION * bytes as u64),
            false => (format!("flush-{number:04}"), 0),
        };
        let prepare = || {
            let file = home.tree.create(&CreateArgs::open_if(&home.path(&name)))?;
            file.write_all(base, &vec![7; bytes * REGION as usize])?;
            file.flush(false)?;
            Ok(file)
        };
        Ok(Self {
            file: prepare().map_err(refused("prepare"))?,
            name,
            base,
            next: 0,
            data: vec![9; bytes],
        })
    }

    /// The place of a piece, whose data are put into the buffer.
    fn piece(&mut self, number: u64) -> u64 {
        stamp(&mut self.data, number);
        self.base + number % REGION * self.data.len() as u64
    }
}

impl Worker for Flusher {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let offset = self.piece(self.next);
        self.next += 1;
        timed(report, "write", (0, self.data.len() as u64), || {
            self.file.write_all(offset, &self.data)
        })?;
        timed(report, "flush", (0, 0), || self.file.flush(false))
    }

    fn end(&mut self) -> Result<(), LoadError> {
        for number in self.next.saturating_sub(REGION)..self.next {
            let offset = self.piece(number);
            let got = self.file.read(offset, self.data.len() as u32);
            let got = got.map_err(refused("verify"))?;
            check_data(&got, &self.data, &self.name, number % REGION)?;
        }
        Ok(())
    }
}

/// Writes a large file in pieces of 1 MiB, reads it, and begins again.
pub struct Copier {
    tree: Tree,
    name: String,
    pieces: u64,
    /// The file, and how many pieces were written and read.
    open: Option<(File, u64)>,
    data: Vec<u8>,
}

impl Copier {
    /// Client `number` with a file of `mebibytes`.
    pub fn new(home: Home, number: usize, mebibytes: u64) -> Self {
        Self {
            name: home.path(&format!("copy-{number:03}")),
            tree: home.tree,
            pieces: mebibytes.max(1),
            open: None,
            data: (0..PIECE).map(|at| (at % 251) as u8).collect(),
        }
    }
}

impl Worker for Copier {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let (file, done) = match self.open.take() {
            Some(open) => open,
            None => {
                let args = CreateArgs::new(&self.name, CreateDisposition::OVERWRITE_IF);
                let created = timed(report, "create", (0, 0), || self.tree.create(&args));
                (created?, 0)
            }
        };
        let piece = done % self.pieces;
        // A piece that comes back in another one's place is seen.
        stamp(&mut self.data, piece);
        let offset = piece * PIECE as u64;
        if done < self.pieces {
            timed(report, "write", (0, PIECE as u64), || {
                file.write_all(offset, &self.data)
            })?;
        } else {
            let got = timed(report, "read", (PIECE as u64, 0), || {
                file.read(offset, PIECE as u32)
            })?;
            check_data(&got, &self.data, &self.name, piece)?;
        }
        if done + 1 == self.pieces * 2 {
            return timed(report, "close", (0, 0), || file.close());
        }
        self.open = Some((file, done + 1));
        Ok(())
    }
}

/// Creates, writes and closes a small file, opens, reads and closes it, and deletes it.
pub struct SmallFiles(Folder);

impl SmallFiles {
    /// Client `number`, with a folder of its own.
    pub fn prepare(home: &Home, number: usize) -> Result<Self, LoadError> {
        Folder::make(home, &format!("small-{number:03}")).map(Self)
    }
}

impl Worker for SmallFiles {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let name = self.0.name("file");
        let tree = &self.0.tree;
        let args = CreateArgs::new(&name, CreateDisposition::OVERWRITE_IF);
        let file = timed(report, "create", (0, 0), || tree.create(&args))?;
        let data = [self.0.next as u8; SMALL];
        timed(report, "write", (0, SMALL as u64), || {
            file.write_all(0, &data)
        })?;
        timed(report, "close", (0, 0), || file.close())?;
        let file = timed(report, "create", (0, 0), || tree.create(&reading(&name)))?;
        let got = timed(report, "read", (SMALL as u64, 0), || {
            file.read(0, SMALL as u32)
        })?;
        check_data(&got, &data, &name, 0)?;
        timed(report, "close", (0, 0), || file.close())?;
        timed(report, "delete", (0, 0), || tree.delete(&name))
    }
}

/// Begins data with their number.
fn stamp(data: &mut [u8], number: u64) {
    for (byte, of_number) in data.iter_mut().zip(number.to_le_bytes()) {
        *byte = of_number;
    }
}

/// Whether a read has returned what was written there.
fn check_data(got: &[u8], written: &[u8], file: &str, page: u64) -> Result<(), LoadError> {
    check_same(got == written, || file.to_owned(), page)
}

/// Whether a listing has the files that are there, each of them once.
fn check_listed<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), LoadError> {
    let mut names: Vec<&str> = names.filter(|name| name.starts_with(ENTRY)).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    match names.len() == all && all >= LISTED {
        true => Ok(()),
        false => Err(refused("list")(ClientError::Protocol(
            "a listing lacks files that are there, or has one twice",
        ))),
    }
}

/// An open that only reads.
fn reading(name: &str) -> CreateArgs {
    CreateArgs::open(name).access(AccessMask::FILE_GENERIC_READ)
}

/// Creates, queries, renames, lists (a folder of `LISTED` files, which stays) and deletes names.
pub struct Names {
    folder: Folder,
    listed: String,
}

impl Names {
    /// Client `number`, with a folder of its own, and one for all that is listed.
    pub fn prepare(home: &Home, number: usize) -> Result<Self, LoadError> {
        let folder = Folder::make(home, &format!("names-{number:03}"))?;
        let listed = Folder::make(home, "listed")?.path;
        let fill = || {
            // Beside `.` and `..`.
            let there = folder.tree.list(&listed, "*")?.len().saturating_sub(2);
            for entry in there..LISTED {
                let name = format!("{listed}\\{ENTRY}{entry:04}");
                folder.tree.create(&CreateArgs::open_if(&name))?.close()?;
            }
            Ok(())
        };
        fill().map_err(refused("prepare"))?;
        Ok(Self { folder, listed })
    }
}

impl Worker for Names {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let name = self.folder.name("name");
        let to = format!("{name}-renamed");
        let tree = &self.folder.tree;
        timed(report, "create", (0, 0), || {
            let args = CreateArgs::new(&name, CreateDisposition::OVERWRITE_IF);
            tree.create(&args)?.close()
        })?;
        timed(report, "query", (0, 0), || {
            let attributes = CreateArgs::open(&name).access(AccessMask::FILE_READ_ATTRIBUTES);
            let file = tree.create(&attributes)?;
            file.query(FileInformationClass::NETWORK_OPEN)?;
            file.close()
        })?;
        timed(report, "rename", (0, 0), || tree.rename(&name, &to, true))?;
        let listed = timed(report, "list", (0, 0), || tree.list(&self.listed, "*"))?;
        check_listed(listed.iter().map(|entry| entry.file_name.as_str()))?;
        timed(report, "delete", (0, 0), || tree.delete(&to))
    }
}

/// Creates, closes and deletes an empty file: one operation.
pub struct CreateRemove(Folder);

impl CreateRemove {
    /// Client `number`, with a folder of its own.
    pub fn prepare(home: &Home, number: usize) -> Result<Self, LoadError> {
        Folder::make(home, &format!("names-{number:03}")).map(Self)
    }
}

impl Worker for CreateRemove {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let name = self.0.name("new");
        timed(report, "create-remove", (0, 0), || {
            self.0.tree.create(&CreateArgs::create(&name))?.close()?;
            self.0.tree.delete(&name)
        })
    }
}

/// Opens and closes files that stay, several at once: all CREATEs are sent before the first answer is read, then all
/// CLOSEs, as a client does that copies a folder.
pub struct Opens {
    tree: Tree,
    names: Vec<String>,
}

impl Opens {
    /// Client `number`, with so many files of its own.
    pub fn prepare(home: &Home, number: usize, depth: usize) -> Result<Self, LoadError> {
        let folder = Folder::make(home, &format!("opens-{number:03}"))?;
        let names = (0..depth).map(|file| format!("{}\\file-{file:04}", folder.path));
        let names: Vec<String> = names.collect();
        let fill = |name| folder.tree.create(&CreateArgs::open_if(name))?.close();
        let filled = names.iter().try_for_each(|name| fill(name));
        filled.map_err(refused("prepare"))?;
        Ok(Self {
            tree: folder.tree,
            names,
        })
    }

    /// Opens and closes all; when each was begun.
    fn all(&self) -> Result<Vec<Instant>, ClientError> {
        let tree = &self.tree;
        let mut sent = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let begun = Instant::now();
            sent.push((begun, tree.send(reading(name).request())?));
        }
        let mut closes = Vec::with_capacity(sent.len());
        let mut opened = Vec::with_capacity(sent.len());
        for (begun, id) in sent {
            opened.push((begun, tree.file(&tree.client().wait(id)?.ok()?)?));
        }
        for (begun, file) in &opened {
            let close = file.close_request(CloseFlags::empty());
            closes.push((*begun, tree.send(close)?));
        }
        for (_, id) in &closes {
            tree.client().wait(*id)?.ok()?;
        }
        Ok(closes.into_iter().map(|(begun, _)| begun).collect())
    }
}

impl Worker for Opens {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        for begun in self.all().map_err(refused("open-close"))? {
            report(Sample::new("open-close", begun, (0, 0)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_data_and_fewer_are_an_error() {
        let written = [7, 8, 9];
        assert!(check_data(&written, &written, "file", 0).is_ok());
        assert!(check_data(&[7, 8, 8], &written, "file", 0).is_err());
        assert!(check_data(&[7, 8], &written, "file", 0).is_err());
    }

    #[test]
    fn a_listing_has_every_file_once() {
        let names: Vec<String> = (0..LISTED).map(|of| format!("{ENTRY}{of:04}")).collect();
        let check = |of: &[&str]| check_listed(of.iter().copied());
        let mut listed: Vec<&str> = [".", ".."].to_vec();
        listed.extend(names.iter().map(String::as_str));
        assert!(check(&listed).is_ok());
        let last = listed.pop().unwrap();
        assert!(check(&listed).is_err());
        // Another file makes up for nothing, and neither does one that is listed twice.
        listed.push("stranger");
        assert!(check(&listed).is_err());
        listed.extend([last, last]);
        assert!(check(&listed).is_err());
    }

    #[test]
    fn pieces_of_any_size_differ_by_their_numbers() {
        for bytes in [1, 8, 4096] {
            let (mut one, mut other) = (vec![9; bytes], vec![9; bytes]);
            stamp(&mut one, 64);
            stamp(&mut other, 65);
            assert!(check_data(&one, &other, "file", 0).is_err(), "{bytes}");
        }
    }
}
