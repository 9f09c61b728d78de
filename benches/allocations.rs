//! How often the server asks the allocator, and for how many bytes, per operation: over memory, in
//! one thread, so the numbers are the same in every run.
//!
//! Prints a line for each operation: its name, allocations (a reallocation is one), bytes. `costs`
//! of the package smb-tests holds them to its table. The last one, `open-held`, is what a CREATE leaves
//! until CLOSE, which may be [`HELD_MAX`]. Counted from when the request's bytes are there
//! until the reply's are: as `support/lib.rs` says of the clock, so the simulated disk and executor
//! are in it; what the POSIX back end and sockets need is not.

use std::alloc::System;
use std::sync::atomic::{AtomicBool, Ordering};

use smb_benches::Pair;
use smb_client::core::{Event, LoginArgs};
use smb_client::{CreateArgs, Created, Options, Request};
use smb_sim::{MemoryOptions, write_request};
use smb_wire::fscc::FileInformationClass;
use smb_wire::ids::FileId;
use smb_wire::msg::{
    CreateOptions, EchoRequest, FlushRequest, InfoType, LogoffRequest, QueryDirectoryFlags,
    QueryDirectoryRequest,
};
use smb_wire::utf16;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Before anything is counted: tables and pools have their size then.
const WARM: u32 = 64;
/// Over how many runs the mean is taken; `instructions.rs` of smb-tests divides by it too.
const TIMES: u32 = 64;
/// Files in the directory that is listed.
const ENTRIES: u32 = 100;
/// Bytes that an open may hold.
const HELD_MAX: f64 = 2048.0;

/// Allocations and bytes.
#[derive(Clone, Copy, Default)]
struct Spent {
    count: usize,
    bytes: usize,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.count += more.count;
        self.bytes += more.bytes;
    }
}

/// Whether the present allocations belong to the figures: neither warm-up nor preparation.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// Where callgrind collects.
#[inline(never)]
fn hot(step: &mut dyn FnMut()) {
    step();
    // Without something after it the call is a jump, and callgrind does not see the end.
    std::hint::black_box(());
}

/// Where callgrind writes down what it has, and begins anew: at the end of each operation.
#[inline(never)]
fn boundary() {
    std::hint::black_box(());
}

/// Runs a step of the server and says what it allocated.
fn counted(step: &mut dyn FnMut()) -> Spent {
    let region = Region::new(ALLOCATOR);
    if COUNTS.load(Ordering::Relaxed) {
        hot(step);
    } else {
        step();
    }
    let change = region.change();
    Spent {
        count: change.allocations + change.reallocations,
        // Includes the bytes that reallocations added.
        bytes: change.bytes_allocated,
    }
}

/// One request that succeeds: the reply's message, and what it took.
fn ask(pair: &mut Pair, request: Request) -> (bytes::Bytes, Spent) {
    let (reply, spent) = pair.metered(request, counted);
    (reply.message, spent)
}

/// The mean of an operation, printed; returns its bytes. `run` returns the cost of one; the number it
/// gets differs each time.
fn operation(name: &str, mut run: impl FnMut(u32) -> Spent) -> f64 {
    let mut sum = Spent::default();
    for number in 0..WARM + TIMES {
        let counts = number >= WARM;
        COUNTS.store(counts, Ordering::Relaxed);
        let spent = run(number);
        COUNTS.store(false, Ordering::Relaxed);
        if counts {
            sum += spent;
        }
    }
    boundary();
    let mean = |total: usize| total as f64 / f64::from(TIMES);
    println!("{name} {:.1} {:.0}", mean(sum.count), mean(sum.bytes));
    mean(sum.bytes)
}

fn close(file: FileId) -> Request {
    Request::close(file)
}

/// CREATE and CLOSE that belong to no figure.
fn prepare(pair: &mut Pair, args: &CreateArgs) {
    let counts = COUNTS.swap(false, Ordering::Relaxed);
    open_close(pair, args);
    COUNTS.store(counts, Ordering::Relaxed);
}

/// CREATE and CLOSE.
fn open_close(pair: &mut Pair, args: &CreateArgs) -> Spent {
    let (message, mut spent) = ask(pair, args.request());
    let file = Created::read(&message).unwrap().file_id;
    spent += ask(pair, close(file)).1;
    spent
}

fn delete(name: &str) -> CreateArgs {
    CreateArgs::open(name).options(CreateOptions::DELETE_ON_CLOSE)
}

fn echo(pair: &mut Pair) {
    operation("echo", |_| ask(pair, Request::new(&EchoRequest)).1);
}

fn data(pair: &mut Pair) {
    let file = pair.create(&CreateArgs::create("content"));
    let content = vec![0x5a; 1 << 20];
    pair.write(file, &content);
    for (name, size) in [("4k", 4_u32 << 10), ("64k", 64 << 10), ("1m", 1 << 20)] {
        operation(&format!("read-{name}"), |_| {
            ask(pair, Request::read(file, 0, size)).1
        });
        operation(&format!("write-{name}"), |_| {
            let data = &content[..size as usize];
            ask(pair, write_request(file, 0, data)).1
        });
    }
}

