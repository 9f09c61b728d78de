//! Walks paths from the root, one component at a time.
//!
//! Every step is one `open_at` that follows no link and one `stat`: the exact name first, then the
//! name that folds alike, then the name of which it is the short form ([`super::listings`]). Links are walked in
//! [`links`], from the directory that holds them and with a stack of the directories above, so that no link leaves the
//! root, even if directories are renamed meanwhile. Components of a link's target are names on disk and match exactly.
//! Only the last few directories of the stack are kept open, so that deep paths of many requests do not use up the
//! descriptors.
//!
//! The first components of a path that are in memory by their exact names are opened under one change of identity
//! ([`Ahead`]), because a change costs more than the opens. They count as if they had been opened one by one, and are
//! dropped where the walk leaves them: at a link, or at a name in another case.

mod links;

use self::links::LinkBudget;
use super::{
    PosixNode, PosixVfs, SymlinkPolicy,
    attributes::Named,
    depot::FOLDER,
    file_ids::Via,
    name,
    name_cache::Change,
    node::{Trail, kind_of},
    roots, short_name,
};
use crate::{
    FileKey, Identity, Kind, Lookup, PATH_DEPTH_MAX, Paths, Permissions, Seen, VfsError, VfsResult,
    Volume,
    disk::{Disk, DiskResult, Errno, OpenHow, Stat},
};

/// Components that are opened ahead at once.
const AHEAD_MAX: usize = 32;
/// The number of directories of a walk that are kept open, counted from the last.
const OPEN_MAX: usize = 8;

/// An inode reached, with its name on disk in the directory before it on the stack.
#[derive(Clone)]
pub(super) struct Step<F> {
    pub(super) fd: F,
    pub(super) stat: Stat,
    pub(super) name: Box<[u8]>,
    pub(super) via: Via,
}

/// The directories of a walk, from the root down. The last one always has its descriptor.
pub(super) struct Stack<F> {
    steps: Vec<Step<Option<F>>>,
    /// The links through which the walk has come back to the root.
    to_root: Via,
}

impl<F> Stack<F> {
    fn new(depth: usize) -> Self {
        Self {
            steps: Vec::with_capacity(depth),
            to_root: Via::default(),
        }
    }

    /// The links through which the directory at the end was reached.
    fn via(&self) -> Via {
        self.steps.last().map_or(self.to_root, |step| step.via)
    }
}

/// The result of an open that must not wait.
type OpenedNow<F> = Option<DiskResult<F>>;

/// The remaining components, as far as they were opened ahead.
type Ahead<F> = std::vec::IntoIter<OpenedNow<F>>;

/// The directory of the last component, with the path to it.
struct Above<F> {
    stack: Stack<F>,
    /// Its names as stored.
    stored: Vec<String>,
    /// The limits left for links.
    left: LinkBudget,
}

impl From<&Stat> for Seen {
    fn from(stat: &Stat) -> Self {
        Self {
            permissions: Permissions {
                uid: stat.uid,
                gid: stat.gid,
                mode: stat.mode,
            },
            written: stat.written,
            changed: stat.changed,
        }
    }
}

pub(super) enum Child<F> {
    Inode(F, Stat),
    Link,
}

impl<F> Child<F> {
    fn automounts(&self) -> bool {
        matches!(self, Self::Inode(_, stat) if stat.automounts)
    }
}

