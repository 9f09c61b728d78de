//! Messages to send: replies chained, signed or sealed, framed ([MS-SMB2] 3.3.4.1).
//!
//! A reply's head is built once, behind [`HEADROOM`] bytes that later take the frame header and the transform
//! header, so neither sealing nor framing moves it. A READ of a file puts the data behind the place of its head
//! ([`for_data`]), so they are never copied; other data are kept beside the head and are copied where the message must
//! be contiguous (sealing, compounds).

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use smb_crypto::{SignNonce, SigningKey};
use smb_wire::{
    header::{
        Header, HeaderFlags, NETBIOS_POSITIVE_RESPONSE, TRANSPORT_HEADER_SIZE, transport_header,
    },
    ids::SessionId,
    msg::{READ_HEAD_SIZE, ReadResponse},
    transform::TransformHeader,
};
use vfs::disk::InMemory;

use super::sealing::Sealing;

/// Bytes in front of a reply's SMB2 header: frame header and transform header.
pub(crate) const HEADROOM: usize = TRANSPORT_HEADER_SIZE + TransformHeader::SIZE;

/// A reply whose body is encoded and whose header is known.
pub(crate) struct Outgoing {
    /// `HEADROOM` bytes, then the SMB2 header's place, then the body.
    pub(crate) head: BytesMut,
    /// Data of a READ that are in another buffer and follow the head.
    pub(crate) payload: Option<Bytes>,
    /// Bytes of a file to send after the head, if this is the only reply of a message that is neither signed nor
    /// sealed.
    pub(crate) file: Option<Box<dyn InMemory>>,
    pub(crate) header: Header,
    pub(crate) sign: Option<Arc<SigningKey>>,
}

impl Outgoing {
    /// An unsigned reply that is all in its head.
    pub(crate) fn new(head: BytesMut, header: Header) -> Self {
        Self {
            head,
            payload: None,
            file: None,
            header,
            sign: None,
        }
    }
}

/// The session that seals a message, and its keys.
#[derive(Clone, Copy)]
pub(crate) struct Seal<'a> {
    pub(crate) session: SessionId,
    pub(crate) keys: &'a Sealing,
}

/// One frame, ready for the socket.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The head, with the frame header.
    pub(crate) head: Bytes,
    /// The data that follow the head.
    pub(crate) payload: Option<Bytes>,
    /// The bytes of a file that follow the head.
    pub(crate) file: Option<Box<dyn InMemory>>,
    /// Bytes of memory that the frame holds until it is sent: at least those of head and payload.
    pub(crate) held: usize,
}

/// The memory that the allocator and the queue use for a segment, besides its bytes.
const SEGMENT_OVERHEAD: usize = 2 * size_of::<Bytes>() + 32;

/// The message cannot be sent (too long, or no key for it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsendable;

/// An empty head to encode a body into.
pub(crate) fn blank() -> BytesMut {
    let mut head = BytesMut::with_capacity(HEADROOM + 256);
    head.resize(HEADROOM + Header::SIZE, 0);
    head
}

/// Bytes in front of a READ's data: those in front of any body, and the response's fixed part.
const DATA_AT: usize = HEADROOM + Header::SIZE + READ_HEAD_SIZE;
/// The kernel copies faster to an address that is a multiple of this, and allocations are.
const ALIGNMENT: usize = 16;
const UNUSED: usize = DATA_AT.next_multiple_of(ALIGNMENT) - DATA_AT;

/// A head behind which up to `length` bytes of a file can be read.
pub(crate) fn for_data(length: usize) -> BytesMut {
    let mut head = BytesMut::with_capacity(UNUSED + DATA_AT + length);
    head.resize(UNUSED + DATA_AT, 0);
    head.advance(UNUSED);
    head
}

/// Bytes that were read behind a head of [`for_data`].
pub(crate) fn data_len(head: &BytesMut) -> usize {
    head.len().saturating_sub(DATA_AT)
}

/// The unused memory that a reply may hold until the client takes it, besides as much as its own length.
const SLACK: usize = 4096;

/// Moves a head of [`for_data`] into a smaller buffer if much less was read than asked for. The reply may wait long for
/// a client that takes no replies, and asking for more than there is costs the client nothing.
pub(crate) fn fitted(head: BytesMut) -> BytesMut {
    if head.capacity() <= 2 * head.len() + SLACK {
        return head;
    }
    let mut fitted = for_data(data_len(&head));
    fitted.extend_from_slice(head.get(DATA_AT..).unwrap_or_default());
    fitted
}

/// Writes into a head of [`for_data`] how much was read behind it.
pub(crate) fn announce_data(head: &mut BytesMut) {
    announce(head, data_len(head));
}

/// Writes into a head of [`for_data`] how much follows it.
pub(crate) fn announce(head: &mut BytesMut, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    if let Some(place) = head.get_mut(HEADROOM + Header::SIZE..DATA_AT) {
        place.copy_from_slice(&ReadResponse::default().head(length));
    }
}

