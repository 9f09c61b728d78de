//! The power guard: a share may rely on a UPS only while there is mains power.
//!
//! `protection = "ups"` allows a lazy policy because the host survives the power failure. On the
//! battery it does so only for minutes, and only if it is shut down in order. So while the host
//! runs on its battery every lazy policy honors flushes (`Durability::set_guard`), and everything
//! acknowledged before is made stable at once. Mains power must be back for some time before the
//! policies hold again.
//!
//! It reads `/sys/class/power_supply` on a separate thread. If the power source is unknown, nothing
//! changes: the daemon of a UPS that the kernel does not know can act by `holdfast policy set`.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use durability::Durability;
use tokio::{sync::watch, task::JoinHandle};
use vfs::Vfs;

use crate::{
    answers::PowerStatus,
    config::Protection,
    host::protection::{Power, Root},
    lock,
    metrics::exposition::Page,
};

/// The time between two checks.
const PERIOD: Duration = Duration::from_secs(3);
/// The number of successive checks that must find mains power before the guard ends, because power
/// may return intermittently while the battery is empty.
const MAINS_LOOKS: u32 = 5;
/// The actor that the log names.
const WHO: &str = "power guard";

/// The state of the power supply, and its consequence.
#[derive(Debug, Default)]
struct Seen {
    power: Power,
    /// The guard is on.
    on: bool,
    /// The number of successive checks that found mains power.
    mains: u32,
    /// Times that the guard came on.
    trips: u64,
}

impl Seen {
    /// Takes the result of a check.
    fn take(&mut self, power: Power, protection: Protection) {
        self.mains = match power {
            Power::Mains => self.mains.saturating_add(1),
            _ => 0,
        };
        let was = self.on;
        self.on = protection == Protection::Ups
            && match power {
                Power::Battery(_) => true,
                Power::Mains => was && self.mains < MAINS_LOOKS,
                Power::Unknown => was,
            };
        self.trips += u64::from(self.on && !was);
        self.power = power;
    }
}

/// The place and the interval of the checks.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The kernel's file systems.
    pub(crate) root: Root,
    /// The time between two checks.
    pub(crate) period: Duration,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            root: Root::default(),
            period: PERIOD,
        }
    }
}

/// The guard that sets lazy policies aside while the host runs on its battery; the process has one.
#[derive(Debug)]
pub(crate) struct PowerGuard {
    source: Source,
    seen: Mutex<Seen>,
}

impl PowerGuard {
    /// Makes the first check, before clients are served. It may wait for a driver.
    pub(crate) fn start<V: Vfs>(
        source: Source,
        protection: Protection,
        durability: &Durability<V>,
    ) -> Arc<Self> {
        let guard = Arc::new(Self {
            source,
            seen: Mutex::default(),
        });
        guard.look(Power::read(&guard.source.root), protection, durability);
        guard
    }

    /// Acts on the result of a check; returns true if the guard came on.
    fn look<V: Vfs>(
        &self,
        power: Power,
        protection: Protection,
        durability: &Durability<V>,
    ) -> bool {
        let mut seen = lock(&self.seen);
        let old = seen.power.clone();
        seen.take(power, protection);
        if seen.power != old {
            let (power, supply) = (seen.power.word(), seen.power.supply());
            tracing::info!(power, supply, "power supply");
        }
        let news = durability.set_guard(seen.on, WHO);
        if news && seen.on {
            tracing::warn!(
                who = WHO,
                supply = seen.power.supply(),
                "this machine runs on a battery: every lazy durability policy honors flushes until \
                 mains power is back"
            );
        } else if news {
            tracing::warn!(
                who = WHO,
                power = seen.power.word(),
                "the durability policies hold again as they are set"
            );
        }
        news && seen.on
    }

