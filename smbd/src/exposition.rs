//! Figures of the server in Prometheus text.

use std::fmt::Write;

use smb_server::Server;

use crate::service::HostVfs;

/// Everything there is, one family after the other.
#[must_use]
pub fn render(server: &Server<HostVfs>) -> String {
    let report = server.report();
    let mut out = String::new();
    let opens: usize = report
        .sessions
        .iter()
        .map(|session| session.opens.len())
        .sum();
    for (name, help, value) in [
        (
            "holdfast_connections",
            "Live connections.",
            report.connections.len(),
        ),
        ("holdfast_sessions", "Live sessions.", report.sessions.len()),
        ("holdfast_opens", "Open handles.", opens),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}"
        );
    }
    let shares = server.shares();
    for (name, help) in [
        (
            "holdfast_exposed_bytes",
            "Bytes acknowledged and not known to be stable; an upper bound.",
        ),
        (
            "holdfast_exposed_inodes",
            "Inodes with anything not known to be stable.",
        ),
        (
            "holdfast_exposed_oldest_seconds",
            "Age of the oldest change not known to be stable.",
        ),
        (
            "holdfast_latched_inodes",
            "Inodes whose sync failed and which are not repaired.",
        ),
    ] {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for share in shares.iter() {
            let exposure = share.gate.exposure();
            let value = match name {
                "holdfast_exposed_bytes" => exposure.bytes as f64,
                "holdfast_exposed_inodes" => exposure.inodes as f64,
                "holdfast_exposed_oldest_seconds" => exposure.oldest_age.as_secs_f64(),
                _ => exposure.latched_inodes as f64,
            };
            let label = share.config.name.replace('\\', "\\\\").replace('"', "\\\"");
            let policy = share.gate.effective_policy();
            let _ = writeln!(
                out,
                "{name}{{share=\"{label}\",policy=\"{policy}\"}} {value}"
            );
        }
    }
    out
}
