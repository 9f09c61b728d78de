//! The state behind a simulated disk's lock: images, open descriptors, space, clock, faults.
//!
//! Names are in `names.rs`, bytes of files in `data.rs`, attributes in `meta.rs`.
//! Everything is synchronous. Every change to the live image goes through [`State::change`], so
//! that none escapes the list of waiting effects.
//!
//! Invariants: an inode without links lives as long as a descriptor holds it; `used` counts the
//! live image's blocks and inodes and never exceeds the capacity.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use libc::{S_IFDIR, S_IFMT};

use super::{
    SimOptions,
    deceit::Deceit,
    effects::{Durable, Edit, Effect, Profile, Scope},
    faults::{FaultAction, FaultPlan, SimOp},
    image::{Image, Inode, ROOT},
    rng::SimRng,
};
use crate::{
    Identity, IoAccess, Timestamp,
    disk::{DiskResult, Errno},
};

pub(super) const fn err<T>(errno: i32) -> DiskResult<T> {
    Err(Errno(errno))
}

pub(super) const fn err_if(condition: bool, errno: i32) -> DiskResult<()> {
    if condition { err(errno) } else { Ok(()) }
}

/// The kinds of I/O of an open: as on Linux, one that asks for none is for reading.
pub(super) fn for_something(io: IoAccess) -> IoAccess {
    IoAccess {
        read: io.read || !io.write,
        ..io
    }
}

/// The directory and the name by which a descriptor was opened.
pub(super) type OpenName = (u64, Box<[u8]>);

#[derive(Debug, Clone)]
pub(super) struct OpenFile {
    pub(super) ino: u64,
    /// It follows renames. `None` for the root, and on a disk that loses nothing.
    pub(super) name: Option<OpenName>,
    /// The number of write-back errors of the inode that this descriptor has reported.
    reported: u64,
    /// The number of write-back errors of any inode that it has reported.
    reported_all: u64,
}

/// A write-back error as `errseq_t` keeps it.
#[derive(Debug, Clone, Copy, Default)]
struct WriteBackError {
    count: u64,
    errno: i32,
    is_reported: bool,
}

/// The identity of the caller, for the checks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cred<'a> {
    pub(super) uid: u32,
    pub(super) gid: u32,
    groups: &'a [u32],
}

impl Cred<'_> {
    pub(super) fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether the permission bits grant `want` (r=4, w=2, x=1).
    pub(super) fn may(&self, node: &Inode, want: u32) -> bool {
        if self.uid == 0 {
            return want & 1 == 0 || node.is_dir() || node.mode & 0o111 != 0;
        }
        let shift = if self.uid == node.uid {
            6
        } else if self.in_group(node.gid) {
            3
        } else {
            0
        };
        (node.mode >> shift) & want == want
    }

    /// Whether `fs.protected_hardlinks` allows a user who is not the owner to link the file (proc_sys_fs(5)).
    pub(super) fn may_pin(&self, node: &Inode) -> bool {
        let regular = node.mode & S_IFMT == libc::S_IFREG;
        let set_id = node.mode & 0o4000 != 0 || node.mode & 0o2010 == 0o2010;
        regular && !set_id && self.may(node, 6)
    }

    pub(super) fn owns(&self, node: &Inode) -> bool {
        self.uid == 0 || self.uid == node.uid
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) options: SimOptions,
    pub(super) live: Image,
    pub(super) durable: Durable,
    /// The open descriptors, which are never visited in order. (A tree would allocate and free nodes at some numbers of
    /// entries, but tests check the allocations of operations.)
    pub(super) opens: HashMap<u64, OpenFile>,
    errors: BTreeMap<u64, WriteBackError>,
    /// Write-back errors of all inodes, and the last one.
    all_errors: (u64, i32),
    pub(super) faults: FaultPlan,
    pub(super) deceit: Option<Deceit>,
    /// The sync that [`Deceit::OneSyncLate`] has reported as done and not carried out.
    pub(super) late: Option<(u64, u64, Scope)>,
    pub(super) rng: SimRng,
    pub(super) used: u64,
    next_open: u64,
    pub(super) next_ino: u64,
    group: u64,
    ticks: i64,
    /// Operations begun, syncs done.
    pub(super) operations: u64,
    pub(super) syncs: u64,
}

impl State {
    pub(super) fn new(options: SimOptions) -> Self {
        let mut state = Self::with_image(options, Image::default(), ROOT + 9, 0);
        let now = state.now();
        let (uid, gid) = state.options.root_owner;
        let root = Inode::new(S_IFDIR | state.options.root_mode, uid, gid, ROOT, now);
        state.live.inodes.insert(ROOT, Arc::new(root));
        state.durable.image.inodes = state.live.inodes.clone();
        state.used = state.live.used();
        state
    }

