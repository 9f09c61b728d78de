//! Security descriptors in self-relative form ([MS-DTYP] 2.4.6) and the parts of one that a request
//! names ([MS-DTYP] 2.4.7).
//!
//! An absent DACL (never set, or a NULL DACL) and an empty DACL are different things: the first
//! allows everybody, the second nobody. `dacl: None` is the former.

use bytes::{BufMut, BytesMut};

use super::ace::{Ace, AceType};
use super::acl::Acl;
use super::sid::Sid;
use crate::codec::{Malformed, Patch, Reader, offset_u32, size};

/// Maximum length in bytes of a descriptor that is read or written.
pub const MAX_SECURITY_DESCRIPTOR_BYTES: usize = 65_536;

flags_of_the_wire! {
    /// Control bits ([MS-DTYP] 2.4.6).
    pub struct SecurityDescriptorControl(u16) {
        DACL_PRESENT = 0x0004,
        DACL_DEFAULTED = 0x0008,
        SACL_PRESENT = 0x0010,
        SACL_DEFAULTED = 0x0020,
        DACL_AUTO_INHERIT_REQ = 0x0100,
        DACL_AUTO_INHERITED = 0x0400,
        SACL_AUTO_INHERITED = 0x0800,
        DACL_PROTECTED = 0x1000,
        SACL_PROTECTED = 0x2000,
        SELF_RELATIVE = 0x8000,
    }

    /// Parts of a descriptor, in AdditionalInformation of QUERY_INFO and SET_INFO ([MS-SMB2] 2.2.37).
    pub struct SecurityInformation(u32) {
        OWNER = 0x0000_0001,
        GROUP = 0x0000_0002,
        DACL = 0x0000_0004,
        SACL = 0x0000_0008,
        LABEL = 0x0000_0010,
        ATTRIBUTE = 0x0000_0020,
        SCOPE = 0x0000_0040,
        BACKUP = 0x0001_0000,
        UNPROTECTED_SACL = 0x1000_0000,
        UNPROTECTED_DACL = 0x2000_0000,
        PROTECTED_SACL = 0x4000_0000,
        PROTECTED_DACL = 0x8000_0000,
    }
}

/// The owner of an object, and the access that others have to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityDescriptor {
    /// Control bits without those that say which parts are present; these follow from the fields.
    pub control: SecurityDescriptorControl,
    /// Owner.
    pub owner: Option<Sid>,
    /// Primary group.
    pub group: Option<Sid>,
    /// The audit entries, the integrity label, resource attributes and central policies.
    pub sacl: Option<Acl>,
    /// The access entries; `None` allows everybody everything.
    pub dacl: Option<Acl>,
}

impl SecurityDescriptor {
    /// Bytes of the fixed part.
    pub const MIN: usize = 20;

    const WHAT: &'static str = "SECURITY_DESCRIPTOR";

