//! Descriptors and the users who create files: entries added to a directory, owners and groups with
//! one SID, absent lists, and listings that omit unreadable entries.
//!
//! Users with identities of their own on disk need root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use bytes::BytesMut;
use rustix::fs::XattrFlags;
use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::{DATA, HoldfastServer, Options as ServerOptions, missing, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{QueryMaximalAccessResponse, name};
use smb_wire::dtyp::SecurityInformation as Part;
use smb_wire::dtyp::{
    Ace, AceFlags, Acl, SecurityDescriptor, SecurityDescriptorControl as Control, Sid,
};
use smb_wire::fscc::{DirectoryEntries, DirectoryFormat, FileInformationClass};
use smb_wire::msg::{CreateOptions, InfoType, QueryDirectoryFlags, ShareAccess};

const CAROL: u32 = 12_345;
const DAVE: u32 = 12_346;
const TEAM: u32 = 12_400;
/// Inheritance by subdirectories and files.
const BELOW: AceFlags = AceFlags(3);
/// "Modify" of Windows.
const MODIFY: AccessMask = AccessMask(0x0013_01bf);

fn whole() -> Part {
    Part::OWNER | Part::GROUP | Part::DACL
}

fn descriptor_of(file: &File, parts: Part) -> SecurityDescriptor {
    let bytes = file.query_info(InfoType::SECURITY, 0, parts.bits());
    SecurityDescriptor::read(&bytes.unwrap()).unwrap()
}

fn descriptor(tree: &Tree, name: &str) -> SecurityDescriptor {
    let args = CreateArgs::open(name).access(AccessMask::READ_CONTROL);
    descriptor_of(&tree.create(&args).unwrap(), whole())
}

fn encoded(sd: &SecurityDescriptor) -> Vec<u8> {
    let mut out = BytesMut::new();
    sd.encode(&mut out).unwrap();
    out.to_vec()
}

fn set(file: &File, parts: Part, sd: &SecurityDescriptor) -> Status {
    let request = file.set_info_request(InfoType::SECURITY, 0, parts.bits(), &encoded(sd));
    status(file.tree().call(request))
}

/// Adds an entry as Explorer does: reads the list, and sets it again with one more entry.
fn add_entry(tree: &Tree, name: &str, ace: Ace) {
    let access = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    let file = tree.create(&CreateArgs::open(name).access(access)).unwrap();
    let mut sd = descriptor_of(&file, Part::DACL);
    sd.dacl.as_mut().unwrap().aces.insert(0, ace);
    sd.control |= Control::DACL_AUTO_INHERITED | Control::DACL_AUTO_INHERIT_REQ;
    assert_eq!(set(&file, Part::DACL, &sd), Status::SUCCESS);
}

struct World {
    server: HoldfastServer,
    owner: Tree,
    carol: Tree,
    dave: Tree,
}

/// Starts a server with two users who have identities of their own on disk, in one group; `None`
/// without root.
fn world(options: &ServerOptions) -> Option<World> {
    if !rustix::process::geteuid().is_root() {
        missing("root");
        return None;
    }
    let server = HoldfastServer::start(options);
    for (name, uid) in [("carol", CAROL), ("dave", DAVE)] {
        server.add_user(name, "A-password-3", &["--owner", &format!("{uid}:{TEAM}")]);
    }
    for path in [server.path(""), server.path("..")] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let login = |name| {
        let client = server.client(Options::default());
        let session = client.login(name, "A-password-3", "").unwrap();
        session.tree(DATA).unwrap()
    };
    Some(World {
        owner: server.tree(),
        carol: login("carol"),
        dave: login("dave"),
        server,
    })
}

/// Returns whether it is the SID of an account of this server, not of a local user.
fn is_account(sid: Option<Sid>) -> bool {
    sid.is_some_and(|sid| sid.to_string().starts_with("S-1-5-21-"))
}

/// [MS-FSA] 2.1.5.1.2.2: to keep others from reading takes the right to write in the directory.
#[test]
fn a_mere_reader_locks_no_reader_out() {
    let Some(world) = world(&ServerOptions::default()) else {
        return;
    };
    world.owner.write_file("f", b"content").unwrap();
    let open = |tree: &Tree, access, share| {
        let args = CreateArgs::open("f").access(access).share(share);
        tree.create(&args)
    };
    let (nothing, read) = (ShareAccess::empty(), AccessMask::FILE_READ_DATA);
    let all = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    let carols = open(&world.carol, read, nothing).unwrap();
    open(&world.dave, read, all).unwrap().close().unwrap();
    // Everything else stays exclusive.
    let write = AccessMask::FILE_WRITE_DATA;
    let written = status(open(&world.owner, write, all));
    assert_eq!(written, Status::SHARING_VIOLATION);
    carols.close().unwrap();
    let owners = open(&world.owner, read, nothing).unwrap();
    let refused = status(open(&world.dave, read, all));
    assert_eq!(refused, Status::SHARING_VIOLATION);
    owners.close().unwrap();
}

/// [MS-FSA] 2.1.5.1.2: to keep others from listing a directory takes the right to write it, if nobody has it open yet.
#[test]
fn a_mere_reader_of_a_directory_locks_no_reader_out() {
    let Some(world) = world(&ServerOptions::default()) else {
        return;
    };
    let root = world.server.path("");
    fs::set_permissions(root, Permissions::from_mode(0o777)).unwrap();
    world.owner.mkdir("d").unwrap();
    let mode = Permissions::from_mode(0o755);
    fs::set_permissions(world.server.path("d"), mode).unwrap();
    let open = |tree: &Tree, share| tree.create(&CreateArgs::directory("d").share(share));
    let (nothing, all) = (ShareAccess::empty(), ShareAccess(7));
    let carols = open(&world.carol, nothing).unwrap();
    let _daves = open(&world.dave, all).unwrap();
    carols.close().unwrap();
    let refused = status(open(&world.carol, nothing));
    assert_eq!(refused, Status::SHARING_VIOLATION);
}

/// [MS-FSA] 2.1.5.1.2.1: MAXIMUM_ALLOWED grants what can be granted. The kernel refuses a local user what the
/// permission bits refuse, whatever an entry says.
#[test]
fn maximum_allowed_leaves_out_what_the_kernel_refuses() {
    let Some(world) = world(&ServerOptions::default()) else {
        return;
    };
    let (owner, dave) = (&world.owner, &world.dave);
    let (all, most) = (AccessMask::FILE_ALL_ACCESS, AccessMask::MAXIMUM_ALLOWED);
    let reads = AccessMask::FILE_READ_DATA | AccessMask::FILE_EXECUTE;
    let writes = AccessMask::FILE_WRITE_DATA | AccessMask::FILE_APPEND_DATA;
    let most_of = |path: &str| {
        let args = CreateArgs::open(path).access(most);
        let args = args.context(name::QUERY_MAXIMAL_ACCESS, b"");
        let file = dave.create(&args).unwrap();
        let told = file.created().context(name::QUERY_MAXIMAL_ACCESS).unwrap();
        let told = QueryMaximalAccessResponse::read(told).unwrap();
        let granted = file.query(FileInformationClass::ACCESS).unwrap();
        let granted = AccessMask(u32::from_le_bytes(granted.try_into().unwrap()));
        file.close().unwrap();
        (granted, told.maximal_access)
    };
    for (path, mode, lost) in [
        ("r", 0o644, writes),
        ("w", 0o622, reads),
        ("n", 0o600, reads | writes),
    ] {
        owner.write_file(path, b"content").unwrap();
        let mode = Permissions::from_mode(mode);
        fs::set_permissions(world.server.path(path), mode).unwrap();
        let full = Ace::allow(Sid::EVERYONE, all, AceFlags::empty());
        add_entry(owner, path, full);
        let rest = all.without(lost);
        assert_eq!(most_of(path), (rest, rest), "{path}");
        // A right that the request names is not left out.
        for right in [AccessMask::FILE_READ_DATA, AccessMask::FILE_WRITE_DATA] {
            let expected = match lost.contains(right) {
                true => Status::ACCESS_DENIED,
                false => Status::SUCCESS,
            };
            let args = CreateArgs::open(path).access(most | right);
            let opened = dave.create_status(&args).unwrap();
            assert_eq!(opened, expected, "{path}: {right}");
        }
    }
}

#[test]
fn an_added_entry_takes_no_rights_from_the_creator_of_a_file() {
    let Some(world) = world(&ServerOptions::default()) else {
        return;
    };
    // A folder of the host, open to all, and one that carol created.
    let host = world.server.path("host");
    fs::create_dir(&host).unwrap();
    fs::set_permissions(&host, Permissions::from_mode(0o777)).unwrap();
    let carols = world.server.path("carols");
    fs::create_dir(&carols).unwrap();
    std::os::unix::fs::chown(&carols, Some(CAROL), Some(TEAM)).unwrap();
    let dave = descriptor_of_dave(&world);
    add_entry(&world.owner, "host", Ace::allow(dave, MODIFY, BELOW));
    add_entry(&world.carol, "carols", Ace::allow(dave, MODIFY, BELOW));
    for folder in ["host", "carols"] {
        let (carol, name) = (&world.carol, |end: &str| format!("{folder}\\{end}"));
        carol.write_file(&name("f"), b"first").unwrap();
        carol.write_file(&name("f"), b"again").unwrap();
        assert_eq!(carol.read_file(&name("f")).unwrap(), b"again");
        carol.mkdir(&name("sub")).unwrap();
        carol.mkdir(&name("sub\\deeper")).unwrap();
        carol.write_file(&name("sub\\deeper\\g"), b"below").unwrap();
        let all = CreateArgs::open(&name("f")).access(AccessMask::FILE_ALL_ACCESS);
        assert_eq!(status(carol.create(&all)), Status::SUCCESS, "{folder}");
        // A user has one SID, whether the descriptor was derived or inherited.
        let made = descriptor(carol, &name("f"));
        assert!(is_account(made.owner), "{folder}: {:?}", made.owner);
        assert_ne!(made.owner, Some(dave));
        let entries = made.dacl.unwrap().aces;
        let hers = |ace: &&Ace| ace.access().map(|(_, sid)| *sid) == made.owner;
        assert_eq!(entries.iter().filter(hers).count(), 1, "{folder}");
        // The added entry applies to files created below; others may only read.
        assert!(entries.contains(&Ace::allow(dave, MODIFY, AceFlags::INHERITED)));
        let writes = |ace: &Ace| {
            let (mask, sid) = ace.access().unwrap();
            *sid == Sid::EVERYONE && mask.contains(AccessMask::FILE_WRITE_DATA)
        };
        assert!(!entries.iter().any(writes), "{folder}: {entries:?}");
        carol.delete(&name("f")).unwrap();
    }
}

fn descriptor_of_dave(world: &World) -> Sid {
    let path = world.server.path("daves");
    fs::write(&path, b"").unwrap();
    std::os::unix::fs::chown(&path, Some(DAVE), Some(TEAM)).unwrap();
    descriptor(&world.dave, "daves").owner.unwrap()
}

#[test]
fn a_bound_user_has_one_sid_and_a_shared_local_user_keeps_its_own() {
    let Some(world) = world(&ServerOptions::default()) else {
        return;
    };
    let path = world.server.path("f");
    fs::write(&path, b"").unwrap();
    std::os::unix::fs::chown(&path, Some(CAROL), Some(TEAM)).unwrap();
    let carols = descriptor(&world.carol, "f");
    assert!(is_account(carols.owner));
    // Every user sees the same SIDs.
    assert_eq!(descriptor(&world.dave, "f"), carols);
    let first = carols.dacl.as_ref().unwrap().aces[0].access().unwrap();
    assert_eq!(Some(*first.1), carols.owner);
    // Two accounts have this group, and two accounts act as the user who runs the tests.
    assert_eq!(carols.group, Some(Sid::unix_group(TEAM)));
    world.owner.write_file("o", b"").unwrap();
    let own = Sid::unix_user(rustix::process::geteuid().as_raw());
    assert_eq!(descriptor(&world.owner, "o").owner, Some(own));
    world.owner.mkdir("d").unwrap();
    let everyone = Ace::allow(Sid::EVERYONE, MODIFY, BELOW);
    add_entry(&world.owner, "d", everyone);
    world.owner.write_file("d\\o", b"").unwrap();
    assert_eq!(descriptor(&world.owner, "d\\o").owner, Some(own));
    // The reported owner and group can be set again.
    let access = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER;
    let file = CreateArgs::open("f").access(access);
    let file = world.carol.create(&file).unwrap();
    assert_eq!(set(&file, whole(), &carols), Status::SUCCESS);
    let stored = descriptor_of(&file, whole());
    assert_eq!((stored.owner, stored.dacl), (carols.owner, carols.dacl));
    world.carol.write_file("f", b"still hers").unwrap();
}

#[test]
fn users_without_a_local_user_own_as_themselves() {
    let Some(world) = world(&ServerOptions::default()) else {
        return;
    };
    let path = world.server.path("open");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    let login = |name| {
        let client = world.server.client(Options::default());
        let session = client.login(name, "A-password-3", "").unwrap();
        session.tree(DATA).unwrap()
    };
    for name in ["erin", "frank"] {
        world.server.add_unbound_user(name, "A-password-3");
    }
    let (erin, frank) = (login("erin"), login("frank"));
    erin.write_file("open\\e", b"erin").unwrap();
    erin.mkdir("open\\erins").unwrap();
    frank.write_file("open\\f", b"frank").unwrap();
    let owner = |tree, name| descriptor(tree, name).owner;
    let (hers, his) = (owner(&erin, "open\\e"), owner(&frank, "open\\f"));
    assert!(is_account(hers) && is_account(his) && hers != his);
    assert_eq!(owner(&erin, "open\\erins"), hers);
    add_entry(
        &erin,
        "open\\erins",
        Ace::allow(his.unwrap(), MODIFY, BELOW),
    );
    erin.write_file("open\\erins\\e", b"one").unwrap();
    frank.write_file("open\\erins\\f", b"two").unwrap();
    assert_eq!(owner(&erin, "open\\erins\\e"), hers);
    assert_eq!(owner(&frank, "open\\erins\\f"), his);
    // She created it, and has the access that her directory grants.
    assert_eq!(erin.read_file("open\\erins\\e").unwrap(), b"one");
    // The entry allows frank to write her file; nothing allows her to write his.
    frank.write_file("open\\erins\\e", b"changed").unwrap();
    assert_eq!(
        erin.write_file("open\\erins\\f", b"x")
            .unwrap_err()
            .status(),
        Some(Status::ACCESS_DENIED)
    );
}

#[test]
fn absent_and_empty_lists_read_back_as_they_were_set() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let access = AccessMask::FILE_ALL_ACCESS;
    // If a CREATE supplies a descriptor without a list, the list is inherited from the directory.
    let nothing = SecurityDescriptor::default();
    let args = CreateArgs::create("f")
        .access(access)
        .context(name::SECURITY_DESCRIPTOR, &encoded(&nothing));
    let file = tree.create(&args).unwrap();
    let first = descriptor_of(&file, Part::DACL);
    assert!(first.control.contains(Control::DACL_PRESENT) && first.dacl.is_some());
    let null = SecurityDescriptor {
        control: Control::DACL_PRESENT,
        ..SecurityDescriptor::default()
    };
    let empty = SecurityDescriptor {
        dacl: Some(Acl::new(Vec::new())),
        ..SecurityDescriptor::default()
    };
    // A set DACL is present: setting no DACL sets a NULL DACL.
    for (sd, expected) in [(&null, None), (&empty, Some(0)), (&nothing, None)] {
        assert_eq!(set(&file, Part::DACL, sd), Status::SUCCESS);
        let now = descriptor_of(&file, whole());
        assert!(now.control.contains(Control::DACL_PRESENT), "{now:?}");
        assert_eq!(now.dacl.map(|list| list.aces.len()), expected);
        let opened = tree.create_status(&CreateArgs::open("f")).unwrap();
        let lets_in = expected.is_none();
        assert_eq!(opened == Status::SUCCESS, lets_in, "{expected:?}");
    }
    // A client that does not request the DACL gets no information about it.
    let owner = descriptor_of(&file, Part::OWNER);
    assert!(!owner.control.contains(Control::DACL_PRESENT));
}

