//! Checks that comments and pages cite only what a reader can open.
//!
//! A path must be the end of a path in the repository. A section of a specification must be a number.

use crate::known::Findings;
use crate::source::{PRODUCT, Source, Tree};

/// Endings of names that are taken for paths.
const ENDINGS: [&str; 4] = [".rs", ".md", ".py", ".toml"];

/// Names of files that users have, and that the repository has not.
const ELSEWHERE: [&str; 4] = [
    "holdfast.toml",
    "clippy.toml",
    "rust-toolchain.toml",
    "smb.toml",
];

pub(crate) fn dangling(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    let comments = tree.rust.iter().flat_map(|source| {
        source
            .comments
            .iter()
            .map(|(_, comment)| (source.path.as_str(), comment.as_str()))
    });
    let pages = tree
        .pages
        .iter()
        .flat_map(|(path, text)| text.lines().map(|line| (path.as_str(), line)));
    for (path, line) in comments
        .chain(pages)
        .filter(|(path, _)| !path.starts_with("tests/tidy/"))
    {
        for citation in wrong(tree, path, line) {
            *findings.entry(format!("{path}: {citation}")).or_default() += 1;
        }
    }
    findings
}

fn wrong(tree: &Tree, path: &str, line: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for word in line.split(|c: char| c.is_whitespace() || "`()[]\"',;:".contains(c)) {
        let word = word.trim_end_matches('.').trim_start_matches("./");
        let is_path = ENDINGS
            .iter()
            .any(|ending| word.ends_with(ending) && word.len() > ending.len());
        if is_path
            && !word.contains(['*', '<', '$', '{', '~'])
            && !word.starts_with('/')
            && !resolves(tree, path, word)
        {
            wrong.push(word.to_owned());
        }
    }
    for private in [
        "spec-notes",
        "durability.md 4",
        "the design's table",
        "design.md",
    ] {
        if line.contains(private) {
            wrong.push(private.to_owned());
        }
    }
    let words: Vec<&str> = line
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    // An issue of another project is cited with its name or its address.
    let is_link = line.contains("github.com") || line.contains("OpenZFS");
    for two in words.windows(2).filter(|_| !is_link) {
        if matches!(two[0].to_lowercase().as_str(), "issue" | "finding")
            && two[1].bytes().all(|c| c.is_ascii_digit())
        {
            wrong.push(format!("{} {}", two[0], two[1]));
        }
    }
    wrong.extend(
        words
            .iter()
            .filter(|word| is_answer(word))
            .map(|word| (*word).to_owned()),
    );
    wrong.extend(
        line.match_indices("[MS-")
            .filter_map(|(at, _)| misshapen(&line[at..])),
    );
    wrong
}

/// Whether a word looks like the number of an answer in somebody's notes: A364.
fn is_answer(word: &str) -> bool {
    word.len() == 4 && word.starts_with('A') && word[1..].bytes().all(|c| c.is_ascii_digit())
}

fn resolves(tree: &Tree, from: &str, cited: &str) -> bool {
    let mut cited = cited;
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut folder = folder.to_owned();
    while let Some(rest) = cited.strip_prefix("../") {
        folder = folder
            .rsplit_once('/')
            .map_or("", |(above, _)| above)
            .to_owned();
        cited = rest;
    }
    let end = format!("/{cited}");
    ELSEWHERE.contains(&cited) || tree.paths.iter().any(|path| path == cited || path.ends_with(&end))
        // A path may begin with the name of a crate, as in `smb-server/src/turn.rs`, or leave out `src`.
        || cited.split_once('/').is_some_and(|(first, rest)| {
            tree.paths.iter().any(|path| {
                path.ends_with(&format!("/{rest}")) && path.split('/').any(|part| part == first)
            })
        })
}

/// The citation, if it is no `[MS-NAME]` with an optional section such as 3.3.5.9.7.
fn misshapen(text: &str) -> Option<String> {
    let end = text.find(']')?;
    let name = &text[4..end];
    let after = text[end + 1..].strip_prefix(' ').unwrap_or_default();
    let section: String = after
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let section = section.trim_end_matches('.');
    let name_is_right = !name.is_empty()
        && name
            .bytes()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let section_is_right = section.is_empty()
        || section
            .split('.')
            .all(|part| !part.is_empty() && part.len() <= 3);
    (!name_is_right || !section_is_right).then(|| format!("[MS-{name}] {section}"))
}

/// Citations of paragraphs that docs/protocol-notes.md does not have, and its paragraphs that no code of the product
/// cites.
pub(crate) fn protocol_notes(tree: &Tree) -> Findings {
    let mut pages = tree.pages.iter();
    let notes = pages.find(|(path, _)| path == "docs/protocol-notes.md");
    let notes = &notes.expect("docs/protocol-notes.md is there").1;
    let titles: Vec<&str> = notes
        .lines()
        .filter_map(|line| Some(line.strip_prefix("**")?.split_once(".**")?.0))
        .collect();
    let mut findings = Findings::new();
    let mut uncited: Vec<&str> = titles.clone();
    for source in &tree.rust {
        let is_product = !source.is_test() && PRODUCT.contains(&source.package());
        for cited in cited_notes(source) {
            if is_product {
                uncited.retain(|title| *title != cited);
            }
            if !titles.contains(&cited.as_str()) {
                findings.insert(format!("{}: {cited}", source.path), 1);
            }
        }
    }
    findings.extend(
        uncited
            .into_iter()
            .map(|title| (format!("no code cites {title}"), 1)),
    );
    findings
}

