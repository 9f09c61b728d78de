//! Stubs of the Security Account Manager.

use super::*;

#[test]
fn domains() {
    use samr::{Enumerated, SamrCall, SamrRequest};
    let request = SamrRequest::decode(64, &recorded("CONNECT5_REQUEST"));
    assert_eq!(request, Ok(SamrRequest::Connect5));
    let server = handle("CONNECT5", 16);
    same(&samr::encode_connect5(&server, Status::SUCCESS), "CONNECT5");
    let domains = [(0, "CAPBOX".to_owned()), (1, "Builtin".to_owned())];
    same(
        &samr::encode_enumerate(0, &domains, Status::SUCCESS),
        "ENUM_DOMAINS",
    );
    let request = SamrRequest::decode(5, &recorded("LOOKUP_DOMAIN_REQUEST"));
    let call = SamrCall::LookupDomain("CAPBOX".to_owned());
    let expected = SamrRequest::On(handle("LOOKUP_DOMAIN_REQUEST", 0), call);
    assert_eq!(request, Ok(expected));
    same(
        &samr::encode_lookup_domain(Some(&domain())),
        "LOOKUP_DOMAIN",
    );
    let request = SamrRequest::decode(7, &recorded("OPEN_DOMAIN_REQUEST"));
    let call = SamrCall::OpenDomain(domain());
    let expected = SamrRequest::On(handle("OPEN_DOMAIN_REQUEST", 0), call);
    assert_eq!(request, Ok(expected));
    let request = SamrRequest::decode(13, &recorded("ENUM_USERS_REQUEST"));
    let (what, context) = (Enumerated::Users, 0);
    let call = SamrCall::Enumerate { what, context };
    let expected = SamrRequest::On(handle("ENUM_USERS_REQUEST", 0), call);
    assert_eq!(request, Ok(expected));
    let users = [(1000, "root".to_owned()), (1001, "daemon".to_owned())];
    let ours = samr::encode_enumerate(2, &users, Status::SUCCESS);
    same(&ours, "ENUM_USERS");
}

