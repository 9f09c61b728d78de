//! Bytes of simulated files: read, write, sizes, holes, copies.

use std::sync::Arc;

use bytes::BytesMut;

use super::{
    effects::{Edit, Profile, Scope},
    faults::SimOp,
    image::{BLOCK, BLOCK_LEN, Block, SECTOR},
    state::{State, err, err_if},
};
use crate::disk::{Allocate, DiskResult};

/// Largest file: 16 TiB, as on ext4 with 4 KiB blocks.
pub const FILE_MAX: u64 = 1 << 44;
/// Most bytes that one read or write moves (Linux: `MAX_RW_COUNT`).
const TRANSFER_MAX: usize = 0x7FFF_F000;

/// Splits a position into block number and offset within.
fn place(position: u64) -> (u64, usize) {
    (
        position / BLOCK,
        usize::try_from(position % BLOCK).unwrap_or(0),
    )
}

/// The part of `len` bytes that a short write writes: whole sectors if there are several. One sector is written whole:
/// half of it could reach the disk, and no reader could distinguish that from damage.
fn part(len: usize) -> usize {
    let half = len.div_ceil(2);
    if len > SECTOR {
        half.next_multiple_of(SECTOR).min(len - 1) / SECTOR * SECTOR
    } else if len == SECTOR {
        len
    } else {
        half
    }
}

