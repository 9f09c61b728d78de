//! The real daemon over loopback.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes, BytesMut};
use smb_tests::{HoldfastServer, Options};
use smb_wire::ids::FileTime;
use tempfile::TempDir;

use crate::judge::Vault;
use crate::world::{
    COMMON, FIXED, FIXED_FILE, OPEN, Taken, USERS, User, Wire, World, in_common, in_own_share,
    is_changing, private_folder, secret,
};

/// Words that the daemon's log may not contain.
const NEVER: [&str; 2] = ["panicked", "the sandbox refused a system call"];
/// Bytes read at once.
const READ: usize = 1 << 18;

/// The daemon and its folders.
pub(crate) struct Daemon {
    pub(crate) server: Rc<HoldfastServer>,
    folders: TempDir,
    begun: Instant,
}

impl Daemon {
    /// A daemon with three users and five shares.
    pub(crate) fn new() -> Self {
        let folders = tempfile::tempdir().unwrap();
        let mut shares = String::new();
        for (name, more) in [(COMMON, ""), (FIXED, "read_only = true\n")] {
            shares += &table(folders.path(), name, more);
        }
        for User { name, .. } in &USERS {
            shares += &table(folders.path(), name, &format!("users = [\"{name}\"]\n"));
        }
        fill(folders.path());
        let server = HoldfastServer::start(&Options {
            server: "signing = \"desired\"\n".to_owned(),
            // All clients have one address: the wrong passwords of some would lock out others.
            tables: format!("{shares}[limits]\nfailed_logins = 10000\n"),
            ..Options::default()
        });
        let root = rustix::process::geteuid().is_root();
        for User {
            name,
            password,
            uid,
        } in &USERS
        {
            let owner = format!("{uid}:{uid}");
            let more = ["--owner", owner.as_str()];
            server.add_user(name, password, if root { &more } else { &[] });
        }
        Self {
            server: Rc::new(server),
            folders,
            begun: Instant::now(),
        }
    }

    /// Fails with the line of the log that has one of the forbidden words.
    pub(crate) fn log(&self) -> Result<(), String> {
        let file = self.server.config().with_file_name("log");
        let text = fs::read_to_string(file).unwrap_or_default();
        let bad = |line: &&str| NEVER.iter().any(|never| line.contains(never));
        match text.lines().find(bad) {
            Some(line) => Err(format!("the log says: {line}")),
            None => Ok(()),
        }
    }
}

fn table(folders: &Path, name: &str, more: &str) -> String {
    let path = folders.join(name);
    format!(
        "[[share]]\nname = \"{name}\"\npath = \"{}\"\n{more}",
        path.display()
    )
}

/// Makes the folders, as the owner of the machine would.
fn fill(folders: &Path) {
    let mode = |path: &Path, bits| {
        fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    };
    let own = |path: &Path, user: &User| {
        // Without root all are one on disk.
        if rustix::process::geteuid().is_root() {
            chown(path, Some(user.uid), Some(user.uid)).unwrap();
        }
    };
    let common = folders.join(COMMON);
    fs::create_dir(&common).unwrap();
    // Like /tmp: everybody may make files, nobody may take away those of others.
    mode(&common, 0o1777);
    fs::create_dir(common.join(OPEN)).unwrap();
    mode(&common.join(OPEN), 0o777);
    fs::create_dir(folders.join(FIXED)).unwrap();
    fs::write(folders.join(FIXED).join(FIXED_FILE), b"to be read").unwrap();
    mode(&folders.join(FIXED).join(FIXED_FILE), 0o666);
    mode(&folders.join(FIXED), 0o777);
    for (index, user) in USERS.iter().enumerate() {
        let private = folders.join(user.name);
        let hidden = common.join(private_folder(index));
        for folder in [&private, &hidden] {
            fs::create_dir(folder).unwrap();
            mode(folder, 0o700);
            own(folder, user);
        }
        let in_own = in_own_share(index).map(|name| private.join(name));
        let in_common = in_common(index).map(|name| common.join(name));
        for file in in_own.iter().chain(&in_common) {
            fs::write(file, secret(index)).unwrap();
            mode(file, 0o600);
            own(file, user);
        }
    }
}

impl World for Daemon {
    type Wire = Socket;

    fn connect(&mut self) -> Option<Socket> {
        let stream = TcpStream::connect(self.server.addr()).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Socket {
            stream,
            out: BytesMut::new(),
            buffer: vec![0; READ],
        })
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn filetime(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        FileTime::from_unix(now.as_secs() as i64, now.subsec_nanos()).0
    }

    async fn pause(&mut self, span: Duration) {
        std::thread::sleep(span);
    }

    /// Longer than the wait for a break that nobody acknowledges, 35 s.
    fn patience(&self) -> Duration {
        Duration::from_secs(45)
    }

    /// With a connection and a login, on a machine that does other work.
    fn echo_max(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn vault(&mut self) -> Vault {
        let mut vault = Vault::new();
        let folders = self.folders.path();
        for (index, user) in USERS.iter().enumerate() {
            let private = folders.join(user.name);
            let hidden = folders.join(COMMON).join(private_folder(index));
            for folder in [private, hidden] {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    keep(&mut vault, folders, &entry.path(), Some(user));
                }
            }
            for file in in_common(index) {
                keep(&mut vault, folders, &folders.join(COMMON).join(file), None);
            }
        }
        for entry in fs::read_dir(folders.join(FIXED)).unwrap().flatten() {
            keep(&mut vault, folders, &entry.path(), None);
        }
        vault
    }
}

/// Everything about a file, but those that its owner changes and when it was read.
fn keep(vault: &mut Vault, folders: &Path, path: &Path, owner: Option<&User>) {
    let Ok(name) = path.strip_prefix(folders) else {
        return;
    };
    let name = name.to_string_lossy().into_owned();
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    if owner.is_some_and(|owner| is_changing(&name, meta.uid(), owner)) {
        return;
    }
    let content = fs::read(path).unwrap_or_default();
    let text = format!(
        "mode {:o} uid {} gid {} links {} written {}.{:09} changed {}.{:09} attributes {} content {}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.nlink(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
        attributes(path),
        String::from_utf8_lossy(&content),
    );
    vault.insert(name, text);
}

fn attributes(path: &Path) -> String {
    let mut list = vec![0; 4_096];
    let len = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let mut text = String::new();
    for name in list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 65_536];
        let name = String::from_utf8_lossy(name).into_owned();
        let len = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..]).unwrap_or(0);
        text += &format!("{name}={:02x?} ", &value[..len]);
    }
    text
}

/// A connection to the daemon.
pub(crate) struct Socket {
    stream: TcpStream,
    out: BytesMut,
    buffer: Vec<u8>,
}

impl Socket {
    fn push(&mut self) -> bool {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(written) => self.out.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Wire for Socket {
    fn send(&mut self, bytes: Bytes) -> bool {
        self.out.extend_from_slice(&bytes);
        // A failure of the connection is seen when it is read.
        let _gone = self.push();
        true
    }

    fn take(&mut self) -> Taken {
        let _gone = self.push();
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Taken::Ended,
            Ok(len) => Taken::Bytes(Bytes::copy_from_slice(&self.buffer[..len])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Taken::Nothing,
            Err(_) => Taken::Ended,
        }
    }
}
