//! A case as plain data, and how it is drawn.

use std::time::Duration;

use durability::{Bound, Policy};
use vfs::sim::{Cut, Profile};

use super::{
    flavour::Flavour,
    ledger::SETS,
    step::{Kind, Step},
};
use vfs::sim::SimRng;

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
    /// The second share lies over a folder in that of the first.
    pub nested: bool,
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
    /// Whether a FLUSH covers times, by the setting of the first and of the second share.
    pub flush_times: [bool; 2],
    /// The same setting of each rule but those to `strict-sync`; `None`: as the share has it.
    pub rule_times: Option<bool>,
    /// A full sync counts as a FLUSH.
    pub ignore_full_sync: bool,
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
            nested: false,
            profile,
            clients: 1,
            speech: Speech::Plain,
            pace: Pace::Instant,
            lag: false,
            depot: false,
            rules: 0,
            durable_acl: false,
            flush_times: [true; 2],
            rule_times: None,
            ignore_full_sync: false,
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

    /// The policies that a reload brings into force: two of them have other bounds.
    pub(super) fn reloads() -> [Policy; 6] {
        let [honor, strict, bounded, host] = Self::policies();
        let other = |millis, max_bytes| {
            Policy::Bounded(Bound {
                max_delay: Duration::from_millis(millis),
                max_bytes,
            })
        };
        let (tighter, looser) = (other(20, BOUND_BYTES), other(2_000, 1 << 20));
        [honor, strict, bounded, host, tighter, looser]
    }

    /// The case of a seed, of which the flavour comes in turn; policy and profile by chance unless given. One in six
    /// has a second share, and one in eight a reload.
    pub fn random(seed: u64, policy: Option<Policy>, profile: Option<Profile>) -> Self {
        let mut plan = Self::of_one_share(seed, policy, profile);
        let mut rng = SimRng::new(seed ^ 0x0073_6563_6f6e_6421);
        if rng.below(6) == 0 {
            plan.add_share(*choose(&mut rng, &Self::policies()), seed);
            if rng.below(3) > 0 {
                plan.nest(rng.below(3) > 0);
            }
        }
        if rng.below(8) == 0 {
            for _ in 0..=rng.below(2) {
                plan.add_reload(&mut rng);
            }
        }
        plan.vary_flushes(seed);
        plan
    }

    /// Sets what a FLUSH covers, by chance, in a quarter of the cases otherwise than by default.
    fn vary_flushes(&mut self, seed: u64) {
        let mut rng = SimRng::new(seed ^ 0x0066_6c75_7368_6573);
        let mut rarely = || rng.below(4) == 0;
        self.ignore_full_sync = rarely();
        self.flush_times = [!rarely(), self.second.is_none() || !rarely()];
        if self.rules > 0 && rng.below(2) == 0 {
            self.rule_times = Some(rng.below(2) == 0);
        }
    }

    /// Has the second share lie over a folder in that of the first; with `used`, everything that was to be in the
    /// first directory is in that folder.
    pub fn nest(&mut self, used: bool) {
        self.nested = true;
        for step in self.steps.iter_mut().filter(|step| used && step.dir() == 1) {
            *step = step.in_dir(2);
        }
    }

    fn add_reload(&mut self, rng: &mut SimRng) {
        let at = rng.index(self.steps.len() + 1);
        let [client, policy, pause] = [3, 6, 256].map(|limit| narrow(rng.below(limit)));
        let mut step = Step::new(Kind::Reload, client, 0, 0).with(policy, pause);
        if rng.below(2) == 0 {
            step = step.flagged();
        }
        if self.second.is_some() && rng.below(2) == 0 {
            step = step.second();
        }
        self.steps.insert(at, step);
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
            || (self.steps.iter()).any(|step| matches!(step.kind(), Kind::Policy | Kind::Reload))
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
