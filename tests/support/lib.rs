//! Runs the real `holdfast` binary on a directory of its own, for black-box tests.
//!
//! [`HoldfastServer::start`] creates a state folder with two users, four shares and a
//! configuration, starts the daemon on a free port of 127.0.0.1 and waits until it listens;
//! dropping it ends the process by its id. The binary is `$HOLDFAST_BIN`, else the one next to the
//! tests, which is built if necessary.

pub mod arguments;
pub mod durable;
mod extents;
pub mod judge;
mod outcome;
mod protected;
pub mod rate;
pub mod rng;
pub mod rpc;
mod running;
pub mod sample;
pub mod state;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use smb_client::{Client, Connection, Session, Tree};

pub use extents::extents;
pub use outcome::{Outcome, outcome, status};
pub use protected::protected;
pub use running::{adopt, cut, wait_for_one_break, wait_until};

/// The user of the tests.
pub const USER: &str = "alice";
/// The password of [`USER`].
pub const PASSWORD: &str = "Alice-pw-1";
/// Another user.
pub const OTHER_USER: &str = "bob";
/// The password of [`OTHER_USER`].
pub const OTHER_PASSWORD: &str = "Bob-pw-2";

/// The share most tests use.
pub const DATA: &str = "data";
/// A second writable share.
pub const SECOND: &str = "second";
/// A read-only share.
pub const READ_ONLY: &str = "readonly";
/// A share that requires encryption.
pub const SEALED: &str = "sealed";

/// How long a test waits for something that should happen at once.
pub const SOON: Duration = Duration::from_secs(10);
/// How long a test waits to see that something does not happen.
pub const MEANWHILE: Duration = Duration::from_millis(300);

const START_MAX: Duration = Duration::from_secs(20);

/// The configuration of a server to start.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Additional lines for `[server]`.
    pub server: String,
    /// Additional lines for each `[[share]]`.
    pub share: String,
    /// Whole tables at the end of the configuration.
    pub tables: String,
    /// A program with its arguments that finally executes the command line behind them, the server.
    pub prefix: Vec<String>,
}

/// A running server.
#[derive(Debug)]
pub struct HoldfastServer {
    /// `None` while no server runs, between a stop and a restart.
    child: Option<Child>,
    addr: SocketAddr,
    root: PathBuf,
    prefix: Vec<String>,
    _dir: tempfile::TempDir,
}

