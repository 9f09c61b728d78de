//! Tables of lease breaks: the state held × the operation of another client ([MS-FSA] 2.1.4.12,
//! [MS-SMB2] 3.3.4.7), the state granted to a second opener ([MS-FSA] 2.1.5.18, [MS-SMB2] 3.3.5.9),
//! the counting of the epoch (3.3.5.9.11), and concurrent breaks (3.3.5.22.2).

use smb_client::{Break, CreateArgs, File, Options, Request, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, SOON, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseFlags, LeaseState};
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::{FsctlCode, SetZeroData};
use smb_wire::ids::{Guid, LeaseKey, MessageId};
use smb_wire::msg::{
    CreateDisposition, CreateOptions, InfoType, LockElement, LockFlags, OplockLevel, ShareAccess,
    WriteFlags,
};

const KEY: LeaseKey = LeaseKey([0x11; 16]);
const OTHER_KEY: LeaseKey = LeaseKey([0x22; 16]);
const NONE: LeaseState = LeaseState(0);
const R: LeaseState = LeaseState(1);
const RH: LeaseState = LeaseState(3);
const RW: LeaseState = LeaseState(5);
const RWH: LeaseState = LeaseState(7);

fn client(server: &HoldfastServer, number: u8) -> Tree {
    server.tree_with(Options::default().guid(Guid([number; 16])))
}

fn leased(key: LeaseKey, state: LeaseState) -> CreateArgs {
    CreateArgs::open_if("f").lease_v2(key, state, 0)
}

fn granted(file: &File) -> LeaseState {
    file.created().lease().unwrap().lease_state
}

fn answered(tree: &Tree, id: MessageId) -> bool {
    let mut connection = tree.client().connection();
    connection.answered(id, MEANWHILE / 3).unwrap()
}

/// Returns the next break of [`KEY`]: old state, new state, epoch. Asserts that it requires an
/// acknowledgment unless only reads were cached.
#[track_caller]
fn next(tree: &Tree) -> (LeaseState, LeaseState, u16) {
    let broken = tree.client().next_break(SOON).unwrap();
    let Some(Break::Lease {
        key,
        current,
        new,
        epoch,
        ack_required,
    }) = broken
    else {
        panic!("{broken:?}");
    };
    assert_eq!(key, KEY);
    assert_eq!(ack_required, current != R);
    (current, new, epoch)
}

/// The expected break, and whether the other request waits for its acknowledgment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Nothing,
    /// The lease is broken to this state, and the request does not wait.
    To(LeaseState),
    /// The lease is broken to this state, and the request waits for the acknowledgment.
    Awaited(LeaseState),
}
use Taken::{Awaited, Nothing, To};

use crate::checks;

/// One client holds a lease on a file of 8192 bytes; another sends a request that is prepared
/// before the lease is granted. Asserts the break and returns the status of the request.
#[track_caller]
fn assert_taken(held: LeaseState, taken: Taken, prepare: impl Fn(&Tree) -> Request) -> Status {
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    holder.write_file("f", &[7; 8192]).unwrap();
    let request = prepare(&other);
    let file = holder.create(&leased(KEY, held)).unwrap();
    assert_eq!(granted(&file), held);
    let id = other.send(request).unwrap();
    let expected = match taken {
        Nothing => {
            let end = other.client().wait(id).unwrap().status();
            let broken = holder.client().next_break(MEANWHILE / 3).unwrap();
            assert_eq!(broken, None);
            return end;
        }
        To(state) | Awaited(state) => state,
    };
    let (current, new, _) = next(&holder);
    assert_eq!((current, new), (held, expected));
    let waits = matches!(taken, Awaited(_));
    // An answer that is due may be late on a busy machine.
    let span = if waits { MEANWHILE / 3 } else { SOON };
    let answered = other.client().connection().answered(id, span).unwrap();
    assert_eq!(answered, !waits, "waiting");
    if held != R {
        holder.acknowledge_lease(KEY, expected).unwrap();
    }
    other.client().wait(id).unwrap().status()
}

fn open(disposition: CreateDisposition) -> CreateArgs {
    CreateArgs::new("f", disposition)
}

