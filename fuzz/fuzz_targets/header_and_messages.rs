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

macro_rules! by_command {
    ($command:expr, $bytes:expr, $($name:ident: $($message:ident)*;)*) => {
        match $command {
            $(Command::$name => both_ways!($bytes, $($message)*),)*
            _ => {}
        }
    };
}

fn message(encode: impl FnOnce(&mut BytesMut, usize)) -> BytesMut {
    let mut out = BytesMut::new();
    Header::default().encode(&mut out);
    encode(&mut out, 0);
    out
}

fn body(command: Command, bytes: &[u8]) {
    by_command! { command, bytes,
        NEGOTIATE: NegotiateRequest NegotiateResponse;
        SESSION_SETUP: SessionSetupRequest SessionSetupResponse;
        LOGOFF: LogoffRequest LogoffResponse;
        TREE_CONNECT: TreeConnectRequest TreeConnectResponse;
        TREE_DISCONNECT: TreeDisconnectRequest TreeDisconnectResponse;
        CREATE: CreateRequest CreateResponse;
        CLOSE: CloseRequest CloseResponse;
        FLUSH: FlushRequest FlushResponse;
        READ: ReadRequest ReadResponse;
        WRITE: WriteRequest WriteResponse;
        LOCK: LockRequest LockResponse;
        IOCTL: IoctlRequest IoctlResponse;
        CANCEL: CancelRequest;
        ECHO: EchoRequest EchoResponse;
        QUERY_DIRECTORY: QueryDirectoryRequest QueryDirectoryResponse;
        CHANGE_NOTIFY: ChangeNotifyRequest ChangeNotifyResponse;
        QUERY_INFO: QueryInfoRequest QueryInfoResponse;
        SET_INFO: SetInfoRequest SetInfoResponse;
        OPLOCK_BREAK: OplockBreakRequest OplockBreakServerMessage;
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
