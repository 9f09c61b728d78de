//! samr, the security account manager ([MS-SAMR] 3.1.5): finding domains, listing and looking up
//! users and groups, information about a user. Read-only; every other operation is out of range.
//!
//! Handles are opaque here. Lists are limited by [`super::MAX_ARRAY_ELEMENTS`].

mod domain;

use bytes::BytesMut;

use super::ndr::{ContextHandle, MAX_ARRAY_ELEMENTS, NdrReader, NdrWriter};
use super::pdu::FaultStatus;
use crate::codec::size;
use crate::dtyp::Sid;
use crate::ids::FileTime;
use crate::status::Status;

pub use super::lsarpc::{SidNameUse, encode_handle};
pub use domain::{DomainFacts, encode_query_domain};

/// The objects that an enumeration lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enumerated {
    /// Domains of the server, opnum 6.
    Domains,
    /// Groups of a domain, opnum 11.
    Groups,
    /// Users of a domain, opnum 13.
    Users,
    /// Aliases of a domain, opnum 15.
    Aliases,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SamrRequest {
    /// SamrConnect, opnum 0, 2 (57) and 4 (62).
    Connect,
    /// SamrConnect5, opnum 64.
    Connect5,
    /// SamrGetDomainPasswordInformation, opnum 56, which needs no handle.
    DomainPasswordRules,
    /// A call on the server, domain or user that a handle stands for.
    On(ContextHandle, SamrCall),
}

/// A call on an open object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SamrCall {
    /// SamrCloseHandle, opnum 1.
    Close,
    /// SamrLookupDomainInSamServer, opnum 5, with the domain's name.
    LookupDomain(String),
    /// One of the enumerations.
    Enumerate {
        /// The objects to list.
        what: Enumerated,
        /// The position to continue from.
        context: u32,
    },
    /// SamrOpenDomain, opnum 7.
    OpenDomain(Sid),
    /// SamrQueryInformationDomain, opnum 8, and 2 (46), with a class.
    QueryDomain(u16),
    /// SamrGetAliasMembership, opnum 16, with the accounts and groups that one user stands for.
    AliasMembership(Vec<Sid>),
    /// SamrLookupNamesInDomain, opnum 17.
    LookupNames(Vec<String>),
    /// SamrLookupIdsInDomain, opnum 18, with relative ids.
    LookupIds(Vec<u32>),
    /// SamrOpenUser, opnum 34, with a relative id.
    OpenUser(u32),
    /// SamrQueryInformationUser, opnum 36, and 2 (47), with a class of which only 21 is supported.
    QueryUser(u16),
    /// SamrGetGroupsForUser, opnum 39.
    GroupsForUser,
    /// SamrGetUserDomainPasswordInformation, opnum 44.
    UserPasswordRules,
    /// SamrQueryDisplayInformation, opnum 40, 2 (48) and 3 (51).
    QueryDisplay {
        /// 1 users.
        class: u16,
        /// First entry.
        index: u32,
        /// Maximum number of entries.
        count: u32,
    },
}

impl SamrRequest {
    /// Decodes a stub.
    ///
    /// # Errors
    /// OP_RNG_ERROR for an operation that is not listed, BAD_STUB_DATA for a stub that does not match it.
    pub fn decode(opnum: u16, stub: &[u8]) -> Result<Self, FaultStatus> {
        let mut reader = NdrReader::new(stub);
        match opnum {
            // The server's name and the requested rights, which come last, are ignored.
            0 | 57 | 62 if stub.len() < 4 => Err(FaultStatus::BAD_STUB_DATA),
            0 | 57 | 62 => Ok(Self::Connect),
            // The text is unused.
            56 if stub.len() < 4 => Err(FaultStatus::BAD_STUB_DATA),
            56 => Ok(Self::DomainPasswordRules),
            64 => {
                reader.unique_wide_string()?;
                let _desired_access = reader.u32()?;
                Ok(Self::Connect5)
            }
            _ => {
                // An operation that is not listed is out of range, whatever is in its stub.
                let handle = reader.handle();
                let call = SamrCall::decode(opnum, reader)?;
                Ok(Self::On(handle?, call))
            }
        }
    }
}

