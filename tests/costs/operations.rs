//! The operations whose system calls are counted, and the client that does them.
//!
//! Each runs [`WARM`] times, then [`BATCHES`] times [`TIMES`] with the server at rest between any
//! two. A timer of the server that fires now and then, or a thread of its pool that starts, falls into
//! one of the batches: the table gets the one in the middle, and a run is judged by its cheapest.
//!
//! WRITE of 1 MiB is not here: how often the server receives depends on when the bytes arrive.

use std::os::unix::fs::PermissionsExt;

use smb_client::{Client, CreateArgs, File, Options, Signing, Tree};
use smb_tests::{DATA, HoldfastServer, PASSWORD, SECOND, USER, protected};
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{QueryDirectoryFlags, WriteFlags};

use crate::table::{Cost, Costs};
use crate::trace::{Calls, Moment, Trace};

const WARM: u32 = 12;
const BATCHES: usize = 3;
const TIMES: u32 = 20;

/// Longer than the server relies on its own account of a file that it has made.
const OLD: std::time::Duration = std::time::Duration::from_millis(200);
/// Files in the directory that is listed.
const ENTRIES: u32 = 100;
/// A local user and group that nobody is.
const LOCAL_USER: &str = "64123:64123";
/// The share that answers FLUSH at once.
const LAZY: &str = "lazy";

/// Something a client does.
struct Operation {
    name: String,
    /// Makes what that many runs need; not counted.
    prepare: Box<dyn FnMut(u32)>,
    /// One run; numbers start anew at 0 with every batch.
    run: Box<dyn FnMut(u32)>,
}

/// Which batch counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    Cheapest,
    Middle,
}

/// System calls per operation of a server with this `file_io`.
pub(crate) fn count(way: &str, pick: Pick) -> Result<Costs, String> {
    let lazy = tempfile::tempdir().map_err(|error| error.to_string())?;
    // Where io_uring is forbidden, one that demands it does not start at all.
    let asked = if way == "io_uring" { "auto" } else { way };
    let server = HoldfastServer::start(&smb_tests::Options {
        server: format!("signing = \"desired\"\nfile_io = \"{asked}\"\n"),
        tables: format!(
            "[[share]]\nname = \"{LAZY}\"\npath = \"{}\"\ndurability = \"treat-host-as-stable-storage\"\naccept_loss = true\n",
            lazy.path().display()
        ),
        ..smb_tests::Options::default()
    });
    let status = server.status();
    if status["server"]["file_io"] != way {
        return Err(format!("file I/O is by {}", status["server"]["file_io"]));
    }
    let mut operations = operations(&server);
    let trace = Trace::attach(server.pid())?;
    let mut spans = Vec::new();
    for operation in &mut operations {
        batch(&trace, operation, WARM);
        let batches: Vec<_> = (0..BATCHES)
            .map(|_| batch(&trace, operation, TIMES))
            .collect();
        spans.push(batches);
    }
    let seen = trace.end().map_err(|error| error.to_string())?;
    let counted = operations.iter().zip(&spans).map(|(operation, spans)| {
        let batches = spans.iter().map(|(from, to)| seen.between(*from, *to));
        (operation.name.clone(), one_of(batches.collect(), pick))
    });
    Ok(counted.collect())
}

/// Runs an operation so many times; from when to when that took.
fn batch(trace: &Trace, operation: &mut Operation, times: u32) -> (Moment, Moment) {
    (operation.prepare)(times);
    trace.idle();
    let from = Moment::now();
    for number in 0..times {
        (operation.run)(number);
        trace.idle();
    }
    (from, Moment::now())
}

/// One of the batches, per operation.
fn one_of(mut batches: Vec<Calls>, pick: Pick) -> Cost {
    batches.sort_by_key(|calls| calls.values().sum::<u32>());
    let at = match pick {
        Pick::Cheapest => 0,
        Pick::Middle => batches.len() / 2,
    };
    let batch = batches.swap_remove(at);
    let share = |calls: u32| f64::from(calls) / f64::from(TIMES);
    batch.into_iter().map(|(n, c)| (n, share(c))).collect()
}

fn operation(name: impl Into<String>, run: impl FnMut(u32) + 'static) -> Operation {
    Operation {
        name: name.into(),
        prepare: Box::new(|_| {}),
        run: Box::new(run),
    }
}

fn plain() -> Options {
    Options::default().signing(Signing::IfRequired)
}

fn operations(server: &HoldfastServer) -> Vec<Operation> {
    let tree = server.tree_with(plain());
    // First, as one of their connections has no session, which the server waits for only so long.
    let mut all = sessions(server);
    all.extend(data(server, &tree));
    all.extend(names(&tree));
    all.extend(directory(&tree));
    all.extend(flushes(&tree));
    all.extend(by_a_user(server));
    all
}

/// Names once more, as one who is somebody on the host: what it costs to act as them.
fn by_a_user(server: &HoldfastServer) -> Vec<Operation> {
    server.add_user("carol", PASSWORD, &["--owner", LOCAL_USER]);
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(server.share_path(SECOND, ""), everybody).unwrap();
    let session = server.client(plain()).login("carol", PASSWORD, "").unwrap();
    let tree = session.tree(SECOND).unwrap();
    let mut all = names(&tree);
    all.extend(directory(&tree));
    for folder in ["a", "a\\b", "a\\b\\c"] {
        tree.mkdir(folder).unwrap();
    }
    let (at, deep) = (tree.clone(), "a\\b\\c\\existing");
    tree.write_file(deep, b"").unwrap();
    all.push(operation("create-close-deep", move |_| {
        at.create(&CreateArgs::open(deep)).unwrap().close().unwrap();
    }));
    for operation in &mut all {
        operation.name.push_str("-by-a-user");
    }
    all
}

