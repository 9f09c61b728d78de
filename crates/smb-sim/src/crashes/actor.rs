//! One client of a case: its connection, its handles, and its requests.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use smb_client::{ClientError, CreateArgs, Created, Options, Reply, Request as Wire};
use smb_wire::{
    access_mask::AccessMask,
    ids::{FileId, MessageId, TreeId},
    msg::{CreateAction, CreateOptions, EchoRequest},
    status::Status,
};
use vfs::Env;

use super::{
    step::{Kind, Step},
    world::{GHOST, Lock, MAKER, World, outcome},
};
use crate::{
    client::SimClient,
    oracle::{Answer, Effect, Object, OpId, Request},
    server::{SECOND, SimServer},
};

/// How long a client waits for an answer before it goes on without.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);
/// How often a client looks whether a share is back.
const AWAY_LOOK: Duration = Duration::from_millis(1);
/// The stream that every file may have.
pub(super) const STREAM: &str = "s";

#[derive(Debug, Clone, Copy)]
pub(super) struct Hand {
    pub(super) object: Object,
    pub(super) id: FileId,
    /// Opened with FILE_WRITE_THROUGH.
    pub(super) through: bool,
    /// In the ledger.
    pub(super) entry: u64,
}

pub(super) struct Actor {
    pub(super) number: usize,
    pub(super) world: Rc<World>,
    pub(super) server: Rc<SimServer>,
    options: Options,
    client: Option<SimClient>,
    /// The trees of the connection: the first share's, and the second's if there is one.
    trees: Vec<TreeId>,
    /// It asks through the second share.
    pub(super) second: bool,
    /// By file slot, whether it is the stream, and whether it is through the second share.
    hands: BTreeMap<(usize, bool, bool), Hand>,
    pending: Vec<(MessageId, Option<OpId>, &'static str)>,
    /// How often it has met the others.
    met: usize,
}

impl Actor {
    pub(super) fn new(
        number: usize,
        world: &Rc<World>,
        server: &Rc<SimServer>,
        options: Options,
    ) -> Self {
        Self {
            number,
            world: Rc::clone(world),
            server: Rc::clone(server),
            options,
            client: None,
            trees: Vec::new(),
            second: false,
            hands: BTreeMap::new(),
            pending: Vec::new(),
            met: 0,
        }
    }

    /// Whether it speaks 3.0.2 or later.
    pub(super) fn speaks_3(&self) -> bool {
        self.options
            .dialects
            .iter()
            .all(|dialect| *dialect >= smb_wire::msg::Dialect::SMB_3_0_2)
    }

    /// Does its steps, then waits for what is under way.
    pub(super) async fn play(mut self, steps: Vec<Step>) {
        for step in steps {
            self.step(step).await;
        }
        self.finish().await;
        // Its connection goes now.
        self.let_go();
    }

    async fn step(&mut self, step: Step) {
        self.harvest();
        self.second = self.world.shared && step.is_second() && self.reaches(step);
        match step.kind() {
            kind @ (Kind::Write
            | Kind::Flush
            | Kind::SetSize
            | Kind::Attributes
            | Kind::Times
            | Kind::Ea
            | Kind::Security
            | Kind::Sparse
            | Kind::Zero) => self.on_file(kind, step).await,
            Kind::Create => self.create(step).await,
            Kind::Close => self.close_here(step.file()).await,
            Kind::Rename => self.rename(step).await,
            Kind::Remove | Kind::RemoveLater => self.remove(step).await,
            Kind::Supersede => self.supersede(step).await,
            Kind::WriteStream => self.write_stream(step).await,
            Kind::FlushStream => self.flush_stream(step).await,
            Kind::RemoveStream => self.remove_stream(step).await,
            Kind::MakeDir => self.make_dir(step).await,
            Kind::MoveDir => self.move_dir(step).await,
            Kind::RemoveDir => self.remove_dir(step).await,
            Kind::FlushDir => self.flush_dir(step.dir()).await,
            Kind::FlushRoot => self.flush_dir(0).await,
            Kind::Copy | Kind::Duplicate => self.copy(step).await,
            Kind::Link => self.link(step).await,
            Kind::Disconnect => self.disconnect(),
            Kind::Pause => self.pause(step).await,
            Kind::WriteBack if step.flag() => {
                self.server.disk.fail_write_back_reported_elsewhere(5);
            }
            Kind::WriteBack => {
                self.server.disk.fail_write_back(5);
            }
            Kind::Meet => {
                self.met += 1;
                Rc::clone(&self.world).meet(self.met).await;
            }
            Kind::BareAttributes => self.bare_attributes(step).await,
            // The player of the steps ends the life of the server.
            Kind::Kill => {}
            Kind::Policy => self.set_policy(step).await,
            Kind::Reload => self.reload(step).await,
            Kind::Host => self.host(step).await,
        }
    }

