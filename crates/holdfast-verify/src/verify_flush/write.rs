//! `holdfast verify-flush write`: records until the connection breaks, or enough.
//!
//! Each connection is a thread with files of its own, which it works through in turn: one or more
//! WRITEs, a FLUSH, the ledger, and only then the next. So at most [`Plan::batch`] records of a
//! file are on their way at any moment, which is what `check` excuses. A renaming kind flushes
//! before the rename and after it: the second FLUSH is what the name rests on (MS-FSA 2.1.5.7).
//!
//! After a FLUSH the server is asked for the file's modification time: a FLUSH covers that as well, so
//! it is acknowledged like the records.
//!
//! An error of the server ends the run: what it refused to acknowledge is not in the ledger.

use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_load::Recorder;
use smb_wire::{
    Status,
    msg::{CreateDisposition, CreateOptions, Dialect, WriteFlags},
};

use super::{
    Failure,
    access::{Access, Login, Place, is_cut},
    latency,
    ledger::{Ack, BROKE, Line},
    ledger_writer::LedgerWriter,
    now,
    plan::{FILES_MAX, Kind, Mode, Plan, STREAM},
    record::{Record, RunId},
    source,
};
use crate::ReadPassword;

/// Most connections of one run.
const CONNECTIONS_MAX: u32 = 256;

/// `holdfast verify-flush write ...`
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// Where the records go: `//HOST:PORT/SHARE/FOLDER` (without PORT: 445); the folder is made
    pub place: Place,
    #[command(flatten)]
    pub access: Access,
    /// Where acknowledged records are listed; - is standard output. Not on the server!
    #[arg(long, value_name = "FILE")]
    pub ledger: PathBuf,
    /// Files (growing, overwritten in place; renamed, streams) that are written to
    #[arg(long, value_name = "N", default_value = "10",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(FILES_MAX)))]
    pub files: u32,
    /// Length of a record, 128 bytes to 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size)]
    pub record_size: u64,
    /// The operation whose success counts as an acknowledgment
    #[arg(long, value_enum, default_value = "flush")]
    pub mode: Mode,
    /// Records under one FLUSH, in files that are not renamed
    #[arg(long, value_name = "N", default_value = "1")]
    pub batch: u32,
    /// End after so many seconds (default: when the connection breaks)
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
    /// End after so many records
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Connections at once; each has files of its own
    #[arg(long, value_name = "C", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub connections: u32,
    /// Write some records to new files too, which are then renamed, and verify the names
    #[arg(long)]
    pub rename: bool,
    /// Write some records to named streams too
    #[arg(long)]
    pub streams: bool,
}

/// Why a connection stopped.
enum Stop {
    /// Enough records, or time.
    Enough,
    /// The connection broke.
    Cut(String),
    /// The server has lost its disk: that may be what was cut.
    Disk(String),
    /// The server, or the ledger, said no.
    Failed(String),
}

/// The state that all connections share.
struct Run<'a> {
    plan: Plan,
    login: &'a Login,
    ledger: &'a LedgerWriter,
    deadline: Option<Instant>,
    /// The beginning by the wall clock, which may be set while the run lasts, and by one that only goes forward.
    begun: (u64, Instant),
    /// Records that may still be begun.
    left: AtomicU64,
    acknowledged: AtomicU64,
    stop: AtomicBool,
    latencies: Mutex<Recorder>,
}

