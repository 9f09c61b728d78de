//! Stubs and binds that rpcclient and smbclient 4.17 exchanged with a Samba 4.17 over the loopback.
//! The tests check the decoded requests, and that our responses with the same content have the same
//! bytes except for referent ids, which each server chooses.

use bytes::BytesMut;

use super::*;
use crate::dtyp::{SecurityDescriptor, Sid};
use crate::ids::FileTime;
use crate::status::Status;
use crate::testing::hex;

const BIND: &str = "\
    05000b03100000004800000001000000b810b810000000000100000000000100c84f324b7016d30112785a47 \
    bf6ee18803000000045d888aeb1cc9119fe808002b10486002000000";

const BIND_ACK: &str = "\
    05000c03100000004400000001000000b810b810f0fe00000d005c706970655c737276737663000001000000 \
    00000000045d888aeb1cc9119fe808002b10486002000000";

const SHARE_ENUM_REQUEST: &str = "\
    000002000a000000000000000a0000003100320037002e0030002e0030002e00310000000100000001000000 \
    040002000000000000000000ffffffff0800020000000000";

const SHARE_ENUM_1: &str = "\
    010000000100000008000200020000000c000200020000001000020000000000140002001800020003000080 \
    1c00020004000000000000000400000074006d00700000000800000000000000080000006100200073006800 \
    6100720065000000050000000000000005000000490050004300240000000000230000000000000023000000 \
    4900500043002000530065007200760069006300650020002800530061006d0062006100200034002e003100 \
    37002e00310032002d00440065006200690061006e00290000000000020000000000000000000000";

const SHARE_ENUM_2: &str = "\
    020000000200000008000200010000000c0002000100000010000200000000001400020000000000ffffffff \
    00000000180002001c00020004000000000000000400000074006d0070000000080000000000000008000000 \
    6100200073006800610072006500000017000000000000001700000043003a005c0074006d0070005c007200 \
    700063006300610070005c00730032005c007300680061007200650000000000010000000000000001000000 \
    00000000010000000000000000000000";

const SHARE_ENUM_502: &str = "\
    f6010000f601000008000200010000000c0002000100000010000200000000001400020000000000ffffffff \
    01000000180002001c000200300000002000020004000000000000000400000074006d007000000008000000 \
    00000000080000006100200073006800610072006500000017000000000000001700000043003a005c007400 \
    6d0070005c007200700063006300610070005c00730032005c00730068006100720065000000000001000000 \
    00000000010000000000000030000000010004800000000000000000000000001400000002001c0001000000 \
    00001400ff011f00010100000000000100000000010000000000000000000000";

const SHARE_GET_INFO_REQUEST: &str = "\
    000002000a000000000000000a0000003100320037002e0030002e0030002e00310000000400000000000000 \
    0400000074006d007000000001000000";

const SHARE_GET_INFO_1: &str = "\
    010000000400020008000200000000000c00020004000000000000000400000074006d007000000008000000 \
    00000000080000006100200073006800610072006500000000000000";

const SHARE_GET_INFO_502: &str = "\
    f60100000400020008000200000000000c00020000000000ffffffff01000000100002001400020030000000 \
    1800020004000000000000000400000074006d00700000000800000000000000080000006100200073006800 \
    610072006500000017000000000000001700000043003a005c0074006d0070005c0072007000630063006100 \
    70005c00730032005c0073006800610072006500000000000100000000000000010000000000000030000000 \
    010004800000000000000000000000001400000002001c000100000000001400ff011f000101000000000001 \
    0000000000000000";

const SHARE_GET_INFO_1005: &str = "\
    ed030000040002000000000000000000";

const SERVER_GET_INFO_REQUEST: &str = "\
    000002000c000000000000000c0000005c005c003100320037002e0030002e0030002e003100000065000000";

const SERVER_GET_INFO_101: &str = "\
    6500000004000200f4010000080002000600000001000000039a80000c000200070000000000000007000000 \
    43004100500042004f00580000000000150000000000000015000000530061006d0062006100200034002e00 \
    310037002e00310032002d00440065006200690061006e000000000000000000";

