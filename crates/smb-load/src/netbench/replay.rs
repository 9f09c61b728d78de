//! A client that replays a load file line by line, in a folder of its own.
//!
//! The file's beginning fills the folder, which is done before the step begins; what follows is the mix. A client that
//! comes to the end begins again. The server has to answer each line as the recorded one did, and a READ with what the
//! client wrote there, else the step is an error.

use std::{collections::HashMap, sync::Arc, time::Instant};

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    Status,
    file_attributes::FileAttributes,
    fscc::{FileInformationClass, FsInformationClass},
    msg::{CreateDisposition, CreateOptions, InfoType, LockFlags, WriteFlags},
};

use super::{
    content::Content,
    operation::Name,
    queries,
    script::{Script, Step},
};
use crate::{
    Home, LoadError, Sample, Worker,
    error::{check_length, check_same, check_written, refused},
    home::open_directory,
    page::PAGE,
};

/// FileAttributeTagInformation, as SMB 1 numbers it.
const ATTRIBUTE_TAG_LEVEL: u32 = 1035;
/// All files have the bytes of this one, which may have holes: a load file renames, and names a handle anew.
const WRITTEN: Name = Name::New(0);

/// One client of a replay.
pub struct Replayer {
    script: Arc<Script>,
    next: usize,
    tree: Tree,
    folder: String,
    /// A directory handle for queries about the file system.
    above: File,
    open: HashMap<u32, File>,
    content: Content,
}

impl Replayer {
    /// Client `number`, with its folder filled, where the mix begins.
    pub fn prepare(home: Home, number: usize, script: Arc<Script>) -> Result<Self, LoadError> {
        let above = home.path(&format!("replay-{number:03}"));
        let opened = open_directory(&home.tree, &above);
        let fill = script.fill();
        let lengths = script.steps.iter().map(|(step, _)| step.length());
        let longest = lengths.max().unwrap_or(0);
        let mut this = Self {
            script,
            next: 0,
            folder: format!("{above}\\client"),
            above: opened.map_err(refused("prepare"))?,
            tree: home.tree,
            open: HashMap::new(),
            content: Content::new(longest as usize),
        };
        while this.next < fill {
            this.turn(&mut |_| {})?;
        }
        Ok(this)
    }

    fn path(&self, name: &str) -> String {
        match name {
            "" => self.folder.clone(),
            name => format!("{}\\{name}", self.folder),
        }
    }

    fn file(&self, handle: u32) -> Result<&File, LoadError> {
        self.open.get(&handle).ok_or(LoadError::NotOpen)
    }

    fn perform(&mut self, step: Step, wanted: Status) -> Result<(), LoadError> {
        let kind = step.kind().map_or("prepare", super::operation::Kind::name);
        let named = refused(kind);
        match step {
            Step::Empty => self.empty().map_err(named)?,
            Step::Create { .. } => self.create(step, wanted)?,
            Step::Close { handle } => {
                let file = self.open.remove(&handle).ok_or(LoadError::NotOpen)?;
                file.close().map_err(named)?;
            }
            Step::Read { .. } | Step::Write { .. } => self.data(step)?,
            Step::Flush { handle } => self.file(handle)?.flush(false).map_err(named)?,
            Step::Lock {
                handle,
                offset,
                length,
                unlocks,
            } => {
                let flags = match unlocks {
                    true => LockFlags::UNLOCK,
                    false => LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
                };
                self.file(handle)?
                    .lock(offset, length, flags)
                    .map_err(named)?;
            }
            Step::FsInfo => {
                let class = FsInformationClass::SIZE.0;
                let queried = self.above.query_info(InfoType::FILESYSTEM, class, 0);
                queried.map_err(named)?;
            }
            Step::FileInfo { handle } => {
                let queried = self.file(handle)?.query(FileInformationClass::STANDARD);
                queried.map_err(named)?;
            }
            Step::SetInfo { handle } => queries::set_info(self.file(handle)?).map_err(named)?,
            Step::PathInfo { .. } | Step::Find { .. } => self.query(step, wanted)?,
            Step::Unlink { name } => {
                let path = self.path(self.script.name(name));
                self.tree.delete(&path).map_err(named)?;
            }
            Step::Rename { from, to } => {
                let (from, to) = (self.script.name(from), self.script.name(to));
                let renamed = self.tree.rename(&self.path(from), &self.path(to), false);
                renamed.map_err(named)?;
            }
        }
        Ok(())
    }

