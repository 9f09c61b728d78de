//! The client whose waits are measured: it does a little of everything, one request at a time.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use smb_client::{Client, ClientError, CreateArgs, File, Options, Tree};
use smb_tests::{HoldfastServer, OTHER_PASSWORD, OTHER_USER, SECOND};
use smb_wire::msg::WriteFlags;

/// Not the attackers'.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77));
/// Rounds between two logins on new connections.
const LOGIN_EVERY: u32 = 10;

/// How long each request took, and what was refused.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    taken: Vec<Duration>,
    pub(crate) refused: Vec<String>,
}

impl Waits {
    pub(crate) fn count(&self) -> usize {
        self.taken.len()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.taken.iter().max().copied().unwrap_or_default()
    }

    /// The wait that this part of all requests did not exceed.
    pub(crate) fn percentile(&self, part: f64) -> Duration {
        let mut sorted = self.taken.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        sorted.get(index).copied().unwrap_or_default()
    }

    fn time<T>(&mut self, what: &str, call: impl FnOnce() -> Result<T, ClientError>) -> Option<T> {
        let start = Instant::now();
        let answer = call();
        self.taken.push(start.elapsed());
        match answer {
            Ok(value) => Some(value),
            Err(error) => {
                self.refused.push(format!("{what}: {error}"));
                None
            }
        }
    }
}

fn connect(server: &HoldfastServer) -> Result<Tree, ClientError> {
    let options = Options {
        source: Some(ADDRESS),
        ..Options::default()
    };
    let client = Client::connect(server.addr(), options)?;
    client.login(OTHER_USER, OTHER_PASSWORD, "")?.tree(SECOND)
}

/// Works for `time`, after a warm-up whose waits do not count.
pub(crate) fn live(server: &HoldfastServer, warm_up: Duration, time: Duration) -> Waits {
    let mut waits = Waits::default();
    std::thread::sleep(warm_up);
    let Some(tree) = waits.time("login", || connect(server)) else {
        return waits;
    };
    let Some(file) = waits.time("create", || tree.create(&CreateArgs::open_if("victim"))) else {
        return waits;
    };
    let end = Instant::now() + time;
    let mut round = 0;
    while Instant::now() < end {
        turn(&mut waits, &tree, &file, round);
        round += 1;
        if round % LOGIN_EVERY == 0 {
            waits.time("login", || connect(server));
        }
        if waits.refused.len() > 1_000 {
            break;
        }
    }
    waits
}

fn turn(waits: &mut Waits, tree: &Tree, file: &File, round: u32) {
    let data = [7; 4_096];
    waits.time("echo", || tree.client().echo());
    waits.time("write", || file.write(0, &data, WriteFlags::empty()));
    waits.time("read", || file.read(0, 4_096));
    let name = format!("victim-{}", round % 8);
    let made = waits.time("create", || tree.create(&CreateArgs::open_if(&name)));
    if let Some(made) = made {
        waits.time("close", || made.close());
    }
    let folder = waits.time("open", || tree.create(&CreateArgs::directory("")));
    if let Some(folder) = folder {
        waits.time("list", || folder.list("*"));
        waits.time("close", || folder.close());
    }
}
