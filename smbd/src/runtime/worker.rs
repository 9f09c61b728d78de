//! Workers: one thread, pinned unless the configuration says otherwise, one current-thread runtime, one ring each.
//!
//! A worker runs the connections it is given and the jobs it is sent until it ends. Connections never move between
//! workers. If the task of a connection panics, only this connection is lost: its place is released and the panic is
//! logged. A panic of the thread outside of its tasks, or in the task that drives its ring, ends the process. The
//! [`ConnectionHandler`] carries out a connection's protocol.

use std::{
    cell::RefCell,
    future::Future,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    net::TcpStream,
    runtime::{Builder, LocalOptions, LocalRuntime},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};
use vfs::env::LocalTask;

use crate::{
    config::FileIo,
    runtime::{admission::Pass, ring, vital::Vital},
};

/// Connections and jobs on their way to one worker.
const MESSAGES_MAX: usize = 1_024;
/// How often a thread that ends is checked.
const END_POLL: Duration = Duration::from_millis(1);
/// Stack of a worker; futures live on the heap.
const STACK_BYTES: usize = 4 << 20;

/// A connection that was admitted and given to a worker.
#[derive(Debug)]
pub struct Accepted {
    /// The socket, registered with this worker's runtime.
    pub stream: TcpStream,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// Its place under the limits, which must be notified of a login.
    pub pass: Pass,
}

/// The protocol of one worker. It is not `Send`, because each worker has its own.
pub trait ConnectionHandler: 'static {
    /// Serves a connection until it ends; `worker.stopping()` completes when the connection should end by itself. The
    /// socket is closed by dropping it.
    fn serve(&self, accepted: Accepted, worker: &WorkerHandle) -> impl Future<Output = ()>;
}

/// The facts that a task may know about its worker.
#[derive(Debug, Clone)]
pub struct WorkerHandle {
    index: usize,
    core: usize,
    stopping: watch::Receiver<bool>,
}

impl WorkerHandle {
    /// Number of this worker, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its core, to which it is pinned unless the configuration says otherwise.
    #[must_use]
    pub fn core(&self) -> usize {
        self.core
    }

    /// Completes when the server stops: work under way is finished, and no new work is accepted.
    pub async fn stopping(&self) {
        // An error means that the daemon is gone, which is a stop too.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }
}

/// Work for a worker that belongs to no connection.
pub type Job = Box<dyn FnOnce() -> LocalTask + Send>;

enum Message {
    Connection(std::net::TcpStream, SocketAddr, SocketAddr, Pass),
    Job(Job),
    End,
}

/// A worker seen from outside.
#[derive(Debug)]
pub struct Worker {
    core: usize,
    file_io: &'static str,
    thread_id: i32,
    load: Arc<AtomicUsize>,
    sender: mpsc::Sender<Message>,
    drained: RefCell<Option<oneshot::Receiver<usize>>>,
    thread: RefCell<Option<thread::JoinHandle<()>>>,
}

/// The parameters of a worker.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Number, from 0.
    pub index: usize,
    /// Its core.
    pub core: usize,
    /// Whether it is pinned there; otherwise the kernel chooses the core.
    pub pin: bool,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
    /// How long connections may then take to end.
    pub grace: Duration,
    /// How files are read and written.
    pub file_io: FileIo,
}

