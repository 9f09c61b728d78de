//! The session whose key verifies an element of a compound, the contents of encrypted messages, and the number of bytes
//! that a frame is taken to hold.

use smb_crypto::SigningAlgorithm;
use smb_wire::dtyp::Ace;
use smb_wire::fscc::EaEntry;
use smb_wire::ids::{FileId, MessageId};
use smb_wire::msg::{IoctlFlags, QueryInfoFlags};

use super::*;

const ALICE: SessionId = SessionId(1);
const BOB: SessionId = SessionId(2);

/// A connection with two sessions, each with a key of its own.
struct TwoSessions;

fn key_of(session: SessionId) -> Option<SigningKey> {
    let byte = u8::try_from(session.0).ok()?;
    let known = [ALICE, BOB].contains(&session);
    known.then(|| SigningKey::new(SigningAlgorithm::HmacSha256, &[byte; 16]))
}

impl Keys for TwoSessions {
    fn admit(&self, _: &Header) -> Result<(), Misbehaved> {
        Ok(())
    }

    fn request_max(&self) -> usize {
        PLAIN_REQUEST_MAX
    }

    fn signing(&self, session: SessionId) -> Option<Option<Arc<SigningKey>>> {
        Some(Some(Arc::new(key_of(session)?)))
    }

    fn unseal(
        &self,
        _: SessionId,
        _: impl FnOnce(&Sealing) -> Result<(), Misbehaved>,
    ) -> Result<(), Misbehaved> {
        Err(Misbehaved::Encryption("nothing is sealed here"))
    }
}

/// An element as it is sent: its command, the session and flags of its header, and the session whose key signs it.
type Sent = (Command, SessionId, HeaderFlags, Option<SessionId>);

const RELATED: HeaderFlags = HeaderFlags::RELATED;
const PLAIN: HeaderFlags = HeaderFlags::empty();

/// The length of an element.
const LENGTH: usize = Header::SIZE + 8;

/// The signatures that a compound is found to have.
fn verified(elements: &[Sent]) -> Vec<Signature> {
    let mut frame = BytesMut::new();
    for (index, (command, session_id, flags, signer)) in elements.iter().enumerate() {
        let last = index + 1 == elements.len();
        let header = Header {
            command: *command,
            flags: *flags | HeaderFlags::SIGNED.when(signer.is_some()),
            next_command: if last { 0 } else { LENGTH as u32 },
            message_id: MessageId(index as u64),
            session_id: *session_id,
            ..Header::default()
        };
        let mut element = BytesMut::new();
        header.encode(&mut element);
        element.resize(LENGTH, 0);
        if let Some(key) = signer.and_then(key_of) {
            let nonce = SignNonce {
                message_id: header.message_id.0,
                is_server: false,
                is_cancel: *command == Command::CANCEL,
            };
            key.sign(&mut element, nonce).unwrap();
        }
        frame.extend_from_slice(&element);
    }
    match open(&TwoSessions, frame) {
        Ok(Inbound::Chain { requests, .. }) => requests.iter().map(|one| one.signature).collect(),
        _ => panic!("the frame was refused"),
    }
}

#[test]
fn a_signature_says_whose_it_is() {
    let got = verified(&[
        (Command::CREATE, ALICE, PLAIN, Some(ALICE)),
        (Command::WRITE, BOB, RELATED, Some(ALICE)),
        (Command::ECHO, BOB, PLAIN, Some(BOB)),
        (Command::CLOSE, ALICE, RELATED, Some(ALICE)),
    ]);
    let expected = [
        Signature::Good(ALICE),
        Signature::Good(ALICE),
        Signature::Good(BOB),
        Signature::Bad,
    ];
    assert_eq!(got, expected);
}

