//! A case as plain data, and its line of text.

use std::{fmt, str::FromStr, time::Duration};

use durability::{Bound, Policy};
use vfs::sim::{Cut, Profile};

use super::{
    flavour::Flavour,
    ledger::SETS,
    step::{Kind, Step},
};
use crate::rng::SimRng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    Signed,
    /// SMB 2.1 without signatures.
    Plain,
    /// SMB 3.1.1, encrypted.
    Sealed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// No time at all.
    Instant,
    /// Up to 0.3 ms, a sync up to 1 ms.
    Brisk,
    /// Up to 5 ms, a sync up to 150 ms.
    Slow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mischief {
    /// A sync fails with this errno.
    Sync(i32),
    /// A write fails with this errno.
    Write(i32),
    /// A write does half.
    Short,
    /// A change of names or attributes fails with this errno.
    Change(i32),
    /// A sync takes 700 ms.
    SlowSync,
    /// A sync never returns.
    Hang,
}

/// A planned mischief: it strikes after so many operations of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    pub what: Mischief,
    /// How many pass first.
    pub after: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Power(Cut),
    Process,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// When all steps are done.
    Done,
    /// At this call of the disk, before it takes place.
    Call(u32),
}

#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Plan {
    /// Decides what is left open: order of tasks, times, chances of faults.
    pub seed: u64,
    pub policy: Policy,
    /// The policy of a second share over the same folder, if there is one.
    pub second: Option<Policy>,
    /// The changes that the disk may lose.
    pub profile: Profile,
    /// One to three.
    pub clients: usize,
    pub speech: Speech,
    pub pace: Pace,
    /// The disk answers only a while after it has carried out a change.
    pub lag: bool,
    /// Named streams live in files.
    pub depot: bool,
    /// Which set of rules judges opens; 0: none, all follow the share.
    pub rules: u8,
    /// A security descriptor is stable before its answer.
    pub durable_acl: bool,
    /// Latches are stored and outlive the server's process.
    pub stores: bool,
    pub end: End,
    pub crash: Crash,
    pub troubles: Vec<Trouble>,
    pub steps: Vec<Step>,
}

const BOUND_BYTES: u64 = 64 << 10;

