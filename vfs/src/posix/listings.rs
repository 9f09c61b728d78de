//! Looks up names that a directory does not have exactly as a client wrote them: names that fold alike, or that have
//! that short form, from the name cache or from a listing.
//!
//! A listing of a large directory is long and holds all its names, so there is one at a time for each directory, and a
//! few for each share ([`LISTINGS_MAX`]), whatever clients ask for. A requester has fewer ([`OWN_MAX`]), so that those
//! of one do not hold up all others, and a directory of up to [`SMALL`] names is listed without waiting for any of
//! these. A lookup that finds a listing of its directory under way waits for it, and asks the cache again. A listing
//! also answers all lookups that began to wait before it started, so that a listing that may not be cached need not be
//! repeated for each of them. If the lookup that lists is dropped, the next one lists.
//!
//! The service lists a directory; a user who may not search it fails to open the name that was found.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, OnceLock},
};

use tokio::sync::{Mutex as TurnLock, OwnedSemaphorePermit, Semaphore};

use super::{
    PosixVfs,
    folded::{Folded, Sought},
    name,
    name_cache::{Known, Listing},
    roots, short_name,
};
use crate::{
    FileKey, Seen, Timestamp, VfsResult,
    disk::{Disk, Stat},
    lock::lock,
    requester::{self, Requester},
};

/// The most names of a directory that is listed for a lookup; a larger one is not listed.
const ENTRIES_MAX: usize = 1 << 20;
/// The most listings of large directories of one file system of a share that are under way for lookups at once: each
/// may hold [`ENTRIES_MAX`] names.
const LISTINGS_MAX: usize = 4;
/// The most of them on behalf of one requester.
const OWN_MAX: usize = 2;
/// The most names of a directory that is not large. Clients may have any number of such listings under way.
const SMALL: usize = 256;

/// The permits for the listings of a file system, which has its own because one that hangs must delay no other: those
/// of one requester, or without one those of all together. They are kept while somebody has or wants one.
type Permits = (u64, Option<Requester>);

/// The listings of one share, and the lookups that wait for them.
#[derive(Default)]
pub(super) struct Listings {
    /// The permits for large directories.
    few: Mutex<BTreeMap<Permits, Arc<Semaphore>>>,
    directories: Mutex<BTreeMap<FileKey, Directory>>,
}

/// A directory that lookups ask about.
#[derive(Default)]
struct Directory {
    /// Held by the lookup that lists.
    turn: Arc<TurnLock<()>>,
    /// The questions that no listing has answered.
    open: Vec<Arc<Question>>,
    /// The number of lookups that ask; after the last one nothing is kept.
    lookups: usize,
}

/// A lookup's question to the next listing.
struct Question {
    component: String,
    folded: String,
    may_be_short: bool,
    /// The name on disk, once a listing that began after the question has been read.
    answer: OnceLock<Option<Box<[u8]>>>,
}

impl Question {
    fn new(component: &str, sought: Sought<'_>) -> Arc<Self> {
        Arc::new(Self {
            component: component.to_owned(),
            folded: sought.folded.to_owned(),
            may_be_short: sought.code.is_some(),
            answer: OnceLock::new(),
        })
    }
}

impl Listings {
    fn few(&self, of: Permits) -> Arc<Semaphore> {
        let mut all = lock(&self.few);
        all.retain(|other, few| *other == of || Arc::strong_count(few) > 1);
        let most = if of.1.is_some() {
            OWN_MAX
        } else {
            LISTINGS_MAX
        };
        let few = all.entry(of);
        Arc::clone(few.or_insert_with(|| Arc::new(Semaphore::new(most))))
    }

    /// Waits for a permit. The semaphore is never closed, so there is one in the end.
    async fn permit(&self, of: Permits) -> Option<OwnedSemaphorePermit> {
        self.few(of).acquire_owned().await.ok()
    }

    fn ask(&self, directory: FileKey, question: Arc<Question>) -> Asking<'_> {
        let mut directories = lock(&self.directories);
        let asked = directories.entry(directory).or_default();
        asked.lookups += 1;
        asked.open.push(Arc::clone(&question));
        Asking {
            listings: self,
            directory,
            question,
            turn: Arc::clone(&asked.turn),
        }
    }
}

/// A lookup that needs a listing.
struct Asking<'a> {
    listings: &'a Listings,
    directory: FileKey,
    question: Arc<Question>,
    turn: Arc<TurnLock<()>>,
}

impl Asking<'_> {
    /// All open questions, this one among them: a listing that begins now answers them.
    fn open(&self) -> Vec<Arc<Question>> {
        let directories = lock(&self.listings.directories);
        let asked = directories.get(&self.directory);
        asked.map_or_else(Vec::new, |asked| asked.open.clone())
    }

    /// Answers questions that were open when a listing began.
    fn answer(&self, open: &[Arc<Question>], find: impl Fn(&Question) -> Option<Box<[u8]>>) {
        for question in open {
            // The directory's turn lets one listing answer it.
            let _ = question.answer.set(find(question));
        }
        if let Some(asked) = lock(&self.listings.directories).get_mut(&self.directory) {
            asked
                .open
                .retain(|question| question.answer.get().is_none());
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut directories = lock(&self.listings.directories);
        let Some(asked) = directories.get_mut(&self.directory) else {
            return;
        };
        if self.question.answer.get().is_none() {
            let own = &self.question;
            asked.open.retain(|other| !Arc::ptr_eq(other, own));
        }
        asked.lookups -= 1;
        if asked.lookups == 0 {
            directories.remove(&self.directory);
        }
    }
}