/// Reads a size: bytes, or a number with a unit, as in the configuration.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "`{text}` is no size: write bytes, or a number with KiB, MiB or GiB, as in \"4MiB\""
        )
    };
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let shift = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// `holdfast verify-flush write`; whether it ended as it should.
pub(super) fn write(args: &WriteArgs, password: ReadPassword) -> Result<bool, Failure> {
    let plan = plan(args)?;
    let login = args.access.login(&args.place, password)?;
    let tree = login.open()?;
    let mut trees = vec![tree.clone()];
    // All are opened before the first record, as one that the server refuses later looks like the cut.
    for _ in 1..args.connections.min(args.files) {
        trees.push(login.open()?);
    }
    args.say(&login.make_folder(std::slice::from_ref(&tree))?);
    args.say_begin(&plan, &tree);
    let ledger = LedgerWriter::open(&args.ledger)?;
    ledger.append(&Line::Run(plan.clone()))?;
    let run = Run {
        plan,
        login: &login,
        ledger: &ledger,
        deadline: args
            .seconds
            .and_then(|s| Instant::now().checked_add(Duration::from_secs(s))),
        begun: (now(), Instant::now()),
        left: AtomicU64::new(args.records.unwrap_or(u64::MAX)),
        acknowledged: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        latencies: Mutex::new(Recorder::default()),
    };
    let stops = run.connections(trees);
    let stop = worst(stops);
    let (good, why) = run.verdict(&stop);
    let cut = matches!(stop, Stop::Cut(_) | Stop::Disk(_));
    let acknowledged = run.acknowledged.load(Ordering::Relaxed);
    let end = Line::End {
        why: why.clone(),
        acknowledged,
        cut,
    };
    // Without it the ledger only lacks this explanation; `why` has its failure already.
    let _ = ledger.append(&end);
    let what = match args.mode {
        Mode::Flush => "FLUSH",
        Mode::WriteThrough => "write-through",
    };
    let latencies = run.latencies.into_inner();
    let latencies = latencies.unwrap_or_else(PoisonError::into_inner);
    args.say(&latency::in_words(&latencies.summary(), what));
    args.say(&format!("{acknowledged} records acknowledged; {why}\n"));
    Ok(good)
}

fn plan(args: &WriteArgs) -> Result<Plan, Failure> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| error.to_string())?;
    let plan = Plan {
        run: RunId(id).to_string(),
        files: args.files,
        size: u32::try_from(args.record_size).unwrap_or(u32::MAX),
        batch: args.batch,
        mode: args.mode,
        rename: args.rename,
        streams: args.streams,
        place: args.place.to_string(),
        time: now(),
    };
    plan.checked()
}

/// The reason that counts, of several.
fn worst(stops: Vec<Stop>) -> Stop {
    let mut worst = Stop::Enough;
    for stop in stops {
        match (&worst, &stop) {
            (Stop::Enough, _)
            | (Stop::Cut(_), Stop::Disk(_) | Stop::Failed(_))
            | (Stop::Disk(_), Stop::Failed(_)) => worst = stop,
            _ => {}
        }
    }
    worst
}

impl Run<'_> {
    /// Microseconds since 1970, by a clock that is not set during the run: the times in the ledger are compared.
    fn time(&self) -> u64 {
        let (begun, since) = &self.begun;
        let elapsed = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        begun.saturating_add(elapsed)
    }

    /// Works on all connections until each has stopped.
    fn connections(&self, trees: Vec<Tree>) -> Vec<Stop> {
        let count = trees.len();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(trees)
                .map(|(number, tree)| {
                    scope.spawn(move || {
                        let stop = self.connection(&tree, number, count);
                        self.stop.store(true, Ordering::Relaxed);
                        stop
                    })
                })
                .collect();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, Stop>| {
                let lost = |_| Stop::Failed("a thread panicked".into());
                thread.join().unwrap_or_else(lost)
            };
            threads.into_iter().map(ended).collect()
        })
    }

    fn connection(&self, tree: &Tree, number: u32, count: usize) -> Stop {
        let mut work = Vec::new();
        for file in (number..self.plan.files).step_by(count) {
            match Work::open(self, tree, file) {
                Ok(open) => work.push(open),
                Err(stop) => return stop,
            }
        }
        let mut latencies = Recorder::default();
        let stop = self.rounds(&mut work, &mut latencies);
        let all = self.latencies.lock();
        all.unwrap_or_else(PoisonError::into_inner).add(&latencies);
        stop
    }

    fn rounds(&self, work: &mut [Work<'_>], latencies: &mut Recorder) -> Stop {
        loop {
            for one in work.iter_mut() {
                let late = self.deadline.is_some_and(|end| Instant::now() >= end);
                if late || self.stop.load(Ordering::Relaxed) {
                    return Stop::Enough;
                }
                let batch = self.plan.batch(one.file);
                let claim = |left: u64| (left > 0).then(|| left - left.min(batch));
                let order = Ordering::Relaxed;
                let Ok(left) = self.left.fetch_update(order, order, claim) else {
                    return Stop::Enough;
                };
                if let Err(stop) = one.step(self, left.min(batch), latencies) {
                    return stop;
                }
            }
        }
    }

    fn verdict(&self, stop: &Stop) -> (bool, String) {
        match stop {
            Stop::Enough => (true, "ended as asked".into()),
            Stop::Cut(why) => (
                self.acknowledged.load(Ordering::Relaxed) > 0,
                format!("{BROKE} ({why})"),
            ),
            Stop::Disk(why) | Stop::Failed(why) => (false, format!("then it failed: {why}")),
        }
    }
}

