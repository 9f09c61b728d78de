//! READ and WRITE of pieces of one file, and ECHO.

use std::{collections::VecDeque, time::Instant};

use smb_client::{Request, Tree};
use smb_wire::msg::WriteFlags;

use super::{Context, Done, Protection, Ready, Task, connect, count, field, micros, place};
use crate::Failure;

pub(super) fn ready(task: &Task, context: &Context<'_>) -> Result<Ready, Failure> {
    let task = task.clone();
    let sizes = context.sizes;
    let protection = match task {
        Task::Read(_, _, protection) | Task::Write(_, _, protection) => protection,
        _ => Protection::Plain,
    };
    let tree = connect(context.access, protection)?;
    let file = field(&tree)?;
    // The work that filling it left behind does not belong to the workload.
    file.flush(false)?;
    Ok(Ready::new(move || {
        let latencies = match task {
            Task::Read(len, depth, _) => pipelined(&tree, count(sizes, len), len, depth, |at| {
                file.read_request(at, len, 0)
            })?,
            Task::Write(len, depth, _) => {
                let data = vec![9; usize::try_from(len)?];
                pipelined(&tree, count(sizes, len), len, depth, |at| {
                    file.write_request(at, &data, WriteFlags::empty())
                })?
            }
            _ => echoes(&tree, sizes.operations)?,
        };
        let done = Done::new(latencies.len() as f64);
        Ok(done.latencies(latencies).keep((tree, file)))
    }))
}

fn echoes(tree: &Tree, count: u64) -> Result<Vec<u32>, Failure> {
    let mut latencies = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        tree.client().echo()?;
        latencies.push(micros(begun));
    }
    Ok(latencies)
}

/// Keeps `depth` requests under way, at places all over the file; returns how long each took.
pub(super) fn pipelined(
    tree: &Tree,
    count: u64,
    len: u32,
    depth: usize,
    request: impl Fn(u64) -> Request,
) -> Result<Vec<u32>, Failure> {
    let mut under_way = VecDeque::with_capacity(depth);
    let mut latencies = Vec::new();
    let mut number = 0;
    loop {
        while number < count && under_way.len() < depth {
            let begun = Instant::now();
            let id = tree.send(request(place(number, len)))?;
            under_way.push_back((id, begun));
            number += 1;
        }
        let Some((id, begun)) = under_way.pop_front() else {
            return Ok(latencies);
        };
        tree.client().wait(id)?.ok()?;
        latencies.push(micros(begun));
    }
}
