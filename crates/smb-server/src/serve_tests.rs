//! The turns of the reading half, and the time that the writing half gets.

use std::{
    cell::{Cell, RefCell},
    io,
    task::Poll,
};

use bytes::Bytes;
use smb_wire::{
    header::transport_header,
    smb1::{DIALECT_SMB_2_WILDCARD, Smb1NegotiateRequest},
};
use vfs::disk::InMemory;

use super::*;
use crate::{
    limits::{CONNECTION_MEMORY, ServerLimits},
    restore::world::{self, Back, HASTE, World, run, run_tasks},
    transport::Direct,
};

/// Receives after which the sender ends, for a reader that never rests.
const RECEIVES_MAX: usize = 100_000;

/// Always has a keep-alive.
struct Chatter {
    received: usize,
}

impl Receive for Chatter {
    async fn ready(&mut self) {}

    async fn receive(&mut self, buffer: &mut BytesMut, _most: usize) -> io::Result<usize> {
        self.received += 1;
        if self.received > RECEIVES_MAX {
            return Ok(0);
        }
        buffer.extend_from_slice(&[0x85, 0, 0, 0]);
        Ok(4)
    }

    fn is_lost(&self) -> bool {
        false
    }
}

/// Sends all its bytes at once, and then nothing more.
struct Once(Vec<u8>);

impl Receive for Once {
    async fn ready(&mut self) {}

    async fn receive(&mut self, buffer: &mut BytesMut, _most: usize) -> io::Result<usize> {
        let bytes = std::mem::take(&mut self.0);
        buffer.extend_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn is_lost(&self) -> bool {
        false
    }
}

/// Takes nothing; the socket is open until this is dropped.
struct Full {
    _open: Rc<()>,
}

impl Transmit for Full {
    async fn transmit(&mut self, _: &mut VecDeque<Bytes>) -> io::Result<()> {
        pending().await
    }

    async fn finish(&mut self) {
        pending().await
    }
}

fn connection() -> Rc<Connection<Back>> {
    connection_within(ServerLimits::default())
}

fn connection_within(limits: ServerLimits) -> Rc<Connection<Back>> {
    let server = World::new(false, limits).server;
    world::connection(&server, None)
}

#[test]
fn a_large_answer_leaves_before_the_next_request_is_read() {
    let connection = connection();
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&order);
    let mut writing: Option<LocalTask> = Some(Box::pin(poll_fn(move |_| {
        seen.borrow_mut().push("write");
        Poll::Pending
    })));
    let reading = async {
        order.borrow_mut().push("first request");
        connection.outbox.let_write().await;
        order.borrow_mut().push("second request");
    };
    let mut context = Context::from_waker(Waker::noop());
    let polled = pin!(both(&connection, reading, &mut writing)).poll(&mut context);
    assert_eq!(polled, Poll::Ready(()));
    let expected = ["first request", "write", "second request", "write"];
    assert_eq!(*order.borrow(), expected);
}

#[test]
fn after_a_large_message_the_reader_lets_its_answer_leave() {
    let connection = connection();
    // Keep-alives before a message count as its bytes.
    let mut bytes = [0x85, 0, 0, 0].repeat(SENT_ALONE_MIN / 4);
    let mut negotiate = BytesMut::new();
    Smb1NegotiateRequest::encode(&mut negotiate, &[DIALECT_SMB_2_WILDCARD]);
    bytes.extend_from_slice(&transport_header(negotiate.len()).unwrap());
    bytes.extend_from_slice(&negotiate);
    let mut sender = Once(bytes);
    let mut context = Context::from_waker(Waker::noop());
    let polled = pin!(read(&connection, &mut sender, &|| false)).poll(&mut context);
    assert_eq!(polled, Poll::Pending);
    assert!(connection.wildcard_answered.get() && connection.outbox.writes_between.get());
}

#[test]
fn a_client_that_sends_keep_alives_only_leaves_others_their_turn() {
    let connection = connection();
    let mut chatter = Chatter { received: 0 };
    let mut context = Context::from_waker(Waker::noop());
    let polled = pin!(read(&connection, &mut chatter, &|| false)).poll(&mut context);
    assert_eq!(polled, Poll::Pending, "it rests");
}

#[test]
fn the_socket_of_a_stranger_is_closed_with_the_connection() {
    let server = World::new(false, ServerLimits::default()).server;
    let open = Rc::new(());
    let socket = Full {
        _open: Rc::clone(&open),
    };
    let peer = ([127, 0, 0, 1], 1000).into();
    let mut end = Once(Vec::new());
    let served = serve(
        server,
        Client::New(peer),
        &mut end,
        socket,
        Box::new(|| Box::new(())),
        pending(),
        || false,
    );
    assert!(run(served).is_none());
    assert_eq!(Rc::strong_count(&open), 1);
}

