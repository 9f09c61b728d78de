//! The running server: the front, the workers, and everything between start and orderly end.
//!
//! The front is the main thread: it accepts connections, gives each to the least-loaded worker of its listener, moves
//! connections from busy workers to idle ones, answers the control socket and the metrics page, and obeys orders
//! (signals). It never accesses a file of a share. The protocol is passed in as a [`Service`].
//!
//! A hanging disk delays only the answer to the administrator who tightened a policy on it: one configuration at a time
//! is brought into force, and only afterwards does the answer wait for data that were dirty before.

mod answers;
mod connections;
mod ending;
mod policy;
mod reload;
mod requests;
mod starting;

use std::{
    cell::RefCell,
    future::Future,
    io,
    net::TcpListener,
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use smb_auth::UserDb;
use tokio::{
    runtime::{Builder, LocalOptions},
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::{JoinError, JoinHandle, JoinSet},
};

use crate::{
    Error,
    config::{Config, places},
    control::{self, Control},
    host::{notify, protection, sandbox},
    metrics,
    runtime::{
        admission::Admission,
        apart::on_thread,
        placement, resources,
        worker::{ConnectionHandler, Spec, Worker},
    },
    service::{ApplyReason, Service},
    state::{recovery, state_dir},
    status::shares::REPLACED,
};

use ending::{GRACE_MIN, change_in_time};
pub(crate) use starting::outlive_hangup;

/// How often the server checks whether a share that is held back can be served.
const LATE_AGAIN: Duration = Duration::from_millis(250);
/// Orders on their way to the front.
const ORDERS_MAX: usize = 8;

/// An order to the front from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// End in order; if repeated, end at once.
    Stop,
    /// The terminal is gone: end in order, however often it comes, as a shell and the kernel may both send it.
    HangUp,
    /// Read configuration and users again.
    Reload,
}

/// Everything that is needed to start.
#[derive(Debug)]
pub struct Setup {
    pub config: Config,
    /// The file that it was read from; without one it cannot be reloaded.
    pub config_file: Option<PathBuf>,
    pub users: UserDb,
    /// One bound socket for each listener of the configuration.
    pub sockets: Vec<TcpListener>,
    /// The bound socket of the metrics page, if the configuration has one.
    pub metrics: Option<TcpListener>,
    /// The privileges that the process has given up.
    pub sandbox: sandbox::SandboxReport,
}

/// Serves until a signal ends it.
///
/// # Errors
/// The reason why it could not start, or the data that could not be made stable at the end.
pub fn run<S: Service>(
    setup: Setup,
    make: impl FnOnce(Arc<Config>, UserDb) -> io::Result<Arc<S>>,
) -> Result<(), Error> {
    // The masks of each share decide about modes, not the umask of the process that started the server.
    rustix::process::umask(rustix::fs::Mode::empty());
    let starting = starting::EarlyStop::begin(setup.config_file.is_some())?;
    let hangup = match setup.config_file {
        Some(_) => Some(Order::Reload),
        // There is no file to read again: the server ends with the terminal in which it was started, unless its caller
        // (`nohup`) has it ignore that.
        None if is_hangup_ignored() => None,
        None => Some(Order::HangUp),
    };
    run_with(setup, make, |orders, undo| {
        starting.undo_by(undo);
        // A client's write beyond RLIMIT_FSIZE must only fail. By its default, the signal that comes with the error
        // would end the server. The handler stays when its receiver is dropped.
        drop(signal(SignalKind::from_raw(libc::SIGXFSZ))?);
        let stop = [SignalKind::terminate(), SignalKind::interrupt()];
        let stop = stop.map(|kind| (kind, Order::Stop)).into_iter();
        let hangup = hangup.map(|order| (SignalKind::hangup(), order));
        for (kind, order) in stop.chain(hangup) {
            let mut signals = signal(kind)?;
            let orders = orders.clone();
            tokio::task::spawn_local(async move {
                while signals.recv().await.is_some() && orders.send(order).await.is_ok() {}
            });
        }
        // The tasks of this runtime run once the start is over.
        tokio::task::spawn_local(starting.end(orders));
        Ok(())
    })
}

/// Whether this process ignores SIGHUP; the kernel hands that on from its parent.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 1 is the lowest bit.
    mask.is_some_and(|mask| mask & 1 != 0)
}

/// Undoes what a start has left in the state folder; no client was served.
pub type Undo = Box<dyn FnOnce() + Send>;

