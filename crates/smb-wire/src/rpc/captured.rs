//! Stubs and binds that rpcclient and smbclient 4.17 exchanged with a Samba 4.17 over the loopback.
//! The tests check the decoded requests, and that our responses with the same content have the same
//! bytes except for referent ids, which each server chooses.

mod samr_stubs;

use bytes::BytesMut;

use super::*;
use crate::dtyp::{SecurityDescriptor, Sid};
use crate::ids::FileTime;
use crate::status::Status;

/// The bytes of each message, in paragraphs under its name.
const RECORDED: &str = include_str!("captured.txt");

/// The bytes of the message of this name.
fn recorded(name: &str) -> Vec<u8> {
    let mut all = RECORDED.split("\n\n");
    let digits = all.find_map(|one| one.strip_prefix(name)?.strip_prefix('\n'));
    let digits: String = digits.unwrap().split_whitespace().collect();
    base16ct::lower::decode_vec(digits).unwrap()
}

/// Removes referent ids. Those of both servers have the same form: a word of 0x0002____ at a multiple of four.
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
        without_referent_ids(&recorded(captured)),
    );
    let differs = ours.iter().zip(&captured).position(|(a, b)| a != b);
    assert_eq!((ours.len(), differs), (captured.len(), None), "{ours:02x?}");
}

fn handle(captured: &str, at: usize) -> ContextHandle {
    ContextHandle(recorded(captured)[at..at + 20].try_into().unwrap())
}

fn domain() -> Sid {
    Sid::of(5, [21, 4_157_903_411, 2_676_160_896, 3_563_895_788])
}

#[test]
fn bind() {
    let bytes = recorded("BIND");
    let (header, body, rest) = PduHeader::read(&bytes).unwrap();
    assert_eq!((header.pdu_type, rest.len()), (PduType::BIND, 0));
    let bind = Bind::read(body).unwrap();
    assert_eq!(bind.contexts[0].abstract_syntax, Interface::Srvsvc.syntax());
    let mut out = BytesMut::new();
    bind.encode(PduType::BIND, header.call_id, &mut out);
    assert_eq!(out[..], bytes[..]);
    let answer = answer_contexts(&bind, Interface::Srvsvc);

    let bytes = recorded("BIND_ACK");
    let (header, body, _) = PduHeader::read(&bytes).unwrap();
    let ack = BindAck::read(body).unwrap();
    assert_eq!(ack.results, answer);
    let mut out = BytesMut::new();
    ack.encode(PduType::BIND_ACK, header.call_id, &mut out);
    assert_eq!(out[..], bytes[..]);
}

fn shares(descriptor: &[u8]) -> [srvsvc::ShareInfo<'_>; 2] {
    let tmp = srvsvc::ShareInfo {
        net_name: "tmp",
        remark: "a share",
        max_uses: u32::MAX,
        current_uses: 1,
        path: "C:\\tmp\\rpccap\\s2\\share".to_owned(),
        security_descriptor: Some(descriptor),
        ..srvsvc::ShareInfo::default()
    };
    let ipc = srvsvc::ShareInfo {
        net_name: "IPC$",
        share_type: srvsvc::Stype::SPECIAL | srvsvc::Stype::IPC,
        remark: "IPC Service (Samba 4.17.12-Debian)",
        ..srvsvc::ShareInfo::default()
    };
    [tmp, ipc]
}

/// The descriptor inside SHARE_GET_INFO_502, decoded and encoded.
fn share_descriptor() -> Vec<u8> {
    let stub = recorded("SHARE_GET_INFO_502");
    let captured = &stub[stub.len() - 52..stub.len() - 4];
    let descriptor = SecurityDescriptor::read(captured).unwrap();
    let (mask, sid) = descriptor.dacl.as_ref().unwrap().aces[0].access().unwrap();
    assert_eq!((mask.bits(), *sid), (0x001f_01ff, Sid::EVERYONE));
    let mut out = BytesMut::new();
    descriptor.encode(&mut out).unwrap();
    assert_eq!(out[..], *captured);
    out.to_vec()
}

/// A request for all shares, which keeps no position.
fn whole(level: u32) -> activity::Listing {
    activity::Listing {
        level,
        prefered_maximum_length: u32::MAX,
        resume_handle: None,
    }
}

