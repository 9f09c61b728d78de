//! Maps names on disk to the names that clients see, and back, without loss.
//!
//! A name on disk is any bytes without `/` and NUL. A client sees text in which
//! - characters that Windows forbids are the private-use code points that Windows' Services for Macintosh, macOS
//!   and Samba's `fruit` agree on (U+F001..U+F029);
//! - a byte that is no part of valid UTF-8 is U+EF80..U+EFFF (U+EF00 + byte); the bytes of literal code points of both
//!   ranges are mapped too, because otherwise two names could look the same.
//!
//! [`to_disk`] accepts exactly the texts that [`to_client`] makes, so the mapping is one to one. `is_reserved`
//! recognises the server's own names. Names compare by [`crate::fold`].

use std::borrow::Cow;

use crate::{DirName, VfsError, VfsResult, disk::NAME_MAX};

/// Longest component shown, in UTF-16 units ([MS-FSCC] 2.1.5).
pub const SHOWN_MAX: usize = 255;

/// Samba's folder for streams that are not in attributes, in the share's root.
pub const DEPOT: &str = ".streams";
/// The prefix of names that exist only while an object is being made.
pub(super) const TEMPORARY_PREFIX: &str = ".holdfast-tmp-";

const BYTE_FIRST: u32 = 0xEF80;
const BYTE_LAST: u32 = 0xEFFF;
const BYTE_BASE: u32 = 0xEF00;
const SFM_BASE: u32 = 0xF000;
/// The characters that U+F020..U+F027 stand for.
const SFM_SIGNS: [u8; 8] = *b"\"*:<>?\\|";
const SFM_SIGN_FIRST: u32 = 0xF020;
const SFM_TRAILING_SPACE: char = '\u{F028}';
const SFM_TRAILING_DOT: char = '\u{F029}';

/// For each byte, whether it is printable ASCII without a special meaning.
#[expect(clippy::indexing_slicing, reason = "computed by the compiler")]
const ORDINARY: [bool; 256] = {
    let mut ordinary = [false; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        let special = matches!(
            byte,
            b'/' | b'"' | b'*' | b':' | b'<' | b'>' | b'?' | b'\\' | b'|'
        );
        ordinary[byte as usize] = !special;
        byte += 1;
    }
    ordinary
};

/// Whether a name is the same on disk and for clients: all its bytes are ordinary, as in nearly every name.
fn is_same(name: &[u8]) -> bool {
    let ordinary = |byte: &u8| ORDINARY.get(usize::from(*byte)) == Some(&true);
    !matches!(name.last(), None | Some(b' ' | b'.')) && name.iter().all(ordinary)
}

/// The text that clients see for a name on disk. Every name has one.
pub fn to_client(on_disk: &[u8]) -> String {
    if is_same(on_disk)
        && let Ok(same) = std::str::from_utf8(on_disk)
    {
        return same.to_owned();
    }
    let mut shown = String::with_capacity(on_disk.len());
    for chunk in on_disk.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_shown(&mut shown, c);
        }
        for byte in chunk.invalid() {
            push_byte(&mut shown, *byte);
        }
    }
    // Windows drops a trailing dot or space; only the last one needs hiding for that.
    match self::shown(&shown) {
        Cow::Owned(hidden) => hidden,
        Cow::Borrowed(_) => shown,
    }
}

/// The name of a listing with these bytes on disk: it is nearly always the same text, which is then not copied.
pub(super) fn listed(on_disk: Box<[u8]>) -> DirName {
    if !is_same(&on_disk) {
        return DirName::new(to_client(&on_disk), on_disk);
    }
    match String::from_utf8(on_disk.into_vec()) {
        Ok(same) => DirName::same(same),
        // This is not reached, because the name is ASCII.
        Err(other) => DirName::new(to_client(other.as_bytes()), other.into_bytes().into()),
    }
}

