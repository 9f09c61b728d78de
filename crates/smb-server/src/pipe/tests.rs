//! The state machine of a pipe with the bytes of real clients and with hostile input.

use std::{cell::Cell, rc::Rc, sync::Arc};

use bytes::BytesMut;
use hex_literal::hex;
use smb_auth::{MachineSid, UserDb};
use smb_wire::{
    dtyp::Sid,
    ids::Guid,
    msg::Dialect,
    rpc::{
        Bind, BindAck, ContextHandle, FaultPdu, FaultStatus, Interface, PduHeader, PduType,
        PfcFlags, PresentationContext, RequestPdu, Response, ResultCode, SyntaxId,
    },
    status::Status,
    utf16,
};
use vfs::Timestamp;

use super::{
    link::RpcLink,
    world::{LazyReport, SeenShare, World},
};
use crate::{
    administration::Report, config::ServerConfig, failure::Failure, limits::ServerLimits,
    token::Token,
};

/// A bind of rpcclient 4.17 to srvsvc, and what Samba answered.
const BIND: &[u8] = &hex!(
    "05000b03100000004800000001000000b810b810000000000100000000000100c84f324b7016d30112785a47
     bf6ee18803000000045d888aeb1cc9119fe808002b10486002000000"
);
const BIND_ACK: &[u8] = &hex!(
    "05000c03100000004400000001000000b810b810f05300000d005c706970655c737276737663000001000000
     00000000045d888aeb1cc9119fe808002b10486002000000"
);
/// NetrShareEnum at level 1 as rpcclient sends it.
const SHARE_ENUM: &[u8] = &hex!(
    "000002000a000000000000000a0000003100320037002e0030002e0030002e00310000000100000001000000
     040002000000000000000000ffffffff0800020000000000"
);

fn share(name: &str, open: bool, admitted: bool) -> SeenShare {
    SeenShare {
        name: name.to_owned(),
        comment: String::new(),
        browseable: true,
        open,
        admitted,
        encrypted: false,
        access_based: false,
    }
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig {
        netbios_name: "HOLD".to_owned(),
        workgroup: "GROUP".to_owned(),
        dns_name: "hold.example".to_owned(),
        comment: String::new(),
        apple_model: String::new(),
        server_guid: Guid::default(),
        machine_sid: Sid::of(5, [21, 1, 2, 3]),
        dialect_min: Dialect::SMB_2_0_2,
        dialect_max: Dialect::SMB_3_1_1,
        signing_required: false,
        encryption_required: false,
        ciphers: Vec::new(),
        signing_algorithms: Vec::new(),
        allow_empty_passwords: false,
        anonymous_listing: false,
        administrators: None,
        switch_identity: false,
        guest_ids: (0, 0),
        limits: ServerLimits::default(),
        local_groups: Default::default(),
        local_accounts: Default::default(),
    }
}

pub(super) fn world(anonymous: bool) -> World {
    let config = config();
    let mut users = UserDb::new(MachineSid([1, 2, 3]));
    let rid = users.add_user("anna").unwrap();
    users.add_group("staff").unwrap();
    let mut token = Token::anonymous(&config);
    if !anonymous {
        token.anonymous = false;
        token.user = "anna".to_owned();
        token.domain = config.netbios_name.clone();
        token.user_sid = config.machine_sid.child(rid).unwrap();
    }
    World {
        config: Arc::new(config),
        users: Arc::new(users),
        token: Arc::new(token),
        shares: vec![
            share("data", false, !anonymous),
            share("hers", false, false),
        ],
        activity: None,
        ends: Default::default(),
        now: Timestamp::default(),
        started: Timestamp::default(),
        guests_welcome: false,
    }
}

