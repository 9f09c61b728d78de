//! Extended attributes of a descriptor.
//!
//! A descriptor opened for I/O has its own calls. One with `O_PATH` has none: `fgetxattr` and, with
//! `AT_EMPTY_PATH`, `getxattrat` return EBADF (Linux 6.18). With the calls of Linux 6.13, a directory is reached as its
//! own `.`, and everything else by its magic link from a descriptor of the folder of these links, because a path walk
//! in `/proc` costs as much as three such queries. If the kernel (ENOSYS) or a filter of system calls (EPERM) does not
//! allow these calls, the path through `/proc` is used, as it is for changes, which cost more by themselves.
//!
//! Every function that reads takes [`XattrAccess`], so that both can be tested; other callers pass
//! [`XattrAccess::here`]. These functions do not change the identity.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd},
    sync::OnceLock,
};

use rustix::{
    buffer::spare_capacity,
    fs::{XattrFlags, fgetxattr, flistxattr, getxattr, lgetxattr, listxattr, llistxattr},
};

use super::{
    calls::{call, stat_at},
    fd::LinuxFd,
};
use crate::{
    disk::{DiskResult, EntryAttrs, Errno, Wanted, XattrLengths, XattrSet, check_name},
    posix_sys as raw,
};

/// Longest value of an extended attribute (`XATTR_SIZE_MAX`) and longest list of names.
pub(super) const XATTR_MAX: usize = 64 * 1024;
/// Enough for most attributes; a longer one is read a second time.
pub(super) const XATTR_GUESS: usize = 1024;
/// Attributes that an open reads where each is a file.
const WARMED_MAX: usize = 8;
/// Attributes that one job measures; a file has a few, but somebody may give each of a directory's files thousands.
const LENGTHS_AT_ONCE: usize = 1024;

/// How attributes of an `O_PATH` descriptor are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum XattrAccess {
    /// By the calls of Linux 6.13.
    At,
    /// By a path in `/proc`, with the older calls.
    Path,
}

impl XattrAccess {
    /// The system calls for attributes that this kernel supports; they are determined once.
    pub(super) fn here() -> Self {
        static HERE: OnceLock<XattrAccess> = OnceLock::new();
        *HERE.get_or_init(|| {
            let mut value = Vec::with_capacity(XATTR_GUESS);
            let asked = raw::xattr_at(rustix::fs::CWD, c"/", 0, Some(c"user.none"), &mut value);
            match asked {
                Err(Errno(libc::ENOSYS | libc::EPERM)) => Self::Path,
                _ => Self::At,
            }
        })
    }
}

fn c_text(text: impl Into<Vec<u8>>) -> DiskResult<CString> {
    CString::new(text).map_err(|_| Errno(libc::EINVAL))
}

