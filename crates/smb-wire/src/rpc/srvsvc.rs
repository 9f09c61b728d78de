//! srvsvc, the server service ([MS-SRVS] 3.1.4): shares, the server's name and version, its clock. The calls on
//! sessions and opens are in `activity.rs`.
//! Unknown levels get an empty union and ERROR_INVALID_LEVEL.
//!
//! The server supplies the paths of shares, which must not be host paths.

use bytes::BytesMut;

use super::activity::{ActivityRequest, Listing};
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

impl Win32Error {
    /// The result of a query of a level that is known or not.
    pub(super) fn of_level(known: bool) -> Self {
        if known {
            Self::SUCCESS
        } else {
            Self::INVALID_LEVEL
        }
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
pub struct ShareInfo {
    /// Its name.
    pub net_name: String,
    /// Its kind.
    pub share_type: Stype,
    /// Its description.
    pub remark: String,
    /// Not used by servers with user-level security; 0.
    pub permissions: u32,
    /// Maximum number of connections, all ones for no limit.
    pub max_uses: u32,
    /// Current number of connections.
    pub current_uses: u32,
    /// A neutral local path (`C:\name`), never the host's.
    pub path: String,
    /// The security descriptor of the share, self-relative.
    pub security_descriptor: Option<Vec<u8>>,
    /// Caching and DFS flags of levels 501 and 1005.
    pub flags: u32,
}

/// The levels that NetrShareEnum supports.
const ENUM_LEVELS: [u32; 5] = [0, 1, 2, 501, 502];

impl ShareInfo {
    fn put_fixed(&self, level: u32, writer: &mut NdrWriter) {
        if level == 1005 {
            writer.u32(self.flags);
            return;
        }
        writer.pointer(true);
        if level == 0 {
            return;
        }
        writer.u32(self.share_type.0);
        writer.pointer(true);
        match level {
            501 => writer.u32(self.flags),
            2 | 502 => {
                writer.u32(self.permissions);
                writer.u32(self.max_uses);
                writer.u32(self.current_uses);
                writer.pointer(true);
                // An empty password, because some clients print it without a check.
                writer.pointer(true);
                if level == 502 {
                    writer.count(self.security_descriptor.as_ref().map_or(0, Vec::len));
                    writer.pointer(self.security_descriptor.is_some());
                }
            }
            _ => {}
        }
    }

    fn put_referents(&self, level: u32, writer: &mut NdrWriter) {
        if level == 1005 {
            return;
        }
        writer.wide_string(&self.net_name);
        if level == 0 {
            return;
        }
        writer.wide_string(&self.remark);
        if matches!(level, 2 | 502) {
            writer.wide_string(&self.path);
            writer.wide_string("");
        }
        if let Some(descriptor) = self.security_descriptor.as_ref().filter(|_| level == 502) {
            writer.count(descriptor.len());
            writer.bytes(descriptor);
        }
    }
}

/// The reply to NetrShareEnum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareEnumReply {
    /// The requested level.
    pub level: u32,
    /// The shares from the resume handle on.
    pub shares: Vec<ShareInfo>,
    /// Number of shares from the resume handle on, whether they are in this response or not.
    pub total_entries: u32,
    /// The position to continue from; present if the request had one.
    pub resume_handle: Option<u32>,
    /// The result.
    pub result: Win32Error,
}

impl ShareEnumReply {
    /// Creates the response with all shares; ERROR_INVALID_LEVEL for an unknown level.
    pub fn whole(level: u32, shares: Vec<ShareInfo>, resume_handle: Option<u32>) -> Self {
        let known = ENUM_LEVELS.contains(&level);
        let shares = if known { shares } else { Vec::new() };
        Self {
            level,
            total_entries: u32::try_from(shares.len()).unwrap_or(u32::MAX),
            shares,
            resume_handle: resume_handle.map(|_| 0),
            result: Win32Error::of_level(known),
        }
    }

    /// The stub.
    pub fn encode(&self) -> BytesMut {
        let mut writer = NdrWriter::new();
        writer.u32(self.level);
        writer.u32(self.level);
        let known = ENUM_LEVELS.contains(&self.level);
        writer.pointer(known);
        if known {
            writer.count(self.shares.len());
            writer.pointer(true);
            writer.count(self.shares.len());
            for share in &self.shares {
                share.put_fixed(self.level, &mut writer);
            }
            for share in &self.shares {
                share.put_referents(self.level, &mut writer);
            }
        }
        writer.u32(self.total_entries);
        writer.pointer(self.resume_handle.is_some());
        if let Some(handle) = self.resume_handle {
            writer.u32(handle);
        }
        writer.finish_with(self.result.0)
    }
}

/// Encodes the response to NetrShareGetInfo.
pub fn encode_share_get_info(level: u32, share: Result<&ShareInfo, Win32Error>) -> BytesMut {
    let mut writer = NdrWriter::new();
    let known = level == 1005 || ENUM_LEVELS.contains(&level);
    let share = match share {
        Ok(_) if !known => Err(Win32Error::INVALID_LEVEL),
        share => share,
    };
    writer.u32(level);
    writer.pointer(share.is_ok());
    if let Ok(share) = share {
        share.put_fixed(level, &mut writer);
        share.put_referents(level, &mut writer);
    }
    writer.finish_with(share.err().unwrap_or(Win32Error::SUCCESS).0)
}

/// All facts that the levels 100 to 102 contain about a server ([MS-SRVS] 2.2.4.40 to 2.2.4.42).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo {
    /// 500 for Windows NT.
    pub platform_id: u32,
    /// Its name.
    pub name: String,
    /// The reported version.
    pub version_major: u32,
    /// The reported version.
    pub version_minor: u32,
    /// The type bits: 1 workstation, 2 server, 0x1000 NT, 0x8000 NT server.
    pub server_type: u32,
    /// Its description.
    pub comment: String,
    /// Maximum number of users.
    pub users: u32,
    /// Minutes until an idle session is closed, -1 for never.
    pub disconnect_min: i32,
}

/// Encodes the response to NetrServerGetInfo.
pub fn encode_server_get_info(level: u32, server: &ServerInfo) -> BytesMut {
    let mut writer = NdrWriter::new();
    let known = matches!(level, 100..=102);
    writer.u32(level);
    writer.pointer(known);
    if known {
        writer.u32(server.platform_id);
        writer.pointer(true);
        if level > 100 {
            writer.u32(server.version_major);
            writer.u32(server.version_minor);
            writer.u32(server.server_type);
            writer.pointer(true);
        }
        if level == 102 {
            writer.u32(server.users);
            // The same bits.
            writer.u32(server.disconnect_min.cast_unsigned());
            writer.u32(0); // not hidden
            writer.u32(240); // seconds between announcements
            writer.u32(3000); // milliseconds of jitter
            writer.u32(0); // licences
            writer.pointer(true);
        }
        writer.wide_string(&server.name);
        if level > 100 {
            writer.wide_string(&server.comment);
        }
        if level == 102 {
            writer.wide_string("C:\\");
        }
    }
    writer.finish_with(Win32Error::of_level(known).0)
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
