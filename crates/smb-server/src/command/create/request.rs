//! The fields and contexts of a CREATE, and the refusals that follow from them alone ([MS-SMB2] 3.3.5.9, [MS-FSA]
//! 2.1.5.1 phases 1 to 3).

use bytes::Bytes;
use smb_wire::{
    access_mask::AccessMask,
    create_context::{
        AppInstanceVersion, AppleBitmap, DurableHandleFlags, DurableHandleRequestV2, LeaseContext,
        QueryMaximalAccessRequest, RequestContext,
    },
    dtyp::SecurityDescriptor,
    file_attributes::FileAttributes,
    fscc::read_ea_list,
    ids::{FileId, Guid},
    msg::{
        Capabilities, CreateDisposition, CreateOptions, CreateRequest, Dialect, ImpersonationLevel,
        OplockLevel, ShareAccess,
    },
    status::Status,
};
use vfs::Vfs;

use super::{
    apple,
    name::{self, Name},
};
use crate::{
    command::{
        Call,
        eas::{self, Ea},
    },
    failure::Failure,
    state::AppInstance,
};

/// Access bits that mean nothing (docs/protocol-notes.md, "Bits of a CREATE that mean nothing").
const ACCESS_UNDEFINED: u32 = 0x0ce0_fe00;
/// Option bits that mean nothing.
const OPTIONS_UNDEFINED: u32 = 0xff00_0000;
/// Options that this server cannot support.
const OPTIONS_UNSUPPORTED: u32 = CreateOptions::TREE_CONNECTION.bits()
    | CreateOptions::OPEN_BY_FILE_ID.bits()
    | CreateOptions::RESERVE_OPFILTER.bits();
/// Options that the server takes out of each request, because they concern the client alone ([MS-SMB2] 3.3.5.9).
const OPTIONS_IGNORED: CreateOptions = CreateOptions(
    CreateOptions::COMPLETE_IF_OPLOCKED.bits()
        | CreateOptions::SYNCHRONOUS_IO_ALERT.bits()
        | CreateOptions::SYNCHRONOUS_IO_NONALERT.bits()
        | CreateOptions::OPEN_FOR_FREE_SPACE_QUERY.bits(),
);
/// Options that do not go with FILE_DIRECTORY_FILE ([MS-FSA] 2.1.5.1, ValidDirectoryCreateOptions; [MS-SMB2] 2.2.13
/// has some of the others ignored).
const OPTIONS_OF_FILES: u32 = CreateOptions::SEQUENTIAL_ONLY.bits()
    | CreateOptions::NO_INTERMEDIATE_BUFFERING.bits()
    | CreateOptions::NO_EA_KNOWLEDGE.bits()
    | CreateOptions::RANDOM_ACCESS.bits()
    | CreateOptions::OPEN_NO_RECALL.bits();
/// Attribute bits that [MS-FSCC] 2.6 does not define. It has unsupported ones ignored, such as those for the cloud.
const ATTRIBUTES_UNDEFINED: u32 = 0xffa1_0048;
/// Attributes that a new file may be given (docs/protocol-notes.md, "Bits of a CREATE that mean nothing").
const ATTRIBUTES_STORED: u32 = 0x5127;

/// The request in the server's own terms.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The rights asked for, with generic rights mapped; MAXIMUM_ALLOWED is kept.
    pub(super) access: AccessMask,
    pub(super) attributes: FileAttributes,
    pub(super) share: ShareAccess,
    pub(super) disposition: CreateDisposition,
    pub(super) options: CreateOptions,
    pub(super) oplock: OplockLevel,
}

impl Wanted {
    pub(super) fn creates(&self) -> bool {
        !matches!(
            self.disposition,
            CreateDisposition::OPEN | CreateDisposition::OVERWRITE
        )
    }

    pub(super) fn overwrites(&self) -> bool {
        matches!(
            self.disposition,
            CreateDisposition::SUPERSEDE
                | CreateDisposition::OVERWRITE
                | CreateDisposition::OVERWRITE_IF
        )
    }

    /// The effect of the disposition on an existing object, whatever access is requested. For the share modes of
    /// other opens it counts as a write; superseding is a deletion as well ([MS-FSA] 2.1.5.1.2).
    pub(super) fn effect(&self) -> AccessMask {
        let writes = AccessMask::FILE_WRITE_DATA.when(self.overwrites());
        writes | AccessMask::DELETE.when(self.disposition == CreateDisposition::SUPERSEDE)
    }

    pub(super) fn directory(&self) -> bool {
        self.options.contains(CreateOptions::DIRECTORY_FILE)
    }

