//! Problems of a configuration file, each with its place, the line with a caret, a suggestion and
//! advice.
//!
//! A [`ConfigReport`] holds all problems of a file, so that an administrator can correct them in one
//! step. Suggestions come from the edit distance to the words that would have been right. Nothing
//! is decided here.

use std::{fmt, ops::Range, path::PathBuf};

use strsim::osa_distance;

/// Longest line that is shown whole; longer ones are cut around the caret.
const SHOWN_LINE_MAX: usize = 100;

/// A mistake in the configuration, with its place and a way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The mistake, in one line.
    pub message: String,
    /// The bytes of the file that it concerns; `None` if something is missing.
    pub span: Option<Range<usize>>,
    /// The text to write instead, or in addition.
    pub way_out: Option<String>,
}

/// All complaints about one file. `Display` prints them for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigReport {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) problems: Vec<Problem>,
}

impl std::error::Error for ConfigReport {}

impl ConfigReport {
    /// The report on a file that is not TOML, or has unknown keys or wrong types.
    pub(super) fn of_toml(path: PathBuf, text: &str, error: &toml::de::Error) -> Self {
        let (message, way_out) = rephrase(error.message());
        let is_syntax = text.parse::<toml::Table>().is_err();
        let way_out = way_out.or_else(|| is_syntax.then(|| SYNTAX.to_owned()));
        let problem = Problem {
            message,
            span: error.span(),
            way_out,
        };
        Self {
            path,
            text: text.to_owned(),
            problems: vec![problem],
        }
    }

    fn excerpt(&self, f: &mut fmt::Formatter<'_>, span: &Range<usize>) -> fmt::Result {
        let place = Place::of(&self.text, span);
        let margin = place.line_number.to_string().len();
        let path = self.path.display();
        writeln!(
            f,
            "{:margin$}--> {path}:{}:{}",
            "", place.line_number, place.column
        )?;
        writeln!(f, "{:margin$} |", "")?;
        writeln!(f, "{} | {}", place.line_number, place.line)?;
        writeln!(
            f,
            "{:margin$} | {}{}",
            "",
            " ".repeat(place.indent),
            "^".repeat(place.carets)
        )
    }
}

impl fmt::Display for ConfigReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            // A name that it quotes may have more than one line.
            writeln!(f, "error: {}", problem.message.replace('\n', "\\n"))?;
            match &problem.span {
                Some(span) => self.excerpt(f, span)?,
                None => writeln!(f, "  --> {}", self.path.display())?,
            }
            if let Some(way_out) = &problem.way_out {
                writeln!(f, "  = {way_out}")?;
            }
        }
        Ok(())
    }
}

/// The line and column of a span.
struct Place {
    line_number: usize,
    /// In characters, from 1.
    column: usize,
    line: String,
    indent: usize,
    carets: usize,
}

impl Place {
    fn of(text: &str, span: &Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let end = text.floor_char_boundary(span.end).max(start);
        let before = text.get(..start).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(line_start..).unwrap_or("");
        let line = rest.lines().next().unwrap_or("");
        let column = before.get(line_start..).unwrap_or("").chars().count();
        let line_end = line_start + line.len();
        let marked = text.get(start..end.min(line_end).max(start)).unwrap_or("");
        let carets = marked.chars().count().max(1);
        // A very long line is shown from a little before the caret.
        let skip = if line.chars().count() > SHOWN_LINE_MAX {
            column.saturating_sub(20)
        } else {
            0
        };
        Self {
            line_number: before.matches('\n').count() + 1,
            column: column + 1,
            line: line
                .chars()
                .skip(skip)
                .take(SHOWN_LINE_MAX)
                .map(|c| if c == '\t' { ' ' } else { c })
                .collect(),
            indent: column - skip,
            carets: carets.min(SHOWN_LINE_MAX),
        }
    }
}

