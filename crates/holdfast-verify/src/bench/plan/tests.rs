//! Plans as text.

use super::*;

const PLAN: &str = r#"
seconds = 2
rounds = 2
clients = [1, 8]
[[server]]
name = "honor"
kind = "holdfast"
policy = "honor"
[[server]]
name = "Samba"
kind = "samba"
strict_sync = true
[[workload]]
kind = "netbench"
[[workload]]
kind = "jetstress"
name = "mail"
clients = [3]
[[disk]]
name = "old"
class = "ide-2003"
mount = "noatime"
vm = { dirty_ratio = 80 }
"#;

#[test]
fn every_step_is_taken_on_every_server_in_changing_order() {
    let plan = Plan::parse(PLAN).unwrap();
    let cells = plan.cells();
    assert_eq!(cells.len(), 2 * 3 * 2);
    let order = |of: &[Cell]| of.iter().map(|cell| cell.server).collect::<Vec<_>>();
    assert_eq!(order(&cells[..6]), [0, 1, 1, 0, 0, 1]);
    assert_eq!(order(&cells[6..]), [1, 0, 0, 1, 1, 0]);
    let files: BTreeSet<_> = cells.iter().map(|cell| &cell.file).collect();
    assert_eq!(files.len(), cells.len());
    assert_eq!(cells[0].file, "000-old-netbench-0001-honor.json");
}

#[test]
fn a_server_elsewhere_has_as_many_shares_as_its_stores_fill() {
    let of = |shares: &str| {
        let server =
            "kind = \"address\"\nplace = \"//nas/data\"\nuser = \"u\"\npassword_file = \"p\"";
        let plan = PLAN.replace("kind = \"samba\"\nstrict_sync = true", server);
        Plan::parse(&plan.replace(server, &format!("{server}\nshares = {shares}")))
    };
    let plan = of("[\"logs\"]").unwrap();
    assert_eq!(plan.servers[1].kind.shares().unwrap(), ["data", "logs"]);
    assert!(of("[]").is_ok());
    let many = of("[\"logs\", \"more\"]").unwrap_err();
    assert!(many.contains("\"mail\" on \"Samba\"") && many.contains("3 shares"));
    assert!(of("[\"Data\"]").unwrap_err().contains("named twice"));
}

#[test]
fn a_plan_that_is_not_there_has_a_way_out() {
    let error = Plan::text("/no/such/plan").unwrap_err();
    assert!(
        error.contains("\n  = the plans that come along are short, hour, "),
        "{error}"
    );
}

#[test]
fn plans_with_mistakes_are_refused() {
    for (from, to) in [
        ("seconds = 2", "seconds = 0"),
        ("rounds = 2", "rounds = 0"),
        ("rounds = 2", "rounds = -1"),
        ("seconds = 2", "seconds = nan"),
        ("clients = [1, 8]", "clients = []"),
        // The same measurement twice.
        ("clients = [1, 8]", "clients = [1, 8, 8]"),
        ("name = \"Samba\"", "name = \"Honor\""),
        ("kind = \"netbench\"", "kind = \"netbank\""),
        ("name = \"mail\"", "name = \"mail\"\npagez = 5"),
        ("kind = \"netbench\"", "kind = \"netbench\"\ndocuments = 7"),
        ("kind = \"netbench\"", "kind = \"flush-ladder\"\nbytes = 0"),
        (
            "kind = \"netbench\"",
            "kind = \"netbench\"\nservers = [\"nobody\"]",
        ),
        ("policy = \"honor\"", "policy = \"honour\""),
        ("\"honor\"\n[[", "\"honor\"\nfile_io = \"uring\"\n[["),
        ("\"honor\"\n[[", "\"honor\"\nsync_threads = 0\n[["),
        ("rounds = 2", "rounds = 2\npin = \"0\""),
        ("dirty_ratio", "swappiness"),
        (
            "strict_sync = true",
            "strict_sync = true\nsink_always = true",
        ),
        ("\"ide-2003\"", "\"ide-2003\"\nfile_system = \"ntfs\""),
        // The plan has mount options.
        ("\"ide-2003\"", "\"folder\""),
        ("\"ide-2003\"", "\"ide-2003\"\nfolder = \"/srv\""),
    ] {
        let text = PLAN.replacen(from, to, 1);
        assert_ne!(text, PLAN);
        assert!(Plan::parse(&text).is_err(), "{to}");
    }
}