fn bound(interface: Interface, world: &World) -> RpcLink {
    let mut link = RpcLink::new(interface);
    let bind = Bind {
        max_xmit_frag: 4280,
        max_recv_frag: 4280,
        assoc_group_id: 0,
        contexts: vec![PresentationContext {
            id: 0,
            abstract_syntax: interface.syntax(),
            transfer_syntaxes: vec![SyntaxId::NDR32],
        }],
    };
    let mut out = BytesMut::new();
    bind.encode(PduType::BIND, 1, &mut out);
    write(&mut link, &out, world).unwrap();
    let ack = message(&mut link).unwrap();
    let (header, body, _) = PduHeader::read(&ack).unwrap();
    assert_eq!(header.pdu_type, PduType::BIND_ACK);
    let ack = BindAck::read(body).unwrap();
    assert_eq!(ack.results[0].result, ResultCode::ACCEPTANCE);
    link
}

/// Takes bytes, with every PDU that is complete.
fn write(link: &mut RpcLink, mut bytes: &[u8], world: &World) -> Result<(), Failure> {
    link.check()?;
    while link.take_pdu(&mut bytes, world).is_some() {}
    Ok(())
}

fn message(link: &mut RpcLink) -> Option<Vec<u8>> {
    let (data, more) = link.read(1 << 20).ok()??;
    assert!(!more);
    Some(data.to_vec())
}

fn request(opnum: u16, stub: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    RequestPdu {
        alloc_hint: 0,
        context_id: 0,
        opnum,
        object: None,
        stub,
    }
    .encode(7, &mut out);
    out
}

/// Makes a call and returns the reassembled stub of its answer.
fn call(
    link: &mut RpcLink,
    world: &World,
    opnum: u16,
    stub: &[u8],
) -> Result<Vec<u8>, FaultStatus> {
    write(link, &request(opnum, stub), world).unwrap();
    let mut whole = Vec::new();
    loop {
        let message = message(link).unwrap();
        let (header, body, rest) = PduHeader::read(&message).unwrap();
        assert!(rest.is_empty());
        assert_eq!(header.call_id, 7);
        if header.pdu_type == PduType::FAULT {
            return Err(FaultPdu::read(body).unwrap().status);
        }
        whole.extend_from_slice(Response::read(body).unwrap().stub);
        if header.flags.contains(PfcFlags::LAST_FRAG) {
            return Ok(whole);
        }
    }
}

fn holds(stub: &[u8], text: &str) -> bool {
    let wanted = utf16::encode(text);
    stub.windows(wanted.len()).any(|window| window == wanted)
}

#[test]
fn a_captured_bind_gets_the_captured_answer() {
    let mut link = RpcLink::new(Interface::Srvsvc);
    // Byte by byte: the pipe puts PDUs together itself.
    for byte in BIND {
        assert!(!link.is_readable());
        write(&mut link, &[*byte], &world(false)).unwrap();
    }
    assert_eq!(message(&mut link).unwrap(), BIND_ACK);
}

#[test]
fn shares_are_listed_as_the_client_may_see_them() {
    let world = world(false);
    let mut link = bound(Interface::Srvsvc, &world);
    let stub = call(&mut link, &world, 15, SHARE_ENUM).unwrap();
    assert!(holds(&stub, "data") && holds(&stub, "IPC$"));
    assert!(!holds(&stub, "hers"));
    assert!(stub.ends_with(&[0; 4]));
}

/// The list has every open of the server, so a client must not have it made with each fragment that it writes.
#[test]
fn the_use_of_the_server_is_listed_once_and_only_for_a_call_that_asks() {
    let lists = Rc::new(Cell::new(0));
    let counted = Rc::clone(&lists);
    let list = move || {
        counted.set(counted.get() + 1);
        Report::default()
    };
    let world = World {
        activity: Some(LazyReport::new(Box::new(list))),
        ..world(false)
    };
    let mut link = bound(Interface::Srvsvc, &world);
    call(&mut link, &world, 28, &[0; 4]).unwrap();
    call(&mut link, &world, 15, SHARE_ENUM).unwrap();
    assert_eq!(lists.get(), 0);
    // NetrFileClose, to this server, of the open 1.
    for _ in 0..2 {
        call(&mut link, &world, 11, &[0, 0, 0, 0, 1, 0, 0, 0]).unwrap();
    }
    assert_eq!(lists.get(), 1);
}