/// Turns the parser's complaint into a sentence and a way out.
fn rephrase(message: &str) -> (String, Option<String>) {
    for (lead, noun) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let Some((word, rest)) = message.strip_prefix(lead).and_then(|m| m.split_once('`')) else {
            continue;
        };
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        // Of two numbers none is a slip for the other: 1.0 means SMB 1, and not 3.0.
        let is_word = word.chars().any(char::is_alphabetic);
        let way_out = match nearest(word, known.iter().copied().filter(|_| is_word)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", known.join(", ")),
        };
        return (format!("unknown {noun} `{word}`"), Some(way_out));
    }
    let message = message.trim_end().replace('\n', "; ");
    let wrong = ["invalid type: ", "invalid value: "];
    let wrong = wrong.iter().find_map(|lead| message.strip_prefix(lead));
    let (found, expected) = match wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some(("map", expected)) => ("a table", expected),
        Some(("sequence", expected)) => ("a list", expected),
        Some(both) => both,
        // For a value that is one of several words, and for an address, the parser does not say what it found.
        None => ("this", message.as_str()),
    };
    let way_out = WAYS_OUT
        .iter()
        .find(|(words, _)| expected.starts_with(words));
    // The parser's type for a number that is larger than any key takes is of no interest.
    let found = found.strip_suffix(" as i128").unwrap_or(found);
    let way_out = match (way_out, wrong) {
        (Some((_, way_out)), _) => (*way_out).to_owned(),
        (None, Some(_)) => format!("write {expected}"),
        (None, None) => return (message, None),
    };
    (format!("{found} cannot stand here"), Some(way_out))
}

/// How the parser names something that it expects, as far as only programmers understand it, and what to write.
const WAYS_OUT: [(&str, &str); 10] = [
    ("a boolean", "write true or false, without quotes"),
    ("a string", "write a text in quotes"),
    (
        "a sequence",
        "write a list in brackets; a table that there may be several of, as [[share]], has two pairs of them",
    ),
    (
        "u16",
        "write a whole number from 0 to 65535, without quotes",
    ),
    (
        "u32",
        "write a whole number from 0 to 4294967295, without quotes",
    ),
    (
        "usize",
        "write a whole number that is not negative, without quotes",
    ),
    (
        "a table",
        "write the table's name in brackets, as in [server], and its keys on lines of their own below",
    ),
    ("socket address", ADDRESS),
    ("invalid socket address syntax", ADDRESS),
    (
        "wanted ",
        "write a word in quotes; examples/holdfast.toml has those of each key",
    ),
];
const SYNTAX: &str =
    "the file is in TOML: KEY = VALUE, texts in quotes, lists in brackets, each key and table once";
const ADDRESS: &str =
    "write an address and a port in quotes, as in \"127.0.0.1:4455\" or \"[::]:445\"";

/// The known word nearest to `word`, if it is near enough for a typing error.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |w: &str| w.to_lowercase().replace('-', "_");
    let word = plain(word);
    let worst = (word.chars().count() / 3).max(1);
    known
        .map(|candidate| (osa_distance(&word, &plain(candidate)), candidate))
        .filter(|(far, _)| *far <= worst)
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slips_are_suggested() {
        let known = ["read_only", "path", "name"];
        assert_eq!(nearest("readonly", known.into_iter()), Some("read_only"));
        assert_eq!(nearest("read-only", known.into_iter()), Some("read_only"));
        assert_eq!(nearest("Path", known.into_iter()), Some("path"));
        // Neighbours that are swapped are one slip.
        assert_eq!(nearest("nmae", known.into_iter()), Some("name"));
        assert_eq!(nearest("veto_files", known.into_iter()), None);
    }

    #[test]
    fn spans_that_do_not_fit_are_survived() {
        let report = |span| ConfigReport {
            path: "x.toml".into(),
            text: "a = \"ö\"\nb".to_owned(),
            problems: vec![Problem {
                message: "m".into(),
                span: Some(span),
                way_out: None,
            }],
        };
        for span in [0..0, 5..6, 6..6, 0..500, 400..500, 7..9] {
            assert!(report(span).to_string().contains("x.toml:"));
        }
        let start = 6;
        assert!(report(start..2).to_string().contains('^'));
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let place = Place::of(&text, &(500..501));
        assert_eq!(place.column, 501);
        assert_eq!(place.line.chars().nth(place.indent), Some('X'));
    }
}
