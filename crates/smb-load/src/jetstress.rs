//! Jetstress: the I/O of a mail store, transaction by transaction.
//!
//! A storage group is a database file and a log. Its threads carry out inserts, deletes, replacements and reads (40, 30,
//! 5 and 25 of a hundred). A transaction uses one random page of 8 KiB, which is read unless it is in the cache of
//! the database (45 of a hundred are); all but reads write the page back and append 2,200 bytes to the log buffer. 55
//! commits of a hundred are lazy; the others write the buffer to the log and wait until it is stable. That gives 1.36
//! page writes and 0.62 log writes of about 4,900 bytes for each page read, as the Jetstress report of 2008 has
//! (1 : 1.37 : 0.62). Logs roll at 1 MiB; a group keeps `LOGS` of them.
//!
//! Stability is asked for in one of two ways ([`Stability`]). Every page that is read is checked: its checksum, and that
//! it is not older than what was acknowledged. The operations of a step are its reads and writes, as in the report.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::msg::{CreateOptions, WriteFlags};

use crate::{
    Home, LoadError, Measured, Sample, Worker,
    page::{self, PAGE},
    random::Random,
    share::Share,
};

/// Inserts, deletes, replacements and reads, of a hundred.
const TRANSACTIONS: [u64; 4] = [40, 30, 5, 25];
/// Pages that are read and pages that are in the cache, of a hundred.
const CACHED: [u64; 2] = [55, 45];
/// Commits that wait for the log and lazy commits, of a hundred.
const COMMITS: [u64; 2] = [45, 55];
/// Bytes of a log record.
const RECORD: usize = 2200;
/// Bytes at which a log ends and the next begins.
const LOG_MAX: u64 = 1 << 20;
/// Logs that a group keeps; the oldest is overwritten.
const LOGS: u64 = 8;

/// A latency that a mail store can live with: the mean of the reads of the database, milliseconds.
pub const READ_MEAN_MS: f64 = 20.0;
/// The mean of the writes of the log, milliseconds.
pub const LOG_MEAN_MS: f64 = 10.0;
/// The mean of either in any sample of 15 seconds, milliseconds.
pub const SAMPLE_MS: f64 = 50.0;

/// How a client asks that data are stable before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stability {
    /// The files are opened with FILE_WRITE_THROUGH, as Exchange, SQL Server and Hyper-V do.
    WriteThrough,
    /// A WRITE of the log is followed by a FLUSH; the pages are flushed when a log ends, as at a checkpoint.
    Flush,
}

/// The sizes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Pages of the database of each group.
    pub pages: u64,
    /// How stability is asked for.
    pub stability: Stability,
}

/// The state that the threads of a group share.
struct State {
    /// The version of each page that the server has acknowledged.
    versions: Vec<u64>,
    /// Pages that a thread is writing at this moment.
    busy: Vec<bool>,
    /// Bytes of the log buffer.
    buffered: usize,
    log: u64,
    log_offset: u64,
    random: Random,
    transactions: Share<4>,
    cached: Share<2>,
    commits: Share<2>,
}

/// A storage group.
pub struct Group {
    number: u64,
    /// The path of its files without their ends.
    stem: String,
    profile: Profile,
    state: Mutex<State>,
    /// Held while the log is written: there is one log.
    log: Mutex<()>,
}

/// One thread of a group.
pub struct Thread {
    group: Arc<Group>,
    tree: Tree,
    database: File,
    log: Option<(u64, File)>,
}

fn refused(operation: &'static str) -> impl Fn(ClientError) -> LoadError {
    move |source| LoadError::Client { operation, source }
}

impl Group {
    /// Fills the database of group `number`, unless it is there already, and takes over its versions.
    ///
    /// # Errors
    /// The first refusal of the server, or a page that is damaged.
    pub fn prepare(home: &Home, number: u64, profile: Profile) -> Result<Arc<Self>, LoadError> {
        let this = Self {
            number,
            stem: home.path(&format!("group-{number:02}")),
            profile,
            state: Mutex::new(State {
                versions: vec![0; profile.pages as usize],
                busy: vec![false; profile.pages as usize],
                buffered: 0,
                log: 0,
                log_offset: 0,
                random: Random::new(number),
                transactions: Share::new(TRANSACTIONS),
                cached: Share::new(CACHED),
                commits: Share::new(COMMITS),
            }),
            log: Mutex::new(()),
        };
        let file = home.tree.create(&CreateArgs::open_if(&this.database()));
        let file = file.map_err(refused("prepare"))?;
        let mut extent = Vec::new();
        for first in (0..profile.pages).step_by(32) {
            extent.clear();
            for number in first..profile.pages.min(first + 32) {
                let mut page = [0; PAGE];
                page::fill(&mut page, this.number, number, 0);
                extent.extend_from_slice(&page);
            }
            let offset = first * PAGE as u64;
            file.write_all(offset, &extent)
                .map_err(refused("prepare"))?;
        }
        file.flush(false).map_err(refused("prepare"))?;
        file.close().map_err(refused("prepare"))?;
        Ok(Arc::new(this))
    }

