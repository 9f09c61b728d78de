//! The project's chores: `cargo xtask compare`, `cargo xtask price`, `cargo xtask regress`.
//!
//! A chore belongs here when it needs more than one program and a shell would lose its errors.

#![forbid(unsafe_code)]

mod bed;
mod compare;
mod price;
mod regress;

use std::process::ExitCode;

/// Any error, for people to read.
type Failure = Box<dyn std::error::Error>;

const HELP: &str = "\
cargo xtask compare [OPTIONS]
    Serves the same folder with Samba (tuned: synchronous, threads, io_uring) and with Holdfast
    (threads, io_uring) on loopback, lets the same clients work on each in turn, and prints what a
    GiB and an operation cost each server in CPU time, rates and latencies, the limit (the same
    bytes with no protocol), the ratios to the cheapest Samba with their 95 % intervals, and
    whether they hold. Needs root (Samba does), smbd and smbclient. docs/performance.md says more.

    --quick           small sizes and 2 rounds
    --rounds N        rounds over all servers (default 10; quick: 2); verdicts need 6
    --mib N           size of the big file in MiB (default 256; quick: 48)
    --operations N    reads and writes of 4 KiB of a workload (default 20000; quick: 2000); of what is
                      larger or dearer the same part
    --only LIST       only workloads whose name contains one of these (\"read-4k,netbench\")
    --servers LIST    only servers whose name contains one of these (\"sync,uring,limit\")
    --peer HOST:PORT,USER,PASSWORD,SHARE[,PID]
                      another server that runs already; CPU and memory of PID's tree by /proc
    --client NAME=COMMAND
                      another client as a workload: the shell's COMMAND finds HOST, PORT, SHARE,
                      SMB_USER and SMB_PASSWORD in its environment, and may print \"operations N\"
    --pin CORES:CORES the servers on these cores, the clients on those (\"0-1:2,3\")
    --binary FILE     this holdfast instead of a release build of this tree
    --scratch DIR     where state and shares go (default: the temporary folder)
    --json FILE       where the numbers go (default: target/compare.json)
    --markdown FILE   put the table between the marks of this page (docs/performance.md)

cargo xtask price [OPTIONS]
    What a FLUSH costs under each durability policy, and with Samba's strict sync yes and no: the
    same 4 KiB WRITE + FLUSH load on ext4, XFS and btrfs on loop devices, by 1, 16 and 64 openers of
    one file and of many. Server CPU, cache flushes and writes of the device, latency, merging.
    Needs root, smbd, mkfs of the three file systems, and losetup.

    --quick           short cells, one round
    --rounds N        rounds over all servers, each with fresh processes (default 3; quick: 1)
    --seconds S       length of a cell (default 2; quick: 0.5)
    --lanes LIST      instead: honor with so many sync threads each (\"8,16,32,64\"), 64 openers
    --flush-ms LIST   instead: honor and bounded at 10, 50, 200 ms and 1 s, by 1 and 8 openers, on
                      devices whose cache flush takes so long (\"20,40\"), and the greatest age of a
                      change that was not stable. Needs qemu-storage-daemon and strace, too
    --only TEXT       only loads whose name contains TEXT (1 opener; many files)
    --fs LIST         file systems (default ext4,xfs,btrfs)
    --binary FILE     this holdfast instead of a release build of this tree
    --scratch DIR     where images, state and mounts go (default: the temporary folder)
    --json FILE       where the numbers go (default: target/price.json)

cargo xtask regress [OPTIONS]
    Builds the server of an older commit and of this tree, lets one client measure both in turn, and
    fails if an operation takes more than 1.25 times the CPU time, with the whole 95 % interval of
    six rounds. About a minute beside the builds. Needs root.

    --base COMMIT     compare with this one (default: the newest that is 6 hours older than HEAD)
    --profile NAME    how both are built (default: dev)
    --to FOLDER       where servers and numbers go (default: target/regress)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.split_first() {
        Some((chore, rest)) if chore == "compare" => {
            compare::Options::parse(rest).and_then(compare::compare)
        }
        Some((chore, rest)) if chore == "price" => {
            price::Options::parse(rest).and_then(|options| price::price(&options))
        }
        Some((chore, rest)) if chore == "regress" => {
            regress::Options::parse(rest).and_then(|options| regress::regress(&options))
        }
        Some((chore, rest)) if chore == compare::limit::CHORE => compare::limit::serve(rest),
        _ => Err(HELP.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
