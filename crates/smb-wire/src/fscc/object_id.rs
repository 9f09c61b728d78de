//! FILE_OBJECTID_BUFFER ([MS-FSCC] 2.1.3), used by information classes and FSCTLs. Layout only.

use super::record::records;
use crate::ids::Guid;

records! {
    /// An object id and its origin.
    FileObjectIdBuffer {
        /// The id.
        object_id: Guid;
        /// The volume where the object was created (type 1), or the first part of the extended information.
        birth_volume_id: Guid;
        /// The object id at creation.
        birth_object_id: Guid;
        /// The domain at creation; zero.
        domain_id: Guid;
    }
}
