//! The checks that every request must pass before its handler runs ([MS-SMB2] 3.3.5.2.4 to 3.3.5.2.11).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use smb_wire::{
    header::{Command, HeaderFlags},
    ids::SessionId,
    msg::Dialect,
    status::Status,
};
use vfs::Vfs;

use super::{
    Call,
    chain::Chain,
    table::{self, Needs},
};
use crate::{
    connection::Connection,
    failure::Failure,
    link::{
        inbound::{Request, Signature},
        misbehaved::Misbehaved,
    },
    state::SessionPhase,
};

/// Header flags a request may carry whatever the dialect.
const REQUEST_FLAGS: u32 =
    HeaderFlags::RELATED.bits() | HeaderFlags::SIGNED.bits() | HeaderFlags::DFS.bits();

/// Checks a request and resolves what its command needs.
///
/// The call is handed back even when it is refused: the refusal must be signed or sealed as its
/// success would have been.
pub(super) fn admit<V: Vfs>(
    connection: &Rc<Connection<V>>,
    chain: &Rc<Chain<V>>,
    request: Request,
    last: bool,
) -> (Call<V>, Result<(), Failure>) {
    let mut header = request.header;
    let needs_tree = table::needs_tree::<V>(header.command);
    let related = chain.relate(&mut header, needs_tree);
    let channel = connection.channel(header.session_id);
    let mut call = Call {
        connection: Rc::clone(connection),
        chain: Rc::clone(chain),
        header,
        message: request.message,
        channel,
        tree: None,
        signed: request.signature == Signature::Good,
        encrypted: chain.sealed_by().is_some(),
        last,
        sign_with: RefCell::new(None),
        replayable: Cell::new(false),
        place: RefCell::new(None),
        turn: Cell::new(0),
    };
    let admitted = related.and_then(|()| check(&mut call, request.signature));
    (call, admitted)
}

fn check<V: Vfs>(call: &mut Call<V>, signature: Signature) -> Result<(), Failure> {
    let command = call.header.command;
    let Some(row) = table::row::<V>(command) else {
        // Alone it costs the connection; behind others, whose answers are due, an error.
        return Err(if call.chain.is_under_way() {
            Status::INVALID_PARAMETER.into()
        } else {
            Failure::Disconnect(Misbehaved::UnknownCommand)
        });
    };
    let needs_session = row.needs.session(&call.header);
    check_order(call)?;
    check_flags(call)?;
    if command == Command::NEGOTIATE && call.header.flags.contains(HeaderFlags::SIGNED) {
        // [MS-SMB2] 3.3.5.2.4.
        return Err(Status::INVALID_PARAMETER.into());
    }
    if needs_session {
        check_session(call)?;
    }
    check_signature(call, signature, needs_session)?;
    if row.needs == Needs::Tree {
        check_tree(call)?;
    }
    Ok(())
}

/// NEGOTIATE first, and once.
fn check_order<V: Vfs>(call: &Call<V>) -> Result<(), Failure> {
    let negotiated = call.connection.negotiated().is_some();
    match (call.header.command == Command::NEGOTIATE, negotiated) {
        (true, true) => Err(Failure::Disconnect(Misbehaved::NegotiatedTwice)),
        (false, false) => Err(Failure::Disconnect(Misbehaved::NotNegotiated)),
        _ => Ok(()),
    }
}

/// Refuses header flags that the dialect does not have: the priority bits are valid on 3.1.1 (and on
/// NEGOTIATE), REPLAY from 3.0 on (docs/protocol-notes.md, "Header flags of a request").
fn check_flags<V: Vfs>(call: &Call<V>) -> Result<(), Failure> {
    let dialect = call.connection.dialect();
    let mut allowed = REQUEST_FLAGS;
    if dialect >= Dialect::SMB_3_1_1 || call.header.command == Command::NEGOTIATE {
        allowed |= HeaderFlags::PRIORITY_MASK.bits();
    }
    if dialect >= Dialect::SMB_3_0 {
        allowed |= HeaderFlags::REPLAY.bits();
    }
    if call.header.flags.bits() & !allowed != 0 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(())
}

/// [MS-SMB2] 3.3.5.2.9.
fn check_session<V: Vfs>(call: &Call<V>) -> Result<(), Failure> {
    let session = call.session()?;
    match session.phase() {
        SessionPhase::Closed => Err(Status::USER_SESSION_DELETED.into()),
        _ if session.encrypts() && !call.encrypted => Err(Status::ACCESS_DENIED.into()),
        _ => Ok(()),
    }
}

/// [MS-SMB2] 3.3.5.2.4. SESSION_SETUP looks at its own signature (binding, re-authentication).
fn check_signature<V: Vfs>(
    call: &Call<V>,
    signature: Signature,
    needs_session: bool,
) -> Result<(), Failure> {
    match signature {
        Signature::Good => Ok(()),
        Signature::Bad => Err(Status::ACCESS_DENIED.into()),
        Signature::NoKey => Err(Status::NOT_SUPPORTED.into()),
        // A binding is signed with the key of a session of another connection.
        Signature::NoSession
            if call.header.session_id == SessionId::default()
                || call.header.command == Command::SESSION_SETUP =>
        {
            Ok(())
        }
        Signature::NoSession => Err(Status::USER_SESSION_DELETED.into()),
        Signature::Absent => match call.session() {
            Ok(session) if needs_session && session.must_sign() && !call.encrypted => {
                Err(Status::ACCESS_DENIED.into())
            }
            _ => Ok(()),
        },
    }
}

/// [MS-SMB2] 3.3.5.2.11.
fn check_tree<V: Vfs>(call: &mut Call<V>) -> Result<(), Failure> {
    let tree = call
        .session()?
        .tables()
        .trees
        .get(&call.header.tree_id)
        .map(Arc::clone)
        .ok_or(Status::NETWORK_NAME_DELETED)?;
    // A further channel of the session may come from elsewhere than its TREE_CONNECT.
    let elsewhere = !tree.admits_from(call.connection.peer.ip());
    let refused = tree.encrypted && !call.encrypted || elsewhere;
    call.tree = Some(tree);
    if refused {
        return Err(Status::ACCESS_DENIED.into());
    }
    Ok(())
}
