//! Counts words and sentences that docs/glossary.md replaces, for each crate and for the pages.
//!
//! Only comments and Markdown are read: names are the compiler's affair, and a name that is wrong shows in the comment
//! that explains it.

use crate::known::Findings;
use crate::source::Tree;

/// Words that the glossary replaces; `told` and `heard` stand for the verbs that they are forms of.
const WORDS: [&str; 17] = [
    "owed", "owes", "owe", "debt", "debts", "unpaid", "payer", "payers", "nameless", "whoever",
    "whomever", "told", "tells", "heard", "hears", "latched", "doomed",
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
