//! Decodes and encodes every captured message and compares the bytes; the content of some is
//! checked too.

use super::data::CAPTURED;
use crate::access_mask::AccessMask;
use crate::codec::HEADER_SIZE;
use crate::create_context::{
    AppInstanceVersion, AppleBitmap, AppleClientCapabilities, AppleRequest, AppleResponse,
    AppleServerCapabilities, AppleVolumeCapabilities, CreateContextList, DurableHandleFlags,
    LeaseFlags, LeaseState, RequestContext, ResponseContext,
};
use crate::dtyp::SecurityDescriptor;
use crate::header::{Header, HeaderFlags};
use crate::ids::LeaseKey;
use crate::msg::*;
use crate::negotiate_context::{
    CipherId, EncryptionCapabilities, NegotiateContextList, NegotiateContextType,
    PreauthIntegrityCapabilities, SigningCapabilities,
};
use crate::testing::message;
use crate::{Malformed, Status};

/// Decodes the body as a message of type `kind` and encodes it again.
pub(super) fn rewrite(kind: &str, bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    macro_rules! kinds {
        ($($name:ident)*) => {
            match kind {
                $(stringify!($name) => {
                    let value = $name::read(bytes)?;
                    let written = message(|out, start| value.encode(out, start));
                    let again = $name::read(&written).expect("an encoded message can be decoded");
                    let again = message(|out, start| again.encode(out, start));
                    assert_eq!(again, written, "{kind} written, read and written again");
                    Ok(written)
                })*
                _ => panic!("unknown kind {kind}"),
            }
        };
    }
    kinds! {
        NegotiateRequest NegotiateResponse SessionSetupRequest SessionSetupResponse
        LogoffRequest LogoffResponse TreeConnectRequest TreeConnectResponse
        TreeDisconnectRequest TreeDisconnectResponse CreateRequest CreateResponse CloseRequest
        CloseResponse FlushRequest FlushResponse ReadRequest ReadResponse WriteRequest
        WriteResponse LockRequest LockResponse IoctlRequest IoctlResponse CancelRequest
        EchoRequest EchoResponse QueryDirectoryRequest QueryDirectoryResponse
        ChangeNotifyRequest ChangeNotifyResponse QueryInfoRequest QueryInfoResponse
        SetInfoRequest SetInfoResponse OplockBreakRequest OplockBreakServerMessage
        OplockBreakResponse ErrorResponse
    }
}

pub(super) fn all(kind: &str) -> Vec<Vec<u8>> {
    let found: Vec<_> = CAPTURED
        .iter()
        .filter(|(k, _)| *k == kind)
        .map(|(_, bytes)| bytes.to_vec())
        .collect();
    assert!(!found.is_empty(), "no captured {kind}");
    found
}

/// Removes the zeros at the end, which are padding or the one byte that StructureSize counts.
fn without_padding(bytes: &[u8]) -> &[u8] {
    let len = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    &bytes[..len]
}

#[test]
fn every_captured_message_is_written_as_it_was_read() {
    for (kind, bytes) in CAPTURED {
        let mut written = rewrite(kind, bytes).unwrap_or_else(|error| panic!("{kind}: {error}"));
        if *kind == "ErrorResponse" && bytes[68..72] == [0; 4] {
            // Samba fills the one byte of data of an interim response with 0x21.
            written[72] = bytes[72];
        }
        assert_eq!(
            without_padding(&written[HEADER_SIZE..]),
            without_padding(&bytes[HEADER_SIZE..]),
            "{kind}\n{written:02x?}\n{bytes:02x?}"
        );
    }
}

#[test]
fn every_captured_header_is_written_as_it_was_read() {
    for (kind, bytes) in CAPTURED {
        let header = Header::read(bytes).unwrap();
        let mut written = bytes::BytesMut::new();
        header.encode(&mut written);
        assert_eq!(written[..], bytes[..HEADER_SIZE], "{kind}");
        let response = kind.ends_with("Response") || kind.ends_with("ServerMessage");
        assert_eq!(header.is_response(), response, "{kind}");
        assert!(header.command.is_known());
    }
}

#[test]
fn an_interim_response_has_an_async_id() {
    let found = all("ErrorResponse")
        .iter()
        .map(|bytes| Header::read(bytes).unwrap())
        .find(|header| header.status == Status::PENDING)
        .expect("no interim response captured");
    assert!(found.async_id.is_some_and(|id| id.0 != 0));
    assert!(
        found
            .flags
            .contains(HeaderFlags::ASYNC | HeaderFlags::RESPONSE)
    );
}

