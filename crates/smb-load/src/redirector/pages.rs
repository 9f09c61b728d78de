//! The pages of one file that a client has in its cache.
//!
//! A cached page is always whole; behind the end of the file it has zeros. Bytes that were written and are not on the
//! server yet are one range of a page: all of its bytes are the client's, so the gap between two writes may be written
//! too. This is data only: the requests are those of the redirector.

use std::{collections::BTreeMap, ops::Range};

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// A page and what of it the server lacks.
struct Page {
    bytes: Vec<u8>,
    dirty: Range<usize>,
}

/// The cached pages of one file, by their place in it.
#[derive(Default)]
pub(super) struct Pages(BTreeMap<u64, Page>);

fn touched(bytes: &Range<u64>) -> Range<u64> {
    match bytes.is_empty() {
        true => 0..0,
        false => bytes.start / PAGE..bytes.end.div_ceil(PAGE),
    }
}

/// The part of `bytes` that lies in page `number`, as a range of the page.
fn part(number: u64, bytes: &Range<u64>) -> Range<usize> {
    let start = number * PAGE;
    let from = bytes.start.clamp(start, start + PAGE) - start;
    let to = bytes.end.clamp(start, start + PAGE) - start;
    from as usize..to as usize
}

impl Pages {
    /// Bytes in the cache.
    pub(super) fn size(&self) -> u64 {
        self.0.len() as u64 * PAGE
    }

    /// Bytes that the server lacks.
    pub(super) fn dirty(&self) -> u64 {
        self.0.values().map(|page| page.dirty.len() as u64).sum()
    }

    /// From the first to the last page that must be fetched before `bytes` can be read.
    pub(super) fn lacks(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        let mut absent = touched(bytes).filter(|number| !self.0.contains_key(number));
        let first = absent.next()?;
        let last = absent.next_back().unwrap_or(first);
        Some(first * PAGE..(last + 1) * PAGE)
    }

    /// The first page that must be fetched before `bytes` can be written: one of which only a part is written.
    pub(super) fn lacks_around(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        let pages = touched(bytes);
        let ends = [pages.start, pages.end.saturating_sub(1)];
        let is_wanted = |number: &u64| {
            pages.contains(number)
                && !self.0.contains_key(number)
                && (part(*number, bytes).len() as u64) < PAGE
        };
        let number = ends.into_iter().find(is_wanted)?;
        Some(number * PAGE..(number + 1) * PAGE)
    }

    /// Takes over what the server has in `bytes`, which are whole pages; `data` may end earlier, at the end of the
    /// file.
    pub(super) fn fill(&mut self, bytes: &Range<u64>, data: &[u8]) {
        for number in touched(bytes) {
            self.0.entry(number).or_insert_with(|| {
                let from = ((number * PAGE - bytes.start) as usize).min(data.len());
                let to = (from + PAGE as usize).min(data.len());
                let mut page = data.get(from..to).unwrap_or_default().to_vec();
                page.resize(PAGE as usize, 0);
                Page {
                    bytes: page,
                    dirty: 0..0,
                }
            });
        }
    }

    /// The data of `bytes`, of which no page is lacking.
    pub(super) fn read(&self, bytes: &Range<u64>) -> Vec<u8> {
        let mut data = Vec::with_capacity((bytes.end - bytes.start) as usize);
        for number in touched(bytes) {
            let page = self.0.get(&number);
            let inside = page.and_then(|page| page.bytes.get(part(number, bytes)));
            data.extend_from_slice(inside.unwrap_or_default());
        }
        data
    }

    /// Changes what is cached of `bytes`. With `is_kept` the server lacks it from now on, and pages that are written as
    /// a whole need not be there before.
    pub(super) fn write(&mut self, bytes: &Range<u64>, data: &[u8], is_kept: bool) {
        let mut data = data;
        for number in touched(bytes) {
            let inside = part(number, bytes);
            let (mine, rest) = data.split_at(inside.len().min(data.len()));
            data = rest;
            if is_kept {
                self.0.entry(number).or_insert_with(|| Page {
                    bytes: vec![0; PAGE as usize],
                    dirty: 0..0,
                });
            }
            let Some(page) = self.0.get_mut(&number) else {
                continue;
            };
            if let Some(place) = page.bytes.get_mut(inside.clone()) {
                place.copy_from_slice(mine);
            }
            if is_kept {
                page.dirty = match page.dirty.is_empty() {
                    true => inside,
                    false => page.dirty.start.min(inside.start)..page.dirty.end.max(inside.end),
                };
            }
        }
    }