const WKSTA_GET_INFO_REQUEST: &str = "\
    000002000a000000000000000a0000003100320037002e0030002e0030002e003100000064000000";

const WKSTA_GET_INFO_100: &str = "\
    6400000004000200f4010000080002000c000200060000000100000007000000000000000700000043004100 \
    500042004f005800000000000700000000000000070000004300410050004700520050000000000000000000";

const OPEN_POLICY_REQUEST: &str = "\
    000002005c0000001800000000000000000000000000000000000000040002000c0000000200010000080000";

const LOOKUP_SIDS_REQUEST: &str = "\
    010000002316031d45d0d84fa546adea9ac4980203000000000002000300000004000200080002000c000200 \
    0100000001010000000000010000000002000000010200000000000520000000200200000200000001020000 \
    0000001601000000214e000000000000000000000100000000000000";

const LOOKUP_SIDS: &str = "\
    100002000300000014000200200000000300000000000200180002001c0002000e0010002000020024000200 \
    12001400280002002c0002000100000000000000000000000000000001000000000000010800000000000000 \
    070000004200550049004c00540049004e000000010000000101000000000005200000000a00000000000000 \
    0900000055006e00690078002000550073006500720000000100000001010000000000160100000003000000 \
    300002000300000005000000100010003400020000000000040000001c001c00380002000100000001000000 \
    0a000a003c00020002000000080000000000000008000000450076006500720079006f006e0065000e000000 \
    000000000e000000410064006d0069006e006900730074007200610074006f00720073000500000000000000 \
    050000003200300030003000310000000300000000000000";

const LOOKUP_NAMES_REQUEST: &str = "\
    0100000064b080c1927a60429944c654d531e221020000000200000008000800000002000c000c0004000200 \
    04000000000000000400000072006f006f0074000600000000000000060000006400610065006d006f006e00 \
    00000000000000000100000000000000";

const LOOKUP_NAMES: &str = "\
    08000200010000000c00020020000000010000000c000e001000020014000200070000000000000006000000 \
    43004100500042004f005800040000000104000000000005150000003392d4f780f9829fecbb6cd402000000 \
    180002000200000001000000e80300000000000001000000e9030000000000000200000000000000";

const QUERY_POLICY_REQUEST: &str = "\
    010000000e80732c15954c4fbb37e0827db2b9ed0300";

const QUERY_POLICY_3: &str = "\
    00000200030000000c000e000400020000000000070000000000000006000000430041005000470052005000 \
    00000000";

const GET_USER_NAME_REQUEST: &str = "\
    000002000a000000000000000a0000003100320037002e0030002e0030002e00310000000000000004000200 \
    00000000";

const GET_USER_NAME: &str = "\
    08000200080008000c00020004000000000000000400000072006f006f00740010000200140002000c000c00 \
    1800020006000000000000000600000043004100500042004f00580000000000";

const CONNECT5_REQUEST: &str = "\
    000002000c000000000000000c0000005c005c003100320037002e0030002e0030002e003100000000000002 \
    01000000010000000200000000000000";

const CONNECT5: &str = "\
    01000000010000000300000000000000000000001debf6d773b8f543941162712e341c7800000000";

const ENUM_DOMAINS: &str = "\
    0000000000000200020000000400020002000000000000000c000c0008000200010000000e000e000c000200 \
    06000000000000000600000043004100500042004f0058000700000000000000070000004200750069006c00 \
    740069006e0000000200000000000000";

const LOOKUP_DOMAIN_REQUEST: &str = "\
    000000001debf6d773b8f543941162712e341c780c000c000000020006000000000000000600000043004100 \
    500042004f005800";

const LOOKUP_DOMAIN: &str = "\
    04000200040000000104000000000005150000003392d4f780f9829fecbb6cd400000000";

const OPEN_DOMAIN_REQUEST: &str = "\
    000000001debf6d773b8f543941162712e341c7800000002040000000104000000000005150000003392d4f7 \
    80f9829fecbb6cd4";

