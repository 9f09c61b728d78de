//! The rules about sizes of files, heads, borders between crates, clocks, names of types, commits and the version of
//! Rust.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::known::Findings;
use crate::source::{PRODUCT, Tree, root};

/// Lines of a file that contains no tests.
const MOST_LINES: usize = 500;

/// Lines of a file of tests.
const MOST_LINES_OF_TESTS: usize = 1_000;

/// The bound of a long file is a multiple of this, so that not every edit of it changes the list.
const STEP: usize = 50;

/// Characters of a commit's title.
const MOST_OF_TITLE: usize = 72;

/// Words that the first sentence of a file has at least.
const HEAD_WORDS_MIN: usize = 4;

/// Later commits than this one have short titles.
const BASE_OF_TITLES: &str = "faa185912bcd961efe61685987fde4fd2225af1f";

pub(crate) fn file_sizes(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    for source in &tree.rust {
        let lines = source.text.lines().count();
        let most = if source.is_test() {
            MOST_LINES_OF_TESTS
        } else {
            MOST_LINES
        };
        if lines > most {
            findings.insert(source.path.clone(), lines.next_multiple_of(STEP));
        }
    }
    findings
}

/// Files whose head is missing, is no sentence, opens with a word that leaves it without a main clause, or has hardly a
/// word beside names and citations.
pub(crate) fn heads(tree: &Tree) -> Findings {
    let wrong = tree.product().filter(|source| !has_purpose(&source.text));
    wrong.map(|source| (source.path.clone(), 1)).collect()
}

fn has_purpose(text: &str) -> bool {
    let openings = [
        "What ", "Who ", "Whose ", "Whoever ", "That ", "Those ", "Which ",
    ];
    let head: Vec<&str> = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect();
    let head = head.join(" ").replace("//!", "");
    let head = head.trim();
    words_of_purpose(head) >= HEAD_WORDS_MIN
        && !openings.iter().any(|opening| head.starts_with(opening))
}

/// The words of the first sentence that have lower-case letters and are not in parentheses.
fn words_of_purpose(head: &str) -> usize {
    let mut depth = 0_usize;
    let beside = |c: &char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    let text: String = head.chars().filter(beside).collect();
    let text = text + " ";
    let first = text.split_once(". ").map_or("", |(first, _)| first);
    let words = first.split_whitespace();
    words
        .filter(|word| word.contains(|c: char| c.is_ascii_lowercase()))
        .count()
}

/// Compares the dependencies in each Cargo.toml with the table of ARCHITECTURE.md that says which crate may name which.
pub(crate) fn borders(tree: &Tree) -> Findings {
    let page = &tree
        .pages
        .iter()
        .find(|(path, _)| path == "ARCHITECTURE.md")
        .expect("ARCHITECTURE.md is there")
        .1;
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| crate | may name |"))
        .skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let quoted = |cell: &str| {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let may: BTreeMap<String, Vec<String>> = rows
        .filter_map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            Some((quoted(cells.get(1)?).pop()?, quoted(cells.get(2)?)))
        })
        .collect();
    for folder in PRODUCT {
        let name = folder.rsplit('/').next().unwrap_or(folder);
        assert!(may.contains_key(name), "the table has no row of {name}");
    }
    let mut findings = Findings::new();
    for (name, may_name) in &may {
        let folders = [
            format!("crates/{name}/Cargo.toml"),
            format!("{name}/Cargo.toml"),
        ];
        let manifest = folders
            .iter()
            .find_map(|path| fs::read_to_string(root().join(path)).ok());
        let manifest = manifest.expect("a crate of the table has its Cargo.toml");
        let mut is_named = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                // Tests may name every crate; what only one platform needs counts.
                is_named = line.ends_with("dependencies]") && !line.contains("dev-dependencies");
                continue;
            }
            let named = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if is_named && may.contains_key(named) && !may_name.iter().any(|may| may == named) {
                findings.insert(format!("{name} names {named}"), 1);
            }
        }
    }
    findings
}

/// Calls that read the time or chance in crates that get them from outside. Clippy finds loops over a hash map.
pub(crate) fn clocks(tree: &Tree) -> Findings {
    let calls = [
        "Instant::now",
        "SystemTime::now",
        "thread::sleep",
        "getrandom::",
        "RandomState",
        ".elapsed()",
    ];
    let mut findings = Findings::new();
    for source in tree.product().filter(|source| source.package() != "smbd") {
        for call in calls {
            let count = source.code.matches(call).count();
            if count > 0 {
                findings.insert(format!("{} {call}", source.path), count);
            }
        }
    }
    findings
}

pub(crate) fn type_names(tree: &Tree) -> Findings {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for source in tree.product() {
        for line in source.code.lines() {
            let mut words = line.split_whitespace();
            let is_type = words.next() == Some("pub")
                && matches!(words.next(), Some("struct" | "enum" | "trait" | "union"));
            if let Some(name) = words.next().filter(|_| is_type) {
                let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
                *places.entry(name).or_default() += 1;
            }
        }
    }
    places
        .into_iter()
        .filter(|(name, count)| !name.is_empty() && *count > 1)
        .collect()
}

/// Titles that are too long, of the commits since the rule; none where there is no history.
pub(crate) fn commit_titles() -> Findings {
    let range = format!("{BASE_OF_TITLES}..HEAD");
    let log = Command::new("git")
        .current_dir(root())
        .args(["log", "--no-merges", "--format=%s", &range])
        .output();
    let Some(log) = log.ok().filter(|log| log.status.success()) else {
        println!("missing: the history since {BASE_OF_TITLES}");
        return Findings::new();
    };
    let titles = String::from_utf8_lossy(&log.stdout).into_owned();
    let long = titles
        .lines()
        .filter(|title| title.chars().count() > MOST_OF_TITLE);
    long.map(|title| (title.to_owned(), title.chars().count()))
        .collect()
}

/// Compares the version of Rust in Cargo.toml with README.md and with the compiler that is used.
pub(crate) fn rust_version(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("there is a Cargo.toml");
    let named = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    let named = named.expect("Cargo.toml names the oldest Rust");
    let readme = tree
        .pages
        .iter()
        .find(|(path, _)| path == "README.md")
        .map(|(_, text)| text.as_str());
    if !readme
        .unwrap_or_default()
        .contains(&format!("Rust {named}"))
    {
        findings.insert(format!("README.md does not name Rust {named}"), 1);
    }
    let compiler = Command::new("rustc")
        .arg("--version")
        .output()
        .expect("rustc can be asked for its version");
    let compiler = String::from_utf8_lossy(&compiler.stdout).into_owned();
    let version = |text: &str| -> Vec<u32> {
        text.split('.')
            .map_while(|part| part.parse().ok())
            .collect()
    };
    if version(compiler.split_whitespace().nth(1).unwrap_or_default()) < version(named) {
        findings.insert(format!("{} is older than {named}", compiler.trim()), 1);
    }
    findings
}

#[test]
fn heads_without_a_purpose_are_found() {
    assert!(has_purpose(
        "//! READ returns data of a file\n//! ([MS-SMB2] 3.3.5.12).\n\nuse a;\n"
    ));
    assert!(!has_purpose("//! READ ([MS-SMB2] 3.3.5.12).\n"));
    assert!(!has_purpose(
        "//! READ (of data, in a file or pipe).\n//!\n//! All of it is read once more.\n"
    ));
    assert!(!has_purpose("//! What is left of all of the files.\n"));
    assert!(!has_purpose("use std::all::of::it;\n"));
}
