//! All short sequences of a small alphabet, after ACE: most crash bugs need three operations.

use durability::Policy;
use vfs::sim::{Cut, Profile};

use super::{
    plan::{Crash, Plan},
    step::{Kind, Step},
};

/// The steps of which the sequences consist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    Large,
    /// The letters that change names, data and sizes.
    Small,
}

impl Alphabet {
    fn letters(self) -> Vec<Step> {
        let file = |kind, file| Step::new(kind, 0, file, 0);
        let small = [
            file(Kind::Create, 0),
            Step::new(Kind::Create, 0, 1, 1),
            file(Kind::Write, 0).with(0, 0x80),
            file(Kind::Write, 0).with(0, 0x80).flagged(),
            file(Kind::Write, 1).with(1, 3),
            // To the other directory, and back over what may be there.
            Step::new(Kind::Rename, 0, 0, 1).with(0, 2),
            Step::new(Kind::Rename, 0, 1, 0).with(0, 0).flagged(),
            file(Kind::Remove, 0),
            file(Kind::SetSize, 0).with(0, 3),
            file(Kind::Ea, 0),
            Step::new(Kind::MakeDir, 0, 0, 1).with(0, 3),
            Step::new(Kind::MoveDir, 0, 0, 1).with(0, 4),
        ];
        let more = [
            file(Kind::Create, 0).flagged(),
            Step::new(Kind::Create, 0, 0, 1).with(1, 0),
            file(Kind::Attributes, 0).with(1, 0),
            file(Kind::Times, 0),
            file(Kind::WriteStream, 0),
            file(Kind::WriteStream, 0).flagged(),
            file(Kind::RemoveStream, 0),
            file(Kind::Copy, 0),
            file(Kind::Zero, 0).with(0, 0x80),
            Step::new(Kind::Link, 0, 0, 1).with(0, 1),
            file(Kind::Close, 0),
            file(Kind::RemoveDir, 0),
            file(Kind::Remove, 0).flagged(),
            file(Kind::Rename, 0).with(0, 4),
            file(Kind::Security, 0),
            // To `honor`, and to the policy that promises nothing.
            file(Kind::Policy, 0),
            file(Kind::Policy, 0).with(3, 0),
            // By a reload that removes the share and one that brings it back under the same policies.
            file(Kind::Reload, 0).flagged(),
            file(Kind::Reload, 0).with(3, 0).flagged(),
            file(Kind::Supersede, 0),
            file(Kind::RemoveLater, 0),
            file(Kind::RemoveLater, 0).flagged(),
            file(Kind::Duplicate, 0),
        ];
        match self {
            Self::Small => small.to_vec(),
            Self::Large => small.into_iter().chain(more).collect(),
        }
    }
}

/// The flushes that end a sequence, or stand before its last letter.
fn flushes() -> [Option<Step>; 5] {
    [
        None,
        Some(Step::new(Kind::Flush, 0, 0, 0)),
        Some(Step::new(Kind::Flush, 0, 1, 0)),
        Some(Step::new(Kind::FlushDir, 0, 0, 1)),
        Some(Step::new(Kind::FlushRoot, 0, 0, 0)),
    ]
}

/// Every plan of a policy and profile: what is there before (a directory, a file in it or
/// not, all synced), `length` letters, a flush point, a cut. Their number is
/// [`sequences_count`]; which of them is which does not depend on policy and profile.
pub fn sequences(
    alphabet: Alphabet,
    length: usize,
    policy: Policy,
    profile: Profile,
) -> impl Iterator<Item = Plan> {
    let letters = alphabet.letters();
    let base = letters.len();
    let total = base.pow(u32::try_from(length).unwrap_or(0));
    (0..total).flat_map(move |number| {
        let mut word = Vec::with_capacity(length);
        let mut rest = number;
        for _ in 0..length {
            word.push(letters[rest % base]);
            rest /= base;
        }
        plans(&word, policy, profile)
    })
}

/// How many plans [`sequences`] gives.
pub fn sequences_count(alphabet: Alphabet, length: usize) -> usize {
    let flushes = flushes().len();
    let places = if length < 2 { 1 } else { 2 };
    let base = alphabet.letters().len();
    // Without a flush there is nothing to place; each ends in two cuts.
    base.pow(u32::try_from(length).unwrap_or(0)) * (1 + (flushes - 1) * places) * 2
}

fn plans(word: &[Step], policy: Policy, profile: Profile) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (index, flush) in flushes().into_iter().enumerate() {
        for early in [false, true] {
            if early && (flush.is_none() || word.len() < 2) {
                continue;
            }
            let mut steps = vec![
                Step::new(Kind::MakeDir, 0, 0, 1).with(0, 1),
                Step::new(Kind::Create, 0, 0, 0),
                Step::new(Kind::Write, 0, 0, 0).with(0, 0x80),
                Step::new(Kind::FlushRoot, 0, 0, 0),
            ];
            // One half begins with nothing.
            if index % 2 == 0 {
                steps.clear();
            }
            steps.extend_from_slice(word);
            if let Some(flush) = flush {
                let at = if early { steps.len() - 1 } else { steps.len() };
                steps.insert(at, flush);
            }
            for crash in [
                Crash::Power(Cut::Nothing),
                Crash::Power(Cut::Seed(number(&steps))),
            ] {
                let mut plan = Plan::empty(1, policy, profile);
                plan.steps.clone_from(&steps);
                plan.crash = crash;
                plans.push(plan);
            }
        }
    }
    plans
}

/// A number that goes with the steps, so that each sequence meets another subset.
fn number(steps: &[Step]) -> u64 {
    steps.iter().flat_map(|step| step.0).fold(7, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
