//! FILE_OBJECTID_BUFFER ([MS-FSCC] 2.1.3), used by classes and FSCTLs alike. Layout only.

use super::record::records;
use crate::ids::Guid;

records! {
    /// An object id and where it was born.
    FileObjectIdBuffer {
        /// The id.
        object_id: Guid;
        /// Volume of birth (type 1), or the first part of the extended information.
        birth_volume_id: Guid;
        /// Object id at birth.
        birth_object_id: Guid;
        /// Domain of birth; zero.
        domain_id: Guid;
    }
}