    /// READ or WRITE.
    fn data(&self, step: Step) -> Result<(), LoadError> {
        match step {
            Step::Read {
                handle,
                offset,
                length,
            } => {
                let data = self.file(handle)?.read(offset, length);
                let data = data.map_err(refused("read"))?;
                check_length(data.len(), length as usize)?;
                let is_same = self.content.is(&data, WRITTEN, offset);
                let file = || format!("{}, handle {handle}", self.folder);
                check_same(is_same, file, offset / PAGE as u64)
            }
            Step::Write {
                handle,
                offset,
                length,
            } => {
                let data = self.content.of(WRITTEN, offset, length as usize);
                let written = self.file(handle)?.write(offset, data, WriteFlags::empty());
                written
                    .and_then(|written| check_written(written, length as usize))
                    .map_err(refused("write"))
            }
            _ => Ok(()),
        }
    }

    fn create(&mut self, step: Step, wanted: Status) -> Result<(), LoadError> {
        let Step::Create {
            name,
            options,
            disposition,
            handle,
        } = step
        else {
            return Ok(());
        };
        let path = self.path(self.script.name(name));
        let args =
            CreateArgs::new(&path, CreateDisposition(disposition)).options(CreateOptions(options));
        match self.tree.create(&args) {
            Ok(file) => {
                if let Some(old) = self.open.insert(handle, file) {
                    old.close().map_err(refused("close"))?;
                }
                queries::expect("create", Status::SUCCESS, wanted)
            }
            Err(ClientError::Status(status)) => queries::expect("create", status, wanted),
            Err(other) => Err(refused("create")(other)),
        }
    }

    /// Queries by name.
    fn query(&self, step: Step, wanted: Status) -> Result<(), LoadError> {
        match step {
            Step::PathInfo { name, level } => {
                let class = match level {
                    ATTRIBUTE_TAG_LEVEL => FileInformationClass::ATTRIBUTE_TAG,
                    _ => FileInformationClass::BASIC,
                };
                let path = self.path(self.script.name(name));
                queries::path_info(&self.tree, &path, class, wanted)
            }
            Step::Find { name } => {
                let whole = self.script.name(name);
                let (folder, pattern) = whole.rsplit_once('\\').unwrap_or(("", whole));
                queries::find(&self.tree, &self.path(folder), pattern, wanted)
            }
            _ => Ok(()),
        }
    }

    /// Closes everything and deletes the client's folder, as the file's first and last line ask for.
    fn empty(&mut self) -> Result<(), ClientError> {
        for (_, file) in std::mem::take(&mut self.open) {
            file.close()?;
        }
        let mut folders = vec![self.folder.clone()];
        let mut at = 0;
        while let Some(folder) = folders.get(at).cloned() {
            at += 1;
            let entries = match self.tree.list(&folder, "*") {
                Err(ClientError::Status(Status::OBJECT_NAME_NOT_FOUND)) => return Ok(()),
                other => other?,
            };
            for entry in entries {
                let name = entry.file_name.to_string();
                let path = format!("{folder}\\{name}");
                if name == "." || name == ".." {
                    continue;
                }
                match entry.file_attributes.contains(FileAttributes::DIRECTORY) {
                    true => folders.push(path),
                    false => self.tree.delete(&path)?,
                }
            }
        }
        folders
            .iter()
            .rev()
            .try_for_each(|folder| self.tree.delete(folder))
    }
}

impl Worker for Replayer {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let Some((step, wanted)) = self.script.steps.get(self.next).copied() else {
            self.next = 0;
            return Ok(());
        };
        self.next += 1;
        let begun = Instant::now();
        self.perform(step, wanted)?;
        let moved = match step {
            Step::Read { length, .. } => (u64::from(length), 0),
            Step::Write { length, .. } => (0, u64::from(length)),
            _ => (0, 0),
        };
        if let Some(kind) = step.kind() {
            report(Sample::new(kind.name(), begun, moved));
        }
        Ok(())
    }
}
