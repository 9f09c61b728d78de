//! CREATE ([MS-SMB2] 2.2.13, 2.2.14): opening and creating files, with the create contexts as a raw
//! list.
//!
//! The name is raw UTF-16LE, relative to the share, and may be empty (the root). No value is
//! refused here for its meaning: the server decides about dispositions above 5 and undefined
//! options.

use bytes::{BufMut, BytesMut};

use crate::access_mask::AccessMask;
use crate::codec::{Buffer, Malformed, Patch, Reader, fitting_u16, offset_u16, pad_to};
use crate::create_context::CreateContexts;
use crate::file_attributes::FileAttributes;
use crate::fscc::FileFacts;
use crate::ids::FileId;

enum_of_the_wire! {
    /// An oplock level: requested, granted or broken to.
    pub struct OplockLevel(u8) {
        NONE = 0x00,
        II = 0x01,
        EXCLUSIVE = 0x08,
        BATCH = 0x09,
        LEASE = 0xff,
    }

    /// The impersonation level: how far the server may act in the client's name.
    pub struct ImpersonationLevel(u32) {
        ANONYMOUS = 0,
        IDENTIFICATION = 1,
        IMPERSONATION = 2,
        DELEGATE = 3,
    }
}

flags_of_the_wire! {
    /// The access that other opens may have at the same time.
    pub struct ShareAccess(u32) {
        READ = 0x0000_0001,
        WRITE = 0x0000_0002,
        DELETE = 0x0000_0004,
    }
}

enum_of_the_wire! {
    /// The action if the file exists, and if it does not.
    pub struct CreateDisposition(u32) {
        SUPERSEDE = 0,
        OPEN = 1,
        CREATE = 2,
        OPEN_IF = 3,
        OVERWRITE = 4,
        OVERWRITE_IF = 5,
    }

    /// The action that CREATE has taken.
    pub struct CreateAction(u32) {
        SUPERSEDED = 0,
        OPENED = 1,
        CREATED = 2,
        OVERWRITTEN = 3,
    }
}

flags_of_the_wire! {
    /// Options of an open.
    pub struct CreateOptions(u32) {
        DIRECTORY_FILE = 0x0000_0001,
        WRITE_THROUGH = 0x0000_0002,
        SEQUENTIAL_ONLY = 0x0000_0004,
        NO_INTERMEDIATE_BUFFERING = 0x0000_0008,
        SYNCHRONOUS_IO_ALERT = 0x0000_0010,
        SYNCHRONOUS_IO_NONALERT = 0x0000_0020,
        NON_DIRECTORY_FILE = 0x0000_0040,
        TREE_CONNECTION = 0x0000_0080,
        COMPLETE_IF_OPLOCKED = 0x0000_0100,
        NO_EA_KNOWLEDGE = 0x0000_0200,
        OPEN_REMOTE_INSTANCE = 0x0000_0400,
        RANDOM_ACCESS = 0x0000_0800,
        DELETE_ON_CLOSE = 0x0000_1000,
        OPEN_BY_FILE_ID = 0x0000_2000,
        OPEN_FOR_BACKUP_INTENT = 0x0000_4000,
        NO_COMPRESSION = 0x0000_8000,
        OPEN_REQUIRING_OPLOCK = 0x0001_0000,
        DISALLOW_EXCLUSIVE = 0x0002_0000,
        RESERVE_OPFILTER = 0x0010_0000,
        OPEN_REPARSE_POINT = 0x0020_0000,
        OPEN_NO_RECALL = 0x0040_0000,
        OPEN_FOR_FREE_SPACE_QUERY = 0x0080_0000,
    }

    /// Flags of the response (3.x).
    pub struct CreateResponseFlags(u8) {
        /// The last component of the path is a reparse point.
        REPARSEPOINT = 0x01,
    }
}

