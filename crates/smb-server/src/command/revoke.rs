//! Revocation: sessions, tree connects and opens end because the rules no longer allow them ([`Server::revoke`]),
//! or because an administrator names them ([`Server::end`]; [MS-SMB2] 3.3.4.12, 3.3.4.15, 3.3.4.17).
//!
//! An ended object is refused from that moment: its entry has left its table, and its opens are marked. Separate
//! tasks carry out the disk work of the closes, so that neither many opens nor a hanging disk delay the
//! administrator. Nothing stays for the clients to reconnect to; acknowledged changes stay dirty as after any
//! close.
//!
//! This order resolves the races: the rules are replaced first, and then all existing objects are checked. A request
//! that adds a session or a tree connect checks the rules again after the entry is in its table, and a request that
//! lets opens wait for a lost client checks whether a revocation came in between ([`Server::revocations`]).

use std::sync::{Arc, atomic::Ordering};

use durability::is_same_share;
use smb_auth::fold_name;
use smb_wire::ids::SessionId;
use vfs::{Vfs, env::pause};

use super::{
    logoff,
    rules::AccessRules,
    tree_disconnect::{self, Detached},
};
use crate::{
    administration::Target,
    state::{EndReason, Open, Server, Session, TreeConnect, close, disconnected},
};

/// Objects that an [`Ended`] lists one by one; beyond this only their numbers are given.
const NAMED_MAX: usize = 100;

/// Opens checked before the worker's other tasks have their turn.
const PORTION: usize = 64;

/// The objects that were ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Sessions.
    pub sessions: usize,
    /// Tree connects, those of the sessions included.
    pub trees: usize,
    /// Opens, those of the sessions and tree connects included.
    pub opens: usize,
    /// The objects that were ended themselves and not as part of another; only the first of them.
    pub named: Vec<EndedOne>,
}

/// Something that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedOne {
    /// `session`, `tree connect` or `open`.
    pub kind: &'static str,
    /// SessionId, TreeId, or the volatile part of the FileId.
    pub id: u64,
    /// The name of its user.
    pub user: String,
    /// The share, of a tree connect or an open.
    pub share: String,
    /// The path below the share, of an open.
    pub path: String,
}

impl EndedOne {
    fn new(kind: &'static str, id: u64, user: &str, share: &str) -> Self {
        Self {
            kind,
            id,
            user: user.to_owned(),
            share: share.to_owned(),
            path: String::new(),
        }
    }
}

impl Ended {
    /// Whether nothing was ended.
    pub fn is_empty(&self) -> bool {
        self.sessions == 0 && self.trees == 0 && self.opens == 0
    }

    fn name(&mut self, one: impl FnOnce() -> EndedOne) {
        if self.named.len() < NAMED_MAX {
            self.named.push(one());
        }
    }
}

impl<V: Vfs> Server<V> {
    /// Ends the sessions, tree connects and disconnected opens that are allowed neither by `rules` nor by the rules in
    /// force. The other sessions get the present groups of their users. Must be called on a worker.
    pub async fn revoke(self: &Arc<Self>, rules: &AccessRules<V>) -> Ended {
        let mut ended = Ended::default();
        for session in self.all_sessions() {
            look_at(self, rules, &session, &mut ended);
            pause(&*self.env).await;
        }
        // A session that was just ending was no longer in the table. The requests that end it check the opens that it
        // leaves, in case these appear too late for the following loop.
        self.revocations.fetch_add(1, Ordering::SeqCst);
        look_at_kept(self, rules, &mut ended).await;
        ended
    }

    /// Ends the objects that `target` names. Their clients may connect again. Must be called on a worker.
    pub async fn end(self: &Arc<Self>, target: &Target) -> Ended {
        let mut ended = Ended::default();
        let same_user = |a: &str, b: &str| fold_name(a) == fold_name(b);
        match target {
            Target::Session(id) => {
                if let Some(session) = self.session(SessionId(*id)) {
                    end_session(self, &session, &mut ended);
                }
            }
            Target::Open(id) => {
                end_open(self, *id, &mut ended);
                end_disconnected(self, |open| open.file_id.volatile == *id, &mut ended).await;
            }
            Target::User(name) => {
                for session in self.all_sessions() {
                    if same_user(&session.established.user, name) {
                        end_session(self, &session, &mut ended);
                        pause(&*self.env).await;
                    }
                }
                end_disconnected(self, |open| same_user(&open.user, name), &mut ended).await;
            }
            Target::Share(name) => {
                let on_it = |tree: &TreeConnect<V>| {
                    tree.share.is_some() && is_same_share(tree.name(), name)
                };
                for session in self.all_sessions() {
                    end_trees(self, &session, on_it, &mut ended);
                    pause(&*self.env).await;
                }
                end_disconnected(self, |open| on_it(&open.tree), &mut ended).await;
            }
        }
        ended
    }

    /// The number of revocations that have checked the sessions so far.
    pub(super) fn revocations(&self) -> u64 {
        self.revocations.load(Ordering::SeqCst)
    }
}

