//! Tests of the configuration: the example, defaults, and the exact text of every refusal.

use std::{collections::BTreeMap, io, path::Path, time::Duration};

use serde::de::DeserializeOwned;

use super::*;

/// A folder with a share in it, and the text of a configuration that serves it.
fn with_share(before: &str, share_keys: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let text = format!("{before}\n[[share]]\nname = \"s\"\npath = \"data\"\n{share_keys}\n");
    (folder, text)
}

fn accept(before: &str, share_keys: &str) -> Config {
    let (folder, text) = with_share(before, share_keys);
    parse(&text, &folder.path().join("h.toml")).unwrap_or_else(|report| panic!("{report}"))
}

/// The complaints with the folder's name taken out.
fn refuse(before: &str, share_keys: &str) -> String {
    let (folder, text) = with_share(before, share_keys);
    let report = parse(&text, &folder.path().join("h.toml")).unwrap_err();
    report
        .to_string()
        .replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn defaults() {
    let config = accept("", "");
    assert_eq!(config.listeners, [listen_everywhere()]);
    assert_eq!(config.listeners[0].address.to_string(), "[::]:445");
    assert_eq!(config.limits, LimitSettings::default());
    assert_eq!(config.metrics, None);
    assert_eq!(config.server.signing, Signing::Required);
    assert_eq!(config.server.encryption, Encryption::Offered);
    assert_eq!(config.server.workgroup, "WORKGROUP");
    assert_eq!(config.server.ciphers.len(), 4);
    assert_eq!(
        config.server.users_file,
        config.server.state_dir.join("users")
    );
    let share = &config.shares[0];
    assert!(share.path.is_absolute() && share.path.ends_with("data"));
    assert_eq!(share.durability.policy, Policy::Honor);
    assert!(
        share.hide_dot_files
            && share.short_names
            && share.browseable
            && !share.guest
            && !share.read_only
    );
    assert_eq!((share.file_mode, share.directory_mode), (0o644, 0o755));
}

#[test]
fn shares_inherit_and_override() {
    let before = "[durability]\npolicy = \"bounded\"\nmax_delay = \"50ms\"\nmax_bytes = \"4MiB\"\n\
                  ignore_full_sync = true";
    let bounded = policy::bounded(Duration::from_millis(50), 4 << 20).unwrap();
    let config = accept(before, "");
    assert_eq!(config.shares[0].durability.policy, bounded);
    assert!(config.shares[0].durability.ignore_full_sync);
    let config = accept(
        before,
        "durability = \"strict-sync\"\nignore_full_sync = false",
    );
    assert_eq!(config.shares[0].durability.policy, Policy::StrictSync);
    assert!(!config.shares[0].durability.ignore_full_sync);
    let guarded = "durability = \"treat-host-as-stable-storage\"";
    let config = accept("[durability]\nprotection = \"ups\"", guarded);
    assert_eq!(
        config.shares[0].durability.policy,
        Policy::TreatHostAsStableStorage
    );
    accept("[durability]\naccept_loss = true", guarded);
    accept("", &format!("{guarded}\naccept_loss = true"));
    // The share's own refusal outweighs the inherited consent.
    refuse(
        "[durability]\naccept_loss = true",
        &format!("{guarded}\naccept_loss = false"),
    );
    accept(
        "[server]\nencryption = \"required\"",
        "encryption = \"required\"",
    );
}

#[test]
fn an_unknown_key_is_shown_with_place_and_suggestion() {
    assert_eq!(
        refuse("", "durabilty = \"honor\""),
        "\
error: unknown key `durabilty`
 --> h.toml:5:1
  |
5 | durabilty = \"honor\"
  | ^^^^^^^^^
  = did you mean `durability`?
"
    );
    assert!(refuse("[limit]", "").contains("did you mean `limits`?"));
    let smb1 = refuse("[server]\nmin_protocol = \"1.0\"", "");
    assert!(smb1.contains("known here: 2.0.2, 2.1, 3.0"), "{smb1}");
    assert!(refuse("[server]\nsigning = \"requierd\"", "").contains("did you mean `required`?"));
    assert!(refuse("[server]\nmax_protocol = \"SMB3\"", "").contains("known here: 2.0.2, 2.1"));
    assert!(refuse("", "veto_files = 1").contains("known here: name, path, comment"));
}

#[test]
fn strict_sync_takes_no_times_away_from_a_flush() {
    let own = refuse("", "durability = \"strict-sync\"\nflush_times = false");
    assert!(
        own.contains("under strict-sync every answer covers the times"),
        "{own}"
    );
    let rule = "[[share.durability_rule]]\npaths = [\"db/**\"]\ndurability = \"strict-sync\"\n\
                flush_times = false";
    assert!(refuse("", rule).contains("under strict-sync every answer covers the times"));
    let rule = rule.replace("strict-sync", "honor");
    let config = accept("", &rule);
    let mut rules = config.shares[0].rules.iter();
    assert_eq!(rules.next().unwrap().flush_times, Some(false));
}

#[test]
fn options_of_durability_are_inherited_and_overridden() {
    let before = "[durability]\nunbuffered = \"hint\"\ndurable_acl = true\nflush_times = false\n\
                  flush_journal = true";
    let of = |config: &Config| {
        let share = &config.shares[0];
        let of = share.durability;
        let options = (of.durable_acl, of.flush_times, share.flush_journal);
        (of.unbuffered_is_write_through, options)
    };
    assert_eq!(of(&accept("", "")), (true, (false, true, false)));
    assert_eq!(of(&accept(before, "")), (false, (true, false, true)));
    let own = "unbuffered = \"write-through\"\ndurable_acl = false\nflush_times = true\n\
               flush_journal = false";
    assert_eq!(of(&accept(before, own)), (true, (false, true, false)));
}

#[test]
fn unguarded_loss_is_refused_with_a_way_out() {
    assert_eq!(
        refuse("", "durability = \"treat-host-as-stable-storage\""),
        "\
error: treat-host-as-stable-storage loses acknowledged data when this machine fails, and nobody has agreed to that
 --> h.toml:5:14
  |
5 | durability = \"treat-host-as-stable-storage\"
  |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = say accept_loss = true, or protection = \"ups\" or \"plp\" in [durability] if the host has it; or use policy \"bounded\"
"
    );
}

/// The text in the file, and a part of the complaint.
const REFUSED: &[(&str, &str)] = &[
    (
        "[durability]\npolicy = \"bounded\"",
        "set max_delay and max_bytes",
    ),
    (
        "[durability]\npolicy = \"bounded\"\nmax_delay = \"5s\"",
        "set max_delay and max_bytes",
    ),
    (
        "[durability]\npolicy = \"bounded\"\nmax_delay = \"5h\"\nmax_bytes = 65536",
        "between 1ms and 60s",
    ),
    (
        "[durability]\nmax_delay = \"50ms\"",
        "a bound without policy",
    ),
    (
        "[durability]\npolicy = \"honor\"\nmax_bytes = 65536",
        "no meaning with policy = \"honor\"",
    ),
    ("[limits]\ncompound_length = 129", "use 4 to 128"),
    ("[limits]\ncredits = 65536", "use 64 to 65535"),
    (
        "[[share]]\nname = \"S\"\npath = \"data\"",
        "a second share named `s` (the first is `S`",
    ),
    (
        "[[share]]\nname = \"ipc$\"\npath = \"data\"",
        "keeps for itself",
    ),
    (
        "[[share]]\nname = \"Admin$\"\npath = \"data\"",
        "keeps for itself",
    ),
    (
        "[[share]]\nname = \"a/b\"\npath = \"data\"",
        "clients cannot write `/`",
    ),
    (
        "[[share]]\nname = \"\"\npath = \"data\"",
        "cannot be a share name",
    ),
    ("[[share]]\npath = \"data\"", "this share has no name"),
    ("[[share]]\nname = \"x\"", "this share has no path"),
    ("[[share]]\nname = \"x\"\npath = \"nowhere\"", "mkdir -p"),
    (
        "[[share]]\nname = \"x\"\npath = \"/proc/self/stat\"",
        "is not a directory",
    ),
    (
        "[metrics]\nlisten = \"0.0.0.0:9445\"",
        "can be reached from outside",
    ),
    (
        "[metrics]\nlisten = \"[2001:db8::1]:9445\"",
        "can be reached from outside",
    ),
    (
        "[server]\nmin_protocol = \"3.1.1\"\nmax_protocol = \"2.1\"",
        "no dialect is left",
    ),
    (
        "[server]\nencryption = \"required\"\nmax_protocol = \"2.1\"",
        "ends before SMB 3",
    ),
    (
        "[server]\nencryption = \"required\"\nmax_protocol = \"3.0\"\nciphers = [\"aes-128-gcm\"]",
        "older dialects have aes-128-ccm only",
    ),
    ("[server]\nname = \"a.b\"", "cannot be the name"),
    (
        "[server]\nguest_account = \"a\\nb\"",
        "error: there is no local user `a\\nb`\n",
    ),
    (
        "[server]\nworkgroup = \"sixteen-letters-\"",
        "cannot be the workgroup",
    ),
    ("[server]\nciphers = []", "ciphers is empty"),
    (
        "[server]\nciphers = [\"aes-128-gcm\", \"aes-128-gcm\"]",
        "one algorithm twice",
    ),
    (
        "[server]\nhosts_deny = [\"localhost\"]",
        "names are not looked up",
    ),
    (
        "[[listener]]\nport = 445\n[[listener]]\nport = 445",
        "two listeners on [::]:445",
    ),
    (
        "[[listener]]\naddress = \"[::]:445\"\n[[listener]]\naddress = \"192.0.2.1:445\"",
        "192.0.2.1:445 and [::]:445 have connections in common",
    ),
    (
        "[[listener]]\naddress = \"192.0.2.1:445\"\ninterface = \"a\"\n[[listener]]\naddress = \"0.0.0.0:445\"",
        "0.0.0.0:445 and 192.0.2.1:445 have connections in common",
    ),
    ("[[listener]]\nport = 0", "nobody can find"),
    (
        "[[listener]]\nport = 445\naddress = \"[::]:445\"",
        "both say a port",
    ),
    ("[[listener]]\ncores = []", "between 1 and 1024"),
    (
        "[[listener]]\ninterface = \"an-interface-too-long\"",
        "no interface name",
    ),
    ("[[listener]]\nspeed = \"fast\"", "no speed of a link"),
    ("[limits]\nconnections = 0", "use 1 to 1000000"),
    ("[durability]\ndirty_inodes_max = 0", "use 1 to 10000000"),
    ("[limits]\nio_size = \"16MiB\"", "use \"64KiB\" to \"8MiB\""),
    (
        "[limits]\nio_size = \"16MB\"",
        "a number with KiB, MiB or GiB",
    ),
    (
        "[limits]\nauthentication_timeout = \"1ms\"",
        "nobody logs in that fast",
    ),
    ("[log]\nfilter = \"a=b=c\"", "log filter:"),
    ("[log]\nfilter = \"verbose\"", "`verbose` is no level"),
    ("[metrics]\nlisten = \"127.0.0.1:0\"", "port 0 is no port"),
    (
        "[metrics]\nlisten = \"127.0.0.1:445\"",
        "port 445 is no port",
    ),
    ("[server]\nhosts_allow = []", "admits everybody"),
    ("[durability]\nsyncs_in_flight_max = 0", "use 1 to 1024"),
    ("x", "h.toml:1:"),
    (
        "[global]\nread only = no",
        "= the file is in TOML: KEY = VALUE",
    ),
    ("[server]\n[server]", "each key and table once"),
    ("[server]\nstate_dir = \"\"", "`` is no path"),
    (
        "[server]\nusers_file = \"a\\u0000\"",
        "is no path: write one",
    ),
    ("[sandbox]\nfolders = [1]", "write a path in quotes"),
    (
        "[[share]]\nname = \"home\"\npath = \"~/files\"",
        "a shell replaces `~`",
    ),
    // Each type as another.
    (
        "[server]\nanonymous_listing = \"no\"",
        "error: string \"no\" cannot stand here",
    ),
    ("[log]\nfilter = 1", "write a text in quotes"),
    (
        "[server]\nciphers = \"aes-128-gcm\"",
        "write a list in brackets",
    ),
    (
        "[listener]\nport = 445",
        "a table that there may be several of",
    ),
    ("[listener]\nport = 445", "error: a table cannot stand here"),
    ("server = 1", "write the table's name in brackets"),
    // Its values would be those of the keys in their order.
    (
        "log = [\"info\", \"auto\"]",
        "error: a list cannot stand here",
    ),
    (
        "listener = [[\"127.0.0.1:445\"]]",
        "write the table's name in brackets",
    ),
    ("[limits]\nopens = -1", "integer `-1` cannot stand here"),
    ("[limits]\nopens = \"16\"", "write a whole number"),
    (
        "[[listener]]\nport = 65536",
        "write a whole number from 0 to 65535,",
    ),
    (
        "[limits]\nopens = 4294967296",
        "write a whole number from 0 to 4294967295,",
    ),
    (
        "[limits]\nopens = 99999999999999999999",
        "integer `99999999999999999999` cannot stand here",
    ),
    ("[[listener]]\ncores = [\"0\"]", "write a whole number"),
    ("[server]\nsigning = true", "write a word in quotes"),
    ("[server]\nsigning = []", "write a word in quotes"),
    ("[metrics]\nlisten = \"9445\"", "as in \"127.0.0.1:4455\""),
    ("[metrics]\nlisten = 9445", "as in \"127.0.0.1:4455\""),
    (
        "[server]\nshutdown_grace = 5",
        "write a span of time such as \"50ms\"",
    ),
];

/// The text in the share, and a part of the complaint.
const REFUSED_OF_SHARE: &[(&str, &str)] = &[
    ("guest = true", "guests, who have no key to sign with"),
    ("durability = \"bounded\"", "as in \"bounded:50ms,4MiB\""),
    ("owner = \"alice\"", "`id NAME` prints them"),
    ("file_mode = 664", "octal digits in quotes"),
    ("directory_mode = \"2775\"", "chmod g+s"),
    ("file_mode = \"0464\"", "owners could not use"),
    ("users = []", "an empty list of users says nothing"),
    ("hosts_allow = []", "admits everybody"),
    ("path = \"again\"", "duplicate key"),
    ("unbuffered = \"hnt\"", "did you mean `hint`?"),
    (
        "durability = \"bounded:50ms,4MiB\"\ncontinuous_availability = true",
        "a continuously available share needs the policy",
    ),
];

/// The text in the file, the text in the share, and a part of the complaint.
const REFUSED_TOGETHER: &[(&str, &str, &str)] = &[
    (
        "[server]\nsigning = \"desired\"",
        "guest = true\nencryption = \"required\"",
        "set encryption = \"offered\" for this share",
    ),
    // A share cannot take back what the server requires.
    (
        "[server]\nsigning = \"desired\"\nencryption = \"required\"",
        "guest = true",
        "set encryption = \"offered\" in [server]",
    ),
    (
        "[durability]\npolicy = \"treat-host-as-stable-storage\"",
        "durability = \"honor\"",
        "nobody has agreed",
    ),
    (
        "[server]\nencryption = \"required\"",
        "encryption = \"offered\"",
        "cannot take that back",
    ),
    (
        "[server]\nmax_protocol = \"2.1\"",
        "encryption = \"required\"",
        "ends before SMB 3, where encryption begins",
    ),
    (
        "[server]\nmax_protocol = \"3.0.2\"\nciphers = [\"aes-256-gcm\"]",
        "encryption = \"required\"",
        "add \"aes-128-ccm\" to ciphers",
    ),
    (
        "[durability]\nsync_on_stop = false",
        "durability = \"bounded:50ms,4MiB\"",
        "share s: `bounded` cannot keep its bound",
    ),
    (
        "[durability]\nsync_on_stop = false",
        "[[share.durability_rule]]\npaths = [\"*.tmp\"]\ndurability = \"bounded:50ms,4MiB\"",
        "share s: `bounded` cannot keep its bound",
    ),
];

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

#[test]
fn a_comment_is_as_long_as_clients_show() {
    let keys = |count: usize| format!("comment = \"{}\"", "ö".repeat(count));
    accept(&format!("[server]\n{}", keys(256)), &keys(256));
    for (before, share_keys) in [
        (format!("[server]\n{}", keys(257)), String::new()),
        (String::new(), keys(257)),
    ] {
        assert!(refuse(&before, &share_keys).contains("longer than clients show"));
    }
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let in_file = REFUSED.iter().map(|(text, why)| (*text, "", *why));
    let in_share = (REFUSED_OF_SHARE.iter()).map(|(keys, why)| ("", *keys, *why));
    let together = REFUSED_TOGETHER.iter().copied();
    for (before, share_keys, expected) in in_file.chain(in_share).chain(together) {
        let complaint = refuse(before, share_keys);
        assert!(
            complaint.contains(expected),
            "{before}\n{share_keys}\ngave\n{complaint}"
        );
        assert!(complaint.contains("h.toml:"), "no place: {complaint}");
    }
}

#[test]
fn listeners_that_the_kernel_keeps_apart() {
    let listeners = |tables: &[&str]| {
        let tables = tables.iter().map(|keys| format!("[[listener]]\n{keys}\n"));
        accept(&tables.collect::<String>(), "").listeners.len()
    };
    let (four, six) = ("address = \"0.0.0.0:445\"", "address = \"[::1]:445\"");
    assert_eq!(listeners(&[four, six, "port = 4450"]), 3);
    assert_eq!(listeners(&["interface = \"a\"", "interface = \"b\""]), 2);
}

#[test]
fn an_ipv4_address_in_the_form_of_ipv6_is_one_of_ipv4() {
    let mapped = "[[listener]]\naddress = \"[::ffff:192.0.2.1]:445\"\n";
    let listener = accept(mapped, "").listeners.remove(0);
    assert_eq!(listener.address.to_string(), "192.0.2.1:445");
    let both = format!("{mapped}[[listener]]\naddress = \"192.0.2.1:445\"\n");
    let refused = refuse(&both, "");
    assert!(
        refused.contains("two listeners on 192.0.2.1:445"),
        "{refused}"
    );
}

#[test]
fn all_complaints_come_at_once_and_in_order() {
    let text = refuse("[limits]\nconnections = 0\ncredits = 1", "guest = true");
    assert_eq!(text.matches("error: ").count(), 3);
    assert!(text.find("connections = 0") < text.find("guest = true"));
    let nothing = parse("", Path::new("h.toml")).unwrap_err().to_string();
    assert!(nothing.starts_with("error: no [[share]]: there is nothing to serve\n  --> h.toml\n"));
}

#[test]
fn a_byte_order_mark_is_no_mistake() {
    let (folder, text) = with_share("", "");
    parse(&format!("\u{feff}{text}"), &folder.path().join("h.toml")).unwrap();
}

#[test]
fn nobody_makes_a_folder_that_is_there() {
    let way_out = |kind: io::ErrorKind| share::way_to(Path::new("/srv/a"), &io::Error::from(kind));
    assert!(way_out(io::ErrorKind::NotFound).contains("mkdir -p /srv/a"));
    assert!(!way_out(io::ErrorKind::PermissionDenied).contains("mkdir"));
}

#[test]
fn missing_and_huge_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h.toml");
    assert!(load(&path).unwrap_err().to_string().contains("annotated"));
    // UTF-16 and Latin-1, as an editor may have them.
    for (text, place) in [
        (&b"\xff\xfe[\0"[..], "h.toml:1:1"),
        (b"[server]\ncomment = \"caf\xe9\"\n", "h.toml:2:15"),
    ] {
        std::fs::write(&path, text).unwrap();
        let refused = load(&path).unwrap_err().to_string();
        assert!(refused.contains(place), "{refused}");
        let way_out = "\n  = save the file as UTF-8\n";
        assert!(refused.ends_with(way_out), "{refused}");
    }
    std::fs::File::create(&path)
        .unwrap()
        .set_len(FILE_BYTES_MAX + 1)
        .unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("too many"));
    // A pipe has no size.
    let pipe = folder.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let text = vec![b'#'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
    let to = pipe.clone();
    // It cannot write the rest to a reader that has had enough.
    let writer = std::thread::spawn(move || drop(std::fs::write(to, text)));
    assert!(load(&pipe).unwrap_err().to_string().contains("too many"));
    writer.join().unwrap();
}

