//! Measures what a second channel on another worker and interface adds to a session's reads.
//!
//! Answers are counted and dropped undecrypted, so that the clients cost little; with encryption
//! the server's worker is the slow part. Where server and clients share few cores the rates say
//! little: the processor time of each worker for each GB says what the busiest one would allow.

use std::path::Path;
use std::process::ExitCode;

use smb_client::{Client, CreateArgs, Encryption, Login, Options};
use smb_tests::{DATA, PASSWORD, USER, rate};
use smb_wire::ids::Guid;

use super::checks::status;
use super::net::{PORT, SERVER};

const ROUNDS: usize = 5;

/// Measures, and says it.
pub(crate) fn run(config: &Path) -> ExitCode {
    let login = Login::user(USER, PASSWORD, "");
    let (mut best, mut bound) = ([0.0_f64; 2], [0.0_f64; 2]);
    for round in 0..2 * ROUNDS {
        let channels = 1 + round % 2;
        let mut options = Options::default().encryption(Encryption::Always);
        options = options.guid(Guid([round as u8 + 1; 16]));
        options.credits = 8_192;
        let connect = |nth: usize| Client::connect((SERVER[nth], PORT), options.clone()).unwrap();
        let session = connect(0).login_with(&login).unwrap();
        let tree = session.tree(DATA).unwrap();
        if round == 0 {
            tree.write_file("big", &vec![7; 64 << 20]).unwrap();
        }
        let file = tree.create(&CreateArgs::open("big")).unwrap();
        let mut trees = vec![tree];
        if channels == 2 {
            let bound = connect(1).bind(session.secret().unwrap(), &login).unwrap();
            trees.push(bound.tree_of(trees[0].id(), *trees[0].info()));
        }
        for tree in &trees {
            while tree.client().connection().core().credits() < 7_000 {
                file.through(tree).read(0, 1).unwrap();
            }
        }
        let before = worker_seconds(config);
        let (bytes, rate) = rate::read(&trees, &file);
        let after = worker_seconds(config);
        let each = before
            .iter()
            .zip(after)
            .map(|(was, is)| (is - was) / (bytes / 1e9));
        let each: Vec<f64> = each.collect();
        let busiest = each.iter().copied().fold(0.0, f64::max);
        println!(
            "{channels} channels: {rate:.0} MB/s; seconds of each worker for a GB: {each:.2?}, \
             so at most {:.0} MB/s",
            1_000.0 / busiest
        );
        best[channels - 1] = best[channels - 1].max(rate);
        bound[channels - 1] = bound[channels - 1].max(1_000.0 / busiest);
    }
    println!(
        "by the busiest worker: {:.0} MB/s and {:.0} MB/s: {:.2} times",
        bound[0],
        bound[1],
        bound[1] / bound[0]
    );
    println!(
        "best: {:.0} MB/s and {:.0} MB/s: {:.2} times",
        best[0],
        best[1],
        best[1] / best[0]
    );
    ExitCode::SUCCESS
}

/// Processor time of each worker, in seconds.
fn worker_seconds(config: &Path) -> Vec<f64> {
    let status = status(config);
    let workers = status["workers"].as_array().unwrap();
    let ms = workers.iter().map(|worker| worker["cpu_ms"].as_f64());
    ms.map(|ms| ms.unwrap() / 1_000.0).collect()
}
