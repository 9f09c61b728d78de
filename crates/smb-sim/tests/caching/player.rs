//! A client: its connection, its opens, its requests under way.

use std::collections::{BTreeMap, BTreeSet};

use smb_client::Request;
use smb_sim::SimClient;
use smb_wire::create_context::LeaseState;
use smb_wire::ids::{FileId, MessageId};

/// The holder of caching, as its client names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whose {
    /// Player and handle.
    Oplock(usize, u64),
    /// Key; each machine has its own.
    Lease(u8),
}

/// A client's belief about an oplock or lease.
#[derive(Debug)]
pub(crate) struct Belief {
    /// The inode.
    pub(crate) file: u64,
    pub(crate) state: LeaseState,
    /// The client gave up more than the server knows (yet).
    pub(crate) secretly: bool,
    pub(crate) opens: BTreeSet<(usize, u64)>,
    /// The data that were read under it.
    pub(crate) cached: Option<Vec<u8>>,
    /// Counts what ends the use of an answer under way as cached data.
    pub(crate) generation: u64,
}

impl Belief {
    pub(crate) fn new(file: u64) -> Self {
        Self {
            file,
            state: LeaseState(0),
            secretly: false,
            opens: BTreeSet::new(),
            cached: None,
            generation: 0,
        }
    }

    pub(crate) fn lower(&mut self, to: LeaseState) {
        self.state &= to;
        self.forget();
    }

    pub(crate) fn forget(&mut self) {
        self.cached = None;
        self.generation += 1;
    }
}

/// A request under way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    Open {
        lease: Option<u8>,
        overwrites: bool,
    },
    /// A read or a listing, with the belief it is to be cached under.
    Look {
        under: Option<(Whose, u64)>,
        listing: bool,
    },
    /// It changes data that the belief may have cached.
    Change(Option<Whose>),
    Acknowledgment,
    Other,
}

/// An open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handle {
    pub(crate) id: FileId,
    pub(crate) directory: bool,
    pub(crate) whose: Option<Whose>,
}

/// A client's connection.
pub(crate) struct Player {
    pub(crate) client: SimClient,
    /// Connections of one machine have one ClientGuid.
    pub(crate) machine: u8,
    pub(crate) opens: Vec<Handle>,
    pub(crate) asked: BTreeMap<MessageId, Asked>,
    /// Every handle ever granted: breaks name no others.
    pub(crate) known: BTreeSet<u64>,
}

impl Player {
    pub(crate) fn send(&mut self, request: Request, asked: Asked) {
        let id = self.client.send(request).unwrap();
        self.asked.insert(id, asked);
    }
}
