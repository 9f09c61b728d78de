//! Medians and their intervals.

/// The median of what is finite.
pub fn median(values: &[f64]) -> Option<f64> {
    let values = sorted(values);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied()?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*values.get(middle - 1)?, upper))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The interval of the median that so many values support, and the confidence with which it holds the median of the
/// population: at least 95 % from six values on; of fewer values the lowest and the highest. One value has none.
pub fn widest(values: &[f64]) -> Option<(f64, f64, f64)> {
    if let Some((low, high)) = interval(values) {
        return Some((low, high, 0.95));
    }
    let values = sorted(values);
    let (low, high) = (*values.first()?, *values.last()?);
    let count = i32::try_from(values.len()).ok()?;
    // All of n values lie on one side of the median with 2 * 0.5^n.
    (count > 1).then(|| (low, high, 1.0 - 0.5_f64.powi(count - 1)))
}

/// An interval that holds the median of the population with at least 95 %, whatever the distribution: the k-th smallest
/// and the k-th largest value, k by the binomial distribution. Fewer than six values have none.
pub fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let values = sorted(values);
    let n = values.len();
    // P(at most k of n values below the median).
    let mut term = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut below = 0.0;
    let mut k = 0;
    while k < n {
        below += term;
        if below > 0.025 {
            break;
        }
        k += 1;
        term *= (n + 1 - k) as f64 / k as f64;
    }
    let low = values.get(k.checked_sub(1)?)?;
    Some((*low, *values.get(n - k)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_even_and_odd_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, f64::NAN, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        let values = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        // Ranks of the sign test's interval: 6: 1 and 6, 10: 2 and 9, 20: 6 and 15.
        assert_eq!(interval(&values(5)), None);
        assert_eq!(interval(&values(6)), Some((1.0, 6.0)));
        assert_eq!(interval(&values(10)), Some((2.0, 9.0)));
        assert_eq!(interval(&values(20)), Some((6.0, 15.0)));
    }

    #[test]
    fn few_values_have_an_interval_of_less_confidence() {
        assert_eq!(widest(&[3.0, 1.0]), Some((1.0, 3.0, 0.5)));
        assert_eq!(widest(&[3.0, 1.0, 2.0]), Some((1.0, 3.0, 0.75)));
        assert_eq!(widest(&[1.0]), None);
        let six = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(widest(&six), Some((1.0, 6.0, 0.95)));
    }
}
