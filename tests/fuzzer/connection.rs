//! One connection of a case: its requests, the answers it waits for, what it has learned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smb_client::core::{ClientCore, Event, LoginArgs, LoginKind};
use smb_client::{Break, ClientError, Created, Credentials, Options, Reply, Request};
use smb_wire::Command;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fsctl::{FsctlCode, ResumeKey};
use smb_wire::ids::{FileId, MessageId, SessionId, TreeId};
use smb_wire::msg::{CancelRequest, IoctlResponse, LeaseBreak, OplockBreak};

use crate::generate::{Handle, Kind, Share};
use crate::history::History;
use crate::judge::{Ledger, foreign};
use crate::world::{Taken, USERS, User, Wire};

/// Bytes of messages that are taken before somebody else has a turn.
const TAKEN_MAX: usize = 64;

/// The kind of object that the answer to a request names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expect {
    /// A handle.
    Open { kind: Kind, session: u64, tree: u32 },
    /// A tree.
    Tree { share: Share, session: u64 },
}

/// A connection.
pub(crate) struct Connection<W> {
    wire: W,
    pub(crate) core: ClientCore,
    pub(crate) number: usize,
    /// The user who logs in on it first.
    pub(crate) user: usize,
    pub(crate) ledger: Ledger,
    /// Sessions it ever had, and whose they are.
    pub(crate) sessions: BTreeMap<u64, usize>,
    /// Those of them that ended.
    pub(crate) ended: BTreeSet<u64>,
    pub(crate) trees: Vec<(u64, u32, Share)>,
    /// Logins under way, by ticket: whose, since when.
    logins: BTreeMap<u64, (usize, Duration)>,
    pub(crate) expects: BTreeMap<u64, Expect>,
    /// Requests that wait, by MessageId: AsyncId and session.
    pub(crate) pending: BTreeMap<u64, (u64, u64)>,
    /// Sessions of the requests under way.
    asked_by: BTreeMap<u64, u64>,
    pub(crate) gone: bool,
    pub(crate) breaks: Vec<Break>,
    /// Of which the first login is to make another channel.
    bind: Option<smb_client::SessionSecret>,
    begun: Duration,
}

/// The result of looking at a connection.
#[derive(Default)]
pub(crate) struct Learned {
    pub(crate) handles: Vec<Handle>,
    /// By which handles are sources of copies.
    pub(crate) keys: Vec<ResumeKey>,
    pub(crate) answers: Vec<(Command, smb_wire::Status)>,
}

impl<W: Wire> Connection<W> {
    /// A connection that negotiates.
    pub(crate) fn new(
        wire: W,
        number: usize,
        user: usize,
        options: Options,
        bind: Option<smb_client::SessionSecret>,
        now: Duration,
        mut rng: smb_tests::rng::Rng,
    ) -> Self {
        let random = move |out: &mut [u8]| {
            for byte in out {
                *byte = rng.draw() as u8;
            }
        };
        let mut core = ClientCore::new(options, Box::new(random));
        let begun = core.begin_negotiate().is_ok();
        let mut this = Self {
            wire,
            core,
            number,
            user,
            ledger: Ledger::default(),
            sessions: BTreeMap::new(),
            ended: BTreeSet::new(),
            trees: Vec::new(),
            logins: BTreeMap::new(),
            expects: BTreeMap::new(),
            pending: BTreeMap::new(),
            asked_by: BTreeMap::new(),
            gone: !begun,
            breaks: Vec::new(),
            bind,
            begun: now,
        };
        this.flush();
        this
    }