    /// Checks repeatedly until `stopping` completes. One worker runs it.
    pub(crate) async fn watch<V: Vfs>(
        self: Arc<Self>,
        durability: Arc<Durability<V>>,
        stopping: impl Future<Output = ()>,
        protection: impl Fn() -> Protection,
    ) {
        let Some(mut looks) = self.looks() else {
            return;
        };
        let mut stopping = pin!(stopping);
        let mut due = lock(&self.seen).on;
        let mut syncing: Option<JoinHandle<()>> = None;
        loop {
            tokio::select! {
                () = stopping.as_mut() => return,
                changed = looks.changed() => if changed.is_err() {
                    tracing::error!(
                        guard = lock(&self.seen).on,
                        "the power supply is not watched any more, because its thread has died: the guard stays as it \
                         is\n  = restart the server, and please report it with the lines above"
                    );
                    return;
                },
            }
            let power = looks.borrow_and_update().clone();
            due |= self.look(power, protection(), &durability);
            due &= lock(&self.seen).on;
            // A disk that hangs has at most one such sync, however often the power fails and
            // returns.
            let idle = syncing.as_ref().is_none_or(JoinHandle::is_finished);
            if idle && std::mem::take(&mut due) {
                let durability = Arc::clone(&durability);
                syncing = Some(tokio::task::spawn_local(sync(durability)));
            }
        }
    }

    /// Starts a thread that checks as long as the receiver exists. Nobody waits for the thread,
    /// because a driver may hang.
    fn looks(&self) -> Option<watch::Receiver<Power>> {
        let Source { root, period } = self.source.clone();
        let (sender, looks) = watch::channel(Power::Unknown);
        let thread = std::thread::Builder::new().name("power".to_owned());
        let started = thread.spawn(move || {
            while sender.send(Power::read(&root)).is_ok() {
                std::thread::sleep(period);
            }
        });
        match started {
            Ok(_) => Some(looks),
            Err(error) => {
                tracing::warn!(%error, "the power supply is not watched: on battery, lazy policies go on");
                None
            }
        }
    }

    /// The power supply and the guard, for `holdfast status`.
    pub(crate) fn status(&self) -> PowerStatus {
        let seen = lock(&self.seen);
        PowerStatus {
            power: seen.power.word().to_owned(),
            supply: seen.power.supply().map(str::to_owned),
            guard: seen.on,
            trips: seen.trips,
        }
    }

    /// Writes the families of the power supply and the guard to the metrics page.
    pub(crate) fn metrics(&self, page: &mut Page) {
        let seen = lock(&self.seen);
        let help = "The power source of this machine, where the kernel knows it; always 1.";
        let mut family = page.family("holdfast_power_supply", help);
        family.sample("", &[("power", seen.power.word())], 1);
        let help = "Times the power guard set lazy policies aside because of a battery.";
        page.single("holdfast_power_guard_trips_total", help, seen.trips);
    }
}

/// Makes everything stable that was acknowledged before the guard came on.
async fn sync<V: Vfs>(durability: Arc<Durability<V>>) {
    let report = durability.sync_lazy().await;
    let (inodes, bytes, failed) = (report.inodes, report.bytes, report.failed);
    if failed == 0 {
        tracing::warn!(
            who = WHO,
            inodes,
            bytes,
            "everything acknowledged under lazy policies is stable"
        );
    } else {
        tracing::error!(
            who = WHO,
            inodes,
            bytes,
            failed,
            "not everything acknowledged under lazy policies could be made stable"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPS: Protection = Protection::Ups;

    /// The state of the guard after each of these checks: `b`attery, `m`ains or `?`, under a
    /// protection.
    fn after(looks: &str, protection: Protection) -> String {
        let mut seen = Seen::default();
        let each = looks.chars().map(|look| {
            let power = match look {
                'b' => Power::Battery("ups".to_owned()),
                'm' => Power::Mains,
                _ => Power::Unknown,
            };
            seen.take(power, protection);
            if seen.on { '!' } else { '.' }
        });
        each.collect()
    }

    #[test]
    fn on_at_once_and_off_when_mains_power_has_stayed() {
        assert_eq!(after("mmbmmmmmmm", UPS), "..!!!!!...");
        assert_eq!(after("bmmmmbmmmmm", UPS), "!!!!!!!!!!.");
        assert_eq!(after("???", UPS), "...");
        assert_eq!(after("b??????", UPS), "!!!!!!!", "nothing known: no change");
        assert_eq!(after("bmmm?mmmmm", UPS), "!!!!!!!!!.");
        for other in [Protection::None, Protection::Plp] {
            assert_eq!(after("mbbb", other), "....");
        }
    }

    #[test]
    fn another_protection_ends_it() {
        let mut seen = Seen::default();
        seen.take(Power::Battery("ups".to_owned()), UPS);
        seen.take(Power::Battery("ups".to_owned()), Protection::None);
        assert!(!seen.on);
        seen.take(Power::Battery("ups".to_owned()), UPS);
        assert_eq!((seen.on, seen.trips), (true, 2));
    }
}