#[test]
fn the_last_answers_of_a_user_are_sent_for_a_limited_time() {
    let connection = connection();
    for late in [false, true] {
        HASTE.set(late);
        let open = Rc::new(());
        let socket = Full {
            _open: Rc::clone(&open),
        };
        let writing: LocalTask = Box::pin(write(Rc::clone(&connection), socket, Parts::new()));
        send_the_rest(&connection, writing);
        run_tasks();
        let sockets = Rc::strong_count(&open) - 1;
        assert_eq!(sockets, usize::from(!late));
    }
    HASTE.set(false);
}

#[test]
fn breaks_that_a_client_does_not_take_do_not_pile_up() {
    let connection = connection_within(ServerLimits {
        buffer_memory: 0,
        ..ServerLimits::default()
    });
    let post = || notify(&connection, SessionId::default(), false, outbound::blank());
    let posted = (0..10_000).take_while(|_| post().is_ok()).count();
    // The memory that no budget counts holds hundreds of them.
    assert!((100..1_000).contains(&posted), "{posted}");
}

/// The requests of a client that takes all its answers may use up what was granted.
#[test]
fn a_break_closes_no_connection_for_the_memory_of_its_requests() {
    let connection = connection_within(ServerLimits {
        buffer_memory: 0,
        ..ServerLimits::default()
    });
    let _requests = DataInFlight::new(&connection, CONNECTION_MEMORY);
    let post = || notify(&connection, SessionId::default(), false, outbound::blank());
    assert!(post().is_ok() && post().is_ok());
}

/// A socket that records whether it is to give up soon.
struct GivesUp(Rc<Cell<bool>>);

impl Direct for GivesUp {
    fn send(&self, _: &mut Bytes, _: &mut dyn InMemory) -> io::Result<()> {
        Ok(())
    }

    fn gives_up_soon(&self, soon: bool) {
        self.0.set(soon);
    }
}

fn notification(elsewhere: bool) -> Mail {
    Mail::Notify {
        session: SessionId::default(),
        encrypted: false,
        elsewhere,
        body: outbound::blank(),
    }
}

#[test]
fn a_dead_link_is_noticed_soon_if_its_break_can_go_another_way() {
    let server = World::new(false, ServerLimits::default()).server;
    let soon = Rc::new(Cell::new(false));
    let socket: Box<dyn Direct> = Box::new(GivesUp(Rc::clone(&soon)));
    let connection = world::connection(&server, Some(socket));
    let (post, mailbox) = mpsc::channel(1);
    let parts = Parts::<Full>::new();
    let stuck = Arc::default();
    let mut delivery = pin!(deliver(Rc::clone(&connection), mailbox, stuck, parts));
    let mut after_break = |elsewhere| {
        assert!(post.try_send(notification(elsewhere)).is_ok());
        let mut context = Context::from_waker(Waker::noop());
        assert!(delivery.as_mut().poll(&mut context).is_pending());
        soon.get()
    };
    assert!(!after_break(false));
    assert!(after_break(true));
    // A link that is slow has time again when the time of the break is over.
    HASTE.set(true);
    assert!(!after_break(true));
    HASTE.set(false);
}

#[test]
fn a_connection_that_leaves_its_worker_gives_up_soon_until_the_time_of_its_break_is_over() {
    let server = World::new(false, ServerLimits::default()).server;
    let soon = Rc::new(Cell::new(false));
    let socket = || -> Option<Box<dyn Direct>> { Some(Box::new(GivesUp(Rc::clone(&soon)))) };
    let connection = world::connection(&server, socket());
    let (post, mailbox) = mpsc::channel(2);
    for mail in [notification(true), Mail::Leave] {
        assert!(post.try_send(mail).is_ok());
    }
    let parts = Parts::<Full>::new();
    let delivery = deliver(
        Rc::clone(&connection),
        mailbox,
        Arc::default(),
        Rc::clone(&parts),
    );
    run(delivery);
    assert!(soon.get());
    let carried = connection.carry(parts.mailbox.take().unwrap(), Arc::default());
    let arrived = Client::Carried(carried).arrive(&server, socket(), Box::new(|| Box::new(())));
    let (connection, mailbox, stuck) = arrived;
    let mut delivery = pin!(deliver(connection, mailbox, stuck, parts));
    HASTE.set(true);
    let mut context = Context::from_waker(Waker::noop());
    assert!(delivery.as_mut().poll(&mut context).is_pending());
    assert!(!soon.get());
    HASTE.set(false);
}
