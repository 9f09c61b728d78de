//! The subjects of the random cases.
//!
//! The case of seed S has flavour S modulo [`Flavour::ALL`]'s length, so that many cases in a row cover each
//! flavour, wherever the row begins. Some cases are entirely random; the others are short, on few files, and end
//! when all is done and something was promised, which most crash bugs need. Each of these asks one question often:
//! the order of names and data, the traces of a failure, streams beside files, the changes that are stable without
//! a request, and whether promised data are still found when the directories above them move and disappear. The
//! cases in which several clients use one file, or the server starts again, are in `together.rs`, and those whose steps
//! depend on each other in `chain.rs`.

use vfs::sim::Cut;

use super::{
    plan::{Crash, End, Mischief, Pace, Plan, Trouble, choose, errno},
    step::{Kind, Step, lot},
    world::NAMES,
};
use vfs::sim::SimRng;

/// The subject of a random case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    /// Long, and everything by chance.
    Anything,
    /// Many changes and promises on few names.
    Dense,
    /// A file that has a promised name is renamed into another directory.
    Names,
    /// Rounds of changes and a promise, of which one fails; then more promises are asked for.
    Failures,
    /// Named streams, flushed by themselves.
    Streams,
    /// Changes, a rest, and nobody asks for a promise.
    Rest,
    /// Files and directories move through directories that go, while others are synced.
    Ways,
    /// Several clients write and flush one file at once.
    Together,
    /// Changes through a write-through open, and no FLUSH after them.
    Through,
    /// The server's process dies, after a failure or with dirty data.
    Restart,
    /// The kernel fails to write back what was changed through more than one open.
    WriteBack,
    /// Each step changes what the one before it left.
    Chain,
}

impl Flavour {
    const ALL: [Self; 16] = [
        Self::Anything,
        Self::Failures,
        Self::Together,
        Self::Dense,
        Self::Names,
        Self::Through,
        Self::Ways,
        Self::Streams,
        Self::Together,
        Self::Restart,
        Self::Failures,
        Self::WriteBack,
        Self::Together,
        Self::Rest,
        Self::Chain,
        Self::Chain,
    ];

    pub(super) fn of(seed: u64) -> Self {
        let at = usize::try_from(seed % Self::ALL.len() as u64).unwrap_or(0);
        Self::ALL[at]
    }
}

/// Steps by chance.
pub(super) struct Draw<'a>(pub(super) &'a mut SimRng);

impl Draw<'_> {
    pub(super) fn small(&mut self, limit: u64) -> u8 {
        u8::try_from(self.0.below(limit)).unwrap_or(0)
    }

    /// On the first file slot mostly, in the root or one directory.
    pub(super) fn step(&mut self, kind: Kind) -> Step {
        let mut step = Step::new(kind, self.small(2), self.small(4) / 3, self.small(2));
        if self.small(5) == 0 {
            step = step.flagged();
        }
        step.with(self.small(256), self.small(256))
    }

    pub(super) fn one_of(&mut self, kinds: &[Kind]) -> Step {
        let kind = *choose(self.0, kinds);
        self.step(kind)
    }

    /// On the file that a plan begins with.
    pub(super) fn first(&mut self, kind: Kind) -> Step {
        let mut step = self.step(kind);
        step.0[1] &= !(3 << 2);
        step
    }

    /// On the first file slot, in any directory.
    fn anywhere(&mut self, kind: Kind) -> Step {
        let mut step = self.first(kind);
        step.0[1] = step.0[1] & !(3 << 4) | self.small(3) << 4;
        step
    }

    /// A directory, and a file in it or beside it.
    pub(super) fn beginning(&mut self) -> Vec<Step> {
        let (dir, file) = (self.step(Kind::MakeDir), self.first(Kind::Create));
        // Made by one client, under two names.
        let file = file.with(dir.b().wrapping_add(1) % NAMES, file.b());
        let mut steps = vec![dir.with(0, dir.b() % NAMES), file];
        steps.iter_mut().for_each(|step| step.0[1] &= !3);
        steps
    }
}

