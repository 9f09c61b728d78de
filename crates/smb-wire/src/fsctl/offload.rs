//! Offloaded copy: OFFLOAD_READ and OFFLOAD_WRITE ([MS-FSCC] 2.3.41 to 2.3.44) and the token that
//! connects them ([MS-FSCC] 2.1.11), which is the only big-endian structure here. Layout only.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::fscc::record::{Field, records};

/// Bytes of a token.
pub const STORAGE_TOKEN_BYTES: usize = 512;

/// STORAGE_OFFLOAD_TOKEN: identifies data in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageToken {
    /// 0xFFFF0001 stands for zeros; other types are defined by the vendor.
    pub token_type: u32,
    /// Number of significant bytes of `token_id`.
    pub token_id_length: u16,
    /// The vendor's identifier of the data.
    pub token_id: [u8; 504],
}

impl StorageToken {
    /// The token type of zeros.
    pub const ZERO_DATA: u32 = 0xffff_0001;
}

impl Default for StorageToken {
    fn default() -> Self {
        Self {
            token_type: Self::ZERO_DATA,
            token_id_length: 0,
            token_id: [0; 504],
        }
    }
}

impl Field for StorageToken {
    const SIZE: usize = STORAGE_TOKEN_BYTES;

    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let token_type = u32::from_be_bytes(reader.array()?);
        reader.skip(2)?;
        Ok(Self {
            token_type,
            token_id_length: u16::from_be_bytes(reader.array()?),
            token_id: reader.array()?,
        })
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u32(self.token_type);
        out.put_u16(0);
        out.put_u16(self.token_id_length);
        out.put_slice(&self.token_id);
    }
}

records! {
    /// FSCTL_OFFLOAD_READ_INPUT.
    OffloadReadInput {
        /// Bytes of this structure, 32.
        size: u32;
        /// None defined.
        flags: u32;
        /// Lifetime of the token in milliseconds, 0 for the server's default.
        token_time_to_live_ms: u32, pad 4;
        /// The position of the first byte.
        file_offset: u64;
        /// The length in bytes.
        copy_length: u64;
    }

    /// FSCTL_OFFLOAD_READ_OUTPUT.
    OffloadReadOutput {
        /// Bytes of this structure, 528.
        size: u32;
        /// 1: only zeros follow the range.
        flags: u32;
        /// Number of bytes that the token represents.
        transfer_length: u64;
        /// The token.
        token: StorageToken;
    }

    /// FSCTL_OFFLOAD_WRITE_INPUT.
    OffloadWriteInput {
        /// Bytes of this structure, 544.
        size: u32;
        /// None defined.
        flags: u32;
        /// The position of the first byte.
        file_offset: u64;
        /// The length in bytes.
        copy_length: u64;
        /// Offset into the data that the token represents.
        transfer_offset: u64;
        /// The token.
        token: StorageToken;
    }

    /// FSCTL_OFFLOAD_WRITE_OUTPUT.
    OffloadWriteOutput {
        /// Bytes of this structure, 16.
        size: u32;
        /// None defined.
        flags: u32;
        /// Bytes written.
        length_written: u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_big_endian() {
        let output = OffloadReadOutput {
            size: 528,
            ..OffloadReadOutput::default()
        };
        let mut out = BytesMut::new();
        output.encode(&mut out);
        assert_eq!(out.len(), 528);
        assert_eq!(out[16..20], [0xff, 0xff, 0, 1]);
        assert_eq!(OffloadReadOutput::read(&out), Ok(output));
        assert_eq!(OffloadWriteInput::MIN, 544);
    }
}