impl Worker {
    /// Starts the thread. `make` runs on it, within its runtime, and returns the handler of connections.
    ///
    /// # Errors
    /// When the thread, the runtime or the handler cannot be made.
    pub fn start<H: ConnectionHandler>(
        spec: Spec,
        make: impl FnOnce(&WorkerHandle) -> io::Result<H> + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let (ready_sender, ready) = std::sync::mpsc::channel();
        let (drained_sender, drained) = oneshot::channel();
        let load = Arc::new(AtomicUsize::new(0));
        let core = spec.core;
        let inside = Inside {
            load: Arc::clone(&load),
            messages,
            drained: drained_sender,
        };
        let thread = thread::Builder::new()
            .name(format!("worker-{}", spec.index))
            .stack_size(STACK_BYTES)
            .spawn(move || inside.run(spec, make, &ready_sender))?;
        // A thread that dies before it is ready drops the sender.
        let (file_io, thread_id) = ready
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("a worker died at its start")))?;
        Ok(Self {
            core,
            file_io,
            thread_id,
            load,
            sender,
            drained: RefCell::new(Some(drained)),
            thread: RefCell::new(Some(thread)),
        })
    }

    /// Its core, to which it is pinned unless the configuration says otherwise.
    #[must_use]
    pub fn core(&self) -> usize {
        self.core
    }

    /// How it reads and writes files: `"io_uring"` or `"threads"`.
    #[must_use]
    pub fn file_io(&self) -> &'static str {
        self.file_io
    }

    /// Time its thread has spent on a core, by the kernel's account; zero once it has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        // proc(5): schedstat begins with the nanoseconds spent on the CPU.
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread_id));
        let nanos = text.ok().and_then(|text| {
            let first = text.split_ascii_whitespace().next()?;
            first.parse().ok()
        });
        Duration::from_nanos(nanos.unwrap_or(0))
    }

    /// Connections on it, including those on their way to it.
    #[must_use]
    pub fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Gives a connection to the worker; waits while its queue is full. If the worker is gone, the connection closes.
    pub async fn give(
        &self,
        stream: std::net::TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        pass: Pass,
    ) {
        self.load.fetch_add(1, Ordering::Relaxed);
        if self
            .sender
            .send(Message::Connection(stream, peer, local, pass))
            .await
            .is_err()
        {
            self.load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Runs `job` on the worker and returns its result; `None` if the worker is gone or the job panicked.
    pub async fn run<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        job: impl FnOnce() -> F + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        let job: Job = Box::new(move || {
            Box::pin(async move {
                // Nobody may be waiting any more.
                let _ = sender.send(job().await);
            })
        });
        self.sender.send(Message::Job(job)).await.ok()?;
        answer.await.ok()
    }

    /// Waits until the worker has no connections left after a stop; returns the number that had to be closed.
    pub async fn drained(&self) -> usize {
        let drained = self.drained.borrow_mut().take();
        match drained {
            Some(drained) => drained.await.unwrap_or(0),
            None => 0,
        }
    }

    /// Asks the thread to end, so that [`Worker::end`] waits for several at a time.
    pub fn ask_to_end(&self) {
        // If the queue is full, `end` asks again.
        let _ = self.sender.try_send(Message::End);
    }

    /// Ends the thread and waits for it, but no longer than `wait`: a thread that the kernel
    /// holds is left to the end of the process.
    pub async fn end(&self, wait: Duration) {
        // Without a receiver the thread has ended already; if the queue is full, it is not reading it.
        let _ = tokio::time::timeout(wait, self.sender.send(Message::End)).await;
        let Some(thread) = self.thread.borrow_mut().take() else {
            return;
        };
        // A thread that panics ends the process.
        let ended = async {
            while !thread.is_finished() {
                tokio::time::sleep(END_POLL).await;
            }
        };
        if tokio::time::timeout(wait, ended).await.is_err() {
            tracing::error!(
                core = self.core,
                "a worker does not end: it is left to end with the process"
            );
        }
    }
}

/// The worker's own half.
struct Inside {
    load: Arc<AtomicUsize>,
    messages: mpsc::Receiver<Message>,
    drained: oneshot::Sender<usize>,
}

