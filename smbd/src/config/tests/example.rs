//! The annotated example: it names every key and shows the defaults.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::*;

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

const EXAMPLE: &str = include_str!("../../../../examples/holdfast.toml");

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
