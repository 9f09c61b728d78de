//! srvsvc, the server service ([MS-SRVS] 3.1.4): shares, the server's name and version, its clock. The calls on
//! sessions and opens are in `activity.rs`.
//! Unknown levels get an empty union and ERROR_INVALID_LEVEL.
//!
//! The server supplies the paths of shares, which must not be host paths.

use bytes::BytesMut;

use super::activity::{
    ActivityRequest, EntryMember, Listing, encode_enumeration, encode_info, up_to_level,
};
use super::ndr::{NdrReader, NdrWriter};
use super::pdu::FaultStatus;

enum_of_the_wire! {
    /// Win32 codes in replies of srvsvc and wkssvc ([MS-ERREF] 2.2).
    pub struct Win32Error(u32) {
        SUCCESS = 0,
        FILE_NOT_FOUND = 2,
        ACCESS_DENIED = 5,
        NOT_SUPPORTED = 50,
        INVALID_PARAMETER = 87,
        INVALID_LEVEL = 124,
        MORE_DATA = 234,
        NERR_BUF_TOO_SMALL = 2123,
        NERR_USER_NOT_FOUND = 2221,
        NERR_NET_NAME_NOT_FOUND = 2310,
        NERR_CLIENT_NAME_NOT_FOUND = 2312,
        NERR_FILE_ID_NOT_FOUND = 2314,
        NERR_INVALID_COMPUTER = 2351,
    }
}

flags_of_the_wire! {
    /// Kind of a share, STYPE_ in [MS-SRVS] 2.2.2.4: the low bits are a number, disk being 0.
    pub struct Stype(u32) {
        DEVICE = 0x2,
        IPC = 0x3,
        TEMPORARY = 0x4000_0000,
        /// Administrative: not shown when browsing.
        SPECIAL = 0x8000_0000,
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SrvsvcRequest {
    /// NetrShareEnum, opnum 15 ([MS-SRVS] 3.1.4.8), and NetrShareEnumSticky, opnum 36.
    /// Its levels are 0, 1, 2, 501 and 502.
    ShareEnum(Listing),
    /// NetrShareGetInfo, opnum 16 ([MS-SRVS] 3.1.4.10).
    ShareGetInfo {
        /// Name of the share.
        net_name: String,
        /// 0, 1, 2, 501, 502 or 1005.
        level: u32,
    },
    /// NetrServerGetInfo, opnum 21 ([MS-SRVS] 3.1.4.17).
    ServerGetInfo {
        /// 100, 101 or 102.
        level: u32,
    },
    /// NetrServerDiskEnum, opnum 23 ([MS-SRVS] 3.1.4.19).
    ServerDiskEnum {
        /// 0.
        level: u32,
        /// The client passes a resume handle, which is not used.
        resumes: bool,
    },
    /// NetrRemoteTOD, opnum 28 ([MS-SRVS] 3.1.4.21).
    RemoteTod,
    /// A call on sessions, open files or connections, opnums 8 to 13.
    Activity(ActivityRequest),
}

impl SrvsvcRequest {
    /// Decodes a stub.
    ///
    /// # Errors
    /// OP_RNG_ERROR for an operation that is not listed, BAD_STUB_DATA for a stub that does not match it.
    pub fn decode(opnum: u16, stub: &[u8]) -> Result<Self, FaultStatus> {
        let mut reader = NdrReader::new(stub);
        match opnum {
            8..=13 => ActivityRequest::decode(opnum, &mut reader).map(Self::Activity),
            15 | 36 => {
                reader.unique_wide_string()?;
                Listing::read(&mut reader).map(Self::ShareEnum)
            }
            16 => {
                reader.unique_wide_string()?;
                Ok(Self::ShareGetInfo {
                    net_name: reader.wide_string()?,
                    level: reader.u32()?,
                })
            }
            21 => {
                reader.unique_wide_string()?;
                Ok(Self::ServerGetInfo {
                    level: reader.u32()?,
                })
            }
            23 => {
                reader.unique_wide_string()?;
                let level = reader.u32()?;
                // The client's container is empty, and the server decides about the length.
                let _entries = reader.u32()?;
                if reader.pointer()? {
                    return Err(FaultStatus::BAD_STUB_DATA);
                }
                let _prefered_maximum_length = reader.u32()?;
                let resumes = reader.pointer()?;
                Ok(Self::ServerDiskEnum { level, resumes })
            }
            28 => {
                reader.unique_wide_string()?;
                Ok(Self::RemoteTod)
            }
            _ => Err(FaultStatus::OP_RNG_ERROR),
        }
    }
}

/// All facts that any level contains about a share ([MS-SRVS] 2.2.4.22 to 2.2.4.36).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareInfo<'a> {
    /// Its name.
    pub net_name: &'a str,
    /// Its kind.
    pub share_type: Stype,
    /// Its description.
    pub remark: &'a str,
    /// Maximum number of connections, all ones for no limit.
    pub max_uses: u32,
    /// Current number of connections.
    pub current_uses: u32,
    /// A neutral local path (`C:\name`), never the host's.
    pub path: String,
    /// The security descriptor of the share, self-relative.
    pub security_descriptor: Option<&'a [u8]>,
    /// Caching and DFS flags of levels 501 and 1005.
    pub flags: u32,
}

/// The levels that NetrShareEnum supports.
const ENUM_LEVELS: [u32; 5] = [0, 1, 2, 501, 502];

impl ShareInfo<'_> {
    /// The members of the share's entry; `None` for an unknown level.
    fn entry(&self, level: u32) -> Option<Vec<EntryMember<'_>>> {
        let mut entry = vec![
            EntryMember::text(self.net_name),
            EntryMember::Number(self.share_type.0),
            EntryMember::text(self.remark),
        ];
        match level {
            0 => entry.truncate(1),
            1 => {}
            2 | 502 => entry.extend([
                // Permissions, which servers with user-level security do not use.
                EntryMember::Number(0),
                EntryMember::Number(self.max_uses),
                EntryMember::Number(self.current_uses),
                EntryMember::text(&self.path),
                // An empty password, because some clients print it without a check.
                EntryMember::text(""),
            ]),
            501 => entry.push(EntryMember::Number(self.flags)),
            1005 => entry = vec![EntryMember::Number(self.flags)],
            _ => return None,
        }
        if level == 502 {
            entry.push(EntryMember::Bytes(self.security_descriptor));
        }
        Some(entry)
    }
}

