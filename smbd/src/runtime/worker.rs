//! Workers: one thread, pinned unless the configuration or a CPU quota says otherwise, one current-thread runtime, one
//! ring each.
//!
//! A worker runs the connections it is given and the jobs it is sent until it ends. It gives a connection to another
//! worker when it is asked to, because the other one has less to do. If the task of a connection panics, only this
//! connection is lost: its place is released and the panic is logged. A panic of the thread outside of its tasks, or in
//! the task that drives its ring, ends the process. The [`ConnectionHandler`] carries out a connection's protocol.

mod inside;

use std::{
    cell::RefCell,
    future::Future,
    io,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::sync::{mpsc, oneshot, watch};
use vfs::env::LocalTask;

use self::inside::Inside;
use crate::{config::FileIo, runtime::admission::Pass};

/// Connections and jobs on their way to one worker.
const MESSAGES_MAX: usize = 1_024;
/// So many of them wait for a worker whose thread hangs, or has very much to do.
const MESSAGES_BEHIND: usize = 16;
/// How often a thread that ends is checked.
const END_POLL: Duration = Duration::from_millis(1);
/// Stack of a worker; futures live on the heap.
const STACK_BYTES: usize = 4 << 20;

/// A connection that was admitted and given to a worker; `C` is its state if another worker has served it until now.
#[derive(Debug)]
pub struct Accepted<C> {
    /// Non-blocking, and registered with no runtime.
    pub stream: TcpStream,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The number of the listener that accepted it.
    pub listener: usize,
    /// Its place under the limits, which must be notified of a login.
    pub pass: Arc<Pass>,
    /// The state with which it left its last worker.
    pub carried: Option<C>,
}

/// The protocol of one worker. It is not `Send`, because each worker has its own.
pub trait ConnectionHandler: 'static {
    /// The state of a connection that moves to another worker.
    type Carried: Send + 'static;

    /// Serves a connection until it ends; `worker.stopping()` completes when the connection should end by itself. The
    /// socket is closed by dropping it. Once `leaves` is true, the connection is returned as soon as it can go on
    /// elsewhere.
    fn serve(
        &self,
        accepted: Accepted<Self::Carried>,
        worker: &WorkerHandle,
        leaves: &dyn Fn() -> bool,
    ) -> impl Future<Output = Option<Accepted<Self::Carried>>>;

    /// Cleans up after a connection that no worker can continue to serve.
    fn lost(&self, carried: Self::Carried) -> impl Future<Output = ()>;
}

/// The facts that a task may know about its worker.
#[derive(Debug, Clone)]
pub struct WorkerHandle {
    index: usize,
    stopping: watch::Receiver<bool>,
}

