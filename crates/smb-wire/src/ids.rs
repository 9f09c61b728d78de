//! Identifiers: each kind of id is a type of its own, never a bare integer.
//!
//! Ids have no meaning here beyond their width; the server assigns them and decides how long they
//! live. Times are FILETIMEs (MS-DTYP 2.3.3).

/// A request's number on its connection ([MS-SMB2] 2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MessageId(pub u64);

impl MessageId {
    /// The id of unsolicited messages of the server (break notifications).
    pub const UNSOLICITED: Self = Self(u64::MAX);
}

/// A session's id ([MS-SMB2] 2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u64);

impl SessionId {
    /// All ones: "the session of the element before" in related requests.
    pub const ANY: Self = Self(u64::MAX);
}

/// A tree connect's id within its session ([MS-SMB2] 2.2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreeId(pub u32);

impl TreeId {
    /// All ones: "the tree of the element before" in related requests.
    pub const ANY: Self = Self(u32::MAX);
}

/// The id of a request that was answered with STATUS_PENDING ([MS-SMB2] 2.2.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AsyncId(pub u64);

/// An open's handle ([MS-SMB2] 2.2.14.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId {
    /// The part that remains the same when a durable open is reconnected.
    pub persistent: u64,
    /// The part that changes with every reconnect.
    pub volatile: u64,
}

impl FileId {
    /// All ones: "the file of the element before" in related requests; no file at all in some IOCTLs.
    pub const ANY: Self = Self {
        persistent: u64::MAX,
        volatile: u64::MAX,
    };
}

/// A GUID in the order of its bytes on the wire ([MS-DTYP] 2.3.4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid(pub [u8; 16]);

impl core::fmt::Display for Guid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The first three fields are little-endian numbers, the rest bytes. Each cast drops the fields before.
        let bytes = u128::from_be_bytes(self.0);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            ((bytes >> 96) as u32).swap_bytes(),
            ((bytes >> 80) as u16).swap_bytes(),
            ((bytes >> 64) as u16).swap_bytes(),
            (bytes >> 48) as u16,
            bytes & 0xffff_ffff_ffff,
        )
    }
}

impl core::fmt::Debug for Guid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// The key with which a client identifies a lease ([MS-SMB2] 2.2.13.2.8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LeaseKey(pub [u8; 16]);

impl core::fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "LeaseKey({:032x})", u128::from_be_bytes(self.0))
    }
}

/// A time in 100 ns units since 1601-01-01 UTC ([MS-DTYP] 2.3.3). Some fields give 0 and the
/// largest values a special meaning, which is not interpreted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime(pub u64);

impl FileTime {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Seconds from 1601-01-01 to 1970-01-01.
    const UNIX_EPOCH_SECS: i64 = 11_644_473_600;
    const UNITS_PER_SEC: u64 = 10_000_000;
    const NANOS_PER_UNIT: u32 = 100;

    /// Converts seconds and nanoseconds since the Unix epoch, rounded down to whole units; times
    /// outside the range of a signed FILETIME become its nearest end.
    pub fn from_unix(secs: i64, nanos: u32) -> Self {
        let secs = i128::from(secs) + i128::from(Self::UNIX_EPOCH_SECS);
        let fraction = i128::from(nanos / Self::NANOS_PER_UNIT);
        let units = secs * i128::from(Self::UNITS_PER_SEC) + fraction;
        Self(u64::try_from(units.clamp(0, i128::from(i64::MAX))).unwrap_or(0))
    }

    /// Returns the seconds since the Unix epoch (negative before it) and the nanoseconds (below 10⁹).
    pub fn to_unix(self) -> (i64, u32) {
        // At most 2^64 / 10^7 seconds and a fraction below 10^9: neither cast loses anything.
        let secs = (self.0 / Self::UNITS_PER_SEC) as i64 - Self::UNIX_EPOCH_SECS;
        let nanos = (self.0 % Self::UNITS_PER_SEC) as u32 * Self::NANOS_PER_UNIT;
        (secs, nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_times_round_trip_and_saturate() {
        assert_eq!(FileTime::from_unix(0, 0).0, 116_444_736_000_000_000);
        for (secs, nanos) in [(0, 0), (1_700_000_000, 999_999_900), (-11_644_473_600, 100)] {
            assert_eq!(FileTime::from_unix(secs, nanos).to_unix(), (secs, nanos));
        }
        assert_eq!(FileTime::from_unix(i64::MIN, 0).0, 0);
        assert_eq!(FileTime::from_unix(i64::MAX, 0).0, i64::MAX as u64);
        let _ = FileTime(u64::MAX).to_unix();
    }

    #[test]
    fn guids_print_in_mixed_order() {
        let guid = Guid([
            0x6a, 0xa6, 0xbc, 0x45, 0x4a, 0xf7, 0xef, 0xa7, 0x90, 0x08, 0xfa, 0x46, 0x2e, 0x14,
            0x4d, 0x74,
        ]);
        assert_eq!(guid.to_string(), "45bca66a-f74a-a7ef-9008-fa462e144d74");
    }
}
