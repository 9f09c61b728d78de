//! Quota lists: FILE_QUOTA_INFORMATION and the list of requested SIDs ([MS-FSCC] 2.4.41). Layout
//! only; the lists are limited by the message that contains them.

use bytes::{BufMut, BytesMut};

use super::record::{Chain, ChainWriter};
use crate::codec::{Malformed, Reader, size};
use crate::dtyp::Sid;
use crate::ids::FileTime;

/// One user's quota; sizes in bytes, -1 and -2 as in [MS-FSCC] 2.4.41.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaEntry {
    /// The time of the last change.
    pub change_time: FileTime,
    /// Bytes used.
    pub quota_used: i64,
    /// Bytes at which to warn.
    pub quota_threshold: i64,
    /// Bytes allowed.
    pub quota_limit: i64,
    /// The SID of the user.
    pub sid: Sid,
}

impl QuotaEntry {
    /// Bytes before the SID.
    pub const MIN: usize = 40;
}

/// Reads a list of quotas.
///
/// # Errors
/// [`Malformed`] for a chain that exceeds the buffer or a malformed SID.
pub fn read_quota_list(bytes: &[u8]) -> Result<Vec<QuotaEntry>, Malformed> {
    const WHAT: &str = "FileQuotaInformation";
    Chain::new(bytes, WHAT)
        .map(|entry| {
            let mut reader = Reader::new(entry?, WHAT);
            reader.skip(4)?;
            let sid_len = size(reader.u32()?);
            let change_time = FileTime(reader.u64()?);
            // The casts reinterpret the sign bit.
            let quota_used = reader.u64()? as i64;
            let quota_threshold = reader.u64()? as i64;
            let quota_limit = reader.u64()? as i64;
            let sid = Sid::read(reader.take(sid_len)?)?;
            Ok(QuotaEntry {
                change_time,
                quota_used,
                quota_threshold,
                quota_limit,
                sid,
            })
        })
        .collect()
}

/// Encodes as many quotas as fit into a list of at most `limit` bytes; returns the list and their
/// number.
#[must_use]
pub fn encode_quota_list(entries: &[QuotaEntry], limit: usize) -> (BytesMut, usize) {
    let mut writer = ChainWriter::new(limit, 8);
    let fitted = entries
        .iter()
        .take_while(|entry| {
            writer.push(|out| {
                out.put_u32_le(0);
                out.put_u32_le(u32::try_from(entry.sid.encoded_len()).unwrap_or(0));
                out.put_u64_le(entry.change_time.0);
                out.put_i64_le(entry.quota_used);
                out.put_i64_le(entry.quota_threshold);
                out.put_i64_le(entry.quota_limit);
                entry.sid.encode(out);
            })
        })
        .count();
    (writer.finish(), fitted)
}

/// Reads the list of SIDs whose quotas are requested ([MS-FSCC] 2.4.41.1).
///
/// # Errors
/// [`Malformed`] for a chain that exceeds the buffer or a malformed SID.
pub fn read_get_quota_list(bytes: &[u8]) -> Result<Vec<Sid>, Malformed> {
    const WHAT: &str = "FILE_GET_QUOTA_INFORMATION";
    Chain::new(bytes, WHAT)
        .map(|entry| {
            let mut reader = Reader::new(entry?, WHAT);
            reader.skip(4)?;
            let sid_len = size(reader.u32()?);
            Sid::read(reader.take(sid_len)?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_round_trip() {
        let entries = vec![
            QuotaEntry {
                change_time: FileTime(5),
                quota_used: 1,
                quota_threshold: -1,
                quota_limit: 2,
                sid: Sid::unix_user(1000),
            },
            QuotaEntry {
                change_time: FileTime(6),
                quota_used: 1,
                quota_threshold: -2,
                quota_limit: 2,
                sid: Sid::EVERYONE,
            },
        ];
        let (out, fitted) = encode_quota_list(&entries, 500);
        assert_eq!(fitted, 2);
        assert_eq!(read_quota_list(&out), Ok(entries));
    }
}