/// The CREATE request ([MS-SMB2] 2.2.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateRequest<'a> {
    /// The requested oplock level.
    pub oplock_level: OplockLevel,
    /// The impersonation level: how far the server may act in the client's name.
    pub impersonation_level: ImpersonationLevel,
    /// The requested access.
    pub desired_access: AccessMask,
    /// The attributes of a file that is created or overwritten.
    pub file_attributes: FileAttributes,
    /// The access that other opens may have at the same time.
    pub share_access: ShareAccess,
    /// The disposition: the action if the file exists, and if it does not.
    pub disposition: CreateDisposition,
    /// Options.
    pub options: CreateOptions,
    /// The name in raw UTF-16LE, relative to the share.
    pub name: &'a [u8],
    /// The create contexts as raw bytes; see `contexts()`.
    pub contexts: &'a [u8],
}

impl<'a> CreateRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 57;

    /// Reads the request, from its SMB2 header on. The contexts are not parsed.
    ///
    /// # Errors
    /// [`Malformed`] when the name or the contexts are outside the message, or the body is shorter than StructureSize.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "CREATE request")?;
        body.skip(1)?;
        let oplock_level = OplockLevel(body.u8()?);
        let impersonation_level = ImpersonationLevel(body.u32()?);
        body.skip(16)?;
        let desired_access = AccessMask(body.u32()?);
        let file_attributes = FileAttributes(body.u32()?);
        let share_access = ShareAccess(body.u32()?);
        let disposition = CreateDisposition(body.u32()?);
        let options = CreateOptions(body.u32()?);
        let (name_offset, name_len) = (body.u16()?, body.u16()?);
        let (contexts_offset, contexts_len) = (body.u32()?, body.u32()?);
        // [MS-SMB2] 3.3.5.9: StructureSize counts a byte of the buffer, which the message therefore has.
        if body.is_empty() {
            return Err(body.malformed());
        }
        Ok(Self {
            oplock_level,
            impersonation_level,
            desired_access,
            file_attributes,
            share_access,
            disposition,
            options,
            name: body.buffer(message, name_offset, name_len)?,
            contexts: body.buffer(message, contexts_offset, contexts_len)?,
        })
    }

    /// Returns an iterator over the create contexts.
    pub const fn contexts(&self) -> CreateContexts<'a> {
        CreateContexts::new(self.contexts)
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (name, name_len) = fitting_u16(self.name);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u8(0);
        out.put_u8(self.oplock_level.0);
        out.put_u32_le(self.impersonation_level.0);
        out.put_bytes(0, 16);
        out.put_u32_le(self.desired_access.bits());
        out.put_u32_le(self.file_attributes.bits());
        out.put_u32_le(self.share_access.bits());
        out.put_u32_le(self.disposition.0);
        out.put_u32_le(self.options.bits());
        let name_offset = Patch::u16(out);
        out.put_u16_le(name_len);
        let contexts = Buffer::reserve(out);
        name_offset.set_u16(out, offset_u16(out, start));
        out.put_slice(name);
        if !self.contexts.is_empty() {
            pad_to(out, start, 8);
            contexts.put(out, start, self.contexts);
        }
        if name.is_empty() && self.contexts.is_empty() {
            // [MS-SMB2] 2.2.13: the buffer of a request has at least one byte.
            out.put_u8(0);
        }
    }
}

buffer_messages! {
    /// The CREATE response ([MS-SMB2] 2.2.14). The contexts are not parsed.
    CreateResponse(89, BytesMut::extend_from_slice, none_if_empty) {
        /// The oplock granted.
        oplock_level: OplockLevel;
        /// Flags (3.x).
        flags: CreateResponseFlags;
        /// The action taken.
        create_action: CreateAction;
        /// The file after the open.
        facts: FileFacts, pad 4;
        /// The handle.
        file_id: FileId;
        [offset: u32; length: u32;]
        => /// The create contexts as raw bytes; see `contexts()`.
        contexts
    }
}

impl<'a> CreateResponse<'a> {
    /// Returns an iterator over the create contexts.
    pub const fn contexts(&self) -> CreateContexts<'a> {
        CreateContexts::new(self.contexts)
    }
}