impl WorkerHandle {
    /// The number of this worker, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Completes when the server stops: work under way is finished, and no new work is accepted.
    pub async fn stopping(&self) {
        // An error means that the daemon is gone, which is a stop too.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }
}

/// Work for a worker that belongs to no connection.
pub type Job = Box<dyn FnOnce() -> LocalTask + Send>;

enum Message<C> {
    Connection(Accepted<C>),
    /// Another worker has less to do: see [`super::connection_loads::ConnectionLoads::relieve`].
    Relieve {
        listener: usize,
        surplus: f64,
        to: Arc<Inbox<C>>,
    },
    Job(Job),
    End,
}

/// The way to a worker.
#[derive(Debug)]
struct Inbox<C> {
    sender: mpsc::Sender<Message<C>>,
    /// Connections on the worker, including those on their way to it.
    load: Arc<AtomicUsize>,
}

impl<C> Inbox<C> {
    /// Gives a connection to the worker; a full queue returns it.
    fn try_give(&self, connection: Accepted<C>) -> Result<(), Accepted<C>> {
        let Ok(place) = self.sender.try_reserve() else {
            return Err(connection);
        };
        self.load.fetch_add(1, Ordering::Relaxed);
        place.send(Message::Connection(connection));
        Ok(())
    }
}

/// A worker seen from outside.
#[derive(Debug)]
pub struct Worker<C> {
    core: usize,
    file_io: &'static str,
    thread_id: i32,
    inbox: Arc<Inbox<C>>,
    drained: RefCell<Option<oneshot::Receiver<usize>>>,
    thread: RefCell<Option<thread::JoinHandle<()>>>,
}

/// The parameters of a worker.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Number, from 0.
    pub index: usize,
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

impl<C: Send + 'static> Worker<C> {
    /// Starts the thread. `make` runs on it, within its runtime, and returns the handler of connections.
    ///
    /// # Errors
    /// When the thread, the runtime or the handler cannot be made.
    pub fn start<H: ConnectionHandler<Carried = C>>(
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
            inbox: Arc::new(Inbox { sender, load }),
            drained: RefCell::new(Some(drained)),
            thread: RefCell::new(Some(thread)),
        })
    }

    /// The core of the worker, to which it is pinned if the plan says so.
    #[must_use]
    pub fn core(&self) -> usize {
        self.core
    }

    /// The way in which it reads and writes files: `"io_uring"` or `"threads"`.
    #[must_use]
    pub fn file_io(&self) -> &'static str {
        self.file_io
    }

    /// The time that its thread has spent on a core, by the kernel's account; zero once it has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.schedule()[0]
    }

    /// The time for which its thread has had something to do, on a core or waiting for one; zero once it has ended.
    #[must_use]
    pub fn busy_time(&self) -> Duration {
        self.schedule().iter().sum()
    }

    /// The time that its thread has spent on a core, and that it has waited for one.
    fn schedule(&self) -> [Duration; 2] {
        // proc(5): schedstat begins with these two in nanoseconds.
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread_id));
        let text = text.unwrap_or_default();
        let mut nanos = text.split_ascii_whitespace().map(str::parse);
        let mut next = || Duration::from_nanos(nanos.next().and_then(Result::ok).unwrap_or(0));
        [next(), next()]
    }

    /// The number of its connections, including those that are being moved to it.
    #[must_use]
    pub fn load(&self) -> usize {
        self.inbox.load.load(Ordering::Relaxed)
    }

    /// Whether it has taken all that was given to it. One whose thread hangs has not, although it seems to have nothing
    /// to do.
    #[must_use]
    pub fn keeps_up(&self) -> bool {
        self.inbox.sender.capacity() == MESSAGES_MAX
    }

    /// Whether so much of what was given to it waits that new connections are better served elsewhere.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.inbox.sender.capacity() <= MESSAGES_MAX - MESSAGES_BEHIND
    }

    /// Gives a connection to the worker; waits while its queue is full. If the worker is gone, the connection closes.
    pub async fn give(&self, connection: Accepted<C>) {
        let (sender, load) = (&self.inbox.sender, &self.inbox.load);
        load.fetch_add(1, Ordering::Relaxed);
        if sender.send(Message::Connection(connection)).await.is_err() {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Asks the worker to give a connection of this listener away, because it had more to do than `other` in the last
    /// period. `surplus` is the difference as a part of what it had to do.
    pub fn relieve(&self, listener: usize, surplus: f64, other: &Self) {
        let to = Arc::clone(&other.inbox);
        let message = Message::Relieve {
            listener,
            surplus,
            to,
        };
        // A worker whose queue is full is asked again.
        let _ = self.inbox.sender.try_send(message);
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
        self.inbox.sender.send(Message::Job(job)).await.ok()?;
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
        let _ = self.inbox.sender.try_send(Message::End);
    }

    /// Ends the thread and waits for it, but no longer than `wait`: a thread that the kernel
    /// holds is left to the end of the process.
    pub async fn end(&self, wait: Duration) {
        let Some(thread) = self.thread.borrow_mut().take() else {
            return;
        };
        // A thread that panics ends the process.
        let ended = async {
            // Without a receiver the thread has ended already; if the queue is full, it is not reading it.
            let _ = self.inbox.sender.send(Message::End).await;
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

#[cfg(test)]
#[path = "worker/tests.rs"]
mod tests;
