//! Decides which worker runs on which core, and which workers serve which listener.
//!
//! There is one worker for each core that any listener names; a listener without cores uses every core the process may
//! use, or as many as its CPU quota has the time of. Two listeners that name a core share its worker.

use std::collections::{BTreeMap, BTreeSet};

use super::resources;
use crate::{Error, config::Listener};

/// The cores of the workers, and the workers of the listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The core of each worker.
    pub cores: Vec<usize>,
    /// The cores whose workers stay on them: at least one listener wants that.
    pub pinned: BTreeSet<usize>,
    /// For each listener, its workers as indices into `cores`; never empty.
    pub members: Vec<Vec<usize>>,
}

/// Makes the plan for these listeners on this machine.
///
/// # Errors
/// As [`plan`].
pub fn plan_here(listeners: &[Listener]) -> Result<Plan, Error> {
    let (allowed, quota) = (allowed_cores(), resources::cpu_quota());
    if let Some(quota) = quota.filter(|quota| *quota < allowed.len()) {
        tracing::info!(
            cores = allowed.len(),
            quota,
            "the control group has a CPU quota of fewer cores than it may use: a [[listener]] without `cores` has only \
             so many workers, which are not pinned"
        );
    }
    plan(listeners, &allowed, quota)
}

/// Makes the plan for these listeners, on `allowed` cores (not empty). A listener without cores gets no more workers
/// than `quota`, and if those are fewer than the cores, they are not pinned: every other group with a quota would have
/// the same cores.
///
/// # Errors
/// A listener names a core that is not allowed.
pub fn plan(
    listeners: &[Listener],
    allowed: &[usize],
    quota: Option<usize>,
) -> Result<Plan, Error> {
    let within = quota.and_then(|quota| allowed.get(..quota.max(1)));
    let unnamed = within.unwrap_or(allowed);
    let mut worker_of = BTreeMap::new();
    let mut pinned = BTreeSet::new();
    let mut members = Vec::with_capacity(listeners.len());
    for listener in listeners {
        let named = listener.cores.as_slice();
        if let Some(core) = named.iter().find(|core| !allowed.contains(core)) {
            return fail!(
                "a [[listener]] names core {core}, but this process may use only {allowed:?}\n  = take it out of \
                 `cores`, or let the process have it (CPUAffinity= of a systemd unit, the CPU set of a container)"
            );
        }
        let cores = if named.is_empty() { unnamed } else { named };
        if listener.pin && (!named.is_empty() || unnamed.len() == allowed.len()) {
            pinned.extend(cores.iter().copied());
        }
        let workers = cores.iter().map(|core| {
            let next = worker_of.len();
            *worker_of.entry(*core).or_insert(next)
        });
        members.push(workers.collect());
    }
    let mut by_worker: Vec<_> = worker_of.into_iter().collect();
    by_worker.sort_unstable_by_key(|(_, worker)| *worker);
    let cores = by_worker.into_iter().map(|(core, _)| core).collect();
    Ok(Plan {
        cores,
        pinned,
        members,
    })
}

/// The cores that this process may use; only the first one if the kernel does not report them.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    let set = match rustix::thread::sched_getaffinity(None) {
        Ok(set) => set,
        Err(error) => {
            // A machine may have more cores than a set has room for.
            tracing::warn!(%error, "the cores of this process are not known: core 0 serves alone");
            return vec![0];
        }
    };
    let cores: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// The least loaded of `members`: of equals one that is `near`, else the first. Load comes first, as few
/// connections that last are spread unevenly by a hash or by where packets arrive
/// (`tests/two_nics/placement.rs` measures it).
#[must_use]
pub fn least_loaded<L: Ord>(
    members: &[usize],
    load: impl Fn(usize) -> L,
    near: impl Fn(usize) -> bool,
) -> Option<usize> {
    let order = |worker: &usize| (load(*worker), !near(*worker));
    members.iter().copied().min_by_key(order)
}

/// A worker that has less to do than this part of the time is relieved of nothing.
const BUSY_MIN: f64 = 0.4;
/// The least difference of two workers, as a part of the time, for which a connection is moved.
const DIFFERENCE_MIN: f64 = 0.2;

