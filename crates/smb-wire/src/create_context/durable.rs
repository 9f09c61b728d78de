//! DHnQ, DHnC, DH2Q, DH2C: durable and persistent opens ([MS-SMB2] 2.2.13.2.3, .4, .11, .12 and
//! 2.2.14.2.3, .12). The V1 reconnect and both reconnect responses contain nothing more.

use crate::fscc::record::records;
use crate::ids::{FileId, Guid};

flags_of_the_wire! {
    /// Flags of version 2.
    pub struct DurableHandleFlags(u32) {
        PERSISTENT = 0x0000_0002,
    }
}

records! {
    /// DHnC: the open to reconnect to.
    DurableHandleReconnect, exactly {
        /// The FileId that CREATE returned.
        file_id: FileId;
    }

    /// DH2Q of a request.
    DurableHandleRequestV2, exactly {
        /// The time in milliseconds for which the server is asked to preserve the open; 0 leaves it to the server.
        timeout_ms: u32;
        /// Flags.
        flags: DurableHandleFlags, pad 8;
        /// Identifies this CREATE across replays.
        create_guid: Guid;
    }

    /// DH2Q of a response.
    DurableHandleResponseV2, exactly {
        /// The time in milliseconds for which the server preserves the open.
        timeout_ms: u32;
        /// Flags.
        flags: DurableHandleFlags;
    }

    /// DH2C: the open to reconnect to.
    DurableHandleReconnectV2, exactly {
        /// The FileId that CREATE returned.
        file_id: FileId;
        /// The CreateGuid of the original CREATE.
        create_guid: Guid;
        /// Flags.
        flags: DurableHandleFlags;
    }
}
