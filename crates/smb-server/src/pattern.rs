//! Matching names against patterns with DOS wildcards ([MS-FSA] 2.1.4.4).
//!
//! A set of states, one bit each, walks the name once: a character costs one step for each 64 units
//! of the pattern, whatever the pattern is, and nothing is allocated.

use vfs::{fold, fold_char};

use crate::limits::PATTERN_UNITS_MAX;

/// Words of a set of states: one bit for each unit of the longest pattern, and one for its end.
const WORDS: usize = (PATTERN_UNITS_MAX + 1).div_ceil(64);

/// States, or units of a pattern by the state before them.
type Set = [u64; WORDS];

fn insert(set: &mut Set, state: usize) {
    if let Some(word) = set.get_mut(state / 64) {
        *word |= 1 << (state % 64);
    }
}

fn union(one: &Set, other: &Set) -> Set {
    let mut both = *one;
    for (word, more) in both.iter_mut().zip(other) {
        *word |= more;
    }
    both
}

/// For each character, the units of the pattern that match just this character.
#[derive(Debug, Clone)]
struct Literals {
    ascii: Box<[Set; 128]>,
    /// The other characters, sorted.
    other: Vec<(char, Set)>,
}

impl Literals {
    fn insert(&mut self, c: char, state: usize) {
        if let Some(set) = self.ascii.get_mut(c as usize) {
            return insert(set, state);
        }
        let known = self.other.binary_search_by_key(&c, |(other, _)| *other);
        let place = known.unwrap_or_else(|place| {
            self.other.insert(place, (c, [0; WORDS]));
            place
        });
        if let Some((_, set)) = self.other.get_mut(place) {
            insert(set, state);
        }
    }

    fn get(&self, c: char) -> &Set {
        const NONE: Set = [0; WORDS];
        if let Some(set) = self.ascii.get(c as usize) {
            return set;
        }
        let place = self.other.binary_search_by_key(&c, |(other, _)| *other);
        let found = place.ok().and_then(|place| self.other.get(place));
        found.map_or(&NONE, |(_, set)| set)
    }
}

/// A pattern, folded for comparison without case.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    everything: bool,
    plain: bool,
    /// The state in which all of the pattern has matched.
    end: usize,
    /// Words of a set that are in use.
    words: usize,
    literals: Literals,
    /// `runs` are the units `*` and `<`, which match any run of characters; `stars` are the `*`
    /// among them, which match also beyond the final dot.
    runs: Set,
    stars: Set,
    /// The units that match one character: `?` and `>`, at a dot `?` and `"`, and at the final dot `<` as well, which
    /// ends there.
    takes_one: Set,
    takes_dot: Set,
    takes_final_dot: Set,
    /// The units that can match no character: before a dot, at the end, and elsewhere (only `*` and `<`).
    skipped_at_dot: Set,
    skipped_at_end: Set,
}

impl Pattern {
    /// A pattern. Empty, `*` and `*.*` match everything. `None` for one longer than a name can be
    /// ([MS-FSCC] 2.1.5): [`PATTERN_UNITS_MAX`].
    pub(crate) fn new(text: &str) -> Option<Self> {
        let units = text.encode_utf16().take(PATTERN_UNITS_MAX + 1);
        if units.count() > PATTERN_UNITS_MAX {
            return None;
        }
        let (mut stars, mut dos_stars, mut any) = ([0; WORDS], [0; WORDS], [0; WORDS]);
        let (mut dos_any, mut dos_dots) = ([0; WORDS], [0; WORDS]);
        let mut literals = Literals {
            ascii: Box::new([[0; WORDS]; 128]),
            other: Vec::new(),
        };
        let (mut state, mut before) = (0, None);
        for c in fold(text).chars() {
            match c {
                // A run of stars is one star.
                '*' if before == Some('*') => continue,
                '*' => insert(&mut stars, state),
                '<' => insert(&mut dos_stars, state),
                '?' => insert(&mut any, state),
                '>' => insert(&mut dos_any, state),
                '"' => insert(&mut dos_dots, state),
                other => literals.insert(other, state),
            }
            before = Some(c);
            state += 1;
        }
        let everything = matches!(text, "" | "*" | "*.*");
        let runs = union(&stars, &dos_stars);
        let skipped_at_dot = union(&runs, &dos_any);
        let takes_dot = union(&any, &dos_dots);
        Some(Self {
            everything,
            plain: !everything && !text.contains(['*', '<', '?', '>', '"']),
            end: state,
            words: state / 64 + 1,
            literals,
            runs,
            stars,
            takes_one: union(&any, &dos_any),
            takes_dot,
            takes_final_dot: union(&takes_dot, &dos_stars),
            skipped_at_end: union(&skipped_at_dot, &dos_dots),
            skipped_at_dot,
        })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    /// Whether it has no wildcards: at most one name can match.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.everything || self.walk(name, |_| ())
    }

    /// The most that matching `name` costs, in steps of one word of states.
    pub(crate) fn cost(&self, name: &str) -> usize {
        name.len().saturating_mul(self.words)
    }