impl Plan {
    pub fn empty(seed: u64, policy: Policy, profile: Profile) -> Self {
        Self {
            seed,
            policy,
            second: None,
            profile,
            clients: 1,
            speech: Speech::Plain,
            pace: Pace::Instant,
            lag: false,
            depot: false,
            rules: 0,
            durable_acl: false,
            stores: false,
            end: End::Done,
            crash: Crash::Power(Cut::Nothing),
            troubles: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// The four policies as generated.
    pub fn policies() -> [Policy; 4] {
        let bound = Bound {
            max_delay: Duration::from_millis(50),
            max_bytes: BOUND_BYTES,
        };
        [
            Policy::Honor,
            Policy::StrictSync,
            Policy::Bounded(bound),
            Policy::TreatHostAsStableStorage,
        ]
    }

    /// The case of a seed, of which the flavour comes in turn; policy and profile by chance unless given. One in six
    /// has a second share.
    pub fn random(seed: u64, policy: Option<Policy>, profile: Option<Profile>) -> Self {
        let mut plan = Self::of_one_share(seed, policy, profile);
        let mut rng = SimRng::new(seed ^ 0x0073_6563_6f6e_6421);
        if rng.below(6) == 0 {
            plan.add_share(*choose(&mut rng, &Self::policies()), seed);
        }
        plan
    }

    /// Adds a second share with this policy, through which every other step goes, by chance.
    pub fn add_share(&mut self, policy: Policy, seed: u64) {
        let mut rng = SimRng::new(seed ^ 0x0073_7465_7073_2121);
        self.second = Some(policy);
        for step in &mut self.steps {
            step.0[0] &= 0x7F;
            if rng.below(2) == 0 {
                *step = step.second();
            }
        }
    }

    fn of_one_share(seed: u64, policy: Option<Policy>, profile: Option<Profile>) -> Self {
        let mut rng = SimRng::new(seed ^ 0x686f_6c64_6661_7374);
        let drawn = *choose(
            &mut rng,
            &[
                Policy::Honor,
                Policy::Honor,
                Self::policies()[1],
                Self::policies()[2],
                Self::policies()[3],
            ],
        );
        let mut plan = Self::empty(rng.draw(), policy.unwrap_or(drawn), Profile::PosixMin);
        let drawn = *choose(
            &mut rng,
            &[
                Profile::PosixMin,
                Profile::PosixMin,
                Profile::Journal,
                Profile::LogTree,
            ],
        );
        plan.profile = profile.unwrap_or(drawn);
        plan.clients = *choose(&mut rng, &[1, 1, 2, 3]);
        plan.speech = *choose(
            &mut rng,
            &[Speech::Plain, Speech::Plain, Speech::Signed, Speech::Sealed],
        );
        plan.pace = *choose(
            &mut rng,
            &[Pace::Instant, Pace::Brisk, Pace::Brisk, Pace::Slow],
        );
        plan.depot = rng.below(2) == 0;
        if rng.below(4) == 0 {
            plan.rules = u8::try_from(1 + rng.below(u64::from(SETS) - 1)).unwrap_or(0);
        }
        plan.durable_acl = rng.below(4) == 0;
        plan.stores = rng.below(4) == 0;
        let count = 5 + rng.index(36);
        plan.steps = (0..count).map(|_| Step::random(&mut rng)).collect();
        // Something to begin with, more often than not; and something promised at the end.
        if rng.below(4) > 0 {
            plan.steps.insert(0, Step::new(Kind::Create, 0, 0, 0));
        }
        if rng.below(2) > 0 {
            plan.steps
                .insert(0, Step::new(Kind::MakeDir, 0, 0, 1).with(0, 1));
        }
        for _ in 0..rng.below(3) {
            let (client, file) = (rng.below(3), rng.below(2));
            let kind = *choose(&mut rng, &[Kind::Flush, Kind::Flush, Kind::FlushStream]);
            plan.steps
                .push(Step::new(kind, narrow(client), narrow(file), 0));
        }
        plan.troubles = troubles(&mut rng);
        let flavour = Flavour::of(seed);
        if flavour != Flavour::Anything {
            plan.season(flavour, &mut rng);
            return plan;
        }
        let faulty = !plan.troubles.is_empty();
        if (!faulty || plan.stores) && rng.below(if faulty { 3 } else { 10 }) == 0 {
            let at = rng.index(plan.steps.len());
            plan.steps.insert(at, Step::new(Kind::Kill, 0, 0, 0));
        }
        // A failure that nobody saw before a restart cannot be seen afterwards (except by the daemon's sentinel of
        // the file system, which does not exist here).
        let restarts = plan.steps.iter().any(|step| step.kind() == Kind::Kill);
        if faulty && !restarts && rng.below(3) == 0 {
            let at = rng.index(plan.steps.len());
            plan.steps.insert(at, Step::new(Kind::WriteBack, 0, 0, 0));
        }
        plan.choose_end(&mut rng);
        plan
    }

    fn choose_end(&mut self, rng: &mut SimRng) {
        self.end = if rng.below(3) == 0 {
            End::Done
        } else {
            End::Call(u32::try_from(rng.below(self.steps.len() as u64 * 14)).unwrap_or(0))
        };
        self.crash = match rng.below(8) {
            0 | 1 => Crash::Power(Cut::Nothing),
            2 => Crash::Process,
            _ => Crash::Power(Cut::Seed(rng.draw())),
        };
    }

    /// Whether more than one policy may decide: by rules, because of the second share, or because it is set anew.
    pub fn is_mixed(&self) -> bool {
        self.rules > 0
            || self.second.is_some()
            || self.steps.iter().any(|step| step.kind() == Kind::Policy)
    }

    /// Whether anything goes wrong with the disk.
    pub fn is_faulty(&self) -> bool {
        let fails = |step: &Step| step.kind() == Kind::WriteBack;
        !self.troubles.is_empty() || self.steps.iter().any(fails)
    }

    /// Whether a bound in time can be kept by the disk of this case.
    pub fn device_keeps_up(&self) -> bool {
        self.pace != Pace::Slow
            && !self
                .troubles
                .iter()
                .any(|trouble| matches!(trouble.what, Mischief::SlowSync | Mischief::Hang))
    }
}

fn narrow(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(0)
}

pub(super) fn choose<'a, T>(rng: &mut SimRng, all: &'a [T]) -> &'a T {
    &all[rng.index(all.len())]
}

fn troubles(rng: &mut SimRng) -> Vec<Trouble> {
    if rng.below(2) == 0 {
        return Vec::new();
    }
    let count = 1 + rng.index(2);
    (0..count)
        .map(|_| {
            let (what, within) = match rng.below(10) {
                0..=3 => (Mischief::Sync(errno(rng)), 12),
                4 => (Mischief::Write(errno(rng)), 12),
                5 => (Mischief::Short, 12),
                6 => (Mischief::Change(errno(rng)), 30),
                7 => (Mischief::SlowSync, 8),
                _ => (Mischief::Hang, 8),
            };
            Trouble {
                what,
                after: u16::try_from(rng.below(within)).unwrap_or(0),
            }
        })
        .collect()
}