const ENUM_USERS_REQUEST: &str = "\
    01000000581cb3fd2c88bd4a9e6bb7bf10d1de980000000010000000ffff0000";

const ENUM_USERS: &str = "\
    0200000000000200020000000400020002000000e80300000800080008000200e90300000c000c000c000200 \
    04000000000000000400000072006f006f0074000600000000000000060000006400610065006d006f006e00 \
    0200000000000000";

const QUERY_DISPLAY_REQUEST: &str = "\
    010000001b3c67ae0c1fe049b10bb4d45e9768e0010000000000000000020000ff3f0000";

const QUERY_DISPLAY: &str = "\
    40000000004000000100000002000000000002000200000001000000e8030000100000000800080004000200 \
    0000000008000200080008000c00020002000000e9030000100000000c000c00100002000000000014000200 \
    0c000c001800020004000000000000000400000072006f006f00740000000000000000000000000004000000 \
    000000000400000072006f006f0074000600000000000000060000006400610065006d006f006e0000000000 \
    00000000000000000600000000000000060000006400610065006d006f006e0000000000";

const SAMR_LOOKUP_NAMES_REQUEST: &str = "\
    010000005c146045d037434c8063bbf1a0ab5b8d01000000e803000000000000010000000800080000000200 \
    04000000000000000400000072006f006f007400";

const SAMR_LOOKUP_NAMES: &str = "\
    010000000400020001000000e80300000100000008000200010000000100000000000000";

const LOOKUP_IDS_REQUEST: &str = "\
    0100000080be57b67e1435468b101d5fc32ea8f601000000e80300000000000001000000e8030000";

const LOOKUP_IDS: &str = "\
    010000000000020001000000080008000400020004000000000000000400000072006f006f00740001000000 \
    08000200010000000100000000000000";

const QUERY_USER_REQUEST: &str = "\
    02000000b11c9cfaa89f504e971f89fcc4f2bd451500";

const QUERY_USER_21: &str = "\
    0000020015000000000000000000000080a94b3e3bcde701007f95f1b979dd0180a94b3e3bcde701007f95f1 \
    b979dd01ffffffffffffff7f080008000400020008000800080002001a001a000c0002000000000010000200 \
    00000000140002002a002a0018000200000000001c0002000000000020000200000000002400020000000000 \
    280002000000000000000000000000000000000000000000000000000000000000000000e803000001020000 \
    10000000ffffff00a80000002c00020000000000000000000000000004000000000000000400000072006f00 \
    6f00740004000000000000000400000072006f006f0074000d000000000000000d0000005c005c0043004100 \
    500042004f0058005c0072006f006f0074000000000000000000000000000000000000000000000000000000 \
    1500000000000000150000005c005c0043004100500042004f0058005c0072006f006f0074005c0070007200 \
    6f00660069006c00650000000000000000000000000000000000000000000000000000000000000000000000 \
    00000000000000000000000000000000ec0400000000000015000000ffffffffffffffffffffffffffffffff \
    ffffffffff00000000000000";

/// Removes referent ids. Those of both servers have the same form: a word of 0x0002____ at a
/// multiple of four.
fn without_referent_ids(stub: &[u8]) -> Vec<u8> {
    let mut stub = stub.to_vec();
    for word in stub.chunks_exact_mut(4) {
        if word[2..] == [2, 0] && word[0] % 4 == 0 {
            word[..2].copy_from_slice(&[0, 0]);
        }
    }
    stub
}

#[track_caller]
fn same(ours: &BytesMut, captured: &str) {
    let (ours, captured) = (
        without_referent_ids(ours),
        without_referent_ids(&hex(captured)),
    );
    let differs = ours.iter().zip(&captured).position(|(a, b)| a != b);
    assert_eq!((ours.len(), differs), (captured.len(), None), "{ours:02x?}");
}

fn handle(captured: &str, at: usize) -> ContextHandle {
    ContextHandle(hex(captured)[at..at + 20].try_into().unwrap())
}

fn domain() -> Sid {
    Sid::of(5, [21, 4_157_903_411, 2_676_160_896, 3_563_895_788])
}

