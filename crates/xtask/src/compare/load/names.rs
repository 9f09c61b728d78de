//! What names cost: open, create, stat, rename, delete, list, small files.

use std::time::Instant;

use smb_client::{CreateArgs, Tree};
use smb_wire::{access_mask::AccessMask, fscc::FileInformationClass, msg::WriteFlags};

use super::{Context, Done, Protection, Ready, connect, field, folder, micros, names_in};
use crate::Failure;

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

pub(super) fn ready(kind: Kind, context: &Context<'_>) -> Result<Ready, Failure> {
    let operations = context.sizes.operations;
    let tree = connect(context.access, Protection::Plain)?;
    field(&tree)?.close()?;
    folder(&tree, "names")?;
    folder(&tree, "listed")?;
    let there = names_in(&tree, "listed")?.len();
    for number in there..LISTED {
        tree.write_file(&format!("listed\\entry-{number:04}"), &[])?;
    }
    Ok(Ready::new(move || {
        let mut latencies = Vec::new();
        let turns = match kind {
            Kind::OpenClose => operations / 4,
            Kind::CreateRemove => operations / 8,
            Kind::Mix | Kind::SmallFiles => operations / 20,
        };
        for number in 0..turns {
            turn(kind, &tree, number, &mut latencies)?;
        }
        let units = if kind == Kind::Mix {
            turns * MIX
        } else {
            turns
        };
        Ok(Done::new(units as f64).latencies(latencies).keep(tree))
    }))
}

fn turn(kind: Kind, tree: &Tree, number: u64, latencies: &mut Vec<u32>) -> Result<(), Failure> {
    let begun = Instant::now();
    match kind {
        Kind::OpenClose => {
            let open = CreateArgs::open("field").access(AccessMask::FILE_GENERIC_READ);
            tree.create(&open)?.close()?;
        }
        Kind::CreateRemove => {
            tree.create(&CreateArgs::create("names\\a new file"))?
                .close()?;
            tree.delete("names\\a new file")?;
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
