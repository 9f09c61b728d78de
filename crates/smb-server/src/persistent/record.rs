//! The records of persistent opens and their leases, as bytes of a store's values.
//!
//! Two kinds of entries: `O` and Open.DurableFileId (u64, big-endian) for an open with its byte-range locks, `l` and
//! ClientGuid and LeaseKey for a lease that a persistent open is under, so that an open sorts before the lease it names
//! (entries before a damaged part of a store are doubtful). Values begin with the version of their layout; their
//! fields have the forms of [`StoredField`], and two lists have counts of one byte.
//!
//! Invariants: reading never panics, allocates no more than the given bytes can fill, and returns `None` for
//! anything that is not exactly as written. This module does not decide when records are written.

use bytes::BytesMut;
use durability::StoredField;
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

/// Takes a field off the front; `None` for bytes that are not exactly as written.
fn take<T: StoredField>(from: &mut &[u8]) -> Option<T> {
    T::take(from)
}

/// Takes a list with a count of one byte.
fn take_short_list<T: StoredField>(from: &mut &[u8]) -> Option<Vec<T>> {
    (0..u8::take(from)?).map(|_| take(from)).collect()
}

impl OpenRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut owner = BytesMut::new();
        self.owner.encode(&mut owner);
        let bits = [
            (self.directory, DIRECTORY),
            (self.lease.is_some_and(|(_, v2)| v2), LEASE_V2),
            (self.engine.delete_on_close, DELETE_ON_CLOSE),
            (self.engine.marked_deleted, MARKED_DELETED),
            (self.stream_to.is_some(), STREAM_MOVING),
            (self.read_unasked, READ_UNASKED),
            (self.engine.link_marked, LINK_MARKED),
        ];
        let flags: u8 = bits.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
        let mut out = Vec::with_capacity(256);
        (VERSION, flags).put(&mut out);
        (self.create_guid.0, self.client.0).put(&mut out);
        self.share.put(&mut out);
        self.path.put(&mut out);
        // The first layout had room for one only; none and one are encoded as in that layout.
        (self.moving.len().min(2 * MOVING_MAX) as u8).put(&mut out);
        for to in self.moving.iter().take(2 * MOVING_MAX) {
            to.put(&mut out);
        }
        self.stream.put(&mut out);
        self.stream_to.iter().for_each(|to| to.put(&mut out));
        self.inode.put(&mut out);
        out.extend_from_slice(&owner);
        self.user.put(&mut out);
        (self.desired.bits(), self.options.bits()).put(&mut out);
        (self.action.0, self.timeout_ms).put(&mut out);
        self.lease.map(|(key, _)| key.0).put(&mut out);
        // The layout has room for a client, which the comparison of keys does not need.
        let parent_lease = self.parent_lease.map(|key| (self.client.0, key.0));
        parent_lease.put(&mut out);
        let app = self.app.map(|(id, version)| {
            let version = version.map(|version| (version.high, version.low));
            (id.0, version)
        });
        app.put(&mut out);
        encode_engine(&mut out, &self.engine);
        // The store keeps it as long as the open lives.
        out.shrink_to_fit();
        out
    }

    fn decode(id: u64, bytes: &[u8]) -> Option<Self> {
        let mut from = bytes;
        let from = &mut from;
        let (version, flags): (u8, u8) = take(from)?;
        if version != VERSION || flags & !OPEN_FLAGS != 0 {
            return None;
        }
        let is = |bit: u8| flags & bit != 0;
        // The fields are read in the order in which they are named here.
        let open = Self {
            id,
            directory: is(DIRECTORY),
            read_unasked: is(READ_UNASKED),
            create_guid: Guid(take(from)?),
            client: Guid(take(from)?),
            share: take(from)?,
            path: take(from)?,
            moving: take_short_list(from).filter(|all| all.len() <= 2 * MOVING_MAX)?,
            stream: take(from)?,
            stream_to: match is(STREAM_MOVING) {
                true => Some(take(from)?),
                false => None,
            },
            inode: take(from)?,
            owner: take_owner(from)?,
            user: take(from)?,
            desired: AccessMask(take(from)?),
            options: CreateOptions(take(from)?),
            action: CreateAction(take(from)?),
            timeout_ms: take(from)?,
            lease: take::<Option<_>>(from)?.map(|key| (LeaseKey(key), is(LEASE_V2))),
            parent_lease: take::<Option<([u8; 16], _)>>(from)?.map(|(_, key)| LeaseKey(key)),
            app: take::<Option<(_, Option<_>)>>(from)?.map(|(id, version)| {
                let version = version.map(|(high, low)| AppInstanceVersion { high, low });
                (Guid(id), version)
            }),
            engine: SavedOpen {
                delete_on_close: is(DELETE_ON_CLOSE),
                marked_deleted: is(MARKED_DELETED),
                link_marked: is(LINK_MARKED),
                ..decode_engine(from)?
            },
        };
        from.is_empty().then_some(open)
    }
}

