//! Checks of `[[share.durability_rule]]`: the opens of a share that have another policy.
//!
//! The rules are the engine's ([`durability::Rule`]); here they are parsed, and refused if they
//! have no effect, could never match, or would break a promise. A rule is refused because of
//! another one only if that certainly covers it. Names of groups are checked against the user file
//! at start.

use durability::{Network, PathPattern, Policy, Rule, Rules};
use serde_spanned::Spanned;
use smb_server::config::HostRules;

use super::{
    raw,
    share::{From, guarded, times, written_policy},
    validate::{Findings, get, given, hosts, is_empty, networks, span},
};

/// The source of the rules: the name of the file, and its text for line numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// The line number, from 1.
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

/// Reads the rules of a share.
pub(super) fn rules(share: &raw::ShareTable, from: &From<'_>, findings: &mut Findings) -> Rules {
    let tables = &share.durability_rule;
    let mut rules: Vec<Rule> = Vec::new();
    for (index, table) in tables.iter().enumerate().take(Rules::RULES_MAX + 1) {
        let place = table.span();
        let line = from.source.line(place.start);
        let name = format!("rule {} ({}:{line})", index + 1, from.source.file);
        let table = table.get_ref();
        let before = findings.problems.len();
        let Some(at) = &table.durability else {
            findings.add(
                Some(place),
                "this rule has no durability",
                "add durability = \"honor\", or another policy",
            );
            continue;
        };
        let policy = written_policy(at, guarded(share, from), findings);
        let rule = Rule {
            name,
            clients: networks(&table.clients),
            users: get(&table.users, Vec::new()),
            groups: get(&table.groups, Vec::new()),
            dialects: table.dialects.as_ref().map(|at| at.get_ref().revisions()),
            paths: paths(table, findings),
            write_through: asks(table, raw::OpenFlag::WriteThrough),
            unbuffered: asks(table, raw::OpenFlag::Unbuffered),
            policy,
            flush_times: given(&table.flush_times),
        };
        times(&table.flush_times, policy, findings);
        promises(at, policy, share, findings);
        says_something(table, &rule, place.clone(), findings);
        can_match(table, &rule, share, from, findings);
        if let Some(earlier) = rules.iter().find(|earlier| covers(earlier, &rule)) {
            findings.add(
                Some(place),
                format!(
                    "this rule can never match: {} covers all that it does",
                    earlier.name
                ),
                "move it up, or make the earlier one narrower",
            );
        }
        // A rule without its invalid patterns would seem to cover everything.
        if findings.problems.len() == before {
            rules.push(rule);
        }
    }
    Rules::new(rules).unwrap_or_else(|error| {
        let place = tables.last().map(Spanned::span);
        findings.add(place, error.to_string(), "");
        Rules::default()
    })
}

fn paths(table: &raw::RuleTable, findings: &mut Findings) -> Vec<PathPattern> {
    let list = table.paths.as_ref().map(Spanned::get_ref);
    list.into_iter()
        .flatten()
        .filter_map(|at| {
            let pattern = at.get_ref().parse();
            let refused = |error: durability::InvalidPolicy| {
                findings.add(
                    Some(at.span()),
                    format!(
                        "`{}` is no path pattern: {error}",
                        at.get_ref().escape_debug()
                    ),
                    "as in \"*.mdb\" (a name, anywhere), \"scratch/**\" (all below a folder), \
                     \"db/*/log\"",
                );
            };
            pattern.map_err(refused).ok()
        })
        .collect()
}

fn asks(table: &raw::RuleTable, flag: raw::OpenFlag) -> Option<bool> {
    let list = table.open.as_ref()?.get_ref();
    list.contains(&flag).then_some(true)
}

/// Refuses a policy that does not keep what handles of a continuously available share promise.
fn promises(
    at: &Spanned<String>,
    policy: Policy,
    share: &raw::ShareTable,
    findings: &mut Findings,
) {
    let options = durability::ShareDurability::with_policy(policy);
    if get(&share.continuous_availability, false)
        && options.check_continuous_availability().is_err()
    {
        findings.add(
            Some(at.span()),
            "handles of a continuously available share promise write-through, which this policy \
             does not keep",
            "use honor or strict-sync",
        );
    }
}

