//! The repository's files, each split into code and comments.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates that make up the product, by folder. Tests, tools and examples are not among them.
pub(crate) const PRODUCT: [&str; 7] = [
    "crates/smb-wire",
    "crates/smb-crypto",
    "crates/smb-auth",
    "crates/smb-server",
    "vfs",
    "durability",
    "smbd",
];

pub(crate) struct Tree {
    /// Paths from the root of the repository, of every file that belongs to it.
    pub(crate) paths: Vec<String>,
    pub(crate) rust: Vec<Source>,
    /// Paths and texts.
    pub(crate) pages: Vec<(String, String)>,
    /// Scripts and TOML files: paths and comments, with the numbers of their lines.
    pub(crate) scripts: Vec<(String, Vec<(usize, String)>)>,
}

/// One file of Rust.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments and the contents of strings blanked; the lines are those of the text.
    pub(crate) code: String,
    /// Comments without their slashes, one entry for each line that has one: the line's number, from 0, and the text.
    pub(crate) comments: Vec<(usize, String)>,
    /// The string literals with their quotes, as they stand in the text.
    pub(crate) literals: Vec<String>,
}

pub(crate) fn root() -> PathBuf {
    match option_env!("CARGO_MANIFEST_DIR") {
        Some(package) => Path::new(package)
            .parent()
            .unwrap_or(Path::new("."))
            .to_owned(),
        None => PathBuf::from("."),
    }
}

impl Tree {
    pub(crate) fn read() -> Self {
        let mut tree = Tree {
            paths: Vec::new(),
            rust: Vec::new(),
            pages: Vec::new(),
            scripts: Vec::new(),
        };
        let root = root();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let entries =
                fs::read_dir(root.join(&folder)).expect("a folder of the repository can be listed");
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = folder.join(&name);
                let is_build = name == "target" || name == "node_modules" || name == "__pycache__";
                let is_hidden = name.starts_with('.') && name != ".ci";
                if entry.path().is_dir() {
                    if !is_build && !is_hidden {
                        folders.push(path);
                    }
                    continue;
                }
                let path = path.to_string_lossy().into_owned();
                if path.ends_with(".rs") {
                    let text = fs::read_to_string(entry.path()).unwrap_or_default();
                    tree.rust.push(Source::new(path.clone(), text));
                } else if path.ends_with(".md") {
                    tree.pages.push((
                        path.clone(),
                        fs::read_to_string(entry.path()).unwrap_or_default(),
                    ));
                } else if let Some(text) = script(&entry.path()) {
                    let comments = comments_of_script(&text);
                    tree.scripts.push((path.clone(), comments));
                }
                tree.paths.push(path);
            }
        }
        tree.rust.sort_by(|a, b| a.path.cmp(&b.path));
        tree.pages.sort();
        tree.scripts.sort();
        tree
    }

    /// The product's files, tests left out.
    pub(crate) fn product(&self) -> impl Iterator<Item = &Source> {
        self.rust
            .iter()
            .filter(|source| !source.is_test() && PRODUCT.contains(&source.package()))
    }
}

impl Source {
    pub(crate) fn new(path: String, text: String) -> Self {
        let (code, comments, literals) = split(&text);
        Source {
            path,
            code: without_test_modules(&code),
            text,
            comments,
            literals,
        }
    }

    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.starts_with("tests/")
            || self.path.contains("/tests/")
            || self.path.starts_with("fuzz/")
            || self.path.starts_with("benches/")
            || self.path.contains("/benches/")
            || name == "tests.rs"
            || name.ends_with("_tests.rs")
            || self.text.contains("#![cfg(test)]")
    }

    /// The folder of the crate: what precedes `/src/` or `/tests/`, or the first part of the path.
    pub(crate) fn package(&self) -> &str {
        let of = |part: &str| self.path.find(part).map(|at| &self.path[..at]);
        of("/src/")
            .or_else(|| of("/tests/"))
            .unwrap_or_else(|| self.path.split('/').next().unwrap_or_default())
    }
}