#[test]
fn nobody_in_particular_learns_nothing_unless_guests_are_welcome() {
    let mut world = world(true);
    let mut link = bound(Interface::Srvsvc, &world);
    let stub = call(&mut link, &world, 15, SHARE_ENUM).unwrap();
    assert!(stub.ends_with(&[5, 0, 0, 0]));
    assert!(!holds(&stub, "IPC$"));
    world.guests_welcome = true;
    world.shares.push(share("open", true, true));
    let stub = call(&mut link, &world, 15, SHARE_ENUM).unwrap();
    assert!(holds(&stub, "open") && !holds(&stub, "data"));

    let mut link = bound(Interface::Samr, &world);
    let stub = call(&mut link, &world, 57, &[0; 12]).unwrap();
    assert!(stub.ends_with(&Status::ACCESS_DENIED.0.to_le_bytes()));
    let mut link = bound(Interface::Lsarpc, &world);
    let stub = call(&mut link, &world, 6, &[0; 12]).unwrap();
    assert!(stub.ends_with(&Status::ACCESS_DENIED.0.to_le_bytes()));
}

#[test]
fn nobody_in_particular_lists_what_all_users_may_use_and_learns_nothing_else() {
    const SERVER_GET_INFO: u16 = 21;
    let mut world = world(true);
    world.config = Arc::new(ServerConfig {
        anonymous_listing: true,
        ..config()
    });
    world.shares[0].open = true;
    let mut link = bound(Interface::Srvsvc, &world);
    let stub = call(&mut link, &world, 15, SHARE_ENUM).unwrap();
    assert!(holds(&stub, "data") && holds(&stub, "IPC$") && !holds(&stub, "hers"));
    let stub = [0, 0, 0, 0, 101, 0, 0, 0];
    let answer = call(&mut link, &world, SERVER_GET_INFO, &stub);
    assert_eq!(answer, Err(FaultStatus::ACCESS_DENIED));
    // The caller is a guest, and none of these shares admits guests.
    world.token = Arc::new(Token::guest(&world.config));
    let stub = call(&mut link, &world, 15, SHARE_ENUM).unwrap();
    assert!(!holds(&stub, "data"));
}

#[test]
fn long_answers_come_in_fragments_and_short_reads_in_pieces() {
    let mut world = world(false);
    let many = (0..200).map(|n| share(&format!("a share with a long name {n}"), false, true));
    world.shares = many.collect();
    let mut link = bound(Interface::Srvsvc, &world);
    write(&mut link, &request(15, SHARE_ENUM), &world).unwrap();
    let (overflows, peeked) = link.peek(10);
    assert!(overflows && peeked.number_of_messages > 1);
    assert_eq!((peeked.data.len(), peeked.named_pipe_state), (10, 3));
    let (first, more) = link.read(100).unwrap().unwrap();
    assert!(more && first.len() == 100 && first[..10] == peeked.data[..]);
    let (rest, more) = link.read(1 << 20).unwrap().unwrap();
    assert!(!more && first.len() + rest.len() <= 4280);
    while link.is_readable() {
        link.read(1 << 20).unwrap();
    }
    assert_eq!(link.peek(0).1.read_data_available, 0);
    let stub = call(&mut link, &world, 15, SHARE_ENUM).unwrap();
    assert!(holds(&stub, "a share with a long name 199"));
}

fn handle(stub: &[u8]) -> ContextHandle {
    ContextHandle(stub[..20].try_into().unwrap())
}