/// Refuses criteria that hold for no open, or for every one.
fn says_something(
    table: &raw::RuleTable,
    rule: &Rule,
    place: std::ops::Range<usize>,
    findings: &mut Findings,
) {
    let lists = [
        ("users", is_empty(&table.users), span(&table.users)),
        ("groups", is_empty(&table.groups), span(&table.groups)),
        ("clients", is_empty(&table.clients), span(&table.clients)),
        ("paths", is_empty(&table.paths), span(&table.paths)),
        ("open", is_empty(&table.open), span(&table.open)),
    ];
    let mut has_empty = false;
    for (what, is_empty, at) in lists {
        if is_empty {
            has_empty = true;
            let message = format!("an empty list of {what} says nothing");
            findings.add(at, message, "remove the key, or name some");
        }
    }
    if !has_empty && is_for_all(rule) && table.paths.is_none() {
        findings.add(
            Some(place),
            "this rule is for every open",
            "write its policy into the share's own durability, or add clients, users, groups, \
             dialects, paths or open",
        );
    }
}

/// Refuses a rule whose clients or users cannot connect at all.
fn can_match(
    table: &raw::RuleTable,
    rule: &Rule,
    share: &raw::ShareTable,
    from: &From<'_>,
    findings: &mut Findings,
) {
    // Guests and members of groups may connect as well.
    let others = get(&share.guest, false) || share.groups.is_some();
    if let Some(only) = share.users.as_ref().filter(|_| !others)
        && !rule.users.is_empty()
        && !rule
            .users
            .iter()
            .any(|user| only.get_ref().iter().any(|one| same_name(one, user)))
    {
        let message = "this rule can never match: none of these users may connect to the share";
        let way_out = "see users of the share";
        findings.add(span(&table.users), message, way_out);
    }
    let of_share = hosts(&share.hosts_allow, &share.hosts_deny);
    let clients = &rule.clients;
    if !clients.is_empty()
        && clients
            .iter()
            .all(|range| is_kept_out(range, &[&of_share, &from.server.hosts]))
    {
        let message = "this rule can never match: none of these clients may connect to the share";
        let way_out = "see hosts_allow and hosts_deny of the share and of [server]";
        findings.add(span(&table.clients), message, way_out);
    }
    let (oldest, newest) = (from.server.min_protocol, from.server.max_protocol);
    if let Some(at) = &table.dialects
        && (at.get_ref().newest < oldest || at.get_ref().oldest > newest)
    {
        let message = "this rule can never match: none of these dialects is spoken";
        let way_out = "see min_protocol and max_protocol in [server]";
        findings.add(Some(at.span()), message, way_out);
    }
}

fn same_name(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

/// Whether certainly no address of a range is admitted.
fn is_kept_out(range: &Network, hosts: &[&HostRules]) -> bool {
    let apart = |other: &Network| !other.contains(range.address) && !range.contains(other.address);
    let within = |other: &Network| holds(other, range);
    hosts.iter().any(|rules| {
        !rules.allow.is_empty() && rules.allow.iter().all(apart) || rules.deny.iter().any(within)
    })
}

fn is_for_all(rule: &Rule) -> bool {
    rule.clients.is_empty()
        && rule.users.is_empty()
        && rule.groups.is_empty()
        && rule.dialects.is_none()
        && rule.paths.is_empty()
        && rule.write_through.is_none()
        && rule.unbuffered.is_none()
}

/// Whether every open that `later` is for is certainly taken by `earlier`.
fn covers(earlier: &Rule, later: &Rule) -> bool {
    let names = |wide: &[String], narrow: &[String]| {
        wide.is_empty()
            || !narrow.is_empty()
                && narrow
                    .iter()
                    .all(|name| wide.iter().any(|other| same_name(other, name)))
    };
    let flag = |wide: Option<bool>, narrow: Option<bool>| wide.is_none() || wide == narrow;
    let networks = earlier.clients.is_empty()
        || !later.clients.is_empty()
            && (later.clients.iter()).all(|one| earlier.clients.iter().any(|net| holds(net, one)));
    let dialects = match (&earlier.dialects, &later.dialects) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide.contains(narrow.start()) && wide.contains(narrow.end()),
    };
    let paths = earlier.paths.is_empty()
        || !later.paths.is_empty()
            && later.paths.iter().all(|one| {
                let narrow = one.to_string();
                earlier
                    .paths
                    .iter()
                    .any(|wide| below(&wide.to_string(), &narrow))
            });
    networks
        && dialects
        && paths
        && names(&earlier.users, &later.users)
        && names(&earlier.groups, &later.groups)
        && flag(earlier.write_through, later.write_through)
        && flag(earlier.unbuffered, later.unbuffered)
}

