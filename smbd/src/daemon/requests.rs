//! The requests of the control socket, each with the part of the front or of the service that answers it.
//!
//! Answers are types; they become JSON here, on their way to the socket or the log. Each `reload`, `close`,
//! `clear-latch` and `policy set` is logged with its caller, whether or not it succeeded.

use serde::Serialize;
use serde_json::Value;

use super::Front;
use crate::{
    Error,
    answers::{ClearedLatches, ClosedObjects, PolicyChange, Reloaded},
    config,
    control::{
        Answer, Caller, Control,
        protocol::{Closing, Request},
    },
    service::{PolicySetting, Service},
    status::changes,
};

impl<S: Service> Control for Front<S> {
    fn answer(&self, request: Request, caller: Caller) -> Answer<'_> {
        Box::pin(async move {
            match request {
                Request::Status {} => to_value(&self.status()),
                Request::Reload {} => to_value(&self.reload_for(caller).await?),
                Request::ClearLatch { share } => to_value(&self.clear_latch(share, caller).await?),
                Request::Close { what } => to_value(&self.close_named(what, caller).await?),
                Request::Explain { question } => to_value(&self.explain(question).await?),
                Request::Policy {
                    share, set: None, ..
                } => to_value(&self.show_policies(share.as_deref())?),
                Request::Policy {
                    share,
                    set: Some(policy),
                    accept_loss,
                    without_rules,
                } => {
                    let consents = (accept_loss, without_rules);
                    let set = self.set_policy_for(share, &policy, consents, caller);
                    to_value(&set.await?)
                }
            }
        })
    }
}

/// An answer on its way to the socket or the log.
pub(super) fn to_value(answer: &impl Serialize) -> Result<Value, Error> {
    Ok(serde_json::to_value(answer)?)
}

/// The result of a reload in words, for the log.
pub(super) fn in_a_line(done: &Reloaded) -> String {
    let (text, _) = changes::reloaded_in_words(done);
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    lines.join("; ")
}

/// The caller in words; finding his name may wait for a disk.
async fn described(caller: Caller) -> String {
    let describing = tokio::task::spawn_blocking(move || caller.describe());
    describing.await.unwrap_or_default()
}

impl<S: Service> Front<S> {
    /// `holdfast reload`.
    async fn reload_for(&self, caller: Caller) -> Result<Reloaded, Error> {
        let reloaded = self.reload().await;
        let who = described(caller).await;
        match &reloaded {
            Ok(done) => {
                let done = in_a_line(done);
                tracing::info!(who, done, "reloaded by control socket");
            }
            Err(error) => tracing::error!(who, %error, "not reloaded by control socket"),
        }
        reloaded
    }

    /// `holdfast close`.
    async fn close_named(&self, what: Closing, caller: Caller) -> Result<ClosedObjects, Error> {
        let named = what.clone();
        let closing = self.on_worker(move |service| service.close_named(named));
        let closed = closing.await.flatten();
        let who = described(caller).await;
        match closed.is_ok() {
            true => tracing::info!(?what, who, "closed by control socket"),
            false => tracing::warn!(?what, who, "not closed by control socket"),
        }
        closed
    }

    /// `holdfast policy set`.
    async fn set_policy_for(
        &self,
        share: Option<String>,
        policy: &str,
        (accept_loss, without_rules): (bool, bool),
        caller: Caller,
    ) -> Result<Vec<PolicyChange>, Error> {
        // This may take a while, in which a reload can withdraw the consent that is looked for next.
        let who = described(caller).await;
        let set = match config::policy::parse(policy) {
            Err(error) => fail!("{error}\n  = {}", error.way_out),
            Ok(policy) => {
                let setting = PolicySetting {
                    share: share.clone(),
                    policy,
                    accept_loss,
                    without_rules,
                    who: who.clone(),
                };
                self.set_policy(setting).await
            }
        };
        let outcome = match set.is_ok() {
            true => "policy set by control socket",
            false => "policy not set by control socket",
        };
        tracing::warn!(share, policy, who, accept_loss, without_rules, "{outcome}");
        set
    }

    /// `holdfast policy clear-latch`.
    async fn clear_latch(
        &self,
        share: Option<String>,
        caller: Caller,
    ) -> Result<Vec<ClearedLatches>, Error> {
        // The losses of a start are accepted first, also those of a share that cannot be served since.
        let accepted = self.accept_loss(share.as_deref()).await;
        let wanted = share.clone();
        let clearing = self.on_worker(move |service| service.clear_latch(wanted));
        let late = share.as_ref().and_then(|name| self.late_share(name));
        let cleared = match late {
            // Its latches wait in the store until it is served.
            Some(share) => Ok(vec![ClearedLatches {
                share,
                cleared_inodes: 0,
            }]),
            None => clearing.await.flatten(),
        };
        let cleared = cleared.and_then(|cleared| accepted.map(|()| cleared));
        let who = described(caller).await;
        match cleared.is_ok() {
            true => tracing::warn!(share, who, "latches cleared by control socket"),
            false => tracing::warn!(share, who, "latches not cleared by control socket"),
        }
        cleared
    }
}
