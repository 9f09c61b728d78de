//! The server in the simulator: executor, clock, network and disks from one seed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use smb_server::config::ShareConfig;
use smb_sim::pipe::ClientEnd;
use smb_sim::{MemoryOptions, Sim, SimEnv, SimServer};
use smb_wire::ids::FileTime;
use vfs::disk::{Disk, OpenHow};
use vfs::env::Clock;
use vfs::sim::{SimDisk, SimFd, SimOptions};
use vfs::{Env, Identity};

use crate::judge::Vault;
use crate::world::{
    COMMON, FIXED, FIXED_FILE, OPEN, Taken, USERS, User, Wire, World, in_common, in_own_share,
    is_changing, private_folder, secret,
};

const SERVICE: Identity = Identity::Service;

/// The server and its disks, one for each share.
pub(crate) struct Simulator {
    server: SimServer,
    disks: BTreeMap<&'static str, SimDisk>,
}

impl Simulator {
    /// A server with three users and five shares.
    pub(crate) fn new(sim: &mut Sim) -> Result<Self, String> {
        let env = sim.env();
        let mut disks = BTreeMap::new();
        let mut shares = Vec::new();
        let all = [COMMON, FIXED].into_iter();
        for (number, name) in (1..).zip(all.chain(USERS.iter().map(|user| user.name))) {
            let user = USERS.iter().find(|user| user.name == name);
            let clock = Arc::clone(&env);
            let disk = SimDisk::new(SimOptions {
                fs: number,
                seed: sim.seed() + number,
                clock: Some(Clock::new(move || clock.realtime())),
                root_owner: user.map_or((0, 0), |user| (user.uid, user.uid)),
                root_mode: if user.is_some() { 0o700 } else { 0o1777 },
                xattr_space: 65_536,
                // The server itself says who links what.
                protected_hardlinks: false,
                ..SimOptions::default()
            });
            disks.insert(name, disk.clone());
            let config = ShareConfig {
                read_only: name == FIXED,
                users: user.map(|user| vec![user.name.to_owned()]),
                ..ShareConfig::new(name)
            };
            shares.push((config, disk));
        }
        let users = USERS.iter();
        let options = MemoryOptions {
            users: users
                .clone()
                .map(|user| (user.name.to_owned(), user.password.to_owned()))
                .collect(),
            owners: users
                .map(|user| (user.name.to_owned(), (user.uid, user.uid)))
                .collect(),
            signing_required: false,
            shares,
            ..MemoryOptions::default()
        };
        let filled = sim.run(fill(&disks)).map_err(|stuck| stuck.to_string())?;
        filled.map_err(|errno| format!("the disks cannot be filled: {errno:?}"))?;
        let server = SimServer::new(sim, &options).map_err(|stuck| stuck.to_string())?;
        Ok(Self { server, disks })
    }

    fn env(&self) -> &Arc<SimEnv> {
        self.server.env()
    }
}

/// Makes the folders, as the owner of the machine would.
async fn fill(disks: &BTreeMap<&'static str, SimDisk>) -> vfs::disk::DiskResult<()> {
    let common = &disks[COMMON];
    folder(common, OPEN, 0o777, None).await?;
    file(&disks[FIXED], FIXED_FILE, b"to be read", 0o666, None).await?;
    for (index, user) in USERS.iter().enumerate() {
        folder(common, &private_folder(index), 0o700, Some(user)).await?;
        for name in in_own_share(index) {
            let disk = &disks[user.name];
            file(disk, &name, &secret(index), 0o600, Some(user)).await?;
        }
        for name in in_common(index) {
            file(common, &name, &secret(index), 0o600, Some(user)).await?;
        }
    }
    Ok(())
}

/// The folder that the last name of a path is in, and that name.
async fn parent<'a>(disk: &SimDisk, path: &'a str) -> vfs::disk::DiskResult<(SimFd, &'a str)> {
    match path.split_once('/') {
        None => Ok((disk.root(), path)),
        Some((first, name)) => {
            let how = OpenHow {
                read: true,
                directory: true,
                ..OpenHow::default()
            };
            let root = disk.root();
            let fd = disk.open_at(&SERVICE, &root, first.as_bytes(), how);
            Ok((fd.await?, name))
        }
    }
}

async fn open(disk: &SimDisk, path: &str, create: Option<u32>) -> vfs::disk::DiskResult<SimFd> {
    let (dir, name) = parent(disk, path).await?;
    let how = OpenHow {
        read: true,
        write: create.is_some(),
        create,
        ..OpenHow::default()
    };
    disk.open_at(&SERVICE, &dir, name.as_bytes(), how).await
}

