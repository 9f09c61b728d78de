//! Figures of the server in Prometheus text, version 0.0.4.
//!
//! [`Page`] writes one family at a time, so that no family's samples are separated and no name is declared twice.
//! The counters are elsewhere; nothing is stored here.

use std::fmt::{Display, Write};

use durability::{Counters, Exposure, HistogramView};
use smb_server::{Server, Share};

use crate::{answers::MemoryStatus, host_vfs::HostVfs};

/// The text being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

#[derive(Debug)]
pub struct Family<'a> {
    page: &'a mut Page,
    name: String,
}

impl Page {
    /// Begins a family. If its name ends in `_total` it is a counter, which only goes up, otherwise a gauge.
    pub fn family(&mut self, name: &str, help: &str) -> Family<'_> {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        self.begin(name, kind, help)
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) -> Family<'_> {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family {
            page: self,
            name: name.to_owned(),
        }
    }

    /// Writes a family of one sample without labels.
    pub fn single(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help).sample("", &[], value);
    }

    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Adds a sample; `suffix` is `_bucket` and so on, or empty.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut self.page.text;
        let _ = write!(text, "{}{suffix}", self.name);
        for (index, (name, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(text, "{open}{name}=\"{value}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(text, "{close} {value}");
    }

    /// Adds a histogram whose values count `unit`s.
    fn histogram(&mut self, share: &str, view: &HistogramView, unit: f64) {
        let mut sum = 0;
        for (index, count) in view.buckets.iter().enumerate() {
            sum += count;
            // Bucket i holds whole numbers below 2^i; the last one is without end.
            let end = if index + 1 == view.buckets.len() {
                "+Inf".to_owned()
            } else {
                (((1_u64 << index) - 1) as f64 * unit).to_string()
            };
            self.sample("_bucket", &[("share", share), ("le", &end)], sum);
        }
        self.sample("_sum", &[("share", share)], view.sum as f64 * unit);
        self.sample("_count", &[("share", share)], sum);
    }
}

/// Writes everything that the protocol reports.
pub fn render(page: &mut Page, server: &Server<HostVfs>) {
    let report = server.report();
    let sessions = report.sessions.iter();
    // The list of opens is cut off at a limit, their number is not.
    let opens: usize = sessions.clone().map(|session| session.open_count).sum();
    let trees: usize = sessions.clone().map(|session| session.trees.len()).sum();
    let open_list = sessions.flat_map(|session| &session.opens);
    let locks: u64 = open_list.map(|open| open.locks).sum();
    page.single("holdfast_sessions", "Sessions.", report.sessions.len());
    page.single("holdfast_trees", "Tree connects.", trees);
    page.single("holdfast_opens", "Open handles.", opens);
    let help = "Byte-range locks of the first 10,000 open handles.";
    page.single("holdfast_locks", help, locks);
    write_memory(page, memory(server));
    let help = "Entries of a table, by table.";
    let mut family = page.family("holdfast_table_entries", help);
    for (table, entries) in server.table_sizes() {
        family.sample("", &[("table", table)], entries);
    }
    let help = "Requests answered, by command.";
    let mut family = page.family("holdfast_requests_total", help);
    for count in server.requests.read() {
        family.sample("", &[("command", count.command)], count.asked);
    }
    let help = "Requests answered with an error, by command.";
    let mut family = page.family("holdfast_requests_refused_total", help);
    for count in server.requests.read() {
        family.sample("", &[("command", count.command)], count.refused);
    }
    let shares = server.shares();
    let shares: Vec<&Share<HostVfs>> = shares.iter().map(|share| &**share).collect();
    promises(page, &shares);
    let each = shares.iter();
    let exposed = each.map(|share| (share.config.name.clone(), share.gate.exposure()));
    let exposed: Vec<_> = exposed.chain(not_served(server)).collect();
    exposure(page, &exposed);
    exposure_by_policy(page, &exposed);
    counters(page, &shares);
}

/// Writes the shares that are not served any more and have acknowledged something that is not stable.
pub(crate) fn not_served(server: &Server<HostVfs>) -> Vec<(String, Exposure)> {
    let served = server.shares();
    let mut left = server.durability.exposures();
    left.retain(|(share, exposed)| {
        let any = exposed.inodes > 0 || exposed.bytes > 0 || exposed.poisoned_inodes > 0;
        any && served.find(share).is_none()
    });
    left
}

/// The memory for buffers.
pub(crate) fn memory(server: &Server<HostVfs>) -> MemoryStatus {
    let figures = server.memory.figures();
    MemoryStatus {
        limit_bytes: figures.limit,
        used_bytes: figures.used,
        waiting: figures.waiting,
        waits: figures.waits,
        evictions: figures.evictions,
        refusals: figures.refusals,
    }
}

fn write_memory(page: &mut Page, figures: MemoryStatus) {
    let help = "Memory for buffers of all connections, by what is in use and what may be.";
    let mut family = page.family("holdfast_buffer_memory_bytes", help);
    family.sample("", &[("memory", "used")], figures.used_bytes);
    family.sample("", &[("memory", "limit")], figures.limit_bytes);
    let help = "Connections that wait for memory.";
    page.single("holdfast_buffer_memory_waiting", help, figures.waiting);
    let help = "Times that a connection had to wait for memory.";
    page.single("holdfast_buffer_memory_waits_total", help, figures.waits);
    let name = "holdfast_buffer_memory_evictions_total";
    let help = "Connections closed because their clients took nothing while others waited.";
    page.single(name, help, figures.evictions);
    let name = "holdfast_buffer_memory_refusals_total";
    let help = "Requests refused because there was no memory for what they would keep.";
    page.single(name, help, figures.refusals);
}

/// Families as an array: name, help text, and how to read each.
macro_rules! rows {
    ($( $name:literal, $help:literal, $($read:expr),+; )*) => { [$( ($name, $help, $($read),+) ),*] };
}

/// The policies in force, and why others are not.
fn promises(page: &mut Page, shares: &[&Share<HostVfs>]) {
    let help = "The durability policy in force; always 1.";
    let mut family = page.family("holdfast_share_policy", help);
    for share in shares {
        let policy = share.gate.effective_policy().to_string();
        let labels = [("share", &*share.config.name), ("policy", &*policy)];
        family.sample("", &labels, 1);
    }
    let help = "A failed sync set the lazy policies of the share aside for honor.";
    each_share(page, shares, "holdfast_share_tripped", help, |share| {
        u8::from(share.gate.set_aside().failed_sync)
    });
    let help = "The power guard set the lazy policies of the share aside for honor.";
    each_share(page, shares, "holdfast_share_guarded", help, |share| {
        u8::from(share.gate.set_aside().guard)
    });
    let help = "For how long the disk has been too slow for the bound, so that FLUSH waits as under \
                honor; 0 while it is not.";
    let name = "holdfast_bound_too_slow_seconds";
    each_share(page, shares, name, help, |share| {
        let slow = share.gate.too_slow();
        slow.map_or(0.0, |slow| slow.lasts.as_secs_f64())
    });
}

/// The data at risk of each share.
fn exposure(page: &mut Page, shares: &[(String, Exposure)]) {
    type Figure = fn(&Exposure) -> f64;
    let figures: [(&str, &str, Figure); 5] = rows! {
        "holdfast_exposed_bytes", "Bytes acknowledged and not known to be stable; an upper bound.",
            |exposure| exposure.bytes as f64;
        "holdfast_exposed_inodes", "Inodes with anything not known to be stable.", |exposure| exposure.inodes as f64;
        "holdfast_exposed_oldest_seconds", "Age of the oldest change not known to be stable.",
            |exposure| exposure.oldest_age.as_secs_f64();
        "holdfast_poisoned_inodes", "Inodes whose sync failed and which are not repaired.",
            |exposure| exposure.poisoned_inodes as f64;
        "holdfast_unproven_bytes", "Bytes that a failed sync left unproven.", |exposure| exposure.unproven_bytes as f64;
    };
    for (name, help, figure) in figures {
        let mut family = page.family(name, help);
        for (share, exposed) in shares {
            family.sample("", &[("share", share)], figure(exposed));
        }
    }
}

/// Writes a gauge with a value for each share.
fn each_share<T: std::fmt::Display>(
    page: &mut Page,
    shares: &[&Share<HostVfs>],
    name: &str,
    help: &str,
    value: impl Fn(&Share<HostVfs>) -> T,
) {
    let mut family = page.family(name, help);
    for share in shares {
        family.sample("", &[("share", &share.config.name)], value(share));
    }
}

/// The part of each policy: rules let several acknowledge on one share.
fn exposure_by_policy(page: &mut Page, shares: &[(String, Exposure)]) {
    type Figure = fn(&durability::PolicyExposure) -> f64;
    let figures: [(&str, &str, Figure); 3] = rows! {
        "holdfast_exposed_by_policy_bytes",
            "Bytes acknowledged under a policy and not known to be stable; an upper bound.", |part| part.bytes as f64;
        "holdfast_exposed_by_policy_inodes",
            "Inodes with anything acknowledged under a policy and not known to be stable.", |part| part.inodes as f64;
        "holdfast_exposed_by_policy_oldest_seconds",
            "Age of the oldest change acknowledged under a policy and not known to be stable.",
            |part| part.oldest_age.as_secs_f64();
    };
    for (name, help, figure) in figures {
        let mut family = page.family(name, help);
        for (share, exposed) in shares {
            for kind in durability::PolicyKind::ALL {
                let labels = [("share", &**share), ("policy", kind.name())];
                family.sample("", &labels, figure(&exposed.of(kind)));
            }
        }
    }
}

/// The counters of the shares' gates.
fn counters(page: &mut Page, shares: &[&Share<HostVfs>]) {
    let counted = shares.iter();
    let counted = counted.map(|share| (&*share.config.name, share.gate.counters()));
    let counted: Vec<_> = counted.collect();
    if counted.is_empty() {
        return;
    }
    for (name, help, count) in Counters::COUNTS {
        let mut family = page.family(&format!("holdfast_{name}_total"), help);
        for (share, counters) in &counted {
            family.sample("", &[("share", share)], count(counters));
        }
    }
    for (name, help, unit, view) in Counters::HISTOGRAMS {
        let mut family = page.begin(&format!("holdfast_{name}"), "histogram", help);
        for (share, counters) in &counted {
            family.histogram(share, view(counters), *unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_histograms_add_up() {
        let mut page = Page::default();
        let mut family = page.begin("x", "histogram", "Help.");
        let mut view = HistogramView {
            buckets: [0; durability::BUCKETS],
            sum: 9,
        };
        view.buckets[1] = 2;
        view.buckets[27] = 1;
        family.histogram("a\"\\\n", &view, 1.0);
        let text = page.finish();
        assert!(text.starts_with("# HELP x Help.\n# TYPE x histogram\n"));
        assert!(text.contains("x_bucket{share=\"a\\\"\\\\\\n\",le=\"0\"} 0\n"));
        assert!(text.contains("le=\"1\"} 2\n"));
        assert!(text.contains("le=\"+Inf\"} 3\n"));
        assert!(
            text.ends_with("x_sum{share=\"a\\\"\\\\\\n\"} 9\nx_count{share=\"a\\\"\\\\\\n\"} 3\n")
        );
    }
}
