//! The disk of rings, each driven as the daemon drives it.

use std::{future::Future, io::Write, os::fd::AsFd, rc::Rc, sync::Arc, time::Duration};

use bytes::BytesMut;

use super::{operations::RingFuture, sys::Operation, *};
use crate::{
    conformance::{self, get, new_file, put},
    disk::{Attempt, Disk},
    linux::LinuxDisk,
    posix_sys,
    testing::{block_on, on_ring},
};

/// Runs `test` with a disk that uses a ring, or prints why it cannot.
fn with_ring<F: Future<Output = ()>>(
    options: UringOptions,
    test: impl FnOnce(LinuxDisk, Rc<UringWorker>) -> F,
) {
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap().with_rings(true);
    if let Some(worker) = on_ring(options, |worker| test(disk, worker)) {
        assert_eq!(worker.in_flight(), 0);
    }
}

#[test]
fn conforms() {
    with_ring(UringOptions::default(), |disk, _| async move {
        conformance::all(&disk).await;
    });
}

#[test]
fn conforms_without_a_ring() {
    let dir = tempfile::tempdir().unwrap();
    block_on(conformance::all(
        &LinuxDisk::open(dir.path()).unwrap().with_rings(true),
    ));
}

#[test]
fn conforms_as_the_host_disk() {
    let dir = tempfile::tempdir().unwrap();
    for use_ring in [false, true] {
        let sub = dir.path().join(use_ring.to_string());
        std::fs::create_dir(&sub).unwrap();
        block_on(conformance::all(
            &LinuxDisk::open(&sub).unwrap().with_rings(use_ring),
        ));
    }
}

#[test]
fn programs_lose_their_privileges() {
    if !crate::testing::root() {
        return;
    }
    with_ring(UringOptions::default(), |disk, worker| async move {
        let before = worker.completed();
        conformance::set_ids(&disk).await;
        assert!(worker.completed() > before + 50, "data go through the ring");
    });
}

#[test]
fn a_cold_read_at_depth_one_completes() {
    with_ring(UringOptions::default(), |disk, worker| async move {
        let fd = new_file(&disk, &disk.root(), b"cold").await;
        let bytes: Vec<u8> = (0..1u32 << 20).map(|i| (i % 253) as u8).collect();
        put(&disk, &fd, 0, &bytes).await;
        disk.fsync(&fd).await.unwrap();
        let mut cold = 0;
        for round in 0..20u64 {
            rustix::fs::fadvise(&fd, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            // Kernels before 6.5 do not answer.
            let cached = posix_sys::cached_pages(fd.as_fd(), 0, 1 << 20);
            cold += u32::from(cached.is_ok_and(|(pages, _)| pages == 0));
            let (at, buf) = (round * 50_000, BytesMut::new());
            // Not `Disk::read`, which tries RWF_NOWAIT first: a quick disk often answers that in time.
            let ring = worker::local().unwrap();
            let held = held(fd.as_fd().try_clone_to_owned().unwrap());
            match ring.read(held, at, 4096, buf).await {
                Attempt::Done(got) => assert_eq!(got.unwrap(), bytes[at as usize..][..4096]),
                Attempt::Declined(_) => panic!("the ring was not used"),
            }
            assert_eq!(worker.in_flight(), 0);
        }
        let answers = posix_sys::cached_pages(fd.as_fd(), 0, 1).is_ok();
        assert!(
            cold > 0 || disk.root().class().memory || !answers,
            "no read was cold"
        );
    });
}

#[test]
fn a_small_ring_overflows_to_the_pool() {
    let options = UringOptions {
        entries: 2,
        iowq_max_workers: 2,
    };
    with_ring(options, |disk, _| async move {
        let fd = new_file(&disk, &disk.root(), b"many").await;
        let mut tasks = Vec::new();
        for i in 0..200u64 {
            let (disk, fd) = (disk.clone(), fd.clone());
            tasks.push(tokio::task::spawn_local(async move {
                let block = vec![i as u8; 4096];
                put(&disk, &fd, i * 4096, &block).await;
                assert_eq!(get(&disk, &fd, i * 4096, 4096).await, block);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// A descriptor whose operations occupy no kernel thread.
fn held(fd: std::os::fd::OwnedFd) -> HeldFd {
    HeldFd {
        fd: Arc::new(fd),
        occupies: None,
    }
}

/// One file system hangs, so that what was begun on it never ends: the rest of its operations is declined, and those
/// of another one go to the ring.
#[test]
fn a_file_system_that_hangs_leaves_the_ring_to_the_others() {
    with_ring(UringOptions::default(), |disk, worker| async move {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = Arc::new(reader);
        let read = || {
            let operation = Operation::Read {
                fd: HeldFd {
                    fd: Arc::clone(&reader) as Arc<dyn AsFd + Send + Sync>,
                    occupies: Some(u64::MAX),
                },
                offset: 0,
                len: 16,
                buf: BytesMut::with_capacity(16),
            };
            RingFuture::new(worker::local().unwrap(), operation)
        };
        let mut hung = Vec::new();
        let declined = loop {
            let mut op = Box::pin(read());
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(op.as_mut().poll(cx)));
            match polled.await {
                std::task::Poll::Pending => hung.push(op),
                std::task::Poll::Ready(done) => break done.is_err(),
            }
        };
        assert!(declined);
        let threads = UringOptions::default().iowq_max_workers as usize;
        assert_eq!(hung.len(), threads / 4);
        // Nobody waits for the results any more, but the operations still run.
        drop(hung);
        let file = new_file(&disk, &disk.root(), b"f").await;
        for _ in 0..100 {
            let other = HeldFd {
                occupies: Some(1),
                ..held(file.as_fd().try_clone_to_owned().unwrap())
            };
            let ring = worker::local().unwrap();
            let got = ring.read(other, 0, 16, BytesMut::new()).await;
            assert!(matches!(got, Attempt::Done(Ok(_))));
        }
        assert!(read().await.is_err());
        drop(writer);
        while worker.in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(read().await.is_ok());
    });
}

/// A read that waits until the pipe is written to.
fn pipe_read() -> (RingFuture, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let fd = held(reader.into());
    let buf = BytesMut::with_capacity(16);
    let operation = Operation::Read {
        fd,
        offset: 0,
        len: 16,
        buf,
    };
    (RingFuture::new(worker::local().unwrap(), operation), writer)
}

#[test]
fn an_abandoned_operation_keeps_its_memory() {
    with_ring(UringOptions::default(), |_, worker| async move {
        let (mut op, mut writer) = pipe_read();
        std::future::poll_fn(|cx| {
            assert!(std::pin::Pin::new(&mut op).poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        worker.drive();
        drop(op);
        assert_eq!(worker.in_flight(), 1, "the kernel still has it");
        writer.write_all(b"late").unwrap();
        for _ in 0..10_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if worker.in_flight() == 0 {
                return;
            }
        }
        panic!("the completion of an abandoned operation was not seen");
    });
}

#[test]
fn a_ring_that_ends_cancels_what_waits() {
    if probe().is_err() {
        return;
    }
    let worker = UringWorker::new(UringOptions::default()).unwrap();
    assert!(matches!(
        UringWorker::new(UringOptions::default()),
        Err(Reason::Exists)
    ));
    let (mut op, _writer) = pipe_read();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut op).poll(&mut cx).is_pending());
    worker.drive();
    let start = std::time::Instant::now();
    drop(worker);
    assert!(worker::local().is_none());
    drop(op);
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "waited for what never comes"
    );
}
