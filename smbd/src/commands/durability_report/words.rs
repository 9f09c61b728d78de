//! The report for people, from the same JSON that programs get.

use serde_json::Value;

use crate::daemon::policy::utc;

fn when(seconds: &Value) -> String {
    let seconds = seconds.as_i64().unwrap_or(0);
    utc(u64::try_from(seconds).unwrap_or(0))
}

fn when_ms(millis: &Value) -> String {
    let millis = millis.as_i64().unwrap_or(0);
    let text = utc(u64::try_from(millis / 1000).unwrap_or(0));
    text.replace(" UTC", &format!(".{:03} UTC", millis.rem_euclid(1000)))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn many(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// The whole report, with so many files named of each share (0: all).
pub(super) fn in_words(report: &Value, files_max: usize) -> String {
    let run = &report["run"];
    let mut out = vec![format!(
        "Holdfast {} that started at {}",
        word(&run["server"]),
        when(&run["started_s"])
    )];
    out.push(match word(&run["end"]) {
        "running" => "is running; this is what it has promised so far.".to_owned(),
        "stable" => format!(
            "ended in order at {}; all that it had acknowledged was on stable storage.",
            when(&run["ended_s"])
        ),
        "unstable" => format!(
            "ended in order at {}, but something was left to the kernel or had failed.",
            when(&run["ended_s"])
        ),
        "server" => format!(
            "did not end in order; its last sign is of {}. The machine has not gone down since: \
             what it had acknowledged is in files or in the kernel's memory.",
            when(&run["last_record_s"])
        ),
        _ => format!(
            "did not end in order, and the machine went down with it or after it; its last sign \
             is of {}.",
            when(&run["last_record_s"])
        ),
    });
    let flushes = number(&run["flushes"]);
    out.push(format!(
        "The journal has {} of it{}.",
        many(flushes, "flush", "flushes"),
        if run["begins_in_journal"] == true {
            ""
        } else {
            "; its beginning is no longer kept"
        }
    ));
    if run["torn_end"] == true {
        out.push(
            "Its last record was being written at the end: nothing acknowledged was in it."
                .to_owned(),
        );
    }
    let lost = number(&run["lost_records"]);
    if lost > 0 {
        out.push(format!(
            "{} could not be written down: the journal's disk failed at times.",
            many(lost, "flush", "flushes")
        ));
    }
    for damage in run["damage"].as_array().into_iter().flatten() {
        out.push(format!(
            "DAMAGED: segment {}, byte {}: {}; records are missing here.",
            number(&damage["segment"]),
            number(&damage["offset"]),
            word(&damage["what"])
        ));
    }
    for share in report["shares"].as_array().into_iter().flatten() {
        out.push(String::new());
        share_in_words(&mut out, share, word(&run["end"]), files_max);
    }
    failed_in_words(&mut out, &report["failed_files"]);
    out.join("\n") + "\n"
}

/// Files of which a server knows that their sync failed, then or earlier.
fn failed_in_words(out: &mut Vec<String>, failed: &Value) {
    if let Some(error) = failed.as_str() {
        out.push(format!("\nfiles whose sync failed cannot be told: {error}"));
    }
    let Some(files) = failed.as_array().filter(|files| !files.is_empty()) else {
        return;
    };
    out.push(format!(
        "\n{} whose sync failed, not repaired since; flushes of them fail:",
        many(files.len() as u64, "file", "files")
    ));
    for file in files {
        let path = match file["path"].as_str() {
            None | Some("") => format!("inode {}", number(&file["inode"])),
            Some(path) => path.to_owned(),
        };
        out.push(format!("  {path}: {}", word(&file["error"])));
    }
}

fn share_in_words(out: &mut Vec<String>, share: &Value, end: &str, files_max: usize) {
    out.push(format!(
        "share {} ({})",
        word(&share["share"]),
        word(&share["path"])
    ));
    let empty = Vec::new();
    let files = share["files"].as_array().unwrap_or(&empty);
    let suspect = number(&share["suspect_files"]);
    out.push(match (files.len(), suspect) {
        (0, _) => "  no flush was acknowledged".to_owned(),
        (count, 0) => format!(
            "  {}: all there, none smaller than it was",
            many(count as u64, "flushed file", "flushed files")
        ),
        (count, suspect) => format!(
            "  {}: {suspect} to be looked at (deleted or cut off since, or lost)",
            many(count as u64, "flushed file", "flushed files")
        ),
    });
    if share["all_looked_at"] == false {
        out.push("  not all of the folder could be looked at".to_owned());
    }
    // The most important ones come first, and among them the latest.
    let (first, rest): (Vec<&Value>, Vec<&Value>) =
        files.iter().partition(|file| file["suspect"] == true);
    let shown = if files_max == 0 {
        files.len()
    } else {
        files_max
    };
    for file in first.iter().chain(&rest).take(shown) {
        out.push(format!("    {}", file_in_words(file)));
    }
    if files.len() > shown {
        out.push(format!("    and {} more", files.len() - shown));
    }
    if !share["exposure"].is_null() {
        exposure(out, &share["exposure"], end);
    }
}

fn file_in_words(file: &Value) -> String {
    let path = match word(&file["path"]) {
        "" => format!("inode {}", number(&file["inode"])),
        path => path.to_owned(),
    };
    let stream = match word(&file["stream"]) {
        "" => String::new(),
        stream => format!(":{stream}"),
    };
    let now = match word(&file["now"]) {
        "renamed" => format!("now {}", word(&file["path_now"])),
        "smaller" => format!("SMALLER: {} bytes now", number(&file["size_now"])),
        "gone" => "GONE: no longer in the share".to_owned(),
        "not found" => "NOT FOUND".to_owned(),
        there => there.to_owned(),
    };
    let promise = if file["before_the_disk"] == true {
        "answered before the disk"
    } else {
        "stable"
    };
    format!(
        "{path}{stream}  {} bytes, flushed {} ({promise}): {now}",
        number(&file["size"]),
        when_ms(&file["flushed_ms"]),
    )
}

pub(super) fn exposure(out: &mut Vec<String>, exposure: &Value, end: &str) {
    let policy = word(&exposure["policy"]);
    if exposure["nothing"] == true || end == "stable" {
        out.push(format!(
            "  {policy}: nothing was acknowledged and volatile at the end"
        ));
    } else {
        let at = if end == "running" {
            "now"
        } else {
            "at the end"
        };
        out.push(format!(
            "  {policy}: exposure {at} at most {} bytes, {} ms",
            number(&exposure["at_most_bytes"]),
            number(&exposure["at_most_ms"]),
        ));
        out.push(format!(
            "    stable is all that was acknowledged before {}; nothing was acknowledged after {}",
            when_ms(&exposure["stable_before_ms"]),
            when_ms(&exposure["nothing_after_ms"]),
        ));
        out.push(format!(
            "    measured at {}: {} bytes in {}",
            when(&exposure["measured_s"]),
            number(&exposure["measured_bytes"]),
            many(number(&exposure["measured_files"]), "file", "files"),
        ));
        for file in exposure["files"].as_array().into_iter().flatten() {
            let path = match word(&file["path"]) {
                "" => format!("inode {}", number(&file["inode"])),
                path => path.to_owned(),
            };
            out.push(format!("      {path}  {} bytes", number(&file["bytes"])));
        }
        out.push("      and whatever was changed after that".to_owned());
        if end == "server" {
            out.push(
                "    the machine lives: none of it is lost by the server's end alone".to_owned(),
            );
        }
    }
    let unproven = number(&exposure["unproven_files"]);
    if unproven > 0 {
        out.push(format!(
            "  a sync had failed for {}, not repaired by then",
            many(unproven, "file", "files")
        ));
    }
}
