//! Parses the name of a CREATE or a rename ([MS-FSCC] 2.1.5, [MS-FSA] 2.1.5.1).
//!
//! The result holds the components as listings show them, so that no later step has to know what clients send. Nothing
//! here asks the disk.

use smb_wire::{status::Status, utf16};
use vfs::{
    PATH_DEPTH_MAX, fold,
    posix::name::{SHOWN_MAX, shown},
};

use crate::{command::split, failure::Failure};

/// Longest path in UTF-16 units.
const PATH_MAX: usize = 32_760;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) enum Stream {
    /// `::$DATA`: the unnamed stream, named explicitly.
    Unnamed,
    /// `:name` or `:name:$DATA`.
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) struct Name {
    /// Components below the share root as listings show them ([`shown`]); none for the root.
    pub(in crate::command) path: Vec<String>,
    pub(in crate::command) stream: Option<Stream>,
    /// The name ended in `::$INDEX_ALLOCATION` or `:$I30:$INDEX_ALLOCATION`, the stream in which a directory holds its
    /// entries, so it must name a directory.
    pub(in crate::command) index: bool,
    /// The name ended in another stream of the type `$INDEX_ALLOCATION`, which no directory has: `$Extend\$Quota:$Q`
    /// of NTFS is one.
    pub(in crate::command) foreign_index: bool,
    /// The name ended in a backslash.
    pub(in crate::command) trailing: bool,
}

impl Name {
    /// The name of the stream as the engine compares it; none for the unnamed one.
    pub(super) fn folded_stream(&self) -> Option<String> {
        match &self.stream {
            Some(Stream::Named(stream)) => Some(fold(stream)),
            Some(Stream::Unnamed) | None => None,
        }
    }
}

/// Decodes a name and validates its path ([MS-SMB2] 3.3.5.9, "Path Name Validation"), which comes before the create
/// contexts and before the object store sees the other fields.
///
/// # Errors
/// `INVALID_PARAMETER` for an odd length, a leading backslash and `..`, `OBJECT_PATH_SYNTAX_BAD` if that leads above
/// the root, `OBJECT_NAME_INVALID` for a name that is too long or no UTF-16.
pub(super) fn validated(bytes: &[u8]) -> Result<String, Failure> {
    // [MS-SMB2] 3.3.5.9: NameLength is a multiple of 2.
    Status::INVALID_PARAMETER.when(!bytes.len().is_multiple_of(2))?;
    let text = utf16::decode(bytes, "name").map_err(|_| Status::OBJECT_NAME_INVALID)?;
    check_path(&text)?;
    Ok(text)
}

/// [MS-FSCC] 2.1.5.1, note 303 on [MS-SMB2] 3.3.5.9: a path that leads up again is refused, with another status where
/// it leads above the root (docs/protocol-notes.md, "Names of directories").
fn check_path(text: &str) -> Result<(), Failure> {
    Status::OBJECT_NAME_INVALID.when(is_longer(text, PATH_MAX))?;
    Status::INVALID_PARAMETER.when(text.starts_with('\\'))?;
    let mut at_root = true;
    for component in components(text) {
        match split(component, ':').0 {
            ".." if at_root => return Err(Status::OBJECT_PATH_SYNTAX_BAD.into()),
            ".." => return Err(Status::INVALID_PARAMETER.into()),
            "." => {}
            _ => at_root = false,
        }
    }
    Ok(())
}

/// Validates and parses a name.
pub(in crate::command) fn parse_name(text: &str) -> Result<Name, Failure> {
    check_path(text)?;
    parse(text)
}