#[test]
fn who_makes_a_file_with_a_stream_gets_what_the_list_does_not_give() {
    // [MS-FSA] 2.1.5.1.1
    let server = HoldfastServer::new();
    let tree = server.tree();
    let empty = SecurityDescriptor {
        dacl: Some(Acl::new(Vec::new())),
        ..SecurityDescriptor::default()
    };
    let args = CreateArgs::create("f:s").context(name::SECURITY_DESCRIPTOR, &encoded(&empty));
    let stream = tree.create(&args).unwrap();
    stream.write_all(0, b"mine").unwrap();
    stream.close().unwrap();
    let again = tree.create_status(&CreateArgs::open("f:s")).unwrap();
    assert_eq!(again, Status::ACCESS_DENIED);
}

#[test]
fn an_owner_cannot_be_set_to_another_user() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let given = SecurityDescriptor {
        owner: Some(Sid::unix_user(4711)),
        ..SecurityDescriptor::default()
    };
    let args = CreateArgs::create("f").context(name::SECURITY_DESCRIPTOR, &encoded(&given));
    assert_eq!(tree.create_status(&args).unwrap(), Status::INVALID_OWNER);
    assert!(!server.path("f").exists());
}

#[test]
fn listings_omit_entries_without_all_rights_of_generic_read() {
    let server = HoldfastServer::start(&ServerOptions {
        share: "access_based_enumeration = true".into(),
        ..ServerOptions::default()
    });
    let tree = server.tree();
    tree.write_file("f", b"").unwrap();
    let access = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
    let owner = descriptor_of(&file, whole()).owner.unwrap();
    let read = AccessMask::FILE_GENERIC_READ;
    let lacking = [
        AccessMask::FILE_READ_DATA,
        AccessMask::FILE_READ_EA,
        AccessMask::FILE_READ_ATTRIBUTES,
        AccessMask::SYNCHRONIZE,
    ];
    let masks = lacking.map(|right| (read.without(right), false));
    for (mask, shown) in [(read, true)].into_iter().chain(masks) {
        let entry = Ace::allow(owner, mask, AceFlags::empty());
        let sd = SecurityDescriptor {
            dacl: Some(Acl::new(vec![entry])),
            ..SecurityDescriptor::default()
        };
        assert_eq!(set(&file, Part::DACL, &sd), Status::SUCCESS);
        let listed = tree.list("", "*").unwrap();
        let there = listed.iter().any(|entry| entry.file_name == "f");
        assert_eq!(there, shown, "{mask}");
    }
}

