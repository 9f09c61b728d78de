//! Serves a share that lives in memory, on loopback, until interrupted.
//!
//! `cargo run --example memory_share [ADDRESS:PORT]`; what it says shows how to connect.

use std::net::SocketAddr;

use smb_examples::memory::{PASSWORD, SHARE, Share, USER};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: SocketAddr = match std::env::args().nth(1) {
        Some(address) => address.parse()?,
        None => "127.0.0.1:0".parse()?,
    };
    let share = Share::start(address)?;
    let (ip, port) = (share.address().ip(), share.address().port());
    println!("smbclient -p {port} -U '{USER}%{PASSWORD}' //{ip}/{SHARE}");
    loop {
        std::thread::park();
    }
}
