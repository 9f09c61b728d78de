//! The promise of each share: its policy and rules, shown, explained and changed.
//!
//! The engine decides and syncs; here its answers become those of `status` and `holdfast policy`, and the
//! configuration's rules are given to the gates.

use std::{
    io,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use durability::{Gate, InForce, LatchRecord, Policy, SetAside, ShareDurability, StopReport};
use smb_auth::UserDb;
use smb_server::{Share, Shares};

use super::HostVfs;
use crate::{
    Error,
    answers::{
        Explained, InForceNow, InForcePolicy, NotOpen, PoisonedStatus, PolicyExposureStatus,
        PolicyOutcome, RuleStatus, SetAsideReason, ShareStatus, SyncErrorReport, Synced,
        TooSlowStatus, millis,
    },
    config::{self, Config, policy},
    service::PolicySetting,
    status::explain::{self, Located},
};

/// Poisoned inodes that the status of a share lists.
const POISONED_SHOWN_MAX: usize = 100;
/// Errors of a policy's change that its answer lists.
const ERRORS_SHOWN_MAX: usize = 20;
/// Longest time that a reload waits for dirty data under the name of a new share.
const FIRST_TERMS_MAX: Duration = Duration::from_secs(10);
/// The actor for changes that the configuration file makes.
pub(super) const CONFIGURATION: &str = "configuration file";

/// A share's policy, its promise, and the data that are acknowledged and not yet stable.
pub(super) fn share_status(share: &Share<HostVfs>) -> ShareStatus {
    let gate = &share.gate;
    let exposure = gate.exposure();
    let poisoned = gate.poisoned();
    let poisoned = poisoned.iter().take(POISONED_SHOWN_MAX);
    let rules = gate.rules();
    let rules = rules.iter().map(|rule| RuleStatus {
        rule: rule.name.clone(),
        policy: rule.policy.to_string(),
        criteria: explain::criteria(rule),
    });
    let by_policy = durability::PolicyKind::ALL.iter().filter_map(|kind| {
        let part = exposure.of(*kind);
        (part.inodes > 0 || part.bytes > 0).then(|| PolicyExposureStatus {
            policy: kind.name().to_owned(),
            exposed_bytes: part.bytes,
            exposed_inodes: part.inodes,
            oldest_ms: millis(part.oldest_age),
        })
    });
    let (settings, policy) = (gate.settings(), gate.effective_policy());
    ShareStatus {
        share: share.config.name.clone(),
        policy: policy.to_string(),
        configured_policy: settings.policy.to_string(),
        set_aside: reasons(gate.set_aside()),
        promise: policy::promise(&policy, settings.flush_times),
        too_slow: gate.too_slow().map(|slow| TooSlowStatus {
            for_ms: millis(slow.lasts),
            sync_ms: millis(slow.sync),
        }),
        rules: rules.collect(),
        exposed_bytes: exposure.bytes,
        exposed_inodes: exposure.inodes,
        oldest_ms: millis(exposure.oldest_age),
        by_policy: by_policy.collect(),
        poisoned_inodes: exposure.poisoned_inodes,
        unproven_bytes: exposure.unproven_bytes,
        poisoned: poisoned.map(poisoned_status).collect(),
        ..ShareStatus::default()
    }
}

/// The reasons why the lazy policies of a share are not in force.
fn reasons(aside: SetAside) -> Vec<SetAsideReason> {
    let failed = aside.failed_sync.then_some(SetAsideReason::FailedSync);
    let guard = aside.guard.then_some(SetAsideReason::PowerGuard);
    failed.into_iter().chain(guard).collect()
}

fn poisoned_status(one: &LatchRecord) -> PoisonedStatus {
    let unproven = one.unproven_bytes();
    PoisonedStatus {
        inode: one.key.ino,
        device: format!("{:#x}", one.key.fs),
        path: one.path.to_string(),
        error: one.error.to_string(),
        since: one.at.utc(),
        unproven_bytes: (unproven != u64::MAX).then_some(unproven),
        metadata: one.metadata || one.size || one.entries,
        names: !one.names.is_empty(),
    }
}

/// Refuses a policy that does not write through for a continuously available share.
pub(super) fn check_availability(
    shares: &Shares<HostVfs>,
    change: &PolicySetting,
) -> Result<(), Error> {
    let durability = ShareDurability::with_policy(change.policy);
    let Err(error) = durability.check_continuous_availability() else {
        return Ok(());
    };
    let mut available = shares.iter().map(|share| &share.config);
    match available.find(|share| share.continuous_availability && change.concerns(&share.name)) {
        Some(share) => fail!(
            "share {}: {error}\n  = use honor or strict-sync, or remove continuous_availability",
            share.name
        ),
        None => Ok(()),
    }
}

/// Sets the policy of a share: it is in force from the first poll on.
pub(super) async fn set(gate: Arc<Gate<HostVfs>>, change: PolicySetting) -> Option<PolicyOutcome> {
    let who = &change.who;
    let was = gate.settings().policy;
    let rules = async {
        match change.without_rules {
            true => gate.set_rules(Arc::default(), who).await,
            false => StopReport::default(),
        }
    };
    let (report, more) = tokio::join!(gate.set_policy(change.policy, who), rules);
    Some(PolicyOutcome {
        share: gate.name().to_owned(),
        was: was.to_string(),
        policy: change.policy.to_string(),
        rules: gate.rules().iter().count(),
        synced: synced(&whole(report, more)),
    })
}

/// The one report on a policy and rules that were set together. Either both synced everything that the share had
/// dirty, or one had nothing to sync.
fn whole(policy: StopReport, rules: StopReport) -> StopReport {
    let (more, less) = match policy.failed < rules.failed {
        true => (rules, policy),
        false => (policy, rules),
    };
    StopReport {
        inodes: more.inodes.max(less.inodes),
        bytes: more.bytes.max(less.bytes),
        ..more
    }
}

/// The result of the sync for a stricter policy.
fn synced(report: &StopReport) -> Synced {
    let errors = report.errors.iter().take(ERRORS_SHOWN_MAX);
    let errors = errors.map(|(key, error)| SyncErrorReport {
        inode: key.ino,
        device: format!("{:#x}", key.fs),
        error: error.to_string(),
    });
    Synced {
        inodes: report.inodes,
        bytes: report.bytes,
        failed: report.failed,
        errors: errors.collect(),
    }
}

/// Brings one share of a new configuration into force, for connected clients too, from the first poll on. `None` if
/// nothing changes.
pub(super) async fn reload(
    gate: Arc<Gate<HostVfs>>,
    share: config::ShareSettings,
) -> Option<PolicyOutcome> {
    let wanted = share.durability;
    gate.set_options(wanted);
    let (was, old_rules) = (gate.settings().policy, gate.rules());
    let rules = Arc::new(share.rules);
    // The new policy also applies to connected clients; a stricter one syncs what is dirty. A hanging disk then
    // keeps neither of the two from taking effect.
    let policy = async {
        match was == wanted.policy {
            true => StopReport::default(),
            false => gate.set_policy(wanted.policy, CONFIGURATION).await,
        }
    };
    let by_rules = async {
        match old_rules == rules {
            true => StopReport::default(),
            false => gate.set_rules(Arc::clone(&rules), CONFIGURATION).await,
        }
    };
    let (report, more) = tokio::join!(policy, by_rules);
    // A change of line numbers does not count.
    let policies = |rules: &config::Rules| -> Vec<(Policy, String)> {
        let each = rules.iter();
        each.map(|rule| (rule.policy, explain::criteria(rule)))
            .collect()
    };
    if was == wanted.policy && policies(&old_rules) == policies(&rules) {
        return None;
    }
    Some(PolicyOutcome {
        share: gate.name().to_owned(),
        was: was.to_string(),
        policy: wanted.policy.to_string(),
        rules: rules.iter().count(),
        synced: synced(&whole(report, more)),
    })
}

/// Gives the gate of a new share its options, policy and rules before the first request. Something of a share of that
/// name may be dirty or poisoned from before a reload removed it: then the gate has that share's, and this waits
/// until what is dirty is stable. True if it is, and nothing is poisoned.
pub(super) async fn first_terms(gate: Arc<Gate<HostVfs>>, share: config::ShareSettings) -> bool {
    let name = share.name.clone();
    // The wanted policy and rules are in force as soon as this future is polled for the first time.
    let terms = async {
        reload(Arc::clone(&gate), share).await;
        // The engine has given a share that comes back its policy already, so the reload saw no change of that.
        gate.sync().await
    };
    let report = tokio::time::timeout(FIRST_TERMS_MAX, terms).await;
    let stable = report.is_ok_and(|report| report.failed == 0);
    if !stable {
        tracing::error!(
            share = name,
            "changes from before the share came back are not on disk yet"
        );
    }
    stable
}

/// Gives new shares their options, policies and rules, all at once. Returns the names of those that came back while
/// changes from before are not stable.
pub(super) async fn first_terms_of_all(
    fresh: Vec<(Arc<Gate<HostVfs>>, config::ShareSettings)>,
) -> Vec<String> {
    let mut setting = tokio::task::JoinSet::new();
    for (gate, share) in fresh {
        let name = share.name.clone();
        let terms = first_terms(gate, share);
        setting.spawn_local(async move { (!terms.await).then_some(name) });
    }
    let set = setting.join_all().await;
    let mut not_stable: Vec<String> = set.into_iter().flatten().collect();
    not_stable.sort();
    not_stable
}

/// Gives the gate of a share its rules before the server runs: nothing can be dirty.
///
/// # Errors
/// Something is dirty.
pub(super) fn rules_at_start(
    gate: &Gate<HostVfs>,
    share: &config::ShareSettings,
) -> io::Result<()> {
    if share.rules.is_empty() {
        return Ok(());
    }
    let rules = Arc::new(share.rules.clone());
    let mut setting = pin!(gate.set_rules(rules, CONFIGURATION));
    match setting
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(_) => Ok(()),
        Poll::Pending => Err(io::Error::other(format!(
            "share {}: data are dirty before the first request",
            share.name
        ))),
    }
}

