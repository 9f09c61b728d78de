//! The calls of srvsvc on sessions, open files and connections to shares ([MS-SRVS] 3.1.4.1 to 3.1.4.6).
//!
//! In every level of them an entry is a row of numbers and strings, so one encoder serves all, and so it does for
//! shares, servers and workstations.

use std::borrow::Cow;

use bytes::BytesMut;

use super::{
    ndr::{NdrReader, NdrWriter},
    pdu::FaultStatus,
    srvsvc::Win32Error,
};
use crate::{codec::size, utf16};

/// The part of a list that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// The level of the entries.
    pub level: u32,
    /// Maximum length that the client prefers, in bytes.
    pub prefered_maximum_length: u32,
    /// The position to continue from.
    pub resume_handle: Option<u32>,
}

impl Listing {
    /// Reads the end of every enumeration: InfoStruct, PreferedMaximumLength, ResumeHandle.
    pub(super) fn read(reader: &mut NdrReader<'_>) -> Result<Self, FaultStatus> {
        let level = reader.u32()?;
        let arm = reader.u32()?;
        // The client's container is empty: a count of 0, and no buffer or one without elements.
        let mut elements = 0;
        if reader.pointer()? {
            elements = reader.u32()?;
            if reader.pointer()? {
                elements |= reader.u32()?;
            }
        }
        if arm != level || elements != 0 {
            return Err(FaultStatus::BAD_STUB_DATA);
        }
        let prefered_maximum_length = reader.u32()?;
        let resume = reader.pointer()?;
        Ok(Self {
            level,
            prefered_maximum_length,
            resume_handle: resume.then(|| reader.u32()).transpose()?,
        })
    }
}

/// A request. A name that is not given is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActivityRequest {
    /// NetrConnectionEnum, opnum 8 ([MS-SRVS] 3.1.4.1).
    ConnectionEnum {
        /// A share, or a computer after two backslashes.
        qualifier: String,
        /// Levels 0 and 1.
        listing: Listing,
    },
    /// NetrFileEnum, opnum 9 ([MS-SRVS] 3.1.4.2).
    FileEnum {
        /// Only files below this path.
        base_path: String,
        /// Only files of this user.
        user_name: String,
        /// Levels 2 and 3.
        listing: Listing,
    },
    /// NetrFileGetInfo, opnum 10 ([MS-SRVS] 3.1.4.3).
    FileGetInfo {
        /// The number of the open.
        file_id: u32,
        /// 2 or 3.
        level: u32,
    },
    /// NetrFileClose, opnum 11 ([MS-SRVS] 3.1.4.4).
    FileClose {
        /// The number of the open.
        file_id: u32,
    },
    /// NetrSessionEnum, opnum 12 ([MS-SRVS] 3.1.4.5).
    SessionEnum {
        /// Only sessions of this computer, after two backslashes.
        client_name: String,
        /// Only sessions of this user.
        user_name: String,
        /// Levels 0, 1, 2, 10 and 502.
        listing: Listing,
    },
    /// NetrSessionDel, opnum 13 ([MS-SRVS] 3.1.4.6).
    SessionDel {
        /// The sessions of this computer, after two backslashes.
        client_name: String,
        /// The sessions of this user.
        user_name: String,
    },
}

impl ActivityRequest {
    /// Decodes a stub.
    pub(super) fn decode(opnum: u16, reader: &mut NdrReader<'_>) -> Result<Self, FaultStatus> {
        // ServerName is ignored, as the specification requires.
        reader.unique_wide_string()?;
        Ok(match opnum {
            8 => Self::ConnectionEnum {
                qualifier: name(reader)?,
                listing: Listing::read(reader)?,
            },
            9 => Self::FileEnum {
                base_path: name(reader)?,
                user_name: name(reader)?,
                listing: Listing::read(reader)?,
            },
            10 => Self::FileGetInfo {
                file_id: reader.u32()?,
                level: reader.u32()?,
            },
            11 => Self::FileClose {
                file_id: reader.u32()?,
            },
            12 => Self::SessionEnum {
                client_name: name(reader)?,
                user_name: name(reader)?,
                listing: Listing::read(reader)?,
            },
            13 => Self::SessionDel {
                client_name: name(reader)?,
                user_name: name(reader)?,
            },
            _ => return Err(FaultStatus::OP_RNG_ERROR),
        })
    }
}

