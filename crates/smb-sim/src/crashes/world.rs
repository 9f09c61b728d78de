//! The state of the share as the clients of one case know it, and the history that they write together.
//!
//! Names are changed by one client at a time: a client that creates, moves, opens or removes something holds the
//! locks of the names it touches. Contents are not locked at all.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use smb_wire::{ids::FileTime, status::Status};
use vfs::Env;

use super::{
    ledger::{Ledger, Via, Watch},
    plan::Plan,
    tally::Tally,
};
use crate::{
    executor::SimEnv,
    oracle::{Answer, History, Object, OpId, Request},
    server::FOLDER,
};

pub(super) const FILES: usize = 4;
/// Directory slots, the root first.
pub(super) const DIRS: usize = 3;
/// The directory slot of [`FOLDER`], over which the second share may lie.
pub(super) const HOME: usize = 2;
/// How often, and how many times, a client looks whether all others have come.
const MEETING_LOOK: Duration = Duration::from_micros(100);
const MEETING_MAX: usize = 15_000;
pub(super) const NAMES: u8 = 5;
/// Stands for handles that no client has any more and the server perhaps has.
pub(super) const GHOST: usize = usize::MAX;
/// Stands for a CREATE of a stream that was not answered. It makes a file as well if the name is free by then.
pub(super) const MAKER: usize = usize::MAX - 1;

/// A name: directory slot and one of few names.
pub(super) type Place = (usize, u8);

/// A file that a slot stands for.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) object: Object,
    pub(super) places: Vec<Place>,
    /// How many handles each client has.
    pub(super) held: BTreeMap<usize, usize>,
    pub(super) stream: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Dir {
    pub(super) object: Object,
    /// None for the root.
    pub(super) place: Option<Place>,
    /// The server may have a handle of it that nobody knows of.
    pub(super) haunted: bool,
}

/// The object at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    File(usize),
    Dir(usize),
    /// Something whose fate nobody knows: left alone.
    Unsure,
}

/// The objects that a client may lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lock {
    File(usize),
    Place(Place),
    /// Names of directories move.
    Tree,
    /// The share's policy is being set.
    Policy,
}

#[derive(Debug)]
pub(super) struct Beliefs {
    pub(super) files: [Option<File>; FILES],
    pub(super) dirs: [Option<Dir>; DIRS],
    pub(super) names: BTreeMap<Place, Taken>,
    locks: BTreeSet<Lock>,
}

impl Beliefs {
    /// With the object of [`FOLDER`] if that is there from the beginning.
    pub(super) fn new(folder: Option<Object>) -> Self {
        let root = Dir {
            object: Object::ROOT,
            place: None,
            haunted: false,
        };
        let place: Place = (0, NAMES - 1);
        let home = folder.map(|object| Dir {
            object,
            place: Some(place),
            haunted: false,
        });
        Self {
            files: [const { None }; FILES],
            names: home.iter().map(|_| (place, Taken::Dir(HOME))).collect(),
            dirs: [Some(root), None, home],
            locks: BTreeSet::new(),
        }
    }

    /// The path of a directory slot, as a client of a share says it that lies over the directory slot `root`.
    fn path_of(&self, root: usize, dir: usize) -> Option<Vec<String>> {
        let mut path = Vec::new();
        let mut at = dir;
        for _ in 0..=DIRS {
            let here = self.dirs.get(at)?.as_ref()?;
            if at == root {
                path.reverse();
                return Some(path);
            }
            let (above, name) = here.place?;
            path.push(name_of(name));
            at = above;
        }
        None
    }

    pub(super) fn path(&self, root: usize, (dir, name): Place) -> Option<String> {
        let mut path = self.path_of(root, dir)?;
        path.push(name_of(name));
        Some(path.join("\\"))
    }

    pub(super) fn dir_path(&self, root: usize, dir: usize) -> Option<String> {
        Some(self.path_of(root, dir)?.join("\\"))
    }

    pub(super) fn dir(&self, dir: usize) -> Option<Object> {
        self.dirs.get(dir)?.as_ref().map(|dir| dir.object)
    }

    pub(super) fn file(&self, slot: usize) -> Option<&File> {
        self.files.get(slot)?.as_ref()
    }

    /// Whether a directory lies in another one (or is it).
    pub(super) fn is_below(&self, mut dir: usize, above: usize) -> bool {
        for _ in 0..=DIRS {
            if dir == above {
                return true;
            }
            match self.dirs.get(dir).and_then(Option::as_ref) {
                Some(Dir {
                    place: Some((up, _)),
                    ..
                }) => dir = *up,
                _ => return false,
            }
        }
        false
    }

