//! Counts words and sentences that docs/glossary.md replaces: in comments and pages, and in the names of items.

use crate::known::Findings;
use crate::source::Tree;

/// Words that the glossary replaces; `told` and `heard` stand for the verbs that they are forms of.
const WORDS: [&str; 17] = [
    "owed", "owes", "owe", "debt", "debts", "unpaid", "payer", "payers", "nameless", "whoever",
    "whomever", "told", "tells", "heard", "hears", "latched", "doomed",
];

/// Further words that no item is named by; sentences use them in idioms.
const VERBS: [&str; 2] = ["tell", "hear"];

/// The keywords before the name of an item.
const ITEMS: [&str; 8] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "mod",
];

/// Openings of a sentence that, without a main clause, leave the reader without a subject.
const OPENINGS: [&str; 7] = [
    "What",
    "Who",
    "Whose",
    "Whoever",
    "Whatever",
    "That which",
    "Those that",
];

/// Each text of the repository that people read, with the name under which it is counted.
fn prose(tree: &Tree) -> impl Iterator<Item = (String, String)> {
    let comments = tree
        .rust
        .iter()
        .filter(|source| !source.path.starts_with("tests/tidy/"))
        .map(|source| {
            let mut text = String::new();
            let mut last = None;
            for (line, comment) in &source.comments {
                // A blank line of a comment, or code between two comments, ends a sentence.
                text.push_str(
                    if last.is_some_and(|last| last + 1 == *line) && !comment.is_empty() {
                        " "
                    } else {
                        ".\n"
                    },
                );
                text.push_str(comment);
                last = Some(*line);
            }
            (source.package().to_owned(), text)
        });
    let pages = tree
        .pages
        .iter()
        .filter(|(path, _)| path != "docs/glossary.md");
    comments.chain(pages.map(|(path, text)| (path.clone(), text.replace("\n\n", ".\n"))))
}

/// Each word and the number of its uses, for each crate and page.
pub(crate) fn forbidden_words(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    for (place, text) in prose(tree) {
        for word in text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .map(str::to_lowercase)
        {
            if WORDS.contains(&word.as_str()) {
                *findings.entry(format!("{place} {word}")).or_default() += 1;
            }
        }
    }
    findings
}

/// Items whose name has one of the words: functions, types, constants and modules.
pub(crate) fn forbidden_names(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    for source in &tree.rust {
        for name in source.code.lines().filter_map(item) {
            let word =
                |word: &String| WORDS.contains(&word.as_str()) || VERBS.contains(&word.as_str());
            if words_of(name).iter().any(word) {
                *findings
                    .entry(format!("{}: {name}", source.path))
                    .or_default() += 1;
            }
        }
    }
    findings
}

/// The name of the item that a line of code begins.
fn item(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    words.find(|word| ITEMS.contains(word))?;
    let name = words.find(|word| !ITEMS.contains(word))?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&name[..end.unwrap_or(name.len())])
}

/// The words of a name: `write_told` and `WriteTold` have two.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        if c != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase() || c.is_numeric();
    }
    words
}

/// The number of sentences without a main clause, for each crate and page.
pub(crate) fn headless(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    for (place, text) in prose(tree) {
        let count = sentences(&text)
            .filter(|sentence| is_headless(sentence))
            .count();
        if count > 0 {
            *findings.entry(place).or_default() += count;
        }
    }
    findings
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split(['.', '!', '?', '\n'])
        .map(str::trim)
        .zip(text.split_inclusive(['.', '!', '?', '\n']))
        .filter_map(|(sentence, whole)| (!whole.ends_with('?')).then_some(sentence))
}

/// A question is fine, and so is a heading of a list ("What is left:").
fn is_headless(sentence: &str) -> bool {
    OPENINGS.iter().any(|opening| {
        sentence
            .strip_prefix(opening)
            .is_some_and(|rest| rest.starts_with(' '))
    })
}

#[test]
fn headless_sentences_are_found() {
    let count = |text: &str| {
        sentences(text)
            .filter(|sentence| is_headless(sentence))
            .count()
    };
    assert_eq!(
        count("What a sync left. The rest is fine. Who asks is answered"),
        2
    );
    assert_eq!(count("What is left? Somebody who asks. Whatsoever"), 0);
}

#[test]
fn items_are_found_by_the_words_of_their_names() {
    assert_eq!(
        item("    pub(crate) const fn told<T>(x: T) {"),
        Some("told")
    );
    assert_eq!(item("struct WriteTold;"), Some("WriteTold"));
    assert_eq!(item("    let told = 1;"), None);
    assert_eq!(words_of("WriteTold"), ["write", "told"]);
    assert_eq!(words_of("MOST_TOLD"), ["most", "told"]);
    assert_eq!(words_of("retold"), ["retold"]);
}
