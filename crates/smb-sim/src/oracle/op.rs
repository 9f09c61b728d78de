//! One request of a history, with its answer and the policies that decided it.

use std::time::Duration;

use durability::{Policy, PolicyKind};

use super::{
    check::Terms,
    history::{Answer, Request},
};

#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) request: Request,
    pub(super) issued: (u64, Duration),
    pub(super) answered: Option<(u64, Duration, Answer)>,
    /// No laxer, no stricter than these; `None`: the terms' policy.
    pub(super) between: Option<(Policy, Policy)>,
    /// The time within which each share makes it stable, where its object is open through that share under a bound.
    pub(super) within: [Option<Duration>; 2],
    /// Whether it certainly covers times if it is a FLUSH; `None`: by the terms.
    pub(super) times: Option<bool>,
}

impl Op {
    /// Whether the other share than its own makes it stable within a bound.
    pub(super) fn is_charged_beside(&self) -> bool {
        self.within[usize::from(!self.request.second)].is_some()
    }

    /// The strictest policy that may have decided it.
    pub(super) fn at_most(&self, terms: &Terms) -> PolicyKind {
        match (self.between, terms.mixed) {
            (Some((_, high)), _) => high.kind(),
            (None, true) => PolicyKind::StrictSync,
            (None, false) => terms.policy.kind(),
        }
    }

    /// The laxest.
    pub(super) fn at_least(&self, terms: &Terms) -> PolicyKind {
        match (self.between, terms.mixed) {
            (Some((low, _)), _) => low.kind(),
            (None, true) => PolicyKind::TreatHostAsStableStorage,
            (None, false) => terms.policy.kind(),
        }
    }
}
