//! Compares the `--json` output of a real server with `smbd/schema/`: it has the shape that the schemas say, and no
//! field that they do not name.
//!
//! The check knows the words of JSON Schema that these files use, and refuses others.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Map, Value};
use smb_client::CreateArgs;

use crate::support::{Daemon, Plan};

/// Words that restrict nothing here.
const NOTES: [&str; 6] = [
    "$schema",
    "$defs",
    "title",
    "description",
    "format",
    "minimum",
];

struct Schema(Value);

impl Schema {
    fn read(name: &str) -> Self {
        Self::read_in("schema", name)
    }

    /// From a folder beside this crate's manifest.
    fn read_in(folder: &str, name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let text = fs::read_to_string(folder.join(format!("{name}.schema.json"))).unwrap();
        Self(serde_json::from_str(&text).unwrap())
    }

    /// The first thing that is wrong with a value.
    fn check(&self, value: &Value) -> Result<(), String> {
        self.check_by(&self.0, value, "$")
    }

    fn check_by(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let Some(words) = schema.as_object() else {
            return if schema == true {
                Ok(())
            } else {
                Err(at.to_owned())
            };
        };
        for (word, rule) in words {
            match word.as_str() {
                "$ref" => {
                    let pointer = rule.as_str().unwrap().trim_start_matches('#');
                    self.check_by(self.0.pointer(pointer).unwrap(), value, at)?;
                }
                "type" => {
                    let is = |kind: &Value| has_type(value, kind.as_str().unwrap());
                    let types = rule
                        .as_array()
                        .map_or(std::slice::from_ref(rule), Vec::as_slice);
                    if !types.iter().any(is) {
                        return Err(format!("{at} is no {rule}: {value}"));
                    }
                }
                "const" | "enum" => {
                    let any = rule
                        .as_array()
                        .map_or(std::slice::from_ref(rule), Vec::as_slice);
                    if !any.contains(value) {
                        return Err(format!("{at} is none of {rule}: {value}"));
                    }
                }
                "anyOf" | "oneOf" => {
                    let each = rule.as_array().unwrap().iter();
                    let wrong: Result<Vec<String>, ()> = each
                        .map(|one| self.check_by(one, value, at).err().ok_or(()))
                        .collect();
                    if let Ok(wrong) = wrong {
                        return Err(wrong.join(", and "));
                    }
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check_by(rule, item, &format!("{at}[{index}]"))?;
                    }
                }
                "required" => {
                    for name in rule.as_array().unwrap() {
                        let name = name.as_str().unwrap();
                        if value.as_object().is_some_and(|has| !has.contains_key(name)) {
                            return Err(format!("{at}.{name} is missing"));
                        }
                    }
                }
                "properties" | "additionalProperties" => {}
                note if NOTES.contains(&note) => {}
                other => panic!("the check does not know `{other}`"),
            }
        }
        match value {
            Value::Object(fields) => self.check_fields(words, fields, at),
            _ => Ok(()),
        }
    }

    fn check_fields(
        &self,
        words: &Map<String, Value>,
        fields: &Map<String, Value>,
        at: &str,
    ) -> Result<(), String> {
        // A schema that only refers to others says nothing of fields.
        if !words.contains_key("type") {
            return Ok(());
        }
        let more = words.get("additionalProperties");
        for (name, value) in fields {
            let named = words.get("properties").and_then(|named| named.get(name));
            let rule = named.or(more).filter(|rule| **rule != false);
            let rule = rule.ok_or_else(|| format!("{at}.{name} is not in the schema"))?;
            self.check_by(rule, value, &format!("{at}.{name}"))?;
        }
        Ok(())
    }
}

fn has_type(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the check does not know the type `{other}`"),
    }
}

fn said(daemon: &Daemon, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&daemon.ask(&words).unwrap()).unwrap()
}

#[test]
fn what_programs_read_is_as_the_schemas_say() {
    let plan = Plan {
        share: "durability = \"honor\"\nflush_journal = true\naccept_loss = true\n\
                [[share.durability_rule]]\npaths = [\"scratch/**\"]\n\
                durability = \"treat-host-as-stable-storage\"\n\
                [[share.durability_rule]]\npaths = [\"*.db\"]\n\
                durability = \"bounded:60s,1GiB\"\n"
            .into(),
        ..Plan::default()
    };
    let daemon = plan.start();
    let tree = daemon.tree();
    let file = tree.create(&CreateArgs::create("a.db")).unwrap();
    file.write_all(0, &[5; 20_480]).unwrap();
    let schema = Schema::read("status");
    let mut status = said(&daemon, &["status"]);
    assert_eq!(schema.check(&status), Ok(()));
    let share = status["server"]["shares"][0]["share"].clone();
    let share = share.as_str().unwrap();
    let shown = said(&daemon, &["policy", "show", share]);
    assert_eq!(Schema::read("policy-show").check(&shown), Ok(()));
    for (path, in_force) in [("a.db", true), ("scratch/x", false)] {
        let path = format!("{share}/{path}");
        let explained = said(&daemon, &["policy", "explain", &path]);
        assert_eq!(Schema::read("policy-explain").check(&explained), Ok(()));
        let open = &explained["in_force"]["opens"];
        assert_eq!(open.is_u64(), in_force, "{explained:#}");
    }
    daemon
        .ask(&["policy", "set", share, "strict-sync"])
        .unwrap();
    let changed = said(&daemon, &["status"]);
    assert_eq!(schema.check(&changed), Ok(()));
    assert_eq!(changed["server"]["shares"][0]["changed"]["was"], "honor");
    file.flush(false).unwrap();
    let of_report = Schema::read_in("../crates/holdfast-verify/schema", "durability-report");
    // A FLUSH that is answered before the disk is recorded within a fifth of a second.
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let report = said(&daemon, &["durability", "report"]);
        assert_eq!(of_report.check(&report), Ok(()));
        if report["shares"][0]["files"][0]["now"] == "there" {
            break;
        }
        assert!(Instant::now() < end, "{report:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let id = status["server"]["sessions"][0]["id"].as_u64().unwrap();
    let closed = said(&daemon, &["close", "session", &id.to_string()]);
    assert_eq!(Schema::read("close").check(&closed), Ok(()));
    // The check finds what is wrong, at any depth.
    let session = status.pointer_mut("/server/sessions/0").unwrap();
    session["signed"] = "yes".into();
    let wrong = schema.check(&status).unwrap_err();
    assert!(wrong.contains("$.server.sessions[0].signed"), "{wrong}");
    let session = status.pointer_mut("/server/sessions/0").unwrap();
    session.as_object_mut().unwrap().remove("signed");
    let wrong = schema.check(&status).unwrap_err();
    assert!(wrong.contains("signed is missing"), "{wrong}");
    let session = status.pointer_mut("/server/sessions/0").unwrap();
    session["signed"] = true.into();
    session["news"] = 1.into();
    let wrong = schema.check(&status).unwrap_err();
    assert!(wrong.contains("news is not in the schema"), "{wrong}");
}