impl<D: Disk> Paths for PosixVfs<D> {
    async fn lookup(&self, who: &Identity, path: &[String]) -> VfsResult<Lookup<PosixNode<D>>> {
        check_depth(path)?;
        let Some((last, before)) = path.split_last() else {
            let root = self.root.clone();
            let attr = self.attr(&root).await?;
            return Ok(Lookup {
                parent: None,
                parent_seen: None,
                name: String::new(),
                path: Vec::new(),
                found: Some((root, attr)),
            });
        };
        let mut ahead = self.ahead(who, path);
        let Above {
            mut stack,
            mut stored,
            mut left,
        } = self.walk_above(who, before, &mut ahead).await?;
        // The parent is the directory that the client named, even if the last component is a link to another place.
        let parent = self.node_of(&stack)?;
        let mut seen = seen_on_top(&stack);
        let opened = ahead.next();
        let walked = self.walk(who, &mut stack, (last, opened), &mut left, &mut seen);
        let Some((shown, _, step)) = walked.await? else {
            let name = match self.short_code(last) {
                Some(_) => self
                    .tunnel
                    .long(parent.0.key, last, self.options.clock.now()),
                None => None,
            };
            return Ok(Lookup {
                parent: Some(parent),
                parent_seen: seen,
                name: name.unwrap_or_else(|| last.clone()),
                path: stored,
                found: None,
            });
        };
        stored.push(shown.clone());
        push(&mut stack, step.clone())?;
        let named = Named {
            dot: shown.starts_with('.'),
            via: step.via,
        };
        let node = PosixNode::path_only(step.fd, &step.stat, named, Some(trail(&stack)));
        let attr = self.attr_with(node.fd(), &step.stat, named).await?;
        Ok(Lookup {
            parent: Some(parent),
            parent_seen: seen,
            name: shown,
            path: stored,
            found: Some((node, attr)),
        })
    }

    async fn lookup_parent(
        &self,
        who: &Identity,
        path: &[String],
    ) -> VfsResult<Option<PosixNode<D>>> {
        check_depth(path)?;
        let Some((_, before)) = path.split_last() else {
            return Ok(None);
        };
        let ahead = &mut self.ahead(who, before);
        let above = self.walk_above(who, before, ahead).await?;
        Ok(Some(self.node_of(&above.stack)?))
    }

    fn short_name(&self, name: &str, short: &mut String) {
        if self.options.short_names && !matches!(name, "." | "..") {
            short_name::put(name, short);
        }
    }
}

impl<D: Disk> PosixVfs<D> {
    /// Opens ahead the components of a path that are in memory.
    fn ahead(&self, who: &Identity, path: &[String]) -> Ahead<D::Fd> {
        if path.len() < 2 {
            return Ahead::default();
        }
        // Names that are reserved only in the root are always left to the walk.
        let plain = path.iter().take(AHEAD_MAX).map_while(|component| {
            let on_disk = name::to_disk(component).ok()?;
            (!name::is_reserved(true, component)).then_some(on_disk)
        });
        let names: Vec<_> = plain.collect();
        let way = self.disk.open_way(who, self.root.fd(), &names);
        way.into_iter()
    }

    /// Walks all but the last component; every one must be a directory.
    async fn walk_above(
        &self,
        who: &Identity,
        before: &[String],
        ahead: &mut Ahead<D::Fd>,
    ) -> VfsResult<Above<D::Fd>> {
        let mut stack = Stack::new(before.len() + 1);
        let mut stored = Vec::with_capacity(before.len() + 1);
        let mut left = LinkBudget::default();
        for component in before {
            let seen = &mut seen_on_top(&stack);
            let named = (component.as_str(), ahead.next());
            let walked = self.walk(who, &mut stack, named, &mut left, seen);
            let Some((shown, straight, step)) = walked.await? else {
                return Err(VfsError::PathNotFound);
            };
            if !straight {
                *ahead = Ahead::default();
            }
            VfsError::PathNotFound.when(kind_of(step.stat.mode) != Kind::Directory)?;
            stored.push(shown);
            push(&mut stack, step)?;
        }
        Ok(Above {
            stack,
            stored,
            left,
        })
    }

    /// Walks one component that a client named and that may have been opened ahead; links are followed. At the end,
    /// `stack` is the real directory of the inode found. Returns the stored name, whether it is the exact one and no
    /// link, and the inode.
    async fn walk(
        &self,
        who: &Identity,
        stack: &mut Stack<D::Fd>,
        (component, opened): (&str, Option<OpenedNow<D::Fd>>),
        left: &mut LinkBudget,
        seen: &mut Option<Seen>,
    ) -> VfsResult<Option<(String, bool, Step<D::Fd>)>> {
        let (dir, key) = self.top(stack)?;
        let named = (component, opened);
        let child = self.child_seen(who, &dir, key, named, seen).await?;
        let Some((on_disk, mut child)) = child else {
            return Ok(None);
        };
        if child.automounts() {
            *seen = None;
            match Box::pin(self.automounted(who, &dir, &on_disk)).await? {
                Some(mounted) => child = mounted,
                None => return Ok(None),
            }
        }
        let shown = name::to_client(&on_disk);
        let straight = shown == component && matches!(child, Child::Inode(..));
        let step = match child {
            Child::Inode(fd, stat) => Some(Step {
                fd,
                stat,
                name: on_disk,
                via: stack.via(),
            }),
            Child::Link => {
                // Following a link may wait.
                *seen = None;
                self.follow(who, stack, &dir, &on_disk, left).await?
            }
        };
        Ok(step.map(|step| (shown, straight, step)))
    }

