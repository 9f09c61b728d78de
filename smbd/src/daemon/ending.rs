//! The orderly end: the server first stops accepting; then connections finish or are closed after the grace period,
//! dirty data are synced, threads end, and the report is logged. Only then does `run` return. A hanging disk delays the
//! end by six grace periods at most: two for the connections, two for the sync, which is given up when no part of it
//! has completed for as long as the grace period, and one for each later step. Threads that have not ended by then are
//! abandoned, and the mark of an unclean end stays.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use super::{Carried, Front};
use crate::{
    Error,
    config::places,
    host::notify,
    runtime::{apart::on_thread, worker::Worker},
    service::{Service, SyncReport},
};

/// Even if the grace period is zero for connections, the disk gets this long to answer.
pub(super) const GRACE_MIN: Duration = Duration::from_secs(1);

impl<S: Service> Front<S> {
    /// Ends in order. Returns true if all that was acknowledged is stable.
    pub(super) async fn end(&self) -> Result<bool, Error> {
        tracing::info!("stopping: no new connections");
        notify::notify("STOPPING=1");
        for task in self.tasks.take() {
            task.abort();
        }
        self.stop.send_replace(true);
        let config = self.config();
        let grace = config.server.shutdown_grace.max(GRACE_MIN);
        let mut cut_off = 0;
        // All workers close their connections at the same time.
        let drained_by = tokio::time::Instant::now() + 2 * grace;
        for worker in &self.workers {
            cut_off += self.drained(worker, drained_by).await;
        }
        let report = if config.durability.sync_on_stop {
            self.sync_all(grace).await
        } else {
            Ok(SyncReport::default())
        };
        if !config.durability.sync_on_stop || report.is_err() {
            // A disk that hangs must not delay the end here either.
            let closing = self.on_worker(Service::close);
            let _ = tokio::time::timeout(grace, closing).await;
        }
        let socket = config.server.state_dir.join(places::CONTROL_SOCKET);
        // If it stays, that does no harm.
        change_in_time(grace, move || drop(std::fs::remove_file(socket))).await;
        // If the sync was given up, the threads would wait for the same disk.
        let report = report?;
        for worker in &self.workers {
            worker.ask_to_end();
        }
        let asked = Instant::now();
        for worker in &self.workers {
            worker.end(grace.saturating_sub(asked.elapsed())).await;
        }
        let synced = config.durability.sync_on_stop;
        tracing::info!(
            cut_off,
            synced,
            inodes = report.inodes,
            bytes = report.bytes,
            "stopped"
        );
        if report.errors.is_empty() {
            return Ok(self.service.is_stable() && self.late.has_synced_all());
        }
        for error in &report.errors {
            tracing::error!(%error, "a sync at the end failed: acknowledged data may be lost");
        }
        fail!(
            "{} errors while syncing at the end; acknowledged data may be lost; the first: {}",
            report.errors.len(),
            report.errors.first().map_or("", String::as_str)
        )
    }

    /// The number of connections that a worker had to close. It does that by itself after the grace period, unless its
    /// thread hangs.
    async fn drained(&self, worker: &Worker<Carried<S>>, by: tokio::time::Instant) -> usize {
        let core = worker.core();
        let late = tokio::time::timeout_at(by, worker.drained());
        late.await.unwrap_or_else(|_| {
            tracing::error!(
                core,
                "a worker does not answer: its connections end with the process"
            );
            worker.load()
        })
    }

    /// The sync at the end. A disk may be slow and have much to do, so it is given up only if no sync at all has ended
    /// for as long as the grace period.
    ///
    /// # Errors
    /// The sync was given up.
    async fn sync_all(&self, grace: Duration) -> Result<SyncReport, Error> {
        let mut syncing = pin!(self.on_worker(Service::sync_all));
        let mut ended = self.service.syncs_ended();
        loop {
            if let Ok(report) = tokio::time::timeout(grace, syncing.as_mut()).await {
                return Ok(report.unwrap_or_else(|_| SyncReport {
                    errors: vec!["the sync at the end did not complete".to_owned()],
                    ..SyncReport::default()
                }));
            }
            let now = self.service.syncs_ended();
            if now == ended {
                break;
            }
            ended = now;
        }
        let dirty = self.service.dirty_data();
        let (inodes, bytes, shares) = (dirty.inodes, dirty.bytes, dirty.shares.join(", "));
        tracing::error!(
            inodes,
            bytes,
            shares,
            "the disk does not answer: stopping without knowing that this is stable; the next \
             start syncs before it serves"
        );
        fail!(
            "no sync has ended for {grace:?}: stopped with {inodes} inodes ({bytes} bytes) of \
             shares ({shares}) not known to be stable\n  = the next start syncs before it serves; \
             a power cut before that may lose them"
        )
    }
}

/// Changes something in the state folder, and waits for that no longer than `most`, as its disk may hang. Returns
/// whether it was done by then.
pub(super) async fn change_in_time(most: Duration, change: impl FnOnce() + Send + 'static) -> bool {
    let changed = tokio::time::timeout(most, on_thread("end", change)).await;
    matches!(changed, Ok(Ok(())))
}
