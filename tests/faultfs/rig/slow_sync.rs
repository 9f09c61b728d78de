//! A sync that takes its time, or never ends, is nobody else's trouble.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use smb_client::{CreateArgs, File, Tree};
use smb_wire::{Status, ids::MessageId};

use crate::{
    Rig, SOON,
    mount::{self, Mount},
    open,
    server::Server,
    status,
};

/// A request while a sync hangs must take less than this. One that waits for the sync never ends.
const PROMPT: Duration = Duration::from_secs(5);

#[track_caller]
fn prompt<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let at = Instant::now();
    let value = call();
    assert!(at.elapsed() < PROMPT, "{what}: {:?}", at.elapsed());
    value
}

/// Everything else goes on, on the same connection and on others.
fn assert_serving(rig: &Rig, tree: &Tree) {
    prompt("echo", || tree.client().echo().unwrap());
    for (user, name) in [(0, "others"), (1, "bobs")] {
        let tree = prompt("tree", || rig.server.tree_of(user));
        prompt("create", || open(&tree, name));
    }
    let other = prompt("create", || open(tree, "other"));
    prompt("write", || other.write_all(0, b"other").unwrap());
    prompt("flush of another", || other.flush(false).unwrap());
    prompt("read", || assert_eq!(other.read(0, 5).unwrap(), b"other"));
    prompt("list", || tree.list("", "*").unwrap());
    prompt("close", || other.close().unwrap());
}

/// A FLUSH whose sync has begun.
struct Syncing {
    tree: Tree,
    file: File,
    flush: MessageId,
}

/// Flushes a file that has its own name as its content; its sync hangs.
fn syncing(rig: &mut Rig, name: &str) -> Syncing {
    let tree = rig.server.tree();
    let file = open(&tree, name);
    file.write_all(0, name.as_bytes()).unwrap();
    let rule = rig
        .mount
        .send(&format!("rule fsync,fdatasync /{name} 1 1 hang"));
    let flush = tree.send(file.flush_request(false)).unwrap();
    rig.mount.send(&format!("wait {rule} 1 20000"));
    Syncing { tree, file, flush }
}

/// Asks the server to end; returns how long its main thread took.
fn stopped(rig: &Rig) -> Duration {
    rig.server.signal_stop();
    let at = Instant::now();
    while !rig.server.main_thread_ended() && at.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(10));
    }
    at.elapsed()
}

#[track_caller]
fn assert_unanswered(tree: &smb_client::Tree, flush: MessageId) {
    let soon = Duration::from_millis(100);
    let answered = tree.client().connection().answered(flush, soon).unwrap();
    assert!(!answered, "a FLUSH was answered whose sync has not ended");
}

fn slow(io: &str) {
    let Some(mut rig) = Rig::started(&format!("file_io = \"{io}\""), "") else {
        return;
    };
    let Syncing { tree, file, flush } = syncing(&mut rig, "slow");
    assert_serving(&rig, &tree);
    prompt("read of the same file", || {
        assert_eq!(file.read(0, 4).unwrap(), b"slow");
    });
    assert_unanswered(&tree, flush);
    rig.mount.send("release go");
    let reply = tree.client().wait(flush).unwrap();
    assert_eq!(reply.status(), Status::SUCCESS);
    rig.server.assert_sound();
}

#[test]
fn a_slow_fsync_delays_no_other_request_threads() {
    slow("threads");
}

#[test]
fn a_slow_fsync_delays_no_other_request_auto() {
    slow("auto");
}

#[test]
fn a_hung_fsync_delays_neither_others_nor_the_end() {
    let Some(mut rig) = Rig::started("shutdown_grace = \"1s\"", "") else {
        return;
    };
    let Syncing {
        tree,
        flush,
        file: _file,
    } = syncing(&mut rig, "hung");
    assert_serving(&rig, &tree);
    assert_unanswered(&tree, flush);

    let took = stopped(&rig);
    // The kernel cannot end the thread that waits for the disk; only the disk can.
    rig.mount.send("release fail");
    let ended = rig.server.reap();
    assert!(took < SOON, "with 1 s of grace: {took:?}");
    assert_eq!(ended.code(), Some(1), "it says that something may be lost");
    let log = rig.server.log();
    let told = "1 inodes (4 bytes) of shares (data) not known to be stable";
    assert!(log.contains(told), "{log}");
    rig.server.start();
    let log = rig.server.log();
    assert!(log.contains("did not end in order"), "{log}");
    rig.server.assert_sound();
}

