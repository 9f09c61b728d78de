//! The cost of names: open, create, stat, rename, delete, list, small files.

use std::time::Instant;

use smb_client::{CreateArgs, Tree};
use smb_wire::{access_mask::AccessMask, fscc::FileInformationClass, msg::WriteFlags};

use super::{Context, Done, Protection, Ready, at_once, connect, field, folder, micros, names_in};
use crate::{Failure, compare::limit::Turn};

/// Entries of the folder that is listed.
const LISTED: usize = 100;
/// Operations of one turn of the mix: create, stat, rename, list, delete.
const MIX: u64 = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    OpenClose,
    /// Create, close, delete: one unit.
    CreateRemove,
    /// Create, stat, rename, list, delete: five units.
    Mix,
    /// Create, write 4 KiB, close; open, read, close; delete: one unit.
    SmallFiles,
}

impl Kind {
    /// How often it is done by each of so many clients.
    pub(super) fn turns(self, operations: u64, clients: usize) -> u64 {
        let by_all = match self {
            Self::OpenClose => operations / 4,
            Self::CreateRemove => operations / 8,
            Self::Mix | Self::SmallFiles => operations / 20,
        };
        by_all.div_ceil(clients.max(1) as u64)
    }

    pub(super) fn limit(self) -> Turn {
        match self {
            Self::OpenClose => Turn::OpenClose,
            Self::CreateRemove => Turn::CreateRemove,
            Self::Mix => Turn::Mix,
            Self::SmallFiles => Turn::SmallFiles,
        }
    }

    fn units(self) -> u64 {
        if self == Self::Mix { MIX } else { 1 }
    }
}

/// `clients` at once, each with a connection, a thread and names of its own.
pub(super) fn ready(kind: Kind, clients: usize, context: &Context<'_>) -> Result<Ready, Failure> {
    let turns = kind.turns(context.sizes.operations, clients);
    let connect = |_| connect(context.access, Protection::Plain);
    let mut trees: Vec<Tree> = (0..clients).map(connect).collect::<Result<_, _>>()?;
    prepare(&trees[0])?;
    Ok(Ready::new(move || {
        let latencies = at_once(&mut trees, |client, tree| {
            all_turns(kind, tree, client, turns)
        })?;
        let units = turns * kind.units() * trees.len() as u64;
        Ok(Done::new(units as f64).latencies(latencies).keep(trees))
    }))
}

/// The file that is opened, and the folder that is listed.
fn prepare(tree: &Tree) -> Result<(), Failure> {
    field(tree)?.close()?;
    folder(tree, "names")?;
    folder(tree, "listed")?;
    let there = names_in(tree, "listed")?.len();
    for number in there..LISTED {
        tree.write_file(&format!("listed\\entry-{number:04}"), &[])?;
    }
    Ok(())
}

fn all_turns(kind: Kind, tree: &Tree, client: usize, turns: u64) -> Result<Vec<u32>, Failure> {
    let mut latencies = Vec::new();
    for number in 0..turns {
        turn(kind, tree, client as u64 * turns + number, &mut latencies)?;
    }
    Ok(latencies)
}

fn turn(kind: Kind, tree: &Tree, number: u64, latencies: &mut Vec<u32>) -> Result<(), Failure> {
    let begun = Instant::now();
    match kind {
        Kind::OpenClose => {
            let open = CreateArgs::open("field").access(AccessMask::FILE_GENERIC_READ);
            tree.create(&open)?.close()?;
        }
        Kind::CreateRemove => {
            let name = format!("names\\new-{number:06}");
            tree.create(&CreateArgs::create(&name))?.close()?;
            tree.delete(&name)?;
        }
        Kind::SmallFiles => small(tree, &format!("names\\small-{number:06}"))?,
        Kind::Mix => return mix(tree, number, latencies),
    }
    latencies.push(micros(begun));
    Ok(())
}

fn small(tree: &Tree, name: &str) -> Result<(), Failure> {
    let file = tree.create(&CreateArgs::create(name))?;
    file.write(0, &[5; 4096], WriteFlags::empty())?;
    file.close()?;
    let file = tree.create(&CreateArgs::open(name).access(AccessMask::FILE_GENERIC_READ))?;
    file.read(0, 4096)?;
    file.close()?;
    Ok(tree.delete(name)?)
}

fn mix(tree: &Tree, number: u64, latencies: &mut Vec<u32>) -> Result<(), Failure> {
    let (from, to) = (
        format!("names\\from-{number:06}"),
        format!("names\\to-{number:06}"),
    );
    let mut timed = |work: &mut dyn FnMut() -> Result<(), Failure>| {
        let begun = Instant::now();
        work()?;
        latencies.push(micros(begun));
        Ok::<(), Failure>(())
    };
    timed(&mut || Ok(tree.create(&CreateArgs::create(&from))?.close()?))?;
    timed(&mut || {
        let stat = CreateArgs::open(&from).access(AccessMask::FILE_READ_ATTRIBUTES);
        let file = tree.create(&stat)?;
        file.query(FileInformationClass::NETWORK_OPEN)?;
        Ok(file.close()?)
    })?;
    timed(&mut || Ok(tree.rename(&from, &to, false)?))?;
    timed(&mut || {
        let found = tree.list("listed", "*")?.len();
        if found < LISTED {
            return Err(format!("{found} entries of {LISTED}").into());
        }
        Ok(())
    })?;
    timed(&mut || Ok(tree.delete(&to)?))
}
