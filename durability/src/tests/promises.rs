//! The choices of an administrator: policies as text, what one of them promises beyond another, and rules.

use std::sync::Arc;

use crate::*;

#[test]
fn text_goes_both_ways() {
    for text in [
        "honor",
        "treat-host-as-stable-storage",
        "strict-sync",
        "bounded:50ms,4MiB",
        "bounded:1500us,65537B",
        "bounded:60000ms,1TiB",
    ] {
        assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
    }
    let two_seconds: Policy = "bounded:2s, 128KiB".parse().unwrap();
    assert_eq!(two_seconds.to_string(), "bounded:2000ms,128KiB");
}

#[test]
fn what_is_no_policy_is_refused() {
    for text in [
        "",
        "Honor",
        "strict",
        "bounded",
        "bounded:",
        "bounded:50ms",
        "bounded:50,4MiB",
        "bounded:0ms,4MiB",
        "bounded:61s,4MiB",
        "bounded:50ms,1KiB",
        "bounded:50ms,2TiB",
        "bounded:50ms,4MB",
        "bounded:-5ms,4MiB",
        "bounded:99999999999999999999s,4MiB",
        "bounded:50ms,18446744073709551615TiB",
    ] {
        assert!(text.parse::<Policy>().is_err(), "{text}");
    }
}

#[test]
fn tightening() {
    let b = |text: &str| text.parse::<Policy>().unwrap();
    let (honor, host, strict) = (
        Policy::Honor,
        Policy::TreatHostAsStableStorage,
        Policy::StrictSync,
    );
    assert!(host.tightens_to(&honor) && host.tightens_to(&strict));
    assert!(honor.tightens_to(&strict) && !strict.tightens_to(&honor));
    assert!(host.tightens_to(&b("bounded:1s,4MiB")));
    assert!(b("bounded:1s,4MiB").tightens_to(&b("bounded:900ms,8MiB")));
    assert!(!b("bounded:1s,4MiB").tightens_to(&b("bounded:2s,4MiB")));
    assert!(honor.tightens_to(&b("bounded:1s,4MiB")));
    assert!(b("bounded:1s,4MiB").tightens_to(&honor));
}

#[test]
fn continuous_availability_needs_a_policy_that_writes_through() {
    let check = |text: &str| {
        ShareDurability::with_policy(text.parse().unwrap()).check_continuous_availability()
    };
    assert!(check("honor").is_ok() && check("strict-sync").is_ok());
    assert!(check("treat-host-as-stable-storage").is_err());
    assert!(check("bounded:50ms,4MiB").is_err());
}

fn net(address: &str, prefix: u8) -> Network {
    let address = address.parse().unwrap();
    Network { address, prefix }
}

#[test]
fn networks() {
    for (network, inside, outside) in [
        (net("10.1.0.0", 16), "10.1.255.3", "10.2.0.1"),
        (net("10.1.0.0", 16), "::ffff:10.1.2.3", "::10.1.2.3"),
        (net("10.1.2.128", 25), "10.1.2.200", "10.1.2.100"),
        (net("127.0.0.1", 32), "::ffff:127.0.0.1", "127.0.0.2"),
        (net("0.0.0.0", 0), "8.8.8.8", "::1"),
        (net("fe80::", 10), "febf::1", "127.0.0.1"),
        (net("::", 0), "fe80::1", "::ffff:1.2.3.4"),
        (net("::1", 128), "::1", "::2"),
    ] {
        assert!(network.contains(inside.parse().unwrap()), "{inside}");
        assert!(!network.contains(outside.parse().unwrap()), "{outside}");
    }
}

fn rule(name: &str, policy: &str) -> Rule {
    Rule {
        name: name.to_owned(),
        policy: policy.parse().unwrap(),
        ..Rule::default()
    }
}

#[test]
fn the_first_rule_all_of_whose_criteria_hold_decides() {
    let rules = Rules::new(vec![
        Rule {
            clients: vec![net("10.0.0.0", 8)],
            users: vec!["Anna".to_owned()],
            dialects: Some(0x300..=0x311),
            ..rule("one", "strict-sync")
        },
        Rule {
            paths: ["scratch/**", "*.tmp"].map(|p| p.parse().unwrap()).into(),
            groups: vec!["staff".to_owned()],
            ..rule("two", "treat-host-as-stable-storage")
        },
        Rule {
            write_through: Some(true),
            unbuffered: Some(false),
            ..rule("three", "bounded:50ms,4MiB")
        },
    ])
    .unwrap();
    let opener = Opener {
        client: Some("10.2.3.4".parse().unwrap()),
        user: "ANNA".into(),
        groups: Arc::from(["Staff".into(), "wheel".into()]),
        dialect: 0x311,
        path: "scratch/a".into(),
        write_through: false,
        unbuffered: false,
    };
    let why = |opener: Opener| {
        let decision = rules.decide(Policy::Honor, &opener);
        decision
            .rule
            .map_or("share".to_owned(), |rule| rule.name.clone())
    };
    assert_eq!(why(opener.clone()), "one");
    let old = Opener {
        dialect: 0x210,
        ..opener.clone()
    };
    assert_eq!(why(old.clone()), "two");
    let local = Opener {
        client: None,
        ..opener.clone()
    };
    assert_eq!(why(local), "two");
    let alone = Opener {
        groups: Arc::from([]),
        ..old.clone()
    };
    assert_eq!(why(alone.clone()), "share");
    let through = Opener {
        write_through: true,
        ..alone.clone()
    };
    assert_eq!(why(through.clone()), "three");
    assert_eq!(
        why(Opener {
            unbuffered: true,
            ..through
        }),
        "share"
    );
    assert_eq!(
        rules.decide(Policy::StrictSync, &alone).policy,
        Policy::StrictSync
    );
}

#[test]
fn rules_have_limits() {
    let one = rule("r", "honor");
    assert!(Rules::new(vec![one.clone(); Rules::RULES_MAX]).is_ok());
    assert!(Rules::new(vec![one.clone(); Rules::RULES_MAX + 1]).is_err());
    let users = vec![String::new(); Rules::ENTRIES_MAX + 1];
    assert!(Rules::new(vec![Rule { users, ..one }]).is_err());
}
