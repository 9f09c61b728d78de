//! The servers on cores of their own, so that the clients take nothing from them: `SERVERCORES:CLIENTCORES`.
//!
//! A process inherits the cores of the thread that starts it, so those of the calling thread are changed around each
//! start.

use std::str::FromStr;

use rustix::thread::{CpuSet, sched_setaffinity};

use super::Failure;

/// Where servers and clients run.
#[derive(Debug, Clone, Copy)]
pub struct Pin {
    servers: CpuSet,
    clients: CpuSet,
}

impl Pin {
    /// Starts a server, and goes back to the cores of the clients.
    pub fn start<T>(
        pin: Option<&Self>,
        start: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(pin) = pin else {
            return start();
        };
        sched_setaffinity(None, &pin.servers)?;
        let started = start();
        sched_setaffinity(None, &pin.clients)?;
        started
    }
}

impl FromStr for Pin {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let (servers, clients) = text
            .split_once(':')
            .ok_or("cores are SERVERCORES:CLIENTCORES, as in 0-1:2,3")?;
        Ok(Self {
            servers: cores(servers)?,
            clients: cores(clients)?,
        })
    }
}

/// A list of cores and ranges of them.
fn cores(list: &str) -> Result<CpuSet, Failure> {
    let mut set = CpuSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        for core in first.parse()?..=last.parse::<usize>()? {
            if core >= CpuSet::MAX_CPU {
                return Err(format!("there is no core {core}").into());
            }
            set.set(core);
        }
    }
    if set.count() == 0 {
        return Err(format!("no core in {list:?}").into());
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_from_lists_and_ranges() {
        let pin: Pin = "0,2-3:1".parse().unwrap();
        let of = |set: &CpuSet| (0..5).filter(|core| set.is_set(*core)).collect::<Vec<_>>();
        assert_eq!(
            (of(&pin.servers), of(&pin.clients)),
            (vec![0, 2, 3], vec![1])
        );
        for wrong in ["", "0", "0:", "3-2:1", "0:x", "0:99999"] {
            assert!(wrong.parse::<Pin>().is_err(), "{wrong}");
        }
    }
}
