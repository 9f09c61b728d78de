//! The three NTLM messages ([MS-NLMP] 2.2.1) and AV pairs (2.2.2.1), decoded and encoded.
//!
//! Every variable field has a minimum and a maximum; offsets and lengths are checked against the
//! message before any content is read. Decoded fields borrow from the message. Strings are
//! UTF-16LE, which must be well formed, or in an OEM character set ([`Charset`]). The meaning of
//! flags and proofs is in `server` and `client`.

use super::SIGNATURE;
use crate::AuthError::{self, InvalidToken};
use crate::KEPT_MAX;

/// NEGOTIATE flags ([MS-NLMP] 2.2.2.5).
pub(crate) mod flags {
    pub(crate) const UNICODE: u32 = 0x0000_0001;
    pub(crate) const OEM: u32 = 0x0000_0002;
    pub(crate) const REQUEST_TARGET: u32 = 0x0000_0004;
    pub(crate) const SIGN: u32 = 0x0000_0010;
    pub(crate) const SEAL: u32 = 0x0000_0020;
    pub(crate) const NTLM: u32 = 0x0000_0200;
    pub(crate) const ANONYMOUS: u32 = 0x0000_0800;
    pub(crate) const ALWAYS_SIGN: u32 = 0x0000_8000;
    pub(crate) const TARGET_TYPE_SERVER: u32 = 0x0002_0000;
    pub(crate) const EXTENDED_SESSIONSECURITY: u32 = 0x0008_0000;
    pub(crate) const TARGET_INFO: u32 = 0x0080_0000;
    pub(crate) const VERSION: u32 = 0x0200_0000;
    pub(crate) const NEGOTIATE_128: u32 = 0x2000_0000;
    pub(crate) const KEY_EXCH: u32 = 0x4000_0000;
    pub(crate) const NEGOTIATE_56: u32 = 0x8000_0000;
}

/// AvId values ([MS-NLMP] 2.2.2.1).
pub(crate) mod av {
    pub(crate) const EOL: u16 = 0;
    pub(crate) const NB_COMPUTER: u16 = 1;
    pub(crate) const NB_DOMAIN: u16 = 2;
    pub(crate) const DNS_COMPUTER: u16 = 3;
    pub(crate) const DNS_DOMAIN: u16 = 4;
    pub(crate) const FLAGS: u16 = 6;
    pub(crate) const TIMESTAMP: u16 = 7;
    pub(crate) const TARGET_NAME: u16 = 9;
    pub(crate) const CHANNEL_BINDINGS: u16 = 10;
    /// Bit of FLAGS: the AUTHENTICATE message carries a MIC.
    pub(crate) const FLAG_MIC: u32 = 2;
}

/// Largest NTLM message in bytes.
pub(crate) const MAX_MESSAGE: usize = 16_384;
/// Longest user, domain or workstation name in bytes.
pub(crate) const MAX_NAME: usize = 512;
/// Longest LM response; every valid one has 24 bytes.
pub(crate) const MAX_LM: usize = 24;
/// Shortest NTLMv2 response: the proof and the fixed part of the client's blob.
pub(crate) const MIN_NT: usize = PROOF_LEN + BLOB_FIXED;
/// Longest NTLMv2 response.
pub(crate) const MAX_NT: usize = 8192;
/// Maximum number of AV pairs in a list.
pub(crate) const MAX_AV_PAIRS: usize = 32;
pub(crate) const PROOF_LEN: usize = 16;
const BLOB_FIXED: usize = 28;
/// The position of the MIC in AUTHENTICATE.
pub(crate) const MIC_RANGE: core::ops::Range<usize> = 72..88;

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], AuthError> {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk::<N>())
        .copied()
        .ok_or(InvalidToken("NTLM: message too short"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, AuthError> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, AuthError> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn check_header(message: &[u8], message_type: u32) -> Result<(), AuthError> {
    InvalidToken("NTLM: message too long").when(message.len() > MAX_MESSAGE)?;
    InvalidToken("NTLM: no signature").when(!message.starts_with(SIGNATURE))?;
    let is_other = u32_at(message, 8)? != message_type;
    InvalidToken("NTLM: unexpected message type").when(is_other)
}

/// A variable field: length (u16), maximum length (u16, ignored), offset (u32).
fn field<'a>(
    message: &'a [u8],
    at: usize,
    fixed: usize,
    max: usize,
    what: &'static str,
) -> Result<&'a [u8], AuthError> {
    let len = usize::from(u16_at(message, at)?);
    if len == 0 {
        return Ok(&[]);
    }
    let offset = usize::try_from(u32_at(message, at + 4)?).map_err(|_| InvalidToken(what))?;
    InvalidToken(what).when(len > max || offset < fixed)?;
    let end = offset.checked_add(len).ok_or(InvalidToken(what))?;
    message.get(offset..end).ok_or(InvalidToken(what))
}

