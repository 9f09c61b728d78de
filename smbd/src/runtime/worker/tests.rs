//! Workers from outside, with a handler that echoes.

use std::{
    io::{Read, Write},
    net::{self, TcpListener},
    sync::atomic::AtomicU32,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::{
    config::{self, Config},
    runtime::admission::Admission,
};

fn config() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[share]]\nname = \"s\"\npath = \".\"\nread_only = true\n";
    config::parse(text, &folder.path().join("h.toml")).unwrap()
}

/// Echoes until the peer ends or the server stops; a `!` panics. A connection carries
/// its number of answers to another worker.
#[derive(Default)]
struct Echo {
    /// It leaves only when it is no longer asked to, or the server stops. Counts how often it was asked.
    late: Option<Arc<AtomicU32>>,
    /// It takes its time after a connection that was lost. Counts those after which it has cleaned up.
    cleans_up: Option<Arc<AtomicU32>>,
}

impl ConnectionHandler for Echo {
    type Carried = u8;

    async fn serve(
        &self,
        mut accepted: Accepted<u8>,
        worker: &WorkerHandle,
        leaves: &dyn Fn() -> bool,
    ) -> Option<Accepted<u8>> {
        let mut stream = tokio::net::TcpStream::from_std(accepted.stream).unwrap();
        let mut buffer = [0; 64];
        loop {
            let read = tokio::select! {
                read = stream.read(&mut buffer) => read.unwrap_or(0),
                () = worker.stopping() => return None,
            };
            assert_ne!(buffer[0], b'!', "panics as a bug would");
            if read == 0 || stream.write_all(&buffer[..read]).await.is_err() {
                return None;
            }
            *accepted.carried.get_or_insert_default() += 1;
            if leaves() {
                break;
            }
        }
        if let Some(asked) = &self.late {
            asked.fetch_add(1, Ordering::Relaxed);
            while leaves() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        accepted.stream = stream.into_std().unwrap();
        Some(accepted)
    }

    async fn lost(&self, _: u8) {
        if let Some(cleaned) = &self.cleans_up {
            tokio::time::sleep(Duration::from_millis(1)).await;
            cleaned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn late(asked: Arc<AtomicU32>) -> Echo {
    Echo {
        late: Some(asked),
        ..Echo::default()
    }
}

fn cleans_up(cleaned: Arc<AtomicU32>) -> Echo {
    Echo {
        cleans_up: Some(cleaned),
        ..Echo::default()
    }
}

/// Never ends by itself.
struct Deaf;

impl ConnectionHandler for Deaf {
    type Carried = u8;

    async fn serve(
        &self,
        accepted: Accepted<u8>,
        _: &WorkerHandle,
        _: &dyn Fn() -> bool,
    ) -> Option<Accepted<u8>> {
        std::future::pending::<()>().await;
        Some(accepted)
    }

    async fn lost(&self, _: u8) {}
}

fn start<H: ConnectionHandler<Carried = u8>>(
    make: impl FnOnce(&WorkerHandle) -> io::Result<H> + Send + 'static,
) -> io::Result<(Worker<u8>, watch::Sender<bool>)> {
    let (stop, stopping) = watch::channel(false);
    let core = crate::runtime::placement::allowed_cores()[0];
    let grace = Duration::from_millis(50);
    Worker::start(
        Spec {
            index: 0,
            core,
            pin: true,
            stopping,
            grace,
            file_io: FileIo::Threads,
        },
        make,
    )
    .map(|worker| (worker, stop))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// A client connected through `worker`.
fn connect(worker: &Worker<u8>, admission: &Arc<Admission>) -> net::TcpStream {
    connect_with(worker, admission, None)
}

/// A client connected through `worker`, with the state that another worker left.
fn connect_with(
    worker: &Worker<u8>,
    admission: &Arc<Admission>,
    carried: Option<u8>,
) -> net::TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    let pass = Arc::new(admission.admit(peer.ip()).unwrap());
    block_on(worker.give(Accepted {
        stream: server,
        peer,
        listener: 0,
        pass,
        carried,
    }));
    client
}

fn echo(client: &mut net::TcpStream, text: &[u8]) -> Vec<u8> {
    client.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    client.read_exact(&mut back).unwrap();
    back
}

#[test]
fn connections_are_served_on_the_pinned_thread_and_drained() {
    let admission = Admission::new(&config());
    let core = crate::runtime::placement::allowed_cores()[0];
    let (worker, stop) = start(move |_| {
        let set = rustix::thread::sched_getaffinity(None).unwrap();
        assert_eq!(set.count(), 1);
        assert!(set.is_set(core));
        Ok(Echo::default())
    })
    .unwrap();
    let mut one = connect(&worker, &admission);
    let mut two = connect(&worker, &admission);
    assert_eq!(echo(&mut one, b"hello"), b"hello");
    assert_eq!(echo(&mut two, b"world"), b"world");
    assert_eq!((worker.load(), admission.figures().connections), (2, 2));
    stop.send(true).unwrap();
    assert_eq!(block_on(worker.drained()), 0);
    assert_eq!(one.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!((worker.load(), admission.figures().connections), (0, 0));
    // Jobs are still done after the last connection.
    assert_eq!(block_on(worker.run(|| async { 7 })), Some(7));
    block_on(worker.end(Duration::from_secs(10)));
}

#[test]
fn a_panic_takes_one_connection_with_it() {
    let admission = Admission::new(&config());
    let (worker, _stop) = start(|_| Ok(Echo::default())).unwrap();
    let mut good = connect(&worker, &admission);
    let mut bad = connect(&worker, &admission);
    bad.write_all(b"!").unwrap();
    assert_eq!(bad.read(&mut [0; 8]).unwrap_or(0), 0);
    assert_eq!(echo(&mut good, b"still here"), b"still here");
    assert_eq!(
        block_on(worker.run(|| async { panic!("told to") })),
        None::<()>
    );
    assert_eq!(echo(&mut good, b"still here"), b"still here");
    assert_eq!(admission.figures().connections, 1);
    block_on(worker.end(Duration::from_secs(10)));
}

#[test]
fn a_busy_connection_goes_to_the_other_worker() {
    let admission = Admission::new(&config());
    let (from, _stop) = start(|_| Ok(Echo::default())).unwrap();
    let (to, _stop_other) = start(|_| Ok(Echo::default())).unwrap();
    let mut clients = [connect(&from, &admission), connect(&from, &admission)];
    let moved = (0..1_000).any(|_| {
        for client in &mut clients {
            assert_eq!(echo(client, b"hello"), b"hello");
        }
        from.relieve(0, 1.0, &to);
        (from.load(), to.load()) == (1, 1)
    });
    assert!(moved);
    for client in &mut clients {
        assert_eq!(echo(client, b"there"), b"there");
    }
    assert_eq!(admission.figures().connections, 2);
    drop(clients);
    let none_left = (0..1_000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        (from.load(), to.load()) == (0, 0)
    });
    assert!(none_left);
    block_on(from.end(Duration::from_secs(10)));
    // A worker that is gone takes no connection.
    let mut client = connect(&to, &admission);
    let mut other = connect(&to, &admission);
    for _ in 0..3 {
        to.relieve(0, 1.0, &from);
        assert_eq!(echo(&mut client, b"still here"), b"still here");
        assert_eq!(echo(&mut other, b"still here"), b"still here");
    }
    assert_eq!(to.load(), 2);
    block_on(to.end(Duration::from_secs(10)));
}

/// Has the connections of `from`, which are served by [`late`], asked to leave until one of them is about to.
fn ask_to_leave(
    from: &Worker<u8>,
    to: &Worker<u8>,
    clients: &mut [net::TcpStream],
    asked: &AtomicU32,
) {
    let one_leaves = (0..1_000).any(|_| {
        for client in clients.iter_mut() {
            assert_eq!(echo(client, b"hello"), b"hello");
        }
        if asked.load(Ordering::Relaxed) > 0 {
            return true;
        }
        from.relieve(0, 1.0, to);
        false
    });
    assert!(one_leaves);
}

#[test]
fn a_connection_that_may_stay_after_all_stays() {
    let admission = Admission::new(&config());
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    let (from, _stop) = start(|_| Ok(late(counter))).unwrap();
    let (to, _stop_other) = start(|_| Ok(Echo::default())).unwrap();
    let mut clients = [connect(&from, &admission), connect(&from, &admission)];
    ask_to_leave(&from, &to, &mut clients, &asked);
    // The next question is to another one.
    from.relieve(0, 1.0, &to);
    for client in &mut clients {
        assert_eq!(echo(client, b"still here"), b"still here");
    }
    assert_eq!((from.load(), to.load()), (2, 0));
    assert_eq!(admission.figures().connections, 2);
    block_on(from.end(Duration::from_secs(10)));
    block_on(to.end(Duration::from_secs(10)));
}

#[test]
fn a_connection_that_leaves_at_a_stop_ends_where_it_is() {
    let admission = Admission::new(&config());
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    let (from, stop) = start(|_| Ok(late(counter))).unwrap();
    let (to, _stop_other) = start(|_| Ok(Echo::default())).unwrap();
    let mut clients = [connect(&from, &admission), connect(&from, &admission)];
    ask_to_leave(&from, &to, &mut clients, &asked);
    stop.send(true).unwrap();
    assert_eq!(block_on(from.drained()), 0);
    assert_eq!(to.load(), 0);
    for client in &mut clients {
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    }
    assert_eq!(admission.figures().connections, 0);
    block_on(from.end(Duration::from_secs(10)));
    block_on(to.end(Duration::from_secs(10)));
}

/// Orders a stop at the moment when a worker gives a connection away, and reports whether the stop could begin then.
struct StopsMeanwhile {
    stop: watch::Sender<bool>,
    began: std::sync::mpsc::Sender<bool>,
}

impl std::task::Wake for StopsMeanwhile {
    fn wake(self: Arc<Self>) {
        let (begins, begun) = std::sync::mpsc::channel();
        let me = Arc::clone(&self);
        thread::spawn(move || {
            me.stop.send_replace(true);
            let _ = begins.send(());
        });
        let begun = begun.recv_timeout(Duration::from_millis(50));
        let _ = self.began.send(begun.is_ok());
    }
}

#[test]
fn no_stop_begins_while_a_connection_is_given_away() {
    let admission = Admission::new(&config());
    let (from, stop) = start(|_| Ok(Echo::default())).unwrap();
    // Another worker without a thread: a message wakes the test in its place.
    let (sender, mut messages) = mpsc::channel(MESSAGES_MAX);
    let to = Worker {
        core: 0,
        file_io: "threads",
        thread_id: 0,
        inbox: Arc::new(Inbox {
            sender,
            load: Arc::default(),
        }),
        drained: RefCell::new(None),
        thread: RefCell::new(None),
    };
    let (began, has_begun) = std::sync::mpsc::channel();
    let waker = std::task::Waker::from(Arc::new(StopsMeanwhile { stop, began }));
    let mut context = std::task::Context::from_waker(&waker);
    assert!(messages.poll_recv(&mut context).is_pending());
    let mut clients = [connect(&from, &admission), connect(&from, &admission)];
    let given = (0..1_000).any(|_| {
        for client in &mut clients {
            // Nobody answers the one that has left, and the stop ends the other one.
            let _ = client.write_all(b"hello");
        }
        thread::sleep(Duration::from_millis(1));
        from.relieve(0, 1.0, &to);
        to.load() == 1
    });
    assert!(given);
    let begun = has_begun.recv_timeout(Duration::from_secs(10));
    assert_eq!(begun, Ok(false));
    assert!(matches!(messages.try_recv(), Ok(Message::Connection(_))));
    assert_eq!(block_on(from.drained()), 0);
    block_on(from.end(Duration::from_secs(10)));
}

#[test]
fn a_thread_that_hangs_with_a_full_queue_is_waited_for_once() {
    let (worker, _stop) = start(|_| Ok(Echo::default())).unwrap();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (hangs, hung) = std::sync::mpsc::channel();
    block_on(worker.run(move || async move {
        tokio::task::spawn_local(async move {
            let _ = hangs.send(());
            let _ = released.recv();
        });
    }));
    hung.recv().unwrap();
    for _ in 0..MESSAGES_MAX {
        worker.ask_to_end();
    }
    assert!(worker.is_behind());
    let begun = std::time::Instant::now();
    // Waiting twice would take eight seconds.
    block_on(worker.end(Duration::from_secs(4)));
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(7_900), "{took:?}");
    drop(release);
}

#[test]
fn a_stop_waits_for_the_cleanup_of_connections_that_came_just_before() {
    let admission = Admission::new(&config());
    let cleaned = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&cleaned);
    let (worker, stop) = start(|_| Ok(cleans_up(counter))).unwrap();
    let (release, released) = std::sync::mpsc::channel::<()>();
    // The worker is busy with something else while the connections come and the server stops.
    block_on(worker.run(move || async move {
        tokio::task::spawn_local(async move {
            let _ = released.recv();
        });
    }));
    assert!(worker.keeps_up() && !worker.is_behind());
    let _served_before = connect_with(&worker, &admission, Some(1));
    let _new = connect(&worker, &admission);
    assert!(!worker.keeps_up() && !worker.is_behind());
    let _more = [(); MESSAGES_BEHIND].map(|()| connect(&worker, &admission));
    assert!(worker.is_behind());
    stop.send(true).unwrap();
    drop(release);
    assert_eq!(block_on(worker.drained()), 0);
    assert_eq!(cleaned.load(Ordering::Relaxed), 1);
    assert_eq!(admission.figures().connections, 0);
    block_on(worker.end(Duration::from_secs(10)));
}

#[test]
fn who_does_not_end_is_cut_off_after_the_grace() {
    let admission = Admission::new(&config());
    let (worker, stop) = start(|_| Ok(Deaf)).unwrap();
    let mut client = connect(&worker, &admission);
    block_on(worker.run(|| async {}));
    stop.send(true).unwrap();
    assert_eq!(block_on(worker.drained()), 1);
    assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0);
    assert_eq!(admission.figures().connections, 0);
    block_on(worker.end(Duration::from_secs(10)));
}

#[test]
fn a_thread_for_blocking_calls_has_the_groups_of_the_service() {
    if !rustix::process::geteuid().is_root() {
        crate::host::loop_mount::missing("root with CAP_SETGID");
        return;
    }
    // The service's identity is remembered before any thread changes.
    vfs::begin_thread().unwrap();
    let (worker, _stop) = start(|_| Ok(Echo::default())).unwrap();
    let status = block_on(worker.run(|| async {
        // As after a call for a user of this group.
        rustix::thread::set_thread_gid(rustix::fs::Gid::from_raw(12_345)).unwrap();
        let status = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
        tokio::task::spawn_blocking(status).await.unwrap()
    }));
    let status = status.unwrap();
    let groups = status.lines().find_map(|line| line.strip_prefix("Gid:"));
    let own = rustix::process::getegid().as_raw().to_string();
    // The last one is the group of new files.
    assert_eq!(
        groups.unwrap().split_whitespace().last(),
        Some(own.as_str())
    );
    block_on(worker.end(Duration::from_secs(10)));
}

#[test]
fn a_worker_that_cannot_start_says_why() {
    let error = start::<Echo>(|_| Err(io::Error::other("no ring"))).unwrap_err();
    assert_eq!(error.to_string(), "no ring");
    let error = start::<Echo>(|_| panic!("told to")).unwrap_err();
    assert_eq!(error.to_string(), "a worker died at its start");
}

#[test]
fn the_ring_turns_before_sleep_and_at_each_completion() {
    use rustix::event::{EventfdFlags, eventfd};
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let kernel = event.try_clone().unwrap();
    let turns = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&turns);
    let (worker, _stop) = start(move |_| {
        let turn = move || _ = turns.fetch_add(1, Ordering::Relaxed);
        crate::runtime::ring::install(turn, event)?;
        Ok(Echo::default())
    })
    .unwrap();
    block_on(worker.run(|| async {}));
    let wait_beyond = |count: u32| {
        let enough = (0..10_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            seen.load(Ordering::Relaxed) > count
        });
        assert!(enough, "the ring did not turn");
        seen.load(Ordering::Relaxed)
    };
    wait_beyond(0);
    // Twice: edge-triggered readiness must not be lost although nobody reads the counter.
    for _ in 0..2 {
        let parked = seen.load(Ordering::Relaxed);
        rustix::io::write(&kernel, &1u64.to_ne_bytes()).unwrap();
        wait_beyond(parked + 1);
        thread::sleep(Duration::from_millis(10));
    }
    block_on(worker.end(Duration::from_secs(10)));
}

