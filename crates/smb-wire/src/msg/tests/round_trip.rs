//! Encodes random values of every message and decodes them again.

use bytes::BytesMut;
use proptest::prelude::*;

use super::strategies::{blob, file_id, header, times};
use crate::access_mask::AccessMask;
use crate::create_context::LeaseState;
use crate::file_attributes::FileAttributes;
use crate::fscc::FileFacts;
use crate::header::Header;
use crate::ids::{FileTime, Guid, LeaseKey, SessionId};
use crate::msg::*;
use crate::negotiate_context::NegotiateContexts;
use crate::status::Status;
use crate::testing::message;

macro_rules! round_trip {
    ($type:ident, $value:expr) => {{
        let value = $value;
        let bytes = message(|out, start| value.encode(out, start));
        prop_assert_eq!($type::read(&bytes), Ok(value), "{:02x?}", bytes);
        // A message inside a compound is followed by padding.
        let mut padded = bytes.clone();
        padded.resize(bytes.len().next_multiple_of(8), 0);
        prop_assert!($type::read(&padded).is_ok());
    }};
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn headers(header in header()) {
        let mut out = BytesMut::new();
        header.encode(&mut out);
        prop_assert_eq!(out.len(), Header::SIZE);
        prop_assert_eq!(Header::read(&out), Ok(header));
        for len in 0..out.len() {
            prop_assert!(Header::read(&out[..len]).is_err());
        }
    }

    #[test]
    fn negotiate(
        dialects in prop::collection::vec(any::<u16>().prop_map(Dialect), 0..9),
        numbers in any::<(u16, u32, [u8; 16])>(),
        sizes in any::<(u32, u32, u32, u64)>(),
        contexts in blob(100),
        count in 1..5u16,
        security_buffer in blob(100),
    ) {
        let mut dialects = dialects;
        dialects.push(Dialect::SMB_3_1_1);
        let mut request = NegotiateRequest {
            security_mode: SecurityMode(numbers.0),
            capabilities: Capabilities(numbers.1),
            client_guid: Guid(numbers.2),
            dialects,
            context_offset: 0,
            contexts: NegotiateContexts::new(count, &contexts),
        };
        request.context_offset = u32::try_from(request.context_offset_expected()).unwrap();
        round_trip!(NegotiateRequest, request.clone());
        request.dialects.retain(|dialect| *dialect != Dialect::SMB_3_1_1);
        (request.context_offset, request.contexts) = (0, NegotiateContexts::EMPTY);
        round_trip!(NegotiateRequest, request.clone());
        let mut response = NegotiateResponse {
            security_mode: SecurityMode(numbers.0),
            dialect: Dialect::SMB_3_1_1,
            server_guid: Guid(numbers.2),
            capabilities: Capabilities(numbers.1),
            max_transact_size: sizes.0,
            max_read_size: sizes.1,
            max_write_size: sizes.2,
            system_time: FileTime(sizes.3),
            security_buffer: &security_buffer,
            contexts: NegotiateContexts::new(count, &contexts),
        };
        round_trip!(NegotiateResponse, response);
        (response.dialect, response.contexts) = (Dialect::SMB_2_1, NegotiateContexts::EMPTY);
        round_trip!(NegotiateResponse, response);
    }

    #[test]
    fn session_setup(
        numbers in any::<(u8, u8, u32, u64, u16)>(),
        security_buffer in blob(100),
    ) {
        round_trip!(SessionSetupRequest, SessionSetupRequest {
            flags: SessionSetupFlags(numbers.0),
            security_mode: SecurityMode(numbers.1.into()),
            capabilities: Capabilities(numbers.2),
            previous_session_id: SessionId(numbers.3),
            security_buffer: &security_buffer,
        });
        round_trip!(SessionSetupResponse, SessionSetupResponse {
            session_flags: SessionFlags(numbers.4),
            security_buffer: &security_buffer,
        });
    }

    #[test]
    fn tree_connect(path in blob(100), numbers in any::<(u8, u32, u32, u32, u16)>()) {
        round_trip!(TreeConnectRequest, TreeConnectRequest {
            flags: TreeConnectFlags(numbers.4),
            path: &path,
        });
        round_trip!(TreeConnectResponse, TreeConnectResponse {
            share_type: ShareType(numbers.0),
            share_flags: ShareFlags(numbers.1),
            capabilities: ShareCapabilities(numbers.2),
            maximal_access: AccessMask(numbers.3),
        });
    }

    #[test]
    fn create_request(
        numbers in any::<(u8, [u32; 6])>(),
        name in blob(60),
        contexts in blob(60),
    ) {
        let [impersonation, access, attributes, share, disposition, options] = numbers.1;
        round_trip!(CreateRequest, CreateRequest {
            oplock_level: OplockLevel(numbers.0),
            impersonation_level: ImpersonationLevel(impersonation),
            desired_access: AccessMask(access),
            file_attributes: FileAttributes(attributes),
            share_access: ShareAccess(share),
            disposition: CreateDisposition(disposition),
            options: CreateOptions(options),
            name: &name,
            contexts: &contexts,
        });
    }

    #[test]
    fn create_response_and_close(
        numbers in any::<(u8, u8, u32, u64, u64, u32, u16)>(),
        [creation_time, last_access_time, last_write_time, change_time] in times(),
        file_id in file_id(),
        contexts in blob(60),
    ) {
        let facts = FileFacts {
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            allocation_size: numbers.3,
            end_of_file: numbers.4,
            file_attributes: FileAttributes(numbers.5),
        };
        round_trip!(CreateResponse, CreateResponse {
            oplock_level: OplockLevel(numbers.0),
            flags: CreateResponseFlags(numbers.1),
            create_action: CreateAction(numbers.2),
            facts,
            file_id,
            contexts: &contexts,
        });
        let flags = CloseFlags(numbers.6);
        round_trip!(CloseRequest, CloseRequest { flags, file_id });
        round_trip!(FlushRequest, FlushRequest { reserved: numbers.6, file_id });
        round_trip!(CloseResponse, CloseResponse {
            flags,
            facts,
        });
    }

    #[test]
    fn read_and_write(
        numbers in any::<(u8, u8, u32, u64, u32, u32)>(),
        file_id in file_id(),
        channel in 0..3u32,
        info in blob(40),
        data in blob(200),
    ) {
        let info: &[u8] = if channel == 0 { &[] } else { &info };
        round_trip!(ReadRequest, ReadRequest {
            padding: numbers.0,
            flags: ReadFlags(numbers.1),
            length: numbers.2,
            offset: numbers.3,
            file_id,
            minimum_count: numbers.4,
            channel: Channel(channel),
            remaining_bytes: numbers.5,
            channel_info: info,
        });
        let write = WriteRequest {
            offset: numbers.3,
            file_id,
            channel: Channel(channel),
            remaining_bytes: numbers.5,
            flags: WriteFlags(numbers.2),
            channel_info: info,
            data: &data,
        };
        round_trip!(WriteRequest, write);
        round_trip!(WriteResponse, WriteResponse { count: numbers.2 });
        let read = ReadResponse {
            data_remaining: numbers.4,
            flags: ReadResponseFlags(numbers.5),
            data: &data,
        };
        round_trip!(ReadResponse, read);
        let len = u32::try_from(data.len()).unwrap();
        let in_parts = message(|out, start| {
            read.encode_head(out, start, len);
            out.extend_from_slice(&data);
        });
        prop_assert_eq!(in_parts, message(|out, start| read.encode(out, start)));
    }

    #[test]
    fn lock(
        lock_sequence in any::<u32>(),
        file_id in file_id(),
        locks in prop::collection::vec(any::<(u64, u64, u32)>(), 0..5),
    ) {
        let locks = locks
            .into_iter()
            .map(|(offset, length, flags)| LockElement { offset, length, flags: LockFlags(flags) })
            .collect();
        let request = LockRequest { lock_sequence, file_id, locks };
        let (index, number) = (request.sequence_index(), request.sequence_number());
        prop_assert_eq!(index << 4 | u32::from(number), lock_sequence);
        round_trip!(LockRequest, request.clone());
    }

    #[test]
    fn ioctl(
        numbers in any::<(u32, u32, u32, u32)>(),
        output_count in any::<u32>(),
        file_id in file_id(),
        input in blob(50),
        output in blob(50),
    ) {
        round_trip!(IoctlRequest, IoctlRequest {
            ctl_code: numbers.0,
            file_id,
            input: &input,
            max_input_response: numbers.1,
            output_count,
            max_output_response: numbers.2,
            flags: IoctlFlags(numbers.3),
        });
        round_trip!(IoctlResponse, IoctlResponse {
            ctl_code: numbers.0,
            file_id,
            input: &input,
            output: &output,
            flags: numbers.3,
        });
    }

    #[test]
    fn queries(
        numbers in any::<(u8, u8, u32, u32, u32, u16)>(),
        file_id in file_id(),
        bytes in blob(80),
    ) {
        round_trip!(QueryDirectoryRequest, QueryDirectoryRequest {
            info_class: numbers.0,
            flags: QueryDirectoryFlags(numbers.1),
            file_index: numbers.2,
            file_id,
            pattern: &bytes,
            output_buffer_length: numbers.3,
        });
        round_trip!(QueryDirectoryResponse, QueryDirectoryResponse { buffer: &bytes });
        round_trip!(ChangeNotifyRequest, ChangeNotifyRequest {
            flags: ChangeNotifyFlags(numbers.5),
            output_buffer_length: numbers.3,
            file_id,
            completion_filter: NotifyFilter(numbers.2),
        });
        round_trip!(ChangeNotifyResponse, ChangeNotifyResponse { buffer: &bytes });
        round_trip!(QueryInfoRequest, QueryInfoRequest {
            info_type: InfoType(numbers.0),
            info_class: numbers.1,
            output_buffer_length: numbers.2,
            additional_information: numbers.3,
            flags: QueryInfoFlags(numbers.4),
            file_id,
            input: &bytes,
        });
        round_trip!(QueryInfoResponse, QueryInfoResponse { buffer: &bytes });
        round_trip!(SetInfoRequest, SetInfoRequest {
            info_type: InfoType(numbers.0),
            info_class: numbers.1,
            additional_information: numbers.3,
            file_id,
            buffer: &bytes,
        });
    }

    #[test]
    fn breaks_and_errors(
        numbers in any::<(u8, u16, u32, u32, u32)>(),
        key in any::<[u8; 16]>(),
        file_id in file_id(),
        data in blob(60),
    ) {
        let lease_key = LeaseKey(key);
        let oplock = OplockBreak { oplock_level: OplockLevel(numbers.0), file_id };
        let lease = LeaseBreak { lease_key, lease_state: LeaseState(numbers.2) };
        round_trip!(OplockBreakRequest, OplockBreakRequest::Oplock(oplock));
        round_trip!(OplockBreakRequest, OplockBreakRequest::Lease(lease));
        round_trip!(OplockBreakServerMessage, OplockBreakServerMessage::Oplock(oplock));
        round_trip!(OplockBreakServerMessage, OplockBreakServerMessage::LeaseResponse(lease));
        round_trip!(LeaseBreakNotification, LeaseBreakNotification {
            new_epoch: numbers.1,
            flags: LeaseBreakFlags(numbers.2),
            lease_key,
            current_lease_state: LeaseState(numbers.3),
            new_lease_state: LeaseState(numbers.4),
        });
        round_trip!(ErrorResponse, ErrorResponse { context_count: numbers.0, data: &data });
    }
}

