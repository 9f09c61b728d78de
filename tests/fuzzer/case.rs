//! A case: some clients of one server, some hundred requests, an end at which no answer is due.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use smb_client::core::LoginKind;
use smb_client::{Encryption, Options, Request, Signing};
use smb_tests::rng::Rng;
use smb_wire::Command;
use smb_wire::fsctl::{FsctlCode, ResumeKey};
use smb_wire::ids::{FileId, Guid, SessionId, TreeId};
use smb_wire::msg::{
    Dialect, LogoffRequest, SessionSetupFlags, SessionSetupRequest, TreeConnectFlags,
    TreeConnectRequest, TreeDisconnectRequest,
};
use smb_wire::utf16;

use crate::connection::{Connection, Expect};
use crate::generate::{self, Handle, Kind, Made, Share};
use crate::history::{History, Tally};
use crate::judge::{Vault, unchanged};
use crate::spoil::spoil;
use crate::world::{COMMON, FIXED, USERS, World};

/// Connections of a case.
const CONNECTIONS: u64 = 7;
/// Times that a connection lacks credits before another one replaces it.
const STUCK_MAX: u32 = 60;
/// Requests of a message.
const CHAIN_MAX: u32 = 5;
/// Handles that the case knows.
const HANDLES_MAX: usize = 200;
/// Between two looks while nothing is sent.
const LOOK: Duration = Duration::from_millis(1);

/// A case under way.
pub(crate) struct Case<'a, W: World> {
    world: &'a mut W,
    rng: Rng,
    connections: Vec<Connection<W::Wire>>,
    stuck: Vec<u32>,
    made: usize,
    handles: Vec<Handle>,
    keys: Vec<ResumeKey>,
    /// Session and tree of every handle there was.
    opened: BTreeMap<FileId, (u64, u32)>,
    history: &'a mut History,
    tally: &'a mut Tally,
}

/// Runs the case of a seed; the private files have to be as `before`.
pub(crate) async fn run<W: World>(
    world: &mut W,
    seed: u64,
    before: &Vault,
    history: &mut History,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut case = Case::new(world, seed, history, tally);
    case.tally.cases += 1;
    for _ in 0..2 + case.rng.below(CONNECTIONS - 1) {
        case.enter()?;
    }
    for _ in 0..100 + case.rng.below(500) {
        case.step().await?;
    }
    case.drain().await?;
    case.echo().await?;
    case.leave();
    let now = case.world.vault().await;
    unchanged(before, &now)
}

impl<'a, W: World> Case<'a, W> {
    fn new(world: &'a mut W, seed: u64, history: &'a mut History, tally: &'a mut Tally) -> Self {
        Self {
            world,
            rng: Rng::new(seed),
            connections: Vec::new(),
            stuck: Vec::new(),
            made: 0,
            handles: Vec::new(),
            keys: Vec::new(),
            opened: BTreeMap::new(),
            history,
            tally,
        }
    }
}

