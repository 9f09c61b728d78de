//! Symbolic links on the way of a lookup: followed within the root, and only so many of them.
//!
//! The target is walked from the directory that holds the link, on the stack of the directories above it; an absolute
//! one from the root, if it begins with the path of the root (docs/protocol-notes.md, "Symbolic links").

use std::os::unix::ffi::OsStrExt;

use super::{Child, Stack, Step, push};
use crate::{
    Identity, Kind, VfsError, VfsResult,
    disk::Disk,
    posix::{PosixNode, PosixVfs, SymlinkPolicy, file_ids::Via, name, node::kind_of, roots},
};

/// Links followed in one lookup (as Linux: MAXSYMLINKS).
const LINKS_MAX: u32 = 40;
/// Components of all link targets in one lookup, and those that are walked again to return to a directory above.
const TARGET_COMPONENTS_MAX: usize = 1024;

/// The links that one lookup may still follow.
pub(super) struct LinkBudget {
    links: u32,
    components: usize,
}

impl Default for LinkBudget {
    fn default() -> Self {
        Self {
            links: LINKS_MAX,
            components: TARGET_COMPONENTS_MAX,
        }
    }
}

impl LinkBudget {
    fn follow(&mut self) -> VfsResult<()> {
        self.links = self.links.checked_sub(1).ok_or(VfsError::SymbolicLink)?;
        Ok(())
    }

    fn walk(&mut self, components: usize) -> VfsResult<()> {
        let left = self.components.checked_sub(components);
        self.components = left.ok_or(VfsError::SymbolicLink)?;
        Ok(())
    }
}

impl<D: Disk> PosixVfs<D> {
    /// Reopens a directory to which a link has led back and which is no longer open. It is opened by its names, and
    /// accepted only if these still lead to it.
    async fn open_top(
        &self,
        who: &Identity,
        stack: &mut Stack<D::Fd>,
        left: &mut LinkBudget,
    ) -> VfsResult<()> {
        let Some(wanted) = stack.steps.last().filter(|step| step.fd.is_none()) else {
            return Ok(());
        };
        left.walk(stack.steps.len())?;
        let mut at = (self.root.fd().clone(), self.root_key());
        for step in &stack.steps {
            match self.open_child(who, &at.0, &step.name).await? {
                Some(Child::Inode(fd, stat)) => at = (fd, stat.key),
                _ => return Err(VfsError::SymbolicLink),
            }
        }
        VfsError::SymbolicLink.when(at.1 != wanted.stat.key)?;
        if let Some(top) = stack.steps.last_mut() {
            top.fd = Some(at.0);
        }
        Ok(())
    }

    /// Follows the link `on_disk` in `dir`, which is at the end of `stack`. `None` if it dangles.
    pub(super) async fn follow(
        &self,
        who: &Identity,
        stack: &mut Stack<D::Fd>,
        dir: &D::Fd,
        on_disk: &[u8],
        left: &mut LinkBudget,
    ) -> VfsResult<Option<Step<D::Fd>>> {
        VfsError::SymbolicLink.when(self.options.symlinks != SymlinkPolicy::Follow)?;
        let link = match self.disk.stat_at(dir, on_disk).await {
            Err(errno) if errno.is(&[libc::ENOENT]) => return Ok(None),
            other => other?,
        };
        let link = self
            .file_ids
            .of(link.key, Kind::SymbolicLink, Via::default());
        let via = stack.via().through(link);
        // The rest of the walk, the next component last.
        let mut ahead: Vec<Box<[u8]>> = Vec::new();
        self.push_target(stack, (dir, on_disk), &mut ahead, left)
            .await?;
        while let Some(component) = ahead.pop() {
            if *component == *b".." {
                stack.steps.pop().ok_or(VfsError::SymbolicLink)?;
                self.open_top(who, stack, left).await?;
                continue;
            }
            let (dir, key) = self.top(stack)?;
            // The server's own names must not be reached by a link either.
            VfsError::SymbolicLink.when(roots::reserves(key, &name::to_client(&component)))?;
            let mut child = self.open_child(who, &dir, &component).await?;
            if roots::may_be_depot(key, &component)
                && let Some(found) = &child
            {
                VfsError::SymbolicLink.when(self.is_depot(&dir, found).await?)?;
            }
            if child.as_ref().is_some_and(Child::automounts) {
                child = Box::pin(self.automounted(who, &dir, &component)).await?;
            }
            match child {
                None => return Ok(None),
                Some(Child::Link) => {
                    let link = (&dir, &*component);
                    self.push_target(stack, link, &mut ahead, left).await?;
                }
                Some(Child::Inode(fd, stat)) => {
                    let step = Step {
                        fd,
                        stat,
                        name: component,
                        via,
                    };
                    if ahead.is_empty() {
                        return Ok(Some(step));
                    }
                    if kind_of(stat.mode) != Kind::Directory {
                        return Ok(None);
                    }
                    push(stack, step)?;
                }
            }
        }
        // The target ended in `..` or `.`: it is the directory on top, with its own above it.
        let (fd, _) = self.top(stack)?;
        let (stat, name) = match stack.steps.pop() {
            Some(step) => (step.stat, step.name),
            None => (self.disk.stat(&fd).await?, Box::default()),
        };
        Ok(Some(Step {
            fd,
            stat,
            name,
            via,
        }))
    }