    /// The root of the file system that an automounter mounts on a directory. Only walks ask for it: a listing that did
    /// would have all of a directory's automounts mounted.
    async fn automounted(
        &self,
        who: &Identity,
        dir: &D::Fd,
        on_disk: &[u8],
    ) -> VfsResult<Option<Child<D::Fd>>> {
        let mounted = self.disk.open_at(who, dir, on_disk, FOLDER).await;
        self.child_of(mounted).await
    }

    /// The directory at the end of `stack`, or the root.
    fn top(&self, stack: &Stack<D::Fd>) -> VfsResult<(D::Fd, FileKey)> {
        let Some(step) = stack.steps.last() else {
            return Ok((self.root.fd().clone(), self.root_key()));
        };
        let fd = step.fd.clone().ok_or(VfsError::SymbolicLink)?;
        Ok((fd, step.stat.key))
    }

    fn node_of(&self, stack: &Stack<D::Fd>) -> VfsResult<PosixNode<D>> {
        let Some(step) = stack.steps.last() else {
            return Ok(self.root.reached_through(stack.to_root));
        };
        let named = Named {
            dot: step.name.first() == Some(&b'.'),
            via: step.via,
        };
        let (fd, trail) = (self.top(stack)?.0, Some(trail(stack)));
        Ok(PosixNode::path_only(fd, &step.stat, named, trail))
    }

    /// Finds `component`, as a client names it, in a directory: its name on disk and its inode.
    pub(super) async fn child(
        &self,
        who: &Identity,
        dir: &D::Fd,
        dir_key: FileKey,
        component: &str,
    ) -> VfsResult<Option<(Box<[u8]>, Child<D::Fd>)>> {
        let named = (component, None);
        self.child_seen(who, dir, dir_key, named, &mut None).await
    }

    /// As [`Self::child`], for a component that may have been opened ahead. `seen` is the directory's state if this
    /// operation has queried it and has not waited since, both on entry and on return.
    async fn child_seen(
        &self,
        who: &Identity,
        dir: &D::Fd,
        dir_key: FileKey,
        (component, opened): (&str, Option<OpenedNow<D::Fd>>),
        seen: &mut Option<Seen>,
    ) -> VfsResult<Option<(Box<[u8]>, Child<D::Fd>)>> {
        VfsError::InvalidName.when(roots::reserves(dir_key, component))?;
        let (exact, how) = (name::to_disk(component)?, OpenHow::PATH_ONLY);
        let now = || self.disk.open_now(who, dir, &exact, how);
        let opened = match opened.unwrap_or_else(now) {
            Some(opened) => opened,
            None if self.is_known_absent(dir, dir_key, component, seen).await?
                && self.searches(who, seen.as_ref()) =>
            {
                return Ok(None);
            }
            None => {
                // This may wait, so the state that was seen may no longer be current.
                *seen = None;
                self.disk.open_at(who, dir, &exact, how).await
            }
        };
        let child = match opened {
            Err(errno) if self.is_removed(dir_key, errno).await => Err(VfsError::PathNotFound),
            opened => self.child_of(opened).await,
        };
        if let Some(child) = child? {
            if roots::may_be_depot(dir_key, &exact) {
                *seen = None;
                VfsError::InvalidName.when(self.is_depot(dir, &child).await?)?;
            }
            return Ok(Some((exact, child)));
        }
        let Some(other) = self.other_name(dir, dir_key, component, seen).await? else {
            return Ok(None);
        };
        if other == exact {
            return Ok(None);
        }
        // If it was removed meanwhile, it does not exist. This may wait, too.
        *seen = None;
        let child = self.open_child(who, dir, &other).await?;
        Ok(child.map(|child| (other, child)))
    }