impl State {
    pub(super) fn read(
        &mut self,
        ino: u64,
        offset: u64,
        len: usize,
        buf: &mut BytesMut,
    ) -> DiskResult<()> {
        let short = self.fault(SimOp::Read)?;
        let node = self.node(ino)?;
        err_if(node.is_dir(), libc::EISDIR)?;
        let left = usize::try_from(node.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut want = len.min(left).min(TRANSFER_MAX);
        if short {
            want = want.div_ceil(2);
        }
        buf.reserve(want);
        let mut at = offset;
        while want > 0 {
            let (number, within) = place(at);
            let count = want.min(BLOCK_LEN - within);
            match node.block(number) {
                Block::Data(page) => {
                    buf.extend_from_slice(page.get(within..within + count).unwrap_or_default());
                }
                _ => buf.resize(buf.len() + count, 0),
            }
            want -= count;
            at += count as u64;
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        serial: u64,
        ino: u64,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> DiskResult<usize> {
        let short = self.fault(SimOp::Write)?;
        let mut data = data.get(..data.len().min(TRANSFER_MAX)).unwrap_or(data);
        if short {
            data = data.get(..part(data.len())).unwrap_or(data);
        }
        let written = self.put(ino, offset, data)?;
        if durable && written > 0 {
            let end = (offset + written as u64).div_ceil(BLOCK);
            self.sync(serial, ino, Scope::Blocks(offset / BLOCK, end))?;
        }
        Ok(written)
    }

    fn set_block(&mut self, ino: u64, number: u64, block: Block) {
        self.change(ino, Edit::Page { number, block });
    }

    /// Writes until the space is used up; ENOSPC only if nothing fits.
    fn put(&mut self, ino: u64, offset: u64, data: &[u8]) -> DiskResult<usize> {
        err_if(self.node(ino)?.is_dir(), libc::EISDIR)?;
        if data.is_empty() {
            return Ok(0);
        }
        let room = usize::try_from(FILE_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
        err_if(room == 0, libc::EFBIG)?;
        let data = data.get(..room).unwrap_or(data);
        self.step();
        self.zero_old_end(ino, offset)?;
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|r| !r.is_empty()) {
            let (number, within) = place(offset + done as u64);
            let count = rest.len().min(BLOCK_LEN - within);
            let new = rest.get(..count).unwrap_or_default();
            // If losses are not tracked, a block is changed in place.
            if self.durable.profile == Profile::Untracked
                && self.live.overwrite(ino, number, within, new)
            {
                done += count;
                continue;
            }
            let old = self.node(ino)?.block(number);
            if old == Block::Hole && self.room(1).is_err() {
                err_if(done == 0, libc::ENOSPC)?;
                break;
            }
            let mut page = match old {
                Block::Data(page) => page,
                _ => Arc::new([0; BLOCK_LEN]),
            };
            let bytes = Arc::make_mut(&mut page).get_mut(within..within + count);
            if let Some(bytes) = bytes {
                bytes.copy_from_slice(new);
            }
            self.set_block(ino, number, Block::Data(page));
            done += count;
        }
        let end = offset + done as u64;
        if end > self.node(ino)?.size {
            self.change(ino, Edit::Size(end));
        }
        self.drop_privileges(ino)?;
        self.touch(ino, true);
        Ok(done)
    }

    pub(super) fn truncate(&mut self, ino: u64, size: u64) -> DiskResult<()> {
        self.fault(SimOp::Change)?;
        err_if(size > FILE_MAX, libc::EFBIG)?;
        self.step();
        self.zero_old_end(ino, size)?;
        if !self.durable.image.keeps_tails
            && size < self.node(ino)?.size
            && !size.is_multiple_of(BLOCK)
        {
            self.blank(ino, size, size.next_multiple_of(BLOCK))?;
        }
        self.change(ino, Edit::Size(size));
        self.drop_privileges(ino)?;
        self.touch(ino, true);
        Ok(())
    }

    /// Called when a file grows to or beyond `to`, or space is reserved up to there: if a truncated file keeps the rest
    /// of its last block, that is zeroed in memory now.
    fn zero_old_end(&mut self, ino: u64, to: u64) -> DiskResult<()> {
        let end = self.node(ino)?.size;
        if self.durable.image.keeps_tails && to > end && !end.is_multiple_of(BLOCK) {
            self.blank(ino, end, end.next_multiple_of(BLOCK))?;
        }
        Ok(())
    }

    /// Zeroes a part of one block that has data.
    fn blank(&mut self, ino: u64, from: u64, to: u64) -> DiskResult<()> {
        let (number, within) = place(from);
        let count = usize::try_from(to - from).unwrap_or(BLOCK_LEN);
        if let Block::Data(mut page) = self.node(ino)?.block(number) {
            if let Some(bytes) = Arc::make_mut(&mut page).get_mut(within..within + count) {
                bytes.fill(0);
            }
            self.set_block(ino, number, Block::Data(page));
        }
        Ok(())
    }

    pub(super) fn allocate(
        &mut self,
        ino: u64,
        how: Allocate,
        offset: u64,
        len: u64,
    ) -> DiskResult<()> {
        self.fault(SimOp::Change)?;
        let Some(end) = offset.checked_add(len).filter(|end| *end <= FILE_MAX) else {
            return err(libc::EFBIG);
        };
        err_if(len == 0, libc::EINVAL)?;
        err_if(!self.node(ino)?.is_file(), libc::ENODEV)?;
        self.step();
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        match how {
            Allocate::Reserve => {
                let had = self.node(ino)?.blocks.range(first..last).count() as u64;
                self.room((last - first) - had)?;
                self.zero_old_end(ino, end)?;
                for number in first..last {
                    if self.node(ino)?.block(number) == Block::Hole {
                        self.set_block(ino, number, Block::Reserved);
                    }
                }
            }
            Allocate::Punch => {
                self.blank_ends(ino, offset, end)?;
                let whole = offset.div_ceil(BLOCK)..end / BLOCK;
                if !whole.is_empty() {
                    let within = self.node(ino)?.blocks.range(whole);
                    let numbers: Vec<u64> = within.map(|(number, _)| *number).collect();
                    for number in numbers {
                        self.set_block(ino, number, Block::Hole);
                    }
                }
            }
        }
        self.drop_privileges(ino)?;
        self.touch(ino, how != Allocate::Reserve);
        Ok(())
    }

    /// Zeroes the parts of a range that do not cover whole blocks.
    fn blank_ends(&mut self, ino: u64, from: u64, to: u64) -> DiskResult<()> {
        let first_end = from.next_multiple_of(BLOCK).min(to);
        if from < first_end {
            self.blank(ino, from, first_end)?;
        }
        let last_start = (to / BLOCK * BLOCK).max(first_end);
        if last_start < to {
            self.blank(ino, last_start, to)?;
        }
        Ok(())
    }

    pub(super) fn seek(&mut self, ino: u64, offset: u64, data: bool) -> DiskResult<u64> {
        self.fault(SimOp::Look)?;
        let node = self.node(ino)?;
        err_if(offset >= node.size, libc::ENXIO)?;
        let mut written = node
            .blocks
            .range(offset / BLOCK..)
            .filter(|(_, p)| p.is_some())
            .map(|(n, _)| *n);
        if data {
            return match written.next().map(|n| (n * BLOCK).max(offset)) {
                Some(at) if at < node.size => Ok(at),
                _ => err(libc::ENXIO),
            };
        }
        let mut hole = offset / BLOCK;
        while written.next() == Some(hole) {
            hole += 1;
        }
        Ok((hole * BLOCK).max(offset).min(node.size))
    }

    /// `copy_file_range` and, with whole blocks, `FICLONERANGE`.
    pub(super) fn copy(
        &mut self,
        (from, from_offset): (u64, u64),
        (to, to_offset): (u64, u64),
        len: u64,
    ) -> DiskResult<u64> {
        let short = self.fault(SimOp::Write)?;
        let left = self.node(from)?.size.saturating_sub(from_offset);
        let mut len = len.min(left).min(TRANSFER_MAX as u64);
        if short {
            len = part(usize::try_from(len).unwrap_or(0)) as u64;
        }
        if from == to && from_offset < to_offset + len && to_offset < from_offset + len && len > 0 {
            return err(libc::EINVAL);
        }
        let mut done = 0;
        while done < len {
            // Whole steps of 1 MiB, so that a large copy needs no large buffer.
            let count = usize::try_from((len - done).min(1 << 20)).unwrap_or(0);
            let mut buf = BytesMut::new();
            self.read(from, from_offset + done, count, &mut buf)?;
            let put = self.put(to, to_offset + done, &buf);
            match put {
                Ok(0) => break,
                Ok(n) => done += n as u64,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    pub(super) fn clone_range(
        &mut self,
        (from, from_offset): (u64, u64),
        (to, to_offset): (u64, u64),
        len: u64,
    ) -> DiskResult<()> {
        self.fault(SimOp::Change)?;
        err_if(!self.options.clones, libc::EOPNOTSUPP)?;
        let size = self.node(from)?.size;
        // ioctl_ficlonerange(2): 0 stands for the rest of the source.
        let len = if len == 0 {
            size.saturating_sub(from_offset)
        } else {
            len
        };
        let Some(end) = from_offset.checked_add(len).filter(|end| *end <= size) else {
            return err(libc::EINVAL);
        };
        let aligned = |x: u64| x.is_multiple_of(BLOCK);
        if !aligned(from_offset) || !aligned(to_offset) || !(aligned(len) || end == size) {
            return err(libc::EINVAL);
        }
        if from == to && from_offset < to_offset + len && to_offset < end {
            return err(libc::EINVAL);
        }
        let to_end = to_offset.checked_add(len).filter(|end| *end <= FILE_MAX);
        let Some(to_end) = to_end else {
            return err(libc::EFBIG);
        };
        if !aligned(to_end) && to_end < self.node(to)?.size {
            return err(libc::EINVAL);
        }
        let (first, count, base) = (from_offset / BLOCK, len.div_ceil(BLOCK), to_offset / BLOCK);
        let had = self.node(to)?.blocks.range(base..base + count).count() as u64;
        self.room(count.saturating_sub(had))?;
        self.step();
        for index in 0..count {
            let block = self.node(from)?.block(first + index);
            self.set_block(to, base + index, block);
        }
        if to_end > self.node(to)?.size {
            self.change(to, Edit::Size(to_end));
        }
        self.drop_privileges(to)?;
        self.touch(to, true);
        Ok(())
    }
}