#[test]
fn bind() {
    let bytes = hex(BIND);
    let (header, body, rest) = PduHeader::read(&bytes).unwrap();
    assert_eq!((header.pdu_type, rest.len()), (PduType::BIND, 0));
    let bind = Bind::read(body).unwrap();
    assert_eq!(bind.contexts[0].abstract_syntax, Interface::Srvsvc.syntax());
    let mut out = BytesMut::new();
    bind.encode(PduType::BIND, header.call_id, &mut out);
    assert_eq!(out[..], bytes[..]);
    let answer = answer_contexts(&bind, Interface::Srvsvc);

    let bytes = hex(BIND_ACK);
    let (header, body, _) = PduHeader::read(&bytes).unwrap();
    let ack = BindAck::read(body).unwrap();
    assert_eq!(ack.results, answer);
    let mut out = BytesMut::new();
    ack.encode(PduType::BIND_ACK, header.call_id, &mut out);
    assert_eq!(out[..], bytes[..]);
}

fn shares() -> Vec<srvsvc::ShareInfo> {
    let tmp = srvsvc::ShareInfo {
        net_name: "tmp".to_owned(),
        remark: "a share".to_owned(),
        max_uses: u32::MAX,
        current_uses: 1,
        path: "C:\\tmp\\rpccap\\s2\\share".to_owned(),
        security_descriptor: Some(share_descriptor()),
        ..srvsvc::ShareInfo::default()
    };
    let ipc = srvsvc::ShareInfo {
        net_name: "IPC$".to_owned(),
        share_type: srvsvc::Stype::SPECIAL | srvsvc::Stype::IPC,
        remark: "IPC Service (Samba 4.17.12-Debian)".to_owned(),
        ..srvsvc::ShareInfo::default()
    };
    vec![tmp, ipc]
}

/// The descriptor inside SHARE_GET_INFO_502, decoded and encoded.
fn share_descriptor() -> Vec<u8> {
    let stub = hex(SHARE_GET_INFO_502);
    let captured = &stub[stub.len() - 52..stub.len() - 4];
    let descriptor = SecurityDescriptor::read(captured).unwrap();
    let (mask, sid) = descriptor.dacl.as_ref().unwrap().aces[0].access().unwrap();
    assert_eq!((mask.bits(), *sid), (0x001f_01ff, Sid::EVERYONE));
    let mut out = BytesMut::new();
    descriptor.encode(&mut out).unwrap();
    assert_eq!(out[..], *captured);
    out.to_vec()
}

#[test]
fn srvsvc_shares() {
    use srvsvc::{ShareEnumReply, SrvsvcRequest, encode_share_get_info};
    let request = SrvsvcRequest::decode(15, &hex(SHARE_ENUM_REQUEST));
    let expected = SrvsvcRequest::ShareEnum(activity::Listing {
        level: 1,
        prefered_maximum_length: u32::MAX,
        resume_handle: Some(0),
    });
    assert_eq!(request, Ok(expected));
    let [tmp, ipc] = shares().try_into().unwrap();
    let both = vec![tmp.clone(), ipc];
    same(&ShareEnumReply::whole(1, both, None).encode(), SHARE_ENUM_1);
    // The tmp share had no user when level 2 was requested.
    for (level, current_uses, captured) in [(2, 0, SHARE_ENUM_2), (502, 1, SHARE_ENUM_502)] {
        let share = srvsvc::ShareInfo {
            current_uses,
            ..tmp.clone()
        };
        same(
            &ShareEnumReply::whole(level, vec![share], None).encode(),
            captured,
        );
    }
    let request = SrvsvcRequest::decode(16, &hex(SHARE_GET_INFO_REQUEST));
    let expected = SrvsvcRequest::ShareGetInfo {
        net_name: "tmp".to_owned(),
        level: 1,
    };
    assert_eq!(request, Ok(expected));
    for (level, captured) in [
        (1, SHARE_GET_INFO_1),
        (502, SHARE_GET_INFO_502),
        (1005, SHARE_GET_INFO_1005),
    ] {
        same(&encode_share_get_info(level, Ok(&tmp)), captured);
    }
}

