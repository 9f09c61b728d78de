//! The four policies, and the event table as one pure function: (event, settings, flags of the request) to barriers.
//!
//! The table decides only; `gate/` marks, syncs and waits. Every change is marked dirty under every policy,
//! because what is dirty must be known when the policy tightens, so marking is no part of the answer.

use std::time::Duration;

use super::settings::ShareDurability;

/// When a success reply may leave before its effect is on stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// A successful FLUSH or write-through reply means: on stable storage, name included.
    #[default]
    Honor,
    /// The host's memory counts as stable storage: survives the server, not the host.
    TreatHostAsStableStorage,
    /// Every change is durable before its success reply, whether or not the client asked for that.
    StrictSync,
    /// FLUSH is answered at once; a change acknowledged longer than the delay ago, or beyond the bytes, is durable.
    Bounded(Bound),
}

/// The two limits of [`Policy::Bounded`]; [`Bound::new`] checks that they are in range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Longest time that something acknowledged may stay volatile, 1 ms to 60 s.
    pub max_delay: Duration,
    /// Most bytes that may be acknowledged and volatile, 64 KiB to 1 TiB.
    pub max_bytes: u64,
}

impl Bound {
    /// Shortest delay.
    pub const DELAY_MIN: Duration = Duration::from_millis(1);
    /// Longest delay.
    pub const DELAY_MAX: Duration = Duration::from_secs(60);
    /// Fewest bytes.
    pub const BYTES_MIN: u64 = 64 << 10;
    /// Most bytes.
    pub const BYTES_MAX: u64 = 1 << 40;

    /// A bound, if both limits are in range.
    pub fn new(max_delay: Duration, max_bytes: u64) -> Result<Self, InvalidPolicy> {
        if !(Self::DELAY_MIN..=Self::DELAY_MAX).contains(&max_delay) {
            return Err(InvalidPolicy("the delay must be between 1ms and 60s"));
        }
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&max_bytes) {
            return Err(InvalidPolicy("the bytes must be between 64KiB and 1TiB"));
        }
        Ok(Self {
            max_delay,
            max_bytes,
        })
    }

    pub(crate) fn tighter(self, other: Self) -> Self {
        Self {
            max_delay: self.max_delay.min(other.max_delay),
            max_bytes: self.max_bytes.min(other.max_bytes),
        }
    }

    pub(crate) fn looser(self, other: Self) -> Self {
        Self {
            max_delay: self.max_delay.max(other.max_delay),
            max_bytes: self.max_bytes.max(other.max_bytes),
        }
    }

    /// The smallest of each limit among the bounds given; `None` if there is none.
    pub(crate) fn tightest(all: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        all.into_iter().flatten().reduce(Self::tighter)
    }

    /// Whether going from one to the other promises something new.
    pub(crate) fn tightens(from: Option<Self>, to: Option<Self>) -> bool {
        to.is_some_and(|to| from.is_none_or(|from| from.tighter(to) != from))
    }
}

/// Why a policy, a rule or a pattern is refused, in words for the administrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPolicy(pub &'static str);

/// Which of the four policies, without its limits. A greater one promises more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyKind {
    /// [`Policy::TreatHostAsStableStorage`].
    TreatHostAsStableStorage,
    /// [`Policy::Bounded`].
    Bounded,
    /// [`Policy::Honor`].
    Honor,
    /// [`Policy::StrictSync`].
    StrictSync,
}

impl PolicyKind {
    /// Every kind, the laziest first.
    pub const ALL: [Self; 4] = [
        Self::TreatHostAsStableStorage,
        Self::Bounded,
        Self::Honor,
        Self::StrictSync,
    ];

    /// The policy's word in settings and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TreatHostAsStableStorage => "treat-host-as-stable-storage",
            Self::Bounded => "bounded",
            Self::Honor => "honor",
            Self::StrictSync => "strict-sync",
        }
    }

    /// Whether a FLUSH is answered before the disk.
    pub const fn is_lazy(self) -> bool {
        matches!(self, Self::TreatHostAsStableStorage | Self::Bounded)
    }
}

impl Policy {
    /// Which of the four it is.
    pub const fn kind(&self) -> PolicyKind {
        match self {
            Self::TreatHostAsStableStorage => PolicyKind::TreatHostAsStableStorage,
            Self::Bounded(_) => PolicyKind::Bounded,
            Self::Honor => PolicyKind::Honor,
            Self::StrictSync => PolicyKind::StrictSync,
        }
    }

    pub(crate) fn bound(&self) -> Option<Bound> {
        match self {
            Self::Bounded(bound) => Some(*bound),
            _ => None,
        }
    }