/// Whether a network lies in another.
fn holds(wide: &Network, narrow: &Network) -> bool {
    wide.prefix <= narrow.prefix && wide.contains(narrow.address)
}

/// Whether all paths that one pattern matches are certainly matched by another: the same, `**`, or
/// `a/**` above `a/b/...`.
fn below(wide: &str, narrow: &str) -> bool {
    let plain = |text: &str| text.strip_prefix('/').unwrap_or(text).to_lowercase();
    // A pattern without a slash matches a name in any folder.
    let is_name = |text: &str| !text.contains('/');
    let (wide_name, narrow_name) = (is_name(wide), is_name(narrow));
    let (wide, narrow) = (plain(wide), plain(narrow));
    if wide == "**" || wide == narrow && wide_name == narrow_name {
        return true;
    }
    let Some(folder) = wide.strip_suffix("/**") else {
        return false;
    };
    let literal = !folder.contains(['*', '?']);
    let inside = narrow.strip_prefix(folder);
    literal && !narrow_name && inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(change: impl FnOnce(&mut Rule)) -> Rule {
        let mut rule = Rule {
            name: "r".to_owned(),
            ..Rule::default()
        };
        change(&mut rule);
        rule
    }

    #[test]
    fn what_covers_what() {
        let network = |text: &str| text.parse::<crate::config::hosts::Network>().unwrap().0;
        let clients = |text: &str| rule(|r| r.clients = vec![network(text)]);
        let users =
            |names: &[&str]| rule(|r| r.users = names.iter().map(|n| (*n).into()).collect());
        let dialects = |from, to| rule(|r| r.dialects = Some(from..=to));
        let through = |flag| rule(|r| r.write_through = Some(flag));
        let all = rule(|_| ());
        assert!(covers(&all, &clients("10.0.0.0/8")) && !covers(&clients("10.0.0.0/8"), &all));
        assert!(covers(&clients("10.0.0.0/8"), &clients("10.1.0.0/16")));
        assert!(!covers(&clients("10.1.0.0/16"), &clients("10.0.0.0/8")));
        assert!(!covers(&clients("10.0.0.0/8"), &clients("::/0")));
        assert!(covers(&users(&["a", "B"]), &users(&["b"])));
        assert!(!covers(&users(&["b"]), &users(&["a", "b"])));
        assert!(covers(&dialects(0x202, 0x300), &dialects(0x210, 0x300)));
        assert!(!covers(&dialects(0x202, 0x300), &dialects(0x210, 0x302)));
        assert!(covers(&through(true), &through(true)) && !covers(&through(true), &through(false)));
        // One criterion is narrower, another one wider.
        let both = rule(|r| {
            r.users = vec!["a".into()];
            r.clients = vec![network("10.0.0.0/8")];
        });
        assert!(covers(&users(&["a"]), &both) && !covers(&both, &users(&["a"])));
    }

    #[test]
    fn patterns_below_patterns() {
        for (wide, narrow) in [
            ("**", "*.mdb"),
            ("scratch/**", "Scratch/a/*.tmp"),
            ("scratch/**", "/scratch"),
            ("*.mdb", "*.MDB"),
            ("/a/b", "a/b"),
        ] {
            // The first covers the second; the reverse holds only if both are the same.
            assert!(below(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            ("scratch/**", "scratchy/a"),
            ("scratch/**", "scratch"),
            ("*/**", "a/b"),
            ("*.mdb", "/x.mdb"),
            ("/top", "top"),
            ("a/*", "a/b"),
        ] {
            assert!(!below(wide, narrow), "{wide} {narrow}");
        }
    }
}
