//! The servers under test: Holdfast, and Samba for comparison, each with one share `data`.
//!
//! Their state lies beside the device, not on it. Both are ended by SIGKILL, so that nothing is
//! synced in passing; by process id, children first.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::record::Gauge;
use crate::round::Task;

const PASSWORD: &str = "Blockcut-pw1";
const START_MAX: Duration = Duration::from_secs(30);

/// The server under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Holdfast, by its binary.
    Holdfast(PathBuf),
    /// smbd of the system.
    Samba,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    addr: SocketAddr,
    user: &'static str,
    control: Option<PathBuf>,
    metrics: Option<SocketAddr>,
}

/// A server's counters about its bound.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeliness {
    /// Times that a dirty change was found older than the bound.
    pub(crate) exceeded: u64,
    /// No sync took longer.
    pub(crate) slowest_sync: Duration,
}

fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(|error| error.to_string())
}

impl Server {
    /// Starts a server for `share` with its state in `dir`.
    pub(crate) fn start(task: &Task, share: &Path, dir: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(dir).map_err(|error| error.to_string())?;
        let addr = free_address()?;
        let mut server = match &task.peer {
            Peer::Holdfast(binary) => holdfast(binary, task, share, dir, addr)?,
            Peer::Samba => samba(&task.policy, share, dir, addr)?,
        };
        let until = Instant::now() + START_MAX;
        while TcpStream::connect(addr).is_err() {
            if Instant::now() > until || server.child.try_wait().is_ok_and(|end| end.is_some()) {
                let said = std::fs::read_to_string(dir.join("said")).unwrap_or_default();
                return Err(format!("the server does not listen: {said}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// A new session's share.
    pub(crate) fn tree(&self) -> Result<smb_client::Tree, String> {
        let options = smb_client::Options {
            timeout: Duration::from_secs(60),
            ..smb_client::Options::default()
        };
        let client = smb_client::Client::connect(self.addr, options)
            .map_err(|error| format!("connect: {error}"))?;
        let session = client
            .login(self.user, PASSWORD, "")
            .map_err(|error| format!("login: {error}"))?;
        session
            .tree("data")
            .map_err(|error| format!("tree connect: {error}"))
    }

    /// A way to ask for the gauges; Samba has none.
    pub(crate) fn gauges(&self) -> Option<Gauges> {
        let stream = UnixStream::connect(self.control.as_ref()?).ok()?;
        stream.set_read_timeout(Some(START_MAX)).ok()?;
        Some(Gauges(BufReader::new(stream)))
    }

    /// Reads its metrics; Samba has none.
    pub(crate) fn timeliness(&self) -> Option<Timeliness> {
        let mut stream = TcpStream::connect(self.metrics?).ok()?;
        stream.set_read_timeout(Some(START_MAX)).ok()?;
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        let mut told = Timeliness::default();
        let mut below = 0.0;
        for line in page.lines().filter(|line| line.contains("share=\"data\"")) {
            let (name, value) = line.rsplit_once(' ')?;
            if name.starts_with("holdfast_bound_exceeded_total") {
                told.exceeded = value.parse().ok()?;
            } else if name.starts_with("holdfast_sync_seconds_bucket") {
                // The end of the last bucket that adds to the sum.
                let count: f64 = value.parse().ok()?;
                let end = name.split("le=\"").nth(1)?.split('"').next()?;
                if count > below {
                    below = count;
                    let seconds: f64 = end.parse().ok()?;
                    told.slowest_sync = Duration::try_from_secs_f64(seconds).unwrap_or(START_MAX);
                }
            }
        }
        Some(told)
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|end| end.is_none())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut pids = Vec::new();
        descendants(self.child.id(), &mut pids);
        let _ = self.child.kill();
        for pid in pids {
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
        let _ = self.child.wait();
    }
}

fn descendants(pid: u32, into: &mut Vec<u32>) {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    for child in list.unwrap_or_default().split_whitespace() {
        if let Ok(child) = child.parse() {
            descendants(child, into);
            into.push(child);
        }
    }
}

/// A connection to the control socket.
pub(crate) struct Gauges(BufReader<UnixStream>);

impl Gauges {
    pub(crate) fn read(&mut self) -> Option<Gauge> {
        let line = b"{\"cmd\":\"policy\",\"v\":1}\n";
        self.0.get_mut().write_all(line).ok()?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).ok()?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        let shares = answer["result"].as_array()?;
        let share = shares.iter().find(|share| share["share"] == "data")?;
        Some(Gauge {
            bytes: share["exposed_bytes"].as_u64()?,
            inodes: share["exposed_inodes"].as_u64()?,
            oldest: Duration::from_millis(share["oldest_ms"].as_u64()?),
        })
    }
}

fn spawn(command: &mut Command, dir: &Path) -> Result<Child, String> {
    let said = std::fs::File::create(dir.join("said")).map_err(|error| error.to_string())?;
    let copy = said.try_clone().map_err(|error| error.to_string())?;
    command
        .stdin(Stdio::null())
        .stdout(said)
        .stderr(copy)
        .spawn()
        .map_err(|error| format!("{:?}: {error}", command.get_program()))
}

fn holdfast(
    binary: &Path,
    task: &Task,
    share: &Path,
    dir: &Path,
    addr: SocketAddr,
) -> Result<Server, String> {
    let (policy, flush_times) = (&task.policy, task.flush_times);
    let streams = if task.plan.depot { "depot" } else { "xattr" };
    let state = dir.join("state");
    let accept = if policy == "treat-host-as-stable-storage" {
        "accept_loss = true\n"
    } else {
        ""
    };
    let config = dir.join("holdfast.toml");
    let metrics = free_address()?;
    let text = format!(
        "[server]\nname = \"CUT\"\nstate_dir = \"{}\"\n[[listener]]\naddress = \"{addr}\"\n\
         [metrics]\nlisten = \"{metrics}\"\n\
         [durability]\nflush_times = {flush_times}\n\
         [[share]]\nname = \"data\"\npath = \"{}\"\ndurability = \"{policy}\"\n\
         streams = \"{streams}\"\n{accept}",
        state.display(),
        share.display(),
    );
    let secret = dir.join("password");
    let written = std::fs::create_dir_all(&state)
        .and_then(|()| std::fs::write(&config, text))
        .and_then(|()| std::fs::write(&secret, format!("{PASSWORD}\n")));
    written.map_err(|error| error.to_string())?;
    if !state.join("users").exists() {
        let output = Command::new(binary)
            .args(["user", "add", "cut", "--owner", "0:0", "--password-file"])
            .arg(&secret)
            .arg("--config")
            .arg(&config)
            .output()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    let mut command = Command::new(binary);
    command.args(["serve", "--config"]).arg(&config);
    Ok(Server {
        child: spawn(&mut command, dir)?,
        addr,
        user: "cut",
        control: Some(state.join("control.sock")),
        metrics: Some(metrics),
    })
}

fn samba(policy: &str, share: &Path, dir: &Path, addr: SocketAddr) -> Result<Server, String> {
    let strict = match policy {
        "strict-sync-yes" => "strict sync = yes\nsync always = no",
        "strict-sync-no" => "strict sync = no\nsync always = no",
        "sync-always" => "strict sync = yes\nsync always = yes",
        _ => return Err(format!("{policy} is no policy of Samba")),
    };
    for name in [
        "private", "lock", "state", "cache", "pid", "ncalrpc", "logs",
    ] {
        std::fs::create_dir_all(dir.join(name)).map_err(|error| error.to_string())?;
    }
    let at = dir.display();
    let conf = dir.join("smb.conf");
    let text = format!(
        "[global]\nserver role = standalone server\nnetbios name = CUT\n\
         interfaces = 127.0.0.1/8\nbind interfaces only = yes\nsmb ports = {port}\n\
         disable netbios = yes\nprivate dir = {at}/private\nlock directory = {at}/lock\n\
         state directory = {at}/state\ncache directory = {at}/cache\npid directory = {at}/pid\n\
         ncalrpc dir = {at}/ncalrpc\nlog file = {at}/logs/%m\npassdb backend = tdbsam\n\
         load printers = no\nprintcap name = /dev/null\ndisable spoolss = yes\n\
         [data]\npath = {share}\nread only = no\nforce user = root\nea support = yes\n\
         store dos attributes = yes\nmap archive = no\nmap hidden = no\nmap system = no\n\
         map readonly = no\nvfs objects = streams_xattr\n{strict}\n",
        port = addr.port(),
        share = share.display(),
    );
    std::fs::write(&conf, text).map_err(|error| error.to_string())?;
    // Samba wants an account of the system.
    let mut child = Command::new("smbpasswd")
        .arg("-c")
        .arg(&conf)
        .args(["-s", "-a", "daemon"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("smbpasswd: {error}"))?;
    let input = child.stdin.take();
    let told = input.map(|mut input| write!(input, "{PASSWORD}\n{PASSWORD}\n"));
    if !matches!(told, Some(Ok(()))) || !child.wait().is_ok_and(|end| end.success()) {
        return Err("smbpasswd failed".to_owned());
    }
    let mut command = Command::new("smbd");
    command.args(["--foreground", "-s"]).arg(&conf);
    Ok(Server {
        child: spawn(&mut command, dir)?,
        addr,
        user: "daemon",
        control: None,
        metrics: None,
    })
}
