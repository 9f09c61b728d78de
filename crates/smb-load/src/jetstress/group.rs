//! A storage group: a database, its log, and what its threads know of both.

use std::{
    cmp::Ordering,
    sync::{Arc, Mutex, MutexGuard},
    time::{SystemTime, UNIX_EPOCH},
};

use fastrand::Rng;
use smb_client::{CreateArgs, Tree};

use super::{Profile, preset::Model};
use crate::{
    Home, LoadError,
    error::refused,
    page::{self, PAGE},
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
    /// The number of the last write of the log.
    log_writes: u64,
    /// The writes that the server has acknowledged and that are not overwritten.
    logged: Vec<LogWrite>,
    random: Rng,
    transactions: Share<4>,
    sizes: Share<2>,
    records: Share<4>,
    commits: Share<2>,
    flushes: Share<2>,
}

pub struct Group {
    pub(super) number: u64,
    /// The path of its files without their ends.
    pub(super) stem: String,
    pub(super) profile: Profile,
    /// Pages of its database.
    pages: u64,
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
    /// Its number among all of the group.
    pub(super) number: u64,
    pub(super) bytes: usize,
    pub(super) log: u64,
    pub(super) offset: u64,
    /// It is the first of a new log.
    pub(super) rolls: bool,
}

impl Group {
    /// Fills the database of group `number`, of so many pages.
    pub fn prepare(
        home: &Home,
        number: u64,
        pages: u64,
        profile: Profile,
    ) -> Result<Arc<Self>, LoadError> {
        let stem = home.path(&format!("group-{number:02}"));
        let base = first_version();
        let this = Self::new(number, stem, pages, profile, base);
        let file = home.tree.create(&CreateArgs::open_if(&this.database()));
        let file = file.map_err(refused("prepare"))?;
        for first in (0..pages).step_by(32) {
            let count = 32.min(pages - first);
            let extent = this.content(first, std::iter::repeat_n(base, count as usize));
            file.write_all(first * PAGE as u64, &extent)
                .map_err(refused("prepare"))?;
        }
        file.flush(false).map_err(refused("prepare"))?;
        file.close().map_err(refused("prepare"))?;
        Ok(Arc::new(this))
    }

    /// Pages and writes of the log are counted from `base` on.
    fn new(number: u64, stem: String, pages: u64, profile: Profile, base: u64) -> Self {
        let model = profile.preset.model();
        Self {
            number,
            stem,
            profile,
            pages,
            model,
            state: Mutex::new(State {
                versions: vec![base; pages as usize],
                busy: vec![false; pages as usize],
                buffered: 0,
                log: 0,
                log_offset: 0,
                log_writes: base,
                logged: Vec::new(),
                random: Rng::with_seed(number),
                transactions: Share::new(model.transactions),
                sizes: Share::new(model.sizes),
                records: Share::new(model.record_parts),
                commits: Share::new(model.commits),
                flushes: Share::new(model.flushes),
            }),
            log: Mutex::new(()),
        }
    }

    pub(super) fn database(&self) -> String {
        format!("{}.edb", self.stem)
    }

