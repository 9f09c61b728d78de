//! The records of persistent opens and their leases, as bytes of a store's values.
//!
//! Two kinds of entries: `O` and Open.DurableFileId (u64, big-endian) for an open with its byte-range locks, `l` and
//! ClientGuid and LeaseKey for a lease that a persistent open is under, so that an open sorts before the lease it names
//! (entries before a damaged part of a store are doubtful). Values begin with the version of their layout; their
//! numbers are little-endian, texts are u16 length and UTF-8, lists are their count and items.
//!
//! Invariants: reading never panics, allocates no more than the given bytes can fill, and returns `None` for
//! anything that is not exactly as written. This module does not decide when records are written.

use bytes::{BufMut, BytesMut};
use smb_wire::{
    access_mask::AccessMask,
    codec::Reader,
    create_context::AppInstanceVersion,
    dtyp::Sid,
    ids::{Guid, LeaseKey},
    msg::{CreateAction, CreateOptions, ShareAccess},
};

use crate::file::{LOCK_SEQUENCES_MAX, LeaseState, SavedCache, SavedLease, SavedLock, SavedOpen};

const OPEN: u8 = b'O';
const LEASE: u8 = b'l';
const VERSION: u8 = 1;
/// Most byte-range locks of an open that is recorded; with more the LOCK is refused.
pub(crate) const LOCKS_MAX: usize = 4096;
/// Most components of a path; CREATE takes no more than 32 KiB of name.
const NAMES_MAX: usize = 16_384;

/// Most renames of one file that are recorded at once; the next one is refused.
pub(crate) const MOVING_MAX: usize = 8;

const DIRECTORY: u8 = 1;
const LEASE_V2: u8 = 2;
const LEASE_BREAKING: u8 = 1;
const DELETE_ON_CLOSE: u8 = 4;
const MARKED_DELETED: u8 = 8;
const STREAM_MOVING: u8 = 16;
const READ_UNASKED: u8 = 32;
const LINK_MARKED: u8 = 64;
const OPEN_FLAGS: u8 = DIRECTORY
    | LEASE_V2
    | DELETE_ON_CLOSE
    | MARKED_DELETED
    | STREAM_MOVING
    | READ_UNASKED
    | LINK_MARKED;
const EXCLUSIVE: u8 = 1;

/// A persistent open, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenRecord {
    /// Open.DurableFileId.
    pub(crate) id: u64,
    /// Open.CreateGuid.
    pub(crate) create_guid: Guid,
    /// Open.ClientGuid.
    pub(crate) client: Guid,
    pub(crate) share: String,
    /// Components of the path as stored.
    pub(crate) path: Vec<String>,
    /// The old and new paths of renames that were under way: the file may be there if it is not at `path`.
    pub(crate) moving: Vec<Vec<String>>,
    pub(crate) stream: Option<String>,
    /// The name that a rename under way gives the stream.
    pub(crate) stream_to: Option<String>,
    /// Inode number and generation, which the object at the path must still have.
    pub(crate) inode: (u64, u64),
    pub(crate) directory: bool,
    /// Open.DurableOwner, and the name by which the account is found.
    pub(crate) owner: Sid,
    pub(crate) user: String,
    /// Open.DesiredAccess.
    pub(crate) desired: AccessMask,
    /// Open.ShareAccess, as the client asked for it, has no FILE_SHARE_READ; the engine's may.
    pub(crate) read_unasked: bool,
    /// Open.CreateOptions.
    pub(crate) options: CreateOptions,
    /// The CreateAction of the first answer.
    pub(crate) action: CreateAction,
    /// Open.DurableOpenTimeout, milliseconds.
    pub(crate) timeout_ms: u32,
    /// Open.Lease: its key and whether it is of version 2.
    pub(crate) lease: Option<(LeaseKey, bool)>,
    /// The directory lease that changes through this open do not break.
    pub(crate) parent_lease: Option<LeaseKey>,
    /// Open.AppInstanceId and its version.
    pub(crate) app: Option<(Guid, Option<AppInstanceVersion>)>,
    /// The file engine's state of the open. A lease's state is in its own record.
    pub(crate) engine: SavedOpen,
}