    /// Whether anybody has anything open in or below a directory.
    pub(super) fn in_use(&self, dir: usize) -> bool {
        let below = |one: usize| self.is_below(one, dir);
        let haunted = |one: usize| self.dirs[one].as_ref().is_some_and(|dir| dir.haunted);
        if (0..DIRS).any(|one| below(one) && haunted(one)) {
            return true;
        }
        self.files
            .iter()
            .flatten()
            .any(|file| !file.held.is_empty() && file.places.iter().any(|(dir, _)| below(*dir)))
    }

    pub(super) fn make_file(&mut self, slot: usize, place: Place, object: Object) {
        self.names.insert(place, Taken::File(slot));
        self.files[slot] = Some(File {
            object,
            places: vec![place],
            held: BTreeMap::new(),
            stream: false,
        });
    }

    /// The only name of a file is another one now.
    pub(super) fn move_file(&mut self, slot: usize, from: Place, to: Place) {
        self.names.remove(&from);
        self.names.insert(to, Taken::File(slot));
        if let Some(file) = &mut self.files[slot] {
            let moved = file.places.iter_mut().filter(|place| **place == from);
            moved.for_each(|place| *place = to);
        }
    }

    /// A handle of a directory got lost.
    pub(super) fn haunt_dir(&mut self, slot: usize) {
        if let Some(dir) = self.dirs.get_mut(slot).and_then(Option::as_mut) {
            dir.haunted = true;
        }
    }

    /// Nobody knows where a directory is; nor, then, what is in it.
    pub(super) fn lose_dir(&mut self, slot: usize) {
        let below: Vec<usize> = (1..DIRS).filter(|one| self.is_below(*one, slot)).collect();
        for dir in below {
            for file in 0..FILES {
                let inside = |file: &File| file.places.iter().any(|(of, _)| *of == dir);
                if self.file(file).is_some_and(inside) {
                    self.lose_file(file, None);
                }
            }
            self.names.retain(|(of, _), _| *of != dir);
            self.dirs[dir] = None;
        }
    }

    /// Nobody knows whether anything has this name.
    pub(super) fn doubt(&mut self, place: Place) {
        self.names.insert(place, Taken::Unsure);
    }

    /// The holder of locks is about to die: the state of the locked names is unknown.
    pub(super) fn doubt_locked(&mut self) {
        for lock in std::mem::take(&mut self.locks) {
            match lock {
                Lock::File(slot) => self.lose_file(slot, None),
                Lock::Place(place) => self.doubt(place),
                Lock::Policy => {}
                Lock::Tree => (1..DIRS).for_each(|dir| {
                    if let Some(place) = self.dirs[dir].as_ref().and_then(|dir| dir.place) {
                        self.doubt(place);
                    }
                    self.lose_dir(dir);
                }),
            }
        }
    }

    /// Nobody knows what became of a file.
    pub(super) fn lose_file(&mut self, slot: usize, also: Option<Place>) {
        if let Some(file) = self.files.get_mut(slot).and_then(Option::take) {
            file.places.into_iter().for_each(|place| self.doubt(place));
        }
        if let Some(place) = also {
            self.doubt(place);
        }
    }
}

/// The text of a name. Names in different directories are the same few.
pub(super) fn name_of(name: u8) -> String {
    char::from(b'a' + name % NAMES).to_string()
}

/// Shared by the clients of a case.
pub(super) struct World {
    pub(super) env: Arc<SimEnv>,
    pub(super) beliefs: RefCell<Beliefs>,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) ledger: RefCell<Ledger>,
    watched: RefCell<BTreeMap<OpId, Watch>>,
    /// The requests of the clients; the rest is counted at the end.
    pub(super) counts: RefCell<Tally>,
    /// Clients of this case, and how many of them have come to each meeting.
    pub(super) clients: usize,
    met: RefCell<BTreeMap<usize, usize>>,
    /// Something that no client may see: text of a violation of rule 9.
    pub(super) odd: RefCell<Vec<String>>,
    /// There is a second share.
    pub(super) shared: bool,
    /// It lies over a folder in that of the first.
    pub(super) nested: bool,
    /// A share is not there now, and nobody connects.
    pub(super) away: Cell<bool>,
}

