//! Tests of breaks that race with other workers: with the loss of a connection, and with an
//! acknowledgment.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::AtomicBool},
    task::{Context, Wake, Waker},
};

use smb_wire::{
    access_mask::AccessMask, create_context::LeaseV2, dtyp::Sid, ids::SessionId, msg::ShareAccess,
};
use tokio::sync::mpsc;
use vfs::{Node, Timestamp, Volume};

use super::*;
use crate::{
    file::{
        Actor, CacheRequest, CountedUser, Decision, LeaseContext, LeaseState, Link, OpenRequest,
        Operation, Place, SharePath, Waiter, WaiterId,
    },
    limits::ServerLimits,
    memory::Seen,
    restore::world::{Back, CLIENT, KEY, World, came, run_tasks},
    state::{Endurance, Mail, Peer, QuotaUser, Session},
    token::Token,
};

const OWNER: Owner = Owner::Lease(CLIENT, KEY);
const BY: ConnectionId = ConnectionId(1);
const RH: LeaseState = LeaseState(3);

/// A persistent open with a lease RWH, to which its client has reconnected on its one connection.
fn world() -> (World, Place, Arc<Open<Back>>, mpsc::Receiver<Mail>) {
    let world = World::new(false, ServerLimits::default());
    world.watched(true);
    world.changes_seen(true);
    assert_eq!(world.bring_back(&[world.record(10)]), came(1, 0, 0));
    let mailbox = connect(&world.server, BY, true);
    let open = world.server.durables.take(10).unwrap();
    let holder = Holder {
        connection: BY,
        session: SessionId(1),
        file_id: open.file_id,
        encrypted: false,
    };
    world.server.holders.add(open.engine, holder);
    let place = open.disk().unwrap().place.clone();
    (world, place, open, mailbox)
}

/// The client of the open has lost its session.
fn disconnect(server: &Server<Back>, open: &Arc<Open<Back>>) {
    server.holders.left(open.engine, open.file_id);
    let until = Duration::from_secs(60);
    let _ = server.durables.keep(open, until, &ServerLimits::default());
    server.remove_connection(BY);
}

fn connect(server: &Server<Back>, id: ConnectionId, logged_in: bool) -> mpsc::Receiver<Mail> {
    let (mail, mailbox) = mpsc::channel(8);
    let peer = Peer {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        dialect: None,
        client: CLIENT,
        users: logged_in.then_some(Sid::EVERYONE).into_iter().collect(),
        since: Timestamp::default(),
        mail,
        stuck: Arc::new(AtomicBool::new(false)),
        account: server.memory.account(Ipv4Addr::LOCALHOST.into()),
        seen: Seen::default(),
    };
    server.add_connection(id, peer);
    mailbox
}

/// The break that an operation of another client causes.
fn broken(server: &Server<Back>, place: &Place, operation: Operation) -> Break {
    let (_, mut effects) = server
        .files
        .operation(place, Actor::Stranger, operation, None);
    effects.breaks.pop().unwrap()
}

fn acknowledge(server: &Server<Back>, state: LeaseState) {
    let (answer, _) = server.files.acknowledge_lease(CLIENT, KEY, state);
    assert_eq!(answer, Ok(state));
}

#[test]
fn an_acknowledgment_leaves_the_next_break_alone() {
    let (world, place, _, _mailbox) = world();
    let server = &world.server;
    let first = broken(server, &place, Operation::Read);
    deliver(server, first.clone());
    acknowledge(server, RH);
    // Before that is recorded, another request breaks more caching.
    let second = broken(server, &place, Operation::Write);
    deliver(server, second.clone());
    assert_eq!(acknowledged(server, OWNER), []);
    assert_eq!(server.pending_breaks.lost(BY), [second]);
}

#[test]
fn an_answer_before_the_notification_has_the_epoch_before_the_break() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    let now = || match reported(server, &place, open.engine, OWNER) {
        CacheGrant::Lease(lease) => (lease.v2.unwrap().epoch, lease.is_breaking()),
        other => panic!("{other:?}"),
    };
    let (before, _) = now();
    let broken = broken(server, &place, Operation::Read);
    assert_eq!(broken.epoch, before + 1);
    let granting = Granting::begin(server, OWNER);
    deliver(server, broken);
    assert_eq!(now(), (before, true), "the break follows the answer");
    drop(granting);
    assert_eq!(now(), (before + 1, true));
}

