//! The layout of the request and response of QUERY_INFO ([MS-SMB2] 2.2.37, 2.2.38).
//!
//! The buffers contain structures of [MS-FSCC] or a security descriptor, decoded in `fscc` and
//! `dtyp`.

use bytes::BytesMut;

use crate::codec::put_at_least_a_byte;
use crate::fscc::FileInformationClass;
use crate::ids::FileId;

enum_of_the_wire! {
    /// The kind of information that is queried or set.
    pub struct InfoType(u8) {
        FILE = 0x01,
        FILESYSTEM = 0x02,
        SECURITY = 0x03,
        QUOTA = 0x04,
    }
}

flags_of_the_wire! {
    /// Flags of the request, for extended attributes and quotas.
    pub struct QueryInfoFlags(u32) {
        RESTART_SCAN = 0x0000_0001,
        RETURN_SINGLE_ENTRY = 0x0000_0002,
        INDEX_SPECIFIED = 0x0000_0004,
    }
}

/// Whether a query takes an input. Where it does not, the length of the input is ignored ([MS-SMB2] 3.3.5.20).
fn takes_input(info_type: InfoType, info_class: u8) -> bool {
    match info_type {
        InfoType::FILE => FileInformationClass(info_class) == FileInformationClass::FULL_EA,
        other => other == InfoType::QUOTA,
    }
}

buffer_messages! {
    /// The QUERY_INFO request ([MS-SMB2] 2.2.37).
    QueryInfoRequest(41, put_at_least_a_byte, none_if_empty) {
        /// The kind of information.
        info_type: InfoType;
        /// The class: a FILE_INFORMATION_CLASS or FS_INFORMATION_CLASS, 0 otherwise.
        info_class: u8;
        /// Maximum length of the response in bytes.
        output_buffer_length: u32;
        [offset: u16, pad 2; length: u32;]
        /// For security the requested parts (see [`SecurityInformation`](crate::dtyp::SecurityInformation)),
        /// for extended attributes an index.
        additional_information: u32;
        /// Flags.
        flags: QueryInfoFlags;
        /// The handle.
        file_id: FileId;
        => /// The requested extended attributes or quotas; may be empty.
        input, as |_| input.or_else(|outside| match takes_input(info_type, info_class) {
            true => Err(outside),
            false => Ok(&[]),
        })
    }

    /// The QUERY_INFO response ([MS-SMB2] 2.2.38).
    QueryInfoResponse(9, BytesMut::extend_from_slice) {
        [offset: u16; length: u32;]
        => /// The requested information; may be empty.
        buffer
    }
}
