//! Text for a terminal: indented lines, tables, spans of time and sizes.
//!
//! Names come from clients, so control characters are escaped in every line.

use std::fmt::{Arguments, Write as _};

use vfs::shown;

/// Adds a line to a `Text`, indented by so many steps and written as for `format!`.
macro_rules! put {
    ($text:expr, $depth:literal; $($line:tt)+) => {
        $text.line($depth, format_args!($($line)+))
    };
}
pub(crate) use put;

/// The text being written.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// Writes a line, indented by so many steps.
    pub(crate) fn line(&mut self, depth: usize, line: Arguments<'_>) {
        let line = shown(&line.to_string());
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{}{}", "  ".repeat(depth), line.trim_end());
    }

    pub(crate) fn gap(&mut self) {
        self.0.push('\n');
    }

    /// Writes a table, indented by so many steps; nothing if it has no rows.
    pub(crate) fn table<const N: usize>(
        &mut self,
        depth: usize,
        columns: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) {
        let mut rows: Vec<[String; N]> = rows.into_iter().collect();
        if rows.is_empty() {
            return;
        }
        rows.insert(0, columns.map(str::to_owned));
        let mut widths = [0; N];
        for row in &mut rows {
            for (cell, width) in row.iter_mut().zip(&mut widths) {
                *cell = shown(cell);
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &rows {
            let cells = row.iter().zip(widths);
            let cells = cells.map(|(cell, width)| format!("{cell:<width$}  "));
            self.line(depth, format_args!("{}", cells.collect::<String>()));
        }
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// A list in a line or a cell.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => "-".to_owned(),
        some => some.join(","),
    }
}

/// Milliseconds for people.
pub(crate) fn span(ms: u64) -> String {
    let (s, min) = (ms / 1_000, ms / 60_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{s}.{} s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{min} min {} s", s % 60),
        3_600_000..172_800_000 => format!("{} h {} min", min / 60, min % 60),
        _ => format!("{} d {} h", min / 1_440, min / 60 % 24),
    }
}

/// Bytes as one word with one decimal: `1.2MiB`.
pub(crate) fn short_bytes(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| bytes >> shift > 0);
    match unit {
        None => format!("{bytes}B"),
        Some((unit, shift)) => {
            // Rounded up: the possible loss is never more than the figure.
            let tenths = (u128::from(bytes) * 10).div_ceil(1 << shift);
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        }
    }
}

/// Bytes for people.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_names_escaped() {
        let mut out = Text::default();
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [
            row(["a\u{1b}[31m.txt", "alice", ""]),
            row(["long name.txt", "bob", "RWH"]),
        ];
        out.table(2, ["file", "user", "lease"], rows);
        out.table(2, ["nothing"], []);
        out.gap();
        out.line(0, format_args!("a\nb\u{202e}e\u{301}"));
        assert_eq!(
            out.finish(),
            "    file             user   lease
    a\\u{1b}[31m.txt  alice
    long name.txt    bob    RWH

a\\nb\\u{202e}e\u{301}
"
        );
    }

    #[test]
    fn spans_and_sizes() {
        assert_eq!(short_bytes(1_023), "1023B");
        assert_eq!(short_bytes((1 << 20) + 1), "1.1MiB");
        assert_eq!(short_bytes(u64::MAX), "17179869184.0GiB");
        assert_eq!(span(90_000_000), "25 h 0 min");
        assert_eq!(span(900_000_000), "10 d 10 h");
        assert_eq!(bytes(10_239), "10239 bytes");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(64 << 30), "64 GiB");
    }
}
