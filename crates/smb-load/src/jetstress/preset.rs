//! The presets: the sizes, flags and proportions of the applications whose I/O is imitated.
//!
//! Exchange's are those of the Jetstress report of 2008. SQL Server's sizes are those that its documentation states
//! (pages of 8 KiB, extents of 64 KiB, log blocks of 512 bytes to 60 KiB, write-through and unbuffered), with two reads
//! for each write, as an OLTP load has. Hyper-V's are 64 KiB for everything, write-through and unbuffered; what its
//! guests flush is a part of their writes. How often the last two do what is a model, not a recording.

use serde::{Deserialize, Serialize};
use smb_wire::msg::CreateOptions;

/// An application whose I/O is imitated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The mail store of the Jetstress report of 2008.
    #[default]
    Exchange,
    /// A database with many small transactions.
    SqlServer,
    /// The disks of virtual machines.
    HyperV,
}

/// The requests of an application and their sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    /// The options of its opens, beside FILE_WRITE_THROUGH.
    pub(super) options: CreateOptions,
    /// Transactions that read only, write only, read and write, and find all in their cache, of 10,000.
    pub(super) transactions: [u64; 4],
    /// Pages of a small and of a large request.
    pub(super) pages: [u64; 2],
    /// Small and large requests, of a hundred.
    pub(super) sizes: [u64; 2],
    /// Bytes that a transaction which writes appends to the log, by what it did.
    pub(super) records: [usize; 4],
    /// How many do so, of a hundred.
    pub(super) record_parts: [u64; 4],
    /// Commits that wait for the log and lazy commits, of a hundred.
    pub(super) commits: [u64; 2],
    /// A write of the log is a multiple of this.
    pub(super) sector: usize,
    /// Bytes of the longest write of the log.
    pub(super) block: usize,
    /// Bytes at which a log ends and the next begins.
    pub(super) log: u64,
    /// Writes after which the database is flushed and those that are not, of a hundred.
    pub(super) flushes: [u64; 2],
}

impl Preset {
    /// Shares at most that so many groups can fill.
    pub fn shares_max(self, groups: usize) -> usize {
        groups.saturating_mul(self.files())
    }

    /// The shares, of so many, of a group's database and of its log: the databases and logs of all groups are dealt out
    /// in turn.
    #[must_use]
    pub fn shares_of(self, group: usize, shares: usize) -> [usize; 2] {
        let (files, shares) = (self.files(), shares.max(1));
        let first = group * files;
        [first % shares, (first + files - 1) % shares]
    }

    /// The share, of so many, that serves a kind of request of a group: that of its log or that of its database.
    pub(crate) fn share_of(self, group: usize, kind: &str, shares: usize) -> usize {
        let [database, logs] = self.shares_of(group, shares);
        match kind.starts_with("log-") {
            true => logs,
            false => database,
        }
    }

    /// A group's database and its log, unless no commit waits for a log: then there is none.
    fn files(self) -> usize {
        match self.model().commits {
            [0, _] => 1,
            _ => 2,
        }
    }

    pub(super) const fn model(self) -> Model {
        match self {
            // 40 inserts, 30 deletes, 5 replacements and 25 reads, of which 45 in a hundred find their page in the
            // cache.
            Self::Exchange => Model {
                options: CreateOptions(0),
                transactions: [1375, 3375, 4125, 1125],
                pages: [1, 1],
                sizes: [100, 0],
                records: [2200; 4],
                record_parts: [100, 0, 0, 0],
                commits: [45, 55],
                sector: 1,
                block: 1 << 20,
                log: 1 << 20,
                flushes: [0, 100],
            },
            Self::SqlServer => Model {
                options: CreateOptions::NO_INTERMEDIATE_BUFFERING,
                transactions: [6700, 3300, 0, 0],
                pages: [1, 8],
                sizes: [80, 20],
                records: [400, 3000, 15_000, 61_440],
                record_parts: [60, 25, 12, 3],
                commits: [100, 0],
                sector: 512,
                block: 61_440,
                log: 16 << 20,
                flushes: [0, 100],
            },
            Self::HyperV => Model {
                options: CreateOptions::NO_INTERMEDIATE_BUFFERING,
                transactions: [4000, 6000, 0, 0],
                pages: [8, 8],
                sizes: [100, 0],
                records: [0; 4],
                record_parts: [100, 0, 0, 0],
                commits: [0, 100],
                sector: 1,
                block: 1,
                log: 1,
                flushes: [10, 90],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Preset; 3] = [Preset::Exchange, Preset::SqlServer, Preset::HyperV];

    /// The ratios of the report: 1.37 page writes and 0.62 log writes of 4,900 bytes for each page read.
    #[test]
    fn exchange_has_the_ratios_of_the_report() {
        let model = Preset::Exchange.model();
        let [reading, writing, both, _] = model.transactions.map(|part| part as f64);
        let (reads, writes) = (reading + both, writing + both);
        assert!((writes / reads - 1.37).abs() < 0.02);
        let committed = model.commits[0] as f64 / 100.0;
        assert!((writes * committed / reads - 0.62).abs() < 0.01);
        assert!((model.records[0] as f64 / committed - 4900.0).abs() < 20.0);
    }

    #[test]
    fn databases_and_logs_are_dealt_out_over_the_shares() {
        let of = |preset: Preset, shares| [0, 1, 2].map(|group| preset.shares_of(group, shares));
        assert_eq!(of(Preset::Exchange, 1), [[0, 0]; 3]);
        assert_eq!(of(Preset::Exchange, 2), [[0, 1]; 3]);
        assert_eq!(of(Preset::Exchange, 3), [[0, 1], [2, 0], [1, 2]]);
        assert_eq!(of(Preset::SqlServer, 6), [[0, 1], [2, 3], [4, 5]]);
        let kinds = ["database-read", "log-write", "database-flush"];
        let of_second = kinds.map(|kind| Preset::Exchange.share_of(1, kind, 3));
        assert_eq!(of_second, [2, 0, 2]);
        // It has no log, for which a share would stay empty.
        assert_eq!(of(Preset::HyperV, 2), [[0, 0], [1, 1], [0, 0]]);
        for preset in ALL {
            for groups in 1..20 {
                for shares in 1..=preset.shares_max(groups) {
                    let mut filled: Vec<usize> = (0..groups)
                        .flat_map(|group| preset.shares_of(group, shares))
                        .collect();
                    filled.sort_unstable();
                    filled.dedup();
                    assert_eq!(filled.len(), shares, "{preset:?} {groups}");
                }
            }
        }
    }

    #[test]
    fn every_model_is_complete() {
        for preset in ALL {
            let model = preset.model();
            assert_eq!(model.transactions.iter().sum::<u64>(), 10_000);
            for parts in [model.sizes, model.commits, model.flushes] {
                assert_eq!(parts.iter().sum::<u64>(), 100, "{preset:?}");
            }
            assert_eq!(model.record_parts.iter().sum::<u64>(), 100);
            assert_eq!(model.block % model.sector, 0);
            assert!(model.records.iter().all(|bytes| *bytes <= model.block));
            // The checksum of a write of the log is one of words.
            assert!(model.records.iter().all(|bytes| bytes.is_multiple_of(8)));
        }
    }
}
