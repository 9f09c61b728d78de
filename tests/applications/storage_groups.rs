//! A mail store of `holdfast bench jetstress` on two shares: its database is on one, its logs are on the other.

use std::process::{Command, Output};

use smb_tests::{DATA, HoldfastServer, PASSWORD, SEALED, SECOND, USER};

fn jetstress(server: &HoldfastServer, more: &[&str]) -> Output {
    let place = format!("//{}/{DATA}/bench", server.addr());
    Command::new(smb_tests::binary())
        .args(["bench", "jetstress", place.as_str()])
        .args(["--user", USER, "--password-env"])
        .args(["--pages", "8192", "--clients", "2"])
        .args(["--seconds", "2", "--warm-up", "0"])
        .args(more)
        .env("HOLDFAST_PASSWORD", PASSWORD)
        .output()
        .unwrap()
}

/// The names of the files in the store's folder of a share.
fn names(server: &HoldfastServer, share: &str) -> Vec<String> {
    let folder = std::fs::read_dir(server.share_path(share, "bench")).unwrap();
    folder
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_store_has_its_database_and_its_logs_on_different_shares() {
    let server = HoldfastServer::new();
    let folder = tempfile::tempdir().unwrap();
    let steps = folder.path().join("steps");
    let more = ["--share", SECOND, "--output", steps.to_str().unwrap()];
    let done = jetstress(&server, &more);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(names(&server, DATA), ["group-00.edb"]);
    let logs = names(&server, SECOND);
    let is_log = |name: &String| name.starts_with("group-00-") && name.ends_with(".log");
    assert!(!logs.is_empty() && logs.iter().all(is_log), "{logs:?}");
    let text = String::from_utf8_lossy(&done.stdout);
    for line in [
        format!("share {DATA}: database-read "),
        format!("share {SECOND}: log-write "),
    ] {
        assert!(text.contains(&line), "{text}");
    }
    let record = std::fs::read_to_string(&steps).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["shares"], serde_json::json!([DATA, SECOND]));
    let verified = record["outcome"]["verified_log_writes"].as_u64();
    assert!(verified > Some(0), "{record}");
}

#[test]
fn a_store_is_not_begun_on_too_many_shares_or_on_one_that_is_not_there() {
    let server = HoldfastServer::new();
    let refused: [(&[&str], &str); 2] = [
        (&["--share", SECOND, "--share", SEALED], "3 shares"),
        (&["--share", "nowhere"], "nowhere"),
    ];
    for (more, why) in refused {
        let done = jetstress(&server, more);
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(text.contains(why), "{text}");
        assert!(!server.path("bench").exists());
    }
}

#[test]
fn a_share_that_refuses_the_folder_leaves_none_in_the_share_before_it() {
    let server = HoldfastServer::new();
    // A file has the name, so no folder can have it.
    let taken = server.share_path(SECOND, "bench");
    std::fs::write(&taken, b"").unwrap();
    let done = jetstress(&server, &["--share", SECOND]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(!server.path("bench").exists());
    assert!(taken.is_file());
    // A folder that was there before stays.
    std::fs::create_dir(server.path("bench")).unwrap();
    let done = jetstress(&server, &["--share", SECOND]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(server.path("bench").is_dir());
}

#[test]
fn a_plan_names_further_shares_as_the_command_line_does() {
    let server = HoldfastServer::new();
    let folder = tempfile::tempdir().unwrap();
    let (plan, secret) = (
        folder.path().join("plan.toml"),
        folder.path().join("secret"),
    );
    std::fs::write(&secret, PASSWORD).unwrap();
    let text = format!(
        "seconds = 2\nrounds = 1\nclients = [2]\n[[server]]\nname = \"two\"\nkind = \"address\"\n\
         place = \"//{}/{DATA}/bench\"\nuser = \"{USER}\"\npassword_file = {secret:?}\n\
         shares = [\"{SECOND}\"]\n[[workload]]\nkind = \"jetstress\"\npages = 8192\n",
        server.addr()
    );
    std::fs::write(&plan, text).unwrap();
    let results = folder.path().join("results");
    let done = Command::new(smb_tests::binary())
        .args(["bench", "matrix"])
        .arg(&plan)
        .arg("--to")
        .arg(&results)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(names(&server, DATA), ["group-00.edb"]);
    assert!(!names(&server, SECOND).is_empty());
    let run = std::fs::read_dir(results.join("runs")).unwrap().next();
    let run = std::fs::read_to_string(run.unwrap().unwrap().path()).unwrap();
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    assert_eq!(run["record"]["shares"], serde_json::json!([DATA, SECOND]));
}