impl Plan {
    /// Makes a case short, and about one thing.
    pub(super) fn season(&mut self, flavour: Flavour, rng: &mut SimRng) {
        self.clients = *choose(rng, &[1, 1, 1, 1, 1, 2]);
        if rng.below(2) == 0 {
            self.rules = 0;
        }
        self.troubles
            .retain(|trouble| matches!(trouble.what, Mischief::Sync(_)));
        self.troubles.truncate(1);
        for trouble in &mut self.troubles {
            trouble.after %= 5;
        }
        match flavour {
            Flavour::Anything | Flavour::Dense => self.condense(&mut Draw(rng)),
            Flavour::Names => self.rename(&mut Draw(rng)),
            Flavour::Failures => self.fail(&mut Draw(rng)),
            Flavour::Streams => self.stream(&mut Draw(rng)),
            Flavour::Rest => self.rest(&mut Draw(rng)),
            Flavour::Ways => self.pass(&mut Draw(rng)),
            Flavour::Together => self.meet(&mut Draw(rng)),
            Flavour::Through => self.write_through(&mut Draw(rng)),
            Flavour::Restart => self.restart(&mut Draw(rng)),
            Flavour::WriteBack => self.lose(&mut Draw(rng)),
            Flavour::Chain => self.chain(&mut Draw(rng)),
        }
        // A state that is in order at the end need not have been so on the way there.
        let amid = match flavour {
            Flavour::Ways | Flavour::Chain => rng.below(2) == 0,
            Flavour::Together => rng.below(4) == 0,
            _ => false,
        };
        self.end = match amid {
            true => End::Call(60 + u32::try_from(rng.below(120)).unwrap_or(0)),
            false => End::Done,
        };
        self.crash = match rng.below(4) {
            0 => Crash::Power(Cut::Seed(rng.draw())),
            _ => Crash::Power(Cut::Nothing),
        };
    }

    fn condense(&mut self, draw: &mut Draw<'_>) {
        const KINDS: &[Kind] = lot![
            Write Write Write Flush Flush Flush Rename Rename Rename WriteStream WriteStream
            FlushStream Ea Attributes SetSize Create MoveDir Close Security Policy
        ];
        let count = 3 + draw.small(8);
        self.steps = draw.beginning();
        self.steps.extend((0..count).map(|_| draw.one_of(KINDS)));
        if draw.small(8) > 0 {
            // Each kind of change has to be the last one before a promise now and then.
            let change = *choose(draw.0, lot![Write Ea Attributes Times SetSize]);
            self.steps.push(draw.first(change));
            let last = *choose(draw.0, lot![Flush Flush FlushStream]);
            self.steps.push(Step::new(last, 0, 0, 0));
        }
    }

    fn rename(&mut self, draw: &mut Draw<'_>) {
        const CHANGES: &[Kind] = lot![Write Rename Link Create Remove MakeDir MoveDir Close];
        if draw.small(4) > 0 {
            self.troubles.clear();
        }
        self.steps = draw.beginning();
        let home = self.steps[1];
        if draw.small(2) == 0 {
            self.steps.push(draw.first(Kind::Write));
        }
        let promise = *choose(draw.0, lot![Flush FlushRoot FlushRoot]);
        self.steps.push(draw.first(promise));
        if draw.small(2) == 0 {
            self.steps.push(draw.one_of(CHANGES));
        }
        let mut moved = draw.first(Kind::Rename);
        moved.0[1] = (moved.0[1] & !(3 << 4)) | ((home.0[1] & (1 << 4)) ^ (1 << 4));
        // To a name that is free but for what changed since.
        let moved = moved.with(home.a().wrapping_add(1) % NAMES, moved.b());
        self.steps.push(moved);
        if draw.small(3) == 0 {
            self.steps.push(draw.one_of(CHANGES));
        } else {
            let what = *choose(draw.0, lot![Ea Attributes Times]);
            self.steps.push(draw.first(what));
        }
        let promise = *choose(draw.0, lot![Flush Flush Flush FlushDir]);
        self.steps.push(draw.first(promise));
    }

    fn fail(&mut self, draw: &mut Draw<'_>) {
        const CHANGES: &[Kind] = lot![
            Write Write Write Write WriteStream SetSize Zero Copy Ea Rename
        ];
        const PROMISES: &[Kind] = lot![Flush Flush Flush Flush FlushStream FlushDir];
        // They see the error again through the same handle or a new one, or rewrite what was lost.
        const MORE: &[Kind] = lot![Flush Flush Flush Write Close FlushRoot Disconnect SetSize];
        let rounds = 1 + draw.small(2);
        self.steps = draw.beginning();
        for _ in 0..rounds {
            self.steps.push(draw.first(Kind::Write));
            for _ in 0..draw.small(3) {
                self.steps.push(draw.one_of(CHANGES));
            }
            let promise = *choose(draw.0, PROMISES);
            self.steps.push(draw.first(promise));
        }
        let (what, within) = match draw.small(8) {
            0 => (Mischief::Write(errno(draw.0)), 3),
            1 => (Mischief::Short, 3),
            _ => (Mischief::Sync(errno(draw.0)), 2 * u64::from(rounds)),
        };
        let after = u16::from(draw.small(within));
        self.troubles = vec![Trouble { what, after }];
        if draw.small(6) == 0 {
            // The kernel fails by itself, before somebody asks.
            self.troubles.clear();
            let at = self.steps.len() - 1;
            self.steps.insert(at, Step::new(Kind::WriteBack, 0, 0, 0));
        }
        for _ in 0..draw.small(4) {
            self.steps.push(draw.one_of(MORE));
        }
    }

