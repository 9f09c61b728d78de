//! Samples, each second while a step is measured, how much a power cut would take.
//!
//! Holdfast states on its metrics page what it acknowledged and has not made stable. Another server does not know; the
//! kernel's dirty pages and the flushes of the disk's cache stand beside both.

use std::{
    fs,
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use smb_load::{
    Protection, Watch,
    experiment::Record,
    rig::{device::Counts, memory, metrics},
};

use super::{
    plan::ServerKind,
    program::Build,
    result::{Device, Disk, Exposure, FORMAT, Run},
};

/// The things that are looked at.
pub(super) struct Sights<'a> {
    /// The port of Holdfast's metrics page.
    pub(super) metrics: Option<u16>,
    /// The counters of the disk, if it has some.
    pub(super) counts: &'a (dyn Fn() -> Option<Counts> + Sync),
    /// CPU seconds of the server so far.
    pub(super) cpu: &'a (dyn Fn() -> Option<f64> + Sync),
    /// KiB of the server now, if they are to be read.
    pub(super) memory: &'a (dyn Fn() -> Option<u64> + Sync),
    /// The time between two looks.
    pub(super) interval: Duration,
}

/// The findings of the measured time.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) exposure: Vec<Exposure>,
    pub(super) device: Option<Device>,
    pub(super) cpu: Option<f64>,
    pub(super) syncs: Option<u64>,
    /// KiB that the server gained between the preparation and the measured time.
    pub(super) memory: Option<u64>,
}

impl Seen {
    /// The measurement in which it was seen, over connections without a protection of their own.
    pub(super) fn of_run(
        self,
        record: Record,
        (round, title): (usize, &str),
        (setting, build): (&ServerKind, &Build),
        disk: Disk,
    ) -> Run {
        let clients = record.clients;
        Run {
            format: FORMAT,
            round,
            title: title.to_owned(),
            seed: clients as u64,
            setting: setting.clone(),
            server_version: build.version.clone(),
            server_program: build.file.clone(),
            disk,
            record,
            protection: Protection::Plain,
            server_cpu: self.cpu,
            memory_kib: self.memory.map(|kib| kib as f64 / clients as f64),
            syncs: self.syncs,
            device: self.device,
            exposure: self.exposure,
        }
    }
}

enum Event {
    Begins,
    Ends,
}

/// Forwards the moments of a step to the thread that looks.
struct Moments(mpsc::Sender<Event>);

impl Watch for Moments {
    fn begins(&self) {
        // Only a thread that ended does not receive it, and that one is joined.
        let _ = self.0.send(Event::Begins);
    }

    fn ends(&self) {
        let _ = self.0.send(Event::Ends);
    }
}

/// Runs `work` with a watch, and looks each second between the moments that the watch reports.
pub(super) fn watched<T>(sights: &Sights<'_>, work: impl FnOnce(&dyn Watch) -> T) -> (T, Seen) {
    let seen = Mutex::new(Seen::default());
    let before = (sights.memory)();
    let done = thread::scope(|scope| {
        let (moments, events) = mpsc::channel();
        let seen = &seen;
        scope.spawn(move || look(sights, before, &events, seen));
        let watch = Moments(moments);
        work(&watch)
        // The watch goes here, and with it the thread's reason to go on.
    });
    (done, seen.into_inner().unwrap_or_default())
}

