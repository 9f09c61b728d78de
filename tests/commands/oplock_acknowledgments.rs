//! Acknowledgments of breaks: the answers to right ones, and the end of the oplock after wrong ones ([MS-SMB2]
//! 3.3.5.22).

use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, SOON, status};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::ids::{FileId, LeaseKey, MessageId};
use smb_wire::msg::{LeaseBreak, OplockBreak, OplockLevel, WriteFlags};

const KEY: LeaseKey = LeaseKey([0x71; 16]);

/// A file whose oplock is breaking, and the open of another client that waits for it.
struct Breaking {
    file: File,
    other: Tree,
    waiting: MessageId,
    _server: HoldfastServer,
}

impl Breaking {
    fn new(level: OplockLevel) -> Self {
        let server = HoldfastServer::new();
        let (holder, other) = (server.tree(), server.tree());
        let args = CreateArgs::create("f").oplock(level);
        let file = holder.create(&args).unwrap();
        assert_eq!(file.created().oplock_level, level);
        let waiting = other.send(CreateArgs::open("f").request()).unwrap();
        let broken = holder.client().next_break(SOON).unwrap();
        assert!(broken.is_some(), "{level}");
        Self {
            file,
            other,
            waiting,
            _server: server,
        }
    }

    /// Acknowledges and returns the level of the response.
    fn acknowledge(&self, level: OplockLevel) -> Result<OplockLevel, Status> {
        let request = Request::new(&OplockBreak {
            oplock_level: level,
            file_id: self.file.id(),
        });
        let reply = self.file.tree().reply(request).unwrap();
        if reply.status() != Status::SUCCESS {
            return Err(reply.status());
        }
        let response = OplockBreak::read(&reply.message).unwrap();
        assert_eq!(response.file_id, self.file.id());
        Ok(response.oplock_level)
    }

    /// The open of the other client has waited long enough.
    fn assert_goes_on(&self) {
        let mut connection = self.other.client().connection();
        assert!(connection.answered(self.waiting, SOON).unwrap());
        let reply = connection.wait(self.waiting).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS);
    }
}

/// [MS-SMB2] 3.3.5.22.1: a wrong level is refused, ends the oplock and lets the other client go on.
#[test]
fn a_wrong_level_ends_the_oplock() {
    let (batch, exclusive) = (OplockLevel::BATCH, OplockLevel::EXCLUSIVE);
    for (held, level, expected) in [
        (batch, OplockLevel::LEASE, Status::INVALID_PARAMETER),
        (exclusive, OplockLevel::LEASE, Status::INVALID_PARAMETER),
        (batch, batch, Status::INVALID_OPLOCK_PROTOCOL),
        (batch, OplockLevel(5), Status::INVALID_OPLOCK_PROTOCOL),
        (exclusive, exclusive, Status::INVALID_OPLOCK_PROTOCOL),
        (exclusive, batch, Status::INVALID_OPLOCK_PROTOCOL),
    ] {
        let world = Breaking::new(held);
        assert_eq!(world.acknowledge(level), Err(expected), "{held} {level}");
        world.assert_goes_on();
        let again = world.acknowledge(OplockLevel::II);
        assert_eq!(again, Err(Status::INVALID_DEVICE_STATE), "{held} {level}");
    }
}

/// [MS-SMB2] 3.3.5.22.1: the response has the level that is left.
#[test]
fn the_response_has_the_level_that_is_left() {
    let (batch, exclusive) = (OplockLevel::BATCH, OplockLevel::EXCLUSIVE);
    let (two, none) = (OplockLevel::II, OplockLevel::NONE);
    for (held, level, left) in [
        (batch, two, two),
        (batch, none, none),
        // Nobody holds an exclusive oplock beside another open.
        (batch, exclusive, none),
        (exclusive, two, two),
        (exclusive, none, none),
    ] {
        let world = Breaking::new(held);
        assert_eq!(world.acknowledge(level), Ok(left), "{held} {level}");
        world.assert_goes_on();
        let again = world.acknowledge(none);
        assert_eq!(again, Err(Status::INVALID_DEVICE_STATE), "{held} {level}");
    }
}

