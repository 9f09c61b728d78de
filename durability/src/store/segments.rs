//! The segment files of a log: numbered, in one folder, the newest of them written to.
//!
//! A segment is filled with zeros when it is made, so that a group changes data only and needs no room of the file
//! system. It is made as `spare.KIND`, whole and synced, and only then gets its name (`0123456789abcdef.KIND`); then
//! older ones go. Nothing more is written to a segment after a write to it failed, because its pages may hold anything.
//!
//! **Room.** A log whose head repeats its whole state (a *snapshot*) keeps a second file of the same
//! size: the next segment overwrites it in place, and the segment before that becomes the next
//! spare. So a full file system stops such a log only when the snapshot outgrows the spare. Then the old
//! segment takes one more group, in a sector that is kept free for it ([`Segments::say_last`]).
//!
//! `log.rs` decides when a segment begins and what is tried again.

use std::{collections::BTreeSet, mem};

use vfs::{
    Disk,
    disk::{DiskResult, Errno, RawEntry},
};

use super::{
    folder::Folder,
    groups::{ALIGN, HEAD, Magic, aligned, group_bytes},
};

/// Most names looked at in the folder.
const NAMES_MAX: usize = 100_000;

/// The properties in which one log differs from another.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The ending of the names of its files; early builds had one file of that name.
    pub kind: &'static str,
    /// The first bytes of each group.
    pub magic: &'static Magic,
    /// Its name in messages.
    pub title: &'static str,
    /// The consequence, in messages, if it cannot be written.
    pub risk: &'static str,
    /// Bytes of a segment. In a snapshot log a segment may be larger, and the spare takes as many again.
    pub segment_bytes: u64,
    /// The most segments that are kept; an older one is removed or becomes the spare.
    pub segments: usize,
    /// The head of a segment repeats the whole state, including what waits to be written.
    pub is_snapshot: bool,
}

/// Name of a segment's file.
pub fn segment_name(number: u64, kind: &str) -> String {
    format!("{number:016x}.{kind}")
}

/// Number of the segment in a file of that name.
pub fn segment_number(name: &[u8], kind: &str) -> Option<u64> {
    let digits = name.strip_suffix(kind.as_bytes())?.strip_suffix(b".")?;
    let text = std::str::from_utf8(digits).ok()?;
    let plain = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(text, 16).ok().filter(|_| plain)
}

/// The segment that is written to.
struct Newest<F> {
    fd: F,
    number: u64,
    /// The number of the next group, and the place that it goes to.
    group: u32,
    offset: u64,
    /// Where groups end. Then there is a sector for a last word, and one of zeros; a file without these was cut off.
    end: u64,
    /// The mark behind the last group is not written yet.
    unmarked: bool,
}

pub(super) struct Segments<D: Disk> {
    pub(super) folder: Folder<D>,
    shape: Shape,
    numbers: BTreeSet<u64>,
    /// Those of `numbers` that are removed, but never overwritten as a spare.
    spoilt: BTreeSet<u64>,
    newest: Option<Newest<D::Fd>>,
    /// The next segment and the one before, while the next is given its name and if that fails. A restart may find
    /// either to be the newest, so each of them takes the last word, and neither takes anything else.
    doubtful: Vec<Newest<D::Fd>>,
    /// There is a file of an early build, which the first segment replaces.
    has_old: bool,
    /// There is a spare, and no write to it is under way.
    has_spare: bool,
    /// A segment was made, and older ones have not gone yet.
    untidy: bool,
}

impl<D: Disk> Segments<D> {
    /// The segments in the folder that `disk` starts at.
    pub(super) async fn find(disk: D, shape: Shape) -> DiskResult<Self> {
        let folder = Folder(disk);
        let listed = folder.entries(NAMES_MAX).await?;
        let number = |name: &[u8]| segment_number(name, shape.kind);
        let numbers: BTreeSet<u64> = listed.iter().filter_map(|one| number(&one.name)).collect();
        let mut segments = Self {
            folder,
            shape,
            numbers,
            spoilt: BTreeSet::new(),
            newest: None,
            doubtful: Vec::new(),
            has_old: listed.iter().any(|one| *one.name == *shape.kind.as_bytes()),
            has_spare: false,
            untidy: false,
        };
        // A file that a power cut left with two names must not be overwritten under one of them.
        let shared =
            |one: &RawEntry| listed.iter().filter(|other| other.ino == one.ino).count() > 1;
        let spoilt = listed.iter().filter(|one| shared(one));
        segments.spoilt = spoilt.filter_map(|one| number(&one.name)).collect();
        let spare = segments.spare();
        match listed.iter().find(|one| *one.name == *spare.as_bytes()) {
            Some(one) if shared(one) => {
                segments.folder.remove(&segments.spare()).await?;
                segments.folder.sync().await?;
            }
            spare => segments.has_spare = shape.is_snapshot && spare.is_some(),
        }
        Ok(segments)
    }