/// Somebody without a login uses the client's ClientGuid.
#[test]
fn a_break_leaves_on_a_connection_with_a_login() {
    let (world, place, _, _mailbox) = world();
    let server = &world.server;
    let mut of_a_stranger = connect(server, ConnectionId(0), false);
    let mut channel = connect(server, ConnectionId(2), true);
    server.remove_connection(BY);
    deliver(server, broken(server, &place, Operation::Write));
    assert!(channel.try_recv().is_ok());
    assert!(of_a_stranger.try_recv().is_err());
}

#[test]
fn a_break_of_opens_whose_client_is_away_waits_though_it_logs_in() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    disconnect(server, &open);
    let mut next = connect(server, ConnectionId(2), true);
    let broken = broken(server, &place, Operation::Write);
    deliver(server, broken.clone());
    assert!(next.try_recv().is_err());
    assert_eq!(server.pending_breaks.of(OWNER), [broken]);
}

/// The client opens the file of `open` anew, with the same lease.
fn join(server: &Server<Back>, place: &Place, open: &Open<Back>) {
    let share = open.tree.share.as_ref().unwrap();
    let request = OpenRequest {
        open: OpenId(server.fresh_id()),
        place: place.clone(),
        link: Link::new(share.vfs.root().key(), "f"),
        path: SharePath::of(share.id, &["f".to_owned()]),
        directory: false,
        access: AccessMask::FILE_READ_DATA,
        share: ShareAccess(7),
        effect: AccessMask::empty(),
        delete_on_close: false,
        patient: true,
        client: CLIENT,
        cache: CacheRequest::Lease(LeaseContext {
            lease_key: KEY,
            lease_state: LeaseState::RWH,
            v2: Some(LeaseV2::default()),
            ..LeaseContext::default()
        }),
        allocation: 0,
        waiter: Waiter {
            id: WaiterId(server.fresh_id()),
            user: CountedUser::default(),
        },
    };
    let (decision, effects) = server.files.open(&request);
    assert!(matches!(decision, Decision::Granted(_)) && effects.is_empty());
}

#[test]
fn a_break_that_waits_for_a_client_follows_the_answer_to_a_new_open_of_the_lease() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    disconnect(server, &open);
    let mut next = connect(server, ConnectionId(2), true);
    deliver(server, broken(server, &place, Operation::Write));
    let granting = Granting::begin(server, OWNER);
    join(server, &place, &open);
    resume(server, OWNER);
    assert!(next.try_recv().is_err(), "the answer is under way");
    drop(granting);
    assert!(next.try_recv().is_ok());
    assert!(server.pending_breaks.is_sent(OWNER));
}

#[test]
fn a_break_that_an_answer_holds_back_reaches_the_open_of_that_answer() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    disconnect(server, &open);
    let mut next = connect(server, ConnectionId(2), true);
    let granting = Granting::begin(server, OWNER);
    deliver(server, broken(server, &place, Operation::Write));
    join(server, &place, &open);
    drop(granting);
    assert!(next.try_recv().is_ok());
    assert!(server.pending_breaks.is_sent(OWNER));
}

#[test]
fn a_break_that_begins_to_wait_as_its_lease_is_opened_anew_leaves() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    disconnect(server, &open);
    let mut next = connect(server, ConnectionId(2), true);
    let broken = broken(server, &place, Operation::Write);
    // It was seen that all opens are disconnected, and then the CREATE looks for a break that waits.
    join(server, &place, &open);
    resume(server, OWNER);
    undelivered::undelivered(server, broken, true);
    assert!(next.try_recv().is_ok());
    assert!(server.pending_breaks.is_sent(OWNER));
}

#[test]
fn a_break_that_begins_to_wait_as_its_client_comes_back_leaves() {
    // A durable open's break is decided before or after the answer has left.
    for (persistent, before) in [(true, true), (false, true), (false, false)] {
        let (world, place, open, _mailbox) = world();
        let server = &world.server;
        if !persistent {
            let timeout = Duration::from_secs(60);
            open.state().endurance = Endurance::Durable {
                timeout,
                persistent,
            };
        }
        let mut next = connect(server, ConnectionId(2), true);
        let broken = broken(server, &place, Operation::Write);
        // It was seen that the client is away; then it takes its open again, and looks for a break that waits.
        let granting = Granting::begin(server, OWNER);
        resume(server, OWNER);
        undelivered::undelivered(server, broken, true);
        if before {
            run_tasks();
        }
        assert!(next.try_recv().is_err(), "the answer is under way");
        server.remove_connection(BY);
        drop(granting);
        run_tasks();
        assert!(next.try_recv().is_ok());
        assert!(server.pending_breaks.is_sent(OWNER));
    }
}

