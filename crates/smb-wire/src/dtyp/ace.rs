//! The layout of access control entries ([MS-DTYP] 2.4.4).
//!
//! Entries whose layout is header, mask, SID (allowed, denied, audit, their callback forms, the
//! integrity label) are decoded; all others, including object entries, survive a round trip as
//! opaque bytes. Of those, only object entries that deny take part in decisions.

use bytes::{BufMut, BytesMut};

use super::sid::Sid;
use crate::access_mask::AccessMask;
use crate::codec::{Malformed, Reader, size};

enum_of_the_wire! {
    /// The kind of an entry ([MS-DTYP] 2.4.4.1).
    pub struct AceType(u8) {
        ACCESS_ALLOWED = 0x00,
        ACCESS_DENIED = 0x01,
        SYSTEM_AUDIT = 0x02,
        SYSTEM_ALARM = 0x03,
        ACCESS_ALLOWED_COMPOUND = 0x04,
        ACCESS_ALLOWED_OBJECT = 0x05,
        ACCESS_DENIED_OBJECT = 0x06,
        SYSTEM_AUDIT_OBJECT = 0x07,
        SYSTEM_ALARM_OBJECT = 0x08,
        ACCESS_ALLOWED_CALLBACK = 0x09,
        ACCESS_DENIED_CALLBACK = 0x0a,
        ACCESS_ALLOWED_CALLBACK_OBJECT = 0x0b,
        ACCESS_DENIED_CALLBACK_OBJECT = 0x0c,
        SYSTEM_AUDIT_CALLBACK = 0x0d,
        SYSTEM_ALARM_CALLBACK = 0x0e,
        SYSTEM_AUDIT_CALLBACK_OBJECT = 0x0f,
        SYSTEM_ALARM_CALLBACK_OBJECT = 0x10,
        SYSTEM_MANDATORY_LABEL = 0x11,
        SYSTEM_RESOURCE_ATTRIBUTE = 0x12,
        SYSTEM_SCOPED_POLICY_ID = 0x13,
    }
}

impl AceType {
    /// Returns whether the entry denies, under whatever condition.
    pub const fn denies(self) -> bool {
        matches!(
            self,
            Self::ACCESS_DENIED
                | Self::ACCESS_DENIED_OBJECT
                | Self::ACCESS_DENIED_CALLBACK
                | Self::ACCESS_DENIED_CALLBACK_OBJECT
        )
    }

    /// Returns whether the entry is for types of objects ([MS-DTYP] 2.4.4.3).
    pub const fn is_of_object(self) -> bool {
        matches!(self.0, 0x05..=0x08 | 0x0b | 0x0c | 0x0f | 0x10)
    }

    /// Returns whether the body is mask and SID, possibly followed by application data.
    const fn is_mask_and_sid(self) -> bool {
        matches!(self.0, 0x00..=0x03 | 0x09 | 0x0a | 0x0d | 0x0e | 0x11..=0x13)
    }
}

flags_of_the_wire! {
    /// The inheritance and audit flags of an entry ([MS-DTYP] 2.4.4.1).
    pub struct AceFlags(u8) {
        OBJECT_INHERIT = 0x01,
        CONTAINER_INHERIT = 0x02,
        NO_PROPAGATE_INHERIT = 0x04,
        INHERIT_ONLY = 0x08,
        INHERITED = 0x10,
        SUCCESSFUL_ACCESS = 0x40,
        FAILED_ACCESS = 0x80,
    }
}

/// The body of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AceBody {
    /// These rights for this SID.
    Access {
        /// The rights.
        mask: AccessMask,
        /// The SID that the rights concern.
        sid: Sid,
        /// The bytes behind the SID (conditions of callback entries); usually empty.
        application_data: Vec<u8>,
    },
    /// The bytes behind the header of an entry that is not decoded.
    Opaque(Vec<u8>),
}

/// One access control entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ace {
    /// Its kind.
    pub ace_type: AceType,
    /// Inheritance and audit.
    pub flags: AceFlags,
    /// Its body.
    pub body: AceBody,
}

impl Ace {
    /// Bytes before the body.
    pub const MIN: usize = 4;