/// One file being written.
struct Work<'a> {
    tree: &'a Tree,
    file: u32,
    kind: Kind,
    next: u64,
    /// The open that lasts; renaming kinds open each record's own.
    open: Option<File>,
    write: WriteFlags,
    options: CreateOptions,
}

impl<'a> Work<'a> {
    fn open(run: &Run<'_>, tree: &'a Tree, file: u32) -> Result<Self, Stop> {
        let through = run.plan.mode == Mode::WriteThrough;
        let dialect = tree.client().negotiated().dialect;
        let mut this = Self {
            tree,
            file,
            kind: run.plan.kind(file),
            next: 0,
            open: None,
            // [MS-SMB2] 2.2.21: 2.0.2 has the option of CREATE only.
            write: WriteFlags::WRITE_THROUGH.when(through && dialect != Dialect::SMB_2_0_2),
            options: CreateOptions::WRITE_THROUGH.when(through),
        };
        if !this.kind.renames() {
            let mut name = run.plan.name(file, 0);
            if this.kind == Kind::Stream {
                name = format!("{name}:{STREAM}");
            }
            let open = this.create(run, &name)?;
            if through {
                // Write-through says nothing of the name that was just made.
                open.flush(false).map_err(|error| stop(&name, &error))?;
            }
            this.open = Some(open);
        }
        Ok(this)
    }

    fn create(&self, run: &Run<'_>, name: &str) -> Result<File, Stop> {
        let path = run.login.place().path(name);
        let args = CreateArgs::new(&path, CreateDisposition::CREATE).options(self.options);
        self.tree.create(&args).map_err(|error| stop(name, &error))
    }

