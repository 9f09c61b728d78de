//! Application instances ([MS-SMB2] 3.3.5.9.13): when an instance opens its file from another
//! client, the server closes the open that the instance left behind on the first client, unless
//! that one has a newer version.

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::durable::{app_instance, app_version, granted_v2, v2, v2_again};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, SECOND, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseState, name};
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, SecurityInformation, Sid};
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{Dialect, InfoType, LockFlags, OplockLevel, ShareAccess};

const INSTANCE: Guid = Guid([0xa1; 16]);
const OTHER_INSTANCE: Guid = Guid([0xa2; 16]);
const EXCLUSIVE: LockFlags = LockFlags(0x12);
const WRITE: AccessMask = AccessMask::FILE_WRITE_DATA;

fn of(server: &HoldfastServer, client: u8, dialect: Dialect) -> Tree {
    server.tree_with(Options::dialect(dialect).guid(Guid([client; 16])))
}

/// Opens the disk of a virtual machine, without any sharing.
fn alone(name: &str) -> CreateArgs {
    CreateArgs::open_if(name).share(ShareAccess::empty())
}

/// Opens a file as an application instance, with a CreateGuid of its own.
fn of_instance(name: &str, id: Guid, create: u8) -> CreateArgs {
    app_instance(v2(alone(name), Guid([create; 16]), 0), id)
}

/// A server on which the first client holds `f` open as [`INSTANCE`], and the second client.
struct Two {
    server: HoldfastServer,
    first: Tree,
    second: Tree,
    file: File,
}

impl Two {
    fn new(args: &CreateArgs) -> Self {
        Self::speaking(args, Dialect::SMB_3_1_1)
    }

    fn speaking(args: &CreateArgs, dialect: Dialect) -> Self {
        let server = HoldfastServer::new();
        let (first, second) = (of(&server, 1, dialect), of(&server, 2, dialect));
        let file = first.create(args).unwrap();
        file.write_all(0, b"of the first").unwrap();
        Self {
            server,
            first,
            second,
            file,
        }
    }

    fn plain() -> Self {
        Self::new(&of_instance("f", INSTANCE, 1))
    }

    /// Asserts that the second client's open takes the file over.
    fn assert_taken(&self, args: &CreateArgs) -> File {
        let file = self.second.create(args).unwrap();
        assert_eq!(file.read_all().unwrap(), b"of the first");
        assert_eq!(status(self.file.read(0, 1)), Status::FILE_CLOSED);
        file
    }

    /// Asserts that the second client's open is refused, and that the first client's open still
    /// works.
    fn assert_kept(&self, args: &CreateArgs, expected: Status) {
        assert_eq!(status(self.second.create(args)), expected);
        assert_eq!(self.file.read_all().unwrap(), b"of the first");
        self.file.write_all(0, b"of the first").unwrap();
    }
}

#[test]
fn the_instance_takes_its_file_over() {
    for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1] {
        let two = Two::speaking(&of_instance("f", INSTANCE, 1), dialect);
        two.assert_taken(&of_instance("f", INSTANCE, 2));
    }
}

#[test]
fn the_same_create_guid_from_another_client_is_another_open() {
    // Windows' cluster clients send the same one, which is looked up with the ClientGuid.
    let two = Two::plain();
    two.assert_taken(&of_instance("f", INSTANCE, 1));
}

#[test]
fn the_instance_context_needs_no_durable_request() {
    // 3.3.5.9: a server with 3.1.1 sets Open.AppInstanceId even without DH2Q.
    let args = app_instance(alone("f"), INSTANCE);
    let two = Two::new(&args);
    two.assert_taken(&args);
}

#[test]
fn a_disconnected_open_is_taken_over_and_closed() {
    let server = HoldfastServer::new();
    let (first, second) = (
        of(&server, 1, Dialect::SMB_3_1_1),
        of(&server, 2, Dialect::SMB_3_1_1),
    );
    let batch = |create| {
        let args = alone("f").oplock(OplockLevel::BATCH);
        app_instance(v2(args, Guid([create; 16]), 60_000), INSTANCE)
    };
    let file = first.create(&batch(1)).unwrap();
    assert!(granted_v2(&file).is_some());
    file.write_all(0, b"kept").unwrap();
    server.lose(&first);
    let taken = second.create(&batch(2)).unwrap();
    assert_eq!(taken.created().oplock_level, OplockLevel::BATCH);
    assert_eq!(taken.read_all().unwrap(), b"kept");
    let first = of(&server, 1, Dialect::SMB_3_1_1);
    let again = v2_again(
        alone("f").oplock(OplockLevel::BATCH),
        file.id(),
        Guid([1; 16]),
    );
    assert_eq!(status(first.create(&again)), Status::OBJECT_NAME_NOT_FOUND);
    taken.write_all(0, b"mine").unwrap();
}

