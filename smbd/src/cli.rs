//! The command line: its subcommands, their help, and which module carries each of them out.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 not understood (clap's); `status --check` has its own.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::{
    args::{AccountPlace, CloseCommand, GroupCommand, PolicyCommand, ServerPlace, UserCommand},
    commands::{account, administration, check_config, convert_streams},
    runtime::log,
    serve,
};

/// The text that clap prints first.
const ABOUT: &str = "Holdfast serves folders to Windows, macOS and Linux over SMB 2 and 3.";

const EXAMPLES: &str = "\
Examples:
  Serve a folder to this machine only; user, password and how to connect are shown:
      holdfast serve /srv/data

  Serve it to the network, under another name, as alice, password from a file:
      holdfast serve data=/srv/data --listen 0.0.0.0:4450 --user alice --password-file pw

  Serve from a configuration (examples/holdfast.toml explains every key):
      holdfast check-config holdfast.toml
      holdfast user add alice --config holdfast.toml
      holdfast serve --config holdfast.toml

  See what a running server does; change what it promises; have it read its files again:
      holdfast status
      holdfast policy set data strict-sync
      holdfast policy explain /srv/data/file --user alice
      holdfast reload

  End what is open:
      holdfast close user bob

What a successful reply promises (--durability, or `durability` in the configuration):
  honor        (default) what a successful flush covers survives a power failure, name included
  strict-sync  every change that was answered survives, whether flushed or not
  bounded:50ms,4MiB
               a flush is answered at once; at most the last 50 ms, and at most 4 MiB, can be lost
  treat-host-as-stable-storage
               a flush is answered at once; a crash of this MACHINE loses what the kernel had
               not written yet. Needs --accept-loss.

Logging: HOLDFAST_LOG=debug holdfast serve ...
Exit status: 0 done; 1 refused or failed; 2 the arguments are not understood. `status --check`,
`verify-flush` and `bench` have others, which their help explains.";

/// Holdfast's command line.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, about = ABOUT, after_help = EXAMPLES)]
pub struct Cli<T: Subcommand> {
    #[command(subcommand)]
    command: Command<T>,
}