/// One entry of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Open(Box<OpenRecord>),
    /// A lease that persistent opens are under, by client and key.
    Lease((Guid, LeaseKey), SavedLease),
}

pub(crate) fn open_key(id: u64) -> Vec<u8> {
    let mut key = vec![OPEN];
    key.extend(id.to_be_bytes());
    key
}

pub(crate) fn lease_key(client: Guid, key: LeaseKey) -> Vec<u8> {
    [&[LEASE][..], &client.0, &key.0].concat()
}

fn text(out: &mut BytesMut, text: &str) {
    // Names of files, shares and users are far shorter; a longer one would not be found again.
    let bytes = text.as_bytes().get(..usize::from(u16::MAX));
    let bytes = bytes.unwrap_or(text.as_bytes());
    out.put_u16_le(bytes.len() as u16);
    out.put_slice(bytes);
}

fn read_text(from: &mut Reader<'_>) -> Option<String> {
    let len = usize::from(from.u16().ok()?);
    let bytes = from.take(len).ok()?;
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn names(out: &mut BytesMut, names: &[String]) {
    out.put_u16_le(names.len().min(NAMES_MAX) as u16);
    for name in names.iter().take(NAMES_MAX) {
        text(out, name);
    }
}

fn read_names(from: &mut Reader<'_>) -> Option<Vec<String>> {
    let count = from.u16().ok()?;
    (0..count).map(|_| read_text(from)).collect()
}

fn option<T>(out: &mut BytesMut, value: Option<T>, write: impl FnOnce(&mut BytesMut, T)) {
    out.put_u8(u8::from(value.is_some()));
    if let Some(value) = value {
        write(out, value);
    }
}

/// `None` if the flag is missing, `Some(None)` if there is no value.
#[allow(clippy::option_option)]
fn read_option<'a, T>(
    from: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
) -> Option<Option<T>> {
    match from.u8().ok()? {
        0 => Some(None),
        1 => read(from).map(Some),
        _ => None,
    }
}

fn guid(from: &mut Reader<'_>) -> Option<Guid> {
    from.array().map(Guid).ok()
}

