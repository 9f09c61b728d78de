//! Gives new connections to workers, and moves connections between workers.

use std::{io, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use super::{Carried, Front};
use crate::{
    runtime::{
        admission::Pass,
        connection_loads::PERIOD,
        listener::{AcceptErrors, has_lost_interface, prepare},
        placement,
        worker::{Accepted, Worker},
    },
    service::Service,
};

/// How soon after the last connection of a listener its interface is checked.
const INTERFACE_AGAIN: Duration = Duration::from_secs(30);

impl<S: Service> Front<S> {
    /// Accepts connections of a listener until the end.
    pub(super) async fn accept(self: Rc<Self>, index: usize, socket: tokio::net::TcpListener) {
        let mut errors = AcceptErrors::default();
        let mut is_lost = false;
        loop {
            let Ok(accepted) = tokio::time::timeout(INTERFACE_AGAIN, socket.accept()).await else {
                if !is_lost && has_lost_interface(&socket) {
                    is_lost = true;
                    let address = socket.local_addr().ok();
                    tracing::error!(
                        ?address,
                        "the interface of a [[listener]] was removed: no connection arrives there any more, even if \
                         there is one of the same name again\n  = restart the server"
                    );
                }
                continue;
            };
            match accepted {
                Ok((stream, peer)) => {
                    let pass = match self.admission.admit(peer.ip()) {
                        Ok(pass) => pass,
                        Err(refusal) => {
                            // Unknown clients must not fill the log; the count is in status and metrics.
                            tracing::debug!(%peer, %refusal, "connection refused");
                            continue;
                        }
                    };
                    if let Err(error) = self.hand_over(index, stream, peer, pass).await {
                        tracing::debug!(%peer, %error, "connection lost at accept");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => errors.take("connections", error).await,
            }
        }
    }

    async fn hand_over(
        &self,
        listener: usize,
        stream: tokio::net::TcpStream,
        peer: SocketAddr,
        pass: Pass,
    ) -> io::Result<()> {
        let stream = stream.into_std()?;
        prepare(&stream)?;
        let members = self.members.get(listener).map_or(&[][..], Vec::as_slice);
        // A worker whose thread hangs would get one new connection after the other, because none of its own ends.
        let load = |worker: usize| {
            let worker = self.workers.get(worker);
            let load = worker.map(|worker| (worker.is_behind(), worker.load()));
            load.unwrap_or((true, usize::MAX))
        };
        // The core on which the connection's packets arrive.
        let incoming = rustix::net::sockopt::socket_incoming_cpu(&stream).ok();
        let near = |worker: usize| {
            let core = self.workers.get(worker).map(Worker::core);
            core.zip(incoming)
                .is_some_and(|(core, incoming)| u32::try_from(core) == Ok(incoming))
        };
        let worker = placement::least_loaded(members, load, near);
        if let Some(worker) = worker.and_then(|at| self.workers.get(at)) {
            let accepted = Accepted {
                stream,
                peer,
                listener,
                pass: Arc::new(pass),
                carried: None,
            };
            worker.give(accepted).await;
        }
        Ok(())
    }

    /// Moves connections from workers that have more to do than others to those, until the end. Nobody knows at a
    /// connection's start how busy it will be.
    pub(super) async fn balance(self: Rc<Self>) {
        if self.workers.len() < 2 {
            return;
        }
        let busy = |worker: &Worker<Carried<S>>| worker.busy_time();
        let mut last: Option<Vec<Duration>> = None;
        for turn in (0..usize::MAX).cycle() {
            tokio::time::sleep(PERIOD).await;
            if self.workers.iter().map(Worker::load).sum::<usize>() < 2 {
                last = None;
                continue;
            }
            let now: Vec<_> = self.workers.iter().map(busy).collect();
            if let Some(last) = last.replace(now.clone()) {
                let spent = now.iter().zip(&last);
                let spent = spent.map(|(now, last)| now.saturating_sub(*last).as_secs_f64());
                let parts: Vec<_> = spent.map(|spent| spent / PERIOD.as_secs_f64()).collect();
                self.relieve(&parts, turn);
            }
        }
    }

    /// Has a busy worker of each listener give a connection to the one that has least to do, if that is clearly less.
    /// `busy` has the part of the last period in which each worker had something to do.
    fn relieve(&self, busy: &[f64], turn: usize) {
        // A worker whose thread hangs only seems to have nothing to do.
        let keeps_up = |at: usize| self.workers.get(at).is_some_and(Worker::keeps_up);
        let busy = |at: usize| match busy.get(at) {
            Some(busy) if keeps_up(at) => *busy,
            _ => 1.0,
        };
        for (listener, relief) in placement::reliefs(&self.members, busy, turn) {
            let to = self.workers.get(relief.to);
            if let Some((from, to)) = self.workers.get(relief.from).zip(to)
                && from.keeps_up()
            {
                from.relieve(listener, relief.surplus, to);
            }
        }
    }
}