    /// The durability that the open asks for.
    pub(super) fn flags(&self) -> durability::RequestFlags {
        durability::RequestFlags {
            open_write_through: self.options.contains(CreateOptions::WRITE_THROUGH),
            ..durability::RequestFlags::default()
        }
    }

    pub(super) fn delete_on_close(&self) -> bool {
        self.options.contains(CreateOptions::DELETE_ON_CLOSE)
    }

    /// DOS attributes of the new object. [MS-FSA] 2.1.5.1.1: each file has ARCHIVE, a directory only if that is asked
    /// for.
    pub(super) fn stored_attributes(&self, directory: bool) -> u32 {
        let archive = FileAttributes::ARCHIVE.when(!directory);
        self.attributes.bits() & ATTRIBUTES_STORED | archive.bits()
    }
}

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

/// The create contexts that the server uses.
#[derive(Debug, Clone, Default)]
pub(super) struct Contexts {
    /// See [`Contexts::eas`].
    pub(super) ea_list: Option<Bytes>,
    /// See [`Contexts::security`].
    pub(super) descriptor: Option<Bytes>,
    pub(super) allocation: u64,
    pub(super) maximal_access: Option<QueryMaximalAccessRequest>,
    pub(super) on_disk_id: bool,
    pub(super) lease: Option<LeaseContext>,
    /// The lease context whatever the oplock level, since a reconnect compares it in any case.
    pub(super) lease_named: Option<LeaseContext>,
    pub(super) durable: Option<Asked>,
    pub(super) reconnect: Option<Reconnect>,
    /// The parts of AAPL that a Mac asks for.
    pub(super) apple: Option<AppleBitmap>,
    /// The application instance to which the open belongs. Its id may be any, zero as well.
    pub(super) app: Option<AppInstance>,
    /// The version of the instance, which may come before its id.
    pub(super) app_version: Option<AppInstanceVersion>,
}

impl Contexts {
    /// The extended attributes of a new or overwritten file.
    ///
    /// # Errors
    /// Those of a list of wrong form. [MS-SMB2] 3.3.5.9.1: where an existing file is opened, the list is ignored.
    pub(super) fn eas(&self) -> Result<Vec<Ea>, Failure> {
        let list = self.ea_list.as_deref().map(read_ea_list).transpose()?;
        eas::changes(&[], list.unwrap_or_default())
    }

    /// The descriptor of a new object.
    ///
    /// # Errors
    /// `INVALID_PARAMETER`. [MS-SMB2] 3.3.5.9.2: where an existing object is opened, the descriptor is ignored.
    pub(super) fn security(&self) -> Result<Option<SecurityDescriptor>, Failure> {
        let descriptor = self.descriptor.as_deref().map(SecurityDescriptor::read);
        Ok(descriptor.transpose()?)
    }

    /// The request for a durable open, if its CreateGuid lets the CREATE be replayed.
    pub(super) fn replayable(&self) -> Option<DurableHandleRequestV2> {
        match self.durable {
            Some(Asked::V2(asked)) if asked.create_guid != Guid::default() => Some(asked),
            _ => None,
        }
    }
}

/// The two kinds of CREATE.
pub(super) enum Asks {
    /// An open or a creation.
    Open(Wanted, Contexts, Name),
    /// A reconnect to a durable open: of the other fields only these are used.
    Back {
        contexts: Contexts,
        back: Reconnect,
        /// The name, if it is valid.
        name: Option<Name>,
    },
}

pub(super) fn read<V: Vfs>(call: &Call<V>) -> Result<Asks, Failure> {
    let request = CreateRequest::read(&call.message)?;
    let (path, contexts) = (name::validated(request.name), contexts(call, &request));
    // [MS-SMB2] 3.3.5.9.7, 3.3.5.9.12: the path of a reconnect is not validated.
    if let Some(back) = contexts.as_ref().ok().and_then(|all| all.reconnect) {
        let name = path.and_then(|path| name::parse(&path)).ok();
        return Ok(Asks::Back {
            contexts: contexts?,
            back,
            name: name.filter(|name| !name.foreign_index),
        });
    }
    // [MS-SMB2] 3.3.5.9: first the path is validated, then the contexts, and only then the object store ([MS-FSA]
    // 2.1.5.1) gets the other fields.
    let (path, contexts) = (path?, contexts?);
    let access = named_access(&request)?;
    check_numbers(&request)?;
    let mut wanted = Wanted {
        access: access.map_generic(),
        attributes: request.file_attributes,
        share: request.share_access,
        disposition: request.disposition,
        options: request.options.without(OPTIONS_IGNORED),
        oplock: request.oplock_level,
    };
    check_combinations(&wanted)?;
    check_access(access)?;
    let name = check_name(&wanted, &path)?;
    check_tree(call, &wanted)?;
    if name.index {
        // [MS-FSA] 2.1.5.1, phase 7: the type of the stream makes it the open of a directory.
        wanted.options = CreateOptions::DIRECTORY_FILE
            | wanted.options.without(CreateOptions::NON_DIRECTORY_FILE);
    }
    if offers_persistence(call) {
        // [MS-SMB2] 3.3.5.9: every open of a continuously available share writes through, and so does its CREATE: the
        // record of a persistent open is stable before the answer, and is worth nothing without the file.
        wanted.options |= CreateOptions::WRITE_THROUGH;
    }
    Ok(Asks::Open(wanted, contexts, name))
}

