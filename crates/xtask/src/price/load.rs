//! The shapes of the load: the flush ladder of [`smb_load`] by a number of openers.
//!
//! Each opener has a connection, a thread and a region of 256 KiB that it overwrites in blocks of 4 KiB, over and over: a
//! policy that syncs later finds many writes in one page, which flatters it. Files are filled before, so that writes change
//! no size.

use std::{sync::Mutex, time::Duration};

use smb_client::{Client, Options};
use smb_load::{
    Home, Measured, Step, Watch,
    rig::{
        device::{Counts, Device},
        server::{PASSWORD, SHARE, USER},
    },
    run,
    simple::Flusher,
};

use super::servers::One;
use crate::Failure;

/// Work before the measured time. Requests on their way when that begins stand for those on their way when it ends.
const WARM_UP: Duration = Duration::from_millis(200);

/// The openers, and the files to which they write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    pub(crate) openers: usize,
    /// All open the same file; else each its own.
    pub(crate) one_file: bool,
}

impl Shape {
    pub(crate) const ALL: [Self; 5] = [
        Self::new(1, true),
        Self::new(16, true),
        Self::new(64, true),
        Self::new(16, false),
        Self::new(64, false),
    ];
    /// Shapes that differ by the number of sync threads.
    pub(crate) const LANES: [Self; 1] = [Self::new(64, false)];
    /// On a disk that is slow.
    pub(crate) const SLOW: [Self; 3] =
        [Self::new(1, true), Self::new(8, true), Self::new(8, false)];

    const fn new(openers: usize, one_file: bool) -> Self {
        Self { openers, one_file }
    }

    pub(crate) fn name(self) -> String {
        match (self.openers, self.one_file) {
            (1, _) => "1 opener".into(),
            (openers, true) => format!("{openers} openers, one file"),
            (openers, false) => format!("{openers} openers, many files"),
        }
    }

    /// Opens and fills everything.
    pub(crate) fn prepare(self, port: u16) -> Result<Vec<Flusher>, Failure> {
        let opener = |number: u64| {
            let options = Options {
                timeout: Duration::from_secs(60),
                ..Options::default()
            };
            let client = Client::connect(("127.0.0.1", port), options)?;
            let tree = client.login(USER, PASSWORD, "")?.tree(SHARE)?;
            Ok(Flusher::prepare(
                &Home::new(tree, ""),
                number,
                self.one_file,
            )?)
        };
        (0..self.openers as u64).map(opener).collect()
    }
}

/// The counters of a server and its device at one moment.
#[derive(Clone, Copy)]
struct Moment {
    device: Counts,
    syncs: Option<u64>,
    cpu: f64,
}

/// Reads the counters when the measured time begins and when it ends.
struct Moments<'a> {
    device: &'a Device,
    one: &'a One,
    seen: Mutex<Vec<Result<Moment, String>>>,
}

impl Moments<'_> {
    fn look(&self) {
        let moment = || {
            Ok::<_, Failure>(Moment {
                device: self.device.counts()?,
                syncs: self.one.syncs()?,
                cpu: self.one.server.cpu()?,
            })
        };
        if let Ok(mut seen) = self.seen.lock() {
            seen.push(moment().map_err(|error| error.to_string()));
        }
    }
}

impl Watch for Moments<'_> {
    fn begins(&self) {
        self.look();
    }

    fn ends(&self) {
        self.look();
    }
}

/// The result of a load, and what the counters gained meanwhile.
pub(crate) struct Done {
    pub(crate) measured: Measured,
    pub(crate) device: Counts,
    /// Syncs of inodes and durable writes; `None` with Samba.
    pub(crate) syncs: Option<u64>,
    pub(crate) cpu_seconds: f64,
}

/// Puts the load on a server for that long.
pub(crate) fn measure(
    openers: Vec<Flusher>,
    length: Duration,
    device: &Device,
    one: &One,
) -> Result<Done, Failure> {
    let moments = Moments {
        device,
        one,
        seen: Mutex::default(),
    };
    let step = Step {
        warm_up: WARM_UP,
        length,
    };
    let (measured, _) = run(openers, step, &moments)?;
    let seen = moments.seen.into_inner().unwrap_or_default();
    let seen: Vec<Moment> = seen.into_iter().collect::<Result<_, _>>()?;
    let [before, after] = seen.as_slice() else {
        return Err("the measured time was not seen".into());
    };
    let gained = |of: &dyn Fn(&Moment) -> u64| of(after).saturating_sub(of(before));
    Ok(Done {
        measured,
        device: Counts {
            flushes: gained(&|at| at.device.flushes),
            writes: gained(&|at| at.device.writes),
            bytes: gained(&|at| at.device.bytes),
        },
        syncs: match (before.syncs, after.syncs) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before)),
            _ => None,
        },
        cpu_seconds: after.cpu - before.cpu,
    })
}
