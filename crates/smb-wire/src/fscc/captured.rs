//! Payloads that Samba 4.17 and smbclient exchanged over the loopback, and random bytes and values.

use bytes::BytesMut;
use hex_literal::hex;
use proptest::prelude::*;

use super::*;
use crate::file_attributes::FileAttributes;

const ALL_INFORMATION: &[u8] = &hex!(
    "d047e203ba79dd01d047e203ba79dd01e672e203ba79dd01e672e203ba79dd01210000000000000000100000
     000000000600000000000000010000000000000011439800000000000000000080000000000000000000000021
     000000000000000c0000005c0066002e00740078007400"
);
const VOLUME: &[u8] = &hex!("534ce203ba79dd01b3a832b006000000000074006d007000");
const SIZE: &[u8] = &hex!("748ebf0f000000001c9ee904000000000200000000020000");
const STREAMS: &[u8] =
    &hex!("000000000e000000060000000000000000100000000000003a003a0024004400410054004100");
const ALTERNATE_NAME: &[u8] = &hex!("0a00000066002e00740078007400");
const BASIC_SET: &[u8] =
    &hex!("ffffffffffffffffffffffffffffffff0000000000000000ffffffffffffffff2100000000000000");
const RENAME: &[u8] = &hex!("000000000000000000000000000000000a00000067002e00740078007400");
const ID_BOTH_DIRECTORY: &[u8] = &hex!(
    "700000000000000022ad4701ba79dd0122ad4701ba79dd01d047e203ba79dd01d047e203ba79dd01
     00000000000000000000000000000000100000000200000000000000000000000000000000000000
     000000000000000000000000000000006c409800000000002e000000000000007000000000000000
     1df99cf1b979dd011df99cf1b979dd0100cc77ffb979dd0100cc77ffb979dd010000000000000000
     00000000000000001000000004000000000000000000000000000000000000000000000000000000
     000000000000000060409800000000002e002e00000000000000000000000000d047e203ba79dd01
     d047e203ba79dd01e672e203ba79dd01e672e203ba79dd0106000000000000000010000000000000
     200000000a0000000000000000000000000000000000000000000000000000000000000000000000
     114398000000000066002e00740078007400"
);

macro_rules! captured {
    ($type:ty, $bytes:expr) => {{
        let bytes: &[u8] = $bytes;
        let value = <$type>::read(bytes).unwrap();
        let mut out = BytesMut::new();
        value.encode(&mut out);
        assert_eq!(out[..], bytes[..]);
        value
    }};
}

#[test]
fn classes_read_and_write_the_same_bytes() {
    let all = captured!(FileAllInformation, ALL_INFORMATION);
    assert_eq!(all.file_name, "\\f.txt");
    assert_eq!(all.standard.end_of_file, 6);
    assert_eq!(all.standard.allocation_size, 4096);
    assert_eq!(all.internal.index_number, 0x0098_4311);
    let volume = captured!(FileFsVolumeInformation, VOLUME);
    assert_eq!(
        (&volume.volume_label[..], volume.volume_serial_number),
        ("tmp", 0xb032_a8b3)
    );
    let size = captured!(FileFsSizeInformation, SIZE);
    assert_eq!(
        (size.sectors_per_allocation_unit, size.bytes_per_sector),
        (2, 512)
    );
    let name = captured!(FileNameInformation, ALTERNATE_NAME);
    assert_eq!(name.file_name, "f.txt");
    let basic = captured!(FileBasicInformation, BASIC_SET);
    assert_eq!(
        basic.file_attributes,
        FileAttributes::READONLY | FileAttributes::ARCHIVE
    );
    let rename = captured!(FileRenameInformation, RENAME);
    assert_eq!(
        (rename.replace_if_exists, &rename.file_name[..]),
        (false, "g.txt")
    );

    let streams = read_stream_list(STREAMS).unwrap();
    assert_eq!(streams[0].name, "::$DATA");
    assert_eq!(encode_stream_list(&streams, usize::MAX).0[..], *STREAMS);
}

