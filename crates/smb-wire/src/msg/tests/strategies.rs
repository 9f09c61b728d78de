//! Random values for the round trips.

use proptest::prelude::*;

use crate::header::{Command, Header, HeaderFlags};
use crate::ids::{AsyncId, FileId, FileTime, MessageId, SessionId, TreeId};
use crate::status::Status;

/// Up to `max` bytes.
pub(super) fn blob(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

/// Any handle.
pub(super) fn file_id() -> impl Strategy<Value = FileId> {
    any::<(u64, u64)>().prop_map(|(persistent, volatile)| FileId {
        persistent,
        volatile,
    })
}

/// Any four times.
pub(super) fn times() -> impl Strategy<Value = [FileTime; 4]> {
    any::<[u64; 4]>().prop_map(|times| times.map(FileTime))
}

/// Any header; the ASYNC flag follows from the id.
pub(super) fn header() -> impl Strategy<Value = Header> {
    let numbers = any::<(u16, u32, u16, u16, u32, u32, u64)>();
    (
        numbers,
        any::<Option<u64>>(),
        any::<(u32, u32)>(),
        any::<u64>(),
        any::<[u8; 16]>(),
    )
        .prop_map(
            |(
                (credit_charge, status, command, credits, flags, next_command, id),
                asynchronous,
                (reserved, tree),
                session,
                signature,
            )| {
                let async_id = asynchronous.map(AsyncId);
                let flags = HeaderFlags(flags).without(HeaderFlags::ASYNC);
                Header {
                    credit_charge,
                    status: Status(status),
                    command: Command(command),
                    credits,
                    flags: flags | HeaderFlags::ASYNC.when(async_id.is_some()),
                    next_command,
                    message_id: MessageId(id),
                    async_id,
                    reserved: if async_id.is_some() { 0 } else { reserved },
                    tree_id: TreeId(if async_id.is_some() { 0 } else { tree }),
                    session_id: SessionId(session),
                    signature,
                }
            },
        )
}
