//! Tests of a whole daemon with a service that echoes.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
};

use serde::de::DeserializeOwned;

use super::*;
use crate::{
    Error,
    accounts::users,
    answers::{
        AppliedConfig, ClearedLatches, ClosedObjects, Explained, PolicyChange, Reloaded,
        ServerStatus, ShareStatus, StatusReport,
    },
    config::{self, Policy, places},
    control::{
        client::ask,
        protocol::{Closing, Request},
    },
    lock,
    metrics::exposition::Page,
    runtime::{
        listener,
        worker::{Accepted, ConnectionHandler, WorkerHandle},
    },
    service::{Applied, DirtyData, PolicySetting, SyncReport},
    status::explain::Located,
};

#[derive(Default)]
struct Echo {
    shares: Mutex<Vec<String>>,
    policy: Mutex<Option<PolicySetting>>,
    /// The policy that a reload brings into force while another one is set.
    overtaken_by: Mutex<Option<String>>,
    replaced: Mutex<Vec<String>>,
    synced: AtomicU32,
    closed: AtomicU32,
    fail_sync: AtomicBool,
    poisoned: AtomicBool,
    /// This many syncs take 600 ms each, and then one hangs.
    hang_after: Mutex<Option<u64>>,
    syncs_ended: AtomicU64,
    /// A reload does not come into force.
    apply_hangs: AtomicBool,
    applying: AtomicU32,
    /// The data that are dirty under tightened policies do not reach the disk.
    settling_hangs: AtomicBool,
    settling_panics: AtomicBool,
}

struct EchoHandler(usize);

impl ConnectionHandler for EchoHandler {
    type Carried = std::convert::Infallible;

    async fn serve(
        &self,
        accepted: Accepted<Self::Carried>,
        worker: &WorkerHandle,
        _: &dyn Fn() -> bool,
    ) -> Option<Accepted<Self::Carried>> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let _login = accepted.pass.authenticated();
        assert_eq!(self.0, worker.index());
        let mut byte = [0];
        let mut stream = tokio::net::TcpStream::from_std(accepted.stream).unwrap();
        loop {
            tokio::select! {
                read = stream.read(&mut byte) => if read.unwrap_or(0) == 0 { return None },
                () = worker.stopping() => return None,
            }
            // Each answer says which worker gave it.
            let answer = [byte[0], self.0.to_le_bytes()[0]];
            if stream.write_all(&answer).await.is_err() {
                return None;
            }
        }
    }

    async fn lost(&self, carried: Self::Carried) {
        match carried {}
    }
}

impl Service for Echo {
    type Handler = EchoHandler;

    fn handler(self: Arc<Self>, worker: &WorkerHandle) -> io::Result<EchoHandler> {
        Ok(EchoHandler(worker.index()))
    }

    fn status(&self) -> ServerStatus {
        let shares = self.shares.lock().unwrap();
        let named = |name: &String| ShareStatus {
            share: name.clone(),
            ..ShareStatus::default()
        };
        ServerStatus {
            shares: shares.iter().map(named).collect(),
            ..ServerStatus::default()
        }
    }

    fn metrics(&self, page: &mut Page) {
        page.single("holdfast_echo", "Echo.", 1);
    }

    async fn apply(
        self: Arc<Self>,
        config: Arc<Config>,
        users: UserDb,
        _: ApplyReason,
    ) -> Result<Applied, Error> {
        if self.apply_hangs.load(Ordering::Relaxed) {
            self.applying.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        let panics = self.settling_panics.load(Ordering::Relaxed);
        *self.shares.lock().unwrap() = config.shares.iter().map(|s| s.name.clone()).collect();
        let hangs = self.settling_hangs.load(Ordering::Relaxed);
        assert_eq!(users.users().count(), 0);
        let in_force = AppliedConfig {
            shares: self.shares.lock().unwrap().clone(),
            ..AppliedConfig::default()
        };
        Ok(Applied {
            in_force,
            stable: Box::pin(async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                assert!(!panics, "no thread can be started");
                Ok(Vec::new())
            }),
        })
    }

