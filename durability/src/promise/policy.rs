//! The event table as one pure function: (event, settings, flags of the request) to barriers.
//!
//! It decides only; `gate/` marks, syncs and waits. Every change is marked dirty under every policy,
//! because what is dirty must be known when the policy tightens, so marking is no part of the answer.

use super::settings::{Policy, ShareDurability};

/// The object that a client asks by a FLUSH to be made stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushTarget {
    /// A file or a stream of one.
    File,
    /// A directory, and its name.
    Directory,
    /// The root of the share: every dirty inode of it and of its file system.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// FLUSH.
    Flush(FlushTarget),
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
    /// The name of a directory moved, by which other names are reached, or a name of whose move the file system may
    /// keep only one half.
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
}

/// The flags of a request and of its open that ask for stability.
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

/// The syncs that must have ended before the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Wait {
    /// Nothing.
    #[default]
    Nothing,
    /// The dirty names of the inode, if any (then with the inode: a name on disk that leads to
    /// an inode that is not is worth nothing).
    Names,
    /// The directory that lost a name.
    Parent,
    /// The inode, then its dirty names.
    Inode,
    /// Every dirty inode of the share.
    Share,
}

/// The answer of [`barriers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Barriers {
    /// The write itself is durable (`RWF_DSYNC`), but for the times that it sets.
    pub(crate) durable_write: bool,
    /// The syncs that the reply waits for.
    pub(crate) wait: Wait,
    /// The effect stays dirty under a bound: the reply waits for room within it.
    pub(crate) bounded: bool,
    /// The client asked for stability and does not get it now.
    pub(crate) deferred: bool,
}

impl Barriers {
    fn wait(wait: Wait) -> Self {
        Self {
            wait,
            ..Self::default()
        }
    }

    /// The barriers that make a WRITE stable before its reply. A stream may live in an extended
    /// attribute, which only fsync covers.
    pub(crate) fn stored(event: Event) -> Self {
        match event {
            Event::Write => Self {
                durable_write: true,
                ..Self::wait(Wait::Names)
            },
            _ => Self::wait(Wait::Inode),
        }
    }
}

/// How a policy treats what a client asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Honored,
    Deferred,
    Bounded,
}

/// The barriers that the reply to `event` needs before it may report success.
pub(crate) fn barriers(event: Event, settings: &ShareDurability, flags: RequestFlags) -> Barriers {
    let asked = match settings.policy {
        Policy::StrictSync => return strict(event),
        Policy::Honor => Asked::Honored,
        Policy::TreatHostAsStableStorage => Asked::Deferred,
        Policy::Bounded(_) => Asked::Bounded,
    };
    // FILE_WRITE_THROUGH: whatever is done through the open is synced, too.
    let through = flags.open_write_through || flags.write_through;
    let unbuffered = flags.unbuffered || flags.open_unbuffered;
    match event {
        Event::Flush(_) if flags.full_sync && !settings.ignore_full_sync => strict(event),
        Event::Flush(_) => answer(asked, strict(event)),
        Event::Write | Event::WriteStream
            if through || (settings.unbuffered_is_write_through && unbuffered) =>
        {
            answer(asked, Barriers::stored(event))
        }
        // A policy that answers FLUSH before the disk has to have it stable by then, too.
        Event::Move if asked != Asked::Deferred => strict(event),
        // A lost revocation is a security fault.
        Event::Meta(Meta::Security) if settings.durable_acl && asked != Asked::Bounded => {
            strict(event)
        }
        Event::Close => Barriers::default(),
        Event::Write | Event::WriteStream => not_asked(asked),
        _ if through => answer(asked, strict(event)),
        _ => not_asked(asked),
    }
}

/// Also a WRITE waits for a sync of its inode: a durable write (`RWF_DSYNC`) would leave the times
/// behind, and a sync after one would flush the device twice.
fn strict(event: Event) -> Barriers {
    Barriers::wait(match event {
        Event::Flush(FlushTarget::ShareRoot) => Wait::Share,
        Event::Remove => Wait::Parent,
        _ => Wait::Inode,
    })
}

/// The client asked for these barriers.
fn answer(asked: Asked, honored: Barriers) -> Barriers {
    match asked {
        Asked::Honored => honored,
        Asked::Deferred | Asked::Bounded => Barriers {
            deferred: true,
            ..not_asked(asked)
        },
    }
}

/// The client asked for nothing.
fn not_asked(asked: Asked) -> Barriers {
    Barriers {
        bounded: asked == Asked::Bounded,
        ..Barriers::default()
    }
}
