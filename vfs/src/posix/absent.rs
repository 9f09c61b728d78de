//! Names that a directory is known not to have, so that the disk is not asked for them.

use super::{PosixNode, PosixVfs, folded::Sought, name_cache::Known, roots, short_name::Code};
use crate::{FileKey, Identity, Seen, VfsError, VfsResult, disk::Disk};

impl<D: Disk> PosixVfs<D> {
    /// Whether the cache says that there is no name `component`. It is used only if the kernel does not have the name
    /// in memory, as it would have for a name that another process has just made.
    pub(super) async fn is_known_absent(
        &self,
        dir: &D::Fd,
        dir_key: FileKey,
        component: &str,
        seen: &mut Option<Seen>,
    ) -> VfsResult<bool> {
        if self.short_code(component).is_some() {
            return Ok(false);
        }
        let folded = crate::fold(component);
        if !self.disk.is_local(dir) || !self.names.may_lack(dir_key, &folded) {
            return Ok(false);
        }
        let sought = Sought {
            folded: &folded,
            code: None,
        };
        if self.known_then(dir_key, seen.as_ref(), sought) == Known::Absent {
            return Ok(true);
        }
        let stat = self.disk.stat(dir).await?;
        *seen = Some((&stat).into());
        let known = self.find(&stat, sought).await;
        Ok(known == Known::Absent)
    }

    /// Whether the permission bits in `seen` allow `who` to search a directory. If they do not, the disk is asked,
    /// which also checks access control lists. A list that grants less than the bits is not seen here; the user then
    /// learns no more than that a name does not exist.
    pub(super) fn searches(&self, who: &Identity, seen: Option<&Seen>) -> bool {
        let Some(of) = seen.map(|seen| seen.permissions) else {
            return false;
        };
        let (uid, in_group) = match who {
            // The groups of the service's own process are not known here.
            Identity::Service => (self.disk.service_uid(), None),
            Identity::User(user) => {
                let in_group = user.gid == of.gid || user.groups.contains(&of.gid);
                (user.uid, Some(in_group))
            }
        };
        let bits = match in_group {
            _ if uid == 0 => return true,
            _ if uid == of.uid => 0o100,
            Some(true) => 0o010,
            Some(false) => 0o001,
            None => 0o011,
        };
        of.mode & bits == bits
    }

    /// The cached state as of the time when the directory was seen.
    pub(super) fn known_then(
        &self,
        dir_key: FileKey,
        seen: Option<&Seen>,
        sought: Sought<'_>,
    ) -> Known {
        let now = self.options.clock.now();
        seen.map_or(Known::Unlisted, |seen| {
            self.names.find_seen(dir_key, seen, sought, now)
        })
    }

    /// Whether a name that is to be created exists already, in any case. If the cache knows of none, the exact name
    /// is not queried: creating it will report that. Only then it also returns the directory's state, as the lookup
    /// that returned `above` or this function has seen it.
    pub(super) async fn is_taken(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        component: &str,
        above: Option<&Seen>,
    ) -> VfsResult<(bool, Option<Seen>)> {
        let seen = self.seen_without(dir, component, above).await?;
        if seen.is_some() {
            return Ok((false, seen));
        }
        let (fd, key) = (dir.directory()?, dir.0.key);
        Ok((self.child(who, fd, key, component).await?.is_some(), None))
    }

    /// Returns the directory's state if the cache says that no name in it folds like `component`; the disk is not asked
    /// for the name. It is meant only for callers that notice such a name when they create it. `above` is that state,
    /// if the caller has just seen it and has not waited since.
    pub(super) async fn seen_without(
        &self,
        dir: &PosixNode<D>,
        component: &str,
        above: Option<&Seen>,
    ) -> VfsResult<Option<Seen>> {
        let (fd, key) = (dir.directory()?, dir.0.key);
        VfsError::InvalidName.when(roots::reserves(key, component))?;
        let mut seen = above.copied();
        let absent = self.is_known_absent(fd, key, component, &mut seen).await?;
        Ok(seen.filter(|_| absent))
    }

    /// The code of a component that may be the short form of a name.
    pub(super) fn short_code(&self, component: &str) -> Option<Code> {
        let code = Code::in_short(component);
        code.filter(|_| self.options.short_names)
    }
}
