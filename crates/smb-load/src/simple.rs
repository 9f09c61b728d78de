//! Workloads of one kind of work: flushes, large files, small files, names.

use std::sync::Arc;

use smb_client::{CreateArgs, File, Tree};
use smb_wire::msg::{CreateDisposition, WriteFlags};

use crate::{
    Home, LoadError, Sample, Worker,
    error::{check_length, refused},
    home::open_directory,
    step::timed,
};

/// Bytes of a WRITE before a FLUSH, and of a small file.
const SMALL: usize = 4096;
/// Blocks that one opener of the flush ladder overwrites in turn.
const REGION: u64 = 64;
/// Bytes of a piece of a large file.
const PIECE: usize = 1 << 20;
/// Small files that a client writes before it reads and deletes them.
const FILES: u64 = 100;

/// The folder of one client.
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
}

/// Overwrites 4 KiB and flushes, over and over.
pub struct Flusher {
    file: File,
    base: u64,
    next: u64,
    data: Arc<[u8]>,
}

impl Flusher {
    /// Opener `number`, of one file for all or of a file of its own.
    ///
    /// # Errors
    /// The first refusal of the server.
    pub fn prepare(home: &Home, number: u64, one_file: bool) -> Result<Self, LoadError> {
        let (name, base) = match one_file {
            true => ("flush-one".to_owned(), number * REGION * SMALL as u64),
            false => (format!("flush-{number:04}"), 0),
        };
        let prepare = || {
            let file = home.tree.create(&CreateArgs::open_if(&home.path(&name)))?;
            file.write_all(base, &vec![7; SMALL * REGION as usize])?;
            file.flush(false)?;
            Ok(file)
        };
        Ok(Self {
            file: prepare().map_err(refused("prepare"))?,
            base,
            next: 0,
            data: vec![9; SMALL].into(),
        })
    }
}

impl Worker for Flusher {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let offset = self.base + self.next % REGION * SMALL as u64;
        self.next += 1;
        timed(report, "write", (0, SMALL as u64), || {
            self.file.write(offset, &self.data, WriteFlags::empty())
        })?;
        timed(report, "flush", (0, 0), || self.file.flush(false))
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
    #[must_use]
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
        let offset = done % self.pieces * PIECE as u64;
        if done < self.pieces {
            timed(report, "write", (0, PIECE as u64), || {
                file.write_all(offset, &self.data)
            })?;
        } else {
            let got = timed(report, "read", (PIECE as u64, 0), || {
                file.read(offset, PIECE as u32)
            })?;
            if got != self.data {
                return Err(LoadError::Page {
                    file: self.name.clone(),
                    page: done % self.pieces,
                    what: "not what was written",
                });
            }
        }
        if done + 1 == self.pieces * 2 {
            return timed(report, "close", (0, 0), || file.close());
        }
        self.open = Some((file, done + 1));
        Ok(())
    }
}

/// Creates, writes and closes small files, then reads and deletes each.
pub struct SmallFiles(Folder);

impl SmallFiles {
    /// Client `number`, with a folder of its own.
    ///
    /// # Errors
    /// The first refusal of the server.
    pub fn prepare(home: &Home, number: usize) -> Result<Self, LoadError> {
        Folder::make(home, &format!("small-{number:03}")).map(Self)
    }
}

impl Worker for SmallFiles {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let Folder { tree, path, next } = &mut self.0;
        let name = format!("{path}\\file-{:04}", *next % FILES);
        let writes = *next % (FILES * 2) < FILES;
        *next += 1;
        let disposition = match writes {
            true => CreateDisposition::OVERWRITE_IF,
            false => CreateDisposition::OPEN,
        };
        let args = CreateArgs::new(&name, disposition);
        let file = timed(report, "create", (0, 0), || tree.create(&args))?;
        if writes {
            let data = [*next as u8; SMALL];
            timed(report, "write", (0, SMALL as u64), || {
                file.write(0, &data, WriteFlags::empty())
            })?;
            return timed(report, "close", (0, 0), || file.close());
        }
        let got = timed(report, "read", (SMALL as u64, 0), || {
            file.read(0, SMALL as u32)
        })?;
        check_length(got.len(), SMALL)?;
        timed(report, "close", (0, 0), || file.close())?;
        timed(report, "delete", (0, 0), || tree.delete(&name))
    }
}

/// Creates, queries, renames, lists and deletes names.
pub struct Names(Folder);

impl Names {
    /// Client `number`, with a folder of its own.
    ///
    /// # Errors
    /// The first refusal of the server.
    pub fn prepare(home: &Home, number: usize) -> Result<Self, LoadError> {
        Folder::make(home, &format!("names-{number:03}")).map(Self)
    }
}

impl Worker for Names {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let Folder { tree, path, next } = &mut self.0;
        let name = format!("{path}\\name-{next:06}");
        let to = format!("{path}\\renamed-{next:06}");
        *next += 1;
        timed(report, "create", (0, 0), || {
            let args = CreateArgs::new(&name, CreateDisposition::OVERWRITE_IF);
            tree.create(&args)?.close()
        })?;
        timed(report, "query", (0, 0), || {
            tree.create(&CreateArgs::open(&name))?.close()
        })?;
        timed(report, "rename", (0, 0), || tree.rename(&name, &to, true))?;
        timed(report, "list", (0, 0), || tree.list(path, "*"))?;
        timed(report, "delete", (0, 0), || tree.delete(&to))
    }
}