/// For how many periods in a row a worker is asked before it may be another one's turn.
const ROUND: usize = 4;

/// A connection of one worker should go to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Relief {
    /// A worker that has clearly more to do.
    pub from: usize,
    /// The worker that has least to do.
    pub to: usize,
    /// The difference as a part of what the first one has to do.
    pub surplus: f64,
}

/// The move that makes the load of `members` more equal, if it is clearly unequal; `busy` is the part of the time in
/// which a worker has something to do. The busiest worker may have nothing to give, because a single connection keeps
/// it busy, so every other round of `turn`s is for any worker that has clearly more to do than another.
#[must_use]
pub fn relief(members: &[usize], busy: impl Fn(usize) -> f64, turn: usize) -> Option<Relief> {
    let by_load = |a: &usize, b: &usize| busy(*a).total_cmp(&busy(*b));
    let to = members.iter().copied().min_by(by_load)?;
    let least = busy(to);
    let has_more = |at: &usize| busy(*at) >= BUSY_MIN && busy(*at) - least >= DIFFERENCE_MIN;
    let busier: Vec<usize> = members.iter().copied().filter(has_more).collect();
    let busiest = busier.iter().copied().max_by(by_load)?;
    let round = turn / ROUND;
    let from = match round % 2 {
        0 => busiest,
        _ => *busier.get(round / 2 % busier.len())?,
    };
    let most = busy(from);
    Some(Relief {
        from,
        to,
        surplus: (most - least) / most,
    })
}

