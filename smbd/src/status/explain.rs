//! `holdfast policy explain`: the policy that an open would have, the rule that decides it, and why
//! the earlier rules do not match.
//!
//! Finding the share of a path and the groups of a user may read the disk: [`locate`] is for a
//! thread that may wait. [`explain`] needs no disk; the running server adds the policy in force. A
//! test with random rules checks that the reasons agree with the engine's decisions.

use std::{
    cell::LazyCell,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use durability::{Opener, Policy, Rule, Rules, ShareDurability};
use smb_auth::UserDb;
use vfs::{fold, posix::name::to_client};

use super::text::{Text, put};
use crate::{
    Error,
    answers::{Asked, Explained, InForceNow, InForcePolicy, RuleExplained},
    args::Question,
    config::{self, Config},
    runtime::settings,
};

/// The most groups of a user that are considered.
const GROUPS_MAX: usize = 1_024;

/// A question about one share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub share: String,
    /// The user, and how the file is opened.
    pub opener: Opener,
    /// States that the user is not known.
    pub note: Option<String>,
}

/// Finds the share that a question is about, also among those that are not served now, and the groups of its user.
/// Reads the disk. `users` are those of the server, or the reason why they are not known.
///
/// # Errors
/// The reason for the administrator: there is no such share, or more than one.
pub fn locate(
    config: &Config,
    users: Result<UserDb, Error>,
    question: &Question,
) -> Result<Located, Error> {
    let shares = [config.shares.as_slice(), config.late.as_slice()].concat();
    let (share, path) = place(&shares, question)?;
    let (groups, note) = match groups(users, &question.user) {
        Ok(groups) => (groups, None),
        Err(note) => (Vec::new(), Some(note)),
    };
    Ok(Located {
        share: share.name.clone(),
        note,
        opener: Opener {
            client: question.client,
            user: question.user.as_str().into(),
            groups: groups.into(),
            dialect: question.dialect,
            path: path.into(),
            write_through: question.write_through,
            unbuffered: question.unbuffered,
        },
    })
}

fn place<'a>(
    shares: &'a [config::ShareSettings],
    question: &Question,
) -> Result<(&'a config::ShareSettings, String), Error> {
    let typed = question.path.replace('\\', "/");
    // A UNC names server and share.
    let unc = typed.strip_prefix("//");
    let unc = unc.map(|rest| rest.split_once('/').map_or("", |(_, rest)| rest));
    let within = unc.unwrap_or(&typed);
    let (first, rest) = within.split_once('/').unwrap_or((within, ""));
    let resolved = LazyCell::new(|| real(&question.host_path));
    if let Some(name) = &question.share {
        let share = config::share_named(shares, name)?;
        if let Some(path) = below(share, &question.host_path, &resolved)
            && question.path.starts_with('/')
            && unc.is_none()
        {
            return Ok((share, path));
        }
        let path = tidy(if unc.is_some() { rest } else { &typed });
        return match path {
            Some(path) => Ok((share, path)),
            None => fail!(
                "{} leads out of share {}\n  = give a path within it",
                question.path,
                share.name
            ),
        };
    }
    if (unc.is_some() || !typed.starts_with('/'))
        && let Ok(share) = config::share_named(shares, first)
        && let Some(path) = tidy(rest)
    {
        return Ok((share, path));
    }
    let here: Vec<(&config::ShareSettings, String)> = shares
        .iter()
        .filter_map(|share| Some((share, below(share, &question.host_path, &resolved)?)))
        .collect();
    // The share whose folder is nearest above the path.
    let nearest = here.iter().map(|(_, path)| path.len()).min();
    let mut here = here
        .into_iter()
        .filter(|(_, path)| Some(path.len()) == nearest);
    let names: Vec<_> = shares.iter().map(|share| share.name.as_str()).collect();
    match (here.next(), here.next()) {
        (Some(one), None) => Ok(one),
        (Some((a, _)), Some((b, _))) => fail!(
            "{} is in more than one share\n  = say --share {:?} or --share {:?}",
            question.path,
            a.name,
            b.name
        ),
        (None, _) => fail!(
            "{} is in no share\n  = give a path below a share's folder, or SHARE/PATH; the shares \
             are {}",
            question.path,
            names.join(", ")
        ),
    }
}

/// The path from a share's folder, if it is below it. `resolved` is what [`real`] gives for the path.
fn below(
    share: &config::ShareSettings,
    path: &Path,
    resolved: &LazyCell<PathBuf, impl FnOnce() -> PathBuf>,
) -> Option<String> {
    let within = |path: &Path, folder: &Path| {
        joined(path.strip_prefix(folder).ok()?, |name| {
            to_client(name.as_bytes())
        })
    };
    within(path, &share.path).or_else(|| {
        // Either may have been reached by a link, and the disk of the share may hang.
        let folder = share.path.clone();
        let folder = config::in_time(&share.path, move || folder.canonicalize().ok())??;
        within(resolved, &folder)
    })
}