#[test]
fn a_listing_is_written_as_it_was_read() {
    let format = DirectoryFormat::of(FileInformationClass::ID_BOTH_DIRECTORY).unwrap();
    let entries: Vec<_> = DirectoryEntries::new(format, ID_BOTH_DIRECTORY)
        .collect::<Result<_, _>>()
        .unwrap();
    let names: Vec<_> = entries.iter().map(|entry| &entry.file_name[..]).collect();
    assert_eq!(names, [".", "..", "f.txt"]);
    let mut writer = DirectoryWriter::new(format, ID_BOTH_DIRECTORY.len());
    for entry in &entries {
        assert_eq!(writer.push(&borrowed(entry)), Pushed::Pushed);
    }
    assert_eq!(writer.finish()[..], *ID_BOTH_DIRECTORY);
}

fn borrowed(entry: &OwnedDirectoryEntry) -> DirectoryEntry<&str> {
    DirectoryEntry {
        file_index: entry.file_index,
        creation_time: entry.creation_time,
        last_access_time: entry.last_access_time,
        last_write_time: entry.last_write_time,
        change_time: entry.change_time,
        end_of_file: entry.end_of_file,
        allocation_size: entry.allocation_size,
        file_attributes: entry.file_attributes,
        ea_size: entry.ea_size,
        short_name: &entry.short_name,
        file_id: entry.file_id,
        file_id_128: entry.file_id_128,
        reparse_tag: entry.reparse_tag,
        file_name: &entry.file_name,
    }
}

proptest! {
    /// Reading any bytes ends without a panic, and everything that was read can be encoded.
    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut out = BytesMut::new();
        for class in FileInformationClass::KNOWN {
            if let Some(format) = DirectoryFormat::of(*class) {
                let _ = DirectoryEntries::new(format, &bytes).count();
            }
        }
        if let Ok(all) = FileAllInformation::read(&bytes) {
            all.encode(&mut out);
        }
        if let Ok(rename) = FileRenameInformationEx::read(&bytes) {
            rename.encode(&mut out);
        }
        let _ = read_ea_list(&bytes).map(|list| encode_ea_list(&list, usize::MAX));
        let _ = read_get_ea_list(&bytes);
        let _ = read_stream_list(&bytes);
        let _ = read_notify_list(&bytes);
        let _ = FileFsVolumeInformation::read(&bytes);
        let _ = FileFsAttributeInformation::read(&bytes);
    }

    /// Entries of any name stay within the limit and survive a round trip.
    #[test]
    fn listings_round_trip(
        names in proptest::collection::vec(".{0,20}", 1..10),
        limit in 0usize..2000,
        class in proptest::sample::select(vec![1u8, 2, 3, 12, 37, 38, 60, 78, 79, 80, 81]),
    ) {
        let format = DirectoryFormat::of(FileInformationClass(class)).unwrap();
        let mut writer = DirectoryWriter::new(format, limit);
        let mut pushed = 0;
        for name in &names {
            let entry = DirectoryEntry { file_name: name.as_str(), ..DirectoryEntry::default() };
            if writer.push(&entry) != Pushed::Pushed {
                break;
            }
            pushed += 1;
        }
        let out = writer.finish();
        prop_assert!(out.len() <= limit);
        let read: Vec<_> = DirectoryEntries::new(format, &out)
            .map(|entry| entry.unwrap().file_name)
            .collect();
        prop_assert_eq!(&read[..], &names[..pushed]);
    }

    /// Attribute lists survive a round trip.
    #[test]
    fn attributes_round_trip(
        entries in proptest::collection::vec(
            ("[A-Z]{1,20}", proptest::collection::vec(any::<u8>(), 0..40)), 0..8),
    ) {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(name, value)| EaEntry {
                flags: EaFlags::empty(),
                name: name.into_bytes(),
                value,
            })
            .collect();
        let (out, fitted) = encode_ea_list(&entries, usize::MAX);
        prop_assert_eq!(fitted, entries.len());
        prop_assert_eq!(read_ea_list(&out), Ok(entries));
    }
}
