//! Patterns over paths, validated by parsing. The work of a match is at most the pattern's length times the path's.

use std::{fmt, str::FromStr};

use vfs::fold;

use super::policy::InvalidPolicy;

/// A pattern over paths from the share's root, without regard to case. `*` stands for any characters of one component
/// and `?` for one; `**` as a whole component stands for any number of components, even none. A pattern without `/` is
/// matched against the last component; one with `/` (a leading `/` means nothing else) against the whole path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    /// `None` is `**`.
    parts: Vec<Option<Vec<char>>>,
    anywhere: bool,
}

impl PathPattern {
    /// Longest pattern, in bytes.
    pub const LENGTH_MAX: usize = 1024;

    /// Whether the path (`/` between its components) matches.
    pub fn matches(&self, path: &str) -> bool {
        self.holds(&components(path))
    }

    pub(super) fn holds(&self, path: &[Vec<char>]) -> bool {
        let last = path.len().saturating_sub(1);
        let from = if self.anywhere { last } else { 0 };
        wild(
            &self.parts,
            path.get(from..).unwrap_or_default(),
            |part| part.is_none(),
            |part, component| {
                part.as_ref().is_some_and(|part| {
                    wild(part, component, |c| *c == '*', |p, c| *p == '?' || p == c)
                })
            },
        )
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for PathPattern {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        if text.len() > Self::LENGTH_MAX {
            return Err(InvalidPolicy("a path pattern has at most 1024 bytes"));
        }
        if text.contains('\\') {
            return Err(InvalidPolicy(
                "components of a path pattern are divided by /",
            ));
        }
        let part = |part: &str| match part {
            "**" => Ok(None),
            "" | "." | ".." => Err(InvalidPolicy(
                "a component of a path pattern is empty, . or ..",
            )),
            _ if part.contains("**") => Err(InvalidPolicy("** stands alone between slashes")),
            _ if part.contains(|c: char| c.is_control()) => {
                Err(InvalidPolicy("a path pattern has no control characters"))
            }
            _ => Ok(Some(fold(part).chars().collect())),
        };
        let whole = text.strip_prefix('/').unwrap_or(text);
        Ok(Self {
            text: text.to_owned(),
            parts: whole.split('/').map(part).collect::<Result<_, _>>()?,
            anywhere: !text.contains('/') && text != "**",
        })
    }
}

pub(super) fn components(path: &str) -> Vec<Vec<char>> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| fold(part).chars().collect()).collect()
}

/// Matches with wild cards for any run of items. Of several wild cards only the last one passed
/// is ever tried again, so the work is at most the product of the two lengths.
fn wild<P, T>(
    pattern: &[P],
    text: &[T],
    is_run: impl Fn(&P) -> bool,
    is_one: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut t) = (0, 0);
    // The place in the pattern after the last run, and the place in the text at which that was last tried.
    let mut again: Option<(usize, usize)> = None;
    while let Some(item) = text.get(t) {
        match pattern.get(p) {
            Some(part) if is_run(part) => {
                p += 1;
                again = Some((p, t));
            }
            Some(part) if is_one(part, item) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after, begun)) = again else {
                    return false;
                };
                // The run takes one more item.
                p = after;
                t = begun + 1;
                again = Some((after, t));
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(is_run)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        text.parse().unwrap()
    }

    #[test]
    fn patterns() {
        for (p, yes, no) in [
            (
                "*.mdb",
                &["a.mdb", "x/y/B.MDB", ".mdb"][..],
                &["a.mdb/x", "mdb", ""][..],
            ),
            (
                "scratch/**",
                &["scratch", "Scratch/a", "scratch/a/b"],
                &["x/scratch", "scratchy"],
            ),
            ("/top", &["top", "TOP"], &["a/top", "top/a"]),
            ("a/*/c", &["a/b/c"], &["a/c", "a/b/b/c"]),
            ("a/**/c", &["a/c", "a/b/c", "a/b/b/c"], &["a/b", "c"]),
            (
                "**/db/*.log",
                &["db/1.log", "x/y/db/2.log"],
                &["db/x/1.log"],
            ),
            ("**", &["", "a", "a/b"], &[]),
            ("?", &["a", "x/ä"], &["ab", ""]),
            ("straße", &["STRAßE"], &["STRASSE"]),
        ] {
            for path in yes {
                assert!(pattern(p).matches(path), "{p} {path}");
            }
            for path in no {
                assert!(!pattern(p).matches(path), "{p} {path}");
            }
        }
        let long = "a".repeat(PathPattern::LENGTH_MAX + 1);
        for bad in [
            "", "/", "a//b", "a/", "../a", "a\\b", "a**", "x/**y/z", "\u{0}", &long,
        ] {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_worst_pattern_takes_no_more_than_the_product() {
        let p = pattern(&"*a".repeat(500));
        assert!(!p.matches(&"a".repeat(100_000).replace('a', "ab")));
        let p = pattern(&("**/a/".repeat(200) + "c"));
        assert!(!p.matches(&"b/a/".repeat(20_000)));
    }

    /// The obvious matcher, exponential.
    fn naive(p: &[char], t: &[char]) -> bool {
        match (p.first(), t.first()) {
            (None, None) => true,
            (Some('*'), _) => naive(&p[1..], t) || (!t.is_empty() && naive(p, &t[1..])),
            (Some('?'), Some(_)) => naive(&p[1..], &t[1..]),
            (Some(a), Some(b)) => a == b && naive(&p[1..], &t[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn wild_cards_match_as_the_obvious_matcher(p in "[ab?*]{0,8}", t in "[ab]{0,8}") {
            let (p, t): (Vec<char>, Vec<char>) = (p.chars().collect(), t.chars().collect());
            let fast = wild(&p, &t, |c| *c == '*', |p, c| *p == '?' || p == c);
            prop_assert_eq!(fast, naive(&p, &t));
        }

        #[test]
        fn any_text_is_a_pattern_or_refused(p in "\\PC{0,40}", t in "\\PC{0,40}") {
            if let Ok(p) = p.parse::<PathPattern>() {
                p.matches(&t);
                prop_assert_eq!(p.to_string().parse::<PathPattern>().unwrap(), p);
            }
        }
    }
}
