//! The connected objects that a reload ends, and those that `holdfast close` closes.

use std::sync::Arc;

use smb_server::{AccessRules, Ended, Target, config::HostRules};

use super::Holdfast;
use crate::{
    Error,
    answers::{ClosedObjects, ClosedOne, EndedByReload, EndedNow},
    config::Config,
    control::protocol::Closing,
};

impl Holdfast {
    /// Called when the rules of `config` are in force: objects that they no longer allow end, at once or after the
    /// grace period. Returns what ended, for the caller of the reload. Must be called on a worker.
    pub(super) async fn revoke(self: &Arc<Self>, config: &Config) -> Option<EndedByReload> {
        let rules = AccessRules::of(&self.server);
        let hosts = config.server.hosts.clone();
        let grace = config.server.revocation_grace;
        if grace.is_zero() {
            return self.enforce(&rules, &hosts).await.map(EndedByReload::Now);
        }
        let me = Arc::clone(self);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(grace).await;
            me.enforce(&rules, &hosts).await;
        });
        let later = format!("what is not allowed any more, in {grace:?}");
        Some(EndedByReload::Later(later))
    }

    /// Ends the objects that are allowed neither by these rules nor by those now in force.
    async fn enforce(
        &self,
        rules: &AccessRules<super::HostVfs>,
        hosts: &HostRules,
    ) -> Option<EndedNow> {
        let now = self.config().server.hosts.clone();
        let refused = |peer| !hosts.admits(peer) && !now.admits(peer);
        let connections = self.server.disconnect(refused);
        let ended = self.server.revoke(rules).await;
        if ended.is_empty() && connections == 0 {
            return None;
        }
        tracing::info!(
            connections,
            sessions = ended.sessions,
            tree_connects = ended.trees,
            opens = ended.opens,
            "ended: the configuration and the users do not allow them any more"
        );
        for one in &ended.named {
            let (kind, id, user, share) = (one.kind, one.id, &one.user, &one.share);
            tracing::info!(kind, id, user, share, "ended");
        }
        Some(EndedNow {
            closed: closed(ended),
            connections,
        })
    }

    /// Closes the objects that an administrator names. Must be called on a worker.
    pub(super) async fn close_what(&self, what: Closing) -> Result<ClosedObjects, Error> {
        let target = match what {
            Closing::Session(id) => Target::Session(id),
            Closing::Open(id) => Target::Open(id),
            Closing::User(name) => Target::User(name),
            Closing::Share(name) => Target::Share(name),
        };
        let ended = self.server.end(&target).await;
        if ended.is_empty() {
            self.is_known(&target)?;
        }
        Ok(closed(ended))
    }

    /// Checks that the user or share exists, although nothing of it is open.
    fn is_known(&self, target: &Target) -> Result<(), Error> {
        let server = &self.server;
        let what = match target {
            Target::User(name) if name.eq_ignore_ascii_case("guest") => return Ok(()),
            Target::User(name) if server.users().find(name).is_some() => return Ok(()),
            Target::Share(name) if server.shares().find(name).is_some() => return Ok(()),
            Target::Session(id) => format!("session {id}"),
            Target::Open(id) => format!("open {id}"),
            Target::User(name) => format!("user `{name}`, and nothing of that name is open"),
            Target::Share(name) => format!("share `{name}`, and nothing of that name is open"),
        };
        fail!("there is no {what}\n  = `holdfast status` lists what is open")
    }
}

fn closed(ended: Ended) -> ClosedObjects {
    let closed = ended.named.into_iter().map(|one| ClosedOne {
        kind: one.kind.to_owned(),
        id: one.id,
        user: one.user,
        share: one.share,
        path: one.path,
    });
    ClosedObjects {
        sessions: ended.sessions,
        tree_connects: ended.trees,
        opens: ended.opens,
        closed: closed.collect(),
    }
}
