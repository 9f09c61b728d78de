//! Starts and stops the servers: Samba as an expert would tune it, and Holdfast.
//!
//! All serve a folder of their own on the same file system, on a free port of 127.0.0.1, to the
//! same user, who is the local user `daemon` on disk in each. FLUSH is honoured by all. Samba
//! comes with its synchronous I/O (its cheapest for small pieces) and with io_uring.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::cpu;
use crate::Failure;

/// The user of all servers, who must exist locally for Samba.
pub(crate) const USER: &str = "daemon";
/// Their password.
pub(crate) const PASSWORD: &str = "Compare.123";
/// The share of all servers.
pub(crate) const SHARE: &str = "share";

/// The local ids of [`USER`] on Debian.
const IDS: &str = "1:1";

const START_MAX: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(10);

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    SambaSync,
    SambaUring,
    HoldfastThreads,
    HoldfastUring,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [
        Self::SambaSync,
        Self::HoldfastThreads,
        Self::SambaUring,
        Self::HoldfastUring,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SambaSync => "samba-sync",
            Self::SambaUring => "samba-uring",
            Self::HoldfastThreads => "holdfast-threads",
            Self::HoldfastUring => "holdfast-uring",
        }
    }
}

/// Where a server lives and listens.
pub(crate) struct Place {
    /// State and logs.
    pub(crate) home: PathBuf,
    /// What it serves.
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
}

impl Place {
    /// Makes both folders, and finds a port.
    pub(crate) fn new(home: PathBuf, folder: PathBuf) -> Result<Self, Failure> {
        fs::create_dir_all(&home)?;
        fs::create_dir_all(&folder)?;
        open_up(&home)?;
        std::os::unix::fs::chown(&folder, Some(1), Some(1))?;
        Ok(Self {
            home,
            folder,
            port: free_port()?,
        })
    }
}

/// A port of 127.0.0.1 that nobody listens on.
pub(crate) fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A running server.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    /// The folder it serves.
    pub(crate) folder: PathBuf,
    child: Child,
    /// Processes when nobody is connected.
    idle: usize,
}

impl Server {
    /// Starts it and waits until it listens.
    pub(crate) fn start(kind: Kind, scratch: &Path, holdfast: &Path) -> Result<Self, Failure> {
        let home = scratch.join(kind.name());
        let folder = home.join("share");
        let place = Place::new(home, folder)?;
        let command = match kind {
            Kind::SambaSync | Kind::SambaUring => samba(&place, &samba_config(kind, &place))?,
            Kind::HoldfastThreads => configured(holdfast, &place, &config("threads", &place))?,
            Kind::HoldfastUring => configured(holdfast, &place, &config("io_uring", &place))?,
        };
        Self::launch(kind.name(), place, command)
    }

    /// The same for any command that serves `place`.
    pub(crate) fn launch(
        name: &'static str,
        place: Place,
        mut command: Command,
    ) -> Result<Self, Failure> {
        let log = fs::File::create(place.home.join("log"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Samba's first process ends its whole group.
            .process_group(0)
            .spawn()?;
        let mut this = Self {
            name,
            port: place.port,
            folder: place.folder,
            child,
            idle: 0,
        };
        this.await_listening(&place.home)?;
        Ok(this)
    }

    fn await_listening(&mut self, home: &Path) -> Result<(), Failure> {
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                let said = fs::read_to_string(home.join("log")).unwrap_or_default();
                return Err(format!("{} does not start: {said}", self.name).into());
            }
            sleep(Duration::from_millis(50));
        }
        // The connection just tried may have made a process; Samba's own helpers come up too.
        sleep(Duration::from_millis(500));
        self.idle = cpu::tree(self.pid()).len();
        Ok(())
    }

    /// Its first process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the processes of connections that ended are gone, and then a moment for what
    /// is done after the last reply.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(2);
        while cpu::tree(self.pid()).len() > self.idle && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
        }
        if let Some(how) = self.child.try_wait()? {
            return Err(format!("{} ended by itself: {how}", self.name).into());
        }
        sleep(Duration::from_millis(30));
        Ok(())
    }

    /// Ends it.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        let all = cpu::tree(self.pid());
        signal(self.pid(), Signal::TERM);
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Samba's helpers outlive a parent that was killed.
        for pid in all.into_iter().skip(1) {
            signal(pid, Signal::TERM);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may be gone already.
        let _ = kill_process(pid, signal);
    }
}

/// Lets [`USER`] pass through a folder.
pub(crate) fn open_up(folder: &Path) -> Result<(), Failure> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

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
    let (size, io) = if kind == Kind::SambaUring {
        (1, "vfs objects = io_uring")
    } else {
        (0, "")
    };
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
strict sync = yes
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

fn config(io: &str, place: &Place) -> String {
    format!(
        "[server]
name = \"COMPARE\"
state_dir = \"{state}\"
# As with Samba, the client decides.
signing = \"desired\"
file_io = \"{io}\"
[[listener]]
address = \"127.0.0.1:{port}\"
[[share]]
name = \"{SHARE}\"
path = \"{folder}\"
durability = \"honor\"
[log]
filter = \"warn\"
",
        state = place.home.join("state").display(),
        port = place.port,
        folder = place.folder.display(),
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
