//! The new name of a rename or link: parses it and resolves its folder ([MS-FSA] 2.1.5.15.7,
//! 2.1.5.15.12, [MS-FSCC] 2.4.43; docs/protocol-notes.md, "A backslash in the new name of a rename").
//! `replaced.rs` decides about a file that has this name already.

use std::sync::Arc;

use smb_wire::{
    fscc::{FileInformationClass, FileRenameInformation, FileRenameInformationEx, RenameFlags},
    status::Status,
};
use vfs::{Attr, Lookup, Node, Vfs, fold};

use super::stream::NewStream;
use crate::{
    access,
    command::{
        Call,
        attempts::{Attempt, attempts},
        create::{NameStream, parse_name, path_memory},
        engine::{self, OnDisk},
    },
    failure::Failure,
    file::{Link, OpenId, Place, SharePath},
    state::{QuotaPlace, Server},
};

/// Flags that need SeManageVolumePrivilege ([MS-FSCC] 2.4.43), which nobody has.
const MANAGE_VOLUME: RenameFlags = RenameFlags::NO_INCREASE_AVAILABLE_SPACE
    .union(RenameFlags::NO_DECREASE_AVAILABLE_SPACE)
    .union(RenameFlags::FORCE_RESIZE_TARGET_SR)
    .union(RenameFlags::FORCE_RESIZE_SOURCE_SR);

/// Every flag of the Ex forms. There are no pins and no storage reserves to inherit, so the flags that suppress the
/// inheritance have no effect.
const KNOWN: RenameFlags = RenameFlags::REPLACE_IF_EXISTS
    .union(RenameFlags::POSIX_SEMANTICS)
    .union(RenameFlags::SUPPRESS_PIN_STATE_INHERITANCE)
    .union(RenameFlags::SUPPRESS_STORAGE_RESERVE_INHERITANCE)
    .union(RenameFlags::IGNORE_READONLY_ATTRIBUTE)
    .union(MANAGE_VOLUME);

#[derive(Debug)]
pub(super) struct WantedName {
    /// An object of that name may be replaced.
    pub(super) replace: bool,
    /// It may be replaced even if it is open: its handles stay valid ([MS-FSCC] 2.4.43).
    pub(super) posix: bool,
    /// It may be replaced even if it is read-only.
    pub(super) ignore_readonly: bool,
    /// Components from the share's root; none for a new name of a stream.
    pub(super) path: Vec<String>,
    /// The stream, if the name has one besides the path.
    pub(super) stream: Option<NameStream>,
    /// The new name of the open's own stream.
    pub(super) new_stream: Option<NewStream>,
}

/// Checks that the fixed part of the buffer is whole. This comes before rights and the kind of the object, which come
/// before the fields.
pub(super) fn check_length(buffer: &[u8]) -> Result<(), Failure> {
    match buffer.len() < FileRenameInformation::MIN {
        true => Err(Status::INFO_LENGTH_MISMATCH.into()),
        false => Ok(()),
    }
}

