//! A request before it is sent: its body, its destination, and its deliberate errors.
//!
//! The message is built with space for its header, which the core fills in when it sends the
//! request: ids, credits, flags and signature are known only then. [`Overrides`] exist for tests of
//! servers.

use bytes::BytesMut;
use smb_wire::fscc::{FileInformationClass, FileRenameInformation};
use smb_wire::fsctl::{CopyChunk, CopyChunkCopy, FsctlCode, RequestResumeKeyResponse};
use smb_wire::header::{Header, HeaderFlags};
use smb_wire::ids::{AsyncId, FileId, MessageId, SessionId, TreeId};
use smb_wire::{Command, msg, utf16};

use crate::error::ClientError;

pub trait RequestBody {
    const COMMAND: Command;

    /// Appends the body; `start` is the position of the header in `out`.
    fn encode(&self, out: &mut BytesMut, start: usize);

    /// The larger payload of request and response in bytes, for which credits are charged.
    fn payload(&self) -> usize {
        0
    }
}

macro_rules! bodies {
    ($( $ty:ty => $command:ident $(, |$body:ident| $payload:expr)? ; )*) => { $(
        impl RequestBody for $ty {
            const COMMAND: Command = Command::$command;
            fn encode(&self, out: &mut BytesMut, start: usize) {
                self.encode(out, start);
            }
            $( fn payload(&self) -> usize { let $body = self; $payload } )?
        }
    )* };
}

/// A 32-bit length as bytes.
const fn bytes(len: u32) -> usize {
    smb_wire::codec::size(len)
}

bodies! {
    msg::NegotiateRequest<'_> => NEGOTIATE;
    msg::SessionSetupRequest<'_> => SESSION_SETUP;
    msg::LogoffRequest => LOGOFF;
    msg::TreeConnectRequest<'_> => TREE_CONNECT;
    msg::TreeDisconnectRequest => TREE_DISCONNECT;
    msg::CreateRequest<'_> => CREATE;
    msg::CloseRequest => CLOSE;
    msg::FlushRequest => FLUSH;
    msg::ReadRequest<'_> => READ, |b| bytes(b.length);
    msg::WriteRequest<'_> => WRITE, |b| b.data.len();
    msg::LockRequest => LOCK;
    msg::IoctlRequest<'_> => IOCTL, |b| (b.input.len())
        .max(bytes(b.max_input_response).saturating_add(bytes(b.max_output_response)));
    msg::CancelRequest => CANCEL;
    msg::EchoRequest => ECHO;
    msg::QueryDirectoryRequest<'_> => QUERY_DIRECTORY, |b| bytes(b.output_buffer_length);
    msg::ChangeNotifyRequest => CHANGE_NOTIFY, |b| bytes(b.output_buffer_length);
    msg::QueryInfoRequest<'_> => QUERY_INFO, |b| b.input.len().max(bytes(b.output_buffer_length));
    msg::SetInfoRequest<'_> => SET_INFO, |b| b.buffer.len();
    msg::OplockBreak => OPLOCK_BREAK;
    msg::LeaseBreak => OPLOCK_BREAK;
}

/// Differences from the request of a correct client.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Use this MessageId, and none of the window.
    pub message_id: Option<MessageId>,
    /// Write this CreditCharge into the header; the window advances by the right one.
    pub credit_charge: Option<u16>,
    /// Ask for this many credits.
    pub credits: Option<u16>,
    /// Send although there are no credits left.
    pub ignore_credits: bool,
    /// Sign, or do not, regardless of the session's default.
    pub sign: Option<bool>,
    /// Encrypt, or do not, regardless of the session's default.
    pub encrypt: Option<bool>,
    /// Corrupt the signature after signing, or the tag after encryption.
    pub corrupt_signature: bool,
    /// Write this NextCommand, instead of the distance to the next element.
    pub next_command: Option<u32>,
    /// Write this into the header's Reserved field ([MS-SMB2] 2.2.1.2).
    pub reserved: u32,
    /// Write this SessionId into the transform header of an encrypted message.
    pub transform_session_id: Option<SessionId>,
}

