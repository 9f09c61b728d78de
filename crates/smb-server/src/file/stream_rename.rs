//! The rename of a named stream ([MS-FSA] 2.1.5.15.12.1): the engine's entry of the stream follows its name, with the
//! share modes, locks, caching and the mark for deletion in it.
//!
//! Both names are reserved while the rename is under way: an open of the stream by either waits, as the object store of
//! [MS-FSA] carries out one operation after the other. Only a stream that no other handle has open is renamed, because
//! the other handle would still have the old name.

use smb_wire::Status;

use super::{
    files::Files,
    inode::Inode,
    types::{Effects, OpenId, Place, Step, StreamName, Waiter},
};

/// A rename of a stream that is under way. When it is dropped, the stream keeps its old name.
pub struct StreamRename<'a> {
    files: &'a Files,
    open: OpenId,
    to: Place,
    /// Wakes the requests that have waited for it.
    perform: Box<dyn Fn(Effects) + 'a>,
}

impl StreamRename<'_> {
    /// Called when the stream has its new name on disk. Returns the place of the stream from now on.
    pub fn done(self) -> Place {
        // A request that looked the old name up before looks again.
        self.files.name_gone(self.to.key);
        self.files.with(self.to.key, |inode| {
            let open = inode.opens.get_mut(&self.open)?;
            let mut stream = inode.streams.remove(&open.stream)?;
            stream.renaming = false;
            inode.streams.insert(self.to.stream.clone(), stream);
            let from = Place {
                key: self.to.key,
                stream: std::mem::replace(&mut open.stream, self.to.stream.clone()),
            };
            self.files.each_lease(inode, |_, bound| {
                bound.stream_renamed(&from, &self.to);
            });
            Some(())
        });
        let mut paths = self.files.paths.lock();
        paths.set_place(self.open, self.to.clone());
        self.to.clone()
    }
}

impl Drop for StreamRename<'_> {
    fn drop(&mut self) {
        let mut effects = Effects::default();
        self.files.with(self.to.key, |inode| {
            // After a rename that was carried out there is nothing left to release.
            if inode.is_reserved(&self.to.stream) {
                inode.streams.remove(&self.to.stream);
            }
            if let Some((stream, _)) = inode.stream_of(self.open) {
                stream.renaming = false;
            }
            inode.wake_all(&mut effects);
        });
        (self.perform)(effects);
    }
}

impl Files {
    /// Reserves the old and the new name of the stream of `open` for a rename. The caller must first call
    /// [`Files::operation`] with [`super::Operation::Rename`].
    ///
    /// # Errors
    /// SHARING_VIOLATION if another handle has the stream open, a break of its caching is under way, or another rename
    /// of it is; INVALID_PARAMETER if the new name is in use; FILE_CLOSED for an unknown open.
    pub fn rename_stream<'a>(
        &'a self,
        open: OpenId,
        to: Place,
        perform: impl Fn(Effects) + 'a,
    ) -> Result<StreamRename<'a>, Status> {
        self.with_inode(to.key, false, |inode| {
            Status::INVALID_PARAMETER.when(inode.streams.contains_key(&to.stream))?;
            let name = inode.open_mut(open).ok_or(Status::FILE_CLOSED)?;
            let name = name.stream.clone();
            let opens = inode.opens.values().filter(|open| open.stream == name);
            let alone = opens.count() == 1;
            let stream = inode.stream(&name).ok_or(Status::FILE_CLOSED)?;
            let mut holders = stream.holders.iter();
            if !alone || stream.renaming || holders.any(|holder| holder.breaking.is_some()) {
                return Err(Status::SHARING_VIOLATION);
            }
            stream.renaming = true;
            inode.streams.or_default(&to.stream).renaming = true;
            Ok(())
        })
        .ok_or(Status::FILE_CLOSED)??;
        Ok(StreamRename {
            files: self,
            open,
            to,
            perform: Box::new(perform),
        })
    }

    /// With `Step::Wait`, `waiter` is woken at the end of the rename for which the name of the stream is reserved.
    pub fn after_stream_rename(&self, place: &Place, waiter: Waiter) -> Step {
        self.with(place.key, |inode| match inode.is_reserved(&place.stream) {
            false => Step::Go,
            true if inode.park(waiter) => Step::Wait,
            true => Step::Refused(Status::INSUFFICIENT_RESOURCES),
        })
    }
}

impl Inode {
    /// Whether a rename under way has reserved the name of the stream.
    pub(super) fn is_reserved(&self, name: &StreamName) -> bool {
        self.streams.get(name).is_some_and(|stream| stream.renaming)
    }
}
