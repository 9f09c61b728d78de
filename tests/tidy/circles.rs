//! Finds circles of imports among the files and folders of each crate of the product.
//!
//! A path is followed through re-exports to the file that defines the item, so a re-export hides no circle and makes
//! none. Folders are those directly in `src`; a file there that has no folder counts as a folder. Test modules are left
//! out.

use std::collections::{BTreeMap, BTreeSet};

use crate::known::Findings;
use crate::source::{PRODUCT, Source, Tree};

/// How many files may import each other in a circle.
const MOST_FILES: usize = 12;

/// A module's path below the crate's root.
type Module = Vec<String>;

struct Import {
    path: Vec<String>,
    /// The name under which the importing module knows the item; `None` for a glob.
    name: Option<String>,
    is_reexport: bool,
}

struct File {
    path: String,
    module: Module,
    imports: Vec<Import>,
}

/// Edges from file to file.
type Graph = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn of_files(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    for package in PRODUCT {
        for circle in circles(&graph(&files(tree, package))) {
            if circle.len() > MOST_FILES {
                findings.insert(
                    format!("{package}: circle with {}", circle[0]),
                    circle.len(),
                );
            }
        }
    }
    findings
}

pub(crate) fn across_folders(tree: &Tree) -> Findings {
    let mut findings = Findings::new();
    for package in PRODUCT {
        let mut folders = Graph::new();
        for (from, targets) in graph(&files(tree, package)) {
            let Some(from) = folder(package, &from) else {
                continue;
            };
            let targets = targets.iter().filter_map(|target| folder(package, target));
            folders
                .entry(from.clone())
                .or_default()
                .extend(targets.filter(|target| *target != from));
        }
        for folder in circles(&folders).into_iter().flatten() {
            findings.insert(format!("{package} {folder}"), 1);
        }
    }
    findings
}

/// The folder in `src` that a file belongs to; the crate's root belongs to none.
fn folder(package: &str, path: &str) -> Option<String> {
    let below = path.strip_prefix(package)?.strip_prefix("/src/")?;
    let first = below.split('/').next()?.trim_end_matches(".rs");
    (!matches!(first, "lib" | "main")).then(|| first.to_owned())
}

fn files(tree: &Tree, package: &str) -> Vec<File> {
    let of_package = tree.product().filter(|source| source.package() == package);
    of_package
        .map(|source| File {
            path: source.path.clone(),
            module: module(package, &source.path),
            imports: imports(source),
        })
        .collect()
}

fn module(package: &str, path: &str) -> Module {
    let below = path
        .strip_prefix(package)
        .and_then(|path| path.strip_prefix("/src/"))
        .unwrap_or(path);
    let mut module: Module = below
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if module.last().is_some_and(|last| last == "mod") || matches!(below, "lib.rs" | "main.rs") {
        module.pop();
    }
    module
}

fn imports(source: &Source) -> Vec<Import> {
    let mut imports = Vec::new();
    let mut inline = String::with_capacity(source.code.len());
    let mut rest = source.code.as_str();
    while let Some(at) = rest.find("use ") {
        let starts = rest[..at]
            .chars()
            .next_back()
            .is_none_or(|c| c.is_whitespace());
        let Some(end) = rest[at..].find(';').filter(|_| starts) else {
            inline.push_str(&rest[..at + 4]);
            rest = &rest[at + 4..];
            continue;
        };
        let line = rest[..at].rsplit('\n').next().unwrap_or_default();
        inline.push_str(&rest[..at]);
        expand(
            &[],
            &rest[at + 4..at + end],
            line.trim_start().starts_with("pub"),
            &mut imports,
        );
        rest = &rest[at + end + 1..];
    }
    inline.push_str(rest);
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in inline.match_indices(start) {
            let before = inline[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let path: String = inline[at..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':')
                .collect();
            let path = path
                .split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect();
            imports.push(Import {
                path,
                name: None,
                is_reexport: false,
            });
        }
    }
    imports
}

