//! SETATTR: one call of the kernel for the size, the mode, the owner and the times of an inode.

use std::time::SystemTime;

use fuser::{FileAttr, TimeOrNow};
use vfs::{Disk, Identity, IoAccess, Timestamp, disk::DiskResult};

use super::answers::attr;
use crate::{
    kind::Kind,
    world::{World, now, time},
};

/// The request of a SETATTR.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) handle: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) mode: Option<u32>,
    pub(super) owner: (Option<u32>, Option<u32>),
    pub(super) times: (Option<Timestamp>, Option<Timestamp>),
}

impl Wanted {
    pub(super) fn kind(&self) -> Kind {
        if self.size.is_some() {
            Kind::Truncate
        } else if self.mode.is_some() || self.owner != (None, None) {
            Kind::Setattr
        } else {
            Kind::Utimens
        }
    }

    pub(super) fn apply(&self, world: &mut World, id: u64) -> DiskResult<FileAttr> {
        let fd = world.fd(id)?;
        let me = &Identity::Service;
        if let Some(size) = self.size {
            let held = self.handle.map(|h| world.handle(h).map(|h| h.fd.clone()));
            let file = match held.transpose()? {
                Some(file) => file,
                None => now(world.disk().reopen(me, &fd, IoAccess::WRITE))?,
            };
            now(world.disk().truncate(&file, size))?;
        }
        let disk = world.disk();
        if let Some(mode) = self.mode {
            now(disk.set_mode(me, &fd, mode & 0o7777))?;
        }
        if self.owner != (None, None) {
            now(disk.set_owner(me, &fd, self.owner.0, self.owner.1))?;
        }
        if self.times != (None, None) {
            now(disk.set_times(me, &fd, self.times.0, self.times.1))?;
        }
        let stat = world.stat(id)?;
        Ok(attr(world, &stat))
    }
}

pub(super) fn when(at: Option<TimeOrNow>) -> Option<Timestamp> {
    at.map(|at| match at {
        TimeOrNow::SpecificTime(at) => time(at),
        TimeOrNow::Now => time(SystemTime::now()),
    })
}
