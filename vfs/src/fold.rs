//! How names compare: without case.
//!
//! A back end finds names by this form, and the users of [`crate::Vfs`] compare names, patterns and
//! streams by it, so that both sides agree. Nothing here knows how a name is stored.

/// The form by which names compare: every character in Unicode's simple upper case, as the
/// up-case table of NTFS does it. Characters whose upper case is several characters stay (ß), so
/// do dotless i and long s, which that table does not tie to I and S.
pub fn fold(shown: &str) -> String {
    if shown.is_ascii() {
        return shown.to_ascii_uppercase();
    }
    shown.chars().map(fold_char).collect()
}

/// Folds one character as [`fold`] does, which does not depend on the characters around it.
#[inline]
pub fn fold_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let code = c as u32;
    let simple = match code {
        0x0131 | 0x017F => return c,
        // Greek with iota subscript: the full mapping is two letters, the simple one is one.
        0x1F80..=0x1F87 | 0x1F90..=0x1F97 | 0x1FA0..=0x1FA7 => code + 8,
        0x1FB3 | 0x1FC3 | 0x1FF3 => code + 9,
        _ => {
            let mut upper = c.to_uppercase();
            return match (upper.next(), upper.next()) {
                (Some(one), None) => one,
                _ => c,
            };
        }
    };
    char::from_u32(simple).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn folding_is_simple_upper_case() {
        assert_eq!(fold("straße.TXT"), "STRAßE.TXT");
        assert_eq!(fold("éÿ"), "ÉŸ");
        assert_eq!(fold("\u{131}\u{17F}\u{1FB3}"), "\u{131}\u{17F}\u{1FBC}");
        assert_eq!(fold("ﬀ"), "ﬀ");
        // The final sigma, the Kelvin sign, a capital I with a dot in one character and in two, an e with its accent.
        assert_eq!(fold("Σσς"), "ΣΣΣ");
        assert_eq!(fold("\u{212A}\u{130}i\u{307}"), "\u{212A}\u{130}I\u{307}");
        assert_ne!(fold("\u{E9}"), fold("e\u{301}"));
    }

    proptest! {
        #[test]
        fn folding_twice_changes_nothing(text in "\\PC{0,40}") {
            prop_assert_eq!(fold(&fold(&text)), fold(&text));
        }
    }
}