impl HoldfastServer {
    /// Starts a server with the configuration's defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::start(&Options::default())
    }

    /// Starts a server that does not require signing.
    #[must_use]
    pub fn lenient() -> Self {
        Self::start(&Options {
            server: "signing = \"desired\"".into(),
            ..Options::default()
        })
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(options: &Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        let binary = binary();
        // A port that was free a moment ago can be taken by another test.
        for attempt in 0.. {
            let port = free_port();
            let config = write_config(&root, port, options);
            if attempt == 0 {
                let own = own_ids();
                let owner = ["--owner", own.as_str()];
                add_user(binary, &config, USER, PASSWORD, &owner);
                add_user(binary, &config, OTHER_USER, OTHER_PASSWORD, &owner);
            }
            match spawn(&options.prefix, binary, &root, &config, port) {
                Ok((child, addr)) => {
                    return Self {
                        child: Some(child),
                        addr,
                        root,
                        prefix: options.prefix.clone(),
                        _dir: dir,
                    };
                }
                Err(error) => assert!(attempt < 4, "holdfast does not start: {error}"),
            }
        }
        unreachable!()
    }

    /// The address on which it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A path in the folder of the share [`DATA`].
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.share_path(DATA, name)
    }

    /// A path in the folder of a share.
    #[must_use]
    pub fn share_path(&self, share: &str, name: &str) -> PathBuf {
        self.root.join(share).join(name)
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.root.join("holdfast.toml")
    }

    /// Returns the log so far; lines appear a moment after the events that they report.
    #[must_use]
    pub fn log(&self) -> String {
        log(&self.root)
    }

    /// The process id.
    ///
    /// # Panics
    /// Between a stop and a restart.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running server").id()
    }

    /// A figure of the server's memory in bytes, by its name in /proc/PID/status, such as `VmRSS`.
    ///
    /// # Panics
    /// When the kernel does not have it.
    #[must_use]
    pub fn memory(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let figure = lines.find_map(|line| line.strip_prefix(':')?.trim().strip_suffix(" kB"));
        let kib: usize = figure.expect("a figure in KiB").parse().unwrap();
        kib * 1024
    }

    /// Connects without sending anything.
    #[must_use]
    pub fn connection(&self, options: smb_client::Options) -> Connection {
        Client::open(self.addr, options).unwrap()
    }

    /// Connects and negotiates.
    #[must_use]
    pub fn client(&self, options: smb_client::Options) -> Client {
        Client::connect(self.addr, options).unwrap()
    }

    /// Logs in as [`USER`].
    #[must_use]
    pub fn session(&self, options: smb_client::Options) -> Session {
        self.client(options).login(USER, PASSWORD, "").unwrap()
    }

    /// Opens the share [`DATA`] as [`USER`] with the client's defaults.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.tree_with(smb_client::Options::default())
    }

    /// Opens the share [`DATA`] as [`USER`].
    #[must_use]
    pub fn tree_with(&self, options: smb_client::Options) -> Tree {
        self.session(options).tree(DATA).unwrap()
    }

    /// Adds another user to the running server, with these further arguments of `holdfast user
    /// add`. Unless they say otherwise, the user acts on disk as the user who runs the tests.
    ///
    /// # Panics
    /// When the command fails.
    pub fn add_user(&self, user: &str, password: &str, more: &[&str]) {
        let own = own_ids();
        let owner = ["--owner", own.as_str()];
        let more = if more.contains(&owner[0]) {
            more.to_vec()
        } else {
            [more, &owner].concat()
        };
        self.add_user_as(user, password, &more);
    }

    /// Adds a user who acts on disk as the guest account.
    ///
    /// # Panics
    /// When the command fails.
    pub fn add_unbound_user(&self, user: &str, password: &str) {
        self.add_user_as(user, password, &[]);
    }

    fn add_user_as(&self, user: &str, password: &str, more: &[&str]) {
        add_user(binary(), &self.config(), user, password, more);
        // The control socket appears a moment after the listeners.
        let deadline = Instant::now() + START_MAX;
        while !self.root.join("state/control.sock").exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let reload = ["reload", "--config"];
        let done = Command::new(binary())
            .args(reload)
            .arg(self.config())
            .output()
            .unwrap();
        assert!(done.status.success(), "reload: {done:?}");
    }

    /// Asserts that the server still serves: a new connection writes and reads a file.
    ///
    /// # Panics
    /// When it does not.
    pub fn assert_serving(&self) {
        let tree = self.tree();
        tree.write_file("still-serving", b"yes").unwrap();
        assert_eq!(tree.read_file("still-serving").unwrap(), b"yes");
        tree.delete("still-serving").unwrap();
    }
}

impl Default for HoldfastServer {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for HoldfastServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let ended = child.try_wait().ok().flatten();
            let _ = child.kill();
            let _ = child.wait();
            if let Some(how) = ended
                && !std::thread::panicking()
            {
                panic!("the server ended by itself: {how}\n{}", log(&self.root));
            }
            if std::thread::panicking() {
                eprintln!("--- log of the server\n{}", log(&self.root));
            } else {
                let log = log(&self.root);
                let refused = log.contains("the sandbox refused");
                assert!(!refused, "a system call is missing:\n{log}");
                // A panic takes only its connection with it, which a client sees as a closed one.
                assert!(!log.contains("panicked"), "a thread panicked:\n{log}");
            }
        }
    }
}