/// A directory about whose names the cache does not know enough.
struct Unlisted {
    /// Begun before the directory's state was queried.
    begun: Listing,
    before: Stat,
    now: Timestamp,
}

/// The names that have a given short form.
enum ByShort {
    None,
    One(Box<[u8]>, String),
    /// Several names have it, so it leads to none of them.
    Several,
}

impl<D: Disk> PosixVfs<D> {
    /// The name on disk that folds like `component`, or whose short form is `component` (none if several names have
    /// it).
    pub(super) async fn other_name(
        &self,
        dir: &D::Fd,
        dir_key: FileKey,
        component: &str,
        seen: &mut Option<Seen>,
    ) -> VfsResult<Option<Box<[u8]>>> {
        let folded = crate::fold(component);
        let sought = Sought {
            folded: &folded,
            code: self.short_code(component),
        };
        match self.known_then(dir_key, seen.as_ref(), sought) {
            Known::OnDisk(on_disk) => return Ok(Some(on_disk)),
            Known::Absent => return Ok(None),
            Known::Short | Known::Unlisted => {}
        }
        let unlisted = match self.known_now(dir, sought, seen).await? {
            Ok(known) => return Ok(known),
            Err(unlisted) => unlisted,
        };
        let asking = self.listings.ask(dir_key, Question::new(component, sought));
        let small = self.list_in_turn(dir, &asking, sought, Some(unlisted), seen);
        if let Some(answer) = small.await? {
            return Ok(answer);
        }
        // A requester waits for its own listings before it has the directory's turn, for which others may wait.
        let own = (dir_key.fs, Some(requester::current()));
        let _own = self.listings.permit(own).await;
        let large = self.list_in_turn(dir, &asking, sought, None, seen);
        Ok(large.await?.flatten())
    }

    /// Answers a question when it is the lookup's turn, by a listing if need be. With `small`, the directory's state
    /// that the cache has just not known, it is listed only if it is not large; `None` if it is.
    async fn list_in_turn(
        &self,
        dir: &D::Fd,
        asking: &Asking<'_>,
        sought: Sought<'_>,
        small: Option<Unlisted>,
        seen: &mut Option<Seen>,
    ) -> VfsResult<Option<Option<Box<[u8]>>>> {
        let max = if small.is_some() { SMALL } else { ENTRIES_MAX };
        let turn = asking.turn.try_lock().ok();
        let unlisted = small.filter(|_| turn.is_some());
        let _turn = match turn {
            Some(turn) => turn,
            None => asking.turn.lock().await,
        };
        let _few = match max {
            SMALL => None,
            _ => {
                let all = (asking.directory.fs, None);
                self.listings.permit(all).await
            }
        };
        let unlisted = match unlisted {
            Some(unlisted) => unlisted,
            None => {
                // The listing that was waited for may have answered this, or filled the cache.
                *seen = None;
                if let Some(answer) = asking.question.answer.get() {
                    return Ok(Some(answer.clone()));
                }
                match self.known_now(dir, sought, seen).await? {
                    Ok(known) => return Ok(Some(known)),
                    Err(unlisted) => unlisted,
                }
            }
        };
        self.list_for(dir, asking, unlisted, max, seen).await
    }

    /// The cache's answer by the directory's present state.
    async fn known_now(
        &self,
        dir: &D::Fd,
        sought: Sought<'_>,
        seen: &mut Option<Seen>,
    ) -> VfsResult<Result<Option<Box<[u8]>>, Unlisted>> {
        let begun = self.names.begin_listing();
        let before = self.disk.stat(dir).await?;
        *seen = Some((&before).into());
        let now = self.options.clock.now();
        Ok(match self.find(&before, sought).await {
            Known::OnDisk(on_disk) => Ok(Some(on_disk)),
            Known::Absent => Ok(None),
            Known::Short | Known::Unlisted => Err(Unlisted { begun, before, now }),
        })
    }

