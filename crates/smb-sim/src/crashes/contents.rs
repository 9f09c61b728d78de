//! Steps that change or flush what is in files.

use std::rc::Rc;

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, Request as Wire};
use smb_wire::{
    access_mask::AccessMask,
    dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, SecurityInformation, Sid},
    file_attributes::FileAttributes,
    fscc::{EaEntry, FileBasicInformation, FileInformationClass, encode_ea_list},
    fsctl::{DuplicateExtents, FsctlCode, SetSparse, SetZeroData},
    ids::{FileId, FileTime},
    msg::{FlushRequest, InfoType, IoctlResponse, QueryInfoResponse, WriteFlags},
    status::Status,
};

use super::{
    actor::{Actor, Hand, STREAM},
    names::set_request,
    step::{Kind, Step},
    world::{FILES, Lock},
};
use crate::oracle::{Answer, Covers, History, Key, Request, Value, fill};

/// Creation times set are this many 100 ns after 1601 and a second apart.
const CREATED_BASE: u64 = 0x01DA_0000_0000_0000;

pub(super) const EA: &str = "HF";

/// The attribute bits that the oracle distinguishes.
pub(super) fn attribute_bits(attributes: FileAttributes) -> Value {
    let bits = attributes & (FileAttributes::HIDDEN | FileAttributes::SYSTEM);
    Value::Bytes(bits.bits().to_le_bytes().to_vec())
}

impl Actor {
    /// A step on a file, which is opened unless it is.
    pub(super) async fn on_file(&mut self, kind: Kind, step: Step) {
        let Some(hand) = self.hand(step.file(), false, false).await else {
            return;
        };
        match kind {
            Kind::Write => self.write(hand, step).await,
            Kind::Flush => self.flush(hand, step).await,
            Kind::SetSize => self.set_size(hand, step).await,
            Kind::Attributes => self.set_attributes(hand, step).await,
            Kind::Times => self.times(hand).await,
            Kind::Ea => self.ea(hand, step).await,
            Kind::Security => self.security(hand, step).await,
            Kind::Sparse => self.sparse(hand, step).await,
            _ => self.zero(hand, step).await,
        }
    }

    pub(super) async fn write(&mut self, hand: Hand, step: Step) {
        let flags = match (step.flag(), step.a() % 5) {
            (true, 0) => WriteFlags::WRITE_UNBUFFERED,
            (true, _) => WriteFlags::WRITE_THROUGH,
            _ => WriteFlags::empty(),
        };
        // Before SMB 3.0.2 nobody reads the flag.
        let heeded = flags != WriteFlags::WRITE_UNBUFFERED || self.speaks_3();
        let through = hand.through || (step.flag() && heeded);
        self.write_to(hand, "", step, flags, through).await;
    }

    async fn write_to(
        &mut self,
        hand: Hand,
        stream: &str,
        step: Step,
        flags: WriteFlags,
        through: bool,
    ) {
        let sectors = if stream.is_empty() {
            step.sectors()
        } else {
            let first = u64::from(step.a() % 4);
            first..first + 1 + u64::from(step.b() % 3)
        };
        let version = self.world.history().version();
        let count = sectors.end - sectors.start;
        let data = fill(hand.object, stream, sectors.start, count, version);
        let offset = History::bytes(sectors.start);
        let mut record = Request::write(hand.object, stream, sectors, version);
        if stream.is_empty() {
            record = record.written(hand.object, self.world.file_time());
        }
        let record = record.through_if(through);
        let wire = Wire::write(hand.id, offset, &data, flags);
        self.ask("write", Some(record), wire, step.is_hasty()).await;
    }

    pub(super) async fn flush(&mut self, hand: Hand, step: Step) {
        let covers = Covers::Object(hand.object);
        self.flush_through(hand.id, covers, step).await;
    }

    async fn flush_through(&mut self, file_id: FileId, covers: Covers, step: Step) {
        let (record, reserved) = if step.flag() {
            (Request::full_sync(covers), FlushRequest::FULL_SYNC)
        } else {
            (Request::flush(covers), 0)
        };
        let wire = Wire::new(&FlushRequest { reserved, file_id });
        self.ask("flush", Some(record), wire, step.is_hasty()).await;
    }

    async fn set_size(&mut self, hand: Hand, step: Step) {
        let sectors = u64::from(step.b() % 32);
        let record = Request::set_size(hand.object, "", sectors);
        let record = record.written(hand.object, self.world.file_time());
        let record = record.through_if(hand.through);
        let end = History::bytes(sectors).to_le_bytes();
        let wire = set_request(hand.id, FileInformationClass::END_OF_FILE, &end);
        self.ask("set size", Some(record), wire, step.is_hasty())
            .await;
    }

    pub(super) async fn set_attributes(&mut self, hand: Hand, step: Step) {
        let all = [
            FileAttributes::ARCHIVE,
            FileAttributes::ARCHIVE | FileAttributes::HIDDEN,
            FileAttributes::ARCHIVE | FileAttributes::SYSTEM,
            FileAttributes::ARCHIVE | FileAttributes::HIDDEN | FileAttributes::SYSTEM,
        ];
        let file_attributes = all[usize::from(step.a()) % all.len()];
        let basic = FileBasicInformation {
            file_attributes,
            ..FileBasicInformation::default()
        };
        let value = attribute_bits(file_attributes);
        self.set_basic(hand, Key::Attributes, value, &basic).await;
    }

