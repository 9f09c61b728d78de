//! Steps that delete what a name leads to, or empty it by CREATE.

use std::rc::Rc;

use smb_client::{CreateArgs, Request as Wire};
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    ids::FileId,
    msg::{CreateDisposition, CreateOptions},
};

use super::{
    actor::{Actor, Hand, access, created, options},
    contents::{EA, attribute_bits},
    names::emptied,
    step::{Kind, Step},
    world::Lock,
};
use crate::oracle::{Answer, Effect, Key, Object, Request, Value};

impl Actor {
    /// Opens for deletion and closes.
    pub(super) async fn delete(
        &mut self,
        (args, path): (CreateArgs, &str),
        object: Object,
        effects: Vec<Effect>,
        step: Step,
    ) -> Answer {
        let args = args
            .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
            .options(CreateOptions::DELETE_ON_CLOSE | options(step.flag()));
        let entry = {
            let mut ledger = self.world.ledger.borrow_mut();
            ledger.ask(self.via(), object, path, step.flag())
        };
        let record = Request::close(object, effects).through_if(step.flag());
        let opened = self
            .ask("open to delete", None, args.request(), false)
            .await;
        let answer = match opened.map(|reply| created(&reply)) {
            Some(Some(created)) if step.kind() == Kind::RemoveLater => {
                self.delete_later((created.file_id, entry), (object, path), record, step)
                    .await
            }
            Some(Some(created)) => self.carry_out(record, created.file_id).await,
            Some(None) => Answer::Refused,
            None => {
                // It is deleted when the connection ends, if it was opened.
                self.world.issue(self.via(), record);
                Answer::Failed
            }
        };
        self.world.ledger.borrow_mut().let_go(entry);
        answer
    }

    /// The close that deletes.
    async fn carry_out(&mut self, record: Request, id: FileId) -> Answer {
        match self.done("delete", Some(record), Wire::close(id)).await {
            Answer::Refused => Answer::Failed,
            other => other,
        }
    }

    /// Closes the open that deletes the file while another one is there, whose close then deletes it. In between nobody
    /// gets the name, and the file is written and perhaps flushed.
    async fn delete_later(
        &mut self,
        (deleting, entry): (FileId, u64),
        (object, path): (Object, &str),
        record: Request,
        step: Step,
    ) -> Answer {
        let beside = (self.world.ledger.borrow_mut()).ask(self.via(), object, path, false);
        let args = CreateArgs::open(path).access(access());
        let reply = self.ask("open beside", None, args.request(), false).await;
        let Some(kept) = reply.and_then(|reply| created(&reply)) else {
            self.world.ledger.borrow_mut().let_go(beside);
            return self.carry_out(record, deleting).await;
        };
        self.world.ledger.borrow_mut().made(beside);
        self.world.ledger.borrow_mut().let_go(entry);
        let close = Request::close(object, Vec::new());
        self.ask("close", Some(close), Wire::close(deleting), false)
            .await;
        let again = CreateArgs::create(path);
        if self.done("create again", None, again.request()).await == Answer::Success {
            let text = format!("{path} is made although a deletion is pending");
            self.world.odd.borrow_mut().push(text);
        }
        let hand = Hand {
            object,
            id: kept.file_id,
            through: false,
            entry: beside,
        };
        let plain = Step::new(Kind::Write, 0, 0, 0).with(step.a(), step.b());
        self.write(hand, plain).await;
        if step.b().is_multiple_of(2) {
            self.flush(hand, plain).await;
        }
        let answer = self.carry_out(record, kept.file_id).await;
        self.world.ledger.borrow_mut().let_go(beside);
        answer
    }

    /// SUPERSEDE or OVERWRITE_IF of a file that nobody has open: its data, streams and EAs go.
    pub(super) async fn supersede(&mut self, step: Step) {
        let slot = step.file();
        self.close(slot).await;
        let world = Rc::clone(&self.world);
        let place = match world.beliefs.borrow().file(slot) {
            Some(file) if file.held.is_empty() => file.places.first().copied(),
            _ => None,
        };
        let Some(place) = place else { return };
        let Some(_locked) = world.lock(&[Lock::File(slot), Lock::Place(place)]).await else {
            return;
        };
        let ready = {
            let beliefs = world.beliefs.borrow();
            let file = beliefs.file(slot);
            let file = file.filter(|file| file.held.is_empty() && file.places.contains(&place));
            file.and_then(|file| Some((file.object, beliefs.path(self.root(), place)?)))
        };
        let Some((object, path)) = ready else { return };
        let through = step.flag();
        let mut record = Request::set_size(object, "", 0).written(object, world.file_time());
        record.effects.extend(emptied(object));
        for (key, value) in [
            (Key::Ea(EA.to_owned()), Value::Nothing),
            (Key::Attributes, attribute_bits(FileAttributes::empty())),
        ] {
            record.effects.push(Effect::Meta { object, key, value });
        }
        let disposition = match step.a() % 2 {
            0 => CreateDisposition::SUPERSEDE,
            _ => CreateDisposition::OVERWRITE_IF,
        };
        let args = CreateArgs::new(&path, disposition)
            .options(options(through))
            .access(access());
        let entry = (world.ledger.borrow_mut()).ask(self.via(), object, &path, through);
        let record = record.through_if(through);
        let reply = self
            .ask("supersede", Some(record), args.request(), false)
            .await;
        if reply.is_none() {
            self.haunt(slot);
        }
        // Its stream may be gone even after a failure.
        if let Some(file) = &mut world.beliefs.borrow_mut().files[slot] {
            file.stream = false;
        }
        match reply.and_then(|reply| created(&reply)) {
            Some(created) => {
                self.hold((slot, false), object, (created.file_id, entry), through);
            }
            None => world.ledger.borrow_mut().let_go(entry),
        }
    }
}