#[test]
fn a_break_that_finds_its_client_coming_back_follows_the_answer() {
    let (world, place, open, mut mailbox) = world();
    let server = &world.server;
    let holder = server.holders.get(open.engine).unwrap();
    server.holders.remove(open.engine);
    let broken = broken(server, &place, Operation::Write);
    // It was seen that no answer is under way; then the client takes its open out of the table.
    let granting = Granting::begin(server, OWNER);
    leave(server, broken);
    assert!(mailbox.try_recv().is_err(), "the answer is under way");
    server.holders.add(open.engine, holder);
    drop(granting);
    assert!(mailbox.try_recv().is_ok());
    assert!(server.pending_breaks.is_sent(OWNER));
}

#[test]
fn a_break_of_a_resilient_open_whose_client_is_away_ends() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    let timeout = Duration::from_secs(60);
    open.state().endurance = Endurance::Resilient { timeout };
    disconnect(server, &open);
    let broken = broken(server, &place, Operation::Write);
    // As when the request that causes the break holds the guard.
    let guard = server.persistence.breaking();
    deliver(server, broken.clone());
    assert!(in_flight(server, &broken), "its loss could not be recorded");
    drop(guard);
    run_tasks();
    assert!(!in_flight(server, &broken));
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
    assert!(server.durables.is_kept(open.engine), "the open stays");
}

/// Otherwise the request that waits for the break would meet the open, whose caching is gone.
#[test]
fn a_break_that_comes_as_a_connection_is_lost_ends_with_the_open_there() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    let timeout = Duration::from_secs(60);
    open.state().endurance = Endurance::Durable {
        timeout,
        persistent: false,
    };
    let before = run_tasks();
    server.remove_connection(BY);
    let broken = broken(server, &place, Operation::Write);
    deliver(server, broken.clone());
    assert!(in_flight(server, &broken), "the open is still to be kept");
    disconnect(server, &open);
    connection_lost(server, BY);
    assert_eq!(run_tasks(), before);
    assert!(!in_flight(server, &broken) && !server.durables.is_kept(open.engine));
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
}

/// The open names the channel that it was made on, which its session had lost before.
#[test]
fn a_break_that_comes_as_the_last_channel_is_lost_waits_for_the_client() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    server.remove_connection(BY);
    let broken = broken(server, &place, Operation::Write);
    deliver(server, broken.clone());
    assert_eq!(run_tasks(), before + 1);
    disconnect(server, &open);
    connection_lost(server, ConnectionId(2));
    assert_eq!(
        run_tasks(),
        before,
        "it waits for its client, without a timer"
    );
    assert_eq!(server.pending_breaks.of(OWNER), [broken]);
    assert!(!server.pending_breaks.is_sent(OWNER));
}

#[test]
fn a_break_ends_with_the_close_of_an_open_that_is_being_closed() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    server.remove_connection(BY);
    server.holders.left(open.engine, open.file_id);
    let broken = broken(server, &place, Operation::Write);
    deliver(server, broken.clone());
    assert_eq!(
        run_tasks(),
        before + 1,
        "a close that hangs ends it in time"
    );
    assert!(in_flight(server, &broken));
    let closed = Arc::clone(server);
    let close = async move { crate::state::disconnected::shut(&closed, &open).await };
    server.env.spawn(Box::pin(close));
    assert_eq!(run_tasks(), before, "its timer ends with it");
    assert!(!in_flight(server, &broken));
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
}

#[test]
fn the_opens_of_a_break_are_looked_for_if_none_of_the_known_ones_is_connected() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    let broken = broken(server, &place, Operation::Write);
    join(server, &place, &open);
    assert_eq!(up_to_date(server, broken.clone()), broken);
    disconnect(server, &open);
    assert_eq!(up_to_date(server, broken).opens.len(), 2);
}

/// A connection on another worker that is lost the moment mail arrives.
struct Dies(Arc<Server<Back>>, Arc<Open<Back>>);

impl Wake for Dies {
    fn wake(self: Arc<Self>) {
        disconnect(&self.0, &self.1);
        connection_lost(&self.0, BY);
    }
}

