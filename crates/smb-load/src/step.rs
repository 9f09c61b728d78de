//! Runs workers for a warm-up and a measured time, each on a thread of its own.
//!
//! A step is seconds or minutes, never a count of operations: a server that is slow is given the same time as one that
//! is fast. The first error of a worker ends the step, which then has no result: a server that refuses, dies or
//! corrupts data never shows as a low number.

use std::{
    collections::BTreeMap,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use smb_client::ClientError;

use crate::{
    LoadError, cpu,
    error::refused,
    latency::{Recorder, Summary},
};

/// The time between two looks at whether a worker has failed.
const LOOK: Duration = Duration::from_millis(20);

/// How long a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Work that is not counted, so that caches and connections are as they stay.
    pub warm_up: Duration,
    /// Work that is counted.
    pub length: Duration,
}

/// One operation of a worker: its kind, its time and the bytes that it moved.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub kind: &'static str,
    /// When it was sent.
    pub begun: Instant,
    /// Bytes of file data that were read.
    pub read: u64,
    /// Bytes of file data that were written.
    pub written: u64,
}

impl Sample {
    /// An operation that was sent then, and the bytes that it read and wrote.
    pub(crate) fn new(kind: &'static str, begun: Instant, (read, written): (u64, u64)) -> Self {
        Self {
            kind,
            begun,
            read,
            written,
        }
    }
}

pub(crate) fn timed<T>(
    report: &mut dyn FnMut(Sample),
    kind: &'static str,
    moved: (u64, u64),
    operation: impl FnOnce() -> Result<T, ClientError>,
) -> Result<T, LoadError> {
    let begun = Instant::now();
    let done = operation().map_err(refused(kind))?;
    report(Sample::new(kind, begun, moved));
    Ok(done)
}

/// One client of a step.
pub trait Worker: Send {
    /// Does a small piece of work and reports each operation as soon as it is answered.
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError>;

    /// Carries out what it has held back, after its last turn.
    fn end(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Requests that it has sent to the server so far, if it counts them.
    fn sent(&self) -> Option<u64> {
        None
    }

    /// The part of the workload to which it belongs, from 0, if parts have figures of their own.
    fn part(&self) -> Option<usize> {
        None
    }
}

impl<W: Worker + ?Sized> Worker for Box<W> {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        (**self).turn(report)
    }

    fn end(&mut self) -> Result<(), LoadError> {
        (**self).end()
    }

    fn sent(&self) -> Option<u64> {
        (**self).sent()
    }

    fn part(&self) -> Option<usize> {
        (**self).part()
    }
}

/// Is asked to look at the machine when the measured time begins and when it ends.
pub trait Watch: Sync {
    /// The measured time begins, or goes on after a pause.
    fn begins(&self);
    /// The measured time ends, or pauses.
    fn ends(&self);
}

/// Looks at nothing.
impl Watch for () {
    fn begins(&self) {}
    fn ends(&self) {}
}

/// The figures of all workers of a step in the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measured {
    /// The measured time, seconds.
    pub seconds: f64,
    /// Workers.
    pub clients: usize,
    /// Operations answered.
    pub operations: u64,
    /// Operations for each second.
    pub per_second: f64,
    /// File data moved in both directions, in 10^6 bits for each second: what NetBench calls Mbps.
    pub mbps: f64,
    /// Bytes of file data read.
    pub read: u64,
    /// Bytes of file data written.
    pub written: u64,
    /// Requests that the operations sent to the server, by workloads that count them: a client that caches sends fewer
    /// than it has operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// The CPU time of this process, or of the program that is the client, as a part of the machine's, from 0 to 1.
    pub client_cpu: f64,
    /// The same time as a part of one core for each client: a client works on one thread. 0 in older records.
    #[serde(default)]
    pub client_thread: f64,
    /// Latencies by kind of operation.
    pub latencies: BTreeMap<String, Summary>,
    /// Latencies of all operations together.
    #[serde(default)]
    pub all: Summary,
    /// Latencies by kind of operation of each part, such as a storage group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<BTreeMap<String, Summary>>,
    /// The same of each share, if a store is divided over several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<BTreeMap<String, Summary>>,
}

impl Measured {
    /// Above this part of the machine the client may be what limits the rate.
    pub const BUSY_CLIENT: f64 = 0.4;
    /// Above this part of a core for each client it may be, too, on a machine with more cores than clients.
    pub const BUSY_THREAD: f64 = 0.8;