#[test]
fn an_open_breaks_write_caching() {
    for (held, taken) in [
        (R, Nothing),
        (RH, Nothing),
        (RW, Awaited(R)),
        (RWH, Awaited(RH)),
    ] {
        let end = assert_taken(held, taken, |_| open(CreateDisposition::OPEN_IF).request());
        assert_eq!(end, Status::SUCCESS, "{held:?}");
    }
}

#[test]
fn an_overwrite_breaks_all_caching() {
    for disposition in [
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        for (held, taken) in [(R, To(NONE)), (RW, Awaited(NONE)), (RWH, Awaited(NONE))] {
            let end = assert_taken(held, taken, |_| open(disposition).request());
            assert_eq!(end, Status::SUCCESS, "{disposition:?} of {held:?}");
        }
    }
}

#[test]
fn an_overwrite_does_not_wait_for_read_and_handle_caching() {
    // A request waits only for conflicting W and H.
    let end = assert_taken(RH, To(NONE), |_| {
        open(CreateDisposition::OVERWRITE).request()
    });
    assert_eq!(end, Status::SUCCESS);
}

#[test]
fn an_attribute_only_open_breaks_nothing() {
    // READ_CONTROL too, if there is a lease and no oplock.
    let stat = AccessMask::FILE_READ_ATTRIBUTES
        | AccessMask::FILE_WRITE_ATTRIBUTES
        | AccessMask::READ_CONTROL
        | AccessMask::SYNCHRONIZE;
    for held in [R, RH, RW, RWH] {
        let args = open(CreateDisposition::OPEN).access(stat);
        let end = assert_taken(held, Nothing, |_| args.request());
        assert_eq!(end, Status::SUCCESS, "{held:?}");
    }
}

#[test]
fn a_sharing_conflict_breaks_handle_caching_and_remains() {
    // The holder does not close its handle, so the conflict remains after the acknowledgment.
    for (held, taken) in [
        (R, Nothing),
        (RW, Nothing),
        (RH, Awaited(R)),
        (RWH, Awaited(RW)),
    ] {
        let args = open(CreateDisposition::OPEN).share(ShareAccess::empty());
        let end = assert_taken(held, taken, |_| args.request());
        assert_eq!(end, Status::SHARING_VIOLATION, "{held:?}");
    }
}

/// Asserts the breaks caused by changes through a handle that is older than the lease; then only R
/// and RH can be held.
#[track_caller]
fn assert_change_takes(to: [Taken; 2], act: impl Fn(&File) -> Request) {
    for (held, taken) in [R, RH].into_iter().zip(to) {
        let end = assert_taken(held, taken, |tree| {
            let file = tree.create(&CreateArgs::open("f")).unwrap();
            act(&file)
        });
        assert_eq!(end, Status::SUCCESS, "{held:?}");
    }
}

#[test]
fn a_write_breaks_all_caching() {
    assert_change_takes([To(NONE), To(NONE)], |file| {
        file.write_request(0, b"x", WriteFlags::empty())
    });
}

/// [MS-FSA] 2.1.5.4 and 2.1.5.10.39 break caching before they look for locks.
#[test]
fn a_change_that_a_lock_bars_has_broken_caching() {
    let zero = [0u64.to_le_bytes(), 10u64.to_le_bytes()].concat();
    let write = |file: &File| file.write_request(0, b"x", WriteFlags::empty());
    let zeroes = |file: &File| file.ioctl_request(FsctlCode::SET_ZERO_DATA, &zero, 0);
    for request in [&write as &dyn Fn(&File) -> Request, &zeroes] {
        let server = HoldfastServer::new();
        let (holder, other) = (client(&server, 1), client(&server, 2));
        holder.write_file("f", &[7; 10]).unwrap();
        let theirs = other.create(&CreateArgs::open("f")).unwrap();
        let file = holder.create(&leased(KEY, R)).unwrap();
        let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        file.lock(0, 10, exclusive).unwrap();
        let barred = other.call(request(&theirs));
        assert_eq!(status(barred), Status::FILE_LOCK_CONFLICT);
        let (current, new, _) = next(&holder);
        assert_eq!((current, new), (R, NONE));
        assert_eq!(std::fs::read(server.path("f")).unwrap(), [7; 10]);
    }
}