/// A path without links, as far as it exists; as it is if its disk does not answer. It is looked at apart from the
/// folders of shares, which must not be taken for folders that do not answer.
fn real(path: &Path) -> PathBuf {
    let asked = path.to_owned();
    let found = config::in_time(path, move || {
        asked.ancestors().find_map(|above| {
            let real = above.canonicalize().ok()?;
            Some(real.join(asked.strip_prefix(above).ok()?))
        })
    });
    found.flatten().unwrap_or_else(|| path.to_owned())
}

/// A path as clients give it, without the stream, which no rule looks at; `None` if it leads out of the folder where it
/// begins.
fn tidy(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let stream = name
        .split_once(':')
        .map_or(0, |(_, stream)| stream.len() + 1);
    let file = path.get(..path.len() - stream)?;
    joined(Path::new(file), |name| name.to_string_lossy().into_owned())
}

/// Components between single slashes, as clients see them, without `.` and `..`; `None` if the path leads out of the
/// folder where it begins.
fn joined(path: &Path, seen: impl Fn(&OsStr) -> String) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(seen(name)),
            Component::ParentDir => drop(parts.pop()?),
            _ => {}
        }
    }
    Some(parts.join("/"))
}

/// The groups of a user, by name; an error says why they are not known.
fn groups(users: Result<UserDb, Error>, user: &str) -> Result<Vec<Box<str>>, String> {
    if user.is_empty() {
        return Ok(Vec::new());
    }
    let db = users.map_err(|error| {
        let error = error.to_string();
        let first = error.lines().next().unwrap_or_default();
        format!("the groups of {user} are not known: {first}")
    })?;
    let user = db.user(user).ok_or_else(|| {
        format!(
            "there is no user {user}: this is what one of that name and without groups would have"
        )
    })?;
    let groups = db
        .groups()
        .filter(|group| user.group_rids.contains(&group.rid));
    Ok(groups
        .take(GROUPS_MAX)
        .map(|group| group.name.as_str().into())
        .collect())
}

/// The policy of such an open of a share with this policy, `flush_times` and these rules.
pub fn explain(
    share: &str,
    policy: Policy,
    flush_times: bool,
    rules: &Rules,
    opener: &Opener,
) -> Explained {
    let decision = rules.decide(policy, opener);
    let times = decision.flushes_times(flush_times);
    let mut reached = true;
    let each = rules.iter().map(|rule| {
        let decided = decision.rule.as_ref();
        let matches = decided.is_some_and(|decided| Arc::ptr_eq(decided, rule));
        let was_reached = reached;
        reached &= !matches;
        RuleExplained {
            rule: rule.name.clone(),
            policy: rule.policy.to_string(),
            criteria: criteria(rule),
            matches,
            reached: was_reached,
            why_not: match was_reached {
                true => why_not(rule, opener),
                false => Vec::new(),
            },
        }
    });
    Explained {
        share: share.to_owned(),
        path: opener.path.to_string(),
        asked: asked(opener),
        share_policy: policy.to_string(),
        rules: each.collect(),
        policy: decision.policy.to_string(),
        configured_policy: decision.policy.to_string(),
        decided_by: decision.rule.as_ref().map(|rule| rule.name.clone()),
        flush_times: times,
        promise: config::policy::promise(&decision.policy, times),
        notes: Vec::new(),
        warning: None,
        in_force: None,
    }
}

/// The policy of such an open by the configuration of its share.
pub fn by_settings(share: &config::ShareSettings, opener: &Opener) -> Explained {
    let ShareDurability {
        policy,
        flush_times,
        ..
    } = share.durability;
    explain(&share.name, policy, flush_times, &share.rules, opener)
}

/// The opener of the question.
pub fn asked(opener: &Opener) -> Asked {
    Asked {
        user: opener.user.to_string(),
        groups: opener.groups.iter().map(ToString::to_string).collect(),
        client: opener.client,
        dialect: settings::dialect_name(opener.dialect).to_owned(),
        write_through: opener.write_through,
        unbuffered: opener.unbuffered,
    }
}

/// A rule's criteria in words; all must hold.
pub fn criteria(rule: &Rule) -> String {
    let mut words = Vec::new();
    let mut list = |what: &str, entries: Vec<String>| {
        if !entries.is_empty() {
            words.push(format!("{what} {}", entries.join(", ")));
        }
    };
    list("clients", shown(&rule.clients));
    list("users", rule.users.clone());
    list("groups", rule.groups.clone());
    list("dialects", rule.dialects.iter().map(dialects).collect());
    list("paths", shown(&rule.paths));
    let flags = [
        (rule.write_through, "write-through"),
        (rule.unbuffered, "unbuffered"),
    ];
    let flags = flags.iter().filter_map(|(flag, word)| match flag {
        Some(true) => Some((*word).to_owned()),
        Some(false) => Some(format!("not {word}")),
        None => None,
    });
    list("open", flags.collect());
    words.join("; ")
}

fn shown<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn dialects(range: &std::ops::RangeInclusive<u16>) -> String {
    let (oldest, newest) = (
        settings::dialect_name(*range.start()),
        settings::dialect_name(*range.end()),
    );
    if oldest == newest {
        oldest.to_owned()
    } else {
        format!("{oldest}..{newest}")
    }
}

