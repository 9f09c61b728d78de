//! Opens of a file beside a persistent open whose client is disconnected ([MS-SMB2] 3.3.5.9 with
//! note 301, 3.3.4.6, 3.3.4.7): a persistent open with handle caching is broken as if its client
//! were connected, and the client answers after it has reconnected; beside any other persistent
//! open nobody is admitted. The client gets its open back in every case, as
//! smb2.persistent-open-reconnect-contended of later versions of smbtorture requires.

use std::time::{Duration, Instant};

use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::durable::{continuously_available, granted_v2, persistent, persistent_again};
use smb_tests::{HoldfastServer, MEANWHILE, SOON, status, wait_until};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{DurableHandleFlags, LeaseState};
use smb_wire::ids::{FileId, Guid, LeaseKey, MessageId};
use smb_wire::msg::{CreateDisposition, Dialect, LockFlags, OplockLevel, ShareAccess};

const CLIENT: Guid = Guid([0x55; 16]);
const NONE: LeaseState = LeaseState(0);
const R: LeaseState = LeaseState::READ;
const H: LeaseState = LeaseState::HANDLE;
const W: LeaseState = LeaseState(4);
const RH: LeaseState = LeaseState(3);
const RW: LeaseState = LeaseState(5);
const RWH: LeaseState = LeaseState::RWH;
const EXCLUSIVE: LockFlags = LockFlags(0x12);
/// The epoch that a client sends with its reconnect.
const EPOCH: u16 = 128;
/// The timeout of a persistent open that is to expire in the test.
const SHORT_MS: u32 = 3_000;

fn mine(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::dialect(Dialect::SMB_3_1_1).guid(CLIENT))
}

fn of(server: &HoldfastServer, dialect: Dialect) -> Tree {
    let client = Guid([0x60 + dialect.0.to_le_bytes()[0]; 16]);
    server.tree_with(Options::dialect(dialect).guid(client))
}

fn other(server: &HoldfastServer) -> Tree {
    of(server, Dialect::SMB_3_1_1)
}

/// An open of a file, identified by a number: its CREATE, CreateGuid and lease key.
#[derive(Debug, Clone)]
struct Held {
    number: u8,
    args: CreateArgs,
    /// The state of its lease.
    state: Option<LeaseState>,
}

impl Held {
    fn name(number: u8) -> String {
        format!("f{number}")
    }

    fn plain(number: u8) -> Self {
        Self {
            number,
            args: CreateArgs::open_if(&Self::name(number)),
            state: None,
        }
    }

    fn leased(number: u8, state: LeaseState) -> Self {
        let mut held = Self::plain(number);
        held.args = held.args.lease_v2(LeaseKey([number; 16]), state, 0);
        held.state = Some(state);
        held
    }

    fn oplock(number: u8, level: OplockLevel) -> Self {
        let mut held = Self::plain(number);
        held.args = held.args.oplock(level);
        held
    }

    fn share(mut self, share: ShareAccess) -> Self {
        self.args = self.args.share(share);
        self
    }

    fn guid(&self) -> Guid {
        Guid([self.number; 16])
    }

    fn key(&self) -> LeaseKey {
        LeaseKey([self.number; 16])
    }

    /// Opens persistently with a timeout.
    fn open(&self, tree: &Tree, timeout_ms: u32) -> File {
        let args = persistent(self.args.clone(), self.guid(), timeout_ms);
        let file = tree.create(&args).unwrap();
        let granted = granted_v2(&file).unwrap();
        assert!(granted.flags.contains(DurableHandleFlags::PERSISTENT));
        file
    }

    /// Opens persistently and loses the connection.
    fn lose(&self, server: &HoldfastServer, timeout_ms: u32) -> FileId {
        let tree = mine(server);
        let id = self.open(&tree, timeout_ms).id();
        server.lose(&tree);
        id
    }

    fn back(&self, tree: &Tree, id: FileId) -> File {
        let args = match self.state {
            Some(state) => Self::plain(self.number)
                .args
                .lease_v2(self.key(), state, EPOCH),
            None => self.args.clone(),
        };
        let again = persistent_again(args, id, self.guid());
        tree.create(&again).unwrap()
    }

    /// The request of another client.
    fn theirs(&self) -> CreateArgs {
        CreateArgs::open(&Self::name(self.number))
    }
}