    fn with_image(options: SimOptions, mut live: Image, next_ino: u64, ticks: i64) -> Self {
        live.keeps_tails = false;
        let durable = Durable {
            profile: options.profile,
            image: Image {
                keeps_tails: options.profile == Profile::LogTree,
                ..live.clone()
            },
            pending: vec![],
        };
        Self {
            rng: SimRng::new(options.seed),
            used: live.used(),
            options,
            live,
            durable,
            // There is room for a test's opens, so that growth is not counted as memory of one of them.
            opens: HashMap::with_capacity(4_096),
            errors: BTreeMap::new(),
            all_errors: (0, 0),
            faults: FaultPlan::default(),
            deceit: None,
            late: None,
            next_open: 1,
            next_ino,
            group: 0,
            ticks,
            operations: 0,
            syncs: 0,
        }
    }

    /// The disk after a power loss that left `image`.
    pub(super) fn after_cut(&self, image: Image) -> Self {
        Self::with_image(self.options.clone(), image, self.next_ino, self.ticks)
    }

    /// The disk after its only user died: its descriptors are closed, but the kernel goes on.
    pub(super) fn after_crash(&self) -> Self {
        let mut next = Self::with_image(
            self.options.clone(),
            self.live.clone(),
            self.next_ino,
            self.ticks,
        );
        next.durable = self.durable.clone();
        next.errors = self.errors.clone();
        next.rng = self.rng.clone();
        next.group = self.group;
        next.live.inodes.retain(|_, node| node.links > 0);
        next.used = next.live.used();
        next
    }

    // ---- helpers of the other parts ----

    pub(super) fn now(&mut self) -> Timestamp {
        if let Some(clock) = &self.options.clock {
            return clock.now();
        }
        self.ticks += 1;
        // Each step is one millisecond, from 2020-09-13T12:26:40Z on.
        Timestamp {
            secs: 1_600_000_000 + self.ticks / 1000,
            nanos: u32::try_from(self.ticks % 1000).unwrap_or(0) * 1_000_000,
        }
    }