    /// Opens one name on disk; `None` if there is none (or links are hidden and it is one).
    pub(super) async fn open_child(
        &self,
        who: &Identity,
        dir: &D::Fd,
        on_disk: &[u8],
    ) -> VfsResult<Option<Child<D::Fd>>> {
        let opened = (self.disk).open_at(who, dir, on_disk, OpenHow::PATH_ONLY);
        self.child_of(opened.await).await
    }

    pub(super) async fn child_of(
        &self,
        opened: DiskResult<D::Fd>,
    ) -> VfsResult<Option<Child<D::Fd>>> {
        let child = match opened {
            Ok(fd) => {
                let stat = self.disk.stat(&fd).await?;
                match kind_of(stat.mode) {
                    Kind::SymbolicLink => Child::Link,
                    Kind::Directory if self.hides(stat.key) => return Ok(None),
                    _ => Child::Inode(fd, stat),
                }
            }
            Err(errno) if errno.is(&[libc::ELOOP]) => Child::Link,
            Err(errno) if errno.is(&[libc::ENOENT]) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let hidden = self.options.symlinks == SymlinkPolicy::Hide;
        Ok(Some(child).filter(|child| !(hidden && matches!(child, Child::Link))))
    }

    pub(super) fn hides(&self, directory: FileKey) -> bool {
        let inode = (directory.fs, directory.ino);
        self.options.hidden.contains(&inode)
    }

    /// Runs a change of `dir`'s names and informs the name cache before and after. `changes` are the changes of
    /// names; on failure none was made.
    pub(super) async fn changing<T>(
        &self,
        dir: &PosixNode<D>,
        changes: &[Change<'_>],
        change: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        self.changing_seen(dir, None, changes, change).await
    }

    /// As [`Self::changing`], for a caller that has just queried the directory.
    pub(super) async fn changing_seen<T>(
        &self,
        dir: &PosixNode<D>,
        seen: Option<Seen>,
        changes: &[Change<'_>],
        change: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        self.begin_seen(dir, seen).await;
        let outcome = change.await;
        self.end(dir, if outcome.is_ok() { changes } else { &[] })
            .await;
        outcome
    }

    /// See [`Self::changing_seen`].
    pub(super) async fn begin_seen(&self, dir: &PosixNode<D>, seen: Option<Seen>) {
        let key = dir.0.key;
        let begun = if let Some(seen) = seen {
            self.names.begin(key, &seen)
        } else if self.names.knows(key)
            && let Ok(stat) = self.disk.stat(dir.fd()).await
        {
            self.names.begin(key, &(&stat).into())
        } else {
            return;
        };
        if !begun {
            self.drop_forgotten().await;
        }
    }

    /// See [`Self::changing`].
    pub(super) async fn end(&self, dir: &PosixNode<D>, changes: &[Change<'_>]) {
        let stat = self.disk.stat(dir.fd()).await.ok();
        let now = self.options.clock.now();
        self.names.end(dir.0.key, stat.as_ref(), changes, now);
        self.drop_forgotten().await;
    }
}

/// The state of the directory at the end of `stack`, if that is not the root.
fn seen_on_top<F>(stack: &Stack<F>) -> Option<Seen> {
    stack.steps.last().map(|step| (&step.stat).into())
}

fn check_depth(path: &[String]) -> VfsResult<()> {
    VfsError::NameTooLong.when(path.len() > PATH_DEPTH_MAX)
}

fn push<F>(stack: &mut Stack<F>, step: Step<F>) -> VfsResult<()> {
    // A link led back to the root, which has no directory above it and no name.
    if step.name.is_empty() {
        stack.to_root = step.via;
        return Ok(());
    }
    VfsError::NameTooLong.when(stack.steps.len() >= PATH_DEPTH_MAX)?;
    stack.steps.push(Step {
        fd: Some(step.fd),
        stat: step.stat,
        name: step.name,
        via: step.via,
    });
    let far = stack.steps.len().checked_sub(OPEN_MAX + 1);
    if let Some(far) = far.and_then(|far| stack.steps.get_mut(far)) {
        far.fd = None;
    }
    Ok(())
}

fn trail<F>(stack: &Stack<F>) -> Trail {
    stack.steps.iter().map(|step| step.name.clone()).collect()
}