/// Asserts that the client is notified of a break from `from` to `to`, and acknowledges it.
#[track_caller]
fn gives_up(tree: &Tree, key: LeaseKey, from: LeaseState, to: LeaseState) {
    let heard = tree.client().next_break(SOON).unwrap();
    let Some(Break::Lease {
        key: of,
        current,
        new,
        ack_required: true,
        ..
    }) = heard
    else {
        panic!("{heard:?}")
    };
    assert_eq!((of, current, new), (key, from, to));
    tree.acknowledge_lease(key, to).unwrap();
}

#[track_caller]
fn sees_no_break(tree: &Tree) {
    assert_eq!(tree.client().next_break(MEANWHILE).unwrap(), None);
}

/// Waits until the break can no longer be sent on the connection that the client is about to make.
fn break_waits(server: &HoldfastServer) {
    wait_until("the break waits for the client", || {
        let status = server.status();
        status["server"]["tables"]["breaks_under_way"] == 1
    });
}

/// Asserts that the request is pending.
#[track_caller]
fn waits(tree: &Tree, id: MessageId) {
    assert!(tree.client().wait_pending(id).unwrap().is_some());
}

/// The request of a contender.
#[derive(Debug, Clone, Copy)]
struct Contender {
    access: AccessMask,
    overwrites: bool,
}

impl Contender {
    const ALL: [Self; 4] = [
        Self::new(AccessMask::FILE_GENERIC_READ, false),
        Self::new(
            AccessMask(AccessMask::FILE_GENERIC_READ.0 | AccessMask::FILE_GENERIC_WRITE.0),
            false,
        ),
        Self::new(
            AccessMask(AccessMask::FILE_GENERIC_READ.0 | AccessMask::DELETE.0),
            false,
        ),
        Self::new(
            AccessMask(AccessMask::FILE_GENERIC_READ.0 | AccessMask::FILE_GENERIC_WRITE.0),
            true,
        ),
    ];

    const fn new(access: AccessMask, overwrites: bool) -> Self {
        Self { access, overwrites }
    }

    fn args(self, held: &Held) -> CreateArgs {
        let disposition = match self.overwrites {
            true => CreateDisposition::OVERWRITE,
            false => CreateDisposition::OPEN,
        };
        held.theirs().access(self.access).disposition(disposition)
    }

    fn conflicts(self, share: ShareAccess) -> bool {
        let bars = |access, right| self.access.intersects(access) && !share.contains(right);
        bars(AccessMask::FILE_READ_DATA, ShareAccess::READ)
            || bars(AccessMask::FILE_WRITE_DATA, ShareAccess::WRITE)
            || bars(AccessMask::DELETE, ShareAccess::DELETE)
    }
}

/// One client's open is disconnected, another client opens the file, the first client reconnects.
fn contend(
    server: &HoldfastServer,
    (number, state): (u8, LeaseState),
    share: ShareAccess,
    locks: bool,
    contender: Contender,
) {
    let what = format!("{state:?} {share:?} locks {locks}: {contender:?}");
    let held = Held::leased(number, state).share(share);
    let tree = mine(server);
    let file = held.open(&tree, 60_000);
    if locks {
        file.write_all(0, b"locked").unwrap();
        file.lock(0, 1, EXCLUSIVE).unwrap();
    }
    let id = file.id();
    server.lose(&tree);

    let stranger = other(server);
    let pending = stranger.send(contender.args(&held).request()).unwrap();
    let protected = state.contains(H) && (!locks || state.contains(W));
    let conflict = contender.conflicts(share);
    if protected && (conflict || state.contains(W)) {
        waits(&stranger, pending);
    }
    let answered = || status(stranger.client().wait(pending).unwrap().ok());
    if !protected {
        assert_eq!(answered(), Status::FILE_NOT_AVAILABLE, "{what}");
    } else if !conflict && !state.contains(W) {
        // A break of read and handle caching only is not waited for.
        assert_eq!(answered(), Status::SUCCESS, "{what}");
    }
    let left = match (conflict, contender.overwrites) {
        (true, _) => state.without(H),
        (false, true) => NONE,
        (false, false) => state.without(W),
    };
    if protected && left != state {
        break_waits(server);
    }
    let tree = mine(server);
    let file = held.back(&tree, id);
    // Beside locks, a state without write caching is not granted again.
    let anew = match locks && !state.contains(W) {
        true => NONE,
        false => state,
    };
    let lease = file.created().lease().unwrap();
    assert_eq!(lease.lease_state, anew, "{what}");
    // A lease that protected nothing is granted again with the client's epoch; if nothing was
    // granted originally, the epoch was never increased.
    let epoch = match (protected, state) {
        (true, _) => 1,
        (false, NONE) => 0,
        (false, _) => EPOCH + u16::from(anew == R),
    };
    assert_eq!(lease.v2.unwrap().epoch, epoch, "{what}");
    if protected && left != state {
        gives_up(&tree, held.key(), state, left);
    } else {
        sees_no_break(&tree);
    }
    if protected && (conflict || state.contains(W)) {
        let expected = match conflict {
            true => Status::SHARING_VIOLATION,
            false => Status::SUCCESS,
        };
        assert_eq!(answered(), expected, "{what}");
    }
    if locks {
        // The locks were held all the time.
        let again = file.lock(0, 1, EXCLUSIVE);
        assert_eq!(status(again), Status::LOCK_NOT_GRANTED, "{what}");
    }
    file.close().unwrap();
}

