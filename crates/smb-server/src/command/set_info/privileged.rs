//! Changes that need privileges which no user of this server has: FileShortNameInformation and
//! FileValidDataLengthInformation ([MS-FSA] 2.1.5.15.14, 2.1.5.15.15).
//!
//! A request is refused for its own faults first, as the text orders it, so that a client can tell those apart.

use smb_wire::{
    access_mask::AccessMask, fscc::FileNameInformation, msg::CreateOptions, status::Status,
};
use vfs::Vfs;

use super::Changed;
use crate::command::{engine::OnDisk, split};

/// Bytes of FileValidDataLengthInformation.
const VALID_DATA_LENGTH_BYTES: usize = 8;

/// FileShortNameInformation needs SeRestorePrivilege.
pub(super) fn short_name<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    let name = parse!(FileNameInformation, buffer).file_name;
    on.open.need(AccessMask::DELETE)?;
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
    Status::INFO_LENGTH_MISMATCH.when(buffer.len() < VALID_DATA_LENGTH_BYTES)?;
    on.open.need(AccessMask::FILE_WRITE_DATA)?;
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
