//! A share in words: its promise, the storage under it, what is acknowledged and not stable, and what failed.

use super::text::{Text, bytes, put, short_bytes, span};
use crate::{
    answers::{LateShareStatus, PolicyChange, RemovedShareStatus, SetAsideReason, ShareStatus},
    config,
};

/// The warning about a share that is [`ShareStatus::replaced`].
pub(crate) const REPLACED: &str = "clients see the folder that was there at the start: another file system is mounted \
                                   over it since, or the folder was replaced, renamed or removed; a restart serves \
                                   one that is at its path then, and `holdfast reload` does if Landlock allows it";

/// The answer to `holdfast policy show`.
pub(crate) fn in_words(shares: &[ShareStatus]) -> String {
    let mut out = Text::default();
    for share in shares {
        write(&mut out, share);
    }
    out.finish()
}

/// Writes what administrators see of a share that is served.
pub(super) fn write(out: &mut Text, share: &ShareStatus) {
    match &share.path {
        Some(path) => put!(out, 1; "{} = {path}", share.share),
        None => put!(out, 1; "{}", share.share),
    }
    put!(out, 2; "{}", durability_line(share));
    write_promise(out, share);
    if let Some(found) = &share.protection {
        put!(out, 2; "on {}: {}", found.stack, found.verdict);
        for line in &found.says {
            put!(out, 3; "{line}");
        }
    }
    write_exposure(out, share);
    write_lost(out, share.lost_at_start.as_deref());
    write_poisoned(out, share);
}

/// Writes a share that is not served any more and has acknowledged something that is not stable.
pub(super) fn write_removed(out: &mut Text, removed: &RemovedShareStatus) {
    put!(out, 1; "{} (not served any more)", removed.share);
    if removed.exposed_inodes > 0 || removed.exposed_bytes > 0 {
        let (size, inodes) = (removed.exposed_bytes, removed.exposed_inodes);
        let all = exposed(size, inodes, removed.oldest_ms);
        put!(out, 2; "acknowledged and not known to be stable: {all}");
    }
    if removed.poisoned_inodes > 0 {
        put!(out, 2;
            "POISONED: {} inodes whose sync failed; `holdfast policy clear-latch` (without a share) accepts the loss",
            removed.poisoned_inodes);
    }
}

/// Writes a share that is not served yet.
pub(super) fn write_late(out: &mut Text, late: &LateShareStatus) {
    put!(out, 1; "{} = {}", late.share, late.path);
    let why = match &late.error {
        None => format!(
            "its file system has not answered for {}; it is served when it does",
            span(late.waited_ms)
        ),
        Some(error) => match late.again_in_ms {
            Some(again) => format!("{error}; tried again in {}", span(again)),
            None => error.clone(),
        },
    };
    put!(out, 2; "NOT SERVED: {why}");
    if let Some(way_out) = &late.way_out {
        put!(out, 2; "= {way_out}");
    }
    write_lost(out, late.lost_at_start.as_deref());
}

/// The data that the start could not make stable.
fn write_lost(out: &mut Text, lost: Option<&str>) {
    if let Some(lost) = lost {
        put!(out, 2; "ACKNOWLEDGED DATA MAY BE LOST: {lost}");
    }
}

/// The share in one line, for people and `grep`.
fn durability_line(share: &ShareStatus) -> String {
    format!(
        "durability: share={} policy={} exposed={}/{} files oldest={}ms latch={} device={}",
        config::policy::one_word(&share.share),
        config::policy::in_brackets(&share.policy),
        short_bytes(share.exposed_bytes),
        share.exposed_inodes,
        share.oldest_ms,
        share.poisoned_inodes,
        // The storage was not examined yet.
        share.device.as_deref().unwrap_or("-"),
    )
}

