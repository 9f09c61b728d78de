//! Paths to shares, reasons to rules, and that the reasons are the engine's.

use proptest::prelude::*;

use super::*;
use crate::{accounts::users, answers::NotOpen};

fn config(folder: &Path) -> Config {
    for name in ["data", "data/inner", "other"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    let text = "[server]\nstate_dir = \"state\"\n\
                [[share]]\nname = \"Data\"\npath = \"data\"\n\
                [[share]]\nname = \"inner\"\npath = \"data/inner\"\n\
                [[share]]\nname = \"twin\"\npath = \"other\"\n\
                [[share]]\nname = \"twin2\"\npath = \"other\"\n";
    config::parse(text, &folder.join("h.toml")).unwrap()
}

fn question(path: &str, here: &Path) -> Question {
    Question {
        path: path.to_owned(),
        host_path: here.join(path),
        share: None,
        user: String::new(),
        client: None,
        dialect: 0x311,
        write_through: false,
        unbuffered: false,
    }
}

#[test]
fn paths_lead_to_shares() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path();
    let config = config(top);
    let find = |question: Question| {
        let (share, path) = place(&config.shares, &question)?;
        Ok::<_, crate::Error>((share.name.clone(), path))
    };
    let at = |path: &str| find(question(path, top));
    let is = |share: &str, path: &str| Ok((share.to_owned(), path.to_owned()));
    assert_eq!(at("data/a//b/./c"), is("Data", "a/b/c"));
    assert_eq!(at("DATA"), is("Data", ""));
    assert_eq!(at("//server/data/x y"), is("Data", "x y"));
    assert_eq!(at(r"\\server\data\x\y"), is("Data", "x/y"));
    let host = |path: &str| top.join(path).to_str().unwrap().to_owned();
    assert_eq!(at(&host("data/no/such")), is("Data", "no/such"));
    assert_eq!(at(&host("data/inner/x")), is("inner", "x"), "the nearest");
    std::os::unix::fs::symlink(top.join("data"), top.join("link")).unwrap();
    assert_eq!(at(&host("link/a")), is("Data", "a"));
    assert!(
        at(&host("other/x"))
            .unwrap_err()
            .to_string()
            .contains("--share \"twin\"")
    );
    assert!(at("/etc").unwrap_err().to_string().contains("in no share"));
    assert!(at("//server/none/x").is_err());
    let said = |share: &str, path: &str| {
        let mut question = question(path, top);
        question.share = Some(share.to_owned());
        find(question)
    };
    assert_eq!(said("twin2", &host("other/x")), is("twin2", "x"));
    assert_eq!(said("TWIN", "a/../b"), is("twin", "b"));
    assert_eq!(said("twin", "/a/b"), is("twin", "a/b"));
    assert!(
        said("none", "x")
            .unwrap_err()
            .to_string()
            .contains("no share `none`")
    );
    // Nothing that leads out of a share is a path in it.
    let out_of = |found: Result<_, crate::Error>| found.unwrap_err().to_string();
    assert!(out_of(said("twin", "a/../../b")).contains("leads out of share twin"));
    assert!(out_of(at("//server/data/../x")).contains("in no share"));
    assert_eq!(at("data/../data/inner/x"), is("inner", "x"));
    assert_eq!(at(&host("other/../data/x")), is("Data", "x"));
    assert!(out_of(at("data/../x")).contains("in no share"));
    assert_eq!(tidy("a/../../etc"), None);
    // Rules see the file of a stream, and the names of the host as clients see them.
    assert_eq!(at("data/a.mdb:b.txt:$DATA"), is("Data", "a.mdb"));
    assert_eq!(said("twin", ":a:$INDEX_ALLOCATION"), is("twin", ""));
    assert_eq!(
        at(&host("data/d:e/a:b")),
        is("Data", "d\u{f022}e/a\u{f022}b")
    );
}

