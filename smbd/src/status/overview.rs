//! `holdfast status` for people: listeners and workers, the promise and the dirty data of each share, and the connected
//! users.

use super::{
    shares,
    text::{Text, list, put, span},
};
use crate::answers::{
    HandlesStatus, HostChangesStatus, KeptStatus, MemoryStatus, OpenStatus, SandboxStatus,
    ServerStatus, SessionStatus, StatusReport, WorkerStatus,
};

/// Opens that are shown one by one; `--json` has more.
const OPENS_SHOWN_MAX: usize = 1_000;

/// The whole status.
pub(crate) fn in_words(status: &StatusReport) -> String {
    let mut out = Text::default();
    let server = &status.server;
    write_process(&mut out, status);
    out.gap();
    write_workers(&mut out, &status.workers);
    out.gap();
    put!(out, 0; "shares:");
    for share in &server.shares {
        shares::write(&mut out, share);
    }
    for removed in &server.removed_shares {
        shares::write_removed(&mut out, removed);
    }
    for late in &status.late_shares {
        shares::write_late(&mut out, late);
    }
    write_kept(&mut out, &server.kept);
    write_handles(&mut out, &server.handles);
    write_host_changes(&mut out, server.host_changes);
    write_sessions(&mut out, server);
    let all = server.sessions.iter().map(|session| session.open_count);
    let opens = server.sessions.iter().flat_map(|session| &session.opens);
    write_opens(&mut out, "open files", all.sum(), opens);
    if server.waiting_count > 0 {
        let (what, all) = ("open for clients that are away", server.waiting_count);
        write_opens(&mut out, what, all as u64, server.waiting.iter());
    }
    out.finish()
}

fn write_process(out: &mut Text, status: &StatusReport) {
    let (version, pid, file_io) = (&status.version, status.pid, &status.server.file_io);
    let uptime = span(status.uptime_s.saturating_mul(1_000));
    put!(out, 0; "Holdfast {version}, process {pid}, up {uptime}; file I/O by {file_io}");
    let config = status.config.as_deref().unwrap_or("from the command line");
    let state = &status.state_dir;
    put!(out, 0; "configuration {config}, state in {state}");
    write_sandbox(out, &status.sandbox);
    let figures = &status.connections;
    put!(out, 0;
        "connections: {} from {} addresses, {} without a login; {} let in, {} refused and {} \
         closed for newcomers since the start",
        figures.connections, figures.addresses, figures.unauthenticated, figures.accepted,
        figures.refused, figures.displaced);
    if status.log_lines_lost > 0 {
        let lost = status.log_lines_lost;
        put!(out, 0; "LOG: {lost} lines could not be written and are lost");
    }
    write_memory(out, &status.server.memory);
}

/// The privileges that the server has given up.
fn write_sandbox(out: &mut Text, sandbox: &SandboxStatus) {
    let capabilities = match &sandbox.capabilities {
        Some(kept) if kept.is_empty() => "no capabilities".to_owned(),
        Some(kept) => format!("capabilities {}", kept.join(" ")),
        None => "ALL CAPABILITIES that it was started with".to_owned(),
    };
    let landlock = match (&sandbox.landlock, &sandbox.without_landlock) {
        (Some(folders), _) => format!("Landlock leaves {} folders", folders.len()),
        (None, Some(why)) => format!("WITHOUT LANDLOCK: {why}"),
        (None, None) => "WITHOUT LANDLOCK".to_owned(),
    };
    let seccomp = match (sandbox.seccomp, sandbox.calls_refused) {
        (true, refused) => format!("seccomp, {refused} system calls refused"),
        (false, _) => "WITHOUT SECCOMP".to_owned(),
    };
    put!(out, 0; "sandbox: {capabilities}; {landlock}; {seccomp}");
}

fn write_memory(out: &mut Text, memory: &MemoryStatus) {
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    put!(out, 0;
        "buffer memory: {} MiB of {} MiB in use, {} connections wait for some; {} waits, {} \
         connections closed for others' sake and {} requests refused since the start",
        mib(memory.used_bytes), mib(memory.limit_bytes), memory.waiting, memory.waits,
        memory.evictions, memory.refusals);
}

fn write_workers(out: &mut Text, workers: &[WorkerStatus]) {
    put!(out, 0; "workers:");
    let columns = [
        "worker",
        "core",
        "listeners",
        "connections",
        "cpu time",
        "file I/O",
    ];
    let rows = workers.iter().map(|worker| {
        [
            worker.worker.to_string(),
            worker.core.to_string(),
            list(&worker.listeners),
            worker.connections.to_string(),
            span(worker.cpu_ms),
            worker.file_io.clone(),
        ]
    });
    out.table(1, columns, rows);
}