    async fn pause(&self, step: Step) {
        let span = if step.a() < 8 {
            // Past the age at which what nobody flushed is synced.
            Duration::from_secs(31)
        } else {
            Duration::from_micros(u64::from(step.a()) * 400)
        };
        self.world.env.sleep(span).await;
    }

    /// The connection, made if there is none.
    async fn client(&mut self) -> Option<&mut SimClient> {
        while self.client.is_none() {
            while self.world.away.get() {
                self.world.env.sleep(AWAY_LOOK).await;
            }
            let entering = async {
                let mut client = SimClient::enter(&self.server, self.options.clone()).await?;
                let mut trees = vec![client.tree()];
                if self.world.shared {
                    client.open_tree(SECOND).await?;
                    trees.push(client.tree());
                }
                Ok((client, trees))
            };
            match race(entering, self.world.env.sleep(PATIENCE)).await {
                Some(Ok((client, trees))) => (self.client, self.trees) = (Some(client), trees),
                // A share was just removed.
                Some(Err(ClientError::Status(Status::BAD_NETWORK_NAME))) => {}
                other => {
                    let text = format!("a client cannot enter: {:?}", other.map(drop_ok));
                    self.world.odd.borrow_mut().push(text);
                    return None;
                }
            }
        }
        self.client.as_mut()
    }

    /// Asks and waits, unless hasty. `None`: no answer yet, or never.
    pub(super) async fn ask(
        &mut self,
        what: &'static str,
        record: Option<Request>,
        wire: Wire,
        hasty: bool,
    ) -> Option<Reply> {
        self.client().await?;
        self.harvest();
        let op = record.map(|request| self.world.issue(self.via(), request));
        let env = std::sync::Arc::clone(&self.world.env);
        let tree = self.trees.get(usize::from(self.second)).copied();
        let client = self.client.as_mut()?;
        client.choose_tree(tree?);
        let id = match client.send(wire) {
            Ok(id) => id,
            Err(ClientError::NoCredits { .. }) => {
                // Not sent, so it never happened.
                self.world.answer(op, Status::FILE_CLOSED, what);
                return None;
            }
            Err(_) => {
                self.disconnect();
                return None;
            }
        };
        if hasty {
            self.pending.push((id, op, what));
            return None;
        }
        match race(client.wait(id), env.sleep(PATIENCE)).await {
            Some(Ok(reply)) => {
                self.world.answer(op, reply.header.status, what);
                if reply.header.status == Status::NETWORK_NAME_DELETED {
                    self.disconnect();
                    return None;
                }
                Some(reply)
            }
            Some(Err(_)) => {
                self.disconnect();
                None
            }
            None => {
                self.pending.push((id, op, what));
                None
            }
        }
    }

    /// Asks and says what came of it; no answer counts as failed.
    pub(super) async fn done(
        &mut self,
        what: &'static str,
        record: Option<Request>,
        wire: Wire,
    ) -> Answer {
        let reply = self.ask(what, record, wire, false).await;
        reply.map_or(Answer::Failed, |reply| outcome(reply.header.status))
    }