    /// Writes `count` records, has them acknowledged and says so to the ledger.
    fn step(&mut self, run: &Run<'_>, count: u64, latencies: &mut Recorder) -> Result<(), Stop> {
        let first = self.next;
        let done = match self.open.clone() {
            Some(open) => {
                let mut latency = Duration::ZERO;
                for sequence in first..first + count {
                    latency = self.record(run, &open, sequence)?;
                }
                match run.plan.mode {
                    Mode::Flush => self.flush(run, &open)?.timed(self.kind, &open),
                    Mode::WriteThrough => Acknowledged::after(latency, run),
                }
            }
            None => self.renamed(run, first)?,
        };
        self.next += count;
        latencies.record(done.latency);
        let line = Line::Ack(Ack {
            file: self.file,
            first,
            count,
            time: done.time,
            latency: u64::try_from(done.latency.as_micros()).unwrap_or(u64::MAX),
            modified: done.modified,
        });
        run.ledger.append(&line).map_err(Stop::Failed)?;
        run.acknowledged.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// A record in a file that gets its name when it is whole.
    fn renamed(&self, run: &Run<'_>, sequence: u64) -> Result<Acknowledged, Stop> {
        let temporary = run.plan.temporary(self.file, sequence);
        let slot = sequence % self.kind.slots();
        let name = run.plan.name(self.file, slot);
        let open = self.create(run, &temporary)?;
        self.record(run, &open, sequence)?;
        if run.plan.mode == Mode::Flush {
            self.flush(run, &open)?;
        }
        let to = run.login.place().path(&name);
        open.rename(&to, true)
            .map_err(|error| stop(&name, &error))?;
        let done = self.flush(run, &open)?.timed(self.kind, &open);
        open.close().map_err(|error| stop(&name, &error))?;
        Ok(done)
    }

    fn record(&self, run: &Run<'_>, open: &File, sequence: u64) -> Result<Duration, Stop> {
        let offset = run.plan.offset(self.file, sequence % self.kind.slots());
        let record = Record {
            run: run.plan.run(),
            file: self.file,
            sequence,
            offset,
            time: run.time(),
        };
        let bytes = record.encode(run.plan.size(self.file));
        let failed = |error: &ClientError| stop(&format!("WRITE to file {}", self.file), error);
        let begun = Instant::now();
        let mut at = 0;
        while at < bytes.len() {
            let piece = self.tree.client().negotiated().max_write_size as usize;
            let end = bytes.len().min(at.saturating_add(piece.max(1)));
            let part = bytes.get(at..end).unwrap_or_default();
            let written = open
                .write(offset + at as u64, part, self.write)
                .map_err(|error| failed(&error))?;
            if written == 0 {
                return Err(failed(&ClientError::Protocol("WRITE of 0 bytes")));
            }
            at += written as usize;
        }
        Ok(begun.elapsed())
    }

    fn flush(&self, run: &Run<'_>, open: &File) -> Result<Acknowledged, Stop> {
        let begun = Instant::now();
        open.flush(false)
            .map_err(|error| stop(&format!("FLUSH of file {}", self.file), &error))?;
        Ok(Acknowledged::after(begun.elapsed(), run))
    }
}

/// A success that an acknowledgement rests on.
struct Acknowledged {
    latency: Duration,
    /// Microseconds since 1970.
    time: u64,
    /// The file's modification time as the server reported it then.
    modified: Option<u64>,
}

impl Acknowledged {
    fn after(latency: Duration, run: &Run<'_>) -> Self {
        Self {
            latency,
            time: run.time(),
            modified: None,
        }
    }

    /// Asks for the modification time that the FLUSH covers. A server that does not say it promises
    /// none; where the connection breaks, the next request says so, and what was flushed is
    /// acknowledged all the same. A stream has no time of its own.
    fn timed(mut self, kind: Kind, open: &File) -> Self {
        if kind != Kind::Stream {
            self.modified = source::modified(open).ok();
        }
        self
    }
}

fn stop(what: &str, error: &ClientError) -> Stop {
    let why = format!("{what}: {error}");
    if is_cut(error) {
        return Stop::Cut(why);
    }
    match error.status() {
        Some(Status::IO_DEVICE_ERROR | Status::MEDIA_WRITE_PROTECTED) => Stop::Disk(why),
        _ => Stop::Failed(why),
    }
}

impl WriteArgs {
    /// Whether the ledger has standard output.
    fn is_piped(&self) -> bool {
        self.ledger.as_os_str() == "-"
    }

    /// Words for people: on standard error where the ledger has standard output.
    fn say(&self, text: &str) {
        // `print!` would panic where nobody reads it any more, and it is the ledger that counts.
        let _ = match self.is_piped() {
            true => std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()),
            false => std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()),
        };
    }

    fn say_begin(&self, plan: &Plan, tree: &Tree) {
        let dialect = tree.client().negotiated().dialect;
        self.say(&format!(
            "run {} to {}, {dialect:?}, {} files\n",
            plan.run(),
            self.place,
            self.files
        ));
        if self.place.is_here() && !self.is_piped() {
            self.say(
                "remark: the server is this machine. A power cut takes the ledger with it, unless \
                 it lies on\n        another: --ledger - | ssh ...\n",
            );
        }
    }
}
