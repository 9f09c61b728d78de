//! Writes the ledger: an acknowledgement counts when its line is safe, not before.
//!
//! One thread writes for all connections: what has gathered is written at once and, where the
//! ledger is a file, synced once (`fdatasync`); only then do those who wait go on. The first
//! failure is every later answer too: a ledger that lost a line proves nothing.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use super::ledger::Line;

/// Lines waiting, and most that are written at once.
const WAITING_MAX: usize = 1024;

struct Entry {
    text: String,
    done: SyncSender<Result<(), String>>,
}

pub(super) struct LedgerWriter {
    queue: Option<SyncSender<Entry>>,
    thread: Option<JoinHandle<()>>,
}

enum Target {
    File(File),
    Output(io::Stdout),
}

impl Target {
    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::File(file) => {
                file.write_all(text.as_bytes())?;
                file.sync_data()
            }
            Self::Output(output) => {
                output.write_all(text.as_bytes())?;
                output.flush()
            }
        }
    }
}

impl LedgerWriter {
    /// A new file, or standard output for `-`.
    ///
    /// # Errors
    /// When the file exists already (a ledger belongs to one run) or cannot be made.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let named = |error: io::Error| {
            let way_out = match error.kind() {
                io::ErrorKind::AlreadyExists => "name a new file: a ledger is that of one run",
                _ => "name a file that this user may make, on a machine whose power is not cut",
            };
            format!("ledger {}: {error}\n  = {way_out}", path.display())
        };
        let target = if path == Path::new("-") {
            Target::Output(io::stdout())
        } else {
            let file = OpenOptions::new()
                .append(true)
                .create_new(true)
                .open(path)
                .map_err(named)?;
            let folder = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(named)?;
            Target::File(file)
        };
        let (queue, entries) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || write_all(target, &entries))
            .map_err(named)?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Adds a line; returns when it is safe.
    pub(super) fn append(&self, line: &Line) -> Result<(), String> {
        let (done, answer) = sync_channel(1);
        let text = line.encode()?;
        let gone = || "the ledger's thread has ended".to_owned();
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(Entry { text, done }).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for LedgerWriter {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // Every append has had its answer.
            let _ = thread.join();
        }
    }
}

fn write_all(mut target: Target, entries: &Receiver<Entry>) {
    let mut state: Result<(), String> = Ok(());
    while let Ok(first) = entries.recv() {
        let mut text = first.text;
        let mut waiting = vec![first.done];
        while waiting.len() < WAITING_MAX
            && let Ok(more) = entries.try_recv()
        {
            text.push_str(&more.text);
            waiting.push(more.done);
        }
        if state.is_ok() {
            state = target
                .write(&text)
                .map_err(|error| format!("the ledger cannot be written: {error}"));
        }
        for done in waiting {
            // A caller that has stopped waiting needs no answer.
            let _ = done.send(state.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(number: u64) -> Line {
        Line::End {
            why: "test".into(),
            acknowledged: number,
            cut: false,
        }
    }

    #[test]
    fn lines_of_many_threads_are_all_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let writer = LedgerWriter::open(&path).unwrap();
        std::thread::scope(|scope| {
            for number in 0..20 {
                let writer = &writer;
                scope.spawn(move || writer.append(&end(number)).unwrap());
            }
        });
        // Safe when append returns, not when the writer is dropped.
        let text = std::fs::read_to_string(&path).unwrap();
        for number in 0..20 {
            assert_eq!(text.matches(&end(number).encode().unwrap()).count(), 1);
        }
    }

    #[test]
    fn an_old_ledger_is_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        std::fs::write(&path, "old").unwrap();
        let refused = LedgerWriter::open(&path).err().unwrap();
        assert!(refused.contains("\n  = name a new file"), "{refused}");
    }

    #[test]
    fn after_a_failure_nothing_is_acknowledged() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (queue, entries) = sync_channel(4);
        let thread = std::thread::spawn(move || write_all(Target::File(full), &entries));
        for _ in 0..2 {
            let (done, answer) = sync_channel(1);
            let text = "x\n".to_owned();
            queue.send(Entry { text, done }).unwrap();
            assert!(answer.recv().unwrap().is_err());
        }
        drop(queue);
        thread.join().unwrap();
    }
}