    /// Lists the directory for all that have asked, and keeps its names if they may be kept. The caller has the
    /// directory's turn and, for more names than [`SMALL`], the permits; with fewer allowed it returns `None` for a
    /// directory that has more.
    async fn list_for(
        &self,
        dir: &D::Fd,
        asking: &Asking<'_>,
        Unlisted { begun, before, now }: Unlisted,
        max: usize,
        seen: &mut Option<Seen>,
    ) -> VfsResult<Option<Option<Box<[u8]>>>> {
        let (open, dir_key) = (asking.open(), asking.directory);
        let entries = match self.entries_in(dir, max).await {
            Err(errno) if errno.is(&[libc::EOVERFLOW]) && max == SMALL => return Ok(None),
            // A directory that cannot be listed, or is larger than any cache: its names are matched only exactly.
            Err(errno) if errno.is(&[libc::EACCES, libc::EOVERFLOW]) => {
                asking.answer(&open, |_| None);
                return Ok(Some(None));
            }
            entries => entries?,
        };
        let after = self.disk.stat(dir).await?;
        let mut names = Folded::with_capacity(entries.len(), self.options.short_names);
        let mut shorts: HashMap<String, ByShort> = HashMap::new();
        for question in open.iter().filter(|question| question.may_be_short) {
            shorts.insert(question.component.to_ascii_uppercase(), ByShort::None);
        }
        let in_root = roots::is_served(dir_key);
        for (at, entry) in entries.into_iter().enumerate() {
            self.pause_at(at).await;
            names.add(&entry.name);
            if !shorts.is_empty() {
                add_short(&mut shorts, in_root, entry.name);
            }
        }
        asking.answer(&open, |question| {
            let folded = names.first(&question.folded);
            folded.map(Into::into).or_else(|| {
                let short = shorts.get(&question.component.to_ascii_uppercase())?;
                let ByShort::One(on_disk, shown) = short else {
                    return None;
                };
                let (short, now) = (&question.component, self.options.clock.now());
                self.tunnel.remember(dir_key, short, shown, now);
                Some(on_disk.clone())
            })
        });
        self.names.listed(begun, (&before, &after), names, now);
        self.drop_forgotten().await;
        *seen = Some((&after).into());
        Ok(Some(asking.question.answer.get().cloned().flatten()))
    }

    /// The cache's knowledge about a name in a directory whose state was just queried.
    pub(super) async fn find(&self, stat: &Stat, sought: Sought<'_>) -> Known {
        let known = self.names.find(stat, sought, self.options.clock.now());
        if known == Known::Unlisted {
            self.drop_forgotten().await;
        }
        known
    }

    /// Drops the snapshots that the cache has forgotten.
    pub(super) async fn drop_forgotten(&self) {
        for folded in self.names.take_forgotten() {
            for (at, _) in folded.into_names().enumerate() {
                self.pause_at(at).await;
            }
        }
    }
}

/// Enters a name at its short form, if that is sought.
fn add_short(shorts: &mut HashMap<String, ByShort>, in_root: bool, on_disk: Box<[u8]>) {
    let shown = name::to_client(&on_disk);
    let short = short_name::of_long(&shown).filter(|_| !name::is_reserved(in_root, &shown));
    if let Some(found) = short.and_then(|short| shorts.get_mut(&short)) {
        *found = match found {
            ByShort::None => ByShort::One(on_disk, shown),
            _ => ByShort::Several,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::{
        disk::OpenHow,
        posix::{PosixOptions, tests::*},
        sim::SimOptions,
        testing::block_on,
        vfs::Volume,
    };

    /// Enough for a listing to let other tasks have their turn.
    const NAMES: usize = 1100;

    /// Polls a future on behalf of a requester until it ends, at most so often.
    fn polled<F: Future + Unpin>(future: &mut F, who: u64, times: usize) -> Option<F::Output> {
        let _entered = requester::enter(Requester(who));
        let mut context = Context::from_waker(Waker::noop());
        (0..times).find_map(|_| match pin!(&mut *future).poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    }

    #[test]
    fn a_requester_holds_up_the_large_listings_of_no_other() {
        let (disk, link) = sim(SimOptions::default());
        let t = block_on(Case::with(disk, link, PosixOptions::default()));
        block_on(async {
            for name in ["a", "b", "c", "d", "e", "f", "small"] {
                let dir = t.dir(name).await;
                // Another program makes the names, so the cache knows none.
                for number in 0..if name == "small" { 1 } else { NAMES } {
                    let (number, how) = (number.to_string(), OpenHow::new_file(0o644));
                    let made = t.vfs.disk().open_at(ME, dir.fd(), number.as_bytes(), how);
                    drop(made.await.unwrap());
                }
            }
        });
        let t = &t;
        let miss = |dir: &str| {
            let path = format!("{dir}/none");
            Box::pin(async move { t.is_there(&path).await })
        };
        let mut many = ["a", "b", "c", "d", "e"].map(miss);
        let fs = t.vfs.root().0.key.fs;
        let all_taken = || {
            let own = t.vfs.listings.few((fs, Some(Requester(1))));
            own.available_permits() == 0
        };
        while !all_taken() {
            for lookup in &mut many {
                assert_eq!(polled(lookup, 1, 1), None);
            }
        }
        // From now on nobody polls these.
        assert_eq!(polled(&mut miss("f"), 1, 1000), None);
        assert_eq!(polled(&mut miss("small"), 1, 1000), Some(false));
        assert_eq!(polled(&mut miss("f"), 2, 1000), Some(false));
        drop(many);
        assert_eq!(polled(&mut miss("a"), 1, 1000), Some(false));
        assert_eq!(lock(&t.vfs.listings.few).len(), 2);
    }
}
