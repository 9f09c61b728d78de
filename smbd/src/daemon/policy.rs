//! The front's half of `holdfast policy`: consent, the record of changes, and the promise of each
//! share.
//!
//! The service changes the policy and syncs, and checks the consent to a possible loss again, by the configuration that
//! is in force then. Here the last changes are remembered with their authors, until a reload or the end. Answers and
//! status use the same words.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::Front;
use crate::{
    Error,
    answers::{Explained, LastChange, PolicyChange, ShareStatus},
    args::Question,
    config::{self, Policy},
    service::{PolicySetting, Service},
    status::explain,
};

/// The line of `status` about a share whose promise ends with the host.
const WARNING: &str = "acknowledged flushes are NOT on stable storage: a crash or power failure \
                       of this machine loses them";
/// The remark about a share that is late.
const NOT_SERVED: &str = "is not served now, because its file system fails or does not answer";
/// Shares whose last change is remembered; more than a configuration can have.
const CHANGES_MAX: usize = 10_000;

/// The last change of each share's policy, by its folded name.
#[derive(Debug, Default)]
pub(super) struct Changes(RefCell<BTreeMap<String, LastChange>>);

impl Changes {
    /// Remembers a change of a share's policy and its author.
    fn note(&self, change: &PolicyChange, without_rules: bool, who: &str) {
        let mut changes = self.0.borrow_mut();
        let key = change.share.share.to_uppercase();
        if changes.len() < CHANGES_MAX || changes.contains_key(&key) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let unix_s = now.map_or(0, |now| now.as_secs());
            let change = LastChange {
                policy: change.share.configured_policy.clone(),
                was: change.was.clone(),
                without_rules,
                by: who.to_owned(),
                at: vfs::Timestamp {
                    secs: i64::try_from(unix_s).unwrap_or(i64::MAX),
                    nanos: 0,
                }
                .utc(),
                unix_s,
            };
            changes.insert(key, change);
        }
    }

    /// Forgets all changes, because the configuration is in force again.
    pub(super) fn forget(&self) {
        self.0.borrow_mut().clear();
    }

    fn of(&self, share: &str) -> Option<LastChange> {
        self.0.borrow().get(&share.to_uppercase()).cloned()
    }
}

impl<S: Service> Front<S> {
    /// Shows the policy of one share, or of all.
    pub(super) fn show_policies(&self, share: Option<&str>) -> Result<Vec<ShareStatus>, Error> {
        self.check_served(share)?;
        let mut answer = self.service.policies(share)?;
        for share in &mut answer {
            self.complete(share);
        }
        Ok(answer)
    }

    /// Sets the policy of one share, or of all.
    pub(super) async fn set_policy(
        &self,
        setting: PolicySetting,
    ) -> Result<Vec<PolicyChange>, Error> {
        self.check_served(setting.share.as_deref())?;
        setting.check(&self.config())?;
        let wanted = setting.clone();
        let mut answer = self
            .on_worker(move |service| service.set_policy(setting))
            .await??;
        for change in &mut answer {
            // A reload may have brought another one into force while dirty data were synced for this one.
            if change.share.configured_policy == wanted.policy.to_string() {
                self.changes.note(change, wanted.without_rules, &wanted.who);
            }
            self.complete(&mut change.share);
        }
        Ok(answer)
    }

    /// Explains the policy of an open. Finding its share may wait for a disk.
    pub(super) async fn explain(&self, question: Question) -> Result<Explained, Error> {
        let config = self.config();
        let (known, users) = (Arc::clone(&config), self.users.borrow().clone());
        let locating =
            tokio::task::spawn_blocking(move || explain::locate(&known, Ok(users), &question));
        let located = locating.await??;
        let mut late = config.late.iter();
        let mut answer = match late.find(|share| share.name == located.share) {
            None => self.service.explain(&located)?,
            Some(share) => {
                let mut answer = explain::by_settings(share, &located.opener);
                answer.notes.push(format!("{} {NOT_SERVED}", share.name));
                answer
            }
        };
        answer.notes.extend(located.note);
        if answer.policy == Policy::TreatHostAsStableStorage.to_string() {
            answer.warning = Some(WARNING.to_owned());
        }
        Ok(answer)
    }

