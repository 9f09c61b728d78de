//! The protocol joined to the daemon: shares of the configuration become shares of the server,
//! sockets become its transport, its reports become status and metrics.

use std::{io, path::Path, pin::pin, rc::Rc, sync::Arc};

use durability::{Durability, ShareDurability};
use serde_json::{Value, json};
use smb_auth::UserDb;
use smb_server::{
    Server, Share, Shares,
    config::{self as core, HostRange, ServerConfig, ShareConfig},
    limits::Limits,
};
use smb_wire::{dtyp::Sid, ids::Guid, msg::Dialect};
use vfs::{
    posix::{AclNamespace, PosixOptions, PosixVfs, SymlinkPolicy},
    sys::HostDisk,
};

use crate::{
    config::{self, Config},
    daemon::{PolicyRequest, Service, SyncReport},
    env::TokioEnv,
    transport,
    worker::{Accepted, ConnectionHandler, WorkerHandle},
};

/// The file system that the daemon serves.
pub type HostVfs = PosixVfs<HostDisk>;

/// Numbers of 96 bits that make the machine's SID, under S-1-5-21.
const NT_AUTHORITY: u64 = 5;
const NT_NON_UNIQUE: u32 = 21;

/// The protocol of one process.
pub struct Holdfast {
    server: Arc<Server<HostVfs>>,
    use_ring: bool,
}

impl Holdfast {
    /// Builds the server that a configuration describes.
    ///
    /// # Errors
    /// When a share's folder cannot be opened.
    pub fn new(config: Arc<Config>, users: UserDb) -> io::Result<Arc<Self>> {
        let use_ring = choose_ring(&config)?;
        let env = Arc::new(TokioEnv::new());
        let mut limits = durability::Limits::default();
        if let Some(max) = config.durability.dirty_inodes_max {
            limits.dirty_inodes_max = max as usize;
        }
        limits.dirty_age_max = config.durability.dirty_age_max;
        let durability = Durability::new(env.clone(), limits);
        let settings = server_config(&config, &users);
        let shares = build_shares(&config, &users, &durability, use_ring, &Shares::default())?;
        let server = Server::new(env, durability, settings, shares, Arc::new(users));
        Ok(Arc::new(Self { server, use_ring }))
    }
}

/// Whether file I/O goes through io_uring; said aloud either way.
fn choose_ring(config: &Config) -> io::Result<bool> {
    let allowed = vfs::uring::probe();
    match (config.server.file_io, allowed) {
        (config::FileIo::Threads, _) => {
            tracing::info!("file I/O by threads, as configured");
            Ok(false)
        }
        (_, Ok(())) => {
            tracing::info!("file I/O by io_uring");
            Ok(true)
        }
        (config::FileIo::Auto, Err(reason)) => {
            tracing::warn!(?reason, "no io_uring here: file I/O by threads");
            Ok(false)
        }
        (config::FileIo::IoUring, Err(reason)) => Err(io::Error::other(format!(
            "file_io = \"io_uring\", but there is no io_uring here: {reason:?}\n  = use \"auto\" or \"threads\""
        ))),
    }
}

fn server_config(config: &Config, users: &UserDb) -> ServerConfig {
    let server = &config.server;
    let mut guid = [0; 16];
    // The same machine SID, the same guid: stable across restarts, different on each machine.
    for (to, from) in guid.iter_mut().zip(
        users
            .machine_sid()
            .0
            .iter()
            .flat_map(|part| part.to_le_bytes()),
    ) {
        *to = from;
    }
    let root = rustix::process::geteuid().is_root();
    ServerConfig {
        netbios_name: server.name.clone(),
        workgroup: server.workgroup.clone(),
        dns_name: server.name.to_lowercase(),
        comment: server.comment.clone(),
        server_guid: Guid(guid),
        machine_sid: machine_sid(users),
        dialect_min: dialect(server.min_protocol),
        dialect_max: dialect(server.max_protocol),
        signing_required: server.signing == config::Signing::Required,
        encryption: encryption(server.encryption),
        ciphers: server.ciphers.iter().copied().map(cipher).collect(),
        signing_algorithms: server
            .signing_algorithms
            .iter()
            .copied()
            .map(signing)
            .collect(),
        allow_empty_passwords: server.allow_empty_passwords,
        strict_write_flags: false,
        switch_identity: root,
        service_ids: (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        ),
        limits: limits(&config.limits),
    }
}