/// Checks a session once more, because the rules may have changed since they were checked for it, or its user
/// authenticated again: whatever is no longer allowed ends.
pub(super) fn look_again<V: Vfs>(server: &Arc<Server<V>>, session: &Arc<Session<V>>) {
    let (now, mut ended) = (AccessRules::of(server), Ended::default());
    look_at(server, &now, session, &mut ended);
}

/// Checks once more an open that should have been given back to its client and stays disconnected.
pub(super) fn look_again_at_open<V: Vfs>(server: &Arc<Server<V>>, open: &Arc<Open<V>>) {
    let now = AccessRules::of(server);
    if !may_wait(&now, open) {
        disconnected::end(server, open);
    }
}

/// Checks disconnected opens once more, because a session left some while a revocation was checking the others.
pub(super) async fn look_again_at_kept<V: Vfs>(server: &Arc<Server<V>>) {
    look_at_kept(server, &AccessRules::of(server), &mut Ended::default()).await;
}

fn look_at<V: Vfs>(
    server: &Arc<Server<V>>,
    then: &AccessRules<V>,
    session: &Arc<Session<V>>,
    ended: &mut Ended,
) {
    let now = AccessRules::of(server);
    let user = |rules: &AccessRules<V>| rules.user(&session.established);
    let mut users = vec![(&now, user(&now))];
    if !then.same(&now) {
        users.push((then, user(then)));
    }
    let gone =
        |(rules, user): &(&AccessRules<V>, Option<_>)| user.is_none() || !rules.protects(session);
    if users.iter().all(gone) {
        return end_session(server, session, ended);
    }
    let peers = server.addresses_of(&session.channels());
    let sealed = session.encrypt_data;
    let refused = |tree: &TreeConnect<V>| {
        users.iter().all(|(rules, user)| {
            let user = user.as_ref();
            !user.is_some_and(|user| rules.keeps(tree, user, sealed, &peers))
        })
    };
    end_trees(server, session, refused, ended);
    if let Some((_, Some(user))) = users.into_iter().next() {
        session.renew(user);
    }
}

/// Ends the disconnected opens whose user or share is gone, or whose share no longer admits the user.
async fn look_at_kept<V: Vfs>(server: &Arc<Server<V>>, then: &AccessRules<V>, ended: &mut Ended) {
    let now = AccessRules::of(server);
    let same = then.same(&now);
    let refused = |open: &Open<V>| !may_wait(&now, open) && (same || !may_wait(then, open));
    end_disconnected(server, refused, ended).await;
}

/// Whether the client of a disconnected open may come back to it. Its address and encryption are checked by its
/// TREE_CONNECT.
fn may_wait<V: Vfs>(rules: &AccessRules<V>, open: &Open<V>) -> bool {
    let user = rules.user(&open.origin.owner);
    user.is_some_and(|user| rules.keeps(&open.tree, &user, true, &[]))
}

fn end_session<V: Vfs>(server: &Arc<Server<V>>, session: &Arc<Session<V>>, ended: &mut Ended) {
    let Some(Detached { trees, opens }) = logoff::leave(server, session) else {
        return;
    };
    let opens = close::begin(opens, EndReason::Gone);
    ended.sessions += 1;
    ended.trees += trees.len();
    ended.opens += opens.len();
    let user = &session.established.user;
    ended.name(|| EndedOne::new("session", session.id.0, user, ""));
    close::in_tasks(server, session, opens);
}

fn end_trees<V: Vfs>(
    server: &Arc<Server<V>>,
    session: &Arc<Session<V>>,
    which: impl Fn(&TreeConnect<V>) -> bool,
    ended: &mut Ended,
) {
    let Detached { trees, opens } = tree_disconnect::leave(session, which);
    if trees.is_empty() {
        return;
    }
    let opens = close::begin(opens, EndReason::Gone);
    ended.trees += trees.len();
    ended.opens += opens.len();
    let user = &session.established.user;
    for tree in trees {
        ended.name(|| EndedOne::new("tree connect", tree.id.0.into(), user, tree.name()));
    }
    close::in_tasks(server, session, opens);
}

fn end_open<V: Vfs>(server: &Arc<Server<V>>, id: u64, ended: &mut Ended) {
    for session in server.all_sessions() {
        let open = session.tables().opens.get(&id).cloned();
        let Some(open) = open else {
            continue;
        };
        let named = name_open(server, &open);
        let opens = close::begin(vec![open], EndReason::Closed);
        if !opens.is_empty() {
            ended.opens += 1;
            ended.name(|| named);
        }
        close::in_tasks(server, &session, opens);
        return;
    }
}

async fn end_disconnected<V: Vfs>(
    server: &Arc<Server<V>>,
    which: impl Fn(&Open<V>) -> bool,
    ended: &mut Ended,
) {
    for (count, open) in server.durables.all().into_iter().enumerate() {
        if count % PORTION == PORTION - 1 {
            pause(&*server.env).await;
        }
        if !which(&open) {
            continue;
        }
        let named = name_open(server, &open);
        if disconnected::end(server, &open) {
            ended.opens += 1;
            ended.name(|| named);
        }
    }
}

fn name_open<V: Vfs>(server: &Server<V>, open: &Open<V>) -> EndedOne {
    EndedOne {
        path: server.shown_path(open),
        ..EndedOne::new("open", open.file_id.volatile, &open.user, open.tree.name())
    }
}