    /// Whether a FLUSH is answered before the disk.
    pub(crate) fn is_lazy(&self) -> bool {
        self.kind().is_lazy()
    }

    /// Whether a FLUSH covers the times of changed contents, by this setting. Under strict-sync every answer does.
    #[must_use]
    pub fn flushes_times(&self, flush_times: bool) -> bool {
        flush_times || *self == Self::StrictSync
    }

    /// The stricter of two; of two bounds the smaller of each limit.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bounded(a), Self::Bounded(b)) => Self::Bounded(a.tighter(b)),
            _ if other.kind() > self.kind() => other,
            _ => self,
        }
    }

    /// Whether going from `self` to `to` promises something that `self` did not.
    pub fn tightens_to(&self, to: &Policy) -> bool {
        match (self, to) {
            (Self::Bounded(a), Self::Bounded(b)) => Bound::tightens(Some(*a), Some(*b)),
            // `bounded` covers plain writes that nobody flushed, `honor` does not: neither promise contains the other.
            (Self::Honor, Self::Bounded(_)) => true,
            _ => to.kind() > self.kind(),
        }
    }
}

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
    Flush(FlushTarget),
    /// WRITE to a file's unnamed stream.
    Write,
    /// WRITE to a named stream.
    WriteStream,
    Create,
    Close,
    /// End of file or allocation was set.
    Resize,
    /// A name of a file moved, within a directory or where the file system keeps a rename whole.
    Rename,
    /// The name of a directory moved, or one of whose move the file system may keep only one half.
    Move,
    Link,
    Remove,
    /// A named stream was created, renamed or removed.
    Stream,
    /// Contents changed otherwise: copied, cloned, zeroed.
    Content,
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
    #[default]
    Nothing,
    /// The dirty names of the inode, and with any the inode as well: without that a stable name is worth nothing.
    Names,
    /// The inode, then its dirty names. `gate/` adds what more a removal and a FLUSH of the share's root need.
    Inode,
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
    /// A WRITE, too, waits for a sync of its inode: a durable write (`RWF_DSYNC`) would leave the times
    /// dirty, and a sync after it would flush the device a second time.
    pub(crate) fn strict() -> Self {
        Self {
            wait: Wait::Inode,
            ..Self::default()
        }
    }

    /// Makes a WRITE stable before its reply. A stream may live in an extended attribute, which only fsync covers.
    pub(crate) fn stored(event: Event) -> Self {
        match event {
            Event::Write => Self {
                durable_write: true,
                wait: Wait::Names,
                ..Self::default()
            },
            _ => Self::strict(),
        }
    }
}

/// The barriers that the reply to `event` needs before it may report success.
pub(crate) fn barriers(event: Event, settings: &ShareDurability, flags: RequestFlags) -> Barriers {
    let kind = settings.policy.kind();
    if kind == PolicyKind::StrictSync {
        return Barriers::strict();
    }
    // FILE_WRITE_THROUGH: whatever is done through the open is synced, too.
    let through = flags.open_write_through || flags.write_through;
    let unbuffered =
        settings.unbuffered_is_write_through && (flags.unbuffered || flags.open_unbuffered);
    match event {
        Event::Flush(_) if flags.full_sync && !settings.ignore_full_sync => Barriers::strict(),
        Event::Flush(_) => answer(kind, Barriers::strict()),
        Event::Write | Event::WriteStream if through || unbuffered => {
            answer(kind, Barriers::stored(event))
        }
        // [MS-FSA] 2.1.5.10.39 has FSCTL_SET_ZERO_DATA flush through such an open; copies are writes as well.
        Event::Content if unbuffered => answer(kind, Barriers::strict()),
        // Also under `bounded`: a later sync of a file below the directory need not save the directory's name.
        Event::Move if kind != PolicyKind::TreatHostAsStableStorage => Barriers::strict(),
        // A lost revocation is a security fault.
        Event::Meta(Meta::Security) if settings.durable_acl && kind != PolicyKind::Bounded => {
            Barriers::strict()
        }
        Event::Close => Barriers::default(),
        Event::Write | Event::WriteStream => not_asked(kind),
        _ if through => answer(kind, Barriers::strict()),
        _ => not_asked(kind),
    }
}

/// The barriers where the client asked for those of `honored`, which a lazy policy defers.
fn answer(kind: PolicyKind, honored: Barriers) -> Barriers {
    match kind.is_lazy() {
        true => Barriers {
            deferred: true,
            ..not_asked(kind)
        },
        false => honored,
    }
}

/// The barriers where the client asked for no stability.
fn not_asked(kind: PolicyKind) -> Barriers {
    Barriers {
        bounded: kind == PolicyKind::Bounded,
        ..Barriers::default()
    }
}