pub(super) fn history(shared: &Mutex<History>) -> MutexGuard<'_, History> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(super) fn new(plan: &Plan, env: Arc<SimEnv>, shared: Arc<Mutex<History>>) -> Rc<Self> {
        let folder = plan.nested.then(|| {
            let mut history = history(&shared);
            let object = history.object();
            let made = Request::create(Object::ROOT, FOLDER, object);
            history.happened(Duration::ZERO, made);
            object
        });
        Rc::new(Self {
            env,
            beliefs: RefCell::new(Beliefs::new(folder)),
            history: shared,
            ledger: RefCell::new(Ledger::new(plan)),
            watched: RefCell::default(),
            counts: RefCell::default(),
            clients: plan.clients,
            met: RefCell::default(),
            odd: RefCell::default(),
            shared: plan.second.is_some(),
            nested: plan.nested,
            away: Cell::new(false),
        })
    }

    /// Whether a directory slot stands for the folder of the second share, and for no other directory.
    pub(super) fn is_home(&self, slot: usize) -> bool {
        self.nested && slot == HOME
    }

    /// The time as a file has it, in 100 ns since 1601.
    pub(super) fn file_time(&self) -> u64 {
        let now = self.env.realtime();
        FileTime::from_unix(now.secs, now.nanos).0
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        history(&self.history)
    }

    pub(super) fn issue(&self, via: Via, request: Request) -> OpId {
        let at = self.env.monotonic();
        let watch = self.ledger.borrow().watch(via, &request);
        let request = request.second_if(via.1);
        let op = self.history().issue(at, request);
        if let Some(watch) = watch {
            self.watched.borrow_mut().insert(op, watch);
        }
        op
    }

    /// Records an answer, if it is one to a request that the history has.
    pub(super) fn answer(&self, op: Option<OpId>, status: Status, what: &'static str) {
        let Some(op) = op else { return };
        let at = self.env.monotonic();
        let answer = outcome(status);
        if let Some(watch) = self.watched.borrow_mut().remove(&op) {
            let ledger = self.ledger.borrow();
            let (between, within) = (ledger.between(&watch), ledger.within(&watch));
            let times = ledger.covers_times(&watch);
            self.history().decided(op, between, within, times);
        }
        self.history().answer(op, at, answer);
        let mut counts = self.counts.borrow_mut();
        match answer {
            Answer::Success => counts.done += 1,
            Answer::Refused => counts.refused += 1,
            Answer::Failed => counts.failed += 1,
        }
        if answer != Answer::Success {
            *counts.refusals.entry((what, status.0)).or_default() += 1;
        }
    }

    /// Waits until every client has come to this meeting, but not for one that never does.
    pub(super) async fn meet(self: Rc<Self>, meeting: usize) {
        *self.met.borrow_mut().entry(meeting).or_default() += 1;
        for _ in 0..MEETING_MAX {
            if self.met.borrow().get(&meeting) >= Some(&self.clients) {
                return;
            }
            self.env.sleep(MEETING_LOOK).await;
        }
    }

    /// Takes locks, waiting for a while. False: too busy, leave it.
    pub(super) async fn lock(self: &Rc<Self>, wanted: &[Lock]) -> Option<Locked> {
        for _ in 0..40 {
            {
                let mut beliefs = self.beliefs.borrow_mut();
                let whole = wanted.contains(&Lock::Tree);
                let names = |locks: &BTreeSet<Lock>| locks.iter().any(|one| *one != Lock::Policy);
                let alone = wanted == [Lock::Policy];
                let busy = (!alone && beliefs.locks.contains(&Lock::Tree))
                    || (whole && names(&beliefs.locks))
                    || wanted.iter().any(|lock| beliefs.locks.contains(lock));
                if !busy {
                    beliefs.locks.extend(wanted);
                    return Some(Locked {
                        world: Rc::clone(self),
                        locks: wanted.to_vec(),
                    });
                }
            }
            self.env.sleep(Duration::from_micros(300)).await;
        }
        None
    }
}

pub(super) fn outcome(status: Status) -> Answer {
    match status {
        Status::SUCCESS => Answer::Success,
        // After these everything is as it was.
        Status::OBJECT_NAME_COLLISION
        | Status::OBJECT_NAME_NOT_FOUND
        | Status::OBJECT_PATH_NOT_FOUND
        | Status::SHARING_VIOLATION
        | Status::ACCESS_DENIED
        | Status::FILE_CLOSED
        | Status::DELETE_PENDING
        | Status::DIRECTORY_NOT_EMPTY
        | Status::INVALID_PARAMETER
        | Status::NOT_SUPPORTED => Answer::Refused,
        _ => Answer::Failed,
    }
}

pub(super) struct Locked {
    world: Rc<World>,
    locks: Vec<Lock>,
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut beliefs = self.world.beliefs.borrow_mut();
        for lock in &self.locks {
            beliefs.locks.remove(lock);
        }
    }
}
