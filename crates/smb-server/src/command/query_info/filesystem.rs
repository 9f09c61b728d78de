//! QUERY_INFO of the file system information classes ([MS-FSCC] 2.5, [MS-FSA] 2.1.5.13).
//!
//! The volume reports its file system as NTFS: with another name Windows clients do not try
//! streams, security descriptors and the like. All sizes come from one `FsInfo` so that they agree. A share is one
//! volume: its identity does not depend on the file, although another file system may be mounted at a directory.

use smb_wire::{
    fscc::{
        ClassUse, DeviceCharacteristics, DeviceType, FileFsAttributeInformation,
        FileFsControlInformation, FileFsDeviceInformation, FileFsFullSizeInformation,
        FileFsObjectIdInformation, FileFsSectorSizeInformation, FileFsSizeInformation,
        FileFsVolumeInformation, FileSystemAttributes, FsInformationClass, SectorSizeFlags,
    },
    ids::Guid,
    status::Status,
};
use vfs::{FsInfo, Vfs, posix::name::SHOWN_MAX};

use super::InfoAnswer;
use crate::{
    command::{Call, file_time},
    failure::Failure,
    state::{Open, OpenKind, Share},
};

/// The logical sector size that is reported.
const SECTOR: u32 = 512;
/// Bytes of FileFsDriverPathInformation before the name ([MS-FSCC] 2.5.3).
const DRIVER_PATH_FIXED: usize = 8;
/// Bytes of class 12 of Windows, the number of copies of the data.
const DATA_COPIES_BYTES: usize = 4;
/// Longest label of a volume in UTF-16 units, as in NTFS. Clients have no room for a longer one.
const LABEL_MAX: usize = 32;

pub(super) async fn query<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    class: u8,
    max: usize,
) -> Result<InfoAnswer, Failure> {
    use FsInformationClass as Class;
    let class = Class(class);
    if let OpenKind::Pipe(_) = open.kind {
        return match class {
            Class::DEVICE => device(DeviceType::NAMED_PIPE, DeviceCharacteristics::empty(), max),
            _ => Err(Status::INVALID_DEVICE_REQUEST.into()),
        };
    }
    if let Some(status) = refusal(class, max) {
        return Err(status.into());
    }
    let share = call.share()?;
    let node = open.disk()?.node;
    let info = share.vfs.fs_info(&node).await?;
    let units = Units::of(&info);
    match class {
        Class::VOLUME => volume(share, &info, max),
        Class::SIZE => InfoAnswer::fixed(max, &units.size()),
        Class::FULL_SIZE => InfoAnswer::fixed(max, &units.full_size()),
        Class::DEVICE => {
            let read_only = share.config.read_only || info.read_only;
            let characteristics = DeviceCharacteristics::DEVICE_IS_MOUNTED
                | DeviceCharacteristics::READ_ONLY_DEVICE.when(read_only);
            device(DeviceType::DISK, characteristics, max)
        }
        Class::ATTRIBUTE => {
            // It is boxed because it is seldom needed.
            let kept = Box::pin(kept(share, &node)).await;
            attribute(share, &info, kept, max)
        }
        Class::OBJECT_ID => {
            let id = FileFsObjectIdInformation {
                object_id: volume_id(&call.server().config().server_guid, share.vfs.volume_id()),
                ..FileFsObjectIdInformation::default()
            };
            InfoAnswer::fixed(max, &id)
        }
        Class::SECTOR_SIZE => {
            // [MS-FSA] 2.1.5.13.10: where the device's sector is not known, all of them are the logical one.
            let sectors = FileFsSectorSizeInformation {
                logical_bytes_per_sector: SECTOR,
                physical_bytes_per_sector_for_atomicity: SECTOR,
                physical_bytes_per_sector_for_performance: SECTOR,
                file_system_effective_physical_bytes_per_sector_for_atomicity: SECTOR,
                flags: SectorSizeFlags::ALIGNED_DEVICE
                    | SectorSizeFlags::PARTITION_ALIGNED_ON_DEVICE,
                byte_offset_for_sector_alignment: 0,
                byte_offset_for_partition_alignment: 0,
            };
            InfoAnswer::fixed(max, &sectors)
        }
        Class::CONTROL => {
            // No quotas are tracked or enforced, so there are no limits (docs/protocol-notes.md, "The quotas of a
            // volume").
            let control = FileFsControlInformation {
                default_quota_threshold: u64::MAX,
                default_quota_limit: u64::MAX,
                ..FileFsControlInformation::default()
            };
            InfoAnswer::fixed(max, &control)
        }
        _ => Err(Status::NOT_SUPPORTED.into()),
    }
}

/// [MS-SMB2] 3.3.5.20.2: the status for a class that is not queried. Microsoft's FSA test suite has Windows' statuses
/// where they differ from the text: those for a label (2), short buffers, and a class that has no document (12); see
/// docs/protocol-notes.md, "Statuses of information classes".
fn refusal(class: FsInformationClass, max: usize) -> Option<Status> {
    let fixed = match class.0 {
        2 => return Some(Status::INVALID_INFO_CLASS),
        9 => DRIVER_PATH_FIXED,
        12 => DATA_COPIES_BYTES,
        _ => 0,
    };
    match class.class_use() {
        _ if max < fixed => Some(Status::INFO_LENGTH_MISMATCH),
        ClassUse::Unknown if fixed == 0 => Some(Status::INVALID_INFO_CLASS),
        ClassUse::Unknown | ClassUse::Local => Some(Status::NOT_SUPPORTED),
        _ => None,
    }
}