/// The level is examined before the state, as Windows does: Microsoft's test suite sends such acknowledgments.
#[test]
fn an_oplock_that_is_not_breaking_cannot_be_acknowledged() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (none, two) = (OplockLevel::NONE, OplockLevel::II);
    let (exclusive, batch) = (OplockLevel::EXCLUSIVE, OplockLevel::BATCH);
    let (state, protocol) = (
        Status::INVALID_DEVICE_STATE,
        Status::INVALID_OPLOCK_PROTOCOL,
    );
    for (held, to_two, to_others) in [
        (none, state, state),
        (two, protocol, protocol),
        (exclusive, state, protocol),
        (batch, state, protocol),
    ] {
        let args = CreateArgs::open_if("f").oplock(held);
        let file = tree.create(&args).unwrap();
        assert_eq!(file.created().oplock_level, held);
        for (level, expected) in [
            (none, state),
            (two, to_two),
            (exclusive, to_others),
            (batch, to_others),
            (OplockLevel::LEASE, Status::INVALID_PARAMETER),
        ] {
            let end = status(file.acknowledge_oplock(level));
            assert_eq!(end, expected, "{held} {level}");
        }
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.22.1: Open.OplockState of a pipe is never Breaking.
#[test]
fn a_pipe_has_no_oplock_to_acknowledge() {
    let server = HoldfastServer::new();
    let tree = server.tree().session().tree("IPC$").unwrap();
    let args = CreateArgs::open("srvsvc").oplock(OplockLevel::BATCH);
    let pipe = tree.create(&args).unwrap();
    for level in [OplockLevel::NONE, OplockLevel::II] {
        let refused = status(pipe.acknowledge_oplock(level));
        assert_eq!(refused, Status::INVALID_DEVICE_STATE, "{level}");
    }
}

/// [MS-SMB2] 3.3.5.22.1: both halves of the handle are compared.
#[test]
fn the_handle_of_an_acknowledgment_is_compared_entirely() {
    let world = Breaking::new(OplockLevel::BATCH);
    let id = world.file.id();
    for (persistent, volatile) in [
        (id.persistent ^ 1, id.volatile),
        (id.persistent, id.volatile ^ 1),
    ] {
        let request = Request::new(&OplockBreak {
            oplock_level: OplockLevel::II,
            file_id: FileId {
                persistent,
                volatile,
            },
        });
        let end = status(world.file.tree().call(request));
        assert_eq!(end, Status::FILE_CLOSED);
    }
    assert_eq!(world.acknowledge(OplockLevel::II), Ok(OplockLevel::II));
    world.assert_goes_on();
}

/// [MS-SMB2] 3.3.5.22.2: the response repeats the key and the state.
#[test]
fn the_response_has_the_state_that_is_left() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let rh = LeaseState::READ | LeaseState::HANDLE;
    for left in [rh, LeaseState::READ, LeaseState::empty()] {
        let args = CreateArgs::open_if("f").lease(KEY, LeaseState::RWH);
        let file = holder.create(&args).unwrap();
        assert_eq!(file.created().lease().unwrap().lease_state, LeaseState::RWH);
        let waiting = other.send(CreateArgs::open("f").request()).unwrap();
        assert!(holder.client().next_break(SOON).unwrap().is_some());
        let request = Request::new(&LeaseBreak {
            lease_key: KEY,
            lease_state: left,
        });
        let reply = holder.call(request).unwrap();
        let response = LeaseBreak::read(&reply.message).unwrap();
        assert_eq!((response.lease_key, response.lease_state), (KEY, left));
        let reply = other.client().wait(waiting).unwrap();
        other.file(&reply.ok().unwrap()).unwrap().close().unwrap();
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.18.3: the loss of level II is announced, and nobody waits for an answer.
#[test]
fn the_end_of_level_ii_is_not_waited_for() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let args = CreateArgs::open_if("f").oplock(OplockLevel::II);
    let file = holder.create(&args).unwrap();
    let writer = other.create(&CreateArgs::open("f")).unwrap();
    for _ in 0..3 {
        let written = writer.write(0, b"x", WriteFlags::empty());
        assert_eq!(written.unwrap(), 1);
    }
    assert!(holder.client().next_break(SOON).unwrap().is_some());
    assert_eq!(file.read(0, 1).unwrap(), b"x");
    assert!(!holder.client().connection().has_break());
}
