//! The durability contexts of a CREATE: their combinations, and the durability that is granted ([MS-SMB2] 3.3.5.9.6,
//! 3.3.5.9.7, 3.3.5.9.10, 3.3.5.9.12, 3.3.5.9.13).

use std::time::Duration;

use smb_wire::{
    create_context::{
        CreateContextList, DurableHandleFlags, DurableHandleRequestV2, DurableHandleResponse,
        DurableHandleResponseV2, LeaseContext, LeaseState, RequestContext, name,
    },
    ids::{FileId, Guid},
    msg::{Capabilities, CreateRequest, Dialect, OplockLevel},
    status::Status,
};
use vfs::Vfs;

use super::{Opening, request::Contexts};
use crate::{
    command::Call,
    failure::Failure,
    file::CacheGrant,
    state::{AppInstance, Endurance, LeaseName, Origin},
};

/// Open.DurableOpenTimeout of version 1 (note 335: the value of Windows since 8).
const TIMEOUT_V1: Duration = Duration::from_secs(120);
/// The timeout of version 2, if the client leaves it to the server (note 344).
const TIMEOUT_V2: Duration = Duration::from_secs(60);
/// The longest timeout that a client is granted ([MS-SMB2] 3.3.5.9.10).
const TIMEOUT_V2_MAX: Duration = Duration::from_secs(300);

/// The durability context with which a client requests a durable open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// DHnQ.
    V1,
    /// DH2Q.
    V2(DurableHandleRequestV2),
}

/// The context with which a client reconnects to a durable open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reconnect {
    pub(super) file_id: FileId,
    /// The fields of DH2C; DHnC has neither.
    pub(super) v2: Option<(Guid, DurableHandleFlags)>,
}

/// Whether a request reconnects to an open: most of its other fields are then ignored, and none is checked first.
pub(super) fn reconnects<V: Vfs>(call: &Call<V>, request: &CreateRequest<'_>) -> bool {
    let v2 = call.connection.dialect() >= Dialect::SMB_3_0;
    request
        .contexts()
        .filter_map(Result::ok)
        .any(|context| match context.name {
            name::DURABLE_HANDLE_RECONNECT => true,
            name::DURABLE_HANDLE_RECONNECT_V2 => v2,
            _ => false,
        })
}

/// Takes a context that concerns durability; returns false for any other. Version 2 and application instances are
/// unknown before 3.0.
pub(super) fn take<V: Vfs>(
    call: &Call<V>,
    found: &mut Contexts,
    context: &RequestContext<'_>,
    seen: &mut Seen,
) -> bool {
    let v3 = call.connection.dialect() >= Dialect::SMB_3_0;
    match context {
        RequestContext::DurableHandleRequest(_) => {
            seen.v1_request = true;
            found.durable = found.durable.or(Some(Asked::V1));
        }
        RequestContext::DurableHandleReconnect(back) => {
            seen.v1_reconnect = true;
            found.reconnect = Some(Reconnect {
                file_id: back.file_id,
                v2: None,
            });
        }
        RequestContext::DurableHandleRequestV2(asked) => {
            seen.v2_request = true;
            if v3 {
                found.durable = Some(Asked::V2(*asked));
            }
        }
        RequestContext::DurableHandleReconnectV2(back) => {
            seen.v2_reconnect = true;
            if v3 {
                found.reconnect = Some(Reconnect {
                    file_id: back.file_id,
                    v2: Some((back.create_guid, back.flags)),
                });
            }
        }
        RequestContext::AppInstanceId(id) => {
            if v3 {
                let version = found.app_version;
                found.app = Some(AppInstance { id: id.0, version });
            }
        }
        RequestContext::AppInstanceVersion(version) => {
            // Only 3.1.1 knows this context, and without an AppInstanceId it has no effect.
            if call.connection.dialect() >= Dialect::SMB_3_1_1 {
                found.app_version = Some(*version);
                if let Some(app) = &mut found.app {
                    app.version = found.app_version;
                }
            }
        }
        _ => return false,
    }
    true
}

/// Which of the four contexts a request has.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    v1_request: bool,
    v1_reconnect: bool,
    v2_request: bool,
    v2_reconnect: bool,
}

