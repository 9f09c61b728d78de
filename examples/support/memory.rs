//! A share in memory over TCP: the protocol core, a simulated disk, tokio's clock and sockets.
//!
//! This is how to embed the server: an [`vfs::Env`] for time and tasks, a file system, and for
//! each connection one call of [`smb_server::serve`] on the thread that owns the socket.

use std::{io, net::SocketAddr, sync::Arc, thread};

use smb_server::Server;
use smb_sim::{MemoryOptions, MemoryVfs, memory_disk, memory_server};
use smbd::runtime::{env::TokioEnv, transport};
use tokio::net::TcpListener;
use vfs::{Env, sim::Profile};

pub use smb_sim::{PASSWORD, SHARE, USER};

/// A share in memory; it is served until the process ends.
#[derive(Debug)]
pub struct Share {
    address: SocketAddr,
}

impl Share {
    /// Serves at `address` (port 0: any free one) on a thread of its own.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(tokio::runtime::LocalOptions::default())
        };
        thread::Builder::new()
            .name("memory-share".to_owned())
            .spawn(move || {
                let served = runtime().and_then(|runtime| runtime.block_on(serve(listener)));
                if let Err(error) = served {
                    eprintln!("the memory share ended: {error}");
                }
            })?;
        Ok(Self { address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let env: Arc<dyn Env> = Arc::new(TokioEnv::new());
    let options = MemoryOptions {
        profile: Profile::Untracked,
        ..MemoryOptions::default()
    };
    let disk = memory_disk(&env, 0, &options);
    let server: Arc<Server<MemoryVfs>> = memory_server(env, disk, &options)
        .await
        .map_err(|error| io::Error::other(error.to_string()))?;
    loop {
        let (stream, peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (mut receiver, transmitter) = transport::split(stream);
        let server = Arc::clone(&server);
        tokio::task::spawn_local(async move {
            let served = smb_server::serve(
                server,
                smb_server::Client::New(peer),
                &mut receiver,
                transmitter,
                Box::new(|| Box::new(())),
                std::future::pending(),
                || false,
            );
            served.await;
        });
    }
}