    fn flush(&mut self) {
        while let Some(mut frame) = self.core.next_frame() {
            frame.head.unsplit(frame.body);
            self.bytes(frame.head.freeze());
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: bytes::Bytes) {
        if !self.wire.send(bytes) {
            self.gone = true;
        }
    }

    /// Begins a login.
    pub(crate) fn login(&mut self, user: usize, kind: LoginKind, now: Duration, filetime: u64) {
        let User { name, password, .. } = &USERS[user];
        let args = LoginArgs {
            kind,
            ..LoginArgs::new(Credentials::password(name, "", password), filetime)
        };
        if let Ok(ticket) = self.core.begin_login(args) {
            self.logins.insert(ticket.0, (user, now));
        }
        self.flush();
    }

    /// Sends requests as one message. False when there are no credits for them.
    pub(crate) fn send(
        &mut self,
        requests: Vec<(Request, Option<Expect>)>,
        now: Duration,
        history: &mut History,
    ) -> bool {
        let texts: Vec<String> = (requests.iter())
            .map(|(request, _)| {
                let user = self.sessions.get(&request.session_id.0);
                let user = *user.unwrap_or(&self.user);
                history.asked(now, self.number, user, request)
            })
            .collect();
        let many = requests.len() as u32;
        let of: Vec<_> = (requests.iter())
            .map(|(request, _)| (request.command, request.session_id.0))
            .collect();
        let (requests, expects): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        let Ok(ids) = self.core.send(requests) else {
            return false;
        };
        for (((id, text), expect), (command, session)) in ids.iter().zip(texts).zip(expects).zip(of)
        {
            if command == Command::CANCEL {
                continue;
            }
            self.asked_by.insert(id.0, session);
            self.ledger.asked(id.0, now, text, many);
            if let Some(expect) = expect {
                self.expects.insert(id.0, expect);
            }
        }
        self.flush();
        true
    }

    /// Asks that a waiting request end.
    pub(crate) fn cancel(&mut self, id: u64, now: Duration, history: &mut History) {
        let Some((async_id, session)) = self.pending.get(&id) else {
            return;
        };
        let mut request = Request::new(&CancelRequest)
            .session(SessionId(*session))
            .overriding(|how| {
                how.message_id = Some(MessageId(id));
                how.credits = Some(0);
            });
        request.async_id = Some(smb_wire::ids::AsyncId(*async_id));
        self.send(vec![(request, None)], now, history);
    }

    /// Answers the breaks that came; `opened` has session and tree of each handle.
    pub(crate) fn acknowledge(
        &mut self,
        opened: &BTreeMap<FileId, (u64, u32)>,
        now: Duration,
        history: &mut History,
    ) {
        for broken in std::mem::take(&mut self.breaks) {
            let (request, of) = match broken {
                Break::Oplock { file_id, level } => {
                    let body = OplockBreak {
                        oplock_level: level,
                        file_id,
                    };
                    (Request::new(&body), opened.get(&file_id).copied())
                }
                Break::Lease {
                    key,
                    new,
                    ack_required: true,
                    ..
                } => {
                    let body = LeaseBreak {
                        lease_key: key,
                        lease_state: new,
                    };
                    (Request::new(&body), None)
                }
                Break::Lease { .. } => continue,
            };
            // A handle whose CREATE is not answered yet, in a chain that waits for this break, can
            // be of any tree.
            let trees = self.trees.iter().map(|tree| (tree.0, tree.1));
            let to = of.map_or_else(|| trees.collect(), |of| vec![of]);
            for (session, tree) in to {
                let request = request.clone().session(SessionId(session));
                let requests = vec![(request.tree(TreeId(tree)), None)];
                self.send(requests, now, history);
            }
        }
    }

    /// Takes what has come.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        filetime: u64,
        patience: Duration,
        history: &mut History,
    ) -> Result<Learned, String> {
        let mut learned = Learned::default();
        for _ in 0..TAKEN_MAX {
            if self.gone {
                break;
            }
            match self.wire.take() {
                Taken::Nothing => break,
                Taken::Ended if self.ledger.lenient => self.gone = true,
                Taken::Ended => {
                    self.gone = true;
                    return Err("the server closed a connection for no reason".to_owned());
                }
                Taken::Bytes(bytes) => {
                    let fed = self.core.feed(&bytes);
                    while let Some(event) = self.core.next_event() {
                        self.event(event, now, filetime, history, &mut learned)?;
                    }
                    self.flush();
                    match fed {
                        Ok(()) => {}
                        Err(_) if self.ledger.lenient => self.gone = true,
                        Err(error) => return Err(format!("a message from the server: {error}")),
                    }
                }
            }
        }
        if !self.gone {
            self.ledger.overdue(now, patience)?;
            let since = self.logins.values().map(|(_, at)| *at).min();
            let since = since.or(self.core.negotiated().is_none().then_some(self.begun));
            if since.is_some_and(|at| now.saturating_sub(at) > patience) && !self.ledger.lenient {
                return Err(format!("no end of a login within {patience:?}"));
            }
        }
        Ok(learned)
    }

