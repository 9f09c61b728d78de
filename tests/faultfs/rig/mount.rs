//! A mounted fault file system of a test's own.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use faultfs::control::Control;

/// Whether a fault file system can be mounted here; says what is missing. With
/// `HOLDFAST_REQUIRE_ROOT=1` that is a failure.
pub(crate) fn possible() -> bool {
    let root = effective_user() == Some(0);
    let fuse = Path::new("/dev/fuse").exists();
    let mut missing = Vec::new();
    if !root {
        missing.push("root");
    }
    if !fuse {
        missing.push("/dev/fuse");
    }
    if missing.is_empty() {
        return true;
    }
    assert!(
        std::env::var_os("HOLDFAST_REQUIRE_ROOT").is_none(),
        "HOLDFAST_REQUIRE_ROOT=1, but there is no {missing:?}"
    );
    eprintln!("missing: {} (fault file system)", missing.join(", "));
    false
}

/// The effective user of this process, as `/proc` says.
fn effective_user() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("Uid:"))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// The mount; dropping it unmounts.
#[derive(Debug)]
pub(crate) struct Mount {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Its control socket.
    pub(crate) control: Control,
    /// The share's folder: a directory in the mount's root would not survive a reset.
    pub(crate) path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mount {
    /// Mounts an empty disk with the profile `posix-min`.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (path, socket) = (dir.path().join("mnt"), dir.path().join("control"));
        std::fs::create_dir(&path).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_faultfs"))
            .args([&path, &socket])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "faultfs does not mount");
        Self {
            stdin: child.stdin.take(),
            child,
            control: Control::connect(&socket).unwrap(),
            path,
            _dir: dir,
        }
    }

    /// Sends a command; the value of the answer.
    #[track_caller]
    pub(crate) fn send(&mut self, command: &str) -> String {
        self.control.send(command)
    }

    /// How often a rule has hit, and the last call that it hit.
    pub(crate) fn hit(&mut self, id: &str) -> (u64, String) {
        let (lines, _) = self.control.ask("rules").unwrap();
        for line in lines {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            if words[0] == id {
                return (words[2].parse().unwrap(), words[3].to_owned());
            }
        }
        panic!("no rule {id}");
    }

    /// How often a rule has hit.
    pub(crate) fn hits(&mut self, id: &str) -> u64 {
        self.hit(id).0
    }

    /// The last calls, for a message.
    pub(crate) fn trace(&mut self) -> String {
        let (lines, _) = self.control.ask("trace").unwrap_or_default();
        lines.join("\n")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.control.ask("release fail");
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
