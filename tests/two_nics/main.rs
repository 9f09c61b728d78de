//! The server with two network interfaces, each with a listener and a worker of its own, and clients
//! on either: they see each other's locks, leases and notifications as on one.
//!
//! ```text
//! cargo run -p smb-tests --bin two-nics [-- --measure]
//! ```
//!
//! Needs root: makes two network namespaces, one for the server and one for the clients, joined by
//! two pairs of veth (`net.rs`), and takes both away at the end. The clients' part (`checks.rs`) runs
//! in its namespace, started by this program. No traffic leaves the namespaces. `--measure` instead
//! measures how connections should find their worker (`placement.rs`), what two workers cost beside one
//! (`scale.rs`), and reads over one and two channels of a session (`measure.rs`); `HOLDFAST_BIN` names
//! an optimised server.

mod checks;
mod measure;
mod net;
mod placement;
mod scale;

use std::process::ExitCode;

use net::Net;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["client", server, folder, config] => checks::run(server, folder.as_ref(), config.as_ref()),
        ["measure", _, _, config] => {
            placement::run();
            scale::run();
            measure::run(config.as_ref())
        }
        [] => both("client"),
        ["--measure"] => both("measure"),
        other => {
            eprintln!("what is {other:?}? (nothing, or --measure)");
            ExitCode::from(2)
        }
    }
}

/// Makes the networks, starts the server, and runs a part of this program beside the clients' end.
fn both(part: &str) -> ExitCode {
    let net = match Net::new() {
        Ok(net) => net,
        Err(why) => {
            eprintln!("two NICs: {why}");
            println!("0 passed, 1 failed");
            return ExitCode::FAILURE;
        }
    };
    let ended = net.in_clients(part);
    if ended {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