/// The criteria of a rule that do not hold for an open; none if the rule matches it.
fn why_not(rule: &Rule, opener: &Opener) -> Vec<String> {
    let mut out = Vec::new();
    let any = |names: &[String], name: &str| names.iter().any(|known| fold(known) == fold(name));
    let clients = shown(&rule.clients).join(", ");
    match opener.client {
        _ if rule.clients.is_empty() => {}
        None => out.push(format!(
            "it is for the clients {clients}, and no client was given"
        )),
        Some(ip) if rule.clients.iter().any(|network| network.contains(ip)) => {}
        Some(ip) => out.push(format!("client {ip} is in none of {clients}")),
    }
    let user = &opener.user;
    if !rule.users.is_empty() && !any(&rule.users, user) {
        let users = rule.users.join(", ");
        out.push(match user.is_empty() {
            true => format!("it is for the users {users}, and no user was given"),
            false => format!("user {user} is none of {users}"),
        });
    }
    if !rule.groups.is_empty() && !opener.groups.iter().any(|group| any(&rule.groups, group)) {
        let groups = rule.groups.join(", ");
        out.push(match user.is_empty() {
            true => format!("it is for the groups {groups}, and no user was given"),
            false => format!("user {user} is in none of the groups {groups}"),
        });
    }
    if let Some(range) = &rule.dialects
        && !range.contains(&opener.dialect)
    {
        let dialect = settings::dialect_name(opener.dialect);
        out.push(format!("dialect {dialect} is not in {}", dialects(range)));
    }
    for (wanted, is, word) in [
        (rule.write_through, opener.write_through, "write-through"),
        (rule.unbuffered, opener.unbuffered, "unbuffered"),
    ] {
        match wanted {
            Some(true) if !is => out.push(format!("the open is not {word}")),
            Some(false) if is => out.push(format!("the open is {word}")),
            _ => {}
        }
    }
    if !rule.paths.is_empty() && !rule.paths.iter().any(|path| path.matches(&opener.path)) {
        let paths = shown(&rule.paths).join(", ");
        out.push(format!("path `{}` matches none of {paths}", opener.path));
    }
    out
}

/// The answer in words, for people.
pub(crate) fn in_words(answer: &Explained) -> String {
    let mut out = Text::default();
    let path = match answer.path.as_str() {
        "" => "its root",
        path => path,
    };
    put!(out, 0; "share {}, {path}", answer.share);
    put!(out, 0; "opened {}", how(&answer.asked));
    for rule in &answer.rules {
        let verdict = match (rule.matches, rule.reached) {
            (true, _) => "holds",
            (false, true) => "is not for it",
            (false, false) => "is not reached",
        };
        let (name, policy, criteria) = (&rule.rule, &rule.policy, &rule.criteria);
        put!(out, 1; "{name} {verdict}: {policy} for {criteria}");
        for reason in &rule.why_not {
            put!(out, 3; "{reason}");
        }
    }
    let (policy, by) = (&answer.policy, by(answer.decided_by.as_deref()));
    put!(out, 0; "{policy} by {by}: {}", answer.promise);
    if let Some(warning) = &answer.warning {
        put!(out, 0; "WARNING: {warning}");
    }
    for note in &answer.notes {
        put!(out, 0; "{note}");
    }
    match &answer.in_force {
        None => {}
        Some(InForcePolicy::NotOpen(_)) => put!(out, 0; "not open now"),
        Some(InForcePolicy::Open(now)) => write_in_force(&mut out, now),
    }
    out.finish()
}

fn write_in_force(out: &mut Text, now: &InForceNow) {
    let (opens, policy, share) = (now.opens, &now.policy, &now.share);
    let (rule, open) = (by(now.rule.as_deref()), how(&now.because));
    put!(out, 0;
        "open now {opens} times, and in force for all of them is {policy}: the strictest, by \
         {rule}, of the open {open} through share {share}");
    if let Some(bound) = &now.bound {
        put!(out, 1; "what nobody flushed is kept within {bound}");
    }
}

/// The rule that decides, or what does where none matches.
pub(crate) fn by(rule: Option<&str>) -> &str {
    rule.unwrap_or("the share's own policy")
}

/// `by alice (staff) from 192.0.2.7 with 3.1.1, write-through`
fn how(asked: &Asked) -> String {
    let mut text = match asked.user.as_str() {
        "" => "by somebody".to_owned(),
        user => format!("by {user}"),
    };
    if !asked.groups.is_empty() {
        text += &format!(" ({})", asked.groups.join(","));
    }
    if let Some(client) = asked.client {
        text += &format!(" from {client}");
    }
    text += &format!(" with {}", asked.dialect);
    let flags = [
        (asked.write_through, ", write-through"),
        (asked.unbuffered, ", unbuffered"),
    ];
    let flags = flags.into_iter().filter(|(set, _)| *set);
    text.extend(flags.map(|(_, word)| word));
    text
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
