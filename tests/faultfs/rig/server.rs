//! The real `holdfast` on a folder somebody else made; killed, stopped and started again.
//!
//! State folder, users and port stay the same over restarts. Ended by its own process id only.

use std::{
    fmt::Write as _,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use smb_client::{Client, Options, Session, Tree};
use smb_tests::binary;

/// The users of the rig.
pub(crate) const USERS: [(&str, &str); 2] = [("alice", "Alice-pw-1"), ("bob", "Bob-pw-2")];
/// The share.
pub(crate) const SHARE: &str = "data";

const START_MAX: Duration = Duration::from_secs(20);

/// A server, running or not.
#[derive(Debug)]
pub(crate) struct Server {
    child: Option<Child>,
    dir: tempfile::TempDir,
    addr: SocketAddr,
    folder: PathBuf,
    shares: String,
    server: String,
}

impl Server {
    /// Makes users and state for a server of `folder`; does not start it.
    pub(crate) fn prepare(folder: &Path) -> Self {
        // In memory: what the server keeps beside the share is not what is tested.
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let this = Self {
            child: None,
            addr: free_address(),
            folder: folder.to_owned(),
            dir,
            shares: String::new(),
            server: String::new(),
        };
        std::fs::create_dir(this.dir.path().join("state")).unwrap();
        this.configure("", "");
        for (user, password) in USERS {
            this.add_user(user, password);
        }
        this
    }

    /// Lines for `[server]` and the share's table, from the next start on.
    pub(crate) fn with(mut self, server: &str, share: &str) -> Self {
        self.set(server, share);
        self
    }

    /// The same for one that is there.
    pub(crate) fn set(&mut self, server: &str, share: &str) {
        server.clone_into(&mut self.server);
        share.clone_into(&mut self.shares);
    }

    fn configure(&self, server: &str, share: &str) -> PathBuf {
        let mut text = String::new();
        write!(
            text,
            "[sandbox]\nfolders = [\"{}\"]\n\
             [server]\nname = \"FAULTS\"\nstate_dir = \"{}\"\n{server}\n\
             [[listener]]\naddress = \"{}\"\n\
             [[share]]\nname = \"{SHARE}\"\npath = \"{}\"\n{share}\n",
            std::env::temp_dir().display(),
            self.dir.path().join("state").display(),
            self.addr,
            self.folder.display(),
        )
        .unwrap();
        let file = self.dir.path().join("holdfast.toml");
        std::fs::write(&file, text).unwrap();
        file
    }

    fn add_user(&self, user: &str, password: &str) {
        let file = self.dir.path().join("password");
        std::fs::write(&file, format!("{password}\n")).unwrap();
        let said = self.holdfast(&[
            "user",
            "add",
            user,
            "--owner",
            "0:0",
            "--password-file",
            file.to_str().unwrap(),
        ]);
        assert!(said.0, "user add: {}", said.1);
    }

    /// Runs `holdfast WORDS --config ...`: whether it succeeded, and what it said.
    pub(crate) fn holdfast(&self, words: &[&str]) -> (bool, String) {
        let output = Command::new(binary())
            .args(words)
            .arg("--config")
            .arg(self.dir.path().join("holdfast.toml"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    /// Forgets all that the server keeps about the share: another disk is there now.
    pub(crate) fn forget(&self) {
        assert!(self.child.is_none());
        for entry in std::fs::read_dir(self.dir.path().join("state")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() == "users" {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                std::fs::remove_dir_all(entry.path()).unwrap();
            } else {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// Starts it and waits until it serves and has said so: the port is taken before that.
    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none());
        for attempt in 0.. {
            let config = self.configure(&self.server, &self.shares);
            let log = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.dir.path().join("log"))
                .unwrap();
            let said = self.written().len();
            let mut child = Command::new(binary())
                .args(["serve", "--config"])
                .arg(config)
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap();
            if self.listens(&mut child, said) {
                self.child = Some(child);
                return;
            }
            assert!(attempt < 3, "holdfast does not start:\n{}", self.log());
            self.addr = free_address(); // Somebody took the port meanwhile.
        }
    }

    /// Whether it says so, behind what was `said` before it, in time.
    fn listens(&self, child: &mut Child, said: usize) -> bool {
        let end = Instant::now() + START_MAX;
        while Instant::now() < end {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if self.written()[said..].contains("listening address=") {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        let _ = child.wait();
        false
    }

    /// Brings what was [set](Server::set) into force: whether it did, and what it said.
    pub(crate) fn reload(&self) -> (bool, String) {
        self.configure(&self.server, &self.shares);
        self.holdfast(&["reload"])
    }

    /// The same without waiting for its answer.
    pub(crate) fn begin_reload(&self) -> Child {
        let config = self.configure(&self.server, &self.shares);
        let mut reload = Command::new(binary());
        reload.arg("reload").arg("--config").arg(config);
        let quiet = reload.stdin(Stdio::null()).stdout(Stdio::null());
        quiet.stderr(Stdio::null()).spawn().unwrap()
    }

    /// SIGKILL, and waits for its end. Calls that hang must be released by somebody.
    pub(crate) fn kill(&mut self) {
        self.signal_kill();
        self.reap();
    }

    /// SIGKILL only.
    pub(crate) fn signal_kill(&mut self) {
        let child = self.child.as_mut().expect("it runs");
        let ended = child.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "it ended by itself: {ended:?}\n{}",
            self.log()
        );
        self.child.as_mut().unwrap().kill().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn reap(&mut self) -> ExitStatus {
        self.child.take().expect("it runs").wait().unwrap()
    }

    /// SIGTERM only.
    pub(crate) fn signal_stop(&self) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops it in order; what it exits with.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal_stop();
        self.reap()
    }

    /// Whether it (or, with a thread that cannot end, its main thread) has ended.
    pub(crate) fn main_thread_ended(&self) -> bool {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        matches!(state, None | Some('Z' | 'X'))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// The log since the server was prepared, as far as it is written.
    fn written(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The log since the server was prepared. A thread of its own writes the lines, a moment after the events that they
    /// report, so this waits until there are no new ones for a while.
    pub(crate) fn log(&self) -> String {
        let mut log = self.written();
        loop {
            std::thread::sleep(Duration::from_millis(250));
            let now = self.written();
            if now.len() == log.len() {
                return log;
            }
            log = now;
        }
    }

    /// No thread of it panicked.
    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        Self::assert_sound_by(&self.log());
    }

    /// The same without a wait, for one call of many: what is not written yet, a later one finds.
    #[track_caller]
    pub(crate) fn assert_sound_so_far(&self) {
        Self::assert_sound_by(&self.written());
    }

    #[track_caller]
    fn assert_sound_by(log: &str) {
        assert!(!log.contains("panicked"), "a thread panicked:\n{log}");
        let refused = log.contains("the sandbox refused");
        assert!(!refused, "a system call is missing:\n{log}");
    }

    /// A session of a user.
    pub(crate) fn session(&self, user: usize) -> Session {
        let options = Options {
            timeout: Duration::from_secs(20),
            ..Options::default()
        };
        let (user, password) = USERS[user];
        Client::connect(self.addr, options)
            .unwrap()
            .login(user, password, "")
            .unwrap()
    }

    /// The share as a user, by a connection of its own.
    pub(crate) fn tree_of(&self, user: usize) -> Tree {
        self.session(user).tree(SHARE).unwrap()
    }

    /// The share as the first user.
    pub(crate) fn tree(&self) -> Tree {
        self.tree_of(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            // A thread that waits for the file system keeps it: the owner of the mount ends that.
            let end = Instant::now() + Duration::from_secs(5);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if std::thread::panicking() {
            eprintln!("--- what the server said\n{}", self.log());
        }
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}
