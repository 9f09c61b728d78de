//! The last requests and answers of a case, and how many there were of all cases.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use smb_client::Request;
use smb_wire::header::Header;
use smb_wire::{Command, Status};

use crate::world::USERS;

/// Lines that are kept of many cases; of a single one, all are.
const LINES_MAX: usize = 60;
/// Bytes of a body that are shown.
const BODY_SHOWN: usize = 112;

/// The last messages on the connections.
#[derive(Default)]
pub(crate) struct History {
    /// Nothing is forgotten.
    whole: bool,
    lines: VecDeque<String>,
}

impl History {
    /// An empty one, which forgets nothing if `whole`.
    pub(crate) fn new(whole: bool) -> Self {
        Self {
            whole,
            ..Self::default()
        }
    }

    /// A request is sent; returns its text.
    pub(crate) fn asked(
        &mut self,
        at: Duration,
        connection: usize,
        user: usize,
        request: &Request,
    ) -> String {
        let mut text = format!(
            "{at:.3?} {connection} {} -> {} session {:x} tree {:x} {:?}",
            USERS[user].name,
            request.command,
            request.session_id.0,
            request.tree_id.0,
            request.flags
        );
        let body = request.message().get(64..).unwrap_or_default();
        text.push(' ');
        for byte in body.iter().take(BODY_SHOWN) {
            // Writing to a string never fails.
            let _ = write!(text, "{byte:02x}");
        }
        self.add(text.clone());
        text
    }

    /// An answer came.
    pub(crate) fn answered(&mut self, at: Duration, connection: usize, header: &Header) {
        self.add(format!(
            "{at:.3?} {connection} <- {} {} to {}",
            header.command, header.status, header.message_id.0
        ));
    }

    /// Something else happened.
    pub(crate) fn add(&mut self, line: String) {
        if self.lines.len() >= LINES_MAX && !self.whole {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        self.lines
            .iter()
            .map(|line| format!("  {line}\n"))
            .collect()
    }
}

/// Sums over the cases.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) cases: u64,
    pub(crate) requests: u64,
    commands: BTreeMap<u16, (u64, u64)>,
}

impl Tally {
    /// A final answer came.
    pub(crate) fn answer(&mut self, command: Command, status: Status) {
        let (answers, successes) = self.commands.entry(command.0).or_default();
        *answers += 1;
        *successes += u64::from(status.is_success());
    }

    /// Commands, but those that are there for other ends, of which none succeeded.
    pub(crate) fn idle(&self) -> Vec<Command> {
        let all = (Command::LOGOFF.0..=Command::OPLOCK_BREAK.0).map(Command);
        all.filter(|command| *command != Command::CANCEL)
            .filter(|command| {
                self.commands
                    .get(&command.0)
                    .is_none_or(|(_, good)| *good == 0)
            })
            .collect()
    }

    /// A line for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} cases, {} requests; answers:", self.cases, self.requests);
        for (command, (answers, successes)) in &self.commands {
            let _ = write!(text, " {} {successes}/{answers}", Command(*command));
        }
        text
    }
}
