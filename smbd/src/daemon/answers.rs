//! The answers of the front to administrators: status, and the page of metrics.

use vfs::linux::trap;

use super::Front;
use crate::{
    answers::{ListenerStatus, StatusReport, WorkerStatus, millis},
    metrics::exposition::Page,
    runtime::log,
    service::Service,
};

impl<S: Service> Front<S> {
    pub(super) fn status(&self) -> StatusReport {
        let config = self.config();
        let served = || config.listeners.iter().zip(&self.members);
        let listeners = served().map(|(listener, members)| ListenerStatus {
            address: listener.address.to_string(),
            interface: listener.interface.clone(),
            workers: members.clone(),
        });
        // Where the connections of a worker arrive.
        let arrivals = |worker: usize| {
            let its = served().filter(move |(_, members)| members.contains(&worker));
            its.map(|(listener, _)| match &listener.interface {
                Some(interface) => format!("{} on {interface}", listener.address),
                None => listener.address.to_string(),
            })
        };
        let workers = self.workers.iter().enumerate();
        let workers = workers.map(|(index, worker)| WorkerStatus {
            worker: index,
            core: worker.core(),
            listeners: arrivals(index).collect(),
            cpu_ms: millis(worker.cpu_time()),
            file_io: worker.file_io().to_owned(),
            connections: worker.load(),
        });
        let mut server = self.service.status();
        for share in &mut server.shares {
            self.complete(share);
        }
        let file = self.config_file.as_ref();
        StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            config: file.map(|file| file.display().to_string()),
            state_dir: config.server.state_dir.display().to_string(),
            log_lines_lost: log::lost(),
            sandbox: self.sandbox.status(),
            connections: self.admission.figures(),
            listeners: listeners.collect(),
            workers: workers.collect(),
            server,
            late_shares: self.late.status(&config),
        }
    }

    pub(super) fn metrics(&self) -> String {
        let figures = self.admission.figures();
        let mut page = Page::default();
        let mut family = page.family("holdfast_info", "This server; always 1.");
        family.sample("", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        let uptime = self.started.elapsed().as_secs();
        page.single("holdfast_uptime_seconds", "Time since the start.", uptime);
        let help = "Lines of the log that could not be written.";
        page.single("holdfast_log_lines_lost_total", help, log::lost());
        let name = "holdfast_system_calls_refused_total";
        let help = "System calls that the sandbox refused.";
        page.single(name, help, trap::refused());
        page.single("holdfast_connections", "Connections.", figures.connections);
        let name = "holdfast_connections_unauthenticated";
        let help = "Connections that nobody has logged in on.";
        page.single(name, help, figures.unauthenticated);
        let name = "holdfast_connections_accepted_total";
        page.single(name, "Connections let in.", figures.accepted);
        let name = "holdfast_connections_refused_total";
        page.single(name, "Connections closed at accept.", figures.refused);
        let name = "holdfast_connections_displaced_total";
        let help = "Connections without a login closed for a newcomer.";
        page.single(name, help, figures.displaced);
        let help = "Connections of each worker.";
        let mut family = page.family("holdfast_worker_connections", help);
        for (index, worker) in self.workers.iter().enumerate() {
            family.sample("", &[("worker", &index.to_string())], worker.load());
        }
        let help = "Time each worker spent on a core.";
        let mut family = page.family("holdfast_worker_cpu_seconds_total", help);
        for (index, worker) in self.workers.iter().enumerate() {
            let spent = worker.cpu_time().as_secs_f64();
            family.sample("", &[("worker", &index.to_string())], spent);
        }
        self.late_metrics(&mut page);
        self.service.metrics(&mut page);
        self.protection.metrics(&mut page);
        page.finish()
    }

    /// The figures of shares that are held back, and of those of which a start has lost data.
    fn late_metrics(&self, page: &mut Page) {
        let (config, late) = (self.config(), &self.late);
        let help =
            "Shares refused because their file system has not answered since the start, or fails.";
        page.single("holdfast_shares_late", help, config.late.len());
        let help =
            "Shares that are not served, and whether their file system fails or hangs; 1 each.";
        let mut family = page.family("holdfast_share_not_served", help);
        for share in &config.late {
            let why = if late.fails(share) { "fails" } else { "hangs" };
            family.sample("", &[("share", &share.name), ("file_system", why)], 1);
        }
        let help =
            "Shares whose first sync after an unclean end failed, until the loss is accepted.";
        let mut family = page.family("holdfast_share_lost_at_start", help);
        for share in config.shares.iter().chain(&config.late) {
            let lost = late.lost().of(&share.path).is_some();
            family.sample("", &[("share", &share.name)], u8::from(lost));
        }
    }
}