    /// The next piece that the server lacks, of at most `max` bytes; from now on it counts as written.
    pub(super) fn take_dirty(&mut self, max: u64) -> Option<(u64, Vec<u8>)> {
        let mut piece: Option<(u64, Vec<u8>)> = None;
        for (number, page) in &mut self.0 {
            if page.dirty.is_empty() {
                if piece.is_some() {
                    break;
                }
                continue;
            }
            let offset = number * PAGE + page.dirty.start as u64;
            let (start, data) = piece.get_or_insert_with(|| (offset, Vec::new()));
            let is_next = *start + data.len() as u64 == offset;
            let is_small = data.is_empty() || (data.len() + page.dirty.len()) as u64 <= max;
            if !is_next || !is_small {
                break;
            }
            data.extend_from_slice(page.bytes.get(page.dirty.clone()).unwrap_or_default());
            page.dirty = 0..0;
        }
        piece
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file on a server, and the cache of its only client.
    #[derive(Default)]
    struct Both {
        server: Vec<u8>,
        pages: Pages,
        /// The content that a program which uses the cache must see.
        model: Vec<u8>,
    }

    impl Both {
        fn fetch(&mut self, bytes: &Range<u64>) {
            let end = (self.server.len() as u64).clamp(bytes.start, bytes.end);
            let data = self.server.get(bytes.start as usize..end as usize);
            self.pages.fill(bytes, data.unwrap_or_default());
        }

        fn write(&mut self, offset: u64, data: &[u8]) {
            let bytes = offset..offset + data.len() as u64;
            while let Some(range) = self.pages.lacks_around(&bytes) {
                self.fetch(&range);
            }
            self.pages.write(&bytes, data, true);
            let end = self.model.len().max(bytes.end as usize);
            self.model.resize(end, 0);
            self.model[offset as usize..bytes.end as usize].copy_from_slice(data);
        }

        fn read(&mut self, offset: u64, length: u64) -> Vec<u8> {
            let end = (offset + length).min(self.model.len() as u64);
            let bytes = offset.min(end)..end;
            if let Some(range) = self.pages.lacks(&bytes) {
                self.fetch(&range);
            }
            self.pages.read(&bytes)
        }

        fn write_back(&mut self, max: u64) {
            while let Some((offset, data)) = self.pages.take_dirty(max) {
                assert!(data.len() as u64 <= max.max(PAGE));
                let end = offset as usize + data.len();
                self.server.resize(self.server.len().max(end), 0);
                self.server[offset as usize..end].copy_from_slice(&data);
            }
            assert_eq!(self.pages.dirty(), 0);
        }
    }

    proptest! {
        #[test]
        fn a_cached_file_has_what_was_written(
            steps in prop::collection::vec((0..4_u8, 0..40_000_u64, 1..9000_u64), 1..60)
        ) {
            let mut both = Both::default();
            for (number, (what, offset, length)) in steps.into_iter().enumerate() {
                match what {
                    0 => both.write(offset, &vec![number as u8 + 1; length as usize]),
                    1 => {
                        let end = (offset + length).min(both.model.len() as u64);
                        let start = offset.min(end);
                        let wanted = both.model[start as usize..end as usize].to_vec();
                        prop_assert_eq!(both.read(offset, length), wanted);
                    }
                    2 => both.write_back(16_384),
                    _ => {
                        both.write_back(65_536);
                        both.pages.clear();
                    }
                }
            }
            both.write_back(65_536);
            prop_assert_eq!(both.server, both.model);
        }
    }

    #[test]
    fn neighbours_are_written_by_one_request() {
        let mut pages = Pages::default();
        pages.write(&(0..8192), &[1; 8192], true);
        pages.write(&(8192..8292), &[2; 100], true);
        pages.write(&(16_384..16_385), &[3], true);
        let (offset, data) = pages.take_dirty(65_536).unwrap();
        assert_eq!((offset, data.len()), (0, 8292));
        assert_eq!(pages.take_dirty(65_536).unwrap(), (16_384, vec![3]));
        assert_eq!(pages.take_dirty(65_536), None);
    }
}