    fn harvest(&mut self) {
        let Some(client) = &mut self.client else {
            return;
        };
        let world = &self.world;
        self.pending
            .retain(|(id, op, what)| match client.take(*id) {
                Some(reply) => {
                    world.answer(*op, reply.header.status, what);
                    false
                }
                None => true,
            });
    }

    /// Waits for what is under way; a connection on which something hangs must still serve.
    async fn finish(&mut self) {
        while let (Some((id, op, what)), Some(client)) = (self.pending.pop(), &mut self.client) {
            match race(client.wait(id), self.world.env.sleep(PATIENCE)).await {
                Some(Ok(reply)) => self.world.answer(op, reply.header.status, what),
                Some(Err(_)) => break,
                None => {
                    self.world.counts.borrow_mut().unanswered += 1;
                    break;
                }
            }
        }
        let Some(client) = &mut self.client else {
            return;
        };
        let echo = async {
            let id = client.send(Wire::new(&EchoRequest))?;
            client.wait(id).await
        };
        let answered = race(echo, self.world.env.sleep(PATIENCE)).await;
        if !matches!(
            answered,
            Some(Ok(_)) | Some(Err(ClientError::NoCredits { .. }))
        ) {
            let text = format!("a connection answers no ECHO: {:?}", answered.map(drop_ok));
            self.world.odd.borrow_mut().push(text);
        }
    }

    fn disconnect(&mut self) {
        if let Some(client) = self.client.take() {
            client.cut();
        }
        self.let_go();
        self.pending.clear();
        // The server closes its handles in its own time.
        for file in self.world.beliefs.borrow_mut().files.iter_mut().flatten() {
            if file.held.remove(&self.number).is_some() {
                file.held.insert(GHOST, 1);
            }
        }
    }

    /// It has no handles any more.
    fn let_go(&mut self) {
        for hand in std::mem::take(&mut self.hands).into_values() {
            self.world.ledger.borrow_mut().let_go(hand.entry);
        }
    }

    /// The server may have a handle of the file that nobody knows of.
    pub(super) fn haunt(&self, slot: usize) {
        if let Some(file) = &mut self.world.beliefs.borrow_mut().files[slot] {
            file.held.insert(GHOST, 1);
        }
    }

    /// A handle of a file, or of its stream, opened if there is none.
    pub(super) async fn hand(&mut self, slot: usize, stream: bool, through: bool) -> Option<Hand> {
        if let Some(hand) = self.hand_there(slot, stream) {
            return Some(hand);
        }
        let world = Rc::clone(&self.world);
        let _locked = world.lock(&[Lock::File(slot)]).await?;
        let (object, mut path, made) = {
            let beliefs = world.beliefs.borrow();
            let file = beliefs.file(slot)?;
            let path = beliefs.path(self.root(), *file.places.first()?)?;
            (file.object, path, file.stream)
        };
        let mut record = None;
        let args = if stream {
            path = format!("{path}:{STREAM}");
            if !made {
                let request = Request::new(vec![Effect::Stream {
                    object,
                    stream: STREAM.to_owned(),
                    present: true,
                }]);
                record = Some(request.through_if(through));
            }
            CreateArgs::open_if(&path)
        } else {
            CreateArgs::open(&path)
        };
        let args = args.options(options(through)).access(access());
        let entry = (self.world.ledger.borrow_mut()).ask(self.via(), object, &path, through);
        let op = record.map(|request| self.world.issue(self.via(), request));
        let Some(reply) = self.ask("open", None, args.request(), false).await else {
            self.world.ledger.borrow_mut().let_go(entry);
            self.haunt(slot);
            if stream && let Some(file) = &mut world.beliefs.borrow_mut().files[slot] {
                file.held.insert(MAKER, 1);
            }
            return None;
        };
        let created = created(&reply);
        if created.is_none() {
            self.world.ledger.borrow_mut().let_go(entry);
        }
        if op.is_some() {
            // An existing object was not created by this request.
            let there = |created: &Created| created.create_action != CreateAction::CREATED;
            let status = match &created {
                Some(created) if there(created) => Status::OBJECT_NAME_COLLISION,
                _ => reply.header.status,
            };
            self.world.answer(op, status, "make stream");
        }
        let id = created?.file_id;
        if let Some(file) = &mut world.beliefs.borrow_mut().files[slot] {
            file.stream |= stream;
        }
        Some(self.hold((slot, stream), object, (id, entry), through))
    }