impl Seen {
    /// [MS-SMB2] 3.3.5.9.6, .7, .10, .12: version 2 excludes version 1; DHnQ is ignored if DHnC is present. Version 1
    /// refuses version 2 on any dialect (notes 334, 336: since Windows 8), although before 3.0 version 2 alone is
    /// unknown.
    pub(super) fn check(self, dialect: Dialect) -> Result<(), Failure> {
        let v1 = self.v1_request || self.v1_reconnect;
        let v2 = self.v2_request || self.v2_reconnect;
        let both_v2 = self.v2_request && self.v2_reconnect && dialect >= Dialect::SMB_3_0;
        if v1 && v2 || both_v2 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        Ok(())
    }
}

/// The durability that the granted caching permits. A durable open needs a batch oplock or a lease that caches the
/// handle, and is not a directory ([MS-SMB2] 3.3.5.9.6, 3.3.5.9.10 with note 342). A persistent open needs no
/// caching, and directories can be persistent, as in Windows and Samba.
pub(super) fn endurance(
    contexts: &Contexts,
    granted: &CacheGrant,
    directory: bool,
    persistence: bool,
) -> Endurance {
    let Some(asked) = contexts.durable else {
        return Endurance::None;
    };
    let asks_persistent = match asked {
        Asked::V1 => false,
        Asked::V2(asked) => asked.flags.contains(DurableHandleFlags::PERSISTENT),
    };
    let persistent = persistence && asks_persistent;
    if !persistent && (directory || !caches_handle(granted)) {
        return Endurance::None;
    }
    // 3.3.5.9.6: version 1 goes by the state that this request asks for; the lease may have more already.
    let asks_handle = |lease: LeaseContext| lease.lease_state.contains(LeaseState::HANDLE);
    if matches!(asked, Asked::V1) && !contexts.lease.is_none_or(asks_handle) {
        return Endurance::None;
    }
    let timeout = match asked {
        Asked::V1 => TIMEOUT_V1,
        Asked::V2(asked) if asked.timeout_ms == 0 => TIMEOUT_V2,
        Asked::V2(asked) => Duration::from_millis(asked.timeout_ms.into()).min(TIMEOUT_V2_MAX),
    };
    Endurance::Durable {
        timeout,
        persistent,
    }
}

/// Whether the granted caching permits a durable open.
pub(super) fn caches_handle(granted: &CacheGrant) -> bool {
    match granted {
        CacheGrant::None => false,
        CacheGrant::Oplock(level) => *level == OplockLevel::BATCH,
        CacheGrant::Lease {
            state, breaking, ..
        } => state.contains(LeaseState::HANDLE) && !*breaking,
    }
}

/// Adds the answer to the client's durability context, if durability was granted.
pub(super) fn push_answer(list: &mut CreateContextList, contexts: &Contexts, got: Endurance) {
    let (
        Some(asked),
        Endurance::Durable {
            timeout,
            persistent,
        },
    ) = (contexts.durable, got)
    else {
        return;
    };
    match asked {
        Asked::V1 => list.push_with(name::DURABLE_HANDLE_REQUEST, |out| {
            DurableHandleResponse.encode(out);
        }),
        Asked::V2(_) => {
            let answer = DurableHandleResponseV2 {
                timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
                flags: DurableHandleFlags::PERSISTENT.when(persistent),
            };
            list.push_with(name::DURABLE_HANDLE_REQUEST_V2, |out| answer.encode(out));
        }
    }
}

/// The parts of the request that the open remembers.
pub(super) fn origin<V: Vfs>(
    on: &Opening<'_, V>,
    granted: &CacheGrant,
    action: smb_wire::msg::CreateAction,
) -> Result<Origin, Failure> {
    let lease = match *granted {
        CacheGrant::Lease { key, v2, .. } => Some(LeaseName { key, v2 }),
        _ => None,
    };
    Ok(Origin {
        session: on.session()?.id,
        client: on.client()?,
        owner: on.token()?,
        create_guid: match on.contexts.durable {
            Some(Asked::V2(asked)) => asked.create_guid,
            _ => Guid::default(),
        },
        lease,
        app: on.contexts.app,
        desired: on.wanted.access,
        share: on.wanted.share,
        action,
    })
}

/// Whether an open of this tree can be persistent ([MS-SMB2] 3.3.5.9, 3.3.5.9.10).
pub(super) fn offers_persistence<V: Vfs>(call: &Call<V>) -> bool {
    let agreed = call.connection.negotiated().is_some_and(|facts| {
        facts
            .server_capabilities
            .contains(Capabilities::PERSISTENT_HANDLES)
    });
    agreed
        && call
            .share()
            .is_ok_and(|share| share.config.continuous_availability)
}
