//! An open file or directory.
//!
//! The plain calls return a status of the server as an error; the `*_request` functions build the
//! same request for pipelining, compounds and tests.

use bytes::BytesMut;
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::fscc::{
    DirectoryEntries, DirectoryFormat, FileInformationClass, FileNotifyEntry, OwnedDirectoryEntry,
    read_notify_list,
};
use smb_wire::fsctl::FsctlCode;
use smb_wire::ids::{FileId, LeaseKey, MessageId};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse, CloseFlags, CloseRequest,
    CloseResponse, FlushRequest, InfoType, IoctlResponse, LeaseBreak, LockElement, LockFlags,
    LockRequest, NotifyFilter, OplockBreak, OplockLevel, QueryDirectoryFlags,
    QueryDirectoryResponse, QueryInfoResponse, ReadResponse, WriteFlags, WriteResponse,
};

use crate::core::Reply;
use crate::create::Created;
use crate::error::ClientError;
use crate::request::Request;
use crate::tree::Tree;

/// Longest buffer requested by directory and information queries, in bytes.
const QUERY_BYTES: u32 = 65_536;
/// Longest READ or WRITE that `read_all` and `write_all` send, in bytes.
const PIECE_BYTES: u32 = 1 << 20;

/// An open of a file, stream or directory.
///
/// # Errors
/// Where a function says nothing else: the server's status, or any other error.
#[derive(Clone, Debug)]
pub struct File {
    tree: Tree,
    created: Created,
}

