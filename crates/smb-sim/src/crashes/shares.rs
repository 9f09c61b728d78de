//! The share that a client uses, and the step of an administrator, who sets the policy of one.

use std::rc::Rc;

use vfs::Env;

use super::{
    actor::{Actor, PATIENCE, race},
    ledger::Via,
    plan::Plan,
    step::Step,
    world::Lock,
};
use crate::server::{SECOND, SHARE};

impl Actor {
    /// The client, and the share through which it asks.
    pub(super) fn via(&self) -> Via {
        (self.number, self.second)
    }

    pub(super) async fn set_policy(&self, step: Step) {
        let world = Rc::clone(&self.world);
        let Some(_locked) = world.lock(&[Lock::Policy]).await else {
            return;
        };
        let shares = self.server.server.shares();
        let Some(share) = shares.find(if self.second { SECOND } else { SHARE }) else {
            return;
        };
        let policies = Plan::policies();
        let new = policies[usize::from(step.a()) % policies.len()];
        let old = world.ledger.borrow().policy(self.second);
        let number = (world.history()).switching(world.env.monotonic(), self.second);
        world.ledger.borrow_mut().change(self.second, new);
        let set = share.gate.set_policy(new, "simulator");
        let report = race(set, world.env.sleep(PATIENCE)).await;
        let tightened = old.tightens_to(&new) || !new.kind().is_lazy();
        if tightened && report.is_some_and(|report| report.failed == 0) {
            world.history().switched(number);
        }
    }
}
