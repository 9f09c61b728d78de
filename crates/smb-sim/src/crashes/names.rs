//! Steps that make, move and remove names.

use std::rc::Rc;

use bytes::BytesMut;
use smb_client::{CreateArgs, Request as Wire};
use smb_wire::{
    access_mask::AccessMask,
    fscc::{FileInformationClass, FileLinkInformation},
    ids::FileId,
    msg::InfoType,
};

use super::{
    actor::{Actor, STREAM, access, created, options},
    step::Step,
    world::{Dir, File, Lock, Locked, MAKER, NAMES, Place, Taken, name_of, outcome},
};
use crate::oracle::{Answer, Covers, Effect, Object, Request};

/// The context that asks for the index number.
const QFID: &[u8] = b"QFid";

impl Actor {
    pub(super) async fn create(&mut self, step: Step) {
        let (slot, place) = (step.file(), (step.dir(), step.a() % NAMES));
        let world = Rc::clone(&self.world);
        let Some((_locked, dir, path)) = self.lock_free(slot, place).await else {
            return;
        };
        let object = world.history().object();
        let through = step.flag();
        let record = Request::create(dir, &name_of(place.1), object).through_if(through);
        world.beliefs.borrow_mut().doubt(place);
        let args = CreateArgs::create(&path)
            .options(options(through))
            .access(access())
            .context(QFID, b"");
        let entry = (world.ledger.borrow_mut()).ask(self.via(), object, &path, through);
        let reply = self
            .ask("create", Some(record), args.request(), false)
            .await;
        let Some(reply) = reply else {
            world.ledger.borrow_mut().let_go(entry);
            return;
        };
        let Some(created) = created(&reply) else {
            world.ledger.borrow_mut().let_go(entry);
            if outcome(reply.header.status) == Answer::Refused {
                world.beliefs.borrow_mut().names.remove(&place);
            }
            return;
        };
        self.identify(object, created.context(QFID));
        (world.beliefs.borrow_mut()).make_file(slot, place, object);
        self.hold((slot, false), object, (created.file_id, entry), through);
    }

    /// Locks a slot and a place for a new file, if both are free; with the place's directory and path.
    pub(super) async fn lock_free(
        &self,
        slot: usize,
        place: Place,
    ) -> Option<(Locked, Object, String)> {
        let locks = [Lock::File(slot), Lock::Place(place)];
        let locked = self.world.lock(&locks).await?;
        let beliefs = self.world.beliefs.borrow();
        if beliefs.file(slot).is_some() || beliefs.names.contains_key(&place) {
            return None;
        }
        let (dir, path) = (beliefs.dir(place.0)?, beliefs.path(self.root(), place)?);
        // The locks, which are given back with their value, are a part of the same state.
        drop(beliefs);
        Some((locked, dir, path))
    }

    fn identify(&self, object: Object, context: Option<&[u8]>) {
        let index = context.and_then(|data| data.first_chunk::<8>());
        if let Some(index) = index {
            self.world
                .history()
                .identify(object, u64::from_le_bytes(*index));
        }
    }

    pub(super) async fn rename(&mut self, step: Step) {
        let slot = step.file();
        let Some(hand) = self.hand(slot, false, false).await else {
            return;
        };
        let to: Place = (step.dir(), step.b() % NAMES);
        let world = Rc::clone(&self.world);
        let from = match world.beliefs.borrow().file(slot) {
            // Handles are opened by the first of several names.
            Some(file) if !file.places.is_empty() => file.places[0],
            _ => return,
        };
        let replaced = match world.beliefs.borrow().names.get(&to) {
            None => None,
            Some(Taken::File(other)) if *other != slot && step.flag() => Some(*other),
            Some(_) => return,
        };
        let mut locks = vec![Lock::File(slot), Lock::Place(from), Lock::Place(to)];
        locks.extend(replaced.map(Lock::File));
        let Some(_locked) = world.lock(&locks).await else {
            return;
        };
        let Some((record, path)) = self.movable(slot, (from, to), replaced, hand.object) else {
            return;
        };
        let record = record.through_if(hand.through);
        let wire = Wire::rename(hand.id, &path, replaced.is_some());
        let answer = self.done("rename", Some(record), wire).await;
        let mut beliefs = world.beliefs.borrow_mut();
        match answer {
            Answer::Success => {
                if let Some(other) = replaced {
                    beliefs.files[other] = None;
                }
                beliefs.move_file(slot, from, to);
            }
            Answer::Refused => {}
            Answer::Failed => {
                beliefs.lose_file(slot, Some(to));
                if let Some(other) = replaced {
                    beliefs.lose_file(other, None);
                }
            }
        }
    }

