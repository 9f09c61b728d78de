//! The servers whose promises are priced, each with a folder on the same device.

use std::{path::Path, process::Command};

use smb_load::rig::{
    config::{Holdfast, Samba, configured, holdfast_config, samba, samba_config},
    device::Device,
    metrics::{page, value},
    server::{Place, Server, free_port, open_up},
};

use crate::Failure;

/// Which server, with which promise.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    TreatHost,
    Honor,
    StrictSync,
    Bounded,
    SambaNo,
    SambaYes,
    /// `honor` with so many threads that sync.
    Lane(u32),
    /// `bounded` by so many milliseconds.
    Within(u32),
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::TreatHost,
        Self::Bounded,
        Self::Honor,
        Self::StrictSync,
        Self::SambaNo,
        Self::SambaYes,
    ];
    /// On a disk that is slow.
    pub(crate) const SLOW: [Self; 5] = [
        Self::Honor,
        Self::Within(10),
        Self::Within(50),
        Self::Within(200),
        Self::Within(1000),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TreatHost => "treat-host-as-stable-storage",
            Self::Honor => "honor",
            Self::StrictSync => "strict-sync",
            Self::Bounded => "bounded:50ms,4MiB",
            Self::SambaNo => "Samba strict sync = no",
            Self::SambaYes => "Samba strict sync = yes",
            Self::Lane(4) => "4 sync threads",
            Self::Lane(8) => "8 sync threads",
            Self::Lane(16) => "16 sync threads",
            Self::Lane(32) => "32 sync threads",
            Self::Lane(64) => "64 sync threads",
            Self::Lane(128) => "128 sync threads",
            Self::Lane(_) => "other sync threads",
            Self::Within(10) => "bounded:10ms,4MiB",
            Self::Within(50) => "bounded:50ms,4MiB",
            Self::Within(200) => "bounded:200ms,4MiB",
            Self::Within(_) => "bounded:1s,4MiB",
        }
    }

    fn policy(self) -> &'static str {
        match self {
            Self::TreatHost | Self::StrictSync | Self::Bounded | Self::Within(_) => self.name(),
            _ => "honor",
        }
    }

    fn command(self, place: &Place, metrics: u16, binary: &Path) -> Result<Command, Failure> {
        if let Self::SambaYes | Self::SambaNo = self {
            let settings = Samba {
                asynchronous: false,
                uring: false,
                strict_sync: self == Self::SambaYes,
                sync_always: false,
            };
            return samba(place, &samba_config(settings, place));
        }
        let settings = Holdfast {
            policy: self.policy(),
            file_io: None,
            metrics: Some(metrics),
            connections: 1000,
            listeners: &[],
        };
        let mut command = configured(binary, place, &holdfast_config(settings, place))?;
        if let Self::Lane(threads) = self {
            command.env("HOLDFAST_SYNC_THREADS", threads.to_string());
        }
        Ok(command)
    }
}

/// A server that runs.
pub(crate) struct One {
    pub(crate) kind: Kind,
    pub(crate) server: Server,
    /// Port of its metrics page; none with Samba.
    metrics: Option<u16>,
}

impl One {
    /// Syncs of inodes and durable writes so far; `None` with Samba, which does not say.
    pub(crate) fn syncs(&self) -> Result<Option<u64>, Failure> {
        let Some(page) = self.metrics.map(page).transpose()? else {
            return Ok(None);
        };
        let mut total = 0;
        for name in ["syncs_data", "syncs_all", "writes_durable"] {
            total += value::<u64>(&page, &format!("holdfast_{name}_total"))
                .ok_or(format!("no {name} in the metrics page"))?;
        }
        Ok(Some(total))
    }

    /// A look at how old the oldest change is that is not stable, in seconds, for another thread.
    pub(crate) fn oldest(&self) -> impl Fn() -> Option<f64> + Send + use<> {
        let port = self.metrics;
        move || value(&page(port?).ok()?, "holdfast_exposed_oldest_seconds")
    }
}

/// All servers of a round.
pub(crate) struct Running {
    pub(crate) servers: Vec<One>,
}

impl Running {
    /// Starts all of them.
    pub(crate) fn start(
        kinds: &[Kind],
        scratch: &Path,
        device: &Device,
        binary: &Path,
    ) -> Result<Self, Failure> {
        std::fs::create_dir_all(scratch)?;
        open_up(scratch)?;
        let mut started = Vec::new();
        for kind in kinds {
            let word: String = kind
                .name()
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .collect();
            let place = Place::new(scratch.join(&word), device.mount.join(&word))?;
            let metrics = free_port()?;
            let command = kind.command(&place, metrics, binary)?;
            started.push(One {
                kind: *kind,
                server: Server::launch(kind.name(), &place, &command)?,
                metrics: (!matches!(kind, Kind::SambaNo | Kind::SambaYes)).then_some(metrics),
            });
        }
        Ok(Self { servers: started })
    }

    /// Ends all of them.
    pub(crate) fn stop(self) {
        for one in self.servers {
            one.server.stop();
        }
    }
}
