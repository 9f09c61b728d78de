//! The 64 bytes before every SMB2 message ([MS-SMB2] 2.2.1) and the command numbers.
//!
//! Decoding checks only the protocol id and StructureSize; the connection decides which flags, ids
//! and commands are legal. Offsets of the fields that are filled in after a message has been built
//! (signature, credits, next command) are public constants.

use bytes::BytesMut;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{HEADER_SIZE, Malformed, size};
use crate::ids::{AsyncId, MessageId, SessionId, TreeId};
use crate::status::Status;

/// The first four bytes of an SMB2 message: FE 'S' 'M' 'B'.
pub const PROTOCOL_ID: [u8; 4] = *b"\xfeSMB";

/// The first four bytes of a compressed message, which nobody here negotiates: FC 'S' 'M' 'B'.
pub const COMPRESSED_PROTOCOL_ID: [u8; 4] = *b"\xfcSMB";

/// Length of the big-endian length in front of every message on TCP ([MS-SMB2] 2.1): one zero
/// byte and 24 bits of length.
pub const TRANSPORT_HEADER_SIZE: usize = 4;

/// The longest message the 24 bits of [`TRANSPORT_HEADER_SIZE`] can announce, in bytes.
pub const TRANSPORT_LENGTH_MAX: usize = 0x00ff_ffff;

/// NetBIOS session message: the only packet type of the direct TCP transport.
pub const NETBIOS_SESSION_MESSAGE: u8 = 0x00;
/// NetBIOS session request: clients of the session service send it before their first message (RFC 1002 4.3.2).
pub const NETBIOS_SESSION_REQUEST: u8 = 0x81;
/// The whole answer that accepts it (RFC 1002 4.3.3).
pub const NETBIOS_POSITIVE_RESPONSE: [u8; TRANSPORT_HEADER_SIZE] = [0x82, 0, 0, 0];
/// NetBIOS session keep-alive; carries no message.
pub const NETBIOS_KEEP_ALIVE: u8 = 0x85;

/// Returns the transport header for a message of `len` bytes; `None` if it is too long.
pub fn transport_header(len: usize) -> Option<[u8; TRANSPORT_HEADER_SIZE]> {
    if len > TRANSPORT_LENGTH_MAX {
        return None;
    }
    let [_, b1, b2, b3] = u32::try_from(len).ok()?.to_be_bytes();
    Some([NETBIOS_SESSION_MESSAGE, b1, b2, b3])
}

/// Parses a transport header: the packet type and the length of the rest in bytes.
pub fn transport_length(header: [u8; TRANSPORT_HEADER_SIZE]) -> (u8, usize) {
    let [kind, b1, b2, b3] = header;
    (kind, size(u32::from_be_bytes([0, b1, b2, b3])))
}

enum_of_the_wire! {
    /// The command of a request or response ([MS-SMB2] 2.2.1).
    pub struct Command(u16) {
        NEGOTIATE = 0x0000,
        SESSION_SETUP = 0x0001,
        LOGOFF = 0x0002,
        TREE_CONNECT = 0x0003,
        TREE_DISCONNECT = 0x0004,
        CREATE = 0x0005,
        CLOSE = 0x0006,
        FLUSH = 0x0007,
        READ = 0x0008,
        WRITE = 0x0009,
        LOCK = 0x000a,
        IOCTL = 0x000b,
        CANCEL = 0x000c,
        ECHO = 0x000d,
        QUERY_DIRECTORY = 0x000e,
        CHANGE_NOTIFY = 0x000f,
        QUERY_INFO = 0x0010,
        SET_INFO = 0x0011,
        OPLOCK_BREAK = 0x0012,
        SERVER_TO_CLIENT_NOTIFICATION = 0x0013,
    }
}

