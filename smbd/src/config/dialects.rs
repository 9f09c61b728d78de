//! The dialects of a durability rule: one, a range, or a list without gaps.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{self, value::StrDeserializer},
};
use smb_wire::msg::Dialect;

use super::DialectName;

/// From one dialect to another, both included: `"3.1.1"`, `"2.1..3.0.2"`, `"3.0.."`, `"..2.1"`,
/// `["2.1", "3.0"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialects {
    pub(super) oldest: DialectName,
    pub(super) newest: DialectName,
}

impl DialectName {
    /// The number on the wire ([MS-SMB2] 2.2.3).
    pub fn revision(self) -> u16 {
        self as u16
    }
}

impl FromStr for DialectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let from: StrDeserializer<'_, de::value::Error> =
            de::IntoDeserializer::into_deserializer(text);
        Self::deserialize(from)
            .map_err(|_| format!("`{text}` is no dialect: they are 2.0.2, 2.1, 3.0, 3.0.2, 3.1.1"))
    }
}

impl Dialects {
    /// The range of dialects as the numbers that NEGOTIATE carries.
    pub(super) fn revisions(&self) -> RangeInclusive<u16> {
        self.oldest.revision()..=self.newest.revision()
    }

    fn between(oldest: DialectName, newest: DialectName) -> Result<Self, String> {
        if oldest > newest {
            return Err("the first dialect of a range is the oldest".into());
        }
        Ok(Self { oldest, newest })
    }

    fn of_list(list: &[DialectName]) -> Result<Self, String> {
        let (Some(oldest), Some(newest)) = (list.iter().min(), list.iter().max()) else {
            return Err("an empty list of dialects says nothing".into());
        };
        let range = Self::between(*oldest, *newest)?;
        let revisions = range.revisions();
        let mut between = Dialect::ALL.iter().filter(|one| revisions.contains(&one.0));
        if between.any(|between| list.iter().all(|one| one.revision() != between.0)) {
            return Err("a list of dialects must have no gap: write two rules".into());
        }
        Ok(range)
    }
}

impl FromStr for Dialects {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((oldest, newest)) = text.split_once("..") else {
            let one = text.trim().parse()?;
            return Self::between(one, one);
        };
        let or = |text: &str, open: DialectName| match text.trim() {
            "" => Ok(open),
            text => text.parse(),
        };
        Self::between(
            or(oldest, DialectName::Smb202)?,
            or(newest, DialectName::Smb311)?,
        )
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Dialects;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dialects such as \"2.1..3.0.2\" or [\"2.1\", \"3.0\"]")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Dialects, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Dialects, A::Error> {
        let mut dialects = Vec::new();
        while let Some(text) = list.next_element::<String>()? {
            let dialect = text.parse().map_err(de::Error::custom)?;
            if !dialects.contains(&dialect) {
                dialects.push(dialect);
            }
        }
        Dialects::of_list(&dialects).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Dialects {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let of = |text: &str| text.parse::<Dialects>().map(|range| range.revisions());
        assert_eq!(of("3.1.1"), Ok(0x311..=0x311));
        assert_eq!(of("2.1..3.0.2"), Ok(0x210..=0x302));
        assert_eq!(of("3.0.."), Ok(0x300..=0x311));
        assert_eq!(of("..2.1"), Ok(0x202..=0x210));
        for bad in ["", "3.0..2.1", "3", "2.1-3.0", "1.0", "2.1...3.0"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        let list = |list: &[DialectName]| Dialects::of_list(list).map(|range| range.revisions());
        assert_eq!(
            list(&[DialectName::Smb300, DialectName::Smb210]),
            Ok(0x210..=0x300)
        );
        assert!(
            list(&[DialectName::Smb202, DialectName::Smb311])
                .unwrap_err()
                .to_string()
                .contains("no gap")
        );
        assert!(list(&[]).unwrap_err().to_string().contains("says nothing"));
    }
}
