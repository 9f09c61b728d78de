//! The report for people.

use vfs::{Timestamp, shown};

use super::report::{
    DurabilityReport, ExposureReport, FailedFiles, FileNow, FileReport, RunEnd, RunReport,
    ShareReport,
};

fn many(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn path_or_inode(path: &str, inode: u64) -> String {
    match path {
        "" => format!("inode {inode}"),
        path => shown(path),
    }
}

fn when(secs: i64) -> String {
    Timestamp { secs, nanos: 0 }.utc()
}

fn when_ms(millis: i64) -> String {
    let text = when(millis.div_euclid(1000));
    text.replace(" UTC", &format!(".{:03} UTC", millis.rem_euclid(1000)))
}

pub(super) fn file_in_words(file: &FileReport) -> String {
    let path = path_or_inode(&file.path, file.inode);
    let stream = match file.stream.as_str() {
        "" => String::new(),
        stream => format!(":{}", shown(stream)),
    };
    let now = match file.now {
        FileNow::Present => "there".to_owned(),
        FileNow::Renamed => {
            format!(
                "now {}",
                shown(file.path_now.as_deref().unwrap_or("elsewhere"))
            )
        }
        FileNow::Smaller => format!("SMALLER: {} bytes now", file.size_now.unwrap_or(0)),
        FileNow::Gone => "GONE: no longer in the share".to_owned(),
        FileNow::NotFound => "NOT FOUND".to_owned(),
    };
    let promise = match file.before_the_disk {
        true => "answered before the disk",
        false => "stable",
    };
    let (size, flushed) = (file.size, when_ms(file.flushed_ms));
    format!("{path}{stream}  {size} bytes, flushed {flushed} ({promise}): {now}")
}

/// The text being written.
#[derive(Default)]
pub(super) struct Words {
    pub(super) text: String,
}

impl Words {
    /// The whole report, with so many files named of each share (0: all).
    pub(super) fn report(mut self, report: &DurabilityReport, files_max: usize) -> String {
        self.run_in_words(&report.run);
        for share in &report.shares {
            line!(self.text; "");
            self.share_in_words(share, report.run.end, files_max);
        }
        self.failed_in_words(&report.failed_files);
        self.text
    }

    fn run_in_words(&mut self, run: &RunReport) {
        let (server, started) = (&run.server, when(run.started_s));
        line!(self.text; "Holdfast {server} that started at {started}");
        let ended = when(run.ended_s.unwrap_or(0));
        let last = when(run.last_record_s);
        let said = match run.end {
            RunEnd::Running => "is running; this is what it has promised so far.".to_owned(),
            RunEnd::Stable => format!(
                "ended in order at {ended}; all that it had acknowledged was on stable storage."
            ),
            RunEnd::Unstable => format!(
                "ended in order at {ended}, but something was left to the kernel or had failed."
            ),
            RunEnd::Server => format!(
                "did not end in order; its last sign is of {last}. The machine has not gone down since: \
             what it had acknowledged is in files or in the kernel's memory."
            ),
            RunEnd::Machine => format!(
                "did not end in order, and the machine went down with it or after it; its last sign \
             is of {last}."
            ),
        };
        line!(self.text; "{said}");
        let flushes = many(run.flushes, "flush", "flushes");
        let beginning = match run.begins_in_journal {
            true => "",
            false => "; its beginning is no longer kept",
        };
        line!(self.text; "The journal has {flushes} of it{beginning}.");
        if run.torn_end {
            line!(self.text; "Its last record was being written at the end: nothing acknowledged was in it.");
        }
        if run.clock_set_back {
            line!(self.text; "THE CLOCK WAS SET BACK during this run: of two times below, the later may have come first.");
        }
        if run.lost_records > 0 {
            let lost = many(run.lost_records, "flush", "flushes");
            line!(self.text; "{lost} could not be recorded: the journal's disk failed at times.");
        }
        for damage in &run.damage {
            let (segment, offset, what) = (damage.segment, damage.offset, &damage.what);
            line!(self.text; "DAMAGED: segment {segment}, byte {offset}: {what}; records are missing here.");
        }
    }

    /// Files of which a server knows that their sync failed, then or earlier.
    fn failed_in_words(&mut self, failed: &FailedFiles) {
        let files = match failed {
            FailedFiles::Unknown(error) => {
                line!(self.text; "\nfiles whose sync failed are not known: {error}");
                return;
            }
            FailedFiles::Known(files) if files.is_empty() => return,
            FailedFiles::Known(files) => files,
        };
        let count = many(files.len() as u64, "file", "files");
        line!(self.text; "\n{count} whose sync failed, not repaired since; flushes of them fail:");
        for file in files {
            let path = path_or_inode(&file.path, file.inode.unwrap_or(0));
            line!(self.text; "  {path}: {}", file.error);
        }
    }

    fn share_in_words(&mut self, share: &ShareReport, end: RunEnd, files_max: usize) {
        line!(self.text; "share {} ({})", share.share, share.path);
        let count = share.files.len();
        let flushed = many(count as u64, "flushed file", "flushed files");
        let said = match (count, share.suspect_files) {
            (0, _) => "  no flush was acknowledged".to_owned(),
            (_, 0) => format!("  {flushed}: all there, none smaller than it was"),
            (_, suspect) => format!(
                "  {flushed}: {suspect} to be looked at (deleted or cut off since, or lost)"
            ),
        };
        line!(self.text; "{said}");
        if count > 0 && share.files.iter().all(|file| file.now == FileNow::Gone) {
            line!(self.text; "  none of them is there: is the share's disk mounted at this folder?");
        }
        if !share.all_looked_at {
            line!(self.text; "  not all of the folder could be looked at");
        }
        // The most important ones come first, and among them the latest.
        let (first, rest): (Vec<_>, Vec<_>) = share.files.iter().partition(|file| file.suspect);
        let shown = if files_max == 0 { count } else { files_max };
        for file in first.iter().chain(&rest).take(shown) {
            let line = file_in_words(file);
            line!(self.text; "    {line}");
        }
        if count > shown {
            line!(self.text; "    and {} more", count - shown);
        }
        if let Some(exposure) = &share.exposure {
            self.exposure_in_words(exposure, end);
        }
    }

    pub(super) fn exposure_in_words(&mut self, exposure: &ExposureReport, end: RunEnd) {
        let policy = &exposure.policy;
        let at = match end {
            RunEnd::Running => "now",
            _ => "at the end",
        };
        if exposure.nothing || end == RunEnd::Stable {
            line!(self.text; "  {policy}: nothing was acknowledged and volatile {at}");
        } else {
            let (bytes, ms) = (exposure.at_most_bytes, exposure.at_most_ms);
            line!(self.text; "  {policy}: exposure {at} at most {bytes} bytes, {ms} ms");
            if policy.starts_with("bounded") && exposure.at_most_bytes > exposure.measured_bytes {
                line!(self.text; "    this is the limit that the journal stored in advance; \
                      the bound of the policy applies as well");
            }
            let stable_before = when_ms(exposure.stable_before_ms);
            let nothing_after = when_ms(exposure.nothing_after_ms);
            line!(self.text; "    stable is all that was acknowledged before {stable_before}; \
                  nothing was acknowledged after {nothing_after}");
            let (measured, bytes) = (when(exposure.measured_s), exposure.measured_bytes);
            let files = many(exposure.measured_files, "file", "files");
            line!(self.text; "    measured at {measured}: {bytes} bytes in {files}");
            for file in &exposure.files {
                let path = path_or_inode(&file.path, file.inode);
                line!(self.text; "      {path}  {} bytes", file.bytes);
            }
            let named = exposure.files.len() as u64;
            let more = exposure.measured_files.saturating_sub(named);
            if more > 0 {
                line!(self.text; "      and {more} more with fewer bytes, which the journal does not name");
            }
            line!(self.text; "      and whatever was changed after that");
            if end == RunEnd::Server {
                line!(self.text; "    the machine lives: none of it is lost by the server's end alone");
            }
        }
        if exposure.unproven_files > 0 {
            let files = many(exposure.unproven_files, "file", "files");
            line!(self.text; "  a sync had failed for {files}, not repaired by then");
        }
    }
}
