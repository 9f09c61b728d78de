//! Tests of the answers to administrators and to others.

use std::net::IpAddr;

use vfs::Timestamp;

use super::*;
use crate::{
    administration::ConnectionReport,
    pipe::{LazyReport, tests::world},
};

fn session(id: u64, user: &str, opens: Vec<OpenReport>) -> SessionReport {
    SessionReport {
        id,
        channels: vec![id],
        user: user.to_owned(),
        guest: false,
        local_ids: None,
        signed: false,
        encrypted: false,
        trees: vec!["IPC$".to_owned(), "data".to_owned()],
        open_count: opens.len(),
        opens,
    }
}

fn connection(id: u64, client: &str) -> ConnectionReport {
    let client: IpAddr = client.parse().unwrap();
    ConnectionReport {
        id,
        peer: (client, 445).into(),
        dialect: 0,
        since: Timestamp {
            secs: -60,
            nanos: 0,
        },
    }
}

fn open(id: u64, user: &str, share: &str, path: &str) -> OpenReport {
    OpenReport {
        id,
        user: user.to_owned(),
        share: share.to_owned(),
        path: path.to_owned(),
        access: 0x0012_0089,
        locks: 3,
    }
}

fn administered() -> World {
    let opens = [
        vec![open(0x7_8000_0001, "anna", "data", "a")],
        Vec::new(),
        vec![open(2, "bob", "database", "b"), open(3, "bob", "data", "")],
    ];
    with_opens(opens, vec![open(0x8_0000_0003, "bob", "IPC$", "srvsvc")])
}

fn with_opens(opens: [Vec<OpenReport>; 3], waiting: Vec<OpenReport>) -> World {
    let [first, second, third] = opens;
    let all = Report {
        connections: vec![
            connection(1, "10.0.0.1"),
            connection(2, "10.0.0.2"),
            connection(3, "::ffff:10.0.0.2"),
        ],
        sessions: vec![
            session(1, "anna", first),
            session(2, "Anna", second),
            session(3, "bob", third),
        ],
        waiting_count: waiting.len(),
        waiting,
    };
    World {
        activity: Some(LazyReport::new(Box::new(move || all))),
        ..world(false)
    }
}

fn listing(level: u32, length: u32, resume_handle: u32) -> Listing {
    Listing {
        level,
        prefered_maximum_length: length,
        resume_handle: Some(resume_handle),
    }
}

fn of_client(client: &str, user: &str, listing: Listing) -> ActivityRequest {
    ActivityRequest::SessionEnum {
        client_name: client.to_owned(),
        user_name: user.to_owned(),
        listing,
    }
}

fn of_path(base: &str, user: &str, listing: Listing) -> ActivityRequest {
    ActivityRequest::FileEnum {
        base_path: base.to_owned(),
        user_name: user.to_owned(),
        listing,
    }
}

fn of_name(qualifier: &str, listing: Listing) -> ActivityRequest {
    ActivityRequest::ConnectionEnum {
        qualifier: qualifier.to_owned(),
        listing,
    }
}

fn delete(client: &str, user: &str) -> ActivityRequest {
    ActivityRequest::SessionDel {
        client_name: client.to_owned(),
        user_name: user.to_owned(),
    }
}

fn result(world: &World, request: &ActivityRequest) -> Win32Error {
    let stub = answer(world, request);
    let (_, last) = stub.split_last_chunk().unwrap();
    Win32Error(u32::from_le_bytes(*last))
}

/// Checks that the answer has these entries and no others.
fn assert_lists(request: &ActivityRequest, asked: &Listing, entries: &[Entry]) {
    let stub = answer(&administered(), request);
    let whole = encode_enumeration(asked, Some(entries), entries.len(), 0, Win32Error::SUCCESS);
    assert_eq!(stub, whole, "{request:?}");
}

const ALL: u32 = u32::MAX;

