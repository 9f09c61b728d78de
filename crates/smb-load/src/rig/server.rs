//! Starts and stops servers, each of which serves a folder of its own on a free port of 127.0.0.1.
//!
//! All serve the same user, who is the local user `daemon` on disk. A server ends with its value. One that somebody
//! else began is neither started nor stopped here.

use std::{
    ffi::OsStr,
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    Failure,
    group::{Group, behind},
    meter::{self, Meter},
};

/// The user of all servers, who must exist locally for Samba.
pub const USER: &str = "daemon";
/// Their password.
pub const PASSWORD: &str = "Compare.123";
/// The share of all servers.
pub const SHARE: &str = "share";

/// The local ids of [`USER`] on Debian.
pub const IDS: &str = "1:1";

const START_MAX: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(10);
/// How long the end of one connection's process may take, on a busy machine.
const PROCESS_END_MAX: Duration = Duration::from_millis(20);

/// Where a server lives and listens.
pub struct Place {
    /// State and logs.
    pub home: PathBuf,
    pub folder: PathBuf,
    pub port: u16,
}

impl Place {
    /// Makes both folders, and finds a port.
    pub fn new(home: PathBuf, folder: PathBuf) -> Result<Self, Failure> {
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
pub fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// How a client comes in.
#[derive(Debug, Clone)]
pub struct Access {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub share: String,
}

impl Access {
    /// To a server of this program's making.
    pub fn local(host: &str, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            user: USER.into(),
            password: PASSWORD.into(),
            share: SHARE.into(),
        }
    }

    /// Host and port.
    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

pub struct Server {
    /// Its name in messages.
    pub name: String,
    /// How a client comes in.
    pub access: Access,
    /// Where its CPU time is read.
    pub meter: Meter,
    /// None of a server that somebody else began.
    child: Option<Child>,
    pid: Option<u32>,
    /// Processes when nobody is connected.
    idle: usize,
}

impl Server {
    /// Starts the command, which serves `place` on 127.0.0.1, and waits until it listens.
    pub fn launch(name: &str, place: &Place, command: &Command) -> Result<Self, Failure> {
        Self::launch_at(name, place, command, Access::local("127.0.0.1", place.port))
    }

    /// The same for a command that listens elsewhere.
    pub fn launch_at(
        name: &str,
        place: &Place,
        command: &Command,
        access: Access,
    ) -> Result<Self, Failure> {
        let log = fs::File::create(place.home.join("log"))?;
        let group = Group::make();
        let command = ending_with_parent(command);
        let command = match &group {
            Some(group) => group.around(&command),
            None => command,
        };
        let child = in_session(&command)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let pid = child.id();
        let mut this = Self {
            name: name.to_owned(),
            access,
            meter: group.map_or(Meter::Tree(pid), Meter::Group),
            child: Some(child),
            pid: Some(pid),
            idle: 0,
        };
        this.await_listening(&place.home)?;
        Ok(this)
    }

    /// One that runs already, with its first process if that is known.
    pub fn running(name: &str, access: Access, pid: Option<u32>) -> Self {
        let mut this = Self {
            name: name.to_owned(),
            access,
            meter: pid.map_or(Meter::Nothing, Meter::Tree),
            child: None,
            pid,
            idle: 0,
        };
        this.idle = this.processes();
        this
    }

    fn await_listening(&mut self, home: &Path) -> Result<(), Failure> {
        let deadline = Instant::now() + START_MAX;
        let fails = |name: &str| {
            let said = fs::read_to_string(home.join("log")).unwrap_or_default();
            format!("{name} does not start: {said}")
        };
        while !answers(self.access.address()) {
            if self.gone()?.is_some() || Instant::now() > deadline {
                return Err(fails(&self.name).into());
            }
            sleep(Duration::from_millis(50));
        }
        // The connection just tried may have made a process; Samba's own helpers come up too.
        sleep(Duration::from_millis(500));
        if self.gone()?.is_some() {
            // Another program has the port and has answered.
            return Err(fails(&self.name).into());
        }
        self.idle = self.processes();
        Ok(())
    }

    fn gone(&mut self) -> Result<Option<std::process::ExitStatus>, Failure> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?),
            None => Ok(None),
        }
    }

    /// Its first process, if it is known.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// CPU seconds so far.
    pub fn cpu(&self) -> Result<f64, Failure> {
        self.meter.seconds()
    }

    fn processes(&self) -> usize {
        self.pid.map_or(0, |pid| meter::tree(pid).len())
    }

    /// Waits until the processes of connections that ended are gone, and then a moment for what
    /// is done after the last reply.
    pub fn settle(&mut self) -> Result<(), Failure> {
        let mut now = self.processes();
        let more = u32::try_from(now.saturating_sub(self.idle))?;
        let deadline = Instant::now() + Duration::from_secs(2) + PROCESS_END_MAX * more;
        while now > self.idle && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
            now = self.processes();
        }
        // A helper that came up for good is nothing to wait for again.
        self.idle = now.max(1);
        if let Some(how) = self.gone()? {
            return Err(format!("{} ended by itself: {how}", self.name).into());
        }
        sleep(Duration::from_millis(30));
        Ok(())
    }

    /// Ends it, unless somebody else began it.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        if !matches!(child.try_wait(), Ok(None)) {
            // Its number may be that of a process by now which is none of this program's.
            return;
        }
        let all = meter::tree(child.id());
        signal(child.id(), Signal::TERM);
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
        // Samba's helpers outlive a parent that was killed.
        for pid in all.into_iter().skip(1) {
            signal(pid, Signal::TERM);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether somebody listens. A connection to a free port may get that port as its own, and is connected to itself then.
fn answers(address: (&str, u16)) -> bool {
    TcpStream::connect(address)
        .is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok())
}

