//! The real `holdfast` in a folder of its own: it is started, queried, and stopped by its process id.

#![allow(dead_code)]

use std::{
    fs::{self, File},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use smb_client::{Client, Options, Tree};

#[path = "../../src/host/loop_mount.rs"]
pub(crate) mod loop_mount;

pub(crate) use loop_mount::missing;

/// A user of every server here.
pub(crate) const USER: &str = "alice";
/// The password of everybody.
pub(crate) const PASSWORD: &str = "Secret-pw-1";

/// An account bound to the user who runs the tests.
pub(crate) const OWN: &str = "own";

const START_MAX: Duration = Duration::from_secs(20);

/// The program to start.
pub(crate) struct Plan {
    /// Where to listen; the port is found.
    pub(crate) listen: &'static str,
    /// Lines of `[server]`.
    pub(crate) server: String,
    /// Lines of the share `data`.
    pub(crate) share: String,
    /// More tables.
    pub(crate) tables: String,
    /// Accounts: name, and "uid:gid", [`OWN`] or nothing.
    pub(crate) users: Vec<(&'static str, &'static str)>,
    /// Words before the command, as in `setpriv --reuid 1`.
    pub(crate) prefix: Vec<String>,
    /// The user who runs it.
    pub(crate) owner: Option<u32>,
    /// Where its log goes instead of to [`Daemon::log`].
    pub(crate) stderr: Option<File>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1",
            server: String::new(),
            share: String::new(),
            tables: String::new(),
            users: vec![(USER, OWN)],
            prefix: Vec::new(),
            owner: None,
            stderr: None,
        }
    }
}

