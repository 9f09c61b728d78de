//! lsarpc, the local security authority ([MS-LSAD], [MS-LSAT] 3.1.4): the policy handle, the
//! machine's domain, names to SIDs and back.
//!
//! Handles are opaque here. Names may have the form `DOMAIN\name`; the server splits them. Lists
//! are limited by [`super::MAX_ARRAY_ELEMENTS`].

use bytes::BytesMut;

use super::ndr::{ContextHandle, NdrReader, NdrWriter};
use super::pdu::FaultStatus;
use crate::dtyp::Sid;
use crate::status::Status;

enum_of_the_wire! {
    /// SID_NAME_USE ([MS-LSAT] 2.2.13): the kind of account that a SID stands for.
    pub struct SidNameUse(u16) {
        USER = 1,
        GROUP = 2,
        DOMAIN = 3,
        ALIAS = 4,
        WELL_KNOWN_GROUP = 5,
        UNKNOWN = 8,
        LABEL = 10,
    }
}

/// The form of a lookup's response, which depends on the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupForm {
    /// LsarLookupSids or LsarLookupNames.
    First,
    /// LsarLookupSids2 or LsarLookupNames2: entries have flags.
    Second,
    /// LsarLookupNames3: entries have whole SIDs and flags.
    Third,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LsarpcRequest {
    /// LsarClose, opnum 0.
    Close {
        /// The handle to close.
        handle: ContextHandle,
    },
    /// Opnum1NotUsedOnWire ([MS-LSAD] 3.1.4), which Windows reserves.
    Reserved,
    /// LsarOpenPolicy, opnum 6, and LsarOpenPolicy2, opnum 44.
    OpenPolicy,
    /// LsarQueryInformationPolicy, opnum 7. Its second form, opnum 46, is left to domain controllers, as in Samba:
    /// clients that get an answer assume that there is a domain with a SID.
    QueryInformationPolicy {
        /// The policy.
        handle: ContextHandle,
        /// 3 primary domain, 5 account domain, 12 DNS domain.
        class: u16,
    },
    /// LsarLookupNames, opnum 14, 2 (58) and 3 (68).
    LookupNames {
        /// The policy.
        handle: ContextHandle,
        /// The form of the response.
        form: LookupForm,
        /// The names.
        names: Vec<String>,
    },
    /// LsarLookupSids, opnum 15, and 2 (57).
    LookupSids {
        /// The policy.
        handle: ContextHandle,
        /// The form of the response.
        form: LookupForm,
        /// The SIDs.
        sids: Vec<Sid>,
    },
    /// LsarEnumerateAccountRights, opnum 36. No account has rights, whichever it is.
    AccountRights {
        /// The policy.
        handle: ContextHandle,
    },
    /// LsarGetUserName, opnum 45.
    GetUserName {
        /// Whether the domain's name is requested.
        wants_domain: bool,
    },
}

impl LsarpcRequest {
    /// Decodes a stub.
    ///
    /// # Errors
    /// OP_RNG_ERROR for an operation that is not listed, BAD_STUB_DATA for a stub that does not match it.
    pub fn decode(opnum: u16, stub: &[u8]) -> Result<Self, FaultStatus> {
        let mut reader = NdrReader::new(stub);
        match opnum {
            0 => Ok(Self::Close {
                handle: reader.handle()?,
            }),
            1 => Ok(Self::Reserved),
            // Name and attributes ([MS-LSAD] 3.1.4.4.1) and the rights, which come last, are ignored.
            6 | 44 if stub.len() < 4 => Err(FaultStatus::BAD_STUB_DATA),
            6 | 44 => Ok(Self::OpenPolicy),
            7 => Ok(Self::QueryInformationPolicy {
                handle: reader.handle()?,
                class: reader.u16()?,
            }),
            14 => Self::lookup_names(reader, LookupForm::First),
            58 => Self::lookup_names(reader, LookupForm::Second),
            68 => Self::lookup_names(reader, LookupForm::Third),
            15 => Self::lookup_sids(reader, LookupForm::First),
            57 => Self::lookup_sids(reader, LookupForm::Second),
            36 => {
                let handle = reader.handle()?;
                let _account = reader.sid()?;
                Ok(Self::AccountRights { handle })
            }
            45 => {
                reader.unique_wide_string()?;
                if reader.pointer()? {
                    reader.unicode_string()?;
                }
                Ok(Self::GetUserName {
                    wants_domain: reader.pointer()?,
                })
            }
            // [MS-LSAT] 2.1: LsarLookupSids3 and LsarLookupNames4 are for TCP/IP, not for pipes.
            76 | 77 => Err(FaultStatus::ACCESS_DENIED),
            _ => Err(FaultStatus::OP_RNG_ERROR),
        }
    }