    /// Walks the name and reports how many steps each character took.
    fn walk(&self, name: &str, mut stepped: impl FnMut(usize)) -> bool {
        let last_dot = name.rfind('.');
        let mut states = [0; WORDS];
        insert(&mut states, 0);
        let mut rest = name.char_indices().peekable();
        self.skip(&mut states, rest.peek().map(|(_, c)| *c));
        while let Some((at, c)) = rest.next() {
            // `<` ends with the final dot. One that begins after it matches any run of characters.
            let is_final = last_dot == Some(at);
            let stay = if is_final { &self.stars } else { &self.runs };
            let wild = match c {
                '.' if is_final => &self.takes_final_dot,
                '.' => &self.takes_dot,
                _ => &self.takes_one,
            };
            let literal = self.literals.get(fold_char(c));
            let taken = wild.iter().zip(literal).map(|(one, other)| one | other);
            let (mut carry, mut alive) = (0, 0);
            for ((states, stay), taken) in states.iter_mut().zip(stay).zip(taken).take(self.words) {
                let moved = *states & taken;
                *states = (*states & stay) | (moved << 1) | carry;
                carry = moved >> 63;
                alive |= *states;
            }
            stepped(self.words);
            if alive == 0 {
                return false;
            }
            self.skip(&mut states, rest.peek().map(|(_, c)| *c));
        }
        let last = states.get(self.end / 64);
        last.is_some_and(|last| last >> (self.end % 64) & 1 == 1)
    }

    /// Adds the states reached without consuming a character: `*` and `<` may match the empty string, `>` may do so
    /// before a dot or at the end, and `"` at the end. The sum's carries walk through runs of such units.
    fn skip(&self, states: &mut Set, next: Option<char>) {
        let skipped = match next {
            None => &self.skipped_at_end,
            Some('.') => &self.skipped_at_dot,
            Some(_) => &self.runs,
        };
        let mut carry = 0;
        for (states, skipped) in states.iter_mut().zip(skipped).take(self.words) {
            let (sum, over) = (*states & skipped).overflowing_add(*skipped);
            let (sum, again) = sum.overflowing_add(carry);
            *states |= sum ^ skipped;
            carry = u64::from(over | again);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(name)
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
        // The pattern that clients send for "*." (names without an extension).
        assert!(matches("<", "plain"));
        assert!(matches("<\"*", "a.b.c"));
        assert!(matches("<.txt", "a.b.txt"));
        assert!(!matches("<", "page.html"));
        // The patterns that clients send for "a.*." and "*.*.".
        assert!(matches("a\"<", "a.txt"));
        assert!(matches("<\"<", "a.b.txt"));
        assert!(!matches("a\"<", "a.b.txt"));
        assert!(matches(">>>", "ab"));
        assert!(!matches(">>>", "abcd"));
        assert!(matches("a>>.t", "a.t"));
        assert!(matches("abc\"", "abc"));
        assert!(matches("abc\"txt", "abc.txt"));
        assert!(!matches("abc\"txt", "abctxt"));
    }

    #[test]
    fn a_pattern_is_no_longer_than_a_name() {
        let units = |count| Pattern::new(&"\u{10000}".repeat(count));
        assert!(units(127).is_some());
        assert!(units(128).is_none());
        assert!(Pattern::new(&"*".repeat(255)).is_some());
        assert!(Pattern::new(&"*".repeat(256)).is_none());
        let long = "x".repeat(254);
        assert!(matches(&format!("{long}?"), &format!("{long}y")));
        assert!(matches(&format!("{long}*"), &long));
        assert!(!matches(&format!("{long}?"), &long));
    }

    #[test]
    fn the_worst_patterns_take_a_bounded_number_of_steps() {
        let names = [
            "a".repeat(255),
            "a".repeat(254) + "b",
            ".".repeat(255),
            "a.".repeat(127),
        ];
        let parts = [
            "*a", "*?", "*>", "<a", "<>", "?*\"", ">", "*", "\"", "*.<", "**a",
        ];
        for part in parts {
            for end in ["", "b"] {
                let text = part.repeat((255 - end.len()) / part.len()) + end;
                let pattern = Pattern::new(&text).unwrap();
                for name in &names {
                    let mut steps = 0;
                    pattern.walk(name, |more| steps += more);
                    assert!(steps <= name.len() * WORDS, "{text} {name}: {steps}");
                    assert!(steps <= pattern.cost(name), "{text} {name}: {steps}");
                }
            }
        }
    }

    /// A model: the rules of [MS-FSA] 2.1.4.4, tried one after the other.
    fn model(pattern: &[char], name: &[char], at: usize) -> bool {
        let Some((unit, rest)) = pattern.split_first() else {
            return at == name.len();
        };
        let next = name.get(at).copied();
        let final_dot = name.iter().rposition(|c| *c == '.');
        let skip = || model(rest, name, at);
        let one = || model(rest, name, at + 1);
        let more = || model(pattern, name, at + 1);
        match unit {
            '*' => skip() || (next.is_some() && more()),
            '<' if final_dot == Some(at) => skip() || one(),
            '<' => skip() || (next.is_some() && more()),
            '?' => next.is_some() && one(),
            '>' => match next {
                None | Some('.') => skip(),
                Some(_) => one(),
            },
            '"' => match next {
                None => skip(),
                Some(c) => c == '.' && one(),
            },
            literal => next.is_some_and(|c| fold_char(c) == fold_char(*literal)) && one(),
        }
    }

    proptest::proptest! {
        #[test]
        fn the_rules_decide(
            text in "[*?<>\".aAbé]{1,9}", long in "[ab.é]{0,80}", name in "[aAbÉ.]{1,9}",
        ) {
            // The pattern lies before and after the border of the first words.
            for prefix in ["", long.as_str()] {
                let (text, name) = (format!("{prefix}{text}"), format!("{prefix}{name}"));
                let units: Vec<char> = text.chars().collect();
                let chars: Vec<char> = name.chars().collect();
                let expected = text == "*.*" || model(&units, &chars, 0);
                proptest::prop_assert_eq!(matches(&text, &name), expected, "{} {}", text, name);
            }
        }
    }
}
