//! `holdfast status` for people: what runs where, the promise and the dirty data of each share, and the connected
//! users.
//!
//! Reads the same JSON that `--json` prints; a field that a server leaves out is shown as a dash.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{cell, push, write_columns};
use crate::config;

const WORKER: [&str; 6] = [
    "worker",
    "core",
    "listeners",
    "connections",
    "cpu time",
    "file I/O",
];
const SESSION: [&str; 8] = [
    "id",
    "user",
    "acts as",
    "from",
    "dialect",
    "protection",
    "open",
    "shares",
];
const OPEN: [&str; 6] = ["id", "share", "path", "user", "access", "locks"];

/// Opens that are shown one by one; `--json` has more.
const OPENS_SHOWN_MAX: usize = 1_000;

/// The whole status.
pub(super) fn in_words(status: &Value) -> String {
    let mut out = String::new();
    let server = &status["server"];
    let word = |value: &Value| cell(value);
    push(
        &mut out,
        &format!(
            "Holdfast {}, process {}, up {}; file I/O by {}",
            word(&status["version"]),
            word(&status["pid"]),
            span(status["uptime_s"].as_u64().unwrap_or(0) * 1_000),
            word(&server["file_io"]),
        ),
    );
    let config = match &status["config"] {
        Value::Null => "from the command line".to_owned(),
        file => word(file),
    };
    push(
        &mut out,
        &format!(
            "configuration {config}, state in {}",
            word(&status["state_dir"])
        ),
    );
    let figures = &status["connections"];
    push(
        &mut out,
        &format!(
            "connections: {} from {} addresses, {} without a login; {} let in, {} refused and {} \
             closed for newcomers since the start",
            word(&figures["connections"]),
            word(&figures["addresses"]),
            word(&figures["unauthenticated"]),
            word(&figures["accepted"]),
            word(&figures["refused"]),
            word(&figures["displaced"]),
        ),
    );
    if let Some(lost @ 1..) = status["log_lines_lost"].as_u64() {
        push(
            &mut out,
            &format!("LOG: {lost} lines could not be written and are lost"),
        );
    }
    write_memory(&mut out, &server["memory"]);
    push(&mut out, "\nworkers:");
    write_columns(&mut out, &WORKER, &workers(&status["workers"]), 1);
    push(&mut out, "\nshares:");
    for share in list(&server["shares"]) {
        write_share(&mut out, share);
    }
    for late in list(&status["late_shares"]) {
        write_late(&mut out, late);
    }
    write_kept(&mut out, &server["kept"]);
    write_handles(&mut out, &server["handles"]);
    write_host_changes(&mut out, &server["host_changes"]);
    let connections = list(&server["connections"]);
    let sessions = list(&server["sessions"]);
    push(&mut out, &format!("\nsessions: {}", sessions.len()));
    write_some(&mut out, &SESSION, &session_rows(sessions, connections));
    let all: u64 = sessions.iter().map(open_count).sum();
    let opens = sessions.iter().flat_map(|session| list(&session["opens"]));
    write_opens(&mut out, "open files", all, opens);
    let waiting = server["waiting_count"].as_u64().unwrap_or(0);
    if waiting > 0 {
        let opens = list(&server["waiting"]).iter();
        write_opens(&mut out, "open for clients that are away", waiting, opens);
    }
    out
}

/// A list of opens, with the argument for `holdfast close open`.
fn write_opens<'a>(out: &mut String, what: &str, all: u64, opens: impl Iterator<Item = &'a Value>) {
    let rows: Vec<Value> = opens.take(OPENS_SHOWN_MAX).map(open_row).collect();
    let left_out = if (rows.len() as u64) < all {
        format!(", of which {} are shown", rows.len())
    } else {
        String::new()
    };
    push(out, &format!("\n{what}: {all}{left_out}"));
    write_some(out, &OPEN, &rows);
}

fn open_count(session: &Value) -> u64 {
    // An older server lists all, and does not count.
    let listed = list(&session["opens"]).len() as u64;
    session["open_count"].as_u64().unwrap_or(listed)
}

fn write_memory(out: &mut String, memory: &Value) {
    let mib = |bytes: &Value| bytes.as_u64().unwrap_or(0).div_ceil(1 << 20);
    push(
        out,
        &format!(
            "buffer memory: {} MiB of {} MiB in use, {} connections wait for some; {} waits, {} \
             connections closed for others' sake and {} requests refused since the start",
            mib(&memory["used_bytes"]),
            mib(&memory["limit_bytes"]),
            memory["waiting"],
            memory["waits"],
            memory["evictions"],
            memory["refusals"],
        ),
    );
}