    fn stream(&mut self, draw: &mut Draw<'_>) {
        const CHANGES: &[Kind] = lot![
            Write WriteStream WriteStream Flush FlushStream RemoveStream Rename Close Attributes
            MoveDir
        ];
        if draw.small(2) == 0 {
            self.troubles.clear();
        }
        self.depot = draw.small(3) == 0;
        self.steps = draw.beginning();
        for _ in 0..draw.small(4) {
            self.steps.push(draw.one_of(CHANGES));
        }
        self.steps.push(draw.first(Kind::WriteStream));
        if draw.small(3) == 0 {
            self.steps.push(draw.one_of(CHANGES));
        }
        self.steps.push(draw.first(Kind::FlushStream));
    }

    fn pass(&mut self, draw: &mut Draw<'_>) {
        const CHANGES: &[Kind] = lot![
            Rename Rename Rename Rename Rename RemoveDir RemoveDir RemoveDir MoveDir MoveDir MoveDir
            Link Remove Write Flush FlushDir
        ];
        const PROMISES: &[Kind] = lot![Flush Flush FlushDir FlushDir];
        if draw.small(2) == 0 {
            self.troubles.clear();
        }
        self.pace = *choose(draw.0, &[Pace::Instant, Pace::Brisk, Pace::Slow]);
        // Both directories, the second in the root or in the first, and a file somewhere.
        let nested = draw.small(3) / 2;
        self.steps = vec![
            Step::new(Kind::MakeDir, 0, 0, 1).with(0, 0),
            Step::new(Kind::MakeDir, 0, 0, 2).with(nested, 1),
            Step::new(Kind::Create, 0, 0, draw.small(3)).with(2, 0),
        ];
        if draw.small(4) > 0 {
            self.steps.push(Step::new(Kind::Flush, 0, 0, 0));
        }
        for _ in 0..2 + draw.small(5) {
            if draw.small(2) == 0 {
                // An open below a directory keeps it in its place.
                self.steps.push(Step::new(Kind::Close, 0, 0, 0));
            }
            let kind = *choose(draw.0, CHANGES);
            let step = draw.anywhere(kind);
            let hasty = draw.small(4) == 0;
            self.steps.push(if hasty { step.hasty() } else { step });
        }
        for _ in 0..1 + draw.small(3) {
            let kind = *choose(draw.0, PROMISES);
            self.steps.push(draw.anywhere(kind));
        }
    }

    fn rest(&mut self, draw: &mut Draw<'_>) {
        const CHANGES: &[Kind] = lot![
            Write Write Write Write WriteStream SetSize Ea Attributes Rename Link Close Flush
        ];
        if draw.small(3) > 0 {
            self.troubles.clear();
        }
        self.pace = *choose(draw.0, &[Pace::Instant, Pace::Brisk]);
        self.steps = draw.beginning();
        if draw.small(4) == 0 {
            // To the policy that promises nothing and back: then what came between is stable.
            let policy = |number| Step::new(Kind::Policy, 0, 0, 0).with(number, 0);
            self.steps.push(policy(3));
            self.steps.push(draw.first(Kind::Write));
            self.steps.push(draw.one_of(CHANGES));
            self.steps.push(policy(draw.small(2)));
            return;
        }
        for _ in 0..1 + draw.small(6) {
            self.steps.push(draw.one_of(CHANGES));
        }
        // Longer than the bound of `bounded`, or than the age at which everything is synced.
        let pause = match draw.small(6) {
            0 => draw.small(8),
            _ => 255 - draw.small(120),
        };
        let pause = Step::new(Kind::Pause, 0, 0, 0).with(pause, 0);
        self.steps.push(pause);
        for _ in 0..draw.small(3) {
            self.steps.push(draw.one_of(CHANGES));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_flavour_comes_up_in_any_row_of_cases() {
        for first in [0, 5, 1003, 70_260_362] {
            let row = (first..first + 16).map(|seed| format!("{:?}", Flavour::of(seed)));
            assert_eq!(row.collect::<BTreeSet<_>>().len(), 12);
        }
    }
}