#[test]
fn a_write_of_no_bytes_breaks_nothing() {
    // [MS-FSA] 2.1.5.4: the write returns before oplocks are examined.
    assert_change_takes([Nothing, Nothing], |file| {
        file.write_request(0, b"", WriteFlags::empty())
    });
}

#[test]
fn a_read_and_a_flush_break_nothing() {
    assert_change_takes([Nothing, Nothing], |file| file.read_request(0, 10, 0));
    assert_change_takes([Nothing, Nothing], |file| file.flush_request(false));
}

fn lock_at(file: &File, offset: u64) -> Request {
    let element = LockElement {
        offset,
        length: 10,
        flags: LockFlags(0x12),
    };
    file.lock_request(0, &[element])
}

#[test]
fn a_lock_breaks_all_caching() {
    // [MS-FSA] 2.1.5.8; smb2.lease.lock1
    assert_change_takes([To(NONE), To(NONE)], |file| lock_at(file, 0));
}

#[test]
fn a_lock_beyond_the_allocation_breaks_all_caching_too() {
    // As Windows 7 did ([MS-FSA] 2.1.5.8, note 81).
    assert_change_takes([To(NONE), To(NONE)], |file| lock_at(file, 1 << 40));
}

#[test]
fn a_change_of_the_end_of_file_breaks_all_caching() {
    for class in [
        FileInformationClass::END_OF_FILE,
        FileInformationClass::ALLOCATION,
    ] {
        assert_change_takes([To(NONE), To(NONE)], |file| {
            let size = 100u64.to_le_bytes();
            file.set_info_request(InfoType::FILE, class.0, 0, &size)
        });
    }
}

#[test]
fn zeroing_a_range_breaks_all_caching() {
    // FSCTL_SET_ZERO_DATA, [MS-FSA] 2.1.5.10.36
    assert_change_takes([To(NONE), To(NONE)], |file| {
        let mut input = bytes::BytesMut::new();
        SetZeroData {
            file_offset: 0,
            beyond_final_zero: 100,
        }
        .encode(&mut input);
        file.ioctl_request(FsctlCode::SET_ZERO_DATA, &input, 0)
    });
}

#[test]
fn zeroing_beyond_the_end_breaks_nothing() {
    assert_change_takes([Nothing, Nothing], |file| {
        let mut input = bytes::BytesMut::new();
        SetZeroData {
            file_offset: 1 << 20,
            beyond_final_zero: 1 << 21,
        }
        .encode(&mut input);
        file.ioctl_request(FsctlCode::SET_ZERO_DATA, &input, 0)
    });
}

#[test]
fn a_deletion_breaks_handle_caching() {
    assert_change_takes([Nothing, Awaited(R)], |file| {
        let class = FileInformationClass::DISPOSITION;
        file.set_info_request(InfoType::FILE, class.0, 0, &[1])
    });
}

#[test]
fn a_revoked_deletion_breaks_nothing() {
    assert_change_takes([Nothing, Nothing], |file| {
        let class = FileInformationClass::DISPOSITION;
        file.set_info_request(InfoType::FILE, class.0, 0, &[0])
    });
}

#[test]
fn changes_of_attributes_and_times_break_nothing() {
    assert_change_takes([Nothing, Nothing], checks::hide);
}

#[test]
fn a_write_with_the_same_key_through_another_handle_breaks_nothing() {
    // smb2.lease.nobreakself
    let server = HoldfastServer::new();
    let holder = client(&server, 1);
    let first = holder.create(&leased(KEY, R)).unwrap();
    let second = holder.create(&leased(OTHER_KEY, R)).unwrap();
    second.write_all(0, b"x").unwrap();
    // A write with one key breaks the lease of the other key, as from any client.
    assert_eq!(next(&holder), (R, NONE, 2));
    first.write_all(0, b"y").unwrap();
    let broken = holder.client().next_break(SOON).unwrap();
    assert!(
        matches!(broken, Some(Break::Lease { key: OTHER_KEY, .. })),
        "{broken:?}"
    );
    let again = holder.create(&leased(KEY, R)).unwrap();
    again.write_all(0, b"z").unwrap();
    assert_eq!(holder.client().next_break(MEANWHILE).unwrap(), None);
}

