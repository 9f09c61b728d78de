//! The thread that writes log lines.
//!
//! Nothing that happens to the log may end or delay the server: a line that finds the queue full
//! (stderr is a pipe that nobody reads) or that cannot be written (the disk is full, the pipe is
//! closed) is dropped and counted, and the next line that can be written is preceded by one that
//! says how many are missing.

use std::{
    io::{self, Write},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait for the thread; further ones are lost.
const LINES_MAX: usize = 2_048;
/// Longest line in bytes; the rest of a longer one is cut off.
const LINE_BYTES_MAX: usize = 4_096;
/// How long the end of the process waits for the lines that are still queued.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Lines lost since the start of the process.
static LOST: AtomicU64 = AtomicU64::new(0);

/// How many lines were lost since the start of the process.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

#[derive(Debug)]
pub(super) enum Message {
    Line(Vec<u8>),
    /// Answered when all lines before it were written or lost.
    Flush(SyncSender<()>),
}

/// Hands each line to the thread without waiting for it.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    queue: SyncSender<Message>,
    lost: &'static AtomicU64,
}

/// Lines that wait for [`Unwritten::begin`]; dropped instead, it writes them itself.
#[derive(Debug)]
pub struct Unwritten<W: Write + Send + 'static> {
    lines: Option<(Receiver<Message>, W)>,
    queue: SyncSender<Message>,
    lost: &'static AtomicU64,
}

impl<W: Write + Send + 'static> Unwritten<W> {
    /// Starts the thread, which inherits what the calling one has given up.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begin(mut self) -> io::Result<Flush> {
        let lost = self.lost;
        if let Some((lines, out)) = self.lines.take() {
            thread::Builder::new()
                .name("log".to_owned())
                .spawn(move || write_lines(lines.iter(), out, lost))?;
        }
        Ok(Flush(self.queue.clone()))
    }
}

impl<W: Write + Send + 'static> Drop for Unwritten<W> {
    fn drop(&mut self) {
        if let Some((lines, out)) = self.lines.take() {
            write_lines(lines.try_iter(), out, self.lost);
        }
    }
}

/// Lines are written while this lives. Dropping it waits for those still queued, for a second at most.
#[derive(Debug)]
#[must_use]
pub struct Flush(SyncSender<Message>);

impl Drop for Flush {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.try_send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FLUSH_MAX);
        }
    }
}

/// A queue of lines for `out`.
pub(super) fn queue<W: Write + Send + 'static>(out: W) -> (Lines, Unwritten<W>) {
    queue_counting(out, &LOST)
}

fn queue_counting<W: Write + Send + 'static>(
    out: W,
    lost: &'static AtomicU64,
) -> (Lines, Unwritten<W>) {
    let (queue, lines) = sync_channel(LINES_MAX);
    let unwritten = Unwritten {
        lines: Some((lines, out)),
        queue: queue.clone(),
        lost,
    };
    (Lines { queue, lost }, unwritten)
}

fn write_lines(lines: impl Iterator<Item = Message>, mut out: impl Write, lost: &AtomicU64) {
    let mut reported = lost.load(Ordering::Relaxed);
    for message in lines {
        let line = match message {
            Message::Line(line) => line,
            Message::Flush(done) => {
                // The process may have stopped waiting.
                let _ = done.try_send(());
                continue;
            }
        };
        let missing = lost.load(Ordering::Relaxed);
        if missing != reported {
            let count = missing.wrapping_sub(reported);
            let notice = format!("{count} lines of the log could not be written and are lost\n");
            if out.write_all(notice.as_bytes()).is_ok() {
                reported = missing;
            }
        }
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line {
            to: self,
            text: Vec::new(),
        }
    }
}

