//! The shares of a case: the one that a client uses, the folder of the second, and the steps of an administrator, who
//! sets the policy of a share, or removes it and brings it back.

use std::{future::Future, rc::Rc, sync::Arc, time::Duration};

use durability::{Policy, ShareDurability, StopReport};
use smb_server::{AccessRules, Share, Shares};
use vfs::{
    Env, Identity,
    disk::{Disk, DiskResult, OpenHow},
    sim::SimDisk,
};

use super::{
    actor::{Actor, PATIENCE, race},
    ledger::Via,
    plan::Plan,
    step::{Kind, Step},
    world::{DIRS, HOME, Lock},
};
use crate::server::{FOLDER, MemoryVfs, SECOND, SHARE};

/// Makes the folder of the second share on an empty disk, durably. Answers its inode number.
pub(super) async fn make_folder(disk: &SimDisk) -> DiskResult<u64> {
    let (who, root, name) = (Identity::Service, disk.root(), FOLDER.as_bytes());
    disk.make_dir(&who, &root, name, 0o777).await?;
    let how = OpenHow {
        path_only: true,
        ..OpenHow::default()
    };
    let folder = disk.open_at(&who, &root, name, how).await?;
    disk.sync_all();
    Ok(folder.ino())
}

impl Actor {
    /// The client, and the share through which it asks.
    pub(super) fn via(&self) -> Via {
        (self.number, self.second)
    }

    /// The directory slot over which the share in use lies.
    pub(super) fn root(&self) -> usize {
        match self.second && self.world.nested {
            true => HOME,
            false => 0,
        }
    }

    /// Whether the second share has all that a step concerns. One that lies over a folder of the first also has a depot
    /// of its own, with other streams.
    pub(super) fn reaches(&self, step: Step) -> bool {
        let beliefs = self.world.beliefs.borrow();
        let has = |dir: usize| !self.world.nested || beliefs.is_below(dir, HOME);
        let (slot, to) = (step.dir().max(1), usize::from(step.a()) % DIRS);
        let has_file = || {
            let mut places = beliefs
                .file(step.file())
                .into_iter()
                .flat_map(|file| &file.places);
            places.all(|(dir, _)| has(*dir))
        };
        match step.kind() {
            Kind::Create | Kind::FlushDir => has(step.dir()),
            Kind::MakeDir => has(to),
            Kind::MoveDir => has(slot) && has(to),
            Kind::RemoveDir => has(slot),
            Kind::Rename | Kind::Link => has_file() && has(step.dir()),
            Kind::WriteStream | Kind::FlushStream | Kind::RemoveStream | Kind::Supersede => {
                !self.world.nested
            }
            Kind::Host => !self.world.nested,
            Kind::FlushRoot | Kind::Policy | Kind::Reload => true,
            _ => has_file(),
        }
    }

    fn share(&self) -> Option<Arc<Share<MemoryVfs>>> {
        let name = if self.second { SECOND } else { SHARE };
        self.server.server.shares().find(name).map(Arc::clone)
    }

    pub(super) async fn set_policy(&self, step: Step) {
        let world = Rc::clone(&self.world);
        let Some(_locked) = world.lock(&[Lock::Policy]).await else {
            return;
        };
        let Some(share) = self.share() else { return };
        let policies = Plan::policies();
        let new = policies[usize::from(step.a()) % policies.len()];
        let set = share.gate.set_policy(new, "simulator");
        self.bring_in(new, set, self.tightens(new)).await;
    }

    pub(super) async fn reload(&self, step: Step) {
        let world = Rc::clone(&self.world);
        let Some(_locked) = world.lock(&[Lock::Policy]).await else {
            return;
        };
        let Some(share) = self.share() else { return };
        let policies = Plan::reloads();
        let new = policies[usize::from(step.a()) % policies.len()];
        if step.flag() {
            world.away.set(true);
            self.take_out(share, step, new).await;
            world.away.set(false);
            return;
        }
        let settings = ShareDurability {
            policy: new,
            ..share.gate.settings()
        };
        share.gate.set_options(settings);
        // The same policy once more is no news, and promises nothing.
        if world.ledger.borrow().policy(self.second) != new {
            let set = share.gate.set_policy(new, "simulator");
            self.bring_in(new, set, self.tightens(new)).await;
        }
    }

    /// A reload removes the share, which ends everything that clients have open through it. Another one brings it back
    /// under its name, with another policy: by then everything from before is stable, or it is reported.
    async fn take_out(&self, share: Arc<Share<MemoryVfs>>, step: Step, new: Policy) {
        let (world, server) = (&self.world, &self.server.server);
        world.ledger.borrow_mut().end(self.second);
        let settings = ShareDurability {
            policy: new,
            ..share.gate.settings()
        };
        let rules = share.gate.rules();
        let (id, vfs, config) = (share.id, Arc::clone(&share.vfs), share.config.clone());
        drop(share);
        let others = || {
            server
                .shares()
                .iter()
                .filter(|one| one.id != id)
                .cloned()
                .collect::<Vec<_>>()
        };
        server.set_shares(Shares::new(others()));
        server.revoke(&AccessRules::of(server)).await;
        let pause = Duration::from_micros(u64::from(step.b()) * 400);
        world.env.sleep(pause).await;
        let gate = server
            .durability
            .share(&config.name, Arc::clone(&vfs), settings);
        let back = Arc::clone(&gate);
        let terms = async {
            // A request that is still under way keeps the share as it was.
            if back.settings().policy != new {
                back.set_policy(new, "simulator").await;
            }
            if back.rules() != rules {
                back.set_rules(rules, "simulator").await;
            }
            back.sync().await
        };
        self.bring_in(new, terms, true).await;
        let back = Share {
            config,
            vfs,
            gate,
            id,
        };
        let all = others().into_iter().chain([Arc::new(back)]);
        server.set_shares(Shares::new(all));
    }

    /// Whether a policy in place of the share's own promises that everything from before is stable once it is set.
    fn tightens(&self, new: Policy) -> bool {
        let old = self.world.ledger.borrow().policy(self.second);
        old.tightens_to(&new) || !new.kind().is_lazy()
    }

    /// Waits until a policy is in force, and records what it promises if it is `stable`.
    async fn bring_in(&self, new: Policy, set: impl Future<Output = StopReport>, stable: bool) {
        let world = &self.world;
        let number = (world.history()).switching(world.env.monotonic(), self.second);
        world.ledger.borrow_mut().change(self.second, new);
        let report = race(set, world.env.sleep(PATIENCE)).await;
        if stable && report.is_some_and(|report| report.failed == 0) {
            world.history().switched(number);
        }
    }
}
