//! Streams over the loopback: large and small messages, files, dead links.

use super::*;

#[test]
fn whole_and_partial_segments_are_taken_off() {
    let mut queue: VecDeque<Bytes> = ["ab", "", "cde", "f"]
        .map(|text| Bytes::from_static(text.as_bytes()))
        .into();
    advance(&mut queue, 3);
    assert_eq!(
        queue,
        ["de", "f"].map(|text| Bytes::from_static(text.as_bytes()))
    );
    advance(&mut queue, 3);
    assert!(queue.is_empty());
}

/// As clients do that set no TCP_NODELAY.
#[test]
fn a_message_sent_behind_its_length_is_not_kept_back() {
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};
    const ROUNDS: usize = 61;
    const LENGTH: usize = 100;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let mut round = || {
            let begun = Instant::now();
            client.write_all(&[0, 0, 0, 100]).unwrap();
            client.write_all(&[1; LENGTH]).unwrap();
            client.read_exact(&mut [0]).unwrap();
            begun.elapsed()
        };
        (0..ROUNDS).map(|_| round()).collect::<Vec<_>>()
    });
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (mut receiver, mut transmitter) = split(TcpStream::from_std(server).unwrap());
        for _ in 0..ROUNDS {
            let mut buffer = BytesMut::new();
            while buffer.len() < TRANSPORT_HEADER_SIZE + LENGTH {
                let received = receiver.receive(&mut buffer, LENGTH).await.unwrap();
                assert!((1..=LENGTH).contains(&received));
            }
            let mut answer = VecDeque::from([Bytes::from_static(b"!")]);
            transmitter.transmit(&mut answer).await.unwrap();
        }
    });
    let mut rounds = client.join().unwrap();
    // The kernel acknowledges the first segments of a connection at once.
    let late = &mut rounds[ROUNDS / 2..];
    late.sort();
    // A delayed acknowledgement makes nearly all rounds late; a busy machine only some.
    let quick = late[late.len() / 4];
    assert!(quick < Duration::from_millis(30), "{quick:?}");
}

/// Runs a test on a runtime of its own.
fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let options = tokio::runtime::LocalOptions::default();
    let runtime = runtime.enable_all().build_local(options).unwrap();
    runtime.block_on(test);
}

