//! Tests that the stores outlive the server: the journal of flushes after a kill, with the real binary.

use std::{fs, time::Duration};

use smb_client::{ClientError, CreateArgs, File};

use crate::{
    loop_mount::LoopMount,
    support::{Daemon, PASSWORD, Plan, USER, eventually},
};

/// The same server in a folder that has its users.
fn again(plan: &Plan) -> Plan {
    Plan {
        users: Vec::new(),
        share: plan.share.clone(),
        tables: plan.tables.clone(),
        ..Plan::default()
    }
}

fn report(daemon: &Daemon) -> serde_json::Value {
    let text = daemon.ask(&["durability", "report", "--json"]).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn after_a_kill_the_report_says_what_had_been_promised() {
    let plan = Plan {
        share: "flush_journal = true".into(),
        ..Plan::default()
    };
    let mut daemon = plan.start();
    let tree = daemon.tree();
    for n in 0..20_u64 {
        let file = tree.create(&CreateArgs::create(&format!("f{n}"))).unwrap();
        file.write_all(0, &vec![7; 1000 + n as usize]).unwrap();
        file.flush(false).unwrap();
        // Not promised.
        file.write_all(5000, &[1; 10]).unwrap();
    }
    let live = report(&daemon);
    assert_eq!(live["run"]["end"], "running");
    assert_eq!(live["run"]["flushes"], 20);
    daemon.signal("KILL");
    daemon.wait(Duration::from_secs(10));
    let dead = report(&daemon);
    assert_eq!(dead["run"]["end"], "server", "{dead:#}");
    let share = &dead["shares"][0];
    assert_eq!(share["suspect_files"], 0);
    let files = share["files"].as_array().unwrap();
    assert_eq!(files.len(), 20);
    for file in files {
        let n: u64 = file["path"].as_str().unwrap()[1..].parse().unwrap();
        assert_eq!(file["size"], 1000 + n);
        assert_eq!(file["size_now"], 5010);
        assert_eq!(file["policy"], "honor");
    }
    // A lost file is reported, and a moved one is found.
    fs::rename(daemon.path("data/f1"), daemon.path("data/g1")).unwrap();
    fs::remove_file(daemon.path("data/f2")).unwrap();
    let text = daemon.ask(&["durability", "report"]).unwrap();
    assert!(
        text.contains("20 flushed files: 1 to be looked at"),
        "{text}"
    );
    assert!(text.contains("GONE"), "{text}");
    // A disk that has not come back is no obstacle.
    daemon.edit(|text| format!("{text}\n[[share]]\nname = \"gone\"\npath = \"gone\"\n"));
    assert_eq!(report(&daemon)["run"]["end"], "server");

    // The next server's run is not the one asked for; its orderly end is.
    let mut daemon = again(&plan).start_in(daemon.into_folder());
    assert!(daemon.log().contains("did not end in order"));
    assert_eq!(report(&daemon)["run"]["flushes"], 20);
    let file = daemon.tree().create(&CreateArgs::create("h")).unwrap();
    file.write_all(0, b"x").unwrap();
    file.flush(false).unwrap();
    file.close().unwrap();
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    let last = report(&daemon);
    assert_eq!(last["run"]["end"], "stable", "{last:#}");
    assert_eq!(last["run"]["flushes"], 1);
}

#[test]
fn a_lazy_share_reports_its_exposure_after_a_kill() {
    let plan = Plan {
        share: "flush_journal = true\ndurability = \"treat-host-as-stable-storage\"\n\
                accept_loss = true"
            .into(),
        ..Plan::default()
    };
    let mut daemon = plan.start();
    let tree = daemon.tree();
    let file = tree.create(&CreateArgs::create("big")).unwrap();
    file.write_all(0, &vec![7; 3 << 20]).unwrap();
    file.flush(false).unwrap();
    file.write_all(3 << 20, &[1; 100]).unwrap();
    // The promised flush is noted a little later.
    eventually("noted", || report(&daemon)["run"]["flushes"] == 1);
    daemon.signal("KILL");
    daemon.wait(Duration::from_secs(10));
    let dead = report(&daemon);
    let exposure = &dead["shares"][0]["exposure"];
    assert!(exposure["at_most_bytes"].as_u64().unwrap() >= (3 << 20) + 100);
    assert!(exposure["at_most_ms"].as_u64().unwrap() >= 1);
    assert_eq!(dead["shares"][0]["files"][0]["before_the_disk"], true);
    let text = daemon.ask(&["durability", "report"]).unwrap();
    assert!(text.contains("exposure at the end at most"), "{text}");
    assert!(
        text.contains("none of it is lost by the server's end alone"),
        "{text}"
    );
}

#[test]
fn a_damaged_latch_file_refuses_the_start() {
    let mut daemon = Plan::default().start();
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    fs::write(daemon.path("state/latches"), "HFLATCH7").unwrap();
    let said = daemon.ask(&["serve"]).unwrap_err();
    assert!(said.contains("another version"), "{said}");
    assert!(said.contains("move it away"), "{said}");
}

/// Writes 24 MiB and flushes them.
fn write_and_flush(file: &File, byte: u8) -> Result<(), ClientError> {
    file.write_all(0, &vec![byte; 24 << 20])?;
    file.flush(false)
}

fn kill(daemon: &mut Daemon) {
    daemon.signal("KILL");
    daemon.wait(Duration::from_secs(10));
}

/// XFS over a disk that runs full: the first `fsync` fails, the next one succeeds, and the data are lost. This server
/// and the next one remember the failure.
#[test]
fn a_failed_flush_is_remembered_over_a_kill() {
    let Some(mount) = LoopMount::on_tmpfs("xfs", 400) else {
        return;
    };
    let plan = Plan {
        tables: format!(
            "[[share]]\nname = \"bad\"\npath = {:?}\nflush_journal = true\n",
            mount.path()
        ),
        ..Plan::default()
    };
    let mut daemon = plan.start();
    let open = |daemon: &Daemon| {
        let session = daemon.client().login(USER, PASSWORD, "").unwrap();
        let tree = session.tree("bad").unwrap();
        let args = CreateArgs {
            disposition: smb_wire::msg::CreateDisposition::OPEN_IF,
            ..CreateArgs::create("f")
        };
        tree.create(&args).unwrap()
    };
    let file = open(&daemon);
    file.write_all(0, &vec![1; 1 << 20]).unwrap();
    file.flush(false).unwrap();
    mount.starve(512);
    let error = write_and_flush(&file, 2).unwrap_err();
    // Stored before it was reported.
    kill(&mut daemon);
    mount.feed();
    let told = report(&daemon);
    assert_eq!(told["failed_files"][0]["path"], "f", "{told:#}");
    assert_eq!(
        told["run"]["flushes"], 1,
        "the one that failed is not claimed"
    );
    // The kernel reports the lost write-back once, to the first process that syncs the file system: the share is served
    // when a second sync succeeds, and its latch is awake by then.
    daemon = again(&plan).start_in(daemon.into_folder());
    let served = |daemon: &Daemon| {
        let session = daemon.client().login(USER, PASSWORD, "").unwrap();
        session.tree("bad").is_ok()
    };
    eventually("the share is served", || served(&daemon));
    let first = open(&daemon).flush(false).unwrap_err();
    assert_eq!(format!("{first:?}"), format!("{error:?}"));
    kill(&mut daemon);

    for _ in 0..2 {
        daemon = again(&plan).start_in(daemon.into_folder());
        assert!(
            daemon.log().contains("not repaired since"),
            "{}",
            daemon.log()
        );
        let again = open(&daemon).flush(false).unwrap_err();
        assert_eq!(format!("{again:?}"), format!("{error:?}"));
        kill(&mut daemon);
    }
    // Only what was unproven need be written again, and synced.
    daemon = again(&plan).start_in(daemon.into_folder());
    write_and_flush(&open(&daemon), 3).unwrap();
    eventually("the latch is forgotten", || {
        report(&daemon)["failed_files"] == serde_json::json!([])
    });
    kill(&mut daemon);
    daemon = again(&plan).start_in(daemon.into_folder());
    open(&daemon).flush(false).unwrap();

    // Or the administrator accepts the loss.
    let file = open(&daemon);
    mount.starve(512);
    file.write_all(0, &vec![4; 60 << 20]).unwrap();
    file.flush(false).unwrap_err();
    mount.feed();
    daemon.ask(&["policy", "clear-latch", "bad"]).unwrap();
    open(&daemon).flush(false).unwrap();
}

/// Not a test: prints what the journal costs. Shares and state folder are on one ext4.
#[test]
#[ignore = "measures"]
fn price_of_the_journal() {
    for journal in [false, true] {
        for clients in [1_u32, 16, 64] {
            let mount = LoopMount::new("ext4", 400).expect("root and loop devices");
            let plan = Plan {
                share: format!("flush_journal = {journal}"),
                ..Plan::default()
            };
            let folder = tempfile::tempdir_in(mount.path()).unwrap();
            let mut daemon = plan.start_in(folder);
            let flushes = 1600 / clients;
            let files: Vec<_> = (0..clients)
                .map(|n| {
                    let tree = daemon.tree();
                    let file = tree.create(&CreateArgs::create(&format!("f{n}"))).unwrap();
                    file.write_all(0, &[0; 65536]).unwrap();
                    file.flush(false).unwrap();
                    file
                })
                .collect();
            let before = mount.flushes();
            let begun = std::time::Instant::now();
            std::thread::scope(|scope| {
                for file in &files {
                    scope.spawn(move || {
                        for n in 0..flushes {
                            let at = u64::from(n % 16) * 4096;
                            file.write_all(at, &[n as u8; 4096]).unwrap();
                            file.flush(false).unwrap();
                        }
                    });
                }
            });
            let took = begun.elapsed();
            let acknowledged = f64::from(flushes * clients);
            let device = (mount.flushes() - before) as f64;
            let text = daemon.ask(&["status", "--json"]).unwrap();
            let status: serde_json::Value = serde_json::from_str(&text).unwrap();
            println!(
                "journal {journal}, {clients} files: {:.3} device flushes a FLUSH, {:.2} ms each, {}",
                device / acknowledged,
                took.as_secs_f64() * 1000.0 * f64::from(clients) / acknowledged,
                status["server"]["kept"]["flush_journal"],
            );
            daemon.signal("KILL");
            daemon.wait(Duration::from_secs(10));
        }
    }
}