async fn own(
    disk: &SimDisk,
    fd: &SimFd,
    mode: u32,
    user: Option<&User>,
) -> vfs::disk::DiskResult<()> {
    if let Some(User { uid, .. }) = user {
        disk.set_owner(&SERVICE, fd, Some(*uid), Some(*uid)).await?;
    }
    disk.set_mode(&SERVICE, fd, mode).await
}

async fn folder(
    disk: &SimDisk,
    name: &str,
    mode: u32,
    user: Option<&User>,
) -> vfs::disk::DiskResult<()> {
    let root = disk.root();
    disk.make_dir(&SERVICE, &root, name.as_bytes(), mode)
        .await?;
    let fd = open(disk, name, None).await?;
    own(disk, &fd, mode, user).await
}

async fn file(
    disk: &SimDisk,
    path: &str,
    content: &[u8],
    mode: u32,
    user: Option<&User>,
) -> vfs::disk::DiskResult<()> {
    let fd = open(disk, path, Some(mode)).await?;
    disk.write(&fd, 0, Bytes::copy_from_slice(content), false)
        .await?;
    own(disk, &fd, mode, user).await
}

impl World for Simulator {
    type Wire = ClientEnd;

    fn connect(&mut self) -> Option<ClientEnd> {
        Some(self.server.connect())
    }

    fn now(&self) -> Duration {
        self.env().monotonic()
    }

    fn filetime(&self) -> u64 {
        let now = self.env().realtime();
        FileTime::from_unix(now.secs, now.nanos).0
    }

    async fn pause(&mut self, span: Duration) {
        // Disks take up to 30 ms.
        self.env().sleep(span * 20).await;
    }

    /// Longer than the wait for a break that nobody acknowledges, 35 s.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn echo_max(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn vault(&mut self) -> Vault {
        let mut vault = Vault::new();
        let common = &self.disks[COMMON];
        for (index, user) in USERS.iter().enumerate() {
            let private = &self.disks[user.name];
            for name in names(private, None).await {
                keep(&mut vault, private, user.name, &name, Some(user)).await;
            }
            let hidden = private_folder(index);
            for name in names(common, Some(&hidden)).await {
                keep(
                    &mut vault,
                    common,
                    COMMON,
                    &format!("{hidden}/{name}"),
                    Some(user),
                )
                .await;
            }
            for name in in_common(index) {
                keep(&mut vault, common, COMMON, &name, None).await;
            }
        }
        let fixed = &self.disks[FIXED];
        for name in names(fixed, None).await {
            keep(&mut vault, fixed, FIXED, &name, None).await;
        }
        vault
    }
}

async fn names(disk: &SimDisk, folder: Option<&str>) -> Vec<String> {
    let fd = match folder {
        None => disk.root(),
        Some(name) => match open(disk, name, None).await {
            Ok(fd) => fd,
            Err(_) => return Vec::new(),
        },
    };
    let entries = disk.entries(&fd, 10_000).await.unwrap_or_default();
    let each = entries.iter();
    each.map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
        .collect()
}

/// Everything about a file, but those that its owner changes and when it was read.
async fn keep(vault: &mut Vault, disk: &SimDisk, share: &str, path: &str, owner: Option<&User>) {
    let Ok(fd) = open(disk, path, None).await else {
        return;
    };
    let Ok(stat) = disk.stat(&fd).await else {
        return;
    };
    if owner.is_some_and(|owner| is_changing(path, stat.uid, owner)) {
        return;
    }
    let room = bytes::BytesMut::with_capacity(1 << 16);
    let content = disk.read(&fd, 0, 1 << 16, room).await.unwrap_or_default();
    let mut attributes = String::new();
    for name in disk.list_xattr(&fd).await.unwrap_or_default() {
        let value = disk.get_xattr(&fd, &name).await;
        attributes += &format!("{name}={value:02x?} ");
    }
    let text = format!(
        "mode {:o} uid {} gid {} links {} written {:?} changed {:?} attributes {attributes} content {}",
        stat.mode,
        stat.uid,
        stat.gid,
        stat.links,
        stat.written,
        stat.changed,
        String::from_utf8_lossy(&content),
    );
    vault.insert(format!("{share}/{path}"), text);
}

impl Wire for ClientEnd {
    fn send(&mut self, bytes: Bytes) -> bool {
        // A failure of the connection is seen when it is read.
        let _gone = ClientEnd::send(self, bytes);
        true
    }

    fn take(&mut self) -> Taken {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(self.receive()).poll(&mut context) {
            Poll::Pending => Taken::Nothing,
            Poll::Ready(None) => Taken::Ended,
            Poll::Ready(Some(bytes)) => Taken::Bytes(bytes),
        }
    }
}
