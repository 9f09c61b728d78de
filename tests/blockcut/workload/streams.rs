//! Named streams that are removed or renamed, and files that are overwritten with all their streams and extended
//! attributes.

use smb_client::CreateArgs;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::msg::{CreateDisposition, CreateOptions};

use super::{Client, size_of, wire};
use crate::record::{BIG, Cell, Contents, DATA, Fork, Kind, Promise, SMALL, STREAMS, Value};

impl Client<'_> {
    /// Removes a stream by its last close.
    pub(super) fn delete_stream(&mut self, at: usize) -> Option<()> {
        let held = [SMALL, BIG].into_iter().find(|fork| self.holds(at, *fork));
        let Some(fork) = held else { return Some(()) };
        let through = self.rng.percent(30);
        let mut options = CreateOptions::DELETE_ON_CLOSE;
        if through {
            options |= CreateOptions::WRITE_THROUGH;
        }
        let args = CreateArgs::open(&self.stream_name(at, fork)).options(options);
        let promise = self.promise(self.files[at].object, through);
        let effects = self.emptied(at, fork);
        let tree = self.tree;
        self.act(Kind::DeleteStream, effects, promise, || {
            tree.create(&args)?.close()
        })
    }

    /// FileRenameInformation ([MS-FSCC] 2.4.42) of a stream; the new name is not in use.
    pub(super) fn rename_stream(&mut self, at: usize) -> Option<()> {
        if !self.holds(at, SMALL) || self.holds(at, BIG) {
            return Some(());
        }
        let args = CreateArgs::open(&self.stream_name(at, SMALL));
        let handle = self.quietly(|tree| tree.create(&args))?;
        let contents = self.files[at].forks[usize::from(SMALL)].clone();
        let mut effects = self.emptied(at, SMALL);
        effects.extend(self.put(at, BIG, 0, &contents));
        self.source = Some(self.files[at].object);
        let to = format!(":{}", STREAMS[usize::from(BIG)]);
        self.act(Kind::RenameStream, effects, Promise::Nothing, || {
            handle.rename(&to, false)
        })?;
        self.quietly(|_| handle.close())
    }

    /// CREATE with OVERWRITE_IF or SUPERSEDE: the contents, the other streams and the extended attributes go
    /// ([MS-FSA] 2.1.5.1.2.1). The file keeps the attributes without which the request is refused.
    pub(super) fn overwrite(&mut self, at: usize) -> Option<()> {
        self.close(at)?;
        let disposition = match self.rng.percent(50) {
            true => CreateDisposition::OVERWRITE_IF,
            false => CreateDisposition::SUPERSEDE,
        };
        let file = &self.files[at];
        let (object, kept) = (file.object, file.attributes);
        let (hidden, system) = (FileAttributes::HIDDEN, FileAttributes::SYSTEM);
        let attributes = [hidden, system].map(|one| one.when(kept & one.bits() != 0));
        let mut args = CreateArgs::new(&wire(&file.path), disposition)
            .attributes(attributes[0] | attributes[1]);
        let through = self.rng.percent(20);
        if through {
            args = args.options(CreateOptions::WRITE_THROUGH);
        }
        let mut effects = Vec::new();
        for fork in [DATA, SMALL, BIG] {
            effects.extend(self.emptied(at, fork));
        }
        effects.extend([Cell::Ea(object), Cell::Mark(object)].map(|cell| (cell, Value::Mark(0))));
        effects.push((Cell::Attributes(object), Value::Attributes(kept)));
        effects.extend(self.written(object));
        let promise = self.promise(object, through);
        let tree = self.tree;
        let handle = self.act(Kind::Overwrite, effects, promise, || tree.create(&args))?;
        self.files[at].handle = Some(handle);
        self.files[at].through = through;
        self.files[at].mixed = false;
        match self.rng.percent(60) {
            true => self.write(at),
            false => Some(()),
        }
    }

    fn holds(&self, at: usize, fork: Fork) -> bool {
        !self.files[at].forks[usize::from(fork)].is_empty()
    }

    fn stream_name(&self, at: usize, fork: Fork) -> String {
        let path = wire(&self.files[at].path);
        format!("{path}:{}", STREAMS[usize::from(fork)])
    }

    /// Takes everything from a fork as the client knows it; the cells that change.
    fn emptied(&mut self, at: usize, fork: Fork) -> Vec<(Cell, Value)> {
        let object = self.files[at].object;
        let known = std::mem::take(&mut self.files[at].forks[usize::from(fork)]);
        if known.is_empty() && fork != DATA {
            return Vec::new();
        }
        let mut effects = vec![(Cell::Size(object, fork), size_of(&[]))];
        let zero = Value::Contents(Contents::Zero);
        let unit = |unit| (Cell::Unit(object, fork, unit), zero.clone());
        effects.extend((0..known.len() as u32).map(unit));
        effects
    }
}
