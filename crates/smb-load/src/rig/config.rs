//! The configurations of the servers: Samba as an expert would tune it, and Holdfast.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rustix::process::{Resource, getrlimit};

use super::{
    Failure,
    server::{IDS, PASSWORD, Place, SHARE, USER, open_up},
};

/// Whether Samba's io_uring module is installed.
pub fn samba_has_uring() -> bool {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders
        .map(|entry| entry.path().join("samba/vfs/io_uring.so"))
        .any(|module| module.exists())
}

/// Samba with this configuration; makes its folders and its user.
pub fn samba(place: &Place, text: &str) -> Result<Command, Failure> {
    let home = &place.home;
    for state in [
        "private", "lock", "state", "cache", "pid", "ncalrpc", "logs",
    ] {
        fs::create_dir_all(home.join(state))?;
    }
    open_up(&home.join("ncalrpc"))?;
    fs::set_permissions(home.join("private"), fs::Permissions::from_mode(0o700))?;
    let config = home.join("smb.conf");
    fs::write(&config, text)?;
    let twice = home.join("password");
    fs::write(&twice, format!("{PASSWORD}\n{PASSWORD}\n"))?;
    let added = Command::new("pdbedit")
        .arg("-s")
        .arg(&config)
        .args(["-t", "-a", "-u", USER])
        .stdin(fs::File::open(&twice)?)
        .output()?;
    fs::remove_file(twice)?;
    if !added.status.success() {
        let said = String::from_utf8_lossy(&added.stderr).into_owned();
        return Err(format!("pdbedit: {said}").into());
    }
    let mut command = Command::new("smbd");
    command
        .arg("-s")
        .arg(config)
        .args(["-F", "--no-process-group"]);
    Ok(command)
}

/// How Samba is set up, besides what an expert would tune.
#[derive(Debug, Clone, Copy)]
pub struct Samba {
    /// All I/O is asynchronous: by threads, unless the module for io_uring does it. Else it is synchronous, with
    /// sendfile.
    pub asynchronous: bool,
    /// The module for io_uring.
    pub uring: bool,
    /// FLUSH waits for the disk.
    pub strict_sync: bool,
    /// Every WRITE waits for the disk.
    pub sync_always: bool,
}

/// Samba as an expert would tune it.
#[must_use]
pub fn samba_config(samba: Samba, place: &Place) -> String {
    let home = place.home.display();
    let folder = place.folder.display();
    let port = place.port;
    let size = u8::from(samba.asynchronous);
    let io = if samba.uring {
        "vfs objects = io_uring"
    } else {
        ""
    };
    let word = |is_so| if is_so { "yes" } else { "no" };
    let (strict, always) = (word(samba.strict_sync), word(samba.sync_always));
    format!(
        "[global]
server role = standalone server
netbios name = COMPARE
interfaces = 127.0.0.1/8
bind interfaces only = yes
smb ports = {port}
disable netbios = yes
private dir = {home}/private
lock directory = {home}/lock
state directory = {home}/state
cache directory = {home}/cache
pid directory = {home}/pid
ncalrpc dir = {home}/ncalrpc
log file = {home}/logs/smbd
log level = 0
passdb backend = tdbsam
map to guest = never
load printers = no
printing = bsd
printcap name = /dev/null
disable spoolss = yes
server min protocol = SMB2_10
server multi channel support = yes
use sendfile = yes
min receivefile size = 16384
aio read size = {size}
aio write size = {size}
socket options = TCP_NODELAY
smbd profiling level = off
kernel oplocks = no
smb2 leases = yes
strict allocate = no
dns proxy = no
[{SHARE}]
path = {folder}
read only = no
strict sync = {strict}
sync always = {always}
ea support = no
store dos attributes = no
map archive = no
kernel share modes = no
posix locking = no
{io}
"
    )
}

/// Connections that a comparison makes at most.
const CONNECTIONS_MAX: u64 = 20_500;

/// Connections that a Holdfast of this program's making is configured for: as many of those as its descriptors, which
/// are this program's, leave room for beside opens.
#[must_use]
pub fn connections() -> u32 {
    let descriptors = getrlimit(Resource::Nofile).maximum;
    let room = descriptors.map_or(CONNECTIONS_MAX, |all| all / 5 * 3);
    u32::try_from(room.min(CONNECTIONS_MAX)).unwrap_or(u32::MAX)
}

/// Where Holdfast listens, and with which workers.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Address and port.
    pub address: String,
    /// Cores of its workers; empty for all.
    pub cores: Vec<usize>,
    /// Whether they stay there.
    pub pin: bool,
}

/// How Holdfast is set up, besides its defaults.
#[derive(Debug, Clone, Copy)]
pub struct Holdfast<'a> {
    /// The policy of the share.
    pub policy: &'a str,
    /// How files are read and written; the default, unless given.
    pub file_io: Option<&'a str>,
    /// The port of the metrics page.
    pub metrics: Option<u16>,
    /// Connections at most, which may all come from one address.
    pub connections: u32,
    /// Instead of one on 127.0.0.1 with all workers.
    pub listeners: &'a [Listener],
}

/// Holdfast with defaults but for what a comparison needs.
#[must_use]
pub fn holdfast_config(holdfast: Holdfast<'_>, place: &Place) -> String {
    let policy = holdfast.policy;
    let io = holdfast
        .file_io
        .map_or_else(String::new, |io| format!("file_io = \"{io}\"\n"));
    let metrics = holdfast.metrics.map_or_else(String::new, |port| {
        format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n")
    });
    let mut listeners = String::new();
    for listener in holdfast.listeners {
        let Listener {
            address,
            cores,
            pin,
        } = listener;
        let cores = match cores.as_slice() {
            [] => String::new(),
            cores => format!("cores = {cores:?}\n"),
        };
        listeners += &format!("[[listener]]\naddress = {address:?}\n{cores}pin = {pin}\n");
    }
    if listeners.is_empty() {
        listeners = format!("[[listener]]\naddress = \"127.0.0.1:{}\"\n", place.port);
    }
    format!(
        "[server]
name = \"COMPARE\"
state_dir = \"{state}\"
# As with Samba, the client decides.
signing = \"desired\"
{io}[limits]
# All clients have one address.
connections = {connections}
connections_per_address = {connections}
{listeners}{metrics}[[share]]
name = \"{SHARE}\"
path = \"{folder}\"
durability = \"{policy}\"
accept_loss = {loss}
[log]
filter = \"warn\"
",
        state = place.home.join("state").display(),
        connections = holdfast.connections,
        folder = place.folder.display(),
        loss = policy == "treat-host-as-stable-storage",
    )
}

/// Holdfast with this configuration; makes its user.
pub fn configured(binary: &Path, place: &Place, text: &str) -> Result<Command, Failure> {
    let home = &place.home;
    let config = home.join("holdfast.toml");
    fs::create_dir_all(home.join("state"))?;
    fs::write(&config, text)?;
    let password = home.join("password");
    fs::write(&password, format!("{PASSWORD}\n"))?;
    let added = Command::new(binary)
        .args(["user", "add", USER, "--owner", IDS, "--password-file"])
        .arg(&password)
        .arg("--config")
        .arg(&config)
        .output()?;
    fs::remove_file(password)?;
    if !added.status.success() {
        let said = String::from_utf8_lossy(&added.stderr).into_owned();
        return Err(format!("holdfast user add: {said}").into());
    }
    let mut command = Command::new(binary);
    command.args(["serve", "--config"]).arg(config);
    Ok(command)
}
