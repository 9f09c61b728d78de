//! Starts and stops the servers, and knows where they are.
//!
//! All serve a folder of their own on the same file system, on a free port of 127.0.0.1, to the
//! same user, who is the local user `daemon` on disk in each. Samba comes with its synchronous
//! I/O (its cheapest for small pieces), its threads and io_uring, Holdfast with threads and io_uring; each
//! once honouring FLUSH and, where a workload wants it, once answering it at once. A peer runs
//! already, elsewhere or here: it is neither started nor stopped.

use std::path::Path;

use smb_load::rig::{
    config::{
        Holdfast, Samba, configured, connections, holdfast_config, samba, samba_config,
        samba_has_uring,
    },
    server::{Access, Place, Server as Running},
};

use super::limit;
use crate::Failure;

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

    /// Samba's settings.
    fn samba(self) -> Samba {
        let uring = matches!(self, Self::SambaUring | Self::SambaUringLax);
        let threads = matches!(self, Self::SambaThreads | Self::SambaThreadsLax);
        Samba {
            asynchronous: uring || threads,
            uring,
            strict_sync: !self.lax(),
            sync_always: false,
        }
    }

    /// Holdfast's settings.
    fn holdfast(self) -> Holdfast<'static> {
        let uring = matches!(self, Self::HoldfastUring | Self::HoldfastUringLax);
        Holdfast {
            policy: if self.lax() {
                "treat-host-as-stable-storage"
            } else {
                "honor"
            },
            file_io: Some(if uring { "io_uring" } else { "threads" }),
            metrics: None,
            connections: connections(),
            listeners: &[],
        }
    }

    /// Whether this machine has what it needs.
    pub(crate) fn possible(self) -> bool {
        !matches!(self, Self::SambaUring | Self::SambaUringLax) || samba_has_uring()
    }
}

/// A server that runs already.
#[derive(Clone)]
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
    pub(crate) running: Running,
}

impl Server {
    /// Starts it and waits until it listens.
    pub(crate) fn start(kind: Kind, scratch: &Path, holdfast: &Path) -> Result<Self, Failure> {
        let home = scratch.join(kind.name());
        let folder = home.join("share");
        let place = Place::new(home, folder)?;
        let command = match kind.maker() {
            Maker::Samba => samba(&place, &samba_config(kind.samba(), &place))?,
            Maker::Limit => limit::command(
                place.port,
                &place.folder.join("field"),
                kind == Kind::LimitSendfile,
            )?,
            _ => configured(holdfast, &place, &holdfast_config(kind.holdfast(), &place))?,
        };
        Ok(Self {
            name: kind.name(),
            maker: kind.maker(),
            kind: Some(kind),
            lax: (kind.maker() != Maker::Limit).then(|| kind.lax()),
            running: Running::launch(kind.name(), &place, &command)?,
        })
    }

    /// One that runs already.
    pub(crate) fn peer(peer: Peer, number: usize) -> Self {
        let name = format!("peer-{number}").leak();
        Self {
            name,
            maker: Maker::Peer,
            kind: None,
            lax: None,
            running: Running::running(name, peer.access, peer.pid),
        }
    }
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