    /// The record and path of a rename, if everything is still as it was before the locks.
    fn movable(
        &self,
        slot: usize,
        (from, to): (Place, Place),
        replaced: Option<usize>,
        object: Object,
    ) -> Option<(Request, String)> {
        let beliefs = self.world.beliefs.borrow();
        let file = beliefs.file(slot)?;
        let wanted = replaced.map(Taken::File);
        if file.places.first() != Some(&from)
            || file.object != object
            || file.held.contains_key(&MAKER)
            || beliefs.names.get(&to) != wanted.as_ref()
        {
            return None;
        }
        if let Some(other) = replaced {
            let other = beliefs.file(other)?;
            if !other.held.is_empty() || other.places.len() != 1 {
                return None;
            }
        }
        let mut record = Request::rename(
            file.object,
            (beliefs.dir(from.0)?, &name_of(from.1)),
            (beliefs.dir(to.0)?, &name_of(to.1)),
        );
        let other = replaced.and_then(|other| beliefs.file(other));
        record
            .effects
            .extend(other.into_iter().flat_map(|other| emptied(other.object)));
        Some((record, beliefs.path(self.root(), to)?))
    }

    pub(super) async fn link(&mut self, step: Step) {
        let slot = step.file();
        let Some(hand) = self.hand(slot, false, false).await else {
            return;
        };
        let to: Place = (step.dir(), step.b() % NAMES);
        let world = Rc::clone(&self.world);
        let Some(_locked) = world.lock(&[Lock::File(slot), Lock::Place(to)]).await else {
            return;
        };
        let free = {
            let beliefs = world.beliefs.borrow();
            let same = beliefs
                .file(slot)
                .is_some_and(|file| file.object == hand.object);
            (same && !beliefs.names.contains_key(&to))
                .then(|| Some((beliefs.dir(to.0)?, beliefs.path(self.root(), to)?)))
                .flatten()
        };
        let Some((dir, path)) = free else { return };
        let record = Request::link(hand.object, dir, &name_of(to.1)).through_if(hand.through);
        let mut buffer = BytesMut::new();
        FileLinkInformation {
            replace_if_exists: false,
            root_directory: 0,
            file_name: path,
        }
        .encode(&mut buffer);
        world.beliefs.borrow_mut().doubt(to);
        let wire = set_request(hand.id, FileInformationClass::LINK, &buffer);
        let answer = self.done("link", Some(record), wire).await;
        let mut beliefs = world.beliefs.borrow_mut();
        match answer {
            Answer::Success => {
                beliefs.names.insert(to, Taken::File(slot));
                if let Some(file) = &mut beliefs.files[slot] {
                    file.places.push(to);
                }
            }
            Answer::Refused => _ = beliefs.names.remove(&to),
            Answer::Failed => {}
        }
    }

    pub(super) async fn remove(&mut self, step: Step) {
        let slot = step.file();
        let world = Rc::clone(&self.world);
        let mine = |file: &File| file.held.keys().all(|client| *client == self.number);
        if !world.beliefs.borrow().file(slot).is_some_and(mine) {
            return;
        }
        self.close(slot).await;
        let place = world.beliefs.borrow().file(slot).map(|file| {
            let index = usize::from(step.a()) % file.places.len().max(1);
            (file.object, file.places[index])
        });
        let Some((object, place)) = place else { return };
        let Some(_locked) = world.lock(&[Lock::File(slot), Lock::Place(place)]).await else {
            return;
        };
        let still = {
            let beliefs = world.beliefs.borrow();
            let file = beliefs.file(slot).filter(|file| {
                file.object == object && file.held.is_empty() && file.places.contains(&place)
            });
            file.and_then(|file| {
                let mut effects = vec![gone(beliefs.dir(place.0)?, place, object)];
                if file.places.len() == 1 {
                    effects.extend(emptied(object));
                }
                Some((effects, beliefs.path(self.root(), place)?))
            })
        };
        let Some((effects, path)) = still else { return };
        let answer = self
            .delete((CreateArgs::open(&path), &path), object, effects, step)
            .await;
        let mut beliefs = world.beliefs.borrow_mut();
        match answer {
            Answer::Success => {
                beliefs.names.remove(&place);
                if let Some(file) = &mut beliefs.files[slot] {
                    file.places.retain(|one| *one != place);
                    if file.places.is_empty() {
                        beliefs.files[slot] = None;
                    }
                }
            }
            Answer::Refused => {}
            Answer::Failed => beliefs.lose_file(slot, None),
        }
    }

