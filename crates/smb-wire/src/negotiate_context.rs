//! The negotiate contexts of 3.1.1 ([MS-SMB2] 2.2.3.1, 2.2.4.1): a counted list and its members.
//!
//! Each member is 8-aligned, counted from the first; the last need not be padded. Unknown types are
//! returned like any other. The server decides how many contexts of each type are allowed and which
//! algorithm is chosen.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Patch, Reader, counted_list, fitting_u16, offset_u16, pad_to};
use crate::fscc::record::Field;

enum_of_the_wire! {
    /// The type of a negotiate context.
    pub struct NegotiateContextType(u16) {
        PREAUTH_INTEGRITY_CAPABILITIES = 0x0001,
        ENCRYPTION_CAPABILITIES = 0x0002,
        COMPRESSION_CAPABILITIES = 0x0003,
        NETNAME_NEGOTIATE_CONTEXT_ID = 0x0005,
        TRANSPORT_CAPABILITIES = 0x0006,
        RDMA_TRANSFORM_CAPABILITIES = 0x0007,
        SIGNING_CAPABILITIES = 0x0008,
        /// Reserved in the specification; used by the POSIX extensions of Samba and the Linux client.
        POSIX_EXTENSIONS = 0x0100,
    }

    /// Hash of the preauthentication integrity.
    pub struct HashAlgorithm(u16) {
        SHA_512 = 0x0001,
    }

    /// Number of the cipher of encrypted messages.
    pub struct CipherId(u16) {
        /// No common cipher (responses).
        NONE = 0x0000,
        AES_128_CCM = 0x0001,
        AES_128_GCM = 0x0002,
        AES_256_CCM = 0x0003,
        AES_256_GCM = 0x0004,
    }

    /// Number of the algorithm of signatures.
    pub struct SigningAlgorithmId(u16) {
        HMAC_SHA256 = 0x0000,
        AES_CMAC = 0x0001,
        AES_GMAC = 0x0002,
    }
}

/// One member of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiateContext<'a> {
    /// Its type.
    pub context_type: NegotiateContextType,
    /// Its data.
    pub data: &'a [u8],
}

/// A counted list of contexts as raw bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NegotiateContexts<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> NegotiateContexts<'a> {
    /// No contexts.
    pub const EMPTY: NegotiateContexts<'static> = NegotiateContexts {
        count: 0,
        bytes: &[],
    };

    /// Creates a list of `count` contexts in `bytes`.
    pub const fn new(count: u16, bytes: &'a [u8]) -> Self {
        Self { count, bytes }
    }

    /// The number of contexts that the message announces.
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// The raw list.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns an iterator over the members; it ends after the first malformed one.
    pub fn iter(&self) -> impl Iterator<Item = Result<NegotiateContext<'a>, Malformed>> + use<'a> {
        let count = self.count.into();
        counted_list(self.bytes, count, "negotiate context", |reader| {
            let context_type = NegotiateContextType(reader.u16()?);
            let len = reader.u16()?;
            reader.skip(4)?;
            let data = reader.take(len.into())?;
            Ok(NegotiateContext { context_type, data })
        })
    }
}

/// A list under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NegotiateContextList {
    count: u16,
    bytes: BytesMut,
}

impl NegotiateContextList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a member; `write` appends its data.
    pub fn push_with(
        &mut self,
        context_type: NegotiateContextType,
        write: impl FnOnce(&mut BytesMut),
    ) {
        let out = &mut self.bytes;
        pad_to(out, 0, 8);
        out.put_u16_le(context_type.0);
        let len = Patch::u16(out);
        out.put_u32_le(0);
        let start = out.len();
        write(out);
        out.truncate(start.saturating_add(usize::from(u16::MAX)));
        len.set_u16(out, offset_u16(out, start));
        self.count = self.count.saturating_add(1);
    }

    /// Appends a member.
    pub fn push(&mut self, context: NegotiateContext<'_>) {
        let (data, _) = fitting_u16(context.data);
        self.push_with(context.context_type, |out| out.put_slice(data));
    }

    /// The encoded list.
    pub fn contexts(&self) -> NegotiateContexts<'_> {
        NegotiateContexts {
            count: self.count,
            bytes: &self.bytes,
        }
    }
}

/// Reads a sequence of `count` algorithms.
fn algorithms<T: Field>(reader: &mut Reader<'_>, count: u16) -> Result<Vec<T>, Malformed> {
    (0..count).map(|_| T::get(reader)).collect()
}

/// Appends a sequence of algorithms.
fn put_algorithms(out: &mut BytesMut, algorithms: &[impl Field]) {
    for algorithm in algorithms {
        algorithm.put(out);
    }
}

fn count(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// PREAUTH_INTEGRITY_CAPABILITIES ([MS-SMB2] 2.2.3.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreauthIntegrityCapabilities<'a> {
    /// The offered algorithms, or the chosen one.
    pub hash_algorithms: Vec<HashAlgorithm>,
    /// Random bytes.
    pub salt: &'a [u8],
}

impl<'a> PreauthIntegrityCapabilities<'a> {
    /// The context's type.
    pub const TYPE: NegotiateContextType = NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES;

    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the data are shorter than they announce.
    pub fn read(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data, "preauth integrity capabilities");
        let (hash_count, salt_len) = (reader.u16()?, reader.u16()?);
        let hash_algorithms = algorithms(&mut reader, hash_count)?;
        Ok(Self {
            hash_algorithms,
            salt: reader.take(salt_len.into())?,
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        let (salt, salt_len) = fitting_u16(self.salt);
        out.put_u16_le(count(self.hash_algorithms.len()));
        out.put_u16_le(salt_len);
        put_algorithms(out, &self.hash_algorithms);
        out.put_slice(salt);
    }
}

/// Defines contexts whose data are a counted sequence of algorithms.
macro_rules! algorithm_contexts {
    ($(
        $(#[$meta:meta])*
        $name:ident { $field:ident: $type:ty } = $context:ident, $what:literal;
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            /// The offered ones in the client's order, or the chosen one.
            pub $field: Vec<$type>,
        }

        impl $name {
            /// The context's type.
            pub const TYPE: NegotiateContextType = NegotiateContextType::$context;

            /// Reads the data.
            ///
            /// # Errors
            /// [`Malformed`] when the data are shorter than they announce.
            pub fn read(data: &[u8]) -> Result<Self, Malformed> {
                let mut reader = Reader::new(data, $what);
                let count = reader.u16()?;
                let $field = algorithms(&mut reader, count)?;
                Ok(Self { $field })
            }

            /// Appends the data.
            pub fn encode(&self, out: &mut BytesMut) {
                out.put_u16_le(count(self.$field.len()));
                put_algorithms(out, &self.$field);
            }
        }
    )*};
}

algorithm_contexts! {
    /// ENCRYPTION_CAPABILITIES ([MS-SMB2] 2.2.3.1.2).
    EncryptionCapabilities { ciphers: CipherId } =
        ENCRYPTION_CAPABILITIES, "encryption capabilities";
    /// SIGNING_CAPABILITIES ([MS-SMB2] 2.2.3.1.7).
    SigningCapabilities { algorithms: SigningAlgorithmId } =
        SIGNING_CAPABILITIES, "signing capabilities";
}
