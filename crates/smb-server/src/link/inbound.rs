//! Received messages: decrypted, split, their signatures verified, their message ids admitted ([MS-SMB2] 3.3.5.2.1
//! to 3.3.5.2.7). A kernel: nothing here waits.

use bytes::{Bytes, BytesMut};
use smb_crypto::SignNonce;
use smb_wire::{
    compound::{self, Element},
    compression,
    header::{Command, Header, HeaderFlags, PROTOCOL_ID},
    ids::SessionId,
    smb1,
    transform::{self, TransformHeader},
};
use vfs::Vfs;

use crate::{connection::Connection, link::misbehaved::Misbehaved, state::Session};

/// Longest request of a command that carries no data ([MS-SMB2] 3.3.5.2).
const PLAIN_REQUEST_MAX: usize = 68 * 1024;

/// The result of checking the signature of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    /// SMB2_FLAGS_SIGNED is not set.
    Absent,
    /// Verified with the channel's key.
    Good,
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
    /// The result of checking its signature.
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

    /// Bytes that the frame's requests hold while they run, answers included as far as these can be
    /// large: they are what the credits cover ([MS-SMB2] 3.3.5.2.5).
    pub(crate) fn data_bytes(&self) -> usize {
        let Self::Chain { requests, .. } = self else {
            return 0;
        };
        requests
            .iter()
            .map(|request| {
                let charge = usize::from(request.header.credit_charge.max(1));
                let answer = match request.header.command {
                    Command::READ | Command::QUERY_DIRECTORY => charge * 65_536,
                    Command::QUERY_INFO | Command::IOCTL if charge > 1 => charge * 65_536,
                    _ => 0,
                };
                request.message.len().max(answer)
            })
            .sum()
    }
}

/// Opens a frame.
pub(crate) fn open<V: Vfs>(
    connection: &Connection<V>,
    mut frame: BytesMut,
) -> Result<Inbound, Misbehaved> {
    let mut sealed_by = None;
    if frame.starts_with(&transform::PROTOCOL_ID) {
        sealed_by = Some(unseal(connection, &mut frame)?);
    }
    if frame.starts_with(&smb1::PROTOCOL_ID) && sealed_by.is_none() {
        return Ok(Inbound::Smb1(frame.freeze()));
    }
    if frame.starts_with(&compression::PROTOCOL_ID) {
        return Err(Misbehaved::Compression);
    }
    if !frame.starts_with(&PROTOCOL_ID) {
        return Err(Misbehaved::UnknownProtocol);
    }
    // Most frames have one; all are split before the first is looked at.
    let mut requests = Vec::with_capacity(1);
    for element in compound::elements(&frame) {
        let Element { header, range } = element.map_err(Misbehaved::Compound)?;
        requests.push((range, header, Signature::Absent));
    }
    let mut previous = SessionId::default();
    for (index, (range, header, signature)) in requests.iter_mut().enumerate() {
        check_element(connection, header, sealed_by, index == 0, range.len())?;
        if !header.flags.contains(HeaderFlags::RELATED) {
            previous = header.session_id;
        }
        let bytes = frame
            .get_mut(range.clone())
            .ok_or(Misbehaved::UnknownProtocol)?;
        *signature = verify(connection, header, previous, bytes, sealed_by);
    }
    // They follow each other without a gap.
    let mut frame = frame.freeze();
    let requests = requests
        .into_iter()
        .map(|(range, header, signature)| Request {
            header,
            message: frame.split_to(range.len().min(frame.len())),
            signature,
        })
        .collect();
    Ok(Inbound::Chain {
        requests,
        sealed_by,
    })
}

/// Rules whose breaking closes the connection, and the message id.
fn check_element<V: Vfs>(
    connection: &Connection<V>,
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
    if !data && length > PLAIN_REQUEST_MAX {
        return Err(Misbehaved::TooLong(length));
    }
    if header.command == Command::CANCEL {
        // [MS-SMB2] 3.3.5.16: no sequence check; it carries the id of what it cancels.
        return Ok(());
    }
    let charge = if connection
        .negotiated()
        .is_some_and(|facts| facts.multi_credit)
    {
        header.credit_charge
    } else {
        1
    };
    connection
        .credits
        .borrow_mut()
        .admit(header.message_id.0, charge)
        .map_err(|_| Misbehaved::OutsideWindow)
}

fn verify<V: Vfs>(
    connection: &Connection<V>,
    header: &Header,
    session: SessionId,
    element: &mut [u8],
    sealed_by: Option<SessionId>,
) -> Signature {
    if !header.flags.contains(HeaderFlags::SIGNED) || sealed_by.is_some() {
        return Signature::Absent;
    }
    let Some(channel) = connection.channel(session) else {
        return Signature::NoSession;
    };
    let Some(key) = &channel.signing else {
        return Signature::NoKey;
    };
    let nonce = SignNonce {
        message_id: header.message_id.0,
        is_server: false,
        is_cancel: header.command == Command::CANCEL,
    };
    if key.verify_in_place(element, nonce) {
        Signature::Good
    } else {
        Signature::Bad
    }
}

/// Decrypts in place; the frame is the inner message afterwards.
fn unseal<V: Vfs>(
    connection: &Connection<V>,
    frame: &mut BytesMut,
) -> Result<SessionId, Misbehaved> {
    let transform = TransformHeader::read(frame).map_err(Misbehaved::Malformed)?;
    let front = frame.split_to(TransformHeader::SIZE);
    let aad = TransformHeader::aad(&front).map_err(Misbehaved::Malformed)?;
    if transform.flags != TransformHeader::ENCRYPTED {
        return Err(Misbehaved::Encryption("flags"));
    }
    if usize::try_from(transform.original_message_size) != Ok(frame.len()) || frame.is_empty() {
        return Err(Misbehaved::Encryption("size"));
    }
    let channel = connection
        .channel(transform.session_id)
        .ok_or(Misbehaved::Encryption("unknown session"))?;
    let session: &Session<V> = &channel.session;
    // [MS-SMB2] 3.3.5.2.1.1: everybody knows the keys of an anonymous session.
    if session.established.anonymous && connection.is_constrained() {
        return Err(Misbehaved::Encryption("nobody has authenticated"));
    }
    let sealing = session
        .sealing()
        .ok_or(Misbehaved::Encryption("session has no keys"))?;
    sealing
        .client_to_server
        .open_in_place(&transform.nonce, aad, &transform.signature, frame)
        .map_err(|_| Misbehaved::Encryption("tag"))?;
    Ok(session.id)
}
