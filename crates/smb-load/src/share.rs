//! Picks alternatives so that their counts follow their weights exactly.
//!
//! A random draw of rare alternatives is off by several percent even after thousands of draws. Here every
//! alternative has an account: each pick credits all of them with their weights and debits the one that was picked by
//! the sum of the weights, and the pick goes to an account that is high. After any number of picks each count is within
//! about two of what its weight asks for, as long as an alternative is not infeasible for ever.

use fastrand::Rng;

/// A table of weighted alternatives.
#[derive(Debug, Clone)]
pub(crate) struct Share<const N: usize> {
    weights: [u64; N],
    /// The sum of the weights.
    whole: i64,
    /// The shortfall of each alternative, in units of `1 / whole` picks.
    accounts: [i64; N],
}

impl<const N: usize> Share<N> {
    pub(crate) const fn new(weights: [u64; N]) -> Self {
        let mut whole = 0;
        let mut next = 0;
        while next < N {
            whole += weights[next] as i64;
            next += 1;
        }
        Self {
            weights,
            whole,
            accounts: [0; N],
        }
    }

    /// Picks one of the alternatives for which `is_feasible` holds; `None` if it holds for none.
    ///
    /// A random part of half a pick is added to each account, so that the order is irregular.
    pub(crate) fn pick(
        &mut self,
        random: &mut Rng,
        is_feasible: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let jitter = self.whole.unsigned_abs() / 2;
        let picked = (0..N)
            .filter(|which| self.credit(*which) > 0 && is_feasible(*which))
            .max_by_key(|which| {
                self.account(*which).saturating_add(self.credit(*which))
                    + random.u64(..jitter.max(1)) as i64
            })?;
        self.count(picked);
        Some(picked)
    }

    /// Enters into the accounts a pick that something else decided.
    pub(crate) fn count(&mut self, picked: usize) {
        for which in 0..N {
            let credit = self.credit(which);
            if let Some(account) = self.accounts.get_mut(which) {
                *account += credit;
                if which == picked {
                    *account -= self.whole;
                }
            }
        }
    }

    fn account(&self, which: usize) -> i64 {
        self.accounts.get(which).copied().unwrap_or(i64::MIN)
    }

    fn credit(&self, which: usize) -> i64 {
        self.weights.get(which).map_or(0, |weight| *weight as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_weights_after_any_number_of_picks() {
        let weights = [700, 250, 45, 5];
        let mut share = Share::new(weights);
        let mut random = Rng::with_seed(1);
        let mut counts = [0_u64; 4];
        for picks in 1..=20_000_u64 {
            let picked = share.pick(&mut random, |_| true).unwrap();
            counts[picked] += 1;
            for (count, weight) in counts.iter().zip(weights) {
                let wanted = picks as f64 * weight as f64 / 1000.0;
                assert!(
                    (*count as f64 - wanted).abs() < 2.0,
                    "{counts:?} of {picks}"
                );
            }
        }
    }

    #[test]
    fn an_alternative_that_was_infeasible_catches_up() {
        let mut share = Share::new([1, 1]);
        let mut random = Rng::with_seed(1);
        for _ in 0..10 {
            assert_eq!(share.pick(&mut random, |which| which == 0), Some(0));
        }
        for _ in 0..9 {
            assert_eq!(share.pick(&mut random, |_| true), Some(1));
        }
        assert_eq!(share.pick(&mut random, |_| false), None);
    }
}