    fn database(&self) -> String {
        format!("{}.edb", self.stem)
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, LoadError> {
        self.state.lock().map_err(|_| LoadError::Panicked)
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

    fn check(&self, page: &[u8], number: u64, acknowledged: u64) -> Result<u64, LoadError> {
        let damaged = |what| LoadError::Page {
            file: self.database(),
            page: number,
            what,
        };
        let version = page::check(page, self.number, number).map_err(damaged)?;
        if version < acknowledged {
            return Err(damaged("older than what was acknowledged"));
        }
        Ok(version)
    }
}

/// The page of one transaction, and the steps that it consists of.
struct Transaction {
    page: u64,
    version: u64,
    reads: bool,
    writes: bool,
    commits: bool,
}

impl Thread {
    /// A thread of `group` on a connection of its own.
    ///
    /// # Errors
    /// The first refusal of the server.
    pub fn prepare(group: Arc<Group>, tree: Tree) -> Result<Self, LoadError> {
        let database = open(&tree, &group.database(), group.profile.stability);
        let database = database.map_err(refused("open"))?;
        Ok(Self {
            group,
            tree,
            database,
            log: None,
        })
    }

    /// Draws a transaction on a page that no other thread is using.
    fn begin(&self) -> Result<Transaction, LoadError> {
        let mut guard = self.group.state()?;
        let state = &mut *guard;
        let random = &mut state.random;
        let all = |_| true;
        let kind = state.transactions.pick(random, all).unwrap_or(3);
        let pages = state.busy.len() as u64;
        let mut page = random.below(pages);
        // There are more pages than threads, so one of them is free.
        for _ in 0..pages {
            if state.busy.get(page as usize) == Some(&false) {
                break;
            }
            page = (page + 1) % pages;
        }
        if let Some(busy) = state.busy.get_mut(page as usize) {
            *busy = true;
        }
        let writes = kind != 3;
        Ok(Transaction {
            page,
            version: state.versions.get(page as usize).copied().unwrap_or(0),
            reads: state.cached.pick(random, all) == Some(0),
            writes,
            commits: writes && state.commits.pick(random, all) == Some(0),
        })
    }

    fn end(&self, transaction: &Transaction, written: bool) -> Result<(), LoadError> {
        let mut state = self.group.state()?;
        let page = transaction.page as usize;
        if let (true, Some(version)) = (written, state.versions.get_mut(page)) {
            *version = transaction.version + 1;
        }
        if let Some(busy) = state.busy.get_mut(page) {
            *busy = false;
        }
        if transaction.writes {
            state.buffered += RECORD;
        }
        Ok(())
    }

    fn read(&self, t: &Transaction, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let begun = Instant::now();
        let page = self.database.read(t.page * PAGE as u64, PAGE as u32);
        let page = page.map_err(refused("database-read"))?;
        report(Sample {
            kind: "database-read",
            begun,
            read: PAGE as u64,
            written: 0,
        });
        self.group.check(&page, t.page, t.version)?;
        Ok(())
    }

    fn write(&self, t: &Transaction, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let mut page = [0; PAGE];
        page::fill(&mut page, self.group.number, t.page, t.version + 1);
        let begun = Instant::now();
        let offset = t.page * PAGE as u64;
        let written = self.database.write(offset, &page, WriteFlags::empty());
        written.map_err(refused("database-write"))?;
        report(Sample {
            kind: "database-write",
            begun,
            read: 0,
            written: PAGE as u64,
        });
        Ok(())
    }

    /// Writes the log buffer and waits until it is stable. Bytes that other threads append meanwhile wait for the next.
    fn commit(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let group = Arc::clone(&self.group);
        let _one = group.log.lock().map_err(|_| LoadError::Panicked)?;
        let (bytes, log, offset, rolls) = {
            let mut state = group.state()?;
            let bytes = std::mem::take(&mut state.buffered);
            let rolls = state.log_offset + bytes as u64 > LOG_MAX;
            if rolls {
                state.log = (state.log + 1) % LOGS;
                state.log_offset = 0;
            }
            let offset = state.log_offset;
            state.log_offset += bytes as u64;
            (bytes, state.log, offset, rolls)
        };
        // Another thread's commit took this one's record along.
        if bytes == 0 {
            return Ok(());
        }
        let stability = group.profile.stability;
        if rolls && stability == Stability::Flush {
            self.checkpoint(report)?;
        }
        let file = match &self.log {
            Some((number, file)) if *number == log => file.clone(),
            _ => {
                let name = format!("{}-{log}.log", group.stem);
                let file = open(&self.tree, &name, stability).map_err(refused("log-open"))?;
                if let Some((_, old)) = self.log.replace((log, file.clone())) {
                    old.close().map_err(refused("log-close"))?;
                }
                file
            }
        };
        let begun = Instant::now();
        let data = vec![0xA5; bytes];
        let written = file.write(offset, &data, WriteFlags::empty());
        written.map_err(refused("log-write"))?;
        if stability == Stability::Flush {
            file.flush(false).map_err(refused("log-write"))?;
        }
        report(Sample {
            kind: "log-write",
            begun,
            read: 0,
            written: bytes as u64,
        });
        Ok(())
    }

    /// Makes the pages stable that were written since the last checkpoint.
    fn checkpoint(&self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let begun = Instant::now();
        let flushed = self.database.flush(false);
        flushed.map_err(refused("database-flush"))?;
        report(Sample {
            kind: "database-flush",
            begun,
            read: 0,
            written: 0,
        });
        Ok(())
    }
}

fn open(tree: &Tree, name: &str, stability: Stability) -> Result<File, ClientError> {
    let args = CreateArgs::open_if(name);
    tree.create(&match stability {
        Stability::WriteThrough => args.options(CreateOptions::WRITE_THROUGH),
        Stability::Flush => args,
    })
}

impl Worker for Thread {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let transaction = self.begin()?;
        let mut done = Ok(());
        if transaction.reads {
            done = self.read(&transaction, report);
        }
        if transaction.writes && done.is_ok() {
            done = self.write(&transaction, report);
        }
        self.end(&transaction, transaction.writes && done.is_ok())?;
        done?;
        if transaction.commits {
            self.commit(report)?;
        }
        Ok(())
    }
}

/// Whether the latencies of a run are those of a mail store that users can live with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The mean of the reads of the database, milliseconds.
    pub read_ms: f64,
    /// The mean of the writes of the log, milliseconds.
    pub log_ms: f64,
    /// The highest mean of either in a sample, milliseconds.
    pub worst_ms: f64,
    /// Whether all three are within their thresholds.
    pub passed: bool,
}