fn data(server: &HoldfastServer, tree: &Tree) -> Vec<Operation> {
    let content = vec![0x5a; 1 << 20];
    let file = tree.create(&CreateArgs::open_if("content")).unwrap();
    file.write_all(0, &content).unwrap();
    let mut all = Vec::new();
    for (name, size) in [("4k", 4 << 10), ("64k", 64 << 10), ("1m", 1 << 20)] {
        all.push(reading(format!("read-{name}"), file.clone(), size));
        if size == 1 << 20 {
            continue;
        }
        let (file, content) = (file.clone(), content.clone());
        all.push(operation(format!("write-{name}"), move |_| {
            let data = &content[..size as usize];
            assert_eq!(file.write(0, data, WriteFlags::empty()).unwrap(), size);
        }));
    }
    for (name, options) in protected() {
        let tree = server.tree_with(options);
        let file = tree.create(&CreateArgs::open("content")).unwrap();
        all.push(reading(format!("read-64k-{name}"), file, 64 << 10));
    }
    all
}

fn reading(name: String, file: File, size: u32) -> Operation {
    operation(name, move |_| {
        assert_eq!(file.read(0, size).unwrap().len(), size as usize);
    })
}

fn names(tree: &Tree) -> Vec<Operation> {
    let close = |tree: &Tree, args: CreateArgs| tree.create(&args).unwrap().close().unwrap();
    close(tree, CreateArgs::open_if("existing"));
    let mut all = Vec::new();
    let at = tree.clone();
    all.push(operation("create-close-existing", move |_| {
        close(&at, CreateArgs::open("existing"));
    }));
    let (at, before) = (tree.clone(), tree.clone());
    let mut there = 0;
    all.push(Operation {
        prepare: Box::new(move |times| {
            for number in 0..there {
                before.delete(&format!("new-{number}")).unwrap();
            }
            there = times;
        }),
        ..operation("create-close-new", move |number| {
            close(&at, CreateArgs::create(&format!("new-{number}")));
        })
    });
    let (at, before) = (tree.clone(), tree.clone());
    all.push(Operation {
        prepare: Box::new(move |times| {
            let names: Vec<String> = (0..times).map(|number| format!("old-{number}")).collect();
            for name in &names {
                close(&before, CreateArgs::create(name));
            }
            // The server relies on its account of a file that it has just made for a while only. Its account of an older one
            // holds until the file changes, however slowly the deletions follow.
            std::thread::sleep(OLD);
            for name in &names {
                close(&before, CreateArgs::open(name));
            }
        }),
        ..operation("delete", move |number| {
            at.delete(&format!("old-{number}")).unwrap();
        })
    });
    let file = tree.create(&CreateArgs::open_if("here")).unwrap();
    let mut away = false;
    all.push(operation("rename", move |_| {
        away = !away;
        let to = if away { "there" } else { "here" };
        file.rename(to, false).unwrap();
    }));
    let file = tree.create(&CreateArgs::open("existing")).unwrap();
    all.push(operation("query-info", move |_| {
        file.query(FileInformationClass::NETWORK_OPEN).unwrap();
    }));
    all
}

fn directory(tree: &Tree) -> Vec<Operation> {
    tree.mkdir("many").unwrap();
    for number in 0..ENTRIES {
        let name = format!("many\\entry-{number}");
        tree.create(&CreateArgs::create(&name))
            .unwrap()
            .close()
            .unwrap();
    }
    let directory = tree.create(&CreateArgs::directory("many")).unwrap();
    vec![operation("query-directory-100", move |_| {
        let (class, flags) = (
            FileInformationClass::ID_BOTH_DIRECTORY,
            QueryDirectoryFlags::RESTART_SCANS,
        );
        let bytes = directory
            .query_directory(class, "*", flags, 64 << 10)
            .unwrap();
        assert!(bytes.len() > ENTRIES as usize * 104, "not all entries");
    })]
}

/// FLUSH has to have something to do: a WRITE before it.
fn flushes(tree: &Tree) -> Vec<Operation> {
    let lazy = tree.session().tree(LAZY).unwrap();
    let at = [("honor", tree), ("treat-host", &lazy)];
    let flush = at.map(|(policy, tree)| {
        let file = tree.create(&CreateArgs::open_if("flushed")).unwrap();
        operation(format!("write-4k-flush-{policy}"), move |_| {
            file.write(0, &[0xa5; 4096], WriteFlags::empty()).unwrap();
            file.flush(false).unwrap();
        })
    });
    flush.into()
}

fn sessions(server: &HoldfastServer) -> Vec<Operation> {
    let client = server.client(plain());
    let echoing = client.clone();
    let addr = server.addr();
    vec![
        operation("echo", move |_| echoing.echo().unwrap()),
        operation("session-setup-logoff", move |_| {
            let session = client.login(USER, PASSWORD, "").unwrap();
            session.logoff().unwrap();
        }),
        operation("connect-setup-tree-leave", move |_| {
            let client = Client::connect(addr, plain()).unwrap();
            let session = client.login(USER, PASSWORD, "").unwrap();
            session.tree(DATA).unwrap();
            session.logoff().unwrap();
        }),
    ]
}
