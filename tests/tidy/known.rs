//! The lists of tolerated findings, which only shrink.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::source::root;

/// A finding is a text and a measure; the measure of a finding without one is 1.
pub(crate) type Findings = BTreeMap<String, usize>;

fn path(rule: &str) -> PathBuf {
    root().join("tests/tidy/known").join(rule)
}

fn parse(text: &str) -> Findings {
    text.lines()
        .filter_map(|line| {
            let (what, measure) = line.rsplit_once(' ')?;
            Some((what.to_owned(), measure.parse().ok()?))
        })
        .collect()
}

/// Describes every difference between what was found and what is tolerated.
pub(crate) fn differences(found: &Findings, known: &Findings) -> Vec<String> {
    let mut differences = Vec::new();
    for (what, &measure) in found {
        match known.get(what) {
            None => differences.push(format!("new: {what} ({measure})")),
            Some(&bound) if measure > bound => {
                differences.push(format!("grew from {bound} to {measure}: {what}"));
            }
            Some(&bound) if measure < bound => {
                differences.push(format!("shrank from {bound} to {measure}: {what}"));
            }
            Some(_) => {}
        }
    }
    for what in known.keys().filter(|what| !found.contains_key(*what)) {
        differences.push(format!("gone: {what}"));
    }
    differences
}

/// Fails unless the findings are those of the rule's list.
pub(crate) fn hold(rule: &str, found: Findings) {
    judge(rule, differences(&found, &tolerated(rule, &found)));
}

/// Fails if a finding is not in the rule's list or above its bound there.
pub(crate) fn hold_bound(rule: &str, found: Findings) {
    let known = shrunk(&tolerated(rule, &found), &found);
    judge(rule, differences(&found, &known));
}

/// The rule's list, made smaller before if that is asked for.
fn tolerated(rule: &str, found: &Findings) -> Findings {
    let mut known = parse(&fs::read_to_string(path(rule)).unwrap_or_default());
    if std::env::var_os("TIDY_SHRINK").is_some() {
        known = shrunk(&known, found);
        let text: String = known
            .iter()
            .map(|(what, bound)| format!("{what} {bound}\n"))
            .collect();
        if text.is_empty() {
            let _ = fs::remove_file(path(rule));
        } else {
            fs::write(path(rule), text).expect("the list can be written");
        }
    }
    known
}

/// The list without what is gone, and with bounds that are not above what is there.
fn shrunk(known: &Findings, found: &Findings) -> Findings {
    let still = known.iter().filter_map(|(what, bound)| {
        let measure = found.get(what)?;
        Some((what.clone(), *bound.min(measure)))
    });
    still.collect()
}

fn judge(rule: &str, differences: Vec<String>) {
    assert!(
        differences.is_empty(),
        "{rule}: {} differences from tests/tidy/known/{rule} \
         (TIDY_SHRINK=1 removes what is gone and lowers bounds):\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn a_list_neither_grows_nor_stays_too_long() {
    let findings = |text: &str| parse(text);
    assert!(differences(&findings("a 1\nb 2\n"), &findings("a 1\nb 2\n")).is_empty());
    assert_eq!(
        differences(&findings("a 2\n"), &findings("a 1\n")),
        ["grew from 1 to 2: a"]
    );
    assert_eq!(
        differences(&findings("a 1\n"), &findings("a 2\n")),
        ["shrank from 2 to 1: a"]
    );
    assert_eq!(
        differences(&findings("a 1\n"), &findings("")),
        ["new: a (1)"]
    );
    assert_eq!(differences(&findings(""), &findings("a 1\n")), ["gone: a"]);
}