impl OpenRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        let bits = [
            (self.directory, DIRECTORY),
            (self.lease.is_some_and(|(_, v2)| v2), LEASE_V2),
            (self.engine.delete_on_close, DELETE_ON_CLOSE),
            (self.engine.marked_deleted, MARKED_DELETED),
            (self.stream_to.is_some(), STREAM_MOVING),
            (self.read_unasked, READ_UNASKED),
            (self.engine.link_marked, LINK_MARKED),
        ];
        out.put_u8(bits.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum());
        out.put_slice(&self.create_guid.0);
        out.put_slice(&self.client.0);
        text(&mut out, &self.share);
        names(&mut out, &self.path);
        // The first layout had room for one only; none and one are encoded as in that layout.
        out.put_u8(self.moving.len().min(2 * MOVING_MAX) as u8);
        for to in self.moving.iter().take(2 * MOVING_MAX) {
            names(&mut out, to);
        }
        option(&mut out, self.stream.as_deref(), text);
        if let Some(to) = &self.stream_to {
            text(&mut out, to);
        }
        out.put_u64_le(self.inode.0);
        out.put_u64_le(self.inode.1);
        self.owner.encode(&mut out);
        text(&mut out, &self.user);
        out.put_u32_le(self.desired.bits());
        out.put_u32_le(self.options.bits());
        out.put_u32_le(self.action.0);
        out.put_u32_le(self.timeout_ms);
        option(&mut out, self.lease, |out, (key, _)| out.put_slice(&key.0));
        option(&mut out, self.parent_lease, |out, key| {
            // The layout has room for a client, which the comparison of keys does not need.
            out.put_slice(&self.client.0);
            out.put_slice(&key.0);
        });
        option(&mut out, self.app, |out, (id, version)| {
            out.put_slice(&id.0);
            option(out, version, |out, version| {
                out.put_u64_le(version.high);
                out.put_u64_le(version.low);
            });
        });
        encode_engine(&mut out, &self.engine);
        out.to_vec()
    }

    fn decode(id: u64, bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes, "persistent open");
        let (version, flags) = (from.u8().ok()?, from.u8().ok()?);
        if version != VERSION || flags & !OPEN_FLAGS != 0 {
            return None;
        }
        let is = |bit: u8| flags & bit != 0;
        let (create_guid, client) = (guid(&mut from)?, guid(&mut from)?);
        let share = read_text(&mut from)?;
        let path = read_names(&mut from)?;
        let count = usize::from(from.u8().ok()?);
        if count > 2 * MOVING_MAX {
            return None;
        }
        let moving: Option<_> = (0..count).map(|_| read_names(&mut from)).collect();
        let moving = moving?;
        let stream = read_option(&mut from, read_text)?;
        let stream_to = is(STREAM_MOVING).then(|| read_text(&mut from).ok_or(()));
        let stream_to = stream_to.transpose().ok()?;
        let inode = (from.u64().ok()?, from.u64().ok()?);
        let owner = Sid::get(&mut from).ok()?;
        let user = read_text(&mut from)?;
        let desired = AccessMask(from.u32().ok()?);
        let options = CreateOptions(from.u32().ok()?);
        let action = CreateAction(from.u32().ok()?);
        let timeout_ms = from.u32().ok()?;
        let lease = read_option(&mut from, |from| {
            Some((LeaseKey(from.array().ok()?), is(LEASE_V2)))
        })?;
        let parent_lease = read_option(&mut from, |from| {
            guid(from)?;
            Some(LeaseKey(from.array().ok()?))
        })?;
        let app = read_option(&mut from, decode_app)?;
        let mut engine = decode_engine(&mut from)?;
        engine.delete_on_close = is(DELETE_ON_CLOSE);
        engine.marked_deleted = is(MARKED_DELETED);
        engine.link_marked = is(LINK_MARKED);
        from.take(1).is_err().then_some(Self {
            id,
            create_guid,
            client,
            share,
            path,
            moving,
            stream,
            stream_to,
            inode,
            directory: is(DIRECTORY),
            owner,
            user,
            desired,
            read_unasked: is(READ_UNASKED),
            options,
            action,
            timeout_ms,
            lease,
            parent_lease,
            app,
            engine,
        })
    }
}

fn encode_engine(out: &mut BytesMut, engine: &SavedOpen) {
    out.put_u32_le(engine.access.bits());
    out.put_u32_le(engine.share.bits());
    match engine.cache {
        SavedCache::None => out.put_u8(0),
        SavedCache::Oplock(state) => {
            out.put_u8(1);
            out.put_u32_le(state.0);
        }
        SavedCache::Lease => out.put_u8(2),
    }
    let locks = engine.locks.get(..LOCKS_MAX).unwrap_or(&engine.locks);
    out.put_u16_le(locks.len() as u16);
    for lock in locks {
        out.put_u64_le(lock.offset);
        out.put_u64_le(lock.length);
        out.put_u8(if lock.exclusive { EXCLUSIVE } else { 0 });
    }
    let most = LOCK_SEQUENCES_MAX as usize;
    out.put_u8(engine.sequences.len().min(most) as u8);
    for (bucket, number) in engine.sequences.iter().take(most) {
        out.put_u8(*bucket as u8);
        out.put_u8(*number);
    }
}

