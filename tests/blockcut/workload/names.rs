//! Requests that change names: files are renamed, replaced and deleted, directories made, moved and flushed.

use smb_client::{CreateArgs, File};
use smb_wire::access_mask::AccessMask;
use smb_wire::msg::{CreateDisposition, CreateOptions};

use super::{Client, Directory, wire};
use crate::record::{Cell, Kind, Promise, Value};

const DIRECTORIES_MAX: usize = 6;

impl Client<'_> {
    pub(super) fn rename(&mut self, at: usize) -> Option<()> {
        let handle = self.opened(at)?;
        let directory = self.rng.below(self.directories.len());
        let object = self.files[at].object;
        let promise = self.promise(object, self.files[at].through);
        let name = self.object();
        let path = format!("{}/r{name}", self.directories[directory].path);
        self.files[at].path.clone_from(&path);
        let effects = vec![(Cell::Name(object), Value::Path(path.clone()))];
        self.act(Kind::Rename, effects, promise, || {
            handle.rename(&wire(&path), false)
        })
    }

    /// Moves a directory with all that is below, between directories or not.
    pub(super) fn rename_directory(&mut self) {
        let (at, above) = (
            self.rng.below(self.directories.len()),
            self.rng.below(self.directories.len()),
        );
        let old = self.directories[at].path.clone();
        let below = |path: &str| path.strip_prefix(old.as_str()).map(str::to_owned);
        let below = |path: &str| below(path).filter(|rest| rest.starts_with('/'));
        // The first one is the client's own, and none moves below itself.
        let target = self.directories[above].path.clone();
        if at == 0 || at == above || below(&target).is_some() {
            return;
        }
        let new = format!("{target}/d{}", self.object());
        for file in 0..self.files.len() {
            if below(&self.files[file].path).is_some() && self.close(file).is_none() {
                return;
            }
        }
        let mut effects = vec![(
            Cell::Name(self.directories[at].object),
            Value::Path(new.clone()),
        )];
        self.directories[at].path.clone_from(&new);
        let directories = self.directories.iter_mut().map(|d| (d.object, &mut d.path));
        let files = self.files.iter_mut().map(|f| (f.object, &mut f.path));
        let links = self.links.iter_mut().map(|l| (l.object, &mut l.path));
        for (object, path) in directories.chain(files).chain(links) {
            if let Some(rest) = below(path) {
                *path = format!("{new}{rest}");
                effects.push((Cell::Name(object), Value::Path(path.clone())));
            }
        }
        // Through any open, it is stable before its answer (docs/durability.md, Renames).
        let promise = self.promise(self.directories[at].object, true);
        let tree = self.tree;
        let done = self.act(Kind::RenameDirectory, effects, promise, || {
            tree.rename(&wire(&old), &wire(&new), false)
        });
        if done.is_none() {
            // Nobody knows where it is, and what is below.
            let lost = |path: &str| path == new || path.starts_with(&format!("{new}/"));
            self.directories.retain(|d| !lost(&d.path));
            self.files.retain(|f| !lost(&f.path));
            self.links.retain(|l| !lost(&l.path));
        }
    }

    pub(super) fn replace(&mut self) {
        if self.files.len() < 2 {
            return self.create();
        }
        let (at, over) = (
            self.rng.below(self.files.len()),
            self.rng.below(self.files.len()),
        );
        if at == over || self.files[at].mixed || self.files[over].mixed {
            return;
        }
        let (Some(handle), Some(())) = (self.opened(at), self.close(over)) else {
            return;
        };
        // Most programs make the new contents stable first; some do not.
        if self.rng.percent(60) && self.flush(at).is_none() {
            return;
        }
        let path = self.files[over].path.clone();
        let promise = self.promise(self.files[at].object, self.files[at].through);
        let effects = vec![
            (Cell::Name(self.files[at].object), Value::Path(path.clone())),
            (Cell::Name(self.files[over].object), Value::Gone),
        ];
        let done = self.act(Kind::Replace, effects, promise, || {
            handle.rename(&wire(&path), true)
        });
        self.files[at].path = path;
        if done.is_none() {
            self.files[at].mixed = true;
        } else if self.rng.percent(60) {
            let _ = self.flush(at);
        }
        self.files.swap_remove(over);
    }

    pub(super) fn delete(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let at = self.rng.below(self.files.len());
        let closed = self.close(at);
        let file = self.files.swap_remove(at);
        if closed.is_none() {
            return;
        }
        let effects = vec![(Cell::Name(file.object), Value::Gone)];
        // It is deleted through an open like its last one.
        let mut args = CreateArgs::open(&wire(&file.path))
            .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
            .options(CreateOptions::DELETE_ON_CLOSE);
        if file.through {
            args = args.options(CreateOptions::WRITE_THROUGH);
        }
        // The last close removes it, which need not be that of the open that asked for it.
        let others = if self.rng.percent(30) { 2 } else { 0 };
        let other = CreateArgs::open(&wire(&file.path));
        let others = (0..others).map(|_| self.quietly(|tree| tree.create(&other)));
        let Some(others) = others.collect::<Option<Vec<_>>>() else {
            return;
        };
        let (tree, promise) = (self.tree, self.promise(file.object, file.through));
        let done = self.act(Kind::Delete, effects, promise, || {
            tree.create(&args)?.close()?;
            others.iter().try_for_each(File::close)
        });
        let here = |d: &Directory| {
            file.path
                .rsplit_once('/')
                .is_some_and(|(d0, _)| d0 == d.path)
        };
        let directory = self.directories.iter().position(here);
        if let (Some(()), Some(directory), true) = (done, directory, self.rng.percent(40)) {
            self.flush_directory(directory);
        }
    }

    pub(super) fn make_directory(&mut self, above: Option<usize>) -> Option<()> {
        if self.directories.len() >= DIRECTORIES_MAX {
            return Some(());
        }
        let object = self.object();
        let path = match above {
            Some(above) => format!("{}/d{object}", self.directories[above].path),
            None => format!("c{}", self.number),
        };
        let effects = vec![(Cell::Name(object), Value::Path(path.clone()))];
        let tree = self.tree;
        let args = CreateArgs::create_directory(&wire(&path));
        let handle = self.act(Kind::Mkdir, effects, Promise::Nothing, || {
            tree.create(&args)
        })?;
        self.directories.push(Directory { object, path });
        if self.rng.percent(50) {
            let promise = Promise::Directory(object);
            self.act(Kind::FlushDirectory, Vec::new(), promise, || {
                handle.flush(false)
            })?;
        }
        self.quietly(|_| handle.close())
    }

    pub(super) fn flush_directory(&mut self, at: usize) {
        let directory = &self.directories[at];
        let (path, promise) = (directory.path.clone(), Promise::Directory(directory.object));
        self.flush_folder(&path, Kind::FlushDirectory, promise);
    }

    pub(super) fn flush_folder(&mut self, path: &str, kind: Kind, promise: Promise) {
        let args = CreateArgs::new(&wire(path), CreateDisposition::OPEN)
            .access(AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE)
            .options(CreateOptions::DIRECTORY_FILE);
        if let Some(handle) = self.quietly(|tree| tree.create(&args)) {
            let _ = self.act(kind, Vec::new(), promise, || handle.flush(false));
            let _ = self.quietly(|_| handle.close());
        }
    }
}