    pub(super) fn log_file(&self, log: u64) -> String {
        format!("{}-{log}.log", self.stem)
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
    /// The first page that is not what was acknowledged last, or a refusal of the server.
    pub fn verify(&self, tree: &Tree) -> Result<u64, LoadError> {
        let file = tree.create(&CreateArgs::open(&self.database()));
        let file = file.map_err(refused("verify"))?;
        for number in 0..self.pages {
            let page = file.read(number * PAGE as u64, PAGE as u32);
            let page = page.map_err(refused("verify"))?;
            let version = self.state()?.versions.get(number as usize).copied();
            self.check(&page, number, version.unwrap_or(0))?;
        }
        file.close().map_err(refused("verify"))?;
        Ok(self.pages)
    }

    /// Reads all writes of the log that were acknowledged and not overwritten, and checks them.
    ///
    /// # Errors
    /// The first that is damaged or older, or a refusal of the server.
    pub fn verify_log(&self, tree: &Tree) -> Result<u64, LoadError> {
        let logged = std::mem::take(&mut self.state()?.logged);
        for log in 0..LOGS {
            let mut pieces = logged.iter().filter(|piece| piece.log == log).peekable();
            if pieces.peek().is_none() {
                continue;
            }
            let file = tree.create(&CreateArgs::open(&self.log_file(log)));
            let file = file.map_err(refused("verify"))?;
            for piece in pieces {
                let data = file.read(piece.offset, piece.bytes as u32);
                self.check_log(&data.map_err(refused("verify"))?, piece)?;
            }
            file.close().map_err(refused("verify"))?;
        }
        Ok(logged.len() as u64)
    }

    /// The bytes of a write of the log. Its file has another number than the database.
    pub(super) fn log_content(&self, piece: &LogWrite) -> Vec<u8> {
        let mut content = vec![0; piece.bytes];
        page::fill(&mut content, !self.number, piece.offset, piece.number);
        content
    }

    fn check_log(&self, data: &[u8], piece: &LogWrite) -> Result<(), LoadError> {
        let number = page::check(data, piece.bytes, !self.number, piece.offset);
        let damage = match number {
            Ok(number) if number == piece.number => return Ok(()),
            Ok(_) => "older than what was acknowledged",
            Err(damage) => damage,
        };
        Err(LoadError::Page {
            file: self.log_file(piece.log),
            page: piece.offset / PAGE as u64,
            what: damage,
        })
    }

    /// The server has acknowledged a write of the log.
    pub(super) fn logged(&self, piece: LogWrite) -> Result<(), LoadError> {
        let mut state = self.state()?;
        if piece.rolls {
            state.logged.retain(|old| old.log != piece.log);
        }
        state.logged.push(piece);
        Ok(())
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
        let version = page::check(page, PAGE, self.number, number).map_err(damaged)?;
        match version.cmp(&acknowledged) {
            Ordering::Less => Err(damaged("older than what was acknowledged")),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(damaged("newer than what was written")),
        }
    }

    /// Draws a transaction on pages that no other thread is using; `None` if all are in use.
    pub(super) fn begin(&self) -> Result<Option<Transaction>, LoadError> {
        let mut guard = self.state()?;
        let state = &mut *guard;
        let all = |_| true;
        let size = state.sizes.pick(&mut state.random, all).unwrap_or(0);
        let count = self.model.pages.get(size).copied().unwrap_or(1);
        let runs = state.busy.len() as u64 / count;
        let start = state.random.u64(..runs.max(1));
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
        state.log_writes += 1;
        Ok(Some(LogWrite {
            number: state.log_writes,
            bytes,
            log: state.log,
            offset,
            rolls,
        }))
    }
}

/// A version above all that earlier runs have left in the same files, which would pass for what was acknowledged in this
/// one: the microseconds since 1970, because no page is written as often as that.
fn first_version() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jetstress::{MAILBOX_MIB, Preset, Stability};

    fn group(base: u64) -> Group {
        let profile = Profile {
            preset: Preset::Exchange,
            pages: None,
            stability: Stability::Flush,
            mailboxes: None,
            mailbox_mib: MAILBOX_MIB,
        };
        Group::new(0, "group-00".to_owned(), 8192, profile, base)
    }

    #[test]
    fn only_what_was_acknowledged_last_is_right() {
        let group = group(70);
        let page = |version| group.content(5, std::iter::once(version));
        assert!(group.check(&page(70), 5, 70).is_ok());
        for other in [0, 69, 71] {
            assert!(group.check(&page(other), 5, 70).is_err());
        }
        let transaction = group.begin().unwrap().unwrap();
        assert!(transaction.versions.iter().all(|version| *version == 70));
    }

    #[test]
    fn what_an_earlier_run_left_is_older_than_what_this_one_writes() {
        let (earlier, this) = (group(first_version()), group(first_version() + 1_000_000));
        let mut writes = Vec::new();
        for group in [&earlier, &this] {
            while writes.len() < 2 {
                let transaction = group.begin().unwrap().unwrap();
                group.end(&transaction, transaction.writes).unwrap();
                if let Some(piece) = group.take_log().unwrap() {
                    writes.push((group.log_content(&piece), piece));
                    break;
                }
            }
        }
        let [(old, before), (new, now)] = writes.as_slice() else {
            panic!("two writes of the log");
        };
        assert_eq!((before.offset, before.bytes), (now.offset, now.bytes));
        assert!(this.check_log(new, now).is_ok());
        assert!(this.check_log(old, now).is_err());
    }

    #[test]
    fn every_acknowledged_write_of_the_log_is_checked_once() {
        let group = group(0);
        // More than all logs hold.
        for _ in 0..6000 {
            let transaction = group.begin().unwrap().unwrap();
            group.end(&transaction, transaction.writes).unwrap();
            if !transaction.commits {
                continue;
            }
            while let Some(mut piece) = group.take_log().unwrap() {
                let mut data = group.log_content(&piece);
                assert!(group.check_log(&data, &piece).is_ok());
                assert!(group.check_log(&data[8..], &piece).is_err());
                piece.number += 1;
                assert!(group.check_log(&data, &piece).is_err());
                piece.number -= 1;
                if let Some(last) = data.last_mut() {
                    *last ^= 1;
                }
                assert!(group.check_log(&data, &piece).is_err());
                group.logged(piece).unwrap();
            }
        }
        let state = group.state().unwrap();
        assert!(state.log_writes > state.logged.len() as u64);
        for log in 0..LOGS {
            let mut end = 0;
            for piece in state.logged.iter().filter(|piece| piece.log == log) {
                assert_eq!(piece.offset, end);
                end += piece.bytes as u64;
            }
            assert!(end > 0 && end <= group.model.log);
        }
    }
}
