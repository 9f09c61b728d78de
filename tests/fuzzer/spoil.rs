//! Requests made wrong: fields of the body at random, and what the header says.

use bytes::BytesMut;
use smb_client::Request;
use smb_tests::rng::Rng;
use smb_wire::Command;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{MessageId, SessionId, TreeId};

use crate::judge::foreign;

/// Where the body begins.
const BODY: usize = 64;
/// NameOffset in the body of a CREATE ([MS-SMB2] 2.2.13).
const CREATE_NAME_AT: usize = 44;

/// A request spoilt, and whether the server may close the connection for it or read another
/// message than was counted.
///
/// `sessions` are of other connections: one of the same connection would make the request another
/// user's, who may do what `user` may not.
pub(crate) fn spoil(
    rng: &mut Rng,
    request: Request,
    user: usize,
    sessions: &[u64],
    sealed: bool,
) -> (Request, bool) {
    let rough = rng.once_in(12);
    let how = rng.below(24);
    let request = match (rough, how) {
        (true, _) => return (roughly(rng, request), true),
        (false, 0..=14) => match (names_a_secret(&request, user), request.command) {
            (true, Command::CREATE) => {
                request.mutate(|message| fields(rng, message, CREATE_NAME_AT))
            }
            (true, _) => request,
            (false, _) => {
                // Fields lie before the buffers.
                let part = if rng.once_in(4) { usize::MAX } else { 56 };
                request.mutate(|message| fields(rng, message, part))
            }
        },
        (false, 15) => request.mutate(|message| {
            let len = BODY + rng.below((message.len() - BODY) as u64 + 1) as usize;
            message.truncate(len);
        }),
        (false, 16) => request.mutate(|message| {
            let more = rng.below(40) as usize;
            message.resize(message.len() + more, 0x5a);
        }),
        (false, 17) => request.session(SessionId(match sessions.len() {
            0 => rng.draw(),
            many => sessions[rng.below(many as u64) as usize],
        })),
        (false, 18) => request.session(SessionId(rng.pick(&[0, 1, u64::MAX]))),
        (false, 19) => request.tree(TreeId(rng.below(12) as u32)),
        (false, 20) => request.flag(rng.pick(&[HeaderFlags::REPLAY, HeaderFlags::DFS])),
        (false, 21) => request.overriding(|how| how.sign = Some(false)),
        (false, 22) => request.overriding(|how| how.credits = Some(rng.pick(&[0, 1, u16::MAX]))),
        (false, _) => {
            let mut request = request;
            request.channel_sequence = rng.draw() as u16;
            request
        }
    };
    // [MS-SMB2] 3.3.5.2.1.1: a sealed message of another session ends the connection.
    (request, sealed && matches!(how, 17 | 18))
}

fn roughly(rng: &mut Rng, mut request: Request) -> Request {
    match rng.below(8) {
        0 => request.overriding(|how| how.corrupt_signature = true),
        1 => request.overriding(|how| how.credit_charge = Some(rng.below(300) as u16)),
        2 => request.overriding(|how| how.message_id = Some(MessageId(rng.below(64)))),
        3 => request.overriding(|how| how.next_command = Some(rng.below(300) as u32)),
        4 => request.flag(HeaderFlags(rng.draw() as u32 & 0x3000_007f)),
        5 => request.overriding(|how| how.encrypt = Some(false)),
        6 => request.overriding(|how| how.transform_session_id = Some(SessionId(rng.below(9)))),
        _ => {
            request.command = smb_wire::Command(rng.below(24) as u16);
            request
        }
    }
}

/// Whether the request names what is somebody else's. Cut or joined otherwise, the name would be one
/// of the sender's own making, and show him the marker in his own listing.
fn names_a_secret(request: &Request, user: usize) -> bool {
    foreign(request.message(), Some(user)).is_some()
}

/// Some fields in the first `part` bytes of the body take other values: those at which arithmetic
/// goes wrong, and any.
fn fields(rng: &mut Rng, message: &mut BytesMut, part: usize) {
    let end = message.len().min(part.saturating_add(BODY));
    let Some(fields) = end.checked_sub(BODY).filter(|fields| *fields > 0) else {
        return;
    };
    for _ in 0..1 + rng.below(3) {
        let width = rng.pick(&[1, 2, 2, 4, 4, 8]);
        let at = BODY + (rng.below(fields as u64) as usize / width) * width;
        let value: u64 = rng.pick(&[
            0,
            1,
            2,
            8,
            64,
            0x7f,
            0x80,
            0xff,
            0x7fff,
            0xffff,
            0x10_0000,
            0x7fff_ffff,
            u64::from(u32::MAX),
            i64::MAX as u64,
            u64::MAX,
        ]);
        let value = if rng.once_in(3) { rng.draw() } else { value };
        for (to, byte) in message[..end]
            .iter_mut()
            .skip(at)
            .zip(&value.to_le_bytes()[..width])
        {
            *to = *byte;
        }
    }
}
