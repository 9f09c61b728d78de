//! Carries out the operations of the mix as a client that caches.
//!
//! This is what NetBench measured: the redirector of Windows stood between its programs and the server. The
//! data of open files go through the cache; names that do not exist, searches, locks and attributes are asked of the
//! server as a client without a cache does.

use std::collections::HashMap;

use smb_wire::msg::{CreateDisposition, CreateOptions};

use super::{
    client::Client,
    files::OPEN_AT_START,
    operation::{Handle, Name, Operation},
    queries,
};
use crate::{LoadError, error::refused, redirector::Redirector};

pub struct CachingClient {
    /// Prepared the folder, and asks what is not cached.
    plain: Client,
    files: Redirector,
    open: HashMap<Handle, Name>,
}

impl CachingClient {
    /// Takes over the folder and the open files of a client that has just prepared them.
    pub fn new(plain: Client) -> Result<Self, LoadError> {
        let mut this = Self {
            files: Redirector::new(plain.tree().clone()),
            plain,
            open: HashMap::new(),
        };
        for handle in 0..OPEN_AT_START {
            this.plain.perform(&Operation::Close { handle })?;
            this.perform(&Operation::Create {
                name: Name::Old(handle),
                disposition: CreateDisposition::OPEN,
                options: CreateOptions::empty(),
                handle,
            })?;
        }
        Ok(this)
    }

    /// Requests that were sent so far; one of more than 64 KiB counts for several.
    pub fn sent(&self) -> u64 {
        self.files.sent()
    }

    /// Writes and closes everything that the cache has held back.
    pub fn settle(&mut self) -> Result<(), LoadError> {
        for (_, name) in std::mem::take(&mut self.open) {
            let path = self.plain.path(name);
            self.files.close(&path).map_err(refused("close"))?;
        }
        self.files.settle().map_err(refused("close"))
    }

    /// Carries out one operation.
    pub fn perform(&mut self, operation: &Operation) -> Result<(), LoadError> {
        let named = refused(operation.kind().name());
        match *operation {
            Operation::Create {
                name,
                disposition,
                handle,
                ..
            } if name != Name::Missing => {
                let path = self.plain.path(name);
                self.files.open(&path, disposition).map_err(named)?;
                self.open.insert(handle, name);
                Ok(())
            }
            Operation::PathInfo { name, .. } if self.files.knows(&self.plain.path(name)) => Ok(()),
            Operation::Create { .. }
            | Operation::PathInfo { .. }
            | Operation::Find { .. }
            | Operation::FsInfo => self.plain.perform(operation),
            Operation::Unlink { name } => self.files.delete(&self.plain.path(name)).map_err(named),
            Operation::Rename { from, to } => {
                let (from, to) = (self.plain.path(from), self.plain.path(to));
                self.files.rename(&from, &to).map_err(named)
            }
            Operation::Close { handle } => {
                let name = self.open.remove(&handle).ok_or(LoadError::NotOpen)?;
                self.files.close(&self.plain.path(name)).map_err(named)
            }
            Operation::Read { handle, .. }
            | Operation::Write { handle, .. }
            | Operation::FileInfo { handle }
            | Operation::SetInfo { handle }
            | Operation::Flush { handle }
            | Operation::Lock { handle, .. }
            | Operation::Unlock { handle, .. } => {
                let name = *self.open.get(&handle).ok_or(LoadError::NotOpen)?;
                self.on_file(name, operation)
            }
        }
    }

    fn on_file(&mut self, name: Name, operation: &Operation) -> Result<(), LoadError> {
        let named = refused(operation.kind().name());
        let path = &self.plain.path(name);
        let files = &mut self.files;
        match *operation {
            Operation::Read { offset, length, .. } => {
                let data = files.read(path, offset, length).map_err(named)?;
                self.plain.check(name, offset, length, &data)
            }
            Operation::Write { offset, length, .. } => {
                let data = self.plain.content(name, offset, length);
                files.write(path, offset, data).map_err(named)
            }
            Operation::Flush { .. } => files.flush(path).map_err(named),
            Operation::Lock { offset, length, .. } => {
                files.lock(path, offset, length).map_err(named)
            }
            Operation::Unlock { offset, length, .. } => {
                files.unlock(path, offset, length).map_err(named)
            }
            Operation::SetInfo { .. } => {
                files.file(path).and_then(queries::set_info).map_err(named)
            }
            _ => files.size(path).map(|_| ()).map_err(named),
        }
    }
}
