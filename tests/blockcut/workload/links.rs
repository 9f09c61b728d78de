//! Further names of files (hard links), which come and go while the file keeps its own.

use bytes::BytesMut;
use smb_client::CreateArgs;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{FileInformationClass, FileLinkInformation};
use smb_wire::msg::CreateOptions;

use super::{Client, wire};
use crate::record::{Cell, Kind, Object, Value};

/// Most further names of one client's files.
const LINKS_MAX: usize = 12;

/// A further name of a file. It counts as an object of its own that has nothing but a name.
pub(super) struct Link {
    pub(super) object: Object,
    pub(super) path: String,
    of: Object,
}

impl Client<'_> {
    /// FileLinkInformation ([MS-FSCC] 2.4.28): the file gets another name, which may be that of another file.
    pub(super) fn link(&mut self) -> Option<()> {
        if self.files.is_empty() || self.links.len() >= LINKS_MAX {
            self.unlink();
            return None;
        }
        let at = self.rng.below(self.files.len());
        let handle = self.opened(at)?;
        let of = self.files[at].object;
        let object = self.object();
        let promise = self.promise(object, self.files[at].through);
        let over = self.rng.below(self.files.len());
        let replaces = self.rng.percent(30) && over != at && !self.files[over].mixed;
        let directory = self.rng.below(self.directories.len());
        let mut path = format!("{}/l{object}", self.directories[directory].path);
        let mut gone = None;
        if replaces {
            self.close(over)?;
            path.clone_from(&self.files[over].path);
            gone = Some((Cell::Name(self.files[over].object), Value::Gone));
        }
        let mut effects = vec![(Cell::Name(object), Value::Path(path.clone()))];
        effects.extend(gone);
        let mut input = BytesMut::new();
        FileLinkInformation {
            replace_if_exists: replaces,
            root_directory: 0,
            file_name: wire(&path),
        }
        .encode(&mut input);
        self.world.recorder.link(object, of);
        let kind = if replaces { Kind::LinkOver } else { Kind::Link };
        let done = self.act(kind, effects, promise, || {
            handle.set(FileInformationClass::LINK, &input)
        });
        if replaces {
            let over = self.files[over].object;
            self.files.retain(|file| file.object != over);
        }
        done?;
        self.links.push(Link { object, path, of });
        if self.rng.percent(40)
            && let Some(at) = self.files.iter().position(|file| file.object == of)
        {
            self.flush(at)?;
        }
        Some(())
    }

    /// Takes one of several names away.
    pub(super) fn unlink(&mut self) {
        if self.links.is_empty() {
            return;
        }
        let at = self.rng.below(self.links.len());
        let link = self.links.swap_remove(at);
        // A file that is to be deleted is, by whichever name it was opened.
        let file = self.files.iter().position(|file| file.object == link.of);
        if file.is_some_and(|file| self.close(file).is_none()) {
            return;
        }
        let through = self.rng.percent(20);
        let mut options = CreateOptions::DELETE_ON_CLOSE;
        if through {
            options |= CreateOptions::WRITE_THROUGH;
        }
        let args = CreateArgs::open(&wire(&link.path))
            .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
            .options(options);
        let effects = vec![(Cell::Name(link.object), Value::Gone)];
        let (tree, promise) = (self.tree, self.promise(link.object, through));
        let _ = self.act(Kind::Delete, effects, promise, || {
            tree.create(&args)?.close()
        });
    }
}
