//! Steps through an open that may set attributes and nothing else.
//!
//! The server has no descriptor of such an open that could see a failed write-back. Each step
//! opens, does one thing and closes.

use std::rc::Rc;

use smb_client::CreateArgs;
use smb_wire::access_mask::AccessMask;

use super::{
    actor::{Actor, Hand, created},
    step::Step,
    world::Lock,
};

impl Actor {
    pub(super) async fn bare_attributes(&mut self, step: Step) {
        let Some(hand) = self.bare_hand(step.file()).await else {
            return;
        };
        self.set_attributes(hand, step).await;
        self.close_hand(step.file(), hand).await;
    }

    /// A handle that may set attributes and nothing else.
    async fn bare_hand(&mut self, slot: usize) -> Option<Hand> {
        let world = Rc::clone(&self.world);
        let _locked = world.lock(&[Lock::File(slot)]).await?;
        let (object, path) = {
            let beliefs = world.beliefs.borrow();
            let file = beliefs.file(slot)?;
            (
                file.object,
                beliefs.path(self.root(), *file.places.first()?)?,
            )
        };
        let args = CreateArgs::open(&path)
            .access(AccessMask::FILE_READ_ATTRIBUTES | AccessMask::FILE_WRITE_ATTRIBUTES);
        let entry = (self.world.ledger.borrow_mut()).ask(self.via(), object, &path, false);
        let Some(reply) = self.ask("open bare", None, args.request(), false).await else {
            self.world.ledger.borrow_mut().let_go(entry);
            self.haunt(slot);
            return None;
        };
        let Some(created) = created(&reply) else {
            self.world.ledger.borrow_mut().let_go(entry);
            return None;
        };
        Some(self.opened(slot, object, (created.file_id, entry), false))
    }
}
