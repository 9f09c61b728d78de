//! Verdicts, and the file of all comparisons.

use super::*;

fn measured(ratios: &[f64]) -> Costs {
    let round = |(round, ratio): (u64, &f64)| {
        let of_round = [("base".to_owned(), 2.0), ("head".to_owned(), 2.0 * ratio)];
        (("netbench".to_owned(), round), of_round.into())
    };
    (0..).zip(ratios).map(round).collect()
}

#[test]
fn only_a_whole_interval_above_the_limit_fails() {
    let is_slower = |ratios: &[f64]| rows(&measured(ratios))[0].is_slower;
    assert!(is_slower(&[1.3, 1.4, 1.5, 1.3, 1.6, 1.4]));
    assert!(!is_slower(&[1.3, 1.4, 1.5, 1.3, 1.6, 1.2]));
    assert!(!is_slower(&[1.0; 6]));
    // Too few rounds prove nothing.
    assert!(!is_slower(&[2.0; 5]));
}

#[test]
fn a_row_has_the_times_of_both_beside_their_ratio() {
    let rows = rows(&measured(&[1.5, 1.5, 2.5]));
    let times = (rows[0].base_ns, rows[0].head_ns);
    assert_eq!((times, rows[0].ratio), ((2.0, 3.0), 1.5));
}

#[test]
fn the_lines_of_earlier_runs_stay() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("regress.jsonl");
    append(&file, "{}").unwrap();
    append(&file, "[]").unwrap();
    assert_eq!(fs::read_to_string(file).unwrap(), "{}\n[]\n");
}

#[test]
fn few_rows_or_few_rounds_do_not_suffice() {
    let of = |count: usize, rounds: usize| {
        let mut costs = Costs::new();
        for at in 0..count {
            let one = measured(&vec![1.0; rounds]).into_iter();
            costs.extend(one.map(|((_, round), both)| ((at.to_string(), round), both)));
        }
        suffice(&rows(&costs))
    };
    assert!(of(WORKLOADS + 1, ROUNDS));
    assert!(!of(WORKLOADS, ROUNDS));
    assert!(!of(WORKLOADS + 1, ROUNDS - 1));
}

#[test]
fn a_cost_that_was_not_counted_is_neither_slower_nor_faster() {
    let mut costs = measured(&[1.0; 6]);
    for of_round in costs.values_mut() {
        of_round.insert("base".to_owned(), 0.0);
    }
    assert!(rows(&costs).is_empty());
}

#[test]
fn a_round_without_one_of_both_counts_not() {
    let mut costs = measured(&[1.0, 1.5]);
    costs
        .get_mut(&("netbench".to_owned(), 1))
        .unwrap()
        .remove("base");
    let rows = rows(&costs);
    assert_eq!(
        (rows.len(), rows[0].ratio, rows[0].interval),
        (1, 1.0, None)
    );
}
