//! ECHO shows a client that the server still answers ([MS-SMB2] 3.3.5.17).

use smb_wire::msg::{EchoRequest, EchoResponse};
use vfs::Vfs;

use super::{Call, Handled, Reply};

pub(super) fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    EchoRequest::read(&call.message)?;
    Ok(Reply::read_only(&EchoResponse))
}
