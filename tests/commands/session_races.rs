//! Concurrent requests of several channels of one session: SESSION_SETUP, LOGOFF, TREE_DISCONNECT
//! and CLOSE ([MS-SMB2] 3.3.5.5, .6, .8, .10). One of them succeeds, the others are refused, and
//! nothing is left. (CVE-2023-32250, -32252, -32254, -32257, -32258, -52479, -52480 of another
//! server were such races.)

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use smb_client::{Client, ClientError, CreateArgs, File, Login, Options, Session, Signing, Tree};
use smb_tests::durable::{v2, v2_again};
use smb_tests::{DATA, HoldfastServer, PASSWORD, USER, cut, status, wait_until};
use smb_wire::Status;
use smb_wire::ids::{FileId, Guid};
use smb_wire::msg::{
    ChangeNotifyFlags, LockElement, LockFlags, NotifyFilter, OplockLevel, WriteFlags,
};

/// Number of rounds of each race; every round starts a session of its own.
const ROUNDS: u8 = 12;
/// The interval between two looks at a connection.
const LOOK: Duration = Duration::from_millis(5);
const CHANNELS: usize = 3;
const EXCLUSIVE: LockFlags = LockFlags(0x12);

/// The statuses that a request may get after the end of its session.
const OVER: [Status; 4] = [
    Status::USER_SESSION_DELETED,
    Status::NETWORK_NAME_DELETED,
    Status::FILE_CLOSED,
    Status::CANCELLED,
];

/// The status of a binding whose session ends meanwhile (3.3.5.5).
const UNBOUND: Status = Status::USER_SESSION_DELETED;

fn options(round: u8) -> Options {
    Options::default()
        .signing(Signing::Required)
        .guid(Guid([round + 1; 16]))
}

fn alice() -> Login {
    Login::user(USER, PASSWORD, "")
}

fn bind(client: &Client, session: &Session) -> Result<Session, ClientError> {
    client.bind(session.secret().unwrap(), &alice())
}

/// Returns one tree on several channels of one session.
fn channels(server: &HoldfastServer, round: u8) -> Vec<Tree> {
    let first = server.session(options(round));
    let tree = first.tree(DATA).unwrap();
    let mut trees = vec![tree];
    for _ in 1..CHANNELS {
        let bound = bind(&server.client(options(round)), &first).unwrap();
        trees.push(bound.tree_of(trees[0].id(), *trees[0].info()));
    }
    trees
}

/// Runs all actions at the same time and returns their results.
fn race<T: Send>(acts: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Vec<T> {
    let start = Barrier::new(acts.len());
    thread::scope(|scope| {
        let running: Vec<_> = acts
            .into_iter()
            .map(|act| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    act()
                })
            })
            .collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Asserts that nothing is left, and that the server still works.
fn assert_clean(server: &HoldfastServer) {
    wait_until("all sessions are gone", || server.sessions().is_empty());
    server.assert_serving();
}

/// Asserts that exactly one succeeded and the others got the status `late`.
fn assert_one_won(ends: &[Status], late: Status) {
    let won = ends.iter().filter(|end| end.is_success()).count();
    assert_eq!(won, 1, "{ends:?}");
    for end in ends.iter().filter(|end| !end.is_success()) {
        assert_eq!(*end, late, "{ends:?}");
    }
}

fn assert_over(ends: &[Status]) {
    for end in ends {
        assert!(end.is_success() || OVER.contains(end), "{ends:?}");
    }
}

#[test]
fn one_of_many_concurrent_closes_succeeds() {
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let file = trees[0].create(&CreateArgs::open_if("f")).unwrap();
        all_at_once(&trees, Status::FILE_CLOSED, |tree| {
            status(file.through(tree).close())
        });
    }
    assert_clean(&server);
}

/// Runs the same action on every tree at the same time, and asserts that one succeeds and the
/// others get `late`.
fn all_at_once(trees: &[Tree], late: Status, act: impl Fn(&Tree) -> Status + Send + Sync) {
    let act = &act;
    let acts: Vec<Box<dyn FnOnce() -> Status + Send + '_>> = trees
        .iter()
        .map(|tree| Box::new(move || act(tree)) as _)
        .collect();
    assert_one_won(&race(acts), late);
}

