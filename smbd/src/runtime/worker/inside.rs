//! The worker's own half: its thread, its runtime, and the connections that it serves.

use std::{
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::{Builder, LocalOptions, LocalRuntime},
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{Accepted, ConnectionHandler, Inbox, Message, Spec, WorkerHandle};
use crate::runtime::{abort::AbortOnPanic, connection_loads::ConnectionLoads, ring};

/// The worker's own half.
pub(super) struct Inside<C> {
    pub(super) load: Arc<AtomicUsize>,
    pub(super) messages: mpsc::Receiver<Message<C>>,
    /// Gets the number of connections that had to be closed, once none are left after a stop.
    pub(super) drained: oneshot::Sender<usize>,
}

impl<C: Send + 'static> Inside<C> {
    /// Runs the worker on the calling thread until it ends.
    pub(super) fn run<H: ConnectionHandler<Carried = C>>(
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
                        let _abort = AbortOnPanic;
                        let serving = Serving {
                            handler: Rc::new(handler),
                            worker: handle,
                            loads: Rc::default(),
                            connections: JoinSet::new(),
                        };
                        self.serve(serving, grace).await;
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        ring::uninstall();
    }

    async fn serve<H: ConnectionHandler<Carried = C>>(
        mut self,
        mut serving: Serving<H>,
        grace: Duration,
    ) {
        let mut told_to_end = loop {
            tokio::select! {
                biased;
                () = serving.worker.stopping() => break false,
                Some(ended) = serving.connections.join_next(), if !serving.connections.is_empty() => {
                    self.ended(ended, &mut serving);
                }
                message = self.messages.recv() => match message {
                    None | Some(Message::End) => break true,
                    Some(message) => self.take(message, &mut serving),
                },
            }
        };
        let late = tokio::time::sleep(grace);
        tokio::pin!(late);
        loop {
            // A connection may have come just before the stop.
            while let Ok(message) = self.messages.try_recv() {
                told_to_end |= self.only_jobs(message, &mut serving);
            }
            if serving.connections.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                Some(ended) = serving.connections.join_next() => self.ended(ended, &mut serving),
                Some(message) = self.messages.recv() => {
                    told_to_end |= self.only_jobs(message, &mut serving);
                }
                () = &mut late => break,
            }
        }
        let cut_off = serving.connections.len();
        serving.connections.shutdown().await;
        self.load.store(0, Ordering::Relaxed);
        let (closed, _) = oneshot::channel();
        let _ = std::mem::replace(&mut self.drained, closed).send(cut_off);
        // The final sync arrives as a job; tasks without a connection continue until then.
        while !told_to_end && let Some(message) = self.messages.recv().await {
            told_to_end = self.only_jobs(message, &mut serving);
        }
    }

    fn take<H: ConnectionHandler<Carried = C>>(
        &self,
        message: Message<C>,
        serving: &mut Serving<H>,
    ) {
        match message {
            Message::Connection(connection) => serving.begin(connection),
            Message::Relieve {
                listener,
                surplus,
                to,
            } => serving.loads.relieve(listener, surplus, to),
            Message::Job(job) => drop(tokio::task::spawn_local(job())),
            Message::End => {}
        }
    }

    /// Handles a message while the server stops: a connection that comes late is closed. Returns whether the worker is
    /// to end.
    fn only_jobs<H: ConnectionHandler<Carried = C>>(
        &self,
        message: Message<C>,
        serving: &mut Serving<H>,
    ) -> bool {
        match message {
            Message::Connection(connection) => serving.lost(connection.carried),
            Message::Job(job) => drop(tokio::task::spawn_local(job())),
            Message::Relieve { .. } => {}
            Message::End => return true,
        }
        false
    }

    /// Ends the bookkeeping of a connection that has ended here, and sends one that leaves on its way.
    fn ended<H: ConnectionHandler<Carried = C>>(
        &self,
        ended: Result<Option<Departed<C>>, tokio::task::JoinError>,
        serving: &mut Serving<H>,
    ) {
        match ended {
            Ok(None) => {}
            Ok(Some((connection, to))) => {
                tracing::debug!(peer = %connection.peer, "a connection moves to another worker");
                // While it left, it may have been asked to stay. If the server stops, it ends here: the other worker
                // may have counted its last connection already. While its mark is borrowed, no stop begins.
                let stops = serving.worker.stopping.borrow();
                let given = match to.filter(|_| !*stops) {
                    Some(to) => to.try_give(connection),
                    None => Err(connection),
                };
                drop(stops);
                if let Err(connection) = given {
                    return serving.begin(connection);
                }
            }
            Err(error) => {
                tracing::error!(%error, "a connection ended by a panic\n  = please report it with the lines above");
            }
        }
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that has left its worker, and where it goes; `None` if it comes back.
type Departed<C> = (Accepted<C>, Option<Arc<Inbox<C>>>);

/// The connections of a worker and their protocol.
struct Serving<H: ConnectionHandler> {
    handler: Rc<H>,
    worker: WorkerHandle,
    loads: Rc<ConnectionLoads<Arc<Inbox<H::Carried>>>>,
    connections: JoinSet<Option<Departed<H::Carried>>>,
}

impl<H: ConnectionHandler> Serving<H> {
    /// Serves a connection until it has ended or left.
    fn begin(&mut self, accepted: Accepted<H::Carried>) {
        let (handler, worker) = (Rc::clone(&self.handler), self.worker.clone());
        let (loads, load) = (Rc::clone(&self.loads), self.loads.take(accepted.listener));
        self.connections.spawn_local(async move {
            let leaves = || load.leaves() && !*worker.stopping.borrow();
            let served = handler.serve(accepted, &worker, &leaves);
            let left = loads.run(&load, served).await?;
            Some((left, load.destination()))
        });
    }

    /// Cleans up after a connection that is closed without being served, if it was served before. It counts as one of
    /// the worker until then.
    fn lost(&mut self, carried: Option<H::Carried>) {
        let handler = Rc::clone(&self.handler);
        self.connections.spawn_local(async move {
            if let Some(carried) = carried {
                handler.lost(carried).await;
            }
            None
        });
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