/// The moves for listeners with these `members`, each with the listener's number. A worker is asked once in a period,
/// so the first listener with a move from it counts; in each `turn` it is another one's turn to be first.
#[must_use]
pub fn reliefs(
    members: &[Vec<usize>],
    busy: impl Fn(usize) -> f64,
    turn: usize,
) -> Vec<(usize, Relief)> {
    let count = members.len();
    let mut asked = BTreeSet::new();
    let listeners = members.iter().enumerate().cycle();
    let in_turn = listeners.skip(turn % count.max(1)).take(count);
    let moves = in_turn.filter_map(|(listener, members)| {
        let relief = relief(members, &busy, turn)?;
        asked.insert(relief.from).then_some((listener, relief))
    });
    moves.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(cores: &[usize]) -> Listener {
        Listener {
            cores: cores.to_vec(),
            ..crate::config::listen_everywhere()
        }
    }

    #[test]
    fn a_worker_is_pinned_if_one_of_its_listeners_wants_it() {
        let free = Listener {
            pin: false,
            ..pinned(&[0, 1])
        };
        let plan = plan(&[free, pinned(&[1, 2])], &[0, 1, 2], None).unwrap();
        assert_eq!(plan.pinned, [1, 2].into());
        assert_eq!(plan.cores, [0, 1, 2]);
    }

    #[test]
    fn without_cores_there_is_one_worker_for_each() {
        let plan = plan(&[pinned(&[]), pinned(&[])], &[0, 2, 5], None).unwrap();
        assert_eq!(plan.cores, [0, 2, 5]);
        assert_eq!(plan.members, [vec![0, 1, 2], vec![0, 1, 2]]);
    }

    #[test]
    fn a_cpu_quota_limits_the_workers_of_listeners_without_cores() {
        let of = |listeners: &[Listener], quota| plan(listeners, &[0, 2, 5], Some(quota)).unwrap();
        let limited = of(&[pinned(&[])], 2);
        assert_eq!(limited.cores, [0, 2]);
        assert!(limited.pinned.is_empty());
        for enough in [3, 64] {
            let whole = of(&[pinned(&[])], enough);
            assert_eq!(whole, plan(&[pinned(&[])], &[0, 2, 5], None).unwrap());
            assert_eq!(whole.pinned.len(), 3);
        }
        // Cores that are named count.
        let named = of(&[pinned(&[2, 5]), pinned(&[])], 1);
        assert_eq!(named.cores, [2, 5, 0]);
        assert_eq!(named.pinned, [2, 5].into());
        assert_eq!(named.members, [vec![0, 1], vec![2]]);
    }

    #[test]
    fn listeners_share_the_worker_of_a_shared_core() {
        let plan = plan(&[pinned(&[3, 1]), pinned(&[1, 0])], &[0, 1, 2, 3], None).unwrap();
        assert_eq!(plan.cores, [3, 1, 0]);
        assert_eq!(plan.members, [vec![0, 1], vec![1, 2]]);
    }

    #[test]
    fn cores_that_are_not_ours_are_refused() {
        let error = plan(&[pinned(&[0]), pinned(&[7])], &[0, 1], None).unwrap_err();
        let error = error.to_string();
        let mistake = "a [[listener]] names core 7, but this process may use only [0, 1]\n  = ";
        assert!(error.starts_with(mistake), "{error}");
    }

    #[test]
    fn connections_go_where_the_load_is_least() {
        let load = [4, 2, 2, 0];
        let least = |members: &[usize], core| {
            least_loaded(members, |worker| load[worker], |worker| worker == core)
        };
        assert_eq!(least(&[0, 1, 2], 9), Some(1));
        assert_eq!(least(&[0, 3], 9), Some(3));
        assert_eq!(least(&[0, 1, 2], 2), Some(2));
        assert_eq!(least(&[0, 1, 2], 0), Some(1), "near, but loaded");
        assert_eq!(least(&[], 0), None);
        // The first of these hangs.
        let load = [(true, 0), (false, 5), (false, 4)];
        let served = least_loaded(&[0, 1, 2], |worker| load[worker], |_| false);
        assert_eq!(served, Some(2));
    }

    #[test]
    fn the_busiest_worker_is_relieved_if_another_is_clearly_less_busy() {
        let relief = |busy: [f64; 3], members: &[usize]| {
            let relief = relief(members, |worker| busy[worker], 0)?;
            Some((relief.from, relief.to, relief.surplus))
        };
        assert_eq!(relief([0.5, 1.0, 0.25], &[0, 1, 2]), Some((1, 2, 0.75)));
        assert_eq!(relief([0.5, 1.0, 0.25], &[0, 2]), Some((0, 2, 0.5)));
        assert_eq!(relief([0.9, 1.0, 0.85], &[0, 1, 2]), None);
        assert_eq!(relief([0.0, 0.3, 0.0], &[0, 1, 2]), None, "none is busy");
        assert_eq!(relief([1.0, 0.0, 0.0], &[]), None);
    }

    #[test]
    fn a_worker_is_relieved_although_the_busiest_one_has_nothing_to_give() {
        let busy = [1.0, 0.9, 0.3, 0.0];
        let from = |turn| relief(&[0, 1, 2, 3], |worker| busy[worker], turn).map(|it| it.from);
        let rounds: Vec<_> = (0..4 * ROUND).map(from).collect();
        let expected = [0, 0, 0, 1].map(|from| [Some(from); ROUND]);
        assert_eq!(rounds, expected.as_flattened());
    }

    #[test]
    fn listeners_take_turns_where_they_share_a_busy_worker() {
        let busy = [0.0, 1.0, 0.0, 1.0];
        let members = [vec![0, 1], vec![1, 2], vec![0, 3]];
        let reliefs = |turn| {
            let reliefs = reliefs(&members, |worker| busy[worker], turn).into_iter();
            let moves = reliefs.map(|(listener, relief)| (listener, relief.from, relief.to));
            moves.collect::<Vec<_>>()
        };
        assert_eq!(reliefs(0), [(0, 1, 0), (2, 3, 0)]);
        assert_eq!(reliefs(1), [(1, 1, 2), (2, 3, 0)]);
        assert_eq!(reliefs(2), [(2, 3, 0), (0, 1, 0)]);
        assert_eq!(reliefs(3), reliefs(0));
        assert!(super::reliefs(&[], |_| 1.0, 1).is_empty());
    }

    #[test]
    fn the_kernel_names_at_least_one_core() {
        assert!(!allowed_cores().is_empty());
    }
}