    fn lookup_names(mut reader: NdrReader<'_>, form: LookupForm) -> Result<Self, FaultStatus> {
        let handle = reader.handle()?;
        let count = reader.u32()?;
        let max = reader.max_count()?;
        if usize::try_from(count) != Ok(max) {
            return Err(FaultStatus::BAD_STUB_DATA);
        }
        Ok(Self::LookupNames {
            handle,
            form,
            names: reader.unicode_strings(max)?,
        })
    }

    fn lookup_sids(mut reader: NdrReader<'_>, form: LookupForm) -> Result<Self, FaultStatus> {
        let handle = reader.handle()?;
        let count = reader.u32()?;
        let mut sids = Vec::new();
        if reader.pointer()? {
            let max = reader.max_count()?;
            if usize::try_from(count) != Ok(max) {
                return Err(FaultStatus::BAD_STUB_DATA);
            }
            let present = (0..max)
                .map(|_| reader.pointer())
                .collect::<Result<Vec<_>, _>>()?;
            if present.contains(&false) {
                return Err(FaultStatus::BAD_STUB_DATA);
            }
            sids = (0..max).map(|_| reader.sid()).collect::<Result<_, _>>()?;
        }
        Ok(Self::LookupSids { handle, form, sids })
    }
}

/// Encodes a response that is only a status.
pub fn encode_status(status: Status) -> BytesMut {
    NdrWriter::new().finish_with(status.0)
}

/// Encodes the response to LsarEnumerateAccountRights for an account that the policy does not know.
pub fn encode_no_account_rights() -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.array_head(0);
    writer.finish_with(Status::OBJECT_NAME_NOT_FOUND.0)
}

/// Encodes the response of operations that open or close a handle.
pub fn encode_handle(handle: &ContextHandle, status: Status) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.handle(handle);
    writer.finish_with(status.0)
}

/// The machine's domain as reported by the policy classes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyDomain {
    /// Flat name.
    pub name: String,
    /// SID, if it is a domain.
    pub sid: Option<Sid>,
}

/// Encodes the response to LsarQueryInformationPolicy: STATUS_INVALID_PARAMETER for other classes than 3, 5 and 12.
pub fn encode_query_information_policy(class: u16, domain: &PolicyDomain) -> BytesMut {
    const DNS: u16 = 12;
    let mut writer = NdrWriter::new();
    let known = matches!(class, 3 | 5 | DNS);
    writer.pointer(known);
    if known {
        writer.u16(class);
        writer.unicode_string_head(&domain.name);
        if class == DNS {
            // No DNS name of the domain and of its forest, and no GUID.
            writer.unicode_string_head("");
            writer.unicode_string_head("");
            writer.bytes(&[0; 16]);
        }
        writer.pointer(domain.sid.is_some());
        writer.unicode_text(&domain.name);
        if class == DNS {
            writer.unicode_text("");
            writer.unicode_text("");
        }
        if let Some(sid) = &domain.sid {
            writer.sid(sid);
        }
    }
    let result = match known {
        true => Status::SUCCESS,
        false => Status::INVALID_PARAMETER,
    };
    writer.finish_with(result.0)
}

/// A domain that answers refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferencedDomain {
    /// Its name.
    pub name: String,
    /// Its SID.
    pub sid: Sid,
}