#[test]
fn names_and_sids_are_looked_up_both_ways() {
    let world = world(false);
    let mut link = bound(Interface::Lsarpc, &world);
    let policy = handle(&call(&mut link, &world, 6, &[0; 12]).unwrap());
    let mut stub = smb_wire::rpc::NdrWriter::new();
    stub.handle(&policy);
    let sids = [
        Sid::EVERYONE,
        Sid::BUILTIN_USERS,
        Sid::unix_user(1000),
        world.token.user_sid,
        world.config.machine_sid.child(4711).unwrap(),
    ];
    stub.count(sids.len());
    stub.pointer(true);
    stub.count(sids.len());
    for _ in &sids {
        stub.pointer(true);
    }
    for sid in &sids {
        stub.sid(sid);
    }
    let answer = call(&mut link, &world, 15, &stub.finish()).unwrap();
    for name in ["Everyone", "Users", "Unix User", "1000", "anna", "-4711"] {
        assert!(holds(&answer, name), "{name}");
    }
    assert!(answer.ends_with(&Status::SOME_NOT_MAPPED.0.to_le_bytes()));
    for (text, sid) in [
        ("anna", world.token.user_sid),
        (r"BUILTIN\users", Sid::BUILTIN_USERS),
        (r"Unix User\1000", Sid::unix_user(1000)),
        ("authenticated users", Sid::AUTHENTICATED_USERS),
        ("BUILTIN", Sid::BUILTIN),
    ] {
        let found = super::names::of_name(&world, text).unwrap();
        assert_eq!(found.sid, sid, "{text}");
    }
    assert_eq!(super::names::of_name(&world, r"nowhere\anna"), None);
}

/// A guest could list the accounts by counting through their numbers.
#[test]
fn a_guest_looks_up_no_account_but_his_own() {
    let mut world = world(false);
    let anna = world.token.user_sid;
    assert!(super::names::of_sid(&world, &anna).is_some());
    world.token = Arc::new(Token::guest(&world.config));
    assert_eq!(super::names::of_sid(&world, &anna), None);
    for name in ["anna", r"HOLD\anna", "staff"] {
        assert_eq!(super::names::of_name(&world, name), None, "{name}");
    }
    for sid in [
        Sid::EVERYONE,
        Sid::BUILTIN_USERS,
        Sid::unix_user(1000),
        world.token.user_sid,
    ] {
        assert!(super::names::of_sid(&world, &sid).is_some(), "{sid}");
    }
}

/// The local user and group that an account alone is are found as the account, by name and by SID.
#[test]
fn a_bound_user_is_found_as_the_account() {
    let mut world = world(false);
    let mut config = ServerConfig {
        switch_identity: true,
        guest_ids: (65_534, 65_534),
        ..(*world.config).clone()
    };
    let me = world.token.user_sid;
    let (_, rid) = me.split_rid().unwrap();
    let bound = [
        (rid, Some((1000, 100))),
        (rid + 1, Some((1001, 1001))),
        (rid + 2, Some((1001, 7))),
    ];
    config.local_accounts = crate::config::LocalAccounts::of(&config, bound, false);
    world.config = Arc::new(config);
    for sid in [Sid::unix_user(1000), Sid::unix_group(100), me] {
        let found = super::names::of_sid(&world, &sid).unwrap();
        assert_eq!((&found.name[..], found.sid), ("anna", me), "{sid}");
        assert_eq!(found.domain.1, world.config.machine_sid);
    }
    for name in [r"Unix User\1000", r"unix group\100", "anna"] {
        assert_eq!(
            super::names::of_name(&world, name).unwrap().sid,
            me,
            "{name}"
        );
    }
    // Two accounts are that one.
    let shared = Sid::unix_user(1001);
    assert_eq!(super::names::of_sid(&world, &shared).unwrap().sid, shared);
}