/// Encodes the response to NetrShareEnum: all shares from the resume handle on, or a refusal; ERROR_INVALID_LEVEL for
/// an unknown level.
pub fn encode_share_enum(
    listing: &Listing,
    shares: Result<&[ShareInfo<'_>], Win32Error>,
) -> BytesMut {
    let known = ENUM_LEVELS.contains(&listing.level);
    let result = match shares {
        Err(refused) => refused,
        Ok(_) if known => Win32Error::SUCCESS,
        Ok(_) => Win32Error::INVALID_LEVEL,
    };
    let shares = shares.unwrap_or_default().iter().filter(|_| known);
    let entries: Vec<_> = shares.filter_map(|one| one.entry(listing.level)).collect();
    let total = entries.len();
    let entries = known.then_some(entries.as_slice());
    encode_enumeration(listing, entries, total, 0, result)
}

/// Encodes the response to NetrShareGetInfo.
pub fn encode_share_get_info(level: u32, share: Result<&ShareInfo<'_>, Win32Error>) -> BytesMut {
    let entry = share.and_then(|share| share.entry(level).ok_or(Win32Error::INVALID_LEVEL));
    encode_info(level, entry)
}

/// All facts that the levels 100 to 102 contain about a server ([MS-SRVS] 2.2.4.40 to 2.2.4.42).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo<'a> {
    /// 500 for Windows NT.
    pub platform_id: u32,
    /// Its name.
    pub name: &'a str,
    /// The reported version.
    pub version_major: u32,
    /// The reported version.
    pub version_minor: u32,
    /// The type bits: 1 workstation, 2 server, 0x1000 NT, 0x8000 NT server.
    pub server_type: u32,
    /// Its description.
    pub comment: &'a str,
    /// Maximum number of users.
    pub users: u32,
    /// Minutes until an idle session is closed, -1 for never.
    pub disconnect_min: i32,
}

/// Encodes the response to NetrServerGetInfo.
pub fn encode_server_get_info(level: u32, server: &ServerInfo<'_>) -> BytesMut {
    let entry = vec![
        EntryMember::Number(server.platform_id),
        EntryMember::text(server.name),
        EntryMember::Number(server.version_major),
        EntryMember::Number(server.version_minor),
        EntryMember::Number(server.server_type),
        EntryMember::text(server.comment),
        EntryMember::Number(server.users),
        // The same bits.
        EntryMember::Number(server.disconnect_min.cast_unsigned()),
        EntryMember::Number(0),    // not hidden
        EntryMember::Number(240),  // seconds between announcements
        EntryMember::Number(3000), // milliseconds of jitter
        EntryMember::Number(0),    // licences
        EntryMember::text("C:\\"),
    ];
    encode_info(level, up_to_level(level, [2, 6, 13], entry))
}

/// Encodes the response to NetrServerDiskEnum: the drives, such as `C:`, and an empty one that ends the list.
pub fn encode_server_disk_enum(level: u32, resumes: bool, drives: &[&str]) -> BytesMut {
    let mut writer = NdrWriter::new();
    let (drives, result) = match level {
        0 => (Some(drives), Win32Error::SUCCESS),
        _ => (None, Win32Error::INVALID_LEVEL),
    };
    let entries = drives.map_or(0, |drives| drives.len() + 1);
    writer.count(entries);
    writer.pointer(drives.is_some());
    if let Some(drives) = drives {
        writer.count(entries);
        writer.u32(0);
        writer.count(entries);
        for drive in drives.iter().chain(&[""]) {
            writer.varying_string(drive);
        }
    }
    writer.count(entries.saturating_sub(1));
    writer.pointer(resumes);
    if resumes {
        writer.u32(0);
    }
    writer.finish_with(result.0)
}

/// TIME_OF_DAY_INFO ([MS-SRVS] 2.2.4.105), UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeOfDay {
    /// Seconds since 1970.
    pub elapsed_secs: u32,
    /// Milliseconds since the server started.
    pub uptime_ms: u32,
    /// 0 to 23.
    pub hours: u32,
    /// 0 to 59.
    pub minutes: u32,
    /// 0 to 59.
    pub seconds: u32,
    /// 0 to 99.
    pub hundredths: u32,
    /// Minutes west of Greenwich.
    pub timezone_min: i32,
    /// 1 to 31.
    pub day: u32,
    /// 1 to 12.
    pub month: u32,
    /// The year with its century.
    pub year: u32,
    /// 0 for Sunday.
    pub weekday: u32,
}

/// Encodes the response to NetrRemoteTOD.
pub fn encode_remote_tod(time: &TimeOfDay) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.pointer(true);
    for number in [
        time.elapsed_secs,
        time.uptime_ms,
        time.hours,
        time.minutes,
        time.seconds,
        time.hundredths,
        time.timezone_min.cast_unsigned(),
        310, // length of a tick in 0.1 ms, as Windows reports it
        time.day,
        time.month,
        time.year,
        time.weekday,
    ] {
        writer.u32(number);
    }
    writer.finish_with(Win32Error::SUCCESS.0)
}