#[test]
fn negotiate_requests_hold_their_contexts() {
    let all = all("NegotiateRequest");
    let old = NegotiateRequest::read(&all[0]).unwrap();
    assert!(!old.dialects.contains(&Dialect::SMB_3_1_1));
    assert_eq!(old.contexts.count(), 0);
    let new = NegotiateRequest::read(&all[1]).unwrap();
    assert!(new.dialects.contains(&Dialect::SMB_3_1_1));
    assert_eq!(new.context_offset as usize, new.context_offset_expected());
    let contexts: Vec<_> = new.contexts.iter().map(Result::unwrap).collect();
    let data = |wanted| {
        contexts
            .iter()
            .find(|c| c.context_type == wanted)
            .unwrap()
            .data
    };
    let preauth = data(NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES);
    let preauth = PreauthIntegrityCapabilities::read(preauth).unwrap();
    assert_eq!((preauth.hash_algorithms.len(), preauth.salt.len()), (1, 32));
    let ciphers = data(NegotiateContextType::ENCRYPTION_CAPABILITIES);
    let ciphers = EncryptionCapabilities::read(ciphers).unwrap().ciphers;
    assert!(ciphers.contains(&CipherId::AES_128_GCM));
    let mut list = NegotiateContextList::new();
    contexts.iter().for_each(|context| list.push(*context));
    assert_eq!(list.contexts(), new.contexts);
}

#[test]
fn negotiate_responses_hold_their_contexts() {
    let all = all("NegotiateResponse");
    let response = NegotiateResponse::read(all.last().unwrap()).unwrap();
    assert_eq!(response.dialect, Dialect::SMB_3_1_1);
    assert!(response.capabilities.contains(Capabilities::LARGE_MTU));
    assert!(!response.security_buffer.is_empty());
    assert_eq!(response.max_read_size, 8 << 20);
    for context in response.contexts.iter() {
        let context = context.unwrap();
        assert!(context.context_type.is_known());
        if context.context_type == SigningCapabilities::TYPE {
            assert_eq!(
                SigningCapabilities::read(context.data)
                    .unwrap()
                    .algorithms
                    .len(),
                1
            );
        }
    }
}

/// The query of the test "CREATE context AAPL" of vfs.fruit.
const APPLE_QUERY: AppleRequest = AppleRequest::ServerQuery {
    bitmap: AppleBitmap(7),
    client_capabilities: AppleClientCapabilities(0x0d),
};

/// Asserts Samba's answer to [`APPLE_QUERY`].
fn assert_apple_answer(answer: &AppleResponse<'_>) {
    let server = answer
        .server_capabilities
        .map(AppleServerCapabilities::bits);
    assert_eq!(server, Some(0x0f));
    let volume = answer
        .volume_capabilities
        .map(AppleVolumeCapabilities::bits);
    assert_eq!(volume, Some(0));
    let model = crate::utf16::decode(answer.model.unwrap(), "model");
    assert_eq!(model.unwrap(), "MacSamba");
}

