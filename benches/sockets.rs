//! The real `holdfast` over TCP on 127.0.0.1, from a client's end: what one connection, or many, get.
//!
//! The clock covers the client too, which shares the machine's cores with the server; so these
//! figures find what became slower, and `cargo xtask compare` (CPU of the server alone, beside
//! Samba) says how good they are. An iteration is one operation; N operations are kept outstanding
//! where the name ends with `qN`. The binary is `$HOLDFAST_BIN`, else the one of this profile.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use smb_client::{Client, CreateArgs, Encryption, File, Options, Request, Signing, Tree};
use smb_crypto::SigningAlgorithm;
use smb_tests::{DATA, HoldfastServer, PASSWORD, USER};
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::WriteFlags;

/// The file that reads and writes go to, bytes.
const FIELD_BYTES: u64 = 16 << 20;

/// Shares by their policy, beside [`DATA`], which honors.
const POLICIES: [(&str, &str); 3] = [
    ("strict", "durability = \"strict-sync\""),
    (
        "bounded",
        "durability = \"bounded:1s,64MiB\"\naccept_loss = true",
    ),
    (
        "lazy",
        "durability = \"treat-host-as-stable-storage\"\naccept_loss = true",
    ),
];

/// Sizes, and how many outstanding; random or one after the other.
const SHAPES: [(&str, u32, bool, [usize; 2]); 3] = [
    ("random-4k", 4 << 10, true, [1, 16]),
    ("sequential-64k", 64 << 10, false, [1, 8]),
    ("sequential-1m", 1 << 20, false, [1, 4]),
];

/// A server with a share for each policy.
struct Bench {
    server: HoldfastServer,
    _folders: Vec<tempfile::TempDir>,
}

impl Bench {
    fn new() -> Self {
        let mut tables = String::new();
        let mut folders = Vec::new();
        for (share, durability) in POLICIES {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().display();
            tables += &format!("[[share]]\nname = \"{share}\"\npath = \"{path}\"\n{durability}\n");
            folders.push(folder);
        }
        let server = HoldfastServer::start(&smb_tests::Options {
            server: "signing = \"desired\"".to_owned(),
            tables,
            ..smb_tests::Options::default()
        });
        Self {
            server,
            _folders: folders,
        }
    }

    fn tree(&self, options: Options) -> Tree {
        self.server.tree_with(options)
    }
}

fn protections() -> [(&'static str, Options); 4] {
    let signed = |algorithm| {
        Options::default()
            .signing(Signing::Required)
            .signing_algorithm(algorithm)
    };
    [
        ("plain", Options::default()),
        ("signed-gmac", signed(SigningAlgorithm::AesGmac)),
        ("signed-cmac", signed(SigningAlgorithm::AesCmac)),
        (
            "sealed-gcm",
            Options::default().encryption(Encryption::Always),
        ),
    ]
}

/// Does so many requests with `depth` outstanding.
fn stream(tree: &Tree, times: u64, depth: usize, mut next: impl FnMut() -> Request) -> Duration {
    let mut under_way = VecDeque::with_capacity(depth);
    let start = Instant::now();
    for _ in 0..times {
        if under_way.len() == depth
            && let Some(id) = under_way.pop_front()
        {
            tree.client().wait(id).unwrap().ok().unwrap();
        }
        under_way.push_back(tree.send(next()).unwrap());
    }
    for id in under_way {
        tree.client().wait(id).unwrap().ok().unwrap();
    }
    start.elapsed()
}

/// Offsets in the file: each next one, or anywhere.
fn offsets(size: u32, random: bool) -> impl FnMut() -> u64 {
    let pieces = FIELD_BYTES / u64::from(size);
    let mut state = 1_u64;
    move || {
        state = if random {
            // Knuth's MMIX: good enough to have no order.
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407)
        } else {
            state.wrapping_add(1 << 33)
        };
        ((state >> 33) % pieces) * u64::from(size)
    }
}

fn data(criterion: &mut Criterion) {
    let bench = Bench::new();
    for (protection, options) in protections() {
        let tree = bench.tree(options);
        let file = tree.create(&CreateArgs::open_if("field")).unwrap();
        file.write_all(0, &vec![0x5a; 16 << 20]).unwrap();
        let content = vec![0xa5; 1 << 20];
        for (shape, size, random, depths) in SHAPES {
            for depth in depths {
                let mut measure = |kind: &str, request: &dyn Fn(&File, u64) -> Request| {
                    let mut group = criterion.benchmark_group(format!("sockets/{kind}-{shape}"));
                    group.throughput(Throughput::Bytes(u64::from(size)));
                    let mut offset = offsets(size, random);
                    group.bench_function(format!("{protection}-q{depth}"), |b| {
                        b.iter_custom(|times| {
                            stream(&tree, times, depth, || request(&file, offset()))
                        });
                    });
                    group.finish();
                };
                measure("read", &|file, at| file.read_request(at, size, 0));
                measure("write", &|file, at| {
                    file.write_request(at, &content[..size as usize], WriteFlags::empty())
                });
            }
        }
    }
}