/// Clients such as rpcclient take a list without this status for complete.
#[test]
fn more_users_than_the_client_asks_for_are_announced() {
    let mut world = world(false);
    let mut users = UserDb::new(MachineSid([1, 2, 3]));
    for name in ["anna", "bert"] {
        users.add_user(name).unwrap();
    }
    world.users = Arc::new(users);
    let mut link = bound(Interface::Samr, &world);
    let server = handle(&call(&mut link, &world, 0, &[0; 8]).unwrap());
    let mut stub = smb_wire::rpc::NdrWriter::new();
    stub.handle(&server);
    stub.u32(0);
    stub.sid(&world.config.machine_sid);
    let domain = handle(&call(&mut link, &world, 7, &stub.finish()).unwrap());
    for (index, count, seen, status) in [
        (0, 1, &["anna"][..], 0x105),
        (1, 1, &["bert"][..], 0),
        (0, 2, &["anna", "bert"][..], 0),
        (0, 0, &["anna"][..0], 0),
    ] {
        let mut stub = smb_wire::rpc::NdrWriter::new();
        stub.handle(&domain);
        stub.u16(1);
        stub.u32(index);
        stub.u32(count);
        stub.u32(u32::MAX);
        let answer = call(&mut link, &world, 40, &stub.finish()).unwrap();
        for name in ["anna", "bert"] {
            assert_eq!(holds(&answer, name), seen.contains(&name), "{name}");
        }
        let last = answer.last_chunk().copied().unwrap();
        assert_eq!(u32::from_le_bytes(last), status);
    }
}

/// [MS-SAMR] 3.1.5.9.2, 3.1.5.13.3, 3.1.5.13.4; `net user NAME` of Windows asks for these.
#[test]
fn the_aliases_of_a_user_and_the_rules_for_passwords_are_returned() {
    let mut world = world(false);
    let mut users = UserDb::new(MachineSid([1, 2, 3]));
    let anna = users.add_user("anna").unwrap();
    let staff = users.add_group("staff").unwrap();
    users.add_member("staff", "anna").unwrap();
    world.users = Arc::new(users);
    let mut link = bound(Interface::Samr, &world);
    let server = handle(&call(&mut link, &world, 0, &[0; 8]).unwrap());
    let of = |rid| world.config.machine_sid.child(rid).unwrap();
    let strangers = [of(staff), Sid::EVERYONE];
    for (domain, accounts, rids) in [
        (
            world.config.machine_sid,
            [of(anna), Sid::EVERYONE],
            vec![staff],
        ),
        (world.config.machine_sid, strangers, vec![]),
        (Sid::BUILTIN, [of(anna), Sid::EVERYONE], vec![545]),
        (Sid::BUILTIN, [Sid::AUTHENTICATED_USERS, of(99)], vec![545]),
        (Sid::BUILTIN, strangers, vec![]),
    ] {
        let mut stub = smb_wire::rpc::NdrWriter::new();
        stub.handle(&server);
        stub.u32(0);
        stub.sid(&domain);
        let domain = handle(&call(&mut link, &world, 7, &stub.finish()).unwrap());
        let mut stub = smb_wire::rpc::NdrWriter::new();
        stub.handle(&domain);
        stub.array_head(2);
        accounts.iter().for_each(|_| stub.pointer(true));
        accounts.iter().for_each(|sid| stub.sid(sid));
        let answer = call(&mut link, &world, 16, &stub.finish()).unwrap();
        let numbers: Vec<u8> = rids
            .iter()
            .flat_map(|rid: &u32| rid.to_le_bytes())
            .collect();
        assert_eq!(answer[12..], [&numbers[..], &[0; 4]].concat());
        // A domain is no user.
        let refused = call(&mut link, &world, 44, &domain.0);
        assert_eq!(refused, Err(FaultStatus::CONTEXT_MISMATCH));
    }
    assert_eq!(call(&mut link, &world, 56, &[0; 4]).unwrap(), [0; 12]);
    world.token = Arc::new(Token::anonymous(&world.config));
    let refused = call(&mut link, &world, 56, &[0; 4]).unwrap();
    assert_eq!(refused[8..], Status::ACCESS_DENIED.0.to_le_bytes());
}