/// Runs the daemon as [`run`] does, but takes its orders from the caller in place of signals: for tests, and for
/// programs that handle signals themselves. A caller that ends the process before the start is over uses the [`Undo`].
///
/// # Errors
/// As [`run`].
pub fn run_with<S: Service>(
    setup: Setup,
    make: impl FnOnce(Arc<Config>, UserDb) -> io::Result<Arc<S>>,
    wire_orders: impl FnOnce(mpsc::Sender<Order>, Undo) -> io::Result<()>,
) -> Result<(), Error> {
    // This precedes every other thread that serves, because all inherit it.
    vfs::give_up_set_ids().map_err(|error| {
        format!(
            "giving up CAP_FSETID: {error}\n  = with it, programs that clients overwrite would keep \
             their set-user-ID bit; whatever confines the server must allow capset"
        )
    })?;
    let folder = setup.config.server.state_dir.clone();
    state_dir::prepare(&folder)?;
    let _ownership = state_dir::own(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => format!(
            "another Holdfast runs with {}\n  = stop it, or give this one its own state_dir (without a configuration \
             file: another port)",
            folder.display()
        ),
        _ => error.to_string(),
    })?;
    resources::raise_descriptor_limit();
    let shares = setup.config.shares.iter().map(|share| share.path.as_path());
    let shares: Vec<_> = shares.collect();
    let (mark, late) = recovery::Mark::set(&folder, &shares, recovery::ANSWER_MAX)
        .map_err(|error| format!("before serving: {error}"))?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let mark = Arc::new(mark);
    let grace = setup.config.server.shutdown_grace.max(GRACE_MIN);
    let ended = runtime.block_on(async {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        // No client is served yet, so only an earlier server can have left something to sync.
        let has_synced_all = late.has_synced_all();
        let marked = Arc::clone(&mark);
        let undo: Undo = Box::new(move || {
            if has_synced_all {
                marked.remove();
            }
        });
        let front = wire_orders(sender, undo).map_err(Error::from);
        let front = front.and_then(|()| Front::start(setup, (Arc::clone(&mark), late), make));
        let (ended, is_stable) = match front {
            Ok(front) => {
                notify::notify("READY=1");
                let ended = front.serve(orders).await;
                let is_stable = matches!(ended, Ok(true));
                (ended, is_stable)
            }
            Err(error) => (Err(error), has_synced_all),
        };
        if is_stable && !change_in_time(grace, move || mark.remove()).await {
            tracing::warn!(
                "the state folder's disk does not answer: the next start may sync without need"
            );
        }
        ended
    });
    if matches!(ended, Ok(false)) {
        tracing::warn!("something is left to the kernel: the next start syncs before it serves");
    }
    // The runtime's threads may wait for a disk that hangs, so the process ends without waiting for them.
    runtime.shutdown_background();
    ended.map(drop)
}

/// The state of a connection of this service between two workers.
type Carried<S> = <<S as Service>::Handler as ConnectionHandler>::Carried;