/// The encoding of the strings in CHALLENGE and AUTHENTICATE ([MS-NLMP] 2.2.2.5, bits A and B). AV
/// pairs are always UTF-16LE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    Unicode,
    Oem,
}

impl Charset {
    /// Returns the character set that the client's flags select. Unicode takes precedence if both
    /// are set ([MS-NLMP] 2.2.2.5); `None` if neither is.
    pub(crate) fn of(negotiated: u32) -> Option<Self> {
        if negotiated & flags::UNICODE != 0 {
            Some(Self::Unicode)
        } else {
            (negotiated & flags::OEM != 0).then_some(Self::Oem)
        }
    }

    /// The flag of this character set.
    pub(crate) const fn flag(self) -> u32 {
        match self {
            Self::Unicode => flags::UNICODE,
            Self::Oem => flags::OEM,
        }
    }

    /// Encodes a name of this server. NetBIOS names are ASCII, which all OEM character sets have in common.
    pub(crate) fn encode(self, name: &str) -> Vec<u8> {
        match self {
            Self::Unicode => super::keys::utf16(name),
            Self::Oem => name.as_bytes().to_vec(),
        }
    }

    fn decode(self, bytes: &[u8], what: &'static str) -> Result<String, AuthError> {
        match self {
            Self::Unicode => text(bytes, what),
            Self::Oem => Ok(oem(bytes)),
        }
    }
}

/// Decodes a name in an OEM character set. The protocol does not say which one it is; the difference matters only
/// beyond ASCII. Clients of today that send OEM strings write UTF-8 or Latin-1, so these two are tried. A wrong guess
/// cannot admit anybody: the proof is computed over the name in Unicode ([MS-NLMP] 3.3.2).
fn oem(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(name) => name.to_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    }
}

fn text(bytes: &[u8], what: &'static str) -> Result<String, AuthError> {
    let (units, odd) = bytes.as_chunks::<2>();
    InvalidToken(what).when(!odd.is_empty())?;
    char::decode_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit)))
        .map(|c| c.map_err(|_| InvalidToken(what)))
        .collect()
}

/// Returns the flags of NEGOTIATE. Its names are not used and therefore not parsed.
pub(crate) fn parse_negotiate(message: &[u8]) -> Result<u32, AuthError> {
    check_header(message, 1)?;
    InvalidToken("NTLM: NEGOTIATE too long").when(message.len() > KEPT_MAX)?;
    u32_at(message, 12)
}

/// A decoded CHALLENGE.
#[derive(Debug)]
pub(crate) struct Challenge<'a> {
    pub(crate) flags: u32,
    pub(crate) server_challenge: [u8; 8],
    pub(crate) target_info: &'a [u8],
}

pub(crate) fn parse_challenge(message: &[u8]) -> Result<Challenge<'_>, AuthError> {
    check_header(message, 2)?;
    Ok(Challenge {
        flags: u32_at(message, 20)?,
        server_challenge: array(message, 24)?,
        target_info: field(message, 40, 48, MAX_NT - MIN_NT, "NTLM: target info")?,
    })
}

