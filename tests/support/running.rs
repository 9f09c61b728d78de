//! Control of a running server besides SMB: queries over its control socket, losing a connection,
//! killing and restarting it.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use smb_client::{Client, Session, Tree};
use smb_wire::ids::SessionId;

use crate::{HoldfastServer, SOON, START_MAX, binary, spawn};

/// The interval between two checks of something that should change soon.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
/// When the condition does not hold within [`SOON`].
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {SOON:?}");
        std::thread::sleep(LOOK);
    }
}

/// Waits until a break arrives on one of several connections, and returns its index. Asserts that no other break
/// arrives on any of them.
///
/// # Panics
/// When there is no break within [`SOON`], or more than one.
#[track_caller]
pub fn wait_for_one_break(clients: &[&Client]) -> usize {
    let next = |client: &Client, span| client.next_break(span).unwrap();
    let mut receiver = None;
    wait_until("a break", || {
        receiver = clients
            .iter()
            .position(|client| next(client, LOOK).is_some());
        receiver.is_some()
    });
    for client in clients {
        assert_eq!(next(client, crate::MEANWHILE), None, "a second break");
    }
    receiver.unwrap()
}

/// Breaks the connection of a client, as if a cable were pulled.
pub fn cut(client: &Client) {
    // The connection may be closed already.
    let _ = client.connection().stream_mut().shutdown(Shutdown::Both);
}

/// Gives a client the keys of a session of another connection. Its own connection does not become a channel by that.
///
/// # Panics
/// When the session has no keys.
pub fn adopt(client: &Client, session: &Session) {
    let secret = session.secret().unwrap();
    client.connection().core_mut().adopt_session(secret, true);
}

/// Queries the status of the server of this folder.
fn ask(root: &Path) -> std::io::Result<Value> {
    request(root, "{\"v\":1,\"cmd\":\"status\"}").map(|mut answer| {
        assert_eq!(answer["ok"], true, "{answer}");
        answer["result"].take()
    })
}

/// Sends a request over the control socket and returns the answer.
fn request(root: &Path, request: &str) -> std::io::Result<Value> {
    let mut stream = UnixStream::connect(root.join("state").join("control.sock"))?;
    stream.set_read_timeout(Some(SOON))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Returns whether the process that answers for this folder is this one; it answers once it
/// listens.
pub(crate) fn answers(root: &Path, pid: u32) -> bool {
    ask(root).is_ok_and(|status| status["pid"] == pid)
}

impl HoldfastServer {
    /// Queries the status of the server.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn status(&self) -> Value {
        ask(&self.root).expect("the control socket does not answer")
    }

    /// Closes a session as an administrator does; returns whether it existed.
    ///
    /// # Panics
    /// When the control socket does not answer.
    #[must_use]
    pub fn close_session(&self, id: SessionId) -> bool {
        self.close(&format!("{{\"session\":{}}}", id.0))
    }

    /// Closes all sessions of a user as an administrator does; returns whether the user exists.
    ///
    /// # Panics
    /// When the control socket does not answer.
    #[must_use]
    pub fn close_user(&self, name: &str) -> bool {
        self.close(&format!("{{\"user\":\"{name}\"}}"))
    }

    fn close(&self, what: &str) -> bool {
        let close = format!("{{\"v\":1,\"cmd\":\"close\",\"what\":{what}}}");
        let answer = request(&self.root, &close).expect("the control socket does not answer");
        answer["ok"] == true
    }

    /// Returns the sessions of the server.
    ///
    /// # Panics
    /// When it does not answer, or its status does not have them.
    #[must_use]
    pub fn sessions(&self) -> Vec<Value> {
        let status = self.status();
        status["server"]["sessions"].as_array().unwrap().clone()
    }

    /// Returns the number of opens of all sessions.
    #[must_use]
    pub fn opens(&self) -> usize {
        let opens = |session: &Value| session["opens"].as_array().map_or(0, Vec::len);
        self.sessions().iter().map(opens).sum()
    }

    /// Waits until the server has no session of this id.
    #[track_caller]
    pub fn wait_gone(&self, session: SessionId) {
        wait_until("the session ends", || {
            let sessions = self.sessions();
            sessions.iter().all(|s| s["id"].as_u64() != Some(session.0))
        });
    }

    /// Breaks the connection of a session's only channel, and waits until the server has noticed
    /// it.
    #[track_caller]
    pub fn lose(&self, tree: &Tree) {
        self.lose_session(tree.session());
    }

    /// As [`HoldfastServer::lose`].
    #[track_caller]
    pub fn lose_session(&self, session: &Session) {
        cut(session.client());
        self.wait_gone(session.id());
    }

    /// Kills the server (SIGKILL: nothing is written on exit) and restarts it on the same folders,
    /// configuration and port.
    ///
    /// # Panics
    /// When it does not start.
    pub fn kill_and_restart(&mut self) {
        self.kill_and_restart_after(|| ());
    }

    /// As [`HoldfastServer::kill_and_restart`], with an action while no server runs.
    ///
    /// # Panics
    /// As that function.
    pub fn kill_and_restart_after(&mut self, meanwhile: impl FnOnce()) {
        let mut child = self.child.take().expect("a running server");
        child.kill().unwrap();
        child.wait().unwrap();
        meanwhile();
        self.restart();
    }

    /// Stops the server as an administrator does (SIGTERM) and restarts it, as
    /// [`HoldfastServer::kill_and_restart`].
    ///
    /// # Panics
    /// When it does not exit successfully, or does not start.
    pub fn stop_and_restart(&mut self) {
        self.stop_and_restart_after(|_| ());
    }

    /// As [`HoldfastServer::stop_and_restart`], with an action while no server runs.
    ///
    /// # Panics
    /// As that function.
    pub fn stop_and_restart_after(&mut self, meanwhile: impl FnOnce(&Self)) {
        let mut child = self.child.take().expect("a running server");
        let pid = child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(told.unwrap().success());
        let how = child.wait().unwrap();
        assert!(how.success(), "{how}");
        meanwhile(self);
        self.restart();
    }

    fn restart(&mut self) {
        let config = self.root.join("holdfast.toml");
        let deadline = Instant::now() + START_MAX;
        loop {
            match spawn(
                &self.prefix,
                binary(),
                &self.root,
                &config,
                self.addr.port(),
            ) {
                Ok((child, _)) => {
                    self.child = Some(child);
                    return;
                }
                // The port may be taken for a moment.
                Err(error) => assert!(Instant::now() < deadline, "no restart: {error}"),
            }
        }
    }

    /// The folder with the server's own files.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.root.join("state")
    }
}