#[test]
fn messages_without_fields() {
    fn four<T: PartialEq + std::fmt::Debug>(
        value: T,
        bytes: &[u8],
        read: impl Fn(&[u8]) -> Result<T, crate::Malformed>,
    ) {
        assert_eq!(bytes[64..], [4, 0, 0, 0]);
        assert_eq!(read(bytes), Ok(value));
        assert!(read(&bytes[..67]).is_err());
    }
    let bytes = message(|out, start| EchoRequest.encode(out, start));
    four(EchoRequest, &bytes, EchoRequest::read);
    let bytes = message(|out, start| CancelRequest.encode(out, start));
    four(CancelRequest, &bytes, CancelRequest::read);
    let bytes = message(|out, start| LockResponse.encode(out, start));
    four(LockResponse, &bytes, LockResponse::read);
    let bytes = message(|out, start| FlushResponse.encode(out, start));
    four(FlushResponse, &bytes, FlushResponse::read);
    let bytes = message(|out, start| SetInfoResponse.encode(out, start));
    assert_eq!(bytes[64..], [2, 0]);
    assert_eq!(SetInfoResponse::read(&bytes), Ok(SetInfoResponse));
    let bytes = message(|out, start| ErrorResponse::EMPTY.encode(out, start));
    assert_eq!(bytes.len(), 73);
    assert_eq!(Status::SUCCESS.0, 0);
}
