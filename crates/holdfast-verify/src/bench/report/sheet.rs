//! All measurements as comma-separated values, one line each.

use smb_load::Summary;

use super::stores::KINDS;
use crate::bench::result::Run;

/// The latencies of each storage group, and of each share if there are several, have lines of their own in another
/// file.
const GROUPS_HEAD: &str =
    "round,disk,workload,clients,server,group,share,kind,per_second,mean_ms,p95_ms,p99_ms\n";
const HEAD: &str = "round,disk,workload,clients,server,seconds,operations_per_second,mbps,read_bytes,written_bytes,\
client_cpu,server_cpu_seconds,device_flushes,device_writes,device_bytes,highest_exposure_bytes,\
highest_exposure_seconds,highest_kernel_dirty_bytes,policy,flush,passed,failed_by,error\n";

/// The text of the file.
pub(super) fn text(runs: &[Run]) -> String {
    HEAD.to_owned() + &runs.iter().map(line).collect::<String>()
}

/// The text of the file of storage groups: a line for each kind of request of each group and each share. None if
/// nothing has groups.
pub(super) fn groups(runs: &[Run]) -> Option<String> {
    let lines: String = runs.iter().flat_map(of_groups).collect();
    (!lines.is_empty()).then(|| GROUPS_HEAD.to_owned() + &lines)
}

fn of_groups(run: &Run) -> Vec<String> {
    let mut lines = Vec::new();
    let outcome = run.record.outcome.as_ref();
    let Some(measured) = outcome.map(|outcome| &outcome.measured) else {
        return lines;
    };
    let groups = (1..).zip(&measured.parts);
    let groups = groups.map(|(number, part)| (format!("{number},"), part));
    let shares = run.record.shares.iter().zip(&measured.shares);
    let shares = shares.map(|(name, part)| (format!(",{}", quoted(name)), part));
    for (place, part) in groups.chain(shares) {
        for kind in KINDS {
            if let Some(summary) = part.get(kind) {
                let figures = figures(summary, measured.seconds);
                lines.push(format!("{},{place},{kind},{figures}\n", which(run)));
            }
        }
    }
    lines
}

/// A percentile that the operations are too few for is empty.
fn figures(of: &Summary, seconds: f64) -> String {
    let rate = of.count as f64 / seconds.max(f64::MIN_POSITIVE);
    let ms = |micros: Option<u64>| {
        micros.map_or_else(String::new, |micros| {
            format!("{:.3}", micros as f64 / 1000.0)
        })
    };
    format!(
        "{rate:.1},{:.3},{},{}",
        of.mean / 1000.0,
        ms(of.p95),
        ms(of.p99)
    )
}

/// The first columns: which measurement it is.
fn which(run: &Run) -> String {
    let record = &run.record;
    let fields = [
        (run.round + 1).to_string(),
        quoted(&run.disk.name),
        quoted(&run.title),
        record.clients.to_string(),
        quoted(&record.server),
    ];
    fields.join(",")
}

fn line(run: &Run) -> String {
    let record = &run.record;
    let measured = record.outcome.as_ref().map(|outcome| &outcome.measured);
    // Of a step that failed, nothing that was seen is a measurement.
    let seen = measured.map(|_| run);
    let samples = seen.map_or(&[][..], |run| &run.exposure);
    let device = seen.and_then(|run| run.device);
    let server_cpu = seen.and_then(|run| run.server_cpu);
    let exposed = samples.iter().filter_map(|sample| sample.bytes).max();
    let oldest = samples.iter().filter_map(|sample| sample.oldest);
    let oldest = oldest.reduce(f64::max);
    let dirty = samples.iter().map(|sample| sample.kernel_dirty).max();
    // A program takes as long as it takes.
    let seconds = measured.map_or(record.seconds, |of| of.seconds);
    let (policy, flush) = run.setting.promise();
    let verdict = record.outcome.as_ref().and_then(|of| of.verdict);
    let optional = |value: Option<String>| value.unwrap_or_default();
    let fields = [
        which(run),
        seconds.to_string(),
        optional(measured.map(|of| format!("{:.1}", of.per_second))),
        optional(measured.map(|of| format!("{:.3}", of.mbps))),
        optional(measured.map(|of| of.read.to_string())),
        optional(measured.map(|of| of.written.to_string())),
        optional(measured.map(|of| format!("{:.3}", of.client_cpu))),
        optional(server_cpu.map(|seconds| format!("{seconds:.3}"))),
        optional(device.map(|device| device.flushes.to_string())),
        optional(device.map(|device| device.writes.to_string())),
        optional(device.map(|device| device.bytes.to_string())),
        optional(exposed.map(|bytes| bytes.to_string())),
        optional(oldest.map(|seconds| format!("{seconds:.3}"))),
        optional(dirty.map(|bytes| bytes.to_string())),
        quoted(&policy),
        quoted(flush),
        optional(verdict.map(|of| of.is_good().to_string())),
        quoted(&optional(verdict.map(|of| of.faults().join("; ")))),
        quoted(&optional(record.error.clone())),
    ];
    fields.join(",") + "\n"
}

/// A field that may hold commas, quotes and ends of lines.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn commas_and_quotes_stay_in_their_field() {
        assert_eq!(super::quoted("plain"), "plain");
        assert_eq!(super::quoted("Samba, \"no\""), "\"Samba, \"\"no\"\"\"");
    }
}