/// The titles that follow `docs/protocol-notes.md, ` in the comments of a file.
fn cited_notes(source: &Source) -> Vec<String> {
    let comments: Vec<&str> = source
        .comments
        .iter()
        .map(|(_, text)| text.as_str())
        .collect();
    let text = comments.join(" ");
    text.split("docs/protocol-notes.md, \"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
        .collect()
}

/// The tests that the tables of docs/attacks.md name behind a file that does not have them.
pub(crate) fn missing_tests(tree: &Tree) -> Findings {
    let pages = tree.pages.iter();
    let attacks = pages.filter(|(path, _)| path == "docs/attacks.md");
    let lines = attacks.flat_map(|(_, text)| text.lines());
    let mut findings = Findings::new();
    for row in lines.filter(|line| line.starts_with('|')) {
        let mut file = "";
        // Every second part is between backquotes.
        for cited in row.split('`').skip(1).step_by(2) {
            if ENDINGS.iter().any(|ending| cited.ends_with(ending)) {
                file = cited;
                continue;
            }
            let source = tree.rust.iter().find(|source| source.path == file);
            let function = format!("fn {cited}(");
            let is_there = source.is_some_and(|source| source.text.contains(&function));
            if !file.is_empty() && !is_there {
                *findings.entry(format!("{file}: {cited}")).or_default() += 1;
            }
        }
    }
    findings
}

/// Environment variables of the programs that no page names, except those by which a test starts itself anew.
pub(crate) fn unnamed_variables(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    let pages = || tree.pages.iter().filter(|(path, _)| path != "CHANGELOG.md");
    for source in tree.rust.iter().filter(|source| !source.is_test()) {
        let words = source.text.split('"');
        let named = words.filter(|word| {
            let is_variable = |c: char| c.is_ascii_uppercase() || c == '_';
            word.starts_with("HOLDFAST_") && word.chars().all(is_variable)
        });
        for word in named.filter(|word| !word.starts_with("HOLDFAST_TEST_")) {
            if !pages().any(|(_, text)| text.contains(word)) {
                *findings
                    .entry(format!("{}: {word}", source.path))
                    .or_default() += 1;
            }
        }
    }
    findings
}

/// Environment variables that a page names, in backticks or not, and that no program reads.
pub(crate) fn unread_variables(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    let pages = tree.pages.iter().filter(|(path, _)| path != "CHANGELOG.md");
    for (path, text) in pages {
        let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        for word in words.filter(|word| word.starts_with("HOLDFAST_")) {
            let read = format!("\"{word}\"");
            if !tree.rust.iter().any(|source| source.text.contains(&read)) {
                *findings.entry(format!("{path}: {word}")).or_default() += 1;
            }
        }
    }
    findings
}

#[test]
fn variables_that_no_page_names_or_no_program_reads_are_found() {
    let text = "env(\"HOLDFAST_ONE\"); env(\"HOLDFAST_TWO\"); env(\"HOLDFAST_TEST_A\");";
    let tree = Tree {
        paths: Vec::new(),
        rust: vec![Source::new("a.rs".into(), text.into())],
        pages: vec![(
            "docs/a.md".into(),
            "`HOLDFAST_TWO` `HOLDFAST_GONE=1`".into(),
        )],
        scripts: Vec::new(),
    };
    let unnamed = unnamed_variables(&tree).into_keys();
    assert_eq!(unnamed.collect::<Vec<_>>(), ["a.rs: HOLDFAST_ONE"]);
    let unread = unread_variables(&tree).into_keys();
    assert_eq!(unread.collect::<Vec<_>>(), ["docs/a.md: HOLDFAST_GONE"]);
}

#[test]
fn wrong_citations_of_notes_are_found() {
    let text =
        "// See docs/protocol-notes.md, \"One\n// thing\", and docs/protocol-notes.md, \"Two\".\n";
    let tree = Tree {
        paths: Vec::new(),
        rust: vec![Source::new("vfs/src/a.rs".into(), text.into())],
        pages: vec![(
            "docs/protocol-notes.md".into(),
            "**One thing.** A.\n\n**Three.** C.\n".into(),
        )],
        scripts: Vec::new(),
    };
    let found = protocol_notes(&tree).into_keys();
    assert_eq!(
        found.collect::<Vec<_>>(),
        ["no code cites Three", "vfs/src/a.rs: Two"]
    );
}

#[test]
fn tests_that_are_elsewhere_are_found() {
    let source = |path: &str, text: &str| Source::new(path.into(), text.into());
    let row = "| 1 | none | names | `a.rs` `one`; `two`; `b.rs` `two`; `c.rs` `one` |";
    let tree = Tree {
        paths: Vec::new(),
        rust: vec![source("a.rs", "fn one()"), source("b.rs", "fn two()")],
        pages: vec![("docs/attacks.md".into(), row.into())],
        scripts: Vec::new(),
    };
    let missing = missing_tests(&tree).into_keys();
    assert_eq!(missing.collect::<Vec<_>>(), ["a.rs: two", "c.rs: one"]);
}

#[test]
fn wrong_citations_are_found() {
    let tree = Tree {
        paths: vec!["vfs/src/sys/pool.rs".into()],
        rust: Vec::new(),
        pages: Vec::new(),
        scripts: Vec::new(),
    };
    let found = |line: &str| wrong(&tree, "docs/a.md", line);
    assert!(
        found("see `sys/pool.rs`, vfs/src/sys/pool.rs and pool.rs: [MS-SMB2] 3.3.5.9.7").is_empty()
    );
    assert_eq!(found("see `sys/pond.rs`"), ["sys/pond.rs"]);
    assert_eq!(found("as A364 and issue 15 say"), ["issue 15", "A364"]);
    assert_eq!(found("[MS-SMB2] 3..5"), ["[MS-SMB2] 3..5"]);
}