#[test]
fn a_contender_is_admitted_if_share_mode_and_handle_caching_allow_it() {
    let server = continuously_available();
    let everything = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    let mut number = 0;
    for share in [ShareAccess::empty(), ShareAccess::READ, everything] {
        for state in [NONE, R, RW, RH, RWH] {
            for contender in Contender::ALL {
                number += 1;
                contend(&server, (number, state), share, false, contender);
            }
        }
    }
}

#[test]
fn byte_range_locks_need_write_caching_beside_it() {
    let server = continuously_available();
    let everything = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    let read = Contender::ALL[0];
    for (number, state) in (1..).zip([NONE, R, RW, RH, RWH]) {
        contend(&server, (number, state), everything, true, read);
    }
    contend(&server, (9, RWH), ShareAccess::empty(), true, read);
}

#[test]
fn locks_are_held_while_disconnected() {
    let server = continuously_available();
    let (tree, stranger) = (mine(&server), other(&server));
    let held = Held::plain(1);
    let file = held.open(&tree, 60_000);
    file.write_all(0, &[1; 100]).unwrap();
    let theirs = stranger.create(&held.theirs()).unwrap();
    file.lock(0, 10, EXCLUSIVE).unwrap();
    server.lose(&tree);
    assert_eq!(status(theirs.read(0, 10)), Status::FILE_LOCK_CONFLICT);
    let refused = theirs.lock(5, 10, EXCLUSIVE);
    assert_eq!(status(refused), Status::LOCK_NOT_GRANTED);
    let file = held.back(&mine(&server), file.id());
    file.close().unwrap();
    theirs.lock(5, 10, EXCLUSIVE).unwrap();
}

#[test]
fn oplocks_behave_in_the_same_way() {
    // Note 301: "or Open.OplockLevel is equal to SMB2_OPLOCK_LEVEL_BATCH".
    let server = continuously_available();
    let levels = [OplockLevel::NONE, OplockLevel::II, OplockLevel::EXCLUSIVE];
    for (number, level) in (1..).zip(levels) {
        let held = Held::oplock(number, level);
        let id = held.lose(&server, 60_000);
        // Even its own client has to reconnect with the original open.
        for tree in [other(&server), mine(&server)] {
            let refused = status(tree.create(&held.theirs()));
            assert_eq!(refused, Status::FILE_NOT_AVAILABLE, "{level:?}");
        }
        let tree = mine(&server);
        let file = held.back(&tree, id);
        assert_eq!(file.created().oplock_level, level);
        sees_no_break(&tree);
    }
}

#[test]
fn a_batch_oplock_is_broken_when_its_client_reconnects() {
    let server = continuously_available();
    // On 2.1 as well: unwritten changes of the client need the same protection as under a lease.
    for (number, dialect) in (1..).zip([Dialect::SMB_3_1_1, Dialect::SMB_2_1]) {
        let held = Held::oplock(number, OplockLevel::BATCH);
        let id = held.lose(&server, 60_000);
        let stranger = of(&server, dialect);
        let pending = stranger.send(held.theirs().request()).unwrap();
        waits(&stranger, pending);
        let tree = mine(&server);
        let file = held.back(&tree, id);
        assert_eq!(file.created().oplock_level, OplockLevel::BATCH);
        assert!(tree.client().next_break(SOON).unwrap().is_some());
        file.write_all(0, b"written back").unwrap();
        file.acknowledge_oplock(OplockLevel::II).unwrap();
        let reply = stranger.client().wait(pending).unwrap().ok().unwrap();
        let theirs = stranger.file(&reply).unwrap();
        assert_eq!(theirs.read_all().unwrap(), b"written back");
    }
}

