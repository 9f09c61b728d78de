//! The layout of the request and response of SET_INFO ([MS-SMB2] 2.2.39, 2.2.40).
//!
//! The buffer contains a structure of [MS-FSCC] or a security descriptor, decoded in `fscc` and
//! `dtyp`.

use crate::codec::put_at_least_a_byte;
use crate::ids::FileId;
use crate::msg::InfoType;

buffer_messages! {
    /// The SET_INFO request ([MS-SMB2] 2.2.39).
    SetInfoRequest(33, put_at_least_a_byte) {
        /// The kind of information.
        info_type: InfoType;
        /// The class: a FILE_INFORMATION_CLASS or FS_INFORMATION_CLASS, 0 otherwise.
        info_class: u8;
        [length: u32; offset: u16, pad 2;]
        /// For security the parts to set (see [`SecurityInformation`](crate::dtyp::SecurityInformation)).
        additional_information: u32;
        /// The handle.
        file_id: FileId;
        => /// The information.
        buffer
    }
}

empty_message! {
    /// The SET_INFO response ([MS-SMB2] 2.2.40): only StructureSize.
    pub struct SetInfoResponse(2);
}
