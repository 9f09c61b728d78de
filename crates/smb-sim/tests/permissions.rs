//! The server itself refuses one user another's objects, on a disk that would permit the access.

use std::sync::Arc;

use bytes::BytesMut;
use smb_client::{CreateArgs, Options, Request, Signing};
use smb_server::config::ShareConfig;
use smb_sim::{MemoryOptions, PASSWORD, Sim, SimClient, SimServer};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    fscc::FileLinkInformation,
    msg::{Dialect, InfoType},
};
use vfs::{
    Identity,
    disk::{Disk, OpenHow},
    identity::LocalUser,
    sim::{SimDisk, SimFd, SimOptions},
};

const SERVICE: Identity = Identity::Service;
const SHARE: &str = "common";
const ALICE: u32 = 4_001;
const BOB: u32 = 4_002;

/// A server on a disk that everybody may write in the root of.
fn server(sim: &mut Sim) -> (SimServer, SimDisk) {
    let disk = SimDisk::new(SimOptions {
        root_mode: 0o777,
        protected_hardlinks: false,
        ..SimOptions::default()
    });
    let users = [("alice", ALICE), ("bob", BOB)];
    let options = MemoryOptions {
        users: users.map(|(name, _)| (name.into(), PASSWORD.into())).into(),
        owners: users.map(|(name, uid)| (name.into(), (uid, uid))).into(),
        shares: vec![(ShareConfig::new(SHARE), disk.clone())],
        ..MemoryOptions::default()
    };
    (SimServer::new(sim, &options).unwrap(), disk)
}

async fn client(server: &SimServer, user: &str) -> SimClient {
    let options = Options::dialect(Dialect::SMB_3_1_1).signing(Signing::Required);
    let mut client = SimClient::connect(server, options).await.unwrap();
    client.login(user, PASSWORD).await.unwrap();
    client.open_tree(SHARE).await.unwrap();
    client
}

/// Alice's file of these permission bits.
async fn alices(disk: &SimDisk, dir: &SimFd, name: &str, mode: u32) -> SimFd {
    let how = OpenHow {
        read: true,
        write: true,
        create: Some(0o600),
        ..OpenHow::default()
    };
    let fd = disk.open_at(&SERVICE, dir, name.as_bytes(), how);
    let fd = fd.await.unwrap();
    let owner = Some(ALICE);
    disk.set_owner(&SERVICE, &fd, owner, owner).await.unwrap();
    // Only who is of its group sets S_ISGID (chmod(2)).
    let alice = Identity::User(Arc::new(LocalUser {
        uid: ALICE,
        gid: ALICE,
        groups: Vec::new(),
    }));
    disk.set_mode(&alice, &fd, mode).await.unwrap();
    fd
}

async fn link(client: &mut SimClient, name: &str, to: &str) -> Status {
    let open = CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES);
    let file_id = client.create(&open).await.unwrap();
    let mut buffer = BytesMut::new();
    FileLinkInformation {
        replace_if_exists: true,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut buffer);
    let set = Request::set_info(file_id, InfoType::FILE, 11, 0, &buffer);
    let set = client.send(set).unwrap();
    let status = client.wait(set).await.unwrap().status();
    client.close(file_id).await.unwrap();
    status
}

#[test]
fn links_are_for_owners_and_for_who_may_write() {
    let mut sim = Sim::new(1);
    let (server, disk) = server(&mut sim);
    sim.run(async move {
        let mut alice = client(&server, "alice").await;
        let mut bob = client(&server, "bob").await;
        let bobs = bob.create(&CreateArgs::create("bobs")).await.unwrap();
        bob.close(bobs).await.unwrap();
        // Private; to be read; to be written; a program that runs as alice; as her group.
        for (mode, expected) in [
            (0o600, Status::ACCESS_DENIED),
            (0o644, Status::ACCESS_DENIED),
            (0o662, Status::ACCESS_DENIED),
            (0o4666, Status::ACCESS_DENIED),
            (0o2676, Status::ACCESS_DENIED),
            (0o666, Status::SUCCESS),
            (0o2666, Status::SUCCESS),
        ] {
            let name = format!("{mode:o}");
            let root = disk.root();
            let fd = alices(&disk, &root, &name, mode).await;
            let links = 1 + u32::from(expected.is_success());
            let to = format!("bobs {name}");
            assert_eq!(link(&mut bob, &name, &to).await, expected, "{name}");
            assert_eq!(disk.stat(&fd).await.unwrap().links, links, "{name}");
            let to = format!("hers {name}");
            assert_eq!(link(&mut alice, &name, &to).await, Status::SUCCESS);
        }
        // A refusal replaces nothing.
        assert_eq!(link(&mut bob, "600", "bobs").await, Status::ACCESS_DENIED);
        bob.create(&CreateArgs::open("bobs")).await.unwrap();
    })
    .unwrap();
}