    pub(super) async fn make_dir(&mut self, step: Step) {
        let slot = step.dir().max(1);
        let place: Place = (usize::from(step.a()) % 3, step.b() % NAMES);
        let world = Rc::clone(&self.world);
        if world.is_home(slot) {
            return;
        }
        let Some(_locked) = world.lock(&[Lock::Tree]).await else {
            return;
        };
        let free = {
            let beliefs = world.beliefs.borrow();
            let free = beliefs.dirs[slot].is_none() && !beliefs.names.contains_key(&place);
            free.then(|| Some((beliefs.dir(place.0)?, beliefs.path(self.root(), place)?)))
                .flatten()
        };
        let Some((above, path)) = free else { return };
        let object = world.history().object();
        let through = step.flag();
        let record = Request::create(above, &name_of(place.1), object).through_if(through);
        world.beliefs.borrow_mut().doubt(place);
        let args = CreateArgs::create_directory(&path)
            .options(options(through))
            .context(QFID, b"");
        let entry = (world.ledger.borrow_mut()).ask(self.via(), object, &path, through);
        let reply = self.ask("mkdir", Some(record), args.request(), false).await;
        world.ledger.borrow_mut().let_go(entry);
        let Some(reply) = reply else { return };
        let Some(created) = created(&reply) else {
            if outcome(reply.header.status) == Answer::Refused {
                world.beliefs.borrow_mut().names.remove(&place);
            }
            return;
        };
        self.identify(object, created.context(QFID));
        {
            let mut beliefs = world.beliefs.borrow_mut();
            beliefs.names.insert(place, Taken::Dir(slot));
            beliefs.dirs[slot] = Some(Dir {
                object,
                place: Some(place),
                haunted: false,
            });
        }
        let close = Request::close(object, Vec::new());
        let wire = Wire::close(created.file_id);
        if self.ask("close", Some(close), wire, false).await.is_none() {
            world.beliefs.borrow_mut().haunt_dir(slot);
        }
    }

    /// Opens a directory, to be closed by [`Actor::close_dir`].
    async fn open_dir(&mut self, slot: usize, args: CreateArgs) -> Option<FileId> {
        let Some(reply) = self.ask("open dir", None, args.request(), false).await else {
            self.world.beliefs.borrow_mut().haunt_dir(slot);
            return None;
        };
        Some(created(&reply)?.file_id)
    }

    async fn close_dir(&mut self, slot: usize, id: FileId) {
        let wire = Wire::close(id);
        if self.ask("close dir", None, wire, false).await.is_none() {
            self.world.beliefs.borrow_mut().haunt_dir(slot);
        }
    }

    pub(super) async fn move_dir(&mut self, step: Step) {
        let slot = step.dir().max(1);
        let to: Place = (usize::from(step.a()) % 3, step.b() % NAMES);
        let world = Rc::clone(&self.world);
        let Some(_locked) = world.lock(&[Lock::Tree]).await else {
            return;
        };
        let ready = {
            let beliefs = world.beliefs.borrow();
            let free = !beliefs.names.contains_key(&to)
                && !beliefs.in_use(slot)
                && !beliefs.is_below(to.0, slot);
            free.then(|| {
                let dir = beliefs.dirs[slot].as_ref()?;
                let from = dir.place?;
                let record = Request::move_directory(
                    dir.object,
                    (beliefs.dir(from.0)?, &name_of(from.1)),
                    (beliefs.dir(to.0)?, &name_of(to.1)),
                );
                Some((
                    from,
                    record,
                    beliefs.path(self.root(), from)?,
                    beliefs.path(self.root(), to)?,
                ))
            })
            .flatten()
        };
        let Some((from, record, old, new)) = ready else {
            return;
        };
        let moving = world.beliefs.borrow().dir(slot).unwrap_or(Object::ROOT);
        let args = CreateArgs::directory(&old)
            .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
            .options(options(step.flag()));
        let Some(id) = self.open_dir(slot, args).await else {
            return;
        };
        let wire = Wire::rename(id, &new, false);
        let entry = (world.ledger.borrow_mut()).hold(self.second, moving, &old, step.flag());
        let answer = self.done("rename dir", Some(record), wire).await;
        world.ledger.borrow_mut().let_go(entry);
        {
            let mut beliefs = world.beliefs.borrow_mut();
            match answer {
                Answer::Success => {
                    beliefs.names.remove(&from);
                    beliefs.names.insert(to, Taken::Dir(slot));
                    if let Some(dir) = &mut beliefs.dirs[slot] {
                        dir.place = Some(to);
                    }
                }
                Answer::Refused => {}
                Answer::Failed => {
                    // The paths of everything below are no longer certain.
                    beliefs.doubt(from);
                    beliefs.doubt(to);
                    beliefs.lose_dir(slot);
                }
            }
        }
        self.close_dir(slot, id).await;
    }