    async fn close_named(self: Arc<Self>, what: Closing) -> Result<ClosedObjects, Error> {
        match what {
            Closing::Session(7) => Ok(ClosedObjects {
                sessions: 1,
                ..ClosedObjects::default()
            }),
            _ => Err("there is no such thing".into()),
        }
    }

    fn policies(&self, _: Option<&str>) -> Result<Vec<ShareStatus>, Error> {
        Ok(self.status().shares)
    }

    async fn set_policy(
        self: Arc<Self>,
        change: PolicySetting,
    ) -> Result<Vec<PolicyChange>, Error> {
        let in_force = lock(&self.overtaken_by).clone();
        let share = ShareStatus {
            share: "s".to_owned(),
            configured_policy: in_force.unwrap_or_else(|| change.policy.to_string()),
            ..ShareStatus::default()
        };
        *self.policy.lock().unwrap() = Some(change);
        Ok(vec![PolicyChange {
            share,
            ..PolicyChange::default()
        }])
    }

    fn replaced_folders(&self, _: &Config) -> Vec<String> {
        lock(&self.replaced).clone()
    }

    fn explain(&self, located: &Located) -> Result<Explained, Error> {
        Ok(Explained {
            share: located.share.clone(),
            path: located.opener.path.to_string(),
            ..Explained::default()
        })
    }

    async fn clear_latch(
        self: Arc<Self>,
        share: Option<String>,
    ) -> Result<Vec<ClearedLatches>, Error> {
        match share.as_deref() {
            None | Some("s") => Ok(vec![ClearedLatches {
                share: "s".to_owned(),
                cleared_inodes: usize::from(self.poisoned.swap(false, Ordering::Relaxed)),
            }]),
            Some(_) => Err("no such share".into()),
        }
    }

    fn is_stable(&self) -> bool {
        self.synced.load(Ordering::Relaxed) > 0 && !self.poisoned.load(Ordering::Relaxed)
    }

    async fn sync_all(self: Arc<Self>) -> SyncReport {
        let hang_after = *self.hang_after.lock().unwrap();
        if let Some(syncs) = hang_after {
            for _ in 0..syncs {
                tokio::time::sleep(Duration::from_millis(300)).await;
                self.syncs_ended.fetch_add(1, Ordering::Relaxed);
            }
            std::future::pending::<()>().await;
        }
        self.synced.fetch_add(1, Ordering::Relaxed);
        let errors = match self.fail_sync.load(Ordering::Relaxed) {
            true => vec!["file f: Input/output error".to_owned()],
            false => vec![],
        };
        SyncReport {
            inodes: 1,
            bytes: 4096,
            errors,
        }
    }

    async fn close(self: Arc<Self>) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    fn syncs_ended(&self) -> u64 {
        self.syncs_ended.load(Ordering::Relaxed)
    }

    fn dirty_data(&self) -> DirtyData {
        DirtyData {
            inodes: 3,
            bytes: 4096,
            shares: vec!["s".to_owned()],
        }
    }
}

/// A daemon in a thread, with its address and its orders.
struct Running {
    folder: tempfile::TempDir,
    service: Arc<Echo>,
    address: std::net::SocketAddr,
    orders: mpsc::Sender<Order>,
    thread: thread::JoinHandle<Result<(), Error>>,
}

