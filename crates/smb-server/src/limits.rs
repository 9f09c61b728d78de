//! The limits of the protocol core that an administrator may change, and those on messages, memory and requests, with
//! the status that each yields.
//!
//! [`ServerLimits`] holds the limits that an administrator may change; the constants hold those that follow from the
//! protocol or that nobody should need to change. A limit of one table or queue may be a constant beside it instead.

use std::time::Duration;

/// Memory of a connection that is not charged to the server's budget ([`ServerLimits::buffer_memory`]), in bytes: a
/// client that only does a little work at a time never waits for others.
pub const CONNECTION_MEMORY: usize = 128 << 10;

/// Memory is granted to a connection in multiples of this, if there is room.
pub const MEMORY_STEP: usize = 64 << 10;

/// Granted memory that an active connection keeps without needing it, so that not every request takes memory and gives
/// it back.
pub const MEMORY_SLACK: usize = 256 << 10;

/// The interval at which a connection that waits for memory checks whether some is free, if few others wait.
pub const MEMORY_AGAIN: Duration = Duration::from_millis(20);

/// The number of waiting connections for which that interval grows by [`MEMORY_AGAIN`].
pub const MEMORY_WAITERS_STEP: usize = 128;

/// The longest that interval can become.
pub const MEMORY_AGAIN_MAX: Duration = Duration::from_secs(1);

/// The time after which a connection that waits for memory, and whose client has taken all its answers, may take all
/// that is free to its network.
pub const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// How often connections that wait for memory search for connections whose clients free nothing.
pub const MEMORY_LOOK: Duration = Duration::from_millis(250);

/// A connection whose client has freed nothing for this long, while others waited for memory, is closed.
pub const MEMORY_STUCK: Duration = Duration::from_secs(1);

/// A stuck connection is closed only if its client could free at least this many bytes by reading its answers or by
/// sending the rest of a frame.
pub const MEMORY_STUCK_BYTES: usize = 256 << 10;

/// Each search closes connections until these held a part of the budget that may be enough: the budget divided by this.
pub const MEMORY_FREED_PART: usize = 4;

/// The bytes of an incomplete frame that must arrive to count as progress of the client.
pub const MEMORY_ARRIVED_STEP: usize = 16 << 10;

/// Memory of changes that wait at an open for its CHANGE_NOTIFY and are not in the budget.
pub const NOTIFY_MEMORY: usize = 1 << 10;

/// Memory of a pipe's requests, answers and handles that is not in the budget: a client may open as many pipes as
/// files.
pub const PIPE_MEMORY: usize = 2 << 10;

/// Memory of an open's path that is not in the budget: enough for paths of usual length and depth. A CREATE or rename
/// for which there is no more room gets INSUFFICIENT_RESOURCES.
pub const PATH_MEMORY: usize = 2 << 10;

/// Memory that replies encoded but not yet taken by the socket hold, in bytes. Above it no further
/// request is read from that connection until the client takes its replies.
pub const OUTBOX_BYTES_MAX: usize = 32 << 20;

/// How long a connection with a login may still send what is queued after it has ended. One without a login sends
/// nothing more.
pub const LAST_ANSWERS_MAX: Duration = Duration::from_secs(5);

/// Data of READ and WRITE requests that run at once on one connection, in bytes. Above it no
/// further request is read until some are done (a single larger one still runs).
pub const DATA_IN_FLIGHT_MAX: usize = 64 << 20;

/// The time after which the waiting requests of a connection are cancelled if nothing was read from it meanwhile,
/// because there was no room, and its requests hold [`MEMORY_STUCK_BYTES`] or more: no CANCEL would be noticed. It is
/// longer than a client has to acknowledge a break.
pub const UNREAD_MAX: Duration = Duration::from_secs(60);

/// How often it is examined whether a client is gone from whose connection nothing is read, because there is no room.
pub const LOSS_LOOK: Duration = Duration::from_secs(1);

/// Memory through which a COPYCHUNK copies where the kernel cannot copy, in bytes; no more than the connection may read
/// or write at once. It counts as data of the request, so beyond the limits of data no further request is read.
pub const COPY_MEMORY: usize = 1 << 20;

