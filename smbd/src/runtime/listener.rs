//! Listening sockets: binding, options, and the choice of a port.
//!
//! The unspecified IPv6 address accepts IPv4 too (and is replaced by the IPv4 one on hosts without IPv6); every other
//! IPv6 address accepts only IPv6. Nothing is accepted here.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::config::{Listener, SMB_PORT};

/// Connections that the kernel holds for us.
const BACKLOG: i32 = 1_024;
/// The reason why port 445 cannot be used without a privilege.
pub const NOT_PERMITTED: &str = "this user may not open ports below 1024";
/// Ports tried by `serve PATH` if 445 cannot be used; after them, any free one.
const HIGH_PORTS: std::ops::RangeInclusive<u16> = 4_450..=4_459;
/// The idle time after which a keepalive probe is sent to a peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// The time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The number of unanswered probes after which a connection is closed.
const KEEPALIVE_RETRIES: u32 = 4;

/// The time after which a connection is closed if the peer acknowledges nothing of the sent data.
pub(super) const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(120);

/// The time between two lines of the log about errors of `accept`.
const ACCEPT_ERROR_AGAIN: Duration = Duration::from_secs(60);
/// Wait after an accept that failed for want of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Binds and listens.
///
/// # Errors
/// Of the system call that failed, with the address in its text.
pub fn bind(listener: &Listener) -> io::Result<TcpListener> {
    let bound = bind_exactly(listener.address, listener.interface.as_deref());
    let no_ipv6 = |error: &io::Error| error.raw_os_error() == Some(libc::EAFNOSUPPORT);
    let bound = match bound {
        Err(error) if listener.address.ip().is_unspecified() && no_ipv6(&error) => {
            let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listener.address.port()));
            bind_exactly(everywhere, listener.interface.as_deref())
        }
        bound => bound,
    };
    bound.map_err(|error| {
        let on = match &listener.interface {
            Some(interface) => format!("{} ({interface})", listener.address),
            None => listener.address.to_string(),
        };
        let way_out = way_out(&error).map(|words| format!("\n  = {words}"));
        let way_out = way_out.unwrap_or_default();
        let text = format!("cannot listen on {on}: {error}{way_out}");
        io::Error::new(error.kind(), text)
    })
}

/// The way out of an error of binding.
fn way_out(error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        libc::EACCES | libc::EPERM => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: start the server as root, or permit it by: sudo setcap \
             cap_net_bind_service=+ep \"$(command -v holdfast)\""
        }
        libc::EADDRINUSE => "another server listens there: `ss -ltnp` names it (Samba's is smbd)",
        libc::EADDRNOTAVAIL => {
            "no interface of this machine has that address now: `ip address` lists them"
        }
        libc::ENODEV => "there is no such interface now: `ip link` lists them",
        _ => return None,
    })
}

fn bind_exactly(address: SocketAddr, interface: Option<&str>) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Whether a socket is bound to an interface that was removed: SO_BINDTODEVICE keeps the index of an interface, and one
/// of the same name that comes later has another.
pub fn has_lost_interface(socket: &impl AsFd) -> bool {
    let device = SockRef::from(socket).device();
    device.is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
}

/// Sets what every accepted connection gets: no Nagle algorithm, keepalive, and a time-out of sent data.
///
/// # Errors
/// If the peer is gone already.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    socket.set_tcp_keepalive(&keepalive)
}

