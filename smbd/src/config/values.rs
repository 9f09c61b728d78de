//! Values that people write in words: sizes, spans of time, masks, owners, models.
//!
//! Each type reads one TOML value and is exact afterwards (bytes, `Duration`, mode bits, ids), so
//! that no other code multiplies by 1,024 again. Every refusal says which values are accepted. No
//! file or clock is read here.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

use super::hosts::Network;

/// A number of bytes: `65536`, `"64KiB"`, `"4MiB"`, `"1GiB"`. Powers of 1,024 only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A span of time: `"50ms"`, `"30s"`, `"5min"`, `"2h"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A link's speed: `"100Mbit"`, `"10Gbit"`, in bits per second. Powers of 1,000, as links are
/// sold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(pub u64);

/// Permission bits, written as an octal string: `"0664"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

/// A local user and group, written `"1000:1000"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalIds {
    pub uid: u32,
    pub gid: u32,
}

/// The path of a file or folder; relative to the folder of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenPath(pub PathBuf);

/// The model of the machine that is sent to Macs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppleModel(pub String);

impl AppleModel {
    /// Most characters: the client of macOS keeps 80 bytes, with a NUL.
    const CHARACTERS_MAX: usize = 79;
}

impl FromStr for AppleModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let printable = |c: char| c.is_ascii_graphic() || c == ' ';
        if text.len() > Self::CHARACTERS_MAX || !text.chars().all(printable) {
            return Err(format!(
                "`{text}` is no model: write up to {} ASCII characters, as in \"Xserve\"",
                Self::CHARACTERS_MAX
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for WrittenPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // An empty path would be the folder of the configuration, and the kernel has no path with a zero byte.
        match text.is_empty() || text.contains('\0') {
            true => Err(format!(
                "`{}` is no path: write one as in \"/srv/files\"",
                text.escape_debug()
            )),
            false => Ok(Self(text.into())),
        }
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [
            ("", 0),
            ("B", 0),
            ("KiB", 10),
            ("MiB", 20),
            ("GiB", 30),
            ("TiB", 40),
        ];
        let bytes = multiple(text, &units.map(|(unit, shift)| (unit, 1 << shift)));
        bytes.map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no size: write bytes, or a number with KiB, MiB or GiB, as in \"4MiB\""
            )
        })
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)];
        let span = multiple(text, &units).map(Duration::from_millis);
        span.map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no span of time: write a number with ms, s, min or h, as in \"50ms\""
            )
        })
    }
}

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("Mbit", 1_000_000), ("Gbit", 1_000_000_000)];
        let bits = multiple(text, &units).filter(|bits| *bits > 0);
        bits.map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no speed of a link: write a number with Mbit or Gbit, as in \"10Gbit\""
            )
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        match u32::from_str_radix(digits, 8) {
            Ok(bits) if bits <= 0o7777 && !digits.starts_with('+') => Ok(Self(bits)),
            _ => Err(format!(
                "`{text}` are no permission bits: write octal digits in quotes, as in \"0664\""
            )),
        }
    }
}

impl fmt::Display for LocalIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl FromStr for LocalIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = |part: &str| part.parse::<u32>().ok().filter(|id| *id != u32::MAX);
        text.split_once(':')
            .and_then(|(uid, gid)| {
                Some(Self {
                    uid: id(uid)?,
                    gid: id(gid)?,
                })
            })
            .ok_or_else(|| {
                format!(
                    "`{text}` is no owner: write the numbers of a user and a group, as in \
                     \"1000:1000\" (`id NAME` prints them)"
                )
            })
    }
}

/// A whole number with a unit, times what the unit stands for.
fn multiple(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let known = units.iter().find(|(name, _)| *name == unit.trim_start());
    number.parse::<u64>().ok()?.checked_mul(known?.1)
}

/// Reads a string, or (if `integer` allows it) a bare whole number.
struct Text<T> {
    expected: &'static str,
    integer: Option<fn(u64) -> T>,
}

impl<T: FromStr<Err = String>> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match (self.integer, u64::try_from(number)) {
            (Some(make), Ok(number)) => Ok(make(number)),
            _ => Err(E::invalid_type(de::Unexpected::Signed(number), &self)),
        }
    }
}

/// Reads each type by a [`Text`] that expects this.
macro_rules! texts {
    ($( $name:ident, $expected:literal, $integer:expr; )*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(Text {
                    expected: $expected,
                    integer: $integer,
                })
            }
        }
    )*};
}

texts! {
    ByteSize, "a size such as \"4MiB\"", Some(ByteSize);
    Span, "a span of time such as \"50ms\"", None;
    BitRate, "a speed such as \"10Gbit\"", None;
    Mode, "octal digits in quotes", None;
    AppleModel, "a model such as \"Xserve\"", None;
    WrittenPath, "a path in quotes, as in \"/srv/files\"", None;
    LocalIds, "\"uid:gid\"", None;
    Network, "a string", None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!("0".parse(), Ok(ByteSize(0)));
        assert_eq!("64KiB".parse(), Ok(ByteSize(65_536)));
        assert_eq!("4 MiB".parse(), Ok(ByteSize(4 << 20)));
        for bad in [
            "",
            "MiB",
            "4MB",
            "-1",
            "1.5MiB",
            "99999999999TiB",
            "4 MiB x",
        ] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn speeds() {
        assert_eq!("10Gbit".parse(), Ok(BitRate(10_000_000_000)));
        assert_eq!("2500 Mbit".parse(), Ok(BitRate(2_500_000_000)));
        for bad in [
            "",
            "10",
            "0Gbit",
            "10GB",
            "2.5Gbit",
            "-1Gbit",
            "99999999999Gbit",
        ] {
            assert!(bad.parse::<BitRate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn models() {
        for good in ["", "Xserve", "TimeCapsule8,119", &"x".repeat(79)] {
            assert_eq!(good.parse(), Ok(AppleModel(good.to_owned())));
        }
        for bad in ["a\nb", "Caf\u{e9}", &"x".repeat(80)] {
            assert!(bad.parse::<AppleModel>().is_err(), "{bad}");
        }
    }

    #[test]
    fn paths() {
        assert_eq!("a b".parse(), Ok(WrittenPath("a b".into())));
        for bad in ["", "/srv/a\0b"] {
            assert!(bad.parse::<WrittenPath>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn spans() {
        assert_eq!("50ms".parse(), Ok(Span(Duration::from_millis(50))));
        assert_eq!("2min".parse(), Ok(Span(Duration::from_secs(120))));
        for bad in ["50", "", "s", "1 day", "-1s", "99999999999999999999h"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn modes_and_owners() {
        assert_eq!("0664".parse(), Ok(Mode(0o664)));
        assert_eq!("0o2775".parse(), Ok(Mode(0o2775)));
        for bad in ["", "rw-", "0999", "17777", "+664", "-1"] {
            assert!(bad.parse::<Mode>().is_err(), "{bad}");
        }
        assert_eq!(
            "1000:100".parse(),
            Ok(LocalIds {
                uid: 1000,
                gid: 100
            })
        );
        for bad in ["", "1000", "alice:users", "-1:0", "4294967295:0"] {
            assert!(bad.parse::<LocalIds>().is_err(), "{bad}");
        }
    }
}
