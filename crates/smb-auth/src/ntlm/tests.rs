//! Tests of NTLM, with a server that has some users and a client that can send any wrong value.

mod acceptor;
mod exchange;
mod mutated;
mod vectors;

use std::sync::Arc;

use super::keys::{self, MicKeys, Sender};
use super::message::{self, AuthenticateFields, AvPairs, Charset, av, flags};
use super::{client, server};
use crate::spnego::{self, Mech, NegState, Resp};
use crate::*;

const UNICODE: Charset = Charset::Unicode;

pub(crate) struct Fixture {
    pub(crate) db: UserDb,
    pub(crate) params: Arc<AcceptorParams>,
    counter: u8,
    gate: std::sync::Mutex<(u32, bool)>,
}

struct TestGate<'a>(&'a std::sync::Mutex<(u32, bool)>);

impl LoginGate for TestGate<'_> {
    fn admit(&self, _: &str) -> bool {
        let mut state = self.0.lock().unwrap();
        state.0 += 1;
        state.1
    }
    fn succeeded(&self, _: &str) {
        self.0.lock().unwrap().0 -= 1;
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let mut db = UserDb::new(MachineSid([1, 2, 3]));
        for (name, password) in [
            ("anna", Some("geheim")),
            ("empty", Some("")),
            ("none", None),
            ("off", Some("x")),
        ] {
            db.add_user(name).unwrap();
            db.set_password(name, password.map(NtHash::from_password), 1)
                .unwrap();
        }
        db.set_disabled("off", true).unwrap();
        let params = AcceptorParams {
            netbios_computer: "SERVER".into(),
            netbios_domain: "WORKGROUP".into(),
            dns_computer: "server.example".into(),
            dns_domain: "example".into(),
            allow_empty_passwords: false,
        };
        let gate = std::sync::Mutex::new((0, true));
        Self {
            db,
            params: Arc::new(params),
            counter: 0,
            gate,
        }
    }

    pub(crate) fn env<T>(&mut self, run: impl FnOnce(&mut AuthEnv<'_>) -> T) -> T {
        let counter = &mut self.counter;
        let mut random = |buffer: &mut [u8]| {
            for b in buffer {
                *counter = counter.wrapping_add(7);
                *b = *counter;
            }
        };
        run(&mut AuthEnv {
            now_filetime: 133_000_000_000_000_000,
            users: &self.db,
            random: &mut random,
            gate: &TestGate(&self.gate),
        })
    }

    pub(crate) fn step(
        &mut self,
        acceptor: &mut Acceptor,
        token: &[u8],
    ) -> Result<AuthStep, AuthError> {
        self.env(|env| acceptor.step(token, env))
    }

    /// Runs a raw NTLM exchange up to the challenge.
    fn challenged(&mut self) -> (Acceptor, Vec<u8>, Vec<u8>) {
        let mut acceptor = Acceptor::new(self.params.clone());
        let negotiate = client::negotiate();
        let AuthStep::Continue(challenge) = self.step(&mut acceptor, &negotiate).unwrap() else {
            panic!("no challenge")
        };
        (acceptor, negotiate, challenge)
    }

    fn raw(&mut self, forge: &Forge) -> Result<AuthStep, AuthError> {
        let (mut acceptor, negotiate, challenge) = self.challenged();
        let (message, _) = forge.authenticate(&negotiate, &challenge);
        self.step(&mut acceptor, &message)
    }
}

/// The time of a clock that was never set, which all these responses have.
const NEVER_SET: u64 = 5;

/// Builds an AUTHENTICATE with the defects that a test chooses.
#[derive(Clone)]
struct Forge {
    user: &'static str,
    domain: &'static str,
    proof_domain: &'static str,
    /// The upper case of the user name, over which the proof is computed.
    upper: fn(&str) -> String,
    hash: Option<NtHash>,
    mic_bit: bool,
    spoil_mic: bool,
    nt_len: Option<usize>,
    key_len: usize,
    key_exchange: bool,
    drop_flags: u32,
    lm: Vec<u8>,
    /// The end of the NT response after its fixed part, if it is not that of the challenge.
    list: Option<Vec<u8>>,
}

impl Forge {
    fn new(user: &'static str, password: &str) -> Self {
        Self {
            user,
            domain: "WORKGROUP",
            proof_domain: "WORKGROUP",
            upper: keys::upper,
            hash: Some(NtHash::from_password(password)),
            mic_bit: true,
            spoil_mic: false,
            nt_len: None,
            key_len: 16,
            key_exchange: true,
            drop_flags: 0,
            lm: vec![0; 24],
            list: None,
        }
    }

    fn authenticate(&self, negotiate: &[u8], challenge: &[u8]) -> (Vec<u8>, MicKeys) {
        let parsed = message::parse_challenge(challenge).unwrap();
        let mut list = Vec::new();
        for pair in AvPairs::new(parsed.target_info) {
            let (id, value) = pair.unwrap();
            message::push_av(&mut list, id, value);
        }
        if self.mic_bit {
            message::push_av(&mut list, av::FLAGS, &av::FLAG_MIC.to_le_bytes());
        }
        message::push_av(&mut list, av::EOL, &[]);
        let mut blob = client::client_blob(NEVER_SET, &[9; 8], &list);
        if let Some(list) = &self.list {
            blob.truncate(message::MIN_NT - message::PROOF_LEN);
            blob.extend_from_slice(list);
        }
        let hash = self.hash.clone().unwrap_or(NtHash::from_bytes([0; 16]));
        let user = (self.upper)(self.user);
        let key = keys::ntowf_v2_of_upper(&hash, &user, self.proof_domain);
        let proof = keys::nt_proof(&key, &parsed.server_challenge, &blob);
        let base = keys::session_base_key(&key, &proof[..]);
        let mut nt = proof.to_vec();
        nt.extend_from_slice(&blob);
        if let Some(len) = self.nt_len {
            nt.resize(len, 0);
        }
        let exported = if self.key_exchange {
            vec![0x77; 16]
        } else {
            base.to_vec()
        };
        let mut encrypted = vec![0x77; self.key_len];
        keys::rc4(&base[..], &mut encrypted);
        let mut message = message::build_authenticate(&AuthenticateFields {
            lm: &self.lm,
            nt: &nt,
            domain: &keys::utf16(self.domain),
            user: &keys::utf16(self.user),
            workstation: &keys::utf16("CLIENT"),
            encrypted_key: &encrypted,
            flags: parsed.flags & !self.drop_flags,
        });
        let mic = keys::message_mic(&exported, negotiate, challenge, &message);
        message[message::MIC_RANGE].copy_from_slice(&mic[..]);
        if self.spoil_mic {
            message[80] ^= 1;
        }
        (message, MicKeys::new(&exported, parsed.flags))
    }
}

fn user_of(step: Result<AuthStep, AuthError>) -> UserIdentity {
    match step {
        Ok(AuthStep::Done {
            identity: PeerIdentity::User(user),
            ..
        }) => user,
        other => panic!("{other:?}"),
    }
}

fn initiator(user: &str, password: &str) -> Initiator {
    Initiator::new(InitiatorParams {
        credentials: if user.is_empty() {
            Credentials::Anonymous
        } else {
            Credentials::password(user, "WORKGROUP", password)
        },
        workstation: "CLIENT".into(),
        target_spn: Some("cifs/server".into()),
    })
}