#[test]
fn a_break_whose_connection_dies_as_it_takes_it_is_not_left_with_it() {
    let (world, place, open, mut mailbox) = world();
    let server = &world.server;
    let waker = Waker::from(Arc::new(Dies(Arc::clone(server), open)));
    let mut context = Context::from_waker(&waker);
    assert!(mailbox.poll_recv(&mut context).is_pending());
    let broken = broken(server, &place, Operation::Write);
    deliver(server, broken.clone());
    assert!(!server.is_connected(BY));
    assert_eq!(server.pending_breaks.lost(BY), []);
    assert_eq!(
        server.pending_breaks.of(OWNER),
        [broken],
        "it waits for its client"
    );
}

#[test]
fn the_time_of_a_break_begins_anew_when_its_client_is_back() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    deliver(server, broken(server, &place, Operation::Write));
    assert_eq!(run_tasks(), before + 1);
    disconnect(server, &open);
    connection_lost(server, BY);
    assert_eq!(run_tasks(), before, "it waits for its client");
    let mut next = connect(server, ConnectionId(2), true);
    join(server, &place, &open);
    resume(server, OWNER);
    assert!(next.try_recv().is_ok());
    assert_eq!(run_tasks(), before + 1);
}

/// The server has not noticed the loss of the first connection.
#[test]
fn only_a_client_that_reconnects_has_all_its_time_for_a_break_again() {
    for reconnected in [true, false] {
        let (world, place, open, _mailbox) = world();
        let server = &world.server;
        let before = run_tasks();
        deliver(server, broken(server, &place, Operation::Write));
        let mut next = connect(server, ConnectionId(2), true);
        let granting = Granting::begin(server, OWNER);
        let holder = Holder {
            connection: ConnectionId(2),
            ..server.holders.get(open.engine).unwrap()
        };
        server.holders.add(open.engine, holder);
        recall(server, OWNER, ConnectionId(2), reconnected);
        assert_eq!(run_tasks() == before, reconnected);
        drop(granting);
        assert!(next.try_recv().is_ok());
        assert_eq!(run_tasks(), before + 1);
        acknowledge(server, LeaseState(0));
        acknowledged(server, OWNER);
        assert_eq!(run_tasks(), before);
    }
}

#[test]
fn a_break_that_ends_before_it_begins_to_wait_is_forgotten() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    disconnect(server, &open);
    let broken = broken(server, &place, Operation::Write);
    acknowledge(server, LeaseState(0));
    undelivered::undelivered(server, broken, true);
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
}

