//! Byte-range locks compared with a model of single bytes.

use proptest::prelude::*;
use smb_wire::msg::{LockElement, LockFlags};

use super::*;

const OPENS: usize = 3;

#[derive(Debug, Clone)]
enum Op {
    Lock {
        open: usize,
        offset: u64,
        length: u64,
        exclusive: bool,
        blocking: bool,
    },
    Pair {
        open: usize,
        first: (u64, u64, bool),
        second: (u64, u64, bool),
    },
    Unlock {
        open: usize,
        nth: usize,
    },
    UnlockAt {
        open: usize,
        offset: u64,
        length: u64,
    },
    Cancel {
        nth: usize,
    },
    Io {
        open: usize,
        offset: u64,
        length: u64,
        write: bool,
    },
    Close {
        open: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let open = 0..OPENS;
    let offset = prop_oneof![9 => 0u64..10, 1 => u64::MAX - 2..=u64::MAX];
    let range = (offset, 0u64..5);
    let part = (0u64..10, 0u64..5, any::<bool>());
    prop_oneof![
        8 => (open.clone(), range.clone(), any::<bool>(), any::<bool>()).prop_map(
            |(open, (offset, length), exclusive, blocking)| Op::Lock {
                open, offset, length, exclusive, blocking
            }
        ),
        2 => (open.clone(), part.clone(), part)
            .prop_map(|(open, first, second)| Op::Pair { open, first, second }),
        6 => (open.clone(), 0..8usize).prop_map(|(open, nth)| Op::Unlock { open, nth }),
        2 => (open.clone(), range.clone())
            .prop_map(|(open, (offset, length))| Op::UnlockAt { open, offset, length }),
        1 => (0..4usize).prop_map(|nth| Op::Cancel { nth }),
        6 => (open.clone(), range, any::<bool>()).prop_map(
            |(open, (offset, length), write)| Op::Io { open, offset, length, write }
        ),
        1 => open.prop_map(|open| Op::Close { open }),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Lock {
    open: OpenId,
    offset: u64,
    length: u64,
    exclusive: bool,
}

/// The bytes of a range, in a space where it cannot overflow.
fn bytes(offset: u64, length: u64) -> impl Iterator<Item = u128> + Clone {
    let first = u128::from(offset);
    first..first + u128::from(length)
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    let inside = |point: u64, (offset, length): (u64, u64)| {
        // Strictly inside: between two bytes of the range.
        let mut inner = bytes(offset, length).skip(1);
        inner.any(|byte| byte == u128::from(point))
    };
    match (a.1, b.1) {
        (0, 0) => false,
        (0, _) => inside(a.0, b),
        (_, 0) => inside(b.0, a),
        _ => bytes(a.0, a.1).any(|byte| bytes(b.0, b.1).any(|other| byte == other)),
    }
}

#[derive(Default)]
struct Model {
    held: Vec<Lock>,
    waiting: Vec<(WaiterId, Lock)>,
}

impl Model {
    fn free(&self, wanted: &Lock) -> bool {
        !self.held.iter().any(|held| {
            let both_shared = !held.exclusive && !wanted.exclusive;
            let stacks = held.open == wanted.open && !wanted.exclusive && held.exclusive;
            !both_shared
                && !stacks
                && overlap((held.offset, held.length), (wanted.offset, wanted.length))
        })
    }

    fn released(&mut self) -> Vec<WaiterId> {
        let mut granted = Vec::new();
        for (waiter, wanted) in std::mem::take(&mut self.waiting) {
            if self.free(&wanted) {
                self.held.push(wanted);
                granted.push(waiter);
            } else {
                self.waiting.push((waiter, wanted));
            }
        }
        granted
    }

    fn io(&self, open: OpenId, offset: u64, length: u64, write: bool) -> bool {
        !self.held.iter().any(|held| {
            let bars = if held.exclusive {
                held.open != open
            } else {
                write
            };
            bars && overlap((held.offset, held.length), (offset, length))
        })
    }
}

struct Run {
    rig: Rig,
    opens: Vec<OpenRequest>,
    model: Model,
}

impl Run {
    fn lock(&self, open: OpenId, elements: &[LockElement]) -> (Locking, Effects, WaiterId) {
        let waiter = WaiterId(self.rig.number());
        let (locking, effects) =
            self.rig
                .files
                .lock(&place(1), open, elements, None, waiter, LockBounds::ANY);
        (locking, effects, waiter)
    }

    fn take(&mut self, wanted: Lock, blocking: bool) {
        let kind = if wanted.exclusive {
            LockFlags::EXCLUSIVE
        } else {
            LockFlags::SHARED
        };
        let flags = kind | LockFlags::FAIL_IMMEDIATELY.when(!blocking);
        let element = LockElement {
            offset: wanted.offset,
            length: wanted.length,
            flags,
        };
        let (locking, effects, waiter) = self.lock(wanted.open, &[element]);
        assert!(effects.is_empty());
        let end = u128::from(wanted.offset) + u128::from(wanted.length);
        let expected = if wanted.length > 0 && end > 1 << 64 {
            Locking::Done(Status::INVALID_LOCK_RANGE)
        } else if self.model.free(&wanted) {
            self.model.held.push(wanted);
            Locking::Done(Status::SUCCESS)
        } else if blocking {
            self.model.waiting.push((waiter, wanted));
            Locking::Pending
        } else {
            Locking::Done(Status::LOCK_NOT_GRANTED)
        };
        assert_eq!(locking, expected);
    }

    fn pair(&mut self, open: OpenId, parts: [(u64, u64, bool); 2]) {
        let elements = parts.map(|(offset, length, exclusive)| {
            let kind = if exclusive {
                LockFlags::EXCLUSIVE
            } else {
                LockFlags::SHARED
            };
            LockElement {
                offset,
                length,
                flags: kind | LockFlags::FAIL_IMMEDIATELY,
            }
        });
        let before = self.model.held.clone();
        let mut expected = Status::SUCCESS;
        for (offset, length, exclusive) in parts {
            let wanted = Lock {
                open,
                offset,
                length,
                exclusive,
            };
            if !self.model.free(&wanted) {
                self.model.held = before;
                expected = Status::LOCK_NOT_GRANTED;
                break;
            }
            self.model.held.push(wanted);
        }
        assert_eq!(self.lock(open, &elements).0, Locking::Done(expected));
    }

    fn unlock(&mut self, open: OpenId, offset: u64, length: u64) {
        let element = LockElement {
            offset,
            length,
            flags: LockFlags::UNLOCK,
        };
        let (locking, effects, _) = self.lock(open, &[element]);
        let exact = |exclusive| Lock {
            open,
            offset,
            length,
            exclusive,
        };
        let at = [true, false].into_iter().find_map(|exclusive| {
            self.model
                .held
                .iter()
                .position(|held| *held == exact(exclusive))
        });
        let end = u128::from(offset) + u128::from(length);
        let expected = match at {
            Some(at) => {
                self.model.held.remove(at);
                Status::SUCCESS
            }
            None if length > 0 && end > 1 << 64 => Status::INVALID_LOCK_RANGE,
            None => Status::RANGE_NOT_LOCKED,
        };
        assert_eq!(locking, Locking::Done(expected));
        self.woken(&effects);
    }

    fn woken(&mut self, effects: &Effects) {
        let granted: Vec<Wake> = self
            .model
            .released()
            .into_iter()
            .map(|waiter| Wake {
                waiter,
                outcome: Outcome::Locked,
            })
            .collect();
        assert_eq!(effects.wakes, granted);
    }

    fn close(&mut self, at: usize) {
        let closing = self.opens[at].open;
        let closed = self.rig.close(&self.opens[at]);
        let own = self
            .model
            .waiting
            .iter()
            .filter(|(_, lock)| lock.open == closing)
            .count();
        self.model.held.retain(|held| held.open != closing);
        self.model.waiting.retain(|(_, lock)| lock.open != closing);
        let (failed, rest) = closed.effects.wakes.split_at(own);
        let gone = Outcome::Failed(Status::RANGE_NOT_LOCKED);
        assert!(failed.iter().all(|wake| wake.outcome == gone));
        let rest = Effects {
            wakes: rest.to_vec(),
            ..Effects::default()
        };
        self.woken(&rest);
        self.opens[at] = self.rig.request(1, READ | WRITE);
        self.rig.open(&self.opens[at]);
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Lock {
                open,
                offset,
                length,
                exclusive,
                blocking,
            } => {
                let open = self.opens[open].open;
                self.take(
                    Lock {
                        open,
                        offset,
                        length,
                        exclusive,
                    },
                    blocking,
                );
            }
            Op::Pair {
                open,
                first,
                second,
            } => self.pair(self.opens[open].open, [first, second]),
            Op::Unlock { open, nth } => {
                let open = self.opens[open].open;
                let mut mine = self.model.held.iter().filter(|held| held.open == open);
                if let Some(lock) = mine.nth(nth).copied() {
                    self.unlock(open, lock.offset, lock.length);
                }
            }
            Op::UnlockAt {
                open,
                offset,
                length,
            } => {
                self.unlock(self.opens[open].open, offset, length);
            }
            Op::Cancel { nth } => {
                if nth < self.model.waiting.len() {
                    let (waiter, lock) = self.model.waiting.remove(nth);
                    let withdrawn = self.rig.files.withdraw_lock(&place(1), lock.open, waiter);
                    assert_eq!(withdrawn, Withdrawal::InTime);
                }
            }
            Op::Io {
                open,
                offset,
                length,
                write,
            } => {
                let open = self.opens[open].open;
                let free = length == 0 || self.model.io(open, offset, length, write);
                let checked = self
                    .rig
                    .files
                    .check_io(&place(1), open, offset, length, write);
                assert_eq!(checked.is_ok(), free);
            }
            Op::Close { open } => self.close(open),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases())
    })]

    #[test]
    fn locks_match_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let rig = Rig::new();
        let opens: Vec<OpenRequest> = (0..OPENS).map(|_| rig.request(1, READ | WRITE)).collect();
        for request in &opens {
            rig.open(request);
        }
        let mut run = Run { rig, opens, model: Model::default() };
        for op in &ops {
            run.step(op);
        }
        for request in &run.opens {
            let _ = run.rig.close(request);
        }
        assert!(run.rig.files.is_empty());
    }
}