/// Reads the buffer of a rename or link of a file or a directory.
///
/// # Errors
/// `INVALID_PARAMETER`, `OBJECT_NAME_INVALID`; `NOT_SUPPORTED` for unknown flags, `PRIVILEGE_NOT_HELD` for those that
/// manage the volume.
pub(super) fn read(
    class: FileInformationClass,
    buffer: &[u8],
    directory: bool,
) -> Result<WantedName, Failure> {
    let (flags, root, name) = match class {
        FileInformationClass::RENAME_EX | FileInformationClass::LINK_EX => {
            let info = FileRenameInformationEx::read(buffer)?;
            (info.flags, info.root_directory, info.file_name)
        }
        // FileLinkInformation has the same layout.
        _ => {
            let info = FileRenameInformation::read(buffer)?;
            let flags = RenameFlags::REPLACE_IF_EXISTS.when(info.replace_if_exists);
            (flags, info.root_directory, info.file_name)
        }
    };
    // The status is that of [MS-FSA] 2.1.5.15.4, the other Ex form.
    Status::NOT_SUPPORTED.when(!flags.without(KNOWN).is_empty())?;
    if flags.intersects(MANAGE_VOLUME)
        && !flags.contains(RenameFlags::SUPPRESS_STORAGE_RESERVE_INHERITANCE)
    {
        return Err(Status::PRIVILEGE_NOT_HELD.into());
    }
    Status::INVALID_PARAMETER.when(root != 0 || name.is_empty())?;
    let links = matches!(
        class,
        FileInformationClass::LINK | FileInformationClass::LINK_EX
    );
    // [MS-FSA] 2.1.5.15.12 refuses a leading backslash, which 2.1.5.15.7 allows for links. It does not change the name.
    let stripped = name.strip_prefix('\\');
    let (name, from_root) = (stripped.unwrap_or(&name), stripped.is_some());
    Status::INVALID_PARAMETER.when(from_root && !links)?;
    let mut wanted = WantedName {
        replace: flags.contains(RenameFlags::REPLACE_IF_EXISTS),
        posix: flags.contains(RenameFlags::POSIX_SEMANTICS),
        ignore_readonly: flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE),
        path: Vec::new(),
        stream: None,
        new_stream: None,
    };
    if let (Some(name), false) = (name.strip_prefix(':'), links) {
        wanted.new_stream = Some(NewStream::read(name)?);
        return Ok(wanted);
    }
    let name = parse_name(name)?;
    let nowhere = name.path.is_empty() && (name.stream.is_none() || from_root);
    // [MS-FSA] 2.1.5.1 strips a trailing backslash. It says that the name is a directory's.
    if (name.trailing && !directory) || name.index || name.foreign_index || nowhere {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    (wanted.path, wanted.stream) = (name.path, name.stream);
    Ok(wanted)
}

/// A guard for the new name of a rename under way: while it lives, the name's path moves along with the directories
/// above.
pub(super) struct NewNameGuard<V: Vfs> {
    server: Arc<Server<V>>,
    pub(super) id: OpenId,
}

impl<V: Vfs> NewNameGuard<V> {
    fn begin(server: &Arc<Server<V>>, path: &SharePath) -> Self {
        let id = OpenId(server.fresh_id());
        server.files.expect(id, path);
        Self {
            server: Arc::clone(server),
            id,
        }
    }
}

impl<V: Vfs> Drop for NewNameGuard<V> {
    fn drop(&mut self) {
        self.server.files.dismiss(self.id);
        self.server.persistence.left(self.id);
    }
}

/// The directory and the present owner of a new name.
pub(super) struct Target<V: Vfs> {
    pub(super) parent: V::Node,
    /// The last component, as asked for.
    pub(super) name: String,
    /// The whole path with that component, as it was found.
    pub(super) path: SharePath,
    pub(super) announced: NewNameGuard<V>,
    /// The object that has the name now.
    pub(super) existing: Option<(V::Node, Attr)>,
    /// The name as it is stored now.
    pub(super) stored: String,
    _place: QuotaPlace,
}

impl<V: Vfs> Target<V> {
    pub(super) fn link(&self) -> Link {
        Link::new(self.parent.key(), &self.name)
    }

    /// The whole path, with the present path of the directory.
    pub(super) fn path_now(&self) -> SharePath {
        let now = self.announced.server.files.coming(self.announced.id);
        now.unwrap_or_else(|| self.path.clone())
    }

    /// The link of the file that has the new name now. It differs from [`Target::link`] where the
    /// new name is the short form of the stored one.
    pub(super) fn existing_link(&self) -> Link {
        Link::new(self.parent.key(), &self.stored)
    }

    /// The whole path of the file that has the new name now.
    pub(super) fn existing_path(&self) -> SharePath {
        let path = self.path_now();
        let above = path
            .names()
            .split_last()
            .map_or(&[][..], |(_, above)| above);
        let names = above.iter().map(|name| &**name);
        SharePath::new(path.share, names.chain([&*self.stored]))
    }
}

/// A place for a lookup of a name: as an open does, it holds up to two descriptors, of the directory and of what has
/// the name, while the request waits for other clients or for the disk.
///
/// # Errors
/// `INSUFFICIENT_RESOURCES` if the user has no place left.
pub(super) fn place<V: Vfs>(call: &Call<V>) -> Result<QuotaPlace, Failure> {
    Ok(call
        .place_of_open()?
        .ok_or(Status::INSUFFICIENT_RESOURCES)?)
}