#[test]
fn a_hung_fsync_that_ends_well_is_a_success() {
    let Some(mut rig) = Rig::started("", "") else {
        return;
    };
    let Syncing { tree, file, flush } = syncing(&mut rig, "hung");
    rig.mount.send("release go");
    let reply = tree.client().wait(flush).unwrap();
    assert_eq!(reply.status(), Status::SUCCESS);
    assert_eq!(status(file.close()), Status::SUCCESS);
}

/// More syncs than a file system has threads hang; another file system has its own.
#[test]
fn flushes_that_hang_on_one_share_hold_up_no_other_share() {
    const CONNECTIONS: usize = 5;
    const FLUSHES: usize = 20;
    const THREADS: usize = 64;
    let plain = tempfile::tempdir().unwrap();
    let share = format!(
        "[[share]]\nname = \"plain\"\npath = \"{}\"",
        plain.path().display()
    );
    let Some(mut rig) = Rig::started("shutdown_grace = \"1s\"", &share) else {
        return;
    };
    let trees: Vec<_> = (0..CONNECTIONS).map(|_| rig.server.tree()).collect();
    let file = |n: usize| {
        let file = open(&trees[n % CONNECTIONS], &format!("hung{n}"));
        file.write_all(0, b"hung").unwrap();
        file
    };
    let files: Vec<_> = (0..CONNECTIONS * FLUSHES).map(file).collect();
    let rule = rig.mount.send("rule fsync,fdatasync /hung* 1 1000 hang");
    let flush = |file: &smb_client::File| file.tree().send(file.flush_request(false)).unwrap();
    let flushes: Vec<_> = files.iter().map(flush).collect();
    rig.mount.send(&format!("wait {rule} {THREADS} 20000"));
    let tree = rig.server.session(0).tree("plain").unwrap();
    for n in 0..10 {
        let other = prompt("create", || open(&tree, &format!("f{n}")));
        prompt("write", || other.write_all(0, b"other").unwrap());
        prompt("flush", || other.flush(false).unwrap());
        prompt("close", || other.close().unwrap());
    }
    assert_eq!(rig.mount.hits(&rule), THREADS as u64, "no more at once");
    rig.mount.send(&format!("clear {rule}"));
    rig.mount.send("release go");
    for (file, flush) in files.iter().zip(flushes) {
        let reply = file.tree().client().wait(flush).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS);
    }
    rig.server.assert_sound();
}

/// More requests than there are threads wait for a file system that is mounted below the root of a share. The rest of
/// the share goes on, on the same connections, too.
#[test]
fn what_hangs_below_a_root_holds_up_only_those_who_go_there() {
    const CONNECTIONS: usize = 5;
    const CREATES: usize = 20;
    if !mount::possible() {
        return;
    }
    let mount = Mount::new();
    let root = mount.path.parent().unwrap().to_owned();
    let mut server = Server::prepare(&root).with("shutdown_grace = \"1s\"", "");
    server.start();
    let mut rig = Rig { server, mount };
    std::fs::create_dir(root.join("plain")).unwrap();
    let trees: Vec<_> = (0..CONNECTIONS).map(|_| rig.server.tree()).collect();
    let below = |n: usize| CreateArgs::open_if(&format!("mnt\\f{n}"));
    trees[0].create(&below(0)).unwrap().close().unwrap();

    let rule = rig.mount.send("rule any * 1 0 hang");
    let create = |n: usize| (n % CONNECTIONS, below(n).request());
    let creates = (1..=CONNECTIONS * CREATES).map(create);
    let creates = creates.map(|(at, request)| (at, trees[at].send(request).unwrap()));
    let creates: Vec<_> = creates.collect();
    rig.mount.send(&format!("wait {rule} 1 5000"));
    std::thread::sleep(Duration::from_millis(300));
    for (n, tree) in trees.iter().chain([&rig.server.tree()]).enumerate() {
        prompt("echo", || tree.client().echo().unwrap());
        let other = prompt("create", || open(tree, &format!("plain\\f{n}")));
        prompt("write", || other.write_all(0, b"other").unwrap());
        prompt("read", || assert_eq!(other.read(0, 5).unwrap(), b"other"));
        prompt("list", || tree.list("plain", "*").unwrap());
        prompt("close", || other.close().unwrap());
    }
    rig.mount.send(&format!("clear {rule}"));
    rig.mount.send("release go");
    for (at, id) in creates {
        let reply = trees[at].client().wait(id).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS);
    }
    rig.server.assert_sound();
}