    fn name(&self, number: u64) -> String {
        segment_name(number, self.shape.kind)
    }

    fn spare(&self) -> String {
        format!("spare.{}", self.shape.kind)
    }

    pub(super) fn newest(&self) -> Option<String> {
        self.numbers.last().map(|number| self.name(*number))
    }

    /// Keeps a damaged file, which may be the newest segment, under another name.
    pub(super) async fn keep_aside(&mut self, file: &str) -> DiskResult<()> {
        let aside = format!("{}.refused", self.shape.kind);
        self.spoilt.extend(self.numbers.last());
        self.folder.link(file, &aside).await
    }

    /// Nothing is written to the newest segment any more, and neither it nor a spare in the making is overwritten.
    pub(super) fn give_up(&mut self) {
        self.spoilt
            .extend(self.newest.take().map(|newest| newest.number));
    }

    /// Whether there is a newest segment, with room for a group of this payload (an empty one needs none).
    pub(super) fn fits(&self, payload: usize) -> bool {
        let room = aligned(HEAD + payload) as u64;
        let newest = self.newest.as_ref();
        newest.is_some_and(|newest| payload == 0 || newest.offset + room <= newest.end)
    }

    /// Writes a group durably; where that fails nothing more is written to the segment.
    pub(super) async fn write(&mut self, payload: &[u8]) -> DiskResult<()> {
        let Some(newest) = &mut self.newest else {
            return Err(Errno(libc::EIO));
        };
        let bytes = group_bytes(self.shape.magic, newest.number, newest.group, payload);
        let (at, len) = (newest.offset, bytes.len() as u64);
        newest.group += 1;
        newest.offset += len;
        newest.unmarked = self.shape.is_snapshot;
        let written = self.folder.put(&newest.fd, at, bytes.into(), true).await;
        if written.is_err() {
            self.give_up();
        }
        written
    }

    /// Writes an empty group behind the last one, which the next one overwrites. A bad group before
    /// this mark has decayed and was not torn by a power cut; the mark need not be stable for that.
    async fn mark(&mut self) {
        let newest = self.newest.as_mut();
        let Some(newest) = newest.filter(|newest| newest.unmarked && newest.offset <= newest.end)
        else {
            return;
        };
        newest.unmarked = false;
        let mark = group_bytes(self.shape.magic, newest.number, newest.group, &[]);
        let written = self
            .folder
            .put(&newest.fd, newest.offset, mark.into(), false);
        if written.await.is_err() {
            // The next group goes to another segment.
            self.give_up();
        }
    }

    /// Writes a group of one sector if no new segment could be made, and closes what a restart may find.
    pub(super) async fn say_last(&mut self, payload: &[u8]) -> DiskResult<()> {
        let mut said = Ok(());
        self.doubtful.extend(self.newest.take());
        for segment in mem::take(&mut self.doubtful) {
            self.newest = Some(segment);
            if aligned(HEAD + payload.len()) == ALIGN {
                said = said.and(self.write(payload).await);
            }
        }
        self.newest = None;
        said
    }

