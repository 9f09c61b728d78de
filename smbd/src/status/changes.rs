//! The objects that a command has closed, and the configuration that a reload brought into force, in words.

use super::text::{Text, list, put};
use crate::answers::{ClosedObjects, EndedByReload, PolicyOutcome, Reloaded};

/// The objects that `holdfast close` closed.
pub(crate) fn closed_in_words(closed: &ClosedObjects) -> String {
    if closed.sessions + closed.tree_connects + closed.opens == 0 {
        return "nothing was open\n".to_owned();
    }
    let mut out = Text::default();
    write_closed(&mut out, "closed", closed, "");
    out.finish()
}

/// A line with the numbers of closed objects, and one for each that was closed by itself.
fn write_closed(out: &mut Text, word: &str, closed: &ClosedObjects, more: &str) {
    let (sessions, trees, opens) = (closed.sessions, closed.tree_connects, closed.opens);
    put!(out, 0; "{word}: {sessions} sessions, {trees} tree connects, {opens} opens{more}");
    for one in &closed.closed {
        let place = match (one.share.as_str(), one.kind.as_str()) {
            ("", _) => String::new(),
            (share, "open") => format!(" on {share}: {}", one.path),
            (share, _) => format!(" on {share}"),
        };
        let (kind, id, user) = (&one.kind, one.id, &one.user);
        put!(out, 1; "{kind} {id} of {user}{place}");
    }
}

/// The configuration that a reload brought into force, the objects it ended, and the keys that need a restart; and
/// whether everything that was acknowledged before is stable where it must be.
pub(crate) fn reloaded_in_words(answer: &Reloaded) -> (String, bool) {
    let mut out = Text::default();
    let applied = &answer.applied;
    put!(out, 0; "reloaded: {}", list(&applied.shares));
    let mut all_stable = true;
    for outcome in &applied.policies {
        all_stable &= write_outcome(&mut out, outcome);
    }
    if !applied.not_stable.is_empty() {
        let shares = list(&applied.not_stable);
        put!(out, 0; "NOT STABLE: changes from before these shares came back: {shares}");
        all_stable = false;
    }
    match &applied.ended {
        None => {}
        Some(EndedByReload::Later(text)) => put!(out, 0; "ended: {text}"),
        Some(EndedByReload::Now(now)) => {
            let connections = format!(", {} connections", now.connections);
            write_closed(&mut out, "ended", &now.closed, &connections);
        }
    }
    if !answer.needs_restart.is_empty() {
        let keys = list(&answer.needs_restart);
        put!(out, 0; "needs a restart: {keys}");
    }
    (out.finish(), all_stable)
}

/// The policy and rules of a share that were changed. Returns whether all could be made stable for it.
fn write_outcome(out: &mut Text, outcome: &PolicyOutcome) -> bool {
    let (share, was, policy) = (&outcome.share, &outcome.was, &outcome.policy);
    let (rules, synced, failed) = (outcome.rules, outcome.synced.inodes, outcome.synced.failed);
    put!(out, 0; "changed: {share} has {policy} and {rules} rules, before {was}");
    put!(out, 1; "made stable: {synced} inodes");
    if failed > 0 {
        put!(out, 1; "NOT STABLE: {failed} inodes");
    }
    failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{AppliedConfig, ClosedOne, EndedNow, Synced};

    fn closed(named: &[(&str, u64, &str, &str, &str)]) -> ClosedObjects {
        let text = |text: &str| text.to_owned();
        let named = named.iter().map(|(kind, id, user, share, path)| ClosedOne {
            kind: text(kind),
            id: *id,
            user: text(user),
            share: text(share),
            path: text(path),
        });
        ClosedObjects {
            sessions: 1,
            tree_connects: 2,
            opens: 3,
            closed: named.collect(),
        }
    }

    #[test]
    fn what_was_closed_in_words() {
        assert_eq!(
            closed_in_words(&ClosedObjects::default()),
            "nothing was open\n"
        );
        let closed = closed(&[
            ("session", 7, "alice", "", ""),
            ("tree connect", 1, "bob", "data", ""),
            ("open", 8, "bob", "data", "a\\\u{1b}b"),
        ]);
        assert_eq!(
            closed_in_words(&closed),
            "\
closed: 1 sessions, 2 tree connects, 3 opens
  session 7 of alice
  tree connect 1 of bob on data
  open 8 of bob on data: a\\\\u{1b}b
"
        );
    }

    #[test]
    fn a_reload_in_words() {
        let mut nothing = Reloaded::default();
        let done = ("reloaded: -\n".to_owned(), true);
        assert_eq!(reloaded_in_words(&nothing), done);
        nothing.applied.not_stable = vec!["a".to_owned()];
        let (text, all_stable) = reloaded_in_words(&nothing);
        assert!(
            text.contains("NOT STABLE") && text.ends_with(": a\n"),
            "{text}"
        );
        assert!(!all_stable);
        let all = Reloaded {
            applied: AppliedConfig {
                shares: vec!["a".to_owned(), "b".to_owned()],
                not_stable: Vec::new(),
                ended: Some(EndedByReload::Now(EndedNow {
                    closed: closed(&[("session", 7, "alice", "", "")]),
                    connections: 4,
                })),
                policies: vec![PolicyOutcome {
                    share: "a".to_owned(),
                    was: "honor".to_owned(),
                    policy: "strict-sync".to_owned(),
                    rules: 0,
                    synced: Synced {
                        inodes: 5,
                        failed: 1,
                        ..Synced::default()
                    },
                }],
            },
            needs_restart: vec!["[metrics]".to_owned()],
        };
        let (text, all_stable) = reloaded_in_words(&all);
        assert!(!all_stable);
        assert_eq!(
            text,
            "\
reloaded: a,b
changed: a has strict-sync and 0 rules, before honor
  made stable: 5 inodes
  NOT STABLE: 1 inodes
ended: 1 sessions, 2 tree connects, 3 opens, 4 connections
  session 7 of alice
needs a restart: [metrics]
"
        );
    }
}