/// A decoded AUTHENTICATE.
#[derive(Debug)]
pub(crate) struct Authenticate<'a> {
    pub(crate) lm: &'a [u8],
    pub(crate) nt: &'a [u8],
    pub(crate) domain: String,
    pub(crate) user: String,
    pub(crate) encrypted_key: &'a [u8],
    pub(crate) flags: u32,
    /// The MIC field; present only if all variable fields are behind it.
    pub(crate) mic: Option<[u8; 16]>,
}

pub(crate) fn parse_authenticate(
    message: &[u8],
    charset: Charset,
) -> Result<Authenticate<'_>, AuthError> {
    const FIXED: usize = 64;
    check_header(message, 3)?;
    let flags = u32_at(message, 60)?;
    let name = |at, what| {
        field(message, at, FIXED, MAX_NAME, what).and_then(|bytes| charset.decode(bytes, what))
    };
    field(message, 44, FIXED, MAX_NAME, "NTLM: workstation")?;
    // The table of the fields LM, NT, domain, user, workstation and key. The MIC exists only if
    // none of their data begins before the end of the MIC field.
    let mut payload = message.len();
    for at in [12, 20, 28, 36, 44, 52] {
        if u16_at(message, at)? != 0 {
            payload = payload.min(usize::try_from(u32_at(message, at + 4)?).unwrap_or(0));
        }
    }
    let mic = (payload >= MIC_RANGE.end)
        .then(|| array(message, MIC_RANGE.start))
        .transpose()?;
    Ok(Authenticate {
        lm: field(message, 12, FIXED, MAX_LM, "NTLM: LM answer")?,
        nt: field(message, 20, FIXED, MAX_NT, "NTLM: NT answer")?,
        domain: name(28, "NTLM: domain name")?,
        user: name(36, "NTLM: user name")?,
        // Longer keys are rejected here; other wrong lengths are rejected where the key is used.
        encrypted_key: field(message, 52, FIXED, 16, "NTLM: encrypted session key")?,
        flags,
        mic,
    })
}

/// An NTLMv2 response, split into proof and blob.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NtAnswer<'a> {
    pub(crate) proof: &'a [u8],
    /// NTLMv2_CLIENT_CHALLENGE ([MS-NLMP] 2.2.2.7).
    pub(crate) blob: &'a [u8],
}

impl<'a> NtAnswer<'a> {
    /// Splits a response; rejects NTLMv1 (24 bytes or less) and blobs of another version.
    pub(crate) fn parse(nt: &'a [u8]) -> Result<Self, AuthError> {
        AuthError::NtlmV1Refused.when(nt.len() <= 24)?;
        InvalidToken("NTLM: NT answer too short").when(nt.len() < MIN_NT)?;
        let (proof, blob) = nt
            .split_at_checked(PROOF_LEN)
            .ok_or(InvalidToken("NTLM: NT answer"))?;
        InvalidToken("NTLM: NT answer version").when(!blob.starts_with(&[1, 1]))?;
        Ok(Self { proof, blob })
    }

    /// The AV pairs of the blob.
    pub(crate) fn av_pairs(&self) -> AvPairs<'a> {
        AvPairs::new(self.blob.get(BLOB_FIXED..).unwrap_or(&[]))
    }
}

/// Iterator over AV pairs that ends at the EOL pair, or where nothing is left: some clients send no list or leave that
/// pair out, and the proof covers the list in any form. A pair that is cut short yields an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AvPairs<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> AvPairs<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            left: MAX_AV_PAIRS,
        }
    }

    fn take(&mut self) -> Result<Option<(u16, &'a [u8])>, AuthError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let id = u16_at(self.rest, 0)?;
        let len = usize::from(u16_at(self.rest, 2)?);
        if id == av::EOL {
            return Ok(None);
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or(InvalidToken("NTLM: AV pairs"))?;
        let body = self.rest.get(4..).unwrap_or(&[]);
        let (value, rest) = body
            .split_at_checked(len)
            .ok_or(InvalidToken("NTLM: AV pair cut short"))?;
        self.rest = rest;
        Ok(Some((id, value)))
    }

    /// The value of MsvAvFlags, or 0 if it is absent.
    pub(crate) fn flags(self) -> Result<u32, AuthError> {
        for pair in self {
            let (id, value) = pair?;
            if id == av::FLAGS {
                return array(value, 0).map(u32::from_le_bytes);
            }
        }
        Ok(0)
    }
}