/// Another directory may have the path of the one that is listed.
#[test]
fn listings_omit_unreadable_entries_of_a_directory_that_was_moved() {
    let server = HoldfastServer::start(&ServerOptions {
        share: "access_based_enumeration = true".into(),
        ..ServerOptions::default()
    });
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("d\\f", b"").unwrap();
    let access = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    let args = CreateArgs::open("d\\f").access(access);
    let file = tree.create(&args).unwrap();
    let closed = SecurityDescriptor {
        dacl: Some(Acl::new(Vec::new())),
        ..SecurityDescriptor::default()
    };
    assert_eq!(set(&file, Part::DACL, &closed), Status::SUCCESS);
    let directory = tree.create(&CreateArgs::directory("d")).unwrap();
    fs::rename(server.path("d"), server.path("moved")).unwrap();
    fs::create_dir(server.path("d")).unwrap();
    fs::write(server.path("d/f"), b"").unwrap();
    let class = FileInformationClass::NAMES;
    let flags = QueryDirectoryFlags::empty();
    let bytes = directory.query_directory(class, "*", flags, 4096).unwrap();
    let entries = DirectoryEntries::new(DirectoryFormat::of(class).unwrap(), &bytes);
    let listed: Vec<String> = entries.map(|entry| entry.unwrap().file_name).collect();
    assert_eq!(listed, [".", ".."]);
}

