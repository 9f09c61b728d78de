//! The modification time under `flush_times = false`: it is as old as the last sync of the whole inode, until a FLUSH
//! covers times or the time has been dirty for long enough.

use std::time::Duration;

use smb_client::CreateArgs;
use smb_sim::{SHARE, SimServer};
use smb_wire::Status;
use smb_wire::ids::FileId;
use vfs::Env;
use vfs::sim::{Cut, Profile};

use crate::CHEAP;
use crate::world::{Actor, Times, contents, flush, prepared, scene};

/// `dirty_age_max`, and time for the sync.
const AGE: Duration = Duration::from_millis(30_100);

/// The way in which the time becomes stable after the FLUSH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The setting is on again, and another FLUSH comes.
    FlushWithTimes,
    /// The file is closed, and `dirty_age_max` passes.
    CloseAndAge,
}

/// The content of `f` on the disk after a cut that keeps everything, or nothing that no sync covered.
fn found(server: &SimServer, cut: Cut, times: Times) -> Option<String> {
    contents(server.cut_power(cut), times).remove("f")
}

/// Contents and size are on the disk, and the time is or is not.
fn assert_stable(server: &SimServer, time: bool) {
    let has = |times| found(server, Cut::Nothing, times) == found(server, Cut::Everything, times);
    assert!(has(Times::No), "data or size are lost");
    assert_eq!(has(Times::Written), time, "the modification time");
}

async fn change(server: &SimServer, it: &mut Actor, file: FileId, offset: u64) {
    server.env().sleep(Duration::from_millis(5)).await;
    it.write(file, offset, b"changed").await;
    let status = it.status(flush(file, false)).await;
    assert_eq!(status, Status::SUCCESS);
}

#[test]
fn a_time_that_no_flush_covers_follows_with_the_next_that_does_or_by_age() {
    let base = prepared(Profile::PosixMin);
    for then in [Then::FlushWithTimes, Then::CloseAndAge] {
        scene(13, &base, CHEAP, async |server| {
            let mut it = Actor::enter(server, false).await;
            let file = it.open(CreateArgs::open("f")).await;
            // The first FLUSH after an open syncs the whole inode, because the host may have changed it before.
            change(server, &mut it, file, 0).await;
            assert_stable(server, true);
            for offset in [1000, 20_000] {
                change(server, &mut it, file, offset).await;
                assert_stable(server, false);
            }
            match then {
                Then::FlushWithTimes => {
                    let shares = server.server.shares();
                    let gate = &shares.find(SHARE).unwrap().gate;
                    let mut settings = gate.settings();
                    settings.flush_times = true;
                    gate.set_options(settings);
                    let status = it.status(flush(file, false)).await;
                    assert_eq!(status, Status::SUCCESS);
                }
                Then::CloseAndAge => {
                    it.close(file).await;
                    assert_stable(server, false);
                    server.env().sleep(AGE).await;
                }
            }
            assert_stable(server, true);
        });
    }
}