    async fn times(&mut self, hand: Hand) {
        let creation_time = FileTime(CREATED_BASE + self.world.history().version() * 10_000_000);
        let basic = FileBasicInformation {
            creation_time,
            ..FileBasicInformation::default()
        };
        let value = created_value(creation_time);
        self.set_basic(hand, Key::Created, value, &basic).await;
    }

    async fn set_basic(
        &mut self,
        hand: Hand,
        key: Key,
        value: Value,
        basic: &FileBasicInformation,
    ) {
        let record = Request::meta(hand.object, key, value).through_if(hand.through);
        let mut buffer = BytesMut::new();
        basic.encode(&mut buffer);
        let wire = set_request(hand.id, FileInformationClass::BASIC, &buffer);
        self.ask("set basic", Some(record), wire, false).await;
    }

    async fn ea(&mut self, hand: Hand, step: Step) {
        let value = self.world.history().version().to_le_bytes().to_vec();
        let key = Key::Ea(EA.to_owned());
        let record = Request::meta(hand.object, key, Value::Bytes(value.clone()));
        let record = record.through_if(hand.through);
        let entry = EaEntry::new(EA, value);
        let (list, _) = encode_ea_list(&[entry], usize::MAX);
        let wire = set_request(hand.id, FileInformationClass::FULL_EA, &list);
        self.ask("set EA", Some(record), wire, step.is_hasty())
            .await;
    }

    async fn security(&mut self, hand: Hand, step: Step) {
        let mark = u32::try_from(self.world.history().version()).unwrap_or(0);
        let key = Key::Security;
        let record = Request::meta(hand.object, key, security_value(Some(mark)));
        let record = record.through_if(hand.through);
        let (all, read) = (AccessMask::FILE_ALL_ACCESS, AccessMask::FILE_GENERIC_READ);
        let descriptor = SecurityDescriptor {
            dacl: Some(Acl::new(vec![
                Ace::allow(Sid::EVERYONE, all, AceFlags::empty()),
                Ace::allow(Sid::of(5, [21, 9, 9, 9, mark]), read, AceFlags::empty()),
            ])),
            ..SecurityDescriptor::default()
        };
        let mut buffer = BytesMut::new();
        if descriptor.encode(&mut buffer).is_err() {
            return;
        }
        let wire = Wire::set_info(
            hand.id,
            InfoType::SECURITY,
            0,
            SecurityInformation::DACL.0,
            &buffer,
        );
        self.ask("set security", Some(record), wire, step.is_hasty())
            .await;
    }

    pub(super) async fn write_stream(&mut self, step: Step) {
        let Some(hand) = self.hand(step.file(), true, step.flag()).await else {
            return;
        };
        let flags = WriteFlags::WRITE_THROUGH.when(step.flag());
        let through = hand.through || step.flag();
        self.write_to(hand, STREAM, step, flags, through).await;
    }

    pub(super) async fn flush_stream(&mut self, step: Step) {
        let Some(hand) = self.hand_there(step.file(), true) else {
            return;
        };
        let covers = Covers::Stream(hand.object, STREAM.to_owned());
        self.flush_through(hand.id, covers, step).await;
    }

    pub(super) async fn remove_stream(&mut self, step: Step) {
        let slot = step.file();
        let world = Rc::clone(&self.world);
        let alone = world.beliefs.borrow().file(slot).is_some_and(|file| {
            file.stream && file.held.keys().all(|client| *client == self.number)
        });
        if !alone {
            return;
        }
        self.close(slot).await;
        let Some(_locked) = world.lock(&[Lock::File(slot)]).await else {
            return;
        };
        let ready = {
            let beliefs = world.beliefs.borrow();
            beliefs
                .file(slot)
                .filter(|file| file.stream && file.held.is_empty())
                .and_then(|file| {
                    Some((
                        file.object,
                        beliefs.path(self.root(), *file.places.first()?)?,
                    ))
                })
        };
        let Some((object, path)) = ready else { return };
        let effects = Request::stream(object, STREAM, false).effects;
        let args = CreateArgs::open(&format!("{path}:{STREAM}"));
        let answer = self.delete((args, &path), object, effects, step).await;
        if answer == Answer::Success
            && let Some(file) = &mut world.beliefs.borrow_mut().files[slot]
        {
            file.stream = false;
        }
    }