/// Memory in which the extended attributes of a file are read, in bytes: as many as clients may give it, which are more
/// than 7,000 of a few bytes each. It counts as data of the request.
pub const EA_MEMORY: usize = 3 << 19;

/// Memory in which they are measured one after the other, in bytes: for their names and lengths. It counts as data of
/// the request. It is less than [`CONNECTION_MEMORY`], because clients often ask for FileAllInformation.
pub const EA_SIZE_MEMORY: usize = 96 << 10;

/// Memory in which the names of a file's streams are read, in bytes: 10,000, of the length that a name can have. It
/// counts as data of the request.
pub const STREAMS_MEMORY: usize = 4 << 20;

/// Memory for each byte of a CREATE or SET_INFO, beyond the first [`DECODED_FROM`] and up to [`DECODED_MAX`] more, in
/// bytes: entries of access control lists and extended attributes take more of it when they are decoded, and the
/// request may wait with them. It counts as data of the request.
pub const DECODED_MEMORY: usize = 32;
/// Most requests have neither, and are shorter.
pub const DECODED_FROM: usize = 1 << 10;
/// No longer lists are decoded.
pub const DECODED_MAX: usize = 128 << 10;

/// Memory that each tree connect of a session beyond the first [`TREES_UNCHARGED`] is charged to the server's budget,
/// in bytes; one for which there is no room gets INSUFFICIENT_RESOURCES.
pub const TREE_MEMORY: usize = 1 << 10;

/// Tree connects of each session that are not in the budget: a user connects to a few shares.
pub const TREES_UNCHARGED: usize = 16;

/// Memory that each byte-range lock of an open beyond the first [`RANGES_UNCHARGED`] is charged to the server's budget,
/// in bytes; one for which there is no room gets INSUFFICIENT_RESOURCES.
pub const RANGE_MEMORY: usize = 80;

/// Byte-range locks of each open that are not in the budget: few programs hold more.
pub const RANGES_UNCHARGED: usize = 16;

/// Memory that each waiting request of a connection beyond the first [`PARKED_UNCHARGED`] is charged to the server's
/// budget, in bytes; one for which there is no room gets INSUFFICIENT_RESOURCES.
pub const PARKED_MEMORY: usize = 4 << 10;

/// Waiting requests of each connection that are not in the budget: a client watches a few folders.
pub const PARKED_UNCHARGED: usize = 64;

/// Anonymous sessions of a connection that may only list shares; one more gives REQUEST_NOT_ACCEPTED.
pub const LISTING_SESSIONS: usize = 1;

/// Tree connects of a session that may only list shares; one more gives INSUFFICIENT_RESOURCES.
pub const LISTING_TREES: usize = 8;

/// Lines of the log about failed logins from one address (IPv6: one /64) in a minute, and as many about each other
/// event that a client can repeat at will; further ones are counted.
pub const ADDRESS_LINES: u32 = 10;

/// Lines of the log about each event with the handles of one share in a minute: a client may have thousands of handles.
/// Further ones are counted.
pub const SHARE_LINES: u32 = 10;

/// CANCELs of one connection that are remembered although their requests do not wait; with one more, the oldest is
/// forgotten.
pub const EARLY_CANCELS_MAX: usize = 64;

/// Breaks without an acknowledgment that are remembered for each connection of a client with several, to be sent on
/// another one if it is lost; with one more, the oldest is forgotten.
pub const UNASKED_BREAKS_MAX: usize = 256;

/// Memory that each session in setup on a connection beyond the first [`SETUPS_UNCHARGED`] is charged to the server's
/// budget, in bytes; one for which there is no room gets INSUFFICIENT_RESOURCES.
pub const SETUP_MEMORY: usize = 4 << 10;

/// Sessions in setup on each connection that are not in the budget. As many more as the connection may have sessions
/// can be in setup at once, because the users of a terminal server all log in again when its connection was lost.
pub const SETUPS_UNCHARGED: usize = 16;