/// Both ends of a new connection.
async fn connected() -> (TcpStream, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let client = client.await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

#[test]
fn the_loss_of_a_client_is_noticed_before_its_bytes_are_received() {
    run(async {
        for resets in [false, true] {
            let (client, server) = connected().await;
            let (mut receiver, _transmitter) = split(server);
            client.writable().await.unwrap();
            assert_eq!(client.try_write(b"last").unwrap(), 4);
            receiver.ready().await;
            assert!(!receiver.is_lost());
            if resets {
                let client = SockRef::from(&client);
                client.set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(client);
            let deadline = std::time::Instant::now() + Duration::from_secs(10);
            while !receiver.is_lost() {
                assert!(std::time::Instant::now() < deadline, "resets: {resets}");
                sleep(Duration::from_millis(1)).await;
            }
        }
    });
}

#[test]
fn a_dead_link_is_noticed_before_the_time_of_a_break_is_over() {
    run(async {
        let (_client, server) = connected().await;
        let (receiver, transmitter) = split(server);
        let direct = transmitter.direct().unwrap();
        for (soon, time) in [(true, UNACKNOWLEDGED_SOON), (false, UNACKNOWLEDGED_MAX)] {
            direct.gives_up_soon(soon);
            let stream: &TcpStream = receiver.stream.as_ref();
            let timeout = SockRef::from(stream).tcp_user_timeout().unwrap();
            assert_eq!(timeout, Some(time));
        }
        drop((receiver, transmitter));
        direct.gives_up_soon(true);
    });
}

#[test]
fn a_small_message_behind_a_large_one_is_noticed() {
    use tokio::io::AsyncWriteExt as _;
    const LENGTH: usize = 2 * LARGE_MIN;
    run(async {
        let (mut client, server) = connected().await;
        let (mut receiver, _transmitter) = split(server);
        // As after the beginning of the message.
        receiver.fast = true;
        let mut buffer = BytesMut::with_capacity(LENGTH + 1);
        let message = vec![1; LENGTH];
        let send = async { client.write_all(&message).await.unwrap() };
        let receive = async {
            while buffer.len() < LENGTH {
                let left = LENGTH - buffer.len();
                assert!(receiver.receive(&mut buffer, left).await.unwrap() > 0);
            }
        };
        tokio::join!(send, receive);
        client.write_all(b"!").await.unwrap();
        receiver.ready().await;
        assert_eq!(receiver.low_water, 1);
        assert_eq!(receiver.receive(&mut buffer, 1).await.unwrap(), 1);
    });
}

#[test]
fn a_piece_of_a_client_that_has_become_slow_counts_soon() {
    use tokio::io::AsyncWriteExt as _;
    const PIECE: usize = 1000;
    const LONG: Duration = Duration::from_secs(30);
    run(async {
        let (mut client, server) = connected().await;
        let (mut receiver, _transmitter) = split(server);
        receiver.fast = true;
        client.write_all(&[1; PIECE]).await.unwrap();
        let mut buffer = BytesMut::with_capacity(LARGE_MIN);
        let received = receiver.receive(&mut buffer, LARGE_MIN);
        let received = tokio::time::timeout(LONG, received).await;
        assert_eq!(received.unwrap().unwrap(), PIECE);
    });
}

#[test]
fn what_a_full_socket_does_not_take_of_a_file_is_left() {
    use vfs::{Disk as _, Identity, disk::OpenHow, linux::LinuxDisk};
    const LENGTH: usize = 12 << 20;
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
    std::fs::write(folder.path().join("f"), &content).unwrap();
    let written = std::fs::File::open(folder.path().join("f")).unwrap();
    written.sync_all().unwrap();
    run(async {
        let (client, server) = connected().await;
        server.writable().await.unwrap();
        let (_receiver, mut transmitter) = split(server);
        let (mut receiver, _transmitter) = split(client);
        let disk = LinuxDisk::open(folder.path()).unwrap();
        let how = OpenHow {
            read: true,
            ..OpenHow::default()
        };
        let (who, root) = (Identity::Service, disk.root());
        let fd = disk.open_at(&who, &root, b"f", how).await.unwrap();
        let Some(mut file) = disk.in_memory(&fd, 0, LENGTH) else {
            return eprintln!("missing: a kernel with cachestat");
        };
        let mut head = Bytes::from_static(b"head");
        let direct = transmitter.direct().unwrap();
        direct.send(&mut head, &mut *file).unwrap();
        assert!(head.is_empty() && (1..LENGTH).contains(&file.left()));
        // The kernel may acknowledge, and thereby make room, until the receiver's buffer is full.
        let mut left = LENGTH;
        while file.left() < left {
            left = file.left();
            direct.send(&mut head, &mut *file).unwrap();
        }
        assert!(left > 0, "nobody has received anything");
        let mut rest = VecDeque::from([file.read().await.unwrap().freeze()]);
        let send = async {
            while !rest.is_empty() {
                transmitter.transmit(&mut rest).await.unwrap();
            }
            transmitter.finish().await;
        };
        let receive = async {
            let mut buffer = BytesMut::with_capacity(LENGTH + 100);
            while receiver.receive(&mut buffer, 1 << 20).await.unwrap() > 0 {}
            buffer
        };
        let ((), received) = tokio::join!(send, receive);
        assert!(received.starts_with(b"head") && received[4..] == content);
        drop(transmitter);
        let mut head = Bytes::from_static(b"late");
        let mut late = disk.in_memory(&fd, 0, 1).unwrap();
        assert!(direct.send(&mut head, &mut *late).is_err());
    });
}

/// A file that reads as zeros, sent by pieces as `sendfile` does it.
#[derive(Debug)]
struct Pieces(usize);

impl InMemory for Pieces {
    fn left(&self) -> usize {
        self.0
    }

    fn send(&mut self, socket: std::os::fd::BorrowedFd<'_>) -> io::Result<usize> {
        let piece = vec![0; self.0.min(SENDFILE_PIECE)];
        let corked = rustix::net::sockopt::tcp_cork(socket)?;
        assert!(
            corked,
            "a piece would leave with its last bytes in a packet"
        );
        let sent = rustix::net::send(socket, &piece, SendFlags::DONTWAIT)?;
        self.0 -= sent;
        Ok(sent)
    }

    fn read(self: Box<Self>) -> Pin<Box<dyn Future<Output = vfs::VfsResult<BytesMut>>>> {
        Box::pin(async move { Ok(BytesMut::zeroed(self.0)) })
    }
}

#[test]
fn the_last_bytes_of_a_corked_answer_leave_at_once() {
    const LENGTH: usize = 3 * SENDFILE_PIECE + 1;
    run(async {
        let (client, server) = connected().await;
        rustix::net::sockopt::set_tcp_congestion(&server, "reno").unwrap();
        server.writable().await.unwrap();
        let (_receiver, transmitter) = split(server);
        let (mut receiver, _transmitter) = split(client);
        let direct = transmitter.direct().unwrap();
        let mut head = Bytes::from_static(b"head");
        let mut file = Pieces(LENGTH);
        direct.send(&mut head, &mut file).unwrap();
        assert_eq!(file.0, 0);
        let corked = {
            let half = transmitter.0.borrow();
            let stream: &TcpStream = half.as_ref();
            rustix::net::sockopt::tcp_cork(stream).unwrap()
        };
        assert!(!corked);
        let mut buffer = BytesMut::new();
        while buffer.len() < 4 + LENGTH {
            assert!(receiver.receive(&mut buffer, 1 << 20).await.unwrap() > 0);
        }
    });
}

#[test]
fn everything_arrives_in_order_through_a_full_socket() {
    run(async {
        let (client, server) = connected().await;
        // Pieces of all sizes, empty ones too, more than one call takes, 8 MiB in all.
        let sizes = (0..300usize).map(|at| if at % 7 == 0 { 0 } else { at * 227 });
        let mut queue: VecDeque<Bytes> = sizes
            .map(|size| Bytes::from(vec![u8::try_from(size % 251).unwrap(); size]))
            .collect();
        let expected: Vec<u8> = queue.iter().flatten().copied().collect();
        let (_receiver, mut transmitter) = split(server);
        let (mut receiver, _transmitter) = split(client);
        let send = async {
            while !queue.is_empty() {
                transmitter.transmit(&mut queue).await.unwrap();
            }
            transmitter.finish().await;
        };
        let receive = async {
            let mut buffer = BytesMut::new();
            while receiver.receive(&mut buffer, 1 << 20).await.unwrap() > 0 {}
            buffer
        };
        let ((), received) = tokio::join!(send, receive);
        assert!(received == expected);
    });
}