    /// The run of a program that counts its operations itself, with the CPU seconds that it used.
    pub(crate) fn of_program(seconds: f64, operations: u64, used: f64) -> Self {
        let mut this = Self {
            seconds,
            clients: 1,
            operations,
            client_cpu: used / seconds.max(f64::MIN_POSITIVE) / cpu::cores(),
            ..Self::default()
        };
        this.rates();
        this
    }

    /// The latencies of one kind of operation, or of all.
    pub fn latency(&self, kind: Option<&str>) -> Option<&Summary> {
        match kind {
            Some(kind) => self.latencies.get(kind),
            None => Some(&self.all).filter(|all| all.count > 0),
        }
    }

    fn rates(&mut self) {
        let seconds = self.seconds.max(f64::MIN_POSITIVE);
        self.per_second = self.operations as f64 / seconds;
        self.mbps = (self.read + self.written) as f64 * 8.0 / 1e6 / seconds;
    }

    /// Whether the client used so much of the machine, or of its threads, that the server may have waited for it.
    pub fn is_limited_by_the_client(&self) -> bool {
        self.client_cpu > Self::BUSY_CLIENT || self.client_thread > Self::BUSY_THREAD
    }
}

/// By kind of operation.
type Latencies = BTreeMap<&'static str, Recorder>;

fn merge(into: &mut Latencies, from: &Latencies) {
    for (kind, recorder) in from {
        into.entry(*kind).or_default().add(recorder);
    }
}

fn summaries(latencies: &Latencies) -> BTreeMap<String, Summary> {
    let each = latencies.iter();
    each.map(|(kind, recorder)| ((*kind).to_owned(), recorder.summary()))
        .collect()
}

/// The figures of a sample of a run, or of several, before percentiles are taken: those cannot be added up.
#[derive(Default)]
pub(crate) struct Tally {
    /// All but operations, rates and latencies.
    measured: Measured,
    latencies: Latencies,
    parts: Vec<Latencies>,
}

impl Tally {
    /// Both samples as one.
    pub(crate) fn with(mut self, sample: Self) -> Self {
        let (all, one) = (&mut self.measured, sample.measured);
        let seconds = all.seconds + one.seconds;
        let parts = [all.seconds, one.seconds].map(|part| part / seconds.max(f64::MIN_POSITIVE));
        let mean = |of: [f64; 2]| of[0] * parts[0] + of[1] * parts[1];
        all.client_cpu = mean([all.client_cpu, one.client_cpu]);
        all.client_thread = mean([all.client_thread, one.client_thread]);
        all.seconds = seconds;
        all.clients = one.clients;
        all.read += one.read;
        all.written += one.written;
        all.sent = all.sent.zip(one.sent).map(|(all, one)| all + one);
        merge(&mut self.latencies, &sample.latencies);
        let parts = self.parts.len().max(sample.parts.len());
        self.parts.resize_with(parts, Latencies::new);
        for (of, part) in self.parts.iter_mut().zip(&sample.parts) {
            merge(of, part);
        }
        self
    }

    /// Latencies by kind of operation of so many places, to each of which `place` assigns kinds of operations of parts.
    pub(crate) fn by_place(
        &self,
        count: usize,
        place: impl Fn(usize, &str) -> usize,
    ) -> Vec<BTreeMap<String, Summary>> {
        let mut places = Vec::new();
        places.resize_with(count, Latencies::new);
        for (part, latencies) in self.parts.iter().enumerate() {
            for (kind, recorder) in latencies {
                if let Some(of_place) = places.get_mut(place(part, kind)) {
                    of_place.entry(*kind).or_default().add(recorder);
                }
            }
        }
        places.iter().map(summaries).collect()
    }

    /// The figures, with rates and percentiles.
    pub(crate) fn figures(&self) -> Measured {
        let mut measured = self.measured.clone();
        let mut together = Recorder::default();
        for recorder in self.latencies.values() {
            together.add(recorder);
        }
        measured.all = together.summary();
        measured.operations = measured.all.count;
        measured.latencies = summaries(&self.latencies);
        measured.parts = self.parts.iter().map(summaries).collect();
        measured.rates();
        measured
    }
}

/// The figures of one worker.
#[derive(Default)]
struct Count {
    read: u64,
    written: u64,
    sent: Option<u64>,
    latencies: Latencies,
}