/// A line that is being formatted; when it is dropped, the line goes to the thread that writes.
#[derive(Debug)]
pub(super) struct Line<'a> {
    to: &'a Lines,
    text: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let room = LINE_BYTES_MAX.saturating_sub(self.text.len());
        self.text.extend(text.iter().take(room));
        // An error would only make the formatter complain on stderr, which may be what is broken.
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        if text.len() == LINE_BYTES_MAX && text.last() != Some(&b'\n') {
            text.pop();
            // The journal shows nothing of a line that is not UTF-8.
            if let Err(cut) = std::str::from_utf8(&text) {
                text.truncate(cut.valid_up_to());
            }
            text.push(b'\n');
        }
        if self.to.queue.try_send(Message::Line(text)).is_err() {
            self.to.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    /// Stores what is written while it is working.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(bool, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let (full, kept) = &mut *self.0.lock().unwrap();
            if *full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            kept.extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start_counting(
        out: impl Write + Send + 'static,
        lost: &'static AtomicU64,
    ) -> io::Result<(Lines, Flush)> {
        let (lines, unwritten) = queue_counting(out, lost);
        Ok((lines, unwritten.begin()?))
    }

    fn counter() -> &'static AtomicU64 {
        Box::leak(Box::default())
    }

    fn say(lines: &Lines, text: &str) {
        lines.make_writer().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn lines_arrive_in_order_before_the_end() {
        let disk = Disk::default();
        let (lines, flush) = start_counting(disk.clone(), counter()).unwrap();
        for n in 0..100 {
            say(&lines, &format!("{n}\n"));
        }
        drop(flush);
        let expected: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert_eq!(disk.0.lock().unwrap().1, expected.as_bytes());
    }

    #[test]
    fn a_full_disk_loses_lines_and_says_how_many() {
        let (disk, lost) = (Disk::default(), counter());
        let (lines, flush) = start_counting(disk.clone(), lost).unwrap();
        disk.0.lock().unwrap().0 = true;
        say(&lines, "one\n");
        say(&lines, "two\n");
        drop(flush);
        assert_eq!(lost.load(Ordering::Relaxed), 2);
        disk.0.lock().unwrap().0 = false;
        let flush = Flush(lines.queue.clone());
        say(&lines, "three\n");
        drop(flush);
        let text = "2 lines of the log could not be written and are lost\nthree\n";
        assert_eq!(disk.0.lock().unwrap().1, text.as_bytes());
    }

    #[test]
    fn a_writer_that_blocks_delays_nobody() {
        struct Blocked(mpsc::Receiver<()>);
        impl Write for Blocked {
            fn write(&mut self, text: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(text.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (release, blocked) = mpsc::channel();
        let lost = counter();
        let (lines, flush) = start_counting(Blocked(blocked), lost).unwrap();
        // The thread may have taken one line already.
        let sent = LINES_MAX as u64 + 11;
        for _ in 0..sent {
            say(&lines, "line\n");
        }
        assert!((10..=11).contains(&lost.load(Ordering::Relaxed)));
        drop(flush);
        drop(release);
    }

    #[test]
    fn what_was_said_before_a_failed_start_is_written() {
        let disk = Disk::default();
        let (lines, unwritten) = queue_counting(disk.clone(), counter());
        say(&lines, "why\n");
        drop(unwritten);
        assert_eq!(disk.0.lock().unwrap().1, b"why\n");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let disk = Disk::default();
        let (lines, flush) = start_counting(disk.clone(), counter()).unwrap();
        say(&lines, &"\u{e9}".repeat(LINE_BYTES_MAX));
        drop(flush);
        let kept = String::from_utf8(disk.0.lock().unwrap().1.clone()).unwrap();
        assert_eq!(kept.len(), LINE_BYTES_MAX - 1);
        assert!(kept.ends_with("\u{e9}\n"));
    }

    #[test]
    fn a_long_line_is_cut() {
        let disk = Disk::default();
        let (lines, flush) = start_counting(disk.clone(), counter()).unwrap();
        say(&lines, &"x".repeat(2 * LINE_BYTES_MAX));
        drop(flush);
        let kept = &disk.0.lock().unwrap().1;
        assert_eq!((kept.len(), kept.last()), (LINE_BYTES_MAX, Some(&b'\n')));
    }
}
