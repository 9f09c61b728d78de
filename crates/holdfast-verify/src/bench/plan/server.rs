//! The servers of a plan.

use std::path::PathBuf;

use durability::Policy;
use serde::{Deserialize, Serialize};
use smb_load::{limit::Way, rig::config::SambaIo};

use super::{exactly, name_of};
use crate::verify_flush::Place;

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Table")]
pub(in crate::bench) struct ServerPlan {
    pub(in crate::bench) name: String,
    pub(in crate::bench) kind: ServerKind,
}

impl TryFrom<toml::Table> for ServerPlan {
    type Error = String;

    fn try_from(mut table: toml::Table) -> Result<Self, String> {
        let name = name_of(&mut table)?.ok_or("a server has no name")?;
        let kind = exactly(table).and_then(|kind: ServerKind| kind.check().map(|()| kind));
        let kind = kind.map_err(|error| format!("server {name:?}: {error}"))?;
        Ok(Self { name, kind })
    }
}

/// Which server, and how it is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(in crate::bench) enum ServerKind {
    /// A Holdfast that is started on this machine.
    Holdfast {
        policy: String,
        /// Whether a FLUSH covers times; the server's default, unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flush_times: Option<bool>,
        /// Instead of the program that runs the matrix.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        binary: Option<PathBuf>,
        /// `io_uring` or `threads`; the server's own choice, unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_io: Option<String>,
        /// Threads that sync, unless the server decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sync_threads: Option<u32>,
    },
    /// A Samba that is started on this machine.
    Samba {
        strict_sync: bool,
        #[serde(default)]
        sync_always: bool,
        #[serde(default)]
        io: SambaIo,
        /// An unpacked root of another distribution, whose smbd it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        root: Option<PathBuf>,
    },
    /// The same bytes without a protocol, from a process that is started on this machine.
    Limit {
        #[serde(default)]
        way: Way,
    },
    /// A server that runs already, here or elsewhere.
    Address {
        /// `//HOST[:PORT]/SHARE[/FOLDER]`
        place: String,
        user: String,
        #[serde(default)]
        domain: String,
        password_file: PathBuf,
        /// Its first process, if it runs here and its CPU time and memory are to be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
        /// Further shares, over which the databases and logs of storage groups are dealt out.
        #[serde(default)]
        shares: Vec<String>,
    },
}

impl ServerKind {
    /// A Holdfast of that policy, as this program has it.
    pub(in crate::bench) fn holdfast(policy: &str) -> Self {
        Self::Holdfast {
            policy: policy.to_owned(),
            flush_times: None,
            binary: None,
            file_io: None,
            sync_threads: None,
        }
    }

    /// Refuses settings with which this program would not start, or would run with others. Another program may know
    /// other policies.
    fn check(&self) -> Result<(), String> {
        let Self::Holdfast {
            policy,
            binary,
            file_io,
            sync_threads,
            ..
        } = self
        else {
            return Ok(());
        };
        if binary.is_none() {
            let known: Result<Policy, _> = policy.parse();
            known.map_err(|error| format!("policy {policy:?}: {error}"))?;
        }
        if !matches!(
            file_io.as_deref(),
            None | Some("auto" | "io_uring" | "threads")
        ) {
            return Err("file_io is auto, io_uring or threads".to_owned());
        }
        match sync_threads {
            None | Some(1..=1024) => Ok(()),
            Some(_) => Err("sync_threads is 1 to 1024".to_owned()),
        }
    }

    /// The share of the place of a server elsewhere, and the further ones.
    pub(in crate::bench) fn shares(&self) -> Result<Vec<String>, String> {
        let Self::Address { place, shares, .. } = self else {
            return Ok(Vec::new());
        };
        let place: Place = place.parse().map_err(|error| format!("{place}: {error}"))?;
        Ok([vec![place.share().to_owned()], shares.clone()].concat())
    }

    /// The server's policy in the words of its own configuration, and what it does with a FLUSH; neither is known of a
    /// server that this program did not start.
    pub(in crate::bench) fn promise(&self) -> (String, &'static str) {
        const HONOURED: &str = "honoured";
        const IGNORED: &str = "ignored";
        const UNKNOWN: &str = "not known";
        match self {
            Self::Holdfast {
                policy,
                flush_times,
                ..
            } => {
                let is_cheap = *flush_times == Some(false);
                let flush = match policy.as_str() {
                    "honor" if is_cheap => "honoured but for times",
                    "strict-sync" | "honor" => HONOURED,
                    "treat-host-as-stable-storage" => IGNORED,
                    bounded if bounded.starts_with("bounded") => "honoured later, within the bound",
                    _ => UNKNOWN,
                };
                let times = if is_cheap {
                    ", flush_times = false"
                } else {
                    ""
                };
                (format!("{policy}{times}"), flush)
            }
            // Without `strict sync` neither a FLUSH nor `sync always` has an effect.
            Self::Samba {
                strict_sync,
                sync_always,
                ..
            } => {
                let word = |is_on: bool| if is_on { "yes" } else { "no" };
                let (strict, always) = (word(*strict_sync), word(*sync_always));
                let policy = format!("strict sync = {strict}, sync always = {always}");
                (policy, if *strict_sync { HONOURED } else { IGNORED })
            }
            Self::Limit { way: Way::Lax } => ("no server".to_owned(), IGNORED),
            Self::Limit { .. } => ("no server".to_owned(), HONOURED),
            Self::Address { .. } => (UNKNOWN.to_owned(), UNKNOWN),
        }
    }

    /// The policy of a Holdfast, and whether a FLUSH covers times.
    pub(in crate::bench) fn policy(&self) -> Option<(&str, bool)> {
        match self {
            Self::Holdfast {
                policy,
                flush_times,
                ..
            } => Some((policy, *flush_times != Some(false))),
            _ => None,
        }
    }

    /// Whether it is a Samba with this `strict sync`, and without `sync always`.
    pub(in crate::bench) fn is_samba(&self, strict: bool) -> bool {
        matches!(self, Self::Samba { strict_sync, sync_always: false, .. } if *strict_sync == strict)
    }
}
