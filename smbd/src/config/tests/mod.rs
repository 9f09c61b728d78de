//! Tests of the configuration: defaults, inheritance, reading again, and where complaints point to.

mod example;
mod refused;
mod rules;

use std::{io, path::Path, time::Duration};

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
