//! A storage group: a database, its log, and what its threads know of both.

use std::sync::{Arc, Mutex, MutexGuard};

use smb_client::{CreateArgs, Tree};

use super::{Profile, preset::Model};
use crate::{
    Home, LoadError,
    error::refused,
    page::{self, PAGE},
    random::Random,
    share::Share,
};

/// Logs that a group keeps; the oldest is overwritten.
const LOGS: u64 = 8;

/// The facts that the threads of a group share.
struct State {
    /// The version of each page that the server has acknowledged.
    versions: Vec<u64>,
    /// Pages that a thread is using at this moment.
    busy: Vec<bool>,
    /// Bytes of the log buffer.
    buffered: usize,
    log: u64,
    log_offset: u64,
    random: Random,
    transactions: Share<4>,
    sizes: Share<2>,
    records: Share<4>,
    commits: Share<2>,
    flushes: Share<2>,
}

/// A storage group.
pub struct Group {
    pub(super) number: u64,
    /// The path of its files without their ends.
    pub(super) stem: String,
    pub(super) profile: Profile,
    pub(super) model: Model,
    state: Mutex<State>,
    /// Held while the log is written: there is one log.
    pub(super) log: Mutex<()>,
}

/// One transaction, on pages that follow each other.
pub(super) struct Transaction {
    pub(super) first: u64,
    /// Of each of its pages, what the server has acknowledged.
    pub(super) versions: Vec<u64>,
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) commits: bool,
    pub(super) flushes: bool,
}

impl Transaction {
    /// Where its pages begin in the database.
    pub(super) fn offset(&self) -> u64 {
        self.first * PAGE as u64
    }

    /// Bytes of its pages.
    pub(super) fn bytes(&self) -> u64 {
        (self.versions.len() * PAGE) as u64
    }
}

/// A piece of the log buffer and its place.
pub(super) struct LogWrite {
    pub(super) bytes: usize,
    pub(super) log: u64,
    pub(super) offset: u64,
    /// It is the first of a new log.
    pub(super) rolls: bool,
}

impl Group {
    /// Fills the database of group `number`.
    ///
    /// # Errors
    /// The first refusal of the server.
    pub fn prepare(home: &Home, number: u64, profile: Profile) -> Result<Arc<Self>, LoadError> {
        let model = profile.preset.model();
        let this = Self {
            number,
            stem: home.path(&format!("group-{number:02}")),
            profile,
            model,
            state: Mutex::new(State {
                versions: vec![0; profile.pages as usize],
                busy: vec![false; profile.pages as usize],
                buffered: 0,
                log: 0,
                log_offset: 0,
                random: Random::new(number),
                transactions: Share::new(model.transactions),
                sizes: Share::new(model.sizes),
                records: Share::new(model.record_parts),
                commits: Share::new(model.commits),
                flushes: Share::new(model.flushes),
            }),
            log: Mutex::new(()),
        };
        let file = home.tree.create(&CreateArgs::open_if(&this.database()));
        let file = file.map_err(refused("prepare"))?;
        for first in (0..profile.pages).step_by(32) {
            let count = 32.min(profile.pages - first);
            let extent = this.content(first, vec![0; count as usize].iter().copied());
            file.write_all(first * PAGE as u64, &extent)
                .map_err(refused("prepare"))?;
        }
        file.flush(false).map_err(refused("prepare"))?;
        file.close().map_err(refused("prepare"))?;
        Ok(Arc::new(this))
    }