/// A name too long for a file would only be noticed when its first measurement is stored, and two measurements in one
/// file would be one.
#[test]
fn every_measurement_has_a_file_name_of_its_own() {
    let named = |length: usize| PLAN.replace("\"mail\"", &format!("{:?}", "m".repeat(length)));
    assert!(Plan::parse(&named(NAME_MAX + 1)).is_err());
    let cells = Plan::parse(&named(NAME_MAX)).unwrap().cells();
    let longest = cells.iter().map(|cell| cell.file.len()).max().unwrap();
    // Linux has room for 255 bytes, also if the other two names are as long, and while the file is unfinished.
    assert!(longest + 2 * NAME_MAX < 250, "{longest}");
    let disks = "name = \"old-mail\"\nclass = \"raw\"\n[[disk]]\nname = \"old\"";
    let plan = PLAN.replace("name = \"old\"", disks);
    assert!(Plan::parse(&plan).is_ok());
    let plan = plan.replace(
        "\"mail\"\nclients = [3]",
        "\"mail-netbench\"\nclients = [8]",
    );
    let error = Plan::parse(&plan).unwrap_err();
    assert!(error.contains("000-old-mail-netbench-0008-"), "{error}");
}

#[test]
fn the_plans_that_come_along_are_right() {
    for (name, minutes) in [
        ("short", 8.0),
        ("hour", 100.0),
        ("price", 30.0),
        ("dip", 65.0),
    ] {
        let plan = Plan::parse(&Plan::text(name).unwrap()).unwrap();
        // Beside the step itself, files are filled, pages verified and the disk is synced.
        let each = plan.seconds + plan.warm_up + 4.0;
        let seconds = plan.cells().len() as f64 * each;
        assert!(seconds < (minutes + 3.0) * 60.0, "{name}: {seconds} s");
    }
    let price = Plan::parse(&Plan::text("price").unwrap()).unwrap();
    for times in [true, false] {
        let is_so = |server: &&ServerPlan| server.kind.policy() == Some(("honor", times));
        assert_eq!(price.servers.iter().filter(is_so).count(), 1);
    }
    let long = Plan::parse(&Plan::text("long").unwrap()).unwrap();
    let clients: BTreeSet<_> = long.cells().iter().map(|cell| cell.clients).collect();
    // Those of 2004, and those of 2003.
    let points = (4..=60).step_by(4).chain((8..=120).step_by(8));
    for point in [1].into_iter().chain(points) {
        assert!(clients.contains(&point), "{point}");
    }
}

/// The reports saw the dip in steps of ten minutes, and from 52 clients on.
#[test]
fn the_plan_of_the_dip_has_steps_of_ten_minutes_round_its_place() {
    let plan = Plan::parse(&Plan::text("dip").unwrap()).unwrap();
    let cells = plan.cells();
    let ten_minutes = Duration::from_secs(600);
    assert!(cells.iter().all(|cell| cell.step.length == ten_minutes));
    for server in 0..plan.servers.len() {
        let of_server = cells.iter().filter(|cell| cell.server == server);
        let clients: Vec<_> = of_server.map(|cell| cell.clients).collect();
        assert_eq!(clients, [44, 52, 60]);
    }
}

#[test]
fn a_workload_runs_on_the_servers_that_it_names_and_on_a_limit_only_without_a_protocol() {
    let plan = Plan::parse(
        r#"
seconds = 0.5
rounds = 1
clients = [1]
server = [
    { name = "honor", kind = "holdfast", policy = "honor", file_io = "threads" },
    { name = "limit", kind = "limit" },
    { name = "Samba", kind = "samba", strict_sync = true, io = "io-uring", root = "/srv/trixie" },
]
workload = [
    { kind = "echo" },
    { kind = "session", protection = "gcm" },
    { name = "signed", kind = "read", bytes = 4096, protection = "cmac" },
    { kind = "read", bytes = 65536, depth = 4, servers = ["limit"], seconds = 30 },
    { kind = "program", command = "true", after = "", servers = ["honor"] },
]
"#,
    );
    let cells = plan.unwrap().cells();
    let of = |title: &str| {
        let mut servers: Vec<usize> = cells
            .iter()
            .filter(|cell| cell.title == title)
            .map(|cell| cell.server)
            .collect();
        servers.sort_unstable();
        servers
    };
    assert_eq!(of("echo"), [0, 1, 2]);
    assert_eq!(of("session"), [0, 2]);
    assert_eq!(of("signed"), [0, 2]);
    assert_eq!(of("read"), [1]);
    assert_eq!(of("program"), [0]);
    let read = cells.iter().find(|cell| cell.title == "read").unwrap();
    assert_eq!(read.step.length, Duration::from_secs(30));
    let session = cells.iter().find(|cell| cell.title == "session").unwrap();
    assert_eq!(session.protection, Protection::Gcm);
    assert_eq!(session.step.length, Duration::from_millis(500));
}

#[test]
fn a_plan_says_how_many_connections_a_step_makes() {
    let more = "[[workload]]\nname = \"many\"\nkind = \"read\"\nbytes = 4096\nconnections = 50\nclients = [2]\n[[disk]]";
    let plan = |text: &str| Plan::parse(text).unwrap().connections_max();
    assert_eq!(plan(PLAN), 8);
    assert_eq!(plan(&PLAN.replace("[[disk]]", more)), 100);
}
