//! The fields of a CREATE, and the refusals that follow from them alone ([MS-SMB2] 3.3.5.9, [MS-FSA] 2.1.5.1 phases
//! 1 to 3). Also parses the name of a CREATE or a rename ([MS-FSCC] 2.1.5).

use smb_wire::{
    access_mask::AccessMask,
    create_context::{AppleBitmap, LeaseContext, QueryMaximalAccessRequest, RequestContext},
    dtyp::SecurityDescriptor,
    file_attributes::FileAttributes,
    fscc::{EaEntry, check_ea_name, read_ea_list},
    msg::{
        CreateDisposition, CreateOptions, CreateRequest, Dialect, ImpersonationLevel, OplockLevel,
        ShareAccess,
    },
    status::Status,
    utf16,
};
use vfs::{PATH_DEPTH_MAX, Vfs, posix::name::shown};

use super::{apple, durable};
use crate::{command::Call, failure::Failure, state::AppInstance};

/// Access bits that mean nothing (docs/protocol-notes.md, "Bits of a CREATE that mean nothing").
const ACCESS_UNDEFINED: u32 = 0x0ce0_fe00;
/// Option bits that mean nothing.
const OPTIONS_UNDEFINED: u32 = 0xff00_0000;
/// Options that this server cannot support.
const OPTIONS_UNSUPPORTED: u32 = CreateOptions::TREE_CONNECTION.bits()
    | CreateOptions::OPEN_BY_FILE_ID.bits()
    | CreateOptions::RESERVE_OPFILTER.bits();
/// Options that do not go with FILE_DIRECTORY_FILE ([MS-FSA] 2.1.5.1, ValidDirectoryCreateOptions; [MS-SMB2] 2.2.13
/// has some of the others ignored).
const OPTIONS_OF_FILES: u32 = CreateOptions::SEQUENTIAL_ONLY.bits()
    | CreateOptions::NO_INTERMEDIATE_BUFFERING.bits()
    | CreateOptions::NO_EA_KNOWLEDGE.bits()
    | CreateOptions::RANDOM_ACCESS.bits()
    | CreateOptions::OPEN_NO_RECALL.bits();
/// Attributes that a new file may be given (docs/protocol-notes.md, as above).
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

    /// DOS attributes of the new object.
    pub(super) fn stored_attributes(&self, directory: bool) -> u32 {
        let asked = self.attributes.bits() & ATTRIBUTES_STORED;
        if directory {
            asked & !FileAttributes::ARCHIVE.bits()
        } else {
            asked | FileAttributes::ARCHIVE.bits()
        }
    }
}

/// The create contexts that the server uses.
#[derive(Debug, Clone, Default)]
pub(super) struct Contexts {
    pub(super) eas: Vec<EaEntry>,
    pub(super) security: Option<SecurityDescriptor>,
    pub(super) allocation: u64,
    pub(super) maximal_access: Option<QueryMaximalAccessRequest>,
    pub(super) on_disk_id: bool,
    pub(super) lease: Option<LeaseContext>,
    /// The lease context whatever the oplock level, since a reconnect compares it in any case.
    pub(super) lease_named: Option<LeaseContext>,
    /// The request for a durable open.
    pub(super) durable: Option<durable::Asked>,
    /// The reconnect to a durable open.
    pub(super) reconnect: Option<durable::Reconnect>,
    /// The parts of AAPL that a Mac asks for.
    pub(super) apple: Option<AppleBitmap>,
    /// The application instance to which the open belongs.
    pub(super) app: Option<AppInstance>,
}

/// The two kinds of CREATE.
pub(super) enum Asks {
    /// An open or a creation.
    Open(Wanted, Contexts, Name),
    /// A reconnect to a durable open: of the other fields only these are used.
    Back {
        contexts: Contexts,
        back: durable::Reconnect,
        /// The name, if it is valid.
        name: Option<Name>,
    },
}

