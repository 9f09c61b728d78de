//! wkssvc, the workstation service: NetrWkstaGetInfo ([MS-WKST] 3.2.4.1), which Finder and
//! `rpcclient` call. Every other operation is out of range.

use bytes::BytesMut;

use super::ndr::{NdrReader, NdrWriter};
use super::pdu::FaultStatus;
use super::srvsvc::Win32Error;

/// Decodes a stub; returns the level.
///
/// # Errors
/// OP_RNG_ERROR for another operation, BAD_STUB_DATA for a stub that does not match it.
pub fn decode_level(opnum: u16, stub: &[u8]) -> Result<u32, FaultStatus> {
    if opnum != 0 {
        return Err(FaultStatus::OP_RNG_ERROR);
    }
    let mut reader = NdrReader::new(stub);
    reader.unique_wide_string()?;
    Ok(reader.u32()?)
}

/// All facts that the levels 100 to 102 contain ([MS-WKST] 2.2.5.1 to 2.2.5.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WkstaInfo {
    /// 500 for Windows NT.
    pub platform_id: u32,
    /// Its name.
    pub computer_name: String,
    /// Its workgroup or domain.
    pub lan_group: String,
    /// The reported version.
    pub version_major: u32,
    /// The reported version.
    pub version_minor: u32,
    /// Users logged on.
    pub logged_on_users: u32,
}

/// Encodes the response to NetrWkstaGetInfo.
pub fn encode_wksta_get_info(level: u32, info: &WkstaInfo) -> BytesMut {
    let mut writer = NdrWriter::new();
    let known = matches!(level, 100..=102);
    writer.u32(level);
    writer.pointer(known);
    if known {
        writer.u32(info.platform_id);
        writer.pointer(true);
        writer.pointer(true);
        writer.u32(info.version_major);
        writer.u32(info.version_minor);
        if level > 100 {
            writer.pointer(true);
        }
        if level == 102 {
            writer.u32(info.logged_on_users);
        }
        writer.wide_string(&info.computer_name);
        writer.wide_string(&info.lan_group);
        if level > 100 {
            writer.wide_string("");
        }
    }
    writer.finish_with(Win32Error::of_level(known).0)
}
