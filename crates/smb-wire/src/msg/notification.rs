//! SERVER_TO_CLIENT_NOTIFICATION ([MS-SMB2] 2.2.44): an unsolicited message of the server.
//!
//! The only kind defined reports that a session was closed.

use bytes::{BufMut, BytesMut};

use crate::codec::{HEADER_SIZE, Malformed, Reader};

enum_of_the_wire! {
    /// The kind of the notification.
    pub struct NotificationType(u32) {
        SESSION_CLOSED = 0x0000_0000,
    }
}

/// The notification ([MS-SMB2] 2.2.44.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerToClientNotification<'a> {
    /// The kind of the notification.
    pub notification_type: NotificationType,
    /// Its data; four zero bytes for SESSION_CLOSED.
    pub notification: &'a [u8],
}

impl<'a> ServerToClientNotification<'a> {
    /// A session was closed ([MS-SMB2] 2.2.44.2).
    pub const SESSION_CLOSED: ServerToClientNotification<'static> = ServerToClientNotification {
        notification_type: NotificationType::SESSION_CLOSED,
        notification: &[0; 4],
    };

    /// Reads the message, from its SMB2 header on. StructureSize is the size of the whole message,
    /// so it is not checked.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        const MALFORMED: Malformed = Malformed::new("SERVER_TO_CLIENT_NOTIFICATION");
        let body = message.get(HEADER_SIZE..).ok_or(MALFORMED)?;
        let mut body = Reader::new(body, MALFORMED.what);
        body.skip(4)?;
        Ok(Self {
            notification_type: NotificationType(body.u32()?),
            notification: body.rest(),
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        let size = u16::try_from(self.notification.len() + 8).unwrap_or(u16::MAX);
        out.put_u16_le(size);
        out.put_u16_le(0);
        out.put_u32_le(self.notification_type.0);
        out.put_slice(self.notification);
    }
}
