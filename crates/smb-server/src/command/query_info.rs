//! query_info: being written.
use super::{Call, Handled};
use smb_wire::status::Status;
use vfs::Vfs;
/// Being written.
pub(super) async fn handle<V: Vfs>(_call: &Call<V>) -> Handled {
    Err(Status::NOT_SUPPORTED.into())
}
