//! Short (8.3) names ([MS-FSCC] 2.1.5.2.1): made from the long name by a fixed rule, kept nowhere.
//!
//! The rule is a hash, so that a name's short form does not depend on its neighbours and stays
//! the same over restarts. Two long names of one directory may share a short form; then the first
//! in the directory's order answers to it, which is what clients that still use them live with.

/// Characters of the hash in a short name.
const HASH_CHARS: usize = 4;
/// Characters of a short name.
const SHORT_MAX: usize = 12;
/// Digits of the hash.
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The short form of a name; the name itself, in upper case, where it is one already.
pub(crate) fn of(name: &str) -> String {
    if is_short(name) {
        return name.to_ascii_uppercase();
    }
    let mut short = String::with_capacity(SHORT_MAX);
    put(name, &mut short);
    short
}

/// Appends the short form of a name that is none itself.
pub(crate) fn put(name: &str, short: &mut String) {
    let (base, extension) = match name.rsplit_once('.') {
        Some((base, extension)) if !base.is_empty() => (base, extension),
        _ => (name, ""),
    };
    short.extend(legal(base).take(2));
    let mut hash = hash(name);
    for _ in 0..HASH_CHARS {
        let digit = usize::try_from(hash % 36).unwrap_or(0);
        short.push(DIGITS.get(digit).map_or('0', |digit| char::from(*digit)));
        hash /= 36;
    }
    short.push_str("~1");
    let mut extension = legal(extension).take(3).peekable();
    if extension.peek().is_some() {
        short.push('.');
        short.extend(extension);
    }
}

/// Whether a name needs no other short form.
pub(crate) fn is_short(name: &str) -> bool {
    if name.len() > SHORT_MAX {
        return false;
    }
    let fits =
        |part: &str, max| !part.is_empty() && part.len() <= max && part.bytes().all(is_legal);
    let dot = name.bytes().position(|byte| byte == b'.');
    match dot.and_then(|dot| name.split_at_checked(dot)) {
        Some((base, extension)) => fits(base, 8) && fits(extension.get(1..).unwrap_or(""), 3),
        None => fits(name, 8),
    }
}

/// Whether [`of`] could have made this name: worth looking for its long form.
pub(crate) fn is_candidate(name: &str) -> bool {
    let base = name.split_once('.').map_or(name, |(base, _)| base);
    is_short(name) && base.ends_with("~1") && base.len() > HASH_CHARS + 1
}

fn is_legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'$' | b'%'
                | b'\''
                | b'-'
                | b'_'
                | b'@'
                | b'~'
                | b'`'
                | b'!'
                | b'('
                | b')'
                | b'{'
                | b'}'
                | b'^'
                | b'#'
                | b'&'
        )
}

fn legal(text: &str) -> impl Iterator<Item = char> + '_ {
    text.bytes()
        .filter(|byte| is_legal(*byte) && *byte != b'~')
        .map(|byte| char::from(byte.to_ascii_uppercase()))
}

/// FNV-1a over the folded name: case does not change a short name.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let start = 0xcbf2_9ce4_8422_2325;
    if name.is_ascii() {
        let folded = name.bytes().map(|byte| byte.to_ascii_uppercase());
        return folded.fold(start, step);
    }
    vfs::posix::name::fold(name).bytes().fold(start, step)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(is_candidate(&short), "{name} {short}");
            assert_eq!(of(&name.to_uppercase()), short);
        }
        assert_ne!(of("long file name 1"), of("long file name 2"));
        assert!(!is_candidate("README.TXT"));
    }
}
