//! A client of the mix as a worker of a timed step.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{caching::CachingClient, client::Client, mix::Mix};
use crate::{LoadError, Sample, Worker};

/// How much a client of the mix caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing: every operation is a request to the server.
    #[default]
    Plain,
    /// As the redirector of Windows does: leases, local reads, writes that are held back, delayed closes.
    Caching,
}

enum MixClient {
    Plain(Box<Client>),
    Caching(Box<CachingClient>),
}

/// One client with its place in the mix.
pub struct MixWorker {
    client: MixClient,
    number: usize,
    mix: Arc<Mutex<Mix>>,
}

impl MixWorker {
    /// The client that is dealt the draws of `number`; it has just prepared its folder.
    pub fn new(
        client: Client,
        class: Class,
        number: usize,
        mix: Arc<Mutex<Mix>>,
    ) -> Result<Self, LoadError> {
        let client = match class {
            Class::Plain => MixClient::Plain(Box::new(client)),
            Class::Caching => MixClient::Caching(Box::new(CachingClient::new(client)?)),
        };
        Ok(Self {
            client,
            number,
            mix,
        })
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
            match &mut self.client {
                MixClient::Plain(client) => client.perform(&operation)?,
                MixClient::Caching(client) => client.perform(&operation)?,
            }
            report(Sample::new(
                operation.kind().name(),
                begun,
                operation.moved(),
            ));
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), LoadError> {
        match &mut self.client {
            MixClient::Plain(_) => Ok(()),
            MixClient::Caching(client) => client.settle(),
        }
    }

    fn sent(&self) -> Option<u64> {
        Some(match &self.client {
            MixClient::Plain(client) => client.sent(),
            MixClient::Caching(client) => client.sent(),
        })
    }
}
