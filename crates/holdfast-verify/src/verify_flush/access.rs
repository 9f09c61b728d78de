//! Where the records lie, and who may write them: `//HOST[:PORT]/SHARE/DIR`, user and password.
//!
//! A password comes from a file, from the environment or from a prompt, never from an argument,
//! where every user of the machine could read it.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use clap::Args;
use smb_client::{Client, ClientError, CreateArgs, Encryption, Options, Tree};
use smb_load::{Home, Protection, rig::server};
use smb_wire::{
    access_mask::AccessMask,
    msg::{CreateAction, CreateDisposition, CreateOptions},
};
use zeroize::Zeroizing;

use super::Failure;
use crate::ReadPassword;

const PORT: u16 = 445;

/// A folder of a share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    host: String,
    port: u16,
    share: String,
    /// Relative to the share, with backslashes; empty for its root.
    folder: String,
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a place is //HOST[:PORT]/SHARE/FOLDER";
        let text = text.replace('\\', "/");
        let rest = text.strip_prefix("//").ok_or(FORM)?;
        let mut parts = rest.split('/').filter(|part| !part.is_empty());
        let (server, share) = (parts.next().ok_or(FORM)?, parts.next().ok_or(FORM)?);
        let folder: Vec<&str> = parts.collect();
        if folder.iter().any(|part| matches!(*part, "." | "..")) {
            return Err("no . or .. in the folder");
        }
        let (host, port) = server_of(server).ok_or(FORM)?;
        Ok(Self {
            host,
            port,
            share: share.to_owned(),
            folder: folder.join("\\"),
        })
    }
}

fn server_of(text: &str) -> Option<(String, u16)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if port.is_empty() => PORT,
            None => return None,
        };
        return Some((host.to_owned(), port));
    }
    match text.split_once(':') {
        Some((host, port)) if !host.is_empty() => Some((host.to_owned(), port.parse().ok()?)),
        Some(_) => None,
        None => Some((text.to_owned(), PORT)),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        let port = match self.port {
            PORT => String::new(),
            port => format!(":{port}"),
        };
        write!(f, "//{host}{port}/{}", self.share)?;
        if self.folder.is_empty() {
            return Ok(());
        }
        write!(f, "/{}", self.folder.replace('\\', "/"))
    }
}

impl Place {
    /// A name in the folder, relative to the share.
    pub(super) fn path(&self, name: &str) -> String {
        if self.folder.is_empty() {
            return name.to_owned();
        }
        format!("{}\\{name}", self.folder)
    }

    /// Whether the server is this machine, which a cut would take with it.
    pub(super) fn is_here(&self) -> bool {
        self.host == "localhost" || self.host == "::1" || self.host.starts_with("127.")
    }

    /// The name of the share.
    pub(crate) fn share(&self) -> &str {
        &self.share
    }

    /// The whole path of a share of the server.
    pub(crate) fn path_of(&self, share: &str) -> String {
        format!("\\\\{}\\{share}", self.host)
    }

    /// The folder, relative to the share; empty for its root.
    pub(crate) fn folder(&self) -> &str {
        &self.folder
    }
}

/// As whom, and how.
#[derive(Debug, Clone, Args)]
pub struct Access {
    /// Name to log in with
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Domain of the user
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub domain: String,
    /// First line is the password; - is standard input. Without it, it is asked for
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The password is in this environment variable (HOLDFAST_PASSWORD, unless another one is named)
    #[arg(long, value_name = "VARIABLE", num_args = 0..=1, require_equals = true,
          conflicts_with = "password_file",
          default_missing_value = "HOLDFAST_PASSWORD")]
    pub password_env: Option<String>,
    /// Encrypt everything
    #[arg(long)]
    pub encrypt: bool,
    /// Seconds after which a server that does not answer is taken to be gone
    #[arg(long, value_name = "SECONDS", default_value = "30",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
}

/// Opens any number of connections.
#[derive(Clone)]
pub(crate) struct Login {
    place: Place,
    user: String,
    domain: String,
    password: Zeroizing<String>,
    options: Options,
}

impl Access {
    /// Completes the arguments of the command line, and asks for the password if none is given.
    pub(crate) fn login(&self, place: &Place, password: ReadPassword) -> Result<Login, Failure> {
        let user = self.user.clone().ok_or("--user is missing")?;
        let password = if let Some(file) = &self.password_file {
            password(Some(file), "")?
        } else if let Some(variable) = &self.password_env {
            std::env::var(variable)
                .map(Zeroizing::new)
                .map_err(|_| format!("there is no password in the variable {variable}"))?
        } else {
            password(None, &format!("Password of {user}: "))?
        };
        let mut options = Options {
            timeout: Duration::from_secs(self.timeout),
            ..Options::default()
        };
        if self.encrypt {
            options = options.encryption(Encryption::Always);
        }
        Ok(Login {
            place: place.clone(),
            user,
            domain: self.domain.clone(),
            password,
            options,
        })
    }
}