impl File {
    pub(crate) fn new(tree: Tree, created: Created) -> Self {
        Self { tree, created }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn id(&self) -> FileId {
        self.created.file_id
    }

    pub fn created(&self) -> &Created {
        &self.created
    }

    /// Returns the same open for use through another tree (or another session's).
    pub fn through(&self, tree: &Tree) -> Self {
        Self {
            tree: tree.clone(),
            created: self.created.clone(),
        }
    }

    pub fn read_request(&self, offset: u64, length: u32, minimum: u32) -> Request {
        Request::read_at_least(self.id(), offset, length, minimum)
    }

    /// Reads up to `length` bytes.
    ///
    /// # Errors
    /// The server's status (END_OF_FILE beyond the end), or any other error.
    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, ClientError> {
        let reply = self.tree.call(self.read_request(offset, length, 0))?;
        Ok(ReadResponse::read(&reply.message)?.data.to_vec())
    }

    pub fn read_all(&self) -> Result<Vec<u8>, ClientError> {
        let piece = PIECE_BYTES.min(self.tree.client().negotiated().max_read_size);
        let mut data = Vec::new();
        loop {
            let at = u64::try_from(data.len()).unwrap_or(u64::MAX);
            match self.read(at, piece) {
                Ok(more) if more.is_empty() => return Ok(data),
                Ok(more) => data.extend_from_slice(&more),
                Err(ClientError::Status(Status::END_OF_FILE)) => return Ok(data),
                Err(other) => return Err(other),
            }
        }
    }

    pub fn write_request(&self, offset: u64, data: &[u8], flags: WriteFlags) -> Request {
        Request::write(self.id(), offset, data, flags)
    }

    pub fn write(&self, offset: u64, data: &[u8], flags: WriteFlags) -> Result<u32, ClientError> {
        let reply = self.tree.call(self.write_request(offset, data, flags))?;
        Ok(WriteResponse::read(&reply.message)?.count)
    }

    /// Writes all of `data` in pieces.
    pub fn write_all(&self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        let piece = PIECE_BYTES.min(self.tree.client().negotiated().max_write_size);
        let mut at = offset;
        for part in data.chunks(smb_wire::codec::size(piece.max(1))) {
            let written = self.write(at, part, WriteFlags::empty())?;
            let is_short = smb_wire::codec::size(written) != part.len();
            ClientError::Protocol("short WRITE").when(is_short)?;
            at += u64::from(written);
        }
        Ok(())
    }

    /// Builds a FLUSH of this file; `full_sync` requests Apple's F_FULLFSYNC.
    pub fn flush_request(&self, full_sync: bool) -> Request {
        Request::new(&FlushRequest {
            reserved: if full_sync {
                FlushRequest::FULL_SYNC
            } else {
                0
            },
            file_id: self.id(),
        })
    }

    pub fn flush(&self, full_sync: bool) -> Result<(), ClientError> {
        self.tree.call(self.flush_request(full_sync)).map(|_| ())
    }

    pub fn close_request(&self, flags: CloseFlags) -> Request {
        Request::new(&CloseRequest {
            flags,
            file_id: self.id(),
        })
    }

    pub fn close(&self) -> Result<(), ClientError> {
        self.close_with(CloseFlags::empty()).map(|_| ())
    }

    pub fn close_with(&self, flags: CloseFlags) -> Result<CloseResponse, ClientError> {
        let reply = self.tree.call(self.close_request(flags))?;
        Ok(CloseResponse::read(&reply.message)?)
    }

    pub fn lock_request(&self, lock_sequence: u32, locks: &[LockElement]) -> Request {
        Request::new(&LockRequest {
            lock_sequence,
            file_id: self.id(),
            locks: locks.to_vec(),
        })
    }

    pub fn lock(&self, offset: u64, length: u64, flags: LockFlags) -> Result<(), ClientError> {
        let element = LockElement {
            offset,
            length,
            flags,
        };
        self.tree.call(self.lock_request(0, &[element])).map(|_| ())
    }

    pub fn unlock(&self, offset: u64, length: u64) -> Result<(), ClientError> {
        self.lock(offset, length, LockFlags::UNLOCK)
    }

    /// Queries information of any type.
    ///
    /// # Errors
    /// The server's status (including BUFFER_OVERFLOW), or any other error.
    pub fn query_info(
        &self,
        info_type: InfoType,
        info_class: u8,
        additional: u32,
    ) -> Result<Vec<u8>, ClientError> {
        let request =
            Request::query_info(self.id(), info_type, info_class, additional, QUERY_BYTES);
        let reply = self.tree.call(request)?;
        Ok(QueryInfoResponse::read(&reply.message)?.buffer.to_vec())
    }

    pub fn query(&self, class: FileInformationClass) -> Result<Vec<u8>, ClientError> {
        self.query_info(InfoType::FILE, class.0, 0)
    }

    pub fn set_info_request(
        &self,
        info_type: InfoType,
        info_class: u8,
        additional: u32,
        buffer: &[u8],
    ) -> Request {
        Request::set_info(self.id(), info_type, info_class, additional, buffer)
    }

    pub fn set(&self, class: FileInformationClass, buffer: &[u8]) -> Result<(), ClientError> {
        let request = self.set_info_request(InfoType::FILE, class.0, 0, buffer);
        self.tree.call(request).map(|_| ())
    }

    pub fn set_end_of_file(&self, end: u64) -> Result<(), ClientError> {
        self.set(FileInformationClass::END_OF_FILE, &end.to_le_bytes())
    }

    pub fn set_delete(&self, delete: bool) -> Result<(), ClientError> {
        self.set(FileInformationClass::DISPOSITION, &[u8::from(delete)])
    }

    pub fn rename(&self, to: &str, replace: bool) -> Result<(), ClientError> {
        self.tree
            .call(Request::rename(self.id(), to, replace))
            .map(|_| ())
    }

    /// Returns the next entries of a directory as raw bytes.
    ///
    /// # Errors
    /// The server's status (including NO_MORE_FILES and NO_SUCH_FILE), or any other error.
    pub fn query_directory(
        &self,
        class: FileInformationClass,
        pattern: &str,
        flags: QueryDirectoryFlags,
        max: u32,
    ) -> Result<Vec<u8>, ClientError> {
        let request = Request::query_directory(self.id(), class, pattern, flags, max);
        let reply = self.tree.call(request)?;
        Ok(QueryDirectoryResponse::read(&reply.message)?
            .buffer
            .to_vec())
    }

    /// Returns all entries of a directory that match a pattern, from the start.
    ///
    /// # Errors
    /// The server's status (NO_SUCH_FILE if none matches), or any other error.
    pub fn list(&self, pattern: &str) -> Result<Vec<OwnedDirectoryEntry>, ClientError> {
        const CLASS: FileInformationClass = FileInformationClass::ID_BOTH_DIRECTORY;
        let format = DirectoryFormat::of(CLASS).ok_or(ClientError::Usage("no directory class"))?;
        let mut entries = Vec::new();
        let mut flags = QueryDirectoryFlags::RESTART_SCANS;
        loop {
            match self.query_directory(CLASS, pattern, flags, QUERY_BYTES) {
                Ok(bytes) => {
                    for entry in DirectoryEntries::new(format, &bytes) {
                        entries.push(entry?);
                    }
                }
                Err(ClientError::Status(Status::NO_MORE_FILES)) => return Ok(entries),
                Err(other) => return Err(other),
            }
            flags = QueryDirectoryFlags::empty();
        }
    }

    /// Builds an FSCTL on this file; `max` limits the output.
    pub fn ioctl_request(&self, code: FsctlCode, input: &[u8], max: u32) -> Request {
        Request::ioctl(self.id(), code, input, max)
    }

    pub fn ioctl(&self, code: FsctlCode, input: &[u8], max: u32) -> Result<Vec<u8>, ClientError> {
        let reply = self.tree.call(self.ioctl_request(code, input, max))?;
        Ok(IoctlResponse::read(&reply.message)?.output.to_vec())
    }

    /// Returns the input of a SRV_COPYCHUNK that copies these chunks of this file; see [`Request::copy_chunks`].
    pub fn copy_chunks(&self, chunks: &[(u64, u64, u32)]) -> Result<BytesMut, ClientError> {
        let key = self.ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32)?;
        Request::copy_chunks(&key, chunks)
    }

    /// Requests change notifications of this directory, without waiting; see [`File::changes`].
    pub fn notify(
        &self,
        filter: NotifyFilter,
        flags: ChangeNotifyFlags,
        max: u32,
    ) -> Result<MessageId, ClientError> {
        self.tree.send(Request::new(&ChangeNotifyRequest {
            flags,
            output_buffer_length: max,
            file_id: self.id(),
            completion_filter: filter,
        }))
    }

    /// Decodes the changes in a reply to CHANGE_NOTIFY; empty for NOTIFY_ENUM_DIR.
    pub fn changes(&self, reply: Reply) -> Result<Vec<FileNotifyEntry>, ClientError> {
        let reply = reply.ok()?;
        let body = ChangeNotifyResponse::read(&reply.message)?;
        if body.buffer.is_empty() {
            return Ok(Vec::new());
        }
        Ok(read_notify_list(body.buffer)?)
    }

    pub fn acknowledge_oplock(&self, level: OplockLevel) -> Result<(), ClientError> {
        self.tree
            .call(Request::new(&OplockBreak {
                oplock_level: level,
                file_id: self.id(),
            }))
            .map(|_| ())
    }
}

impl Tree {
    pub fn acknowledge_lease(&self, key: LeaseKey, state: LeaseState) -> Result<(), ClientError> {
        self.call(Request::new(&LeaseBreak {
            lease_key: key,
            lease_state: state,
        }))
        .map(|_| ())
    }
}
