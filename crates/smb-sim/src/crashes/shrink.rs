//! The shortest plan that still fails.

use super::{
    plan::{End, Pace, Plan, Speech},
    step::{Kind, Step},
};

/// Most runs spent on one plan.
const RUNS_MAX: usize = 3000;

/// Leaves out steps and troubles, and simplifies the rest, as long as `fails` says so.
pub fn shrink(plan: &Plan, fails: impl Fn(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut runs = 0;
    let mut holds = |candidate: &Plan| {
        runs += 1;
        runs <= RUNS_MAX && fails(candidate)
    };
    loop {
        let before = best.to_string();
        simplify(&mut best, &mut holds);
        leave_out(&mut best, &mut holds);
        if best.to_string() == before {
            return best;
        }
    }
}

fn simplify(best: &mut Plan, holds: &mut impl FnMut(&Plan) -> bool) {
    let mut attempt = |change: &dyn Fn(&mut Plan)| {
        let mut candidate = best.clone();
        change(&mut candidate);
        if candidate != *best && holds(&candidate) {
            *best = candidate;
        }
    };
    attempt(&|plan| plan.end = End::Done);
    attempt(&|plan| plan.clients = 1);
    attempt(&|plan| plan.speech = Speech::Plain);
    attempt(&|plan| plan.pace = Pace::Instant);
    attempt(&|plan| plan.depot = false);
    attempt(&|plan| plan.rules = 0);
    attempt(&|plan| plan.nested = false);
    attempt(&|plan| (plan.second, plan.nested) = (None, false));
    attempt(&|plan| plan.durable_acl = false);
    attempt(&|plan| plan.rule_times = None);
    attempt(&|plan| plan.flush_times = [true; 2]);
    attempt(&|plan| plan.ignore_full_sync = false);
    // Without stores nobody knows after a restart what failed before: another case.
    let restarts = |step: &Step| step.kind() == Kind::Kill;
    attempt(&|plan| plan.stores &= plan.is_faulty() && plan.steps.iter().any(restarts));
    attempt(&|plan| plan.crash = super::plan::Crash::Power(vfs::sim::Cut::Nothing));
    attempt(&|plan| plan.seed = 1);
    if let End::Call(call) = best.end {
        for less in [
            call / 2,
            call * 3 / 4,
            call.saturating_sub(4),
            call.saturating_sub(1),
        ] {
            let mut candidate = best.clone();
            candidate.end = End::Call(less);
            if candidate != *best && holds(&candidate) {
                *best = candidate;
            }
        }
    }
    for index in 0..best.steps.len() {
        for (byte, kept) in [(0, 0x7F), (1, 0x7F), (1, 0xBF)] {
            let mut candidate = best.clone();
            candidate.steps[index].0[byte] &= kept;
            if candidate != *best && holds(&candidate) {
                *best = candidate;
            }
        }
    }
}

fn leave_out(best: &mut Plan, holds: &mut impl FnMut(&Plan) -> bool) {
    for index in (0..best.troubles.len()).rev() {
        let mut candidate = best.clone();
        candidate.troubles.remove(index);
        if holds(&candidate) {
            *best = candidate;
        }
    }
    let mut size = best.steps.len().next_power_of_two().max(1);
    while size > 0 {
        let mut start = 0;
        while start < best.steps.len() {
            let mut candidate = best.clone();
            let end = (start + size).min(candidate.steps.len());
            candidate.steps.drain(start..end);
            if holds(&candidate) {
                *best = candidate;
            } else {
                start += size;
            }
        }
        size /= 2;
    }
}