/// Expands `a::{b, c::d as e, f::*}`.
fn expand(before: &[String], text: &str, is_reexport: bool, imports: &mut Vec<Import>) {
    let text = text.trim();
    if let Some(open) = text.find('{') {
        let mut before = before.to_vec();
        before.extend(
            text[..open]
                .split("::")
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(str::to_owned),
        );
        let inner = text[open + 1..].trim_end().trim_end_matches('}');
        // The last brace may close an inner list: then it was cut off too early, and is put back.
        let missing = inner
            .matches('{')
            .count()
            .saturating_sub(inner.matches('}').count());
        let inner = format!("{inner}{}", "}".repeat(missing));
        let mut depth = 0;
        for part in inner.split(|c| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        }) {
            if !part.trim().is_empty() {
                expand(&before, part, is_reexport, imports);
            }
        }
        return;
    }
    let (path, alias) = text
        .split_once(" as ")
        .map_or((text, None), |(path, alias)| (path, Some(alias.trim())));
    let mut parts = before.to_vec();
    parts.extend(
        path.split("::")
            .map(|part| part.trim().to_owned())
            .filter(|part| !part.is_empty()),
    );
    let last = parts.last().cloned().unwrap_or_default();
    let name = match last.as_str() {
        "*" => None,
        "self" => parts.iter().rev().nth(1).cloned(),
        _ => Some(last.clone()),
    };
    if last == "self" && parts.len() > 1 || last == "*" {
        parts.pop();
    }
    imports.push(Import {
        path: parts,
        name: alias.map(str::to_owned).or(name),
        is_reexport,
    });
}

fn graph(files: &[File]) -> Graph {
    let by_module: BTreeMap<&Module, &File> =
        files.iter().map(|file| (&file.module, file)).collect();
    let mut graph = Graph::new();
    for file in files {
        let targets = file.imports.iter().filter(|import| !import.is_reexport);
        let targets = targets.filter_map(|import| resolve(&by_module, file, &import.path, 8));
        graph.insert(
            file.path.clone(),
            targets.filter(|target| *target != file.path).collect(),
        );
    }
    graph
}

/// The path of the file that defines what `path` names in `file`; `None` for other crates.
fn resolve(
    files: &BTreeMap<&Module, &File>,
    file: &File,
    path: &[String],
    depth: usize,
) -> Option<String> {
    let mut module = file.module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => module.clear(),
        "self" => {}
        "super" => {
            module.pop()?;
        }
        first => {
            module.push(first.to_owned());
            files.get(&module)?;
        }
    }
    rest = &rest[1..];
    while let Some(next) = rest.first() {
        if next == "super" {
            module.pop();
        } else {
            module.push(next.clone());
            if !files.contains_key(&module) {
                module.pop();
                break;
            }
        }
        rest = &rest[1..];
    }
    let found = files.get(&module)?;
    if let Some(name) = rest.first()
        && let Some(import) = found
            .imports
            .iter()
            .find(|import| import.name.as_ref() == Some(name))
        && depth > 0
    {
        let mut path = import.path.clone();
        path.extend_from_slice(&rest[1..]);
        return resolve(files, found, &path, depth - 1);
    }
    Some(found.path.clone())
}

/// The strongly connected parts of more than one node, each sorted.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            for next in graph.get(node).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|node| (node, reach(node))).collect();
    let mut circles = BTreeSet::new();
    for (node, targets) in &reached {
        let back = targets
            .iter()
            .filter(|target| reached.get(target).is_some_and(|from| from.contains(*node)));
        let circle: BTreeSet<String> = back.cloned().chain([(*node).clone()]).collect();
        if circle.len() > 1 {
            circles.insert(circle.into_iter().collect());
        }
    }
    circles.into_iter().collect()
}

#[test]
fn circles_are_found_through_reexports() {
    let source = |path: &str, text: &str| Source::new(format!("vfs/src/{path}"), text.into());
    let tree = Tree {
        paths: Vec::new(),
        rust: vec![
            source("lib.rs", "mod a; mod b; mod c; pub use a::one::Thing;"),
            source(
                "a/mod.rs",
                "pub(crate) mod one; pub(crate) use one::{self, Thing as Other};",
            ),
            source("a/one.rs", "use crate::b::{B, inner::{C, D}};\nfn f() {}"),
            source(
                "b.rs",
                "fn f(_: crate::Thing) {} #[cfg(test)] mod tests { use crate::c; }",
            ),
            source("c.rs", "use crate::a::Other;"),
        ],
        pages: Vec::new(),
        scripts: Vec::new(),
    };
    let edges = graph(&files(&tree, "vfs"));
    assert!(
        edges["vfs/src/b.rs"].contains("vfs/src/a/one.rs")
            && edges["vfs/src/c.rs"].contains("vfs/src/a/one.rs")
    );
    assert_eq!(circles(&edges), [["vfs/src/a/one.rs", "vfs/src/b.rs"]]);
    assert_eq!(
        across_folders(&tree).into_keys().collect::<Vec<_>>(),
        ["vfs a", "vfs b"]
    );
}
