//! wkssvc, the workstation service: NetrWkstaGetInfo ([MS-WKST] 3.2.4.1), which Finder and
//! `rpcclient` call. Every other operation is out of range.

use bytes::BytesMut;

use super::activity::{EntryMember, encode_info, up_to_level};
use super::ndr::NdrReader;
use super::pdu::FaultStatus;

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
pub struct WkstaInfo<'a> {
    /// 500 for Windows NT.
    pub platform_id: u32,
    /// Its name.
    pub computer_name: &'a str,
    /// Its workgroup or domain.
    pub lan_group: &'a str,
    /// The reported version.
    pub version_major: u32,
    /// The reported version.
    pub version_minor: u32,
    /// Users logged on.
    pub logged_on_users: u32,
}

/// Encodes the response to NetrWkstaGetInfo.
pub fn encode_wksta_get_info(level: u32, info: &WkstaInfo<'_>) -> BytesMut {
    let entry = vec![
        EntryMember::Number(info.platform_id),
        EntryMember::text(info.computer_name),
        EntryMember::text(info.lan_group),
        EntryMember::Number(info.version_major),
        EntryMember::Number(info.version_minor),
        // No root of a LAN.
        EntryMember::text(""),
        EntryMember::Number(info.logged_on_users),
    ];
    encode_info(level, up_to_level(level, [5, 6, 7], entry))
}
