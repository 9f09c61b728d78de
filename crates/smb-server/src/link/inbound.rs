//! Decrypts and splits received messages, verifies their signatures and admits their message ids ([MS-SMB2] 3.3.5.2.1
//! to 3.3.5.2.7). Nothing here waits.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use smb_crypto::{SignNonce, SigningKey};
use smb_wire::{
    codec::size,
    compound,
    fscc::FileInformationClass,
    fsctl::FsctlCode,
    header::{COMPRESSED_PROTOCOL_ID, Command, Header, HeaderFlags, PROTOCOL_ID},
    ids::SessionId,
    msg::{InfoType, IoctlRequest, QueryInfoRequest, SetInfoRequest},
    smb1,
    transform::{self, TransformHeader},
};

use super::{misbehaved::Misbehaved, sealing::Sealing};
use crate::limits::{
    COPY_MEMORY, CREDIT_BYTES, DECODED_FROM, DECODED_MAX, DECODED_MEMORY, EA_MEMORY,
    EA_SIZE_MEMORY, STREAMS_MEMORY,
};

/// Longest request of a command that carries no data, and longest message where CreditCharge has no meaning ([MS-SMB2]
/// 3.3.5.2).
pub(crate) const PLAIN_REQUEST_MAX: usize = 68 * 1024;

/// The result of checking the signature of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    /// SMB2_FLAGS_SIGNED is not set.
    Absent,
    /// Verified with the key of this session's channel.
    Good(SessionId),
    /// Wrong.
    Bad,
    /// The session has no key (guest, anonymous).
    NoKey,
    /// No such session on this connection.
    NoSession,
}

/// One element of a chain, ready to be run.
pub(crate) struct Request {
    /// Its header, as sent.
    pub(crate) header: Header,
    /// The element from its SMB2 header to its end, padding included.
    pub(crate) message: Bytes,
    pub(crate) signature: Signature,
}

/// One frame's requests.
pub(crate) enum Inbound {
    /// SMB1 multi-protocol NEGOTIATE.
    Smb1(Bytes),
    /// A chain of at least one request.
    Chain {
        /// In order.
        requests: Vec<Request>,
        /// The session whose keys sealed the frame.
        sealed_by: Option<SessionId>,
    },
}

impl Inbound {
    /// Whether there is more than one request.
    pub(crate) fn is_compound(&self) -> bool {
        matches!(self, Self::Chain { requests, .. } if requests.len() > 1)
    }

    /// Bytes that the frame's requests hold while they run, including answers that can be large: the credits cover
    /// exactly these ([MS-SMB2] 3.3.5.2.5). `answer_max` is the longest answer that was negotiated (0 before that), and
    /// `multi_credit` says whether CreditCharge has a meaning. At most `beside_max` bytes count of what requests need
    /// beside that.
    pub(crate) fn data_bytes(
        &self,
        answer_max: usize,
        multi_credit: bool,
        beside_max: usize,
    ) -> usize {
        let Self::Chain { requests, .. } = self else {
            return 0;
        };
        requests
            .iter()
            .map(|request| {
                let charge = match multi_credit {
                    true => usize::from(request.header.credit_charge.max(1)),
                    false => 1,
                };
                let answer = match request.header.command {
                    Command::READ | Command::QUERY_DIRECTORY => charge * CREDIT_BYTES,
                    Command::QUERY_INFO | Command::IOCTL if charge > 1 => charge * CREDIT_BYTES,
                    Command::QUERY_INFO | Command::IOCTL => asked(request).min(CREDIT_BYTES),
                    _ => 0,
                };
                request.message.len().max(answer.min(answer_max))
            })
            .sum::<usize>()
            .saturating_add(memory_beside(requests, answer_max).min(beside_max))
    }
}

/// The bytes that a QUERY_INFO or IOCTL asks for, which its CreditCharge does not show: one credit covers 64 KiB.
fn asked(request: &Request) -> usize {
    let message = &request.message;
    let asked = match request.header.command {
        Command::QUERY_INFO => {
            QueryInfoRequest::read(message).map(|query| query.output_buffer_length)
        }
        _ => IoctlRequest::read(message).map(|ioctl| ioctl.max_output_response),
    };
    asked.map_or(0, size)
}

