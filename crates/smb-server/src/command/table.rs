//! The table of commands ([MS-SMB2] 2.2.1.2): everything that differs between commands on the way to their handlers.
//!
//! A command is added by a row here, its message in `smb-wire/src/msg`, the file of its handler, and a black-box test
//! in `tests/commands`. The row names the file, and the metrics name the command by it. The rows stand in the order of
//! the codes, so a row is found by its place.

use std::{future::Future, pin::Pin};

use smb_wire::{
    header::{Command, Header},
    ids::SessionId,
};
use vfs::Vfs;

use super::{Call, Handled};
use crate::{
    connection::Connection,
    limits::{INTERIM_FLUSH_MS, INTERIM_IO_MS},
    link::inbound::Request,
    state::{COMMANDS, CommandCount, Requests},
    turn::{NAME_WORK, SMALL_WORK},
};

/// The future of a handler. It is on the heap, because otherwise the future of every request would have the size of the
/// largest.
type Work<'a> = Pin<Box<dyn Future<Output = Handled> + 'a>>;

/// The requirements of a command before its handler may run ([MS-SMB2] 3.3.5.2.9, 3.3.5.2.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Needs {
    /// Nothing.
    Nothing,
    /// A session, if the request names one ([MS-SMB2] 3.3.5.17).
    NamedSession,
    /// A session.
    Session,
    /// A session and a tree.
    Tree,
}

impl Needs {
    /// Whether this request must have a session.
    pub(super) fn session(self, header: &Header) -> bool {
        match self {
            Self::Nothing => false,
            Self::NamedSession => header.session_id != SessionId::default(),
            Self::Session | Self::Tree => true,
        }
    }
}

pub(super) enum Handler<V: Vfs> {
    /// It gets no answer, and the usual checks do not apply.
    Silent(fn(&Connection<V>, &Request)),
    /// It never waits.
    AtOnce(fn(&Call<V>) -> Handled),
    Async(for<'a> fn(&'a Call<V>) -> Work<'a>),
}

pub(super) struct Row<V: Vfs> {
    pub(super) code: Command,
    pub(super) needs: Needs,
    /// The command may change something on a share.
    pub(super) changes: bool,
    /// Milliseconds that its handler may take until the client gets STATUS_PENDING, if the disk can delay it.
    pub(super) patience: Option<u64>,
    /// The cost before the request is parsed; its bytes and those of its answer count in addition.
    pub(super) work: usize,
    pub(super) handler: Handler<V>,
}

const NO: bool = false;
const CHANGES: bool = true;
const DATA: Option<u64> = Some(INTERIM_IO_MS);
const FLUSH: Option<u64> = Some(INTERIM_FLUSH_MS);

macro_rules! commands {
    ($($code:ident $file:ident $handler:ident $needs:ident $changes:ident $patience:ident $work:ident;)+) => {
        /// The commands' names in lower case, by their codes.
        const NAMES: [&str; COMMANDS] = [$(stringify!($file)),+];

        impl<V: Vfs> Row<V> {
            const ALL: &'static [Self; COMMANDS] = &[$(Self {
                code: Command::$code,
                needs: Needs::$needs,
                changes: $changes,
                patience: $patience,
                work: $work,
                handler: commands!($handler $file),
            }),+];
        }
    };
    (Async $file:ident) => { Handler::Async(|call| Box::pin(super::$file::handle(call))) };
    ($handler:ident $file:ident) => { Handler::$handler(super::$file::handle) };
}

commands! {
    // code         file             handler needs        changes patience work
    NEGOTIATE       negotiate        Async   Nothing      NO      None     NAME_WORK;
    SESSION_SETUP   session_setup    Async   Nothing      NO      None     NAME_WORK;
    LOGOFF          logoff           Async   Session      NO      None     NAME_WORK;
    TREE_CONNECT    tree_connect     Async   Session      NO      None     NAME_WORK;
    TREE_DISCONNECT tree_disconnect  Async   Tree         NO      None     NAME_WORK;
    CREATE          create           Async   Tree         CHANGES None     NAME_WORK;
    CLOSE           close            Async   Tree         CHANGES None     NAME_WORK;
    FLUSH           flush            Async   Tree         NO      FLUSH    NAME_WORK;
    READ            read             Async   Tree         NO      DATA     SMALL_WORK;
    WRITE           write            Async   Tree         CHANGES DATA     SMALL_WORK;
    LOCK            lock             Async   Tree         NO      None     NAME_WORK;
    IOCTL           ioctl            Async   Tree         CHANGES DATA     NAME_WORK;
    CANCEL          cancel           Silent  Nothing      NO      None     SMALL_WORK;
    ECHO            echo             AtOnce  NamedSession NO      None     SMALL_WORK;
    QUERY_DIRECTORY query_directory  Async   Tree         NO      None     NAME_WORK;
    CHANGE_NOTIFY   change_notify    Async   Tree         NO      None     NAME_WORK;
    QUERY_INFO      query_info       Async   Tree         NO      None     NAME_WORK;
    SET_INFO        set_info         Async   Tree         CHANGES None     NAME_WORK;
    OPLOCK_BREAK    oplock_break     Async   Tree         NO      None     NAME_WORK;
}

/// The row of a command; `None` if there is no such command.
pub(super) fn row<V: Vfs>(command: Command) -> Option<&'static Row<V>> {
    let row = Row::ALL.get(usize::from(command.0));
    row.filter(|row| row.code == command)
}

pub(super) fn needs_tree<V: Vfs>(command: Command) -> bool {
    row::<V>(command).is_some_and(|row| row.needs == Needs::Tree)
}

impl Requests {
    /// The sums, one for each command.
    pub fn read(&self) -> impl Iterator<Item = CommandCount> + '_ {
        self.sums(NAMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::world::Back;

    #[test]
    fn a_row_stands_at_the_place_of_its_code() {
        for (at, row) in Row::<Back>::ALL.iter().enumerate() {
            assert_eq!(usize::from(row.code.0), at);
            assert_eq!(row.code.to_string().to_lowercase(), NAMES[at]);
        }
        assert!(row::<Back>(Command(19)).is_none());
    }
}
