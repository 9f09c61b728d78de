//! Steps through an open that may set attributes and nothing else.
//!
//! The server has no descriptor of such an open that could see a failed write-back. Each step
//! opens, does one thing and closes.

use std::rc::Rc;

use smb_client::{CreateArgs, Request as Wire};
use smb_wire::access_mask::AccessMask;

use super::{
    actor::{Actor, Hand, created},
    step::Step,
    world::Lock,
};
use crate::oracle::Request;

impl Actor {
    /// DOS attributes are set.
    pub(super) async fn bare_attributes(&mut self, step: Step) {
        let Some(hand) = self.bare_hand(step.file()).await else {
            return;
        };
        self.set_attributes(hand, step).await;
        self.close_bare(step.file(), hand).await;
    }

    /// A handle that may set attributes and nothing else.
    async fn bare_hand(&mut self, slot: usize) -> Option<Hand> {
        let world = Rc::clone(&self.world);
        let _locked = world.lock(&[Lock::File(slot)]).await?;
        let (object, path) = {
            let beliefs = world.beliefs.borrow();
            let file = beliefs.file(slot)?;
            (file.object, beliefs.path(*file.places.first()?)?)
        };
        let args = CreateArgs::open(&path)
            .access(AccessMask::FILE_READ_ATTRIBUTES | AccessMask::FILE_WRITE_ATTRIBUTES);
        let client = self.number;
        let entry = (self.world.ledger.borrow_mut()).ask(client, object, &path, false);
        let Some(reply) = self.ask("open bare", None, args.request(), false).await else {
            self.world.ledger.borrow_mut().let_go(entry);
            self.haunt(slot);
            return None;
        };
        let Some(created) = created(&reply) else {
            self.world.ledger.borrow_mut().let_go(entry);
            return None;
        };
        self.world.ledger.borrow_mut().made(entry);
        if let Some(file) = &mut world.beliefs.borrow_mut().files[slot] {
            *file.held.entry(self.number).or_default() += 1;
        }
        Some(Hand {
            object,
            id: created.file_id,
            through: false,
            entry,
        })
    }

    /// Closes a handle of [`Actor::bare_hand`].
    async fn close_bare(&mut self, slot: usize, hand: Hand) {
        self.world.ledger.borrow_mut().let_go(hand.entry);
        let record = Request::close(hand.object, Vec::new());
        let wire = Wire::close(hand.id);
        if self.ask("close", Some(record), wire, false).await.is_none() {
            self.haunt(slot);
        }
        self.unhold(slot, hand);
    }
}
