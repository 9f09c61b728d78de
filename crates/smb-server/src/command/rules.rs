//! Applies the administrator's rules to an existing session or tree connect: the checks of SESSION_SETUP and
//! TREE_CONNECT are made again.

use std::{net::IpAddr, sync::Arc};

use smb_auth::{UserIdentity, UserStore};
use vfs::Vfs;

use super::tree_connect::admits;
use crate::{
    config::ServerConfig,
    state::{Server, Session, Shares, TreeConnect},
    token::Token,
};

/// Configuration, shares and users as they are at one moment.
pub struct AccessRules<V: Vfs> {
    config: Arc<ServerConfig>,
    shares: Arc<Shares<V>>,
    users: Arc<dyn UserStore>,
}

impl<V: Vfs> AccessRules<V> {
    /// The rules in force.
    pub fn of(server: &Server<V>) -> Self {
        Self {
            config: server.config(),
            shares: server.shares(),
            users: server.users(),
        }
    }

    /// Whether both are the very same snapshots.
    pub(super) fn same(&self, other: &Self) -> bool {
        let users = |rules: &Self| Arc::as_ptr(&rules.users).cast::<()>();
        Arc::ptr_eq(&self.config, &other.config)
            && Arc::ptr_eq(&self.shares, &other.shares)
            && users(self) == users(other)
    }

    /// The token that a login as the same user would give now; `None` if the user was removed or disabled. A user
    /// who was created again under the old name is another user.
    pub(super) fn user(&self, known: &Token) -> Option<Token> {
        if known.anonymous {
            return Some(Token::anonymous(&self.config));
        }
        if known.guest {
            return Some(Token::guest(&self.config));
        }
        let record = self.users.find(&known.user)?;
        if record.disabled {
            return None;
        }
        let identity = UserIdentity {
            name: record.name,
            domain: known.domain.clone(),
            rid: record.rid,
            group_rids: record.group_rids,
            uid_gid: record.uid_gid,
        };
        let token = Token::user(&self.config, &identity, &*self.users);
        (token.user_sid == known.user_sid).then_some(token)
    }

    /// Whether a session is signed and encrypted as a new one would have to be now.
    pub(super) fn protects(&self, session: &Session<V>) -> bool {
        let has_keys = session.signing.is_some() && !session.established.anonymous;
        let encrypted = !self.config.encryption_required || session.encrypt_data;
        let signed = !self.config.signing_required || !has_keys || session.signing_required;
        encrypted && signed
    }

    /// Whether a tree connect may continue unchanged: its share exists, leads to the same folder under the same
    /// conditions, and admits `who` from all of `peers`.
    pub(super) fn keeps(
        &self,
        tree: &TreeConnect<V>,
        who: &Token,
        sealed: bool,
        peers: &[IpAddr],
    ) -> bool {
        let Some(was) = &tree.share else {
            return true;
        };
        let Some(now) = self.shares.find(&was.config.name) else {
            return false;
        };
        let (was, id) = (&was.config, was.id);
        id == now.id
            && was.act_as == now.config.act_as
            && (was.read_only || !now.config.read_only)
            && (tree.encrypted || sealed || !now.config.encryption_required)
            && peers.iter().all(|peer| now.config.hosts.admits(*peer))
            && admits(&now.config, who)
    }
}

#[cfg(test)]
mod tests {
    use durability::Network;
    use smb_auth::{MachineSid, UserDb};

    use super::*;
    use crate::{
        config::ShareConfig,
        limits::ServerLimits,
        restore::world::{Back, World},
        state::Share,
    };

    fn world() -> (World, Token) {
        let world = World::new(false, ServerLimits::default());
        let rules = AccessRules::of(&*world.server);
        let known = Token {
            user: "Alice".to_owned(),
            user_sid: world.owner,
            ..Token::guest(&rules.config)
        };
        let known = Token {
            guest: false,
            ..known
        };
        let alice = with_users(&world, |_| ()).user(&known).unwrap();
        (world, alice)
    }

    fn with_users(world: &World, change: impl FnOnce(&mut UserDb)) -> AccessRules<Back> {
        let mut users = UserDb::new(MachineSid([1, 2, 3]));
        users.add_user("alice").unwrap();
        change(&mut users);
        AccessRules {
            users: Arc::new(users),
            ..AccessRules::of(&*world.server)
        }
    }

    #[test]
    fn who_is_gone_disabled_or_another_may_not_be_here() {
        let (world, alice) = world();
        let user = |change: fn(&mut UserDb)| with_users(&world, change).user(&alice);
        assert_eq!(user(|_| ()), Some(alice.clone()));
        assert_eq!(
            user(|users| users.set_disabled("alice", true).unwrap()),
            None
        );
        assert_eq!(user(|users| users.remove_user("alice").unwrap()), None);
        let anew = |users: &mut UserDb| {
            users.remove_user("alice").unwrap();
            users.add_user("alice").unwrap();
        };
        assert_eq!(user(anew), None);
        let hash = smb_auth::NtHash::from_password("new");
        let rules = with_users(&world, |users| {
            users.set_password("alice", Some(hash), 7).unwrap();
        });
        assert_eq!(rules.user(&alice), Some(alice.clone()));
        let grouped = user(|users| {
            users.add_group("staff").unwrap();
            users.add_member("staff", "alice").unwrap();
        });
        let grouped = grouped.unwrap();
        assert_eq!((grouped.group_rids.len(), grouped.groups.len()), (1, 1));
        // Guests and anonymous users have no account; the shares decide about them.
        let rules = with_users(&world, |_| ());
        for nobody in [Token::guest(&rules.config), Token::anonymous(&rules.config)] {
            assert_eq!(rules.user(&nobody), Some(nobody));
        }
    }

