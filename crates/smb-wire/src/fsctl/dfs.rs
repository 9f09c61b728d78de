//! DFS referrals: REQ_GET_DFS_REFERRAL, its EX form and RESP_GET_DFS_REFERRAL with entries of
//! version 1 to 4 ([MS-DFSC] 2.2.2 to 2.2.5), as far as a server without a namespace needs them.
//!
//! Decoding returns only the path; encoding produces entries of version 3.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Patch, Reader, offset_u16, size};
use crate::utf16;

/// REQ_GET_DFS_REFERRAL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GetDfsReferral {
    /// Highest version of entries that the client understands.
    pub max_referral_level: u16,
    /// `\server\share...`, with one backslash.
    pub request_file_name: String,
}

impl GetDfsReferral {
    /// Reads the input; the name ends at its NUL or at the end.
    ///
    /// # Errors
    /// [`Malformed`] for a name that is not valid UTF-16.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, "REQ_GET_DFS_REFERRAL");
        Ok(Self {
            max_referral_level: reader.u16()?,
            request_file_name: text_to_nul(reader.rest(), reader.malformed())?,
        })
    }

    /// Appends the input.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u16_le(self.max_referral_level);
        utf16::put(out, &self.request_file_name);
        out.put_u16_le(0);
    }
}

/// REQ_GET_DFS_REFERRAL_EX.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GetDfsReferralEx {
    /// Highest version of entries that the client understands.
    pub max_referral_level: u16,
    /// 1: a site name follows.
    pub request_flags: u16,
    /// `\server\share...`, with one backslash.
    pub request_file_name: String,
    /// The client's site.
    pub site_name: Option<String>,
}

impl GetDfsReferralEx {
    /// Reads the input.
    ///
    /// # Errors
    /// [`Malformed`] for parts outside or not valid UTF-16.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "REQ_GET_DFS_REFERRAL_EX";
        let mut reader = Reader::new(bytes, WHAT);
        let max_referral_level = reader.u16()?;
        let request_flags = reader.u16()?;
        let len = size(reader.u32()?);
        let mut reader = Reader::new(reader.take(len)?, WHAT);
        let mut name = || {
            let len = usize::from(reader.u16()?);
            text_to_nul(reader.take(len)?, Malformed::new(WHAT))
        };
        let request_file_name = name()?;
        let site_name = (request_flags & 1 != 0).then(name).transpose()?;
        Ok(Self {
            max_referral_level,
            request_flags,
            request_file_name,
            site_name,
        })
    }
}

fn text_to_nul(bytes: &[u8], malformed: Malformed) -> Result<String, Malformed> {
    let units: Vec<u16> = utf16::units(bytes).take_while(|unit| *unit != 0).collect();
    String::from_utf16(&units).map_err(|_| malformed)
}

flags_of_the_wire! {
    /// Flags of the whole answer.
    pub struct DfsReferralHeaderFlags(u32) {
        REFERRAL_SERVERS = 1,
        STORAGE_SERVERS = 2,
        TARGET_FAILBACK = 4,
    }
}

/// One target, as a version 3 entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DfsReferralEntry {
    /// 1 for a root target, 0 for a link.
    pub server_type: u16,
    /// Time in seconds for which a client may cache the target.
    pub time_to_live_secs: u32,
    /// The path that is referred.
    pub dfs_path: String,
    /// The same in 8.3 names.
    pub dfs_alternate_path: String,
    /// The target, `\server\share`.
    pub network_address: String,
}

/// RESP_GET_DFS_REFERRAL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RespGetDfsReferral {
    /// Bytes of the path, in UTF-16, that the answer covers.
    pub path_consumed_bytes: u16,
    /// Flags.
    pub flags: DfsReferralHeaderFlags,
    /// The targets.
    pub entries: Vec<DfsReferralEntry>,
}

impl RespGetDfsReferral {
    /// Bytes of the header.
    pub const MIN: usize = 8;

    /// Bytes of a version 3 entry without its strings.
    const ENTRY: u16 = 34;

    /// Appends the output: the entries, then all strings.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u16_le(self.path_consumed_bytes);
        out.put_u16_le(u16::try_from(self.entries.len()).unwrap_or(u16::MAX));
        out.put_u32_le(self.flags.0);
        let mut patches = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let start = out.len();
            out.put_u16_le(3);
            out.put_u16_le(Self::ENTRY);
            out.put_u16_le(entry.server_type);
            out.put_u16_le(0);
            out.put_u32_le(entry.time_to_live_secs);
            let offsets = [(); 3].map(|()| Patch::u16(out));
            out.put_bytes(0, 16);
            patches.push((start, offsets));
        }
        for (entry, (start, offsets)) in self.entries.iter().zip(patches) {
            let texts = [
                &entry.dfs_path,
                &entry.dfs_alternate_path,
                &entry.network_address,
            ];
            for (offset, text) in offsets.into_iter().zip(texts) {
                let at = offset_u16(out, start);
                offset.set_u16(out, at);
                utf16::put(out, text);
                out.put_u16_le(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip() {
        let request = GetDfsReferral {
            max_referral_level: 4,
            request_file_name: "\\server\\share".to_owned(),
        };
        let mut out = BytesMut::new();
        request.encode(&mut out);
        assert_eq!(GetDfsReferral::read(&out), Ok(request));
        assert!(GetDfsReferral::read(&[4]).is_err());
        let ex = b"\x04\0\x01\0\x0a\0\0\0\x04\0\\\0a\0\x02\0s\0";
        let ex = GetDfsReferralEx::read(ex).unwrap();
        assert_eq!(ex.request_file_name, "\\a");
        assert_eq!(ex.site_name.as_deref(), Some("s"));
    }

    #[test]
    fn strings_follow_the_entries() {
        let answer = RespGetDfsReferral {
            path_consumed_bytes: 8,
            flags: DfsReferralHeaderFlags::STORAGE_SERVERS,
            entries: vec![DfsReferralEntry {
                dfs_path: "\\a".to_owned(),
                dfs_alternate_path: "\\a".to_owned(),
                network_address: "\\b".to_owned(),
                ..DfsReferralEntry::default()
            }],
        };
        let mut out = BytesMut::new();
        answer.encode(&mut out);
        assert_eq!(out.len(), 8 + 34 + 18);
        assert_eq!(out[20..26], [34, 0, 40, 0, 46, 0]);
    }
}