/// Finds a port for `serve PATH`: 445, else a high one. Also says why it is not 445.
///
/// # Errors
/// If nothing can be bound, or for a reason that another port would not remove.
pub fn bind_some_port<L>(
    mut try_bind: impl FnMut(u16) -> io::Result<L>,
) -> io::Result<(L, Option<String>)> {
    let why = match try_bind(SMB_PORT) {
        Ok(bound) => return Ok((bound, None)),
        Err(error) => match error.kind() {
            io::ErrorKind::PermissionDenied => NOT_PERMITTED,
            io::ErrorKind::AddrInUse => "another server has it",
            _ => return Err(error),
        },
    };
    for port in HIGH_PORTS {
        match try_bind(port) {
            Ok(bound) => return Ok((bound, Some(why.to_owned()))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    try_bind(0).map(|bound| (bound, Some(why.to_owned())))
}

/// Errors of `accept`: for want of descriptors there may be ten in a second, for as long as it lasts.
#[derive(Debug, Default)]
pub struct AcceptErrors {
    last_logged: Option<Instant>,
    not_logged: u64,
}

impl AcceptErrors {
    /// Logs the first error, and then one each minute with the number of the others; waits before the next `accept`.
    pub async fn take(&mut self, what: &str, error: io::Error) {
        if let Some(others) = self.due(Instant::now()) {
            tracing::warn!(%error, others, "cannot accept {what}");
        }
        tokio::time::sleep(ACCEPT_RETRY).await;
    }

    /// The number of errors since the last one that was logged, if this one is to be.
    fn due(&mut self, now: Instant) -> Option<u64> {
        let again = |last| now.saturating_duration_since(last) >= ACCEPT_ERROR_AGAIN;
        if self.last_logged.is_none_or(again) {
            self.last_logged = Some(now);
            return Some(std::mem::take(&mut self.not_logged));
        }
        self.not_logged += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(address: &str) -> io::Result<TcpListener> {
        bind(&Listener::at(address.parse().unwrap()))
    }

    #[test]
    fn options_are_set() {
        let listener = listen("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare(&client).unwrap();
        assert!(client.nodelay().unwrap());
        assert!(SockRef::from(&client).keepalive().unwrap());
        let taken = listen(&listener.local_addr().unwrap().to_string()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert!(
            taken.to_string().starts_with("cannot listen on 127.0.0.1:"),
            "{taken}"
        );
    }

    #[test]
    fn errors_of_accept_do_not_fill_the_log() {
        let (mut errors, start) = (AcceptErrors::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(errors.due(at(0)), Some(0));
        for second in 1..60 {
            assert_eq!(errors.due(at(second)), None);
        }
        assert_eq!(errors.due(at(60)), Some(59));
        assert_eq!(errors.due(at(61)), None);
    }

    /// Needs root.
    #[test]
    fn an_interface_that_was_removed_is_lost_although_another_has_its_name() {
        let name = format!("hf{}", std::process::id());
        let link = |words: &[&str]| {
            let mut command = std::process::Command::new("ip");
            let output = command.args(["link", words[0], &name]).args(&words[1..]);
            output.output().is_ok_and(|output| output.status.success())
        };
        if !link(&["add", "type", "bridge"]) {
            return crate::host::loop_mount::missing("ip link add");
        }
        let bound = bind(&Listener {
            interface: Some(name.clone()),
            ..Listener::at("0.0.0.0:0".parse().unwrap())
        });
        let everywhere = listen("0.0.0.0:0").unwrap();
        let lost = || bound.as_ref().is_ok_and(has_lost_interface);
        let before = lost();
        let went = link(&["del"]) && link(&["add", "type", "bridge"]);
        let after = lost();
        link(&["del"]);
        assert!(bound.is_ok() && went && !before && after, "{bound:?}");
        assert!(!has_lost_interface(&everywhere));
    }

    #[test]
    fn every_address_means_ipv4_too() {
        let listener = listen("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn an_ipv4_address_in_the_form_of_ipv6_is_bound() {
        let listener = listen("[::ffff:127.0.0.1]:0").unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
    }

    /// Tries ports against a table of the kernel's results.
    fn choose(
        verdict: impl Fn(u16) -> Option<io::ErrorKind>,
    ) -> (io::Result<(u16, Option<String>)>, Vec<u16>) {
        let mut tried = Vec::new();
        let found = bind_some_port(|port| {
            tried.push(port);
            verdict(port).map_or(Ok(port), |kind| Err(kind.into()))
        });
        (found, tried)
    }

    #[test]
    fn port_445_is_taken_when_it_can_be() {
        let (found, tried) = choose(|_| None);
        assert_eq!(found.unwrap(), (445, None));
        assert_eq!(tried, [445]);
    }

    #[test]
    fn else_the_first_free_high_port() {
        let (found, tried) = choose(|port| match port {
            445 => Some(io::ErrorKind::PermissionDenied),
            4450 | 4451 => Some(io::ErrorKind::AddrInUse),
            _ => None,
        });
        let why = "this user may not open ports below 1024".to_owned();
        assert_eq!(found.unwrap(), (4452, Some(why)));
        assert_eq!(tried, [445, 4450, 4451, 4452]);
    }

    #[test]
    fn else_any_port_and_never_for_ever() {
        let (found, tried) = choose(|port| (port != 0).then_some(io::ErrorKind::AddrInUse));
        assert_eq!(
            found.unwrap(),
            (0, Some("another server has it".to_owned()))
        );
        assert_eq!(tried.len(), 12);
    }

    #[test]
    fn an_address_that_is_not_ours_is_no_reason_to_try_ports() {
        let (found, tried) = choose(|_| Some(io::ErrorKind::AddrNotAvailable));
        found.unwrap_err();
        assert_eq!(tried, [445]);
    }
}
