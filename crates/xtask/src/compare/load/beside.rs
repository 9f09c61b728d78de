//! 4 KiB reads of one client while another one takes all it can get: what counts is their p99.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use smb_client::Tree;
use smb_wire::msg::WriteFlags;

use super::{Context, Done, FIELD_BYTES, Protection, Ready, connect, field, filled, pieces};
use crate::Failure;

const PIECE: u32 = 1 << 20;
/// Written between two FLUSHes, bytes.
const FLUSHED_BYTES: usize = 64 << 20;

/// The work of the other client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Noise {
    /// Reads 1 MiB pieces, four outstanding.
    Stream,
    /// Writes 64 MiB and flushes, over and over.
    Flush,
}

pub(super) fn ready(noise: Noise, context: &Context<'_>) -> Result<Ready, Failure> {
    let count = context.sizes.operations / 4;
    let tree = connect(context.access, Protection::Plain)?;
    let file = field(&tree)?;
    let other = connect(context.access, Protection::Plain)?;
    filled(&other, "noise", FLUSHED_BYTES)?.close()?;
    Ok(Ready::new(move || {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let making = thread::spawn(move || {
            let made = make(noise, &other, &stopped).map_err(|error| error.to_string());
            (made, other)
        });
        let read = |at| file.read_request(at, 4096, 0);
        let latencies = pieces::pipelined(&tree, count, 4096, 1, read);
        stop.store(true, Ordering::Relaxed);
        let (made, other) = making.join().map_err(|_| "the other client panicked")?;
        made?;
        let latencies = latencies?;
        // The other one's work is in the server's time too: the cost means nothing here.
        let done = Done::new(count as f64).latencies(latencies);
        Ok(done.keep((tree, file, other)))
    }))
}

fn make(noise: Noise, tree: &Tree, stop: &AtomicBool) -> Result<(), Failure> {
    let file = filled(tree, "noise", FLUSHED_BYTES)?;
    let data = vec![1; PIECE as usize];
    while !stop.load(Ordering::Relaxed) {
        match noise {
            Noise::Stream => {
                let pieces = (FIELD_BYTES / PIECE as usize) as u64;
                pieces::pipelined(tree, pieces, PIECE, 4, |at| file.read_request(at, PIECE, 0))?;
            }
            Noise::Flush => {
                let pieces = (FLUSHED_BYTES / PIECE as usize) as u64;
                for number in 0..pieces {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let at = number * u64::from(PIECE);
                    file.write(at, &data, WriteFlags::empty())?;
                }
                file.flush(false)?;
            }
        }
    }
    Ok(())
}
