//! Identifies the process at the other end of the control socket, for the log and the record of changes.
//!
//! The kernel reports uid and process (SO_PEERCRED); names come from `/etc/passwd`, and if somebody became root,
//! `/proc/PID/loginuid` (audit's) still says who that was. Names are only shown: the uid alone decides about access.

use std::{fs::File, io::Read, path::Path};

/// Most bytes of `/etc/passwd` that are read.
const PASSWD_BYTES_MAX: u64 = 16 << 20;

/// A client of the control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    /// Its process, as seen from here.
    pub pid: Option<i32>,
}

impl Caller {
    /// `root (uid 0, logged in as alice, process 77)`. It reads files, so it must not run on a thread that serves.
    #[must_use]
    pub fn describe(&self) -> String {
        let users = read(Path::new("/etc/passwd"), PASSWD_BYTES_MAX);
        let login = self.pid.and_then(|pid| {
            let path = format!("/proc/{pid}/loginuid");
            read(Path::new(&path), 32).trim().parse().ok()
        });
        self.in_words(&users, login)
    }

    fn in_words(&self, users: &str, login: Option<u32>) -> String {
        let uid = self.uid;
        let name = name_of(users, uid).unwrap_or_else(|| format!("user {uid}"));
        // The kernel's value for processes without a login, such as services and containers.
        let login = login.filter(|login| *login != uid && *login != u32::MAX);
        let login = login.map(|login| {
            let name = name_of(users, login).unwrap_or_else(|| format!("user {login}"));
            format!(", logged in as {name}")
        });
        let process = self.pid.map(|pid| format!(", process {pid}"));
        format!(
            "{name} (uid {uid}{}{})",
            login.unwrap_or_default(),
            process.unwrap_or_default()
        )
    }
}

fn read(path: &Path, most: u64) -> String {
    let mut bytes = Vec::new();
    // If the file cannot be read, no name is given.
    let _ = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// passwd(5): `name:password:uid:...`.
fn name_of(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let same = fields.nth(1)?.parse() == Ok(uid);
        same.then(|| name.escape_debug().to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_by_name() {
        let users =
            "broken\nroot:x:0:0:root:/root:/bin/sh\n:x:7:7:::\nal\u{1b}ice:x:1000:1000:::\n";
        let of = |uid, pid, login| Caller { uid, pid }.in_words(users, login);
        assert_eq!(of(0, Some(77), None), "root (uid 0, process 77)");
        assert_eq!(of(0, Some(77), Some(u32::MAX)), "root (uid 0, process 77)");
        assert_eq!(
            of(0, Some(77), Some(1000)),
            "root (uid 0, logged in as al\\u{1b}ice, process 77)"
        );
        assert_eq!(of(0, None, Some(7)), "root (uid 0, logged in as user 7)");
        assert_eq!(of(1001, None, None), "user 1001 (uid 1001)");
        let us = rustix::process::geteuid().as_raw();
        let said = Caller { uid: us, pid: None }.describe();
        assert!(said.contains(&format!("(uid {us}")), "{said}");
    }
}
