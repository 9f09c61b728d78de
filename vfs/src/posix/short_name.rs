//! Short (8.3) names ([MS-FSCC] 2.1.5.2.1): made from the long name by a fixed rule and not stored.
//!
//! The rule is a hash, so that a name's short form does not depend on its neighbours and stays
//! the same after restarts. If two long names of a directory share a short form, which is rare, it
//! leads to neither.

use crate::{fold::fold, hash::fnv_1a};

/// Characters of the long name at the beginning of a short one.
const PREFIX_CHARS: usize = 1;
/// Characters of the hash in a short name.
const HASH_CHARS: usize = 5;
/// Characters of a short name.
const SHORT_MAX: usize = 12;
/// Characters of it before the dot.
const BASE_MAX: usize = 8;
/// Characters of its extension.
const EXTENSION_MAX: usize = 3;
/// The number of different hashes in short names.
const CODES: u64 = 36_u64.pow(5);
/// Digits of the hash.
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Appends the short form of a name; or the name itself, in upper case, if it is a short name
/// already.
pub(super) fn put(name: &str, short: &mut String) {
    if is_short(name) {
        return short.extend(name.chars().map(|c| c.to_ascii_uppercase()));
    }
    let (base, extension) = match name.rsplit_once('.') {
        Some((base, extension)) if !base.is_empty() => (base, extension),
        _ => (name, ""),
    };
    short.extend(legal(base).take(PREFIX_CHARS));
    let mut hash = hash(name);
    for _ in 0..HASH_CHARS {
        let digit = usize::try_from(hash % 36).unwrap_or(0);
        short.push(DIGITS.get(digit).map_or('0', |digit| char::from(*digit)));
        hash /= 36;
    }
    short.push_str("~1");
    // A truncated extension is another extension: a search for *.htm must not find *.html.
    if extension.len() <= EXTENSION_MAX && legal(extension).count() == extension.len() {
        short.extend((!extension.is_empty()).then_some('.'));
        short.extend(legal(extension));
    }
}

/// Whether a name needs no other short form.
fn is_short(name: &str) -> bool {
    if name.len() > SHORT_MAX {
        return false;
    }
    let fits =
        |part: &str, max| !part.is_empty() && part.len() <= max && part.bytes().all(is_legal);
    let dot = name.bytes().position(|byte| byte == b'.');
    match dot.and_then(|dot| name.split_at_checked(dot)) {
        Some((base, extension)) => {
            fits(base, BASE_MAX) && fits(extension.get(1..).unwrap_or(""), EXTENSION_MAX)
        }
        None => fits(name, BASE_MAX),
    }
}

/// The part of a name's hash that its short form shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Code(u32);

impl Code {
    /// The code of a name's short form; `None` if the name needs none.
    pub(super) fn of_long(name: &str) -> Option<Self> {
        if is_short(name) {
            return None;
        }
        u32::try_from(hash(name) % CODES).ok().map(Self)
    }

    /// The code in a name that [`put`] could have made from a longer one, so that a search for that one is worthwhile.
    pub(super) fn in_short(name: &str) -> Option<Self> {
        let base = name.split_once('.').map_or(name, |(base, _)| base);
        let stem = base.strip_suffix("~1").filter(|_| is_short(name))?;
        let digits = stem.get(stem.len().checked_sub(HASH_CHARS)?..)?;
        let mut code = 0;
        for digit in digits.bytes().rev() {
            code = code * 36 + char::from(digit).to_digit(36)?;
        }
        Some(Self(code))
    }
}

/// The short form of a name, in upper case; `None` if the name needs none.
pub(super) fn of_long(name: &str) -> Option<String> {
    if is_short(name) {
        return None;
    }
    let mut short = String::with_capacity(SHORT_MAX);
    put(name, &mut short);
    Some(short)
}

fn is_legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"$%'-_@~`!(){}^#&".contains(&byte)
}

fn legal(text: &str) -> impl Iterator<Item = char> + '_ {
    text.bytes()
        .filter(|byte| is_legal(*byte) && *byte != b'~')
        .map(|byte| char::from(byte.to_ascii_uppercase()))
}

/// The hash of the folded name: case does not change a short name.
fn hash(name: &str) -> u64 {
    match name.is_ascii() {
        true => fnv_1a(name.bytes().map(|byte| byte.to_ascii_uppercase())),
        false => fnv_1a(fold(name).bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> String {
        let mut short = String::new();
        put(name, &mut short);
        short
    }

    #[test]
    fn names_that_are_short_stay() {
        for name in ["README.TXT", "a", "X.Y", "autoexec.bat"] {
            assert!(is_short(name), "{name}");
            assert_eq!(of(name), name.to_ascii_uppercase());
        }
        for name in [
            "",
            "a b",
            "a.html",
            "ninechars",
            "a.b.c",
            ".hidden",
            "dot.",
            "ä",
        ] {
            assert!(!is_short(name), "{name}");
        }
    }

    #[test]
    fn short_forms_are_short_stable_and_known_again() {
        for name in [
            "long file name.html",
            ".profile",
            "äöü",
            "a.b.c",
            "testsmb2_file.dat",
        ] {
            let short = of(name);
            assert!(is_short(&short), "{name} {short}");
            let code = Code::of_long(name);
            assert!(code.is_some(), "{name}");
            assert_eq!(Code::in_short(&short), code, "{name} {short}");
            assert_eq!(Code::in_short(&short.to_ascii_lowercase()), code);
            assert_eq!(of(&name.to_uppercase()), short);
            assert_eq!(of_long(name).as_deref(), Some(short.as_str()));
            assert_eq!(of_long(&short), None);
        }
        assert_ne!(of("long file name 1"), of("long file name 2"));
        assert!(of("a long name.txt").ends_with("~1.TXT"));
        for cut in [
            "page.html",
            "a.b c",
            "letter.docx",
            "a long name.~x",
            "end.",
        ] {
            assert!(of(cut).ends_with("~1"), "{cut}");
        }
        for other in ["README.TXT", "ABCD~1", "ABCDEFG~1", "A$BCDE~1", "AÄBCD~1"] {
            assert_eq!(Code::in_short(other), None, "{other}");
        }
    }
}