fn name(reader: &mut NdrReader<'_>) -> Result<String, FaultStatus> {
    Ok(reader.unique_wide_string()?.unwrap_or_default())
}

/// A member of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryMember<'a> {
    /// A DWORD.
    Number(u32),
    /// A pointer to a string.
    Text(Cow<'a, str>),
    /// A length, and a pointer to as many bytes if there are any.
    Bytes(Option<&'a [u8]>),
}

impl<'a> EntryMember<'a> {
    /// A pointer to a string that is not copied.
    pub(super) fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

/// Bytes that an entry takes in an answer.
pub fn entry_bytes(entry: &[EntryMember<'_>]) -> usize {
    let members = entry.iter().map(|member| match member {
        EntryMember::Number(_) => 4,
        // A pointer, three counts, the text and its NUL, which may need padding.
        EntryMember::Text(text) => 16 + (utf16::len_bytes(text) + 2).next_multiple_of(4),
        // A length, a pointer, a count and the bytes.
        EntryMember::Bytes(bytes) => 8 + bytes.map_or(0, |bytes| 4 + bytes.len()),
    });
    members.sum()
}

fn put_fixed(entry: &[EntryMember<'_>], writer: &mut NdrWriter) {
    for member in entry {
        match member {
            EntryMember::Number(number) => writer.u32(*number),
            EntryMember::Text(_) => writer.pointer(true),
            EntryMember::Bytes(bytes) => {
                writer.count(bytes.map_or(0, <[u8]>::len));
                writer.pointer(bytes.is_some());
            }
        }
    }
}

fn put_referents(entry: &[EntryMember<'_>], writer: &mut NdrWriter) {
    for member in entry {
        match member {
            EntryMember::Number(_) | EntryMember::Bytes(None) => {}
            EntryMember::Text(text) => writer.wide_string(text),
            EntryMember::Bytes(Some(bytes)) => {
                writer.count(bytes.len());
                writer.bytes(bytes);
            }
        }
    }
}

/// The members of an entry at one of the levels 100 to 102, each of which has those of the levels below and more.
///
/// # Errors
/// ERROR_INVALID_LEVEL for another level.
pub(super) fn up_to_level<'a>(
    level: u32,
    lengths: [usize; 3],
    mut entry: Vec<EntryMember<'a>>,
) -> Result<Vec<EntryMember<'a>>, Win32Error> {
    let place = level.checked_sub(100).map(size);
    let length = place.and_then(|place| lengths.get(place));
    entry.truncate(*length.ok_or(Win32Error::INVALID_LEVEL)?);
    Ok(entry)
}

/// Encodes the response to an enumeration: `entries` of `total` that are left, and the position to continue from, for
/// a client that keeps one. A refusal has no entries.
pub fn encode_enumeration(
    listing: &Listing,
    entries: Option<&[Vec<EntryMember<'_>>]>,
    total: usize,
    next: u32,
    result: Win32Error,
) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.u32(listing.level);
    writer.u32(listing.level);
    writer.pointer(entries.is_some());
    if let Some(entries) = entries {
        writer.count(entries.len());
        writer.pointer(true);
        writer.count(entries.len());
        for entry in entries {
            put_fixed(entry, &mut writer);
        }
        for entry in entries {
            put_referents(entry, &mut writer);
        }
    }
    writer.count(total);
    writer.pointer(listing.resume_handle.is_some());
    if listing.resume_handle.is_some() {
        writer.u32(next);
    }
    writer.finish_with(result.0)
}

/// Encodes the response to a call that queries one entry.
pub fn encode_info(level: u32, entry: Result<Vec<EntryMember<'_>>, Win32Error>) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.u32(level);
    writer.pointer(entry.is_ok());
    if let Ok(entry) = &entry {
        put_fixed(entry, &mut writer);
        put_referents(entry, &mut writer);
    }
    writer.finish_with(entry.err().unwrap_or(Win32Error::SUCCESS).0)
}

/// Encodes the response to NetrFileClose and NetrSessionDel.
pub fn encode_ended(ended: Result<(), Win32Error>) -> BytesMut {
    NdrWriter::new().finish_with(ended.err().unwrap_or(Win32Error::SUCCESS).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::srvsvc::SrvsvcRequest;
    use hex_literal::hex;

    /// Requests as impacket 0.13 encodes them; it fills padding with any bytes.
    const SESSION_ENUM: &[u8] = &hex!(
        "00000000423300000b000000000000000b0000005c005c00310030002e0030002e0030002e0035000000bfbf
         000000000a0000000a0000003ffa00000000000000000000ffffffff5bee000007000000"
    );
    const FILE_ENUM: &[u8] = &hex!(
        "00000000715c000008000000000000000800000043003a005c006400610074006100000013d8000005000000
         000000000500000061006e006e0061000000abab03000000030000009e5a0000000000000000000000100000
         00000000"
    );
    const CONNECTION_ENUM: &[u8] = &hex!(
        "00000000963d000005000000000000000500000064006100740061000000abab0100000001000000647d0000
         000000000548000000000000ffffffff8bd3000000000000"
    );
    const FILE_GET_INFO: &[u8] = &hex!("000000000403020103000000");
    const FILE_CLOSE: &[u8] = &hex!("0000000004030201");
    const SESSION_DEL: &[u8] =
        &hex!("00000000000000008823000005000000000000000500000061006e006e0061000000");

    fn listing(level: u32, length: u32, resume_handle: Option<u32>) -> Listing {
        Listing {
            level,
            prefered_maximum_length: length,
            resume_handle,
        }
    }

    #[test]
    fn requests_of_a_client_are_read() {
        let anna = || "anna".to_owned();
        for (opnum, stub, expected) in [
            (
                8,
                CONNECTION_ENUM,
                ActivityRequest::ConnectionEnum {
                    qualifier: "data".to_owned(),
                    listing: listing(1, u32::MAX, Some(0)),
                },
            ),
            (
                9,
                FILE_ENUM,
                ActivityRequest::FileEnum {
                    base_path: r"C:\data".to_owned(),
                    user_name: anna(),
                    listing: listing(3, 4096, None),
                },
            ),
            (
                10,
                FILE_GET_INFO,
                ActivityRequest::FileGetInfo {
                    file_id: 0x0102_0304,
                    level: 3,
                },
            ),
            (
                11,
                FILE_CLOSE,
                ActivityRequest::FileClose {
                    file_id: 0x0102_0304,
                },
            ),
            (
                12,
                SESSION_ENUM,
                ActivityRequest::SessionEnum {
                    client_name: r"\\10.0.0.5".to_owned(),
                    user_name: String::new(),
                    listing: listing(10, u32::MAX, Some(7)),
                },
            ),
            (
                13,
                SESSION_DEL,
                ActivityRequest::SessionDel {
                    client_name: String::new(),
                    user_name: anna(),
                },
            ),
        ] {
            assert_eq!(
                SrvsvcRequest::decode(opnum, stub),
                Ok(SrvsvcRequest::Activity(expected))
            );
            for cut in 0..stub.len() {
                assert!(
                    SrvsvcRequest::decode(opnum, &stub[..cut]).is_err(),
                    "{opnum}"
                );
            }
        }
    }

    #[test]
    fn entries_have_their_numbers_and_then_their_texts() {
        let entry = vec![
            EntryMember::Number(7),
            EntryMember::text("ab"),
            EntryMember::text(""),
        ];
        assert_eq!(entry_bytes(&entry), 4 + (16 + 8) + (16 + 4));
        let one = [entry];
        let asked = listing(3, 0, Some(0));
        let stub = encode_enumeration(&asked, Some(&one), 2, 1, Win32Error::MORE_DATA);
        let expected = hex!(
            "03000000030000000000020001000000040002000100000007000000080002000c0002000300000000000000
             030000006100620000000000010000000000000001000000000000000200000010000200
             01000000ea000000"
        );
        assert_eq!(stub[..], expected);
        let refused = encode_enumeration(&asked, None, 0, 0, Win32Error::ACCESS_DENIED);
        let expected = hex!("03000000030000000000000000000000000002000000000005000000");
        assert_eq!(refused[..], expected);
        let stub = encode_info(3, Ok(one[0].clone()));
        let expected = hex!(
            "030000000000020007000000040002000800020003000000000000000300000061006200000000000100000000
             000000010000000000000000000000"
        );
        assert_eq!(stub[..], expected);
        let gone = encode_info(3, Err(Win32Error::FILE_NOT_FOUND));
        assert_eq!(gone[..], hex!("030000000000000002000000"));
        assert_eq!(encode_ended(Ok(()))[..], [0; 4]);
    }
}
