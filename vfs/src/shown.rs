//! Texts that clients chose, as a terminal or a log can show them.

/// A text without control characters and those that end a line or change the direction of writing (Unicode's
/// Bidi_Control): a terminal would obey them, and show the columns behind such a name elsewhere.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let is_of_lines = matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        match c.is_control() || is_of_lines {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn names_do_not_control_the_terminal() {
        let odd = "a\u{1b}\n\u{9b}\u{202e}e\u{301}";
        assert_eq!(shown(odd), "a\\u{1b}\\n\\u{9b}\\u{202e}e\u{301}");
    }
}