#[test]
fn domain_information() {
    use samr::{DomainFacts, SamrCall, SamrRequest, encode_query_domain};
    let request = SamrRequest::decode(8, &recorded("QUERY_DOMAIN_REQUEST"));
    let expected = SamrRequest::On(handle("QUERY_DOMAIN_REQUEST", 0), SamrCall::QueryDomain(2));
    assert_eq!(request, Ok(expected));
    // Samba names the workgroup, and the domain's name is another one in class 5.
    let domain = |name| DomainFacts {
        name,
        server: "CAPBOX",
        comment: "Samba 4.17.12-Debian",
        users: 1,
        ..DomainFacts::default()
    };
    let (never, half_hour) = (i64::MIN, -18_000_000_000_i64);
    // Samba has other times, and counts changes.
    let general = [(8, never), (40, 0)];
    let lockout = |at| [(at, half_hour), (at + 8, half_hour)];
    type Case<'a> = (u16, &'a str, &'a [(usize, i64)]);
    let cases: [Case<'_>; 8] = [
        (2, "CAPGRP", &general[..]),
        (5, "CAPBOX", &[]),
        (7, "CAPBOX", &[]),
        (8, "CAPBOX", &[(8, 0)]),
        (9, "CAPBOX", &[]),
        (11, "CAPGRP", &[&general[..], &lockout(72)].concat()),
        (12, "CAPBOX", &lockout(8)),
        (13, "CAPBOX", &[(8, 0)]),
    ];
    for (class, name, other) in cases {
        let mut expected = recorded(&format!("QUERY_DOMAIN_{class}"));
        for (at, number) in other {
            expected[*at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let ours = without_referent_ids(&encode_query_domain(class, &domain(name)));
        assert_eq!(ours, without_referent_ids(&expected), "{class}");
    }
    for unknown in [0, 10, 14] {
        let ours = encode_query_domain(unknown, &domain("CAPBOX"));
        assert_eq!(ours[..], *b"\0\0\0\0\x03\0\0\xc0");
    }
}

#[test]
fn users() {
    use samr::{SamrCall, SamrRequest, SidNameUse, UserInfo};
    let request = SamrRequest::decode(40, &recorded("QUERY_DISPLAY_REQUEST"));
    let call = SamrCall::QueryDisplay {
        class: 1,
        index: 0,
        count: 512,
    };
    let expected = SamrRequest::On(handle("QUERY_DISPLAY_REQUEST", 0), call);
    assert_eq!(request, Ok(expected));
    let users = [(1000, "root"), (1001, "daemon")].map(|(rid, name)| UserInfo {
        rid,
        primary_group_rid: 513,
        user_name: name.to_owned(),
        full_name: name.to_owned(),
        account_control: 0x10,
        password_last_set: FileTime(0x01dd_79b9_f195_7f00),
    });
    let ours = samr::encode_query_display(1, 0, &users, Status::SUCCESS);
    // Samba reports the requested size as total and returned.
    let mut expected = recorded("QUERY_DISPLAY");
    expected[..8].copy_from_slice(&[2, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(without_referent_ids(&ours), without_referent_ids(&expected));

    let request = SamrRequest::decode(17, &recorded("SAMR_LOOKUP_NAMES_REQUEST"));
    let call = SamrCall::LookupNames(vec!["root".to_owned()]);
    let expected = SamrRequest::On(handle("SAMR_LOOKUP_NAMES_REQUEST", 0), call);
    assert_eq!(request, Ok(expected));
    let found = samr::encode_lookup_names(&[Some((1000, SidNameUse::USER))]);
    same(&found, "SAMR_LOOKUP_NAMES");
    let request = SamrRequest::decode(18, &recorded("LOOKUP_IDS_REQUEST"));
    let call = SamrCall::LookupIds(vec![1000]);
    let expected = SamrRequest::On(handle("LOOKUP_IDS_REQUEST", 0), call);
    assert_eq!(request, Ok(expected));
    let found = samr::encode_lookup_ids(&[Some(("root".to_owned(), SidNameUse::USER))]);
    same(&found, "LOOKUP_IDS");

    let request = SamrRequest::decode(36, &recorded("QUERY_USER_REQUEST"));
    let expected = SamrRequest::On(handle("QUERY_USER_REQUEST", 0), SamrCall::QueryUser(21));
    assert_eq!(request, Ok(expected));
    let ours = without_referent_ids(&samr::encode_query_user(21, Ok(&users[0])));
    let captured = without_referent_ids(&recorded("QUERY_USER_21"));
    // Our response has no home and profile, and other times; from the hashes to the texts it is the same.
    assert_eq!(ours[136..216], captured[136..216]);
    assert_eq!(ours[ours.len() - 40..], captured[captured.len() - 40..]);
}

#[test]
fn memberships_and_password_rules() {
    use samr::{SamrCall, SamrRequest, encode_alias_membership, encode_password_rules};
    let request = SamrRequest::decode(16, &recorded("ALIAS_MEMBERSHIP_REQUEST"));
    let sids = vec![Sid::of(5, [21, 1, 2, 3, 1000]), Sid::BUILTIN_USERS];
    let handle_of = |captured| handle(captured, 0);
    let expected = SamrRequest::On(
        handle_of("ALIAS_MEMBERSHIP_REQUEST"),
        SamrCall::AliasMembership(sids),
    );
    assert_eq!(request, Ok(expected));
    same(&encode_alias_membership(&[544, 545]), "ALIAS_MEMBERSHIP");
    same(&encode_alias_membership(&[]), "NO_ALIAS_MEMBERSHIP");
    let request = SamrRequest::decode(56, &recorded("PASSWORD_RULES_REQUEST"));
    assert_eq!(request, Ok(SamrRequest::DomainPasswordRules));
    let request = SamrRequest::decode(44, &recorded("USER_PASSWORD_RULES_REQUEST"));
    let handle = handle_of("USER_PASSWORD_RULES_REQUEST");
    assert_eq!(
        request,
        Ok(SamrRequest::On(handle, SamrCall::UserPasswordRules))
    );
    same(&encode_password_rules(5, Status::SUCCESS), "PASSWORD_RULES");
    // A count that is not that of the array, and no account where one is announced.
    let mut stub = recorded("ALIAS_MEMBERSHIP_REQUEST");
    for at in [20, 28, 32] {
        let kept = std::mem::take(&mut stub[at]);
        let (low, high) = (stub[at + 1], std::mem::take(&mut stub[at + 2]));
        assert_eq!(low, 0);
        let refused = SamrRequest::decode(16, &stub);
        assert_eq!(refused, Err(FaultStatus::BAD_STUB_DATA), "{at}");
        (stub[at], stub[at + 2]) = (kept, high);
    }
}