    pub(super) async fn begin(&mut self, mut payloads: Vec<Vec<u8>>) -> DiskResult<()> {
        let count = payloads.len() as u32;
        if self.shape.is_snapshot {
            // Without a mark behind it, a last group that decayed would pass for a torn one.
            payloads.push(Vec::new());
        }
        let last = self.numbers.last();
        let number = last.map_or(1, |last| last.saturating_add(1));
        let groups = payloads.iter().zip(0..);
        let groups = groups.map(|(payload, at)| group_bytes(self.shape.magic, number, at, payload));
        let bytes = groups.collect::<Vec<_>>().concat();
        let mark = if self.shape.is_snapshot { ALIGN } else { 0 };
        let offset = (bytes.len() - mark) as u64;
        let reuse = mem::take(&mut self.has_spare);
        let spare = self.spare();
        let (fd, size) = match self.fill(&spare, bytes, reuse).await {
            Ok(filled) => filled,
            Err(errno) => {
                // This makes room for others, and a file whose write failed is not used again.
                let _ = self.folder.remove(&spare).await;
                return Err(errno);
            }
        };
        self.doubtful = self.newest.take().into_iter().collect();
        self.doubtful.push(Newest {
            fd,
            number,
            group: count,
            offset,
            end: size - 2 * ALIGN as u64,
            unmarked: false,
        });
        let name = self.name(number);
        self.folder.rename(&spare, &name).await?;
        self.folder.sync().await?;
        if self.has_old {
            self.folder.remove(self.shape.kind).await?;
            self.folder.sync().await?;
            self.has_old = false;
        }
        self.numbers.insert(number);
        self.untidy = true;
        self.newest = self.doubtful.pop();
        self.doubtful.clear();
        Ok(())
    }

    /// Makes a stable file of these bytes and zeros, and returns it with its size. With `reuse` it
    /// overwrites a spare that is neither too small nor far too large.
    async fn fill(&self, name: &str, bytes: Vec<u8>, reuse: bool) -> DiskResult<(D::Fd, u64)> {
        let head = bytes.len() as u64;
        let mut wanted = self.shape.segment_bytes;
        if self.shape.is_snapshot {
            wanted = wanted.max(2 * head);
        }
        let mut found = None;
        if reuse && let Some(fd) = self.folder.open(name).await? {
            let size = self.folder.0.stat(&fd).await?.size;
            let fits =
                size >= self.shape.segment_bytes && size * 3 >= head * 4 && size <= wanted * 4;
            found = fits.then_some((fd, size));
        }
        let (fd, size) = match found {
            Some(found) => found,
            None => (self.folder.create(name).await?, wanted),
        };
        self.folder.put(&fd, 0, bytes.into(), false).await?;
        self.folder.fill(&fd, head, size).await?;
        Ok((fd, size))
    }

    /// Removes the segments beyond [`Shape::segments`], oldest first, or makes one the spare.
    pub(super) async fn retire(&mut self) {
        while self.numbers.len() > self.shape.segments
            && let Some(oldest) = self.numbers.pop_first()
        {
            let (name, spare) = (self.name(oldest), self.spare());
            let spoilt = self.spoilt.remove(&oldest);
            let reuse = self.shape.is_snapshot && !spoilt && !self.has_spare;
            let gone = match reuse {
                true => self.folder.rename(&name, &spare).await,
                false => self.folder.remove(&name).await,
            };
            match gone {
                Ok(()) => self.has_spare |= reuse,
                Err(errno) => tracing::warn!(errno = errno.0, name, "an old segment stays"),
            }
        }
    }

    /// After a write, once its waiters were answered: marks the end, and after a new segment retires
    /// older ones and makes a spare if there is none. A failure here costs only room.
    pub(super) async fn tidy(&mut self) {
        self.mark().await;
        if !mem::take(&mut self.untidy) {
            return;
        }
        self.retire().await;
        if let Err(errno) = self.set_aside().await {
            tracing::warn!(
                error = %errno,
                "no room is set aside for {}: a full disk may stop it", self.shape.title
            );
        }
        if !self.has_spare {
            // A spare that could not be made leaves its room to others.
            let _ = self.folder.remove(&self.spare()).await;
        }
    }

    async fn set_aside(&mut self) -> DiskResult<()> {
        if let Some(newest) = &self.newest
            && self.shape.is_snapshot
            && !self.has_spare
        {
            let size = newest.end + 2 * ALIGN as u64;
            let fd = self.folder.create(&self.spare()).await?;
            self.folder.fill(&fd, 0, size).await?;
            self.has_spare = true;
        }
        self.folder.sync().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_names() {
        let name = segment_name(0x1A, "flushes");
        assert_eq!(segment_number(name.as_bytes(), "flushes"), Some(0x1A));
        assert_eq!(segment_number(name.as_bytes(), "latches"), None);
        for bad in [
            "1.flushes",
            "000000000000001A.flushes",
            "+00000000000001a.flushes",
            "0000000000000001flushes",
            "x",
        ] {
            assert_eq!(segment_number(bad.as_bytes(), "flushes"), None, "{bad}");
        }
    }
}