fn push_byte(shown: &mut String, byte: u8) {
    // This is always a valid scalar, since the range is for private use. Only bytes of 0x80 and more get here.
    shown.extend(char::from_u32(BYTE_BASE + u32::from(byte)));
}

fn push_shown(shown: &mut String, c: char) {
    let code = c as u32;
    if let Some(place) = SFM_SIGNS.iter().position(|sign| char::from(*sign) == c) {
        // The table has eight entries.
        let offset = u32::try_from(place).unwrap_or(0);
        shown.extend(char::from_u32(SFM_SIGN_FIRST + offset));
    } else if (1..0x20).contains(&code) {
        shown.extend(char::from_u32(SFM_BASE + code));
    } else if is_escape(code) {
        let mut bytes = [0; 4];
        for byte in c.encode_utf8(&mut bytes).bytes() {
            push_byte(shown, byte);
        }
    } else {
        shown.push(c);
    }
}

fn is_escape(code: u32) -> bool {
    (BYTE_FIRST..=BYTE_LAST).contains(&code)
        || (SFM_BASE + 1..=SFM_TRAILING_DOT as u32).contains(&code)
}

/// The spelling by which clients see a name that one of them sent. Clients other than Windows send a name that ends in
/// a dot or a blank as it is on disk; Windows cannot, and Macs do not. Such a name therefore has two spellings; this
/// function returns the one that listings show.
pub fn shown(sent: &str) -> Cow<'_, str> {
    let (rest, last) = match (sent.strip_suffix(' '), sent.strip_suffix('.')) {
        // These stand for directories and are no names.
        _ if matches!(sent, "." | "..") => return Cow::Borrowed(sent),
        (Some(rest), _) => (rest, SFM_TRAILING_SPACE),
        (_, Some(rest)) => (rest, SFM_TRAILING_DOT),
        _ => return Cow::Borrowed(sent),
    };
    Cow::Owned(format!("{rest}{last}"))
}

/// The other spelling of a name that [`shown`] gives its own; most names have none.
pub fn unmapped(shown: &str) -> Option<String> {
    let (rest, last) = match shown.strip_suffix(SFM_TRAILING_SPACE) {
        Some(rest) => (rest, ' '),
        None => (shown.strip_suffix(SFM_TRAILING_DOT)?, '.'),
    };
    Some(format!("{rest}{last}"))
}

