//! The connections of one worker: each is served by the protocol, and given back when it is to leave.

use std::sync::Arc;

use smb_server::{Carried, Client};

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
        let (mut receiver, transmitter) = transport::split(accepted.stream);
        let pass = accepted.pass;
        let known = Arc::clone(&pass);
        let peer = accepted.peer;
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
        let Some(stream) = transport::join(receiver, transmitter) else {
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