/// EIO, ENOSPC, EROFS, EDQUOT.
pub(super) fn errno(rng: &mut SimRng) -> i32 {
    *choose(rng, &[5, 5, 28, 30, 122])
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed={:x} policy={} profile={:?} clients={} speech={:?} pace={:?} depot={} ",
            self.seed,
            self.policy,
            self.profile,
            self.clients,
            self.speech,
            self.pace,
            u8::from(self.depot),
        )?;
        if let Some(second) = self.second {
            write!(f, "second={second} ")?;
        }
        if self.lag {
            f.write_str("lag=1 ")?;
        }
        if self.rules > 0 {
            write!(f, "rules={} ", self.rules)?;
        }
        if self.durable_acl {
            f.write_str("acl=1 ")?;
        }
        if self.stores {
            f.write_str("stores=1 ")?;
        }
        f.write_str("end=")?;
        match self.end {
            End::Done => f.write_str("done")?,
            End::Call(call) => write!(f, "{call}")?,
        }
        match self.crash {
            Crash::Process => f.write_str(" crash=process")?,
            Crash::Power(Cut::Nothing) => f.write_str(" crash=nothing")?,
            Crash::Power(Cut::Everything) => f.write_str(" crash=everything")?,
            Crash::Power(Cut::Seed(seed)) => write!(f, " crash={seed:x}")?,
        }
        for trouble in &self.troubles {
            let (name, errno) = match trouble.what {
                Mischief::Sync(errno) => ("sync", errno),
                Mischief::Write(errno) => ("write", errno),
                Mischief::Change(errno) => ("change", errno),
                Mischief::Short => ("short", 0),
                Mischief::SlowSync => ("slow", 0),
                Mischief::Hang => ("hang", 0),
            };
            write!(f, " trouble={name}:{errno}:{}", trouble.after)?;
        }
        f.write_str(" steps=")?;
        for (index, step) in self.steps.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", step.to_string().trim())?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut plan = Self::empty(0, Policy::Honor, Profile::PosixMin);
        for part in line.split_whitespace() {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is no key=value"))?;
            plan.read(key, value)
                .ok_or_else(|| format!("{part:?} is not understood"))?;
        }
        Ok(plan)
    }
}

impl Plan {
    fn read(&mut self, key: &str, value: &str) -> Option<()> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        match key {
            "seed" => self.seed = hex(value)?,
            "policy" => self.policy = value.parse().ok()?,
            "second" => self.second = Some(value.parse().ok()?),
            "profile" => self.profile = profile(value)?,
            "clients" => self.clients = value.parse().ok().filter(|n| (1..=3).contains(n))?,
            "speech" => {
                self.speech = printed([Speech::Signed, Speech::Plain, Speech::Sealed], value)?;
            }
            "pace" => self.pace = printed([Pace::Instant, Pace::Brisk, Pace::Slow], value)?,
            "lag" => self.lag = value == "1",
            "depot" => self.depot = value == "1",
            "rules" => self.rules = value.parse().ok().filter(|set| *set < SETS)?,
            "acl" => self.durable_acl = value == "1",
            "stores" => self.stores = value == "1",
            "end" if value == "done" => self.end = End::Done,
            "end" => self.end = End::Call(value.parse().ok()?),
            "crash" => {
                self.crash = match value {
                    "process" => Crash::Process,
                    "nothing" => Crash::Power(Cut::Nothing),
                    "everything" => Crash::Power(Cut::Everything),
                    seed => Crash::Power(Cut::Seed(hex(seed)?)),
                }
            }
            "trouble" => self.troubles.push(trouble(value)?),
            "steps" => {
                for step in value.split(',').filter(|step| !step.is_empty()) {
                    self.steps.push(step.parse().ok()?);
                }
            }
            _ => return None,
        }
        Some(())
    }
}

fn printed<T: fmt::Debug>(all: [T; 3], name: &str) -> Option<T> {
    all.into_iter().find(|one| format!("{one:?}") == name)
}

/// A profile by its name, as printed or as the design calls it.
pub(super) fn profile(name: &str) -> Option<Profile> {
    Some(match name {
        "PosixMin" | "posix-min" => Profile::PosixMin,
        "Journal" | "journal" => Profile::Journal,
        "LogTree" | "log-tree" => Profile::LogTree,
        _ => return None,
    })
}

fn trouble(value: &str) -> Option<Trouble> {
    let mut parts = value.split(':');
    let (name, errno, after) = (parts.next()?, parts.next()?, parts.next()?);
    let errno: i32 = errno.parse().ok()?;
    let what = match name {
        "sync" => Mischief::Sync(errno),
        "write" => Mischief::Write(errno),
        "change" => Mischief::Change(errno),
        "short" => Mischief::Short,
        "slow" => Mischief::SlowSync,
        "hang" => Mischief::Hang,
        _ => return None,
    };
    Some(Trouble {
        what,
        after: after.parse().ok()?,
    })
}