/// A command that runs the program and gets SIGTERM when this program ends, however it ends.
pub(super) fn ending_with_this(program: &OsStr) -> Command {
    ending_with(std::process::id(), program)
}

/// The same for the end of the parent with this number. A parent that ended before the signal was asked for sends none:
/// nothing is run then.
fn ending_with(parent: u32, program: &OsStr) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM", "--", "/bin/sh", "-c"])
        .arg("test \"$PPID\" = \"$0\" && exec \"$@\"")
        .arg(parent.to_string())
        .arg(program);
    command
}

/// The same command, which gets SIGTERM when this program ends.
fn ending_with_parent(command: &Command) -> Command {
    behind(ending_with_this(command.get_program()), command)
}

/// The same command in a session of its own, as a daemon has one. Linux shares CPU time between sessions (autogroup): in
/// the session of the clients a server competes with them as one, and together they starve the kernel's threads that
/// write to the disk. Samba's first process also ends its whole process group, which comes with the session.
fn in_session(command: &Command) -> Command {
    let mut with = Command::new("setsid");
    with.arg(command.get_program());
    behind(with, command)
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may be gone already.
        let _ = kill_process(pid, signal);
    }
}

/// Lets [`USER`] pass through a folder.
pub fn open_up(folder: &Path) -> Result<(), Failure> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_on_the_port_is_not_taken_for_the_server() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new("false").spawn().unwrap();
        child.wait().unwrap();
        let mut server = Server {
            name: "no server".to_owned(),
            access: Access::local("127.0.0.1", other.local_addr().unwrap().port()),
            meter: Meter::Nothing,
            pid: Some(child.id()),
            child: Some(child),
            idle: 0,
        };
        let refused = server.await_listening(home.path()).unwrap_err();
        assert!(refused.to_string().contains("does not start"), "{refused}");
    }

    #[test]
    fn nothing_is_run_for_a_parent_that_ended_meanwhile() {
        let runs = |parent| ending_with(parent, OsStr::new("true")).status().unwrap();
        assert!(runs(std::process::id()).success());
        // The test's own parent did not begin the command; neither did one that ended.
        assert!(!runs(std::os::unix::process::parent_id()).success());
    }
}
