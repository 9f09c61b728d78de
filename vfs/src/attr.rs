//! The attributes of an inode: identity, sizes, times, DOS attributes.

/// A point in time: seconds and nanoseconds since 1970-01-01 UTC. Nanoseconds count upward from
/// `secs`, also before 1970; `nanos < 1_000_000_000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl Timestamp {
    /// Year, month and day in UTC, by the proleptic Gregorian calendar; a year that is none of 32 bits is 0.
    #[must_use]
    pub fn date(self) -> (u32, u32, u32) {
        // Howard Hinnant's civil_from_days: eras of 400 years that begin in March, so that the leap day is the last.
        const ERA: i64 = 146_097;
        let days = self.secs.div_euclid(86_400).saturating_add(719_468);
        let (era, day_of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let after_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * after_march + 2) / 5 + 1;
        let month = (after_march + 2) % 12 + 1;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let number = |value: i64| u32::try_from(value).unwrap_or(0);
        (number(year), number(month), number(day))
    }

    /// The time for people, to the second: `2026-11-21 16:22:40 UTC`.
    #[must_use]
    pub fn utc(self) -> String {
        let (year, month, day) = self.date();
        let rest = self.secs.rem_euclid(86_400);
        let (h, min, s) = (rest / 3_600, rest / 60 % 60, rest % 60);
        format!("{year:04}-{month:02}-{day:02} {h:02}:{min:02}:{s:02} UTC")
    }
}

/// The identity of an inode, which renames keep: file system, inode number, generation. Inode
/// number and generation survive reboots; the device number may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileKey {
    /// Device number of the file system.
    pub fs: u64,
    pub ino: u64,
    /// Distinguishes files that had the same inode number: see [`crate::disk::Stat::key`]. 0 if the
    /// file system has nothing of that kind.
    pub generation: u64,
}

/// The kind of object that an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    File,
    Directory,
    /// A symbolic link (only where the policy shows links as such).
    SymbolicLink,
    /// Socket, FIFO or device: listed, never opened.
    Special,
}

/// The attributes that [`crate::Volume::attr`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    pub key: FileKey,
    /// The number by which clients know the file: unique below the root of the share, and the same after a restart.
    pub file_id: u64,
    pub kind: Kind,
    /// End of file in bytes (of the stream, for a stream node); 0 for directories.
    pub size: u64,
    /// Bytes allocated on disk.
    pub allocated: u64,
    pub links: u32,
    /// Creation time: the stored one (`user.DOSATTRIB`), else the file system's birth time, else
    /// the oldest other time.
    pub created: Timestamp,
    pub accessed: Timestamp,
    /// Last write of data.
    pub written: Timestamp,
    /// Last change of the inode (POSIX ctime).
    pub changed: Timestamp,
    /// DOS attribute bits ([MS-FSCC] 2.6) as stored or derived, with DIRECTORY, SPARSE_FILE and
    /// REPARSE_POINT where they apply; never 0, because NORMAL takes its place.
    pub dos_attributes: u32,
    /// HIDDEN follows from the name only, and is not stored.
    pub hidden_by_name: bool,
    /// Owner as Linux knows it.
    pub uid: u32,
    /// Group as Linux knows it.
    pub gid: u32,
    /// Permission bits and type (st_mode).
    pub mode: u32,
}

impl Attr {
    /// Whether the inode is a directory, also for the attributes of one of its streams.
    #[must_use]
    pub fn is_of_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Bytes that [MS-FSA] counts as allocated to the stream. They are never fewer than the end of file (2.1.5.4,
    /// 2.1.5.15.4), although nothing is allocated on disk for a hole, nor at once for data that were just written.
    #[must_use]
    pub fn allocation(&self) -> u64 {
        self.allocated.max(self.size)
    }
}

/// The attributes to change; `None` keeps one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Creation time (stored in `user.DOSATTRIB`).
    pub created: Option<Timestamp>,
    pub accessed: Option<Timestamp>,
    pub written: Option<Timestamp>,
    /// DOS attribute bits, replaced whole; bits that cannot be stored (DIRECTORY, NORMAL,
    /// SPARSE_FILE, REPARSE_POINT) are ignored.
    pub dos_attributes: Option<u32>,
    /// Adds the ARCHIVE bit, if this is a file.
    pub archive: bool,
    /// Whether the file counts as sparse from now on.
    pub sparse: Option<bool>,
}

/// One named stream of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Name without colons and type (`x` of `:x:$DATA`).
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Bytes allocated on disk.
    pub allocated: u64,
}

/// The facts that [`crate::Attributes::fs_info`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsInfo {
    /// Total bytes.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes free for the caller, after quotas and reserves.
    pub available: u64,
    /// Allocation unit in bytes.
    pub block: u32,
    /// The file system supports sparse files (punch hole, SEEK_DATA).
    pub sparse: bool,
    /// The file system can share blocks between files ([`crate::Contents::clone_range`]).
    pub clones: bool,
    pub read_only: bool,
    /// When the file system (share root) was made.
    pub created: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn times_are_written_for_people() {
        let utc = |secs| Timestamp { secs, nanos: 0 }.utc();
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_278_160), "2026-11-21 16:22:40 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn times_have_dates() {
        let date = |days: i64| {
            let secs = days * 86_400 + 86_399;
            Timestamp { secs, nanos: 0 }.date()
        };
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(20_778), (2026, 11, 21));
        assert_eq!(date(-1), (1969, 12, 31));
    }
}
