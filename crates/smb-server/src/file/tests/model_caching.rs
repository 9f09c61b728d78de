//! Oplocks and leases under random operations, as the clients see them.
//!
//! The harness believes only what it receives: grants, notifications, answers to its acknowledgments. After every
//! step it checks that no two beliefs contradict each other, that epochs only grow, and that every parked request
//! has a break in flight to wait for.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Open {
        file: u64,
        access: u8,
        share: u32,
        overwrite: bool,
        cache: Cache,
        doomed: bool,
    },
    Close {
        nth: usize,
    },
    Operate {
        nth: usize,
        operation: Operation,
    },
    Stranger {
        file: u64,
        operation: Operation,
    },
    Acknowledge {
        nth: usize,
        keep: u32,
    },
    TimeOut {
        nth: usize,
    },
    Cancel {
        nth: usize,
    },
}

#[derive(Debug, Clone, Copy)]
enum Cache {
    None,
    Oplock(OplockLevel),
    Lease(u8, u32),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => Just(Operation::Write),
        1 => Just(Operation::SetSize),
        1 => Just(Operation::Read),
        2 => Just(Operation::Rename),
        1 => Just(Operation::Delete),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let cache = prop_oneof![
        1 => Just(Cache::None),
        2 => prop_oneof![
            Just(OplockLevel::II),
            Just(OplockLevel::EXCLUSIVE),
            Just(OplockLevel::BATCH)
        ]
        .prop_map(Cache::Oplock),
        6 => (1u8..4, 0u32..8).prop_map(|(n, state)| Cache::Lease(n, state)),
    ];
    let share = prop_oneof![4 => Just(7u32), 1 => 0u32..8];
    let overwrite = prop::bool::weighted(0.15);
    let doomed = prop::bool::weighted(0.03);
    prop_oneof![
        8 => (1u64..3, 0u8..5, share, overwrite, cache, doomed).prop_map(
            |(file, access, share, overwrite, cache, doomed)| Op::Open {
                file, access, share, overwrite, cache, doomed
            }
        ),
        3 => (0..6usize).prop_map(|nth| Op::Close { nth }),
        4 => (0..6usize, operation()).prop_map(|(nth, operation)| Op::Operate { nth, operation }),
        1 => (1u64..3, operation()).prop_map(|(file, operation)| Op::Stranger { file, operation }),
        6 => (0..3usize, 0u32..8).prop_map(|(nth, keep)| Op::Acknowledge { nth, keep }),
        1 => (0..3usize).prop_map(|nth| Op::TimeOut { nth }),
        1 => (0..3usize).prop_map(|nth| Op::Cancel { nth }),
    ]
}

/// A client's belief about its oplock or lease.
#[derive(Debug)]
struct Belief {
    file: u64,
    state: LeaseState,
    epoch: u16,
    in_flight: Option<Break>,
    opens: Vec<OpenId>,
}

#[derive(Debug, Clone)]
enum Parked {
    Open(OpenRequest),
    Operation(OpenRequest, Operation),
    Stranger(u64, Operation),
}

impl Parked {
    fn file(&self) -> u64 {
        match self {
            Self::Open(request) | Self::Operation(request, _) => request.place.key.ino,
            Self::Stranger(file, _) => *file,
        }
    }
}

struct World {
    rig: Rig,
    opens: Vec<(OpenRequest, Option<Owner>, Quick)>,
    beliefs: BTreeMap<Owner, Belief>,
    parked: BTreeMap<WaiterId, Parked>,
    woken: Vec<(WaiterId, Parked)>,
}

impl World {
    fn carry_out(&mut self, effects: Effects) {
        for sent in effects.breaks {
            let belief = self.beliefs.get_mut(&sent.owner).expect("a holder");
            assert_eq!(sent.current, belief.state);
            assert!(sent.current.contains(sent.new) && sent.current != sent.new);
            assert!(belief.in_flight.is_none(), "two breaks in flight");
            assert_eq!(sent.opens, belief.opens);
            assert_eq!(sent.ack_required, sent.current != ONLY_R);
            if let Owner::Lease(..) = sent.owner {
                assert!(sent.epoch > belief.epoch);
                belief.epoch = sent.epoch;
            }
            if sent.ack_required {
                belief.in_flight = Some(sent);
            } else {
                belief.state = sent.new;
            }
        }
        for wake in effects.wakes {
            assert_eq!(wake.outcome, Outcome::Retry);
            let parked = self.parked.remove(&wake.waiter).expect("a parked request");
            self.woken.push((wake.waiter, parked));
        }
    }

    fn retry(&mut self) {
        while let Some((waiter, parked)) = self.woken.pop() {
            self.attempt(waiter, parked);
        }
    }

