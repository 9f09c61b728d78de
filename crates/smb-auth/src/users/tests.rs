use super::*;
use proptest::prelude::*;

fn sample() -> UserDb {
    let mut db = UserDb::new(MachineSid([1, 2, u32::MAX]));
    db.add_group("staff").unwrap();
    db.add_user("Anna").unwrap();
    db.add_user("bert").unwrap();
    let hash = NtHash::from_password("Password");
    db.set_password("anna", Some(hash), 1_766_000_000).unwrap();
    db.set_full_name("anna", "Anna Müller, Köln").unwrap();
    db.set_uid_gid("anna", Some((1000, 100))).unwrap();
    db.add_member("STAFF", "ANNA").unwrap();
    db.set_disabled("bert", true).unwrap();
    db
}

#[test]
fn text_form_is_stable() {
    let db = sample();
    let text = db.serialise();
    let expected = "holdfast-users\t1\n\
        # Written by the server's user tool. NT hashes are as good as passwords.\n\
        machine-sid\tS-1-5-21-1-2-4294967295\n\
        next-rid\t1003\n\
        group\t1000\tstaff\n\
        user\t1001\tAnna\ta4f49c406510bdcab6824ee7c30fd852\t-\t1766000000\t1000:100\t1000\tAnna Müller, Köln\n\
        user\t1002\tbert\t-\tdisabled\t0\t-\t-\t\n";
    assert_eq!(text.as_str(), expected);
    assert_eq!(UserDb::parse(&text).unwrap(), db);
}

#[test]
fn errors_name_the_line() {
    let head = "holdfast-users\t1\nmachine-sid\tS-1-5-21-1-2-3\nnext-rid\t1005\n";
    // The last line of each is the wrong one.
    let cases = [
        ("", "not a holdfast user database"),
        ("holdfast-users\t2\n", "unknown version"),
        ("holdfast-users\t1\n", "next-rid must come first"),
        (
            "holdfast-users\t1\nmachine-sid\tS-1-5-21-1-2\n",
            "bad machine SID",
        ),
        (
            "holdfast-users\t1\nmachine-sid\tS-1-5-21-1-2-3-4\n",
            "bad machine SID",
        ),
        (
            "holdfast-users\t1\nmachine-sid\tS-1-5-21-1-+2-3\n",
            "bad machine SID",
        ),
        ("holdfast-users\t1\nnext-rid\t999\n", "bad next-rid"),
        ("H group\t1000\ta\ngroup\t1000\tb\n", "RID is taken twice"),
        (
            "H group\t1000\ta\nuser\t1001\tA\t-\t-\t0\t-\t-\t\n",
            "name is taken twice",
        ),
        ("H group\t999\ta\n", "RID is not between 1000 and next-rid"),
        ("H group\t1005\ta\n", "RID is not between 1000 and next-rid"),
        ("H group\t1000\ta/b\n", "bad name"),
        (
            "H user\t1000\ta\t-\t-\t0\t-\t-\n",
            "a user line has nine fields",
        ),
        (
            "H user\t1000\ta\t-\t-\t0\t-\t-\t\tx\n",
            "a user line has nine fields",
        ),
        ("H user\t1000\ta\tabcd\t-\t0\t-\t-\t\n", "bad NT hash"),
        ("H user\t1000\ta\t-\troot\t0\t-\t-\t\n", "unknown flag"),
        (
            "H user\t1000\ta\t-\t-\t-1\t-\t-\t\n",
            "bad time of password change",
        ),
        ("H user\t1000\ta\t-\t-\t0\t1\t-\t\n", "bad uid:gid"),
        ("H user\t1000\ta\t-\t-\t0\t4294967296:1\t-\t\n", "bad uid"),
        (
            "H user\t1000\ta\t-\t-\t0\t-\t1001\t\n",
            "group does not exist",
        ),
        (
            "H group\t1000\tg\nuser\t1001\ta\t-\t-\t0\t-\t1000,1000\t\n",
            "group is named twice",
        ),
        ("H next-rid\t2000\n", "unknown or repeated line"),
        ("H share\tx\n", "unknown or repeated line"),
    ];
    for (text, what) in cases {
        let text = text.replace("H ", head);
        let line = text.lines().count().max(1);
        assert_eq!(
            UserDb::parse(&text),
            Err(UserDbError::Line { line, what }),
            "{text:?}"
        );
    }
}

#[test]
fn rids_are_never_reused() {
    let mut db = sample();
    db.remove_user("bert").unwrap();
    let db2 = UserDb::parse(&db.serialise()).unwrap();
    assert_eq!(db2.next_rid(), 1003);
    let mut db = db2;
    assert_eq!(db.add_user("bert"), Ok(1003));
    assert_eq!(db.name_of_rid(1002), None);
    assert_eq!(db.name_of_rid(1000), Some("staff"));
}

#[test]
fn names_are_unique_over_users_and_groups_and_case() {
    let mut db = sample();
    assert_eq!(db.add_user("ANNA"), Err(UserDbError::Exists));
    assert_eq!(db.add_user("Staff"), Err(UserDbError::Exists));
    assert_eq!(db.add_group("anna"), Err(UserDbError::Exists));
    for bad in [
        "",
        " a",
        "a ",
        "a.",
        "a\\b",
        "a@b",
        "a\tb",
        "a\nb",
        &"x".repeat(65),
    ] {
        assert_eq!(db.add_user(bad), Err(UserDbError::BadName), "{bad:?}");
    }
    assert_eq!(db.next_rid(), 1003, "refused names use no RID");
}

#[test]
fn find_never_falls_back_to_another_name() {
    let db = sample();
    assert_eq!(db.find("aNNa").unwrap().name, "Anna");
    for other in ["DOMAIN\\anna", "anna@domain", "anna ", "ann", "", "staff"] {
        assert!(db.find(other).is_none(), "{other:?}");
    }
}

#[test]
fn removing_a_group_ends_memberships() {
    let mut db = sample();
    assert_eq!(db.members(1000).count(), 1);
    db.remove_group("staff").unwrap();
    assert_eq!(db.members(1000).count(), 0);
    assert!(db.user("anna").unwrap().group_rids.is_empty());
    assert_eq!(db.add_member("staff", "anna"), Err(UserDbError::NoGroup));
    UserDb::parse(&db.serialise()).unwrap();
}

#[test]
fn debug_shows_no_hash() {
    let text = format!("{:?}", sample());
    assert!(
        text.contains("Anna") && !text.contains("a4f4") && !text.contains("164"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn mutated_files_never_panic_and_reread_the_same(at in 0usize..400, byte in 0u8..128, cut in 0usize..500) {
        let mut bytes = sample().serialise().as_bytes().to_vec();
        if let Some(b) = bytes.get_mut(at) { *b = byte; }
        bytes.truncate(cut.max(100));
        if let Ok(text) = String::from_utf8(bytes)
            && let Ok(db) = UserDb::parse(&text)
        {
            prop_assert_eq!(UserDb::parse(&db.serialise()).unwrap(), db);
        }
    }
}
