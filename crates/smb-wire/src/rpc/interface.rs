//! Identifiers of interfaces and transfer syntaxes (C706 12.6.3.1, p_syntax_id_t; [MS-SRVS] 1.9,
//! [MS-WKST] 1.9, [MS-LSAD] 1.9, [MS-DSSP] 1.9, [MS-SAMR] 1.9).

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

/// A UUID as it is written, with a version.
const fn syntax(uuid: u128, version: u32) -> SyntaxId {
    let mut uuid = uuid.to_be_bytes();
    // The first three fields are little-endian on the wire.
    uuid.swap(0, 3);
    uuid.swap(1, 2);
    uuid.swap(4, 5);
    uuid.swap(6, 7);
    SyntaxId {
        uuid: Guid(uuid),
        version,
    }
}

impl SyntaxId {
    /// NDR of 32 bits, the only supported transfer syntax.
    pub const NDR32: Self = syntax(0x8a885d04_1ceb_11c9_9fe8_08002b104860, 2);

    /// NDR of 64 bits.
    pub const NDR64: Self = syntax(0x71710533_beba_4937_8319_b5dbef9ccc36, 1);

    /// Bind time feature negotiation without feature bits ([MS-RPCE] 3.3.1.5.3).
    pub const BIND_TIME_FEATURES: Self = syntax(0x6cb71c2c_9812_4540_0000_000000000000, 1);

    /// Returns whether the syntax proposes features; the bits are in the last eight bytes of the UUID.
    pub fn is_bind_time_features(&self) -> bool {
        self.uuid.0.first_chunk::<8>() == Self::BIND_TIME_FEATURES.uuid.0.first_chunk::<8>()
    }
}

/// The interfaces that have stubs here, each behind the pipe of its name; only Dssetup is behind that of Lsarpc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// Server service: shares.
    Srvsvc,
    /// Workstation service.
    Wkssvc,
    /// Local security authority: names and SIDs.
    Lsarpc,
    /// Setup of the directory service: whether the server is in a domain.
    Dssetup,
    /// Security accounts.
    Samr,
}

impl Interface {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Srvsvc,
        Self::Wkssvc,
        Self::Lsarpc,
        Self::Dssetup,
        Self::Samr,
    ];

    /// Returns the interface with this syntax.
    pub fn of(syntax: &SyntaxId) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|interface| interface.syntax() == *syntax)
    }

    /// Returns the interface that a pipe is named after, by its name without `\pipe\`, in any case.
    pub fn of_pipe(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|interface| interface.pipe_name().eq_ignore_ascii_case(name))
    }

    /// Its UUID and version, and the name of its pipe.
    const fn row(self) -> (SyntaxId, &'static str) {
        match self {
            Self::Srvsvc => (syntax(0x4b324fc8_1670_01d3_1278_5a47bf6ee188, 3), "srvsvc"),
            Self::Wkssvc => (syntax(0x6bffd098_a112_3610_9833_46c3f87e345a, 1), "wkssvc"),
            Self::Lsarpc => (syntax(0x12345778_1234_abcd_ef00_0123456789ab, 0), "lsarpc"),
            Self::Dssetup => (syntax(0x3919286a_b10c_11d0_9ba8_00c04fd92ef5, 0), "lsarpc"),
            Self::Samr => (syntax(0x12345778_1234_abcd_ef00_0123456789ac, 1), "samr"),
        }
    }

    /// Its UUID and version.
    pub const fn syntax(self) -> SyntaxId {
        self.row().0
    }

    /// The name of its pipe.
    pub const fn pipe_name(self) -> &'static str {
        self.row().1
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
        assert_eq!(Interface::of_pipe("lsarpc"), Some(Interface::Lsarpc));
        assert_eq!(Interface::of_pipe("dssetup"), None);
        assert_eq!(Interface::of_pipe("srvsvc/../x"), None);
        assert_eq!(
            Interface::Srvsvc.syntax().uuid.to_string(),
            "4b324fc8-1670-01d3-1278-5a47bf6ee188"
        );
    }
}