/// Checks the content of a context captured in a request and returns its name.
fn request_name(context: &RequestContext<'_>) -> &'static str {
    match *context {
        RequestContext::Lease(lease) => {
            assert!(lease.lease_state.contains(LeaseState::READ));
            if let Some(parent) = lease.parent_lease_key() {
                assert_eq!(parent, LeaseKey([0x66; 16]));
                assert_eq!(lease.v2.map(|v2| v2.epoch), Some(3));
                "RqLs2 with a parent"
            } else if lease.v2.is_some() {
                "RqLs2"
            } else {
                "RqLs"
            }
        }
        RequestContext::DurableHandleRequest => "DHnQ",
        RequestContext::DurableHandleReconnect(_) => "DHnC",
        RequestContext::DurableHandleRequestV2(_) => "DH2Q",
        RequestContext::DurableHandleReconnectV2(_) => "DH2C",
        RequestContext::QueryMaximalAccess(_) => "MxAc",
        RequestContext::AllocationSize(_) => "AlSi",
        RequestContext::ExtendedAttributes(_) => "ExtA",
        RequestContext::AppInstanceId(_) => "AppInstanceId",
        RequestContext::AppInstanceVersion(version) => {
            assert_eq!(version, AppInstanceVersion { high: 1, low: 7 });
            "AppInstanceVersion"
        }
        RequestContext::TimewarpToken(time) => {
            // 2015-10-31 19:40:30 UTC, the requested snapshot.
            assert_eq!(time.0, (1_446_320_430 + 11_644_473_600) * 10_000_000);
            "TWrp"
        }
        RequestContext::QueryOnDiskId => "QFid",
        RequestContext::SecurityDescriptor(data) => {
            let descriptor = SecurityDescriptor::read(data).unwrap();
            assert_eq!(descriptor.dacl.is_some(), descriptor.owner.is_some());
            "SecD"
        }
        RequestContext::Apple(query) => {
            assert_eq!(query, APPLE_QUERY);
            "AAPL"
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_same_contexts(encoded: &CreateContextList, captured: &[u8]) {
    assert_eq!(without_padding(encoded.bytes()), without_padding(captured));
}

#[track_caller]
fn assert_captured(seen: &[&str], names: &[&str]) {
    for name in names {
        assert!(seen.contains(name), "{name} not captured");
    }
}

#[test]
fn create_contexts_match_their_names() {
    let mut seen = Vec::new();
    for bytes in all("CreateRequest") {
        let request = CreateRequest::read(&bytes).unwrap();
        let mut list = CreateContextList::new();
        for context in request.contexts() {
            let context = context.unwrap().request().unwrap();
            context.encode(&mut list);
            seen.push(request_name(&context));
        }
        assert_same_contexts(&list, request.contexts);
    }
    assert_captured(
        &seen,
        &[
            "RqLs",
            "RqLs2",
            "RqLs2 with a parent",
            "DHnQ",
            "DHnC",
            "DH2Q",
            "DH2C",
            "MxAc",
            "AlSi",
            "ExtA",
            "AppInstanceId",
            "AppInstanceVersion",
            "TWrp",
            "QFid",
            "SecD",
            "AAPL",
        ],
    );
}

#[test]
fn create_responses_contain_the_granted_oplocks_and_leases() {
    let mut seen = Vec::new();
    for bytes in all("CreateResponse") {
        let response = CreateResponse::read(&bytes).unwrap();
        assert_ne!(response.file_id.volatile, 0);
        let mut list = CreateContextList::new();
        for context in response.contexts() {
            let context = context.unwrap().response().unwrap();
            context.encode(&mut list);
            seen.push(match context {
                ResponseContext::Lease(lease) => {
                    assert!(lease.lease_state.contains(LeaseState::READ));
                    if lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS) {
                        "RqLs being broken"
                    } else {
                        "RqLs"
                    }
                }
                ResponseContext::DurableHandle => "DHnQ",
                ResponseContext::DurableHandleV2(durable) => {
                    assert_eq!(durable.flags, DurableHandleFlags::empty());
                    assert!(durable.timeout_ms >= 1000);
                    "DH2Q"
                }
                ResponseContext::QueryMaximalAccess(access) => {
                    assert_eq!(access.query_status, Status::SUCCESS);
                    assert!(access.maximal_access.contains(AccessMask::FILE_READ_DATA));
                    "MxAc"
                }
                ResponseContext::QueryOnDiskId(id) => {
                    // Samba returns device and inode.
                    assert_eq!(id.volume_id, 0xfe00);
                    assert!(id.disk_file_id >> 32 == 0 && id.disk_file_id != 0);
                    "QFid"
                }
                ResponseContext::Apple(answer) => {
                    assert_apple_answer(&answer);
                    "AAPL"
                }
                ResponseContext::Unknown(other) => panic!("{other:?}"),
            });
        }
        assert_same_contexts(&list, response.contexts);
    }
    assert_captured(
        &seen,
        &[
            "RqLs",
            "RqLs being broken",
            "DHnQ",
            "DH2Q",
            "MxAc",
            "QFid",
            "AAPL",
        ],
    );
}

#[test]
fn single_fields_have_the_values_that_were_sent() {
    let bytes = &all("TreeConnectRequest")[0];
    let path = TreeConnectRequest::read(bytes).unwrap().path;
    assert_eq!(
        crate::utf16::decode(path, "path").unwrap(),
        r"\\127.0.0.1\tmp"
    );
    let bytes = &all("TreeConnectResponse")[0];
    let response = TreeConnectResponse::read(bytes).unwrap();
    assert_eq!(response.share_type, ShareType::PIPE);
    let all_locks = all("LockRequest");
    let counts = all_locks
        .iter()
        .map(|bytes| LockRequest::read(bytes).unwrap().locks.len());
    assert_eq!(counts.collect::<Vec<_>>(), [0, 2]);
    let bytes = &all("WriteRequest")[0];
    assert!(WriteRequest::read(bytes).unwrap().data.len() <= 1);
    let bytes = &all("QueryDirectoryRequest")[0];
    assert_eq!(QueryDirectoryRequest::read(bytes).unwrap().pattern, b"*\0");
    let bytes = &all("EchoRequest")[0];
    assert_eq!(Header::read(bytes).unwrap().command, crate::Command::ECHO);
    let bytes = &all("ReadResponse")[0];
    assert_eq!(ReadResponse::read(bytes).unwrap().data, b"hello");
    let bytes = &all("CloseResponse")[0];
    assert_eq!(
        CloseResponse::read(bytes).unwrap(),
        CloseResponse::default()
    );
}
