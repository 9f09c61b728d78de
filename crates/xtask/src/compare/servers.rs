//! Starts and stops the servers, and knows where they are.
//!
//! All serve a folder of their own on the same file system, on a free port of 127.0.0.1, to the
//! same user, who is the local user `daemon` on disk in each. Samba comes with its synchronous
//! I/O (its cheapest for small pieces), its threads and io_uring, Holdfast with threads and io_uring; each
//! once honouring FLUSH and, where a workload wants it, once answering it at once. A peer runs
//! already, elsewhere or here: it is neither started nor stopped.

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

pub(crate) use super::configs::{configured, samba, samba_config, samba_has_uring};
use super::{
    configs::holdfast_config,
    cpu::{self, Meter},
    group::Group,
    limit,
};
use crate::Failure;

/// The user of all servers, who must exist locally for Samba.
pub(crate) const USER: &str = "daemon";
/// Their password.
pub(crate) const PASSWORD: &str = "Compare.123";
/// The share of all servers.
pub(crate) const SHARE: &str = "share";

/// The local ids of [`USER`] on Debian.
pub(super) const IDS: &str = "1:1";

const START_MAX: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(10);
/// How long the end of one connection's process may take, on a busy machine.
const PROCESS_END_MAX: Duration = Duration::from_millis(20);

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    SambaSync,
    SambaThreads,
    SambaUring,
    HoldfastThreads,
    HoldfastUring,
    SambaSyncLax,
    SambaThreadsLax,
    SambaUringLax,
    HoldfastThreadsLax,
    HoldfastUringLax,
    /// [`limit`], by pread and send.
    Limit,
    /// [`limit`], by sendfile.
    LimitSendfile,
}

/// The maker of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    Samba,
    Holdfast,
    Limit,
    Peer,
}

impl Kind {
    /// So that neighbours in a round are not of one maker.
    pub(crate) const ALL: [Self; 12] = [
        Self::SambaSync,
        Self::HoldfastThreads,
        Self::SambaThreads,
        Self::HoldfastUring,
        Self::SambaUring,
        Self::SambaSyncLax,
        Self::HoldfastThreadsLax,
        Self::SambaThreadsLax,
        Self::HoldfastUringLax,
        Self::SambaUringLax,
        Self::Limit,
        Self::LimitSendfile,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SambaSync => "samba-sync",
            Self::SambaThreads => "samba-threads",
            Self::SambaUring => "samba-uring",
            Self::HoldfastThreads => "holdfast-threads",
            Self::HoldfastUring => "holdfast-uring",
            Self::SambaSyncLax => "samba-sync-lax",
            Self::SambaThreadsLax => "samba-threads-lax",
            Self::SambaUringLax => "samba-uring-lax",
            Self::HoldfastThreadsLax => "holdfast-threads-lax",
            Self::HoldfastUringLax => "holdfast-uring-lax",
            Self::Limit => "limit",
            Self::LimitSendfile => "limit-sendfile",
        }
    }

    pub(crate) fn maker(self) -> Maker {
        match self {
            Self::SambaSync
            | Self::SambaThreads
            | Self::SambaUring
            | Self::SambaSyncLax
            | Self::SambaThreadsLax
            | Self::SambaUringLax => Maker::Samba,
            Self::Limit | Self::LimitSendfile => Maker::Limit,
            _ => Maker::Holdfast,
        }
    }

    /// Whether FLUSH is answered at once.
    pub(crate) fn lax(self) -> bool {
        self.name().ends_with("-lax")
    }

    /// Whether this machine has what it needs.
    pub(crate) fn possible(self) -> bool {
        !matches!(self, Self::SambaUring | Self::SambaUringLax) || samba_has_uring()
    }
}

/// Where a server lives and listens.
pub(crate) struct Place {
    /// State and logs.
    pub(crate) home: PathBuf,
    /// The folder that it serves.
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

/// How a client comes in.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) share: String,
}

impl Access {
    fn local(port: u16) -> Self {
        Self {
            host: "127.0.0.1".into(),
            port,
            user: USER.into(),
            password: PASSWORD.into(),
            share: SHARE.into(),
        }
    }

    pub(crate) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

/// A server that runs already.
pub(crate) struct Peer {
    access: Access,
    pid: Option<u32>,
}

impl std::str::FromStr for Peer {
    type Err = Failure;

