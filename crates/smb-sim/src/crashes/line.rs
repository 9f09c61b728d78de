//! A case as a line of text, with which it is replayed.

use std::{fmt, str::FromStr};

use durability::Policy;
use vfs::sim::{Cut, Profile};

use super::{
    ledger::SETS,
    plan::{Crash, End, Mischief, Pace, Plan, Speech, Trouble},
};

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
        let settings = [
            ("nested=1 ", self.nested),
            ("lag=1 ", self.lag),
            ("acl=1 ", self.durable_acl),
            ("times=0 ", !self.flush_times[0]),
            ("times2=0 ", !self.flush_times[1]),
            ("fullsync=0 ", self.ignore_full_sync),
            ("stores=1 ", self.stores),
        ];
        for (text, _) in settings.iter().filter(|(_, differs)| *differs) {
            f.write_str(text)?;
        }
        if self.rules > 0 {
            write!(f, "rules={} ", self.rules)?;
        }
        if let Some(on) = self.rule_times {
            write!(f, "ruletimes={} ", u8::from(on))?;
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
            "nested" => self.nested = value == "1",
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
            "times" => self.flush_times[0] = value == "1",
            "times2" => self.flush_times[1] = value == "1",
            "ruletimes" => self.rule_times = Some(value == "1"),
            "fullsync" => self.ignore_full_sync = value == "0",
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
fn profile(name: &str) -> Option<Profile> {
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
