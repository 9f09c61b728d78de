//! A session is made only as long as its connection can end it, and its setup is young enough.

use smb_crypto::{PreauthHash, SigningAlgorithm};
use smb_wire::{header::Header, ids::Guid, msg::Capabilities};

use super::*;
use crate::{
    command::chain::Chain,
    limits::ServerLimits,
    restore::world::{Back, World, connection},
};

/// The last leg of a login of nobody, whose connection may be lost by now.
fn call(world: &World, lost: bool) -> Call<Back> {
    let server = &world.server;
    let connection = connection(server, None);
    if lost {
        connection.close();
    }
    let chain = Rc::new(Chain::new(&connection, None, 1));
    Call {
        last: true,
        ..Call::new(&chain, &connection, Header::default())
    }
}

fn is_established(call: &Call<Back>, id: SessionId) -> bool {
    let request = SessionSetupRequest {
        flags: SessionSetupFlags::empty(),
        security_mode: SecurityMode::empty(),
        capabilities: Capabilities::empty(),
        previous_session_id: SessionId::default(),
        security_buffer: &[],
    };
    let facts = Negotiated {
        dialect: Dialect::SMB_3_1_1,
        client_guid: Guid::default(),
        client_capabilities: Capabilities::empty(),
        client_security_mode: SecurityMode::empty(),
        client_dialects: Vec::new(),
        server_capabilities: Capabilities::empty(),
        server_security_mode: SecurityMode::empty(),
        cipher: None,
        signing: SigningAlgorithm::AesCmac,
        multi_credit: true,
        io_bytes: 65_536,
    };
    let config = call.server().config();
    let setup = Setup {
        acceptor: Acceptor::new(Arc::new(params(&config))),
        preauth: PreauthHash::new(),
        started: Duration::ZERO,
        purpose: Purpose::New,
        _memory: None,
    };
    let token = Token::anonymous(&config);
    establish(call, &request, &facts, id, &setup, token, None).is_ok()
}

#[test]
fn a_lost_connection_gets_no_session() {
    let world = World::new(false, ServerLimits::default());
    assert!(is_established(&call(&world, false), SessionId(1)));
    assert!(!is_established(&call(&world, true), SessionId(2)));
    assert_eq!(world.server.all_sessions().len(), 1);
}

/// Whether the next leg of a login that has just begun continues it.
fn is_continued(setup_seconds: u64) -> bool {
    let limits = ServerLimits {
        setup_seconds,
        ..ServerLimits::default()
    };
    let mut call = call(&World::new(false, limits), false);
    let (id, setup) = begin(&call, false).ok().unwrap();
    call.connection.setups.borrow_mut().insert(id, setup);
    call.header.session_id = id;
    begin(&call, false).is_ok()
}

#[test]
fn a_setup_that_was_given_up_long_ago_does_not_continue() {
    assert!(is_continued(1));
    assert!(!is_continued(0));
}

/// How many logins can begin on a connection that may have 20 sessions, and the memory that they are charged.
fn logins_at_once(buffer_memory: usize) -> (usize, usize) {
    let limits = ServerLimits {
        buffer_memory,
        sessions_per_connection: 20,
        ..ServerLimits::default()
    };
    let world = World::new(false, limits);
    let call = call(&world, false);
    let used = || world.server.memory.figures().used;
    let before = used();
    let begins = || {
        let Ok((id, setup)) = begin(&call, false) else {
            return false;
        };
        call.connection.setups.borrow_mut().insert(id, setup);
        true
    };
    let begun = (0..100).filter(|_| begins()).count();
    let charged = used() - before;
    call.connection.setups.borrow_mut().clear();
    assert_eq!(used(), before);
    (begun, charged)
}

#[test]
fn all_users_of_a_terminal_server_log_in_at_once() {
    let all = SETUPS_UNCHARGED + 20;
    assert_eq!(logins_at_once(1 << 30), (all, 20 * SETUP_MEMORY));
    assert_eq!(logins_at_once(0), (SETUPS_UNCHARGED, 0));
}
