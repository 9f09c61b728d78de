//! Changes that another program of the machine makes to the files of a client, which then overwrites and flushes them
//! through the server.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use smb_client::ClientError;

use super::{Client, FILES_MAX, Owned, bytes_of};
use crate::record::{Cell, DATA, Kind, MARK, Promise, Value};

impl Client<'_> {
    /// Something behind the server's back, to a file that a client then overwrites and flushes.
    pub(super) fn host(&mut self) {
        if self.files.is_empty() || self.rng.percent(30) {
            return self.host_creates();
        }
        let at = self.rng.below(self.files.len());
        // A handle that is open already finds the file elsewhere, or has flushed it before.
        let open = self.rng.percent(50);
        let ready = if open {
            self.opened(at).map(drop)
        } else {
            self.close(at)
        };
        let done = ready.and_then(|()| {
            if self.rng.percent(60) {
                self.host_moves(at)
            } else {
                self.host_marks(at)
            }
        });
        self.overwritten(at, done);
    }

    /// After a change by the host; no more is done through a handle that does not know of it.
    fn overwritten(&mut self, at: usize, done: Option<()>) {
        let done = done.and_then(|()| match self.rng.percent(80) {
            true => self.write(at).and_then(|()| self.flush(at)),
            false => self.flush(at),
        });
        let closed = done.and_then(|()| self.close(at));
        if closed.is_none() {
            self.files.swap_remove(at);
        }
    }

    fn host_moves(&mut self, at: usize) -> Option<()> {
        let directory = self.rng.below(self.directories.len());
        let (object, name) = (self.files[at].object, self.object());
        let path = format!("{}/h{name}", self.directories[directory].path);
        let root = self.world.root;
        let (from, to) = (root.join(&self.files[at].path), root.join(&path));
        let effects = vec![(Cell::Name(object), Value::Path(path.clone()))];
        self.files[at].path = path;
        self.act(Kind::HostMove, effects, Promise::Nothing, || {
            std::fs::rename(&from, &to).map_err(ClientError::Io)
        })
    }

    fn host_marks(&mut self, at: usize) -> Option<()> {
        self.version += 1;
        let (object, mark) = (self.files[at].object, self.version);
        let file = self.world.root.join(&self.files[at].path);
        let effects = vec![(Cell::Mark(object), Value::Mark(mark))];
        self.act(Kind::HostMark, effects, Promise::Nothing, || {
            let mode = std::fs::Permissions::from_mode(0o660 + mark % 8);
            std::fs::set_permissions(&file, mode).map_err(ClientError::Io)?;
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::lsetxattr(&file, MARK, &mark.to_le_bytes(), flags)
                .map_err(|error| ClientError::Io(error.into()))
        })
    }

    fn host_creates(&mut self) {
        if self.files.len() >= FILES_MAX {
            return self.delete();
        }
        let directory = self.rng.below(self.directories.len());
        let object = self.object();
        let path = format!("{}/h{object}", self.directories[directory].path);
        let file = self.world.root.join(&path);
        self.files.push(Owned {
            object,
            path: path.clone(),
            handle: None,
            through: false,
            forks: Default::default(),
            attributes: 0,
            mixed: false,
            sparse: false,
        });
        let at = self.files.len() - 1;
        let count = 1 + self.rng.below(8);
        let contents = self.fill(object, DATA, 0, count);
        let mut effects = vec![(Cell::Name(object), Value::Path(path))];
        effects.extend(self.put(at, DATA, 0, &contents));
        let data = bytes_of(&contents);
        let done = self.act(Kind::HostCreate, effects, Promise::Nothing, || {
            std::fs::write(&file, &data).map_err(ClientError::Io)
        });
        if let Ok(meta) = std::fs::metadata(&file) {
            self.world.recorder.identify(object, meta.ino());
        }
        self.overwritten(at, done);
    }
}