#[test]
fn listings_omit_an_entry_whose_descriptor_cannot_be_understood() {
    let server = HoldfastServer::start(&ServerOptions {
        share: "access_based_enumeration = true".into(),
        ..ServerOptions::default()
    });
    let tree = server.tree();
    tree.write_file("good", b"").unwrap();
    let bad = server.path("bad");
    fs::write(&bad, b"").unwrap();
    // Only root may set the first; without root the server uses the second.
    for name in ["security.NTACL", "user.NTACL"] {
        let _ = rustix::fs::setxattr(&bad, name, b"none", XattrFlags::empty());
    }
    let listed = tree.list("", "*").unwrap();
    let has = |name: &str| listed.iter().any(|entry| entry.file_name == name);
    assert!(has("good") && !has("bad"));
}

#[test]
fn the_unnamed_stream_of_a_directory_is_neither_file_nor_directory() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let open = |options| {
        let args = CreateArgs::open("d::$DATA").options(options);
        tree.create_status(&args).unwrap()
    };
    assert_eq!(open(CreateOptions::empty()), Status::FILE_IS_A_DIRECTORY);
    assert_eq!(
        open(CreateOptions::NON_DIRECTORY_FILE),
        Status::FILE_IS_A_DIRECTORY
    );
    assert_eq!(open(CreateOptions::DIRECTORY_FILE), Status::NOT_A_DIRECTORY);
}