#[test]
fn one_of_many_concurrent_tree_disconnects_succeeds() {
    // CVE-2023-32254
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        trees[0].create(&CreateArgs::open_if("f")).unwrap();
        all_at_once(&trees, Status::NETWORK_NAME_DELETED, |tree| {
            status(tree.disconnect())
        });
        assert_eq!(server.opens(), 0);
    }
    assert_clean(&server);
}

#[test]
fn one_of_many_concurrent_logoffs_succeeds() {
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        trees[0].create(&CreateArgs::open_if("f")).unwrap();
        all_at_once(&trees, Status::USER_SESSION_DELETED, |tree| {
            status(tree.session().logoff())
        });
    }
    assert_clean(&server);
}

#[test]
fn closes_race_with_a_logoff() {
    // CVE-2023-32258
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let files: Vec<File> = (0..20)
            .map(|n| {
                let name = format!("f{n}");
                trees[0].create(&CreateArgs::open_if(&name)).unwrap()
            })
            .collect();
        let (closer, ender) = (&trees[1], &trees[2]);
        let ends = race(vec![
            Box::new(|| {
                let ends = files.iter().map(|f| status(f.through(closer).close()));
                ends.collect::<Vec<_>>()
            }) as Box<dyn FnOnce() -> Vec<Status> + Send>,
            Box::new(|| vec![status(ender.session().logoff())]),
        ]);
        assert_over(&ends[0]);
        assert_eq!(ends[1], [Status::SUCCESS]);
    }
    assert_clean(&server);
}

#[test]
fn creates_race_with_a_tree_disconnect() {
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let ends = race(vec![
            Box::new(|| {
                let open = |n| {
                    let name = format!("f{n}");
                    status(trees[0].create(&CreateArgs::open_if(&name)))
                };
                (0..20).map(open).collect::<Vec<_>>()
            }) as Box<dyn FnOnce() -> Vec<Status> + Send>,
            Box::new(|| vec![status(trees[1].disconnect())]),
        ]);
        assert_over(&ends[0]);
        assert_eq!(ends[1], [Status::SUCCESS]);
        // An open that was created while its tree was disconnected is closed with it.
        wait_until("no open is left", || server.opens() == 0);
    }
    assert_clean(&server);
}

#[test]
fn creates_race_with_a_logoff() {
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let alone = |n| {
            let share = smb_wire::msg::ShareAccess::empty();
            CreateArgs::open_if(&format!("f{n}")).share(share)
        };
        let ends = race(vec![
            Box::new(|| {
                let open = |n| status(trees[0].create(&alone(n)));
                (0..20).map(open).collect::<Vec<_>>()
            }) as Box<dyn FnOnce() -> Vec<Status> + Send>,
            Box::new(|| vec![status(trees[1].session().logoff())]),
        ]);
        assert_over(&ends[0]);
        // None of them holds its file any more; nor does this look when the next round begins.
        let after = server.tree();
        let is_free = |n| {
            after
                .create(&alone(n))
                .is_ok_and(|file| file.close().is_ok())
        };
        for n in 0..20 {
            wait_until("the file is free", || is_free(n));
        }
    }
    assert_clean(&server);
}

#[test]
fn requests_race_with_the_close_of_their_session_by_an_administrator() {
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let id = trees[0].session().id();
        let file = trees[0].create(&CreateArgs::open_if("f")).unwrap();
        let file = &file;
        let busy = |tree: &Tree, round: u8| -> Vec<Status> {
            let file = file.through(tree);
            let one = |at: u8| match (round + at) % 5 {
                0 => status(tree.create(&CreateArgs::open_if("f"))),
                1 => status(file.write(0, &[at; 1000], WriteFlags::empty())),
                2 => status(file.lock(u64::from(at), 1, EXCLUSIVE)),
                3 => status(tree.session().reauthenticate(&alice())),
                _ => status(tree.session().tree(DATA)),
            };
            (0..30).map(one).collect()
        };
        let busy = &busy;
        let mut acts: Vec<Box<dyn FnOnce() -> Vec<Status> + Send + '_>> = trees
            .iter()
            .zip(round..)
            .map(|(tree, round)| Box::new(move || busy(tree, round)) as _)
            .collect();
        acts.push(Box::new(|| {
            assert!(server.close_session(id));
            vec![Status::SUCCESS]
        }));
        for ends in race(acts) {
            for end in ends {
                let lost_the_lock = end == Status::LOCK_NOT_GRANTED;
                let over = end.is_success() || OVER.contains(&end) || lost_the_lock;
                assert!(over, "{end}");
            }
        }
        assert!(!server.close_session(id));
        let after = status(trees[0].create(&CreateArgs::open_if("f")));
        assert_eq!(after, Status::USER_SESSION_DELETED);
        let tables = || server.status()["server"]["tables"].take();
        wait_until("all is closed", || {
            let tables = tables();
            [
                "opens",
                "holders",
                "waiters",
                "disconnected_opens",
                "engine_opens",
            ]
            .iter()
            .all(|table| tables[table] == 0)
        });
    }
    assert_clean(&server);
}