    /// An entry of mask and SID.
    pub const fn new(ace_type: AceType, flags: AceFlags, mask: AccessMask, sid: Sid) -> Self {
        let application_data = Vec::new();
        Self {
            ace_type,
            flags,
            body: AceBody::Access {
                mask,
                sid,
                application_data,
            },
        }
    }

    /// An entry that allows.
    pub const fn allow(sid: Sid, mask: AccessMask, flags: AceFlags) -> Self {
        Self::new(AceType::ACCESS_ALLOWED, flags, mask, sid)
    }

    /// An entry that denies.
    pub const fn deny(sid: Sid, mask: AccessMask, flags: AceFlags) -> Self {
        Self::new(AceType::ACCESS_DENIED, flags, mask, sid)
    }

    /// Mask and SID, if the entry is of that form.
    pub const fn access(&self) -> Option<(AccessMask, &Sid)> {
        match &self.body {
            AceBody::Access { mask, sid, .. } => Some((*mask, sid)),
            AceBody::Opaque(_) => None,
        }
    }

    /// Mask and SID of an entry for types of objects ([MS-DTYP] 2.4.4.3), if it has that form.
    pub fn object_access(&self) -> Option<(AccessMask, Sid)> {
        const TYPE_SIZE: usize = 16;
        let AceBody::Opaque(body) = &self.body else {
            return None;
        };
        let mut reader = Reader::new(body, "object ACE");
        let mask = AccessMask(reader.u32().ok()?);
        // ACE_OBJECT_TYPE_PRESENT and ACE_INHERITED_OBJECT_TYPE_PRESENT.
        let types = (reader.u32().ok()? & 3).count_ones();
        reader.take(size(types) * TYPE_SIZE).ok()?;
        Some((mask, Sid::get(&mut reader).ok()?))
    }

    /// Returns whether files or directories below inherit the entry.
    pub const fn is_inheritable(&self) -> bool {
        let below = AceFlags::OBJECT_INHERIT.union(AceFlags::CONTAINER_INHERIT);
        self.flags.intersects(below)
    }

    /// Reads the next entry.
    ///
    /// # Errors
    /// [`Malformed`] when AceSize exceeds the list, is not a multiple of 4, or is too small for mask and SID.
    pub fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        const WHAT: &str = "ACE";
        let ace_type = AceType(reader.u8()?);
        let flags = AceFlags(reader.u8()?);
        let len = usize::from(reader.u16()?);
        // [MS-DTYP] 2.4.4.1: AceSize is a multiple of 4.
        let body_len = len.checked_sub(Self::MIN).filter(|_| len.is_multiple_of(4));
        let body = reader.take(body_len.ok_or(Malformed { what: WHAT })?)?;
        let body = if ace_type.is_mask_and_sid() {
            let mut inner = Reader::new(body, WHAT);
            AceBody::Access {
                mask: AccessMask(inner.u32()?),
                sid: Sid::get(&mut inner)?,
                application_data: inner.rest().to_vec(),
            }
        } else {
            AceBody::Opaque(body.to_vec())
        };
        Ok(Self {
            ace_type,
            flags,
            body,
        })
    }

    /// Bytes on the wire, a multiple of 4.
    pub fn encoded_len(&self) -> usize {
        let body = match &self.body {
            AceBody::Access {
                sid,
                application_data,
                ..
            } => 4 + sid.encoded_len() + application_data.len(),
            AceBody::Opaque(bytes) => bytes.len(),
        };
        (Self::MIN + body).next_multiple_of(4)
    }

    /// Appends the entry, padded to a multiple of 4. The list checks the total length.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u8(self.ace_type.0);
        out.put_u8(self.flags.0);
        out.put_u16_le(u16::try_from(self.encoded_len()).unwrap_or(u16::MAX));
        match &self.body {
            AceBody::Access {
                mask,
                sid,
                application_data,
            } => {
                out.put_u32_le(mask.0);
                sid.encode(out);
                out.put_slice(application_data);
            }
            AceBody::Opaque(bytes) => out.put_slice(bytes),
        }
        crate::codec::pad_to(out, start, 4);
    }
}
