//! Changes that another program on the host makes on the disk, which the server does not carry out.

use std::rc::Rc;

use smb_wire::status::Status;
use vfs::{
    Identity,
    disk::{Disk, DiskResult, OpenHow, XattrSet},
    sim::SimFd,
};

use super::{
    actor::Actor,
    contents::EA,
    step::Step,
    world::{Lock, NAMES, Place, name_of},
};
use crate::oracle::{Key, Request, Value};

/// The host's root: the server's identity on a simulated disk.
const HOST: Identity = Identity::Service;
const PATH: OpenHow = OpenHow {
    path_only: true,
    read: false,
    write: false,
    create: None,
    directory: false,
};

impl Actor {
    pub(super) async fn host(&mut self, step: Step) {
        let slot = step.file();
        match step.a() % 3 {
            0 => self.host_moves(slot, (step.dir(), step.b() % NAMES)).await,
            1 => self.host_marks(slot).await,
            _ => self.host_makes(slot, (step.dir(), step.b() % NAMES)).await,
        }
        if step.flag() {
            let plain = Step::new(super::Kind::Write, 0, 0, 0).with(step.b(), step.a());
            let step = Step([plain.0[0], step.0[1] & 0x3F, plain.0[2], plain.0[3]]);
            self.on_file(super::Kind::Write, step).await;
            self.on_file(super::Kind::Flush, step).await;
        }
    }

    /// `mv`, of a file that nobody has open.
    async fn host_moves(&mut self, slot: usize, to: Place) {
        self.close(slot).await;
        let world = Rc::clone(&self.world);
        let from = match world.beliefs.borrow().file(slot) {
            Some(file) if file.places.len() == 1 && file.held.is_empty() => file.places[0],
            _ => return,
        };
        let locks = [Lock::File(slot), Lock::Place(from), Lock::Place(to)];
        let Some(_locked) = world.lock(&locks).await else {
            return;
        };
        let request = {
            let beliefs = world.beliefs.borrow();
            let file = beliefs.file(slot).filter(|file| {
                file.places == [from] && file.held.is_empty() && !beliefs.names.contains_key(&to)
            });
            file.and_then(|file| {
                let old = (beliefs.dir(from.0)?, &*name_of(from.1));
                let new = (beliefs.dir(to.0)?, &*name_of(to.1));
                let paths = (
                    beliefs.path(self.root(), from)?,
                    beliefs.path(self.root(), to)?,
                );
                Some((Request::rename(file.object, old, new), paths))
            })
        };
        let Some((request, (old, new))) = request else {
            return;
        };
        let op = world.issue(self.via(), request.by_host());
        let moved = async {
            let (from, old) = self.host_above(&old).await?;
            let (to, new) = self.host_above(&new).await?;
            let disk = &self.server.disk;
            disk.rename(&HOST, (&from, &old), (&to, &new), false).await
        };
        if world.host_did(op, moved.await) {
            (world.beliefs.borrow_mut()).move_file(slot, from, to);
        }
    }

    /// `setfattr`, of a file that anybody may have open.
    async fn host_marks(&mut self, slot: usize) {
        let world = Rc::clone(&self.world);
        let Some(_locked) = world.lock(&[Lock::File(slot)]).await else {
            return;
        };
        let file = {
            let beliefs = world.beliefs.borrow();
            let file = beliefs.file(slot);
            file.and_then(|file| {
                Some((
                    file.object,
                    beliefs.path(self.root(), *file.places.first()?)?,
                ))
            })
        };
        let Some((object, path)) = file else { return };
        let value = world.history().version().to_le_bytes().to_vec();
        let key = Key::Ea(EA.to_owned());
        let request = Request::meta(object, key, Value::Bytes(value.clone()));
        let op = world.issue(self.via(), request.by_host());
        let marked = async {
            let (dir, name) = self.host_above(&path).await?;
            let disk = &self.server.disk;
            let file = disk.open_at(&HOST, &dir, &name, PATH).await?;
            let name = format!("user.{EA}");
            disk.set_xattr(&HOST, &file, &name, &value, XattrSet::Either)
                .await
        };
        world.host_did(op, marked.await);
    }

    /// `touch`, of a new file.
    async fn host_makes(&mut self, slot: usize, place: Place) {
        let world = Rc::clone(&self.world);
        let Some((_locked, dir, path)) = self.lock_free(slot, place).await else {
            return;
        };
        let object = world.history().object();
        let request = Request::create(dir, &name_of(place.1), object).by_host();
        let op = world.issue(self.via(), request);
        let made = async {
            let (dir, name) = self.host_above(&path).await?;
            let how = OpenHow {
                path_only: false,
                write: true,
                create: Some(0o666),
                ..PATH
            };
            self.server.disk.open_at(&HOST, &dir, &name, how).await
        };
        let made = made.await;
        if let Ok(file) = &made {
            world.history().identify(object, file.ino());
        }
        if world.host_did(op, made.map(drop)) {
            (world.beliefs.borrow_mut()).make_file(slot, place, object);
        }
    }

    /// The directory that a client's path leads to, and the last name.
    async fn host_above(&self, path: &str) -> DiskResult<(SimFd, Vec<u8>)> {
        let mut names: Vec<&str> = path.split('\\').collect();
        let last = names.pop().unwrap_or_default();
        let disk = &self.server.disk;
        let mut at = disk.root();
        for name in names {
            at = disk.open_at(&HOST, &at, name.as_bytes(), PATH).await?;
        }
        Ok((at, last.as_bytes().to_vec()))
    }
}

impl super::world::World {
    /// Records what came of it; whether it was done.
    fn host_did(&self, op: crate::oracle::OpId, result: DiskResult<()>) -> bool {
        let status = match result {
            Ok(()) => Status::SUCCESS,
            // The call failed as a whole.
            Err(_) => Status::ACCESS_DENIED,
        };
        self.answer(Some(op), status, "on the host");
        result.is_ok()
    }
}