/// The setup of a daemon in this folder, with more lines for its configuration.
fn setup(folder: &Path, extra: &str) -> Setup {
    let file = folder.join("h.toml");
    let text = format!(
        "[server]\nstate_dir = \"state\"\nshutdown_grace = \"100ms\"\n\
         [[listener]]\naddress = \"127.0.0.1:1\"\n\
         [[share]]\nname = \"s\"\npath = \"data\"\n{extra}"
    );
    std::fs::create_dir_all(folder.join("data")).unwrap();
    std::fs::write(&file, text).unwrap();
    let config = config::load(&file).unwrap_or_else(|error| panic!("{error}"));
    state_dir::prepare(&config.server.state_dir).unwrap();
    let users = users::load_or_make(&config.server.users_file).unwrap();
    let any_port = "127.0.0.1:0".parse().unwrap();
    let socket = listener::bind(&config::Listener {
        address: any_port,
        ..config.listeners[0].clone()
    })
    .unwrap();
    Setup {
        sandbox: crate::host::sandbox::SandboxReport::default(),
        config,
        config_file: Some(file),
        users,
        sockets: vec![socket],
        metrics: None,
    }
}

impl Running {
    fn start(extra: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let setup = setup(folder.path(), extra);
        let address = setup.sockets[0].local_addr().unwrap();
        let service = Arc::new(Echo::default());
        let made = Arc::clone(&service);
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            run_with(
                setup,
                move |_, _| Ok(made),
                move |orders, _| sender.send(orders).map_err(io::Error::other),
            )
        });
        let orders = receiver.recv().unwrap();
        let daemon = Self {
            folder,
            service,
            address,
            orders,
            thread,
        };
        let up = || std::os::unix::net::UnixStream::connect(daemon.socket()).is_ok();
        assert!((0..6_000).any(|_| up() || {
            thread::sleep(Duration::from_millis(5));
            false
        }));
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.folder
            .path()
            .join("state")
            .join(places::CONTROL_SOCKET)
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        ask(&self.socket(), request)
    }

    fn status(&self) -> StatusReport {
        self.ask(&Request::Status {}).unwrap()
    }

    fn reload(&self) -> Result<Reloaded, Error> {
        self.ask(&Request::Reload {})
    }

    fn stop(self) -> Result<(), Error> {
        self.orders.blocking_send(Order::Stop).unwrap();
        self.thread.join().unwrap()
    }
}

/// A client and the worker that serves it.
fn client(address: std::net::SocketAddr) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"x").unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], b'x');
    (stream, answer[1])
}

/// The workers of a daemon whose listener names no cores.
fn plan() -> placement::Plan {
    placement::plan_here(&[config::listen_everywhere()]).unwrap()
}

#[test]
fn from_start_to_orderly_end() {
    let daemon = Running::start("");
    let cores = plan().cores.len();
    let clients: Vec<(TcpStream, u8)> = (0..2 * cores).map(|_| client(daemon.address)).collect();
    // Least loaded first: every worker has two.
    let mut workers: Vec<u8> = clients.iter().map(|(_, worker)| *worker).collect();
    workers.sort_unstable();
    let expected: Vec<u8> = (0..2 * cores)
        .map(|at| u8::try_from(at / 2).unwrap())
        .collect();
    assert_eq!(workers, expected);

    let status = daemon.status();
    assert_eq!(status.connections.connections as usize, 2 * cores);
    assert_eq!(status.connections.unauthenticated, 0);
    assert_eq!(status.workers.len(), cores);
    assert_eq!(status.workers[0].connections, 2);

    let (service, socket) = (Arc::clone(&daemon.service), daemon.socket());
    assert_eq!(daemon.stop(), Ok(()));
    assert_eq!(service.synced.load(Ordering::Relaxed), 1);
    assert!(!socket.exists());
    for (mut stream, _) in clients {
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    }
}

/// Of equally loaded workers: the one on the core that the connection's packets come in on.
#[test]
fn of_equally_loaded_workers_the_near_one() {
    let daemon = Running::start("");
    for (worker, core) in plan().cores.into_iter().enumerate() {
        // On loopback packets come in where they are sent.
        let address = daemon.address;
        let connect = thread::spawn(move || {
            let mut cores = rustix::thread::CpuSet::new();
            cores.set(core);
            rustix::thread::sched_setaffinity(None, &cores).unwrap();
            client(address)
        });
        let (stream, by) = connect.join().unwrap();
        assert_eq!(usize::from(by), worker);
        drop(stream);
        let gone = || daemon.status().connections.connections == 0;
        assert!((0..1_000).any(|_| gone() || {
            thread::sleep(Duration::from_millis(5));
            false
        }));
    }
    assert_eq!(daemon.stop(), Ok(()));
}

