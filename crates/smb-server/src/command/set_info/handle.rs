//! Classes that reach no disk. The position, the mode and the state of a pipe belong to the handle alone ([MS-FSA]
//! 2.1.5.15.8, 2.1.5.15.10). Short names and valid data lengths need privileges which no user of this server has
//! (2.1.5.15.14, 2.1.5.15.15); such a request is refused for its own faults first, as the text orders it, so that a
//! client can distinguish those.

use durability::Unchanged;
use smb_wire::{
    access_mask::AccessMask,
    fscc::{
        FileModeInformation, FileNameInformation, FilePipeInformation, FilePositionInformation,
    },
    msg::CreateOptions,
    status::Status,
};
use vfs::Vfs;

use super::Changed;
use crate::{
    command::{engine::OnDisk, query_info, split, unsigned},
    failure::Failure,
    state::{Open, OpenKind},
};

/// Offsets of unbuffered handles are multiples of this.
const SECTOR: u64 = 512;

/// Bytes of FileValidDataLengthInformation.
const VALID_DATA_LENGTH_BYTES: usize = 8;

/// FilePositionInformation.
pub(super) fn position<V: Vfs>(open: &Open<V>, buffer: &[u8]) -> Changed {
    let info = parse!(FilePositionInformation, buffer);
    let position = unsigned(info.current_byte_offset)?;
    let unbuffered = CreateOptions::NO_INTERMEDIATE_BUFFERING;
    if open.options.contains(unbuffered) && !position.is_multiple_of(SECTOR) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    open.state().position = position;
    Ok(Unchanged::because("only the open changed").into())
}

/// FileModeInformation.
pub(super) fn mode<V: Vfs>(open: &Open<V>, buffer: &[u8]) -> Changed {
    let info = parse!(FileModeInformation, buffer);
    let old = query_info::mode(open).mode;
    let new = changed(CreateOptions(old), CreateOptions(info.mode))?;
    open.state().mode = Some(new.bits());
    Ok(Unchanged::because("only the open changed").into())
}

fn changed(old: CreateOptions, new: CreateOptions) -> Result<CreateOptions, Failure> {
    let synchronous = CreateOptions::SYNCHRONOUS_IO_ALERT | CreateOptions::SYNCHRONOUS_IO_NONALERT;
    let settable = CreateOptions::WRITE_THROUGH | CreateOptions::SEQUENTIAL_ONLY | synchronous;
    let foreign = !new.without(settable).is_empty();
    let switched = new.intersects(synchronous) != old.intersects(synchronous);
    Status::INVALID_PARAMETER.when(foreign || switched || new.contains(synchronous))?;
    let unbuffered = old.contains(CreateOptions::NO_INTERMEDIATE_BUFFERING);
    let kept = settable.without(CreateOptions::WRITE_THROUGH.when(unbuffered));
    Ok(old.without(kept) | CreateOptions(new.bits() & kept.bits()))
}

/// FilePipeInformation. Pipes here carry messages and block, as Windows clients ask for.
pub(super) fn pipe<V: Vfs>(open: &Open<V>, buffer: &[u8]) -> Changed {
    open.need(AccessMask::FILE_WRITE_ATTRIBUTES)?;
    let info = parse!(FilePipeInformation, buffer);
    let OpenKind::Pipe(_) = open.kind else {
        return Err(Status::INVALID_PARAMETER.into());
    };
    match (info.read_mode, info.completion_mode) {
        (1, 0) => Ok(Unchanged::because("only the open changed").into()),
        (0 | 1, 0 | 1) => Err(Status::NOT_SUPPORTED.into()),
        _ => Err(Status::INVALID_PARAMETER.into()),
    }
}

/// FileShortNameInformation needs SeRestorePrivilege.
pub(super) fn short_name<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    on.open.need(AccessMask::DELETE)?;
    let name = parse!(FileNameInformation, buffer).file_name;
    let is_root = on.server.path_of(on.open)?.names().is_empty();
    if is_root || on.disk.place.stream.is_some() || !(name.is_empty() || is_8_3(&name)) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let writes = AccessMask::FILE_WRITE_DATA | AccessMask::FILE_WRITE_ATTRIBUTES;
    if !on.open.granted.intersects(writes)
        || on.is_delete_pending()
        || on.open.options.contains(CreateOptions::DELETE_ON_CLOSE)
    {
        return Err(Status::ACCESS_DENIED.into());
    }
    Err(Status::PRIVILEGE_NOT_HELD.into())
}

/// FileValidDataLengthInformation needs SeManageVolumePrivilege.
pub(super) fn valid_data_length<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    on.open.need(AccessMask::FILE_WRITE_DATA)?;
    Status::INFO_LENGTH_MISMATCH.when(buffer.len() < VALID_DATA_LENGTH_BYTES)?;
    Err(Status::PRIVILEGE_NOT_HELD.into())
}

/// [MS-FSCC] 2.1.5.2.1.
fn is_8_3(name: &str) -> bool {
    let (base, extension) = split(name, '.');
    let fits = |part: &str, max| (1..=max).contains(&part.len());
    let legal = |c: char| c.is_ascii_graphic() && !r#""\/:|<>*?."#.contains(c);
    fits(base, 8)
        && extension.is_none_or(|extension| fits(extension, 3))
        && base
            .chars()
            .chain(extension.unwrap_or("").chars())
            .all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_follow_the_rules_of_the_text() {
        let set = |old: u32, new: u32| {
            changed(CreateOptions(old), CreateOptions(new))
                .ok()
                .map(CreateOptions::bits)
        };
        assert_eq!(set(0, 2), Some(2));
        assert_eq!(set(2, 4), Some(4));
        assert_eq!(set(2, 0), Some(0));
        assert_eq!(set(0, 1), None, "not a mode");
        assert_eq!(set(0, 8), None, "not settable");
        assert_eq!(set(0, 0x10), None, "asynchronous stays so");
        assert_eq!(set(0x10, 0x20), Some(0x20));
        assert_eq!(set(0x10, 0x30), None);
        assert_eq!(set(0x10, 0), None);
        assert_eq!(set(8, 2), Some(8), "unbuffered handles keep write-through");
    }
}