/// Runs the workers; they come back for the next step or for a last check.
pub fn run<W: Worker>(
    workers: Vec<W>,
    step: Step,
    watch: &dyn Watch,
) -> Result<(Measured, Vec<W>), LoadError> {
    let (tally, back) = sample(workers, step, watch)?;
    Ok((tally.figures(), back))
}

/// Runs the workers for one sample of a longer run.
pub(crate) fn sample<W: Worker>(
    workers: Vec<W>,
    step: Step,
    watch: &dyn Watch,
) -> Result<(Tally, Vec<W>), LoadError> {
    let clients = workers.len();
    let barrier = Barrier::new(clients + 1);
    let has_failed = AtomicBool::new(false);
    let mut cpu_used = 0.0;
    let ended: Vec<Result<(W, Count), LoadError>> = thread::scope(|scope| {
        let (barrier, has_failed) = (&barrier, &has_failed);
        let begin = |worker| scope.spawn(move || work(worker, step, barrier, has_failed));
        let threads: Vec<_> = workers.into_iter().map(begin).collect();
        barrier.wait();
        thread::sleep(step.warm_up);
        watch.begins();
        let before = cpu::of_this_process();
        let until = Instant::now() + step.length;
        let mut left = step.length;
        while !left.is_zero() && !has_failed.load(Ordering::Relaxed) {
            thread::sleep(LOOK.min(left));
            left = until.saturating_duration_since(Instant::now());
        }
        cpu_used = cpu::of_this_process() - before;
        watch.ends();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or(Err(LoadError::Panicked))
        };
        threads.into_iter().map(join).collect()
    });
    let mut back = Vec::with_capacity(clients);
    let seconds = step.length.as_secs_f64();
    let measured = Measured {
        seconds,
        clients,
        sent: Some(0),
        client_cpu: cpu_used / seconds / cpu::cores(),
        client_thread: cpu_used / seconds / clients.max(1) as f64,
        ..Measured::default()
    };
    let mut tally = Tally {
        measured,
        ..Tally::default()
    };
    for one in ended {
        let (worker, count) = one?;
        let all = &mut tally.measured;
        all.read += count.read;
        all.written += count.written;
        all.sent = all.sent.zip(count.sent).map(|(all, one)| all + one);
        if let Some(part) = worker.part() {
            let parts = tally.parts.len().max(part + 1);
            tally.parts.resize_with(parts, Latencies::new);
            if let Some(of) = tally.parts.get_mut(part) {
                merge(of, &count.latencies);
            }
        }
        merge(&mut tally.latencies, &count.latencies);
        back.push(worker);
    }
    Ok((tally, back))
}

/// Ends the workers, all at once: what they have held back is no part of the figures, but its errors leave none.
pub(crate) fn end<W: Worker>(workers: Vec<W>) -> Result<(), LoadError> {
    let ended: Vec<Result<(), LoadError>> = thread::scope(|scope| {
        let begin = |mut worker: W| scope.spawn(move || worker.end());
        let threads: Vec<_> = workers.into_iter().map(begin).collect();
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().unwrap_or(Err(LoadError::Panicked)))
            .collect()
    });
    ended.into_iter().collect()
}

fn work<W: Worker>(
    mut worker: W,
    step: Step,
    barrier: &Barrier,
    has_failed: &AtomicBool,
) -> Result<(W, Count), LoadError> {
    let mut count = Count::default();
    barrier.wait();
    let from = Instant::now() + step.warm_up;
    let until = from + step.length;
    let mut report = |sample: Sample| {
        let now = Instant::now();
        let latency = now.saturating_duration_since(sample.begun);
        if now > until && sample.begun < until {
            // It is no part of the rate, but the longest wait may have been for it.
            let latencies = count.latencies.entry(sample.kind);
            latencies.or_default().note(latency);
        }
        if now < from || now > until {
            return;
        }
        count.read += sample.read;
        count.written += sample.written;
        let latencies = count.latencies.entry(sample.kind);
        latencies.or_default().record(latency);
    };
    let mut sent_before = None;
    while Instant::now() < until && !has_failed.load(Ordering::Relaxed) {
        if sent_before.is_none() && Instant::now() >= from {
            sent_before = worker.sent();
        }
        if let Err(error) = worker.turn(&mut report) {
            has_failed.store(true, Ordering::Relaxed);
            return Err(error);
        }
    }
    // One that stood from the warm-up to the end has sent nothing in the measured time.
    let sent = worker.sent();
    count.sent = sent.map(|all| all - sent_before.unwrap_or(all));
    Ok((worker, count))
}

#[cfg(test)]
mod tests;