#[test]
fn reads_and_writes_race_with_a_close() {
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let file = trees[0].create(&CreateArgs::open_if("f")).unwrap();
        file.write_all(0, &[7; 4096]).unwrap();
        let ends = race(vec![
            Box::new(|| {
                let through = file.through(&trees[0]);
                let write = |n: u64| status(through.write(n, &[7; 512], WriteFlags::empty()));
                (0..30).map(write).collect::<Vec<_>>()
            }) as Box<dyn FnOnce() -> Vec<Status> + Send>,
            Box::new(|| {
                let through = file.through(&trees[1]);
                (0..30).map(|n| status(through.read(n, 512))).collect()
            }),
            Box::new(|| vec![status(file.through(&trees[2]).close())]),
        ]);
        assert_over(&ends[0]);
        assert_over(&ends[1]);
        assert_eq!(ends[2], [Status::SUCCESS]);
        // After the first failure there is no success.
        for ends in &ends[..2] {
            let late = ends.iter().skip_while(|end| end.is_success());
            assert!(late.into_iter().all(|end| !end.is_success()), "{ends:?}");
        }
    }
    assert_clean(&server);
}

#[test]
fn pending_requests_are_answered_when_the_session_ends() {
    // A lock and a notification are pending on one channel; another channel ends the session.
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let holder = server.tree();
        let held = holder.create(&CreateArgs::open_if("f")).unwrap();
        held.lock(0, 10, EXCLUSIVE).unwrap();
        let file = trees[0].create(&CreateArgs::open("f")).unwrap();
        let element = LockElement {
            offset: 0,
            length: 10,
            flags: LockFlags::EXCLUSIVE,
        };
        let lock = trees[0].send(file.lock_request(0, &[element])).unwrap();
        let root = trees[0].create(&CreateArgs::directory("")).unwrap();
        let notify = root
            .notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096)
            .unwrap();
        for id in [lock, notify] {
            assert!(trees[0].client().wait_pending(id).unwrap().is_some());
        }
        // The lock is released, and a name is created, while the session ends.
        let ends = race(vec![
            Box::new(|| status(trees[1].session().logoff())) as Box<dyn FnOnce() -> _ + Send>,
            Box::new(|| status(held.unlock(0, 10))),
            Box::new(|| status(holder.write_file(&format!("n{round}"), b""))),
        ]);
        assert_eq!(ends, [Status::SUCCESS; 3]);
        for id in [lock, notify] {
            trees[0].client().wait(id).unwrap();
        }
        // In any case the range is unlocked now.
        held.lock(0, 10, EXCLUSIVE).unwrap();
    }
    assert_clean(&server);
}

#[test]
fn bindings_race_with_a_logoff() {
    // CVE-2023-32250 and similar
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let session = trees[0].session();
        let clients = [server.client(options(round)), server.client(options(round))];
        let mut acts: Vec<Box<dyn FnOnce() -> Status + Send + '_>> = clients
            .iter()
            .map(|client| {
                let secret = session.secret().unwrap();
                Box::new(move || status(client.bind(secret, &alice()))) as _
            })
            .collect();
        acts.push(Box::new(|| status(trees[1].session().logoff())));
        let ends = race(acts);
        assert_eq!(ends[2], Status::SUCCESS);
        for end in &ends[..2] {
            assert!(end.is_success() || *end == UNBOUND, "{ends:?}");
        }
        // Whether bound or not, the connection has no session.
        for client in &clients {
            let own = client.login(USER, PASSWORD, "").unwrap();
            own.tree(DATA).unwrap();
        }
    }
    assert_clean(&server);
}

