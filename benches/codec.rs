//! Encoding and parsing of the messages that matter most: no server, no crypto.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use smb_client::{CreateArgs, Request, RequestBody};
use smb_sim::write_request;
use smb_wire::{
    Command, Status,
    create_context::{CreateContexts, LeaseState, name},
    header::{Header, HeaderFlags},
    ids::{FileId, LeaseKey, MessageId, SessionId, TreeId},
    msg::{CreateRequest, ReadRequest, ReadResponse, ReadResponseFlags, WriteRequest},
};

const PIECE: usize = 64 * 1024;

fn header(command: Command) -> Header {
    Header {
        credit_charge: 1,
        status: Status::SUCCESS,
        command,
        credits: 1,
        flags: HeaderFlags::empty(),
        next_command: 0,
        message_id: MessageId(7),
        async_id: None,
        reserved: 0,
        tree_id: TreeId(5),
        session_id: SessionId(9),
        signature: [0; 16],
    }
}

/// A whole message: header and body.
fn message(request: &Request) -> Vec<u8> {
    let mut head = BytesMut::new();
    header(request.command).encode(&mut head);
    let mut message = request.message().to_vec();
    message[..head.len()].copy_from_slice(&head);
    message
}

fn open_request() -> CreateArgs {
    CreateArgs::open("a folder\\another folder\\a file with a name.txt")
        .lease(LeaseKey([7; 16]), LeaseState::READ | LeaseState::HANDLE)
        .context(name::QUERY_MAXIMAL_ACCESS, &[])
        .context(name::QUERY_ON_DISK_ID, &[])
}

fn encode<B: RequestBody>(out: &mut BytesMut, body: &B) {
    header(B::COMMAND).encode(out);
    body.encode(out, 0);
}

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec/read");
    let bytes = message(&Request::read(FileId::ANY, 4096, 65_536));
    group.bench_function("parse-request", |b| {
        b.iter(|| {
            let message = black_box(&bytes[..]);
            (
                Header::read(message).unwrap(),
                ReadRequest::read(message).unwrap().offset,
            )
        });
    });
    let request = ReadRequest::read(&bytes).unwrap();
    group.bench_function("encode-request", |b| {
        let mut out = BytesMut::with_capacity(256);
        b.iter(|| {
            out.clear();
            encode(&mut out, black_box(&request));
            out.len()
        });
    });
    // The payload travels beside the head and is not copied.
    let response = ReadResponse {
        data_remaining: 0,
        flags: ReadResponseFlags::empty(),
        data: &[],
    };
    group.bench_function("encode-response-head", |b| {
        let mut out = BytesMut::with_capacity(256);
        b.iter(|| {
            out.clear();
            header(Command::READ).encode(&mut out);
            response.encode_head(&mut out, 0, black_box(65_536));
            out.len()
        });
    });
    group.finish();
}

fn write(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec/write");
    let bytes = message(&write_request(FileId::ANY, 4096, &[7; PIECE]));
    group.bench_function("parse-request", |b| {
        b.iter(|| {
            let message = black_box(&bytes[..]);
            (
                Header::read(message).unwrap(),
                WriteRequest::read(message).unwrap().data.len(),
            )
        });
    });
    let request = WriteRequest::read(&bytes).unwrap();
    group.throughput(Throughput::Bytes(PIECE as u64));
    group.bench_function("encode-request-64k", |b| {
        let mut out = BytesMut::with_capacity(PIECE + 256);
        b.iter(|| {
            out.clear();
            encode(&mut out, black_box(&request));
            out.len()
        });
    });
    group.finish();
}

fn create(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec/create");
    let bytes = message(&open_request().request());
    group.bench_function("parse-request-3-contexts", |b| {
        b.iter(|| {
            let message = black_box(&bytes[..]);
            let request = CreateRequest::read(message).unwrap();
            let contexts = CreateContexts::new(request.contexts);
            (
                Header::read(message).unwrap(),
                request.name.len(),
                contexts.map(|one| one.unwrap().data.len()).sum::<usize>(),
            )
        });
    });
    group.bench_function("build-request-3-contexts", |b| {
        b.iter_batched(open_request, |args| args.request(), BatchSize::SmallInput);
    });
    group.finish();
}

criterion_group!(benches, read, write, create);
criterion_main!(benches);