/// How long a login that replaces a session, or a break that a lost connection carried, waits for the closes of the
/// session that has ended. If a disk takes longer, the closes go on.
pub const CLOSES_WAIT: Duration = Duration::from_secs(1);

/// Channels of one session; binding one more gets `INSUFFICIENT_RESOURCES` (Windows and Samba allow as many).
pub const CHANNELS_PER_SESSION_MAX: usize = 32;

/// CREATEs of one session that go on waiting though their channel is lost; one more is cancelled.
pub const ADOPTED_PER_SESSION_MAX: usize = 64;

/// The most names of one directory that a listing holds; a larger directory gives `FILE_SYSTEM_LIMITATION`, and so does
/// one whose names take more than 128 MiB of memory.
pub const DIRECTORY_NAMES_MAX: usize = 1 << 20;

/// UTF-16 units of a pattern of QUERY_DIRECTORY: as many as a name may have ([MS-FSCC] 2.1.5, which [MS-FSA] 2.1.5.6.3
/// applies to the pattern); a longer one gives `OBJECT_NAME_INVALID`.
pub const PATTERN_UNITS_MAX: usize = 255;

/// The most names of a directory that is listed at once. The listing of a larger one, whose names may take much memory
/// before they are charged to the server's budget, waits for its user's turn.
pub const SMALL_DIRECTORY_NAMES: usize = 1024;

/// Larger directories of a share that one user lists at once, over all connections.
pub const LARGE_LISTINGS_PER_USER_MAX: usize = 4;

/// Enumerations of one connection that take their names at once; others wait for them.
pub const LISTINGS_PER_CONNECTION_MAX: usize = 4;

/// How long an enumeration that waits for its disk counts as one of these, where no other one is beyond its time: one
/// whose disk hangs must not keep those of other disks waiting.
pub const LISTING_PERMIT_MAX: Duration = Duration::from_secs(1);

/// Locks in one LOCK request; more give `INVALID_PARAMETER`.
pub const LOCKS_PER_REQUEST_MAX: usize = 1024;

/// Largest file, in bytes ([MS-FSA] 2.1.1.1 MaxFileSize, as in NTFS with 4 KiB clusters). A write beyond it gives
/// `INVALID_PARAMETER`.
pub const FILE_BYTES_MAX: u64 = 0x0fff_ffff_0000;

/// Bytes of data in a request or an answer that one credit is enough for ([MS-SMB2] 3.3.5.2.5). Too small a
/// CreditCharge gives `INVALID_PARAMETER`.
pub const CREDIT_BYTES: usize = 65_536;

/// Bytes of a request besides its data ([MS-SMB2] 3.3.5.2). A longer one closes the connection.
pub const REQUEST_OVERHEAD_MAX: usize = 256;

/// Bytes by which a compound may exceed its longest request: further requests, their names and contexts
/// (docs/protocol-notes.md, "The length of a message"). A longer one closes the connection.
pub const COMPOUND_OVERHEAD_MAX: usize = 64 * 1024;

/// Dialects that a NEGOTIATE may name, as with Windows ([MS-SMB2] note 8); more give `INVALID_PARAMETER`. A connection
/// keeps the list.
pub const DIALECTS_MAX: usize = 64;

/// Largest message that may arrive before a dialect is agreed. A longer one closes the connection.
pub const NEGOTIATE_BYTES_MAX: usize = 128 * 1024;

/// Work of one connection's requests, in units of about a nanosecond (`turn.rs`; each byte received or answered counts
/// as one), after which the other connections of its worker have their turn.
pub const TURN_WORK_MAX: usize = 512 << 10;
/// The time after which the other connections have their turn, whatever was counted.
pub const TURN_TIME_MAX: Duration = Duration::from_millis(2);

/// The wait of a READ, WRITE or IOCTL before an interim STATUS_PENDING, in milliseconds. It is long because some
/// clients cannot handle an interim reply to READ and WRITE.
pub const INTERIM_IO_MS: u64 = 1000;
/// The same for FLUSH.
pub const INTERIM_FLUSH_MS: u64 = 20;
/// The same for SET_INFO, which waits only for breaks. Windows sends no interim reply there, however long it takes;
/// clients give up after a minute.
pub const INTERIM_SET_INFO_MS: u64 = 5000;

