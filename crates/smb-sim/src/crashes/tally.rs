//! How much a run of cases has tried.

use std::collections::BTreeMap;

use crate::oracle;

/// How often something happened, over many cases.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub cases: u64,
    /// Requests answered with success, refused, failed.
    pub done: u64,
    pub refused: u64,
    pub failed: u64,
    pub unanswered: u64,
    /// FLUSHes and write-through requests answered with success.
    pub promises: u64,
    /// Cases in which something acknowledged was lost (as the policy allows).
    pub lossy: u64,
    pub failed_syncs: u64,
    pub meetings: oracle::Meetings,
    /// Refusals and failures by request and status.
    pub refusals: BTreeMap<(&'static str, u32), u64>,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.done += other.done;
        self.refused += other.refused;
        self.failed += other.failed;
        self.unanswered += other.unanswered;
        self.promises += other.promises;
        self.lossy += other.lossy;
        self.failed_syncs += other.failed_syncs;
        for (pair, count) in &other.meetings {
            *self.meetings.entry(*pair).or_default() += count;
        }
        for (what, count) in &other.refusals {
            *self.refusals.entry(*what).or_default() += count;
        }
    }
}
