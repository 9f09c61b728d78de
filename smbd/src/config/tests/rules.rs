//! The durability rules of a share: which are refused, and the order and place of those that hold.

use super::*;

/// Lines of a rule, and a part of the complaint.
const RULES_REFUSED: &[(&str, &str)] = &[
    ("users = [\"a\"]", "this rule has no durability"),
    ("durability = \"honor\"", "this rule is for every open"),
    (
        "durability = \"honr\"\nusers = [\"a\"]",
        "did you mean `honor`?",
    ),
    (
        "durability = \"honor\"\nuser = [\"a\"]",
        "did you mean `users`?",
    ),
    (
        "durability = \"honor\"\nusers = []",
        "an empty list of users",
    ),
    (
        "durability = \"honor\"\ngroups = []",
        "an empty list of groups",
    ),
    (
        "durability = \"honor\"\nclients = []",
        "an empty list of clients",
    ),
    (
        "durability = \"honor\"\npaths = []",
        "an empty list of paths",
    ),
    ("durability = \"honor\"\nopen = []", "an empty list of open"),
    (
        "durability = \"honor\"\nclients = [\"host\"]",
        "names are not looked up",
    ),
    (
        "durability = \"honor\"\ndialects = \"3\"",
        "`3` is no dialect",
    ),
    (
        "durability = \"honor\"\ndialects = [\"2.0.2\", \"3.0\"]",
        "must have no gap",
    ),
    ("durability = \"honor\"\ndialects = 3", "dialects such as"),
    (
        "durability = \"honor\"\npaths = [\"a\\\\b\"]",
        "divided by /",
    ),
    (
        "durability = \"honor\"\npaths = [\"ok\", \"a/../b\"]",
        "is no path pattern",
    ),
    (
        "durability = \"honor\"\nopen = [\"writethrough\"]",
        "did you mean `write-through`?",
    ),
    (
        "durability = \"treat-host-as-stable-storage\"\npaths = [\"tmp/**\"]",
        "nobody has agreed",
    ),
    (
        "durability = \"honor\"\nusers = [\"Alice\", \"bob\"]\n\
         [[share.durability_rule]]\ndurability = \"strict-sync\"\nusers = [\"alice\"]",
        "can never match: rule 1 (h.toml:5) covers",
    ),
    (
        "durability = \"honor\"\nclients = [\"10.0.0.0/8\"]\n[[share.durability_rule]]\n\
         durability = \"strict-sync\"\nclients = [\"10.1.2.3\"]\npaths = [\"*.db\"]",
        "can never match",
    ),
];

#[test]
fn rules_that_say_nothing_or_lose_something_are_refused() {
    for (rule, expected) in RULES_REFUSED {
        let complaint = refuse("", &format!("[[share.durability_rule]]\n{rule}"));
        assert!(complaint.contains(expected), "{rule}\ngave\n{complaint}");
        assert!(complaint.contains("h.toml:"), "no place: {complaint}");
    }
    let rule = "[[share.durability_rule]]\ndurability = \"honor\"\ndialects = \"..2.1\"";
    let none = refuse("[server]\nmin_protocol = \"3.0\"", rule);
    assert!(none.contains("none of these dialects is spoken"), "{none}");
    let kept_out = |share: &str, rule: &str| {
        let rule = format!("{share}\n[[share.durability_rule]]\ndurability = \"honor\"\n{rule}");
        refuse("[server]\nhosts_deny = [\"10.0.0.0/8\"]", &rule)
    };
    let none = kept_out("users = [\"alice\"]", "users = [\"bob\", \"carol\"]");
    assert!(none.contains("none of these users may connect"), "{none}");
    let none = kept_out("", "clients = [\"10.1.0.0/16\"]");
    assert!(none.contains("none of these clients may connect"), "{none}");
    let none = kept_out(
        "hosts_allow = [\"192.0.2.0/24\"]",
        "clients = [\"198.51.100.1\"]",
    );
    assert!(none.contains("none of these clients may connect"), "{none}");
    let some = |share: &str, rule: &str| {
        let rule = format!("{share}\n[[share.durability_rule]]\ndurability = \"honor\"\n{rule}");
        accept("[server]\nhosts_deny = [\"10.0.0.0/8\"]", &rule)
    };
    some("users = [\"alice\"]", "users = [\"bob\", \"ALICE\"]");
    some("users = [\"alice\"]\ngroups = [\"g\"]", "users = [\"bob\"]");
    some(
        "hosts_allow = [\"192.0.2.0/24\"]",
        "clients = [\"192.0.0.0/8\", \"10.1.1.1\"]",
    );
    let lazy = "continuous_availability = true\n[[share.durability_rule]]\n\
                durability = \"bounded:50ms,4MiB\"\nusers = [\"a\"]";
    assert!(refuse("", lazy).contains("promise write-through"));
    let many = "[[share.durability_rule]]\ndurability = \"honor\"\nusers = [\"u\"]\n";
    let many: String = (0..300)
        .map(|n| many.replace("\"u\"", &format!("\"u{n}\"")))
        .collect();
    assert!(refuse("", &many).contains("at most 256"));
}

#[test]
fn rules_keep_their_order_and_place() {
    let config = accept(
        "",
        "accept_loss = true\n[[share.durability_rule]]\nclients = [\"10.0.0.0/8\", \"::1\"]\n\
         users = [\"alice\"]\ngroups = [\"staff\"]\ndialects = \"2.1..3.0.2\"\n\
         paths = [\"*.mdb\", \"/db/**\"]\nopen = [\"unbuffered\"]\n\
         durability = \"strict-sync\"\n\n[[share.durability_rule]]\n\
         paths = [\"scratch/**\"]\ndurability = \"treat-host-as-stable-storage\"\n",
    );
    let rules: Vec<_> = config.shares[0].rules.iter().collect();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0].name, "rule 1 (h.toml:6)");
    assert_eq!(rules[1].name, "rule 2 (h.toml:15)");
    assert_eq!(rules[0].dialects, Some(0x210..=0x302));
    assert_eq!(
        (rules[0].write_through, rules[0].unbuffered),
        (None, Some(true))
    );
    assert_eq!(rules[0].clients.len(), 2);
    assert_eq!(rules[1].policy, Policy::TreatHostAsStableStorage);
    assert!(rules[1].paths[0].matches("scratch/a/b"));
}
