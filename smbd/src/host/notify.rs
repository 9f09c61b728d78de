//! Notifies systemd of the server's state: `READY=1`, `STOPPING=1` to `$NOTIFY_SOCKET` (sd_notify(3)).
//!
//! Best effort: without that variable nothing is sent, and a failure only logs a line.

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// Sends `state` to the service manager, if there is one.
pub(crate) fn notify(state: &str) {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&socket, state)
    {
        tracing::warn!(%error, state, "the service manager was not notified");
    }
}

fn send(socket: &OsString, state: &str) -> io::Result<()> {
    // A leading @ stands for the abstract name space.
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_address() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("holdfast-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let receivers = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&abstract_address).unwrap(),
                format!("@{name}").into(),
            ),
        ];
        for (receiver, socket) in receivers {
            send(&socket, "READY=1").unwrap();
            let mut buffer = [0; 32];
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1");
        }
        send(&"/no/such/socket".into(), "READY=1").unwrap_err();
    }
}
