//! The per-file engine of the server (`smb_server::file`): opening and closing, alone and beside
//! others, with and without leases; byte-range locks; the questions that READ and WRITE ask.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use smb_server::file::{
    Actor, CacheRequest, CountedUser, Decision, Files, Link, LockBounds, Locking, OpenId,
    OpenRequest, Operation, Place, ShareId, SharePath, Waiter, WaiterId,
};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseContext, LeaseState, LeaseV2};
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{LockElement, LockFlags, ShareAccess};
use vfs::FileKey;

/// Ranges one open may hold, as generous as needed.
const BOUNDS: LockBounds = LockBounds {
    most: 1 << 20,
    user: CountedUser(1),
};
/// The one who asks in every bench; others count from 1.
const MYSELF: OpenId = OpenId(1 << 32);

fn key(ino: u64) -> FileKey {
    FileKey {
        ino,
        ..FileKey::default()
    }
}

fn waiter(id: u64) -> Waiter {
    Waiter {
        id: WaiterId(id),
        user: BOUNDS.user,
    }
}

/// A request that shares everything and caches nothing, three folders deep.
fn request(open: OpenId, ino: u64) -> OpenRequest {
    let name = format!("file-{ino}");
    OpenRequest {
        open,
        place: Place {
            key: key(ino),
            stream: None,
        },
        link: Link {
            parent: key(1),
            name: Arc::from(name.to_uppercase()),
        },
        path: SharePath::new(ShareId(0), ["some", "folder", &name]),
        directory: false,
        access: AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA,
        share: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        effect: AccessMask::empty(),
        delete_on_close: false,
        patient: true,
        client: Guid([7; 16]),
        cache: CacheRequest::None,
        allocation: 1 << 20,
        waiter: waiter(1),
    }
}

fn leased(open: OpenId, ino: u64) -> OpenRequest {
    OpenRequest {
        cache: CacheRequest::Lease(LeaseContext {
            lease_key: LeaseKey([9; 16]),
            lease_state: LeaseState::RWH,
            v2: Some(LeaseV2 {
                epoch: 1,
                ..LeaseV2::default()
            }),
            ..LeaseContext::default()
        }),
        ..request(open, ino)
    }
}

fn grant(files: &Files, request: &OpenRequest) {
    let (decision, effects) = files.open(request);
    assert!(matches!(decision, Decision::Granted(_)), "{decision:?}");
    drop(black_box(effects));
}

fn open_close(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine/open-close");
    group.throughput(Throughput::Elements(1));
    for (name, others) in [
        ("alone", 0),
        ("other-files-1000", 1000),
        ("other-files-100000", 100_000),
    ] {
        let files = Files::default();
        for other in 1..=others {
            grant(&files, &request(OpenId(other), 10 + other));
        }
        for (kind, mine) in [("plain", request(MYSELF, 5)), ("lease", leased(MYSELF, 5))] {
            group.bench_function(BenchmarkId::new(kind, name), |b| {
                b.iter(|| {
                    grant(&files, &mine);
                    drop(black_box(files.close(&mine.place, mine.open, None)));
                });
            });
        }
    }
    for others in [1, 100] {
        let files = Files::default();
        for other in 1..=others {
            grant(&files, &request(OpenId(other), 5));
        }
        let mine = request(MYSELF, 5);
        group.bench_function(BenchmarkId::new("same-file", others), |b| {
            b.iter(|| {
                grant(&files, &mine);
                drop(black_box(files.close(&mine.place, mine.open, None)));
            });
        });
    }
    group.finish();
}

fn refused(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine/refused");
    group.throughput(Throughput::Elements(1));
    let files = Files::default();
    let holder = OpenRequest {
        share: ShareAccess::empty(),
        ..request(OpenId(1), 5)
    };
    grant(&files, &holder);
    let mine = request(MYSELF, 5);
    group.bench_function("sharing-violation", |b| {
        b.iter(|| {
            let (decision, effects) = files.open(&mine);
            assert!(matches!(decision, Decision::Conflict(_)));
            drop(effects);
        });
    });
    group.finish();
}

fn range(offset: u64, flags: LockFlags) -> [LockElement; 1] {
    [LockElement {
        offset,
        length: 10,
        flags,
    }]
}

fn locks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine/lock-unlock");
    group.throughput(Throughput::Elements(1));
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    for held in [0, 10, 1000] {
        let files = Files::default();
        let mine = request(MYSELF, 5);
        grant(&files, &mine);
        let ask = |elements: &[LockElement]| {
            let (locking, effects) =
                files.lock(&mine.place, MYSELF, elements, None, WaiterId(2), BOUNDS);
            assert_eq!(locking, Locking::Done(Status::SUCCESS));
            drop(effects);
        };
        for number in 0..held {
            ask(&range(100 + 100 * number, exclusive));
        }
        let at = 50 * held + 20;
        group.bench_function(BenchmarkId::new("held", held), |b| {
            b.iter(|| {
                ask(&range(at, exclusive));
                ask(&range(at, LockFlags::UNLOCK));
            });
        });
        if held > 0 {
            group.bench_function(BenchmarkId::new("check-io", held), |b| {
                b.iter(|| files.check_io(&mine.place, MYSELF, black_box(at), 10, true));
            });
        }
    }
    group.finish();
}

/// The checks of a WRITE: without a lock where no other client caches, else by the engine.
fn questions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine/write-asks");
    group.throughput(Throughput::Elements(1));
    let files = Files::default();
    let mine = request(MYSELF, 5);
    let (decision, effects) = files.open(&mine);
    drop(effects);
    let Decision::Granted(granted) = decision else {
        panic!("not granted");
    };
    group.bench_function("quick", |b| {
        b.iter(|| black_box(granted.quick.ranges_in_use() || granted.quick.others_cache()));
    });
    group.bench_function("operation", |b| {
        b.iter(|| {
            let waiter = Some(waiter(3));
            let actor = Actor::Open(MYSELF);
            let (step, effects) = files.operation(&mine.place, actor, Operation::Write, waiter);
            drop(effects);
            black_box(step)
        });
    });
    group.finish();
}

criterion_group!(benches, open_close, refused, locks, questions);
criterion_main!(benches);