/// The memory that a request needs beside its bytes and its answer: for data that the server copies for its client, for
/// attributes and names of streams that it reads, and for lists that it decodes. The largest of any one request counts,
/// because those of a frame run one after the other.
fn memory_beside(requests: &[Request], answer_max: usize) -> usize {
    let beside = |request: &Request| match request.header.command {
        Command::IOCTL if copies(request) => COPY_MEMORY.min(answer_max),
        Command::QUERY_INFO => attributes(request),
        Command::SET_INFO => attributes(request).max(decoded(request)),
        Command::CREATE => decoded(request),
        _ => 0,
    };
    requests.iter().map(beside).max().unwrap_or(0)
}

fn decoded(request: &Request) -> usize {
    let lists = request.message.len().saturating_sub(DECODED_FROM);
    lists.min(DECODED_MAX) * DECODED_MEMORY
}

fn copies(request: &Request) -> bool {
    const COPIES: [FsctlCode; 2] = [FsctlCode::SRV_COPYCHUNK, FsctlCode::SRV_COPYCHUNK_WRITE];
    IoctlRequest::read(&request.message)
        .is_ok_and(|ioctl| COPIES.contains(&FsctlCode(ioctl.ctl_code)))
}

/// The memory for a QUERY_INFO or SET_INFO that lists, measures or replaces extended attributes, or lists streams.
fn attributes(request: &Request) -> usize {
    use FileInformationClass as Class;
    let message = &request.message;
    let asked = match request.header.command {
        Command::QUERY_INFO => {
            QueryInfoRequest::read(message).map(|query| (query.info_type, query.info_class))
        }
        _ => SetInfoRequest::read(message).map(|set| (set.info_type, set.info_class)),
    };
    match asked.map(|(info_type, class)| (info_type, Class(class))) {
        Ok((InfoType::FILE, Class::FULL_EA)) => EA_MEMORY,
        Ok((InfoType::FILE, Class::EA | Class::ALL)) => EA_SIZE_MEMORY,
        Ok((InfoType::FILE, Class::STREAM)) => STREAMS_MEMORY,
        _ => 0,
    }
}

/// The connection that a frame came on, as far as this module needs it.
pub(crate) trait Keys {
    /// Takes the message ids of a request out of the credit window.
    fn admit(&self, request: &Header) -> Result<(), Misbehaved>;

    /// The longest request of a command with long data ([MS-SMB2] 3.3.5.2).
    fn request_max(&self) -> usize;

    /// The key that signs on this connection; `None` if there is no such session, `Some(None)` if it has no key.
    fn signing(&self, session: SessionId) -> Option<Option<Arc<SigningKey>>>;

    /// Calls `open` with the keys that seal the messages of a session.
    fn unseal(
        &self,
        session: SessionId,
        open: impl FnOnce(&Sealing) -> Result<(), Misbehaved>,
    ) -> Result<(), Misbehaved>;
}

pub(crate) fn open(keys: &impl Keys, mut frame: BytesMut) -> Result<Inbound, Misbehaved> {
    let mut sealed_by = None;
    if frame.starts_with(&transform::PROTOCOL_ID) {
        sealed_by = Some(unseal(keys, &mut frame)?);
    }
    if frame.starts_with(&smb1::PROTOCOL_ID) && sealed_by.is_none() {
        return Ok(Inbound::Smb1(frame.freeze()));
    }
    if frame.starts_with(&COMPRESSED_PROTOCOL_ID) {
        return Err(Misbehaved::Compression);
    }
    if !frame.starts_with(&PROTOCOL_ID) {
        return Err(Misbehaved::UnknownProtocol);
    }
    // Most frames have one request; a frame is split completely before the first request is checked.
    let mut requests = Vec::with_capacity(1);
    for element in compound::elements(&frame) {
        requests.push(Request {
            header: element.map_err(Misbehaved::Malformed)?.header,
            message: Bytes::new(),
            signature: Signature::Absent,
        });
    }
    let (mut previous, mut at) = (None, 0);
    for (index, request) in requests.iter_mut().enumerate() {
        let header = &request.header;
        let length = length_of(header, frame.len().saturating_sub(at));
        check_element(keys, header, sealed_by, index == 0, length)?;
        let related = header.flags.contains(HeaderFlags::RELATED);
        // A first element that is related has nothing to take over; its refusal is signed as it asks for it.
        let session = previous.filter(|_| related).unwrap_or(header.session_id);
        // A CANCEL has no answer and no place in the chain: related elements take nothing over from it.
        if header.command != Command::CANCEL {
            previous = Some(session);
        }
        let bytes = frame.get_mut(at..at + length);
        let bytes = bytes.ok_or(Misbehaved::UnknownProtocol)?;
        request.signature = verify(keys, header, session, bytes, sealed_by);
        at += length;
    }
    let mut frame = frame.freeze();
    for request in &mut requests {
        request.message = frame.split_to(length_of(&request.header, frame.len()));
    }
    Ok(Inbound::Chain {
        requests,
        sealed_by,
    })
}