#[test]
fn a_domain_says_how_many_accounts_it_has() {
    let world = world(false);
    let mut link = bound(Interface::Samr, &world);
    let server = handle(&call(&mut link, &world, 0, &[0; 8]).unwrap());
    for (sid, name, counts) in [
        (world.config.machine_sid, "HOLD", [1, 1, 1]),
        (Sid::BUILTIN, "Builtin", [0, 0, 3]),
    ] {
        let mut stub = smb_wire::rpc::NdrWriter::new();
        stub.handle(&server);
        stub.u32(0);
        stub.sid(&sid);
        let domain = handle(&call(&mut link, &world, 7, &stub.finish()).unwrap());
        let mut stub = smb_wire::rpc::NdrWriter::new();
        stub.handle(&domain);
        stub.u16(2);
        let stub = stub.finish();
        let answer = call(&mut link, &world, 46, &stub).unwrap();
        assert!(holds(&answer, name), "{name}");
        let numbers: Vec<u8> = counts.into_iter().flat_map(u32::to_le_bytes).collect();
        assert_eq!(answer[60..72], numbers, "{name}");
        // The server is no domain.
        let at_server = [&server.0[..], &[2, 0]].concat();
        let refused = call(&mut link, &world, 8, &at_server);
        assert_eq!(refused, Err(FaultStatus::CONTEXT_MISMATCH));
    }
}

#[test]
fn no_account_has_rights_and_shares_are_on_one_drive() {
    let world = world(false);
    let mut link = bound(Interface::Lsarpc, &world);
    let policy = handle(&call(&mut link, &world, 6, &[0; 12]).unwrap());
    for (policy, expected) in [
        (policy, Ok(())),
        (ContextHandle::default(), Err(FaultStatus::CONTEXT_MISMATCH)),
    ] {
        let mut stub = smb_wire::rpc::NdrWriter::new();
        stub.handle(&policy);
        stub.sid(&world.token.user_sid);
        let answer = call(&mut link, &world, 36, &stub.finish());
        assert_eq!(answer.clone().map(drop), expected);
        let unknown = Status::OBJECT_NAME_NOT_FOUND.0.to_le_bytes();
        assert!(answer.is_err() || answer.unwrap().ends_with(&unknown));
    }
    let mut link = bound(Interface::Srvsvc, &world);
    let answer = call(&mut link, &world, 23, &[0; 24]).unwrap();
    assert!(holds(&answer, "C:") && answer.ends_with(&[0; 4]));
}

/// smbcacls takes for granted that an answer to LsarQueryInformationPolicy2 has a SID; a server that is
/// in no domain has none to give, and leaves the call to domain controllers, as Samba does.
#[test]
fn the_policy_of_a_domain_is_not_reported_by_who_has_none() {
    let world = world(false);
    let mut link = bound(Interface::Lsarpc, &world);
    let policy = handle(&call(&mut link, &world, 6, &[0; 12]).unwrap());
    let mut stub = smb_wire::rpc::NdrWriter::new();
    stub.handle(&policy);
    stub.u16(3);
    let stub = stub.finish();
    let refused = call(&mut link, &world, 46, &stub);
    assert_eq!(refused, Err(FaultStatus::OP_RNG_ERROR));
    assert!(call(&mut link, &world, 7, &stub).is_ok());
    // [MS-LSAT] 2.1: calls that exist over TCP/IP only.
    for opnum in [76, 77] {
        let refused = call(&mut link, &world, opnum, &stub);
        assert_eq!(refused, Err(FaultStatus::ACCESS_DENIED));
    }
    let answer = call(&mut link, &world, 1, &stub).unwrap();
    assert_eq!(answer[..], Status::NOT_SUPPORTED.0.to_le_bytes());
}

