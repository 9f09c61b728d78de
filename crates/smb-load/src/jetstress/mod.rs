//! Jetstress: the I/O of a mail store, transaction by transaction; and, by other numbers, that of a database and of the
//! disks of virtual machines ([`Preset`]).
//!
//! A storage group is a database file and a log. A transaction of the mail store (inserts, deletes, replacements and
//! reads, 40, 30, 5 and 25 of a hundred) uses one random page of 8 KiB, which is read unless it is in the cache of the
//! database (45 of a hundred are); all but reads write the page back and append 2,200 bytes to the log buffer. 55
//! commits of a hundred are lazy; the others write the buffer to the log and wait until it is stable. That gives 1.36
//! page writes and 0.61 log writes of about 4,900 bytes for each page read, as the Jetstress report of 2008 has
//! (1 : 1.37 : 0.62). Logs roll at 1 MiB; a group keeps `LOGS` of them.
//!
//! Stability before the answer is requested in one of two ways ([`Stability`]). Every page that is read is
//! checked: its checksum, and that it is what was acknowledged last. The operations of a step are its reads
//! and writes, as in the report.

mod group;
mod preset;
mod thread;
mod verdict;

use serde::{Deserialize, Serialize};

pub use group::Group;
pub use preset::Preset;
pub use thread::Thread;
pub use verdict::{LOG_MEAN_MS, MAILBOX_IOPS, READ_MEAN_MS, SAMPLE_MS, Verdict, highest_good};

use crate::page::PAGE;

/// MiB of a mailbox of the report.
pub const MAILBOX_MIB: u64 = 250;
/// Pages of a database whose size nothing says.
const PAGES: u64 = 16_384;

/// How a client asks that data are stable before the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Stability {
    #[default]
    /// The files are opened with FILE_WRITE_THROUGH, as Exchange, SQL Server and Hyper-V do.
    WriteThrough,
    /// A WRITE of the log is followed by a FLUSH; the pages are flushed when a log ends, as at a checkpoint.
    Flush,
}

/// The sizes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Profile {
    /// The application whose I/O is imitated.
    #[serde(default)]
    pub preset: Preset,
    /// Pages of the database of each group; as many as the mailboxes need, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
    /// How stability is asked for.
    #[serde(default)]
    pub stability: Stability,
    /// Mailboxes that all groups together must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mailboxes: Option<u64>,
    /// MiB of each mailbox.
    #[serde(default = "mailbox_mib")]
    pub mailbox_mib: u64,
}

fn mailbox_mib() -> u64 {
    MAILBOX_MIB
}

impl Profile {
    /// Pages of the database of each of so many groups.
    pub fn pages_of_each(&self, groups: usize) -> u64 {
        let of_mailboxes = self.mailboxes.map(|mailboxes| {
            let pages = (self.mailbox_mib << 20) / PAGE as u64;
            let all = mailboxes.saturating_mul(pages);
            all.div_ceil(groups.max(1) as u64)
        });
        self.pages.or(of_mailboxes).unwrap_or(PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_size_the_databases_unless_their_pages_are_given() {
        let mut profile = Profile {
            preset: Preset::Exchange,
            pages: None,
            stability: Stability::Flush,
            mailboxes: None,
            mailbox_mib: MAILBOX_MIB,
        };
        assert_eq!(profile.pages_of_each(4), PAGES);
        profile.mailboxes = Some(5100);
        assert_eq!(
            profile.pages_of_each(4) * 4 * PAGE as u64,
            5100 * (250 << 20)
        );
        profile.mailbox_mib = 1;
        assert_eq!(profile.pages_of_each(1), 5100 * 128);
        profile.pages = Some(8192);
        assert_eq!(profile.pages_of_each(4), 8192);
    }
}