fn look(
    sights: &Sights<'_>,
    before: Option<u64>,
    events: &mpsc::Receiver<Event>,
    seen: &Mutex<Seen>,
) {
    let Ok(Event::Begins) = events.recv() else {
        return;
    };
    let memory = (sights.memory)();
    let begun = Instant::now();
    let first = (sights.counts)();
    let syncs = syncs(sights);
    let cpu = (sights.cpu)();
    let mut samples = Vec::new();
    let mut next = begun;
    let mut is_measuring = true;
    loop {
        if is_measuring {
            samples.push(sample(sights, begun, first.as_ref()));
        }
        next += sights.interval;
        let event = events.recv_timeout(next.saturating_duration_since(Instant::now()));
        match event {
            Ok(Event::Begins) => is_measuring = true,
            Ok(Event::Ends) => {
                is_measuring = false;
                let last = (sights.cpu)();
                // Not beside the last one, if that was just now.
                let last_look = samples.last().map_or(0.0, |of: &Exposure| of.second);
                let since_then = begun.elapsed().as_secs_f64() - last_look;
                if samples.len() < 2 || since_then > sights.interval.as_secs_f64() / 2.0 {
                    samples.push(sample(sights, begun, first.as_ref()));
                }
                let device = first.as_ref().zip((sights.counts)());
                if let Ok(mut seen) = seen.lock() {
                    seen.device = device.map(|(first, last)| since(first, &last));
                    seen.cpu = cpu.zip(last).map(|(before, after)| after - before);
                    seen.syncs = gained(syncs, self::syncs(sights));
                    seen.memory = gained(before, memory);
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Ok(mut seen) = seen.lock() {
        seen.exposure = samples;
    }
}

fn gained(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

/// Syncs of inodes and durable writes so far.
fn syncs(sights: &Sights<'_>) -> Option<u64> {
    let page = metrics::page(sights.metrics?).ok()?;
    let counters = ["syncs_data", "syncs_all", "writes_durable"].iter();
    let values =
        counters.map(|name| metrics::value::<u64>(&page, &format!("holdfast_{name}_total")));
    values.sum()
}

fn since(first: &Counts, last: &Counts) -> Device {
    Device {
        flushes: last.flushes.saturating_sub(first.flushes),
        writes: last.writes.saturating_sub(first.writes),
        bytes: last.bytes.saturating_sub(first.bytes),
    }
}

fn sample(sights: &Sights<'_>, begun: Instant, first: Option<&Counts>) -> Exposure {
    let page = sights.metrics.and_then(|port| metrics::page(port).ok());
    let value = |name| metrics::value::<f64>(page.as_deref()?, name);
    let counts = first.zip((sights.counts)());
    Exposure {
        second: begun.elapsed().as_secs_f64(),
        bytes: value("holdfast_exposed_bytes").map(|bytes| bytes as u64),
        oldest: value("holdfast_exposed_oldest_seconds"),
        kernel_dirty: kernel_dirty(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        flushes: counts.map(|(first, last)| since(first, &last).flushes),
    }
}

/// Bytes that wait for write-back or are under way, of `/proc/meminfo`.
fn kernel_dirty(meminfo: &str) -> u64 {
    let kib = |name| memory::kib(meminfo, name).unwrap_or(0);
    (kib("Dirty:") + kib("Writeback:")) * 1024
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn only_the_measured_time_is_seen() {
        let flushes = AtomicU64::new(100);
        let counts = || {
            Some(Counts {
                flushes: flushes.load(Ordering::Relaxed),
                writes: 0,
                bytes: 0,
            })
        };
        let sights = Sights {
            metrics: None,
            counts: &counts,
            cpu: &|| Some(1.0),
            memory: &|| Some(5),
            interval: Duration::from_secs(1),
        };
        let (done, seen) = watched(&sights, |watch| {
            watch.begins();
            thread::sleep(Duration::from_millis(300));
            flushes.store(107, Ordering::Relaxed);
            watch.ends();
            thread::sleep(Duration::from_millis(300));
            flushes.store(900, Ordering::Relaxed);
            5
        });
        assert_eq!((done, seen.cpu), (5, Some(0.0)));
        assert_eq!((seen.memory, seen.syncs), (Some(0), None));
        assert_eq!(seen.device.map(|device| device.flushes), Some(7));
        // A machine that stalls has a second before the end.
        assert!(seen.exposure.len() >= 2, "{seen:?}");
        assert!(seen.exposure.last().unwrap().second >= 0.29);
        let nothing = watched(&sights, |_| ()).1;
        assert!(nothing.exposure.is_empty() && nothing.device.is_none());
    }

    #[test]
    fn dirty_pages_are_those_of_both_lines() {
        let text = "MemFree: 5 kB\nDirty:               12 kB\nWriteback:             3 kB\nWritebackTmp: 9 kB\n";
        assert_eq!(kernel_dirty(text), 15 * 1024);
    }
}
