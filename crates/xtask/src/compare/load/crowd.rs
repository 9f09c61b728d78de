//! Many connections at once: what an idle one holds in memory, and 4 KiB reads by all of them.

use std::time::Duration;

use smb_client::{File, Tree};

use super::{Context, Done, Protection, Ready, connect, filled, place};
use crate::{Failure, compare::memory};

/// Files that the connections' opens are spread over.
const FILES: usize = 64;
/// Bytes of each.
const FILE_BYTES: usize = 1 << 20;
/// The time for work that a server still does after the last connection was made.
const SETTLE: Duration = Duration::from_millis(500);

/// Connections with session and tree, and what each costs in KiB.
fn crowd(count: usize, context: &Context<'_>) -> Result<(Vec<Tree>, Option<f64>), Failure> {
    // So that what the first of all connections brings up is not counted.
    let first = connect(context.access, Protection::Plain)?;
    std::thread::sleep(SETTLE);
    let before = context.pid.and_then(memory::pss_kib);
    let mut trees = Vec::with_capacity(count + 1);
    for number in 0..count {
        let tree = connect(context.access, Protection::Plain)
            .map_err(|error| format!("connection {number}: {error}"))?;
        trees.push(tree);
    }
    std::thread::sleep(SETTLE);
    let after = context.pid.and_then(memory::pss_kib);
    trees.push(first);
    let kib = match (before, after) {
        (Some(before), Some(after)) => {
            Some(after.saturating_sub(before) as f64 / count.max(1) as f64)
        }
        _ => None,
    };
    Ok((trees, kib))
}

/// Only the memory.
pub(super) fn idle(many: bool, context: &Context<'_>) -> Result<Ready, Failure> {
    let sizes = context.sizes;
    let count = if many {
        sizes.connections_many
    } else {
        sizes.connections
    };
    let (trees, kib) = crowd(count, context)?;
    let mut ready = Ready::new(move || Ok(Done::new(0.0).keep(trees)));
    ready.kib = kib;
    Ok(ready)
}

/// Each connection has one 4 KiB read outstanding, at a random place.
pub(super) fn reads(context: &Context<'_>) -> Result<Ready, Failure> {
    let sizes = context.sizes;
    let mut lanes: Vec<(Tree, File)> = Vec::new();
    for number in 0..sizes.connections {
        let tree = connect(context.access, Protection::Plain)
            .map_err(|error| format!("connection {number}: {error}"))?;
        let file = filled(&tree, &format!("crowd-{:02}", number % FILES), FILE_BYTES)?;
        lanes.push((tree, file));
    }
    std::thread::sleep(SETTLE);
    let turns = (sizes.operations / lanes.len().max(1) as u64).max(2);
    Ok(Ready::new(move || {
        let mut waiting = Vec::with_capacity(lanes.len());
        let count = lanes.len() as u64;
        let read = |(tree, file): &(Tree, File), number: u64| {
            let at = place(number, 4096) % FILE_BYTES as u64;
            tree.send(file.read_request(at, 4096, 0))
        };
        for (number, lane) in lanes.iter().enumerate() {
            waiting.push(read(lane, number as u64)?);
        }
        for turn in 1..=turns {
            for (number, (lane, id)) in lanes.iter().zip(&mut waiting).enumerate() {
                lane.0.client().wait(*id)?.ok()?;
                if turn < turns {
                    *id = read(lane, turn * count + number as u64)?;
                }
            }
        }
        Ok(Done::new((turns * count) as f64).keep(lanes))
    }))
}