#[test]
fn a_second_lease_is_granted_the_compatible_state() {
    for (held, asked, left, given) in [
        (R, RWH, R, RH),
        (R, RW, R, R),
        (RH, RWH, RH, RH),
        (RH, R, RH, R),
        (RW, RWH, R, RH),
        (RWH, RWH, RH, RH),
        (RWH, RW, RH, R),
        (NONE, RWH, NONE, RH),
    ] {
        let server = HoldfastServer::new();
        let (holder, other) = (client(&server, 1), client(&server, 2));
        let file = holder.create(&leased(KEY, held)).unwrap();
        assert_eq!(granted(&file), held);
        let id = other.send(leased(OTHER_KEY, asked).request()).unwrap();
        if left != held {
            assert_eq!(next(&holder).1, left);
            holder.acknowledge_lease(KEY, left).unwrap();
        }
        let reply = other.client().wait(id).unwrap().ok().unwrap();
        let second = other.file(&reply).unwrap();
        assert_eq!(granted(&second), given, "{held:?}, then {asked:?}");
    }
}

#[test]
fn an_oplock_beside_a_lease_is_limited() {
    // [MS-FSA] 2.1.5.18: level II is possible beside R, and no oplock beside H.
    for (held, asked, given) in [
        (R, OplockLevel::II, OplockLevel::II),
        (R, OplockLevel::BATCH, OplockLevel::II),
        (RH, OplockLevel::II, OplockLevel::NONE),
        (RH, OplockLevel::EXCLUSIVE, OplockLevel::NONE),
        (RH, OplockLevel::BATCH, OplockLevel::NONE),
    ] {
        let server = HoldfastServer::new();
        let (holder, other) = (client(&server, 1), client(&server, 2));
        holder.create(&leased(KEY, held)).unwrap();
        let second = other.create(&open(CreateDisposition::OPEN).oplock(asked));
        let level = second.unwrap().created().oplock_level;
        assert_eq!(level, given, "{held:?}, then {asked:?}");
    }
}

#[test]
fn a_lease_beside_an_oplock_is_limited() {
    // Beside level II only read caching is possible.
    for (asked, given) in [(R, R), (RH, R), (RW, R), (RWH, R)] {
        let server = HoldfastServer::new();
        let (holder, other) = (client(&server, 1), client(&server, 2));
        let level = OplockLevel::II;
        let file = holder
            .create(&CreateArgs::open_if("f").oplock(level))
            .unwrap();
        assert_eq!(file.created().oplock_level, level);
        let second = other.create(&leased(OTHER_KEY, asked)).unwrap();
        assert_eq!(granted(&second), given, "{asked:?}");
    }
}

#[test]
fn a_lease_beside_a_lock_in_the_file_is_limited() {
    // [MS-FSA] 2.1.5.18: no R or RH is granted while another client's lock is within the
    // allocation.
    let server = HoldfastServer::new();
    let (locker, other) = (client(&server, 1), client(&server, 2));
    locker.write_file("f", &[7; 8192]).unwrap();
    let file = locker.create(&CreateArgs::open("f")).unwrap();
    file.lock(0, 10, LockFlags(0x12)).unwrap();
    let second = other.create(&leased(KEY, RH)).unwrap();
    assert_eq!(granted(&second), NONE);
    second.close().unwrap();
    file.unlock(0, 10).unwrap();
    let second = other.create(&leased(KEY, RH)).unwrap();
    assert_eq!(granted(&second), RH);
}

#[test]
fn the_epoch_counts_changes() {
    // smb2.lease.v2_epoch1, v2_epoch2
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    let epoch = |state, asked| {
        let args = CreateArgs::open_if("f").lease_v2(KEY, state, asked);
        let lease = holder.create(&args).unwrap().created().lease().unwrap();
        (lease.lease_state, lease.v2.unwrap().epoch)
    };
    // The first epoch is the client's number plus one; later the server counts, regardless of the
    // client's number.
    assert_eq!(epoch(R, 0x4711), (R, 0x4712));
    assert_eq!(epoch(R, 0x1000), (R, 0x4712));
    assert_eq!(epoch(RH, 0x1000), (RH, 0x4713));
    assert_eq!(epoch(R, 0), (RH, 0x4713));
    assert_eq!(epoch(RWH, 0), (RWH, 0x4714));
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    assert_eq!(next(&holder), (RWH, RH, 0x4715));
    holder.acknowledge_lease(KEY, RH).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
    assert_eq!(epoch(RH, 0), (RH, 0x4715));
}