/// Windows' dialog for users and groups asks this on the pipe of the policy, in a context that it adds.
#[test]
fn the_pipe_of_the_policy_also_says_that_the_server_is_in_no_domain() {
    let ask = |world: &World, link: &mut RpcLink| {
        let mut out = BytesMut::new();
        RequestPdu {
            alloc_hint: 0,
            context_id: 1,
            opnum: 0,
            object: None,
            stub: &[1, 0],
        }
        .encode(8, &mut out);
        write(link, &out, world).unwrap();
        message(link).unwrap()
    };
    let mut world = world(false);
    let mut link = bound(Interface::Lsarpc, &world);
    let mut added = Bind {
        max_xmit_frag: 4280,
        max_recv_frag: 4280,
        assoc_group_id: 0,
        contexts: vec![PresentationContext {
            id: 1,
            abstract_syntax: Interface::Dssetup.syntax(),
            transfer_syntaxes: vec![SyntaxId::NDR32],
        }],
    };
    let mut out = BytesMut::new();
    added.encode(PduType::ALTER_CONTEXT, 7, &mut out);
    write(&mut link, &out, &world).unwrap();
    let ack = message(&mut link).unwrap();
    let (header, body, _) = PduHeader::read(&ack).unwrap();
    assert_eq!(header.pdu_type, PduType::ALTER_CONTEXT_RESP);
    let ack = BindAck::read(body).unwrap();
    assert_eq!(ack.results[0].result, ResultCode::ACCEPTANCE);
    let answer = ask(&world, &mut link);
    let (_, body, _) = PduHeader::read(&answer).unwrap();
    let stub = Response::read(body).unwrap().stub;
    assert!(holds(stub, "GROUP") && stub.ends_with(&[0; 4]));
    // The first context is still that of the policy, and its number is given to no other interface.
    assert!(call(&mut link, &world, 6, &[0; 12]).is_ok());
    added.contexts[0].id = 0;
    let mut out = BytesMut::new();
    added.encode(PduType::ALTER_CONTEXT, 7, &mut out);
    write(&mut link, &out, &world).unwrap();
    let ack = message(&mut link).unwrap();
    let (_, body, _) = PduHeader::read(&ack).unwrap();
    let refused = BindAck::read(body).unwrap().results[0];
    assert_eq!(refused.result, ResultCode::PROVIDER_REJECTION);
    assert!(call(&mut link, &world, 6, &[0; 12]).is_ok());
    world.token = Arc::new(Token::anonymous(&world.config));
    let refused = ask(&world, &mut link);
    let (_, body, _) = PduHeader::read(&refused).unwrap();
    let status = FaultPdu::read(body).unwrap().status;
    assert_eq!(status, FaultStatus::ACCESS_DENIED);
}

#[test]
fn no_name_at_all_is_the_domain_of_built_in_groups() {
    let found = super::names::of_name(&world(false), "").unwrap();
    assert_eq!(found.sid, Sid::BUILTIN);
}

#[test]
fn handles_of_another_kind_or_nobody_are_faults() {
    let world = world(false);
    let mut link = bound(Interface::Samr, &world);
    let server = call(&mut link, &world, 57, &[0; 12]).unwrap();
    let mut stub = server[..20].to_vec();
    stub.extend_from_slice(&[0; 8]);
    // The users of a server: only a domain has any.
    assert_eq!(
        call(&mut link, &world, 13, &stub),
        Err(FaultStatus::CONTEXT_MISMATCH)
    );
    assert_eq!(
        call(&mut link, &world, 1, &[9; 20]),
        Err(FaultStatus::CONTEXT_MISMATCH)
    );
    assert!(call(&mut link, &world, 1, &stub[..20]).is_ok());
    assert_eq!(
        call(&mut link, &world, 1, &stub[..20]),
        Err(FaultStatus::CONTEXT_MISMATCH)
    );
}

#[test]
fn what_cannot_be_answered_is_a_fault_and_the_pipe_lives_on() {
    let world = world(false);
    let mut link = bound(Interface::Srvsvc, &world);
    assert_eq!(
        call(&mut link, &world, 9999, &[]),
        Err(FaultStatus::OP_RNG_ERROR)
    );
    assert_eq!(
        call(&mut link, &world, 15, &[0; 3]),
        Err(FaultStatus::BAD_STUB_DATA)
    );
    assert!(call(&mut link, &world, 15, SHARE_ENUM).is_ok());
}