/// Shares alone: the answer to `holdfast policy`.
pub(crate) fn shares_in_words(shares: &Value) -> String {
    let mut out = String::new();
    for share in list(shares) {
        write_share(&mut out, share);
    }
    out
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn write_some(out: &mut String, columns: &[&str], rows: &[Value]) {
    if !rows.is_empty() {
        write_columns(out, columns, rows, 1);
    }
}

fn workers(workers: &Value) -> Vec<Value> {
    let row = |worker: &Value| {
        let cpu_ms = worker["cpu_ms"].as_u64().unwrap_or(0);
        json!({
            "worker": worker["worker"],
            "core": worker["core"],
            "listeners": worker["listeners"],
            "connections": worker["connections"],
            "cpu time": span(cpu_ms),
            "file I/O": worker["file_io"],
        })
    };
    list(workers).iter().map(row).collect()
}

/// A share that is not served yet.
fn write_late(out: &mut String, late: &Value) {
    push(
        out,
        &format!("  {} = {}", cell(&late["share"]), cell(&late["path"])),
    );
    let why = match &late["error"] {
        Value::Null => format!(
            "its file system has not answered for {}; it is served when it does",
            span(late["waited_ms"].as_u64().unwrap_or(0))
        ),
        error => format!(
            "{}; tried again in {}",
            cell(error),
            span(late["again_in_ms"].as_u64().unwrap_or(0))
        ),
    };
    push(out, &format!("    NOT SERVED: {why}"));
    if !late["way_out"].is_null() {
        push(out, &format!("    = {}", cell(&late["way_out"])));
    }
    write_lost(out, late);
}

/// The data that the start could not sync, of a share.
fn write_lost(out: &mut String, share: &Value) {
    if !share["lost_at_start"].is_null() {
        let lost = cell(&share["lost_at_start"]);
        push(out, &format!("    ACKNOWLEDGED DATA MAY BE LOST: {lost}"));
    }
}

fn write_share(out: &mut String, share: &Value) {
    let (name, path) = (cell(&share["share"]), cell(&share["path"]));
    let place = if share["path"].is_null() {
        String::new()
    } else {
        format!(" = {path}")
    };
    push(out, &format!("  {name}{place}"));
    push(out, &format!("    {}", durability_line(share)));
    write_promise(out, share);
    write_protection(out, &share["protection"]);
    write_exposure(out, share);
    write_lost(out, share);
    write_latched(out, share);
}

/// Policy and rules, what is wrong with them, and who set them.
fn write_promise(out: &mut String, share: &Value) {
    let policy = cell(&share["policy"]);
    push(out, &format!("    {policy}: {}", cell(&share["promise"])));
    if !share["broken_promise"].is_null() {
        push(out, &format!("    {}", cell(&share["broken_promise"])));
    }
    for rule in list(&share["rules"]) {
        let of = |key: &str| cell(&rule[key]);
        push(
            out,
            &format!("    {}: {} for {}", of("rule"), of("policy"), of("for")),
        );
    }
    if !share["warning"].is_null() {
        push(out, &format!("    WARNING: {}", cell(&share["warning"])));
    }
    if let Some(aside) = set_aside(share) {
        push(out, &format!("    {aside}"));
    }
    let slow = &share["too_slow"];
    if slow.is_object() {
        let of = |key: &str| span(slow[key].as_u64().unwrap_or(0));
        push(
            out,
            &format!(
                "    the disk is too slow for the bound: FLUSH waits as under honor, for {} so far \
                 (a sync takes {})",
                of("for_ms"),
                of("sync_ms")
            ),
        );
    }
    let change = &share["changed"];
    if change.is_object() {
        let of = |key: &str| cell(&change[key]);
        push(
            out,
            &format!(
                "    set to {}{} at {} by {}, was {}",
                of("policy"),
                if change["without_rules"] == true {
                    ", without its rules,"
                } else {
                    ""
                },
                of("at"),
                of("by"),
                of("was")
            ),
        );
    }
}

/// Which policies are not in force, and why.
fn set_aside(share: &Value) -> Option<String> {
    let reasons: Vec<&str> = list(&share["set_aside"])
        .iter()
        .map(|why| match why.as_str() {
            Some("power-guard") => "this machine runs on a battery (until mains power is back)",
            _ => "a sync failed",
        })
        .collect();
    let differs = share["configured_policy"] != share["policy"];
    let because = match reasons.as_slice() {
        // An older server does not say.
        [] if differs => "a sync failed".to_owned(),
        [] => return None,
        some => some.join(" and because "),
    };
    Some(if differs {
        let configured = cell(&share["configured_policy"]);
        format!("configured is {configured}, set aside because {because}")
    } else {
        format!("lazy rules are set aside for honor because {because}")
    })
}

/// The acknowledged data that are not stable.
fn write_exposure(out: &mut String, share: &Value) {
    let number = |key: &str| share[key].as_u64().unwrap_or(0);
    let exposed = match number("exposed_inodes") {
        0 => "nothing acknowledged that is not stable".to_owned(),
        inodes => format!(
            "acknowledged and not known to be stable: {} in {inodes} inodes, the oldest for {}",
            bytes(number("exposed_bytes")),
            span(number("oldest_ms")),
        ),
    };
    push(out, &format!("    {exposed}"));
    let parts = list(&share["by_policy"]);
    // Where rules let several policies acknowledge.
    for part in parts.iter().filter(|_| parts.len() > 1) {
        let number = |key: &str| part[key].as_u64().unwrap_or(0);
        push(
            out,
            &format!(
                "      under {}: {} in {} inodes, the oldest for {}",
                cell(&part["policy"]),
                bytes(number("exposed_bytes")),
                number("exposed_inodes"),
                span(number("oldest_ms")),
            ),
        );
    }
}

/// Opens that outlive their connections, if there are any, and those that outlive the server.
fn write_handles(out: &mut String, handles: &Value) {
    let of = |key: &str| cell(&handles[key]);
    if handles["durable"].as_u64().unwrap_or(0) > 0 {
        push(
            out,
            &format!(
                "\ndurable handles: {}, of which {} wait for their clients",
                of("durable"),
                of("waiting")
            ),
        );
    }
    let persistent = &handles["persistent"];
    if !persistent.is_object() {
        return;
    }
    let of = |key: &str| cell(&persistent[key]);
    push(
        out,
        &format!(
            "\npersistent handles: {}; {} changes recorded in {} writes{}",
            of("opens"),
            of("records"),
            of("writes"),
            if persistent["healthy"] == false {
                "; THEY CANNOT BE RECORDED NOW: a restart would not know what changes"
            } else {
                ""
            },
        ),
    );
}

fn write_kept(out: &mut String, kept: &Value) {
    let latches = &kept["latches"];
    if latches["healthy"] == false {
        push(
            out,
            "\nLATCHES CANNOT BE STORED: a restart would forget which files are unproven",
        );
    }
    match latches["dormant"].as_u64() {
        None | Some(0) => {}
        Some(dormant) => push(
            out,
            &format!("\nstored latches of file systems that no share is on now: {dormant}"),
        ),
    }
    let journal = &kept["flush_journal"];
    if journal.is_object() {
        let of = |key: &str| cell(&journal[key]);
        push(
            out,
            &format!(
                "\nflush journal: {} records in {} writes, {} not written{}",
                of("records"),
                of("writes"),
                of("lost"),
                if journal["healthy"] == false {
                    "; IT CANNOT BE WRITTEN NOW"
                } else {
                    ""
                },
            ),
        );
    }
    for one in list(&kept["file_systems"]) {
        let errors = one["write_back_errors"].as_u64().unwrap_or(0);
        if errors > 0 {
            let (root, shares) = (cell(&one["file_system"]), cell(&one["shares"]));
            push(
                out,
                &format!(
                    "\nWRITE-BACK ERRORS on the file system of {root} (shares {shares}): {errors}"
                ),
            );
        }
    }
}

/// The host changes that the server cannot see; nothing if it sees all.
fn write_host_changes(out: &mut String, seen: &Value) {
    if seen.is_null() {
        push(
            out,
            "\nCHANGES MADE ON THIS HOST ARE NOT SEEN: raise fs.inotify.max_user_instances",
        );
        return;
    }
    let number = |key: &str| seen[key].as_u64().unwrap_or(0);
    if number("refused") > 0 {
        push(
            out,
            &format!(
                "\nchanges made on this host: {} times the kernel had no more watches, so nothing was \
                 cached there; raise fs.inotify.max_user_watches",
                number("refused")
            ),
        );
    }
    if number("overflows") > 0 {
        push(
            out,
            &format!(
                "\nchanges made on this host: {} times too many at once, all caches were given up; \
                 raise fs.inotify.max_queued_events",
                number("overflows")
            ),
        );
    }
}

/// Everything in one line of words, for eyes and `grep`.
fn durability_line(share: &Value) -> String {
    let number = |key: &str| share[key].as_u64().unwrap_or(0);
    let text = |key: &str| share[key].as_str().unwrap_or("-");
    let policy = match text("policy").split_once(':') {
        Some((name, bounds)) => format!("{name}({bounds})"),
        None => text("policy").to_owned(),
    };
    format!(
        "durability: share={} policy={policy} exposed={}/{} files oldest={}ms latch={} device={}",
        config::policy::one_word(text("share")),
        short_bytes(number("exposed_bytes")),
        number("exposed_inodes"),
        number("oldest_ms"),
        number("latched_inodes"),
        text("device"),
    )
}

/// The storage under a share: the stack, and a line for each finding.
fn write_protection(out: &mut String, found: &Value) {
    if !found.is_object() {
        return;
    }
    let (verdict, stack) = (cell(&found["verdict"]), cell(&found["stack"]));
    push(out, &format!("    on {stack}: {verdict}"));
    for line in list(&found["says"]) {
        push(out, &format!("      {}", cell(line)));
    }
}

fn write_latched(out: &mut String, share: &Value) {
    let number = |key: &str| share[key].as_u64().unwrap_or(0);
    if number("latched_inodes") == 0 {
        return;
    }
    push(
        out,
        &format!(
            "    LATCHED: {} inodes whose sync failed, {} unproven",
            number("latched_inodes"),
            bytes(number("latched_bytes")),
        ),
    );
    for inode in list(&share["latched"]) {
        let (number, device) = (cell(&inode["inode"]), cell(&inode["device"]));
        let error = cell(&inode["error"]);
        let path = match inode["path"].as_str() {
            None | Some("") => String::new(),
            Some(_) => format!(" ({})", cell(&inode["path"])),
        };
        let since = match &inode["since"] {
            Value::Null => String::new(),
            since => format!(", since {}", cell(since)),
        };
        push(
            out,
            &format!("      inode {number}{path} of device {device}: {error}{since}"),
        );
    }
}

/// What `policy set` did to each share; false if something could not be made stable.
pub(super) fn changes_in_words(shares: &Value) -> (String, bool) {
    let mut out = String::new();
    let mut all_stable = true;
    for share in list(shares) {
        let of = |key: &str| cell(&share[key]);
        push(
            &mut out,
            &format!(
                "{}: {} instead of {}",
                of("share"),
                of("configured_policy"),
                of("was")
            ),
        );
        let synced = &share["synced"];
        let number = |key: &str| synced[key].as_u64().unwrap_or(0);
        let (inodes, owed) = (number("inodes"), bytes(number("bytes")));
        push(&mut out, &format!("  made stable: {inodes} inodes, {owed}"));
        if number("failed") > 0 {
            all_stable = false;
            push(
                &mut out,
                &format!("  NOT STABLE: {} inodes", number("failed")),
            );
        }
        for one in list(&synced["errors"]) {
            let (number, device) = (cell(&one["inode"]), cell(&one["device"]));
            let error = cell(&one["error"]);
            push(
                &mut out,
                &format!("    inode {number} of device {device}: {error}"),
            );
        }
        write_share(&mut out, share);
    }
    (out, all_stable)
}

fn session_rows(sessions: &[Value], connections: &[Value]) -> Vec<Value> {
    let row = |session: &Value| {
        let channels = list(&session["channels"]);
        let here: Vec<&Value> = connections
            .iter()
            .filter(|connection| channels.contains(&connection["id"]))
            .collect();
        let from: Vec<&Value> = here.iter().map(|connection| &connection["peer"]).collect();
        // Every channel of a session has its dialect ([MS-SMB2] 3.3.5.5.2).
        let dialect = here.first().map(|connection| &connection["dialect"]);
        let protection = match (&session["encrypted"], &session["signed"]) {
            (Value::Bool(true), _) => "encrypted",
            (_, Value::Bool(true)) => "signed",
            _ => "none",
        };
        json!({
            "user": match session["user"].as_str() {
                Some("") => json!("(anonymous)"),
                _ => session["user"].clone(),
            },
            "acts as": session["acts_as"],
            "from": from,
            "dialect": dialect,
            "protection": protection,
            "shares": session["trees"],
            "open": open_count(session),
            "id": session["id"],
        })
    };
    sessions.iter().map(row).collect()
}

fn open_row(open: &Value) -> Value {
    json!({
        "id": open["id"],
        "share": open["share"],
        "path": match open["path"].as_str() {
            Some("") => json!("\\"),
            _ => open["path"].clone(),
        },
        "user": open["user"],
        "access": open["access"],
        "locks": open["locks"],
    })
}

/// Milliseconds as people say them.
fn span(ms: u64) -> String {
    let (s, min) = (ms / 1_000, ms / 60_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{s}.{} s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{min} min {} s", s % 60),
        3_600_000..172_800_000 => format!("{} h {} min", min / 60, min % 60),
        _ => format!("{} d {} h", min / 1_440, min / 60 % 24),
    }
}

/// Bytes as one word with one decimal: `1.2MiB`.
fn short_bytes(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| bytes >> shift > 0);
    match unit {
        None => format!("{bytes}B"),
        Some((unit, shift)) => {
            // Rounded up: the possible loss is never more than the figure.
            let tenths = (u128::from(bytes) * 10).div_ceil(1 << shift);
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        }
    }
}

