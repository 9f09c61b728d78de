//! A client that replays a load file line by line, in a folder of its own.
//!
//! The file's beginning fills the folder, which is done before the step begins; what follows is the mix. A client that
//! comes to the end begins again. The server has to answer each line as the recorded one did, and a READ with what the
//! client wrote there, else the step is an error.

use std::{sync::Arc, time::Instant};

use super::{client::Client, script::Script};
use crate::{Home, LoadError, Sample, Worker, error::refused, home::open_directory};

/// One client of a replay.
pub struct Replayer {
    client: Client,
    script: Arc<Script>,
    next: usize,
}

impl Replayer {
    /// Client `number`, with its folder filled, where the mix begins.
    pub fn prepare(home: &Home, number: usize, script: Arc<Script>) -> Result<Self, LoadError> {
        let above = home.path(&format!("replay-{number:03}"));
        let opened = open_directory(&home.tree, &above).map_err(refused("prepare"))?;
        let folder = format!("{above}\\client");
        let (fill, longest) = (script.fill(), script.longest());
        let mut this = Self {
            client: Client::new(folder, opened, Arc::clone(&script), longest),
            script,
            next: 0,
        };
        while this.next < fill {
            this.turn(&mut |_| {})?;
        }
        Ok(this)
    }
}

impl Worker for Replayer {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let Some((operation, wanted)) = self.script.steps.get(self.next).copied() else {
            self.next = 0;
            return Ok(());
        };
        self.next += 1;
        let Some(operation) = operation else {
            return self.client.empty().map_err(refused("prepare"));
        };
        let begun = Instant::now();
        self.client.perform_as_recorded(&operation, wanted)?;
        let kind = operation.kind().name();
        report(Sample::new(kind, begun, operation.moved()));
        Ok(())
    }
}
