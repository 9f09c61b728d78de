//! Workloads of [`smb_load`] with a fixed number of operations: NetBench's Enterprise Disk Mix, a mail store, and the flush
//! ladder.
//!
//! Each client has a connection and a thread. The folders of the mix are smaller than those of NetBench (24 files of up to
//! 400 KiB), and the database of the mail store has 64 MiB, so that those of five servers fit into the page cache together.

use std::sync::{Arc, Mutex};

use smb_load::{
    Home, Worker,
    jetstress::{Group, Preset, Profile, Stability, Thread},
    netbench::{
        client::Client,
        mix::Mix,
        worker::{Class, MixWorker},
    },
    simple::Flusher,
};

use super::{Context, Done, Protection, Ready, at_once, connect, micros};
use crate::Failure;

/// Pages of 8 KiB of the mail store's database.
const PAGES: u64 = 8192;

pub(super) fn mix(clients: usize, context: &Context<'_>) -> Result<Ready, Failure> {
    let sizes = context.sizes;
    let mix = Arc::new(Mutex::new(Mix::new(clients, sizes.mix_files)));
    let mut prepared = Vec::new();
    for number in 0..clients {
        let tree = connect(context.access, Protection::Plain)?;
        let client = Client::prepare(tree, &format!("mix-{number:02}"), sizes.mix_files)?;
        let worker = MixWorker::new(client, Class::Plain, number, Arc::clone(&mix))?;
        prepared.push(worker);
    }
    Ok(ready(prepared, sizes.mix, 1))
}

/// The threads of one storage group. Data are made stable by FLUSH, as in the 2008 report's mail store.
pub(super) fn mail_store(threads: usize, context: &Context<'_>) -> Result<Ready, Failure> {
    let profile = Profile {
        preset: Preset::Exchange,
        pages: PAGES,
        stability: Stability::Flush,
    };
    let home = Home::new(connect(context.access, Protection::Plain)?, "");
    let group = Group::prepare(&home, 0, profile)?;
    let thread = |_| {
        let tree = connect(context.access, Protection::Plain)?;
        Ok::<_, Failure>(Thread::prepare(Arc::clone(&group), tree)?)
    };
    let prepared = (0..threads).map(thread).collect::<Result<Vec<_>, _>>()?;
    Ok(ready(prepared, context.sizes.operations / 2, 1))
}

/// A WRITE of 4 KiB and a FLUSH, which together are one operation, by each client on a file of its own.
pub(super) fn flushes(clients: usize, count: u64, context: &Context<'_>) -> Result<Ready, Failure> {
    let opener = |number| {
        let home = Home::new(connect(context.access, Protection::Plain)?, "");
        Ok::<_, Failure>(Flusher::prepare(&home, number, false)?)
    };
    let prepared = (0..clients as u64).map(opener);
    Ok(ready(prepared.collect::<Result<Vec<_>, _>>()?, count, 2))
}

/// All workers at once, until each has done its part of `count`; one unit is so many reports of a worker.
fn ready<W: Worker + 'static>(mut workers: Vec<W>, count: u64, unit: usize) -> Ready {
    let each = (count / workers.len().max(1) as u64).max(20);
    Ready::new(move || {
        let latencies = at_once(&mut workers, |_, worker| {
            let mut begun = Vec::new();
            let mut latencies = Vec::new();
            while (latencies.len() as u64) < each {
                worker.turn(&mut |sample| {
                    begun.push(sample.begun);
                    if begun.len() == unit {
                        latencies.extend(begun.first().map(|first| micros(*first)));
                        begun.clear();
                    }
                })?;
            }
            Ok(latencies)
        })?;
        let done = Done::new(latencies.len() as f64);
        Ok(done.latencies(latencies).keep(workers))
    })
}