    /// Refuses what needs the share's disk while the share is late.
    fn check_served(&self, share: Option<&str>) -> Result<(), Error> {
        let late = share.and_then(|name| self.late_share(name));
        match late {
            Some(name) => fail!(
                "{name} {NOT_SERVED}\n  = `holdfast status` says why; it is served with what the configuration says \
                 when that is over"
            ),
            None => Ok(()),
        }
    }

    /// The name of a share that is late.
    pub(super) fn late_share(&self, name: &str) -> Option<String> {
        let config = self.config();
        let mut late = config.late.iter();
        late.find(|one| config::is_same_share(&one.name, name))
            .map(|one| one.name.clone())
    }

    /// Called when an administrator accepts the data lost at the start, of a share or of all.
    ///
    /// # Errors
    /// That could not be stored.
    pub(super) async fn accept_loss(&self, share: Option<&str>) -> Result<(), Error> {
        let config = self.config();
        let folders = share.map(|name| {
            let mut shares = config.shares.iter().chain(&config.late);
            let named = shares.find(|one| config::is_same_share(&one.name, name));
            Vec::from_iter(named.map(|one| one.path.clone()))
        });
        let lost = Arc::clone(self.late.lost());
        let accepting = tokio::task::spawn_blocking(move || lost.accept(folders.as_deref()));
        accepting.await?.map_err(|error| {
            format!(
                "the loss at the start is accepted, but that could not be stored: a restart reports it again: {error}, \
                 then repeat: holdfast policy clear-latch"
            )
            .into()
        })
    }

    /// Adds the front's facts to the status of a share.
    pub(super) fn complete(&self, share: &mut ShareStatus) {
        share.changed = self.changes.of(&share.share);
        share.warning = warning(share);
        share.replaced = self.replaced.borrow().contains(&share.share);
        let config = self.config();
        let named = config.shares.iter().find(|one| one.name == share.share);
        share.lost_at_start = named.and_then(|one| self.late.lost().of(&one.path));
        self.protection.complete(share);
    }
}

/// The warning for a share that may lose acknowledged data with its host, by its policy or by the
/// rules named.
fn warning(share: &ShareStatus) -> Option<String> {
    let lazy = Policy::TreatHostAsStableStorage.to_string();
    if share.policy == lazy || share.configured_policy == lazy {
        return Some(WARNING.to_owned());
    }
    let rules = share.rules.iter().filter(|rule| rule.policy == lazy);
    let rules: Vec<&str> = rules.map(|rule| rule.rule.as_str()).collect();
    (!rules.is_empty()).then(|| format!("by {}, {WARNING}", rules.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::RuleStatus;

    #[test]
    fn the_warning_is_for_every_way_to_lose() {
        let lazy = "treat-host-as-stable-storage";
        let share = |policy: &str, configured: &str, rules: &[(&str, &str)]| ShareStatus {
            policy: policy.to_owned(),
            configured_policy: configured.to_owned(),
            rules: rules
                .iter()
                .map(|(rule, policy)| RuleStatus {
                    rule: (*rule).to_owned(),
                    policy: (*policy).to_owned(),
                    ..RuleStatus::default()
                })
                .collect(),
            ..ShareStatus::default()
        };
        let plain = Some(WARNING.to_owned());
        assert_eq!(warning(&share(lazy, lazy, &[])), plain);
        assert_eq!(warning(&share("honor", lazy, &[])), plain);
        let rules = [("a", lazy), ("b", "honor"), ("c", lazy)];
        let by_rule = warning(&share("honor", "honor", &rules)).unwrap();
        assert!(by_rule.starts_with("by a and c, acknowledged"), "{by_rule}");
        assert_eq!(warning(&share("honor", "honor", &[])), None);
    }
}
