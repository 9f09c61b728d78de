//! All measurements as comma-separated values, one line each.

use crate::bench::result::Run;

const HEAD: &str = "round,disk,workload,clients,server,seconds,operations_per_second,mbps,read_bytes,written_bytes,\
client_cpu,server_cpu_seconds,device_flushes,device_writes,device_bytes,highest_exposure_bytes,\
highest_exposure_seconds,highest_kernel_dirty_bytes,error\n";

/// The text of the file.
pub(super) fn text(runs: &[Run]) -> String {
    let mut text = HEAD.to_owned();
    for run in runs {
        text.push_str(&line(run));
    }
    text
}

fn line(run: &Run) -> String {
    let record = &run.record;
    let measured = record.outcome.as_ref().map(|outcome| &outcome.measured);
    let exposed = run.exposure.iter().filter_map(|sample| sample.bytes).max();
    let oldest = run
        .exposure
        .iter()
        .filter_map(|sample| sample.oldest)
        .reduce(f64::max);
    let dirty = run.exposure.iter().map(|sample| sample.kernel_dirty).max();
    // A program takes as long as it takes.
    let seconds = measured.map_or(record.seconds, |of| of.seconds);
    let optional = |value: Option<String>| value.unwrap_or_default();
    let fields = [
        (run.round + 1).to_string(),
        quoted(&run.disk.name),
        quoted(&run.title),
        record.clients.to_string(),
        quoted(&record.server),
        seconds.to_string(),
        optional(measured.map(|of| format!("{:.1}", of.per_second))),
        optional(measured.map(|of| format!("{:.3}", of.mbps))),
        optional(measured.map(|of| of.read.to_string())),
        optional(measured.map(|of| of.written.to_string())),
        optional(measured.map(|of| format!("{:.3}", of.client_cpu))),
        optional(run.server_cpu.map(|seconds| format!("{seconds:.3}"))),
        optional(run.device.map(|device| device.flushes.to_string())),
        optional(run.device.map(|device| device.writes.to_string())),
        optional(run.device.map(|device| device.bytes.to_string())),
        optional(exposed.map(|bytes| bytes.to_string())),
        optional(oldest.map(|seconds| format!("{seconds:.3}"))),
        optional(dirty.map(|bytes| bytes.to_string())),
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
