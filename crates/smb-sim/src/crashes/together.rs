//! Cases about concurrent events on one inode, and about state that outlives the server.
//!
//! Owns four flavours: several clients write and flush one file at once, changes through write-through opens
//! without a FLUSH after them, a server process that dies with dirty or unproven data, and a write-back of the
//! kernel that fails after the file was changed through two opens. Clients that are to meet wait for each other
//! ([`Kind::Meet`]), and the disk answers late, so that one's change, sync or failure falls between another's and
//! its answer.

use super::{
    flavour::Draw,
    plan::{Mischief, Pace, Plan, Trouble, choose, errno},
    step::{Kind, Step, lot},
};

/// A whole page of the first file.
fn page(kind: Kind, client: u8, number: u8) -> Step {
    Step::new(kind, client, 0, 0).with(number, 0x80)
}

/// A pause of some milliseconds, as the disk takes.
fn moment(client: u8, draw: &mut Draw<'_>) -> Step {
    Step::new(Kind::Pause, client, 0, 0).with(8 + draw.small(4), 0)
}

impl Plan {
    pub(super) fn meet(&mut self, draw: &mut Draw<'_>) {
        self.clients = 2 + usize::from(draw.small(2));
        self.pace = *choose(draw.0, &[Pace::Instant, Pace::Brisk, Pace::Brisk]);
        self.lag = draw.small(8) > 0;
        self.troubles.clear();
        let clients = u8::try_from(self.clients).unwrap_or(1);
        self.steps = draw.beginning();
        self.steps.push(page(Kind::Write, 0, 0));
        self.steps.push(page(Kind::Flush, 0, 0));
        self.everybody(clients, Kind::Meet);
        // Each has its handle before they begin.
        for client in 0..clients {
            self.steps.push(page(Kind::Write, client, 2 * client));
        }
        self.everybody(clients, Kind::Meet);
        match draw.small(3) {
            0 => self.overlap(clients, draw),
            1 => self.change_beside_failure(clients, draw),
            _ => self.crowd(clients, draw),
        }
    }

    /// Each writes and flushes once, about when the others do.
    fn overlap(&mut self, clients: u8, draw: &mut Draw<'_>) {
        for client in 0..clients {
            self.steps.push(moment(client, draw));
            self.steps.push(page(Kind::Write, client, draw.small(4)));
            self.steps.push(page(Kind::Flush, client, 0));
        }
    }

    /// One's sync fails beside another's change. Then all that was dirty before is written again, and
    /// sometimes the change is made again.
    fn change_beside_failure(&mut self, clients: u8, draw: &mut Draw<'_>) {
        const CHANGES: &[Kind] = lot![Write Write Ea Attributes SetSize Rename Rename];
        // Of the file and of the way to it, before, and of the file once more.
        let what = Mischief::Sync(errno(draw.0));
        let after = u16::from(3 + draw.small(2));
        self.troubles.push(Trouble { what, after });
        (self.pace, self.lag) = (Pace::Brisk, true);
        self.steps.push(page(Kind::Flush, 0, 0));
        self.everybody(clients, Kind::Meet);
        let kind = *choose(draw.0, CHANGES);
        let change = draw.first(kind);
        let change = Step([change.0[0], (change.0[1] & !3) | 1, 2, change.b() | 0x80]);
        self.steps.push(page(Kind::Write, 0, 0));
        self.everybody(clients, Kind::Meet);
        if clients > 2 {
            self.steps.push(moment(2, draw));
            let kind = *choose(draw.0, lot![SetSize Rename Rename]);
            let other = draw.first(kind);
            self.steps.push(Step([
                other.0[0],
                (other.0[1] & !3) | 2,
                other.a(),
                other.b(),
            ]));
        }
        self.steps.push(moment(0, draw));
        self.steps.push(page(Kind::Flush, 0, 0));
        self.steps.push(moment(1, draw));
        self.steps.push(change);
        self.everybody(clients, Kind::Meet);
        self.steps.push(page(Kind::Write, 0, 0));
        if draw.small(3) == 0 {
            self.steps.push(change);
        }
        self.everybody(clients, Kind::Meet);
        self.steps.push(page(Kind::Flush, 0, 0));
    }

    /// Each does some of everything, and a sync may fail.
    fn crowd(&mut self, clients: u8, draw: &mut Draw<'_>) {
        const BESIDE: &[Kind] = lot![
            Flush Flush Flush Flush Write Write Write Write SetSize Ea Zero WriteStream FlushStream
            Rename Pause Close
        ];
        for client in 0..clients {
            for _ in 0..2 + draw.small(4) {
                let kind = *choose(draw.0, BESIDE);
                let mut step = draw.first(kind);
                step.0[1] = (step.0[1] & !3) | client;
                if kind == Kind::Pause {
                    step = moment(client, draw);
                }
                let hasty = draw.small(3) == 0;
                self.steps.push(if hasty { step.hasty() } else { step });
            }
        }
        if draw.small(2) == 0 {
            return;
        }
        let what = Mischief::Sync(errno(draw.0));
        let after = u16::from(2 + draw.small(6));
        self.troubles.push(Trouble { what, after });
        // Every client that asks gets it again, with or without the lost data.
        self.everybody(clients, Kind::Meet);
        for _ in 0..1 + draw.small(3) {
            let step = draw.one_of(lot![Flush Flush Write]);
            let again = Step::new(step.kind(), 0, 0, 0).with(step.a(), step.b());
            self.steps.push(again);
        }
        self.steps.push(page(Kind::Flush, 0, 0));
    }

