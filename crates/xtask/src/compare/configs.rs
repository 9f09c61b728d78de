//! The configurations of the servers: Samba as an expert would tune it, and Holdfast.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use super::servers::{IDS, Kind, PASSWORD, Place, SHARE, USER, open_up};
use crate::Failure;

/// Whether Samba's io_uring module is installed.
pub(crate) fn samba_has_uring() -> bool {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders
        .map(|entry| entry.path().join("samba/vfs/io_uring.so"))
        .any(|module| module.exists())
}

/// Samba with this configuration; makes its folders and its user.
pub(crate) fn samba(place: &Place, text: &str) -> Result<Command, Failure> {
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

/// Samba as an expert would tune it.
pub(crate) fn samba_config(kind: Kind, place: &Place) -> String {
    let home = place.home.display();
    let folder = place.folder.display();
    let port = place.port;
    // Size 0: synchronous, with sendfile; 1: all asynchronous, by threads unless a module does it.
    let (size, io) = match kind {
        Kind::SambaUring | Kind::SambaUringLax => (1, "vfs objects = io_uring"),
        Kind::SambaThreads | Kind::SambaThreadsLax => (1, ""),
        _ => (0, ""),
    };
    let strict = if kind.lax() { "no" } else { "yes" };
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
sync always = no
ea support = no
store dos attributes = no
map archive = no
kernel share modes = no
posix locking = no
{io}
"
    )
}

/// Holdfast with defaults but for what a comparison needs.
pub(crate) fn holdfast_config(kind: Kind, place: &Place) -> String {
    let io = match kind {
        Kind::HoldfastUring | Kind::HoldfastUringLax => "io_uring",
        _ => "threads",
    };
    let policy = if kind.lax() {
        "treat-host-as-stable-storage"
    } else {
        "honor"
    };
    format!(
        "[server]
name = \"COMPARE\"
state_dir = \"{state}\"
# As with Samba, the client decides.
signing = \"desired\"
file_io = \"{io}\"
[limits]
# All clients have one address.
connections = 20000
connections_per_address = 20000
[[listener]]
address = \"127.0.0.1:{port}\"
[[share]]
name = \"{SHARE}\"
path = \"{folder}\"
durability = \"{policy}\"
accept_loss = {lax}
[log]
filter = \"warn\"
",
        state = place.home.join("state").display(),
        port = place.port,
        folder = place.folder.display(),
        lax = kind.lax(),
    )
}

/// Holdfast with this configuration; makes its user.
pub(crate) fn configured(binary: &Path, place: &Place, text: &str) -> Result<Command, Failure> {
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
