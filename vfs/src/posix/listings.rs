//! Looks up names that a directory does not have exactly as a client wrote them: names that fold alike, or that have
//! that short form, from the name cache or from a listing.
//!
//! A listing of a large directory is long and holds all its names, so there is one at a time for each directory, and a
//! few for each share ([`LISTINGS_MAX`]), whatever clients ask for. A lookup that finds one under way waits for it, and
//! asks the cache again. A listing also answers all lookups that began to wait before it started, so that a listing
//! that may not be cached need not be repeated for each of them. If the lookup that lists is dropped, the next one
//! lists.
//!
//! The service lists a directory; a user who may not search it fails to open the name that was found.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, OnceLock},
};

use tokio::sync::{Mutex as TurnLock, Semaphore};

use super::{
    PosixVfs,
    errno::unless,
    folded::{Folded, Sought},
    name,
    name_cache::{Known, Listing},
    roots, short_name,
};
use crate::{
    FileKey, Seen, Timestamp, VfsResult,
    disk::{Disk, RawEntry, Stat},
    lock::lock,
};

/// The most names of a directory that is listed for a lookup; a larger one is not listed.
const ENTRIES_MAX: usize = 1 << 20;
/// The most listings of one file system of a share that are under way for lookups at once: each may hold
/// [`ENTRIES_MAX`] names.
const LISTINGS_MAX: usize = 4;

/// The listings of one share, and the lookups that wait for them.
#[derive(Default)]
pub(super) struct Listings {
    /// By file system, while something is listed there: one that hangs delays no other.
    few: Mutex<BTreeMap<u64, Arc<Semaphore>>>,
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
    fn few(&self, fs: u64) -> Arc<Semaphore> {
        let mut all = lock(&self.few);
        all.retain(|of, few| *of == fs || Arc::strong_count(few) > 1);
        let few = all.entry(fs);
        Arc::clone(few.or_insert_with(|| Arc::new(Semaphore::new(LISTINGS_MAX))))
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
        let mut unlisted = match self.known_now(dir, sought, seen).await? {
            Ok(known) => return Ok(known),
            Err(unlisted) => unlisted,
        };
        let asking = self.listings.ask(dir_key, Question::new(component, sought));
        let _turn = match asking.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = asking.turn.lock().await;
                // The listing that was waited for may have answered this, or filled the cache.
                *seen = None;
                if let Some(answer) = asking.question.answer.get() {
                    return Ok(answer.clone());
                }
                unlisted = match self.known_now(dir, sought, seen).await? {
                    Ok(known) => return Ok(known),
                    Err(unlisted) => unlisted,
                };
                turn
            }
        };
        let few = self.listings.few(dir_key.fs);
        let _few = match few.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => {
                // The semaphore is never closed, so this waits until there is a permit.
                let permit = few.acquire().await.ok();
                unlisted = match self.known_now(dir, sought, seen).await? {
                    Ok(known) => return Ok(known),
                    Err(unlisted) => unlisted,
                };
                permit
            }
        };
        self.list_for(dir, dir_key, &asking, unlisted, seen).await
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
    /// directory's turn, and one of the few permits.
    async fn list_for(
        &self,
        dir: &D::Fd,
        dir_key: FileKey,
        asking: &Asking<'_>,
        Unlisted { begun, before, now }: Unlisted,
        seen: &mut Option<Seen>,
    ) -> VfsResult<Option<Box<[u8]>>> {
        let open = asking.open();
        let Some(entries) = self.entries_of(dir).await? else {
            asking.answer(&open, |_| None);
            return Ok(None);
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
        Ok(asking.question.answer.get().cloned().flatten())
    }

    /// The names of a directory. `None` if it cannot be listed or is larger than any cache; its names are then matched
    /// only exactly.
    async fn entries_of(&self, dir: &D::Fd) -> VfsResult<Option<Vec<RawEntry>>> {
        let listing = self.entries_in(dir, ENTRIES_MAX).await;
        unless(listing, &[libc::EACCES, libc::EOVERFLOW])
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
