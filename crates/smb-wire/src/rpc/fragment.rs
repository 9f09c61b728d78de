//! Fragments of requests and responses (C706 12.5.2, 12.6.3.2).
//!
//! A request is reassembled up to [`MAX_REQUEST_BYTES`]. The fragments of one call come in order
//! and are not interleaved with another call's, since each pipe serves one call at a time.

use bytes::BytesMut;

use super::pdu::{FaultStatus, MIN_FRAGMENT_BYTES, PduHeader, PfcFlags, RequestPdu, Response};

/// Maximum length of a request's stub in bytes.
pub const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// A complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeRequest {
    /// The call.
    pub call_id: u32,
    /// The presentation context.
    pub context_id: u16,
    /// The operation.
    pub opnum: u16,
    /// The stub.
    pub stub: Vec<u8>,
}

/// A request that is being reassembled.
#[derive(Debug, Default)]
pub struct Reassembly {
    partial: Option<WholeRequest>,
}

impl Reassembly {
    /// Number of bytes of the incomplete request.
    pub fn bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |whole| whole.stub.len())
    }

    /// Adds a fragment; returns the request if it was the last one.
    ///
    /// # Errors
    /// PROTO_ERROR for a fragment out of order, REMOTE_NO_MEMORY over [`MAX_REQUEST_BYTES`]; the
    /// incomplete request is dropped.
    pub fn push(
        &mut self,
        header: &PduHeader,
        request: &RequestPdu<'_>,
    ) -> Result<Option<WholeRequest>, FaultStatus> {
        let partial = self.partial.take();
        let mut whole = if header.flags.contains(PfcFlags::FIRST_FRAG) {
            WholeRequest {
                call_id: header.call_id,
                context_id: request.context_id,
                opnum: request.opnum,
                stub: Vec::new(),
            }
        } else {
            partial
                .filter(|partial| partial.call_id == header.call_id)
                .ok_or(FaultStatus::PROTO_ERROR)?
        };
        if whole.stub.len() + request.stub.len() > MAX_REQUEST_BYTES {
            return Err(FaultStatus::REMOTE_NO_MEMORY);
        }
        whole.stub.extend_from_slice(request.stub);
        if header.flags.contains(PfcFlags::LAST_FRAG) {
            return Ok(Some(whole));
        }
        self.partial = Some(whole);
        Ok(None)
    }
}

/// Appends a response in fragments of at most `max_frag` bytes (the client's max_recv_frag);
/// returns the length of each.
pub fn encode_response(
    call_id: u32,
    context_id: u16,
    stub: &[u8],
    max_frag: u16,
    out: &mut BytesMut,
) -> Vec<usize> {
    let max_frag = usize::from(max_frag.max(MIN_FRAGMENT_BYTES));
    // All fragments except the last preserve the 8-alignment of the stub.
    let step = (max_frag - Response::OVERHEAD) & !7;
    let mut lengths = Vec::new();
    let mut at = 0;
    loop {
        let end = stub.len().min(at + step);
        let flags =
            PfcFlags::FIRST_FRAG.when(at == 0) | PfcFlags::LAST_FRAG.when(end == stub.len());
        let before = out.len();
        let response = Response {
            alloc_hint: u32::try_from(stub.len() - at).unwrap_or(u32::MAX),
            context_id,
            stub: stub.get(at..end).unwrap_or(&[]),
        };
        response.encode(call_id, flags, out);
        lengths.push(out.len() - before);
        at = end;
        if at == stub.len() {
            return lengths;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pdu::PduType;
    use super::*;

    fn fragment(flags: PfcFlags, call_id: u32) -> PduHeader {
        PduHeader::new(PduType::REQUEST, flags, call_id)
    }

    fn request(stub: &[u8]) -> RequestPdu<'_> {
        RequestPdu {
            alloc_hint: 0,
            context_id: 1,
            opnum: 2,
            object: None,
            stub,
        }
    }

    #[test]
    fn requests_are_reassembled() {
        let mut reassembly = Reassembly::default();
        let first = reassembly.push(&fragment(PfcFlags::FIRST_FRAG, 1), &request(b"ab"));
        assert_eq!(first, Ok(None));
        let whole = reassembly
            .push(&fragment(PfcFlags::LAST_FRAG, 1), &request(b"c"))
            .unwrap()
            .unwrap();
        assert_eq!((whole.opnum, &whole.stub[..]), (2, &b"abc"[..]));
        let stray = reassembly.push(&fragment(PfcFlags::LAST_FRAG, 1), &request(b"c"));
        assert_eq!(stray, Err(FaultStatus::PROTO_ERROR));
        let long = vec![0; MAX_REQUEST_BYTES + 1];
        let long = reassembly.push(&fragment(PfcFlags::WHOLE, 1), &request(&long));
        assert_eq!(long, Err(FaultStatus::REMOTE_NO_MEMORY));
    }

    #[test]
    fn responses_are_fragmented() {
        let stub: Vec<u8> = (0..5000u16).map(|n| n as u8).collect();
        let mut out = BytesMut::new();
        let lengths = encode_response(9, 0, &stub, 2000, &mut out);
        assert_eq!(lengths.iter().sum::<usize>(), out.len());
        assert!(lengths.iter().all(|length| *length <= 2000));
        let (mut rest, mut read, mut flags) = (&out[..], Vec::new(), Vec::new());
        while !rest.is_empty() {
            let (header, body, after) = PduHeader::read(rest).unwrap();
            read.extend_from_slice(Response::read(body).unwrap().stub);
            flags.push(header.flags.0);
            rest = after;
        }
        assert_eq!(read, stub);
        assert_eq!(flags, [1, 0, 2]);
        assert_eq!(encode_response(9, 0, &[], 0, &mut out), [24]);
    }
}
