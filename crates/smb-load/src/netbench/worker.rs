//! A client of the mix as a worker of a timed step.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use super::{client::Client, mix::Mix, operation::Operation};
use crate::{LoadError, Sample, Worker};

/// One client with its place in the mix.
pub struct MixWorker {
    client: Client,
    number: usize,
    mix: Arc<Mutex<Mix>>,
}

impl MixWorker {
    /// The client that is dealt the draws of `number`.
    #[must_use]
    pub fn new(client: Client, number: usize, mix: Arc<Mutex<Mix>>) -> Self {
        Self {
            client,
            number,
            mix,
        }
    }
}

impl Worker for MixWorker {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let draw = match self.mix.lock() {
            Ok(mut mix) => mix.next(self.number),
            Err(_) => return Err(LoadError::Panicked),
        };
        let draw = draw.ok_or(LoadError::NotOpen)?;
        for operation in std::iter::once(draw.first).chain(draw.second) {
            let begun = Instant::now();
            self.client.perform(&operation)?;
            let (read, written) = match operation {
                Operation::Read { .. } => (operation.bytes(), 0),
                Operation::Write { .. } => (0, operation.bytes()),
                _ => (0, 0),
            };
            report(Sample {
                kind: operation.kind().name(),
                begun,
                read,
                written,
            });
        }
        Ok(())
    }
}
