//! Arguments and subcommands that the modules behind the command line take.
//!
//! The texts here are what `--help` prints. Each type is named by the module that carries it out, so that no such
//! module needs to name `cli.rs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::config;

/// The options that choose a user file.
#[derive(Debug, Args)]
pub struct AccountPlace {
    /// The configuration whose users are meant (default: the file in the default state folder)
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// The user file itself
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "config")]
    pub users_file: Option<PathBuf>,
}

/// The options that choose a running server.
#[derive(Debug, Args)]
pub struct ServerPlace {
    /// Its configuration (default: the only server of this user)
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Its control socket
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "config")]
    pub socket: Option<PathBuf>,
}

/// `holdfast user ...`
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user; the password is asked for, or taken from a file
    Add {
        /// Name to log in with
        name: String,
        /// First line is the password; - is standard input
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// Name to show
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "",
            hide_default_value = true
        )]
        full_name: String,
        /// Local user and group as whom the new user acts on disk (`id NAME` prints the numbers;
        /// default: the guest account)
        #[arg(long, value_name = "UID:GID")]
        owner: Option<config::LocalIds>,
        /// Group to join; may be repeated
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// Change the local user as whom a user acts on disk
    Owner {
        /// Name of the user
        name: String,
        /// Local user and group (default: the guest account)
        #[arg(value_name = "UID:GID")]
        owner: Option<config::LocalIds>,
    },
    /// Change a password
    Passwd {
        /// Name of the user
        name: String,
        /// First line is the password; - is standard input
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// Remove a user
    Remove {
        /// Name of the user
        name: String,
    },
    /// List users
    List,
    /// Let a disabled user log in again
    Enable {
        /// Name of the user
        name: String,
    },
    /// Keep a user from logging in
    Disable {
        /// Name of the user
        name: String,
    },
}

/// `holdfast group ...`
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Add a group
    Add {
        /// Its name
        name: String,
    },
    /// Remove a group; its members stay users
    Remove {
        /// Its name
        name: String,
    },
    /// Make a user a member
    Join {
        /// The group
        group: String,
        /// The user
        user: String,
    },
    /// End a membership
    Leave {
        /// The group
        group: String,
        /// The user
        user: String,
    },
    /// List groups and their members
    List,
}

/// `holdfast close ...`
#[derive(Debug, Subcommand)]
pub enum CloseCommand {
    /// Close a session
    Session {
        /// Its id, as `status` shows it
        id: u64,
    },
    /// Close an open file, folder or pipe
    Open {
        /// Its id, as `status` shows it
        id: u64,
    },
    /// Close all sessions of a user
    User {
        /// Name of the user
        name: String,
    },
    /// Close everything that is open on a share
    Share {
        /// Its name
        name: String,
    },
}

/// `holdfast policy ...`
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show the policies and what is exposed
    Show {
        /// One share (default: all)
        share: Option<String>,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Change a policy until the next reload or restart
    ///
    /// The change takes effect at once, for open files, too. A stricter policy also makes stable what was
    /// acknowledged under the old one: the command returns when that is done and says how much it was; it fails if
    /// something could not be made stable. The log and `status` say who changed what.
    Set {
        /// The share
        share: String,
        /// honor, strict-sync, bounded:50ms,4MiB, treat-host-as-stable-storage
        policy: String,
        /// Agree to lose acknowledged writes when the machine fails
        #[arg(long)]
        accept_loss: bool,
        /// Set the share's durability rules aside, too: the policy is for every open then
        #[arg(long)]
        without_rules: bool,
    },
    /// Say which policy an open has, by which rule, and why the earlier rules do not match
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Accept the loss of the data that failed syncs may have lost, so that flushes of those files
    /// (`status` names them) succeed again
    ClearLatch {
        /// One share (default: all)
        share: Option<String>,
    },
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  holdfast policy explain /srv/data/db/a.mdb --user alice --client 192.0.2.7
  holdfast policy explain data/scratch --config holdfast.toml     no server need run

With --config the answer follows from the file. If a server runs with that file, the server answers,
and adds the policy in force if the file is open now: the strictest of its opens decides.";

/// `holdfast policy explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub question: Question,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// An open of which the policy is asked for, as the command line has it and as it is sent to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// A path below a share's folder, or SHARE/PATH
    pub path: String,
    // The same path, made absolute as if it were one of this machine.
    #[arg(skip)]
    pub host_path: PathBuf,
    /// The user who opens it
    #[arg(
        long,
        value_name = "USER",
        default_value = "",
        hide_default_value = true
    )]
    #[serde(default)]
    pub user: String,
    /// The address of the client
    #[arg(long, value_name = "ADDRESS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<std::net::IpAddr>,
    /// The dialect of the client: 2.0.2, 2.1, 3.0, 3.0.2, 3.1.1
    #[arg(long, value_name = "DIALECT", default_value = "3.1.1", value_parser = revision)]
    pub dialect: u16,
    /// The open asks for FILE_WRITE_THROUGH
    #[arg(long)]
    #[serde(default)]
    pub write_through: bool,
    /// The open asks for FILE_NO_INTERMEDIATE_BUFFERING
    #[arg(long)]
    #[serde(default)]
    pub unbuffered: bool,
    /// The share; PATH is within it then
    #[arg(long, value_name = "SHARE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
}

/// The number of a dialect on the wire.
fn revision(name: &str) -> Result<u16, String> {
    Ok(name.parse::<config::DialectName>()?.revision())
}