/// Sizes in allocation units.
struct Units<'a> {
    info: &'a FsInfo,
    sectors: u32,
}

impl<'a> Units<'a> {
    fn of(info: &'a FsInfo) -> Self {
        Self {
            info,
            sectors: (info.block / SECTOR).max(1),
        }
    }

    fn count(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.sectors.saturating_mul(SECTOR))
    }

    fn size(&self) -> FileFsSizeInformation {
        FileFsSizeInformation {
            total_allocation_units: self.count(self.info.total),
            available_allocation_units: self.count(self.info.available),
            sectors_per_allocation_unit: self.sectors,
            bytes_per_sector: SECTOR,
        }
    }

    fn full_size(&self) -> FileFsFullSizeInformation {
        FileFsFullSizeInformation {
            total_allocation_units: self.count(self.info.total),
            caller_available_allocation_units: self.count(self.info.available),
            actual_available_allocation_units: self.count(self.info.free),
            sectors_per_allocation_unit: self.sectors,
            bytes_per_sector: SECTOR,
        }
    }
}

fn device(
    device_type: DeviceType,
    characteristics: DeviceCharacteristics,
    max: usize,
) -> Result<InfoAnswer, Failure> {
    let device = FileFsDeviceInformation {
        device_type,
        characteristics,
    };
    InfoAnswer::fixed(max, &device)
}

fn volume<V: Vfs>(share: &Share<V>, info: &FsInfo, max: usize) -> Result<InfoAnswer, Failure> {
    let volume = FileFsVolumeInformation {
        volume_creation_time: file_time(info.created),
        // The low half of the one in FileIdInformation, as Windows has it.
        volume_serial_number: share.vfs.volume_id() as u32,
        // [MS-FSA] 2.1.5.13.1.
        supports_objects: true,
        volume_label: shortened(&share.config.name),
    };
    named!(max, FileFsVolumeInformation, volume)
}

/// The part of a label that a volume can have.
fn shortened(label: &str) -> String {
    let mut units = 0;
    let fits = |c: &char| {
        units += c.len_utf16();
        units <= LABEL_MAX
    };
    label.chars().take_while(fits).collect()
}

/// The attributes that hold only if the file system under `node` keeps more than data and names.
async fn kept<V: Vfs>(share: &Share<V>, node: &V::Node) -> FileSystemAttributes {
    use FileSystemAttributes as Has;
    let eas = share.vfs.keeps_eas(node).await;
    let descriptors = share.vfs.keeps_descriptors(node).await;
    Has::PERSISTENT_ACLS.when(descriptors)
        // Without this bit a Mac keeps the metadata of a file in another file beside it.
        | Has::NAMED_STREAMS.when(eas)
        | Has::SUPPORTS_EXTENDED_ATTRIBUTES.when(eas)
}

fn attribute<V: Vfs>(
    share: &Share<V>,
    info: &FsInfo,
    kept: FileSystemAttributes,
    max: usize,
) -> Result<InfoAnswer, Failure> {
    use FileSystemAttributes as Has;
    let read_only = share.config.read_only || info.read_only;
    let attribute = FileFsAttributeInformation {
        // NTFS announces that it can distinguish names by case, although an open does not; clients
        // expect the bit of NTFS.
        file_system_attributes: Has::CASE_SENSITIVE_SEARCH
            | Has::CASE_PRESERVED_NAMES
            | Has::UNICODE_ON_DISK
            | kept
            | Has::SUPPORTS_HARD_LINKS
            // [MS-FSA] 2.1.5.10.1: a volume without the bit would refuse FSCTL_CREATE_OR_GET_OBJECT_ID.
            | Has::SUPPORTS_OBJECT_IDS
            | Has::SUPPORTS_SPARSE_FILES.when(info.sparse)
            | Has::SUPPORTS_BLOCK_REFCOUNTING.when(info.clones)
            | Has::READ_ONLY_VOLUME.when(read_only),
        maximum_component_name_length: i32::try_from(SHOWN_MAX).unwrap_or(i32::MAX),
        file_system_name: "NTFS".to_owned(),
    };
    named!(max, FileFsAttributeInformation, attribute)
}

/// A permanent id: the server's, combined with the volume's.
pub(in crate::command) fn volume_id(server: &Guid, volume: u64) -> Guid {
    let mut id = server.0;
    for (byte, other) in id.iter_mut().zip(volume.to_le_bytes()) {
        *byte ^= other;
    }
    Guid(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_as_long_as_one_of_ntfs_at_most() {
        let fits = "x".repeat(LABEL_MAX);
        assert_eq!(shortened(&fits), fits);
        assert_eq!(shortened(&format!("{fits}y")), fits);
        // A character of two units is never cut in half.
        assert_eq!(shortened(&format!("{}\u{1F4C1}", &fits[1..])), fits[1..]);
        assert_eq!(shortened(""), "");
    }
}