#[test]
fn bindings_race_with_the_loss_of_the_last_channel() {
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let first = server.session(options(round));
        let alone = CreateArgs::open_if("f").share(smb_wire::msg::ShareAccess::empty());
        let tree = first.tree(DATA).unwrap();
        // The session of the previous round may have survived on its second channel.
        wait_until("the file is free", || tree.create(&alone).is_ok());
        let client = server.client(options(round));
        let secret = first.secret().unwrap();
        let ends = race(vec![
            Box::new(|| status(client.bind(secret, &alice()))) as Box<dyn FnOnce() -> _ + Send>,
            Box::new(|| {
                cut(first.client());
                Status::SUCCESS
            }),
        ]);
        assert!(ends[0].is_success() || ends[0] == UNBOUND, "{ends:?}");
        drop(client);
    }
    assert_clean(&server);
    let alone = CreateArgs::open_if("f").share(smb_wire::msg::ShareAccess::empty());
    server.tree().create(&alone).unwrap();
}

#[test]
fn reauthentications_race_with_each_other_and_a_logoff() {
    // Reauthentication on two channels (in CVE-2025-38561 both shared one hash).
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let file = trees[0].create(&CreateArgs::open_if("f")).unwrap();
        let mut acts: Vec<Box<dyn FnOnce() -> Status + Send + '_>> = trees[..2]
            .iter()
            .map(|tree| Box::new(move || status(tree.session().reauthenticate(&alice()))) as _)
            .collect();
        let with_logoff = round % 2 == 1;
        if with_logoff {
            acts.push(Box::new(|| status(trees[2].session().logoff())));
        }
        let ends = race(acts);
        if with_logoff {
            assert_eq!(ends[2], Status::SUCCESS);
            assert_over(&ends[..2]);
        } else {
            // Each channel authenticates; one may be refused while the other is in progress.
            assert!(ends.iter().any(|end| end.is_success()), "{ends:?}");
            file.write_all(0, b"as before").unwrap();
        }
    }
    assert_clean(&server);
}

#[test]
fn sessions_race_to_replace_the_same_session() {
    // PreviousSessionId from two connections at the same time: the old session ends once.
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let old = server.session(options(round));
        let alone = CreateArgs::open_if("f").share(smb_wire::msg::ShareAccess::empty());
        old.tree(DATA).unwrap().create(&alone).unwrap();
        let clients = [server.client(options(round)), server.client(options(round))];
        let acts: Vec<Box<dyn FnOnce() -> Session + Send + '_>> = clients
            .iter()
            .map(|client| {
                let login = alice().replacing(old.id());
                Box::new(move || client.login_with(&login).unwrap()) as _
            })
            .collect();
        let new = race(acts);
        assert_ne!(new[0].id(), new[1].id());
        let file = new[0].tree(DATA).unwrap().create(&alone).unwrap();
        file.close().unwrap();
        new[1].tree(DATA).unwrap();
        assert_eq!(status(old.tree(DATA)), Status::USER_SESSION_DELETED);
    }
    assert_clean(&server);
}

#[test]
fn an_acknowledgment_races_with_a_close() {
    // CVE-2023-52479
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let trees = channels(&server, round);
        let stranger = server.tree();
        let batch = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
        let file = trees[0].create(&batch).unwrap();
        let id = stranger.send(CreateArgs::open("f").request()).unwrap();
        let broken = trees[0].client().next_break(smb_tests::SOON).unwrap();
        assert!(broken.is_some());
        let ends = race(vec![
            Box::new(|| {
                let through = file.through(&trees[1]);
                status(through.acknowledge_oplock(OplockLevel::II))
            }) as Box<dyn FnOnce() -> _ + Send>,
            Box::new(|| status(file.through(&trees[2]).close())),
        ]);
        assert!(
            [Status::SUCCESS, Status::FILE_CLOSED].contains(&ends[0]),
            "{ends:?}"
        );
        assert_eq!(ends[1], Status::SUCCESS);
        let reply = stranger.client().wait(id).unwrap().ok().unwrap();
        stranger.file(&reply).unwrap().close().unwrap();
    }
    assert_clean(&server);
}

