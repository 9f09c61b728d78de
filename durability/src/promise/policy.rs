//! (event, policy, request flags) -> barriers: one pure function, the event table of the design
//! row by row.
//!
//! Decides only. Marking, syncing and waiting are `gate/mod.rs`; the texts of policies are
//! `settings.rs`. Every state change is *marked* under every policy (what is owed must be known
//! whenever the policy tightens), so marking is not part of the answer.

use super::settings::{Policy, ShareDurability};

/// What a client asks to be made stable by a FLUSH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flushed {
    /// A file or a stream of one.
    File,
    /// A directory.
    Directory,
    /// The share's root: every dirty inode of the share.
    ShareRoot,
}

/// Which metadata changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meta {
    /// The security descriptor.
    Security,
    /// Explicitly set times.
    Times,
    /// DOS attributes.
    Attributes,
    /// Extended attributes.
    Eas,
}

/// A state change, or a request for stability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// FLUSH.
    Flush(Flushed),
    /// WRITE to a file's unnamed stream.
    Write,
    /// WRITE to a named stream.
    WriteStream,
    /// A file or directory was created.
    Create,
    /// A handle is closed.
    Close,
    /// End of file or allocation was set.
    Resize,
    /// A name of a file moved, within a directory or where the file system keeps a rename whole.
    Rename,
    /// A name moved that others are reached by, a directory's, or of which the file system may keep
    /// one half.
    Move,
    /// A name was added.
    Link,
    /// A name was removed.
    Remove,
    /// A named stream was created, renamed or removed.
    Stream,
    /// Contents changed otherwise: copied, cloned, zeroed.
    Content,
    /// Metadata changed.
    Meta(Meta),
    /// The server stops.
    Stop,
}

/// What the request and its open ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestFlags {
    /// SMB2_WRITEFLAG_WRITE_THROUGH.
    pub write_through: bool,
    /// SMB2_WRITEFLAG_WRITE_UNBUFFERED.
    pub unbuffered: bool,
    /// Apple's full sync: FLUSH with Reserved1 = 0xFFFF.
    pub full_sync: bool,
    /// The open was created with FILE_WRITE_THROUGH.
    pub open_write_through: bool,
    /// The open was created with FILE_NO_INTERMEDIATE_BUFFERING.
    pub open_unbuffered: bool,
}

/// What must have ended before the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Wait {
    /// Nothing.
    #[default]
    Nothing,
    /// The names owed for the inode, if any (then with the inode: a name on disk that leads to
    /// an inode that is not is worth nothing).
    Names,
    /// The directory that lost a name.
    Parent,
    /// The inode, then the names owed for it.
    Inode,
    /// Every dirty inode of the share.
    Share,
}

/// The answer of [`barriers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Barriers {
    /// The write itself is durable (`RWF_DSYNC`), but for the times that it sets.
    pub durable_write: bool,
    /// What the reply waits for.
    pub wait: Wait,
    /// The effect is owed under a bound: the reply waits for room within it.
    pub owed: bool,
    /// The client asked for stability and does not get it now.
    pub deferred: bool,
}

impl Barriers {
    const NOTHING: Self = Self {
        durable_write: false,
        wait: Wait::Nothing,
        owed: false,
        deferred: false,
    };

    const fn wait(wait: Wait) -> Self {
        Self {
            wait,
            ..Self::NOTHING
        }
    }
}

/// How a policy treats what a client asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Honored,
    Deferred,
    Owed,
}

/// What must happen before the reply to `event` may report success.
pub fn barriers(event: Event, settings: &ShareDurability, flags: RequestFlags) -> Barriers {
    if settings.policy == Policy::StrictSync {
        return strict(event);
    }
    let asked = match settings.policy {
        Policy::Honor | Policy::StrictSync => Asked::Honored,
        Policy::TreatHostAsStableStorage => Asked::Deferred,
        Policy::Bounded(_) => Asked::Owed,
    };
    match event {
        Event::Flush(target) => flush(target, asked, settings, flags),
        Event::Write | Event::WriteStream if through(settings, flags) => {
            let honored = match event {
                Event::Write => Barriers {
                    durable_write: true,
                    ..Barriers::wait(Wait::Names)
                },
                // A stream may live in an extended attribute: only fsync covers it.
                _ => Barriers::wait(Wait::Inode),
            };
            answer(asked, honored)
        }
        // A policy that answers FLUSH before the disk has to have it stable by then, too.
        Event::Move if asked != Asked::Deferred => Barriers::wait(Wait::Inode),
        // FILE_WRITE_THROUGH: whatever is done through the open is synced too.
        Event::Resize
        | Event::Content
        | Event::Meta(_)
        | Event::Create
        | Event::Rename
        | Event::Move
        | Event::Link
        | Event::Remove
        | Event::Stream
            if flags.open_write_through || flags.write_through =>
        {
            match event {
                Event::Meta(Meta::Security) => security(asked, true, settings),
                Event::Remove => answer(asked, Barriers::wait(Wait::Parent)),
                _ => answer(asked, Barriers::wait(Wait::Inode)),
            }
        }
        Event::Meta(Meta::Security) => security(asked, false, settings),
        Event::Stop if settings.sync_on_stop => Barriers::wait(Wait::Share),
        Event::Close | Event::Stop => Barriers::NOTHING,
        _ => Barriers {
            owed: asked == Asked::Owed,
            ..Barriers::NOTHING
        },
    }
}

/// Also a WRITE waits for a sync of its inode: a durable write (`RWF_DSYNC`) would leave the times
/// behind, and a sync after one would flush the device twice.
fn strict(event: Event) -> Barriers {
    match event {
        Event::Flush(Flushed::ShareRoot) | Event::Stop => Barriers::wait(Wait::Share),
        Event::Remove => Barriers::wait(Wait::Parent),
        _ => Barriers::wait(Wait::Inode),
    }
}

fn flush(
    target: Flushed,
    asked: Asked,
    settings: &ShareDurability,
    flags: RequestFlags,
) -> Barriers {
    let wait = match target {
        Flushed::File | Flushed::Directory => Wait::Inode,
        Flushed::ShareRoot => Wait::Share,
    };
    let asked = if flags.full_sync && !settings.ignore_full_sync {
        Asked::Honored
    } else {
        asked
    };
    answer(asked, Barriers::wait(wait))
}

fn security(asked: Asked, through: bool, settings: &ShareDurability) -> Barriers {
    match asked {
        Asked::Owed => Barriers {
            owed: true,
            deferred: through,
            ..Barriers::NOTHING
        },
        _ if settings.durable_acl => Barriers::wait(Wait::Inode),
        _ if through => answer(asked, Barriers::wait(Wait::Inode)),
        _ => Barriers::NOTHING,
    }
}

fn answer(asked: Asked, honored: Barriers) -> Barriers {
    match asked {
        Asked::Honored => honored,
        Asked::Deferred => Barriers {
            deferred: true,
            ..Barriers::NOTHING
        },
        Asked::Owed => Barriers {
            owed: true,
            deferred: true,
            ..Barriers::NOTHING
        },
    }
}

/// Whether a WRITE is to be stored before its reply.
fn through(settings: &ShareDurability, flags: RequestFlags) -> bool {
    flags.write_through
        || flags.open_write_through
        || (settings.unbuffered_is_write_through && (flags.unbuffered || flags.open_unbuffered))
}