fn take_owner(from: &mut &[u8]) -> Option<Sid> {
    let mut reader = Reader::new(from, "owner of a persistent open");
    let owner = Sid::get(&mut reader).ok()?;
    *from = reader.rest();
    Some(owner)
}

impl StoredField for SavedLock {
    fn put(&self, out: &mut Vec<u8>) {
        (self.offset, (self.length, self.exclusive)).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let (offset, (length, exclusive)) = StoredField::take(from)?;
        Some(Self {
            offset,
            length,
            exclusive,
        })
    }
}

fn encode_engine(out: &mut Vec<u8>, engine: &SavedOpen) {
    (engine.access.bits(), engine.share.bits()).put(out);
    match engine.cache {
        SavedCache::None => 0u8.put(out),
        SavedCache::Oplock(state) => (1u8, state.0).put(out),
        SavedCache::Lease => 2u8.put(out),
    }
    engine.locks.put(out);
    let most = LOCK_SEQUENCES_MAX as usize;
    (engine.sequences.len().min(most) as u8).put(out);
    for (bucket, number) in engine.sequences.iter().take(most) {
        (*bucket as u8, *number).put(out);
    }
}

fn decode_engine(from: &mut &[u8]) -> Option<SavedOpen> {
    let engine = SavedOpen {
        access: AccessMask(take(from)?),
        share: ShareAccess(take(from)?),
        cache: match u8::take(from)? {
            0 => SavedCache::None,
            1 => SavedCache::Oplock(LeaseState(take(from)?)),
            2 => SavedCache::Lease,
            _ => return None,
        },
        locks: take::<Vec<_>>(from).filter(|locks| locks.len() <= LOCKS_MAX)?,
        ..SavedOpen::default()
    };
    let sequences = take_short_list::<(u8, u8)>(from)?.into_iter();
    let sequences = sequences.map(|(bucket, number)| {
        let bucket = u32::from(bucket);
        let legal = (1..=LOCK_SEQUENCES_MAX).contains(&bucket) && number <= 15;
        legal.then_some((bucket, number))
    });
    let sequences = sequences.collect::<Option<_>>()?;
    Some(SavedOpen {
        sequences,
        ..engine
    })
}

pub(crate) fn encode_lease(kept: &SavedLease) -> Vec<u8> {
    let breaking = kept.left.map_or(0, |_| LEASE_BREAKING);
    let mut out = vec![VERSION, breaking | if kept.v2 { LEASE_V2 } else { 0 }];
    kept.left.iter().for_each(|left| left.0.put(&mut out));
    (kept.state.0, kept.epoch).put(&mut out);
    kept.parent.map(|key| key.0).put(&mut out);
    out
}

fn decode_lease(bytes: &[u8]) -> Option<SavedLease> {
    let mut from = bytes;
    let from = &mut from;
    let (version, flags): (u8, u8) = take(from)?;
    if version != VERSION || flags & !(LEASE_V2 | LEASE_BREAKING) != 0 {
        return None;
    }
    let kept = SavedLease {
        v2: flags & LEASE_V2 != 0,
        left: match flags & LEASE_BREAKING != 0 {
            true => Some(LeaseState(take(from)?)),
            false => None,
        },
        state: LeaseState(take(from)?),
        epoch: take(from)?,
        parent: take::<Option<_>>(from)?.map(LeaseKey),
    };
    from.is_empty().then_some(kept)
}

pub(crate) fn read(key: &[u8], value: &[u8]) -> Option<Record> {
    match key.split_first()? {
        (&OPEN, id) => {
            let id = u64::from_be_bytes(id.try_into().ok()?);
            OpenRecord::decode(id, value).map(|open| Record::Open(Box::new(open)))
        }
        (&LEASE, name) => {
            let (client, key) = name.split_at_checked(16)?;
            let name = (
                Guid(client.try_into().ok()?),
                LeaseKey(key.try_into().ok()?),
            );
            decode_lease(value).map(|kept| Record::Lease(name, kept))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hex_literal::hex;
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

    /// Taken from a build that had another codec for these bytes.
    #[test]
    fn the_layout_is_that_of_earlier_builds() {
        let recorded = hex!(
            "0136010101010101010101010101010101010202020202020202020202020202020204006461746102000100
             610a00c39c6e6cc3bc2e747874020100010062020001006301006401030074616703006e65774d0000000000
             000001002a36fe9c9717010500000000000515000000010000000200000003000000e90300000500616c6963
             6501000100020000000200000060ea0000010707070707070707070707070707070701020202020202020202
             0202020202020208080808080808080808080808080808010909090909090909090909090909090901010000
             0000000000020000000000000001000000010000000202000000000000000000ffffffffffffffff01050000
             0000000000000000000000000000020100400f"
        );
        assert_eq!(open().encode(), recorded);
        let kept = SavedLease {
            left: Some(LeaseState::READ),
            parent: Some(LeaseKey([3; 16])),
            ..lease()
        };
        let recorded = hex!("01030100000007000000ffff0103030303030303030303030303030303");
        assert_eq!(encode_lease(&kept), recorded);
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
