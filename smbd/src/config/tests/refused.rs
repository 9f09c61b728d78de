//! The values and combinations that are refused, each with a part of its complaint.

use super::*;

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