#[test]
fn srvsvc_refuses_levels_and_operations() {
    use srvsvc::{ShareEnumReply, SrvsvcRequest, Win32Error, encode_share_get_info};
    let reply = ShareEnumReply::whole(503, shares(), None);
    assert_eq!(reply.result, Win32Error::INVALID_LEVEL);
    assert_eq!(reply.encode().len(), 24);
    let stub = encode_share_get_info(3, Ok(&shares()[0]));
    assert_eq!(stub[..], *b"\x03\0\0\0\0\0\0\0\x7c\0\0\0");
    let decode = SrvsvcRequest::decode;
    assert_eq!(decode(99, &[]), Err(FaultStatus::OP_RNG_ERROR));
    assert_eq!(decode(15, &[]), Err(FaultStatus::BAD_STUB_DATA));
}

#[test]
fn server_and_workstation() {
    let request = srvsvc::SrvsvcRequest::decode(21, &hex(SERVER_GET_INFO_REQUEST));
    let expected = srvsvc::SrvsvcRequest::ServerGetInfo { level: 101 };
    assert_eq!(request, Ok(expected));
    let server = srvsvc::ServerInfo {
        platform_id: 500,
        name: "CAPBOX".to_owned(),
        version_major: 6,
        version_minor: 1,
        server_type: 0x0080_9a03,
        comment: "Samba 4.17.12-Debian".to_owned(),
        ..srvsvc::ServerInfo::default()
    };
    same(
        &srvsvc::encode_server_get_info(101, &server),
        SERVER_GET_INFO_101,
    );
    let level = wkssvc::decode_level(0, &hex(WKSTA_GET_INFO_REQUEST));
    assert_eq!(level, Ok(100));
    let workstation = wkssvc::WkstaInfo {
        platform_id: 500,
        computer_name: "CAPBOX".to_owned(),
        lan_group: "CAPGRP".to_owned(),
        version_major: 6,
        version_minor: 1,
        logged_on_users: 0,
    };
    same(
        &wkssvc::encode_wksta_get_info(100, &workstation),
        WKSTA_GET_INFO_100,
    );
}

#[test]
fn lsarpc_policy() {
    use lsarpc::{
        LsarpcRequest, PolicyDomain, encode_get_user_name, encode_query_information_policy,
    };
    let request = LsarpcRequest::decode(6, &hex(OPEN_POLICY_REQUEST));
    assert_eq!(
        request,
        Ok(LsarpcRequest::OpenPolicy {
            desired_access: 0x0800
        })
    );
    let request = LsarpcRequest::decode(7, &hex(QUERY_POLICY_REQUEST));
    let expected = LsarpcRequest::QueryInformationPolicy {
        handle: handle(QUERY_POLICY_REQUEST, 0),
        class: 3,
    };
    assert_eq!(request, Ok(expected));
    let policy = PolicyDomain {
        name: "CAPGRP".to_owned(),
        ..PolicyDomain::default()
    };
    let ours = encode_query_information_policy(3, Ok(&policy));
    // Samba counts space for a NUL in MaximumLength and the array's bound.
    let mut expected = hex(QUERY_POLICY_3);
    expected[10] = 12;
    expected[20] = 6;
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));
    let request = LsarpcRequest::decode(45, &hex(GET_USER_NAME_REQUEST));
    let expected = LsarpcRequest::GetUserName { wants_domain: true };
    assert_eq!(request, Ok(expected));
    same(&encode_get_user_name("root", Some("CAPBOX")), GET_USER_NAME);
}