    fn attempt(&mut self, waiter: WaiterId, parked: Parked) {
        match &parked {
            Parked::Open(request) => {
                let (decision, effects) = self.rig.files.open(request);
                self.carry_out(effects);
                match decision {
                    Decision::Granted(granted) => self.granted(request.clone(), granted),
                    Decision::MustBreak => {
                        self.parked.insert(waiter, parked);
                    }
                    Decision::Conflict(status) => assert!(
                        [Status::SHARING_VIOLATION, Status::DELETE_PENDING].contains(&status)
                    ),
                }
            }
            Parked::Operation(request, operation) => {
                if !self
                    .opens
                    .iter()
                    .any(|(open, _, _)| open.open == request.open)
                {
                    return;
                }
                let actor = Actor::Open(request.open);
                self.operate(
                    waiter,
                    request.place.clone(),
                    actor,
                    *operation,
                    parked.clone(),
                );
            }
            Parked::Stranger(file, operation) => {
                self.operate(
                    waiter,
                    place(*file),
                    Actor::Stranger,
                    *operation,
                    parked.clone(),
                );
            }
        }
    }

    fn operate(
        &mut self,
        waiter: WaiterId,
        place: Place,
        actor: Actor,
        operation: Operation,
        parked: Parked,
    ) {
        let (step, effects) =
            self.rig
                .files
                .operation(&place, actor, operation, Some(super::waiter(waiter.0)));
        self.carry_out(effects);
        if step == Step::Wait {
            self.parked.insert(waiter, parked);
            return;
        }
        assert_eq!(step, Step::Go);
        let own = self.opens.iter().find_map(|(open, owner, _)| match actor {
            Actor::Open(actor) if open.open == actor => *owner,
            _ => None,
        });
        for (owner, belief) in &self.beliefs {
            if Some(*owner) == own || belief.file != place.key.ino {
                continue;
            }
            // When an operation may proceed, no other client still caches writes; a client that still caches reads has
            // received a break.
            match operation {
                Operation::Write | Operation::SetSize => {
                    assert!(belief.state.0 & 4 == 0, "written beside a write cache");
                    assert!(belief.state.is_empty() || belief.in_flight.is_some());
                }
                Operation::Read => assert!(belief.state.0 & 4 == 0),
                _ if matches!(owner, Owner::Lease(..)) => assert!(belief.state.0 & 2 == 0),
                _ => {}
            }
        }
    }

    fn granted(&mut self, request: OpenRequest, granted: Granted) {
        let (owner, epoch) = match (granted.cache, request.cache) {
            (CacheGrant::None, _) => (None, 0),
            (CacheGrant::Oplock(_), _) => (Some(Owner::Oplock(request.open)), 0),
            (CacheGrant::Lease(lease), _) => {
                let owner = Owner::Lease(request.client, lease.lease_key);
                (Some(owner), lease.v2.unwrap().epoch)
            }
        };
        if let Some(owner) = owner {
            let file = request.place.key.ino;
            let belief = self.beliefs.entry(owner).or_insert(Belief {
                file,
                state: NONE,
                epoch: 0x10,
                in_flight: None,
                opens: Vec::new(),
            });
            let state = state(granted.cache);
            assert!(state.contains(belief.state), "a grant took something away");
            if let Owner::Lease(..) = owner {
                let changed = state != belief.state;
                assert_eq!(epoch, belief.epoch + u16::from(changed));
                belief.epoch = epoch;
            }
            belief.state = state;
            belief.opens.push(request.open);
            belief.opens.sort_unstable();
        }
        self.opens.push((request, owner, granted.quick));
    }

    fn close(&mut self, nth: usize) {
        let (request, owner, _) = self.opens.remove(nth);
        if let Some(owner) = owner {
            let belief = self.beliefs.get_mut(&owner).expect("a holder");
            belief.opens.retain(|open| *open != request.open);
            if belief.opens.is_empty() {
                self.beliefs.remove(&owner);
            }
        }
        let closed = self.rig.close(&request);
        if let Some((remove, _)) = closed.remove {
            self.rig
                .files
                .removed(&request.place, &remove, Some(request.open));
        }
        self.carry_out(closed.effects);
    }

    fn in_flight(&self, nth: usize) -> Option<Break> {
        let mut sent = self
            .beliefs
            .values()
            .filter_map(|belief| belief.in_flight.clone());
        sent.nth(nth)
    }

    fn answered(&mut self, owner: Owner, state: LeaseState, effects: Effects) {
        let belief = self.beliefs.get_mut(&owner).expect("a holder");
        belief.in_flight = None;
        belief.state = state;
        self.carry_out(effects);
    }