impl SamrCall {
    fn decode(opnum: u16, mut reader: NdrReader<'_>) -> Result<Self, FaultStatus> {
        Ok(match opnum {
            1 => Self::Close,
            5 => Self::LookupDomain(reader.unicode_string()?),
            6 => Self::enumerate(reader, Enumerated::Domains)?,
            11 => Self::enumerate(reader, Enumerated::Groups)?,
            13 => Self::enumerate(reader, Enumerated::Users)?,
            15 => Self::enumerate(reader, Enumerated::Aliases)?,
            7 => {
                let _desired_access = reader.u32()?;
                Self::OpenDomain(reader.sid()?)
            }
            8 | 46 => Self::QueryDomain(reader.u16()?),
            16 => Self::AliasMembership(sids(&mut reader)?),
            17 => {
                let count = counted(&mut reader)?;
                Self::LookupNames(reader.unicode_strings(count)?)
            }
            18 => {
                let count = counted(&mut reader)?;
                Self::LookupIds((0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?)
            }
            34 => {
                let _desired_access = reader.u32()?;
                Self::OpenUser(reader.u32()?)
            }
            36 | 47 => Self::QueryUser(reader.u16()?),
            39 => Self::GroupsForUser,
            44 => Self::UserPasswordRules,
            40 | 48 | 51 => Self::QueryDisplay {
                class: reader.u16()?,
                index: reader.u32()?,
                count: reader.u32()?,
            },
            _ => return Err(FaultStatus::OP_RNG_ERROR),
        })
    }

    fn enumerate(mut reader: NdrReader<'_>, what: Enumerated) -> Result<Self, FaultStatus> {
        let context = reader.u32()?;
        Ok(Self::Enumerate { what, context })
    }
}

/// Reads a count and the header of a conformant varying array with as many elements.
fn counted(reader: &mut NdrReader<'_>) -> Result<usize, FaultStatus> {
    let count = reader.u32()?;
    let actual = reader.actual_count(MAX_ARRAY_ELEMENTS)?;
    if usize::try_from(count) != Ok(actual) {
        return Err(FaultStatus::BAD_STUB_DATA);
    }
    Ok(actual)
}

/// Reads SAMPR_PSID_ARRAY ([MS-SAMR] 2.2.7.5).
fn sids(reader: &mut NdrReader<'_>) -> Result<Vec<Sid>, FaultStatus> {
    let count = size(reader.u32()?);
    let elements = match reader.pointer()? {
        true => reader.max_count()?,
        false => 0,
    };
    let mut all_there = elements == count;
    for _ in 0..elements {
        all_there &= reader.pointer()?;
    }
    if !all_there {
        return Err(FaultStatus::BAD_STUB_DATA);
    }
    Ok((0..elements)
        .map(|_| reader.sid())
        .collect::<Result<_, _>>()?)
}

/// Encodes the response to SamrConnect5.
pub fn encode_connect5(handle: &ContextHandle, status: Status) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.u32(1); // version of the revision information
    writer.u32(1); // its arm
    writer.u32(3); // revision
    writer.u32(0); // features
    writer.handle(handle);
    writer.finish_with(status.0)
}

/// Encodes the response to SamrLookupDomainInSamServer.
pub fn encode_lookup_domain(sid: Option<&Sid>) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.pointer(sid.is_some());
    if let Some(sid) = sid {
        writer.sid(sid);
    }
    writer.finish_with(sid.map_or(Status::NO_SUCH_DOMAIN, |_| Status::SUCCESS).0)
}

/// Encodes the response to an enumeration: relative ids (0 for domains) and names.
pub fn encode_enumerate(context: u32, entries: &[(u32, String)], status: Status) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.u32(context);
    writer.pointer(true);
    writer.count(entries.len());
    writer.pointer(true);
    writer.count(entries.len());
    for (rid, name) in entries {
        writer.u32(*rid);
        writer.unicode_string_head(name);
    }
    for (_, name) in entries {
        writer.unicode_text(name);
    }
    writer.count(entries.len());
    writer.finish_with(status.0)
}

fn put_numbers(numbers: impl ExactSizeIterator<Item = u32>, writer: &mut NdrWriter) {
    writer.array_head(numbers.len());
    numbers.for_each(|number| writer.u32(number));
}

fn use_of(found: Option<SidNameUse>) -> u32 {
    found.unwrap_or(SidNameUse::UNKNOWN).0.into()
}

/// Encodes the response to SamrLookupNamesInDomain: for each name its relative id and kind, if known.
pub fn encode_lookup_names(found: &[Option<(u32, SidNameUse)>]) -> BytesMut {
    let mut writer = NdrWriter::new();
    put_numbers(
        found.iter().map(|f| f.map_or(0, |(rid, _)| rid)),
        &mut writer,
    );
    let kinds = found.iter().map(|f| use_of(f.map(|(_, kind)| kind)));
    put_numbers(kinds, &mut writer);
    let mapped = found.iter().flatten().count();
    writer.finish_with(super::lsarpc::lookup_status(mapped, found.len()).0)
}

/// Encodes the response to SamrLookupIdsInDomain: for each id its name and kind, if known.
pub fn encode_lookup_ids(found: &[Option<(String, SidNameUse)>]) -> BytesMut {
    let mut writer = NdrWriter::new();
    let names = || {
        found
            .iter()
            .map(|f| f.as_ref().map_or("", |(name, _)| name.as_str()))
    };
    writer.array_head(found.len());
    names().for_each(|name| writer.unicode_string_head(name));
    names().for_each(|name| writer.unicode_text(name));
    let kinds = found
        .iter()
        .map(|f| use_of(f.as_ref().map(|(_, kind)| *kind)));
    put_numbers(kinds, &mut writer);
    let mapped = found.iter().flatten().count();
    writer.finish_with(super::lsarpc::lookup_status(mapped, found.len()).0)
}

/// Encodes the response to SamrGetGroupsForUser: relative ids, all mandatory and enabled.
pub fn encode_groups_for_user(rids: &[u32]) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.pointer(true);
    writer.count(rids.len());
    writer.pointer(true);
    writer.count(rids.len());
    for rid in rids {
        writer.u32(*rid);
        writer.u32(7);
    }
    writer.finish_with(Status::SUCCESS.0)
}