fn machine_sid(users: &UserDb) -> Sid {
    let [a, b, c] = users.machine_sid().0;
    Sid::new(NT_AUTHORITY, &[NT_NON_UNIQUE, a, b, c]).unwrap_or(Sid::NULL)
}

fn limits(limits: &config::Limits) -> Limits {
    Limits {
        trees_per_session: limits.trees_per_session as usize,
        opens_per_session: limits.opens_per_session as usize,
        locks_per_open: limits.locks_per_open as usize,
        parked_per_connection: limits.pending_per_connection as usize,
        io_bytes: limits.io_size_bytes,
        setup_seconds: limits.authentication_timeout.as_secs(),
        ..Limits::default()
    }
}

fn dialect(dialect: config::Dialect) -> Dialect {
    match dialect {
        config::Dialect::Smb202 => Dialect::SMB_2_0_2,
        config::Dialect::Smb210 => Dialect::SMB_2_1,
        config::Dialect::Smb300 => Dialect::SMB_3_0,
        config::Dialect::Smb302 => Dialect::SMB_3_0_2,
        config::Dialect::Smb311 => Dialect::SMB_3_1_1,
    }
}

fn encryption(encryption: config::Encryption) -> core::Encryption {
    match encryption {
        config::Encryption::Offered => core::Encryption::Offered,
        config::Encryption::Required => core::Encryption::Required,
    }
}

fn cipher(cipher: config::Cipher) -> smb_crypto::Cipher {
    match cipher {
        config::Cipher::Aes128Gcm => smb_crypto::Cipher::Aes128Gcm,
        config::Cipher::Aes256Gcm => smb_crypto::Cipher::Aes256Gcm,
        config::Cipher::Aes128Ccm => smb_crypto::Cipher::Aes128Ccm,
        config::Cipher::Aes256Ccm => smb_crypto::Cipher::Aes256Ccm,
    }
}

fn signing(algorithm: config::SigningAlgorithm) -> smb_crypto::SigningAlgorithm {
    match algorithm {
        config::SigningAlgorithm::AesGmac => smb_crypto::SigningAlgorithm::AesGmac,
        config::SigningAlgorithm::AesCmac => smb_crypto::SigningAlgorithm::AesCmac,
        config::SigningAlgorithm::HmacSha256 => smb_crypto::SigningAlgorithm::HmacSha256,
    }
}

/// Opens the folders and names the shares; a share that stays keeps its number, and with it what
/// the file engine knows of its opens.
fn build_shares(
    config: &Config,
    users: &UserDb,
    durability: &Arc<Durability<HostVfs>>,
    use_ring: bool,
    before: &Shares<HostVfs>,
) -> io::Result<Shares<HostVfs>> {
    let mut next = before.iter().map(|share| share.id).max().unwrap_or(0);
    let mut shares = Vec::new();
    for share in &config.shares {
        let known = before.find(&share.name);
        let id = match known {
            Some(known) => known.id,
            None => {
                next += 1;
                next
            }
        };
        let settings = share_durability(config, share)?;
        let vfs = Arc::new(open_folder(share, use_ring)?);
        let gate = durability.share(&share.name, Arc::clone(&vfs), settings);
        shares.push(Arc::new(Share {
            config: share_config(share, users)?,
            vfs,
            gate,
            id,
        }));
    }
    Ok(Shares::new(shares))
}