#[test]
fn the_timer_of_a_break_ends_with_it() {
    let (world, place, open, _mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    deliver(server, broken(server, &place, Operation::Read));
    assert_eq!(run_tasks(), before + 1);
    acknowledge(server, RH);
    acknowledged(server, OWNER);
    assert_eq!(run_tasks(), before, "acknowledged");
    deliver(server, broken(server, &place, Operation::Write));
    assert_eq!(run_tasks(), before + 1);
    let _ = server.files.close(&place, open.engine, None);
    acknowledged(server, OWNER);
    assert_eq!(run_tasks(), before, "closed instead");
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
}

#[test]
fn a_break_that_is_answered_before_its_timer_begins_has_none() {
    let (world, place, _, mut mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    let waker = Waker::from(Arc::new(Answers(Arc::clone(server))));
    let mut context = Context::from_waker(&waker);
    assert!(mailbox.poll_recv(&mut context).is_pending());
    deliver(server, broken(server, &place, Operation::Write));
    assert_eq!(run_tasks(), before);
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
}

/// The client is quick.
struct Answers(Arc<Server<Back>>);

impl Wake for Answers {
    fn wake(self: Arc<Self>) {
        acknowledge(&self.0, LeaseState(0));
        acknowledged(&self.0, OWNER);
    }
}

#[test]
fn a_break_that_is_answered_as_it_goes_by_another_connection_is_over() {
    let (world, place, _, _mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    deliver(server, broken(server, &place, Operation::Write));
    assert_eq!(run_tasks(), before + 1);
    let mut other = connect(server, ConnectionId(2), true);
    let waker = Waker::from(Arc::new(Answers(Arc::clone(server))));
    let mut context = Context::from_waker(&waker);
    assert!(other.poll_recv(&mut context).is_pending());
    server.remove_connection(BY);
    connection_lost(server, BY);
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
    assert_eq!(run_tasks(), before);
}

#[test]
fn a_break_that_is_answered_while_it_waits_for_an_answer_to_leave_is_over() {
    let (world, place, _, _mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    let broken = broken(server, &place, Operation::Write);
    deliver(server, broken.clone());
    assert_eq!(run_tasks(), before + 1);
    let _other = connect(server, ConnectionId(2), true);
    let granting = Granting::begin(server, OWNER);
    server.remove_connection(BY);
    connection_lost(server, BY);
    acknowledge(server, LeaseState(0));
    assert_eq!(acknowledged(server, OWNER), [broken], "its timer knows it");
    drop(granting);
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
    assert_eq!(run_tasks(), before);
}

#[test]
fn a_break_that_is_answered_as_it_leaves_after_an_answer_is_over() {
    let (world, place, _, _mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    deliver(server, broken(server, &place, Operation::Write));
    let mut other = connect(server, ConnectionId(2), true);
    let granting = Granting::begin(server, OWNER);
    server.remove_connection(BY);
    connection_lost(server, BY);
    assert_eq!(run_tasks(), before + 1, "its time goes on");
    let waker = Waker::from(Arc::new(Answers(Arc::clone(server))));
    let mut context = Context::from_waker(&waker);
    assert!(other.poll_recv(&mut context).is_pending());
    drop(granting);
    assert_eq!(server.pending_breaks.sizes(), (0, 0));
    assert_eq!(run_tasks(), before);
}

#[test]
fn the_time_of_a_break_that_changes_its_connection_begins_once() {
    let (world, place, _, _mailbox) = world();
    let server = &world.server;
    let before = run_tasks();
    deliver(server, broken(server, &place, Operation::Write));
    let _other = connect(server, ConnectionId(2), true);
    server.remove_connection(BY);
    connection_lost(server, BY);
    assert_eq!(run_tasks(), before + 1);
    assert_eq!(server.pending_breaks.sizes(), (0, 1));
    acknowledge(server, LeaseState(0));
    acknowledged(server, OWNER);
    assert_eq!(run_tasks(), before);
}

/// The mailbox was full when a break came, and its mail was delivered before the mark was set.
#[test]
fn a_connection_that_lost_a_break_is_closed_also_if_its_mailbox_is_empty_by_now() {
    let world = World::new(false, ServerLimits::default());
    let mut mailbox = connect(&world.server, BY, true);
    world.server.overflowed(BY);
    assert!(matches!(mailbox.try_recv(), Ok(Mail::Close)));
}

/// Makes the session of the open, with this connection as a further channel.
fn bind(
    server: &Server<Back>,
    open: &Arc<Open<Back>>,
    channel: ConnectionId,
) -> mpsc::Receiver<Mail> {
    let session = Session::<Back>::plain(Token::guest(&server.config()));
    session.add_channel(channel, Box::new(())).unwrap();
    let (id, of_session) = (open.file_id.volatile, Arc::clone(open));
    session.tables().opens.insert(id, of_session);
    let user = QuotaUser::of(&session.token(), Ipv4Addr::LOCALHOST.into());
    let place = server.session_place(user, 100, None).unwrap();
    server.add_session(Arc::new(session), place);
    connect(server, channel, true)
}

/// Takes a notification out of the mailbox; returns whether another connection can carry it.
fn goes_elsewhere(mailbox: &mut mpsc::Receiver<Mail>) -> bool {
    match mailbox.try_recv() {
        Ok(Mail::Notify { elsewhere, .. }) => elsewhere,
        other => panic!("{other:?}"),
    }
}

/// Breaks the caching until nothing is left; the last step needs no acknowledgment.
fn break_all(server: &Arc<Server<Back>>, place: &Place) {
    deliver(server, broken(server, place, Operation::Read));
    acknowledge(server, LeaseState::READ);
    acknowledged(server, OWNER);
    let last = broken(server, place, Operation::Write);
    assert!(!last.ack_required);
    deliver(server, last);
}

#[test]
fn a_break_without_an_acknowledgment_is_sent_again_if_its_channel_is_lost() {
    let (world, place, open, mut mailbox) = world();
    let server = &world.server;
    let mut other = bind(server, &open, ConnectionId(2));
    break_all(server, &place);
    assert!(goes_elsewhere(&mut mailbox) && goes_elsewhere(&mut mailbox));
    assert!(other.try_recv().is_err());
    server.remove_connection(BY);
    connection_lost(server, BY);
    assert!(other.try_recv().is_ok());
    connection_lost(server, BY);
    assert!(other.try_recv().is_err(), "once");
}

#[test]
fn breaks_without_an_acknowledgment_are_not_kept_for_a_client_with_one_connection() {
    let (world, place, _, mut mailbox) = world();
    let server = &world.server;
    break_all(server, &place);
    assert!(!goes_elsewhere(&mut mailbox) && !goes_elsewhere(&mut mailbox));
    assert!(server.pending_breaks.carried(BY).is_empty());
}