/// Encodes the response to SamrGetAliasMembership: relative ids.
pub fn encode_alias_membership(rids: &[u32]) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.count(rids.len());
    writer.pointer(true);
    writer.count(rids.len());
    rids.iter().for_each(|rid| writer.u32(*rid));
    writer.finish_with(Status::SUCCESS.0)
}

/// Encodes the response to SamrGetDomainPasswordInformation and SamrGetUserDomainPasswordInformation: the least length,
/// and no rule.
pub fn encode_password_rules(min_length: u16, status: Status) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.u16(min_length);
    writer.u32(0);
    writer.finish_with(status.0)
}

/// The facts about a user that the server reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserInfo {
    /// Relative id.
    pub rid: u32,
    /// Relative id of the primary group.
    pub primary_group_rid: u32,
    /// Account name.
    pub user_name: String,
    /// Name for display.
    pub full_name: String,
    /// USER_NORMAL_ACCOUNT is 0x10, USER_ACCOUNT_DISABLED 1.
    pub account_control: u32,
    /// The time of the last password change.
    pub password_last_set: FileTime,
}

/// Encodes the response to SamrQueryInformationUser of class 21 ([MS-SAMR] 2.2.6.6);
/// INVALID_INFO_CLASS for others. Hashes and private data are never included.
pub fn encode_query_user(class: u16, user: Result<&UserInfo, Status>) -> BytesMut {
    let mut writer = NdrWriter::new();
    let user = match user {
        Ok(_) if class != 21 => Err(Status::INVALID_INFO_CLASS),
        user => user,
    };
    writer.pointer(user.is_ok());
    if let Ok(user) = user {
        writer.u16(class);
        put_all_information(user, &mut writer);
    }
    writer.finish_with(user.err().unwrap_or(Status::SUCCESS).0)
}

/// SAMPR_USER_ALL_INFORMATION.
fn put_all_information(user: &UserInfo, writer: &mut NdrWriter) {
    /// Hours in a week: the bits of logon hours.
    const UNITS_PER_WEEK: u16 = 168;
    const NEVER: FileTime = FileTime(i64::MAX as u64);
    // Last logon and logoff, password set, account expires, password may and must change.
    for time in [
        FileTime::ZERO,
        NEVER,
        user.password_last_set,
        NEVER,
        user.password_last_set,
        NEVER,
    ] {
        // OLD_LARGE_INTEGER: two words, so aligned to four only.
        writer.align(4);
        writer.bytes(&time.0.to_le_bytes());
    }
    // User and full name; home, drive, script, profile; comment; workstations, user comment, parameters.
    let texts = [
        &user.user_name[..],
        &user.full_name,
        "",
        "",
        "",
        "",
        "",
        "",
        "",
        "",
    ];
    for text in texts {
        writer.unicode_string_head(text);
    }
    // LM and NT hash: none.
    for _ in 0..2 {
        writer.no_unicode_string();
    }
    writer.no_unicode_string(); // private data
    writer.u32(0); // security descriptor
    writer.pointer(false);
    writer.u32(user.rid);
    writer.u32(user.primary_group_rid);
    writer.u32(user.account_control);
    writer.u32(0x00ff_ffff); // which fields
    writer.u16(UNITS_PER_WEEK);
    writer.align(4);
    writer.pointer(true); // logon hours
    // Bad passwords, logons, country, code page.
    for _ in 0..4 {
        writer.u16(0);
    }
    // Hashes present, password expired, private data sensitive.
    for _ in 0..4 {
        writer.u8(0);
    }
    for text in texts {
        writer.unicode_text(text);
    }
    writer.u32(1260);
    writer.u32(0);
    writer.u32(u32::from(UNITS_PER_WEEK / 8));
    writer.bytes(&[0xff; UNITS_PER_WEEK as usize / 8]);
}

/// Encodes the response to SamrQueryDisplayInformation of class 1, with `status`; INVALID_INFO_CLASS for others.
pub fn encode_query_display(
    class: u16,
    index: u32,
    users: &[UserInfo],
    status: Status,
) -> BytesMut {
    let mut writer = NdrWriter::new();
    let (users, status) = match class {
        1 => (users, status),
        _ => (Default::default(), Status::INVALID_INFO_CLASS),
    };
    // Total available and returned are in bytes; clients only compare them.
    writer.count(users.len());
    writer.count(users.len());
    writer.u16(class);
    writer.align(4);
    writer.array_head(users.len());
    for (at, user) in users.iter().enumerate() {
        writer.u32(index.saturating_add(u32::try_from(at + 1).unwrap_or(u32::MAX)));
        writer.u32(user.rid);
        writer.u32(user.account_control);
        writer.unicode_string_head(&user.user_name);
        writer.unicode_string_head("");
        writer.unicode_string_head(&user.full_name);
    }
    for user in users {
        writer.unicode_text(&user.user_name);
        writer.unicode_text("");
        writer.unicode_text(&user.full_name);
    }
    writer.finish_with(status.0)
}