#[test]
fn nothing_is_taken_over_from_a_cancel() {
    let got = verified(&[
        (Command::SESSION_SETUP, BOB, PLAIN, None),
        (Command::CANCEL, ALICE, PLAIN, Some(ALICE)),
        (Command::TREE_CONNECT, ALICE, RELATED, Some(ALICE)),
        (Command::CANCEL, ALICE, RELATED, Some(BOB)),
        (Command::TREE_CONNECT, ALICE, RELATED, Some(BOB)),
    ]);
    let expected = [
        Signature::Absent,
        Signature::Good(ALICE),
        Signature::Bad,
        Signature::Good(BOB),
        Signature::Good(BOB),
    ];
    assert_eq!(got, expected);
}

/// A connection on which nothing is encrypted or signed.
struct Clear;

impl Keys for Clear {
    fn admit(&self, _: &Header) -> Result<(), Misbehaved> {
        Ok(())
    }

    fn request_max(&self) -> usize {
        PLAIN_REQUEST_MAX
    }

    fn signing(&self, _: SessionId) -> Option<Option<Arc<SigningKey>>> {
        None
    }

    fn unseal(
        &self,
        _: SessionId,
        _: impl FnOnce(&Sealing) -> Result<(), Misbehaved>,
    ) -> Result<(), Misbehaved> {
        Ok(())
    }
}

/// An element that comes in an encrypted message.
fn inner(session_id: SessionId, flags: HeaderFlags, last: bool) -> Vec<u8> {
    let header = Header {
        command: Command::ECHO,
        flags,
        next_command: if last { 0 } else { LENGTH as u32 },
        session_id,
        ..Header::default()
    };
    let mut element = header.to_bytes().to_vec();
    element.resize(LENGTH, 0);
    element
}

/// The rule that an encrypted message of ALICE's with this contents breaks.
fn broken(contents: &[u8], spoil: impl FnOnce(&mut TransformHeader)) -> Option<Misbehaved> {
    let mut header = TransformHeader {
        original_message_size: contents.len() as u32,
        flags: TransformHeader::ENCRYPTED,
        session_id: ALICE,
        ..TransformHeader::default()
    };
    spoil(&mut header);
    let mut frame = BytesMut::from(&header.to_bytes()[..]);
    frame.extend_from_slice(contents);
    open(&Clear, frame).err()
}

/// [MS-SMB2] 3.3.5.2.1.1.
#[test]
fn an_encrypted_message_contains_requests_of_its_session() {
    let rule = |contents: &[u8]| broken(contents, |_| ());
    let alone = |session, flags| rule(&inner(session, flags, true));
    let after = |first: SessionId, session, flags| {
        let second = inner(session, flags, true);
        rule(&[inner(first, PLAIN, false), second].concat())
    };
    assert_eq!(alone(ALICE, PLAIN), None);
    assert_eq!(after(ALICE, ALICE, PLAIN), None);
    // The id in a related element means nothing.
    assert_eq!(after(ALICE, BOB, RELATED), None);
    let another = Misbehaved::Encryption("session of an element is another");
    assert_eq!(alone(BOB, PLAIN), Some(another));
    assert_eq!(after(ALICE, BOB, PLAIN), Some(another));
    assert_eq!(after(BOB, ALICE, RELATED), Some(another));
    let related = Misbehaved::Encryption("first element is related");
    assert_eq!(alone(ALICE, RELATED), Some(related));
}

/// [MS-SMB2] 3.3.5.2.1.1: SMB1, compressed and further encrypted messages have no place in an encrypted one.
#[test]
fn an_encrypted_message_contains_nothing_else() {
    let good = inner(ALICE, PLAIN, true);
    let rule = |contents: &[u8]| broken(contents, |_| ());
    for protocol in [smb1::PROTOCOL_ID, transform::PROTOCOL_ID, *b"\xfeSMC"] {
        let other = [&protocol[..], &good[4..]].concat();
        assert_eq!(rule(&other), Some(Misbehaved::UnknownProtocol));
    }
    let compressed = [&COMPRESSED_PROTOCOL_ID[..], &good[4..]].concat();
    assert_eq!(rule(&compressed), Some(Misbehaved::Compression));
    let short = rule(&good[..Header::SIZE - 1]);
    assert!(matches!(short, Some(Misbehaved::Malformed(_))), "{short:?}");
    let size = Some(Misbehaved::Encryption("size"));
    assert_eq!(rule(b""), size);
    let more = broken(&good, |header| header.original_message_size += 1);
    let less = broken(&good, |header| header.original_message_size -= 1);
    assert_eq!((more, less), (size, size));
    for flags in [0, 2, 3, 0x0100] {
        let end = broken(&good, |header| header.flags = flags);
        assert_eq!(end, Some(Misbehaved::Encryption("flags")), "{flags}");
    }
}