/// The rights that a pipe is opened with ([MS-FSA] 2.1.5.2).
pub(super) fn desired_access(request: &CreateRequest<'_>) -> Result<AccessMask, Failure> {
    let access = named_access(request)?;
    check_access(access)?;
    Ok(access)
}

/// The rights asked for, without the one that [MS-SMB2] 3.3.5.9 takes away from a request for an open without
/// buffering: to append, where the request names it. Generic rights contain it all the same.
fn named_access(request: &CreateRequest<'_>) -> Result<AccessMask, Failure> {
    if request.impersonation_level > ImpersonationLevel::DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL.into());
    }
    let options = request.options;
    let unbuffered = options.contains(CreateOptions::NO_INTERMEDIATE_BUFFERING);
    let append = AccessMask::FILE_APPEND_DATA.when(unbuffered);
    let access = request.desired_access.without(append);
    // [MS-SMB2] 3.3.5.9: an open without any right.
    Status::ACCESS_DENIED.when(access.is_empty())?;
    Ok(access)
}

fn check_access(access: AccessMask) -> Result<(), Failure> {
    Status::ACCESS_DENIED.when(access.bits() & ACCESS_UNDEFINED != 0)?;
    Ok(Status::PRIVILEGE_NOT_HELD.when(access.contains(AccessMask::ACCESS_SYSTEM_SECURITY))?)
}

fn check_numbers(request: &CreateRequest<'_>) -> Result<(), Failure> {
    if request.disposition > CreateDisposition::OVERWRITE_IF
        || request.share_access.bits() > 7
        || request.file_attributes.bits() & ATTRIBUTES_UNDEFINED != 0
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Status::INVALID_PARAMETER.when(request.options.bits() & OPTIONS_UNDEFINED != 0)?;
    check_options(request.options)
}

/// [MS-SMB2] 2.2.13: the options that no server supports.
pub(super) fn check_options(options: CreateOptions) -> Result<(), Failure> {
    Ok(Status::NOT_SUPPORTED.when(options.bits() & OPTIONS_UNSUPPORTED != 0)?)
}

fn check_combinations(wanted: &Wanted) -> Result<(), Failure> {
    let options = wanted.options;
    if wanted.directory()
        && !options.contains(CreateOptions::NON_DIRECTORY_FILE)
        && (wanted.overwrites() || options.bits() & OPTIONS_OF_FILES != 0)
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    // docs/protocol-notes.md, "FILE_DELETE_ON_CLOSE without the right to delete".
    if wanted.delete_on_close() && !wanted.access.contains(AccessMask::DELETE) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(())
}

/// Checks which kind of object is asked for, and whether the name can be that of one.
fn check_name(wanted: &Wanted, path: &str) -> Result<Name, Failure> {
    let non_directory = wanted.options.contains(CreateOptions::NON_DIRECTORY_FILE);
    Status::INVALID_PARAMETER.when(wanted.directory() && non_directory)?;
    let name = name::parse(path)?;
    Status::OBJECT_NAME_INVALID.when(name.trailing && non_directory)?;
    // [MS-FSA] 2.1.5.1: a directory has no data stream, not even the unnamed one.
    Status::NOT_A_DIRECTORY.when(wanted.directory() && name.stream.is_some())?;
    Ok(name)
}

/// [MS-SMB2] 3.3.5.9: no open gets rights that the tree connect does not allow.
fn check_tree<V: Vfs>(call: &Call<V>, wanted: &Wanted) -> Result<(), Failure> {
    let ceiling = call.tree()?.maximal_access;
    let named = wanted.access.without(AccessMask::MAXIMUM_ALLOWED);
    let delete = wanted.delete_on_close() && !ceiling.contains(AccessMask::DELETE);
    Ok(Status::ACCESS_DENIED.when(!ceiling.contains(named) || delete)?)
}

