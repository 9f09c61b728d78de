//! Groups of log records, the units of a log file, and a reader that takes nothing on trust.
//!
//! Each group begins at a multiple of 512 bytes, so that none shares a sector with an earlier one:
//!
//! | group | |
//! |---|---|
//! | 4 bytes | magic of the log; its last is the digit of the version |
//! | u32 | bytes of the payload |
//! | u64, u32 | number of the segment, number of the group in it (from 0) |
//! | u32 | CRC-32C of the 16 bytes before it and of the payload |
//! | payload | records; their format is the log's own |
//!
//! All little-endian. A log writes a group only after the one before it is on stable storage. So
//! after a power cut the last group may be torn, which is normal: nothing in it was acknowledged. A
//! bad group with a good one behind it is damage. Behind the last group there are zeros.

use super::bytes::{StoredField, bytes, crc32c};

/// Groups begin at multiples of this number of bytes.
pub(crate) const ALIGN: usize = 512;
/// Bytes before a group's payload.
pub(crate) const HEAD: usize = 24;
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;
/// The most bytes that the reader may checksum, as a multiple of the file: a search behind a bad group is costly.
const SEARCH_FACTOR: usize = 4;

/// The first bytes of each group; every kind of log has its own.
pub(crate) type Magic = [u8; 4];

pub(crate) fn aligned(len: usize) -> usize {
    len.div_ceil(ALIGN) * ALIGN
}

/// A group ready to be written, padded with zeros.
pub(crate) fn group_bytes(magic: &Magic, segment: u64, number: u32, payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    (payload.len() as u32, (segment, number)).put(&mut head);
    let mut out = magic.to_vec();
    out.extend(&head);
    crc32c([&head, payload]).put(&mut out);
    out.extend(payload);
    out.resize(aligned(out.len()), 0);
    out
}

struct Group<'a> {
    segment: u64,
    number: u32,
    payload: &'a [u8],
    /// Its length with head and padding.
    len: usize,
}

/// The group at the start of `from`, if it is whole. `cost` grows by the number of bytes that were checksummed.
fn parse<'a>(magic: &Magic, mut from: &'a [u8], cost: &mut usize) -> Option<Group<'a>> {
    if bytes(&mut from, magic.len())? != magic {
        return None;
    }
    let head = from.get(..16)?;
    let (len, (segment, (number, crc))): (u32, (u64, (u32, u32))) = StoredField::take(&mut from)?;
    let len = usize::try_from(len).ok()?;
    if len > PAYLOAD_MAX {
        return None;
    }
    let payload = bytes(&mut from, len)?;
    *cost += len;
    (crc32c([head, payload]) == crc).then_some(Group {
        segment,
        number,
        payload,
        len: aligned(HEAD + len),
    })
}

/// A part of a file that cannot be read, although something good comes after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// The reason why it cannot be read.
    pub why: &'static str,
}

impl Damage {
    pub(super) fn at(offset: usize, why: &'static str) -> Self {
        let offset = offset as u64;
        Self { offset, why }
    }
}

/// The facts about a file, apart from its payloads.
#[derive(Default)]
pub(super) struct Ending {
    /// Number of the segment by its first good group.
    pub(super) segment: Option<u64>,
    /// Parts that cannot be read, with something good behind them.
    pub(super) damage: Vec<Damage>,
    /// The offset of a group that was being written when the server or the power failed.
    pub(super) torn: Option<u64>,
}

/// Reads a file; the bytes may be anything. `take` is given each payload and the number of damaged parts before it, and
/// returns `None` for a payload that it cannot understand, which counts as another damaged part.
pub(super) fn read<'a>(
    magic: &Magic,
    bytes: &'a [u8],
    mut take: impl FnMut(&'a [u8], usize) -> Option<()>,
) -> Ending {
    let (mut cost, mut at, mut next) = (0, 0, Some(0));
    let cost_max = bytes.len().saturating_mul(SEARCH_FACTOR);
    let mut ending = Ending::default();
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let segment = ending.segment;
        let ours = |group: &Group<'_>| segment.is_none_or(|own| own == group.segment);
        let mut damaged = |why| ending.damage.push(Damage::at(at, why));
        let Some(group) = parse(magic, rest, &mut cost).filter(ours) else {
            if rest.iter().all(|byte| *byte == 0) {
                break;
            }
            let behind = (at + ALIGN..bytes.len()).step_by(ALIGN).find(|behind| {
                let group = bytes.get(*behind..);
                let group = group.and_then(|rest| parse(magic, rest, &mut cost));
                cost > cost_max || group.is_some_and(|group| ours(&group))
            });
            match behind {
                None => ending.torn = Some(at as u64),
                Some(_) if cost > cost_max => {
                    damaged("too much that looks like groups; the rest is unread");
                }
                Some(behind) => {
                    damaged("no whole group, but one behind it");
                    (at, next) = (behind, None);
                    continue;
                }
            }
            break;
        };
        if next.is_some_and(|next| next != group.number) {
            damaged("a group out of its order");
        }
        next = group.number.checked_add(1);
        ending.segment = Some(group.segment);
        if take(group.payload, ending.damage.len()).is_none() {
            let why = "a record that cannot be understood; the rest of its group is unread";
            ending.damage.push(Damage::at(at, why));
        }
        at += group.len;
    }
    ending
}
