//! File system information classes ([MS-FSCC] 2.5). Layout only; the server chooses the values, and
//! ensures that the two size classes agree.

use bytes::{BufMut, BytesMut};

use super::object_id::FileObjectIdBuffer;
use super::record::{named_records, records};
use crate::codec::{Malformed, Reader, size};
use crate::ids::FileTime;
use crate::utf16;

flags_of_the_wire! {
    /// Capabilities of the file system ([MS-FSCC] 2.5.1).
    pub struct FileSystemAttributes(u32) {
        CASE_SENSITIVE_SEARCH = 0x0000_0001,
        CASE_PRESERVED_NAMES = 0x0000_0002,
        UNICODE_ON_DISK = 0x0000_0004,
        PERSISTENT_ACLS = 0x0000_0008,
        SUPPORTS_SPARSE_FILES = 0x0000_0040,
        SUPPORTS_OBJECT_IDS = 0x0001_0000,
        NAMED_STREAMS = 0x0004_0000,
        READ_ONLY_VOLUME = 0x0008_0000,
        SUPPORTS_HARD_LINKS = 0x0040_0000,
        SUPPORTS_EXTENDED_ATTRIBUTES = 0x0080_0000,
        SUPPORTS_BLOCK_REFCOUNTING = 0x0800_0000,
    }
}

enum_of_the_wire! {
    /// Kind of device below the volume ([MS-FSCC] 2.5.10).
    pub struct DeviceType(u32) {
        DISK = 0x07,
        NAMED_PIPE = 0x11,
    }
}

flags_of_the_wire! {
    /// Properties of the device ([MS-FSCC] 2.5.10).
    pub struct DeviceCharacteristics(u32) {
        READ_ONLY_DEVICE = 0x02,
        DEVICE_IS_MOUNTED = 0x20,
    }

    /// Properties of the sectors ([MS-FSCC] 2.5.7).
    pub struct SectorSizeFlags(u32) {
        ALIGNED_DEVICE = 0x1,
        PARTITION_ALIGNED_ON_DEVICE = 0x2,
    }
}

/// FileFsObjectIdInformation ([MS-FSCC] 2.5.6) has the layout of an object id with 48 bytes of extended information.
pub type FileFsObjectIdInformation = FileObjectIdBuffer;

records! {
    /// FileFsSizeInformation ([MS-FSCC] 2.5.8).
    FileFsSizeInformation {
        /// Allocation units of the volume that are available to the user in total.
        total_allocation_units: u64;
        /// Free allocation units that the user may use.
        available_allocation_units: u64;
        /// Sectors in an allocation unit.
        sectors_per_allocation_unit: u32;
        /// Bytes in a sector.
        bytes_per_sector: u32;
    }

    /// FileFsFullSizeInformation ([MS-FSCC] 2.5.4).
    FileFsFullSizeInformation {
        /// Allocation units of the volume that are available to the user in total.
        total_allocation_units: u64;
        /// Free allocation units that the user may use.
        caller_available_allocation_units: u64;
        /// Free allocation units of the volume.
        actual_available_allocation_units: u64;
        /// Sectors in an allocation unit.
        sectors_per_allocation_unit: u32;
        /// Bytes in a sector.
        bytes_per_sector: u32;
    }

    /// FileFsDeviceInformation ([MS-FSCC] 2.5.10).
    FileFsDeviceInformation {
        /// Kind of device.
        device_type: DeviceType;
        /// Its properties.
        characteristics: DeviceCharacteristics;
    }

    /// FileFsControlInformation ([MS-FSCC] 2.5.2): query and set.
    FileFsControlInformation {
        /// Free bytes that indexing needs to start.
        free_space_start_filtering: i64;
        /// Free bytes that indexing needs to continue.
        free_space_threshold: i64;
        /// Free bytes at which indexing stops.
        free_space_stop_filtering: i64;
        /// Bytes at which a new user is warned; all ones for never.
        default_quota_threshold: u64;
        /// Quota of a new user in bytes; all ones for no limit.
        default_quota_limit: u64;
        /// How quotas are tracked and enforced ([MS-FSCC] 2.5.2).
        file_system_control_flags: u32, pad 4;
    }

    /// FileFsSectorSizeInformation ([MS-FSCC] 2.5.7); all in bytes.
    FileFsSectorSizeInformation {
        /// Logical sector.
        logical_bytes_per_sector: u32;
        /// Physical sector that is written without read-modify-write.
        physical_bytes_per_sector_for_atomicity: u32;
        /// Physical sector with the best performance.
        physical_bytes_per_sector_for_performance: u32;
        /// Sector that the file system assumes to be atomic.
        file_system_effective_physical_bytes_per_sector_for_atomicity: u32;
        /// Properties.
        flags: SectorSizeFlags;
        /// Offset of the first aligned sector.
        byte_offset_for_sector_alignment: u32;
        /// Offset of the partition.
        byte_offset_for_partition_alignment: u32;
    }
}