#[test]
fn who_does_not_speak_rpc_breaks_the_pipe() {
    let world = world(false);
    let early = request(15, SHARE_ENUM);
    let zeros = [0; 64];
    for bytes in [
        &early[..],
        &zeros,
        b"\x05\0\0\x03\x10\0\0\0\x10\0\0\0\x01\0\0\0",
    ] {
        let mut link = RpcLink::new(Interface::Srvsvc);
        write(&mut link, bytes, &world).unwrap();
        let fault = message(&mut link).unwrap();
        assert_eq!(PduHeader::read(&fault).unwrap().0.pdu_type, PduType::FAULT);
        assert!(matches!(
            write(&mut link, bytes, &world),
            Err(Failure::Status(Status::PIPE_BROKEN))
        ));
        assert!(matches!(
            link.read(1),
            Err(Failure::Status(Status::PIPE_BROKEN))
        ));
    }
}

#[test]
fn answers_nobody_reads_do_not_pile_up() {
    let mut world = world(false);
    let many = (0..500).map(|n| share(&format!("a share with a long name {n}"), false, true));
    world.shares = many.collect();
    let mut link = bound(Interface::Srvsvc, &world);
    let one = request(15, SHARE_ENUM);
    let broke = (0..1000).any(|_| write(&mut link, &one, &world).is_err());
    assert!(broke);
    assert_eq!(link.peek(0).1.read_data_available, 0);
}

#[test]
fn answers_nobody_reads_are_in_the_budget() {
    let mut world = world(false);
    let many = (0..500).map(|n| share(&format!("a share with a long name {n}"), false, true));
    world.shares = many.collect();
    let memory = crate::Memory::new(1 << 20);
    let account = memory.account(std::net::Ipv4Addr::LOCALHOST.into());
    let mut link = bound(Interface::Srvsvc, &world);
    let one = request(15, SHARE_ENUM);
    write(&mut link, &one, &world).unwrap();
    link.charge(&account).unwrap();
    assert!(memory.figures().used > 0);
    while link.read(usize::MAX).unwrap().is_some() {}
    assert_eq!(memory.figures().used, 0);
    let refused = (0..1000).find_map(|_| {
        write(&mut link, &one, &world).unwrap();
        link.charge(&account).err()
    });
    let status = Status::INSUFFICIENT_RESOURCES;
    assert!(matches!(refused, Some(Failure::Status(is)) if is == status));
    assert_eq!(memory.figures().used, 0);
    assert!(
        write(&mut link, &one, &world).is_err(),
        "the pipe has broken"
    );
}

#[test]
fn short_answers_and_handles_are_in_the_budget() {
    let world = world(false);
    let memory = crate::Memory::new(1 << 20);
    let account = memory.account(std::net::Ipv4Addr::LOCALHOST.into());
    let mut link = bound(Interface::Lsarpc, &world);
    let open_policy = request(6, &[0; 12]);
    for _ in 0..100 {
        write(&mut link, &open_policy, &world).unwrap();
    }
    link.charge(&account).unwrap();
    // A message takes more than its bytes, and a handle stays when its answer was taken.
    let unread = memory.figures().used;
    assert!(unread > 100 * 200, "{unread}");
    while link.read(usize::MAX).unwrap().is_some() {}
    let handles = memory.figures().used;
    assert!((1..unread).contains(&handles), "{handles} of {unread}");
    drop(link);
    assert_eq!(memory.figures().used, 0);
}

#[test]
fn random_bytes_never_panic() {
    let world = world(false);
    proptest::proptest!(|(bytes: Vec<u8>, opnum in 0u16..80)| {
        for interface in Interface::ALL {
            let mut link = bound(interface, &world);
            write(&mut link, &request(opnum, &bytes), &world).unwrap();
            let _ = write(&mut link, &bytes, &world);
        }
    });
}