    /// A handle, if there is one and the slot still stands for the same file.
    pub(super) fn hand_there(&self, slot: usize, stream: bool) -> Option<Hand> {
        let beliefs = self.world.beliefs.borrow();
        let hand = self.hands.get(&(slot, stream, self.second)).copied()?;
        (beliefs.file(slot)?.object == hand.object).then_some(hand)
    }

    pub(super) fn hold(
        &mut self,
        (slot, stream): (usize, bool),
        object: Object,
        opened: (FileId, u64),
        through: bool,
    ) -> Hand {
        let hand = self.opened(slot, object, opened, through);
        self.hands.insert((slot, stream, self.second), hand);
        hand
    }

    /// A handle of a slot that the server has made, with its entry in the ledger.
    pub(super) fn opened(
        &self,
        slot: usize,
        object: Object,
        (id, entry): (FileId, u64),
        through: bool,
    ) -> Hand {
        self.world.ledger.borrow_mut().made(entry);
        if let Some(file) = &mut self.world.beliefs.borrow_mut().files[slot] {
            *file.held.entry(self.number).or_default() += 1;
        }
        Hand {
            object,
            id,
            through,
            entry,
        }
    }

    /// Closes the handles of a slot through both shares.
    pub(super) async fn close(&mut self, slot: usize) {
        for _ in 0..2 {
            self.second = !self.second;
            self.close_here(slot).await;
        }
    }

    /// Closes the handles of a slot through the share in use, the stream's first.
    async fn close_here(&mut self, slot: usize) {
        for stream in [true, false] {
            if let Some(hand) = self.hands.remove(&(slot, stream, self.second)) {
                self.close_hand(slot, hand).await;
            }
        }
    }

    pub(super) async fn close_hand(&mut self, slot: usize, hand: Hand) {
        self.world.ledger.borrow_mut().let_go(hand.entry);
        let record = Request::close(hand.object, Vec::new());
        let wire = Wire::close(hand.id);
        if self.ask("close", Some(record), wire, false).await.is_none() {
            self.haunt(slot);
        }
        let mut beliefs = self.world.beliefs.borrow_mut();
        if let Some(file) = &mut beliefs.files[slot]
            && file.object == hand.object
            && let Some(held) = file.held.get_mut(&self.number)
        {
            *held -= 1;
            if *held == 0 {
                file.held.remove(&self.number);
            }
        }
    }
}

fn drop_ok<T>(result: Result<T, ClientError>) -> Result<(), ClientError> {
    result.map(drop)
}

/// The access that an open of a file requests.
pub(super) fn access() -> AccessMask {
    AccessMask::FILE_GENERIC_READ
        | AccessMask::FILE_GENERIC_WRITE
        | AccessMask::DELETE
        | AccessMask::WRITE_DAC
}

pub(super) fn options(through: bool) -> CreateOptions {
    CreateOptions::WRITE_THROUGH.when(through)
}

/// The object that a CREATE opened, if any.
pub(super) fn created(reply: &Reply) -> Option<Created> {
    if reply.header.status != Status::SUCCESS {
        return None;
    }
    Created::read(&reply.message).ok()
}

/// The first, unless the second is done before.
pub(super) async fn race<T>(
    first: impl Future<Output = T>,
    second: impl Future<Output = ()>,
) -> Option<T> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        if let Poll::Ready(value) = first.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        second.as_mut().poll(cx).map(|()| None)
    })
    .await
}
