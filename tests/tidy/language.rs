//! Counts words and sentences that docs/glossary.md replaces: in comments (of scripts as well), pages and messages, and
//! in the names of items.

use crate::known::Findings;
use crate::source::{Source, Tree};

/// Words of no row of the glossary, which its last paragraph names.
const WITHOUT_ROW: &str = "whoever, whomever";

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
        .map(|source| (source.package().to_owned(), joined(&source.comments)));
    let scripts = tree
        .scripts
        .iter()
        .map(|(path, comments)| (path.clone(), joined(comments)));
    let pages = tree
        .pages
        .iter()
        .filter(|(path, _)| path != "docs/glossary.md");
    let pages = pages.map(|(path, text)| (path.clone(), text.replace("\n\n", ".\n")));
    comments.chain(scripts).chain(pages)
}

/// The lines of comments as one text. A blank line of a comment, or code between two comments, ends a sentence.
fn joined(comments: &[(usize, String)]) -> String {
    let mut text = String::new();
    let mut last = None;
    for (line, comment) in comments {
        let goes_on = last.is_some_and(|last| last + 1 == *line) && !comment.is_empty();
        text.push_str(if goes_on { " " } else { ".\n" });
        text.push_str(comment);
        last = Some(*line);
    }
    text
}

/// The messages in the programs' string literals. A literal without a space is a key or the name of a file.
fn messages(tree: &Tree) -> impl Iterator<Item = (String, String)> {
    let programs = tree.rust.iter().filter(|source| !source.is_test());
    programs.flat_map(|source| {
        let literals = source.literals.iter().filter(|text| text.contains(' '));
        literals.map(move |text| (source.package().to_owned(), text.replace("\\n", " ")))
    })
}

/// The words and phrases of the glossary's last column, each as its words.
fn replaced(glossary: &str) -> Vec<Vec<String>> {
    let rows = glossary
        .lines()
        .skip_while(|line| !line.starts_with("| word | meaning | not used |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    cells
        .chain([WITHOUT_ROW])
        .flat_map(|cell| cell.split(','))
        .map(words_of_text)
        .filter(|words| !words.is_empty())
        .collect()
}

fn replaced_in(tree: &Tree) -> Vec<Vec<String>> {
    let mut pages = tree.pages.iter();
    let glossary = pages.find(|(path, _)| path == "docs/glossary.md");
    replaced(&glossary.expect("docs/glossary.md is there").1)
}

/// The words of a text, in lower case.
fn words_of_text(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// How often a phrase, or its plural, is among the words.
fn uses(words: &[String], phrase: &[String]) -> usize {
    let Some((last, before)) = phrase.split_last() else {
        return 0;
    };
    words
        .windows(phrase.len())
        .filter(|part| {
            part.starts_with(before)
                && part.last().is_some_and(|word| {
                    word == last || word.strip_suffix('s') == Some(last.as_str())
                })
        })
        .count()
}

/// Each word and the number of its uses, for each crate and page.
pub(crate) fn forbidden_words(tree: &Tree) -> Findings {
    let replaced = replaced_in(tree);
    let mut findings = Findings::new();
    for (place, text) in prose(tree).chain(messages(tree)) {
        let words = words_of_text(&text);
        for phrase in &replaced {
            let count = uses(&words, phrase);
            if count > 0 {
                *findings
                    .entry(format!("{place} {}", phrase.join(" ")))
                    .or_default() += count;
            }
        }
    }
    findings
}

/// Items whose name has one of the words: functions, types, constants and modules.
pub(crate) fn forbidden_names(tree: &Tree) -> Findings {
    let replaced = replaced_in(tree);
    let mut findings = Findings::new();
    for source in &tree.rust {
        for name in source.code.lines().filter_map(item) {
            let words = words_of(name);
            if replaced.iter().any(|phrase| uses(&words, phrase) > 0) {
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
fn words_of_the_last_column_are_found() {
    let page = "`a` | text\n\n| word | meaning | not used |\n|---|---|---|\n\
                | dirty | Changed. | owed, paid up |\n| gate | The `x`. | |\n\ntold | old |\n";
    let replaced = replaced(page);
    let found = |text: &str| -> Vec<String> {
        let words = words_of_text(text);
        let of = |phrase: &&Vec<String>| uses(&words, phrase) > 0;
        replaced
            .iter()
            .filter(of)
            .map(|phrase| phrase.join(" "))
            .collect()
    };
    assert_eq!(
        found("Owed is what was\npaid up; whoever"),
        ["owed", "paid up", "whoever"]
    );
    assert!(found("paid, told up gate").is_empty());
    let tree = Tree {
        paths: Vec::new(),
        rust: vec![Source::new(
            "vfs/src/a.rs".into(),
            "f(\"\\nis owed: {x}\", \"owed\")".into(),
        )],
        pages: vec![("docs/glossary.md".into(), page.into())],
        scripts: Vec::new(),
    };
    let words = forbidden_words(&tree);
    assert_eq!(
        words.into_iter().collect::<Vec<_>>(),
        [("vfs owed".to_owned(), 1)]
    );
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
