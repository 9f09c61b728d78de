//! Whole requests through the protocol core over the in-memory back end, without sockets: plain, signed (GMAC and
//! CMAC) and sealed. `support/lib.rs` says what the clock covers.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use smb_benches::Pair;
use smb_client::{CreateArgs, Created, Encryption, Options, Request, Signing};
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_sim::write_request;
use smb_wire::{
    ids::FileId,
    msg::{CreateOptions, EchoRequest},
};

const SIZES: [(&str, u32); 3] = [("4k", 4096), ("64k", 65_536), ("1m", 1 << 20)];

fn protections() -> [(&'static str, Options); 4] {
    let signed = Options::default().signing(Signing::Required);
    [
        ("plain", Options::default()),
        (
            "signed-gmac",
            signed.clone().signing_algorithm(SigningAlgorithm::AesGmac),
        ),
        (
            "signed-cmac",
            signed.signing_algorithm(SigningAlgorithm::AesCmac),
        ),
        (
            "sealed-gcm",
            Options::default()
                .encryption(Encryption::Always)
                .cipher(Cipher::Aes128Gcm),
        ),
    ]
}

/// Measures the server's part of what `round` does.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: String,
    mut round: impl FnMut() -> Duration,
) {
    group.bench_function(name, |b| {
        b.iter_custom(|times| (0..times).map(|_| round()).sum());
    });
}

fn close_request(file: FileId) -> Request {
    Request::close(file)
}

fn echo(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request/echo");
    group.throughput(Throughput::Elements(1));
    for (protection, options) in protections() {
        let mut pair = Pair::new(options);
        measure(&mut group, protection.to_owned(), || {
            pair.timed(Request::new(&EchoRequest)).1
        });
    }
    group.finish();
}

fn data(criterion: &mut Criterion) {
    for (protection, options) in protections() {
        let mut pair = Pair::new(options);
        let file = pair.create(&CreateArgs::create("file"));
        let content = vec![0x5a; 1 << 20];
        pair.write(file, &content);
        for (size, len) in SIZES {
            let mut group = criterion.benchmark_group(format!("request/read-{size}"));
            group.throughput(Throughput::Bytes(u64::from(len)));
            measure(&mut group, protection.to_owned(), || {
                pair.timed(Request::read(file, 0, len)).1
            });
            group.finish();
            let mut group = criterion.benchmark_group(format!("request/write-{size}"));
            group.throughput(Throughput::Bytes(u64::from(len)));
            measure(&mut group, protection.to_owned(), || {
                let data = &content[..len as usize];
                pair.timed(write_request(file, 0, data)).1
            });
            group.finish();
        }
    }
}

fn names(criterion: &mut Criterion) {
    for (protection, options) in protections() {
        let mut pair = Pair::new(options);
        let file = pair.create(&CreateArgs::create("file"));
        pair.timed(close_request(file));
        for (name, args) in [
            ("open-close", CreateArgs::open("file")),
            (
                "create-remove",
                CreateArgs::create("new").options(CreateOptions::DELETE_ON_CLOSE),
            ),
        ] {
            let mut group = criterion.benchmark_group(format!("request/{name}"));
            group.throughput(Throughput::Elements(1));
            measure(&mut group, protection.to_owned(), || {
                let (reply, opened) = pair.timed(args.request());
                let file = Created::read(&reply.message).unwrap().file_id;
                opened + pair.timed(close_request(file)).1
            });
            group.finish();
        }
    }
}

criterion_group!(benches, echo, data, names);
criterion_main!(benches);