fn log(root: &Path) -> String {
    let mut text = String::new();
    if let Ok(mut file) = std::fs::File::open(root.join("log")) {
        let _ = file.read_to_string(&mut text);
    }
    text
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn write_config(root: &Path, port: u16, options: &Options) -> PathBuf {
    use std::fmt::Write;
    let mut text = format!(
        "[server]\nname = \"TESTS\"\nstate_dir = \"{}\"\n{}\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n",
        root.join("state").display(),
        options.server,
    );
    std::fs::create_dir_all(root.join("state")).unwrap();
    for (share, more) in [
        (DATA, ""),
        (SECOND, ""),
        (READ_ONLY, "read_only = true\n"),
        (SEALED, "encryption = \"required\"\n"),
    ] {
        let path = root.join(share);
        std::fs::create_dir_all(&path).unwrap();
        write!(
            text,
            "[[share]]\nname = \"{share}\"\npath = \"{}\"\n{more}{}\n",
            path.display(),
            options.share,
        )
        .unwrap();
    }
    text.push_str(&options.tables);
    let file = root.join("holdfast.toml");
    std::fs::write(&file, text).unwrap();
    file
}

/// The uid and gid of the process that runs the tests: files that it creates beside the server thus
/// belong to the users of the tests as well.
fn own_ids() -> String {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    format!("{}:{}", uid.as_raw(), gid.as_raw())
}

fn add_user(binary: &Path, config: &Path, user: &str, password: &str, more: &[&str]) {
    let file = config.with_file_name("password");
    std::fs::write(&file, format!("{password}\n")).unwrap();
    let output = Command::new(binary)
        .args(["user", "add", user, "--password-file"])
        .arg(&file)
        .arg("--config")
        .arg(config)
        .args(more)
        .output()
        .unwrap();
    std::fs::remove_file(file).unwrap();
    assert!(
        output.status.success(),
        "user add: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn spawn(
    prefix: &[String],
    binary: &Path,
    root: &Path,
    config: &Path,
    port: u16,
) -> Result<(Child, SocketAddr), String> {
    // A restarted server appends to the same log.
    let out = std::fs::File::options()
        .create(true)
        .append(true)
        .open(root.join("log"))
        .unwrap();
    let mut command = match prefix.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(binary);
            command
        }
        None => Command::new(binary),
    };
    let mut child = command
        .args(["serve", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .map_err(|error| error.to_string())?;
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let deadline = Instant::now() + START_MAX;
    loop {
        if child.try_wait().unwrap().is_some() {
            return Err(log(root));
        }
        // The port may belong to the server of another test while ours is about to end, so the
        // control socket is checked as well.
        if running::answers(root, child.id()) && TcpStream::connect(addr).is_ok() {
            return Ok((child, addr));
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no listener: {}", log(root)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reports that a test cannot run here; with `HOLDFAST_REQUIRE_ROOT=1` (`tests/run`) it fails.
///
/// # Panics
/// With `HOLDFAST_REQUIRE_ROOT=1`.
#[track_caller]
pub fn missing(what: &str) {
    assert!(
        std::env::var_os("HOLDFAST_REQUIRE_ROOT").is_none_or(|value| value != "1"),
        "HOLDFAST_REQUIRE_ROOT=1, but there is no {what}"
    );
    eprintln!("missing: {what}");
}

/// The path of the server's binary, which is built once for this process unless the environment
/// names it.
///
/// # Panics
/// When it does not build.
#[must_use]
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(named) = std::env::var_os("HOLDFAST_BIN") {
            return named.into();
        }
        // target/PROFILE/deps/commands-0123456789abcdef or target/PROFILE/soak
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().unwrap();
        let profile = if folder.ends_with("deps") {
            folder.parent().unwrap()
        } else {
            folder
        };
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        // For all packages, with whose features it has been built: for one package cargo would build it anew.
        cargo
            .args(["build", "--quiet", "--bin", "holdfast"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "holdfast does not build");
        profile.join("holdfast")
    })
}
