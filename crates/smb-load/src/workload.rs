//! The workloads by their names and parameters, as records and plans have them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    jetstress::{Preset, Profile},
    netbench::{script, worker::Class},
    programs::Program,
};

/// Mailboxes at most of a mail store.
const MAILBOXES_MAX: u64 = 10_000_000;

/// The workload that a step runs, with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "workload", rename_all = "kebab-case")]
pub enum Workload {
    /// NetBench's Enterprise Disk Mix; a client is one of its clients.
    Netbench {
        /// Documents in the folder of each client.
        #[serde(default = "documents")]
        documents: u32,
        /// How much the clients cache.
        #[serde(default)]
        class: Class,
    },
    /// The load file of dbench, line by line; a client is one of its clients.
    Replay {
        /// Its path.
        #[serde(default = "load_file")]
        load_file: PathBuf,
    },
    /// The I/O of a mail store; a client is one thread of each group.
    Jetstress {
        /// Storage groups.
        #[serde(default = "one")]
        groups: usize,
        /// Their databases and how stability is asked for.
        #[serde(flatten)]
        profile: Profile,
    },
    /// WRITEs, each with a FLUSH; a client is an open on a connection of its own.
    FlushLadder {
        /// All clients open the same file.
        #[serde(default)]
        one_file: bool,
        /// Bytes of each WRITE.
        #[serde(default = "small")]
        bytes: u32,
    },
    /// Large files are written and read in pieces of 1 MiB.
    FileCopy {
        /// The size of a file, MiB.
        #[serde(default = "mebibytes")]
        mebibytes: u64,
    },
    /// Files of 4 KiB are created, written, read and deleted.
    SmallFiles,
    /// Names are created, queried, renamed, listed and deleted.
    Metadata,
    /// READs at random places of cached files.
    Read {
        /// Bytes of each.
        bytes: u32,
        /// Outstanding on each connection.
        #[serde(default = "one")]
        depth: usize,
        /// Connections of each client.
        #[serde(default = "one")]
        connections: usize,
    },
    /// WRITEs at random places of a cached file.
    Write {
        /// Bytes of each.
        bytes: u32,
        /// Outstanding.
        #[serde(default = "one")]
        depth: usize,
    },
    /// ECHO requests.
    Echo,
    /// CREATE and CLOSE of files that stay.
    OpenClose {
        /// Files that a client opens at once.
        #[serde(default = "one")]
        depth: usize,
    },
    /// An empty file is created, closed and deleted.
    CreateRemove,
    /// Connections that log in, connect to the share and log off.
    Connection,
    /// The same on a connection that stays.
    Session,
    /// 4 KiB READs of one client, while another one does something else.
    ReadBeside {
        /// The work of the other one, which is not counted.
        #[serde(default)]
        noise: Noise,
    },
    /// Connections with a session and a tree that do nothing: their memory counts.
    Idle,
    /// A program that is no part of this project.
    Program(Program),
}

fn one() -> usize {
    1
}

fn small() -> u32 {
    4096
}

fn documents() -> u32 {
    24
}

fn load_file() -> PathBuf {
    script::PLACE.into()
}

fn mebibytes() -> u64 {
    64
}

/// The work of a client that disturbs another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Noise {
    /// Reads 1 MiB pieces, four outstanding.
    #[default]
    Stream,
    /// Writes 64 MiB and flushes, over and over.
    Flush,
}

impl Workload {
    /// Whether its numbers can be.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, number: u64, least: u64, most: u64| match number {
            number if (least..=most).contains(&number) => Ok(()),
            _ => Err(format!("{}: {what} is {least} to {most}", self.name())),
        };
        match self {
            Self::Netbench { documents, .. } => {
                within("documents", u64::from(*documents), 8, 10_000)
            }
            Self::Jetstress { groups, profile } => {
                if let Some(mailboxes) = profile.mailboxes {
                    within("mailboxes", mailboxes, 1, MAILBOXES_MAX)?;
                    if profile.preset != Preset::Exchange {
                        return Err("only a mail store has mailboxes".to_owned());
                    }
                }
                within("mailbox_mib", profile.mailbox_mib, 1, 1 << 20)?;
                within("groups", *groups as u64, 1, 256)?;
                within("pages", profile.pages_of_each(*groups), 8192, 1 << 27)
            }
            Self::FlushLadder { bytes, .. } => within("bytes", u64::from(*bytes), 1, 1 << 20),
            Self::FileCopy { mebibytes } => within("mebibytes", *mebibytes, 1, 1 << 20),
            Self::Read {
                bytes,
                depth,
                connections,
            } => {
                within("connections", *connections as u64, 1, 20_000)?;
                within("depth", *depth as u64, 1, 64)?;
                within("bytes", u64::from(*bytes), 1, 1 << 20)
            }
            Self::Write { bytes, depth } => {
                within("depth", *depth as u64, 1, 64)?;
                within("bytes", u64::from(*bytes), 1, 1 << 20)
            }
            Self::OpenClose { depth } => within("depth", *depth as u64, 1, 64),
            _ => Ok(()),
        }
    }

    /// The name on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Netbench { .. } => "netbench",
            Self::Replay { .. } => "replay",
            Self::Jetstress { .. } => "jetstress",
            Self::FlushLadder { .. } => "flush-ladder",
            Self::FileCopy { .. } => "file-copy",
            Self::SmallFiles => "small-files",
            Self::Metadata => "metadata",
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Echo => "echo",
            Self::OpenClose { .. } => "open-close",
            Self::CreateRemove => "create-remove",
            Self::Connection => "connection",
            Self::Session => "session",
            Self::ReadBeside { .. } => "read-beside",
            Self::Idle => "idle",
            Self::Program(_) => "program",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mail_store_has_mailboxes() {
        let check = |more: &str| {
            let text = format!("{{\"workload\":\"jetstress\"{more}}}");
            serde_json::from_str::<Workload>(&text).unwrap().check()
        };
        assert!(check("").is_ok());
        assert!(check(",\"mailboxes\":5100,\"groups\":4").is_ok());
        // Their database would be larger than one may be.
        assert!(check(",\"mailboxes\":5100").is_err());
        assert!(check(",\"mailboxes\":0").is_err());
        assert!(check(",\"mailboxes\":5100,\"preset\":\"sql-server\"").is_err());
    }
}