/// Turns a chain of replies into the segments of one frame.
pub(crate) fn assemble(chain: Vec<Outgoing>, seal: Option<Seal<'_>>) -> Result<Frame, Unsendable> {
    let count = chain.len();
    let mut whole: Option<(BytesMut, Option<Bytes>)> = None;
    let mut file = None;
    for (index, mut reply) in chain.into_iter().enumerate() {
        if count > 1 {
            // [MS-SMB2] 3.3.4.1.3: every element, the last included, ends 8-aligned.
            if let Some(payload) = reply.payload.take() {
                reply.head.extend_from_slice(&payload);
            }
            let length = reply.head.len() - HEADROOM;
            reply.head.resize(HEADROOM + length.next_multiple_of(8), 0);
            if index + 1 < count {
                reply.header.next_command =
                    u32::try_from(length.next_multiple_of(8)).map_err(|_| Unsendable)?;
            }
        }
        if reply.file.is_some() && (count > 1 || seal.is_some() || reply.sign.is_some()) {
            return Err(Unsendable);
        }
        write_header(&mut reply, seal.is_none())?;
        file = reply.file.take();
        match &mut whole {
            None => whole = Some((reply.head, reply.payload)),
            Some((first, _)) => {
                first.extend_from_slice(reply.head.get(HEADROOM..).ok_or(Unsendable)?);
            }
        }
    }
    let (head, payload) = whole.ok_or(Unsendable)?;
    match seal {
        Some(seal) => sealed(head, payload, seal),
        None => plain(head, payload, file),
    }
}

/// Writes the header into its place and signs the message if requested.
fn write_header(reply: &mut Outgoing, may_sign: bool) -> Result<(), Unsendable> {
    let signer = reply.sign.take().filter(|_| may_sign);
    if signer.is_some() {
        reply.header.flags |= HeaderFlags::SIGNED;
    }
    let message = reply.head.get_mut(HEADROOM..).ok_or(Unsendable)?;
    message
        .get_mut(..Header::SIZE)
        .ok_or(Unsendable)?
        .copy_from_slice(&reply.header.to_bytes());
    if let Some(key) = signer {
        let nonce = SignNonce {
            message_id: reply.header.message_id.0,
            is_server: true,
            is_cancel: false,
        };
        match &reply.payload {
            None => key.sign(message, nonce),
            Some(payload) => key.sign_parts(message, &[payload], nonce),
        }
        .map_err(|_| Unsendable)?;
    }
    Ok(())
}

/// The memory that a segment of this buffer occupies.
fn held(head: &BytesMut) -> usize {
    head.capacity() + SEGMENT_OVERHEAD
}

fn plain(
    mut head: BytesMut,
    payload: Option<Bytes>,
    file: Option<Box<dyn InMemory>>,
) -> Result<Frame, Unsendable> {
    let mut held = held(&head);
    let beside =
        payload.as_ref().map_or(0, Bytes::len) + file.as_ref().map_or(0, |file| file.left());
    let length = head.len() - HEADROOM + beside;
    let frame = transport_header(length).ok_or(Unsendable)?;
    head.advance(HEADROOM - TRANSPORT_HEADER_SIZE);
    head.get_mut(..TRANSPORT_HEADER_SIZE)
        .ok_or(Unsendable)?
        .copy_from_slice(&frame);
    let payload = payload.filter(|payload| !payload.is_empty());
    if let Some(payload) = &payload {
        held += payload.len() + SEGMENT_OVERHEAD;
    }
    Ok(Frame {
        head: head.freeze(),
        payload,
        file,
        held,
    })
}

/// The answer to a request for a session of NetBIOS.
pub(crate) fn session_accepted() -> Frame {
    let head = Bytes::from_static(&NETBIOS_POSITIVE_RESPONSE);
    let held = head.len() + SEGMENT_OVERHEAD;
    Frame {
        head,
        payload: None,
        file: None,
        held,
    }
}

/// The rest of a message whose first bytes have been sent.
pub(crate) fn rest(head: Bytes, data: Bytes) -> Frame {
    let held = head.len() + data.len() + 2 * SEGMENT_OVERHEAD;
    Frame {
        head,
        payload: Some(data),
        file: None,
        held,
    }
}

/// [MS-SMB2] 3.1.4.3: one transform over the whole chain.
fn sealed(mut head: BytesMut, payload: Option<Bytes>, seal: Seal<'_>) -> Result<Frame, Unsendable> {
    if let Some(payload) = payload {
        head.extend_from_slice(&payload);
    }
    let length = head.len() - HEADROOM;
    let mut transform = TransformHeader {
        signature: [0; 16],
        nonce: seal.keys.next_nonce().ok_or(Unsendable)?,
        original_message_size: u32::try_from(length).map_err(|_| Unsendable)?,
        flags: TransformHeader::ENCRYPTED,
        session_id: seal.session,
    };
    let (front, message) = head.split_at_mut(HEADROOM);
    let before = transform.to_bytes();
    let aad = TransformHeader::aad(&before).map_err(|_| Unsendable)?;
    let key = &seal.keys.server_to_client;
    let signature = key.seal_in_place(&transform.nonce, aad, message);
    transform.signature = signature.map_err(|_| Unsendable)?;
    let frame = transport_header(length + TransformHeader::SIZE).ok_or(Unsendable)?;
    let (frame_place, transform_place) = front.split_at_mut(TRANSPORT_HEADER_SIZE);
    frame_place.copy_from_slice(&frame);
    transform_place.copy_from_slice(&transform.to_bytes());
    let held = held(&head);
    Ok(Frame {
        head: head.freeze(),
        payload: None,
        file: None,
        held,
    })
}

#[cfg(test)]
#[path = "outbound_tests.rs"]
mod tests;