/// Runs a call with the directory and the path that lead to the inode of an `O_PATH` descriptor.
fn reach<T>(
    fd: &LinuxFd,
    mut call: impl FnMut(BorrowedFd<'_>, &CStr) -> DiskResult<T>,
) -> DiskResult<T> {
    if fd.is_directory() {
        match call(fd.as_fd(), c".") {
            // Reading a directory's attributes requires no search permission.
            Err(Errno(libc::EACCES)) => {}
            other => return other,
        }
    }
    fd.by_link(call)
}

/// Calls `get` with a small buffer, then with one of `most` bytes, if that is more. E2BIG if that is too small as well.
fn sized_to<T, E: Into<Errno>>(
    most: usize,
    mut get: impl FnMut(&mut Vec<u8>) -> Result<T, E>,
) -> DiskResult<Vec<u8>> {
    let mut value = Vec::with_capacity(XATTR_GUESS);
    let mut got = get(&mut value).map_err(Into::into);
    if matches!(got, Err(Errno(libc::ERANGE))) && most > XATTR_GUESS {
        value.clear();
        value.reserve_exact(most);
        got = get(&mut value).map_err(Into::into);
    }
    match got {
        Ok(_) => Ok(value),
        Err(Errno(libc::ERANGE)) => Err(Errno(libc::E2BIG)),
        Err(errno) => Err(errno),
    }
}

/// The value of an attribute of at most `most` bytes ([`XATTR_GUESS`] at least); E2BIG for a longer one, which is not
/// read.
pub(super) fn get(fd: &LinuxFd, name: &str, way: XattrAccess, most: usize) -> DiskResult<Vec<u8>> {
    if !fd.is_path_only() {
        return sized_to(most, |buf| fgetxattr(fd, name, spare_capacity(buf)));
    }
    match way {
        XattrAccess::At => {
            let name = c_text(name)?;
            sized_to(most, |buf| {
                reach(fd, |dir, path| {
                    raw::xattr_at(dir, path, 0, Some(&name), buf)
                })
            })
        }
        XattrAccess::Path => {
            let path = fd.proc_path();
            sized_to(most, |buf| getxattr(&*path, name, spare_capacity(buf)))
        }
    }
}

/// State and one attribute of each name, which has a type (`DT_*`), links not followed. EXDEV as for [`stat_at`].
pub(super) fn entries<'a>(
    dir: &LinuxFd,
    names: impl Iterator<Item = (&'a [u8], u8)>,
    wanted: &Wanted,
    way: XattrAccess,
) -> Vec<DiskResult<EntryAttrs>> {
    // One that can be understood is much shorter; a longer one is E2BIG.
    const MOST: usize = 4096;
    let attribute = c_text(wanted.attribute);
    let mut path = dir.proc_path().into_bytes();
    path.push(b'/');
    let folder = path.len();
    let look = |(name, kind): (&'a [u8], u8)| {
        check_name(name)?;
        let stat = stat_at(dir, name, kind)?;
        if (wanted.known)(&stat) {
            return Ok((stat, None));
        }
        if way == XattrAccess::At {
            let (name, attribute) = (c_text(name)?, attribute.as_ref().map_err(|e| *e)?);
            let at = dir.as_fd();
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            let value = sized_to(MOST, |buf| {
                raw::xattr_at(at, &name, flags, Some(attribute), buf)
            });
            return Ok((stat, Some(value)));
        }
        path.truncate(folder);
        path.extend_from_slice(name);
        let value = sized_to(MOST, |buf| {
            lgetxattr(path.as_slice(), wanted.attribute, spare_capacity(buf))
        });
        Ok((stat, Some(value)))
    };
    names.map(look).collect()
}

/// The attributes of each name that `wanted` approves of, with the lengths of their values; ELOOP for a symbolic link
/// without any. The last names are left out, but never the first, where [`LENGTHS_AT_ONCE`] attributes were measured
/// before them. A name on which another file system is mounted must not be among them.
pub(super) fn lengths(
    dir: &LinuxFd,
    names: &[Box<[u8]>],
    wanted: fn(&str) -> bool,
    way: XattrAccess,
) -> Vec<DiskResult<XattrLengths>> {
    let mut path = dir.proc_path().into_bytes();
    path.push(b'/');
    let folder = path.len();
    let mut look = |name: &[u8]| {
        check_name(name)?;
        path.truncate(folder);
        path.extend_from_slice(name);
        let (c_name, at) = (c_text(name)?, dir.as_fd());
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let listed = match way {
            XattrAccess::At => sized_to(XATTR_MAX, |buf| {
                raw::xattr_at(at, &c_name, flags, None, buf)
            }),
            XattrAccess::Path => sized_to(XATTR_MAX, |buf| {
                llistxattr(path.as_slice(), spare_capacity(buf))
            }),
        }?;
        let mut found = Vec::new();
        for attribute in texts(&listed).filter(|attribute| wanted(attribute)) {
            let length = rustix::fs::lgetxattr_query(path.as_slice(), attribute.as_str())?;
            found.push((attribute, length));
        }
        // The caller knows a link's name by the facts about the link's target.
        if found.is_empty() && rustix::fs::readlinkat(at, &*c_name, Vec::new()).is_ok() {
            return Err(Errno(libc::ELOOP));
        }
        Ok(found)
    };
    let mut measured = 0;
    let mut all = Vec::with_capacity(names.len());
    while let Some(name) = names.get(all.len()).filter(|_| measured < LENGTHS_AT_ONCE) {
        let found = look(name);
        measured += found.as_ref().map_or(0, Vec::len);
        all.push(found);
    }
    all
}

/// The names of a list of attributes. One that is not UTF-8 cannot be used with this trait anyway.
fn texts(listed: &[u8]) -> impl Iterator<Item = String> {
    let names = listed.split(|b| *b == 0).filter(|name| !name.is_empty());
    names.filter_map(|name| String::from_utf8(name.to_vec()).ok())
}

fn names(fd: &LinuxFd, way: XattrAccess) -> DiskResult<Vec<u8>> {
    if !fd.is_path_only() {
        return sized_to(XATTR_MAX, |buf| flistxattr(fd, spare_capacity(buf)));
    }
    match way {
        XattrAccess::At => sized_to(XATTR_MAX, |buf| {
            reach(fd, |dir, path| raw::xattr_at(dir, path, 0, None, buf))
        }),
        XattrAccess::Path => {
            let path = fd.proc_path();
            sized_to(XATTR_MAX, |buf| listxattr(&*path, spare_capacity(buf)))
        }
    }
}

pub(super) fn list(fd: &LinuxFd, way: XattrAccess) -> DiskResult<Vec<String>> {
    Ok(texts(&names(fd, way)?).collect())
}

/// Reads the attributes' names, so that the block with the attributes is in memory for later calls. Where each is a
/// file of its own, it also reads the first of them.
pub(super) fn warm(fd: &LinuxFd) {
    let way = XattrAccess::here();
    let listed = names(fd, way).unwrap_or_default();
    let apart = fd.class().xattrs_beside == 0;
    for attribute in texts(&listed).take(if apart { WARMED_MAX } else { 0 }) {
        let _ = get(fd, &attribute, way, XATTR_GUESS);
    }
}

pub(super) fn set(fd: &LinuxFd, name: &str, value: &[u8], how: XattrSet) -> DiskResult<()> {
    let flags = match how {
        XattrSet::Either => XattrFlags::empty(),
        XattrSet::Create => XattrFlags::CREATE,
        XattrSet::Replace => XattrFlags::REPLACE,
    };
    call(|| match fd.is_path_only() {
        true => rustix::fs::setxattr(fd.proc_path(), name, value, flags),
        false => rustix::fs::fsetxattr(fd, name, value, flags),
    })
}

pub(super) fn remove(fd: &LinuxFd, name: &str) -> DiskResult<()> {
    call(|| match fd.is_path_only() {
        true => rustix::fs::removexattr(fd.proc_path(), name),
        false => rustix::fs::fremovexattr(fd, name),
    })
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc};

    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::{
        Identity, credentials, identity::LocalUser, linux::file_system::FileSystem, testing::root,
    };

    const ATTRIBUTE: &str = "user.x";

    /// The ways that this kernel has.
    fn ways() -> Vec<XattrAccess> {
        if XattrAccess::here() == XattrAccess::Path {
            crate::testing::missing("getxattrat (Linux 6.13)");
            return vec![XattrAccess::Path];
        }
        vec![XattrAccess::At, XattrAccess::Path]
    }

    /// Opens with `O_PATH`; `seen` says whether the descriptor was queried.
    fn open(path: &Path, seen: bool) -> LinuxFd {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        let on = FileSystem::of(&fd).unwrap();
        let fd = LinuxFd::new(fd, true, &on);
        if seen {
            super::super::calls::stat(&fd).unwrap();
        }
        fd
    }

    fn no<T>(result: DiskResult<T>, errno: i32) {
        assert_eq!(result.map(drop), Err(Errno(errno)));
    }

    #[test]
    fn a_link_has_not_the_attributes_of_its_target() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bare", "described"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("described", folder.path().join("link")).unwrap();
        let described = open(&folder.path().join("described"), true);
        let names = ["bare", "described", "link", "none"].map(|name| name.as_bytes().into());
        for way in ways() {
            set(&described, ATTRIBUTE, b"seven", XattrSet::Either).unwrap();
            let dir = open(folder.path(), true);
            let found = lengths(&dir, &names, |attribute| attribute == ATTRIBUTE, way);
            let of_described = vec![(ATTRIBUTE.to_owned(), 5)];
            let (link, none) = (Err(Errno(libc::ELOOP)), Err(Errno(libc::ENOENT)));
            assert_eq!(found, [Ok(vec![]), Ok(of_described), link, none]);
        }
    }

    #[test]
    fn the_length_of_a_long_value_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, b"").unwrap();
        let names: [Box<[u8]>; 1] = [b"f"[..].into()];
        for (way, length) in ways().into_iter().zip([XATTR_GUESS + 1, XATTR_GUESS + 2]) {
            let file = open(&path, true);
            set(&file, ATTRIBUTE, &vec![7; length], XattrSet::Either).unwrap();
            let dir = open(folder.path(), true);
            let found = lengths(&dir, &names, |attribute| attribute == ATTRIBUTE, way);
            assert_eq!(found, [Ok(vec![(ATTRIBUTE.to_owned(), length)])]);
        }
    }

    fn conforms(fd: &LinuxFd, way: XattrAccess) {
        let set = |value: &[u8], how| set(fd, ATTRIBUTE, value, how);
        no(get(fd, ATTRIBUTE, way, XATTR_MAX), libc::ENODATA);
        no(set(b"1", XattrSet::Replace), libc::ENODATA);
        set(b"one", XattrSet::Create).unwrap();
        no(set(b"1", XattrSet::Create), libc::EEXIST);
        assert_eq!(get(fd, ATTRIBUTE, way, XATTR_MAX).unwrap(), b"one");
        // The value is longer than the first buffer.
        let long = [7; XATTR_GUESS + 1];
        set(&long, XattrSet::Replace).unwrap();
        assert_eq!(get(fd, ATTRIBUTE, way, XATTR_MAX).unwrap(), long);
        assert_eq!(get(fd, ATTRIBUTE, way, long.len()).unwrap(), long);
        no(get(fd, ATTRIBUTE, way, XATTR_GUESS), libc::E2BIG);
        assert_eq!(list(fd, way).unwrap(), [ATTRIBUTE]);
        set(b"", XattrSet::Either).unwrap();
        assert_eq!(get(fd, ATTRIBUTE, way, XATTR_MAX).unwrap(), b"");
        remove(fd, ATTRIBUTE).unwrap();
        no(remove(fd, ATTRIBUTE), libc::ENODATA);
        assert_eq!(list(fd, way).unwrap(), [""; 0]);
        no(get(fd, "user.\0", way, XATTR_MAX), libc::EINVAL);
    }

    #[test]
    fn every_way_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (file, folder) = (dir.path().join("f"), dir.path().join("d"));
        std::fs::write(&file, b"").unwrap();
        std::fs::create_dir(&folder).unwrap();
        for way in ways() {
            for seen in [false, true] {
                conforms(&open(&file, seen), way);
                conforms(&open(&folder, seen), way);
            }
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let fd = rustix::fs::open(&file, flags, Mode::empty()).unwrap();
            let on = FileSystem::of(&fd).unwrap();
            conforms(&LinuxFd::new(fd, false, &on), way);
        }
    }

    /// The attributes are those of the descriptor's inode, even if its name leads to another inode meanwhile.
    #[test]
    fn a_name_that_changed_hands_is_not_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for way in ways() {
            for folder in [false, true] {
                let make = || match folder {
                    true => std::fs::create_dir(&path).unwrap(),
                    false => std::fs::write(&path, b"").unwrap(),
                };
                make();
                let old = open(&path, true);
                set(&old, ATTRIBUTE, b"old", XattrSet::Create).unwrap();
                match folder {
                    true => std::fs::remove_dir(&path).unwrap(),
                    false => std::fs::remove_file(&path).unwrap(),
                }
                make();
                no(
                    get(&open(&path, true), ATTRIBUTE, way, XATTR_MAX),
                    libc::ENODATA,
                );
                assert_eq!(get(&old, ATTRIBUTE, way, XATTR_MAX).unwrap(), b"old");
                if !folder {
                    std::fs::remove_file(&path).unwrap();
                }
            }
            std::fs::remove_dir(&path).unwrap();
        }
    }

    #[test]
    fn entries_are_asked_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("with"), b"").unwrap();
        std::fs::create_dir(at("without")).unwrap();
        std::os::unix::fs::symlink("with", at("link")).unwrap();
        let set = set(&open(&at("with"), true), ATTRIBUTE, b"1", XattrSet::Create);
        set.unwrap();
        let names = ["with", "without", "link", "none", ".."];
        let wanted = Wanted {
            attribute: ATTRIBUTE,
            known: Arc::new(|_| false),
        };
        let root = open(dir.path(), true);
        for way in ways() {
            let unknown = names.iter().map(|name| (name.as_bytes(), libc::DT_UNKNOWN));
            let found = entries(&root, unknown, &wanted, way);
            let values = found
                .into_iter()
                .map(|one| one.map(|(_, value)| value.unwrap()));
            let none = |errno: i32| Err(Errno(errno));
            let values: Vec<_> = values.collect();
            assert_eq!(values[0], Ok(Ok(b"1".to_vec())), "{way:?}");
            assert_eq!(values[1], Ok(none(libc::ENODATA)), "{way:?}");
            // A link has no attribute; the file it leads to is not queried.
            assert_ne!(values[2], Ok(Ok(b"1".to_vec())), "{way:?}");
            assert_eq!(
                values[3].as_ref().err(),
                Some(&Errno(libc::ENOENT)),
                "{way:?}"
            );
            assert!(values[4].is_err(), "{way:?}");
        }
    }

    /// A folder that its owner may read but not search.
    #[test]
    fn nobody_needs_to_search_a_folder_for_its_own_attributes() {
        if !root() {
            return;
        }
        credentials::remember_service();
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("d");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o444)).unwrap();
        let fd = open(&folder, true);
        set(&fd, ATTRIBUTE, b"1", XattrSet::Create).unwrap();
        let who = Identity::User(Arc::new(LocalUser {
            uid: 64_123,
            gid: 64_123,
            groups: vec![],
        }));
        for way in ways() {
            let got = credentials::with(&who, || get(&fd, ATTRIBUTE, way, XATTR_MAX));
            assert_eq!(got, Ok(b"1".to_vec()), "{way:?}");
        }
    }
}