/// The text of a file whose name or first line makes it a script or TOML.
fn script(path: &Path) -> Option<String> {
    let is_named = path
        .extension()
        .is_some_and(|end| end == "py" || end == "toml");
    if path.extension().is_some() && !is_named {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    (is_named || text.starts_with("#!")).then_some(text)
}

/// Comments that begin with `# `, and the docstrings of Python. `#key = 1` is no comment: examples show settings so.
fn comments_of_script(text: &str) -> Vec<(usize, String)> {
    const QUOTES: &str = "\"\"\"";
    let mut comments = Vec::new();
    // Whether the text in three quotes that has begun is a docstring.
    let mut begun: Option<bool> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_docstring = begun.unwrap_or(line.starts_with(QUOTES));
        let is_quoted = begun.is_some() || is_docstring;
        if is_docstring {
            comments.push((number, line.replace(QUOTES, "").trim().to_owned()));
        }
        if !line.matches(QUOTES).count().is_multiple_of(2) {
            begun = match begun {
                None => Some(is_docstring),
                Some(_) => None,
            };
        }
        if is_quoted {
            continue;
        }
        let comment = match line.strip_prefix("# ") {
            None if line == "#" => Some(""),
            None => line
                .split_once(" # ")
                .filter(|(code, _)| code.matches(['"', '\'']).count().is_multiple_of(2))
                .map(|(_, comment)| comment),
            whole => whole,
        };
        comments.extend(comment.map(|comment| (number, comment.trim().to_owned())));
    }
    comments
}

/// Blanks comments and the contents of strings, and collects both.
fn split(text: &str) -> (String, Vec<(usize, String)>, Vec<String>) {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut comments = Vec::new();
    let mut literals = Vec::new();
    let mut line = 0;
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let skipped = match rest {
            ['/', '/', ..] => {
                let end = rest.iter().position(|&c| c == '\n').unwrap_or(rest.len());
                let comment: String = rest[..end].iter().collect();
                let comment = comment.trim_start_matches('/').trim_start_matches('!');
                comments.push((line, comment.trim().to_owned()));
                end
            }
            ['/', '*', ..] => rest
                .windows(2)
                .position(|two| two == ['*', '/'])
                .map_or(rest.len(), |end| end + 2),
            ['r', '"', ..] | ['r', '#', ..] if !is_word_before(&chars, at) => raw_string(rest),
            ['"', ..] => quoted(rest, '"'),
            ['\'', '\\', ..] => quoted(rest, '\''),
            ['\'', _, '\'', ..] => 3,
            _ => 0,
        };
        let taken = skipped.max(1);
        if skipped > 0 && matches!(rest[0], 'r' | '"') {
            literals.push(rest[..skipped].iter().collect());
        }
        for &c in &rest[..taken] {
            if c == '\n' {
                line += 1;
            }
            code.push(if c == '\n' || skipped == 0 { c } else { ' ' });
        }
        at += taken;
    }
    (code, comments, literals)
}

fn is_word_before(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn quoted(rest: &[char], end: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != end {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a raw string; 0 for a raw identifier.
fn raw_string(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let mut at = hashes + 2;
    while at < rest.len() {
        if rest[at] == '"'
            && rest[at + 1..]
                .iter()
                .take(hashes)
                .filter(|&&c| c == '#')
                .count()
                == hashes
        {
            return at + 1 + hashes;
        }
        at += 1;
    }
    rest.len()
}

/// Blanks each inline module of tests.
fn without_test_modules(code: &str) -> String {
    let mut code = code.to_owned();
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]").map(|at| from + at) {
        from = at + 12;
        let Some(open) = code[from..].find(['{', ';']).map(|open| from + open) else {
            break;
        };
        if code.as_bytes()[open] == b';' || !code[from..open].contains("mod ") {
            continue;
        }
        let end = closing(&code, open);
        let blank: String = code[at..end]
            .chars()
            .map(|c| if c == '\n' { '\n' } else { ' ' })
            .collect();
        code.replace_range(at..end, &blank);
        from = at + blank.len();
    }
    code
}

/// The position behind the brace that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + at + 1;
        }
    }
    code.len()
}

#[test]
fn comments_of_scripts_are_found() {
    let text = "#!/bin/sh\n# One\n#key = 1\na = '# b'  # two\n\"\"\"Three\nfour\n\"\"\"\nb = 1\n\"\"\"Five\"\"\"\nc = \"\"\"\n# no\n\"\"\"\n# Six\n";
    let comments = comments_of_script(text);
    let texts: Vec<&str> = comments.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["One", "two", "Three", "four", "", "Five", "Six"]);
    assert_eq!(comments[1].0, 3);
}

#[test]
fn comments_and_strings_are_no_code() {
    let source = Source::new(
        "a.rs".into(),
        "let a = \"// {\"; // one\nlet b = r#\"\"}\"#; /* { */\nlet c = '{';\n#[cfg(test)]\nmod tests { fn f() {} }\nfn g() {}\n".into(),
    );
    assert!(
        !source.code.contains('{') || source.code.matches('{').count() == 1,
        "{}",
        source.code
    );
    assert!(source.code.contains("fn g()") && !source.code.contains("fn f()"));
    assert_eq!(source.comments, [(0, "one".to_owned())]);
    assert_eq!(source.literals, ["\"// {\"", "r#\"\"}\"#"]);
    assert_eq!(source.code.lines().count(), source.text.lines().count());
}