/// Parses a name whose path is valid. `CON` is a name like others (docs/protocol-notes.md, "Names of DOS devices").
///
/// # Errors
/// `OBJECT_NAME_INVALID` for a name that is invalid or too deep, `OBJECT_PATH_NOT_FOUND` for the index of a directory
/// without a name in the path.
pub(super) fn parse(text: &str) -> Result<Name, Failure> {
    let trailing = text.ends_with('\\');
    // [MS-FSA] 2.1.5.1, phase 3: redundant and trailing backslashes are stripped.
    let text = text.trim_end_matches('\\');
    // [MS-FSA] 2.1.5.1: a path that is too deep is refused like one that is too long, before anything is looked up on
    // the disk or stored.
    Status::OBJECT_NAME_INVALID.when(components(text).nth(PATH_DEPTH_MAX).is_some())?;
    let mut path = Vec::new();
    let (above, last) = match text.rsplit_once('\\') {
        None => (None, text),
        Some((above, last)) => (Some(above), last),
    };
    let (last, part) = split(last, ':');
    // [MS-FSA] 2.1.5.1, phase 1: a last component without a name is invalid, whatever is above it.
    Status::OBJECT_NAME_INVALID.when(last.is_empty() && above.is_some())?;
    for component in above.into_iter().flat_map(components) {
        path.extend(component_name(directory_name(component)?)?);
    }
    let part = part.map(part_of).transpose()?;
    // The root of the share has no name, whether or not one of its streams is named.
    if !last.is_empty() {
        path.extend(component_name(last)?);
    }
    let index = part == Some(Part::Index);
    let foreign_index = part == Some(Part::ForeignIndex);
    let stream = part.and_then(|part| match part {
        Part::Stream(stream) => Some(stream),
        Part::Index | Part::ForeignIndex => None,
    });
    Ok(Name {
        path,
        stream,
        index,
        foreign_index,
        trailing,
    })
}

/// The components of a path, without the empty ones between redundant backslashes.
fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('\\').filter(|component| !component.is_empty())
}

/// Checks a component above the last one. [MS-FSA] 2.1.5.1, phase 6: it may name its index, but no other stream.
fn directory_name(component: &str) -> Result<&str, Failure> {
    let name = match component.split_once(':') {
        None => component,
        Some((name, part)) if matches!(part_of(part), Ok(Part::Index)) => name,
        Some(_) => return Err(Status::OBJECT_NAME_INVALID.into()),
    };
    // No directory has this name.
    Status::OBJECT_PATH_NOT_FOUND.when(name.is_empty())?;
    Ok(name)
}

/// Returns the component as listings show it. [MS-FSCC] 2.1.5.1: "." is the directory before it.
fn component_name(component: &str) -> Result<Option<String>, Failure> {
    if component == "." {
        return Ok(None);
    }
    let forbidden = |c| {
        matches!(
            c,
            b'\0'..=b'\x1f' | b'"' | b'/' | b'<' | b'>' | b'|' | b'*' | b'?'
        )
    };
    if component.is_empty() || is_too_long(component) || component.bytes().any(forbidden) {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    Ok(Some(shown(component).into_owned()))
}

/// Whether a component, or the name of a stream, is longer than any can be.
pub(in crate::command) fn is_too_long(name: &str) -> bool {
    is_longer(name, SHOWN_MAX)
}

fn is_longer(text: &str, units: usize) -> bool {
    // A text never has more UTF-16 units than UTF-8 bytes.
    text.len() > units && text.encode_utf16().count() > units
}

/// The part of a name after the first colon.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Stream(Stream),
    /// The index of a directory.
    Index,
    /// An index that no directory has.
    ForeignIndex,
}