/// The result for one SID or name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translated<T> {
    /// The kind of the account.
    pub sid_use: SidNameUse,
    /// Of a SID, its name, or the SID as text if unknown; of a name, its SID, or `None` if unknown.
    pub account: T,
    /// Index in the list of domains, -1 for none.
    pub domain_index: i32,
}

fn put_domains(domains: &[ReferencedDomain], writer: &mut NdrWriter) {
    writer.pointer(true);
    writer.count(domains.len());
    writer.pointer(!domains.is_empty());
    writer.u32(32); // MaxEntries, ignored
    if domains.is_empty() {
        return;
    }
    writer.count(domains.len());
    for domain in domains {
        writer.unicode_string_head(&domain.name);
        writer.pointer(true);
    }
    for domain in domains {
        writer.unicode_text(&domain.name);
        writer.sid(&domain.sid);
    }
}

/// Returns SUCCESS, SOME_NOT_MAPPED or NONE_MAPPED, depending on how many were found ([MS-LSAT] 3.1.4.5).
pub fn lookup_status(mapped: usize, asked: usize) -> Status {
    match mapped {
        0 if asked > 0 => Status::NONE_MAPPED,
        mapped if mapped < asked => Status::SOME_NOT_MAPPED,
        _ => Status::SUCCESS,
    }
}

/// Encodes the response to LsarLookupSids and LsarLookupSids2.
pub fn encode_lookup_sids(
    form: LookupForm,
    domains: &[ReferencedDomain],
    names: &[Translated<String>],
) -> BytesMut {
    let mut writer = NdrWriter::new();
    put_domains(domains, &mut writer);
    writer.array_head(names.len());
    for name in names {
        writer.align(4);
        writer.u16(name.sid_use.0);
        writer.unicode_string_head(&name.account);
        writer.u32(name.domain_index.cast_unsigned());
        if form != LookupForm::First {
            writer.u32(0);
        }
    }
    for name in names {
        writer.unicode_text(&name.account);
    }
    let known = |name: &&Translated<String>| name.sid_use != SidNameUse::UNKNOWN;
    let mapped = names.iter().filter(known).count();
    writer.count(mapped);
    writer.finish_with(lookup_status(mapped, names.len()).0)
}

/// Encodes the response to LsarLookupNames, 2 and 3.
pub fn encode_lookup_names(
    form: LookupForm,
    domains: &[ReferencedDomain],
    sids: &[Translated<Option<Sid>>],
) -> BytesMut {
    let mut writer = NdrWriter::new();
    put_domains(domains, &mut writer);
    writer.array_head(sids.len());
    for sid in sids {
        writer.align(4);
        writer.u16(sid.sid_use.0);
        if form == LookupForm::Third {
            writer.pointer(sid.account.is_some());
        } else {
            // A domain has no relative id; Windows returns -1.
            let rid = sid.account.filter(|_| sid.sid_use != SidNameUse::DOMAIN);
            let rid = rid.and_then(|sid| sid.split_rid());
            let none = if sid.account.is_some() { u32::MAX } else { 0 };
            writer.u32(rid.map_or(none, |(_, rid)| rid));
        }
        writer.u32(sid.domain_index.cast_unsigned());
        if form != LookupForm::First {
            writer.u32(0);
        }
    }
    if form == LookupForm::Third {
        for sid in sids.iter().filter_map(|sid| sid.account.as_ref()) {
            writer.sid(sid);
        }
    }
    let mapped = sids.iter().filter(|sid| sid.account.is_some()).count();
    writer.count(mapped);
    writer.finish_with(lookup_status(mapped, sids.len()).0)
}

/// Encodes the response to LsarGetUserName.
pub fn encode_get_user_name(user: &str, domain: Option<&str>) -> BytesMut {
    let mut writer = NdrWriter::new();
    writer.pointer(true);
    writer.unicode_string_head(user);
    writer.unicode_text(user);
    writer.pointer(domain.is_some());
    if let Some(domain) = domain {
        writer.pointer(true);
        writer.unicode_string_head(domain);
        writer.unicode_text(domain);
    }
    writer.finish_with(Status::SUCCESS.0)
}
