//! `holdfast status --check`: one line for monitoring, with everything that an administrator should look at now.
//!
//! Facts that the configuration has agreed to (a lazy policy, a disk with a volatile cache) are no problems, and
//! counters that matter only while they grow are left to the metrics, except write-back errors: they lost data, and
//! stay in the line until a restart.

use super::text::{Text, put};
use crate::answers::{KeptStatus, StatusReport};

/// The line, and whether nothing is wrong.
pub(crate) fn in_a_line(status: &StatusReport) -> (String, bool) {
    let found = problems(status);
    let mut out = Text::default();
    match (found.is_empty(), status.server.shares.len()) {
        (true, 1) => put!(out, 0; "OK: 1 share is served"),
        (true, shares) => put!(out, 0; "OK: {shares} shares are served"),
        (false, _) => put!(out, 0; "WARNING: {}", found.join("; ")),
    }
    (out.finish(), found.is_empty())
}

fn problems(status: &StatusReport) -> Vec<String> {
    let server = &status.server;
    let mut found = Vec::new();
    for late in &status.late_shares {
        found.push(format!("{} is NOT SERVED", late.share));
    }
    let served = server.shares.iter();
    let served = served.map(|share| (&share.share, &share.lost_at_start));
    let late = status.late_shares.iter();
    let late = late.map(|late| (&late.share, &late.lost_at_start));
    for (share, lost) in served.chain(late) {
        if lost.is_some() {
            found.push(format!("{share}: ACKNOWLEDGED DATA MAY BE LOST"));
        }
    }
    for share in &server.shares {
        if share.replaced {
            found.push(format!(
                "{}: ANOTHER FOLDER, OR NONE, IS AT ITS PATH",
                share.share
            ));
        }
        if let Some(broken) = &share.broken_promise {
            found.push(format!("{}: {broken}", share.share));
        }
        if share.poisoned_inodes > 0 {
            let (name, inodes) = (&share.share, share.poisoned_inodes);
            found.push(format!(
                "{name}: POISONED {inodes} inodes whose sync failed"
            ));
        }
    }
    let removed = server.removed_shares.iter();
    for removed in removed.filter(|one| one.poisoned_inodes > 0) {
        let (name, inodes) = (&removed.share, removed.poisoned_inodes);
        found.push(format!(
            "{name} (not served any more): POISONED {inodes} inodes whose sync failed"
        ));
    }
    of_stores(&server.kept, &mut found);
    let handles = server.handles.persistent.as_ref();
    if handles.is_some_and(|store| !store.healthy) {
        found.push("PERSISTENT HANDLES CANNOT BE RECORDED".to_owned());
    }
    if server.host_changes.is_none() {
        found.push("CHANGES MADE ON THIS HOST ARE NOT SEEN".to_owned());
    }
    found
}

fn of_stores(kept: &KeptStatus, found: &mut Vec<String>) {
    if kept.latches.overflow {
        found.push("EVERY FLUSH FAILS".to_owned());
    }
    if !kept.latches.healthy {
        found.push("LATCHES CANNOT BE STORED".to_owned());
    }
    let journal = kept.flush_journal.as_ref();
    if journal.is_some_and(|journal| !journal.healthy) {
        found.push("THE FLUSH JOURNAL CANNOT BE WRITTEN".to_owned());
    }
    for one in &kept.file_systems {
        if one.write_back_errors > 0 {
            let (errors, root) = (one.write_back_errors, &one.file_system);
            found.push(format!("{errors} WRITE-BACK ERRORS on {root}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{
        HostChangesStatus, JournalStatus, LatchStoreStatus, LateShareStatus, PersistentStatus,
        RemovedShareStatus, ShareStatus, WatchedFileSystem,
    };

    /// The status of a server with which nothing is wrong.
    fn fine() -> StatusReport {
        let mut status = StatusReport::default();
        status.server.host_changes = Some(HostChangesStatus::default());
        status.server.kept.latches.healthy = true;
        status.server.shares.push(ShareStatus {
            share: "data".to_owned(),
            warning: Some("agreed to".to_owned()),
            ..ShareStatus::default()
        });
        status
    }

    #[test]
    fn a_server_without_problems_is_ok() {
        let line = "OK: 1 share is served\n".to_owned();
        assert_eq!(in_a_line(&fine()), (line, true));
    }

    #[test]
    fn each_problem_is_in_the_line() {
        let mut status = fine();
        status.late_shares.push(LateShareStatus {
            share: "a\nb".to_owned(),
            lost_at_start: Some("l".to_owned()),
            ..LateShareStatus::default()
        });
        let server = &mut status.server;
        for share in &mut server.shares {
            (share.poisoned_inodes, share.lost_at_start) = (2, Some("l".to_owned()));
            (share.replaced, share.broken_promise) = (true, Some("NOT KEPT".to_owned()));
        }
        server.removed_shares.push(RemovedShareStatus {
            share: "old".to_owned(),
            poisoned_inodes: 1,
            ..RemovedShareStatus::default()
        });
        server.host_changes = None;
        server.handles.persistent = Some(PersistentStatus::default());
        server.kept = KeptStatus {
            latches: LatchStoreStatus {
                healthy: false,
                dormant: 0,
                overflow: true,
            },
            flush_journal: Some(JournalStatus::default()),
            file_systems: vec![WatchedFileSystem {
                file_system: "/srv".to_owned(),
                write_back_errors: 3,
                ..WatchedFileSystem::default()
            }],
        };
        let line = "WARNING: a\\nb is NOT SERVED; data: ACKNOWLEDGED DATA MAY BE LOST; a\\nb: ACKNOWLEDGED DATA MAY \
                    BE LOST; data: ANOTHER FOLDER, OR NONE, IS AT ITS PATH; data: NOT KEPT; data: POISONED 2 inodes \
                    whose sync failed; old (not served any more): POISONED 1 inodes whose sync failed; EVERY FLUSH \
                    FAILS; LATCHES CANNOT BE STORED; THE FLUSH JOURNAL CANNOT BE WRITTEN; 3 WRITE-BACK ERRORS on \
                    /srv; PERSISTENT HANDLES CANNOT BE RECORDED; CHANGES MADE ON THIS HOST ARE NOT SEEN\n";
        assert_eq!(in_a_line(&status), (line.to_owned(), false));
    }
}