/// Reads and checks a request.
pub(super) fn read<V: Vfs>(call: &Call<V>) -> Result<Asks, Failure> {
    let request = CreateRequest::read(&call.message)?;
    if durable::reconnects(call, &request) {
        let contexts = contexts(call, &request)?;
        if let Some(back) = contexts.reconnect {
            let name = parse_name(request.name).ok();
            return Ok(Asks::Back {
                contexts,
                back,
                name,
            });
        }
    }
    let access = desired_access(&request)?;
    check_numbers(&request)?;
    let name = parse_name(request.name)?;
    let mut wanted = Wanted {
        access: access.map_generic(),
        attributes: request.file_attributes,
        share: request.share_access,
        disposition: request.disposition,
        options: request.options,
        oplock: request.oplock_level,
    };
    check_combinations(&wanted, &name)?;
    check_tree(call, &wanted)?;
    if durable::offers_persistence(call) {
        // [MS-SMB2] 3.3.5.9: every open of a continuously available share writes through.
        wanted.options |= CreateOptions::WRITE_THROUGH;
    }
    let contexts = contexts(call, &request)?;
    Ok(Asks::Open(wanted, contexts, name))
}

/// The rights asked for, without the one that [MS-SMB2] 3.3.5.9 takes away from a request for an open without buffering:
/// to append, where the request names it. Generic rights contain it all the same.
fn desired_access(request: &CreateRequest<'_>) -> Result<AccessMask, Failure> {
    if request.impersonation_level > ImpersonationLevel::DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL.into());
    }
    let unbuffered = request
        .options
        .contains(CreateOptions::NO_INTERMEDIATE_BUFFERING);
    let access = request
        .desired_access
        .without(AccessMask::FILE_APPEND_DATA.when(unbuffered));
    // [MS-FSA] 2.1.5.1: an open without any right.
    if access.is_empty() || access.bits() & ACCESS_UNDEFINED != 0 {
        return Err(Status::ACCESS_DENIED.into());
    }
    if access.contains(AccessMask::ACCESS_SYSTEM_SECURITY) {
        return Err(Status::PRIVILEGE_NOT_HELD.into());
    }
    Ok(access)
}

fn check_numbers(request: &CreateRequest<'_>) -> Result<(), Failure> {
    if request.disposition > CreateDisposition::OVERWRITE_IF
        || request.share_access.bits() > 7
        || request.options.bits() & OPTIONS_UNDEFINED != 0
        || request
            .file_attributes
            .intersects(FileAttributes::VOLUME | FileAttributes::DEVICE)
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if request.options.bits() & OPTIONS_UNSUPPORTED != 0 {
        return Err(Status::NOT_SUPPORTED.into());
    }
    Ok(())
}