/// A frame of `count` equal requests that are not signed.
fn frame_of(header: Header, message: &Bytes, count: usize) -> Inbound {
    let request = || Request {
        header,
        message: message.clone(),
        signature: Signature::Absent,
    };
    Inbound::Chain {
        requests: (0..count).map(|_| request()).collect(),
        sealed_by: None,
    }
}

/// The header of a command that announces a charge.
fn charging(command: Command, credit_charge: u16) -> Header {
    Header {
        command,
        credit_charge,
        ..Header::default()
    }
}

/// A COPYCHUNK names little data and asks for a short answer.
#[test]
fn a_copy_counts_with_the_memory_that_it_passes_through() {
    let bytes = |code: FsctlCode| {
        let mut message = BytesMut::zeroed(Header::SIZE);
        let ioctl = IoctlRequest {
            ctl_code: code.0,
            file_id: FileId::ANY,
            input: &[0; 32],
            max_input_response: 0,
            output_count: 0,
            max_output_response: 12,
            flags: IoctlFlags::IS_FSCTL,
        };
        ioctl.encode(&mut message, 0);
        let length = message.len();
        // Elements of a compound use the same memory, one after the other.
        let chain = frame_of(charging(Command::IOCTL, 1), &message.freeze(), 2);
        assert!(chain.data_bytes(65_536, true, usize::MAX) <= 65_536 + 2 * length);
        (chain.data_bytes(8 << 20, true, usize::MAX), 2 * length)
    };
    for code in [FsctlCode::SRV_COPYCHUNK, FsctlCode::SRV_COPYCHUNK_WRITE] {
        let (held, length) = bytes(code);
        assert_eq!(held, length + COPY_MEMORY);
    }
    let (held, length) = bytes(FsctlCode::SRV_REQUEST_RESUME_KEY);
    assert_eq!(held, length);
}

/// A query of attributes asks for a short answer, and all of them are read.
#[test]
fn attributes_count_with_the_memory_in_which_they_are_read() {
    let beside = |class: FileInformationClass| {
        let mut message = BytesMut::zeroed(Header::SIZE);
        let query = QueryInfoRequest {
            info_type: InfoType::FILE,
            info_class: class.0,
            output_buffer_length: 8,
            additional_information: 0,
            flags: QueryInfoFlags::empty(),
            file_id: FileId::ANY,
            input: &[],
        };
        query.encode(&mut message, 0);
        let length = message.len();
        let chain = frame_of(charging(Command::QUERY_INFO, 1), &message.freeze(), 2);
        chain.data_bytes(8 << 20, true, usize::MAX) - 2 * length
    };
    assert_eq!(beside(FileInformationClass::FULL_EA), EA_MEMORY);
    assert_eq!(beside(FileInformationClass::EA), EA_SIZE_MEMORY);
    assert_eq!(beside(FileInformationClass::ALL), EA_SIZE_MEMORY);
    assert_eq!(beside(FileInformationClass::STREAM), STREAMS_MEMORY);
    assert_eq!(beside(FileInformationClass::BASIC), 0);
    // The shortest of thousands has a name of two characters and a value of one byte, and NTFS counts five more.
    let most = 65_535 / (5 + 2 + 1);
    // In the list from the disk or in the answer, with the memory of both, which the allocator rounds up to 32 bytes.
    let entry = size_of::<(String, Vec<u8>)>() + size_of::<EaEntry>() + 2 * 32;
    assert!(most * entry <= EA_MEMORY, "{most} of {entry}");
    // The most streams that are listed, with names as long as those of files.
    let streams = 10_000 * (size_of::<vfs::StreamInfo>() + 256);
    assert!(streams <= STREAMS_MEMORY, "{streams}");
}

