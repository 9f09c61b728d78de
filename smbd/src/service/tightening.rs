//! Policy changes under way: policies and rules that are in force while data that were dirty before are synced.
//!
//! Each share has its own; a hanging disk delays the answers about its own shares and nothing else. A caller that
//! changes a share meanwhile waits for the earlier change there as well: no change is reported as done while an
//! earlier one of the same share is not. At most one entry for each share.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use durability::Gate;
use tokio::sync::watch;

use super::promises;
use crate::{Error, answers::PolicyOutcome, config::ShareSettings, host_vfs::HostVfs, lock};

/// The outcome of a change; `None` where it changed nothing.
type Outcome = Option<PolicyOutcome>;

/// The outcome, once there is one; closed without one if the task died.
type Pending = watch::Receiver<Option<Outcome>>;

/// The tightenings of all shares.
#[derive(Debug, Default)]
pub(super) struct Tightenings(Mutex<BTreeMap<String, Pending>>);

/// A tightening that is in force.
#[derive(Debug)]
pub(super) struct Tightening(Pending);

impl Tightenings {
    /// Begins `setting`, which puts a change into force at its first poll and returns the outcome. Must be called on a
    /// worker.
    pub(super) fn begin(
        &self,
        share: &str,
        setting: impl Future<Output = Outcome> + 'static,
    ) -> Tightening {
        let mut setting = Box::pin(setting);
        let mut nobody = Context::from_waker(Waker::noop());
        let first = setting.as_mut().poll(&mut nobody);
        let mut under_way = lock(&self.0);
        under_way.retain(|_, outcome| outcome.has_changed().is_ok());
        match (first, under_way.get(share).cloned()) {
            (Poll::Ready(outcome), None) => Tightening(watch::channel(Some(outcome)).1),
            (Poll::Ready(None), Some(earlier)) => Tightening(earlier),
            (first, earlier) => {
                let (report, outcome) = watch::channel(None);
                under_way.insert(share.to_owned(), outcome.clone());
                tokio::task::spawn_local(async move {
                    let outcome = match first {
                        Poll::Ready(outcome) => outcome,
                        Poll::Pending => setting.await,
                    };
                    if let Some(earlier) = earlier
                        && Tightening(earlier).wait().await.is_err()
                    {
                        return;
                    }
                    report.send_replace(Some(outcome));
                });
                Tightening(outcome)
            }
        }
    }

    /// Begins to put into force what a reload has changed of shares. The future has the outcomes, and the errors of
    /// [`Tightening::wait`].
    pub(super) fn reload(
        &self,
        changed: Vec<(Arc<Gate<HostVfs>>, ShareSettings)>,
    ) -> impl Future<Output = Result<Vec<PolicyOutcome>, Error>> + use<> {
        let begin = |(gate, share): (Arc<Gate<HostVfs>>, _)| {
            let name = gate.name().to_owned();
            self.begin(&name, promises::reload(gate, share))
        };
        let begun: Vec<Tightening> = changed.into_iter().map(begin).collect();
        async move {
            let mut outcomes = Vec::new();
            for one in begun {
                outcomes.extend(one.wait().await?);
            }
            Ok(outcomes)
        }
    }
}

impl Tightening {
    /// The result, once everything that was dirty is on disk or could not be made stable.
    ///
    /// # Errors
    /// The result is unknown: the task that synced has ended.
    pub(super) async fn wait(mut self) -> Result<Outcome, Error> {
        let outcome = self.0.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|outcome| outcome.clone());
        outcome.ok_or_else(|| {
            "the new policy is in force, but it is not known whether everything that was dirty before is on disk: the \
             task that synced it is gone\n  = `holdfast status` shows what is dirty"
                .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::service::tests::run;

    fn outcome(rules: usize) -> Outcome {
        Some(PolicyOutcome {
            rules,
            ..PolicyOutcome::default()
        })
    }

    #[test]
    fn a_later_change_waits_for_an_earlier_one_of_its_share_only() {
        run(async {
            let tightenings = Tightenings::default();
            let (disk, hangs) = oneshot::channel::<()>();
            let slow = tightenings.begin("a", async move {
                hangs.await.unwrap();
                outcome(1)
            });
            let ready = |outcome: Outcome| async move { outcome };
            let nothing = tightenings.begin("a", ready(None));
            let changed = tightenings.begin("a", ready(outcome(2)));
            let other = tightenings.begin("b", ready(outcome(3)));
            assert_eq!(other.wait().await, Ok(outcome(3)));
            let all = tokio::task::spawn_local(async {
                (
                    slow.wait().await,
                    nothing.wait().await,
                    changed.wait().await,
                )
            });
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert!(!all.is_finished());
            disk.send(()).unwrap();
            let all = all.await.unwrap();
            assert_eq!(all, (Ok(outcome(1)), Ok(outcome(1)), Ok(outcome(2))));
            // It is over.
            let later = tightenings.begin("a", ready(None));
            assert_eq!(*later.0.borrow(), Some(None));
        });
    }

    #[test]
    fn a_tightening_that_died_is_no_success() {
        run(async {
            let tightenings = Tightenings::default();
            let died = tightenings.begin("a", async {
                tokio::task::yield_now().await;
                panic!("as a bug would")
            });
            let after = tightenings.begin("a", async { outcome(2) });
            died.wait().await.unwrap_err();
            after.wait().await.unwrap_err();
        });
    }
}
