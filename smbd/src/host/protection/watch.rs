//! The assessments of the shares of a running server: at the start, after each reload, and again
//! from time to time, since mounts change and batteries run down.
//!
//! The front requests an assessment, which is made on a thread that may wait. Each change of an
//! assessment is logged with one line, as a warning if it is alarming; an unchanged one is not
//! logged again.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use super::{AssessedFolder, Assessment, Machine, Root, metrics};
use crate::{
    answers::ShareStatus,
    config::{Config, Policy, ShareSettings, in_time, policy},
    metrics::exposition::Page,
};

/// The time between two assessments.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);

/// The latest assessment of each share, by its name.
#[derive(Debug, Default)]
pub(crate) struct LatestAssessments {
    shares: RefCell<BTreeMap<String, Assessment>>,
}

/// Assesses the storage of every share of a configuration; `None` where the folder does not answer in time.
pub(crate) fn of_config(config: &Config) -> Vec<Option<Assessment>> {
    let machine = Arc::new(Machine::read(Root::default()));
    let protection = config.durability.protection;
    let shares = config.shares.iter();
    let assess = |share: &ShareSettings| {
        let (machine, path) = (Arc::clone(&machine), share.path.clone());
        in_time(&share.path, move || {
            machine.assess(&AssessedFolder::of(&path), protection)
        })
    };
    shares.map(assess).collect()
}

impl LatestAssessments {
    /// Takes the assessments of [`of_config`], in its order, and logs those that changed. A share whose folder did not
    /// answer keeps its last one.
    pub(crate) fn put(&self, config: &Config, found: Vec<Option<Assessment>>) {
        let mut shares = BTreeMap::new();
        let old = self.shares.take();
        for (share, found) in config.shares.iter().zip(found) {
            let Some(found) = found else {
                tracing::warn!(
                    share = share.name,
                    "its storage was not examined: the folder does not answer"
                );
                shares.extend(
                    old.get(&share.name)
                        .cloned()
                        .map(|last| (share.name.clone(), last)),
                );
                continue;
            };
            if old.get(&share.name) != Some(&found) {
                announce(&share.name, &share.durability.policy.to_string(), &found);
            }
            shares.insert(share.name.clone(), found);
        }
        self.shares.replace(shares);
    }

    /// Adds what is known to the status of a share.
    pub(crate) fn complete(&self, share: &mut ShareStatus) {
        if let Some(found) = self.shares.borrow().get(&share.share) {
            share.device = Some(found.words());
            share.protection = Some(found.status());
            share.broken_promise = broken_promise(&share.policy, found);
        }
    }

    /// Adds the assessments to the metrics page.
    pub(crate) fn metrics(&self, page: &mut Page) {
        let known = self.shares.borrow();
        metrics(page, known.iter().map(|(name, found)| (&**name, found)));
    }
}

/// The text to show if the devices do not keep the promise of the policy.
pub(crate) fn broken_promise(policy: &str, found: &Assessment) -> Option<String> {
    let lazy = Policy::TreatHostAsStableStorage.to_string();
    let broken = found.broken_by().filter(|_| policy != lazy)?;
    Some(format!("THIS PROMISE IS NOT KEPT HERE: {broken}"))
}

/// `durability: share=db policy=honor device=volatile-cache,no-fua,unprotected`
fn announce(share: &str, policy: &str, found: &Assessment) {
    let (share, policy) = (policy::one_word(share), policy::in_brackets(policy));
    let (words, stack) = (found.words(), found.stack());
    let says = found.sentences().join("; ");
    let line = format!("durability: share={share} policy={policy} device={words}");
    if found.is_alarming() {
        tracing::warn!(%stack, "{line}: {says}");
    } else {
        tracing::info!(%stack, "{line}");
    }
}