    /// `HOST:PORT,USER,PASSWORD,SHARE[,PID]`
    fn from_str(text: &str) -> Result<Self, Failure> {
        let usage = "--peer HOST:PORT,USER,PASSWORD,SHARE[,PID]";
        let fields: Vec<&str> = text.split(',').collect();
        let (address, user, password, share, pid) = match fields.as_slice() {
            [address, user, password, share] => (address, user, password, share, None),
            [address, user, password, share, pid] => {
                (address, user, password, share, Some(pid.parse()?))
            }
            _ => return Err(usage.into()),
        };
        let (host, port) = address.rsplit_once(':').ok_or(usage)?;
        Ok(Self {
            access: Access {
                host: host.trim_matches(['[', ']']).into(),
                port: port.parse()?,
                user: (*user).into(),
                password: (*password).into(),
                share: (*share).into(),
            },
            pid,
        })
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) maker: Maker,
    /// The kind as which it was started; none of a peer.
    pub(crate) kind: Option<Kind>,
    /// FLUSH is answered at once; not known of a peer.
    pub(crate) lax: Option<bool>,
    pub(crate) access: Access,
    pub(crate) meter: Meter,
    /// None of a peer.
    child: Option<Child>,
    pid: Option<u32>,
    /// Processes when nobody is connected.
    idle: usize,
}

impl Server {
    /// Starts it and waits until it listens.
    pub(crate) fn start(kind: Kind, scratch: &Path, holdfast: &Path) -> Result<Self, Failure> {
        let home = scratch.join(kind.name());
        let folder = home.join("share");
        let place = Place::new(home, folder)?;
        let command = match kind.maker() {
            Maker::Samba => samba(&place, &samba_config(kind, &place))?,
            Maker::Limit => limit::command(
                place.port,
                &place.folder.join("field"),
                kind == Kind::LimitSendfile,
            )?,
            _ => configured(holdfast, &place, &holdfast_config(kind, &place))?,
        };
        let mut this = Self::launch(kind.name(), &place, command)?;
        this.maker = kind.maker();
        this.kind = Some(kind);
        this.lax = (kind.maker() != Maker::Limit).then(|| kind.lax());
        Ok(this)
    }

    /// The same for any command that serves `place`.
    pub(crate) fn launch(
        name: &'static str,
        place: &Place,
        command: Command,
    ) -> Result<Self, Failure> {
        let log = fs::File::create(place.home.join("log"))?;
        let group = Group::make();
        let mut command = match &group {
            Some(group) => group.around(&command),
            None => command,
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Samba's first process ends its whole group.
            .process_group(0)
            .spawn()?;
        let pid = child.id();
        let mut this = Self {
            name,
            maker: Maker::Holdfast,
            kind: None,
            lax: None,
            access: Access::local(place.port),
            meter: group.map_or(Meter::Tree(pid), Meter::Group),
            child: Some(child),
            pid: Some(pid),
            idle: 0,
        };
        this.await_listening(&place.home)?;
        Ok(this)
    }

    /// One that runs already.
    pub(crate) fn peer(peer: Peer, number: usize) -> Self {
        let mut this = Self {
            name: format!("peer-{number}").leak(),
            maker: Maker::Peer,
            kind: None,
            lax: None,
            access: peer.access,
            meter: peer.pid.map_or(Meter::Nothing, Meter::Tree),
            child: None,
            pid: peer.pid,
            idle: 0,
        };
        this.idle = this.processes();
        this
    }

    fn await_listening(&mut self, home: &Path) -> Result<(), Failure> {
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(self.access.address()).is_err() {
            if self.gone()?.is_some() || Instant::now() > deadline {
                let said = fs::read_to_string(home.join("log")).unwrap_or_default();
                return Err(format!("{} does not start: {said}", self.name).into());
            }
            sleep(Duration::from_millis(50));
        }
        // The connection just tried may have made a process; Samba's own helpers come up too.
        sleep(Duration::from_millis(500));
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
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// CPU seconds so far.
    pub(crate) fn cpu(&self) -> Result<f64, Failure> {
        self.meter.seconds()
    }

    fn processes(&self) -> usize {
        self.pid.map_or(0, |pid| cpu::tree(pid).len())
    }

    /// Waits until the processes of connections that ended are gone, and then a moment for what
    /// is done after the last reply.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
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
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let all = cpu::tree(child.id());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read() {
        let peer: Peer = "[::1]:4450,me,secret,data,17".parse().unwrap();
        assert_eq!(peer.access.address(), ("::1", 4450));
        assert_eq!((peer.access.share.as_str(), peer.pid), ("data", Some(17)));
        assert!("host,me,secret,data".parse::<Peer>().is_err());
        assert!("host:x,me,secret,data".parse::<Peer>().is_err());
    }

    #[test]
    fn only_lax_servers_are_called_so() {
        let lax = Kind::ALL.iter().filter(|kind| kind.lax()).count();
        assert_eq!(lax, 5);
    }
}