    pub(super) fn database(&self) -> String {
        format!("{}.edb", self.stem)
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, LoadError> {
        self.state.lock().map_err(|_| LoadError::Panicked)
    }

    /// The bytes of pages that follow each other, in these versions.
    pub(super) fn content(&self, first: u64, versions: impl Iterator<Item = u64>) -> Vec<u8> {
        let mut content = Vec::new();
        for (number, version) in (first..).zip(versions) {
            let mut page = [0; PAGE];
            page::fill(&mut page, self.number, number, version);
            content.extend_from_slice(&page);
        }
        content
    }

    /// Reads all pages of the database and checks them.
    ///
    /// # Errors
    /// The first page that is damaged or older than what was acknowledged, or a refusal of the server.
    pub fn verify(&self, tree: &Tree) -> Result<u64, LoadError> {
        let file = tree.create(&CreateArgs::open(&self.database()));
        let file = file.map_err(refused("verify"))?;
        for number in 0..self.profile.pages {
            let page = file.read(number * PAGE as u64, PAGE as u32);
            let page = page.map_err(refused("verify"))?;
            let version = self.state()?.versions.get(number as usize).copied();
            self.check(&page, number, version.unwrap_or(0))?;
        }
        file.close().map_err(refused("verify"))?;
        Ok(self.profile.pages)
    }

    /// Checks a page that was read.
    pub(super) fn check(
        &self,
        page: &[u8],
        number: u64,
        acknowledged: u64,
    ) -> Result<(), LoadError> {
        let damaged = |what| LoadError::Page {
            file: self.database(),
            page: number,
            what,
        };
        let version = page::check(page, self.number, number).map_err(damaged)?;
        if version < acknowledged {
            return Err(damaged("older than what was acknowledged"));
        }
        Ok(())
    }

    /// Draws a transaction on pages that no other thread is using; `None` if all are in use.
    pub(super) fn begin(&self) -> Result<Option<Transaction>, LoadError> {
        let mut guard = self.state()?;
        let state = &mut *guard;
        let all = |_| true;
        let size = state.sizes.pick(&mut state.random, all).unwrap_or(0);
        let count = self.model.pages.get(size).copied().unwrap_or(1);
        let runs = state.busy.len() as u64 / count;
        let start = state.random.below(runs);
        let free = (0..runs).map(|step| (start + step) % runs * count);
        let mut free = free.filter(|first| {
            let run = state.busy.get(*first as usize..(*first + count) as usize);
            run.is_some_and(|run| !run.contains(&true))
        });
        let Some(first) = free.next() else {
            return Ok(None);
        };
        let run = first as usize..(first + count) as usize;
        if let Some(busy) = state.busy.get_mut(run.clone()) {
            busy.fill(true);
        }
        let random = &mut state.random;
        let kind = state.transactions.pick(random, all).unwrap_or(0);
        let writes = matches!(kind, 1 | 2);
        Ok(Some(Transaction {
            first,
            versions: state.versions.get(run).unwrap_or_default().to_vec(),
            reads: matches!(kind, 0 | 2),
            writes,
            commits: writes && state.commits.pick(random, all) == Some(0),
            flushes: writes && state.flushes.pick(random, all) == Some(0),
        }))
    }

    /// Gives the pages back; with `is_written` the server has acknowledged their next versions.
    pub(super) fn end(&self, t: &Transaction, is_written: bool) -> Result<(), LoadError> {
        let mut guard = self.state()?;
        let state = &mut *guard;
        let run = t.first as usize..t.first as usize + t.versions.len();
        if let (true, Some(versions)) = (is_written, state.versions.get_mut(run.clone())) {
            versions.iter_mut().for_each(|version| *version += 1);
        }
        if let Some(busy) = state.busy.get_mut(run) {
            busy.fill(false);
        }
        if t.writes {
            let record = state.records.pick(&mut state.random, |_| true);
            let record = record.and_then(|which| self.model.records.get(which));
            state.buffered += record.copied().unwrap_or(0);
        }
        Ok(())
    }

    /// Takes the next piece of the log buffer; `None` if another thread's commit took this one's record along.
    pub(super) fn take_log(&self) -> Result<Option<LogWrite>, LoadError> {
        let mut state = self.state()?;
        let sectors = state.buffered.next_multiple_of(self.model.sector);
        let bytes = sectors.min(self.model.block);
        if bytes == 0 {
            return Ok(None);
        }
        state.buffered = state.buffered.saturating_sub(bytes);
        let rolls = state.log_offset + bytes as u64 > self.model.log;
        if rolls {
            state.log = (state.log + 1) % LOGS;
            state.log_offset = 0;
        }
        let offset = state.log_offset;
        state.log_offset += bytes as u64;
        Ok(Some(LogWrite {
            bytes,
            log: state.log,
            offset,
            rolls,
        }))
    }
}
