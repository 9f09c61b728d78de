//! Connections that are busy at the same time do not stay on one worker while another one rests.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;
use smb_client::{CreateArgs, Tree};
use smb_wire::msg::WriteFlags;

use crate::support::{Daemon, Plan, eventually, missing};

/// The numbers of connections of the workers that have any.
fn loads(daemon: &Daemon) -> Vec<u64> {
    let status = daemon.ask(&["status", "--json"]).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    let workers = status["workers"].as_array().unwrap().iter();
    let loads = workers.map(|worker| worker["connections"].as_u64().unwrap());
    loads.filter(|load| *load > 0).collect()
}

/// Two clients on the same worker.
fn neighbours(daemon: &Daemon, workers: usize) -> [Tree; 2] {
    for attempt in 0..100 {
        // Each worker has two of these; the first one's neighbour is in the second half.
        let mut all: Vec<Tree> = (0..2 * workers).map(|_| daemon.tree()).collect();
        let second = all.swap_remove(workers + attempt % workers);
        let first = all.swap_remove(0);
        drop(all);
        eventually("the others are gone", || {
            loads(daemon).iter().sum::<u64>() == 2
        });
        if loads(daemon) == [2] {
            return [first, second];
        }
    }
    panic!("no worker has two connections");
}

#[test]
fn two_busy_connections_part() {
    let workers = thread::available_parallelism().unwrap().get();
    if workers < 2 {
        return missing("two processors");
    }
    let grace = Plan {
        server: "revocation_grace = \"1h\"\n".to_owned(),
        ..Plan::default()
    };
    let daemon = grace.start();
    let trees = neighbours(&daemon, workers);
    let files = [0, 1].map(|at| {
        let file = trees[at]
            .create(&CreateArgs::open_if(&format!("f{at}")))
            .unwrap();
        file.write(0, &[at as u8; 512 << 10], WriteFlags::empty())
            .unwrap();
        file
    });
    // They may stay until the grace is over, on whatever worker.
    daemon.edit(|text| text.replace("[server]\n", "[server]\nhosts_deny = [\"127.0.0.1\"]\n"));
    daemon.ask(&["reload"]).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for (at, file) in files.iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let written = vec![at as u8; 512 << 10];
                while !done.load(Ordering::Relaxed) {
                    assert!(file.read(0, 512 << 10).unwrap() == written);
                }
            });
        }
        eventually("each has a worker of its own", || loads(&daemon) == [1, 1]);
        done.store(true, Ordering::Relaxed);
    });
    // The state of a client on the server is as it was: its files, and locks and requests to come.
    for file in files {
        file.flush(false).unwrap();
        file.close().unwrap();
    }
}