/// Nothing that a reload leaves as it is is waited for.
#[test]
fn a_hung_share_delays_no_reload() {
    let Some(mut rig) = Rig::started("shutdown_grace = \"1s\"", "") else {
        return;
    };
    let plain = tempfile::tempdir().unwrap();
    // It has begun to serve.
    drop(rig.server.tree());
    rig.mount.send("off-mode hang");
    rig.mount.send("cut everything");
    let (tell, told) = mpsc::channel();
    let path = rig.mount.path.join("x");
    std::thread::spawn(move || tell.send(std::fs::metadata(path).is_ok()));
    let waited = told.recv_timeout(Duration::from_millis(300));
    assert!(waited.is_err(), "it does not hang");
    let share = format!(
        "[[share]]\nname = \"plain\"\npath = \"{}\"",
        plain.path().display()
    );
    rig.server.set("shutdown_grace = \"1s\"", &share);
    let (server, mount) = (&rig.server, &mut rig.mount);
    let (took, said, tree) = std::thread::scope(|scope| {
        let (done, over) = mpsc::channel::<()>();
        scope.spawn(move || {
            // This must happen in any case: nothing ends while the mount hangs.
            let _ = over.recv_timeout(2 * SOON);
            mount.send("off-mode error");
            mount.send("release fail");
            mount.send("thaw");
        });
        let at = Instant::now();
        // The second meets who still looks at the hung one.
        let said = [server.reload(), server.reload()];
        let took = at.elapsed();
        let tree = said[0].0.then(|| server.session(0).tree("plain"));
        drop(done);
        (took, said, tree)
    });
    assert!(said.iter().all(|(ok, _)| *ok), "{said:?}");
    assert!(took < 2 * SOON, "{took:?}");
    tree.unwrap().unwrap();
    rig.server.assert_sound();
}

/// A change to a stricter policy is answered when everything dirty is on disk; a disk that does not
/// answer holds up that answer, and nothing else.
#[test]
fn a_hung_tightening_holds_up_its_own_answer_only() {
    const LAZY: &str = "durability = \"treat-host-as-stable-storage\"\naccept_loss = true\n";
    let plain = tempfile::tempdir().unwrap();
    let share = |name: &str, durability: &str| {
        let path = plain.path().display();
        format!("[[share]]\nname = \"{name}\"\npath = \"{path}\"\n{durability}\n")
    };
    let server = "shutdown_grace = \"1s\"";
    let before = format!("{LAZY}{}", share("plain", LAZY));
    let Some(mut rig) = Rig::started(server, &before) else {
        return;
    };
    let file = open(&rig.server.tree(), "hung");
    file.write_all(0, b"hung").unwrap();
    let rule = rig.mount.send("rule fsync,fdatasync /hung 1 1 hang");
    let honors = |rig: &Rig, share: &str| {
        let (ok, said) = rig.server.holdfast(&["policy", "show", share, "--json"]);
        assert!(ok, "{said}");
        said.replace(' ', "").contains("\"policy\":\"honor\"")
    };
    let honor = "durability = \"honor\"\n";
    rig.server
        .set(server, &format!("{honor}{}", share("plain", LAZY)));
    let mut held = vec![rig.server.begin_reload()];
    rig.mount.send(&format!("wait {rule} 1 20000"));
    assert!(honors(&rig, "data"), "it holds at once");
    // The next reload's other shares, and those of a policy for all.
    let new = format!("{honor}{}{}", share("plain", honor), share("new", LAZY));
    rig.server.set(server, &new);
    held.push(rig.server.begin_reload());
    let begun = Instant::now();
    while !honors(&rig, "plain") || honors(&rig, "new") {
        assert!(begun.elapsed() < SOON, "{}", rig.server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    rig.server.session(0).tree("new").unwrap();
    let (ok, said) = rig.server.holdfast(&["policy", "set", "new", "honor"]);
    assert!(ok, "{said}");
    for reload in &mut held {
        assert!(
            reload.try_wait().unwrap().is_none(),
            "a tightening was answered whose sync has not ended"
        );
    }
    let took = stopped(&rig);
    rig.mount.send("release fail");
    for mut reload in held {
        assert!(!reload.wait().unwrap().success(), "nobody knows");
    }
    assert_eq!(rig.server.reap().code(), Some(1));
    assert!(took < SOON, "with 1 s of grace: {took:?}");
}