#[test]
fn a_share_that_is_late_is_explained_by_its_settings() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    let late = config.shares.remove(1);
    config.late.push(late);
    let host = folder.path().join("data/inner/x").display().to_string();
    for path in ["INNER/x", host.as_str()] {
        let users = users::empty();
        let located = locate(&config, users, &question(path, folder.path())).unwrap();
        let opener = &located.opener;
        assert_eq!((&*located.share, &*opener.path), ("inner", "x"));
        let answer = by_settings(&config.late[0], opener);
        assert_eq!((&*answer.share, &*answer.policy), ("inner", "honor"));
    }
}

#[test]
fn a_user_who_is_not_known_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let found = |user: &str, known: Result<UserDb, Error>| {
        let mut question = question("data/x", folder.path());
        question.user = user.to_owned();
        let located = locate(&config, known, &question).unwrap();
        (located.opener.groups.to_vec(), located.note)
    };
    let known = || {
        let mut db = users::empty()?;
        db.add_user("alice").unwrap();
        db.add_group("staff").unwrap();
        db.add_member("staff", "alice").unwrap();
        Ok(db)
    };
    assert_eq!(found("ALICE", known()), (vec!["staff".into()], None));
    assert_eq!(found("", known()), (Vec::new(), None));
    let (groups, note) = found("zed", known());
    assert!(groups.is_empty() && note.unwrap().contains("there is no user zed"));
    let note = found("zed", Err("no file\n  = make it".into())).1;
    let expected = "the groups of zed are not known: no file";
    assert_eq!(note.as_deref(), Some(expected));
}

fn rules(text: &str) -> Rules {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let text = format!("[[share]]\nname = \"s\"\npath = \"data\"\naccept_loss = true\n{text}");
    let config = config::parse(&text, &folder.path().join("h.toml"));
    config
        .unwrap_or_else(|report| panic!("{report}"))
        .shares
        .remove(0)
        .rules
}