fn share_durability(config: &Config, share: &config::Share) -> io::Result<ShareDurability> {
    let policy = share
        .durability
        .to_string()
        .parse()
        .map_err(|error| io::Error::other(format!("share {}: {error}", share.name)))?;
    Ok(ShareDurability {
        ignore_full_sync: share.ignore_full_sync,
        durable_acl: config.durability.durable_acl,
        sync_on_stop: config.durability.sync_on_stop,
        ..ShareDurability::with_policy(policy)
    })
}

fn share_config(share: &config::Share, users: &UserDb) -> io::Result<ShareConfig> {
    let mut group_rids = Vec::new();
    for group in &share.groups {
        let record = users.group(group).ok_or_else(|| {
            io::Error::other(format!(
                "share {}: no group `{group}`\n  = holdfast group add {group}",
                share.name
            ))
        })?;
        group_rids.push(record.rid);
    }
    let everybody = share.users.is_empty() && share.groups.is_empty();
    Ok(ShareConfig {
        comment: share.comment.clone(),
        read_only: share.read_only,
        users: (!everybody).then(|| share.users.clone()),
        group_rids,
        guest: share.guest,
        encryption_required: share.encryption == config::Encryption::Required,
        browseable: share.browseable,
        access_based_enumeration: share.access_based_enumeration,
        hosts: core::HostRules {
            allow: ranges(&share.hosts.allow),
            deny: ranges(&share.hosts.deny),
        },
        ..ShareConfig::new(&share.name)
    })
}

fn ranges(networks: &[config::hosts::Network]) -> Vec<HostRange> {
    networks
        .iter()
        .map(|network| HostRange {
            address: network.address(),
            prefix: network.prefix_bits(),
        })
        .collect()
}

fn open_folder(share: &config::Share, use_ring: bool) -> io::Result<HostVfs> {
    let root = rustix::process::geteuid().is_root();
    let options = PosixOptions {
        symlinks: match share.symlinks {
            config::Symlinks::Follow => SymlinkPolicy::Follow,
            config::Symlinks::Refuse => SymlinkPolicy::Refuse,
            config::Symlinks::Hide => SymlinkPolicy::Hide,
        },
        hide_dot_files: share.hide_dot_files,
        file_mode: share.file_mode,
        directory_mode: share.directory_mode,
        owner: share.owner.map(|owner| (owner.uid, owner.gid)),
        acl: if root {
            AclNamespace::Security
        } else {
            AclNamespace::User
        },
        read_only: share.read_only,
        ..PosixOptions::default()
    };
    let path: &Path = &share.path;
    let failed = |error: String| {
        io::Error::other(format!("share {}: {}: {error}", share.name, path.display()))
    };
    let disk = HostDisk::open(path, use_ring)
        .map_err(|errno| failed(io::Error::from_raw_os_error(errno.0).to_string()))?;
    apart(PosixVfs::new(disk, options)).map_err(|error| failed(error.to_string()))
}

/// Runs a future to its end on a thread of its own: the caller's runtime may be this thread's.
fn apart<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let mut future = std::pin::pin!(future);
            loop {
                if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
                    return value;
                }
                // Only at start and reload, for a `stat` or two.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        match thread.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// One worker's share of the protocol.
pub struct Handler {
    server: Arc<Server<HostVfs>>,
}

impl ConnectionHandler for Handler {
    async fn serve(&self, accepted: Accepted, worker: &WorkerHandle) {
        let (receiver, transmitter) = transport::split(accepted.stream);
        let pass = Rc::new(accepted.pass);
        let known = Rc::clone(&pass);
        let serving = smb_server::serve(
            Arc::clone(&self.server),
            receiver,
            transmitter,
            accepted.peer,
            Box::new(move || known.authenticated()),
        );
        let mut serving = pin!(serving);
        tokio::select! {
            biased;
            () = serving.as_mut() => return,
            () = worker.stopping() => self.server.disconnect_all(),
        }
        // What the disk has begun ends first.
        serving.await;
    }
}

