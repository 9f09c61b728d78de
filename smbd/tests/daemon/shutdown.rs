//! The orderly end: everything dirty is synced, and the log says what that was.

use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use smb_client::{ClientError, CreateArgs};
use smb_wire::{
    fscc::FileInformationClass,
    msg::{QueryDirectoryFlags, WriteFlags},
};

use crate::support::{Plan, eventually};

/// A number of the log's last line.
fn figure(log: &str, name: &str) -> u64 {
    let line = log
        .lines()
        .rfind(|line| line.contains(" stopped "))
        .unwrap();
    let word = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    word.unwrap().parse().unwrap()
}

#[test]
fn a_dirty_file_is_synced_and_counted() {
    let mut daemon = Plan::default().start();
    let tree = daemon.tree();
    let file = tree.create(&CreateArgs::create("dirty")).unwrap();
    file.write_all(0, &vec![1; 1 << 20]).unwrap();
    let status = daemon.ask(&["status"]).unwrap();
    assert!(status.contains("1024 KiB in "), "{status}");
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    let log = daemon.log();
    assert!(figure(&log, "inodes") >= 1, "{log}");
    assert_eq!(figure(&log, "bytes"), 1 << 20, "{log}");
    assert_eq!(
        std::fs::read(daemon.path("data/dirty")).unwrap().len(),
        1 << 20
    );
    assert!(!daemon.path("state/control.sock").exists());
    assert!(!daemon.path("state/running").exists());
}

#[test]
fn under_load_it_ends_in_time_and_keeps_what_it_answered() {
    let mut daemon = Plan::default().start();
    let mut writers = Vec::new();
    for number in 0..4u8 {
        let tree = daemon.tree();
        let file = tree
            .create(&CreateArgs::create(&format!("w{number}")))
            .unwrap();
        writers.push(std::thread::spawn(move || {
            let mut written = 0;
            // Ends with the connection.
            while file
                .write(written, &[number; 32 << 10], WriteFlags::empty())
                .is_ok()
            {
                written += 32 << 10;
            }
            written
        }));
    }
    eventually("all clients have written twice", || {
        (0..4).all(|number| {
            let file = std::fs::metadata(daemon.path(&format!("data/w{number}")));
            // The second request was sent after the first answer.
            file.is_ok_and(|file| file.len() > 32 << 10)
        })
    });
    daemon.signal("TERM");
    let status = daemon.wait(Duration::from_secs(20));
    assert!(status.success(), "{}", daemon.log());
    assert!(figure(&daemon.log(), "inodes") >= 1);
    for (number, writer) in writers.into_iter().enumerate() {
        let answered = writer.join().unwrap();
        let kept = std::fs::metadata(daemon.path(&format!("data/w{number}"))).unwrap();
        assert!(
            answered > 0 && kept.len() >= answered,
            "{} of {answered}",
            kept.len()
        );
    }
}

#[test]
fn long_requests_do_not_keep_it_from_ending() {
    let mut daemon = Plan::default().start();
    for number in 0..10_000 {
        let name = format!("{}{number:05}", "a".repeat(239));
        std::fs::File::create(daemon.path("data").join(name)).unwrap();
    }
    let mut attackers = Vec::new();
    for _ in 0..6 {
        let tree = daemon.tree();
        let folder = tree.create(&CreateArgs::directory("")).unwrap();
        let pattern = "*a".repeat(127) + "b";
        attackers.push(std::thread::spawn(move || {
            // Again and again, until the connection ends.
            let restart = QueryDirectoryFlags::RESTART_SCANS;
            let names = FileInformationClass::NAMES;
            while !matches!(
                folder.query_directory(names, &pattern, restart, 4096),
                Err(ClientError::Io(_) | ClientError::Disconnected)
            ) {}
        }));
    }
    std::thread::sleep(Duration::from_millis(500));
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    for attacker in attackers {
        attacker.join().unwrap();
    }
}

#[test]
fn nothing_is_synced_where_the_administrator_said_so() {
    let plan = Plan {
        tables: "[durability]\nsync_on_stop = false\n".into(),
        ..Plan::default()
    };
    let mut daemon = plan.start();
    let file = daemon.tree().create(&CreateArgs::create("dirty")).unwrap();
    file.write_all(0, &[1; 4096]).unwrap();
    daemon.signal("INT");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    let log = daemon.log();
    assert_eq!(figure(&log, "bytes"), 0);
    assert!(log.contains("synced=false"), "{log}");
}