/// The ring panics on the worker's thread: outside of every task, or in the task that drives it. The test runs in a
/// process of its own, because that is what ends.
#[test]
fn the_process_ends_with_the_thread_of_a_worker() {
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::unix::process::ExitStatusExt as _;
    const CHILD: &str = "HOLDFAST_TEST_WORKER_DIES";
    if let Ok(place) = std::env::var(CHILD) {
        let at_park = place == "park";
        // The task runs when the event is signalled.
        let event = eventfd(u32::from(!at_park), EventfdFlags::NONBLOCK).unwrap();
        let (_worker, _stop) = start(move |_| {
            let panics = move || assert_ne!(tokio::task::try_id().is_none(), at_park, "told to");
            crate::runtime::ring::install(panics, event)?;
            Ok(Echo::default())
        })
        .unwrap();
        thread::sleep(Duration::from_secs(10));
        return;
    }
    let this = "runtime::worker::tests::the_process_ends_with_the_thread_of_a_worker";
    for place in ["park", "task"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--test-threads", "1"])
            .env(CHILD, place)
            .output()
            .unwrap();
        let signal = output.status.signal();
        assert_eq!(signal, Some(libc::SIGABRT), "{place}: {output:?}");
    }
}

/// Reads a file that is not in the page cache, so that the ring has to wait for the device, once
/// and alone: the case in which a wake-up can be lost.
#[test]
fn a_lone_cold_read_comes_back_through_the_ring() {
    use vfs::{Disk, Identity, disk::OpenHow, linux::LinuxDisk};
    if let Err(reason) = vfs::uring::probe() {
        eprintln!("skipped: no io_uring here: {reason}");
        return;
    }
    // Not /tmp, which may be memory.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = folder.path().join("cold");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let (_stop, stopping) = watch::channel(false);
    let core = crate::runtime::placement::allowed_cores()[0];
    let grace = Duration::from_millis(50);
    let spec = Spec {
        index: 0,
        core,
        pin: true,
        stopping,
        grace,
        file_io: FileIo::IoUring,
    };
    let worker = Worker::start(spec, |_| Ok(Deaf)).unwrap();
    assert_eq!(worker.file_io(), "io_uring");
    let root = folder.path().to_owned();
    let read = worker.run(move || async move {
        let disk = LinuxDisk::open(&root).unwrap().with_rings(true);
        let how = OpenHow {
            read: true,
            ..OpenHow::default()
        };
        let fd = disk
            .open_at(&Identity::Service, &disk.root(), b"cold", how)
            .await
            .unwrap();
        let data = disk
            .read(&fd, 512 << 10, 4096, bytes::BytesMut::new())
            .await
            .unwrap();
        data.iter().all(|byte| *byte == 7) && data.len() == 4096
    });
    let read = block_on(async { tokio::time::timeout(Duration::from_secs(20), read).await });
    assert_eq!(read, Ok(Some(true)));
    block_on(worker.end(Duration::from_secs(10)));
}