/// Refuses administrators and rules for groups that nobody can be in.
pub(crate) fn check_groups(config: &Config, users: &UserDb) -> io::Result<()> {
    if let Some(group) = &config.server.administrators
        && users.group(group).is_none()
    {
        return Err(io::Error::other(format!(
            "[server] administrators: no group `{group}`\n  = holdfast group add {group} --config FILE"
        )));
    }
    for share in &config.shares {
        for rule in share.rules.iter() {
            let mut groups = rule.groups.iter();
            if let Some(group) = groups.find(|group| users.group(group).is_none()) {
                return Err(io::Error::other(format!(
                    "share {}, {}: no group `{group}`\n  = holdfast group add {group} --config FILE",
                    share.name, rule.name
                )));
            }
        }
    }
    Ok(())
}

/// The policy of an open, and the one in force where it is open now.
pub(super) fn explain_open(share: &Share<HostVfs>, located: &Located) -> Explained {
    let gate = &share.gate;
    let settings = gate.settings();
    let opener = &located.opener;
    let mut answer = explain::explain(
        &share.config.name,
        settings.policy,
        settings.flush_times,
        &gate.rules(),
        opener,
    );
    let decision = gate.explain(opener);
    let now = decision.policy;
    if now.to_string() != answer.policy {
        for reason in reasons(gate.set_aside()) {
            let why = match reason {
                SetAsideReason::FailedSync => {
                    "a sync failed, until its latches are cleared or the policy is set again"
                }
                SetAsideReason::PowerGuard => {
                    "this machine runs on a battery, until mains power is back"
                }
            };
            let note = format!("{} is set aside because {why}", answer.policy);
            answer.notes.push(note);
        }
        answer.policy = now.to_string();
        answer.promise = policy::promise(&now, decision.flushes_times(settings.flush_times));
    }
    answer.in_force = Some(match gate.in_force_at(&opener.path) {
        Some(now) => InForcePolicy::Open(Box::new(in_force(now))),
        None => InForcePolicy::NotOpen(NotOpen {}),
    });
    answer
}

fn in_force(now: InForce) -> InForceNow {
    InForceNow {
        policy: now.policy.to_string(),
        flush_times: now.flush_times,
        bound: now.bound.map(|bound| Policy::Bounded(bound).to_string()),
        share: now.share,
        rule: now.rule.map(|rule| rule.name.clone()),
        opens: now.opens as u64,
        because: explain::asked(&now.because),
    }
}