/// Writes policy and rules, problems with them, and who set them.
fn write_promise(out: &mut Text, share: &ShareStatus) {
    put!(out, 2; "{}: {}", share.policy, share.promise);
    if let Some(broken) = &share.broken_promise {
        put!(out, 2; "{broken}");
    }
    for rule in &share.rules {
        let (name, policy, criteria) = (&rule.rule, &rule.policy, &rule.criteria);
        put!(out, 2; "{name}: {policy} for {criteria}");
    }
    let replaced = share.replaced.then_some(REPLACED);
    for warning in share.warning.as_deref().into_iter().chain(replaced) {
        put!(out, 2; "WARNING: {warning}");
    }
    write_set_aside(out, share);
    if let Some(slow) = share.too_slow {
        let (lasts, sync) = (span(slow.for_ms), span(slow.sync_ms));
        put!(out, 2;
            "the disk is too slow for the bound: FLUSH waits as under honor, for {lasts} so far \
             (a sync takes {sync})");
    }
    if let Some(change) = &share.changed {
        let rules = match change.without_rules {
            true => ", without its rules,",
            false => "",
        };
        let (policy, at, by, was) = (&change.policy, &change.at, &change.by, &change.was);
        put!(out, 2; "set to {policy}{rules} at {at} by {by}, was {was}");
    }
}

/// Writes which policies are not in force, and why.
fn write_set_aside(out: &mut Text, share: &ShareStatus) {
    let reasons = share.set_aside.iter().map(|why| match why {
        SetAsideReason::PowerGuard => "this machine runs on a battery (until mains power is back)",
        SetAsideReason::FailedSync => "a sync failed",
    });
    let because = reasons.collect::<Vec<_>>().join(" and because ");
    let configured = &share.configured_policy;
    if because.is_empty() {
        return;
    }
    if *configured == share.policy {
        put!(out, 2; "lazy rules are set aside for honor because {because}");
    } else {
        put!(out, 2; "configured is {configured}, set aside because {because}");
    }
}

fn exposed(size: u64, inodes: u64, oldest_ms: u64) -> String {
    let (size, oldest) = (bytes(size), span(oldest_ms));
    format!("{size} in {inodes} inodes, the oldest for {oldest}")
}

/// The acknowledged data that are not stable.
fn write_exposure(out: &mut Text, share: &ShareStatus) {
    match share.exposed_inodes {
        0 => put!(out, 2; "nothing acknowledged that is not stable"),
        inodes => {
            let all = exposed(share.exposed_bytes, inodes, share.oldest_ms);
            put!(out, 2; "acknowledged and not known to be stable: {all}");
        }
    }
    // Where rules let several policies acknowledge.
    let parts = share.by_policy.iter().filter(|_| share.by_policy.len() > 1);
    for part in parts {
        let all = exposed(part.exposed_bytes, part.exposed_inodes, part.oldest_ms);
        put!(out, 3; "under {}: {all}", part.policy);
    }
}

fn write_poisoned(out: &mut Text, share: &ShareStatus) {
    let (inodes, unproven) = (share.poisoned_inodes, bytes(share.unproven_bytes));
    if inodes > 0 {
        put!(out, 2; "POISONED: {inodes} inodes whose sync failed, {unproven} unproven");
    } else if !share.poisoned.is_empty() {
        put!(out, 2; "FLUSH MAY FAIL because of what was lost through another share:");
    }
    for one in &share.poisoned {
        let path = match one.path.as_str() {
            "" => String::new(),
            path => format!(" ({path})"),
        };
        let (inode, device, error, since) = (one.inode, &one.device, &one.error, &one.since);
        put!(out, 3; "inode {inode}{path} of device {device}: {error}, since {since}");
    }
}