#[test]
fn srvsvc_shares() {
    use srvsvc::{SrvsvcRequest, encode_share_enum, encode_share_get_info};
    let request = SrvsvcRequest::decode(15, &recorded("SHARE_ENUM_REQUEST"));
    let expected = SrvsvcRequest::ShareEnum(activity::Listing {
        resume_handle: Some(0),
        ..whole(1)
    });
    assert_eq!(request, Ok(expected));
    let descriptor = share_descriptor();
    let both = shares(&descriptor);
    same(&encode_share_enum(&whole(1), Ok(&both)), "SHARE_ENUM_1");
    let [tmp, _] = both;
    // The tmp share had no user when level 2 was requested.
    for (level, current_uses, captured) in [(2, 0, "SHARE_ENUM_2"), (502, 1, "SHARE_ENUM_502")] {
        let share = srvsvc::ShareInfo {
            current_uses,
            ..tmp.clone()
        };
        same(&encode_share_enum(&whole(level), Ok(&[share])), captured);
    }
    let request = SrvsvcRequest::decode(16, &recorded("SHARE_GET_INFO_REQUEST"));
    let expected = SrvsvcRequest::ShareGetInfo {
        net_name: "tmp".to_owned(),
        level: 1,
    };
    assert_eq!(request, Ok(expected));
    for (level, captured) in [
        (1, "SHARE_GET_INFO_1"),
        (502, "SHARE_GET_INFO_502"),
        (1005, "SHARE_GET_INFO_1005"),
    ] {
        same(&encode_share_get_info(level, Ok(&tmp)), captured);
    }
}

#[test]
fn srvsvc_refuses_levels_and_operations() {
    use srvsvc::{SrvsvcRequest, Win32Error, encode_share_enum, encode_share_get_info};
    let both = shares(&[]);
    let stub = encode_share_enum(&whole(503), Ok(&both));
    let (head, result) = stub.split_last_chunk().unwrap();
    assert_eq!(head.len(), 20);
    let result = Win32Error(u32::from_le_bytes(*result));
    assert_eq!(result, Win32Error::INVALID_LEVEL);
    let stub = encode_share_get_info(3, Ok(&both[0]));
    assert_eq!(stub[..], *b"\x03\0\0\0\0\0\0\0\x7c\0\0\0");
    let decode = SrvsvcRequest::decode;
    assert_eq!(decode(99, &[]), Err(FaultStatus::OP_RNG_ERROR));
    assert_eq!(decode(15, &[]), Err(FaultStatus::BAD_STUB_DATA));
}

#[test]
fn server_and_workstation() {
    let request = srvsvc::SrvsvcRequest::decode(21, &recorded("SERVER_GET_INFO_REQUEST"));
    let expected = srvsvc::SrvsvcRequest::ServerGetInfo { level: 101 };
    assert_eq!(request, Ok(expected));
    let server = srvsvc::ServerInfo {
        platform_id: 500,
        name: "CAPBOX",
        version_major: 6,
        version_minor: 1,
        server_type: 0x0080_9a03,
        comment: "Samba 4.17.12-Debian",
        ..srvsvc::ServerInfo::default()
    };
    same(
        &srvsvc::encode_server_get_info(101, &server),
        "SERVER_GET_INFO_101",
    );
    let level = wkssvc::decode_level(0, &recorded("WKSTA_GET_INFO_REQUEST"));
    assert_eq!(level, Ok(100));
    let workstation = wkssvc::WkstaInfo {
        platform_id: 500,
        computer_name: "CAPBOX",
        lan_group: "CAPGRP",
        version_major: 6,
        version_minor: 1,
        logged_on_users: 0,
    };
    same(
        &wkssvc::encode_wksta_get_info(100, &workstation),
        "WKSTA_GET_INFO_100",
    );
}

#[test]
fn server_disks() {
    use srvsvc::{SrvsvcRequest, encode_server_disk_enum};
    let request = SrvsvcRequest::decode(23, &recorded("SERVER_DISK_ENUM_REQUEST"));
    let (level, resumes) = (0, true);
    let expected = SrvsvcRequest::ServerDiskEnum { level, resumes };
    assert_eq!(request, Ok(expected));
    let ours = encode_server_disk_enum(level, resumes, &["C:"]);
    // Samba counts the drive in the resume handle.
    let mut expected = recorded("SERVER_DISK_ENUM");
    expected[56] = 0;
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));
    let refused = encode_server_disk_enum(1, false, &["C:"]);
    assert_eq!(refused[..], *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x7c\0\0\0");
}