impl Inside {
    fn run<H: ConnectionHandler>(
        self,
        spec: Spec,
        make: impl FnOnce(&WorkerHandle) -> io::Result<H>,
        ready: &std::sync::mpsc::Sender<io::Result<(&'static str, i32)>>,
    ) {
        if spec.pin {
            pin(spec.core);
        }
        let (grace, file_io) = (spec.grace, spec.file_io);
        let handle = WorkerHandle {
            index: spec.index,
            core: spec.core,
            stopping: spec.stopping,
        };
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        runtime.block_on(async {
            // The ring first: the handler may use files.
            let made = ring::choose(file_io).and_then(|io| Ok((io, make(&handle)?)));
            match made {
                Ok((io, handler)) => {
                    let thread_id = rustix::thread::gettid().as_raw_nonzero().get();
                    if ready.send(Ok((io, thread_id))).is_ok() {
                        let _vital = Vital;
                        self.serve(Rc::new(handler), handle, grace).await;
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        ring::uninstall();
    }

    async fn serve<H: ConnectionHandler>(
        mut self,
        handler: Rc<H>,
        worker: WorkerHandle,
        grace: Duration,
    ) {
        let mut connections = JoinSet::new();
        let told_to_end = loop {
            tokio::select! {
                biased;
                () = worker.stopping() => break false,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    self.ended(ended);
                }
                message = self.messages.recv() => match message {
                    None | Some(Message::End) => break true,
                    Some(message) => self.take(message, &handler, &worker, &mut connections),
                },
            }
        };
        let late = tokio::time::sleep(grace);
        tokio::pin!(late);
        while !connections.is_empty() {
            tokio::select! {
                biased;
                Some(ended) = connections.join_next() => self.ended(ended),
                Some(message) = self.messages.recv() => self.only_jobs(message),
                () = &mut late => break,
            }
        }
        let cut_off = connections.len();
        connections.shutdown().await;
        self.load.store(0, Ordering::Relaxed);
        let (closed, _) = oneshot::channel();
        let _ = std::mem::replace(&mut self.drained, closed).send(cut_off);
        // The final sync arrives as a job; tasks without a connection continue until then.
        if told_to_end {
            return;
        }
        loop {
            match self.messages.recv().await {
                None | Some(Message::End) => return,
                Some(message) => self.only_jobs(message),
            }
        }
    }

    fn take<H: ConnectionHandler>(
        &self,
        message: Message,
        handler: &Rc<H>,
        worker: &WorkerHandle,
        connections: &mut JoinSet<()>,
    ) {
        match message {
            Message::Connection(stream, peer, local, pass) => match TcpStream::from_std(stream) {
                Ok(stream) => {
                    let accepted = Accepted {
                        stream,
                        peer,
                        local,
                        pass,
                    };
                    let (handler, worker) = (Rc::clone(handler), worker.clone());
                    connections.spawn_local(async move { handler.serve(accepted, &worker).await });
                }
                Err(error) => {
                    tracing::warn!(%peer, %error, "a new connection was closed before a worker could serve it");
                    self.load.fetch_sub(1, Ordering::Relaxed);
                }
            },
            Message::Job(job) => drop(tokio::task::spawn_local(job())),
            Message::End => {}
        }
    }

    /// Handles a message while the server stops: a connection that comes late is closed by being dropped.
    fn only_jobs(&self, message: Message) {
        match message {
            Message::Connection(..) => drop(self.load.fetch_sub(1, Ordering::Relaxed)),
            Message::Job(job) => drop(tokio::task::spawn_local(job())),
            Message::End => {}
        }
    }

    fn ended(&self, ended: Result<(), tokio::task::JoinError>) {
        self.load.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = ended {
            tracing::error!(%error, "a connection ended by a panic\n  = please report it with the lines above");
        }
    }
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        // Without pinning the worker is slower, but works.
        tracing::warn!(core, %error, "a worker is not kept on its core: it serves, but may be slower");
    }
}

/// A thread for blocking calls inherits the groups that its worker has at that moment, which may be a user's, and would
/// give them to the files that it makes in the state folder.
fn begin_as_service() {
    if let Err(errno) = vfs::begin_thread() {
        tracing::error!(
            errno = errno.0,
            "a thread could not become the service: files that it makes may belong to others"
        );
    }
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .on_thread_start(begin_as_service)
        .on_thread_park(ring::on_park)
        .build_local(LocalOptions::default())
}

#[cfg(test)]
#[path = "worker/tests.rs"]
mod tests;
