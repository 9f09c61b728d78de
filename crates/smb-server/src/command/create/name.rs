//! Parses the name of a CREATE or a rename ([MS-FSCC] 2.1.5, [MS-FSA] 2.1.5.1).
//!
//! The result holds the components as listings show them, so that no later step has to know what clients send. Nothing
//! here asks the disk.

use smb_wire::{status::Status, utf16};
use vfs::{PATH_DEPTH_MAX, posix::name::shown};

use crate::failure::Failure;

/// Longest path in UTF-16 units.
const PATH_MAX: usize = 32_760;
/// Longest component in UTF-16 units.
const COMPONENT_MAX: usize = 255;

/// The stream part of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) enum Stream {
    /// `::$DATA`: the unnamed stream, named explicitly.
    Unnamed,
    /// `:name` or `:name:$DATA`.
    Named(String),
}

/// A parsed name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) struct Name {
    /// Components below the share root as listings show them ([`shown`]); none for the root.
    pub(in crate::command) path: Vec<String>,
    /// The stream, if the name has one.
    pub(in crate::command) stream: Option<Stream>,
    /// The name ended in a backslash.
    pub(in crate::command) trailing: bool,
}

/// Parses a name.
///
/// # Errors
/// `OBJECT_NAME_INVALID` for a name that is invalid or too deep, `INVALID_PARAMETER` for a leading backslash,
/// `OBJECT_PATH_SYNTAX_BAD` for dot names.
pub(in crate::command) fn parse_name(bytes: &[u8]) -> Result<Name, Failure> {
    if !bytes.len().is_multiple_of(2) || bytes.len() / 2 > PATH_MAX {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    let text = utf16::decode(bytes, "name").map_err(|_| Status::OBJECT_NAME_INVALID)?;
    if text.starts_with('\\') {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let trailing = text.ends_with('\\');
    let text = text.strip_suffix('\\').unwrap_or(&text);
    if text.is_empty() {
        return Ok(Name {
            path: Vec::new(),
            stream: None,
            trailing,
        });
    }
    let (path, stream) = match text.find(':') {
        None => (text, None),
        Some(at) => {
            let (path, rest) = text.split_at(at);
            (path, Some(parse_stream(rest.get(1..).unwrap_or_default())?))
        }
    };
    let path = if path.is_empty() {
        Vec::new()
    } else {
        // [MS-FSA] 2.1.5.1: it is refused like a path that is too long, before anything is looked up on the disk or
        // stored.
        if path.split('\\').nth(PATH_DEPTH_MAX).is_some() {
            return Err(Status::OBJECT_NAME_INVALID.into());
        }
        path.split('\\')
            .map(|component| check_component(component).map(|()| shown(component).into_owned()))
            .collect::<Result<_, _>>()?
    };
    Ok(Name {
        path,
        stream,
        trailing,
    })
}

fn check_component(component: &str) -> Result<(), Failure> {
    if matches!(component, "." | "..") {
        return Err(Status::OBJECT_PATH_SYNTAX_BAD.into());
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
    Ok(())
}

fn is_too_long(name: &str) -> bool {
    // A name never has more UTF-16 units than UTF-8 bytes.
    name.len() > COMPONENT_MAX && name.encode_utf16().count() > COMPONENT_MAX
}

/// Parses the part after the first colon: `name`, `name:$DATA`, `:$DATA`.
fn parse_stream(text: &str) -> Result<Stream, Failure> {
    let (name, kind) = match text.split_once(':') {
        Some((name, kind)) => (name, Some(kind)),
        None => (text, None),
    };
    match kind {
        Some(kind) if !kind.eq_ignore_ascii_case("$DATA") => {
            return Err(Status::OBJECT_NAME_INVALID.into());
        }
        Some(_) if name.is_empty() => return Ok(Stream::Unnamed),
        _ => {}
    }
    let forbidden = |c| matches!(c, b'\0' | b'\\' | b'/' | b':');
    if name.is_empty() || is_too_long(name) || name.bytes().any(forbidden) {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    Ok(Stream::Named(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str) -> Option<Status> {
        match parse_name(&utf16::encode(name)) {
            Ok(_) => None,
            Err(Failure::Status(status)) => Some(status),
            Err(_) => panic!("no status"),
        }
    }

    fn path(name: &str) -> Vec<String> {
        parse_name(&utf16::encode(name)).unwrap().path
    }

    #[test]
    fn components_are_split_at_backslashes() {
        assert_eq!(path(r"a\b c\d.txt"), ["a", "b c", "d.txt"]);
        assert!(path("").is_empty());
        assert!(parse_name(&utf16::encode(r"a\")).unwrap().trailing);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert_eq!(status(r"\a"), Some(Status::INVALID_PARAMETER));
        assert_eq!(status(r"a\..\b"), Some(Status::OBJECT_PATH_SYNTAX_BAD));
        for bad in [
            r"a\\b",
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
            parse_name(&[0x41]),
            Err(Failure::Status(Status::OBJECT_NAME_INVALID))
        ));
        // A lone surrogate.
        assert!(parse_name(&[0x00, 0xd8]).is_err());
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
        let stream = |name: &str| parse_name(&utf16::encode(name)).unwrap().stream;
        assert_eq!(stream("a:b"), Some(Stream::Named("b".into())));
        assert_eq!(stream("a:b:$data"), Some(Stream::Named("b".into())));
        assert_eq!(stream("a::$DATA"), Some(Stream::Unnamed));
        assert_eq!(status("a:"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status("a:b:$X"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status("a:b:"), Some(Status::OBJECT_NAME_INVALID));
        assert_eq!(status(r"a:b\c"), Some(Status::OBJECT_NAME_INVALID));
    }
}