/// The effect of `holdfast policy set` on each share; false if something could not be made stable.
pub(crate) fn changes_in_words(changes: &[PolicyChange]) -> (String, bool) {
    let mut out = Text::default();
    for PolicyChange { share, was, synced } in changes {
        let (name, now) = (&share.share, &share.configured_policy);
        put!(out, 0; "{name}: {now} instead of {was}");
        let (inodes, size) = (synced.inodes, bytes(synced.bytes));
        put!(out, 1; "made stable: {inodes} inodes, {size}");
        if synced.failed > 0 {
            put!(out, 1; "NOT STABLE: {} inodes", synced.failed);
        }
        for one in &synced.errors {
            let (inode, device, error) = (one.inode, &one.device, &one.error);
            put!(out, 2; "inode {inode} of device {device}: {error}");
        }
        write(&mut out, share);
    }
    let all_stable = changes.iter().all(|change| change.synced.failed == 0);
    (out.finish(), all_stable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{PoisonedStatus, SyncErrorReport, Synced, TooSlowStatus};

    #[test]
    fn a_disk_that_is_too_slow_for_the_bound_is_shown_with_since_when() {
        let mut share = ShareStatus::default();
        let line = "\n    the disk is too slow for the bound: FLUSH waits as under honor, for 12.0 s so \
                    far (a sync takes 80 ms)\n";
        assert!(!in_words(&[share.clone()]).contains("too slow"));
        share.too_slow = Some(TooSlowStatus {
            for_ms: 12_000,
            sync_ms: 80,
        });
        let text = in_words(&[share]);
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_removed_share_reads_well() {
        let mut out = Text::default();
        let mut removed = RemovedShareStatus {
            share: "old".to_owned(),
            exposed_bytes: 4096,
            exposed_inodes: 2,
            oldest_ms: 80,
            poisoned_inodes: 1,
        };
        write_removed(&mut out, &removed);
        (removed.exposed_bytes, removed.exposed_inodes) = (0, 0);
        write_removed(&mut out, &removed);
        let text = "  old (not served any more)
    acknowledged and not known to be stable: 4096 bytes in 2 inodes, the oldest for 80 ms
    POISONED: 1 inodes whose sync failed; `holdfast policy clear-latch` (without a share) accepts the loss
  old (not served any more)
    POISONED: 1 inodes whose sync failed; `holdfast policy clear-latch` (without a share) accepts the loss
";
        assert_eq!(out.finish(), text);
    }

    #[test]
    fn a_name_that_another_share_lost_is_shown() {
        let lost = PoisonedStatus {
            path: "d".to_owned(),
            ..PoisonedStatus::default()
        };
        let share = ShareStatus {
            poisoned: vec![lost],
            ..ShareStatus::default()
        };
        let text = in_words(&[share]);
        assert!(!text.contains("POISONED"), "{text}");
        let line = "\n    FLUSH MAY FAIL because of what was lost through another share:\n      inode 0 (d) \
                    of device";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_change_reads_well() {
        let share = ShareStatus {
            share: "d".to_owned(),
            policy: "bounded:50ms,4MiB".to_owned(),
            configured_policy: "bounded:50ms,4MiB".to_owned(),
            promise: "p".to_owned(),
            ..ShareStatus::default()
        };
        let error = SyncErrorReport {
            inode: 7,
            device: "0x1f".to_owned(),
            error: "I/O".to_owned(),
        };
        let change = PolicyChange {
            share,
            was: "honor".to_owned(),
            synced: Synced {
                inodes: 3,
                bytes: 4096,
                failed: 1,
                errors: vec![error],
            },
        };
        let (text, all_stable) = changes_in_words(&[change]);
        assert!(!all_stable);
        assert_eq!(
            text,
            "\
d: bounded:50ms,4MiB instead of honor
  made stable: 3 inodes, 4096 bytes
  NOT STABLE: 1 inodes
    inode 7 of device 0x1f: I/O
  d
    durability: share=d policy=bounded(50ms,4MiB) exposed=0B/0 files oldest=0ms latch=0 device=-
    bounded:50ms,4MiB: p
    nothing acknowledged that is not stable
"
        );
    }
}