/// Opens that outlive their connections, if there are any, and those that outlive the server.
fn write_handles(out: &mut Text, handles: &HandlesStatus) {
    let (durable, waiting) = (handles.durable, handles.waiting);
    if durable > 0 {
        out.gap();
        put!(out, 0; "durable handles: {durable}, of which {waiting} wait for their clients");
    }
    let Some(persistent) = &handles.persistent else {
        return;
    };
    let (opens, records, writes) = (persistent.opens, persistent.records, persistent.writes);
    let failing = match persistent.healthy {
        true => "",
        false => "; THEY CANNOT BE RECORDED NOW: a restart would lack their last changes",
    };
    out.gap();
    put!(out, 0;
        "persistent handles: {opens}; {records} changes recorded in {writes} writes{failing}");
}

fn write_kept(out: &mut Text, kept: &KeptStatus) {
    let mut warn = |words: &str| {
        out.gap();
        put!(out, 0; "{words}");
    };
    if !kept.latches.healthy {
        warn("LATCHES CANNOT BE STORED: a restart would forget which files are unproven");
    }
    if kept.latches.overflow {
        warn(
            "EVERY FLUSH FAILS: files whose sync failed are not known by name; look at what was written last, then \
             accept it with `holdfast policy clear-latch` (without a share)",
        );
    }
    let dormant = kept.latches.dormant;
    if dormant > 0 {
        out.gap();
        put!(out, 0; "stored latches of file systems that no share is on now: {dormant}");
    }
    if let Some(journal) = &kept.flush_journal {
        let (records, writes, lost) = (journal.records, journal.writes, journal.lost);
        let failing = match journal.healthy {
            true => "",
            false => "; IT CANNOT BE WRITTEN NOW",
        };
        out.gap();
        put!(out, 0;
            "flush journal: {records} records in {writes} writes, {lost} not written{failing}");
    }
    for one in &kept.file_systems {
        let errors = one.write_back_errors;
        if errors > 0 {
            let (root, shares) = (&one.file_system, list(&one.shares));
            out.gap();
            put!(out, 0;
                "WRITE-BACK ERRORS on the file system of {root} (shares {shares}): {errors}");
        }
    }
}

/// The host changes that the server cannot see; nothing if it sees all.
fn write_host_changes(out: &mut Text, seen: Option<HostChangesStatus>) {
    let Some(HostChangesStatus {
        refused, overflows, ..
    }) = seen
    else {
        out.gap();
        put!(out, 0;
            "CHANGES MADE ON THIS HOST ARE NOT SEEN: the log says why; restart the server, and before that perhaps raise \
             fs.inotify.max_user_instances");
        return;
    };
    if refused > 0 {
        out.gap();
        put!(out, 0;
            "changes made on this host: {refused} times something could not be watched, so \
             nothing was cached there; the log says why");
    }
    if overflows > 0 {
        out.gap();
        put!(out, 0;
            "changes made on this host: {overflows} times too many at once, all caches were given \
             up; raise fs.inotify.max_queued_events");
    }
}

fn write_sessions(out: &mut Text, server: &ServerStatus) {
    out.gap();
    put!(out, 0; "sessions: {}", server.sessions.len());
    let columns = [
        "id",
        "user",
        "acts as",
        "from",
        "dialect",
        "protection",
        "open",
        "shares",
    ];
    let row = |session: &SessionStatus| {
        let connections = server.connections.iter();
        let here = connections.filter(|connection| session.channels.contains(&connection.id));
        let here: Vec<_> = here.collect();
        let from: Vec<String> = here.iter().map(|one| one.peer.clone()).collect();
        // Every channel of a session has its dialect ([MS-SMB2] 3.3.5.5.2). A session that has just lost its
        // connection shows none.
        let dialect = here.first().map_or("-", |one| &one.dialect);
        let protection = match (session.encrypted, session.signed) {
            (true, _) => "encrypted",
            (false, true) => "signed",
            (false, false) => "none",
        };
        let user = match session.user.as_str() {
            "" => "(anonymous)",
            user => user,
        };
        [
            session.id.to_string(),
            user.to_owned(),
            session.acts_as.clone(),
            list(&from),
            dialect.to_owned(),
            protection.to_owned(),
            session.open_count.to_string(),
            list(&session.trees),
        ]
    };
    out.table(1, columns, server.sessions.iter().map(row));
}