    /// Puts the components of a link's target on `ahead`. An absolute target is walked from the root.
    async fn push_target(
        &self,
        stack: &mut Stack<D::Fd>,
        (dir, on_disk): (&D::Fd, &[u8]),
        ahead: &mut Vec<Box<[u8]>>,
        left: &mut LinkBudget,
    ) -> VfsResult<()> {
        left.follow()?;
        let target = self.disk.read_link_at(dir, on_disk).await?;
        let mut components: Vec<&[u8]> = components(&target).collect();
        if target.first() == Some(&b'/') {
            let root = self.options.root_path.as_os_str().as_bytes();
            let above: Vec<&[u8]> = self::components(root).collect();
            let is_within = root.first() == Some(&b'/') && components.starts_with(&above);
            VfsError::SymbolicLink.when(!is_within)?;
            components.drain(..above.len());
            stack.steps.clear();
        }
        left.walk(components.len())?;
        ahead.extend(components.into_iter().rev().map(Box::from));
        Ok(())
    }

    /// The inode that the link `on_disk` in `dir` leads to; `None` if it dangles.
    pub(in crate::posix) async fn follow_in(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        on_disk: &[u8],
    ) -> VfsResult<Option<Step<D::Fd>>> {
        VfsError::SymbolicLink.when(self.options.symlinks != SymlinkPolicy::Follow)?;
        let mut stack = self.stack_of(who, dir).await?;
        self.follow_from(who, &mut stack, on_disk).await
    }

    /// As [`Self::follow_in`], from the directory at the end of `stack`.
    pub(in crate::posix) async fn follow_from(
        &self,
        who: &Identity,
        stack: &mut Stack<D::Fd>,
        on_disk: &[u8],
    ) -> VfsResult<Option<Step<D::Fd>>> {
        let (top, _) = self.top(stack)?;
        let mut left = LinkBudget::default();
        self.follow(who, stack, &top, on_disk, &mut left).await
    }

    /// The directories from the root to `dir` by its trail, which is accepted only if it still leads there; otherwise
    /// the error is `SymbolicLink`, because `dir` is of no use for following links.
    pub(in crate::posix) async fn stack_of(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
    ) -> VfsResult<Stack<D::Fd>> {
        let mut stack = Stack::new(0);
        for component in dir.0.trail.iter().flat_map(|trail| trail.iter()) {
            let (top, _) = self.top(&stack)?;
            let Some(Child::Inode(fd, stat)) = self.open_child(who, &top, component).await? else {
                return Err(VfsError::SymbolicLink);
            };
            let step = Step {
                fd,
                stat,
                name: component.clone(),
                via: dir.0.named.via,
            };
            push(&mut stack, step)?;
        }
        let (_, key) = self.top(&stack)?;
        VfsError::SymbolicLink.when(key != dir.0.key)?;
        if stack.steps.is_empty() {
            stack.to_root = dir.0.named.via;
        }
        Ok(stack)
    }
}

/// The components of a path on the host that lead on.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = path.split(|byte| *byte == b'/');
    all.filter(|component| !component.is_empty() && *component != b".")
}
