//! One thread of a storage group, with a connection of its own.

use std::{sync::Arc, time::Duration};

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::msg::{CreateOptions, Dialect, WriteFlags};

use super::{
    Stability,
    group::{Group, LogWrite, Transaction},
};
use crate::{
    LoadError, Sample, Worker,
    error::{check_written, refused},
    page::PAGE,
    step::timed,
};

/// How long a thread waits that finds all pages in use.
const PAUSE: Duration = Duration::from_millis(1);

/// One thread of a group.
pub struct Thread {
    group: Arc<Group>,
    database: File,
    /// The share of its group's logs.
    logs: Tree,
    log: Option<(u64, File)>,
    flags: WriteFlags,
}

impl Thread {
    /// A thread of `group` on a connection of its own, with the shares of the database and of the logs.
    pub fn prepare(group: Arc<Group>, [database, logs]: [Tree; 2]) -> Result<Self, LoadError> {
        let unbuffered = CreateOptions::NO_INTERMEDIATE_BUFFERING;
        let is_direct = group.profile.stability == Stability::WriteThrough
            && group.model.options.contains(unbuffered);
        // [MS-SMB2] 2.2.21: before 3.0.2 a WRITE has no such flags, and the options of the open have to do.
        let has_flags = database.client().negotiated().dialect >= Dialect::SMB_3_0_2;
        let mut this = Self {
            database: open(&database, &group, &group.database()).map_err(refused("open"))?,
            group,
            logs,
            log: None,
            flags: WriteFlags::empty(),
        };
        if is_direct && has_flags {
            this.flags = WriteFlags::WRITE_THROUGH | WriteFlags::WRITE_UNBUFFERED;
        }
        Ok(this)
    }

    fn read(&self, t: &Transaction, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let data = timed(report, "database-read", (t.bytes(), 0), || {
            self.database.read(t.offset(), t.bytes() as u32)
        })?;
        let mut pages = data.chunks(PAGE);
        for (number, version) in (t.first..).zip(&t.versions) {
            let page = pages.next().unwrap_or_default();
            self.group.check(page, number, *version)?;
        }
        Ok(())
    }

    fn write(&self, t: &Transaction, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let newer = t.versions.iter().map(|version| version + 1);
        let data = self.group.content(t.first, newer);
        timed(report, "database-write", (0, t.bytes()), || {
            let written = self.database.write(t.offset(), &data, self.flags)?;
            check_written(written, data.len())
        })
    }

    /// Writes the log buffer and waits until it is stable. Records that other threads append meanwhile wait for
    /// the next commit.
    fn commit(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let group = Arc::clone(&self.group);
        let _one = group.log.lock().map_err(|_| LoadError::Panicked)?;
        // A piece shorter than a block is the last one; none is there if another's commit took this one's record along.
        while let Some(piece) = group.take_log()? {
            self.write_log(&group, &piece, report)?;
            let is_last = piece.bytes < group.model.block;
            group.logged(piece)?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    fn write_log(
        &mut self,
        group: &Group,
        piece: &LogWrite,
        report: &mut dyn FnMut(Sample),
    ) -> Result<(), LoadError> {
        let stability = group.profile.stability;
        if piece.rolls && stability == Stability::Flush {
            self.flush("database-flush", report)?;
        }
        let file = match &self.log {
            Some((number, file)) if *number == piece.log => file.clone(),
            _ => {
                let name = group.log_file(piece.log);
                let file = open(&self.logs, group, &name).map_err(refused("log-open"))?;
                if let Some((_, old)) = self.log.replace((piece.log, file.clone())) {
                    old.close().map_err(refused("log-close"))?;
                }
                file
            }
        };
        let data = group.log_content(piece);
        timed(report, "log-write", (0, piece.bytes as u64), || {
            let written = file.write(piece.offset, &data, self.flags)?;
            check_written(written, piece.bytes)?;
            match stability {
                Stability::Flush => file.flush(false),
                Stability::WriteThrough => Ok(()),
            }
        })
    }

    /// Makes the pages stable that were written since the last time.
    fn flush(&self, kind: &'static str, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        timed(report, kind, (0, 0), || self.database.flush(false))
    }
}

fn open(tree: &Tree, group: &Group, name: &str) -> Result<File, ClientError> {
    let args = CreateArgs::open_if(name);
    tree.create(&match group.profile.stability {
        Stability::WriteThrough => args.options(CreateOptions::WRITE_THROUGH | group.model.options),
        Stability::Flush => args,
    })
}

impl Worker for Thread {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let Some(transaction) = self.group.begin()? else {
            std::thread::sleep(PAUSE);
            return Ok(());
        };
        let mut done = Ok(());
        if transaction.reads {
            done = self.read(&transaction, report);
        }
        if transaction.writes && done.is_ok() {
            done = self.write(&transaction, report);
        }
        // After a failure nobody knows what the pages hold, so no other thread is given them.
        done?;
        self.group.end(&transaction, transaction.writes)?;
        if transaction.commits {
            self.commit(report)?;
        }
        if transaction.flushes {
            self.flush("guest-flush", report)?;
        }
        Ok(())
    }

    /// Its group.
    fn part(&self) -> Option<usize> {
        usize::try_from(self.group.number).ok()
    }
}