/// Bytes as people say them.
fn bytes(bytes: u64) -> String {
    let mut text = String::new();
    let (value, unit) = match bytes {
        0..10_240 => (bytes, "bytes"),
        10_240..10_485_760 => (bytes >> 10, "KiB"),
        10_485_760..10_737_418_240 => (bytes >> 20, "MiB"),
        _ => (bytes >> 30, "GiB"),
    };
    // Writing to a string cannot fail.
    let _ = write!(text, "{value} {unit}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_status() -> Value {
        json!({
            "version": "0.1.0", "pid": 7, "uptime_s": 200, "config": "/etc/h.toml",
            "state_dir": "/var/lib/holdfast",
            "connections": { "connections": 1, "addresses": 1, "unauthenticated": 0,
                             "accepted": 3, "refused": 2, "displaced": 1 },
            "workers": [{ "worker": 0, "core": 3, "listeners": ["[::]:445 on eth0"],
                          "connections": 1, "cpu_ms": 1_250, "file_io": "io_uring" }],
            "server": {
                "file_io": "io_uring",
                "memory": { "limit_bytes": 1 << 30, "used_bytes": 5, "waiting": 1, "waits": 7,
                            "evictions": 2, "refusals": 0 },
                "host_changes": { "watches": 1, "refused": 0, "overflows": 0 },
                "connections": [{ "id": 4, "peer": "10.0.0.1:999", "dialect": "3.1.1" },
                                { "id": 5, "peer": "10.0.0.2:999", "dialect": "3.1.1" },
                                { "id": 6, "peer": "10.0.1.1:998", "dialect": "3.1.1" }],
                "sessions": [{ "id": 9, "channels": [4, 6], "user": "alice",
                    "acts_as": "1000:100", "signed": true,
                    "encrypted": false, "trees": ["data", "IPC$"],
                    "open_count": 3,
                    "opens": [{ "id": 51_966, "share": "data", "path": "a\u{1b}b",
                                "user": "alice", "access": "0x00120089", "locks": 2 }] }],
                "shares": [{ "share": "data", "path": "/srv", "policy": "honor",
                    "configured_policy": "bounded:50ms,4MiB", "promise": "p.",
                    "exposed_bytes": 20_480, "exposed_inodes": 2, "oldest_ms": 400,
                    "device": "volatile-cache,no-fua,unprotected", "warning": "w",
                    "broken_promise": "b",
                    "changed": { "policy": "honor", "was": "strict-sync", "by": "root (uid 0)",
                                 "at": "2026-11-21 16:22:40 UTC" },
                    "protection": { "verdict": "unprotected", "stack": "xfs on /; sda",
                                    "says": ["sda has a volatile write cache"] },
                    "latched_inodes": 1, "latched_bytes": 4_096,
                    "latched": [{ "inode": 12, "device": "0x1f", "error": "Io" },
                                { "inode": 13, "device": "0x1f", "error": "Io", "path": "a/b",
                                  "since": "2026-11-21 16:22:40 UTC" }] }],
            },
        })
    }

    #[test]
    fn a_disk_that_is_too_slow_for_the_bound_is_told_with_since_when() {
        let mut status = a_status();
        let line = "\n    the disk is too slow for the bound: FLUSH waits as under honor, for 12.0 s so \
                    far (a sync takes 80 ms)\n";
        assert!(!in_words(&status).contains("too slow"));
        let slow = json!({ "for_ms": 12_000, "sync_ms": 80 });
        status["server"]["shares"][0]["too_slow"] = slow;
        let text = in_words(&status);
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_status_reads_well() {
        let status = a_status();
        assert_eq!(
            in_words(&status),
            "\
Holdfast 0.1.0, process 7, up 3 min 20 s; file I/O by io_uring
configuration /etc/h.toml, state in /var/lib/holdfast
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
    configured is bounded:50ms,4MiB, set aside because a sync failed
    set to honor at 2026-11-21 16:22:40 UTC by root (uid 0), was strict-sync
    on xfs on /; sda: unprotected
      sda has a volatile write cache
    acknowledged and not known to be stable: 20 KiB in 2 inodes, the oldest for 400 ms
    LATCHED: 1 inodes whose sync failed, 4096 bytes unproven
      inode 12 of device 0x1f: Io
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
        let mut out = String::new();
        let waiting = json!([{ "id": 3, "share": "data", "path": "", "user": "bob",
                               "access": "0x00120089", "locks": 0 }]);
        write_opens(
            &mut out,
            "open for clients that are away",
            1,
            list(&waiting).iter(),
        );
        assert_eq!(
            out,
            "
open for clients that are away: 1
  id  share  path  user  access      locks
  3   data   \\     bob   0x00120089  0
"
        );
    }

    #[test]
    fn what_the_kernel_does_not_tell_reads_well() {
        let mut out = String::new();
        let fine = json!({ "watches": 3, "refused": 0, "overflows": 0 });
        write_host_changes(&mut out, &fine);
        assert_eq!(out, "");
        write_host_changes(&mut out, &json!({ "refused": 2, "overflows": 1 }));
        assert!(out.contains("2 times the kernel had no more watches"));
        assert!(out.contains("1 times too many at once"));
        write_host_changes(&mut out, &Value::Null);
        assert!(out.contains("ARE NOT SEEN"));
    }

    #[test]
    fn what_is_kept_reads_well() {
        let mut out = String::new();
        let fine = json!({ "latches": { "healthy": true, "dormant": 0 }, "flush_journal": null,
                           "file_systems": [{ "file_system": "/a", "write_back_errors": 0 }] });
        write_kept(&mut out, &fine);
        write_kept(&mut out, &Value::Null);
        assert_eq!(out, "");
        let bad = json!({
            "latches": { "healthy": false, "dormant": 3 },
            "flush_journal": { "healthy": false, "records": 9, "writes": 4, "lost": 1 },
            "file_systems": [{ "file_system": "/a", "shares": ["x", "y"], "write_back_errors": 2 }],
        });
        write_kept(&mut out, &bad);
        assert_eq!(
            out,
            "
LATCHES CANNOT BE STORED: a restart would forget which files are unproven

stored latches of file systems that no share is on now: 3

flush journal: 9 records in 4 writes, 1 not written; IT CANNOT BE WRITTEN NOW

WRITE-BACK ERRORS on the file system of /a (shares x,y): 2
"
        );
    }

    #[test]
    fn a_change_reads_well() {
        let share = json!({
            "share": "d", "policy": "bounded:50ms,4MiB", "configured_policy": "bounded:50ms,4MiB",
            "was": "honor", "promise": "p", "exposed_bytes": 0, "exposed_inodes": 0,
            "synced": { "inodes": 3, "bytes": 4096, "failed": 1,
                        "errors": [{ "inode": 7, "device": "0x1f", "error": "I/O" }] },
        });
        let (text, all_stable) = changes_in_words(&json!([share]));
        assert!(!all_stable);
        assert_eq!(
            text,
            "\
d: bounded:50ms,4MiB instead of honor
  made stable: 3 inodes, 4096 bytes
  NOT STABLE: 1 inodes
    inode 7 of device 0x1f: I/O
  d
    durability: share=d policy=bounded(50ms,4MiB) exposed=0B/0 files oldest=0ms latch=0 device=-
    bounded:50ms,4MiB: p
    nothing acknowledged that is not stable
"
        );
    }

    #[test]
    fn spans_and_sizes() {
        assert_eq!(short_bytes(1_023), "1023B");
        assert_eq!(short_bytes((1 << 20) + 1), "1.1MiB");
        assert_eq!(short_bytes(u64::MAX), "17179869184.0GiB");
        assert_eq!(span(90_000_000), "25 h 0 min");
        assert_eq!(span(900_000_000), "10 d 10 h");
        assert_eq!(bytes(10_239), "10239 bytes");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(64 << 30), "64 GiB");
    }
}
