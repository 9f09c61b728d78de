//! The configurations of the servers: Samba as an expert would tune it, and Holdfast.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use super::{
    Failure,
    server::{IDS, PASSWORD, Place, SHARE, USER, open_up},
};

/// Whether Samba's io_uring module is installed, here or below an unpacked root.
pub fn samba_has_uring(root: Option<&Path>) -> bool {
    let folders = fs::read_dir(root.unwrap_or(Path::new("/")).join("usr/lib"));
    let folders = folders.into_iter().flatten().flatten();
    folders
        .map(|entry| entry.path().join("samba/vfs/io_uring.so"))
        .any(|module| module.exists())
}

/// Shows the devices and the folders of a place below a root (`$0`), and runs a command there. The mounts belong to the
/// mount namespace of the process; only their empty folders stay.
const IN_ROOT: &str = "\
for folder in /dev /proc /sys \"$1\" \"$2\"; do
    mkdir -p \"$0$folder\" && mount --rbind \"$folder\" \"$0$folder\" || exit 1
done
root=$0; shift 2; exec chroot \"$root\" \"$@\"";

/// A program of this machine, or of an unpacked root in which it finds the folders of `place` under the same names.
fn program_of(root: Option<&Path>, program: &str, place: &Place) -> Command {
    let Some(root) = root else {
        return Command::new(program);
    };
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "--"])
        .args(["sh", "-c", IN_ROOT])
        .arg(root)
        .args([&place.home, &place.folder])
        .arg(program);
    command
}

/// Samba with this configuration; makes its folders and its user. The programs are those of an unpacked root, if one
/// is given.
pub fn samba(place: &Place, text: &str, root: Option<&Path>) -> Result<Command, Failure> {
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
    let added = program_of(root, "pdbedit", place)
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
    let mut command = program_of(root, "smbd", place);
    command
        .arg("-s")
        .arg(config)
        .args(["-F", "--no-process-group"]);
    Ok(command)
}

/// How Samba reads and writes files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SambaIo {
    /// At once, with sendfile.
    #[default]
    Sync,
    Threads,
    IoUring,
}

/// How Samba is set up, besides what an expert would tune.
#[derive(Debug, Clone, Copy)]
pub struct Samba {
    /// How it reads and writes.
    pub io: SambaIo,
    /// FLUSH waits for the disk.
    pub strict_sync: bool,
    /// Every WRITE waits for the disk.
    pub sync_always: bool,
}

/// Samba as an expert would tune it.
pub fn samba_config(samba: Samba, place: &Place) -> String {
    let home = place.home.display();
    let folder = place.folder.display();
    let port = place.port;
    let size = u8::from(samba.io != SambaIo::Sync);
    let io = if samba.io == SambaIo::IoUring {
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
/// Connections beside those of the clients: of programs, and of those that look on.
const CONNECTIONS_SPARE: u64 = 500;

/// Connections that a Holdfast of this program's making is configured for, where the clients make `needed` at a time:
/// with room for those that are about to end, and no more than its descriptors, which are this program's, allow beside
/// opens.
pub fn connections(needed: usize) -> u32 {
    let descriptors = getrlimit(Resource::Nofile).maximum;
    let room = descriptors.map_or(CONNECTIONS_MAX, |all| all / 5 * 3);
    let wanted = u64::try_from(needed).unwrap_or(u64::MAX).saturating_mul(2);
    let wanted = wanted.saturating_add(CONNECTIONS_SPARE);
    u32::try_from(wanted.min(room).min(CONNECTIONS_MAX)).unwrap_or(u32::MAX)
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
    /// Whether a FLUSH covers times; the default, unless given.
    pub flush_times: Option<bool>,
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
pub fn holdfast_config(holdfast: Holdfast<'_>, place: &Place) -> String {
    let policy = holdfast.policy;
    let io = holdfast
        .file_io
        .map_or_else(String::new, |io| format!("file_io = \"{io}\"\n"));
    let times = holdfast
        .flush_times
        .map_or_else(String::new, |times| format!("flush_times = {times}\n"));
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
{times}[log]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_not_given_is_not_in_the_configuration() {
        let scratch = tempfile::tempdir().unwrap();
        let place = Place::new(scratch.path().join("home"), scratch.path().join("share")).unwrap();
        let text = |flush_times| {
            let settings = Holdfast {
                policy: "honor",
                flush_times,
                file_io: None,
                metrics: None,
                connections: 1,
                listeners: &[],
            };
            holdfast_config(settings, &place)
        };
        assert!(!text(None).contains("flush_times"));
        let cheap = text(Some(false));
        let (_, share) = cheap.split_once("[[share]]").unwrap();
        let (share, _) = share.split_once("[log]").unwrap();
        assert!(share.contains("\nflush_times = false\n"), "{share}");
    }

    #[test]
    fn a_program_of_an_unpacked_root_finds_its_folders_there() {
        // Only root may mount.
        if !rustix::process::geteuid().is_root() {
            let is_required = std::env::var_os("HOLDFAST_REQUIRE_ROOT").is_some();
            assert!(!is_required, "missing: root");
            eprintln!("missing: root");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("root");
        fs::create_dir(&root).unwrap();
        let place = Place::new(scratch.path().join("home"), scratch.path().join("share")).unwrap();
        fs::write(place.folder.join("file"), "seen").unwrap();
        let inside = program_of(Some(&root), "cat", &place);
        // The root of this machine under another name stands for one that was unpacked.
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "--", "sh", "-c"])
            .arg("mount --bind / \"$0\" && exec \"$@\"")
            .arg(&root)
            .arg(inside.get_program())
            .args(inside.get_args())
            .arg(place.folder.join("file"));
        let output = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "seen",
            "{complaint}"
        );
        // Nothing of it is mounted here.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(root.to_str().unwrap()));
    }
}