/// Parses the part after the first colon: `name`, `name:$DATA`, `:$DATA`, `:$INDEX_ALLOCATION`,
/// `$I30:$INDEX_ALLOCATION`.
fn part_of(text: &str) -> Result<Part, Failure> {
    let (name, kind) = split(text, ':');
    match kind {
        Some(kind) if kind.eq_ignore_ascii_case("$INDEX_ALLOCATION") => {
            return match name.is_empty() || name.eq_ignore_ascii_case("$I30") {
                true => Ok(Part::Index),
                false => Ok(Part::ForeignIndex),
            };
        }
        Some(kind) if !kind.eq_ignore_ascii_case("$DATA") => {
            return Err(Status::OBJECT_NAME_INVALID.into());
        }
        Some(_) if name.is_empty() => return Ok(Part::Stream(Stream::Unnamed)),
        _ => {}
    }
    let forbidden = |c| matches!(c, b'\0' | b'\\' | b'/' | b':');
    if name.is_empty() || is_too_long(name) || name.bytes().any(forbidden) {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    Ok(Part::Stream(Stream::Named(name.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str) -> Option<Status> {
        match parse_name(name) {
            Ok(_) => None,
            Err(Failure::Status(status)) => Some(status),
            Err(_) => panic!("no status"),
        }
    }

    fn path(name: &str) -> Vec<String> {
        parse_name(name).unwrap().path
    }

    #[test]
    fn components_are_split_at_backslashes() {
        assert_eq!(path(r"a\b c\d.txt"), ["a", "b c", "d.txt"]);
        assert!(path("").is_empty());
        for trailing in [r"a\", r"a\\"] {
            assert_eq!(path(trailing), ["a"]);
            assert!(parse_name(trailing).unwrap().trailing);
        }
        for redundant in [r"a\\b\c", r"a\b\\\c\\"] {
            assert_eq!(path(redundant), ["a", "b", "c"]);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for leading in [r"\a", r"\\a", r"\"] {
            assert_eq!(status(leading), Some(Status::INVALID_PARAMETER));
        }
        assert_eq!(status(r"a\..\b"), Some(Status::INVALID_PARAMETER));
        for above in ["..", r"..\a", r".\.."] {
            assert_eq!(status(above), Some(Status::OBJECT_PATH_SYNTAX_BAD));
        }
        for unnamed in [r"a\\::$DATA", r"a\:s"] {
            let refused = Some(Status::OBJECT_NAME_INVALID);
            assert_eq!(status(unnamed), refused, "{unnamed}");
        }
        for bad in [
            "a/b",
            "a*",
            "a?",
            "a<b",
            "a\0b",
            "a|b",
            "a\"",
            &"x".repeat(256),
        ] {
            assert_eq!(status(bad), Some(Status::OBJECT_NAME_INVALID), "{bad}");
        }
        assert!(matches!(
            validated(&[0x41]),
            Err(Failure::Status(Status::INVALID_PARAMETER))
        ));
        // A lone surrogate.
        assert!(validated(&[0x00, 0xd8]).is_err());
    }

    #[test]
    fn components_are_spelled_as_they_are_listed() {
        let listed = "d\u{F029}\\e\u{F028}\\f.txt";
        for sent in [listed, "d.\\e \\f.txt", "d.\\e\u{F028}\\f.txt"] {
            assert_eq!(path(sent).join("\\"), listed);
        }
        assert_eq!(path("f.:s "), ["f\u{F029}"]);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = vec!["d"; PATH_DEPTH_MAX].join("\\");
        assert_eq!(path(&deep).len(), PATH_DEPTH_MAX);
        assert_eq!(path(&format!("{deep}:stream")).len(), PATH_DEPTH_MAX);
        for beyond in [format!("{deep}\\d"), format!("{deep}\\{deep}:stream")] {
            assert_eq!(status(&beyond), Some(Status::OBJECT_NAME_INVALID));
        }
    }

    #[test]
    fn streams() {
        let stream = |name: &str| parse_name(name).unwrap().stream;
        assert_eq!(stream("a:b"), Some(Stream::Named("b".into())));
        assert_eq!(stream("a:b:$data"), Some(Stream::Named("b".into())));
        assert_eq!(stream("a::$DATA"), Some(Stream::Unnamed));
        assert_eq!(status("a:"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status("a:b:$X"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status("a:b:"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status(r"a:b\c"), Some(Status::OBJECT_NAME_INVALID));
        let index = |name: &str| parse_name(name).unwrap().index;
        assert!(index("a::$INDEX_ALLOCATION") && index("a:$i30:$index_allocation"));
        assert!(!index("a") && !index(r"a::$INDEX_ALLOCATION\b"));
        assert_eq!(path(r"a:$I30:$INDEX_ALLOCATION\b"), ["a", "b"]);
        let foreign = parse_name("a:b:$INDEX_ALLOCATION").unwrap();
        assert!(foreign.foreign_index && !foreign.index && foreign.stream.is_none());
    }

    #[test]
    fn a_dot_is_the_directory_before_it() {
        assert_eq!(path(r".\a\.\b\."), ["a", "b"]);
        assert!(path(".").is_empty());
        assert_eq!(
            path(r"a\..."),
            ["a", "..."].map(|name| shown(name).into_owned())
        );
    }
}
