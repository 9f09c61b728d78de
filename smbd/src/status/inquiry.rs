//! Questions: `check-config`, and `status`, `reload`, `close`, `policy` to a running server.

pub mod explain;
pub(crate) mod status;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    accounts::{acting, users},
    args::{CloseCommand, ExplainArgs, PolicyCommand, ServerPlace},
    config,
    control::{
        client,
        protocol::{Closing, Request},
    },
    host::protection,
    state::state_dir,
};

use explain::Question;

/// `holdfast check-config FILE`
pub(crate) fn check_config(file: &Path) -> Result<(), String> {
    let config = config::load(file).map_err(|error| error.to_string())?;
    println!("{} is right.", file.display());
    for listener in &config.listeners {
        println!("  listens on {}", listener.address);
    }
    print!("{}", identities(&config));
    let found = protection::of_config(&config);
    for (share, found) in config.shares.iter().zip(&found) {
        print!("{}", share_in_words(share, found));
    }
    Ok(())
}

/// The identities on disk, with the users if they can be read.
fn identities(config: &config::Config) -> String {
    let server = acting::Server::here();
    let by = if server.is_root() {
        "root"
    } else {
        "this user"
    };
    let users = users::load(&config.server.users_file).or_else(|_| users::empty());
    let lines = users.map(|users| server.lines(config, &users));
    let mut out = String::new();
    push(&mut out, &format!("  on disk, if {by} starts the server:"));
    let others = server.user(None, &config.server.guest_account);
    push(&mut out, &format!("    who has no owner acts as {others}"));
    for line in lines.unwrap_or_default() {
        push(&mut out, &format!("    {line}"));
    }
    out
}

/// The promise of a share, and the facts it depends on.
fn share_in_words(share: &config::Share, found: &protection::Assessment) -> String {
    let mut out = String::new();
    push(
        &mut out,
        &format!("  share {} = {}", share.name, share.path.display()),
    );
    let promise = config::policy::promise(&share.durability, share.flush_times);
    let policy = share.durability.to_string();
    push(&mut out, &format!("    {policy}: {promise}"));
    if let Some(broken) = protection::broken_promise(Some(&policy), found) {
        push(&mut out, &format!("    {broken}"));
    }
    for rule in share.rules.iter() {
        let (name, criteria) = (&rule.name, explain::criteria(rule));
        push(
            &mut out,
            &format!("    {name}: {} for {criteria}", rule.policy),
        );
    }
    let (words, stack) = (found.words(), found.stack());
    push(&mut out, &format!("    device: {words} ({stack})"));
    let verdict = found.verdict();
    push(
        &mut out,
        &format!("    {}: {}", verdict.word(), verdict.sentence()),
    );
    for line in found.sentences() {
        push(&mut out, &format!("      {line}"));
    }
    out
}

/// `holdfast status`
pub(crate) fn status(place: &ServerPlace, json: bool) -> Result<(), String> {
    let answer = ask(place, &Request::Status {})?;
    if json {
        println!("{answer:#}");
    } else {
        print!("{}", status::in_words(&answer));
    }
    Ok(())
}

/// `holdfast reload`
pub(crate) fn reload(place: &ServerPlace) -> Result<(), String> {
    let answer = ask(place, &Request::Reload {})?;
    print!("reloaded\n{}", in_words(&answer));
    Ok(())
}

/// `holdfast close ...`
pub(crate) fn close(place: &ServerPlace, command: CloseCommand, json: bool) -> Result<(), String> {
    let what = match command {
        CloseCommand::Session { id } => Closing::Session(id),
        CloseCommand::Open { id } => Closing::Open(id),
        CloseCommand::User { name } => Closing::User(name),
        CloseCommand::Share { name } => Closing::Share(name),
    };
    let answer = ask(place, &Request::Close { what })?;
    if json {
        println!("{answer:#}");
    } else {
        print!("{}", closed_in_words(&answer));
    }
    Ok(())
}