/// The first dialect that knows a lease context of this version ([MS-SMB2] 3.3.5.9.8, 3.3.5.9.11).
fn lease_dialect(lease: &LeaseContext) -> Dialect {
    match lease.v2 {
        None => Dialect::SMB_2_1,
        Some(_) => Dialect::SMB_3_0,
    }
}

/// Reads the create contexts.
///
/// # Errors
/// `INVALID_PARAMETER` for contexts that are malformed or exclude each other, `ACCESS_DENIED` for extended attributes of
/// a client that knows none, `OBJECT_NAME_NOT_FOUND` for a snapshot.
pub(super) fn contexts<V: Vfs>(
    call: &Call<V>,
    request: &CreateRequest<'_>,
) -> Result<Contexts, Failure> {
    let mut found = Contexts::default();
    let mut seen = SeenContexts::default();
    for context in request.contexts() {
        let context = context?.request()?;
        if take(call, &mut found, &context, &mut seen) {
            continue;
        }
        match context {
            // [MS-SMB2] 2.2.13: a client that knows no extended attributes sends none. No file is refused to it
            // (docs/protocol-notes.md, "Extended attributes that a client must know").
            RequestContext::ExtendedAttributes(_)
                if request.options.contains(CreateOptions::NO_EA_KNOWLEDGE) =>
            {
                return Err(Status::ACCESS_DENIED.into());
            }
            RequestContext::ExtendedAttributes(list) => {
                found.ea_list = Some(call.message.slice_ref(list));
            }
            RequestContext::SecurityDescriptor(bytes) => {
                found.descriptor = Some(call.message.slice_ref(bytes));
            }
            RequestContext::AllocationSize(size) => found.allocation = size,
            RequestContext::QueryMaximalAccess(asked) => found.maximal_access = Some(asked),
            RequestContext::QueryOnDiskId => found.on_disk_id = true,
            RequestContext::Apple(request) => found.apple = apple::asked(request),
            // There are no snapshots, so there is none of this time.
            RequestContext::TimewarpToken(_) => return Err(Status::OBJECT_NAME_NOT_FOUND.into()),
            RequestContext::Lease(lease) => {
                found.lease_named = Some(lease);
                let is_known = call.connection.dialect() >= lease_dialect(&lease);
                if is_known && request.oplock_level == OplockLevel::LEASE {
                    found.lease = Some(lease);
                }
            }
            _ => {}
        }
    }
    seen.check(call.connection.dialect())?;
    Ok(found)
}

/// Takes a context that concerns durability; returns false for any other. Version 2 and application instances are
/// unknown before 3.0.
fn take<V: Vfs>(
    call: &Call<V>,
    found: &mut Contexts,
    context: &RequestContext<'_>,
    seen: &mut SeenContexts,
) -> bool {
    let v3 = call.connection.dialect() >= Dialect::SMB_3_0;
    match context {
        RequestContext::DurableHandleRequest => {
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
struct SeenContexts {
    v1_request: bool,
    v1_reconnect: bool,
    v2_request: bool,
    v2_reconnect: bool,
}

impl SeenContexts {
    /// [MS-SMB2] 3.3.5.9.6, .7, .10, .12: version 2 excludes version 1; DHnQ is ignored if DHnC is present. Version 1
    /// refuses version 2 on any dialect (notes 334, 336: since Windows 8), although before 3.0 version 2 alone is
    /// unknown.
    fn check(self, dialect: Dialect) -> Result<(), Failure> {
        let v1 = self.v1_request || self.v1_reconnect;
        let v2 = self.v2_request || self.v2_reconnect;
        let both_v2 = self.v2_request && self.v2_reconnect && dialect >= Dialect::SMB_3_0;
        Ok(Status::INVALID_PARAMETER.when(v1 && v2 || both_v2)?)
    }
}

/// Whether an open of this tree can be persistent ([MS-SMB2] 3.3.5.9, 3.3.5.9.10).
pub(super) fn offers_persistence<V: Vfs>(call: &Call<V>) -> bool {
    let agreed = call.connection.negotiated().is_some_and(|facts| {
        let capabilities = facts.server_capabilities;
        capabilities.contains(Capabilities::PERSISTENT_HANDLES)
    });
    let share = call.share().ok().filter(|_| agreed);
    share.is_some_and(|share| share.config.continuous_availability)
}