flags_of_the_wire! {
    /// The Flags field of the header ([MS-SMB2] 2.2.1).
    pub struct HeaderFlags(u32) {
        /// SERVER_TO_REDIR: the message is a response.
        RESPONSE = 0x0000_0001,
        /// The header has an AsyncId in place of the TreeId.
        ASYNC = 0x0000_0002,
        RELATED = 0x0000_0004,
        SIGNED = 0x0000_0008,
        /// Three bits of requested priority, 3.1.1 only.
        PRIORITY_MASK = 0x0000_0070,
        DFS = 0x1000_0000,
        REPLAY = 0x2000_0000,
    }
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The number of message ids that the request consumes; 0 counts as one.
    pub credit_charge: u16,
    /// In responses the status. In requests of 3.x the low 16 bits are the ChannelSequence, see
    /// [`Header::channel_sequence`].
    pub status: Status,
    /// The command.
    pub command: Command,
    /// The requested or granted credits.
    pub credits: u16,
    /// Flags; [`HeaderFlags::ASYNC`] is set exactly when `async_id` is present (encoding makes it so).
    pub flags: HeaderFlags,
    /// Bytes from this header to the next in a compound; 0 in the last.
    pub next_command: u32,
    /// The number of the request.
    pub message_id: MessageId,
    /// The id of an asynchronous request; takes the place of `tree_id`.
    pub async_id: Option<AsyncId>,
    /// The field that once was a process id; 0 if `async_id` is present. A request may contain any
    /// value ([MS-SMB2] 2.2.1.2), and the response repeats it, as with Windows and Samba: some
    /// clients verify the signature over the header that they would have written.
    pub reserved: u32,
    /// The tree connect; 0 when `async_id` is present.
    pub tree_id: TreeId,
    /// The session.
    pub session_id: SessionId,
    /// The signature, zero when the message is not signed.
    pub signature: [u8; 16],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    protocol_id: [u8; 4],
    structure_size: U16,
    credit_charge: U16,
    status: U32,
    command: U16,
    credits: U16,
    flags: U32,
    next_command: U32,
    message_id: U64,
    // Sync: 4 reserved, 4 TreeId. Async: AsyncId.
    ids: [U32; 2],
    session_id: U64,
    signature: [u8; 16],
}

const _: () = assert!(size_of::<Layout>() == Header::SIZE);

impl Header {
    /// Length on the wire.
    pub const SIZE: usize = HEADER_SIZE;
    /// The position of Signature (16 bytes, to the end of the header).
    pub const SIGNATURE_AT: usize = 48;

    /// Reads the header at the start of `message`.
    ///
    /// # Errors
    /// [`Malformed`] when there are fewer than 64 bytes, or they are not an SMB2 header.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        const MALFORMED: Malformed = Malformed::new("SMB2 header");
        let (layout, _) = Layout::ref_from_prefix(message).map_err(|_| MALFORMED)?;
        if layout.protocol_id != PROTOCOL_ID
            || usize::from(layout.structure_size.get()) != Self::SIZE
        {
            return Err(MALFORMED);
        }
        let flags = HeaderFlags(layout.flags.get());
        let [low, high] = layout.ids;
        let (async_id, reserved, tree_id) = if flags.contains(HeaderFlags::ASYNC) {
            let id = u64::from(high.get()) << 32 | u64::from(low.get());
            (Some(AsyncId(id)), 0, TreeId(0))
        } else {
            (None, low.get(), TreeId(high.get()))
        };
        Ok(Self {
            credit_charge: layout.credit_charge.get(),
            status: Status(layout.status.get()),
            command: Command(layout.command.get()),
            credits: layout.credits.get(),
            flags,
            next_command: layout.next_command.get(),
            message_id: MessageId(layout.message_id.get()),
            async_id,
            reserved,
            tree_id,
            session_id: SessionId(layout.session_id.get()),
            signature: layout.signature,
        })
    }

    /// Appends the 64 bytes of the header.
    pub fn encode(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// The 64 bytes of the header.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let (flags, ids) = match self.async_id {
            Some(AsyncId(id)) => {
                let [a, b, c, d, e, f, g, h] = id.to_le_bytes();
                let low = u32::from_le_bytes([a, b, c, d]);
                let high = u32::from_le_bytes([e, f, g, h]);
                (self.flags | HeaderFlags::ASYNC, [low, high])
            }
            None => (
                self.flags.without(HeaderFlags::ASYNC),
                [self.reserved, self.tree_id.0],
            ),
        };
        let layout = Layout {
            protocol_id: PROTOCOL_ID,
            structure_size: U16::new(64),
            credit_charge: U16::new(self.credit_charge),
            status: U32::new(self.status.0),
            command: U16::new(self.command.0),
            credits: U16::new(self.credits),
            flags: U32::new(flags.bits()),
            next_command: U32::new(self.next_command),
            message_id: U64::new(self.message_id.0),
            ids: ids.map(U32::new),
            session_id: U64::new(self.session_id.0),
            signature: self.signature,
        };
        zerocopy::transmute!(layout)
    }

    /// Whether the message is a response.
    pub const fn is_response(&self) -> bool {
        self.flags.contains(HeaderFlags::RESPONSE)
    }

    /// The ChannelSequence of a 3.x request: the low half of the status field.
    pub const fn channel_sequence(&self) -> u16 {
        // The mask makes the cast exact.
        (self.status.0 & 0xffff) as u16
    }
}