/// A group whose iterations are whole operations.
fn operations<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(format!("sockets/{name}"));
    group.throughput(Throughput::Elements(1));
    group
}

fn names(criterion: &mut Criterion) {
    let bench = Bench::new();
    let tree = bench.tree(Options::default());
    let client = tree.client();
    let mut group = operations(criterion, "names");
    group.bench_function("echo", |b| b.iter(|| client.echo().unwrap()));
    let close = |args: &CreateArgs| tree.create(args).unwrap().close().unwrap();
    close(&CreateArgs::create("existing"));
    let existing = CreateArgs::open("existing");
    group.bench_function("open-close", |b| b.iter(|| close(&existing)));
    // Create, stat, rename, delete, list: an iteration is one of each.
    tree.mkdir("mix").unwrap();
    group.bench_function("metadata-mix", |b| {
        b.iter(|| {
            let file = tree.create(&CreateArgs::create("mix\\one")).unwrap();
            file.close().unwrap();
            let file = tree.create(&CreateArgs::open("mix\\one")).unwrap();
            file.query(FileInformationClass::NETWORK_OPEN).unwrap();
            file.close().unwrap();
            tree.rename("mix\\one", "mix\\two", false).unwrap();
            assert_eq!(tree.list("mix", "*").unwrap().len(), 3);
            tree.delete("mix\\two").unwrap();
        });
    });
    group.bench_function("small-file", |b| {
        let content = [0x5a; 4096];
        b.iter(|| {
            tree.write_file("small", &content).unwrap();
            assert_eq!(tree.read_file("small").unwrap().len(), content.len());
            tree.delete("small").unwrap();
        });
    });
    tree.mkdir("many").unwrap();
    for number in 0..100 {
        close(&CreateArgs::create(&format!("many\\entry-{number}")));
    }
    group.bench_function("list-100", |b| {
        b.iter(|| assert_eq!(tree.list("many", "*").unwrap().len(), 102));
    });
    group.finish();
}

fn sessions(criterion: &mut Criterion) {
    let bench = Bench::new();
    let addr = bench.server.addr();
    let mut group = operations(criterion, "session");
    group.bench_function("connect-login-tree-logoff", |b| {
        b.iter(|| {
            let client = Client::connect(addr, Options::default()).unwrap();
            let session = client.login(USER, PASSWORD, "").unwrap();
            session.tree(DATA).unwrap();
            session.logoff().unwrap();
        });
    });
    let client = bench.server.client(Options::default());
    group.bench_function("login-logoff", |b| {
        b.iter(|| {
            let session = client.login(USER, PASSWORD, "").unwrap();
            session.logoff().unwrap();
        });
    });
    group.finish();
}

/// WRITE and FLUSH by policy; a WRITE alone, which `strict-sync` makes durable by itself.
fn flushes(criterion: &mut Criterion) {
    let bench = Bench::new();
    let tree = bench.tree(Options::default());
    let mut group = operations(criterion, "flush");
    for share in [DATA].into_iter().chain(POLICIES.map(|(share, _)| share)) {
        let tree = tree.session().tree(share).unwrap();
        let file = tree.create(&CreateArgs::open_if("flushed")).unwrap();
        let name = if share == DATA { "honor" } else { share };
        let write = || file.write(0, &[0xa5; 4096], WriteFlags::empty()).unwrap();
        group.bench_function(format!("write-4k/{name}"), |b| b.iter(write));
        group.bench_function(format!("write-4k-flush/{name}"), |b| {
            b.iter(|| {
                write();
                file.flush(false).unwrap();
            });
        });
    }
    group.finish();
}

/// An iteration is a read on each of N connections, all outstanding at once.
fn connections(criterion: &mut Criterion) {
    let bench = Bench::new();
    let field = bench.tree(Options::default());
    field.write_file("field", &vec![0x5a; 1 << 20]).unwrap();
    let mut group = criterion.benchmark_group("sockets/connections");
    for number in [1, 16, 64] {
        let files: Vec<File> = (0..number)
            .map(|_| {
                let tree = bench.tree(Options::default());
                tree.create(&CreateArgs::open("field")).unwrap()
            })
            .collect();
        group.throughput(Throughput::Elements(number));
        group.bench_function(format!("read-4k/{number}"), |b| {
            b.iter(|| {
                let sent = files.iter().map(|file| {
                    let id = file.tree().send(file.read_request(0, 4096, 0)).unwrap();
                    (file, id)
                });
                for (file, id) in sent.collect::<Vec<_>>() {
                    file.tree().client().wait(id).unwrap().ok().unwrap();
                }
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = data, names, sessions, flushes, connections
}
criterion_main!(benches);
