//! A message of the transport: taken apart, each element read as request and as response, and
//! what could be read is written, read and written again, to the same bytes.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smb_wire::msg::*;
use smb_wire::{Command, Header, compound};

macro_rules! both_ways {
    ($bytes:expr, $($name:ident)*) => {
        {$(if let Ok(value) = $name::read($bytes) {
            let written = message(|out, start| value.encode(out, start));
            let again = $name::read(&written).expect("what was written is readable");
            assert_eq!(message(|out, start| again.encode(out, start)), written);
        })*}
    };
}

fn message(encode: impl FnOnce(&mut BytesMut, usize)) -> BytesMut {
    let mut out = BytesMut::new();
    Header::default().encode(&mut out);
    encode(&mut out, 0);
    out
}

fn body(command: Command, bytes: &[u8]) {
    match command {
        Command::NEGOTIATE => both_ways!(bytes, NegotiateRequest NegotiateResponse),
        Command::SESSION_SETUP => both_ways!(bytes, SessionSetupRequest SessionSetupResponse),
        Command::LOGOFF => both_ways!(bytes, LogoffRequest LogoffResponse),
        Command::TREE_CONNECT => both_ways!(bytes, TreeConnectRequest TreeConnectResponse),
        Command::TREE_DISCONNECT => both_ways!(bytes, TreeDisconnectRequest TreeDisconnectResponse),
        Command::CREATE => both_ways!(bytes, CreateRequest CreateResponse),
        Command::CLOSE => both_ways!(bytes, CloseRequest CloseResponse),
        Command::FLUSH => both_ways!(bytes, FlushRequest FlushResponse),
        Command::READ => both_ways!(bytes, ReadRequest ReadResponse),
        Command::WRITE => both_ways!(bytes, WriteRequest WriteResponse),
        Command::LOCK => both_ways!(bytes, LockRequest LockResponse),
        Command::IOCTL => both_ways!(bytes, IoctlRequest IoctlResponse),
        Command::CANCEL => both_ways!(bytes, CancelRequest),
        Command::ECHO => both_ways!(bytes, EchoRequest EchoResponse),
        Command::QUERY_DIRECTORY => both_ways!(bytes, QueryDirectoryRequest QueryDirectoryResponse),
        Command::CHANGE_NOTIFY => both_ways!(bytes, ChangeNotifyRequest ChangeNotifyResponse),
        Command::QUERY_INFO => both_ways!(bytes, QueryInfoRequest QueryInfoResponse),
        Command::SET_INFO => both_ways!(bytes, SetInfoRequest SetInfoResponse),
        Command::OPLOCK_BREAK => both_ways!(bytes, OplockBreakRequest OplockBreakServerMessage),
        _ => {}
    }
    both_ways!(bytes, ErrorResponse);
    if let Ok(response) = ErrorResponse::read(bytes) {
        response.contexts().for_each(drop);
    }
}

fuzz_target!(|data: &[u8]| {
    for element in compound::elements(data) {
        let Ok(element) = element else { break };
        let mut written = BytesMut::new();
        element.header.encode(&mut written);
        assert_eq!(Header::read(&written), Ok(element.header));
        body(element.header.command, &data[element.range]);
    }
});