/// FileFsVolumeInformation ([MS-FSCC] 2.5.9).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileFsVolumeInformation {
    /// The time when the volume was created.
    pub volume_creation_time: FileTime,
    /// Its serial number.
    pub volume_serial_number: u32,
    /// Whether the volume supports object-oriented file system objects (NTFS reports true).
    pub supports_objects: bool,
    /// Its label.
    pub volume_label: String,
}

impl FileFsVolumeInformation {
    /// Smallest output buffer of a query ([MS-FSA] 2.1.5.13.1).
    pub const MIN: usize = 24;

    /// Bytes before the label.
    pub const FIXED: usize = 18;

    /// Reads the structure.
    ///
    /// # Errors
    /// [`Malformed`] when a part is missing or the label is not valid UTF-16.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "FileFsVolumeInformation";
        let mut reader = Reader::new(bytes, WHAT);
        let volume_creation_time = FileTime(reader.u64()?);
        let volume_serial_number = reader.u32()?;
        let len = size(reader.u32()?);
        let supports_objects = reader.u8()? != 0;
        reader.skip(1)?;
        Ok(Self {
            volume_creation_time,
            volume_serial_number,
            supports_objects,
            volume_label: utf16::decode(reader.take(len)?, WHAT)?,
        })
    }

    /// Appends the structure with its whole label.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.volume_creation_time.0);
        out.put_u32_le(self.volume_serial_number);
        out.put_u32_le(u32::try_from(utf16::len_bytes(&self.volume_label)).unwrap_or(u32::MAX));
        out.put_u8(u8::from(self.supports_objects));
        out.put_u8(0);
        utf16::put(out, &self.volume_label);
    }
}

named_records! {
    /// FileFsAttributeInformation ([MS-FSCC] 2.5.1). The buffer of a query has room for one unit of the name, rounded
    /// up to 4 ([MS-FSA] 2.1.5.13.5).
    FileFsAttributeInformation(16) {
        /// Capabilities of the file system.
        file_system_attributes: FileSystemAttributes;
        /// Longest name between two backslashes, in units of UTF-16 (Windows: 255).
        maximum_component_name_length: i32;
        => /// The name of the file system (with "NTFS" clients use all features).
        file_system_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_specification() {
        assert_eq!(FileFsSizeInformation::MIN, 24);
        assert_eq!(FileFsFullSizeInformation::MIN, 32);
        assert_eq!(FileFsDeviceInformation::MIN, 8);
        assert_eq!(FileFsControlInformation::MIN, 48);
        assert_eq!(FileFsSectorSizeInformation::MIN, 28);
        assert_eq!(FileFsObjectIdInformation::MIN, 64);
    }

    #[test]
    fn volume_label_begins_at_18() {
        let volume = FileFsVolumeInformation {
            volume_creation_time: FileTime(1),
            volume_serial_number: 0xb032_a8b3,
            supports_objects: false,
            volume_label: "tmp".to_owned(),
        };
        let mut out = BytesMut::new();
        volume.encode(&mut out);
        assert_eq!(&out[8..], b"\xb3\xa8\x32\xb0\x06\0\0\0\0\0t\0m\0p\0");
        assert_eq!(FileFsVolumeInformation::read(&out), Ok(volume));
    }

    #[test]
    fn attributes_round_trip() {
        let attributes = FileFsAttributeInformation {
            file_system_attributes: FileSystemAttributes(0x0001_006f),
            maximum_component_name_length: 255,
            file_system_name: "NTFS".to_owned(),
        };
        let mut out = BytesMut::new();
        attributes.encode(&mut out);
        assert_eq!(FileFsAttributeInformation::read(&out), Ok(attributes));
    }
}
