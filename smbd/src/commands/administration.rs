//! The commands `status`, `reload`, `close` and `policy`, which ask a running server.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde::{Serialize, de::DeserializeOwned};

use super::out;
use crate::{
    Error,
    accounts::users,
    answers::{ClearedLatches, ClosedObjects, Explained, PolicyChange, ShareStatus, StatusReport},
    args::{CloseCommand, ExplainArgs, PolicyCommand, Question, ServerPlace},
    config::{self, places},
    control::{
        client,
        protocol::{Closing, Request},
    },
    status::{
        changes, check, explain, overview, shares,
        text::{Text, put},
    },
};

/// `holdfast status`
pub(crate) fn status(place: &ServerPlace, json: bool) -> Result<(), Error> {
    let answer: StatusReport = ask(place, &Request::Status {})?;
    print(&answer, json, overview::in_words)
}

/// `holdfast status --check`: its line and its exit status.
pub(crate) fn check(place: &ServerPlace) -> ExitCode {
    let answer = ask::<StatusReport>(place, &Request::Status {});
    let (line, code) = match answer.map(|status| check::in_a_line(&status)) {
        Ok((line, true)) => (line, 0),
        Ok((line, false)) => (line, 1),
        Err(error) => {
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            (format!("CRITICAL: no answer: {first}\n"), 2)
        }
    };
    ExitCode::from(out::print(&line).map_or(2, |()| code))
}

/// `holdfast reload`
pub(crate) fn reload(place: &ServerPlace) -> Result<(), Error> {
    let answer = ask(place, &Request::Reload {})?;
    print_change("configuration", changes::reloaded_in_words(&answer))
}

/// The answer in words to a command that brought something stricter into force, and an error unless all is stable.
fn print_change(what: &str, (text, all_stable): (String, bool)) -> Result<(), Error> {
    out::print(&text)?;
    match all_stable {
        true => Ok(()),
        false => fail!(
            "the {what} is in force, but not all that was acknowledged before could be made stable\n  = `holdfast \
             status` and the log name the files; a disk that fails must be repaired or replaced"
        ),
    }
}

/// `holdfast close ...`
pub(crate) fn close(place: &ServerPlace, command: CloseCommand, json: bool) -> Result<(), Error> {
    let what = match command {
        CloseCommand::Session { id } => Closing::Session(id),
        CloseCommand::Open { id } => Closing::Open(id),
        CloseCommand::User { name } => Closing::User(name),
        CloseCommand::Share { name } => Closing::Share(name),
    };
    let answer: ClosedObjects = ask(place, &Request::Close { what })?;
    print(&answer, json, changes::closed_in_words)
}

/// An answer for programs or for people.
fn print<T: Serialize>(
    answer: &T,
    json: bool,
    in_words: impl FnOnce(&T) -> String,
) -> Result<(), Error> {
    if json {
        // A value is used, because its fields are sorted by name.
        let value = serde_json::to_value(answer)?;
        out::print(&format!("{value:#}\n"))
    } else {
        out::print(&in_words(answer))
    }
}

/// `holdfast policy ...`
pub(crate) fn policy(place: &ServerPlace, command: PolicyCommand) -> Result<(), Error> {
    let request = match command {
        PolicyCommand::Show { share, json } => {
            let request = Request::Policy {
                share,
                set: None,
                accept_loss: false,
                without_rules: false,
            };
            let answer: Vec<ShareStatus> = ask(place, &request)?;
            return print(&answer, json, |shares| shares::in_words(shares));
        }
        PolicyCommand::Explain(args) => return explain_open(place, args),
        PolicyCommand::Set {
            share,
            policy,
            accept_loss,
            without_rules,
        } => Request::Policy {
            share: Some(share),
            set: Some(policy),
            accept_loss,
            without_rules,
        },
        PolicyCommand::ClearLatch { share } => {
            let all = share.is_none();
            let answer: Vec<ClearedLatches> = ask(place, &Request::ClearLatch { share })?;
            let mut out = Text::default();
            let rows = answer.into_iter();
            let rows = rows.map(|one| [one.cleared_inodes.to_string(), one.share]);
            out.table(0, ["cleared_inodes", "share"], rows);
            let left: StatusReport = ask(place, &Request::Status {})?;
            if !all && left.server.kept.latches.overflow {
                let words = "EVERY FLUSH STILL FAILS; `holdfast policy clear-latch` without a share ends that";
                put!(out, 0; "{words}");
            }
            return out::print(&out.finish());
        }
    };
    let answer: Vec<PolicyChange> = ask(place, &request)?;
    print_change("policy", shares::changes_in_words(&answer))
}