#[test]
fn lsarpc_lookups() {
    use lsarpc::{
        LookupForm, LsarpcRequest, ReferencedDomain, SidNameUse, TranslatedName, TranslatedSid,
    };
    let request = LsarpcRequest::decode(15, &hex(LOOKUP_SIDS_REQUEST));
    let sids = vec![
        Sid::EVERYONE,
        Sid::BUILTIN_ADMINISTRATORS,
        Sid::unix_user(20001),
    ];
    let expected = LsarpcRequest::LookupSids {
        handle: handle(LOOKUP_SIDS_REQUEST, 0),
        form: LookupForm::First,
        sids,
    };
    assert_eq!(request, Ok(expected));
    let domains = [
        ("", Sid::of(1, [])),
        ("BUILTIN", Sid::BUILTIN),
        ("Unix User", Sid::UNIX_USERS),
    ]
    .map(|(name, sid)| ReferencedDomain {
        name: name.to_owned(),
        sid,
    });
    let names = [
        (SidNameUse::WELL_KNOWN_GROUP, "Everyone", 0),
        (SidNameUse::ALIAS, "Administrators", 1),
        (SidNameUse::USER, "20001", 2),
    ]
    .map(|(sid_use, name, domain_index)| TranslatedName {
        sid_use,
        name: name.to_owned(),
        domain_index,
    });
    let ours = lsarpc::encode_lookup_sids(LookupForm::First, &domains, &names);
    // The same bytes except for the space for a NUL in the names of the domains.
    let mut expected = hex(LOOKUP_SIDS);
    for (at, byte) in [(22, 0), (34, 14), (46, 18), (56, 0), (80, 7), (124, 9)] {
        expected[at] = byte;
    }
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));

    let request = LsarpcRequest::decode(14, &hex(LOOKUP_NAMES_REQUEST));
    let expected = LsarpcRequest::LookupNames {
        handle: handle(LOOKUP_NAMES_REQUEST, 0),
        form: LookupForm::First,
        names: vec!["root".to_owned(), "daemon".to_owned()],
    };
    assert_eq!(request, Ok(expected));
    let capbox = [ReferencedDomain {
        name: "CAPBOX".to_owned(),
        sid: domain(),
    }];
    let sids = [1000, 1001].map(|rid| TranslatedSid {
        sid_use: SidNameUse::USER,
        sid: domain().child(rid),
        domain_index: 0,
    });
    let ours = lsarpc::encode_lookup_names(LookupForm::First, &capbox, &sids);
    let mut expected = hex(LOOKUP_NAMES);
    expected[22] = 12;
    expected[32] = 6;
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));
}

#[test]
fn samr_domains() {
    use samr::{Enumerated, SamrRequest};
    let request = SamrRequest::decode(64, &hex(CONNECT5_REQUEST));
    let desired_access = 0x0200_0000;
    assert_eq!(request, Ok(SamrRequest::Connect5 { desired_access }));
    let server = handle(CONNECT5, 16);
    same(&samr::encode_connect5(&server, Status::SUCCESS), CONNECT5);
    let domains = [(0, "CAPBOX".to_owned()), (1, "Builtin".to_owned())];
    same(
        &samr::encode_enumerate(0, &domains, Status::SUCCESS),
        ENUM_DOMAINS,
    );
    let request = SamrRequest::decode(5, &hex(LOOKUP_DOMAIN_REQUEST));
    let expected = SamrRequest::LookupDomain {
        handle: handle(LOOKUP_DOMAIN_REQUEST, 0),
        name: "CAPBOX".to_owned(),
    };
    assert_eq!(request, Ok(expected));
    same(&samr::encode_lookup_domain(Some(&domain())), LOOKUP_DOMAIN);
    let request = SamrRequest::decode(7, &hex(OPEN_DOMAIN_REQUEST));
    let expected = SamrRequest::OpenDomain {
        handle: handle(OPEN_DOMAIN_REQUEST, 0),
        sid: domain(),
    };
    assert_eq!(request, Ok(expected));
    let request = SamrRequest::decode(13, &hex(ENUM_USERS_REQUEST));
    let expected = SamrRequest::Enumerate {
        handle: handle(ENUM_USERS_REQUEST, 0),
        what: Enumerated::Users,
        context: 0,
    };
    assert_eq!(request, Ok(expected));
    let users = [(1000, "root".to_owned()), (1001, "daemon".to_owned())];
    let ours = samr::encode_enumerate(2, &users, Status::SUCCESS);
    same(&ours, ENUM_USERS);
}