#[test]
fn reload_brings_new_shares_and_keeps_sessions_and_mistakes_out() {
    let daemon = Running::start("");
    let (mut session, _) = client(daemon.address);
    let file = daemon.folder.path().join("h.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\nreadonly = true\n")).unwrap();
    let complaint = daemon.reload().unwrap_err().to_string();
    assert!(
        complaint.contains("did you mean `read_only`?"),
        "{complaint}"
    );
    let more = "[[share]]\nname = \"t\"\npath = \"data\"\n[limits]\nconnections_per_address = 1\n\
                [metrics]\nlisten = \"127.0.0.1:9\"\n";
    std::fs::write(&file, format!("{text}\n{more}")).unwrap();
    let answer = daemon.reload().unwrap();
    assert_eq!(answer.applied.shares, ["s", "t"]);
    assert_eq!(answer.needs_restart, ["[metrics]"]);
    let shares = daemon.status().server.shares;
    assert_eq!([&*shares[0].share, &*shares[1].share], ["s", "t"]);
    // The new limit holds for the next connection, not for the one that is there.
    let mut refused = TcpStream::connect(daemon.address).unwrap();
    assert_eq!(refused.read(&mut [0; 8]).unwrap_or(0), 0);
    session.write_all(b"y").unwrap();
    session.read_exact(&mut [0; 2]).unwrap();
    daemon.orders.blocking_send(Order::Reload).unwrap();
    assert_eq!(daemon.stop(), Ok(()));
}

/// A reload that hangs delays no other order, whatever it waits for.
#[test]
fn a_reload_that_hangs_makes_no_order_wait() {
    let shares = |daemon: &Running| daemon.service.shares.lock().unwrap().len();
    let add = |daemon: &Running, name: &str| {
        let file = daemon.folder.path().join("h.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let more = format!("{text}\n[[share]]\nname = {name:?}\npath = \"data\"\n");
        std::fs::write(&file, more).unwrap();
    };
    let soon = |what: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(10);
        while !what() {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(5));
        }
    };
    // The reload comes into force, and then the disk hangs: by control socket, and by signal.
    let daemon = Running::start("");
    daemon.service.settling_hangs.store(true, Ordering::Relaxed);
    let socket = daemon.socket();
    add(&daemon, "t");
    let held = thread::spawn(move || ask::<Reloaded>(&socket, &Request::Reload {}));
    soon(&|| shares(&daemon) == 2);
    add(&daemon, "u");
    daemon.orders.blocking_send(Order::Reload).unwrap();
    soon(&|| shares(&daemon) == 3);
    add(&daemon, "v");
    daemon.orders.blocking_send(Order::Reload).unwrap();
    soon(&|| shares(&daemon) == 4);
    daemon
        .service
        .settling_hangs
        .store(false, Ordering::Relaxed);
    daemon.reload().unwrap();
    assert!(!held.is_finished(), "answered early");
    let begun = Instant::now();
    assert_eq!(daemon.stop(), Ok(()));
    assert!(begun.elapsed() < Duration::from_secs(30));
    held.join().unwrap().unwrap_err();
    // It does not even come into force.
    let daemon = Running::start("");
    daemon.service.apply_hangs.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        daemon.orders.blocking_send(Order::Reload).unwrap();
    }
    soon(&|| daemon.service.applying.load(Ordering::Relaxed) == 1);
    let begun = Instant::now();
    assert_eq!(daemon.stop(), Ok(()));
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// As where the system has no thread to read the file with.
#[test]
fn a_reload_that_panics_fails_and_the_server_goes_on() {
    let daemon = Running::start("");
    let panics = |now| daemon.service.settling_panics.store(now, Ordering::Relaxed);
    panics(true);
    let error = daemon.reload().unwrap_err().to_string();
    assert!(error.contains("no thread can be started"), "{error}");
    daemon.service.shares.lock().unwrap().clear();
    daemon.orders.blocking_send(Order::Reload).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while daemon.service.shares.lock().unwrap().is_empty() {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(5));
    }
    panics(false);
    daemon.reload().unwrap();
    client(daemon.address);
    assert_eq!(daemon.stop(), Ok(()));
}