    pub(super) async fn remove_dir(&mut self, step: Step) {
        let slot = step.dir().max(1);
        let world = Rc::clone(&self.world);
        if world.is_home(slot) {
            return;
        }
        let Some(_locked) = world.lock(&[Lock::Tree]).await else {
            return;
        };
        let ready = {
            let beliefs = world.beliefs.borrow();
            let empty = !beliefs.names.keys().any(|(dir, _)| *dir == slot);
            (empty && !beliefs.in_use(slot))
                .then(|| {
                    let dir = beliefs.dirs[slot].as_ref()?;
                    let place = dir.place?;
                    let above = beliefs.dir(place.0)?;
                    Some((dir.object, place, above, beliefs.path(self.root(), place)?))
                })
                .flatten()
        };
        let Some((object, place, above, path)) = ready else {
            return;
        };
        let args = CreateArgs::directory(&path);
        let answer = self
            .delete(
                (args, &path),
                object,
                vec![gone(above, place, object)],
                step,
            )
            .await;
        let mut beliefs = world.beliefs.borrow_mut();
        match answer {
            Answer::Success => {
                beliefs.names.remove(&place);
                beliefs.dirs[slot] = None;
            }
            Answer::Refused => {}
            Answer::Failed => {
                beliefs.doubt(place);
                beliefs.lose_dir(slot);
            }
        }
    }

    /// FLUSH of a directory; slot 0 is the root of the share, and everything in it.
    pub(super) async fn flush_dir(&mut self, slot: usize) {
        let world = Rc::clone(&self.world);
        let root = self.root();
        let slot = if slot == 0 { root } else { slot };
        // Any lock keeps directories from moving.
        let Some(_locked) = world.lock(&[Lock::Place((usize::MAX, 0))]).await else {
            return;
        };
        let ready = {
            let beliefs = world.beliefs.borrow();
            let object = beliefs.dir(slot);
            object.and_then(|object| Some((object, beliefs.dir_path(self.root(), slot)?)))
        };
        let Some((object, path)) = ready else { return };
        let args = CreateArgs::directory(&path)
            .access(AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE);
        let Some(id) = self.open_dir(slot, args).await else {
            return;
        };
        let covers = match slot == root {
            true if root == 0 => Covers::Root,
            true => Covers::Folder(object),
            false => Covers::Directory(object),
        };
        let wire = Wire::flush(id);
        let flush = Some(Request::flush(covers));
        let entry = (world.ledger.borrow_mut()).hold(self.second, object, &path, false);
        let flushed = self.ask("flush dir", flush, wire, false).await;
        world.ledger.borrow_mut().let_go(entry);
        if flushed.is_none() {
            world.beliefs.borrow_mut().haunt_dir(slot);
        }
        self.close_dir(slot, id).await;
    }
}

fn gone(dir: Object, place: Place, about: Object) -> Effect {
    Effect::Name {
        dir,
        name: name_of(place.1),
        to: None,
        about,
    }
}

/// With the last name go the streams, and a crash in the middle may leave the name.
pub(super) fn emptied(object: Object) -> Vec<Effect> {
    Request::stream(object, STREAM, false).effects
}

pub(super) fn set_request(file_id: FileId, class: FileInformationClass, buffer: &[u8]) -> Wire {
    Wire::set_info(file_id, InfoType::FILE, class.0, 0, buffer)
}