#[test]
fn lsarpc_policy() {
    use lsarpc::{
        LsarpcRequest, PolicyDomain, encode_get_user_name, encode_query_information_policy,
    };
    let request = LsarpcRequest::decode(6, &recorded("OPEN_POLICY_REQUEST"));
    assert_eq!(request, Ok(LsarpcRequest::OpenPolicy));
    let request = LsarpcRequest::decode(7, &recorded("QUERY_POLICY_REQUEST"));
    let expected = LsarpcRequest::QueryInformationPolicy {
        handle: handle("QUERY_POLICY_REQUEST", 0),
        class: 3,
    };
    assert_eq!(request, Ok(expected));
    let policy = PolicyDomain {
        name: "CAPGRP".to_owned(),
        ..PolicyDomain::default()
    };
    let ours = encode_query_information_policy(3, &policy);
    // Samba counts space for a NUL in MaximumLength and the array's bound.
    let mut expected = recorded("QUERY_POLICY_3");
    expected[10] = 12;
    expected[20] = 6;
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));
    let request = LsarpcRequest::decode(45, &recorded("GET_USER_NAME_REQUEST"));
    let expected = LsarpcRequest::GetUserName { wants_domain: true };
    assert_eq!(request, Ok(expected));
    same(
        &encode_get_user_name("root", Some("CAPBOX")),
        "GET_USER_NAME",
    );
}

#[test]
fn lsarpc_account_rights() {
    use lsarpc::{LsarpcRequest, encode_no_account_rights};
    let request = LsarpcRequest::decode(36, &recorded("ACCOUNT_RIGHTS_REQUEST"));
    let handle = handle("ACCOUNT_RIGHTS_REQUEST", 0);
    assert_eq!(request, Ok(LsarpcRequest::AccountRights { handle }));
    same(&encode_no_account_rights(), "ACCOUNT_RIGHTS");
}

#[test]
fn lsarpc_lookups() {
    use lsarpc::{LookupForm, LsarpcRequest, ReferencedDomain, SidNameUse, Translated};
    let request = LsarpcRequest::decode(15, &recorded("LOOKUP_SIDS_REQUEST"));
    let sids = vec![
        Sid::EVERYONE,
        Sid::BUILTIN_ADMINISTRATORS,
        Sid::unix_user(20001),
    ];
    let expected = LsarpcRequest::LookupSids {
        handle: handle("LOOKUP_SIDS_REQUEST", 0),
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
    .map(|(sid_use, name, domain_index)| Translated {
        sid_use,
        account: name.to_owned(),
        domain_index,
    });
    let ours = lsarpc::encode_lookup_sids(LookupForm::First, &domains, &names);
    // The same bytes except for the space for a NUL in the names of the domains.
    let mut expected = recorded("LOOKUP_SIDS");
    for (at, byte) in [(22, 0), (34, 14), (46, 18), (56, 0), (80, 7), (124, 9)] {
        expected[at] = byte;
    }
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));

    let request = LsarpcRequest::decode(14, &recorded("LOOKUP_NAMES_REQUEST"));
    let expected = LsarpcRequest::LookupNames {
        handle: handle("LOOKUP_NAMES_REQUEST", 0),
        form: LookupForm::First,
        names: vec!["root".to_owned(), "daemon".to_owned()],
    };
    assert_eq!(request, Ok(expected));
    let capbox = [ReferencedDomain {
        name: "CAPBOX".to_owned(),
        sid: domain(),
    }];
    let sids = [1000, 1001].map(|rid| Translated {
        sid_use: SidNameUse::USER,
        account: domain().child(rid),
        domain_index: 0,
    });
    let ours = lsarpc::encode_lookup_names(LookupForm::First, &capbox, &sids);
    let mut expected = recorded("LOOKUP_NAMES");
    expected[22] = 12;
    expected[32] = 6;
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));
}

/// Every captured request, truncated and with every bit flipped, results in an answer or a fault, and never in a panic.
#[test]
fn damaged_requests_do_no_harm() {
    for captured in [
        "SHARE_ENUM_REQUEST",
        "SHARE_GET_INFO_REQUEST",
        "LOOKUP_SIDS_REQUEST",
        "LOOKUP_NAMES_REQUEST",
        "GET_USER_NAME_REQUEST",
        "SAMR_LOOKUP_NAMES_REQUEST",
        "LOOKUP_IDS_REQUEST",
        "OPEN_DOMAIN_REQUEST",
        "ACCOUNT_RIGHTS_REQUEST",
        "SERVER_DISK_ENUM_REQUEST",
        "ALIAS_MEMBERSHIP_REQUEST",
        "BIND",
    ] {
        let stub = recorded(captured);
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