/// A running server.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Plan {
    /// Starts it in a new folder.
    pub(crate) fn start(&self) -> Daemon {
        self.start_in(tempfile::tempdir().unwrap())
    }

    /// Starts it in a folder.
    pub(crate) fn start_in(&self, dir: tempfile::TempDir) -> Daemon {
        use std::os::unix::fs::PermissionsExt;
        let root = dir.path().to_owned();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["data", "state"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for attempt in 0..5 {
            let ip: IpAddr = self.listen.parse().unwrap();
            let free = TcpListener::bind((ip, 0)).unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            write_config(&root, address, self);
            if attempt == 0 {
                self.add_users(&root);
                if let Some(owner) = self.owner {
                    give(&root, owner);
                }
            }
            match self.spawn(&root, address) {
                Ok(child) => {
                    return Daemon {
                        child,
                        address,
                        dir,
                    };
                }
                Err(said) if attempt < 4 && said.contains("cannot listen") => {}
                Err(said) => panic!("holdfast does not start: {said}"),
            }
        }
        unreachable!()
    }

    fn add_users(&self, root: &Path) {
        let password = root.join("password");
        fs::write(&password, PASSWORD).unwrap();
        for (name, ids) in &self.users {
            let mut add = holdfast();
            add.args(["user", "add", name, "--password-file"])
                .arg(&password);
            add.arg("--config").arg(root.join("h.toml"));
            if *ids == OWN {
                add.args(["--owner", &own()]);
            } else if !ids.is_empty() {
                add.args(["--owner", ids]);
            }
            assert!(
                add.stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .unwrap()
                    .success()
            );
        }
    }

    /// Starts it where it has run before, and does not wait until it serves.
    pub(crate) fn begin_in(&self, dir: tempfile::TempDir, address: SocketAddr) -> Daemon {
        let child = self.launch(dir.path()).unwrap();
        Daemon {
            child,
            address,
            dir,
        }
    }

    fn launch(&self, root: &Path) -> std::io::Result<Child> {
        let log = File::create(root.join("log")).unwrap();
        let mut command = match self.prefix.split_first() {
            None => holdfast(),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(binary_for_all(root));
                command
            }
        };
        command
            .args(["serve", "--config"])
            .arg(root.join("h.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(match &self.stderr {
                None => log,
                Some(elsewhere) => elsewhere.try_clone().unwrap(),
            })
            .spawn()
    }

    fn spawn(&self, root: &Path, address: SocketAddr) -> Result<Child, String> {
        let mut child = self.launch(root).map_err(|error| error.to_string())?;
        let deadline = Instant::now() + START_MAX;
        loop {
            let said = || fs::read_to_string(root.join("log")).unwrap_or_default();
            if child.try_wait().unwrap().is_some() {
                return Err(said());
            }
            // The metrics page is the last thing to open.
            let started = self.stderr.is_some() || said().contains("started");
            if started && root.join("state/control.sock").exists() {
                return Ok(child);
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not ready at {address}: {}", said()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The ids of the user who runs the tests.
pub(crate) fn own() -> String {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    format!("{}:{}", uid.as_raw(), gid.as_raw())
}

fn holdfast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// A copy that every user may run, wherever the build tree lies.
///
/// `cp` makes it: a descriptor that this process has open for writing could be inherited by a child that another test
/// forks at that moment, and the copy could not be executed (ETXTBSY) until that child has called exec.
pub(crate) fn binary_for_all(root: &Path) -> PathBuf {
    let copy = root.join("holdfast");
    if !copy.exists() {
        let mut cp = Command::new("cp");
        cp.arg(env!("CARGO_BIN_EXE_holdfast")).arg(&copy);
        assert!(cp.status().unwrap().success());
    }
    copy
}

fn give(root: &Path, owner: u32) {
    chown(root, Some(owner), Some(owner)).unwrap();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            give(&path, owner);
        } else {
            chown(path, Some(owner), Some(owner)).unwrap();
        }
    }
}

fn write_config(root: &Path, address: SocketAddr, plan: &Plan) {
    let text = format!(
        "[server]\nname = \"TESTS\"\nstate_dir = \"state\"\n{}\n\
         [[listener]]\naddress = \"{address}\"\n\
         [[share]]\nname = \"data\"\npath = \"data\"\n{}\n{}\n",
        plan.server, plan.share, plan.tables
    );
    fs::write(root.join("h.toml"), text).unwrap();
}

impl Daemon {
    /// A path below the folder of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its folder, for another server; it has ended.
    pub(crate) fn into_folder(mut self) -> tempfile::TempDir {
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    /// The lines that it has logged. A separate thread writes the lines, a moment after the events, so this waits
    /// until there are no new ones for a while.
    pub(crate) fn log(&self) -> String {
        let read = || fs::read_to_string(self.path("log")).unwrap_or_default();
        let mut log = read();
        loop {
            std::thread::sleep(Duration::from_millis(250));
            let now = read();
            if now.len() == log.len() {
                return log;
            }
            log = now;
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Changes the configuration file.
    pub(crate) fn edit(&self, change: impl FnOnce(String) -> String) {
        let file = self.path("h.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, change(text)).unwrap();
    }

    /// `holdfast WORDS --config ...`, its output if it succeeded.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<String, String> {
        let mut command = holdfast();
        command.args(words).arg("--config").arg(self.path("h.toml"));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.args(["-s", name, &self.pid().to_string()]);
        assert!(kill.status().unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A connection.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address, Options::default()).unwrap()
    }

    /// The share `data` as [`USER`].
    pub(crate) fn tree(&self) -> Tree {
        let session = self.client().login(USER, PASSWORD, "").unwrap();
        session.tree("data").unwrap()
    }

    /// A connection that sends nothing.
    pub(crate) fn stranger(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// Runs smbclient's `command` on a share as `user`.
    pub(crate) fn smbclient(&self, share: &str, user: &str, command: &str) -> Output {
        Command::new("smbclient")
            .arg(format!("//{}/{share}", self.address.ip()))
            .args(["-p", &self.address.port().to_string()])
            .args(["-U", &format!("{user}%{PASSWORD}"), "-c", command])
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap()
    }

    /// As [`Daemon::smbclient`]; must succeed.
    pub(crate) fn smb(&self, share: &str, user: &str, command: &str) -> String {
        let output = self.smbclient(share, user, command);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{command}: {text}\n{}", self.log());
        text
    }

    /// As [`Daemon::smbclient`]; must fail with this status.
    pub(crate) fn refused(&self, share: &str, user: &str, command: &str, status: &str) {
        let output = self.smbclient(share, user, command);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains(status) || complaint.contains(status),
            "{command}: {text}{complaint}\n{}",
            self.log()
        );
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- what the server said\n{}", self.log());
        }
    }
}

/// Whether a test that needs root and `tools` can run here.
pub(crate) fn possible(tools: &[&str]) -> bool {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("root");
    }
    let there = |tool: &str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|folder| folder.join(tool).exists())
    };
    missing.extend(tools.iter().filter(|tool| !there(tool)));
    if missing.is_empty() {
        return true;
    }
    self::missing(&format!("{missing:?}"));
    false
}

/// Waits until `done`, or fails.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the server closed a connection within the time.
pub(crate) fn closed(stream: &TcpStream, within: Duration) -> bool {
    use std::io::Read;
    stream.set_read_timeout(Some(within)).unwrap();
    match (&*stream).read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
