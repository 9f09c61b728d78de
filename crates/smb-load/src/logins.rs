//! ECHO, new connections, and further sessions on a connection that stays.

use std::time::Instant;

use smb_client::{Client, ClientError, Options, Tree};

use crate::{LoadError, Sample, Worker, error::refused, rig::server::Access, step::timed};

/// ECHO, over and over.
pub(crate) struct Echo(pub(crate) Tree);

impl Worker for Echo {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        timed(report, "echo", (0, 0), || self.0.client().echo())
    }
}

/// Logs in, connects to the share and logs off.
pub(crate) struct Logins {
    access: Access,
    /// The connection that stays; without one, each login has a new one, whose end belongs to it.
    tree: Option<Tree>,
}

impl Logins {
    pub(crate) fn new(access: Access, tree: Option<Tree>) -> Self {
        Self { access, tree }
    }

    fn login(&self, client: &Client) -> Result<(), ClientError> {
        let session = client.login(&self.access.user, &self.access.password, "")?;
        session.tree(&self.access.share)?;
        session.logoff()
    }
}

impl Worker for Logins {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let begun = Instant::now();
        let kind = match &self.tree {
            Some(tree) => {
                self.login(tree.client()).map_err(refused("session"))?;
                "session"
            }
            None => {
                let client = Client::connect(self.access.address(), Options::default());
                let done = client.and_then(|client| self.login(&client));
                done.map_err(refused("connection"))?;
                "connection"
            }
        };
        report(Sample::new(kind, begun, (0, 0)));
        Ok(())
    }
}