#[derive(Debug, Subcommand)]
enum Command<T: Subcommand> {
    /// Serve folders, from the command line or from a configuration file
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(serve::ServeArgs),
    /// Find mistakes in a configuration file, without serving
    CheckConfig {
        /// The TOML file
        file: PathBuf,
    },
    /// Make, change and list users
    User {
        #[command(flatten)]
        place: AccountPlace,
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Make, change and list groups
    Group {
        #[command(flatten)]
        place: AccountPlace,
        #[command(subcommand)]
        command: GroupCommand,
    },
    /// Show what a running server does
    #[command(after_help = STATUS_EXIT)]
    Status {
        #[command(flatten)]
        server: ServerPlace,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
        /// Say in one line what is wrong, for monitoring
        #[arg(long, conflicts_with = "json")]
        check: bool,
    },
    /// Let a running server read its configuration and users again
    ///
    /// Clients keep all that the new configuration allows. The rest ends at once, or after `revocation_grace`:
    /// connections from addresses that `[server]` no longer admits; sessions of users who were removed or disabled, or
    /// that are not signed or encrypted as `[server]` now requires. A connection to a share ends, together with its
    /// open files, if the share is gone, has another path or owner, became read-only, now requires encryption, now has
    /// `access_based_enumeration` or stricter `symlinks`, or no longer admits the user or address. The answer names the
    /// keys that need a restart.
    Reload {
        #[command(flatten)]
        server: ServerPlace,
    },
    /// Close what clients of a running server have open
    #[command(after_help = CLOSE_EXAMPLES)]
    Close {
        #[command(flatten)]
        server: ServerPlace,
        /// Say what was closed as JSON, for programs
        #[arg(long, global = true)]
        json: bool,
        #[command(subcommand)]
        command: CloseCommand,
    },
    /// Show, explain or change what a running server promises of durability
    #[command(after_help = POLICY_EXAMPLES)]
    Policy {
        #[command(flatten)]
        server: ServerPlace,
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Move all named streams of a share to where its configuration says
    #[command(after_help = CONVERT_EXAMPLES)]
    ConvertStreams {
        /// The share
        share: String,
        /// The configuration that has it
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// The commands that the binary adds; the daemon's library does not link them.
    #[command(flatten)]
    More(T),
}

const STATUS_EXIT: &str = "\
Status 0: the server answered; 1: it did not.

With --check: 0: nothing is wrong; 1: something is, such as a share that is not served, data that
may be lost, a file whose sync failed, or a state folder that cannot be written; 2: no server
answered, or the arguments are not understood. The line begins with OK, WARNING or CRITICAL.";

const CONVERT_EXAMPLES: &str = "\
Examples:
  holdfast convert-streams data --config holdfast.toml

Moves the streams of every file and folder of the share to where `streams` of the share says: into
extended attributes (\"xattr\", Samba's streams_xattr), or below .streams (\"depot\", Samba's
streams_depot). No server may serve the folder meanwhile: the command refuses to start while one
runs with this configuration; stop others, and Samba, by hand. It may be interrupted at any time and
run again: nothing leaves the old place before it is stable in the new one. The command names each
file and folder whose streams it moves. If one stream of a file does not fit into attributes, all
streams of that file stay where they are. Status 0: all are where they should be; 1: some are not,
or the command could not begin.";

const CLOSE_EXAMPLES: &str = "\
Examples:
  holdfast status                     shows the ids of sessions and opens
  holdfast close session 3735928559   its user has to log in again
  holdfast close open 51966           one file; requests that wait for it continue
  holdfast close user bob             all sessions of bob, and opens that wait for him to reconnect
  holdfast close share data           everything open on a share

Nothing is synced by this: dirty data stay dirty, as after any close. Locks, leases and durable
handles of what is closed are gone: an application on the client may lose what it had not written.
Clients may come back at once; `holdfast user disable` or the configuration, and then `holdfast
reload`, keep them out. Status 0: closed, or nothing was open; 1: there is no such session, open,
user or share.";

const SERVE_EXAMPLES: &str = "\
Examples:
  holdfast serve .                                     this folder, for this machine
  holdfast serve photos=/srv/p music=/srv/m            two shares
  holdfast serve /srv/data --listen [::]:445           every address, IPv4 and IPv6
  holdfast serve /srv/data --user alice --password-file -    password from standard input
  sudo holdfast serve /srv/data --owner 1000:1000            files are read and made as 1000:1000
  holdfast serve /srv/data --encrypt required --durability strict-sync
  holdfast serve --config /etc/holdfast/holdfast.toml

Without --listen only this machine can connect. Without --password-file the server generates a
password and shows it. It listens on port 445 if it may, otherwise on the first free port from 4450,
and shows the port. It ends with Ctrl-C, and without --config with its terminal, too (unless
nohup started it).";

const POLICY_EXAMPLES: &str = "\
Examples:
  holdfast policy show                         what each share promises, and what is at risk now
  holdfast policy set data strict-sync         returns when all acknowledged before is stable
  holdfast policy set data honor --without-rules   for every open, say on battery power
  holdfast policy set data treat-host-as-stable-storage --accept-loss
  holdfast policy explain data/db/a.mdb --user alice
  holdfast policy clear-latch data             after a failed sync: accept what is lost

After a sync has failed, every flush of that file fails with the same error, and a share whose
policy answers before the disk goes to `honor` by itself. That ends when everything that may be lost
has been written and synced again, or with `clear-latch`: then flushes succeed again, and what was
lost stays lost.";

impl<T: Subcommand> Cli<T> {
    /// Carries the command out: `daemon` serves, `more` carries out the commands that the binary adds.
    pub fn run(
        self,
        daemon: impl FnOnce(crate::daemon::Setup) -> Result<(), crate::Error>,
        more: impl FnOnce(T) -> ExitCode,
    ) -> ExitCode {
        let done = match self.command {
            Command::Serve(args) => serve::serve(&args, daemon),
            Command::CheckConfig { file } => check_config::check_config(&file),
            Command::User { place, command } => account::user(&place, command),
            Command::Group { place, command } => account::group(&place, command),
            Command::Status {
                server,
                check: true,
                ..
            } => return administration::check(&server),
            Command::Status { server, json, .. } => administration::status(&server, json),
            Command::Reload { server } => administration::reload(&server),
            Command::Close {
                server,
                json,
                command,
            } => administration::close(&server, command, json),
            Command::Policy { server, command } => administration::policy(&server, command),
            Command::ConvertStreams { share, config } => convert_streams::run(&share, &config),
            Command::More(command) => return more(command),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let text = error.to_string();
                let lead = if text.starts_with("error: ") {
                    ""
                } else {
                    "error: "
                };
                let text = log::of_command(&format!("{lead}{}", text.trim_end()));
                // `eprint!` would panic if stderr is closed or full.
                let _ = io::stderr().write_all(text.as_bytes());
                ExitCode::FAILURE
            }
        }
    }
}
