//! lsarpc ([MS-LSAD] 3.1.4, [MS-LSAT] 3.1.4): the queries with which a client shows permissions by name.
//!
//! Read-only. An anonymous session only learns its own identity, and a guest no account but its own.

use bytes::BytesMut;
use smb_wire::rpc::lsarpc::{
    LsarpcRequest, PolicyDomain, ReferencedDomain, SidNameUse, Translated, encode_get_user_name,
    encode_handle, encode_lookup_names, encode_lookup_sids, encode_no_account_rights,
    encode_query_information_policy, encode_status,
};
use smb_wire::{dtyp::Sid, rpc::ContextHandle, status::Status};

use super::{
    handles::{Handles, Object},
    names::{self, Found},
    services::Answer,
    world::World,
};

/// PolicyPrimaryDomainInformation and PolicyDnsDomainInformation ([MS-LSAD] 2.2.4.1).
const PRIMARY_DOMAIN: u16 = 3;
const DNS_DOMAIN: u16 = 12;

pub(super) fn answer(world: &World, handles: &mut Handles, request: LsarpcRequest) -> Answer {
    Ok(match request {
        LsarpcRequest::OpenPolicy => {
            let opened = if world.may_look_up() {
                handles.open(Object::Policy)
            } else {
                Err(Status::ACCESS_DENIED)
            };
            opened_or(opened)
        }
        LsarpcRequest::Close { handle } => {
            handles.close(&handle)?;
            encode_handle(&ContextHandle::default(), Status::SUCCESS)
        }
        LsarpcRequest::Reserved => encode_status(Status::NOT_SUPPORTED),
        LsarpcRequest::QueryInformationPolicy { handle, class } => {
            handles.check(&handle, Object::Policy)?;
            encode_query_information_policy(class, &domain(world, class))
        }
        LsarpcRequest::LookupNames {
            handle,
            form,
            names,
        } => {
            handles.check(&handle, Object::Policy)?;
            let sids = names.iter().map(|name| {
                let found = names::of_name(world, name);
                let sid = found.as_ref().map(|found| found.sid);
                (found, sid)
            });
            let (domains, sids) = translate(sids);
            encode_lookup_names(form, &domains, &sids)
        }
        LsarpcRequest::LookupSids { handle, form, sids } => {
            handles.check(&handle, Object::Policy)?;
            let names = sids.iter().map(|sid| {
                let mut found = names::of_sid(world, sid);
                // [MS-LSAT] 3.1.4.9: an unknown SID is shown as its own text.
                let name = found.as_mut().map(|found| std::mem::take(&mut found.name));
                (found, name.unwrap_or_else(|| sid.to_string()))
            });
            let (domains, names) = translate(names);
            encode_lookup_sids(form, &domains, &names)
        }
        // [MS-LSAD] 3.1.4.5.10: no account of this server has privileges, so the policy has an object for none.
        LsarpcRequest::AccountRights { handle } => {
            handles.check(&handle, Object::Policy)?;
            encode_no_account_rights()
        }
        LsarpcRequest::GetUserName { wants_domain } => {
            let (user, domain) = if world.token.anonymous {
                ("ANONYMOUS LOGON", "NT AUTHORITY")
            } else {
                (&world.token.user[..], &world.token.domain[..])
            };
            encode_get_user_name(user, wants_domain.then_some(domain))
        }
    })
}

/// The reply to a call that opens a handle.
pub(super) fn opened_or(opened: Result<ContextHandle, Status>) -> BytesMut {
    match opened {
        Ok(handle) => encode_handle(&handle, Status::SUCCESS),
        Err(status) => encode_handle(&ContextHandle::default(), status),
    }
}

/// The description of a member of a workgroup: its primary domain has a name and no SID.
fn domain(world: &World, class: u16) -> PolicyDomain {
    let config = &world.config;
    match class {
        PRIMARY_DOMAIN | DNS_DOMAIN => PolicyDomain {
            name: config.workgroup.clone(),
            sid: None,
        },
        _ => PolicyDomain {
            name: config.netbios_name.clone(),
            sid: Some(config.machine_sid),
        },
    }
}

/// The domains that answers refer to, each once.
#[derive(Default)]
struct Domains(Vec<ReferencedDomain>);

impl Domains {
    /// The index of a domain in the list, added if it is new; there are only a few.
    fn place(&mut self, (name, sid): (String, Sid)) -> i32 {
        let known = self.0.iter().position(|domain| domain.sid == sid);
        let place = known.unwrap_or_else(|| {
            self.0.push(ReferencedDomain { name, sid });
            self.0.len() - 1
        });
        i32::try_from(place).unwrap_or(-1)
    }
}

/// The answer to a lookup of names or SIDs. For each of them, `look_up` has the account that was found, and the text or
/// SID that stands for it in the answer.
fn translate<T>(
    look_up: impl Iterator<Item = (Option<Found>, T)>,
) -> (Vec<ReferencedDomain>, Vec<Translated<T>>) {
    let mut domains = Domains::default();
    let translated = look_up.map(|(found, account)| match found {
        Some(found) => Translated {
            sid_use: found.kind,
            account,
            domain_index: domains.place(found.domain),
        },
        None => Translated {
            sid_use: SidNameUse::UNKNOWN,
            account,
            domain_index: -1,
        },
    });
    let translated = translated.collect();
    (domains.0, translated)
}