/// What `holdfast close` closed.
fn closed_in_words(closed: &Value) -> String {
    let number = |key: &str| closed[key].as_u64().unwrap_or(0);
    let (sessions, trees, opens) = (number("sessions"), number("tree_connects"), number("opens"));
    if sessions + trees + opens == 0 {
        return "nothing was open\n".to_owned();
    }
    let mut out = format!("closed: {sessions} sessions, {trees} tree connects, {opens} opens\n");
    let named = closed["closed"].as_array();
    for one in named.into_iter().flatten() {
        let of = |key: &str| cell(&one[key]);
        let place = match one["share"].as_str() {
            None | Some("") => String::new(),
            Some(_) if one["kind"] == "open" => format!(" on {}: {}", of("share"), of("path")),
            Some(_) => format!(" on {}", of("share")),
        };
        let (kind, id, user) = (of("kind"), of("id"), of("user"));
        push(&mut out, &format!("  {kind} {id} of {user}{place}"));
    }
    out
}

/// `holdfast policy ...`
pub(crate) fn policy(place: &ServerPlace, command: PolicyCommand) -> Result<(), String> {
    let request = match command {
        PolicyCommand::Show { share, json } => {
            let request = Request::Policy {
                share,
                set: None,
                accept_loss: false,
                without_rules: false,
            };
            let answer = ask(place, &request)?;
            if json {
                println!("{answer:#}");
            } else {
                print!("{}", status::shares_in_words(&answer));
            }
            return Ok(());
        }
        PolicyCommand::Explain(args) => return explain_open(place, &args),
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
            let answer = ask(place, &Request::ClearLatch { share })?;
            print!("{}", in_words(&answer));
            return Ok(());
        }
    };
    let answer = ask(place, &request)?;
    let (text, all_stable) = status::changes_in_words(&answer);
    print!("{text}");
    if all_stable {
        return Ok(());
    }
    Err("the policy holds, but not all that was acknowledged before could be made stable".into())
}

/// `holdfast policy explain`: by the file, and by the server that runs with it.
fn explain_open(place: &ServerPlace, args: &ExplainArgs) -> Result<(), String> {
    let question = Question {
        path: args.path.clone(),
        host_path: std::path::absolute(&args.path).map_err(|error| error.to_string())?,
        share: args.share.clone(),
        user: args.user.clone(),
        client: args.client,
        dialect: args.dialect.revision(),
        write_through: args.write_through,
        unbuffered: args.unbuffered,
    };
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
            let mut answer = client::ask(&socket, &Request::Explain { question })?;
            if let Some(note) = by_file.and_then(|by_file| differs(&answer, by_file)) {
                explain::note(&mut answer, note);
            }
            answer
        }
        (None, None) => return Err("neither a server nor a configuration was found".to_owned()),
    };
    if args.json {
        println!("{answer:#}");
    } else {
        print!("{}", explain::in_words(&answer));
    }
    Ok(())
}

fn explain_by_file(file: &Path, question: &Question) -> Result<Value, String> {
    let config = config::load(file).map_err(|error| error.to_string())?;
    let located = explain::locate(&config, question)?;
    let shares = config.shares.iter();
    let mut shares = shares.filter(|share| share.name == located.share);
    let share = shares.next().ok_or("no such share")?;
    let opener = &located.opener;
    let mut answer = explain::explain(
        &share.name,
        (share.durability, share.flush_times),
        &share.rules,
        opener,
    );
    let note = "by the file: no server runs with it".to_owned();
    explain::note(&mut answer, note);
    Ok(answer)
}

/// The text to print if the file and the server do not agree.
fn differs(answer: &Value, by_file: Result<Value, String>) -> Option<String> {
    let file = match by_file {
        Ok(file) => file,
        Err(error) => return Some(format!("the file says nothing: {error}")),
    };
    // Rules that only moved are the same.
    let rules = |answer: &Value| -> Vec<(Value, Value)> {
        let list = answer["rules"].as_array().into_iter().flatten();
        list.map(|rule| (rule["policy"].clone(), rule["for"].clone()))
            .collect()
    };
    let key = "configured_policy";
    if file[key] == answer[key] && rules(&file) == rules(answer) {
        return None;
    }
    let by = match &file["decided_by"] {
        Value::Null => "the share's own policy".to_owned(),
        rule => cell(rule),
    };
    Some(format!(
        "the file says {} by {by}: `holdfast reload` brings it into force",
        cell(&file[key])
    ))
}