impl Verdict {
    /// Judges a run by its samples, which are steps of 15 seconds (the last may be shorter).
    #[must_use]
    pub fn of(samples: &[Measured]) -> Self {
        let mean = |kind| {
            let of_kind = || {
                samples
                    .iter()
                    .filter_map(|sample| sample.latencies.get(kind))
            };
            let count: u64 = of_kind().map(|latencies| latencies.count).sum();
            let sum: f64 = of_kind().map(|l| l.mean * l.count as f64).sum();
            sum / count.max(1) as f64 / 1000.0
        };
        let of_samples = samples.iter().flat_map(|sample| {
            let of_kind = |kind| sample.latencies.get(kind).map_or(0.0, |l| l.mean / 1000.0);
            [of_kind("database-read"), of_kind("log-write")]
        });
        let (read_ms, log_ms) = (mean("database-read"), mean("log-write"));
        let worst_ms = of_samples.fold(0.0, f64::max);
        Self {
            read_ms,
            log_ms,
            worst_ms,
            passed: read_ms <= READ_MEAN_MS && log_ms <= LOG_MEAN_MS && worst_ms <= SAMPLE_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Summary;

    fn sample(read_us: f64, log_us: f64) -> Measured {
        let summary = |mean| Summary {
            count: 10,
            mean,
            ..Summary::default()
        };
        let latencies = [("database-read", read_us), ("log-write", log_us)];
        Measured {
            latencies: latencies
                .into_iter()
                .map(|(kind, mean)| (kind.to_owned(), summary(mean)))
                .collect(),
            ..Measured::default()
        }
    }

    #[test]
    fn the_thresholds_are_those_of_the_report() {
        assert!(Verdict::of(&[sample(20_000.0, 10_000.0)]).passed);
        assert!(!Verdict::of(&[sample(20_100.0, 1000.0)]).passed);
        assert!(!Verdict::of(&[sample(1000.0, 10_100.0)]).passed);
        let burst = [sample(1000.0, 1000.0), sample(1000.0, 51_000.0)];
        let many = [burst.as_slice(), &vec![sample(1.0, 1.0); 20]].concat();
        let verdict = Verdict::of(&many);
        assert!(!verdict.passed && verdict.log_ms < 10.0, "{verdict:?}");
    }

    /// The ratios of the report: 1.37 page writes and 0.62 log writes for each page read.
    #[test]
    fn the_io_has_the_ratios_of_the_report() {
        let part = |of: [u64; 2]| of[0] as f64 / 100.0;
        let writing = TRANSACTIONS[..3].iter().sum::<u64>() as f64 / 100.0;
        let reads = part(CACHED);
        assert!((writing / reads - 1.37).abs() < 0.02);
        let logs = writing * part(COMMITS);
        assert!((logs / reads - 0.62).abs() < 0.01);
        assert!((RECORD as f64 / part(COMMITS) - 4900.0).abs() < 20.0);
    }
}