/// `holdfast policy explain`: it explains the policy by the file, and by the server that runs with it.
fn explain_open(place: &ServerPlace, args: ExplainArgs) -> Result<(), Error> {
    let mut question = args.question;
    question.host_path = std::path::absolute(&question.path).map_err(|_| {
        "no path is given\n  = give a path below a share's folder, or SHARE/PATH; SHARE/ is the folder itself"
    })?;
    let by_file = place.config.as_ref();
    let by_file = by_file.map(|file| explain_by_file(file, &question));
    let alive = match (&place.config, socket(place)) {
        (Some(_), Ok(socket)) => client::answers(&socket).then_some(socket),
        (Some(_), Err(_)) => None,
        (None, found) => Some(found?),
    };
    let answer = match (alive, by_file) {
        (None, Some(by_file)) => by_file?,
        (Some(socket), by_file) => {
            let mut answer: Explained = client::ask(&socket, &Request::Explain { question })?;
            answer
                .notes
                .extend(by_file.and_then(|by_file| differs(&answer, by_file)));
            answer
        }
        (None, None) => return Err("neither a server nor a configuration was found".into()),
    };
    print(&answer, args.json, explain::in_words)
}

fn explain_by_file(file: &Path, question: &Question) -> Result<Explained, Error> {
    let config = config::load(file)?;
    let users = users::load(&config.server.users_file);
    let located = explain::locate(&config, users, question)?;
    let share = config::share_named(&config.shares, &located.share)?;
    let mut answer = explain::by_settings(share, &located.opener);
    let note = "by the file: no server that runs with it answers this user".to_owned();
    answer.notes.extend([note].into_iter().chain(located.note));
    Ok(answer)
}

/// The text to print if the file and the server do not agree.
fn differs(answer: &Explained, by_file: Result<Explained, Error>) -> Option<String> {
    let file = match by_file {
        Ok(file) => file,
        Err(error) => {
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            return Some(format!(
                "the file says nothing: {first} (see `holdfast check-config`)"
            ));
        }
    };
    // Rules whose place in the file has changed are the same.
    let rules = |answer: &Explained| -> Vec<(String, String)> {
        let each = answer.rules.iter();
        each.map(|rule| (rule.policy.clone(), rule.criteria.clone()))
            .collect()
    };
    if file.configured_policy == answer.configured_policy && rules(&file) == rules(answer) {
        return None;
    }
    let (policy, by) = (
        &file.configured_policy,
        explain::by(file.decided_by.as_deref()),
    );
    Some(format!(
        "the file says {policy} by {by}: `holdfast reload` brings it into force"
    ))
}

fn ask<T: DeserializeOwned>(place: &ServerPlace, request: &Request) -> Result<T, Error> {
    client::ask(&socket(place)?, request)
}

fn socket(place: &ServerPlace) -> Result<PathBuf, Error> {
    match (&place.socket, &place.config) {
        (Some(socket), _) => Ok(socket.clone()),
        (None, Some(file)) => {
            let folder = config::state_dir_of(file)?;
            Ok(folder.join(places::CONTROL_SOCKET))
        }
        (None, None) => client::find(&places::candidates()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_mistake_adds_one_line() {
        let mistake = "error: unknown key `x`\n  --> h.toml:12:1\n";
        let note = differs(&Explained::default(), Err(mistake.into()));
        let expected = "the file says nothing: unknown key `x` (see `holdfast check-config`)";
        assert_eq!(note.as_deref(), Some(expected));
    }
}