    /// The rules with the share `data` changed in this way.
    fn with_share(world: &World, change: impl FnOnce(&mut Share<Back>)) -> AccessRules<Back> {
        let shares = world.server.shares();
        let was = shares.find("data").unwrap();
        let mut share = Share {
            config: was.config.clone(),
            vfs: Arc::clone(&was.vfs),
            gate: Arc::clone(&was.gate),
            id: was.id,
        };
        change(&mut share);
        AccessRules {
            shares: Arc::new(Shares::new([Arc::new(share)])),
            ..AccessRules::of(&*world.server)
        }
    }

    fn tree(world: &World, change: impl FnOnce(&mut ShareConfig)) -> TreeConnect<Back> {
        let rules = with_share(world, |share| change(&mut share.config));
        TreeConnect::of(Arc::clone(rules.shares.find("data").unwrap()))
    }

    #[test]
    fn a_tree_connect_goes_on_where_its_share_is_the_same_to_its_user() {
        let (world, alice) = world();
        let here = ["192.0.2.1".parse().unwrap(), "::1".parse().unwrap()];
        let keeps = |tree: &TreeConnect<Back>, change: fn(&mut Share<Back>)| {
            with_share(&world, change).keeps(tree, &alice, false, &here)
        };
        let plain = tree(&world, |_| ());
        assert!(keeps(&plain, |_| ()));
        assert!(keeps(&plain, |share| share.config.comment = "c".to_owned()));
        let named = |name: &str| Some(vec![name.to_owned()]);
        assert!(keeps(&plain, |share| share.config.users =
            Some(vec!["ALICE".to_owned()])));
        let taken_away: [fn(&mut Share<Back>); 6] = [
            |share| share.config.users = Some(vec!["bob".to_owned()]),
            |share| share.config.read_only = true,
            |share| share.config.act_as = Some((1, 1)),
            |share| share.config.encryption_required = true,
            |share| share.id += 1,
            |share| {
                share.config.hosts.deny.push(Network {
                    address: "::1".parse().unwrap(),
                    prefix: 128,
                });
            },
        ];
        for (at, change) in taken_away.into_iter().enumerate() {
            assert!(!keeps(&plain, change), "{at}");
        }
        // Rules that did not change revoke nothing.
        let strict = tree(&world, |config| {
            (config.read_only, config.encryption_required) = (true, true);
            config.users = named("alice");
        });
        assert!(keeps(&strict, |share| {
            (share.config.read_only, share.config.encryption_required) = (true, true);
        }));
        assert!(keeps(&strict, |_| ()));
        let gone = AccessRules {
            shares: Arc::new(Shares::default()),
            ..AccessRules::of(&*world.server)
        };
        assert!(!gone.keeps(&plain, &alice, false, &here));
        // A session that is encrypted whole is encrypted enough.
        let sealed = with_share(&world, |share| share.config.encryption_required = true);
        assert!(sealed.keeps(&plain, &alice, true, &here));
        let guest = Token::guest(&sealed.config);
        assert!(!with_share(&world, |_| ()).keeps(&plain, &guest, false, &here));
    }

    #[test]
    fn a_session_is_protected_as_a_new_one_has_to_be() {
        let (world, alice) = world();
        let session = |keys: bool, signing_required: bool, encrypt_data: bool| {
            let key = smb_crypto::SigningKey::new(smb_crypto::SigningAlgorithm::AesCmac, &[1; 16]);
            let mut session = Session::<Back>::plain(alice.clone());
            session.signing = keys.then(|| Arc::new(key));
            (session.signing_required, session.encrypt_data) = (signing_required, encrypt_data);
            session
        };
        let rules = |signing_required: bool, encryption_required: bool| {
            let rules = AccessRules::of(&*world.server);
            let config = ServerConfig {
                signing_required,
                encryption_required,
                ..(*rules.config).clone()
            };
            AccessRules {
                config: Arc::new(config),
                ..rules
            }
        };
        let lenient = rules(false, false);
        let signs = rules(true, false);
        let seals = rules(false, true);
        let plain = session(true, false, false);
        assert!(lenient.protects(&plain));
        assert!(!signs.protects(&plain) && !seals.protects(&plain));
        assert!(signs.protects(&session(true, true, false)));
        assert!(seals.protects(&session(true, false, true)));
        // A session without a key cannot sign; the shares decide what it may reach.
        assert!(signs.protects(&session(false, false, false)));
    }
}
