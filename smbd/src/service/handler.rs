//! The connections of one worker: each is served by the protocol, and given back when it is to leave.

use std::sync::Arc;

use smb_server::{Carried, Client};
use tokio::net::TcpStream;

use super::Holdfast;
use crate::{
    host_vfs::HostVfs,
    runtime::{
        transport,
        worker::{Accepted, ConnectionHandler, WorkerHandle},
    },
};

/// One worker's share of the protocol.
pub struct Handler {
    pub(super) holdfast: Arc<Holdfast>,
}

impl ConnectionHandler for Handler {
    type Carried = Box<Carried<HostVfs>>;

    async fn serve(
        &self,
        accepted: Accepted<Self::Carried>,
        worker: &WorkerHandle,
        leaves: &dyn Fn() -> bool,
    ) -> Option<Accepted<Self::Carried>> {
        let peer = accepted.peer;
        let stream = match TcpStream::from_std(accepted.stream) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%peer, %error, "a connection was closed before a worker could serve it");
                if let Some(carried) = accepted.carried {
                    self.lost(carried).await;
                }
                return None;
            }
        };
        let (mut receiver, transmitter) = transport::split(stream);
        let pass = accepted.pass;
        let known = Arc::clone(&pass);
        // The server stops, a newcomer needs the place of somebody who has not logged in, or a reload
        // between accept and here refuses the address: it closes the connections that the server
        // knows, at once or after its grace, and asking here comes after the server knows this one.
        // It has known a connection that has moved all the time.
        let has_moved = accepted.carried.is_some();
        let ending = async {
            if has_moved || self.holdfast.config().server.hosts.admits(peer.ip()) {
                tokio::select! {
                    biased;
                    () = worker.stopping() => {}
                    () = pass.displaced() => {}
                }
            }
        };
        let client = accepted.carried.map_or(Client::New(peer), Client::Carried);
        let serving = smb_server::serve(
            Arc::clone(&self.holdfast.server),
            client,
            &mut receiver,
            transmitter,
            Box::new(move || Box::new(known.authenticated())),
            ending,
            leaves,
        );
        let (carried, transmitter) = serving.await?;
        let stream = transport::join(receiver, transmitter);
        let Some(stream) = stream.and_then(|stream| stream.into_std().ok()) else {
            tracing::warn!(%peer, "a connection was closed on its way to another worker");
            self.lost(carried).await;
            return None;
        };
        Some(Accepted {
            stream,
            peer,
            listener: accepted.listener,
            pass,
            carried: Some(carried),
        })
    }

    async fn lost(&self, carried: Self::Carried) {
        smb_server::lost(&self.holdfast.server, carried).await;
    }
}