fn check_combinations(wanted: &Wanted, name: &Name) -> Result<(), Failure> {
    let non_directory = wanted.options.contains(CreateOptions::NON_DIRECTORY_FILE);
    if wanted.directory()
        && (non_directory || wanted.overwrites() || wanted.options.bits() & OPTIONS_OF_FILES != 0)
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if wanted.delete_on_close()
        && !wanted
            .access
            .intersects(AccessMask::DELETE | AccessMask::MAXIMUM_ALLOWED)
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if name.trailing && non_directory {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    // [MS-FSA] 2.1.5.1: a directory has no data stream, not even the unnamed one.
    if wanted.directory() && name.stream.is_some() {
        return Err(Status::NOT_A_DIRECTORY.into());
    }
    Ok(())
}

/// [MS-SMB2] 3.3.5.9: no open gets rights that the tree connect does not allow.
fn check_tree<V: Vfs>(call: &Call<V>, wanted: &Wanted) -> Result<(), Failure> {
    let ceiling = call.tree()?.maximal_access;
    let named = wanted.access.without(AccessMask::MAXIMUM_ALLOWED);
    let delete = wanted.delete_on_close() && !ceiling.contains(AccessMask::DELETE);
    if !ceiling.contains(named) || delete {
        return Err(Status::ACCESS_DENIED.into());
    }
    Ok(())
}

/// The first dialect that knows a lease context of this version ([MS-SMB2] 3.3.5.9.8, 3.3.5.9.11).
fn lease_dialect(lease: &LeaseContext) -> Dialect {
    match lease.v2 {
        None => Dialect::SMB_2_1,
        Some(_) => Dialect::SMB_3_0,
    }
}

fn contexts<V: Vfs>(call: &Call<V>, request: &CreateRequest<'_>) -> Result<Contexts, Failure> {
    let mut found = Contexts::default();
    let mut seen = durable::Seen::default();
    for context in request.contexts() {
        let context = context?.request()?;
        if durable::take(call, &mut found, &context, &mut seen) {
            continue;
        }
        if let RequestContext::Lease(lease) = &context {
            found.lease_named = Some(*lease);
        }
        match context {
            // [MS-SMB2] 2.2.13: a client that knows no extended attributes sends none.
            RequestContext::ExtendedAttributes(_)
                if request.options.contains(CreateOptions::NO_EA_KNOWLEDGE) =>
            {
                return Err(Status::ACCESS_DENIED.into());
            }
            RequestContext::ExtendedAttributes(list) => {
                found.eas = read_ea_list(list)?;
                for ea in &found.eas {
                    check_ea_name(&ea.name).map_err(|_| Status::INVALID_EA_NAME)?;
                }
            }
            RequestContext::SecurityDescriptor(bytes) => {
                found.security = Some(SecurityDescriptor::read(bytes)?);
            }
            RequestContext::AllocationSize(size) => found.allocation = size.0,
            RequestContext::QueryMaximalAccess(asked) => found.maximal_access = Some(asked),
            RequestContext::QueryOnDiskId => found.on_disk_id = true,
            RequestContext::Apple(request) => found.apple = apple::asked(request),
            // There are no snapshots, so there is none of this time.
            RequestContext::TimewarpToken(_) => return Err(Status::OBJECT_NAME_NOT_FOUND.into()),
            RequestContext::Lease(lease)
                if request.oplock_level == OplockLevel::LEASE
                    && call.connection.dialect() >= lease_dialect(&lease) =>
            {
                found.lease = Some(lease);
            }
            _ => {}
        }
    }
    seen.check()?;
    Ok(found)
}

/// Longest path in UTF-16 units.
const PATH_MAX: usize = 32_760;
/// Longest component in UTF-16 units.
const COMPONENT_MAX: usize = 255;

/// The stream part of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) enum Stream {
    /// `::$DATA`: the unnamed stream, named explicitly.
    Unnamed,
    /// `:name` or `:name:$DATA`.
    Named(String),
}

/// A parsed name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) struct Name {
    /// Components below the share root as listings show them ([`shown`]); none for the root.
    pub(in crate::command) path: Vec<String>,
    /// The stream, if the name has one.
    pub(in crate::command) stream: Option<Stream>,
    /// The name ended in a backslash.
    pub(in crate::command) trailing: bool,
}