#[test]
fn locks_and_caching_end_with_the_closed_open() {
    let key = LeaseKey([3; 16]);
    let args = |create| {
        let args = CreateArgs::open_if("f").lease_v2(key, LeaseState::RWH, 0);
        app_instance(v2(args, Guid([create; 16]), 0), INSTANCE)
    };
    let two = Two::new(&args(1));
    two.file.lock(0, 10, EXCLUSIVE).unwrap();
    let taken = two.assert_taken(&args(2));
    assert_eq!(
        taken.created().lease().unwrap().lease_state,
        LeaseState::RWH
    );
    taken.lock(0, 10, EXCLUSIVE).unwrap();
    // The first client has no lease any more that could be broken.
    let broken = two.first.client().next_break(smb_tests::MEANWHILE);
    assert_eq!(broken.unwrap(), None);
}

#[test]
fn the_same_client_closes_none_of_its_own_opens() {
    let two = Two::plain();
    let again = two.first.create(&of_instance("f", INSTANCE, 2));
    assert_eq!(status(again), Status::SHARING_VIOLATION);
    // The same holds for its second connection.
    let other = of(&two.server, 1, Dialect::SMB_3_1_1);
    let again = other.create(&of_instance("f", INSTANCE, 2));
    assert_eq!(status(again), Status::SHARING_VIOLATION);
    assert_eq!(two.file.read_all().unwrap(), b"of the first");
}

#[test]
fn another_instance_closes_nothing() {
    let two = Two::plain();
    let args = of_instance("f", OTHER_INSTANCE, 2);
    two.assert_kept(&args, Status::SHARING_VIOLATION);
}

#[test]
fn an_open_without_an_instance_closes_nothing() {
    let two = Two::plain();
    two.assert_kept(&v2(alone("f"), Guid([2; 16]), 0), Status::SHARING_VIOLATION);
    let two = Two::new(&v2(alone("f"), Guid([1; 16]), 0));
    two.assert_kept(&of_instance("f", INSTANCE, 2), Status::SHARING_VIOLATION);
}

#[test]
fn another_path_closes_nothing() {
    let two = Two::plain();
    two.second.create(&of_instance("g", INSTANCE, 2)).unwrap();
    two.assert_kept(&alone("f"), Status::SHARING_VIOLATION);
}

#[test]
fn another_share_closes_nothing() {
    let two = Two::plain();
    let there = two.second.session().tree(SECOND).unwrap();
    there.create(&of_instance("f", INSTANCE, 2)).unwrap();
    two.assert_kept(&alone("f"), Status::SHARING_VIOLATION);
}

#[test]
fn the_path_is_compared_without_case() {
    let two = Two::plain();
    two.assert_taken(&of_instance("F", INSTANCE, 2));
}

#[test]
fn a_context_of_another_size_is_refused_and_closes_nothing() {
    let two = Two::plain();
    for size in [0, 4, 16, 19, 21, 24] {
        let mut data = vec![0xa1; size];
        if size > 2 {
            data[..2].copy_from_slice(&20u16.to_le_bytes());
        }
        let args = alone("f").context(name::APP_INSTANCE_ID, &data);
        two.assert_kept(&args, Status::INVALID_PARAMETER);
    }
}

#[test]
fn before_3_0_the_context_is_ignored() {
    let args = app_instance(alone("f"), INSTANCE);
    let two = Two::speaking(&args, Dialect::SMB_2_1);
    two.assert_kept(&args, Status::SHARING_VIOLATION);
}

fn versioned(high: u64, low: u64, create: u8) -> CreateArgs {
    app_version(of_instance("f", INSTANCE, create), high, low)
}

#[test]
fn an_older_or_equal_version_is_refused() {
    for (high, low) in [(4, 9), (5, 4), (5, 5), (0, u64::MAX)] {
        let two = Two::new(&versioned(5, 5, 1));
        two.assert_kept(&versioned(high, low, 2), Status::FILE_FORCED_CLOSED);
    }
}

#[test]
fn a_newer_version_takes_over() {
    for (high, low) in [(5, 6), (6, 0), (u64::MAX, 0)] {
        let two = Two::new(&versioned(5, 5, 1));
        two.assert_taken(&versioned(high, low, 2));
    }
}

