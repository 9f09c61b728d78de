//! Carries out the operations of the mix over one connection.

use std::collections::HashMap;

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    Status,
    fscc::{FileInformationClass, FsInformationClass},
    msg::{InfoType, LockFlags},
};

use super::{
    content::{Content, LONGEST},
    files::{OPEN_AT_START, STOCK, document_bytes},
    operation::{Handle, Name, Operation},
    queries,
};
use crate::{
    LoadError,
    error::{check_length, check_same, refused},
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
    open: HashMap<Handle, (Name, File)>,
    content: Content,
}

impl Client {
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
            let mut this = Self {
                tree,
                folder: folder.to_owned(),
                home,
                open: HashMap::new(),
                content: Content::new(LONGEST),
            };
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

    pub(super) fn path(&self, name: Name) -> String {
        format!("{}\\{}", self.folder, name.text())
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Requests that were sent so far; one of more than 64 KiB counts for several.
    pub fn sent(&self) -> u64 {
        self.tree.client().connection().core().next_message_id().0
    }

    fn opened(&self, handle: Handle) -> Result<&(Name, File), LoadError> {
        self.open.get(&handle).ok_or(LoadError::NotOpen)
    }

    fn file(&self, handle: Handle) -> Result<&File, LoadError> {
        self.opened(handle).map(|(_, file)| file)
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

    /// Carries out one operation and waits for its answer.
    pub fn perform(&mut self, operation: &Operation) -> Result<(), LoadError> {
        let named = refused(operation.kind().name());
        match *operation {
            Operation::Read {
                handle,
                offset,
                length,
            } => {
                let (name, file) = self.opened(handle)?;
                let data = file.read(offset, length).map_err(named)?;
                self.check(*name, offset, length, &data)?;
            }
            Operation::Write {
                handle,
                offset,
                length,
            } => {
                let (name, file) = self.opened(handle)?;
                let data = self.content(*name, offset, length);
                file.write_all(offset, data).map_err(named)?;
            }
            Operation::Flush { handle } => self.file(handle)?.flush(false).map_err(named)?,
            Operation::Create { name, handle, new } => return self.create(name, handle, new),
            Operation::Close { handle } => {
                let (_, file) = self.open.remove(&handle).ok_or(LoadError::NotOpen)?;
                file.close().map_err(named)?;
            }
            Operation::PathInfo { name, tag } => return self.path_info(name, tag),
            Operation::Find { name } => return self.find(name),
            Operation::Unlink { name } => self.tree.delete(&self.path(name)).map_err(named)?,
            Operation::Rename { from, to } => {
                let renamed = self.tree.rename(&self.path(from), &self.path(to), false);
                renamed.map_err(named)?;
            }
            Operation::FsInfo => {
                let class = FsInformationClass::SIZE.0;
                let queried = self.home.query_info(InfoType::FILESYSTEM, class, 0);
                queried.map_err(named)?;
            }
            Operation::FileInfo { handle } => {
                let queried = self.file(handle)?.query(FileInformationClass::STANDARD);
                queried.map_err(named)?;
            }
            Operation::SetInfo { handle } => {
                queries::set_info(self.file(handle)?).map_err(named)?
            }
            Operation::Lock { handle } => {
                // Only this client opens the file, and it holds no other lock.
                let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
                self.file(handle)?.lock(0, 1, flags).map_err(named)?;
            }
            Operation::Unlock { handle } => self.file(handle)?.unlock(0, 1).map_err(named)?,
        }
        Ok(())
    }

    fn create(&mut self, name: Name, handle: Handle, new: bool) -> Result<(), LoadError> {
        let path = self.path(name);
        let named = refused("create");
        if name == Name::Missing {
            let status = self.tree.create_status(&CreateArgs::open(&path));
            let status = status.map_err(named)?;
            return queries::expect("create", status, Status::OBJECT_NAME_NOT_FOUND);
        }
        let args = match new {
            true => CreateArgs::create(&path),
            false => CreateArgs::open(&path),
        };
        let file = self.tree.create(&args).map_err(named)?;
        self.open.insert(handle, (name, file));
        Ok(())
    }

    fn path_info(&self, name: Name, tag: bool) -> Result<(), LoadError> {
        let class = match tag {
            true => FileInformationClass::ATTRIBUTE_TAG,
            false => FileInformationClass::BASIC,
        };
        let wanted = match name {
            Name::Missing => Status::OBJECT_NAME_NOT_FOUND,
            _ => Status::SUCCESS,
        };
        queries::path_info(&self.tree, &self.path(name), class, wanted)
    }

    fn find(&self, name: Name) -> Result<(), LoadError> {
        let wanted = match name {
            Name::Missing => Status::NO_SUCH_FILE,
            _ => Status::SUCCESS,
        };
        queries::find(&self.tree, &self.folder, &name.text(), wanted)
    }
}
