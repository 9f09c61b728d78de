//! Carries out operations over one connection: those of the mix, and those of a load file.

use std::{collections::HashMap, sync::Arc};

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    Status,
    file_attributes::FileAttributes,
    fscc::{FileInformationClass, FsInformationClass},
    msg::{InfoType, LockFlags, WriteFlags},
};

use super::{
    content::{Content, LONGEST},
    files::{OPEN_AT_START, STOCK, document_bytes},
    operation::{Handle, Name, Operation},
    queries,
    script::Script,
};
use crate::{
    LoadError,
    error::{check_length, check_same, check_written, refused},
    home::open_directory,
    page::PAGE,
};

/// Bytes at the end of a document that show whether it was filled.
const DOCUMENT_END: u64 = 512;

/// One client: a connection, a folder of its own, and the files that it has open.
pub struct Client {
    tree: Tree,
    folder: String,
    /// A directory handle for queries about the file system.
    home: File,
    /// The load file that has the recorded names.
    script: Arc<Script>,
    open: HashMap<Handle, (Name, File)>,
    content: Content,
}

impl Client {
    /// A client with nothing open, for pieces of at most `longest` bytes.
    pub(super) fn new(folder: String, home: File, script: Arc<Script>, longest: usize) -> Self {
        Self {
            tree: home.tree().clone(),
            folder,
            home,
            script,
            open: HashMap::new(),
            content: Content::new(longest),
        }
    }

    /// Prepares the folder: `documents` documents are filled, what an earlier run left is deleted, and
    /// the files that the mix expects to be open are opened.
    pub fn prepare(tree: Tree, folder: &str, documents: u32) -> Result<Self, LoadError> {
        let made = (|| {
            open_directory(&tree, folder)?.close()?;
            // Opened without DELETE access, with which no file in the folder could be renamed.
            let home = tree.create(&CreateArgs::directory(folder))?;
            let there = match tree.list(folder, "new-*") {
                Err(ClientError::Status(Status::NO_SUCH_FILE)) => Vec::new(),
                other => other?,
            };
            for left in there {
                tree.delete(&format!("{folder}\\{}", left.file_name))?;
            }
            let mut this = Self::new(folder.to_owned(), home, Arc::default(), LONGEST);
            for number in 0..documents.max(OPEN_AT_START) {
                this.document(number)?;
            }
            for number in 0..STOCK {
                let path = this.path(Name::New(number));
                this.tree.create(&CreateArgs::create(&path))?.close()?;
            }
            Ok(this)
        })();
        made.map_err(refused("prepare"))
    }

    /// Fills a document unless it is there already, as its end shows: another version of this program may have left one
    /// with other bytes.
    fn document(&mut self, number: u32) -> Result<(), ClientError> {
        let name = Name::Old(number);
        let file = self.tree.create(&CreateArgs::open_if(&self.path(name)))?;
        let bytes = document_bytes(number);
        let end = bytes.saturating_sub(DOCUMENT_END);
        let is_there = |there: Vec<u8>| there == self.content(name, end, (bytes - end) as u32);
        if !file.read(end, (bytes - end) as u32).is_ok_and(is_there) {
            for offset in (0..bytes).step_by(LONGEST) {
                let length = (bytes - offset).min(LONGEST as u64);
                file.write_all(offset, self.content(name, offset, length as u32))?;
            }
        }
        if number < OPEN_AT_START {
            self.open.insert(number, (name, file));
            return Ok(());
        }
        file.close()
    }

    /// A name relative to the folder; empty for the folder itself.
    fn text(&self, name: Name) -> String {
        match name {
            Name::Old(number) => format!("doc-{number:03}.dat"),
            Name::New(number) => format!("new-{number:06}"),
            Name::Missing => "not there.tmp".into(),
            Name::Recorded(id) => self.script.name(id).into(),
        }
    }

    fn below(&self, name: &str) -> String {
        match name {
            "" => self.folder.clone(),
            name => format!("{}\\{name}", self.folder),
        }
    }

