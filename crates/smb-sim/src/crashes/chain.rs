//! Cases of dependent steps: each changes what the one before it left.
//!
//! There are two files under names of their own, both perhaps promised. A few changes follow, each of the first file,
//! of the one that it replaced, or of the name that it left; then a promise is asked for, and sometimes one more change
//! comes after it.

use super::{
    flavour::Draw,
    plan::{Pace, Plan, choose},
    step::{Kind, Step, lot},
    world::Place,
};

/// Where the two files are, and the name that one of them left last.
struct Chain {
    steps: Vec<Step>,
    /// The first file's name.
    at: Place,
    /// The second's.
    beside: Place,
    left: Option<Place>,
}

/// A step on a file slot and a name.
fn named(kind: Kind, file: u8, (dir, name): Place) -> Step {
    let dir = u8::try_from(dir).unwrap_or(0);
    // CREATE reads the name from the first number, and what moves or links reads it from the second.
    Step::new(kind, 0, file, dir).with(name, name)
}

impl Plan {
    pub(super) fn chain(&mut self, draw: &mut Draw<'_>) {
        const AFTER: &[Kind] = lot![
            Write WriteStream RemoveStream Ea Security Attributes SetSize Supersede Rename Close
        ];
        if draw.small(4) > 0 {
            self.troubles.clear();
        }
        self.pace = *choose(draw.0, &[Pace::Instant, Pace::Instant, Pace::Brisk]);
        let [at, beside] = [0, 1].map(|name| (usize::from(draw.small(3)), name));
        let mut chain = Chain {
            steps: vec![
                Step::new(Kind::MakeDir, 0, 0, 2).with(0, 4),
                Step::new(Kind::MakeDir, 0, 0, 1).with(2 * (draw.small(3) / 2), 3),
                named(Kind::Create, 0, at),
                named(Kind::Create, 1, beside),
            ],
            at,
            beside,
            left: None,
        };
        for file in 0..draw.small(3) {
            chain.on(Kind::Write, file, draw);
        }
        match draw.small(4) {
            0 => chain.steps.push(Step::new(Kind::FlushRoot, 0, 0, 0)),
            1 => chain.steps.push(Step::new(Kind::Flush, 0, 0, 0)),
            2 => chain.steps.push(Step::new(Kind::Flush, 0, 1, 0)),
            _ => {}
        }
        for _ in 0..3 {
            chain.change(draw);
        }
        chain.promise(draw);
        if draw.small(3) == 0 {
            chain.on(*choose(draw.0, AFTER), 0, draw);
            if draw.small(2) == 0 {
                chain.promise(draw);
            }
        }
        self.steps = chain.steps;
    }
}

impl Chain {
    /// A step of this kind on a file, in the directory of the first.
    fn on(&mut self, kind: Kind, file: u8, draw: &mut Draw<'_>) {
        let mut step = named(kind, file, self.at).with(draw.small(256), draw.small(256));
        if draw.small(6) == 0 {
            step = step.flagged();
        }
        self.steps.push(step);
    }

    fn change(&mut self, draw: &mut Draw<'_>) {
        const CONTENTS: &[Kind] = lot![
            Write Write SetSize SetSize Zero Sparse WriteStream RemoveStream Ea Attributes Times
            Security Supersede Copy Duplicate Close
        ];
        let free: Place = (usize::from(draw.small(3)), 2);
        match draw.small(12) {
            0 | 1 => {
                // Over the second file, of which then only the name is there.
                self.steps.push(Step::new(Kind::Close, 0, 1, 0));
                self.rename(self.beside);
            }
            2 => self.rename(free),
            3 => self.rename(self.left.unwrap_or(free)),
            4 => {
                // A new file under the name that was left, or a further one.
                let place = self.left.take().unwrap_or(free);
                let file = 1 + draw.small(2);
                self.steps.push(named(Kind::Create, file, place));
                self.on(Kind::Write, file, draw);
            }
            5 => {
                let link = draw.small(2) == 0;
                self.steps.push(named(Kind::Link, 0, free));
                if link {
                    self.on(Kind::Remove, 0, draw);
                }
            }
            6 => {
                let kind = *choose(draw.0, lot![Remove RemoveLater]);
                self.on(kind, 0, draw);
                self.steps.push(named(Kind::Create, 0, self.at));
                self.on(Kind::Write, 0, draw);
            }
            7 => {
                // The directories move as a whole, which no open below them may hinder.
                self.steps.push(Step::new(Kind::Close, 0, 0, 0));
                self.steps.push(Step::new(Kind::Close, 0, 1, 0));
                let dir = 1 + draw.small(2);
                let moved = Step::new(Kind::MoveDir, 0, 0, dir);
                self.steps.push(moved.with(draw.small(3), draw.small(5)));
            }
            8 => {
                let other = 1 + draw.small(2);
                self.on(*choose(draw.0, CONTENTS), other, draw);
            }
            _ => self.on(*choose(draw.0, CONTENTS), 0, draw),
        }
    }

    fn rename(&mut self, to: Place) {
        self.steps.push(named(Kind::Rename, 0, to).flagged());
        self.left = Some(std::mem::replace(&mut self.at, to));
    }

    fn promise(&mut self, draw: &mut Draw<'_>) {
        const PROMISES: &[Kind] = lot![Flush Flush Flush Flush FlushStream FlushDir FlushRoot];
        let kind = *choose(draw.0, PROMISES);
        let file = draw.small(5).saturating_sub(2);
        let place = self.left.filter(|_| draw.small(2) == 0);
        self.steps.push(named(kind, file, place.unwrap_or(self.at)));
    }
}