    fn acknowledge(&mut self, sent: &Break, keep: LeaseState) {
        match sent.owner {
            Owner::Lease(client, key) => {
                let kept = keep & sent.new;
                let (answer, effects) = self.rig.files.acknowledge_lease(client, key, kept);
                let legal = if kept.0 & 1 == 0 { NONE } else { kept };
                assert_eq!(answer, Ok(legal));
                self.answered(sent.owner, legal, effects);
            }
            Owner::Oplock(open) => {
                let level = level_of(keep & ONLY_R);
                let (answer, effects) = self.rig.files.acknowledge_oplock(&sent.place, open, level);
                let state = state_of(answer.unwrap());
                assert_eq!(state, keep & sent.new & ONLY_R);
                self.answered(sent.owner, state, effects);
            }
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Open {
                file,
                access,
                share,
                overwrite,
                cache,
                doomed,
            } => {
                let access = [STAT, READ, READ | WRITE, WRITE, READ | DELETE][usize::from(access)];
                let plain = OpenRequest {
                    share: ShareAccess(share),
                    effect: WRITE.when(overwrite),
                    delete_on_close: doomed && access.contains(DELETE),
                    ..self.rig.request(file, access)
                };
                let request = match cache {
                    Cache::None => plain,
                    Cache::Oplock(level) => OpenRequest {
                        cache: oplock(level),
                        ..plain
                    },
                    // The second file's leases have other keys: a key stays with its file.
                    Cache::Lease(n, state) => OpenRequest {
                        client: client(n),
                        cache: lease(n * 10 + u8::from(file == 1), LeaseState(state)),
                        ..plain
                    },
                };
                self.attempt(request.waiter.id, Parked::Open(request.clone()));
            }
            Op::Close { nth } if nth < self.opens.len() => self.close(nth),
            Op::Operate { nth, operation } if nth < self.opens.len() => {
                let request = self.opens[nth].0.clone();
                let waiter = WaiterId(self.rig.number());
                self.attempt(waiter, Parked::Operation(request, operation));
            }
            Op::Stranger { file, operation } => {
                let waiter = WaiterId(self.rig.number());
                self.attempt(waiter, Parked::Stranger(file, operation));
            }
            Op::Acknowledge { nth, keep } => {
                if let Some(sent) = self.in_flight(nth) {
                    // Mostly the client keeps all that is offered.
                    let keep = if keep < 5 { RWH } else { LeaseState(keep) };
                    self.acknowledge(&sent, keep);
                }
            }
            Op::TimeOut { nth } => {
                if let Some(sent) = self.in_flight(nth) {
                    let effects = self
                        .rig
                        .files
                        .break_over(&sent.place, sent.owner, sent.ticket);
                    self.answered(sent.owner, NONE, effects);
                    if let Some(belief) = self.beliefs.get_mut(&sent.owner) {
                        belief.epoch += u16::from(matches!(sent.owner, Owner::Lease(..)));
                    }
                }
            }
            Op::Cancel { nth } => {
                if let Some((waiter, parked)) = self.parked.iter().nth(nth) {
                    let (waiter, file) = (*waiter, parked.file());
                    assert!(self.rig.files.cancel(&place(file), waiter));
                    self.parked.remove(&waiter);
                }
            }
            _ => {}
        }
        self.retry();
        self.check();
    }

    fn check(&self) {
        for parked in self.parked.values() {
            let file = parked.file();
            let mut here = self.beliefs.values().filter(|belief| belief.file == file);
            assert!(
                here.any(|belief| belief.in_flight.is_some()),
                "nobody will wake {parked:?}"
            );
        }
        for (owner, belief) in &self.beliefs {
            self.check_belief(*owner, belief);
        }
        for (request, own, quick) in &self.opens {
            let others = self.beliefs.iter().any(|(owner, belief)| {
                let own_two = matches!(owner, Owner::Oplock(_)) && belief.state == ONLY_R;
                belief.file == request.place.key.ino
                    && !belief.state.is_empty()
                    && (Some(*owner) != *own || own_two)
            });
            assert_eq!(quick.others_cache(), others);
        }
    }

    fn check_belief(&self, owner: Owner, belief: &Belief) {
        let known = self
            .rig
            .files
            .caching_of(&place(belief.file), belief.opens[0]);
        assert_eq!(state(known), belief.state);
        assert!([0, 1, 3, 5, 7].contains(&belief.state.0));
        for (other, theirs) in &self.beliefs {
            if *other == owner || theirs.file != belief.file {
                continue;
            }
            if belief.state.0 & 4 != 0 {
                assert!(theirs.state.is_empty(), "{belief:?} beside {theirs:?}");
            }
            let two = matches!(other, Owner::Oplock(_)) && !theirs.state.is_empty();
            assert!(
                !(two && belief.state.0 & 2 != 0),
                "{belief:?} beside {theirs:?}"
            );
        }
        if belief.state.0 & 4 != 0 {
            let stat = STAT | AccessMask::SYNCHRONIZE;
            for (request, other, _) in &self.opens {
                let others = *other != Some(owner) && request.place.key.ino == belief.file;
                assert!(!others || request.access.without(stat).is_empty());
            }
        }
    }

    /// All clients acknowledge and close: no request stays parked and no state is left.
    fn finish(&mut self) {
        for _ in 0..1_000 {
            let Some(sent) = self.in_flight(0) else { break };
            self.acknowledge(&sent, NONE);
            self.retry();
            self.check();
        }
        assert!(self.parked.is_empty(), "{:?}", self.parked);
        while !self.opens.is_empty() {
            self.close(0);
            self.retry();
            self.check();
        }
        assert!(self.rig.files.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases())
    })]

    #[test]
    fn beliefs_never_contradict(ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World {
            rig: Rig::new(),
            opens: Vec::new(),
            beliefs: BTreeMap::new(),
            parked: BTreeMap::new(),
            woken: Vec::new(),
        };
        for op in &ops {
            world.step(op);
        }
        world.finish();
    }
}