    /// Reads a descriptor. Its parts may be in any order and overlap each other.
    ///
    /// # Errors
    /// [`Malformed`] for another revision, an absolute descriptor, an offset into the fixed part or
    /// beyond `bytes`, a malformed part, or over [`MAX_SECURITY_DESCRIPTOR_BYTES`].
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        use SecurityDescriptorControl as Control;
        if bytes.len() > MAX_SECURITY_DESCRIPTOR_BYTES {
            return Err(Malformed { what: Self::WHAT });
        }
        let mut reader = Reader::new(bytes, Self::WHAT);
        let revision = reader.u8()?;
        reader.skip(1)?;
        let control = Control(reader.u16()?);
        if revision != 1 || !control.contains(Control::SELF_RELATIVE) {
            return Err(reader.malformed());
        }
        let owner = part(bytes, reader.u32()?)?.map(Sid::read).transpose()?;
        let group = part(bytes, reader.u32()?)?.map(Sid::read).transpose()?;
        let sacl = part(bytes, reader.u32()?)?;
        let dacl = part(bytes, reader.u32()?)?;
        // The offset is valid only if the control bit announces a list.
        let sacl = sacl.filter(|_| control.contains(Control::SACL_PRESENT));
        let dacl = dacl.filter(|_| control.contains(Control::DACL_PRESENT));
        Ok(Self {
            control,
            owner,
            group,
            sacl: sacl.map(Acl::read).transpose()?,
            dacl: dacl.map(Acl::read).transpose()?,
        })
    }

    /// Bytes on the wire.
    pub fn encoded_len(&self) -> usize {
        let sids = [&self.owner, &self.group];
        let acls = [&self.sacl, &self.dacl];
        let sids = sids.into_iter().flatten().map(Sid::encoded_len);
        let acls = acls.into_iter().flatten().map(Acl::encoded_len);
        Self::MIN + sids.sum::<usize>() + acls.sum::<usize>()
    }

    /// Appends the descriptor: owner, group, SACL, DACL in this order.
    ///
    /// # Errors
    /// [`Malformed`], and nothing is written, when the descriptor or a list in it is too long.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), Malformed> {
        use SecurityDescriptorControl as Control;
        if self.encoded_len() > MAX_SECURITY_DESCRIPTOR_BYTES {
            return Err(Malformed::new("SECURITY_DESCRIPTOR (too long to write)"));
        }
        let mut control = self.control | Control::SELF_RELATIVE;
        control |= Control::SACL_PRESENT.when(self.sacl.is_some());
        control |= Control::DACL_PRESENT.when(self.dacl.is_some());
        let start = out.len();
        out.put_u8(1);
        out.put_u8(0);
        out.put_u16_le(control.0);
        let offsets = [(); 4].map(|()| Patch::u32(out));
        let [owner, group, sacl, dacl] = offsets;
        for (offset, sid) in [(owner, &self.owner), (group, &self.group)] {
            if let Some(sid) = sid {
                offset.set_u32(out, offset_u32(out, start));
                sid.encode(out);
            }
        }
        for (offset, acl) in [(sacl, &self.sacl), (dacl, &self.dacl)] {
            if let Some(acl) = acl {
                offset.set_u32(out, offset_u32(out, start));
                if let Err(error) = acl.encode(out) {
                    out.truncate(start);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns the parts that a query requests ([MS-FSA] 2.1.5.14); the control bits of the others are cleared.
    pub fn select(&self, parts: SecurityInformation) -> Self {
        use SecurityDescriptorControl as Control;
        use SecurityInformation as Part;
        let dacl = parts.contains(Part::DACL);
        let sacl = parts.intersects(OF_SACL);
        let mut system = self.sacl.clone().filter(|_| sacl);
        if let Some(acl) = &mut system {
            acl.aces.retain(|ace| is_named(ace, parts));
        }
        let mut control = self.control;
        if !dacl {
            control = control.without(Control(0x1504 | Control::DACL_DEFAULTED.0));
        }
        if !sacl {
            control = control.without(Control(0x2a10 | Control::SACL_DEFAULTED.0));
        }
        Self {
            control,
            owner: self.owner.filter(|_| parts.contains(Part::OWNER)),
            group: self.group.filter(|_| parts.contains(Part::GROUP)),
            sacl: system,
            dacl: self.dacl.clone().filter(|_| dacl),
        }
    }

    /// Replaces every SID in the descriptor by the one that `name` returns for it.
    pub fn map_sids(&mut self, name: impl Fn(&Sid) -> Sid) {
        let lists = [&mut self.dacl, &mut self.sacl];
        let aces = lists.into_iter().flatten().flat_map(|acl| &mut acl.aces);
        let entries = aces.filter_map(|ace| match &mut ace.body {
            super::AceBody::Access { sid, .. } => Some(sid),
            super::AceBody::Opaque(_) => None,
        });
        let holders = [&mut self.owner, &mut self.group].into_iter().flatten();
        for sid in holders.chain(entries) {
            *sid = name(sid);
        }
    }

    /// Replaces the parts that a set request names by those of `new` ([MS-FSA] 2.1.5.17). An owner
    /// or group that `new` lacks is preserved; AUTO_INHERIT_REQ of the client becomes
    /// AUTO_INHERITED of the object, and generic rights become those of files. After the set the
    /// DACL is present: if `new` has none, a NULL DACL is set, as Windows and Samba do.
    pub fn merge(&mut self, new: &Self, parts: SecurityInformation) {
        use SecurityDescriptorControl as Control;
        use SecurityInformation as Part;
        if parts.contains(Part::OWNER) {
            self.owner = new.owner.or(self.owner);
        }
        if parts.contains(Part::GROUP) {
            self.group = new.group.or(self.group);
        }
        if parts.contains(Part::DACL) {
            self.dacl.clone_from(&new.dacl);
            map_generic(self.dacl.iter_mut().flat_map(|acl| &mut acl.aces));
            self.control = self.control.without(Control(0x1504))
                | taken(new.control, 0x1504, 0x0100, 0x0400)
                | Control::DACL_PRESENT;
            let (set, clear) = (Part::PROTECTED_DACL, Part::UNPROTECTED_DACL);
            self.protect(parts, set, clear, Control::DACL_PROTECTED);
        }
        if parts.intersects(OF_SACL) {
            self.merge_sacl(new.sacl.as_ref(), parts);
        }
        if parts.contains(Part::SACL) {
            self.control =
                self.control.without(Control(0x2a10)) | taken(new.control, 0x2a10, 0x0200, 0x0800);
            let (set, clear) = (Part::PROTECTED_SACL, Part::UNPROTECTED_SACL);
            self.protect(parts, set, clear, Control::SACL_PROTECTED);
        }
    }

    /// Replaces the entries of the SACL whose kinds a set request names.
    fn merge_sacl(&mut self, new: Option<&Acl>, parts: SecurityInformation) {
        let set = new.into_iter().flat_map(|acl| &acl.aces);
        let mut aces: Vec<Ace> = set.filter(|ace| is_named(ace, parts)).cloned().collect();
        map_generic(&mut aces);
        let old = self.sacl.take().into_iter().flat_map(|acl| acl.aces);
        aces.extend(old.filter(|ace| !is_named(ace, parts)));
        // Without entries, the list is there only if the request has one.
        let is_there = new.is_some() || !aces.is_empty();
        self.sacl = is_there.then(|| Acl::new(aces));
        if !is_there {
            let present = SecurityDescriptorControl::SACL_PRESENT;
            self.control = self.control.without(present);
        }
    }

    /// Protects a list that a request sets from inheritance, or removes its protection, as the request says besides.
    /// These bits say nothing about a list that the request does not set.
    fn protect(
        &mut self,
        parts: SecurityInformation,
        set: SecurityInformation,
        clear: SecurityInformation,
        bit: SecurityDescriptorControl,
    ) {
        if parts.contains(clear) {
            self.control = self.control.without(bit);
        }
        self.control |= bit.when(parts.contains(set));
    }
}

/// The parts that are entries of the SACL.
const OF_SACL: SecurityInformation = SecurityInformation(
    SecurityInformation::SACL.0
        | SecurityInformation::LABEL.0
        | SecurityInformation::ATTRIBUTE.0
        | SecurityInformation::SCOPE.0,
);

/// Whether an entry of the SACL belongs to the parts that a request names. [MS-FSA] 2.1.5.14.1: SACL stands for all
/// entries but labels, which need other rights.
fn is_named(ace: &Ace, parts: SecurityInformation) -> bool {
    use SecurityInformation as Part;
    parts.intersects(match ace.ace_type {
        AceType::SYSTEM_MANDATORY_LABEL => Part::LABEL,
        AceType::SYSTEM_RESOURCE_ATTRIBUTE => Part::SACL | Part::ATTRIBUTE,
        AceType::SYSTEM_SCOPED_POLICY_ID => Part::SACL | Part::SCOPE,
        _ => Part::SACL,
    })
}

/// Returns the control bits of one list that a set request changes: present and protected are copied, AUTO_INHERITED is
/// set only together with the request for it ([MS-DTYP] 2.4.6, bits DC and DI).
fn taken(
    from: SecurityDescriptorControl,
    bits: u16,
    requested: u16,
    inherited: u16,
) -> SecurityDescriptorControl {
    let keep = from.0 & bits & !(requested | inherited);
    let both = requested | inherited;
    let auto = if from.0 & both == both { inherited } else { 0 };
    SecurityDescriptorControl(keep | auto)
}

fn map_generic<'a>(aces: impl IntoIterator<Item = &'a mut Ace>) {
    for ace in aces {
        // An inherit-only entry keeps its generic rights, because their meaning depends on the child.
        let kept = ace.flags.contains(super::AceFlags::INHERIT_ONLY);
        if let super::AceBody::Access { mask, .. } = &mut ace.body
            && !kept
        {
            *mask = mask.map_generic();
        }
    }
}

/// Returns the bytes from an offset on; `None` for offset zero.
fn part(bytes: &[u8], offset: u32) -> Result<Option<&[u8]>, Malformed> {
    let malformed = Malformed::new(SecurityDescriptor::WHAT);
    match size(offset) {
        0 => Ok(None),
        offset if offset < SecurityDescriptor::MIN => Err(malformed),
        offset => bytes.get(offset..).map(Some).ok_or(malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SecurityDescriptorControl as Control;
    use SecurityInformation as Part;

    #[test]
    fn a_list_is_protected_only_by_a_request_that_sets_it() {
        let new = SecurityDescriptor {
            dacl: Some(Acl::new(Vec::new())),
            sacl: Some(Acl::new(Vec::new())),
            ..SecurityDescriptor::default()
        };
        let open = SecurityDescriptor::default();
        let protection = Part::PROTECTED_DACL | Part::PROTECTED_SACL;
        for parts in [protection, protection | Part::OWNER | Part::GROUP] {
            let mut sd = open.clone();
            sd.merge(&new, parts);
            assert_eq!(sd, open, "{parts:?}");
        }
        let protected = Control::DACL_PROTECTED | Control::SACL_PROTECTED;
        for (part, bit) in [
            (Part::DACL, Control::DACL_PROTECTED),
            (Part::SACL, Control::SACL_PROTECTED),
        ] {
            let mut sd = open.clone();
            sd.merge(&new, part | protection);
            assert_eq!(sd.control & protected, bit);
            let bits = Part::UNPROTECTED_DACL | Part::UNPROTECTED_SACL;
            sd.merge(&new, part | bits);
            assert_eq!(sd.control & protected, Control::empty());
        }
    }

    fn system(ace_type: AceType, mask: u32) -> Ace {
        let mask = crate::access_mask::AccessMask(mask);
        Ace::new(
            ace_type,
            super::super::AceFlags::empty(),
            mask,
            Sid::EVERYONE,
        )
    }

    #[test]
    fn system_entries_are_read_and_set_by_kind() {
        let audit = system(AceType::SYSTEM_AUDIT, 1);
        let label = system(AceType::SYSTEM_MANDATORY_LABEL, 2);
        let attribute = system(AceType::SYSTEM_RESOURCE_ATTRIBUTE, 3);
        let policy = system(AceType::SYSTEM_SCOPED_POLICY_ID, 4);
        let all = [&audit, &label, &attribute, &policy];
        let sd = SecurityDescriptor {
            sacl: Some(Acl::new(all.into_iter().cloned().collect())),
            ..SecurityDescriptor::default()
        };
        for (parts, expected) in [
            (Part::LABEL, vec![&label]),
            (Part::ATTRIBUTE, vec![&attribute]),
            (Part::SCOPE, vec![&policy]),
            (Part::SACL, vec![&audit, &attribute, &policy]),
            (Part::SACL | Part::LABEL, all.to_vec()),
        ] {
            let shown = sd.select(parts).sacl.unwrap().aces;
            assert_eq!(shown.iter().collect::<Vec<_>>(), expected, "{parts:?}");
        }
        assert_eq!(sd.select(Part::OWNER | Part::DACL).sacl, None);

        let other = system(AceType::SYSTEM_MANDATORY_LABEL, 9);
        let new = SecurityDescriptor {
            sacl: Some(Acl::new(vec![other.clone(), audit.clone()])),
            ..SecurityDescriptor::default()
        };
        let mut set = sd.clone();
        set.merge(&new, Part::LABEL);
        let aces = set.sacl.as_ref().unwrap().aces.clone();
        assert_eq!(aces, [other.clone(), audit.clone(), attribute, policy]);
        // An audit entry of a request that names only the label is not stored.
        let mut first = SecurityDescriptor::default();
        first.merge(&new, Part::LABEL);
        assert_eq!(first.sacl.as_ref().unwrap().aces, [other]);
        // A request without a list removes the entries that it names.
        first.merge(&SecurityDescriptor::default(), Part::LABEL);
        assert_eq!(first, SecurityDescriptor::default());
    }

    #[test]
    fn a_list_that_is_set_has_the_revision_of_its_entries() {
        let object = system(AceType::SYSTEM_AUDIT_OBJECT, 1);
        let label = system(AceType::SYSTEM_MANDATORY_LABEL, 2);
        let mut sd = SecurityDescriptor::default();
        for (part, ace, revision) in [
            (Part::SACL, object, Acl::REVISION_DS),
            (Part::LABEL, label.clone(), Acl::REVISION_DS),
            (Part::SACL, label, Acl::REVISION),
        ] {
            let new = SecurityDescriptor {
                sacl: Some(Acl::new(vec![ace])),
                ..SecurityDescriptor::default()
            };
            sd.merge(&new, part);
            assert_eq!(sd.sacl.as_ref().unwrap().revision, revision, "{part:?}");
        }
    }
}