    pub(super) fn cred<'a>(&self, who: &'a Identity) -> Cred<'a> {
        match who {
            Identity::Service => {
                let (uid, gid) = self.options.service;
                Cred {
                    uid,
                    gid,
                    groups: &[],
                }
            }
            Identity::User(user) => Cred {
                uid: user.uid,
                gid: user.gid,
                groups: &user.groups,
            },
        }
    }

    pub(super) fn node(&self, ino: u64) -> DiskResult<&Inode> {
        self.live.get(ino).ok_or(Errno(libc::ESTALE))
    }

    pub(super) fn node_mut(&mut self, ino: u64) -> DiskResult<&mut Inode> {
        self.live.get_mut(ino).ok_or(Errno(libc::ESTALE))
    }

    pub(super) fn dir(&self, ino: u64) -> DiskResult<&Inode> {
        let node = self.node(ino)?;
        err_if(!node.is_dir(), libc::ENOTDIR)?;
        Ok(node)
    }

    pub(super) fn step(&mut self) {
        self.group += 1;
    }

    pub(super) fn change(&mut self, ino: u64, edit: Edit) {
        let effect = Effect { ino, edit };
        let delta = self.live.apply(&effect);
        self.used = self.used.saturating_add_signed(delta);
        self.durable.push(self.group, effect);
    }

    pub(super) fn touch(&mut self, ino: u64, written: bool) {
        let now = self.now();
        if let Some(node) = self.live.get_mut(ino) {
            node.changed = now;
            if written {
                node.written = now;
            }
        }
    }

    pub(super) fn room(&self, blocks: u64) -> DiskResult<()> {
        let used = self.used.saturating_add(blocks);
        err_if(used > self.options.capacity_blocks, libc::ENOSPC)
    }

    pub(super) fn fault(&mut self, on: SimOp) -> DiskResult<bool> {
        self.operations += 1;
        match self.faults.hit(on) {
            None => Ok(false),
            Some(FaultAction::Short) => Ok(true),
            Some(FaultAction::Fail(errno)) => err(errno),
        }
    }

    // ---- descriptors ----

    pub(super) fn hold(&mut self, ino: u64, name: Option<OpenName>) -> u64 {
        let serial = self.next_open;
        self.next_open += 1;
        let reported = self
            .errors
            .get(&ino)
            .map_or(0, |e| e.count - u64::from(!e.is_reported));
        let reported_all = self.all_errors.0;
        let open = OpenFile {
            ino,
            name,
            reported,
            reported_all,
        };
        self.opens.insert(serial, open);
        serial
    }

    pub(super) fn release(&mut self, serial: u64) {
        if let Some(open) = self.opens.remove(&serial) {
            self.forget(open.ino);
        }
    }

    /// Frees an inode that neither a name nor a descriptor holds.
    pub(super) fn forget(&mut self, ino: u64) {
        let gone = self.live.get(ino).is_some_and(|n| n.links == 0)
            && !self.opens.values().any(|o| o.ino == ino);
        if !gone {
            return;
        }
        if let Some(node) = self.live.inodes.remove(&ino) {
            self.used = self.used.saturating_sub(1 + node.blocks.len() as u64);
        }
        self.errors.remove(&ino);
        self.durable.sweep(&self.live);
    }

    // ---- syncs ----

    pub(super) fn sync(&mut self, serial: u64, ino: u64, scope: Scope) -> DiskResult<()> {
        self.syncs += 1;
        if let Err(Errno(errno)) = self.fault(SimOp::Sync) {
            self.lose(ino, errno);
        }
        self.take_error(serial, ino)?;
        self.durable.sync(ino, scope);
        if scope == Scope::All {
            self.keep_times(ino);
        }
        Ok(())
    }

    /// Makes the times durable that changes have set. They are no effects of their own: only a full sync of the inode
    /// makes them durable, although a real file system may do more.
    fn keep_times(&mut self, ino: u64) {
        if self.durable.tracks()
            && let (Some(live), Some(kept)) = (self.live.get(ino), self.durable.image.get_mut(ino))
        {
            (kept.accessed, kept.written, kept.changed) =
                (live.accessed, live.written, live.changed);
        }
    }

    /// Adds all times that changes have set to `image`, as if they had been written back.
    pub(super) fn add_times(&self, image: &mut Image) {
        for (ino, live) in &self.live.inodes {
            if let Some(kept) = image.get_mut(*ino) {
                (kept.accessed, kept.written, kept.changed) =
                    (live.accessed, live.written, live.changed);
            }
        }
    }

    /// Writes back all waiting effects.
    pub(super) fn sync_all(&mut self) {
        self.durable.sync_all();
        let all: Vec<u64> = self.live.inodes.keys().copied().collect();
        all.into_iter().for_each(|ino| self.keep_times(ino));
    }

    /// `syncfs`: returns the failures of any inode since the descriptor was opened or last used for this. A fault hits
    /// the inode that has waited longest, which `lost` is then.
    pub(super) fn sync_fs(&mut self, serial: u64, lost: &mut Option<u64>) -> DiskResult<()> {
        self.syncs += 1;
        if let Err(Errno(errno)) = self.fault(SimOp::Sync) {
            *lost = self.durable.first_dirty();
            match *lost {
                Some(ino) => self.lose(ino, errno),
                None => self.all_errors = (self.all_errors.0 + 1, errno),
            }
        }
        self.sync_all();
        let (count, errno) = self.all_errors;
        match self.opens.get_mut(&serial) {
            Some(open) if open.reported_all != count => {
                open.reported_all = count;
                err(errno)
            }
            _ => Ok(()),
        }
    }

    /// Lets a write-back of `ino` fail: its waiting effects are lost by chance and counted clean.
    pub(super) fn lose(&mut self, ino: u64, errno: i32) {
        self.durable.lose(ino, &mut self.rng);
        self.all_errors = (self.all_errors.0 + 1, errno);
        let error = self.errors.entry(ino).or_default();
        *error = WriteBackError {
            count: error.count + 1,
            errno,
            is_reported: false,
        };
    }

    /// Marks the last write-back error of an inode as reported to another descriptor.
    pub(super) fn reported_elsewhere(&mut self, ino: u64) {
        if let Some(error) = self.errors.get_mut(&ino) {
            error.is_reported = true;
        }
    }

    /// Returns a write-back error once to each descriptor that was open at that time (`errseq_check_and_advance`).
    fn take_error(&mut self, serial: u64, ino: u64) -> DiskResult<()> {
        let (Some(error), Some(open)) = (self.errors.get_mut(&ino), self.opens.get_mut(&serial))
        else {
            return Ok(());
        };
        if open.reported == error.count {
            return Ok(());
        }
        open.reported = error.count;
        error.is_reported = true;
        err(error.errno)
    }
}