#[test]
fn samr_users() {
    use samr::{SamrRequest, SidNameUse, UserInfo};
    let request = SamrRequest::decode(40, &hex(QUERY_DISPLAY_REQUEST));
    let expected = SamrRequest::QueryDisplay {
        handle: handle(QUERY_DISPLAY_REQUEST, 0),
        class: 1,
        index: 0,
        count: 512,
    };
    assert_eq!(request, Ok(expected));
    let users = [(1000, "root"), (1001, "daemon")].map(|(rid, name)| UserInfo {
        rid,
        primary_group_rid: 513,
        user_name: name.to_owned(),
        full_name: name.to_owned(),
        account_control: 0x10,
        password_last_set: FileTime(0x01dd_79b9_f195_7f00),
        ..UserInfo::default()
    });
    let ours = samr::encode_query_display(1, 0, &users, Status::SUCCESS);
    // Samba reports the requested size as total and returned.
    let mut expected = hex(QUERY_DISPLAY);
    expected[..8].copy_from_slice(&[2, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));

    let request = SamrRequest::decode(17, &hex(SAMR_LOOKUP_NAMES_REQUEST));
    let expected = SamrRequest::LookupNames {
        handle: handle(SAMR_LOOKUP_NAMES_REQUEST, 0),
        names: vec!["root".to_owned()],
    };
    assert_eq!(request, Ok(expected));
    let found = samr::encode_lookup_names(&[Some((1000, SidNameUse::USER))]);
    same(&found, SAMR_LOOKUP_NAMES);
    let request = SamrRequest::decode(18, &hex(LOOKUP_IDS_REQUEST));
    let expected = SamrRequest::LookupIds {
        handle: handle(LOOKUP_IDS_REQUEST, 0),
        rids: vec![1000],
    };
    assert_eq!(request, Ok(expected));
    let found = samr::encode_lookup_ids(&[Some(("root".to_owned(), SidNameUse::USER))]);
    same(&found, LOOKUP_IDS);

    let request = SamrRequest::decode(36, &hex(QUERY_USER_REQUEST));
    let expected = SamrRequest::QueryUser {
        handle: handle(QUERY_USER_REQUEST, 0),
        class: 21,
    };
    assert_eq!(request, Ok(expected));
    let ours = without_referent_ids(&samr::encode_query_user(21, Ok(&users[0])));
    let captured = without_referent_ids(&hex(QUERY_USER_21));
    // Our response has no home and profile, and other times; from the hashes to the texts it is the
    // same.
    assert_eq!(ours[136..216], captured[136..216]);
    assert_eq!(ours[ours.len() - 40..], captured[captured.len() - 40..]);
}

/// Every captured request, truncated and with every bit flipped, results in an answer or a fault,
/// and never in a panic.
#[test]
fn damaged_requests_do_no_harm() {
    for captured in [
        SHARE_ENUM_REQUEST,
        SHARE_GET_INFO_REQUEST,
        LOOKUP_SIDS_REQUEST,
        LOOKUP_NAMES_REQUEST,
        GET_USER_NAME_REQUEST,
        SAMR_LOOKUP_NAMES_REQUEST,
        LOOKUP_IDS_REQUEST,
        OPEN_DOMAIN_REQUEST,
        BIND,
    ] {
        let stub = hex(captured);
        let damaged = (0..stub.len() * 8)
            .map(|bit| {
                let mut stub = stub.clone();
                stub[bit / 8] ^= 1 << (bit % 8);
                stub
            })
            .chain((0..stub.len()).map(|len| stub[..len].to_vec()));
        for stub in damaged {
            for opnum in 0..70 {
                let _ = srvsvc::SrvsvcRequest::decode(opnum, &stub);
                let _ = wkssvc::decode_level(opnum, &stub);
                let _ = dssetup::decode_level(opnum, &stub);
                let _ = lsarpc::LsarpcRequest::decode(opnum, &stub);
                let _ = samr::SamrRequest::decode(opnum, &stub);
            }
            if let Ok((_, body, _)) = PduHeader::read(&stub) {
                let _ = Bind::read(body);
                let _ = BindAck::read(body);
            }
        }
    }
}