impl<'a> Iterator for AvPairs<'a> {
    type Item = Result<(u16, &'a [u8]), AuthError>;

    fn next(&mut self) -> Option<Self::Item> {
        let taken = self.take().transpose();
        if !matches!(taken, Some(Ok(_))) {
            // After an error or the end the iterator remains at its end.
            self.rest = &[0, 0, 0, 0];
        }
        taken
    }
}

/// Appends one AV pair; values above 65535 bytes are omitted.
pub(crate) fn push_av(list: &mut Vec<u8>, id: u16, value: &[u8]) {
    if let Ok(len) = u16::try_from(value.len()) {
        list.extend_from_slice(&id.to_le_bytes());
        list.extend_from_slice(&len.to_le_bytes());
        list.extend_from_slice(value);
    }
}

/// Assembles a message that has a table of variable fields among its fixed bytes.
struct Builder {
    fixed: Vec<u8>,
    payload: Vec<u8>,
    fixed_len: usize,
}

impl Builder {
    fn new(message_type: u32, fixed_len: usize) -> Self {
        let mut fixed = SIGNATURE.to_vec();
        fixed.extend_from_slice(&message_type.to_le_bytes());
        Self {
            fixed,
            payload: Vec::new(),
            fixed_len,
        }
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.fixed.extend_from_slice(bytes);
        self
    }

    fn field(mut self, value: &[u8]) -> Self {
        // Our own values are far below 64 KiB; a longer one would be sent as empty.
        let len = u16::try_from(value.len()).unwrap_or(0);
        let offset = u32::try_from(self.fixed_len + self.payload.len()).unwrap_or(0);
        for part in [
            &len.to_le_bytes()[..],
            &len.to_le_bytes(),
            &offset.to_le_bytes(),
        ] {
            self.fixed.extend_from_slice(part);
        }
        if len != 0 {
            self.payload.extend_from_slice(value);
        }
        self
    }

    fn finish(mut self) -> Vec<u8> {
        self.fixed.resize(self.fixed_len, 0);
        self.fixed.append(&mut self.payload);
        self.fixed
    }
}

/// VERSION ([MS-NLMP] 2.2.2.10): a debugging aid without influence on the protocol. 10.0, revision
/// 15.
const VERSION: [u8; 8] = [10, 0, 0, 0, 0, 0, 0, 15];

pub(crate) fn build_negotiate(flags: u32) -> Vec<u8> {
    Builder::new(1, 40)
        .bytes(&flags.to_le_bytes())
        .field(&[])
        .field(&[])
        .bytes(&VERSION)
        .finish()
}

pub(crate) fn build_challenge(
    flags: u32,
    server_challenge: &[u8; 8],
    target_name: &[u8],
    target_info: &[u8],
) -> Vec<u8> {
    Builder::new(2, 56)
        .field(target_name)
        .bytes(&flags.to_le_bytes())
        .bytes(server_challenge)
        .bytes(&[0; 8])
        .field(target_info)
        .bytes(&VERSION)
        .finish()
}

/// The fields of AUTHENTICATE; strings are encoded in the negotiated character set.
pub(crate) struct AuthenticateFields<'a> {
    pub(crate) lm: &'a [u8],
    pub(crate) nt: &'a [u8],
    pub(crate) domain: &'a [u8],
    pub(crate) user: &'a [u8],
    pub(crate) workstation: &'a [u8],
    pub(crate) encrypted_key: &'a [u8],
    pub(crate) flags: u32,
}

/// Builds AUTHENTICATE with a zero MIC field.
pub(crate) fn build_authenticate(fields: &AuthenticateFields<'_>) -> Vec<u8> {
    Builder::new(3, MIC_RANGE.end)
        .field(fields.lm)
        .field(fields.nt)
        .field(fields.domain)
        .field(fields.user)
        .field(fields.workstation)
        .field(fields.encrypted_key)
        .bytes(&fields.flags.to_le_bytes())
        .bytes(&VERSION)
        .finish()
}