#[test]
fn the_first_table_too_many_is_shown() {
    let listener = |port: u16| format!("[[listener]]\nport = {port}\n");
    let listeners = |count: u16| (1..=count).map(listener).collect::<String>();
    accept(&listeners(256), "");
    let refused = refuse(&listeners(257), "");
    for part in ["more than 256 listeners", "h.toml:513:", "= listen on"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn a_file_with_mistakes_still_says_which_server_is_meant() {
    let (folder, text) = with_share("[server]\nstate_dir = \"st\"", "no_such_key = 1");
    let path = folder.path().join("h.toml");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(state_dir_of(&path).unwrap(), folder.path().join("st"));
    std::fs::write(&path, text.replace("state_dir = \"st\"", "")).unwrap();
    assert_eq!(
        state_dir_of(&path).unwrap(),
        crate::config::places::default()
    );
    for bad in [text.replace("\"st\"", "5"), format!("{text}\nno toml")] {
        std::fs::write(&path, bad).unwrap();
        let wrong = state_dir_of(&path).unwrap_err().to_string();
        assert!(wrong.starts_with("error: "), "{wrong}");
    }
}

#[test]
fn restarts_are_named() {
    let mut old = accept("", "");
    let mut new = old.clone();
    old.dirty_inodes = Some(5000);
    new.shares[0].read_only = true;
    new.limits.connections = Some(7);
    assert!(keep_until_restart(&mut new, &old).is_empty());
    new.listeners[0].cores = vec![0];
    new.server.file_io = FileIo::Threads;
    new.server.shutdown_grace = Duration::from_secs(1);
    new.durability.dirty_age_max = Duration::from_secs(1);
    let named = [
        "[[listener]]",
        "[server] state_dir, file_io, shutdown_grace",
        "[durability] dirty_inodes_max, dirty_age_max, syncs_in_flight_max, latched_inodes_max",
    ];
    let read = new.clone();
    assert_eq!(keep_until_restart(&mut new, &old), named);
    // In force are the settings that the server was started with, and the rest of the file.
    assert_eq!(new.server, old.server);
    assert_eq!(
        (&new.listeners, &new.durability),
        (&old.listeners, &old.durability)
    );
    assert_eq!(new.dirty_inodes, Some(5000));
    assert_eq!(
        (new.limits.connections, new.shares[0].read_only),
        (Some(7), true)
    );
    // The same file once more differs as before, and the first one again does not.
    let mut again = read;
    assert_eq!(keep_until_restart(&mut again, &new), named);
    assert!(keep_until_restart(&mut old.clone(), &new).is_empty());
}

#[test]
fn a_folder_that_was_served_may_have_gone() {
    let (folder, text) = with_share("", "");
    let path = folder.path().join("h.toml");
    std::fs::write(&path, text).unwrap();
    let gone = load(&path).unwrap().shares[0].path.clone();
    std::fs::remove_dir(&gone).unwrap();
    load(&path).unwrap_err();
    load_again(&path, &[folder.path().join("another")]).unwrap_err();
    assert_eq!(
        load_again(&path, std::slice::from_ref(&gone))
            .unwrap()
            .shares[0]
            .path,
        gone
    );
}

#[test]
fn a_folder_of_the_sandbox_may_have_gone_too() {
    let (folder, text) = with_share("", "[sandbox]\nfolders = [\"more\"]\n");
    let path = folder.path().join("h.toml");
    std::fs::write(&path, text).unwrap();
    let more = folder.path().join("more");
    std::fs::create_dir(&more).unwrap();
    let config = load(&path).unwrap();
    std::fs::remove_dir(&more).unwrap();
    let refused = load(&path).unwrap_err().to_string();
    assert!(refused.contains("more is not a directory"), "{refused}");
    let again = load_again(&path, std::slice::from_ref(&config.shares[0].path));
    assert_eq!(again.unwrap().sandbox, config.sandbox);
}

/// The keys of a table, as its deserializer names them when it meets an unknown one.
fn keys<T: DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
    let error = toml::from_str::<T>("no_such_key = 1").unwrap_err();
    let rest = error
        .message()
        .split_once("expected")
        .expect("a list of keys")
        .1
        .to_owned();
    rest.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

const EXAMPLE: &str = include_str!("../../../examples/holdfast.toml");

#[test]
fn the_example_names_every_key() {
    let tables: BTreeMap<&str, Vec<String>> = [
        ("server", keys::<raw::ServerTable>()),
        ("listener", keys::<raw::ListenerTable>()),
        ("share", keys::<raw::ShareTable>()),
        ("durability", keys::<raw::DurabilityTable>()),
        ("limits", keys::<raw::LimitsTable>()),
        ("log", keys::<raw::LogTable>()),
        ("metrics", keys::<raw::MetricsTable>()),
        ("sandbox", keys::<raw::SandboxTable>()),
    ]
    .into();
    let named: Vec<String> = keys::<raw::File>();
    assert!(
        named
            .iter()
            .all(|table| tables.contains_key(table.as_str())),
        "{named:?}"
    );
    let everything: toml::Table = uncommented(EXAMPLE, &[]).parse().unwrap();
    for (name, keys) in tables {
        let table = match &everything[name] {
            toml::Value::Array(list) => list[0].as_table().unwrap(),
            other => other.as_table().unwrap(),
        };
        for key in &keys {
            assert!(
                table.contains_key(key),
                "the example lacks `{key}` of [{name}]"
            );
        }
    }
    let rule = &everything["share"][0]["durability_rule"][0];
    for key in keys::<raw::RuleTable>() {
        assert!(
            rule.get(&key).is_some(),
            "the example lacks `{key}` of a rule"
        );
    }
    // And every value in it, active or not, has the right type.
    toml::from_str::<raw::File>(&uncommented(EXAMPLE, &[])).unwrap();
}

/// A text with every `#key = value` line made active, except for these keys.
fn uncommented(text: &str, except: &[&str]) -> String {
    let shown = |rest: &&str| {
        let key = rest.split(' ').next().unwrap_or_default();
        rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') && !except.contains(&key)
    };
    let lines = text.lines();
    let active = lines.map(|line| line.strip_prefix('#').filter(shown).unwrap_or(line));
    active.collect::<Vec<_>>().join("\n")
}

/// The keys for which the example shows no default: there is none, or it depends on the machine.
const WITHOUT_DEFAULT: [&str; 25] = [
    "name",
    "hosts_allow",
    "hosts_deny",
    "state_dir",
    "users_file",
    "administrators",
    "guest_account",
    "interface",
    "port",
    "cores",
    "speed",
    "rss",
    "users",
    "groups",
    "owner",
    "max_delay",
    "max_bytes",
    "dirty_inodes_max",
    "connections",
    "sessions_per_connection",
    "opens",
    "opens_per_user",
    "buffer_memory",
    "listen",
    "folders",
];

#[test]
fn the_example_is_a_valid_configuration_that_shows_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let config_of = |text: &str| {
        let text = text.replace("/srv/files", folder.path().to_str().unwrap());
        parse(&text, Path::new("h.toml")).unwrap_or_else(|report| panic!("{report}"))
    };
    let parts = EXAMPLE.split("\n\n");
    let parts = parts.filter(|part| !part.contains("[[share.durability_rule]]"));
    let without_rule = parts.collect::<Vec<_>>().join("\n\n");
    let shown = uncommented(&without_rule, &WITHOUT_DEFAULT);
    assert_eq!(config_of(&shown), config_of(EXAMPLE));
}
