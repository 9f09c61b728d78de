//! How a connection should find its worker: the least loaded one (as the server does it), the
//! kernel's hash over one listening socket for each worker (`SO_REUSEPORT`), or the worker on the
//! processor that the connection's packets come in on (`SO_INCOMING_CPU`).
//!
//! Two things are measured. How unevenly the kernel spreads few connections: real sockets on loopback, made
//! from one core, as where one network queue takes them all, and from both in turn. And what a
//! connection costs whose worker is on another core than its packets (here: its client), which is
//! all that `SO_INCOMING_CPU` could save.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::scale::{Lanes, ROUNDS, Server, WORKS, median_text};

/// Connections that are there at a time.
const CONNECTIONS: [usize; 4] = [2, 4, 8, 32];
const TRIALS: usize = 200;
const CORES: usize = 2;
const BACKLOG: i32 = 128;

/// Measures, and says it.
pub(crate) fn run() {
    for connections in CONNECTIONS {
        let least = connections.div_ceil(CORES);
        println!(
            "{connections} connections, the fuller of two workers has (median, worst of {TRIALS}):"
        );
        println!("  least loaded, by its rule: {least}, {least}");
        for (how, incoming) in [("SO_REUSEPORT", false), ("SO_INCOMING_CPU", true)] {
            for (from, cores) in [("one core", [0, 0]), ("both", [0, 1])] {
                let (median, worst) = spread(connections, incoming, cores);
                println!("  {how}, clients on {from}: {median}, {worst}");
            }
        }
    }
    let server = Server::new();
    for work in &WORKS {
        // An interface's worker is on the core of the same number.
        let near = Lanes::on(&[0, 1], Some);
        let far = Lanes::on(&[0, 1], |nic| Some(1 - nic));
        near.run(work);
        far.run(work);
        let ratios = (0..ROUNDS).map(|_| {
            let near = server.cost(&near, work).each;
            server.cost(&far, work).each / near
        });
        println!(
            "{}: CPU with the client on the other core {} of that on the worker's own",
            work.name,
            median_text(ratios.collect())
        );
    }
}

/// Binds the calling thread to a core.
pub(super) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).unwrap();
}

/// Median and worst of how many connections the fuller of two listening sockets gets.
fn spread(connections: usize, incoming: bool, cores: [usize; 2]) -> (usize, usize) {
    let first = listener(0, incoming.then_some(0));
    let port = address(&first).port();
    let listeners = [first, listener(port, incoming.then_some(1))];
    let mut fuller: Vec<usize> = (0..TRIALS)
        .map(|_| {
            let clients = connect(connections, port, cores);
            let counts = listeners.each_ref().map(accepted);
            assert_eq!(counts[0] + counts[1], connections);
            drop(clients);
            counts[0].max(counts[1])
        })
        .collect();
    fuller.sort_unstable();
    (fuller[TRIALS / 2], fuller[TRIALS - 1])
}

fn listener(port: u16, core: Option<u32>) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    core.inspect(|core| sockopt::set_socket_incoming_cpu(&socket, *core).unwrap());
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
    rustix::net::listen(&socket, BACKLOG).unwrap();
    socket
}

fn address(socket: &OwnedFd) -> SocketAddr {
    let address = rustix::net::getsockname(socket).unwrap();
    address.try_into().unwrap()
}

/// Connections from these cores in turn.
fn connect(connections: usize, port: u16, cores: [usize; 2]) -> Vec<TcpStream> {
    let from = |core: usize, count: usize| {
        move || {
            pin(core);
            let connect = |_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            (0..count).map(connect).collect::<Vec<_>>()
        }
    };
    let half = connections / 2;
    let threads = [(cores[0], connections - half), (cores[1], half)]
        .map(|(core, count)| std::thread::spawn(from(core, count)));
    let streams = threads.map(|thread| thread.join().unwrap());
    streams.into_iter().flatten().collect()
}

/// How many connections wait there.
fn accepted(listener: &OwnedFd) -> usize {
    std::iter::from_fn(|| rustix::net::accept(listener).ok()).count()
}