fn ask(place: &ServerPlace, request: &Request) -> Result<Value, String> {
    client::ask(&socket(place)?, request)
}

fn socket(place: &ServerPlace) -> Result<PathBuf, String> {
    match (&place.socket, &place.config) {
        (Some(socket), _) => Ok(socket.clone()),
        (None, Some(file)) => {
            let folder = config::state_dir_of(file).map_err(|error| error.to_string())?;
            Ok(folder.join(state_dir::CONTROL_SOCKET))
        }
        (None, None) => client::find(&state_dir::candidates()),
    }
}

/// JSON for people: indented keys, lists of like objects as tables.
fn in_words(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out
}

fn write_value(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        push(out, &format!("{indent}{key}:"));
                        write_value(out, value, depth + 1);
                    }
                    Value::Array(list) if list.iter().any(Value::is_object) => {
                        push(out, &format!("{indent}{key}:"));
                        write_table(out, list, depth + 1);
                    }
                    _ => push(out, &format!("{indent}{key}: {}", cell(value))),
                }
            }
        }
        Value::Array(list) if list.iter().any(Value::is_object) => write_table(out, list, depth),
        Value::Null => {}
        other => push(out, &format!("{indent}{}", cell(other))),
    }
}

fn push(out: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", line.trim_end());
}

fn write_table(out: &mut String, rows: &[Value], depth: usize) {
    let mut columns: Vec<&str> = Vec::new();
    for key in rows
        .iter()
        .filter_map(Value::as_object)
        .flat_map(|row| row.keys())
    {
        if !columns.contains(&key.as_str()) {
            columns.push(key);
        }
    }
    write_columns(out, &columns, rows, depth);
}

/// A table of these columns, in this order.
fn write_columns(out: &mut String, columns: &[&str], rows: &[Value], depth: usize) {
    let text = |row: &Value, column: &str| row.get(column).map_or(String::new(), cell);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            let cells = rows.iter().map(|row| text(row, column).chars().count());
            cells.chain([column.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let line = |cells: Vec<String>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}  "));
        format!("{}{}", "  ".repeat(depth), padded.collect::<String>())
    };
    push(
        out,
        &line(columns.iter().map(|column| (*column).to_owned()).collect()),
    );
    for row in rows {
        push(
            out,
            &line(columns.iter().map(|column| text(row, column)).collect()),
        );
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        // Names come from clients: no control characters to the terminal.
        Value::String(text) => text.chars().flat_map(visible).collect(),
        Value::Array(list) if list.is_empty() => "-".to_owned(),
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Object(object) => {
            let pairs = object
                .iter()
                .map(|(key, value)| format!("{key}={}", cell(value)));
            pairs.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

/// Control characters in names go to the terminal escaped.
pub(crate) fn visible(c: char) -> Vec<char> {
    if c.is_control() {
        c.escape_default().collect()
    } else {
        vec![c]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_closed_in_words() {
        assert_eq!(closed_in_words(&json!({})), "nothing was open\n");
        let closed = json!({
            "sessions": 1, "tree_connects": 2, "opens": 3,
            "closed": [
                { "kind": "session", "id": 7, "user": "alice", "share": "", "path": "" },
                { "kind": "tree connect", "id": 1, "user": "bob", "share": "data", "path": "" },
                { "kind": "open", "id": 8, "user": "bob", "share": "data", "path": "a\\\u{1b}b" },
            ],
        });
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
    fn status_in_words() {
        let value = json!({
            "version": "0.1.0",
            "config": null,
            "connections": { "connections": 2, "refused": 0 },
            "listeners": [{ "address": "[::]:445", "workers": [0, 1] }],
            "server": { "opens": [
                { "file": "a\u{1b}[31m.txt", "user": "alice" },
                { "file": "long name.txt", "user": "bob", "lease": "RWH" },
            ] },
        });
        assert_eq!(
            in_words(&value),
            "\
config: -
connections:
  connections: 2
  refused: 0
listeners:
  address   workers
  [::]:445  0,1
server:
  opens:
    file             user   lease
    a\\u{1b}[31m.txt  alice
    long name.txt    bob    RWH
version: 0.1.0
"
        );
        assert_eq!(in_words(&Value::Null), "");
        assert_eq!(in_words(&json!("done")), "done\n");
    }
}