    pub(super) fn path(&self, name: Name) -> String {
        self.below(&self.text(name))
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Requests that were sent so far; one of more than 64 KiB counts for several.
    pub fn sent(&self) -> u64 {
        self.tree.client().connection().core().next_message_id().0
    }

    /// The bytes of a file, as they are written.
    pub(super) fn content(&self, name: Name, offset: u64, length: u32) -> &[u8] {
        self.content.of(name, offset, length as usize)
    }

    /// Whether a READ has returned the bytes of a file.
    pub(super) fn check(
        &self,
        name: Name,
        offset: u64,
        length: u32,
        got: &[u8],
    ) -> Result<(), LoadError> {
        check_length(got.len(), length as usize)?;
        let is_same = self.content.is(got, name, offset);
        check_same(is_same, || self.path(name), offset / PAGE as u64)
    }

    /// Carries out one operation and waits for its answer, which must be that of a correct server.
    pub fn perform(&mut self, operation: &Operation) -> Result<(), LoadError> {
        self.perform_as_recorded(operation, operation.wanted())
    }

    /// The same with the answer that was recorded.
    pub(super) fn perform_as_recorded(
        &mut self,
        operation: &Operation,
        wanted: Status,
    ) -> Result<(), LoadError> {
        let done = match *operation {
            Operation::Create {
                name,
                disposition,
                options,
                handle,
            } => {
                let args = CreateArgs::new(&self.path(name), disposition).options(options);
                return self.create(name, handle, &args, wanted);
            }
            Operation::Close { handle } => {
                let (_, file) = self.open.remove(&handle).ok_or(LoadError::NotOpen)?;
                file.close()
            }
            Operation::PathInfo { name, tag } => {
                let class = match tag {
                    true => FileInformationClass::ATTRIBUTE_TAG,
                    false => FileInformationClass::BASIC,
                };
                return queries::path_info(&self.tree, &self.path(name), class, wanted);
            }
            Operation::Find { name } => {
                let text = self.text(name);
                let (folder, pattern) = text.rsplit_once('\\').unwrap_or(("", &text));
                return queries::find(&self.tree, &self.below(folder), pattern, wanted);
            }
            Operation::Unlink { name } => self.tree.delete(&self.path(name)),
            Operation::Rename { from, to } => {
                let (from, to) = (self.path(from), self.path(to));
                self.tree.rename(&from, &to, false)
            }
            Operation::FsInfo => {
                let class = FsInformationClass::SIZE.0;
                let queried = self.home.query_info(InfoType::FILESYSTEM, class, 0);
                queried.map(|_| ())
            }
            Operation::Read { handle, .. }
            | Operation::Write { handle, .. }
            | Operation::Flush { handle }
            | Operation::FileInfo { handle }
            | Operation::SetInfo { handle }
            | Operation::Lock { handle, .. }
            | Operation::Unlock { handle, .. } => {
                let (name, file) = self.open.get(&handle).ok_or(LoadError::NotOpen)?;
                return self.on_file(*name, file, operation);
            }
        };
        done.map_err(refused(operation.kind().name()))
    }

    fn on_file(&self, name: Name, file: &File, operation: &Operation) -> Result<(), LoadError> {
        let named = refused(operation.kind().name());
        match *operation {
            Operation::Read { offset, length, .. } => {
                let data = file.read(offset, length).map_err(named)?;
                return self.check(name, offset, length, &data);
            }
            Operation::Write { offset, length, .. } => {
                let data = self.content(name, offset, length);
                let written = file.write(offset, data, WriteFlags::empty());
                written.and_then(|written| check_written(written, data.len()))
            }
            Operation::Flush { .. } => file.flush(false),
            Operation::SetInfo { .. } => queries::set_info(file),
            Operation::Lock { offset, length, .. } => {
                // Only this client opens the file, and it holds no lock on these bytes.
                let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
                file.lock(offset, length, flags)
            }
            Operation::Unlock { offset, length, .. } => file.unlock(offset, length),
            _ => file.query(FileInformationClass::STANDARD).map(|_| ()),
        }
        .map_err(named)
    }

    fn create(
        &mut self,
        name: Name,
        handle: Handle,
        args: &CreateArgs,
        wanted: Status,
    ) -> Result<(), LoadError> {
        let got = match self.tree.create(args) {
            Ok(file) => {
                // A load file may name a handle anew.
                if let Some((_, old)) = self.open.insert(handle, (name, file)) {
                    old.close().map_err(refused("close"))?;
                }
                Status::SUCCESS
            }
            Err(ClientError::Status(status)) => status,
            Err(other) => return Err(refused("create")(other)),
        };
        queries::expect("create", got, wanted)
    }

    /// Closes everything and deletes the folder.
    pub(super) fn empty(&mut self) -> Result<(), ClientError> {
        for (_, (_, file)) in std::mem::take(&mut self.open) {
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
