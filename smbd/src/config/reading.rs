//! Reads configuration files: all of one with its checks, or the part that a command needs.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Config, ConfigReport, Problem, ServerSettings, places, raw, rules, validate};
use crate::Error;

/// Largest configuration file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads and checks a configuration file.
pub fn load(path: &Path) -> Result<Config, Error> {
    load_again(path, &[])
}

/// Reads and checks a configuration file for a server that has the folders `served` already: if one of them has gone (a
/// disk was unplugged), that is no mistake, because it must not keep another change from coming into force.
pub(crate) fn load_again(path: &Path, served: &[PathBuf]) -> Result<Config, Error> {
    let text = read(path)?;
    Ok(parse_again(&text, path, served)?)
}

fn read(path: &Path) -> Result<String, Error> {
    let unreadable = |error: io::Error| {
        let (path, way_out) = (path.display(), way_out(&error));
        Error::from(format!("cannot read {path}: {error}\n  = {way_out}"))
    };
    let mut text = Vec::new();
    // The size that the file system reports says nothing of a pipe, or of a file that grows.
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(io::Error::other(format!(
            "more than {FILE_BYTES_MAX} bytes are too many"
        ))));
    }
    let text = String::from_utf8(text).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        let problem = Problem {
            message: "here is something that is not UTF-8".to_owned(),
            span: Some(place..place),
            way_out: Some("save the file as UTF-8".to_owned()),
        };
        ConfigReport {
            path: path.to_owned(),
            text: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            problems: vec![problem],
        }
    })?;
    Ok(without_mark(&text).to_owned())
}

/// The way out where a configuration file cannot be read.
fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "use sudo, or let this user, and the one who runs the server, read it"
        }
        _ => "give the path of a configuration file; examples/holdfast.toml is an annotated one",
    }
}

/// The text without the byte order mark that some editors write, and that TOML does not allow.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Checks the text of a configuration file; `path` names it in complaints, and relative paths
/// in the text start at its folder.
pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigReport> {
    parse_again(text, path, &[])
}

fn parse_again(text: &str, path: &Path, served: &[PathBuf]) -> Result<Config, ConfigReport> {
    let text = without_mark(text);
    let file: raw::File = toml::from_str(text)
        .map_err(|error| ConfigReport::of_toml(path.to_owned(), text, &error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let source = rules::Source { file: &name, text };
    let folder = path.parent().unwrap_or(Path::new(""));
    validate::validate(&file, folder, source, served).map_err(|problems| ConfigReport {
        path: path.to_owned(),
        text: text.to_owned(),
        problems,
    })
}

/// `[server]` of a configuration file, which says where the users are. Nothing else of the file is read, because a
/// folder that has gone, or a mistake in another table, must not keep an administrator from locking a user out.
pub(crate) fn server_of(path: &Path) -> Result<ServerSettings, Error> {
    #[derive(Deserialize)]
    struct OnlyServer {
        #[serde(default, deserialize_with = "raw::table")]
        server: raw::ServerTable,
    }
    let text = read(path)?;
    let file: OnlyServer = toml::from_str(&text)
        .map_err(|error| ConfigReport::of_toml(path.to_owned(), &text, &error))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let server = validate::only_server(&file.server, folder);
    Ok(server.map_err(|problems| ConfigReport {
        path: path.to_owned(),
        text,
        problems,
    })?)
}

/// The parts of a configuration file that name a group: shares, in their lists or their rules, and the key
/// `administrators`, as far as the file can be read.
pub(crate) fn places_with(path: &Path, group: &str) -> Vec<String> {
    let text = read(path).unwrap_or_default();
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let list = |value: &toml::Value, key: &str| -> Vec<toml::Value> {
        let list = value.get(key).and_then(toml::Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let same = |name: &toml::Value| {
        let name = name.as_str().map(str::to_uppercase);
        name == Some(group.to_uppercase())
    };
    let names = |value: &toml::Value| list(value, "groups").iter().any(same);
    let server = table.get("server");
    let administrators = server.and_then(|server| server.get("administrators"));
    let administrators = administrators.filter(|name| same(name));
    let shares = table.get("share").and_then(toml::Value::as_array);
    let named = shares
        .into_iter()
        .flatten()
        .filter(|share| names(share) || list(share, "durability_rule").iter().any(names));
    let name = |share: &toml::Value| Some(format!("share {}", share.get("name")?.as_str()?));
    let administrators = administrators.map(|_| "administrators".to_owned());
    named.filter_map(name).chain(administrators).collect()
}

/// The state folder of the server that a configuration file belongs to: a file with mistakes must
/// not keep an administrator from asking the server that runs with an earlier version of it.
pub fn state_dir_of(path: &Path) -> Result<PathBuf, Error> {
    // The shares' folders are not checked, because one on a disk that hangs would delay this command, too.
    let text = read(path)?;
    if let Ok(table) = text.parse::<toml::Table>() {
        let server = table.get("server");
        match server.and_then(|server| server.get("state_dir")) {
            None => return Ok(places::default()),
            Some(toml::Value::String(written)) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                return Ok(folder.join(written));
            }
            Some(_) => {}
        }
    }
    load(path).map(|config| config.server.state_dir)
}