/// Parses a name.
///
/// # Errors
/// `OBJECT_NAME_INVALID` for a name that is invalid or too deep, `INVALID_PARAMETER` for a leading backslash,
/// `OBJECT_PATH_SYNTAX_BAD` for dot names.
pub(in crate::command) fn parse_name(bytes: &[u8]) -> Result<Name, Failure> {
    if !bytes.len().is_multiple_of(2) || bytes.len() / 2 > PATH_MAX {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    let text = utf16::decode(bytes, "name").map_err(|_| Status::OBJECT_NAME_INVALID)?;
    if text.starts_with('\\') {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let trailing = text.ends_with('\\');
    let text = text.strip_suffix('\\').unwrap_or(&text);
    if text.is_empty() {
        return Ok(Name {
            path: Vec::new(),
            stream: None,
            trailing,
        });
    }
    let (path, stream) = match text.find(':') {
        None => (text, None),
        Some(at) => {
            let (path, rest) = text.split_at(at);
            (path, Some(parse_stream(rest.get(1..).unwrap_or_default())?))
        }
    };
    let path = if path.is_empty() {
        Vec::new()
    } else {
        // [MS-FSA] 2.1.5.1: it is refused like a path that is too long, before anything is looked up on the disk or
        // stored.
        if path.split('\\').nth(PATH_DEPTH_MAX).is_some() {
            return Err(Status::OBJECT_NAME_INVALID.into());
        }
        path.split('\\')
            .map(|component| check_component(component).map(|()| shown(component).into_owned()))
            .collect::<Result<_, _>>()?
    };
    Ok(Name {
        path,
        stream,
        trailing,
    })
}

fn check_component(component: &str) -> Result<(), Failure> {
    if matches!(component, "." | "..") {
        return Err(Status::OBJECT_PATH_SYNTAX_BAD.into());
    }
    let forbidden = |c| {
        matches!(
            c,
            b'\0'..=b'\x1f' | b'"' | b'/' | b'<' | b'>' | b'|' | b'*' | b'?'
        )
    };
    if component.is_empty() || is_too_long(component) || component.bytes().any(forbidden) {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    Ok(())
}

fn is_too_long(name: &str) -> bool {
    // A name never has more UTF-16 units than UTF-8 bytes.
    name.len() > COMPONENT_MAX && name.encode_utf16().count() > COMPONENT_MAX
}

/// Parses the part after the first colon: `name`, `name:$DATA`, `:$DATA`.
fn parse_stream(text: &str) -> Result<Stream, Failure> {
    let (name, kind) = match text.split_once(':') {
        Some((name, kind)) => (name, Some(kind)),
        None => (text, None),
    };
    match kind {
        Some(kind) if !kind.eq_ignore_ascii_case("$DATA") => {
            return Err(Status::OBJECT_NAME_INVALID.into());
        }
        Some(_) if name.is_empty() => return Ok(Stream::Unnamed),
        _ => {}
    }
    let forbidden = |c| matches!(c, b'\0' | b'\\' | b'/' | b':');
    if name.is_empty() || is_too_long(name) || name.bytes().any(forbidden) {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    Ok(Stream::Named(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str) -> Option<Status> {
        match parse_name(&utf16::encode(name)) {
            Ok(_) => None,
            Err(Failure::Status(status)) => Some(status),
            Err(_) => panic!("no status"),
        }
    }

    fn path(name: &str) -> Vec<String> {
        parse_name(&utf16::encode(name)).unwrap().path
    }

    #[test]
    fn components_are_split_at_backslashes() {
        assert_eq!(path(r"a\b c\d.txt"), ["a", "b c", "d.txt"]);
        assert!(path("").is_empty());
        assert!(parse_name(&utf16::encode(r"a\")).unwrap().trailing);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert_eq!(status(r"\a"), Some(Status::INVALID_PARAMETER));
        assert_eq!(status(r"a\..\b"), Some(Status::OBJECT_PATH_SYNTAX_BAD));
        for bad in [
            r"a\\b",
            "a/b",
            "a*",
            "a?",
            "a<b",
            "a\0b",
            "a|b",
            "a\"",
            &"x".repeat(256),
        ] {
            assert_eq!(status(bad), Some(Status::OBJECT_NAME_INVALID), "{bad}");
        }
        assert!(matches!(
            parse_name(&[0x41]),
            Err(Failure::Status(Status::OBJECT_NAME_INVALID))
        ));
        // A lone surrogate.
        assert!(parse_name(&[0x00, 0xd8]).is_err());
    }

    #[test]
    fn components_are_spelled_as_they_are_listed() {
        let listed = "d\u{F029}\\e\u{F028}\\f.txt";
        for sent in [listed, "d.\\e \\f.txt", "d.\\e\u{F028}\\f.txt"] {
            assert_eq!(path(sent).join("\\"), listed);
        }
        assert_eq!(path("f.:s "), ["f\u{F029}"]);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = vec!["d"; PATH_DEPTH_MAX].join("\\");
        assert_eq!(path(&deep).len(), PATH_DEPTH_MAX);
        assert_eq!(path(&format!("{deep}:stream")).len(), PATH_DEPTH_MAX);
        for beyond in [format!("{deep}\\d"), format!("{deep}\\{deep}:stream")] {
            assert_eq!(status(&beyond), Some(Status::OBJECT_NAME_INVALID));
        }
    }

    #[test]
    fn streams() {
        let stream = |name: &str| parse_name(&utf16::encode(name)).unwrap().stream;
        assert_eq!(stream("a:b"), Some(Stream::Named("b".into())));
        assert_eq!(stream("a:b:$data"), Some(Stream::Named("b".into())));
        assert_eq!(stream("a::$DATA"), Some(Stream::Unnamed));
        assert_eq!(status("a:"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status("a:b:$X"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status("a:b:"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status(r"a:b\c"), Some(Status::OBJECT_NAME_INVALID));
    }
}