fn decode_app(from: &mut Reader<'_>) -> Option<(Guid, Option<AppInstanceVersion>)> {
    let id = guid(from)?;
    let version = read_option(from, |from| {
        Some(AppInstanceVersion {
            high: from.u64().ok()?,
            low: from.u64().ok()?,
        })
    })?;
    Some((id, version))
}

fn decode_engine(from: &mut Reader<'_>) -> Option<SavedOpen> {
    let access = AccessMask(from.u32().ok()?);
    let share = ShareAccess(from.u32().ok()?);
    let cache = match from.u8().ok()? {
        0 => SavedCache::None,
        1 => SavedCache::Oplock(LeaseState(from.u32().ok()?)),
        2 => SavedCache::Lease,
        _ => return None,
    };
    let mut locks = Vec::new();
    let count = usize::from(from.u16().ok()?);
    if count > LOCKS_MAX {
        return None;
    }
    for _ in 0..count {
        locks.push(SavedLock {
            offset: from.u64().ok()?,
            length: from.u64().ok()?,
            exclusive: match from.u8().ok()? {
                0 => false,
                EXCLUSIVE => true,
                _ => return None,
            },
        });
    }
    let mut sequences = Vec::new();
    for _ in 0..from.u8().ok()? {
        let (bucket, number) = (u32::from(from.u8().ok()?), from.u8().ok()?);
        if !(1..=LOCK_SEQUENCES_MAX).contains(&bucket) || number > 15 {
            return None;
        }
        sequences.push((bucket, number));
    }
    Some(SavedOpen {
        access,
        share,
        cache,
        locks,
        sequences,
        ..SavedOpen::default()
    })
}

pub(crate) fn encode_lease(kept: &SavedLease) -> Vec<u8> {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    let breaking = kept.left.map_or(0, |_| LEASE_BREAKING);
    out.put_u8(breaking | if kept.v2 { LEASE_V2 } else { 0 });
    (kept.left.iter()).for_each(|left| out.put_u32_le(left.0));
    out.put_u32_le(kept.state.0);
    out.put_u16_le(kept.epoch);
    option(&mut out, kept.parent, |out, key| out.put_slice(&key.0));
    out.to_vec()
}

fn decode_lease(bytes: &[u8]) -> Option<SavedLease> {
    let mut from = Reader::new(bytes, "persistent lease");
    let (version, flags) = (from.u8().ok()?, from.u8().ok()?);
    if version != VERSION || flags & !(LEASE_V2 | LEASE_BREAKING) != 0 {
        return None;
    }
    let left = (flags & LEASE_BREAKING != 0).then(|| from.u32());
    let left = left.transpose().ok()?.map(LeaseState);
    let kept = SavedLease {
        v2: flags & LEASE_V2 != 0,
        left,
        state: LeaseState(from.u32().ok()?),
        epoch: from.u16().ok()?,
        parent: read_option(&mut from, |from| from.array().ok().map(LeaseKey))?,
    };
    from.take(1).is_err().then_some(kept)
}