#[test]
fn reasons_read_well() {
    let rules = rules(
        "[[share.durability_rule]]\nclients = [\"10.0.0.0/8\"]\nusers = [\"backup\"]\n\
         dialects = \"2.1..3.0.2\"\ndurability = \"strict-sync\"\n\
         [[share.durability_rule]]\npaths = [\"scratch/**\", \"*.tmp\"]\n\
         durability = \"treat-host-as-stable-storage\"\n\
         [[share.durability_rule]]\nopen = [\"write-through\"]\ngroups = [\"db\"]\n\
         durability = \"bounded:50ms,4MiB\"\n",
    );
    let mut opener = Opener {
        client: Some("192.0.2.7".parse().unwrap()),
        user: "alice".into(),
        groups: Arc::from(["staff".into()]),
        dialect: 0x311,
        path: "Scratch/x".into(),
        ..Opener::default()
    };
    let answer = explain("s", Policy::Honor, true, &rules, &opener);
    assert_eq!(
        in_words(&answer),
        "\
share s, Scratch/x
opened by alice (staff) from 192.0.2.7 with 3.1.1
  rule 1 (h.toml:5) is not for it: strict-sync for clients 10.0.0.0/8; users backup; dialects \
2.1..3.0.2
      client 192.0.2.7 is in none of 10.0.0.0/8
      user alice is none of backup
      dialect 3.1.1 is not in 2.1..3.0.2
  rule 2 (h.toml:10) holds: treat-host-as-stable-storage for paths scratch/**, *.tmp
  rule 3 (h.toml:13) is not reached: bounded:50ms,4MiB for groups db; open write-through
treat-host-as-stable-storage by rule 2 (h.toml:10): a flush is answered at once: acknowledged \
data survives a crash of Holdfast, but NOT a crash or power failure of this machine
"
    );
    opener.path = "".into();
    opener.user = "".into();
    opener.client = None;
    let mut answer = explain("s", Policy::Honor, true, &rules, &opener);
    answer.in_force = Some(InForcePolicy::Open(Box::new(InForceNow {
        policy: "strict-sync".to_owned(),
        opens: 2,
        share: "s".to_owned(),
        bound: Some("50ms, 4MiB".to_owned()),
        because: Asked {
            user: "bob".to_owned(),
            client: "::1".parse().ok(),
            dialect: "3.0".to_owned(),
            write_through: true,
            ..Asked::default()
        },
        ..InForceNow::default()
    })));
    let words = in_words(&answer);
    for part in [
        "share s, its root\nopened by somebody (staff) with 3.1.1\n",
        "it is for the clients 10.0.0.0/8, and no client was given",
        "it is for the users backup, and no user was given",
        "path `` matches none of scratch/**, *.tmp",
        "the open is not write-through",
        "it is for the groups db, and no user was given",
        "\nhonor by the share's own policy: when",
        "open now 2 times, and in force for all of them is strict-sync: the strictest, by the \
         share's own policy, of the open by bob from ::1 with 3.0, write-through through share s\n",
    ] {
        assert!(words.contains(part), "no `{part}` in\n{words}");
    }
    answer.in_force = Some(InForcePolicy::NotOpen(NotOpen {}));
    assert!(in_words(&answer).ends_with("\nnot open now\n"));
}

fn some<T: Clone + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = Vec<T>> {
    proptest::sample::subsequence(all, 0..=all.len().min(2))
}

fn network(text: &str) -> durability::Network {
    let (address, prefix) = text.split_once('/').unwrap();
    durability::Network {
        address: address.parse().unwrap(),
        prefix: prefix.parse().unwrap(),
    }
}

prop_compose! {
    fn a_rule()(
        clients in some(&["10.0.0.0/8", "10.1.0.0/16", "::1/128"]),
        users in some(&["Alice", "bob"]),
        groups in some(&["staff", "DB"]),
        dialects in proptest::option::of((0_usize..5, 0_usize..5)),
        paths in some(&["*.tmp", "scratch/**", "a/?"]),
        write_through in any::<Option<bool>>(),
        unbuffered in any::<Option<bool>>(),
    ) -> Rule {
        const ALL: [u16; 5] = [0x202, 0x210, 0x300, 0x302, 0x311];
        Rule {
            name: "r".to_owned(),
            clients: clients.iter().map(|text| network(text)).collect(),
            users: users.iter().map(|name| (*name).to_owned()).collect(),
            groups: groups.iter().map(|name| (*name).to_owned()).collect(),
            dialects: dialects.map(|(a, b)| ALL[a.min(b)]..=ALL[a.max(b)]),
            paths: paths.iter().map(|text| text.parse().unwrap()).collect(),
            write_through,
            unbuffered,
            policy: Policy::StrictSync,
            flush_times: None,
        }
    }
}

prop_compose! {
    fn an_opener()(
        client in proptest::option::of(proptest::sample::select(vec!["10.1.2.3", "10.9.9.9", "::1", "192.0.2.1"])),
        user in proptest::sample::select(vec!["", "ALICE", "bob", "carol"]),
        groups in some(&["Staff", "db", "wheel"]),
        dialect in proptest::sample::select(vec![0x202, 0x210, 0x300, 0x302, 0x311]),
        path in proptest::sample::select(vec!["", "x.TMP", "scratch", "Scratch/y/z", "a/b", "a/bc"]),
        write_through in any::<bool>(),
        unbuffered in any::<bool>(),
    ) -> Opener {
        Opener {
            client: client.map(|text| text.parse().unwrap()),
            user: user.into(),
            groups: groups.iter().map(|name| Box::from(*name)).collect(),
            dialect,
            path: path.into(),
            write_through,
            unbuffered,
        }
    }
}

proptest! {
    /// There is a reason if and only if the engine passes the rule over.
    #[test]
    fn the_reasons_are_the_engines(rule in a_rule(), opener in an_opener()) {
        let rules = Rules::new(vec![rule.clone()]).unwrap();
        let holds = rules.decide(Policy::Honor, &opener).rule.is_some();
        let reasons = why_not(&rule, &opener);
        prop_assert_eq!(holds, reasons.is_empty(), "{:?}", reasons);
    }
}