#[test]
fn an_open_without_a_version_is_refused_if_the_other_has_one() {
    let two = Two::new(&versioned(0, 1, 1));
    two.assert_kept(&of_instance("f", INSTANCE, 2), Status::FILE_FORCED_CLOSED);
}

#[test]
fn any_version_takes_over_an_open_without_a_version() {
    let two = Two::plain();
    two.assert_taken(&versioned(0, 0, 2));
}

#[test]
fn a_refused_version_may_open_once_the_newer_is_closed() {
    let two = Two::new(&versioned(5, 5, 1));
    two.assert_kept(&versioned(4, 0, 2), Status::FILE_FORCED_CLOSED);
    two.file.close().unwrap();
    two.second.create(&versioned(4, 0, 2)).unwrap();
}

#[test]
fn the_id_may_be_zero() {
    let zero = |create, high| app_version(of_instance("f", Guid::default(), create), high, 0);
    let two = Two::new(&zero(1, 1));
    two.assert_kept(&zero(2, 1), Status::FILE_FORCED_CLOSED);
    two.assert_taken(&zero(2, 2));
    // An open that names no instance is not of this one.
    let two = Two::new(&v2(alone("f"), Guid([1; 16]), 0));
    two.assert_kept(&zero(2, 2), Status::SHARING_VIOLATION);
}

#[test]
fn a_version_without_an_instance_is_ignored() {
    let two = Two::plain();
    let args = app_version(v2(alone("f"), Guid([2; 16]), 0), 9, 9);
    two.assert_kept(&args, Status::SHARING_VIOLATION);
}

#[test]
fn before_3_1_1_the_version_is_ignored() {
    // Open.ApplicationInstanceVersion* remain empty, and the request's version is ignored.
    let two = Two::speaking(&versioned(5, 5, 1), Dialect::SMB_3_0_2);
    two.assert_taken(&versioned(4, 4, 2));
}

#[test]
fn a_user_without_read_access_closes_nothing() {
    // "If the maximal access includes GENERIC_READ access, the server MUST close the open"
    let server = HoldfastServer::new();
    let first = of(&server, 1, Dialect::SMB_3_1_1);
    let args = of_instance("f", INSTANCE, 1).access(
        AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE | AccessMask::WRITE_DAC,
    );
    let file = first.create(&args).unwrap();
    let mut descriptor = BytesMut::new();
    SecurityDescriptor {
        dacl: Some(Acl::new(vec![Ace::allow(
            Sid::EVERYONE,
            WRITE,
            AceFlags::empty(),
        )])),
        ..SecurityDescriptor::default()
    }
    .encode(&mut descriptor)
    .unwrap();
    let request = file.set_info_request(
        InfoType::SECURITY,
        0,
        SecurityInformation::DACL.bits(),
        &descriptor,
    );
    first.call(request).unwrap();
    let stranger = server.client(Options::default().guid(Guid([2; 16])));
    let stranger = stranger.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let stranger = stranger.tree(DATA).unwrap();
    let read = CreateArgs::open("f").access(AccessMask::FILE_READ_DATA);
    assert_eq!(status(stranger.create(&read)), Status::ACCESS_DENIED);
    let end = status(stranger.create(&of_instance("f", INSTANCE, 2).access(WRITE)));
    assert!(
        [Status::SHARING_VIOLATION, Status::ACCESS_DENIED].contains(&end),
        "{end}"
    );
    file.write_all(0, b"still open").unwrap();
}

/// [MS-SMB2] 3.3.5.9.13 is skipped beside a reconnect of version 2.
#[test]
fn a_reconnect_closes_nothing() {
    let server = HoldfastServer::new();
    let (first, second) = (
        of(&server, 1, Dialect::SMB_3_1_1),
        of(&server, 2, Dialect::SMB_3_1_1),
    );
    let cached = |key: u8| {
        let state = LeaseState(3);
        CreateArgs::open_if("f").lease_v2(LeaseKey([key; 16]), state, 0)
    };
    let other = first.create(&app_instance(cached(1), INSTANCE)).unwrap();
    let guid = Guid([9; 16]);
    let lost = second.create(&v2(cached(2), guid, 0)).unwrap();
    assert!(granted_v2(&lost).is_some());
    let id = lost.id();
    server.lose(&second);
    let again = app_instance(v2_again(cached(2), id, guid), INSTANCE);
    let back = of(&server, 2, Dialect::SMB_3_1_1).create(&again).unwrap();
    other.write_all(0, b"of the first").unwrap();
    assert_eq!(back.read_all().unwrap(), b"of the first");
}