impl Service for Holdfast {
    type Handler = Handler;

    fn handler(self: Arc<Self>, _worker: &WorkerHandle) -> io::Result<Handler> {
        Ok(Handler {
            server: Arc::clone(&self.server),
        })
    }

    fn status(&self) -> Value {
        let report = self.server.report();
        json!({
            "file_io": if self.use_ring { "io_uring" } else { "threads" },
            "connections": report.connections.iter().map(|connection| json!({
                "id": connection.id.0,
                "peer": connection.peer.to_string(),
                "dialect": format!("{:#06x}", connection.dialect),
            })).collect::<Vec<_>>(),
            "sessions": report.sessions.iter().map(|session| json!({
                "id": session.id,
                "connection": session.connection.0,
                "user": session.user,
                "signed": session.signed,
                "encrypted": session.encrypted,
                "trees": session.trees,
                "opens": session.opens.iter().map(|open| json!({
                    "id": open.id,
                    "share": open.share,
                    "path": open.path,
                    "access": format!("{:#010x}", open.access),
                    "locks": open.locks,
                })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "shares": self.shares_status(),
        })
    }

    fn metrics(&self) -> String {
        crate::exposition::render(&self.server)
    }

    async fn apply(self: Arc<Self>, config: Arc<Config>, users: UserDb) -> Result<Value, String> {
        let before = self.server.shares();
        let shares = build_shares(
            &config,
            &users,
            &self.server.durability,
            self.use_ring,
            &before,
        )
        .map_err(|error| error.to_string())?;
        let names: Vec<String> = shares
            .iter()
            .map(|share| share.config.name.clone())
            .collect();
        self.server.set_shares(shares);
        self.server.set_users(Arc::new(users));
        Ok(json!({ "shares": names }))
    }

    async fn policy(self: Arc<Self>, change: PolicyRequest) -> Result<Value, String> {
        let shares = self.server.shares();
        let mut answers = Vec::new();
        for share in shares.iter() {
            let wanted = change
                .share
                .as_ref()
                .is_none_or(|name| name.to_uppercase() == share.config.name.to_uppercase());
            if !wanted {
                continue;
            }
            if let Some(policy) = &change.set {
                let policy = policy
                    .to_string()
                    .parse()
                    .map_err(|error: durability::InvalidPolicy| error.to_string())?;
                let report = share.gate.set_policy(policy).await;
                if report.failed > 0 {
                    return Err(format!(
                        "share {}: {} inodes could not be made stable",
                        share.config.name, report.failed
                    ));
                }
            }
            answers.push(json!({
                "share": share.config.name,
                "policy": share.gate.effective_policy().to_string(),
            }));
        }
        if answers.is_empty() {
            return Err("no such share".to_owned());
        }
        Ok(json!(answers))
    }

    async fn sync_all(self: Arc<Self>) -> SyncReport {
        let report = self.server.durability.sync_all().await;
        SyncReport {
            inodes: report.inodes,
            bytes: report.bytes,
            errors: report
                .errors
                .iter()
                .map(|(key, error)| format!("inode {} of device {:#x}: {error}", key.ino, key.fs))
                .collect(),
        }
    }
}

impl Holdfast {
    fn shares_status(&self) -> Vec<Value> {
        let shares = self.server.shares();
        shares
            .iter()
            .map(|share| {
                let exposure = share.gate.exposure();
                json!({
                    "name": share.config.name,
                    "policy": share.gate.effective_policy().to_string(),
                    "exposed_bytes": exposure.bytes,
                    "exposed_inodes": exposure.inodes,
                    "oldest_ms": exposure.oldest_age.as_millis(),
                    "latched_inodes": exposure.latched_inodes,
                    "latched_bytes": exposure.latched_bytes,
                })
            })
            .collect()
    }
}