#[test]
fn cancels_race_with_the_grant_of_a_lock() {
    // CVE-2023-1193: the lock is granted or cancelled, and answered once.
    let server = HoldfastServer::new();
    let (holder, tree) = (server.tree(), server.tree());
    let held = holder.create(&CreateArgs::open_if("f")).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    for _ in 0..ROUNDS {
        held.lock(0, 10, EXCLUSIVE).unwrap();
        let element = LockElement {
            offset: 0,
            length: 10,
            flags: LockFlags::EXCLUSIVE,
        };
        let id = tree.send(file.lock_request(0, &[element])).unwrap();
        assert!(tree.client().wait_pending(id).unwrap().is_some());
        race(vec![
            Box::new(|| held.unlock(0, 10).unwrap()) as Box<dyn FnOnce() + Send>,
            Box::new(|| {
                let mut connection = tree.client().connection();
                connection.cancel(id, tree.session().id()).unwrap();
            }),
        ]);
        match tree.client().wait(id).unwrap().status() {
            Status::SUCCESS => file.unlock(0, 10).unwrap(),
            end => assert_eq!(end, Status::CANCELLED),
        }
    }
    drop((holder, tree, held, file));
    assert_clean(&server);
}

/// Creates a durable open and loses its connection.
fn lost_open(server: &HoldfastServer, round: u8) -> (CreateArgs, FileId, Guid) {
    let args = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    let guid = Guid([round + 1; 16]);
    let tree = server.tree_with(options(round));
    let file = tree.create(&v2(args.clone(), guid, 60_000)).unwrap();
    server.lose(&tree);
    (args, file.id(), guid)
}

#[test]
fn one_of_many_concurrent_reconnects_succeeds() {
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let (args, id, guid) = lost_open(&server, round);
        let again = v2_again(args, id, guid);
        let trees: Vec<Tree> = (0..CHANNELS)
            .map(|_| server.tree_with(options(round)))
            .collect();
        let acts: Vec<Box<dyn FnOnce() -> Status + Send + '_>> = trees
            .iter()
            .map(|tree| {
                let again = &again;
                Box::new(move || status(tree.create(again))) as _
            })
            .collect();
        assert_one_won(&race(acts), Status::OBJECT_NAME_NOT_FOUND);
        drop(trees);
        // The connection is lost again, and a conflicting open closes it.
        server.tree().delete("f").unwrap();
    }
    assert_clean(&server);
}

#[test]
fn a_reconnect_races_with_an_open_of_another_client() {
    // Either the client reconnected in time and its oplock is broken, or the open was closed.
    let server = HoldfastServer::new();
    for round in 0..ROUNDS {
        let (args, id, guid) = lost_open(&server, round);
        let again = v2_again(args, id, guid);
        let (tree, stranger) = (server.tree_with(options(round)), server.tree());
        let theirs = stranger.send(CreateArgs::open("f").request()).unwrap();
        match tree.create(&again) {
            Ok(file) => {
                wait_until("the other client's open is answered", || {
                    if tree.client().next_break(LOOK).unwrap().is_some() {
                        file.acknowledge_oplock(OplockLevel::NONE).unwrap();
                    }
                    let mut connection = stranger.client().connection();
                    connection.answered(theirs, LOOK).unwrap()
                });
                file.write_all(0, b"works").unwrap();
            }
            Err(error) => assert_eq!(status::<()>(Err(error)), Status::OBJECT_NAME_NOT_FOUND),
        }
        stranger.client().wait(theirs).unwrap().ok().unwrap();
    }
    assert_clean(&server);
}

#[test]
fn unfinished_setups_are_dropped() {
    // CVE-2023-32247: unfinished setups end with their connection.
    let server = HoldfastServer::new();
    let clients: Vec<Client> = (0..20)
        .map(|_| {
            let client = server.client(Options::default());
            for _ in 0..10 {
                let first_leg = smb_client::Request::session_setup(
                    b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                );
                // The status is MORE_PROCESSING_REQUIRED, until there are too many.
                let _ = client.call(first_leg);
            }
            client
        })
        .collect();
    server.assert_serving();
    drop(clients);
    assert_clean(&server);
}