#[test]
fn a_waiting_contender_continues_when_the_open_expires() {
    let server = continuously_available();
    for held in [
        Held::leased(1, RWH),
        Held::oplock(2, OplockLevel::BATCH),
        Held::leased(3, RH).share(ShareAccess::empty()),
    ] {
        let tree = mine(&server);
        held.open(&tree, SHORT_MS);
        let stranger = other(&server);
        let started = Instant::now();
        server.lose(&tree);
        let pending = stranger.send(held.theirs().request()).unwrap();
        waits(&stranger, pending);
        stranger.client().wait(pending).unwrap().ok().unwrap();
        let waited = started.elapsed();
        assert!(
            waited >= Duration::from_millis(2_900),
            "{held:?}: {waited:?}"
        );
        assert!(waited < SOON, "{held:?}: {waited:?}");
    }
}

#[test]
fn a_waiting_contender_can_cancel() {
    let server = continuously_available();
    let held = Held::leased(1, RWH);
    let id = held.lose(&server, 60_000);
    let stranger = other(&server);
    let pending = stranger.send(held.theirs().request()).unwrap();
    waits(&stranger, pending);
    let session = stranger.session().id();
    stranger
        .client()
        .connection()
        .cancel(pending, session)
        .unwrap();
    let end = status(stranger.client().wait(pending).unwrap().ok());
    assert_eq!(end, Status::CANCELLED);
    let tree = mine(&server);
    held.back(&tree, id);
    gives_up(&tree, held.key(), RWH, RH);
}

#[test]
fn of_two_opens_of_a_lease_the_second_still_counts() {
    // smb2.persistent-open-reconnect-contended.two: the client has reconnected one of its opens and
    // gives up the lease; the other open is still disconnected and caches no handle any more.
    let server = continuously_available();
    let first = Held::leased(1, RWH);
    let second_guid = Guid([0x77; 16]);
    let tree = mine(&server);
    let id = first.open(&tree, 60_000).id();
    let beside = persistent(first.args.clone(), second_guid, 60_000);
    let second = tree.create(&beside).unwrap().id();
    server.lose(&tree);
    let overwrites = first.theirs().disposition(CreateDisposition::OVERWRITE);
    let stranger = other(&server);
    let pending = stranger.send(overwrites.request()).unwrap();
    waits(&stranger, pending);
    let tree = mine(&server);
    first.back(&tree, id);
    gives_up(&tree, first.key(), RWH, NONE);
    let refused = status(stranger.client().wait(pending).unwrap().ok());
    assert_eq!(refused, Status::FILE_NOT_AVAILABLE);
    let again = persistent_again(first.args.clone(), second, second_guid);
    tree.create(&again).unwrap();
    stranger.create(&overwrites).unwrap();
}

#[test]
fn a_restarted_server_behaves_in_the_same_way() {
    let mut server = continuously_available();
    let (kept, plain) = (Held::leased(1, RWH), Held::plain(2));
    let tree = mine(&server);
    let (id, plain_id) = (
        kept.open(&tree, 60_000).id(),
        plain.open(&tree, 60_000).id(),
    );
    server.kill_and_restart();
    let stranger = other(&server);
    let refused = status(stranger.create(&plain.theirs()));
    assert_eq!(refused, Status::FILE_NOT_AVAILABLE);
    let pending = stranger.send(kept.theirs().request()).unwrap();
    waits(&stranger, pending);
    let tree = mine(&server);
    kept.back(&tree, id);
    gives_up(&tree, kept.key(), RWH, RH);
    stranger.client().wait(pending).unwrap().ok().unwrap();
    plain.back(&tree, plain_id);
    stranger.create(&plain.theirs()).unwrap();
}

#[test]
fn a_refused_contender_is_admitted_after_the_timeout() {
    // smb2.persistent-open.timeout_5
    let server = continuously_available();
    let held = Held::plain(1);
    held.lose(&server, SHORT_MS);
    let stranger = other(&server);
    wait_until("the open is closed", || {
        match status(stranger.create(&held.theirs())) {
            Status::SUCCESS => true,
            refused => {
                assert_eq!(refused, Status::FILE_NOT_AVAILABLE);
                false
            }
        }
    });
}
