//! NetBench's Enterprise Disk Mix ([`smb_load::netbench`]) with a fixed number of operations for each client.
//!
//! Each client has a connection, a thread and a folder. The folders are smaller than those of NetBench (24 files of
//! up to 400 KiB), so that 60 clients of five servers fit into the page cache together.

use std::sync::{Arc, Mutex};

use smb_load::{
    Worker,
    netbench::{
        client::Client,
        mix::Mix,
        worker::{Class, MixWorker},
    },
};

use super::{Context, Done, Protection, Ready, at_once, connect, micros};
use crate::Failure;

pub(super) fn ready(clients: usize, context: &Context<'_>) -> Result<Ready, Failure> {
    let sizes = context.sizes;
    let mix = Arc::new(Mutex::new(Mix::new(clients, sizes.mix_files)));
    let mut prepared = Vec::new();
    for number in 0..clients {
        let tree = connect(context.access, Protection::Plain)?;
        let client = Client::prepare(tree, &format!("mix-{number:02}"), sizes.mix_files)?;
        prepared.push(MixWorker::new(
            client,
            Class::Plain,
            number,
            Arc::clone(&mix),
        )?);
    }
    let each = (sizes.mix / clients.max(1) as u64).max(20);
    Ok(Ready::new(move || {
        let latencies = at_once(&mut prepared, |_, worker| {
            let mut latencies = Vec::new();
            while (latencies.len() as u64) < each {
                worker.turn(&mut |sample| latencies.push(micros(sample.begun)))?;
            }
            Ok(latencies)
        })?;
        let done = Done::new(latencies.len() as f64);
        Ok(done.latencies(latencies).keep(prepared))
    }))
}