/// The length of an element of a checked chain, in which elements follow each other without a gap. `rest` is the length
/// of it and all behind it.
fn length_of(header: &Header, rest: usize) -> usize {
    match size(header.next_command) {
        0 => rest,
        step => step.min(rest),
    }
}

/// Checks the rules whose violation closes the connection, and admits the message id.
fn check_element(
    keys: &impl Keys,
    header: &Header,
    sealed_by: Option<SessionId>,
    first: bool,
    length: usize,
) -> Result<(), Misbehaved> {
    if header.is_response() {
        return Err(Misbehaved::ResponseFromClient);
    }
    if let Some(session) = sealed_by {
        // [MS-SMB2] 3.3.5.2.1.1.
        let related = header.flags.contains(HeaderFlags::RELATED);
        if first && related {
            return Err(Misbehaved::Encryption("first element is related"));
        }
        if !related && header.session_id != session {
            return Err(Misbehaved::Encryption("session of an element is another"));
        }
    }
    let data = matches!(
        header.command,
        Command::READ
            | Command::WRITE
            | Command::IOCTL
            | Command::QUERY_DIRECTORY
            | Command::CHANGE_NOTIFY
            | Command::QUERY_INFO
            | Command::SET_INFO
    );
    // A request of a compound is as long as one alone (docs/protocol-notes.md, "The length of a message").
    let most = if data {
        keys.request_max()
    } else {
        PLAIN_REQUEST_MAX
    };
    if length > most {
        return Err(Misbehaved::TooLong(length));
    }
    if header.command == Command::CANCEL {
        // [MS-SMB2] 3.3.5.16: a CANCEL is not checked against the window, because it carries the id of the request that
        // it cancels.
        return Ok(());
    }
    keys.admit(header)
}

fn verify(
    keys: &impl Keys,
    header: &Header,
    session: SessionId,
    element: &mut [u8],
    sealed_by: Option<SessionId>,
) -> Signature {
    if !header.flags.contains(HeaderFlags::SIGNED) || sealed_by.is_some() {
        return Signature::Absent;
    }
    let key = match keys.signing(session) {
        None => return Signature::NoSession,
        Some(None) => return Signature::NoKey,
        Some(Some(key)) => key,
    };
    let nonce = SignNonce {
        message_id: header.message_id.0,
        is_server: false,
        is_cancel: header.command == Command::CANCEL,
    };
    if key.verify_in_place(element, nonce) {
        Signature::Good(session)
    } else {
        Signature::Bad
    }
}

/// Decrypts in place; the frame is the inner message afterwards.
fn unseal(keys: &impl Keys, frame: &mut BytesMut) -> Result<SessionId, Misbehaved> {
    let transform = TransformHeader::read(frame).map_err(Misbehaved::Malformed)?;
    let front = frame.split_to(TransformHeader::SIZE);
    let aad = TransformHeader::aad(&front).map_err(Misbehaved::Malformed)?;
    if transform.flags != TransformHeader::ENCRYPTED {
        return Err(Misbehaved::Encryption("flags"));
    }
    if usize::try_from(transform.original_message_size) != Ok(frame.len()) || frame.is_empty() {
        return Err(Misbehaved::Encryption("size"));
    }
    keys.unseal(transform.session_id, |sealing| {
        sealing
            .client_to_server
            .open_in_place(&transform.nonce, aad, &transform.signature, frame)
            .map_err(|_| Misbehaved::Encryption("tag"))
    })?;
    Ok(transform.session_id)
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