#[test]
fn an_acknowledgement_may_give_up_more() {
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    for given in [RH, R, NONE] {
        let file = holder.create(&leased(KEY, RWH)).unwrap();
        assert_eq!(granted(&file), RWH);
        let id = other.send(CreateArgs::open("f").request()).unwrap();
        assert_eq!(next(&holder).1, RH);
        holder.acknowledge_lease(KEY, given).unwrap();
        let reply = other.client().wait(id).unwrap().ok().unwrap();
        let second = holder.create(&leased(KEY, NONE)).unwrap();
        assert_eq!(granted(&second), given);
        other.file(&reply).unwrap().close().unwrap();
        second.close().unwrap();
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.22.2: the lease is that of the connection's ClientGuid and the key, on whatever session.
#[test]
fn only_the_client_of_a_lease_acknowledges_its_break() {
    let server = HoldfastServer::new();
    let (holder, other, stranger) = (client(&server, 1), client(&server, 2), client(&server, 3));
    let file = holder.create(&leased(KEY, RWH)).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    assert_eq!(next(&holder).1, RH);
    for wrong in [&other, &stranger] {
        let refused = status(wrong.acknowledge_lease(KEY, RH));
        assert_eq!(refused, Status::OBJECT_NAME_NOT_FOUND);
    }
    assert!(!answered(&other, id));
    let elsewhere = client(&server, 1);
    elsewhere.acknowledge_lease(KEY, RH).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
    file.close().unwrap();
}

#[test]
fn an_open_with_the_same_key_during_a_break_reports_it() {
    // 3.3.5.9.11: SMB2_LEASE_FLAG_BREAK_IN_PROGRESS, and the unchanged state.
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    holder.create(&leased(KEY, RWH)).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    assert_eq!(next(&holder).1, RH);
    let meanwhile = holder.create(&leased(KEY, RWH)).unwrap();
    let lease = meanwhile.created().lease().unwrap();
    assert_eq!(lease.lease_state, RWH);
    assert!(lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS));
    assert!(!answered(&other, id));
    holder.acknowledge_lease(KEY, RH).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
    let after = holder.create(&leased(KEY, RH)).unwrap();
    let lease = after.created().lease().unwrap();
    assert_eq!(lease.lease_state, RH);
    assert!(!lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS));
}

#[test]
fn a_deeper_break_follows_the_acknowledgement() {
    // smb2.lease.breaking3: an overwrite arrives while RWH is being broken to RH.
    let server = HoldfastServer::new();
    let (holder, other, third) = (client(&server, 1), client(&server, 2), client(&server, 3));
    holder.create(&leased(KEY, RWH)).unwrap();
    let opening = other.send(CreateArgs::open("f").request()).unwrap();
    assert_eq!(next(&holder).1, RH);
    let overwriting = third
        .send(open(CreateDisposition::OVERWRITE).request())
        .unwrap();
    assert!(!answered(&other, opening));
    assert!(!answered(&third, overwriting));
    holder.acknowledge_lease(KEY, RH).unwrap();
    // The state is broken step by step or at once, until nothing is left; the first open may wait
    // for that, too.
    let mut state = RH;
    while state != NONE {
        let (current, new, _) = next(&holder);
        assert_eq!(current, state);
        if current != R {
            holder.acknowledge_lease(KEY, new).unwrap();
        }
        state = new;
    }
    other.client().wait(opening).unwrap().ok().unwrap();
    third.client().wait(overwriting).unwrap().ok().unwrap();
}

#[test]
fn several_waiting_opens_continue_together() {
    let server = HoldfastServer::new();
    let holder = client(&server, 1);
    let file = holder.create(&leased(KEY, RWH)).unwrap();
    let others: Vec<(Tree, MessageId)> = (2..6)
        .map(|number| {
            let tree = client(&server, number);
            let id = tree.send(CreateArgs::open("f").request()).unwrap();
            (tree, id)
        })
        .collect();
    assert_eq!(next(&holder).1, RH);
    for (tree, id) in &others {
        assert!(!answered(tree, *id));
    }
    holder.acknowledge_lease(KEY, RH).unwrap();
    for (tree, id) in &others {
        tree.client().wait(*id).unwrap().ok().unwrap();
    }
    // There is one break for all of them.
    assert_eq!(holder.client().next_break(MEANWHILE).unwrap(), None);
    file.close().unwrap();
}