fn protected() {
    for (name, options) in smb_tests::protected() {
        let mut pair = Pair::new(options);
        let file = pair.create(&CreateArgs::create("content"));
        let content = vec![0x5a; 64 << 10];
        pair.write(file, &content);
        operation(&format!("read-64k-{name}"), |_| {
            ask(&mut pair, Request::read(file, 0, 64 << 10)).1
        });
        operation(&format!("write-64k-{name}"), |_| {
            ask(&mut pair, write_request(file, 0, &content)).1
        });
    }
}

fn names(pair: &mut Pair) {
    prepare(pair, &CreateArgs::create("existing"));
    operation("create-close-existing", |_| {
        open_close(pair, &CreateArgs::open("existing"))
    });
    operation("create-close-new", |number| {
        let name = format!("new-{number}");
        let spent = open_close(pair, &CreateArgs::create(&name));
        prepare(pair, &delete(&name));
        spent
    });
    operation("delete", |number| {
        let name = format!("old-{number}");
        prepare(pair, &CreateArgs::create(&name));
        open_close(pair, &delete(&name))
    });
    let file = pair.create(&CreateArgs::create("here"));
    operation("rename", |number| {
        let to = if number % 2 == 0 { "there" } else { "here" };
        ask(pair, Request::rename(file, to, false)).1
    });
    operation("query-info", |_| {
        ask(
            pair,
            Request::query_info(
                file,
                InfoType::FILE,
                FileInformationClass::NETWORK_OPEN.0,
                0,
                4096,
            ),
        )
        .1
    });
}

fn directory(pair: &mut Pair) {
    let many = pair.create(&CreateArgs::create_directory("many"));
    for number in 0..ENTRIES {
        prepare(pair, &CreateArgs::create(&format!("many\\entry-{number}")));
    }
    operation("query-directory-100", |_| {
        let request = QueryDirectoryRequest {
            info_class: FileInformationClass::ID_BOTH_DIRECTORY.0,
            flags: QueryDirectoryFlags::RESTART_SCANS,
            file_index: 0,
            file_id: many,
            pattern: &utf16::encode("*"),
            output_buffer_length: 64 << 10,
        };
        let (message, spent) = ask(pair, Request::new(&request));
        assert!(message.len() > ENTRIES as usize * 104, "not all entries");
        spent
    });
}

/// FLUSH has to have something to do: a WRITE before it.
fn flushes() {
    let lazy = durability::Policy::TreatHostAsStableStorage;
    for (name, policy) in [("honor", durability::Policy::Honor), ("treat-host", lazy)] {
        let memory = MemoryOptions {
            policy,
            ..MemoryOptions::default()
        };
        let mut pair = Pair::with(Options::default(), memory);
        let file = pair.create(&CreateArgs::create("flushed"));
        operation(&format!("write-4k-flush-{name}"), |_| {
            let mut spent = ask(&mut pair, write_request(file, 0, &[0xa5; 4096])).1;
            let flush = FlushRequest {
                reserved: 0,
                file_id: file,
            };
            spent += ask(&mut pair, Request::new(&flush)).1;
            spent
        });
    }
}

/// SESSION_SETUP twice, as NTLM has it, and LOGOFF.
fn session(pair: &mut Pair) {
    operation("session-setup-logoff", |_| {
        let mut spent = Spent::default();
        let credentials = smb_auth::Credentials::password(smb_sim::USER, "", smb_sim::PASSWORD);
        // 2023-01-01: NTLM wants a time, the server does not compare it.
        let args = LoginArgs::new(credentials, 133_170_048_000_000_000);
        pair.client().core().begin_login(args).unwrap();
        let session = loop {
            spent += pair.exchange(counted);
            match pair.client().core().next_event() {
                Some(Event::Login { outcome, .. }) => break outcome.unwrap().session_id,
                None => {}
                Some(other) => panic!("no login: {other:?}"),
            }
        };
        let logoff = Request::new(&LogoffRequest).session(session);
        pair.client().core().send(vec![logoff]).unwrap();
        spent += pair.exchange(counted);
        while pair.client().core().next_event().is_some() {}
        spent
    });
}

/// The memory that an open keeps in the whole process: the client keeps none for it.
fn held(pair: &mut Pair) {
    let bytes = operation("open-held", |number| {
        let name = format!("held-{number}");
        prepare(pair, &CreateArgs::create(&name));
        let region = Region::new(ALLOCATOR);
        drop(ask(pair, CreateArgs::open(&name).request()));
        let change = region.change();
        Spent {
            count: change.allocations.saturating_sub(change.deallocations),
            bytes: (change.bytes_allocated).saturating_sub(change.bytes_deallocated),
        }
    });
    assert!(bytes <= HELD_MAX, "an open holds {bytes} bytes");
}

fn main() {
    let mut pair = Pair::new(Options::default());
    echo(&mut pair);
    data(&mut pair);
    protected();
    names(&mut pair);
    directory(&mut pair);
    flushes();
    session(&mut pair);
    held(&mut pair);
}