impl<W: World> Case<'_, W> {
    fn options(&mut self, user: usize) -> Options {
        let dialects = [&Dialect::ALL[..], &[Dialect::SMB_3_1_1; 2]].concat();
        let at = self.rng.below(dialects.len() as u64) as usize;
        let signing = self.rng.pick(&[
            Signing::Required,
            Signing::Required,
            Signing::IfRequired,
            Signing::Never,
        ]);
        let encryption = self.rng.pick(&[
            Encryption::Never,
            Encryption::IfRequired,
            Encryption::Always,
        ]);
        // A machine keeps its name over reconnects, but not over dialects ([MS-SMB2] 3.3.5.5.3);
        // now and then two users sit at one.
        let machine = if self.rng.once_in(6) { 0 } else { user };
        let guid = Guid([(machine * 8 + at.min(4) + 1) as u8; 16]);
        let mut options = Options::dialect(dialects[at])
            .signing(signing)
            .encryption(encryption)
            .guid(guid);
        options.validate_negotiate = false;
        options.credits = self.rng.pick(&[1, 8, 64, 256]);
        options
    }

    /// A new connection, of which some become channels of a session that is there.
    fn enter(&mut self) -> Result<(), String> {
        let user = self.rng.below(USERS.len() as u64) as usize;
        let mut options = self.options(user);
        let mut bind = None;
        if self.rng.once_in(4) {
            let mut others = self.connections.iter();
            let other = others.find(|other| other.user == user && !other.sessions.is_empty());
            if let Some(other) = other {
                let session = other.sessions.keys().next().copied().unwrap_or(0);
                bind = other.core.session_secret(SessionId(session));
                options.dialects = other.core.options().dialects.clone();
                options.guid = Some(other.core.guid());
            }
        }
        let wire = self.world.connect().ok_or("no connection")?;
        let rng = Rng::new(self.rng.draw());
        self.made += 1;
        let now = self.world.now();
        let (number, name) = (self.made, USERS[user].name);
        self.history
            .add(format!("{now:.3?} {number} {name} connects: {options:?}"));
        let connection = Connection::new(wire, number, user, options, bind, now, rng);
        self.connections.push(connection);
        self.stuck.push(0);
        Ok(())
    }

    /// Looks at all connections.
    fn look(&mut self) -> Result<(), String> {
        let (now, filetime) = (self.world.now(), self.world.filetime());
        let patience = self.world.patience();
        for connection in &mut self.connections {
            let learned = connection.look(now, filetime, patience, self.history);
            let learned = learned.map_err(|why| {
                let user = USERS[connection.user].name;
                format!("connection {} of {user}: {why}", connection.number)
            })?;
            let opened = learned.handles.iter();
            let opened = opened.map(|handle| (handle.id, (handle.session, handle.tree)));
            self.opened.extend(opened);
            self.handles.extend(learned.handles);
            self.keys.extend(learned.keys);
            for (command, status) in learned.answers {
                self.tally.answer(command, status);
            }
        }
        while self.handles.len() > HANDLES_MAX {
            let at = self.rng.below(self.handles.len() as u64) as usize;
            self.handles.swap_remove(at);
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<(), String> {
        let span = if self.rng.once_in(20) { 3_000 } else { 120 };
        let span = self.rng.below(span);
        self.world.pause(Duration::from_micros(span)).await;
        self.look()?;
        let at = self.rng.below(self.connections.len() as u64) as usize;
        if self.connections[at].gone || self.rng.once_in(150) || self.stuck[at] > STUCK_MAX {
            self.part(at);
            self.stuck.swap_remove(at);
            return self.enter();
        }
        let now = self.world.now();
        let filetime = self.world.filetime();
        let draw = self.rng.below(200);
        let connection = &mut self.connections[at];
        if !connection.breaks.is_empty() && !self.rng.once_in(5) {
            connection.acknowledge(&self.opened, now, self.history);
        }
        match draw {
            0 => {
                connection.ledger.lenient = true;
                connection.core.tolerate();
                let junk = garbage(&mut self.rng);
                self.history
                    .add(format!("{now:.3?} {} garbage", connection.number));
                connection.bytes(junk);
            }
            1 | 2 => {
                let other = self.rng.below(USERS.len() as u64) as usize;
                if connection.sessions.len() == 1 {
                    connection.login(other, LoginKind::New, now, filetime);
                }
            }
            3 => {
                let first = connection.sessions.first_key_value();
                if let Some((session, user)) = first.map(|(session, user)| (*session, *user)) {
                    let kind = LoginKind::Reauthenticate(SessionId(session));
                    connection.login(user, kind, now, filetime);
                }
            }
            4..=11 => {
                let waiting: Vec<u64> = connection.pending.keys().copied().collect();
                if !waiting.is_empty() {
                    let id = waiting[self.rng.below(waiting.len() as u64) as usize];
                    connection.cancel(id, now, self.history);
                }
            }
            _ => self.ask(at),
        }
        Ok(())
    }

    /// Sends one message: a request, or several.
    fn ask(&mut self, at: usize) {
        let connection = &self.connections[at];
        let sessions: Vec<(u64, usize)> = connection
            .sessions
            .iter()
            .filter(|(session, _)| !connection.ended.contains(session))
            .map(|(session, user)| (*session, *user))
            .collect();
        if sessions.is_empty() {
            return;
        }
        let (session, user) = sessions[self.rng.below(sessions.len() as u64) as usize];
        let trees: Vec<(u32, Share)> = connection
            .trees
            .iter()
            .filter(|tree| tree.0 == session)
            .map(|tree| (tree.1, tree.2))
            .collect();
        let requests = if trees.is_empty() || self.rng.once_in(40) {
            vec![self.tree_connect(session, user)]
        } else {
            let (tree, share) = trees[self.rng.below(trees.len() as u64) as usize];
            let many = if self.rng.once_in(5) {
                2 + self.rng.below(u64::from(CHAIN_MAX) - 1)
            } else {
                1
            };
            let made = self.chain(session, user, share, many);
            self.finish(session, tree, made, at)
        };
        let count = requests.len() as u64;
        let connection = &mut self.connections[at];
        if connection.send(requests, self.world.now(), self.history) {
            self.tally.requests += count;
            self.stuck[at] = 0;
        } else {
            self.stuck[at] += 1;
        }
    }

    /// A connection goes; of what it had open, little is left to be had.
    fn part(&mut self, at: usize) {
        let gone = self.connections.swap_remove(at);
        let lost = |handle: &Handle| {
            let mut others = self.connections.iter();
            gone.sessions.contains_key(&handle.session)
                && others.all(|other| !other.sessions.contains_key(&handle.session))
        };
        self.handles
            .retain(|handle| !lost(handle) || handle.id.persistent % 4 == 0);
    }

    fn tree_connect(&mut self, session: u64, user: usize) -> (Request, Option<Expect>) {
        let share = match self.rng.below(10) {
            0..=4 => Share::Common,
            5 | 6 => Share::Private(user),
            7 => Share::Private(self.rng.below(USERS.len() as u64) as usize),
            8 => Share::Fixed,
            _ => Share::Ipc,
        };
        let name = match share {
            Share::Private(of) => USERS[of].name,
            Share::Common => COMMON,
            Share::Fixed => FIXED,
            Share::Ipc => "IPC$",
        };
        let path = utf16::encode(&format!("\\\\server\\{name}"));
        let request = Request::new(&TreeConnectRequest {
            flags: TreeConnectFlags::empty(),
            path: &path,
        });
        let expect = Expect::Tree { share, session };
        (request.session(SessionId(session)), Some(expect))
    }

    /// The requests of a message, related to one another or not.
    fn chain(&mut self, session: u64, user: usize, share: Share, many: u64) -> Vec<Made> {
        let related = self.rng.once_in(2);
        let mut all: Vec<Made> = Vec::new();
        let mut kind = Kind::Play;
        for index in 0..many {
            let handle = self.handle(session, user);
            let make = if index > 0 && related {
                let handle = Handle {
                    id: FileId::ANY,
                    session,
                    tree: 0,
                    user,
                    kind,
                    directory: self.rng.once_in(4),
                };
                let mut made = generate::about(&mut self.rng, user, handle, &self.keys);
                made.request = made.request.related();
                made
            } else {
                match (self.rng.below(10), handle) {
                    (0..=3, _) | (_, None) => {
                        generate::create(&mut self.rng, user, share, &self.handles)
                    }
                    (4, _) => self.other(),
                    (_, Some(handle)) => {
                        kind = if handle.user == user {
                            handle.kind
                        } else {
                            Kind::Play
                        };
                        generate::about(&mut self.rng, user, handle, &self.keys)
                    }
                }
            };
            kind = make.opens.unwrap_or(kind);
            all.push(make);
        }
        all
    }

    /// A handle: mostly one of the session's own.
    fn handle(&mut self, session: u64, user: usize) -> Option<Handle> {
        if self.rng.once_in(40) {
            let id = FileId {
                persistent: self.rng.below(40),
                volatile: self.rng.below(40),
            };
            // It may be one of the user's own private files.
            let kind = Kind::Secret;
            return Some(Handle {
                id,
                session,
                tree: 1,
                user,
                kind,
                directory: false,
            });
        }
        let own = !self.rng.once_in(12);
        let fit: Vec<&Handle> = (self.handles.iter())
            .filter(|handle| !own || handle.session == session)
            .collect();
        match fit.len() {
            0 => None,
            many => Some(*fit[self.rng.below(many as u64) as usize]),
        }
    }

    /// A request that names no handle.
    fn other(&mut self) -> Made {
        let request = match self.rng.below(12) {
            0 => Request::new(&LogoffRequest),
            1 => Request::new(&TreeDisconnectRequest),
            2 => Request::new(&SessionSetupRequest {
                flags: SessionSetupFlags(self.rng.below(2) as u8),
                security_mode: smb_wire::msg::SecurityMode::SIGNING_ENABLED,
                capabilities: smb_wire::msg::Capabilities::empty(),
                previous_session_id: SessionId(0),
                security_buffer: b"no token at all",
            }),
            _ => return generate::echo(),
        };
        Made::plain(request)
    }

    /// Addresses the requests, and spoils some.
    fn finish(
        &mut self,
        session: u64,
        tree: u32,
        made: Vec<Made>,
        at: usize,
    ) -> Vec<(Request, Option<Expect>)> {
        let here = &self.connections[at].sessions;
        let user = here.get(&session).copied();
        let user = user.unwrap_or(self.connections[at].user);
        let sessions: Vec<u64> = (self.connections.iter())
            .flat_map(|other| other.sessions.keys().copied())
            .filter(|other| !here.contains_key(other))
            .collect();
        let careful = made.iter().any(|made| made.careful);
        let options = self.connections[at].core.options();
        let sealed = options.encryption != Encryption::Never;
        let mut all = Vec::new();
        for Made {
            request,
            opens,
            about,
            ..
        } in made
        {
            // Of a session that ended, answers may come that its keys would be needed for.
            self.connections[at].ledger.lenient |=
                request.command == Command::LOGOFF || validates(&request);
            let of = about.filter(|handle| handle.session == session && handle.id != FileId::ANY);
            if let Some(handle) = of
                && request.command == Command::CLOSE
                && !self.rng.once_in(6)
            {
                self.handles.retain(|other| other.id != handle.id);
            }
            let tree = of.map_or(tree, |handle| handle.tree);
            let mut request = request.session(SessionId(session)).tree(TreeId(tree));
            if !careful && self.rng.once_in(5) {
                let rough;
                (request, rough) = spoil(&mut self.rng, request, user, &sessions, sealed);
                if rough {
                    let connection = &mut self.connections[at];
                    connection.ledger.lenient = true;
                    connection.core.tolerate();
                }
            }
            let expect = opens.map(|kind| Expect::Open {
                kind,
                session,
                tree,
            });
            all.push((request, expect));
        }
        all
    }

    /// Waits until everything is answered: what waits for others is cancelled.
    async fn drain(&mut self) -> Result<(), String> {
        let begun = self.world.now();
        let patience = self.world.patience();
        // Once each, also what begins to wait only then.
        let mut cancelled = BTreeSet::new();
        loop {
            self.look()?;
            let now = self.world.now();
            let waited = now.saturating_sub(begun);
            for connection in &mut self.connections {
                connection.acknowledge(&self.opened, now, self.history);
                if waited > Duration::from_millis(300) {
                    let waiting: Vec<u64> = connection.pending.keys().copied().collect();
                    for id in waiting {
                        if cancelled.insert((connection.number, id)) {
                            connection.cancel(id, now, self.history);
                        }
                    }
                }
            }
            self.connections.retain(|connection| !connection.gone);
            let mut connections = self.connections.iter();
            if connections
                .all(|connection| connection.ledger.lenient || connection.ledger.unanswered() == 0)
            {
                return Ok(());
            }
            if waited > patience * CHAIN_MAX {
                for connection in &self.connections {
                    let settled = connection.ledger.settled();
                    settled.map_err(|why| format!("connection {}: {why}", connection.number))?;
                }
                return Ok(());
            }
            self.world.pause(LOOK).await;
        }
    }

    /// A new connection is answered.
    async fn echo(&mut self) -> Result<(), String> {
        self.connections.clear();
        self.stuck.clear();
        let begun = self.world.now();
        self.enter()?;
        let mut asked = false;
        loop {
            self.look()?;
            let now = self.world.now();
            let connection = &mut self.connections[0];
            if let Some((session, _)) = connection.sessions.first_key_value() {
                if asked && connection.ledger.unanswered() == 0 {
                    return Ok(());
                }
                if !asked {
                    let echo = generate::echo().request.session(SessionId(*session));
                    asked = connection.send(vec![(echo, None)], now, self.history);
                }
            }
            if now.saturating_sub(begun) > self.world.echo_max() || connection.gone {
                return Err("a new connection is not served".to_owned());
            }
            self.world.pause(LOOK).await;
        }
    }

    fn leave(&mut self) {
        self.connections.clear();
    }
}

/// Whether it is a VALIDATE_NEGOTIATE_INFO: what does not match in it ends the connection
/// ([MS-SMB2] 3.3.5.15.12).
fn validates(request: &Request) -> bool {
    let code = FsctlCode::VALIDATE_NEGOTIATE_INFO.0.to_le_bytes();
    request.command == Command::IOCTL && request.message().get(68..72) == Some(&code[..])
}

/// Bytes that are no message.
fn garbage(rng: &mut Rng) -> Bytes {
    let len = 4 + rng.below(200) as usize;
    let mut bytes: Vec<u8> = (0..len).map(|_| rng.draw() as u8).collect();
    let said = match rng.below(3) {
        0 => len as u32 - 4,
        1 => rng.draw() as u32 & 0x00ff_ffff,
        _ => 8,
    };
    bytes[..4].copy_from_slice(&said.to_be_bytes());
    if let Some(magic) = bytes.get_mut(4..8) {
        magic.copy_from_slice(&rng.pick(&[*b"\xfeSMB", *b"\xfdSMB", *b"\xfcSMB", *b"\xffSMB"]));
    }
    Bytes::from(bytes)
}

/// Gives each user's file that a descriptor is to make private that descriptor.
pub(crate) async fn prepare<W: World>(world: &mut W) -> Result<(), String> {
    let (mut history, mut tally) = (History::default(), Tally::default());
    for user in 0..USERS.len() {
        let mut case = Case::new(&mut *world, user as u64, &mut history, &mut tally);
        let said = case.describe(user).await;
        said.map_err(|why| format!("{why}\n{}", history.text()))?;
    }
    Ok(())
}

impl<W: World> Case<'_, W> {
    async fn describe(&mut self, user: usize) -> Result<(), String> {
        let wire = self.world.connect().ok_or("no connection")?;
        let (now, rng) = (self.world.now(), Rng::new(1));
        let options = Options::dialect(Dialect::SMB_3_1_1);
        let connection = Connection::new(wire, 0, user, options, None, now, rng);
        self.connections.push(connection);
        self.settle(|case| !case.connections[0].sessions.is_empty())
            .await?;
        let session = self.connections[0].sessions.keys().next().copied();
        let session = session.ok_or("no session")?;
        let path = utf16::encode(&format!("\\\\server\\{COMMON}"));
        let flags = TreeConnectFlags::empty();
        let connect = Request::new(&TreeConnectRequest { flags, path: &path });
        let share = Share::Common;
        self.carry_out(connect, session, 0, Some(Expect::Tree { share, session }))
            .await?;
        let tree = self.connections[0].trees.first().ok_or("no tree")?.1;
        let kind = Kind::Secret;
        let open = generate::described(user, None);
        self.carry_out(
            open,
            session,
            tree,
            Some(Expect::Open {
                kind,
                session,
                tree,
            }),
        )
        .await?;
        let id = self.handles.pop().ok_or("no handle")?.id;
        let set = generate::described(user, Some(id));
        self.carry_out(set, session, tree, None).await?;
        let close = Request::close(id);
        self.carry_out(close, session, tree, None).await
    }

    async fn carry_out(
        &mut self,
        request: Request,
        session: u64,
        tree: u32,
        expect: Option<Expect>,
    ) -> Result<(), String> {
        let request = request.session(SessionId(session)).tree(TreeId(tree));
        let now = self.world.now();
        self.connections[0].send(vec![(request, expect)], now, self.history);
        self.settle(|case| case.connections[0].ledger.unanswered() == 0)
            .await
    }

    async fn settle(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        let begun = self.world.now();
        while !done(self) {
            self.look()?;
            if self.world.now().saturating_sub(begun) > self.world.patience() {
                return Err("the preparation is not answered".to_owned());
            }
            self.world.pause(LOOK).await;
        }
        Ok(())
    }
}