/// The main thread's half.
struct Front<S: Service> {
    service: Arc<S>,
    /// The configuration in force.
    config: RefCell<Arc<Config>>,
    /// The users in force, for workers that start late.
    users: RefCell<UserDb>,
    mark: Arc<recovery::Mark>,
    /// Shares that are held back: their file systems do not answer, or fail.
    late: recovery::Late,
    /// Notified when another configuration is in force, perhaps with more of them.
    late_again: tokio::sync::Notify,
    /// Allows one reload at a time, so that the files that were read last come into force last.
    /// Its steps that wait for a disk take places.
    reloading: tokio::sync::Mutex<Arc<tokio::sync::Semaphore>>,
    /// Allows one task at a time to bring a configuration into force. Nobody who has it reads the configuration.
    applying: tokio::sync::Mutex<()>,
    config_file: Option<PathBuf>,
    admission: Arc<Admission>,
    workers: Vec<Worker<Carried<S>>>,
    members: Vec<Vec<usize>>,
    stop: watch::Sender<bool>,
    started: Instant,
    protection: protection::LatestAssessments,
    /// Notified when the shares were changed, so that the storage is examined again.
    look_now: tokio::sync::Notify,
    changes: policy::Changes,
    /// Shares whose paths lead to other folders than those that are served.
    replaced: RefCell<Vec<String>>,
    sandbox: sandbox::SandboxReport,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl<S: Service> Front<S> {
    fn start(
        setup: Setup,
        (mark, late): (Arc<recovery::Mark>, recovery::Late),
        make: impl FnOnce(Arc<Config>, UserDb) -> io::Result<Arc<S>>,
    ) -> Result<Rc<Self>, Error> {
        let mut config = late.without(setup.config);
        // The engine keeps this number when a reload divides the descriptors anew.
        config.dirty_inodes = Some(resources::Descriptors::of(&config).dirty_inodes);
        let config = Arc::new(config);
        let plan = placement::plan_here(&config.listeners)?;
        vfs::linux::pool::share_arenas(plan.cores.len());
        let users = setup.users.clone();
        let service = make(Arc::clone(&config), setup.users)?;
        let (stop, stopping) = watch::channel(false);
        let grace = config.server.shutdown_grace;
        let start_worker = |(index, core): (usize, &usize)| {
            let spec = Spec {
                index,
                core: *core,
                pin: plan.pinned.contains(core),
                stopping: stopping.clone(),
                grace,
                file_io: config.server.file_io,
            };
            let service = Arc::clone(&service);
            Worker::start(spec, move |handle| service.handler(handle))
                .map_err(|error| Error::from(format!("worker {index} on core {core}: {error}")))
        };
        let cores = plan.cores.iter().enumerate();
        let workers: Vec<Worker<_>> = cores.map(start_worker).collect::<Result<_, _>>()?;
        let file_io: Vec<&str> = workers.iter().map(Worker::file_io).collect();
        tracing::info!(workers = workers.len(), cores = ?plan.cores, ?file_io, "started");
        let front = Rc::new(Self {
            service,
            admission: Admission::new(&config),
            config: RefCell::new(config),
            users: RefCell::new(users),
            mark,
            late,
            late_again: tokio::sync::Notify::new(),
            reloading: reload::with_places(),
            applying: tokio::sync::Mutex::default(),
            config_file: setup.config_file,
            workers,
            members: plan.members,
            stop,
            started: Instant::now(),
            protection: protection::LatestAssessments::default(),
            look_now: tokio::sync::Notify::new(),
            changes: policy::Changes::default(),
            replaced: RefCell::default(),
            sandbox: setup.sandbox,
            tasks: RefCell::default(),
        });
        let config = front.config();
        front
            .protection
            .put(&config, protection::of_config(&config));
        front.open(setup.sockets, setup.metrics)?;
        Ok(front)
    }

    /// Starts accepting, the control socket and the metrics page; nothing of these if one of them fails.
    fn open(
        self: &Rc<Self>,
        sockets: Vec<TcpListener>,
        metrics: Option<TcpListener>,
    ) -> io::Result<()> {
        let take = |socket, what| {
            let socket = tokio::net::TcpListener::from_std(socket)?;
            tracing::info!(address = %socket.local_addr()?, "{what}");
            io::Result::Ok(socket)
        };
        let config = self.config();
        let control = control::bind(&config.server.state_dir.join(places::CONTROL_SOCKET))?;
        let sockets = sockets.into_iter().map(|socket| take(socket, "listening"));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        let page = |socket| take(socket, "metrics page");
        let metrics = metrics.map(page).transpose()?;
        // From here on nothing fails: after an error no task may accept a client.
        let mut tasks = self.tasks.borrow_mut();
        for (index, socket) in sockets.into_iter().enumerate() {
            let accepting = Rc::clone(self).accept(index, socket);
            tasks.push(tokio::task::spawn_local(accepting));
        }
        tasks.push(tokio::task::spawn_local(Rc::clone(self).balance()));
        tasks.push(tokio::task::spawn_local(Rc::clone(self).look_again()));
        tasks.push(tokio::task::spawn_local(Rc::clone(self).take_in_late()));
        tasks.push(tokio::task::spawn_local(sandbox::calls::log_refused()));
        let control = control::serve(control, Rc::clone(self) as Rc<dyn Control>);
        tasks.push(tokio::task::spawn_local(control));
        if let Some(socket) = metrics {
            let front = Rc::clone(self);
            let render: metrics::Render = Rc::new(move || front.metrics());
            tasks.push(tokio::task::spawn_local(metrics::serve(socket, render)));
        }
        Ok(())
    }

    /// Serves shares as soon as their file systems answer.
    async fn take_in_late(self: Rc<Self>) {
        loop {
            if self.late.is_empty() {
                self.late_again.notified().await;
            }
            tokio::time::sleep(LATE_AGAIN).await;
            if !self.late.has_ready() {
                continue;
            }
            let _applying = self.applying.lock().await;
            // They are taken in one by one, so that one that fails after all does not affect the others.
            let next = || self.late.next_ready();
            while let Some(folder) = next() {
                let mut config = (*self.config()).clone();
                config.shares.append(&mut config.late);
                let users = self.users.borrow().clone();
                match self
                    .put_into_force(config, users, ApplyReason::LateShares)
                    .await
                {
                    Ok(applied) => {
                        let applied = requests::to_value(&applied.in_force).unwrap_or_default();
                        tracing::info!(%applied, "{}: its shares are served", folder.display());
                    }
                    Err(error) => {
                        tracing::error!(%error, "{}: its shares are not served", folder.display());
                        self.late.put_back(folder, error.to_string());
                    }
                }
            }
        }
    }

    /// Examines the storage again from time to time, because mounts change and batteries run down.
    async fn look_again(self: Rc<Self>) {
        loop {
            let reloaded = self.look_now.notified();
            let _ = tokio::time::timeout(protection::AGAIN, reloaded).await;
            self.look().await;
        }
    }

    /// Examines the storage under the shares. Reading may wait for a server that does not answer.
    async fn look(&self) {
        let config = self.config();
        let (wanted, service) = (Arc::clone(&config), Arc::clone(&self.service));
        let look = move || {
            let found = protection::of_config(&wanted);
            (found, service.replaced_folders(&wanted))
        };
        match on_thread("protection", look).await {
            Err(error) => {
                tracing::warn!(%error, "the storage under the shares was not examined");
            }
            Ok((found, replaced)) => {
                self.protection.put(&config, found);
                for share in &replaced {
                    if !self.replaced.borrow().contains(share) {
                        tracing::warn!(share, "{REPLACED}");
                    }
                }
                self.replaced.replace(replaced);
            }
        }
    }

    /// Carries out orders until the end. Returns the result of [`Front::end`].
    async fn serve(self: Rc<Self>, mut orders: mpsc::Receiver<Order>) -> Result<bool, Error> {
        self.obey(&mut orders).await;
        let again = async {
            while let Some(order) = orders.recv().await {
                if order == Order::Stop {
                    return;
                }
            }
            // The channel of orders has closed, so no second order to stop can come.
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = self.end() => ended,
            () = again => Err("stopped at once by a second signal: dirty data were left \
                               to the kernel".into()),
        };
        for task in self.tasks.take() {
            task.abort();
        }
        ended
    }

    /// Carries out reloads until the end: the end does not wait for a reload. Of the orders to reload that arrive
    /// while one is under way, one is kept, and only the last one's policy changes are reported; each waits for
    /// those before it.
    async fn obey(self: &Rc<Self>, orders: &mut mpsc::Receiver<Order>) {
        let mut wanted = false;
        // One task each at most. A panic ends only the task: the runtime panics where no thread can be started.
        let mut reading = JoinSet::new();
        let mut syncing = JoinSet::new();
        loop {
            if wanted && reading.is_empty() {
                wanted = false;
                let front = Rc::clone(self);
                reading.spawn_local(async move { front.bring_into_force().await });
            }
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Order::Reload) => wanted = true,
                    Some(Order::Stop | Order::HangUp) | None => return,
                },
                Some(read) = reading.join_next() => match flat(read) {
                    Ok(reloaded) => {
                        syncing = JoinSet::new();
                        syncing.spawn_local(reloaded.stable());
                    }
                    Err(error) => tracing::error!(%error, "not reloaded; all stays as it was"),
                },
                Some(stable) = syncing.join_next() => match flat(stable) {
                    Ok(done) => {
                        tracing::info!(done = requests::in_a_line(&done), "reloaded");
                    }
                    Err(error) => tracing::error!(%error, "reloaded, but not all is on disk"),
                },
            }
        }
    }

    /// Runs a task of the service on the first worker.
    ///
    /// # Errors
    /// That worker is gone, or the task panicked.
    async fn on_worker<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        task: impl FnOnce(Arc<S>) -> F + Send + 'static,
    ) -> Result<T, Error> {
        let service = Arc::clone(&self.service);
        let done = async { self.workers.first()?.run(move || task(service)).await };
        let gone = || "a worker did not complete this\n  = the log says why".into();
        done.await.ok_or_else(gone)
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.borrow())
    }
}

/// The result of a task; its panic is an error like others.
fn flat<T>(ended: Result<Result<T, Error>, JoinError>) -> Result<T, Error> {
    ended.unwrap_or_else(|error| Err(error.into()))
}

#[cfg(test)]
mod tests;