/// The configuration in force says what the server does until it is restarted, however often it is reloaded.
#[test]
fn what_needs_a_restart_is_named_until_there_is_one() {
    let daemon = Running::start("");
    let file = daemon.folder.path().join("h.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let other = text.replace("127.0.0.1:1\"", "127.0.0.1:2\"");
    std::fs::write(&file, other.replace("\"state\"", "\"elsewhere\"")).unwrap();
    for _ in 0..2 {
        let named = daemon.reload().unwrap().needs_restart;
        let expected = [
            "[[listener]]",
            "[server] state_dir, file_io, shutdown_grace",
        ];
        assert_eq!(named, expected);
        let status = daemon.status();
        assert_eq!(status.listeners[0].address, "127.0.0.1:1");
        assert!(status.state_dir.ends_with("/state"), "{}", status.state_dir);
    }
    // A share that contains the state folder in use is refused, whatever the file says.
    let path = daemon.folder.path();
    let exposing = format!("[[share]]\nname = \"all\"\npath = {path:?}\nread_only = true\n");
    let outside = tempfile::tempdir().unwrap();
    let moved = text.replace("\"state\"", &format!("{:?}", outside.path()));
    std::fs::write(&file, format!("{moved}\n{exposing}")).unwrap();
    let error = daemon.reload().unwrap_err().to_string();
    assert!(error.contains("contains the state folder"), "{error}");
    std::fs::write(&file, text).unwrap();
    assert!(daemon.reload().unwrap().needs_restart.is_empty());
    assert_eq!(daemon.stop(), Ok(()));
}

/// A command may read from a disk that hangs, here a FIFO that nobody writes to.
#[test]
fn a_command_that_hangs_does_not_delay_the_end() {
    let daemon = Running::start("");
    let file = daemon.folder.path().join("h.toml");
    std::fs::remove_file(&file).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, mode).unwrap();
    let socket = daemon.socket();
    let hung = thread::spawn(move || ask::<Reloaded>(&socket, &Request::Reload {}));
    thread::sleep(Duration::from_millis(300));
    assert!(!hung.is_finished());
    let (ended, end) = std::sync::mpsc::channel();
    let (folder, orders, running) = (daemon.folder, daemon.orders, daemon.thread);
    thread::spawn(move || {
        orders.blocking_send(Order::Stop).unwrap();
        ended.send(running.join().unwrap())
    });
    assert_eq!(end.recv_timeout(Duration::from_secs(10)), Ok(Ok(())));
    hung.join().unwrap().unwrap_err();
    drop(folder);
}