#[test]
fn nobody_but_an_administrator_is_answered() {
    let world = world(false);
    for request in [
        of_client("", "", listing(10, ALL, 0)),
        of_path("", "", listing(3, ALL, 0)),
        of_name("data", listing(1, ALL, 0)),
        ActivityRequest::FileGetInfo {
            file_id: 1,
            level: 3,
        },
        ActivityRequest::FileClose { file_id: 1 },
        delete("", "anna"),
    ] {
        assert_eq!(result(&world, &request), Win32Error::ACCESS_DENIED);
    }
    assert!(world.ends.take().is_empty());
}

#[test]
fn lists_show_what_their_qualifiers_name() {
    let (number, asked) = (EntryMember::Number, listing(0, ALL, 0));
    let both = [vec![text("10.0.0.1")], vec![text("10.0.0.2")]];
    assert_lists(&of_client("", "ANNA", asked), &asked, &both);
    let second = [vec![text("10.0.0.2")], vec![text("10.0.0.2")]];
    assert_lists(&of_client(r"\\10.0.0.2", "", asked), &asked, &second);

    let asked = listing(2, ALL, 0);
    let ids = |ids: &[u32]| -> Vec<Entry> { ids.iter().map(|id| vec![number(*id)]).collect() };
    assert_lists(&of_path("", "", asked), &asked, &ids(&[1, 2, 3, 3]));
    assert_lists(&of_path(r"c:\DATA", "", asked), &asked, &ids(&[1, 3]));
    assert_lists(&of_path(r"C:\data\", "", asked), &asked, &ids(&[1, 3]));
    assert_lists(&of_path(r"C:\DATA\A", "", asked), &asked, &ids(&[1]));
    assert_lists(&of_path(r"\pipe", "", asked), &asked, &ids(&[3]));
    assert_lists(&of_path("", "BOB", asked), &asked, &ids(&[2, 3, 3]));

    let asked = listing(0, ALL, 0);
    assert_lists(&of_name("DATA", asked), &asked, &ids(&[2, 4, 6]));
    let asked = listing(1, ALL, 0);
    let mut first: Entry = [1, 3, 0, 1, 60].map(number).into();
    first.extend([text("anna"), text("IPC$")]);
    let mut second: Entry = [2, 0, 1, 1, 60].map(number).into();
    second.extend([text("anna"), text("data")]);
    assert_lists(&of_name(r"\\10.0.0.1", asked), &asked, &[first, second]);
}

#[test]
fn every_level_has_its_members() {
    let world = administered();
    let all = world.activity.as_deref().unwrap();
    let first = seen(&world, all).next().unwrap();
    for (level, members) in [(0, 1), (1, 6), (2, 7), (10, 4), (502, 8)] {
        let entry = of_session(&first, level);
        assert_eq!(entry.len(), members, "{level}");
    }
    let open = of_open(&open(9, "u", "s", "p"), 3);
    let members = [number(9), number(1), number(3), text(r"C:\s\p"), text("u")];
    assert_eq!(open, members);
}

#[test]
fn a_list_is_continued_where_it_was_cut() {
    let world = administered();
    // Two of four numbers fit.
    let asked = listing(2, 11, 0);
    let two = [vec![EntryMember::Number(1)], vec![EntryMember::Number(2)]];
    let stub = answer(&world, &of_path("", "", asked));
    let whole = encode_enumeration(&asked, Some(&two), 4, 2, Win32Error::MORE_DATA);
    assert_eq!(stub, whole);
    let asked = listing(2, 11, 2);
    let rest = [vec![EntryMember::Number(3)], vec![EntryMember::Number(3)]];
    let stub = answer(&world, &of_path("", "", asked));
    let whole = encode_enumeration(&asked, Some(&rest), 2, 0, Win32Error::SUCCESS);
    assert_eq!(stub, whole);
    let asked = listing(2, 3, 2);
    let stub = answer(&world, &of_path("", "", asked));
    let none = encode_enumeration(&asked, Some(&[]), 2, 2, Win32Error::NERR_BUF_TOO_SMALL);
    assert_eq!(stub, none);
    let beyond = of_path("", "", listing(2, ALL, 4));
    assert_eq!(result(&world, &beyond), Win32Error::SUCCESS);
}

#[test]
fn an_answer_has_a_bound_of_its_own() {
    let long = "x".repeat(60_000);
    let waiting = (1..=20).map(|id| open(id, "anna", "data", &long)).collect();
    let world = with_opens(Default::default(), waiting);
    let request = of_path("", "", listing(3, ALL, 0));
    assert_eq!(result(&world, &request), Win32Error::MORE_DATA);
    assert!(answer(&world, &request).len() <= ANSWER_BYTES_MAX + 100);
}

#[test]
fn wrong_questions_get_their_errors() {
    let world = administered();
    let asked = listing(0, ALL, 0);
    let long = format!(r"\\{}", "x".repeat(NAME_UNITS_MAX));
    for (request, expected) in [
        (
            of_client("", "", listing(3, ALL, 0)),
            Win32Error::INVALID_LEVEL,
        ),
        (of_path("", "", asked), Win32Error::INVALID_LEVEL),
        (
            of_name("data", listing(2, ALL, 0)),
            Win32Error::INVALID_LEVEL,
        ),
        (of_name("", asked), Win32Error::INVALID_PARAMETER),
        (of_name(&long, asked), Win32Error::INVALID_PARAMETER),
        (of_client(&long, "", asked), Win32Error::INVALID_PARAMETER),
        (
            of_client("10.0.0.1", "", asked),
            Win32Error::NERR_INVALID_COMPUTER,
        ),
        (
            of_client(r"\\10.0.0.9", "", asked),
            Win32Error::NERR_CLIENT_NAME_NOT_FOUND,
        ),
        (
            of_client("", "carol", asked),
            Win32Error::NERR_USER_NOT_FOUND,
        ),
        (delete("", ""), Win32Error::INVALID_PARAMETER),
        (
            delete("10.0.0.1", ""),
            Win32Error::NERR_CLIENT_NAME_NOT_FOUND,
        ),
        (
            delete(r"\\10.0.0.1", "bob"),
            Win32Error::NERR_CLIENT_NAME_NOT_FOUND,
        ),
        (
            ActivityRequest::FileClose { file_id: 9 },
            Win32Error::NERR_FILE_ID_NOT_FOUND,
        ),
        (
            ActivityRequest::FileGetInfo {
                file_id: 9,
                level: 3,
            },
            Win32Error::FILE_NOT_FOUND,
        ),
        (
            ActivityRequest::FileGetInfo {
                file_id: 1,
                level: 4,
            },
            Win32Error::INVALID_LEVEL,
        ),
    ] {
        assert_eq!(result(&world, &request), expected, "{request:?}");
    }
    assert!(world.ends.take().is_empty());
}

#[test]
fn an_end_is_left_to_the_caller() {
    let world = administered();
    let close = |file_id| result(&world, &ActivityRequest::FileClose { file_id });
    assert_eq!(close(1), Win32Error::SUCCESS);
    // Two opens have this number.
    assert_eq!(close(3), Win32Error::NERR_FILE_ID_NOT_FOUND);
    assert_eq!(world.ends.take(), [Target::Open(0x7_8000_0001)]);
    let anna = delete("", "anna");
    assert_eq!(result(&world, &anna), Win32Error::SUCCESS);
    let ended = [Target::Session(1), Target::Session(2)];
    assert_eq!(world.ends.take(), ended);
    let one = delete(r"\\10.0.0.2", "ANNA");
    assert_eq!(result(&world, &one), Win32Error::SUCCESS);
    assert_eq!(world.ends.take(), [Target::Session(2)]);
}
