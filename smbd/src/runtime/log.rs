//! The destination and the format of log lines.
//!
//! They always go to stderr, by a separate thread (`lines.rs`). Under systemd (stderr *is* the journal) they have no
//! timestamps and colours, and begin with the priority, as in sd-daemon(3); elsewhere they are formatted for people.
//! `HOLDFAST_LOG` takes precedence over the configuration, unless it is empty.

mod lines;

use std::{
    env, fmt,
    io::{self, IsTerminal},
};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext,
        format::{FormatEvent, FormatFields, Writer},
    },
    registry::LookupSpan,
};

use crate::Error;
use crate::config::{FILTER_EXAMPLE, Log, LogFormat, check_filter};

pub use lines::{Flush, Unwritten, lost};

/// The environment variable that takes precedence over `[log] filter`.
pub const VARIABLE: &str = "HOLDFAST_LOG";

/// Starts logging; lines are written once [`Unwritten::begin`] is called. Only the first call has an effect.
///
/// # Errors
/// If `HOLDFAST_LOG` is no filter.
pub fn start(log: &Log) -> Result<Unwritten<io::Stderr>, Error> {
    let filter = match env::var(VARIABLE).unwrap_or_default().trim() {
        "" => check_filter(&log.filter)?,
        text => check_filter(text)
            .map_err(|mistake| format!("{VARIABLE}: {mistake}\n  = {FILTER_EXAMPLE}"))?,
    };
    let journal = match log.format {
        LogFormat::Journal => true,
        LogFormat::Plain => false,
        LogFormat::Auto => stderr_is_journal(env::var("JOURNAL_STREAM").ok().as_deref()),
    };
    let (writer, unwritten) = lines::queue(io::stderr());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // It would be reported on stderr by a macro that panics when stderr is what fails.
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(!journal && io::stderr().is_terminal());
    // An error means that somebody started logging before us.
    let _ = if journal {
        let format = tracing_subscriber::fmt::format()
            .without_time()
            .with_level(false);
        lines
            .event_format(Prioritised(format.with_target(false).with_ansi(false)))
            .try_init()
    } else {
        lines.try_init()
    };
    Ok(unwritten)
}

/// Whether `JOURNAL_STREAM` (`device:inode`) names our stderr; a child whose stderr was
/// redirected inherits the variable all the same.
fn stderr_is_journal(stream: Option<&str>) -> bool {
    let Ok(stat) = rustix::fs::fstat(io::stderr()) else {
        return false;
    };
    stream == Some(&format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// The error that ends a command, as it is written to stderr: with its priority if that is the journal, because the
/// command may be a server that does not start.
#[must_use]
pub fn of_command(error: &str) -> String {
    match stderr_is_journal(env::var("JOURNAL_STREAM").ok().as_deref()) {
        true => prioritised(Level::ERROR, error),
        false => format!("{error}\n"),
    }
}

/// Puts the priority of syslog(3) before each line. The journal takes each line of a message for an entry of its own,
/// so a way out without a priority would be missing among the warnings.
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        let formatted = Writer::new(&mut text);
        self.0.format_event(context, formatted, event)?;
        writer.write_str(&prioritised(*event.metadata().level(), &text))
    }
}

fn prioritised(level: Level, text: &str) -> String {
    let priority = priority(level);
    let lines = text.lines();
    lines.map(|line| format!("<{priority}>{line}\n")).collect()
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// The lines that were written.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_of_a_message_has_its_priority() {
        let written = Written::default();
        let to = written.clone();
        let format = tracing_subscriber::fmt::format().without_time();
        let format = format.with_level(false).with_target(false);
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .event_format(Prioritised(format.with_ansi(false)))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("a share is late\n  = repair its disk");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written, "<4>a share is late\n<4>  = repair its disk\n");
    }

    #[test]
    fn the_journal_is_recognised_by_its_inode() {
        let stat = rustix::fs::fstat(io::stderr()).unwrap();
        let ours = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(stderr_is_journal(Some(&ours)));
        assert!(!stderr_is_journal(Some("1:1")));
        assert!(!stderr_is_journal(None));
    }

    #[test]
    fn louder_is_lower() {
        assert!(priority(Level::ERROR) < priority(Level::WARN));
        assert!(priority(Level::WARN) < priority(Level::INFO));
        assert!(priority(Level::INFO) < priority(Level::TRACE));
    }
}