/// The name on disk of a component that a client sent and that has the spelling of [`shown`]. Fails with `InvalidName`
/// for a text that is the spelling of no name on disk (forbidden characters, `.`, `..`, empty), and with `NameTooLong`
/// beyond the limits.
pub fn to_disk(shown: &str) -> VfsResult<Box<[u8]>> {
    if is_same(shown.as_bytes()) {
        VfsError::NameTooLong.when(shown.len() > NAME_MAX)?;
        return Ok(shown.as_bytes().into());
    }
    VfsError::InvalidName.when(shown.is_empty() || shown == "." || shown == "..")?;
    VfsError::NameTooLong.when(shown.encode_utf16().take(SHOWN_MAX + 1).count() > SHOWN_MAX)?;
    let mut on_disk = Vec::with_capacity(shown.len());
    let mut plain = true;
    for c in shown.chars() {
        let code = c as u32;
        plain &= !(code < 0x20 || is_escape(code) || SFM_SIGNS.iter().any(|s| char::from(*s) == c));
        match c {
            '\0' | '/' => return Err(VfsError::InvalidName),
            SFM_TRAILING_SPACE => on_disk.push(b' '),
            SFM_TRAILING_DOT => on_disk.push(b'.'),
            _ if is_escape(code) && code < SFM_SIGN_FIRST => on_disk.push((code & 0xFF) as u8),
            _ if is_escape(code) => {
                let place = usize::try_from(code - SFM_SIGN_FIRST).unwrap_or(usize::MAX);
                on_disk.push(*SFM_SIGNS.get(place).ok_or(VfsError::InvalidName)?);
            }
            _ => on_disk.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    VfsError::NameTooLong.when(on_disk.len() > NAME_MAX)?;
    if on_disk == b"." || on_disk == b".." || on_disk.contains(&0) || on_disk.contains(&b'/') {
        return Err(VfsError::InvalidName);
    }
    // A text with forbidden characters or needless escapes is not the spelling that the name would have.
    let plain = plain && !shown.ends_with(['.', ' ']);
    VfsError::InvalidName.when(!plain && to_client(&on_disk) != shown)?;
    Ok(on_disk.into_boxed_slice())
}

/// Whether the name is one of the server's own, which clients neither see nor may use, or one that some file system
/// takes for such a name.
pub fn is_reserved(in_root: bool, shown: &str) -> bool {
    // Both begin with a dot: for nearly every name one comparison is enough.
    let spelled = shown.trim_start_matches(is_ignorable);
    spelled.starts_with('.')
        && match spelled.is_ascii() {
            true => is_own(in_root, spelled),
            false => is_own(in_root, &in_ascii(spelled)),
        }
}

fn is_own(in_root: bool, name: &str) -> bool {
    (in_root && name.eq_ignore_ascii_case(DEPOT))
        || name
            .get(..TEMPORARY_PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(TEMPORARY_PREFIX))
}

/// The name as a file system may compare it, as far as the letters of our own names are concerned. Directories of ext4
/// and f2fs that ignore case compare full case foldings without ignorable code points; FAT, NTFS and servers of CIFS
/// drop dots and blanks at the end.
fn in_ascii(name: &str) -> String {
    let mut ascii = String::with_capacity(name.len());
    for c in name.chars().filter(|c| !is_ignorable(*c)) {
        match c {
            '\u{17F}' => ascii.push('s'),
            '\u{FB05}' | '\u{FB06}' => ascii.push_str("st"),
            _ => ascii.push(c),
        }
    }
    let end = ascii.trim_end_matches(['.', ' ', SFM_TRAILING_DOT, SFM_TRAILING_SPACE]);
    ascii.truncate(end.len());
    ascii
}

/// Default_Ignorable_Code_Point of Unicode, which such directories leave out of comparisons.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}'
        | '\u{FFF0}'..='\u{FFF8}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round(on_disk: &[u8]) -> String {
        let shown = to_client(on_disk);
        assert_eq!(
            to_disk(&shown).as_deref(),
            Ok(on_disk),
            "{on_disk:?} shown as {shown:?}"
        );
        shown
    }

    #[test]
    fn forbidden_characters_stand_as_private_use() {
        assert_eq!(round(b"a:b"), "a\u{F022}b");
        assert_eq!(
            round(b"\"*:<>?\\|"),
            "\u{F020}\u{F021}\u{F022}\u{F023}\u{F024}\u{F025}\u{F026}\u{F027}"
        );
        assert_eq!(round(b"\x01\x1f"), "\u{F001}\u{F01F}");
        assert_eq!(round(b"end. "), "end.\u{F028}");
        assert_eq!(round(b"end."), "end\u{F029}");
        assert_eq!(round(b"plain.txt"), "plain.txt");
        assert_eq!(round("grün".as_bytes()), "grün");
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        assert_eq!(round(b"caf\xe9"), "caf\u{EFE9}");
        assert_eq!(round("\u{F022}".as_bytes()).chars().count(), 3);
        assert_eq!(round("\u{EFE9}".as_bytes()).chars().count(), 3);
        // 255 bytes, each shown as one unit.
        round(&[0xFF; 255]);
    }

    #[test]
    fn what_no_disk_name_shows_as_is_refused() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a\0",
            "a:b",
            "a*",
            "x\u{1}",
            "end.",
            "end ",
            "\u{F029}",
            ".\u{F029}",
            "a\u{F028}b",
            // These escapes would form a valid character, which is shown as itself.
            "\u{EFC3}\u{EFA9}",
        ] {
            assert_eq!(to_disk(bad), Err(VfsError::InvalidName), "{bad:?}");
        }
        assert_eq!(to_disk(&"a".repeat(256)), Err(VfsError::NameTooLong));
        assert_eq!(to_disk(&"€".repeat(86)), Err(VfsError::NameTooLong));
        assert!(to_disk(&"a".repeat(255)).is_ok());
    }

    #[test]
    fn our_own_names_are_reserved() {
        assert!(is_reserved(true, ".streams") && is_reserved(true, ".STREAMS"));
        assert!(!is_reserved(false, ".streams") && !is_reserved(true, ".streams2"));
        assert!(is_reserved(false, ".Holdfast-tmp-1-2"));
        assert!(!is_reserved(true, ".holdfast"));
        assert!(!is_reserved(true, ".é€€€€€€"));
    }

    /// A directory that ignores case (ext4, f2fs) compares normalised and folded names without ignorable code points;
    /// FAT and NTFS do not see a last dot or blank.
    #[test]
    fn our_own_names_are_reserved_in_every_spelling_of_a_file_system() {
        for depot in [
            ".\u{17F}treams",
            ".\u{FB05}reams",
            ".\u{FB06}REAMS",
            ".str\u{AD}eams",
            "\u{200B}.streams",
            ".streams\u{FEFF}",
            ".streams\u{E0001}",
            ".streams\u{F029}",
            ".streams\u{F028}\u{F029}",
        ] {
            assert!(is_reserved(true, depot), "{depot:?}");
            assert!(!is_reserved(false, depot), "{depot:?}");
        }
        for temporary in [
            ".holdfa\u{17F}t-tmp-1",
            ".HOLDFA\u{FB05}-tmp-1-2",
            ".holdf\u{FE0F}ast-tmp-1",
            "\u{2060}.holdfast-tmp-1",
        ] {
            assert!(is_reserved(false, temporary), "{temporary:?}");
        }
        for free in [
            ".stream\u{DF}",
            ".strea\u{301}ms",
            "\u{17F}treams",
            "\u{AD}",
        ] {
            assert!(!is_reserved(true, free), "{free:?}");
        }
    }

    #[test]
    fn a_last_dot_or_blank_has_two_spellings() {
        for (sent, listed, on_disk) in [
            ("end.", "end\u{F029}", "end."),
            ("end ", "end\u{F028}", "end "),
            ("end. ", "end.\u{F028}", "end. "),
            ("...", "..\u{F029}", "..."),
            (" ", "\u{F028}", " "),
            ("ä.", "ä\u{F029}", "ä."),
        ] {
            assert_eq!(shown(sent), listed);
            assert_eq!(shown(listed), listed);
            assert_eq!(unmapped(listed).as_deref(), Some(sent));
            assert_eq!(to_disk(&shown(sent)).as_deref(), Ok(on_disk.as_bytes()));
            assert_eq!(to_client(on_disk.as_bytes()), listed);
        }
        for one in ["", ".", "..", "a", ".a", "a b.c"] {
            assert_eq!(shown(one), one);
            assert_eq!(unmapped(one), None);
        }
        // A file of the host whose name ends in the code point itself is another one.
        assert_ne!(to_client("end\u{F029}".as_bytes()), shown("end."));
    }

    proptest! {
        #[test]
        fn every_name_round_trips(name in proptest::collection::vec(1u8..=255, 1..=255)) {
            let name: Vec<u8> = name.into_iter().map(|b| if b == b'/' { b'_' } else { b }).collect();
            prop_assume!(name != b"." && name != b"..");
            round(&name);
        }

        #[test]
        fn whatever_is_accepted_shows_as_it_was_sent(text in "\\PC{1,60}|[\u{EF70}-\u{F030}. a-c]{1,9}") {
            if let Ok(on_disk) = to_disk(&text) {
                prop_assert_eq!(to_client(&on_disk), text);
            }
        }
    }
}