/// Byte-range locks of one file or stream; one more gives INSUFFICIENT_RESOURCES.
pub const RANGES_MAX: usize = 16_384;
/// The byte-range locks of one open, so that others find room; one more gives INSUFFICIENT_RESOURCES.
pub const RANGES_PER_OPEN_MAX: usize = RANGES_MAX / 4;

/// Limits an administrator may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Memory for the buffers of all connections together, in bytes. A connection that needs more waits; an open
    /// that would keep more gets `INSUFFICIENT_RESOURCES`.
    pub buffer_memory: usize,
    /// Sessions of the whole server, of which a user may have half of those that are free to him; one more
    /// SESSION_SETUP gets `INSUFFICIENT_RESOURCES`, unless it replaces a session of its user.
    pub sessions: usize,
    /// Tree connects of one session; one more gets `INSUFFICIENT_RESOURCES`.
    pub trees_per_session: usize,
    /// Opens of one session; one more CREATE gets `TOO_MANY_OPENED_FILES`.
    pub opens_per_session: usize,
    /// Opens of the whole server; one more CREATE gets `TOO_MANY_OPENED_FILES`.
    pub opens: usize,
    /// Opens of one user, whatever his sessions (guests count by their address); one more CREATE gets
    /// `TOO_MANY_OPENED_FILES`. With `None`, half of what is free to him.
    pub opens_per_user: Option<usize>,
    /// Disconnected opens ([MS-SMB2] 3.3.7.1) of all users together; one more is closed as if it were not durable. They
    /// also count as `opens`.
    pub disconnected_opens: usize,
    /// Disconnected opens of one user (guests count by their address).
    pub disconnected_opens_per_user: usize,
    /// Byte-range locks of one open, [`RANGES_PER_OPEN_MAX`] at most, so that others find room; one
    /// more gets `INSUFFICIENT_RESOURCES`.
    pub locks_per_open: usize,
    /// Requests waiting (parked) on one connection; one more gets `INSUFFICIENT_RESOURCES`.
    pub parked_per_connection: usize,
    /// MaxTransactSize, MaxReadSize, MaxWriteSize in bytes, 65,536 to 8,388,608.
    pub io_bytes: u32,
    /// Seconds a session may stay in setup before it is dropped; a connection without a login for this long is closed.
    pub setup_seconds: u64,
    /// Live sessions of one connection; one more SESSION_SETUP gets `REQUEST_NOT_ACCEPTED`.
    pub sessions_per_connection: usize,
    /// Requests in one compound, up to [`smb_wire::compound::COMPOUND_ELEMENTS_MAX`]; those
    /// beyond get `INVALID_PARAMETER`. A longer one than that constant costs the connection.
    pub compound_length: usize,
    /// Most credits a connection may hold at once ([MS-SMB2] 3.3.1.2; Windows grants 512..8192).
    /// More are simply not granted.
    pub credits: u16,
    /// Bytes of one QUERY_DIRECTORY answer; the listing continues in the next one.
    pub directory_bytes: u32,
    /// Failed logins of one user from one address within a minute; one more gets `LOGON_FAILURE` without a check of the
    /// password. From one address, for all users together, ten times as many are allowed.
    pub failed_logins: u32,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            buffer_memory: 1 << 30,
            sessions: 16_384,
            trees_per_session: 1024,
            opens_per_session: 65_536,
            opens: 262_144,
            opens_per_user: None,
            disconnected_opens: 16_384,
            disconnected_opens_per_user: 4096,
            locks_per_open: RANGES_PER_OPEN_MAX,
            parked_per_connection: 1024,
            io_bytes: 8 << 20,
            setup_seconds: 45,
            sessions_per_connection: 64,
            compound_length: smb_wire::compound::COMPOUND_ELEMENTS_MAX,
            credits: 8192,
            directory_bytes: 1 << 20,
            failed_logins: 10,
        }
    }
}