#[derive(Debug, Clone)]
#[must_use]
pub struct Request {
    /// 64 bytes for the header, then the body.
    pub(crate) message: BytesMut,
    pub(crate) payload: usize,
    pub command: Command,
    pub session_id: SessionId,
    pub tree_id: TreeId,
    /// Flags beyond those that signing sets.
    pub flags: HeaderFlags,
    /// The asynchronous request that a CANCEL names.
    pub async_id: Option<AsyncId>,
    /// ChannelSequence, 3.x only.
    pub channel_sequence: u16,
    /// Deliberate errors.
    pub overrides: Overrides,
}

impl Request {
    /// Creates a request with this body, without a session and a tree.
    pub fn new<B: RequestBody>(body: &B) -> Self {
        let mut message = BytesMut::zeroed(Header::SIZE);
        body.encode(&mut message, 0);
        Self::of(B::COMMAND, message, body.payload())
    }

    /// Creates a request of any command with any bytes as its body.
    pub fn raw(command: Command, body: &[u8]) -> Self {
        let mut message = BytesMut::zeroed(Header::SIZE);
        message.extend_from_slice(body);
        Self::of(command, message, 0)
    }

    /// Creates a SESSION_SETUP with this security token, which binds and replaces no session.
    pub fn session_setup(security_buffer: &[u8]) -> Self {
        Self::new(&msg::SessionSetupRequest {
            flags: msg::SessionSetupFlags::empty(),
            security_mode: msg::SecurityMode::SIGNING_ENABLED,
            capabilities: msg::Capabilities::empty(),
            previous_session_id: SessionId(0),
            security_buffer,
        })
    }

    /// Creates a TREE_CONNECT to `\\server\share`.
    pub fn tree_connect(path: &str) -> Self {
        Self::new(&msg::TreeConnectRequest {
            flags: msg::TreeConnectFlags::empty(),
            path: &utf16::encode(path),
        })
    }

    /// Creates a CLOSE that asks for no attributes.
    pub fn close(file_id: FileId) -> Self {
        Self::new(&msg::CloseRequest {
            flags: msg::CloseFlags::empty(),
            file_id,
        })
    }

    pub fn flush(file_id: FileId) -> Self {
        Self::new(&msg::FlushRequest {
            reserved: 0,
            file_id,
        })
    }

    /// Creates a READ that is content with fewer bytes.
    pub fn read(file_id: FileId, offset: u64, length: u32) -> Self {
        Self::read_at_least(file_id, offset, length, 0)
    }

    pub(crate) fn read_at_least(file_id: FileId, offset: u64, length: u32, minimum: u32) -> Self {
        Self::new(&msg::ReadRequest {
            padding: 0x50,
            flags: msg::ReadFlags::empty(),
            length,
            offset,
            file_id,
            minimum_count: minimum,
            channel: msg::Channel::NONE,
            remaining_bytes: 0,
            channel_info: &[],
        })
    }

    pub fn write(file_id: FileId, offset: u64, data: &[u8], flags: msg::WriteFlags) -> Self {
        Self::new(&msg::WriteRequest {
            offset,
            file_id,
            channel: msg::Channel::NONE,
            remaining_bytes: 0,
            flags,
            channel_info: &[],
            data,
        })
    }

    /// Creates an IOCTL with an FSCTL; `max` limits the output.
    pub fn ioctl(file_id: FileId, code: FsctlCode, input: &[u8], max: u32) -> Self {
        Self::new(&msg::IoctlRequest {
            ctl_code: code.0,
            file_id,
            input,
            max_input_response: 0,
            output_count: 0,
            max_output_response: max,
            flags: msg::IoctlFlags::IS_FSCTL,
        })
    }

    /// Creates a QUERY_DIRECTORY; `max` limits the answer.
    pub fn query_directory(
        file_id: FileId,
        class: FileInformationClass,
        pattern: &str,
        flags: msg::QueryDirectoryFlags,
        max: u32,
    ) -> Self {
        Self::new(&msg::QueryDirectoryRequest {
            info_class: class.0,
            flags,
            file_index: 0,
            file_id,
            pattern: &utf16::encode(pattern),
            output_buffer_length: max,
        })
    }

    /// Creates a QUERY_INFO; `max` limits the answer.
    pub fn query_info(
        file_id: FileId,
        info_type: msg::InfoType,
        info_class: u8,
        additional: u32,
        max: u32,
    ) -> Self {
        Self::new(&msg::QueryInfoRequest {
            info_type,
            info_class,
            output_buffer_length: max,
            additional_information: additional,
            flags: msg::QueryInfoFlags::empty(),
            file_id,
            input: &[],
        })
    }