/// Finds the directory of a new name, and checks whether something may be added to it.
pub(super) async fn find<V: Vfs>(
    on: &OnDisk<'_, V>,
    path: &[String],
    directory: bool,
) -> Result<Target<V>, Failure> {
    let files = &on.server.files;
    attempts(async || {
        let look = files.look();
        let target = look_up(on, path, directory).await?;
        // A request that moves a directory from here on sees the new name in the tables.
        if !files.has_directory_moved(look) || leads_there(on, path, &target).await {
            return Ok(Attempt::Done(target));
        }
        Ok(Attempt::Again(Status::SHARING_VIOLATION))
    })
    .await
}

/// Whether a path still leads to the same directory although directories were moved during its lookup.
async fn leads_there<V: Vfs>(on: &OnDisk<'_, V>, path: &[String], target: &Target<V>) -> bool {
    let Ok(token) = on.token() else {
        return false;
    };
    let Ok(again) = on.vfs().lookup(&token.identity, path).await else {
        // The request that looks the name up next reports the error.
        return false;
    };
    let parent = again.parent.as_ref().map(Node::key);
    parent == Some(target.parent.key())
        && whole(on.share.id, path, again.path).is_some_and(|found| found == target.path_now())
}

/// The path of a directory as it was found, and the last component as it was asked for.
fn whole(share: u32, asked: &[String], found: Vec<String>) -> Option<SharePath> {
    let (name, above) = asked.split_last()?;
    let mut names: Vec<String> = found.into_iter().take(above.len()).collect();
    names.push(name.clone());
    Some(SharePath::of(share, &names))
}

/// The path with the stored name, if it leads to the file itself by exactly the short form of that. By [MS-FSA]
/// 2.1.5.15.12 such a name (ExactCaseMatch) is neither removed nor added.
fn own_stored<V: Vfs>(
    on: &OnDisk<'_, V>,
    path: &[String],
    lookup: &Lookup<V::Node>,
) -> Option<Vec<String>> {
    let ((node, _), (name, above)) = (lookup.found.as_ref()?, path.split_last()?);
    if node.key() != on.disk.node.key() || fold(name) == fold(&lookup.name) {
        return None;
    }
    let mut short = String::new();
    on.vfs().short_name(&lookup.name, &mut short);
    let names = above.iter().chain([&lookup.name]);
    (short == *name).then(|| names.cloned().collect())
}