    fn event(
        &mut self,
        event: Event,
        now: Duration,
        filetime: u64,
        history: &mut History,
        learned: &mut Learned,
    ) -> Result<(), String> {
        match event {
            Event::Negotiated(outcome) => {
                outcome.map_err(|status| format!("NEGOTIATE: {status}"))?;
                let kind = self.bind.take().map_or(LoginKind::New, LoginKind::Bind);
                self.login(self.user, kind, now, filetime);
            }
            Event::Login { ticket, outcome } => {
                let login = self.logins.remove(&ticket.0);
                match (outcome, login) {
                    (Ok(info), Some((user, _))) => {
                        self.sessions.insert(info.session_id.0, user);
                    }
                    (Err(ClientError::Status(_)), _) | (Ok(_), None) => {}
                    (Err(error), _) if !self.ledger.lenient => return Err(error.to_string()),
                    (Err(_), _) => {}
                }
                self.gone |= self.sessions.is_empty();
            }
            Event::Pending {
                message_id,
                async_id,
            } => {
                self.ledger.interim(message_id.0)?;
                let session = self.asked_by.get(&message_id.0).copied().unwrap_or(0);
                self.pending.insert(message_id.0, (async_id.0, session));
            }
            Event::Break { broken, .. } => self.breaks.push(broken),
            Event::SessionClosed(_) => {}
            Event::Reply(reply) => return self.reply(&reply, now, history, learned),
        }
        Ok(())
    }

    fn reply(
        &mut self,
        reply: &Reply,
        now: Duration,
        history: &mut History,
        learned: &mut Learned,
    ) -> Result<(), String> {
        let header = &reply.header;
        let id = header.message_id.0;
        history.answered(now, self.number, header);
        learned.answers.push((header.command, header.status));
        self.pending.remove(&id);
        self.asked_by.remove(&id);
        self.ledger.answered(id)?;
        let reader = self.sessions.get(&header.session_id.0).copied();
        if let Some(whose) = foreign(&reply.message, reader) {
            let (whose, reader) = (USERS[whose].name, reader.map(|user| USERS[user].name));
            return Err(format!(
                "an answer to {reader:?} carries the marker of {whose}: {} {}: {}",
                header.command,
                header.status,
                reply.message.escape_ascii()
            ));
        }
        match (self.expects.remove(&id), header.status.is_success()) {
            (
                Some(Expect::Open {
                    kind,
                    session,
                    tree,
                }),
                true,
            ) => {
                // A spoilt request may have become one of another command.
                if let (Command::CREATE, Ok(created)) =
                    (header.command, Created::read(&reply.message))
                {
                    learned.handles.push(Handle {
                        id: created.file_id,
                        session,
                        tree,
                        user: reader.unwrap_or(self.user),
                        kind,
                        directory: created
                            .facts
                            .file_attributes
                            .contains(FileAttributes::DIRECTORY),
                    });
                }
            }
            (Some(Expect::Tree { share, session }), true) => {
                if let Share::Private(of) = share
                    && Some(of) != reader
                {
                    return Err(format!("{reader:?} was let into the share of {of}"));
                }
                self.trees.push((session, header.tree_id.0, share));
            }
            _ if header.status.is_success() && header.command == Command::TREE_DISCONNECT => {
                let of = (header.session_id.0, header.tree_id.0);
                self.trees.retain(|tree| (tree.0, tree.1) != of);
            }
            _ if header.status.is_success() && header.command == Command::IOCTL => {
                learned.keys.extend(resume_key(reply));
            }
            _ if header.status == smb_wire::Status::USER_SESSION_DELETED
                || (header.command == Command::LOGOFF && header.status.is_success()) =>
            {
                self.ended.insert(header.session_id.0);
                // It is of no use any more.
                self.gone |= self
                    .sessions
                    .keys()
                    .all(|session| self.ended.contains(session));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The key that an answer to SRV_REQUEST_RESUME_KEY gives.
fn resume_key(reply: &Reply) -> Option<ResumeKey> {
    let response = IoctlResponse::read(&reply.message).ok()?;
    let is_key = response.ctl_code == FsctlCode::SRV_REQUEST_RESUME_KEY.0;
    response.output.first_chunk().copied().filter(|_| is_key)
}