    pub fn set_info(
        file_id: FileId,
        info_type: msg::InfoType,
        info_class: u8,
        additional: u32,
        buffer: &[u8],
    ) -> Self {
        Self::new(&msg::SetInfoRequest {
            info_type,
            info_class,
            additional_information: additional,
            file_id,
            buffer,
        })
    }

    /// Creates a SET_INFO that renames a file.
    pub fn rename(file_id: FileId, to: &str, replace: bool) -> Self {
        let mut buffer = BytesMut::new();
        FileRenameInformation {
            replace_if_exists: replace,
            root_directory: 0,
            file_name: to.to_owned(),
        }
        .encode(&mut buffer);
        let class = FileInformationClass::RENAME.0;
        Self::set_info(file_id, msg::InfoType::FILE, class, 0, &buffer)
    }

    /// Encodes the input of a SRV_COPYCHUNK ([MS-SMB2] 2.2.31.1) from the answer to SRV_REQUEST_RESUME_KEY; each chunk
    /// is the position in the source, the position in the target and the length.
    ///
    /// # Errors
    /// An answer without a key.
    pub fn copy_chunks(key: &[u8], chunks: &[(u64, u64, u32)]) -> Result<BytesMut, ClientError> {
        let chunk = |&(source_offset, target_offset, length): &(u64, u64, u32)| CopyChunk {
            source_offset,
            target_offset,
            length,
        };
        let mut input = BytesMut::new();
        CopyChunkCopy {
            source_key: RequestResumeKeyResponse::read(key)?.resume_key,
            chunk_count: u32::try_from(chunks.len()).unwrap_or(u32::MAX),
            chunks: chunks.iter().map(chunk).collect(),
        }
        .encode(&mut input);
        Ok(input)
    }

    fn of(command: Command, message: BytesMut, payload: usize) -> Self {
        Self {
            message,
            payload,
            command,
            session_id: SessionId(0),
            tree_id: TreeId(0),
            flags: HeaderFlags::empty(),
            async_id: None,
            channel_sequence: 0,
            overrides: Overrides::default(),
        }
    }

    pub fn session(mut self, session_id: SessionId) -> Self {
        self.session_id = session_id;
        self
    }

    pub fn tree(mut self, tree_id: TreeId) -> Self {
        self.tree_id = tree_id;
        self
    }

    pub fn flag(mut self, flags: HeaderFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Marks the request as related to the element before it in a compound.
    pub fn related(self) -> Self {
        self.flag(HeaderFlags::RELATED)
    }

    pub fn overriding(mut self, change: impl FnOnce(&mut Overrides)) -> Self {
        change(&mut self.overrides);
        self
    }

    /// Changes the message directly: the body begins at byte 64; the bytes before it are
    /// overwritten when the request is sent. The message does not become shorter than the header.
    pub fn mutate(mut self, change: impl FnOnce(&mut BytesMut)) -> Self {
        change(&mut self.message);
        if self.message.len() < Header::SIZE {
            self.message.resize(Header::SIZE, 0);
        }
        self
    }

    /// The message, with a blank header.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Returns the number of credits charged on a dialect with multi-credit requests ([MS-SMB2]
    /// 3.1.5.2).
    pub(crate) fn charge(&self) -> u16 {
        const CREDIT_BYTES: usize = 65_536;
        u16::try_from(self.payload.div_ceil(CREDIT_BYTES).max(1)).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(length: u32) -> Request {
        Request::read(FileId::ANY, 0, length)
    }

    #[test]
    fn every_64_kib_are_charged_a_credit() {
        for (length, charge) in [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (1 << 20, 16)] {
            assert_eq!(read(length).charge(), charge, "{length}");
        }
    }

    #[test]
    fn bodies_follow_a_blank_header() {
        let request = read(7);
        assert_eq!(request.command, Command::READ);
        assert_eq!(request.message()[..64], [0; 64]);
        assert_eq!(request.message()[64..66], [49, 0]);
        assert_eq!(request.mutate(|m| m.truncate(3)).message().len(), 64);
    }
}