    fn everybody(&mut self, clients: u8, kind: Kind) {
        let steps = (0..clients).map(|client| Step::new(kind, client, 0, 0));
        self.steps.extend(steps);
    }

    pub(super) fn write_through(&mut self, draw: &mut Draw<'_>) {
        const CHANGES: &[Kind] = lot![
            Write Write WriteStream WriteStream SetSize Zero Zero Copy Ea Attributes Times Rename
            Link Remove
        ];
        self.troubles.clear();
        self.steps = draw.beginning();
        if draw.small(4) == 0 {
            // Something lazy, then a write-through that fails and is done again: only that is stable.
            let lazy = Step::new(Kind::Write, 0, 0, 0).with(draw.small(2), 0x80);
            let through = Step::new(Kind::Write, 0, 0, 0)
                .with(2 + draw.small(2), 0x81)
                .flagged();
            let flush = Step::new(Kind::Flush, 0, 0, 0);
            self.steps.extend([flush, lazy, through, through, flush]);
            let what = Mischief::Sync(errno(draw.0));
            // The first FLUSH syncs the file and the way to it.
            let after = u16::from(1 + draw.small(4));
            self.troubles.push(Trouble { what, after });
            return;
        }
        let through = draw.small(4) > 0;
        let zeroed = draw.small(4) == 0;
        if (through || zeroed)
            && let Some(file) = self.steps.last_mut()
        {
            *file = file.flagged();
        }
        if zeroed {
            self.steps.push(page(Kind::Write, 0, 0));
            self.steps.push(page(Kind::Zero, 0, 0));
            return;
        }
        if draw.small(2) == 0 {
            // To copy from.
            self.steps.push(Step::new(Kind::Create, 0, 1, 0).with(4, 0));
            self.steps
                .push(Step::new(Kind::Write, 0, 1, 0).with(0, 0x80));
        }
        let count = 1 + draw.small(3);
        for _ in 0..count {
            let step = draw.one_of(CHANGES);
            let step = if step.kind() == Kind::Copy {
                // Onto the file that is opened so.
                Step::new(Kind::Copy, 0, 1, 0).with(2, step.b())
            } else {
                let first = draw.first(step.kind());
                Step([first.0[0], first.0[1] & !3, step.a(), step.b()])
            };
            self.steps.push(if draw.small(4) > 0 {
                step.flagged()
            } else {
                step
            });
        }
    }

    pub(super) fn restart(&mut self, draw: &mut Draw<'_>) {
        const CHANGES: &[Kind] = lot![Write Write Write WriteStream Ea SetSize Rename Flush];
        const AFTER: &[Kind] = lot![Flush Flush Write Close FlushDir];
        self.clients = 1;
        self.stores = true;
        self.troubles.clear();
        self.steps = draw.beginning();
        self.steps.push(draw.first(Kind::Write));
        for _ in 0..draw.small(3) {
            self.steps.push(draw.one_of(CHANGES));
        }
        if draw.small(3) > 0 {
            self.steps.push(draw.first(Kind::Write));
            self.steps.push(draw.first(Kind::Flush));
            let what = Mischief::Sync(errno(draw.0));
            let after = u16::from(draw.small(3));
            self.troubles.push(Trouble { what, after });
        }
        self.steps.push(Step::new(Kind::Kill, 0, 0, 0));
        for _ in 0..draw.small(3) {
            self.steps.push(draw.one_of(AFTER));
        }
        self.steps.push(draw.first(Kind::Flush));
    }

    pub(super) fn lose(&mut self, draw: &mut Draw<'_>) {
        const METADATA: &[Kind] = lot![BareAttributes BareAttributes Ea Rename];
        self.troubles.clear();
        self.steps = draw.beginning();
        // Nothing is dirty, and the file has no open.
        if draw.small(4) > 0 {
            self.steps.push(Step::new(Kind::Flush, 0, 0, 0));
        }
        let kind = *choose(draw.0, METADATA);
        self.steps.push(draw.first(kind));
        self.steps.push(draw.first(Kind::Write));
        if draw.small(3) == 0 {
            self.steps.push(draw.first(Kind::Write));
        }
        let lost = Step::new(Kind::WriteBack, 0, 0, 0);
        self.steps.push(if draw.small(4) > 0 {
            lost.flagged()
        } else {
            lost
        });
        for _ in 0..draw.small(3) {
            self.steps.push(draw.one_of(lot![Write Close Flush]));
        }
        self.steps.push(draw.first(Kind::Flush));
        for _ in 0..draw.small(2) {
            self.steps.push(draw.first(Kind::Flush));
        }
    }
}
