//! Counts what is dealt, without a server.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    super::files::{OPEN_MAX, STOCK, document_bytes},
    *,
};

/// Counts of the operations that a number of clients were dealt.
#[derive(Default)]
struct Tally {
    kinds: BTreeMap<Kind, u64>,
    failures: BTreeMap<Kind, u64>,
    new: u64,
    read: u64,
    written: u64,
}

impl Tally {
    /// In each round the first client takes `first` draws, and each other one takes one.
    fn of(clients: usize, rounds: usize, first: usize) -> Self {
        let mut mix = Mix::new(clients, 24);
        let mut tally = Self::default();
        let turns = std::iter::repeat_n(0, first).chain(1..clients);
        for client in std::iter::repeat_n(turns, rounds).flatten() {
            tally.deal(&mut mix, client);
        }
        tally
    }

    fn deal(&mut self, mix: &mut Mix, client: usize) {
        let draw = mix.next(client).unwrap();
        self.count(draw.first);
        draw.second
            .into_iter()
            .for_each(|second| self.count(second));
    }

    fn count(&mut self, operation: Operation) {
        let kind = operation.kind();
        *self.kinds.entry(kind).or_default() += 1;
        if !operation.wanted().is_success() {
            *self.failures.entry(kind).or_default() += 1;
        }
        let (read, written) = operation.moved();
        self.read += read;
        self.written += written;
        if let Operation::Create { disposition, .. } = operation {
            self.new += u64::from(disposition == CreateDisposition::CREATE);
        }
    }

    /// Holds everything against the load file.
    fn check(&self) {
        let whole: u64 = COUNTS.iter().sum();
        let operations: u64 = self.kinds.values().sum();
        let near = |what: &str, seen: u64, of_file: u64, slack: f64| {
            let wanted = of_file as f64 * operations as f64 / whole as f64;
            let off = (seen as f64 - wanted).abs();
            assert!(
                off <= (wanted * 0.01).max(slack),
                "{what}: {seen} instead of {wanted:.1} in {operations} operations"
            );
        };
        for (kind, count) in Kind::ALL.into_iter().zip(COUNTS) {
            let seen = self.kinds.get(&kind).copied().unwrap_or(0);
            near(kind.name(), seen, count, 2.0);
        }
        let failed = |kind| self.failures.get(&kind).copied().unwrap_or(0);
        near("missing creates", failed(Kind::Create), CREATES[0], 2.0);
        near("new files", self.new, CREATES[1], 2.0);
        near("missing paths", failed(Kind::PathInfo), PATH_INFOS[0], 2.0);
        near("missing names", failed(Kind::Find), FINDS[0], 2.0);
        near("bytes read", self.read, BYTES_READ, 2.0 * 61_440.0);
        near("bytes written", self.written, BYTES_WRITTEN, 2.0 * 65_536.0);
    }
}

#[test]
fn the_mix_is_that_of_the_load_file() {
    for (clients, draws) in [
        (1, 3500),
        (8, 400),
        (60, 200),
        (120, 30),
        (60, 2000),
        (1, 100_000),
    ] {
        Tally::of(clients, draws, 1).check();
    }
}

#[test]
fn clients_of_unequal_speeds_have_the_mix_together() {
    for (clients, rounds) in [(2, 5000), (8, 3000), (60, 800)] {
        Tally::of(clients, rounds, 10).check();
    }
}

#[test]
fn a_client_that_stands_within_a_burst_loses_it() {
    let clients = 5;
    let mut mix = Mix::new(clients, 24);
    let mut tally = Tally::default();
    while !tally.kinds.contains_key(&Kind::Flush) {
        tally.deal(&mut mix, 0);
    }
    for client in (1..clients).cycle().take(20_000) {
        tally.deal(&mut mix, client);
    }
    tally.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_number_of_clients_and_any_length_have_the_mix(clients in 1_usize..130, draws in 1_usize..400) {
        Tally::of(clients, draws, 1).check();
    }
}

/// Every operation names what is open, closed or there at that moment, and reads only what was written.
#[test]
fn every_operation_is_possible() {
    let clients = 5;
    let mut mix = Mix::new(clients, 24);
    for client in 0..clients {
        let mut open: BTreeMap<Handle, (Name, u64)> = BTreeMap::new();
        let mut names: BTreeSet<Name> = (0..STOCK).map(Name::New).collect();
        for number in 0..OPEN_AT_START {
            let bytes = document_bytes(number);
            open.insert(number, (Name::Old(number), bytes));
        }
        let mut dirty = BTreeSet::new();
        for _ in 0..4000 {
            let draw = mix.next(client).unwrap();
            for operation in std::iter::once(draw.first).chain(draw.second) {
                match operation {
                    Operation::Create {
                        name,
                        disposition,
                        handle,
                        ..
                    } if name != Name::Missing => {
                        let new = disposition == CreateDisposition::CREATE;
                        assert_eq!(new, matches!(name, Name::New(_)));
                        assert!(!new || names.insert(name));
                        let bytes = match name {
                            Name::Old(number) => document_bytes(number),
                            _ => 0,
                        };
                        assert!(open.insert(handle, (name, bytes)).is_none());
                        assert!(open.len() <= OPEN_MAX);
                    }
                    Operation::Close { handle } => assert!(open.remove(&handle).is_some()),
                    Operation::Read {
                        handle,
                        offset,
                        length,
                    } => {
                        assert!(offset + u64::from(length) <= open[&handle].1);
                    }
                    Operation::Write {
                        handle,
                        offset,
                        length,
                    } => {
                        let (name, bytes) = open.get_mut(&handle).unwrap();
                        let end = offset + u64::from(length);
                        assert!(end <= *bytes || matches!(name, Name::New(_)));
                        *bytes = end.max(*bytes);
                        dirty.insert(handle);
                    }
                    Operation::Flush { handle } => assert!(dirty.remove(&handle)),
                    Operation::Unlink { name } => {
                        assert!(
                            names.remove(&name) && open.values().all(|(other, _)| *other != name)
                        );
                    }
                    Operation::Rename { from, to } => {
                        assert!(names.remove(&from) && names.insert(to));
                        assert!(open.values().all(|(other, _)| *other != from));
                    }
                    Operation::FileInfo { handle }
                    | Operation::SetInfo { handle }
                    | Operation::Lock { handle, .. }
                    | Operation::Unlock { handle, .. } => assert!(open.contains_key(&handle)),
                    _ => {}
                }
            }
        }
    }
}