/// Writes a list of opens, with the argument for `holdfast close open`.
fn write_opens<'a>(
    out: &mut Text,
    what: &str,
    all: u64,
    opens: impl Iterator<Item = &'a OpenStatus>,
) {
    let row = |open: &OpenStatus| {
        let path = match open.path.as_str() {
            "" => "\\",
            path => path,
        };
        [
            open.id.to_string(),
            open.share.clone(),
            path.to_owned(),
            open.user.clone(),
            open.access.clone(),
            open.locks.to_string(),
        ]
    };
    let rows: Vec<_> = opens.take(OPENS_SHOWN_MAX).map(row).collect();
    out.gap();
    match rows.len() {
        shown if (shown as u64) < all => {
            put!(out, 0; "{what}: {all}, of which {shown} are shown")
        }
        _ => put!(out, 0; "{what}: {all}"),
    }
    out.table(1, ["id", "share", "path", "user", "access", "locks"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{JournalStatus, LatchStoreStatus, WatchedFileSystem};

    fn a_status() -> StatusReport {
        let status = r#"{
            "version": "0.1.0", "pid": 7, "uptime_s": 200, "config": "/etc/h.toml",
            "state_dir": "/var/lib/holdfast", "log_lines_lost": 0,
            "sandbox": { "seccomp": true, "calls_refused": 0, "capabilities": ["CAP_CHOWN", "CAP_FOWNER"],
                         "without_landlock": "no" },
            "connections": { "connections": 1, "addresses": 1, "unauthenticated": 0,
                             "accepted": 3, "refused": 2, "displaced": 1 },
            "listeners": [], "late_shares": [],
            "workers": [{ "worker": 0, "core": 3, "listeners": ["[::]:445 on eth0"],
                          "connections": 1, "cpu_ms": 1250, "file_io": "io_uring" }],
            "server": {
                "file_io": "io_uring",
                "memory": { "limit_bytes": 1073741824, "used_bytes": 5, "waiting": 1, "waits": 7,
                            "evictions": 2, "refusals": 0 },
                "waiting": [], "waiting_count": 0, "tables": {}, "removed_shares": [],
                "kept": { "latches": { "healthy": true, "dormant": 0, "overflow": false },
                          "file_systems": [] },
                "power": { "power": "mains", "guard": false, "trips": 0 },
                "handles": { "durable": 0, "waiting": 0 },
                "host_changes": { "watches": 1, "interests": 1, "refused": 0, "overflows": 0 },
                "connections": [{ "id": 4, "peer": "10.0.0.1:999", "dialect": "3.1.1" },
                                { "id": 5, "peer": "10.0.0.2:999", "dialect": "3.1.1" },
                                { "id": 6, "peer": "10.0.1.1:998", "dialect": "3.1.1" }],
                "sessions": [{ "id": 9, "channels": [4, 6], "user": "alice",
                    "acts_as": "1000:100", "signed": true,
                    "encrypted": false, "trees": ["data", "IPC$"],
                    "open_count": 3,
                    "opens": [{ "id": 51966, "share": "data", "path": "a\u001bb",
                                "user": "alice", "access": "0x00120089", "locks": 2 }] }],
                "shares": [{ "share": "data", "path": "/srv", "policy": "honor",
                    "configured_policy": "bounded:50ms,4MiB", "promise": "p.",
                    "set_aside": ["failed-sync"], "rules": [], "by_policy": [],
                    "exposed_bytes": 20480, "exposed_inodes": 2, "oldest_ms": 400,
                    "device": "volatile-cache,no-fua,unprotected", "warning": "w",
                    "replaced": true,
                    "broken_promise": "b",
                    "changed": { "policy": "honor", "was": "strict-sync", "by": "root (uid 0)",
                                 "without_rules": false, "at": "2026-11-21 16:22:40 UTC",
                                 "unix_s": 1795278160 },
                    "protection": { "verdict": "unprotected", "stack": "xfs on /; sda",
                                    "contradictory": false, "words": "", "file_systems": [],
                                    "devices": [], "findings": [],
                                    "says": ["sda has a volatile write cache"] },
                    "poisoned_inodes": 1, "unproven_bytes": 4096,
                    "poisoned": [{ "inode": 13, "device": "0x1f", "error": "Io", "path": "a/b",
                                  "metadata": true, "names": false,
                                  "since": "2026-11-21 16:22:40 UTC" }] }]
            }
        }"#;
        serde_json::from_str(status).unwrap()
    }

    #[test]
    fn a_status_reads_well() {
        assert_eq!(
            in_words(&a_status()),
            "\
Holdfast 0.1.0, process 7, up 3 min 20 s; file I/O by io_uring
configuration /etc/h.toml, state in /var/lib/holdfast
sandbox: capabilities CAP_CHOWN CAP_FOWNER; WITHOUT LANDLOCK: no; seccomp, 0 system calls refused
connections: 1 from 1 addresses, 0 without a login; 3 let in, 2 refused and 1 closed \
for newcomers since the start
buffer memory: 1 MiB of 1024 MiB in use, 1 connections wait for some; 7 waits, 2 connections closed \
for others' sake and 0 requests refused since the start

workers:
  worker  core  listeners         connections  cpu time  file I/O
  0       3     [::]:445 on eth0  1            1.2 s     io_uring

shares:
  data = /srv
    durability: share=data policy=honor exposed=20.0KiB/2 files oldest=400ms latch=1 \
device=volatile-cache,no-fua,unprotected
    honor: p.
    b
    WARNING: w
    WARNING: clients see the folder that was there at the start: another file system is mounted over it since, or the \
folder was replaced, renamed or removed; a restart serves one that is at its path then, and `holdfast reload` does if \
Landlock allows it
    configured is bounded:50ms,4MiB, set aside because a sync failed
    set to honor at 2026-11-21 16:22:40 UTC by root (uid 0), was strict-sync
    on xfs on /; sda: unprotected
      sda has a volatile write cache
    acknowledged and not known to be stable: 20 KiB in 2 inodes, the oldest for 400 ms
    POISONED: 1 inodes whose sync failed, 4096 bytes unproven
      inode 13 (a/b) of device 0x1f: Io, since 2026-11-21 16:22:40 UTC

sessions: 1
  id  user   acts as   from                       dialect  protection  open  shares
  9   alice  1000:100  10.0.0.1:999,10.0.1.1:998  3.1.1    signed      3     data,IPC$

open files: 3, of which 1 are shown
  id     share  path      user   access      locks
  51966  data   a\\u{1b}b  alice  0x00120089  2
"
        );
    }

    #[test]
    fn opens_without_their_clients_read_well() {
        let mut out = Text::default();
        let waiting = OpenStatus {
            id: 3,
            share: "data".to_owned(),
            path: String::new(),
            user: "bob".to_owned(),
            access: "0x00120089".to_owned(),
            locks: 0,
        };
        let what = "open for clients that are away";
        write_opens(&mut out, what, 1, [waiting].iter());
        assert_eq!(
            out.finish(),
            "
open for clients that are away: 1
  id  share  path  user  access      locks
  3   data   \\     bob   0x00120089  0
"
        );
    }

    #[test]
    fn what_the_kernel_does_not_report_reads_well() {
        let words = |seen| {
            let mut out = Text::default();
            write_host_changes(&mut out, seen);
            out.finish()
        };
        let mut seen = HostChangesStatus::default();
        assert_eq!(words(Some(seen)), "");
        (seen.refused, seen.overflows) = (2, 1);
        assert!(words(Some(seen)).contains("2 times something could not be watched"));
        assert!(words(Some(seen)).contains("1 times too many at once"));
        assert!(words(None).contains("ARE NOT SEEN"));
    }

    #[test]
    fn what_is_kept_reads_well() {
        let mut out = Text::default();
        let file_system = |write_back_errors| WatchedFileSystem {
            file_system: "/a".to_owned(),
            device: "0x1f".to_owned(),
            shares: vec!["x".to_owned(), "y".to_owned()],
            write_back_errors,
        };
        let latches = |healthy, dormant| LatchStoreStatus {
            healthy,
            dormant,
            overflow: !healthy,
        };
        let fine = KeptStatus {
            latches: latches(true, 0),
            flush_journal: None,
            file_systems: vec![file_system(0)],
        };
        write_kept(&mut out, &fine);
        let bad = KeptStatus {
            latches: latches(false, 3),
            flush_journal: Some(JournalStatus {
                healthy: false,
                records: 9,
                writes: 4,
                lost: 1,
            }),
            file_systems: vec![file_system(2)],
        };
        write_kept(&mut out, &bad);
        assert_eq!(
            out.finish(),
            "
LATCHES CANNOT BE STORED: a restart would forget which files are unproven

EVERY FLUSH FAILS: files whose sync failed are not known by name; look at what was written last, then accept it with \
`holdfast policy clear-latch` (without a share)

stored latches of file systems that no share is on now: 3

flush journal: 9 records in 4 writes, 1 not written; IT CANNOT BE WRITTEN NOW

WRITE-BACK ERRORS on the file system of /a (shares x,y): 2
"
        );
    }
}
