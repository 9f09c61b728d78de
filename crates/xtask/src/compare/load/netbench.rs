//! NetBench's Enterprise Disk Mix ([`smb_load::netbench`]) with a fixed number of operations for each client.
//!
//! Each client has a connection, a thread and a folder. The folders are smaller than those of NetBench (24 files of
//! up to 400 KiB), so that 60 clients of five servers fit into the page cache together.

use std::{
    sync::{Arc, Barrier, Mutex},
    thread,
    time::Instant,
};

use smb_load::{
    LoadError,
    netbench::{client::Client, mix::Mix},
};

use super::{Context, Done, Protection, Ready, connect, micros};
use crate::Failure;

pub(super) fn ready(clients: usize, context: &Context<'_>) -> Result<Ready, Failure> {
    let sizes = context.sizes;
    let mut prepared = Vec::new();
    for number in 0..clients {
        let tree = connect(context.access, Protection::Plain)?;
        let folder = format!("mix-{number:02}");
        prepared.push(Client::prepare(tree, &folder, sizes.mix_files)?);
    }
    let each = (sizes.mix / clients.max(1) as u64).max(20);
    let mix = Arc::new(Mutex::new(Mix::new(clients, sizes.mix_files)));
    Ok(Ready::new(move || {
        let barrier = Barrier::new(prepared.len());
        let ended: Vec<Result<(Client, Vec<u32>), String>> = thread::scope(|scope| {
            let begin = |(number, client)| {
                let (barrier, mix) = (&barrier, &mix);
                scope.spawn(move || {
                    barrier.wait();
                    work(client, number, each, mix).map_err(|error| error.to_string())
                })
            };
            let threads: Vec<_> = prepared.into_iter().enumerate().map(begin).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                let ended = thread.join();
                ended.unwrap_or_else(|_| Err("a client panicked".into()))
            };
            threads.into_iter().map(join).collect()
        });
        let mut latencies = Vec::new();
        let mut keep = Vec::new();
        for client in ended {
            let (client, of_client) = client?;
            latencies.extend(of_client);
            keep.push(client);
        }
        let done = Done::new(latencies.len() as f64);
        Ok(done.latencies(latencies).keep(keep))
    }))
}

/// At least `count` operations of one client, and how long each took, in microseconds.
fn work(
    mut client: Client,
    number: usize,
    count: u64,
    mix: &Mutex<Mix>,
) -> Result<(Client, Vec<u32>), LoadError> {
    let mut latencies = Vec::new();
    while (latencies.len() as u64) < count {
        let draw = mix.lock().ok().and_then(|mut mix| mix.next(number));
        let Some(draw) = draw else {
            break;
        };
        for operation in std::iter::once(draw.first).chain(draw.second) {
            let begun = Instant::now();
            client.perform(&operation)?;
            latencies.push(micros(begun));
        }
    }
    Ok((client, latencies))
}