impl Login {
    /// The login to a server that this program has started.
    pub(crate) fn new(place: &Place, user: &str, password: &str) -> Self {
        Self {
            place: place.clone(),
            user: user.to_owned(),
            domain: String::new(),
            password: Zeroizing::new(password.to_owned()),
            options: Options::default(),
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// A new connection, logged in, with the share.
    pub(crate) fn open(&self) -> Result<Tree, Failure> {
        let place = &self.place;
        let failed = |way_out: &'static str| {
            move |error: ClientError| format!("{place}: {error}\n  = {way_out}")
        };
        let address = (place.host.as_str(), place.port);
        let client = Client::connect(address, self.options.clone()).map_err(failed(
            "an SMB server must listen there; another port than 445 follows the host, as in //nas:4450/data",
        ))?;
        let session = client
            .login(&self.user, &self.password, &self.domain)
            .map_err(failed(
                "the server must know this user by this password (--domain: that of the user)",
            ))?;
        let tree = session
            .tree_at(&place.path_of(&place.share))
            .map_err(failed(
                "the share must exist and admit this user: `smbclient -L HOST` lists the shares",
            ))?;
        tree.validate_negotiate().map_err(failed(
            "something between here and the server has changed the negotiation",
        ))?;
        Ok(tree)
    }

    /// The same with other protection, if it is not plain.
    pub(crate) fn open_protected(&self, protection: Protection) -> Result<Tree, Failure> {
        if protection == Protection::Plain {
            return self.open();
        }
        let mut protected = self.clone();
        protected.options = protection.options(protected.options);
        let tree = protected.open()?;
        match protection.is_agreed(tree.client()) {
            true => Ok(tree),
            false => Err("the server does not agree to this protection".to_owned()),
        }
    }

    /// The same for programs and workers that log in by themselves.
    pub(crate) fn access(&self) -> server::Access {
        server::Access {
            host: self.place.host.clone(),
            port: self.place.port,
            user: self.user.clone(),
            password: self.password.to_string(),
            share: self.place.share.clone(),
        }
    }

    /// Makes the folder in the share and in these further ones, `\\server\share`, once all are there.
    pub(crate) fn make_folders(&self, further: &[String]) -> Result<String, Failure> {
        let first = Home::new(self.open()?, &self.place.folder);
        let mut trees = vec![first.tree.clone()];
        for path in further {
            let home = first.on(path).map_err(|error| format!("{path}: {error}"))?;
            trees.push(home.tree);
        }
        self.make_folder(&trees)
    }

    /// Makes the folder in each of these shares and has its name flushed; remarks where a server does not do that. If
    /// one refuses, none is left that was not there before.
    pub(crate) fn make_folder(&self, trees: &[Tree]) -> Result<String, Failure> {
        let mut made = Vec::new();
        let done = self.make_all(trees, &mut made);
        if done.is_err() {
            for (tree, path) in made.iter().rev() {
                // The first refusal is the one to report; a connection that is gone removes nothing.
                let _ = tree.delete(path);
            }
        }
        done
    }

    fn make_all<'a>(
        &self,
        trees: &'a [Tree],
        made: &mut Vec<(&'a Tree, String)>,
    ) -> Result<String, Failure> {
        let mut remarks = String::new();
        for tree in trees {
            let mut path = String::new();
            let mut remark = None;
            for part in self.place.folder.split('\\').filter(|p| !p.is_empty()) {
                if !path.is_empty() {
                    path.push('\\');
                }
                path.push_str(part);
                let one = make_one(tree, &path, made);
                remark = one.map_err(|error| format!("{path}: {error}"))?;
            }
            remarks.extend(remark);
        }
        Ok(remarks)
    }
}

fn make_one<'a>(
    tree: &'a Tree,
    path: &str,
    made: &mut Vec<(&'a Tree, String)>,
) -> Result<Option<String>, ClientError> {
    let args = CreateArgs::new(path, CreateDisposition::OPEN_IF)
        .access(
            AccessMask::FILE_READ_ATTRIBUTES
                | AccessMask::FILE_ADD_FILE
                | AccessMask::FILE_ADD_SUBDIRECTORY
                | AccessMask::SYNCHRONIZE,
        )
        .options(CreateOptions::DIRECTORY_FILE);
    let folder = tree.create(&args)?;
    if folder.created().create_action == CreateAction::CREATED {
        made.push((tree, path.to_owned()));
    }
    let flushed = folder.flush(false);
    folder.close()?;
    match flushed {
        Ok(()) => Ok(None),
        Err(ClientError::Status(status)) => Ok(Some(format!(
            "remark: FLUSH of the folder {path}: {status}; its name may be lost at a cut\n"
        ))),
        Err(other) => Err(other),
    }
}

/// Whether that is how a cut looks from here. A server that answers that the session has ended was not cut off. One
/// that only closes the connection, as Holdfast does where it is stopped in order, cannot be distinguished.
pub(super) fn is_cut(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Disconnected | ClientError::TimedOut | ClientError::Io(_)
    )
}

#[cfg(test)]
mod tests {
    use smb_wire::Status;

    use super::*;

    #[test]
    fn a_server_that_still_answers_was_not_cut_off() {
        assert!(is_cut(&ClientError::Disconnected) && is_cut(&ClientError::TimedOut));
        for status in [
            Status::USER_SESSION_DELETED,
            Status::NETWORK_NAME_DELETED,
            Status::DISK_FULL,
        ] {
            assert!(!is_cut(&ClientError::Status(status)), "{status}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_has_a_way_out() {
        let place: Place = "//127.0.0.1:1/data".parse().unwrap();
        let error = Login::new(&place, "alice", "secret").open().err().unwrap();
        assert!(error.contains("\n  = an SMB server must listen"), "{error}");
    }

    #[test]
    fn places() {
        let place: Place = "//nas:4450/data/a folder/b/".parse().unwrap();
        assert_eq!((place.host.as_str(), place.port), ("nas", 4450));
        assert_eq!(place.path("x"), "a folder\\b\\x");
        assert_eq!(place.to_string(), "//nas:4450/data/a folder/b");
        assert_eq!(place.path_of("logs"), r"\\nas\logs");
        let place: Place = r"\\[::1]\data".parse().unwrap();
        assert!(place.is_here());
        assert_eq!((place.port, place.path("x").as_str()), (445, "x"));
        assert_eq!(place.to_string(), "//[::1]/data");
        for bad in [
            "",
            "nas/data",
            "//nas",
            "///",
            "//nas:x/data",
            "//nas/d/../e",
            "//:1/d",
        ] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