/// A CREATE or SET_INFO may wait for another client with thousands of entries.
#[test]
fn lists_count_with_the_memory_that_they_have_when_they_are_decoded() {
    let beside = |command, length: usize| {
        let message = Bytes::from(vec![0; length]);
        let chain = frame_of(charging(command, 1), &message, 2);
        chain.data_bytes(65_536, true, usize::MAX) - 2 * length
    };
    assert_eq!(beside(Command::CREATE, DECODED_FROM), 0);
    let more = DECODED_FROM + 100;
    assert_eq!(beside(Command::CREATE, more), 100 * DECODED_MEMORY);
    let most = DECODED_MAX * DECODED_MEMORY;
    assert_eq!(beside(Command::SET_INFO, 1 << 20), most);
    assert_eq!(beside(Command::WRITE, 1 << 20), 0);
    // The shortest entries of both kinds.
    assert!(size_of::<Ace>() <= Ace::MIN * DECODED_MEMORY);
    assert!(size_of::<EaEntry>() <= EaEntry::MIN * DECODED_MEMORY);
}

#[test]
fn a_charge_counts_as_far_as_it_was_negotiated() {
    let bytes = |command, credit_charge, answer_max, multi_credit| {
        let message = Bytes::from_static(&[0; 100]);
        let chain = frame_of(charging(command, credit_charge), &message, 1);
        chain.data_bytes(answer_max, multi_credit, usize::MAX)
    };
    const MIB: usize = 1 << 20;
    // Nothing is negotiated yet.
    assert_eq!(bytes(Command::READ, 0xffff, 0, false), 100);
    // 2.0.2.
    assert_eq!(bytes(Command::READ, 0xffff, 65_536, false), 65_536);
    assert_eq!(bytes(Command::IOCTL, 0xffff, 65_536, false), 100);
    assert_eq!(bytes(Command::READ, 16, 8 * MIB, true), MIB);
    assert_eq!(bytes(Command::READ, 0xffff, 8 * MIB, true), 8 * MIB);
    assert_eq!(bytes(Command::QUERY_INFO, 2, 8 * MIB, true), 131_072);
    assert_eq!(bytes(Command::ECHO, 2, 8 * MIB, true), 100);
}

/// Thousands of answers that one credit covers can wait for the disk at once.
#[test]
fn an_answer_that_one_credit_covers_counts_as_far_as_it_is_asked_for() {
    let bytes = |command, put: &dyn Fn(&mut BytesMut)| {
        let mut message = BytesMut::zeroed(Header::SIZE);
        put(&mut message);
        frame_of(charging(command, 0), &message.freeze(), 1).data_bytes(8 << 20, true, usize::MAX)
    };
    let query = |output_buffer_length| {
        let query = QueryInfoRequest {
            info_type: InfoType::SECURITY,
            info_class: 0,
            output_buffer_length,
            additional_information: 0,
            flags: QueryInfoFlags::empty(),
            file_id: FileId::ANY,
            input: &[],
        };
        bytes(Command::QUERY_INFO, &|out| query.encode(out, 0))
    };
    let ioctl = |max_output_response| {
        let ioctl = IoctlRequest {
            ctl_code: FsctlCode::QUERY_ALLOCATED_RANGES.0,
            file_id: FileId::ANY,
            input: &[0; 16],
            max_input_response: 0,
            output_count: 0,
            max_output_response,
            flags: IoctlFlags::IS_FSCTL,
        };
        bytes(Command::IOCTL, &|out| ioctl.encode(out, 0))
    };
    for asked in [60_000, 65_536] {
        assert_eq!((query(asked), ioctl(asked)), (size(asked), size(asked)));
    }
    // It will be refused: one credit covers no more.
    assert_eq!((query(u32::MAX), ioctl(u32::MAX)), (65_536, 65_536));
}
