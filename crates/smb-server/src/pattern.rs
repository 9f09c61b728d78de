//! Matching names against patterns with DOS wildcards ([MS-FSA] 2.1.4.4).
//!
//! A set of states walks the name once, so time is bounded by pattern times name whatever the
//! pattern (a pattern of stars put ksmbd into an endless loop).

/// A pattern, folded for comparison without case.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    units: Vec<char>,
    everything: bool,
}

impl Pattern {
    /// A pattern. Empty, `*` and `*.*` match everything.
    pub(crate) fn new(text: &str) -> Self {
        Self {
            everything: matches!(text, "" | "*" | "*.*"),
            units: vfs::posix::name::fold(text).chars().collect(),
        }
    }

    /// Whether every name matches.
    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    /// Whether it has no wildcards: at most one name can match.
    pub(crate) fn is_plain(&self) -> bool {
        !self.everything
            && !self
                .units
                .iter()
                .any(|c| matches!(c, '*' | '?' | '<' | '>' | '"'))
    }

    /// Whether `name` matches.
    pub(crate) fn matches(&self, name: &str) -> bool {
        if self.everything {
            return true;
        }
        let name: Vec<char> = vfs::posix::name::fold(name).chars().collect();
        let last_dot = name.iter().rposition(|c| *c == '.');
        let mut states = vec![false; self.units.len() + 1];
        if let Some(start) = states.first_mut() {
            *start = true;
        }
        self.skip_empty(&mut states, name.first().copied(), name.is_empty());
        for (at, &c) in name.iter().enumerate() {
            let mut next = vec![false; states.len()];
            for (state, unit) in self.units.iter().enumerate() {
                if states.get(state) == Some(&true) {
                    step(&mut next, state, *unit, c, at, last_dot);
                }
            }
            self.skip_empty(&mut next, name.get(at + 1).copied(), at + 1 == name.len());
            states = next;
        }
        states.last() == Some(&true)
    }

    /// States reached without taking a character: stars match nothing, `>` nothing at a dot or
    /// the end, `"` nothing at the end.
    fn skip_empty(&self, states: &mut [bool], next: Option<char>, end: bool) {
        for (state, unit) in self.units.iter().enumerate() {
            let passes = match unit {
                '*' | '<' => true,
                '>' => end || next == Some('.'),
                '"' => end,
                _ => false,
            };
            if passes
                && states.get(state) == Some(&true)
                && let Some(after) = states.get_mut(state + 1)
            {
                *after = true;
            }
        }
    }
}

/// Takes the character `c` in one state.
fn step(next: &mut [bool], state: usize, unit: char, c: char, at: usize, last_dot: Option<usize>) {
    let (stay, advance) = match unit {
        '*' => (true, false),
        // Any run, but the final dot ends it: after that only what follows the pattern's star.
        '<' => {
            let after_final_dot = last_dot.is_some_and(|dot| at > dot);
            let is_final_dot = last_dot == Some(at);
            (!after_final_dot || last_dot.is_none(), is_final_dot)
        }
        '?' => (false, true),
        '>' => (false, c != '.'),
        '"' => (false, c == '.'),
        other => (false, other == c),
    };
    if stay && let Some(place) = next.get_mut(state) {
        *place = true;
    }
    if advance && let Some(place) = next.get_mut(state + 1) {
        *place = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).matches(name)
    }

    #[test]
    fn plain_names_compare_without_case() {
        assert!(matches("Readme.TXT", "readme.txt"));
        assert!(!matches("readme.txt", "readme.tx"));
        assert!(!matches("readme", "readme.txt"));
    }

    #[test]
    fn stars_and_question_marks() {
        assert!(matches("*", "anything"));
        assert!(matches("*.*", "no_dot"));
        assert!(matches("*.txt", "a.b.txt"));
        assert!(!matches("*.txt", "a.txt.b"));
        assert!(matches("a?c", "abc"));
        assert!(!matches("a?c", "ac"));
        assert!(!matches("a?", "a"));
        assert!(matches("a*b*c", "a1b2b3c"));
    }

    #[test]
    fn dos_wildcards() {
        // What clients send for "*." (names without an extension).
        assert!(matches("<", "plain"));
        assert!(matches("<\"*", "a.b.c"));
        assert!(matches("<.txt", "a.b.txt"));
        assert!(matches(">>>", "ab"));
        assert!(!matches(">>>", "abcd"));
        assert!(matches("a>>.t", "a.t"));
        assert!(matches("abc\"", "abc"));
        assert!(matches("abc\"txt", "abc.txt"));
        assert!(!matches("abc\"txt", "abctxt"));
    }

    #[test]
    fn many_stars_against_a_long_name_end_soon() {
        let pattern = "*a".repeat(200);
        let name = "a".repeat(254) + "b";
        assert!(!matches(&pattern, &name));
    }
}
