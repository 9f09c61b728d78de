//! The common parts of the benches: a server over memory, a client beside it, and a clock around the server's part
//! of one request.
//!
//! The clock runs from the moment the request's bytes are there until the reply's bytes are: framing, decryption or
//! signature check, credits, decode, handler, back end, durability gate, encode, signature or encryption. It
//! excludes the client's own work, system calls, sockets and threads. The executor is the simulator's; it costs
//! well under a microsecond.

use std::time::{Duration, Instant};

use bytes::Bytes;
use smb_client::{CreateArgs, Options, Reply, Request};
use smb_sim::{MemoryOptions, Sim, SimClient, SimServer, memory_disk};
use smb_wire::{ids::FileId, msg::Dialect};
use vfs::{Env, sim::Profile};

/// A server in memory and one client with a session and a tree.
pub struct Pair {
    sim: Sim,
    client: SimClient,
    _server: SimServer,
}

impl Pair {
    /// A pair whose client has these options (dialect 3.1.1).
    ///
    /// # Panics
    /// When they do not come together.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::with(options, MemoryOptions::default())
    }

    /// The same with a server made so, but that it demands no signatures and its disk keeps no
    /// record of what a cut would take.
    ///
    /// # Panics
    /// As [`Pair::new`].
    #[must_use]
    pub fn with(options: Options, memory: MemoryOptions) -> Self {
        let mut sim = Sim::new(1);
        let memory = MemoryOptions {
            signing_required: false,
            profile: Profile::Untracked,
            ..memory
        };
        let env: std::sync::Arc<dyn Env> = sim.env();
        let disk = memory_disk(&env, 1, &memory);
        let server = SimServer::plain(&mut sim, disk, &memory).unwrap();
        let options = Options {
            dialects: vec![Dialect::SMB_3_1_1],
            ..options
        };
        let client = sim
            .run(SimClient::enter(&server, options))
            .unwrap()
            .unwrap();
        Self {
            sim,
            client,
            _server: server,
        }
    }

    /// One request: its reply, and how long the server took.
    ///
    /// # Panics
    /// When there is no reply, or one that is not of success.
    pub fn timed(&mut self, request: Request) -> (Reply, Duration) {
        self.metered(request, |step| {
            let start = Instant::now();
            step();
            start.elapsed()
        })
    }

    /// One request: its reply, and what `meter` says of the server's part, which it runs.
    ///
    /// # Panics
    /// As [`Pair::timed`].
    pub fn metered<T>(
        &mut self,
        request: Request,
        meter: impl FnOnce(&mut dyn FnMut()) -> T,
    ) -> (Reply, T) {
        let (id, frame) = self.client.frame(request).unwrap();
        let (segments, spent) = self.serve(frame, meter);
        for segment in segments {
            self.client.feed(&segment).unwrap();
        }
        let reply = self.client.take(id).expect("the server answers at once");
        (reply.ok().unwrap(), spent)
    }

    /// The next frame of the client's machine and what the server says to it, as far as the
    /// machine; metered as in [`Pair::metered`].
    ///
    /// # Panics
    /// When there is no frame, or the answer is malformed.
    pub fn exchange<T>(&mut self, meter: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
        let mut frame = self.client.core().next_frame().unwrap();
        frame.head.unsplit(frame.body);
        let (segments, spent) = self.serve(frame.head.freeze(), meter);
        for segment in segments {
            self.client.core().feed(&segment).unwrap();
        }
        spent
    }

    /// The client.
    pub fn client(&mut self) -> &mut SimClient {
        &mut self.client
    }

    fn serve<T>(
        &mut self,
        frame: Bytes,
        meter: impl FnOnce(&mut dyn FnMut()) -> T,
    ) -> (Vec<Bytes>, T) {
        let (end, sim) = (self.client.end(), &mut self.sim);
        // None of its growing is metered.
        let mut segments = Vec::with_capacity(64);
        let mut frame = Some(frame);
        let spent = meter(&mut || {
            if let Some(frame) = frame.take() {
                end.send(frame).unwrap();
            }
            sim.settle();
            while let Some(segment) = end.take() {
                segments.push(segment);
            }
        });
        (segments, spent)
    }

    /// Opens or creates a file.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn create(&mut self, args: &CreateArgs) -> FileId {
        self.sim.run(self.client.create(args)).unwrap().unwrap()
    }

    /// Writes all of `data` at the start of a file.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn write(&mut self, file: FileId, data: &[u8]) {
        let written = self.sim.run(self.client.write_at(file, 0, data)).unwrap();
        assert_eq!(written.unwrap() as usize, data.len());
    }
}