/// A file of the state folder does not answer, here a FIFO that nobody writes to.
#[test]
fn a_start_that_hangs_ends_with_a_signal() {
    let share = || "continuous_availability = true".to_owned();
    let mut daemon = Plan {
        share: share(),
        ..Plan::default()
    }
    .start();
    let again = Plan {
        share: share(),
        users: Vec::new(),
        ..Plan::default()
    };
    let fifo = daemon.path("state/handles.heard");
    for name in ["TERM", "INT"] {
        daemon.signal("TERM");
        assert!(daemon.wait(Duration::from_secs(15)).success());
        std::fs::remove_file(&fifo).ok();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        let address = daemon.address;
        let mut hung = again.begin_in(daemon.into_folder(), address);
        // The shares are opened next, and then the handles.
        eventually("it starts", || hung.log().contains("dirty_inodes="));
        assert!(!hung.path("state/control.sock").exists());
        hung.signal(name);
        assert!(hung.wait(Duration::from_secs(5)).success(), "{name}");
        // No client was served: the next start has nothing to sync.
        assert!(!hung.path("state/running").exists());
        std::fs::remove_file(&fifo).unwrap();
        daemon = again.start_in(hung.into_folder());
    }
}

/// The mark of the last server does not answer, here a FIFO that nobody writes to. SIGHUP would end the process by its
/// default, and systemd would not start it again.
#[test]
fn an_order_to_reload_waits_for_the_start() {
    let mut daemon = Plan::default().start();
    let again = Plan {
        users: Vec::new(),
        ..Plan::default()
    };
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    let mark = daemon.path("state/running");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &mark, mode).unwrap();
    let address = daemon.address;
    let mut hung = again.begin_in(daemon.into_folder(), address);
    let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut fifo = None;
    // Without waiting, it can be opened only while the server waits for what is in it.
    eventually("it does not read the mark", || {
        fifo = rustix::fs::open(&mark, how, Mode::empty()).ok();
        fifo.is_some()
    });
    hung.signal("HUP");
    // The order then comes before the start is over.
    std::thread::sleep(Duration::from_millis(200));
    rustix::io::write(fifo.unwrap(), b"{}").unwrap();
    eventually("it does not reload", || hung.log().contains("reloaded"));
    hung.tree().write_file("a", b"b").unwrap();
    hung.signal("TERM");
    assert!(hung.wait(Duration::from_secs(15)).success());
}

/// The configuration does not answer, here a FIFO that nobody writes to.
#[test]
fn an_order_to_reload_before_the_files_are_read_does_not_end_the_start() {
    let mut daemon = Plan::default().start();
    let again = Plan {
        users: Vec::new(),
        ..Plan::default()
    };
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    let config = daemon.path("h.toml");
    let text = std::fs::read(&config).unwrap();
    std::fs::remove_file(&config).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &config, mode).unwrap();
    let address = daemon.address;
    let mut hung = again.begin_in(daemon.into_folder(), address);
    let status = format!("/proc/{}/status", hung.pid());
    eventually("SIGHUP is not caught", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & 1 != 0
    });
    hung.signal("HUP");
    std::thread::sleep(Duration::from_millis(200));
    // Opened for both, it waits for no reader.
    let mut how = std::fs::File::options();
    let mut fifo = how.read(true).write(true).open(&config).unwrap();
    std::io::Write::write_all(&mut fifo, &text).unwrap();
    drop(fifo);
    eventually("it does not start", || {
        hung.path("state/control.sock").exists()
    });
    hung.tree().write_file("a", b"b").unwrap();
    hung.signal("TERM");
    assert!(hung.wait(Duration::from_secs(15)).success());
}

/// `serve PATH` belongs to the terminal in which it was started, unless its caller has it ignore that (nohup).
#[test]
fn a_server_without_a_file_ends_with_its_terminal() {
    use std::{
        process::{Command, Stdio},
        time::Instant,
    };
    let folder = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    for (ignored, ends) in [(false, true), (true, false)] {
        // The tests themselves may run under nohup.
        let mut serve = Command::new("env");
        serve.arg(match ignored {
            false => "--default-signal=HUP",
            true => "--ignore-signal=HUP",
        });
        serve.arg(env!("CARGO_BIN_EXE_holdfast"));
        let log = state.path().join(format!("log-{ignored}"));
        let log_file = std::fs::File::create(&log).unwrap();
        serve.arg("serve").arg(folder.path());
        serve
            .env("XDG_STATE_HOME", state.path())
            .stdin(Stdio::null());
        serve.stdout(log_file.try_clone().unwrap()).stderr(log_file);
        let mut child = serve.spawn().unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        eventually("it does not start", || said().contains("listening"));
        std::thread::sleep(Duration::from_millis(200));
        let signal = |name: &str| {
            let id = child.id().to_string();
            let mut kill = Command::new("kill");
            assert!(kill.args(["-s", name, &id]).status().unwrap().success());
        };
        signal("HUP");
        if !ends {
            std::thread::sleep(Duration::from_millis(500));
            signal("TERM");
        }
        let end = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "{}", said());
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}: {}", said());
        assert!(said().contains("stopping"), "{}", said());
    }
}