#[test]
fn a_folder_that_was_replaced_is_reported() {
    let daemon = Running::start("");
    lock(&daemon.service.replaced).push("s".to_owned());
    daemon.reload().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while !daemon.status().server.shares[0].replaced {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(daemon.stop(), Ok(()));
}

#[test]
fn policies_are_parsed_and_guarded_before_the_service_sees_them() {
    let daemon = Running::start("");
    let policy = |set: &str, accept_loss| {
        let request = Request::Policy {
            share: Some("s".to_owned()),
            set: Some(set.to_owned()),
            accept_loss,
            without_rules: false,
        };
        daemon.ask::<Vec<PolicyChange>>(&request)
    };
    assert!(
        policy("honour", false)
            .unwrap_err()
            .to_string()
            .contains("did you mean `honor`?")
    );
    assert!(
        policy("treat-host-as-stable-storage", false)
            .unwrap_err()
            .to_string()
            .contains("--accept-loss")
    );
    assert_eq!(*daemon.service.policy.lock().unwrap(), None);
    policy("treat-host-as-stable-storage", true).unwrap();
    policy("strict-sync", false).unwrap();
    let seen = daemon.service.policy.lock().unwrap().clone().unwrap();
    assert_eq!(
        seen,
        PolicySetting {
            share: Some("s".into()),
            policy: Policy::StrictSync,
            accept_loss: false,
            without_rules: false,
            who: seen.who.clone(),
        }
    );
    let us = format!("process {})", std::process::id());
    assert!(seen.who.contains(&us), "{}", seen.who);
    assert_eq!(daemon.stop(), Ok(()));
}

#[test]
fn a_policy_that_a_reload_has_replaced_is_not_the_last_change() {
    let daemon = Running::start("");
    for overtaken_by in [None, Some("honor".to_owned())] {
        let replaced = overtaken_by.is_some();
        *lock(&daemon.service.overtaken_by) = overtaken_by;
        daemon.reload().unwrap();
        let request = Request::Policy {
            share: Some("s".to_owned()),
            set: Some("strict-sync".to_owned()),
            accept_loss: false,
            without_rules: false,
        };
        daemon.ask::<Vec<PolicyChange>>(&request).unwrap();
        let changed = daemon.status().server.shares[0].changed.clone();
        assert_eq!(changed.is_none(), replaced, "{changed:?}");
    }
    assert_eq!(daemon.stop(), Ok(()));
}

#[test]
fn a_bound_that_the_end_would_break_is_refused() {
    for (settings, refused) in [("", false), ("[durability]\nsync_on_stop = false\n", true)] {
        let daemon = Running::start(settings);
        let request = Request::Policy {
            share: None,
            set: Some("bounded:50ms,4MiB".to_owned()),
            accept_loss: false,
            without_rules: false,
        };
        let answer = daemon.ask::<Vec<PolicyChange>>(&request);
        let error = answer.err().map(|error| error.to_string());
        let named = error.map(|error| error.contains("sync_on_stop"));
        assert_eq!(named, refused.then_some(true));
        assert_eq!(daemon.stop(), Ok(()));
    }
}

#[test]
fn an_administrator_clears_latches() {
    let daemon = Running::start("");
    daemon.service.poisoned.store(true, Ordering::Relaxed);
    let clear = |share: Option<&str>| {
        let share = share.map(str::to_owned);
        let cleared: Vec<ClearedLatches> = daemon.ask(&Request::ClearLatch { share })?;
        Ok::<_, Error>(cleared[0].cleared_inodes)
    };
    clear(Some("other")).unwrap_err();
    assert_eq!(clear(Some("s")), Ok(1));
    assert_eq!(clear(None), Ok(0));
    assert_eq!(daemon.stop(), Ok(()));
}

#[test]
fn what_could_not_be_synced_is_an_error_at_the_end() {
    let daemon = Running::start("");
    daemon.service.fail_sync.store(true, Ordering::Relaxed);
    let error = daemon.stop().unwrap_err().to_string();
    assert!(error.contains("acknowledged data may be lost"), "{error}");
    assert!(error.contains("Input/output error"), "{error}");
    let daemon = Running::start("[durability]\nsync_on_stop = false\n");
    let service = Arc::clone(&daemon.service);
    assert_eq!(daemon.stop(), Ok(()));
    assert_eq!(service.synced.load(Ordering::Relaxed), 0);
    assert_eq!(service.closed.load(Ordering::Relaxed), 1);
}

/// As long as single syncs end, the final sync continues; it hangs after 1.8 s and is given up a
/// second later.
#[test]
fn a_sync_at_the_end_that_hangs_is_given_up() {
    let daemon = Running::start("");
    *daemon.service.hang_after.lock().unwrap() = Some(6);
    let mark = daemon.folder.path().join("state/running");
    let start = Instant::now();
    daemon.orders.blocking_send(Order::Stop).unwrap();
    let error = daemon.thread.join().unwrap().unwrap_err().to_string();
    let took = start.elapsed();
    assert!(took > Duration::from_millis(1_800), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(
        error.contains("3 inodes (4096 bytes) of shares (s)"),
        "{error}"
    );
    assert_eq!(daemon.service.syncs_ended.load(Ordering::Relaxed), 6);
    assert_eq!(daemon.service.closed.load(Ordering::Relaxed), 1);
    assert!(mark.exists(), "the next start syncs");
}

/// As the mark of an unclean end is removed.
#[test]
fn a_state_folder_that_hangs_does_not_delay_the_end() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (hang, release) = std::sync::mpsc::channel::<()>();
    let hangs = move || {
        let _ = release.recv();
    };
    assert!(!runtime.block_on(change_in_time(Duration::from_millis(50), hangs)));
    drop(hang);
    assert!(runtime.block_on(change_in_time(Duration::from_secs(10), || ())));
}

#[test]
fn the_mark_of_an_unclean_end_goes_only_when_all_is_stable() {
    for (settings, poisoned, unclean) in [
        ("", false, false),
        ("", true, true),
        ("[durability]\nsync_on_stop = false\n", false, true),
    ] {
        let daemon = Running::start(settings);
        daemon.service.poisoned.store(poisoned, Ordering::Relaxed);
        let mark = daemon.folder.path().join("state/running");
        assert!(mark.exists());
        daemon.orders.blocking_send(Order::Stop).unwrap();
        assert_eq!(daemon.thread.join().unwrap(), Ok(()));
        assert_eq!(mark.exists(), unclean, "{settings:?} {poisoned}");
    }
}

#[test]
fn a_start_that_fails_is_no_unclean_end() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let mark = state.join("running");
    let run = |makes: bool| {
        let make = |_, _| match makes {
            true => Ok(Arc::new(Echo::default())),
            false => Err(io::Error::other("no service")),
        };
        let setup = setup(folder.path(), "");
        // It waits to be accepted, which would make it a client that was served.
        let mut client = TcpStream::connect(setup.sockets[0].local_addr().unwrap()).unwrap();
        client.write_all(b"x").unwrap();
        let error = run_with(setup, make, |_, _| Ok(())).unwrap_err();
        let error = error.to_string();
        assert!(!mark.exists(), "{error}");
        assert_eq!(client.read(&mut [0; 2]).unwrap_or(0), 0, "{error}");
        error
    };
    assert_eq!(run(false), "no service");
    // The start comes as far as the control socket. A folder in its place is not removed.
    std::fs::create_dir_all(state.join(places::CONTROL_SOCKET).join("x")).unwrap();
    let error = run(true);
    assert!(error.starts_with("control socket "), "{error}");
    // A start that is stopped undoes it, too.
    let stopped = |_, undo: Undo| {
        assert!(mark.exists());
        undo();
        assert!(!mark.exists());
        Err(io::Error::other("stopped"))
    };
    let make = |_, _| Ok(Arc::new(Echo::default()));
    run_with(setup(folder.path(), ""), make, stopped).unwrap_err();
    // A start that fails also syncs what a killed server has left.
    std::fs::write(&mark, "{}").unwrap();
    run(true);
}

#[test]
fn two_daemons_do_not_share_a_state_folder() {
    let daemon = Running::start("");
    daemon.status();
    let config = config::load(&daemon.folder.path().join("h.toml")).unwrap();
    let users = users::empty().unwrap();
    let setup = Setup {
        sandbox: crate::host::sandbox::SandboxReport::default(),
        config,
        config_file: None,
        users,
        sockets: vec![],
        metrics: None,
    };
    let ran = run_with(setup, |_, _| Ok(Arc::new(Echo::default())), |_, _| Ok(()));
    let error = ran.unwrap_err().to_string();
    assert!(error.contains("another Holdfast runs"), "{error}");
    daemon.status();
    assert_eq!(daemon.stop(), Ok(()));
}