#[test]
fn a_close_of_one_of_several_handles_does_not_complete_a_break() {
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    let first = holder.create(&leased(KEY, RWH)).unwrap();
    let second = holder.create(&leased(KEY, RWH)).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    assert_eq!(next(&holder).1, RH);
    first.close().unwrap();
    assert!(!answered(&other, id));
    // The last close does.
    second.close().unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
    assert_eq!(
        status(holder.acknowledge_lease(KEY, RH)),
        Status::OBJECT_NAME_NOT_FOUND
    );
}

#[test]
fn an_open_waits_however_many_handles_are_closed_meanwhile() {
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    let file = holder.create(&leased(KEY, RWH)).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    assert_eq!(next(&holder).1, RH);
    // After each close the open is judged again.
    for _ in 0..400 {
        let another = holder.create(&leased(KEY, RWH)).unwrap();
        another.close().unwrap();
    }
    assert!(!answered(&other, id));
    holder.acknowledge_lease(KEY, RH).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
    file.close().unwrap();
}

#[test]
fn a_cancelled_open_does_not_revoke_the_break() {
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    holder.create(&leased(KEY, RWH)).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    assert!(other.client().wait_pending(id).unwrap().is_some());
    assert_eq!(next(&holder).1, RH);
    let session = other.session().id();
    other.client().connection().cancel(id, session).unwrap();
    assert_eq!(other.client().wait(id).unwrap().status(), Status::CANCELLED);
    holder.acknowledge_lease(KEY, RH).unwrap();
    let again = holder.create(&leased(KEY, NONE)).unwrap();
    assert_eq!(granted(&again), RH);
}

/// Microsoft's test suite acknowledges only after the open and before the deletion, which waits.
#[test]
fn an_open_to_delete_does_not_wait_long_for_cached_handles() {
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    let cached = holder.create(&leased(KEY, RH)).unwrap();
    let args = CreateArgs::open("f").options(CreateOptions::DELETE_ON_CLOSE);
    let deleting = other.create(&args).unwrap();
    let (current, new, _) = next(&holder);
    assert_eq!((current, new), (RH, R));
    let class = FileInformationClass::DISPOSITION;
    let mark = deleting.set_info_request(InfoType::FILE, class.0, 0, &[1]);
    let id = other.send(mark).unwrap();
    assert!(!answered(&other, id));
    holder.acknowledge_lease(KEY, R).unwrap();
    let end = other.client().wait(id).unwrap().status();
    assert_eq!(end, Status::SUCCESS);
    assert!(!holder.client().connection().has_break());
    deleting.close().unwrap();
    cached.close().unwrap();
    assert!(!server.path("f").exists());
}

#[test]
fn delete_on_close_breaks_handle_caching_at_the_open() {
    for (held, taken) in [(R, Nothing), (RH, Awaited(R))] {
        let args = open(CreateDisposition::OPEN)
            .access(AccessMask::DELETE)
            .options(CreateOptions::DELETE_ON_CLOSE);
        let end = assert_taken(held, taken, |_| args.request());
        assert_eq!(end, Status::SUCCESS, "{held:?}");
    }
}

/// Somebody opens the file after that, and caches its handle.
#[test]
fn delete_on_close_breaks_handle_caching_of_later_opens_at_the_close() {
    let server = HoldfastServer::new();
    let (holder, other) = (client(&server, 1), client(&server, 2));
    let args = CreateArgs::open_if("f").options(CreateOptions::DELETE_ON_CLOSE);
    let deleting = other.create(&args).unwrap();
    let cached = holder.create(&leased(KEY, RH)).unwrap();
    assert_eq!(granted(&cached), RH);
    deleting.close().unwrap();
    let (current, new, _) = next(&holder);
    assert_eq!((current, new), (RH, R));
    cached.close().unwrap();
    assert!(!server.path("f").exists());
}