async fn look_up<V: Vfs>(
    on: &OnDisk<'_, V>,
    path: &[String],
    directory: bool,
) -> Result<Target<V>, Failure> {
    let (token, place) = (on.token()?, place(on.call)?);
    let lookup = on.vfs().lookup(&token.identity, path).await?;
    let stored = own_stored(on, path, &lookup);
    let path = stored.as_deref().unwrap_or(path);
    let whole = whole(on.share.id, path, lookup.path);
    let (Some(parent), Some(name), Some(whole)) = (lookup.parent, path.last(), whole) else {
        return Err(Status::OBJECT_NAME_INVALID.into());
    };
    let files = &on.server.files;
    Status::DELETE_PENDING.when(files.is_to_be_deleted(parent.key()))?;
    let directly_above = access::Parent::seen(&parent, lookup.parent_seen.as_ref());
    access::may_add(on.vfs(), directly_above, &token, directory).await?;
    let above = Place::of(&parent);
    let ask = |waiter| files.admit_entry(&above, directory, waiter);
    engine::wait_for(on.call, Some(on.open), &above, ask).await?;
    let whole = whole.charged(path_memory(on.call, path)?);
    Ok(Target {
        parent,
        name: name.clone(),
        announced: NewNameGuard::begin(on.server, &whole),
        path: whole,
        existing: lookup.found,
        stored: lookup.name,
        _place: place,
    })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use vfs::PATH_DEPTH_MAX;

    use super::*;

    fn status(class: FileInformationClass, bytes: &[u8]) -> Option<Status> {
        match read(class, bytes, false) {
            Ok(_) => None,
            Err(Failure::Status(status)) => Some(status),
            Err(_) => panic!("no status"),
        }
    }

    fn rename(root_directory: u64, name: &str) -> BytesMut {
        let mut out = BytesMut::new();
        FileRenameInformation {
            replace_if_exists: true,
            root_directory,
            file_name: name.to_owned(),
        }
        .encode(&mut out);
        out
    }

    #[test]
    fn names_are_checked_as_the_text_says() {
        let class = FileInformationClass::RENAME;
        assert_eq!(status(class, &rename(0, "a\\b")), None);
        assert_eq!(status(class, &rename(0, ":s")), None);
        assert!(check_length(&[0; 21]).is_err() && check_length(&[0; 22]).is_ok());
        // Many clients do not pad a name of one letter.
        for class in [
            class,
            FileInformationClass::RENAME_EX,
            FileInformationClass::LINK,
        ] {
            assert_eq!(status(class, &rename(0, "a")[..22]), None);
        }
        for from_root in ["\\a\\b", "\\a"] {
            let link = read(FileInformationClass::LINK, &rename(0, from_root), false).unwrap();
            assert_eq!(link.path.join("\\"), from_root[1..]);
            let refused = Some(Status::INVALID_PARAMETER);
            for class in [class, FileInformationClass::RENAME_EX] {
                assert_eq!(status(class, &rename(0, from_root)), refused);
            }
        }
        for bad in [rename(1, "a"), rename(0, ""), rename(0, "\\:s")] {
            assert_eq!(status(class, &bad), Some(Status::INVALID_PARAMETER));
        }
        let mut odd = rename(0, "ab");
        odd[16] = 3;
        assert_eq!(status(class, &odd), Some(Status::INVALID_PARAMETER));
        for invalid in ["a*", "a\\"] {
            let refused = Some(Status::OBJECT_NAME_INVALID);
            assert_eq!(status(class, &rename(0, invalid)), refused, "{invalid}");
        }
        for directory in ["a\\b\\", "a\\\\b\\\\"] {
            let directory = read(class, &rename(0, directory), true).unwrap();
            assert_eq!(directory.path, ["a", "b"]);
        }
        for nowhere in ["\\", "\\:s"] {
            let link = FileInformationClass::LINK;
            let refused = Some(Status::OBJECT_NAME_INVALID);
            assert_eq!(status(link, &rename(0, nowhere)), refused, "{nowhere}");
        }
    }

    #[test]
    fn one_rule_limits_the_names_of_renames_and_links() {
        let deep = |depth: usize| vec!["d"; depth].join("\\");
        let longest = "x".repeat(255);
        for class in [FileInformationClass::RENAME, FileInformationClass::LINK] {
            for good in [&longest, &deep(PATH_DEPTH_MAX)] {
                assert_eq!(status(class, &rename(0, good)), None, "{}", good.len());
            }
            let beyond = [
                format!("{longest}x"),
                deep(PATH_DEPTH_MAX + 1),
                vec![longest.as_str(); 128].join("\\"),
            ];
            for bad in beyond {
                let refused = Some(Status::OBJECT_NAME_INVALID);
                assert_eq!(status(class, &rename(0, &bad)), refused, "{}", bad.len());
            }
            assert_eq!(
                status(class, &rename(0, "")),
                Some(Status::INVALID_PARAMETER)
            );
        }
    }

    #[test]
    fn flags_are_done_or_refused() {
        let status_of = |class, bits| {
            let mut out = BytesMut::new();
            FileRenameInformationEx {
                flags: RenameFlags(bits),
                root_directory: 0,
                file_name: "a".to_owned(),
            }
            .encode(&mut out);
            status(class, &out)
        };
        for class in [
            FileInformationClass::RENAME_EX,
            FileInformationClass::LINK_EX,
        ] {
            for done in [0, 1, 2, 3, 4, 8, 0x43, 0x4f, 0x18, 0x1f8] {
                assert_eq!(status_of(class, done), None, "{done:#x}");
            }
            for managing in [0x10, 0x20, 0x30, 0x80, 0x100, 0x183] {
                let refused = Some(Status::PRIVILEGE_NOT_HELD);
                assert_eq!(status_of(class, managing), refused, "{managing:#x}");
            }
            for unknown in [0x200, 0x8000_0001, 0x208] {
                let refused = Some(Status::NOT_SUPPORTED);
                assert_eq!(status_of(class, unknown), refused, "{unknown:#x}");
            }
        }
    }
}
