//! Identifiers of interfaces and transfer syntaxes (C706 12.6.3.1, p_syntax_id_t; [MS-SRVS] 1.9,
//! [MS-WKST] 1.9, [MS-LSAD] 1.9, [MS-SAMR] 1.9).

use crate::fscc::record::record;
use crate::ids::Guid;

record! {
    /// A UUID with a version.
    SyntaxId {
        /// The name.
        uuid: Guid;
        /// Major version in the low half, minor version in the high.
        version: u32;
    }
}

const fn syntax(a: u32, b: u16, c: u16, d: [u8; 8], version: u32) -> SyntaxId {
    let [a0, a1, a2, a3] = a.to_le_bytes();
    let [b0, b1] = b.to_le_bytes();
    let [c0, c1] = c.to_le_bytes();
    let [d0, d1, d2, d3, d4, d5, d6, d7] = d;
    let uuid = Guid([
        a0, a1, a2, a3, b0, b1, c0, c1, d0, d1, d2, d3, d4, d5, d6, d7,
    ]);
    SyntaxId { uuid, version }
}

impl SyntaxId {
    /// NDR of 32 bits, the only supported transfer syntax.
    pub const NDR32: Self = syntax(
        0x8a88_5d04,
        0x1ceb,
        0x11c9,
        [0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60],
        2,
    );

    /// NDR of 64 bits.
    pub const NDR64: Self = syntax(
        0x7171_0533,
        0xbeba,
        0x4937,
        [0x83, 0x19, 0xb5, 0xdb, 0xef, 0x9c, 0xcc, 0x36],
        1,
    );

    /// Bind time feature negotiation without feature bits ([MS-RPCE] 3.3.1.5.3).
    pub const BIND_TIME_FEATURES: Self = syntax(0x6cb7_1c2c, 0x9812, 0x4540, [0; 8], 1);

    const SRVSVC: Self = syntax(
        0x4b32_4fc8,
        0x1670,
        0x01d3,
        [0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88],
        3,
    );
    const WKSSVC: Self = syntax(
        0x6bff_d098,
        0xa112,
        0x3610,
        [0x98, 0x33, 0x46, 0xc3, 0xf8, 0x7e, 0x34, 0x5a],
        1,
    );
    const LSARPC: Self = syntax(
        0x1234_5778,
        0x1234,
        0xabcd,
        [0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab],
        0,
    );
    const SAMR: Self = syntax(
        0x1234_5778,
        0x1234,
        0xabcd,
        [0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xac],
        1,
    );

    /// Returns whether the syntax proposes features; the bits are in the last eight bytes of the
    /// UUID.
    #[must_use]
    pub fn is_bind_time_features(&self) -> bool {
        self.uuid.0.first_chunk::<8>() == Self::BIND_TIME_FEATURES.uuid.0.first_chunk::<8>()
    }
}

/// The interfaces that have stubs here, each behind the pipe of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// Server service: shares.
    Srvsvc,
    /// Workstation service.
    Wkssvc,
    /// Local security authority: names and SIDs.
    Lsarpc,
    /// Security accounts.
    Samr,
}

impl Interface {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Srvsvc, Self::Wkssvc, Self::Lsarpc, Self::Samr];

    /// Returns the interface with this syntax.
    #[must_use]
    pub fn of(syntax: &SyntaxId) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|interface| interface.syntax() == *syntax)
    }

    /// Returns the interface behind a pipe, by its name without `\pipe\`, in any case.
    #[must_use]
    pub fn of_pipe(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|interface| interface.pipe_name().eq_ignore_ascii_case(name))
    }

    /// Its UUID and version.
    #[must_use]
    pub const fn syntax(self) -> SyntaxId {
        match self {
            Self::Srvsvc => SyntaxId::SRVSVC,
            Self::Wkssvc => SyntaxId::WKSSVC,
            Self::Lsarpc => SyntaxId::LSARPC,
            Self::Samr => SyntaxId::SAMR,
        }
    }

    /// The name of its pipe.
    #[must_use]
    pub const fn pipe_name(self) -> &'static str {
        match self {
            Self::Srvsvc => "srvsvc",
            Self::Wkssvc => "wkssvc",
            Self::Lsarpc => "lsarpc",
            Self::Samr => "samr",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_syntax_and_pipe() {
        for interface in Interface::ALL {
            assert_eq!(Interface::of(&interface.syntax()), Some(interface));
        }
        assert_eq!(Interface::of(&SyntaxId::NDR32), None);
        assert_eq!(Interface::of_pipe("SrvSvc"), Some(Interface::Srvsvc));
        assert_eq!(Interface::of_pipe("srvsvc/../x"), None);
        assert_eq!(
            SyntaxId::SRVSVC.uuid.to_string(),
            "4b324fc8-1670-01d3-1278-5a47bf6ee188"
        );
    }
}