pub(crate) fn read(key: &[u8], value: &[u8]) -> Option<Record> {
    match key.split_first()? {
        (&OPEN, id) => {
            let id = u64::from_be_bytes(id.try_into().ok()?);
            OpenRecord::decode(id, value).map(|open| Record::Open(Box::new(open)))
        }
        (&LEASE, name) => {
            let mut from = Reader::new(name, "lease name");
            let name = (guid(&mut from)?, LeaseKey(from.array().ok()?));
            let kept = decode_lease(value)?;
            from.take(1).is_err().then_some(Record::Lease(name, kept))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open() -> OpenRecord {
        OpenRecord {
            id: 0x1234_5678_9abc,
            create_guid: Guid([1; 16]),
            client: Guid([2; 16]),
            share: "data".into(),
            path: vec!["a".into(), "Ünlü.txt".into()],
            moving: vec![vec!["b".into()], vec!["c".into(), "d".into()]],
            stream: Some("tag".into()),
            stream_to: Some("new".into()),
            inode: (77, 1_700_000_000_000_000_001),
            directory: false,
            owner: Sid::of(5, [21, 1, 2, 3, 1001]),
            user: "alice".into(),
            desired: AccessMask::FILE_READ_DATA | AccessMask::DELETE,
            read_unasked: true,
            options: CreateOptions::WRITE_THROUGH,
            action: CreateAction::CREATED,
            timeout_ms: 60_000,
            lease: Some((LeaseKey([7; 16]), true)),
            parent_lease: Some(LeaseKey([8; 16])),
            app: Some((Guid([9; 16]), Some(AppInstanceVersion { high: 1, low: 2 }))),
            engine: SavedOpen {
                access: AccessMask::FILE_READ_DATA,
                share: ShareAccess::READ,
                delete_on_close: true,
                cache: SavedCache::Lease,
                locks: vec![
                    SavedLock {
                        offset: 0,
                        length: u64::MAX,
                        exclusive: true,
                    },
                    SavedLock {
                        offset: 5,
                        length: 0,
                        exclusive: false,
                    },
                ],
                sequences: vec![(1, 0), (64, 15)],
                ..SavedOpen::default()
            },
        }
    }

    const NAME: (Guid, LeaseKey) = (Guid([2; 16]), LeaseKey([7; 16]));

    fn lease() -> SavedLease {
        SavedLease {
            state: LeaseState::RWH,
            left: None,
            epoch: 65_535,
            v2: true,
            parent: None,
        }
    }

    #[test]
    fn what_was_recorded_is_read() {
        let plain = OpenRecord {
            stream: None,
            stream_to: None,
            moving: Vec::new(),
            directory: true,
            lease: None,
            parent_lease: None,
            app: None,
            path: Vec::new(),
            engine: SavedOpen {
                cache: SavedCache::Oplock(LeaseState::RWH),
                marked_deleted: true,
                link_marked: true,
                ..SavedOpen::default()
            },
            ..open()
        };
        let v1 = OpenRecord {
            lease: Some((LeaseKey([7; 16]), false)),
            app: Some((Guid([9; 16]), None)),
            ..open()
        };
        for open in [open(), plain, v1] {
            let read = read(&open_key(open.id), &open.encode());
            assert_eq!(read, Some(Record::Open(Box::new(open))));
        }
        let key = lease_key(NAME.0, NAME.1);
        for left in [None, Some(LeaseState(0)), Some(LeaseState::READ)] {
            let kept = SavedLease { left, ..lease() };
            let read = read(&key, &encode_lease(&kept));
            assert_eq!(read, Some(Record::Lease(NAME, kept)));
        }
        assert!(open_key(u64::MAX) < key);
        assert!(key.len() <= durability::KEY_MAX);
    }

    #[test]
    fn the_largest_open_fits_a_value() {
        let mut large = open();
        large.path = vec!["n".repeat(255); 64];
        let lock = large.engine.locks[0];
        large.engine.locks = vec![lock; LOCKS_MAX];
        assert!(large.encode().len() <= durability::VALUE_MAX);
    }

    #[test]
    fn what_is_cut_short_or_longer_is_refused() {
        let open = open();
        let entries = [
            (open_key(open.id), open.encode()),
            (lease_key(NAME.0, NAME.1), encode_lease(&lease())),
        ];
        for (key, value) in entries {
            for len in 0..value.len() {
                assert_eq!(read(&key, &value[..len]), None, "{len}");
            }
            let longer = [&value[..], &[0]].concat();
            assert_eq!(read(&key, &longer), None);
            assert_eq!(read(&key[..key.len() - 1], &value), None);
            assert_eq!(read(&[], &value), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..300),
            at in any::<prop::sample::Index>(),
            flip: u8,
        ) {
            read(&key, &value);
            read(&open_key(1), &value);
            let mut near = open().encode();
            let at = at.index(near.len());
            near[at] ^= flip;
            read(&open_key(1), &near);
        }
    }
}
