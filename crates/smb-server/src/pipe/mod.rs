//! Named pipes of IPC$: being written.
use crate::command::{Call, Failure, Handled};
use bytes::Bytes;
use smb_wire::status::Status;
use vfs::Vfs;

/// An open pipe.
pub(crate) struct Pipe {}

impl Pipe {
    /// Name without the backslash.
    pub(crate) fn name(&self) -> &str {
        ""
    }
    /// READ.
    pub(crate) fn read(&self, _max: usize) -> Result<(Status, Bytes), Failure> {
        Err(Status::NOT_SUPPORTED.into())
    }
    /// WRITE.
    pub(crate) fn write<V: Vfs>(&self, _call: &Call<V>, _data: &[u8]) -> Result<(), Failure> {
        Err(Status::NOT_SUPPORTED.into())
    }
    /// FLUSH.
    pub(crate) fn flushed(&self) -> Result<(), Failure> {
        Err(Status::NOT_SUPPORTED.into())
    }
}

/// CREATE on IPC$.
pub(crate) async fn create<V: Vfs>(_call: &Call<V>) -> Handled {
    Err(Status::OBJECT_NAME_NOT_FOUND.into())
}
