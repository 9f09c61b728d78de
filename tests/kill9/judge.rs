//! Tries what others may and may not do, before the clients are back and after.

use smb_client::{ClientError, CreateArgs, Options, Tree};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, SOON, status};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::ids::Guid;
use smb_wire::msg::LockFlags;

use super::client::{Caches, Client, LOCK_LENGTH};

const EXCLUSIVE: LockFlags = LockFlags(0x12);
const RH: LeaseState = LeaseState(3);

fn stranger(server: &HoldfastServer) -> Result<Tree, ClientError> {
    let options = Options::default().guid(Guid([0x5f; 16]));
    let client = smb_client::Client::connect(server.addr(), options)?;
    client.login(OTHER_USER, OTHER_PASSWORD, "")?.tree(DATA)
}

/// [MS-SMB2] 3.3.5.9: what waits for its client and caches no handle is nobody else's. Of what does,
/// somebody else would ask the client to give it up, who is to find it as it was.
pub(crate) fn before_anybody_is_back(
    server: &HoldfastServer,
    clients: &[Client],
    wrong: &mut Vec<String>,
) {
    let tree = match stranger(server) {
        Ok(tree) => tree,
        Err(error) => return wrong.push(format!("a stranger cannot connect: {error}")),
    };
    for handle in clients.iter().flat_map(|client| &client.handles) {
        // One that was being renamed has one of two names.
        if handle.name.maybe.is_some() || handle.caches != Caches::Nothing {
            continue;
        }
        let name = handle.name.told;
        let got = status(tree.create(&CreateArgs::open(name)));
        if got != Status::FILE_NOT_AVAILABLE {
            wrong.push(format!(
                "{name}: a stranger got {got:?} before its client was back"
            ));
        }
    }
}

/// Locks refuse others; leases and oplocks break, and their clients are notified.
pub(crate) fn others_are_kept_out(
    server: &HoldfastServer,
    clients: &mut [Client],
    wrong: &mut Vec<String>,
) {
    let tree = match stranger(server) {
        Ok(tree) => tree,
        Err(error) => return wrong.push(format!("a stranger cannot connect: {error}")),
    };
    for client in clients {
        let mut checked = 0;
        for handle in &client.handles {
            if handle.caches == Caches::Nothing {
                match locks(&tree, handle.name.told, &handle.locks) {
                    Ok(count) => checked += count,
                    Err(why) => wrong.push(format!("{}: {why}", handle.name.told)),
                }
            }
        }
        client.counts.locks_checked += checked;
        if let Err(why) = lease(&tree, client) {
            wrong.push(why);
        }
    }
}

/// Every range that is held is refused, and a write to it, too.
fn locks(
    tree: &Tree,
    name: &str,
    locks: &std::collections::BTreeMap<u64, super::client::Known<bool>>,
) -> Result<u64, String> {
    let said = |error: ClientError| error.to_string();
    let file = tree.create(&CreateArgs::open(name)).map_err(said)?;
    let mut checked = 0;
    for (offset, known) in locks {
        let got = status(file.lock(*offset, LOCK_LENGTH, EXCLUSIVE));
        let expected = if known.told {
            Status::LOCK_NOT_GRANTED
        } else {
            Status::SUCCESS
        };
        if got != expected {
            return Err(format!("lock of {offset}: {got:?}, not {expected:?}"));
        }
        if known.told {
            let got = status(file.write_all(*offset, b"no"));
            if got != Status::FILE_LOCK_CONFLICT {
                return Err(format!("write to what is locked at {offset}: {got:?}"));
            }
        } else {
            file.unlock(*offset, LOCK_LENGTH).map_err(said)?;
        }
        checked += 1;
    }
    file.close().map_err(said)?;
    Ok(checked)
}

/// A stranger's open breaks the lease: the client is notified, and gives up write caching; or, if
/// it lost that before, it asks for it again.
fn lease(tree: &Tree, client: &mut Client) -> Result<(), String> {
    let said = |error: ClientError| error.to_string();
    let handles = client.handles.iter_mut();
    for handle in handles {
        let (Caches::Lease(key, held), Some(file)) = (handle.caches, handle.file.clone()) else {
            continue;
        };
        let name = handle.name.told;
        let mine = file.tree();
        if held == RH {
            let args = CreateArgs::open(name).lease_v2(key, LeaseState::RWH, 0);
            let more = mine.create(&args).map_err(said)?;
            let lease = more.created().lease().ok_or("no lease")?;
            more.close().map_err(said)?;
            handle.caches = Caches::Lease(key, lease.lease_state);
            continue;
        }
        let asked = tree.send(CreateArgs::open(name).request()).map_err(said)?;
        let broken = mine.client().next_break(SOON).map_err(said)?;
        if broken.is_none() {
            return Err(format!(
                "{name}: nobody told the client that its lease breaks"
            ));
        }
        mine.acknowledge_lease(key, RH).map_err(said)?;
        let reply = tree.client().wait(asked).map_err(said)?;
        let other = tree.file(&reply.ok().map_err(said)?).map_err(said)?;
        other.close().map_err(said)?;
        handle.caches = Caches::Lease(key, RH);
    }
    Ok(())
}

/// The server has the handles that the clients have, and no others.
pub(crate) fn nothing_else_is_there(
    server: &HoldfastServer,
    clients: &[Client],
    wrong: &mut Vec<String>,
) {
    let status = server.status();
    let found = status["server"]["handles"]["persistent"]["opens"].as_u64();
    let expected: u64 = clients
        .iter()
        .map(|client| client.handles.len() as u64)
        .sum();
    if found != Some(expected) {
        wrong.push(format!(
            "the server has {found:?} persistent handles, not {expected}"
        ));
    }
}