    pub(super) async fn copy(&mut self, step: Step) {
        let slot = step.file();
        let target = (slot + 1 + usize::from(step.a()) % (FILES - 1)) % FILES;
        let Some(from) = self.hand(slot, false, false).await else {
            return;
        };
        let Some(to) = self.hand(target, false, false).await else {
            return;
        };
        let shares = step.kind() == Kind::Duplicate;
        let (first, at, count) = if shares {
            // Whole clusters.
            (u64::from(step.a() % 2) * 8, u64::from(step.b() % 3) * 8, 8)
        } else {
            let (first, last) = (u64::from(step.a() % 8), u64::from(step.b() % 16));
            (first, last, 1 + u64::from(step.b() % 8))
        };
        let record = Request::copy((from.object, "", first), (to.object, "", at), count);
        let record = record.written(to.object, self.world.file_time());
        let record = record.through_if(to.through);
        if shares {
            return self.duplicate((from, to), (first, at, count), record).await;
        }
        let resume = Wire::ioctl(from.id, FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32);
        let Some(reply) = self.ask("resume key", None, resume, false).await else {
            return;
        };
        if reply.header.status != Status::SUCCESS {
            return;
        }
        let length = u32::try_from(History::bytes(count)).unwrap_or(0);
        let chunk = (History::bytes(first), History::bytes(at), length);
        let input = IoctlResponse::read(&reply.message).map_err(ClientError::from);
        let input = input.and_then(|response| Wire::copy_chunks(response.output, &[chunk]));
        let Ok(input) = input else { return };
        let wire = Wire::ioctl(to.id, FsctlCode::SRV_COPYCHUNK, &input, 12);
        self.ask("copychunk", Some(record), wire, false).await;
    }

    /// Extents of a file become those of another one as well. A range that ends with its source would be cut short, so
    /// this is only done where nobody else can move that end.
    async fn duplicate(
        &mut self,
        (from, to): (Hand, Hand),
        (first, at, count): (u64, u64, u64),
        record: Request,
    ) {
        let standard = FileInformationClass::STANDARD.0;
        let query = Wire::query_info(from.id, InfoType::FILE, standard, 0, 64);
        let Some(reply) = self.ask("source size", None, query, false).await else {
            return;
        };
        let facts = QueryInfoResponse::read(&reply.message).map(|response| response.buffer);
        let facts = facts
            .ok()
            .and_then(|buffer| buffer.get(8..16)?.try_into().ok());
        let end = facts.map_or(0, u64::from_le_bytes);
        if self.world.clients > 1 || end < History::bytes(first + count) {
            return;
        }
        let bytes = |sectors| i64::try_from(History::bytes(sectors)).unwrap_or(i64::MAX);
        let mut input = BytesMut::new();
        DuplicateExtents {
            source_file_id: from.id,
            source_file_offset: bytes(first),
            target_file_offset: bytes(at),
            byte_count: bytes(count),
        }
        .encode(&mut input);
        let wire = Wire::ioctl(to.id, FsctlCode::DUPLICATE_EXTENTS_TO_FILE, &input, 0);
        self.ask("duplicate", Some(record), wire, false).await;
    }

    async fn sparse(&mut self, hand: Hand, step: Step) {
        let set_sparse = !step.a().is_multiple_of(4);
        let record = Request::meta(hand.object, Key::Sparse, sparse_value(set_sparse));
        let record = record.through_if(hand.through);
        let mut input = BytesMut::new();
        SetSparse { set_sparse }.encode(&mut input);
        let wire = Wire::ioctl(hand.id, FsctlCode::SET_SPARSE, &input, 0);
        self.ask("sparse", Some(record), wire, step.is_hasty())
            .await;
    }

    async fn zero(&mut self, hand: Hand, step: Step) {
        let sectors = step.sectors();
        let bytes = |sectors| i64::try_from(History::bytes(sectors)).unwrap_or(i64::MAX);
        let mut input = BytesMut::new();
        SetZeroData {
            file_offset: bytes(sectors.start),
            beyond_final_zero: bytes(sectors.end),
        }
        .encode(&mut input);
        // Beyond the end of file nothing changes, the time neither.
        let record = Request::zero(hand.object, "", sectors).through_if(hand.through);
        let wire = Wire::ioctl(hand.id, FsctlCode::SET_ZERO_DATA, &input, 0);
        self.ask("zero", Some(record), wire, step.is_hasty()).await;
    }
}

/// Whether a file is sparse.
pub(super) fn sparse_value(sparse: bool) -> Value {
    match sparse {
        true => Value::Bytes(vec![1]),
        false => Value::Nothing,
    }
}

/// The security descriptor of a file, as far as the oracle distinguishes it: by the account that only this one names.
pub(super) fn security_value(mark: Option<u32>) -> Value {
    mark.map_or(Value::Nothing, |mark| {
        Value::Bytes(mark.to_le_bytes().to_vec())
    })
}

/// The same from the bytes of a descriptor.
pub(super) fn security_read(bytes: &[u8]) -> Value {
    let dacl = SecurityDescriptor::read(bytes).ok().and_then(|sd| sd.dacl);
    let marks = dacl.iter().flat_map(|dacl| &dacl.aces);
    let mut marks = marks.filter_map(|ace| match ace.access()?.1.sub_authorities() {
        [21, 9, 9, 9, mark] => Some(*mark),
        _ => None,
    });
    security_value(marks.next_back())
}

pub(super) fn created_value(time: FileTime) -> Value {
    Value::Bytes(time.0.to_le_bytes().to_vec())
}
