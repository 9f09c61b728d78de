use std::sync::Arc;

use super::keys::{self, MicKeys, Sender};
use super::message::{self, AuthenticateFields, AvPairs, Charset, av, flags};
use super::{client, server};
use crate::spnego::{self, Mech, NegState, Resp};
use crate::*;

const UNICODE: Charset = Charset::Unicode;

pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let nibble = |d: u8| char::from(d).to_digit(16).unwrap() as u8;
    digits
        .chunks(2)
        .map(|p| nibble(p[0]) << 4 | nibble(p[1]))
        .collect()
}

// ---- [MS-NLMP] 4.2.4 ----

const BLOB: &str = "0101000000000000 0000000000000000 aaaaaaaaaaaaaaaa 00000000
    02000c00 44006f006d00610069006e00 01000c00 530065007200760065007200 00000000 00000000";
const SERVER_CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
const VECTOR_FLAGS: u32 = 0xe28a_8233;

#[test]
fn ms_nlmp_4_2_4_keys() {
    let hash = NtHash::from_password("Password");
    let key = keys::ntowf_v2(&hash, "User", "Domain");
    assert_eq!(key.to_vec(), hex("0c868a403bfd7a93a3001ef22ef02e3f"));
    let blob = hex(BLOB);
    let pairs = hex("02000c00 44006f006d00610069006e00 01000c00 530065007200760065007200 00000000");
    assert_eq!(client::client_blob(0, &[0xaa; 8], &pairs), blob);
    let proof = keys::nt_proof(&key, &SERVER_CHALLENGE, &blob);
    assert_eq!(proof.to_vec(), hex("68cd0ab851e51c96aabc927bebef6a1c"));
    let base = keys::session_base_key(&key, &proof[..]);
    assert_eq!(base.to_vec(), hex("8de40ccadbc14a82f15cb0ad0de95ca3"));
    let mut random_session_key = [0x55; 16];
    keys::rc4(&base[..], &mut random_session_key);
    assert_eq!(
        random_session_key.to_vec(),
        hex("c5dad2544fc979909 4ce1ce90bc9d03e")
    );
    let mut lm = keys::hmac_md5(&key[..], &[&SERVER_CHALLENGE, &[0xaa; 8]]).to_vec();
    lm.extend_from_slice(&[0xaa; 8]);
    assert_eq!(lm, hex("86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa"));
}

#[test]
fn ms_nlmp_4_2_4_4_signature() {
    let keys = MicKeys::new(&[0x55; 16], VECTOR_FLAGS);
    let (sign, seal) = keys.client_keys();
    assert_eq!(sign.to_vec(), hex("4788dc861b4782f35d43fd98fe1a2d39"));
    assert_eq!(seal.to_vec(), hex("59f600973cc4960a25480a7c196e4c58"));
    // The document's signature follows 18 bytes of sealed data in the RC4 stream; ours is the
    // first use of the stream. Check the checksum by moving it to that place.
    let text = keys::utf16("Plaintext");
    let ours = keys.sign(Sender::Client, &text);
    assert_eq!(ours[..4], [1, 0, 0, 0]);
    assert_eq!(ours[12..], [0; 4]);
    let mut checksum = ours[4..12].to_vec();
    keys::rc4(&seal, &mut checksum);
    assert_eq!(checksum, hex("703528 51f2564309"));
    let mut stream = text.clone();
    stream.extend_from_slice(&checksum);
    keys::rc4(&seal, &mut stream);
    assert_eq!(
        stream,
        hex("54e50165bf1936dc996020c1811b0f06fb5f 7fb38ec5c55d4976")
    );
}

const CHALLENGE_MESSAGE: &str = "4e544c4d53535000 02000000 0c000c00 38000000 33828ae2
    0123456789abcdef 0000000000000000 24002400 44000000 06007017 0000000f
    530065007200760065007200 02000c00 44006f006d00610069006e00 01000c00
    530065007200760065007200 00000000";
const AUTHENTICATE_MESSAGE: &str = "4e544c4d53535000 03000000 18001800 6c000000 54005400 84000000
    0c000c00 48000000 08000800 54000000 10001000 5c000000 10001000 d8000000 358288e2
    0501280a0000000f 44006f006d00610069006e00 5500730065007200 43004f004d005000550054004500520 0
    86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa 68cd0ab851e51c96aabc927bebef6a1c
    0101000000000000 0000000000000000 aaaaaaaaaaaaaaaa 00000000
    02000c00 44006f006d00610069006e00 01000c00 530065007200760065007200 00000000 00000000
    c5dad2544fc9799094ce1ce90bc9d03e";

#[test]
fn ms_nlmp_4_2_4_3_messages() {
    let bytes = hex(CHALLENGE_MESSAGE);
    let challenge = message::parse_challenge(&bytes).unwrap();
    assert_eq!(challenge.flags, VECTOR_FLAGS);
    assert_eq!(challenge.server_challenge, SERVER_CHALLENGE);
    let pairs: Vec<_> = AvPairs::new(challenge.target_info)
        .map(Result::unwrap)
        .collect();
    assert_eq!(pairs[0], (av::NB_DOMAIN, &keys::utf16("Domain")[..]));
    assert_eq!(pairs[1], (av::NB_COMPUTER, &keys::utf16("Server")[..]));

    let bytes = hex(AUTHENTICATE_MESSAGE);
    let parsed = message::parse_authenticate(&bytes, UNICODE).unwrap();
    assert_eq!(
        (parsed.user.as_str(), parsed.domain.as_str()),
        ("User", "Domain")
    );
    assert_eq!(
        parsed.mic, None,
        "the payload begins at 72, where a MIC would be"
    );
    assert_eq!(parsed.encrypted_key.len(), 16);
    assert_eq!(
        message::NtAnswer::parse(parsed.nt)
            .unwrap()
            .av_pairs()
            .flags(),
        Ok(0)
    );
    for cut in 0..bytes.len() {
        assert!(
            message::parse_authenticate(&bytes[..cut], UNICODE).is_err(),
            "{cut}"
        );
    }
}

#[test]
fn the_acceptor_takes_the_documents_authenticate() {
    let mut fixture = Fixture::new();
    fixture.db.add_user("user").unwrap();
    fixture
        .db
        .set_password("user", Some(NtHash::from_password("Password")), 1)
        .unwrap();
    let state = server::Challenged::for_test(Vec::new(), Vec::new(), SERVER_CHALLENGE, 0xe28a_8233);
    let params = fixture.params.clone();
    let accepted = fixture.env(|env| state.authenticate(&hex(AUTHENTICATE_MESSAGE), &params, env));
    assert_eq!(accepted.unwrap().session_key.as_bytes(), [0x55; 16]);
}

// ---- exchanges ----

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

    pub(crate) fn env<T>(&mut self, run: impl FnOnce(&mut Env<'_>) -> T) -> T {
        let counter = &mut self.counter;
        let mut random = |buffer: &mut [u8]| {
            for b in buffer {
                *counter = counter.wrapping_add(7);
                *b = *counter;
            }
        };
        run(&mut Env {
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
    ) -> Result<Step, AuthError> {
        self.env(|env| acceptor.step_now(token, env))
    }

    /// A raw NTLM exchange up to the challenge.
    fn challenged(&mut self) -> (Acceptor, Vec<u8>, Vec<u8>) {
        let mut acceptor = Acceptor::new(self.params.clone());
        let negotiate = client::negotiate();
        let Step::Continue(challenge) = self.step(&mut acceptor, &negotiate).unwrap() else {
            panic!("no challenge")
        };
        (acceptor, negotiate, challenge)
    }

    fn raw(&mut self, forge: &Forge) -> Result<Step, AuthError> {
        let (mut acceptor, negotiate, challenge) = self.challenged();
        let (message, _) = forge.authenticate(&negotiate, &challenge);
        self.step(&mut acceptor, &message)
    }
}

/// An AUTHENTICATE with anything wrong in it that a test asks for.
#[derive(Clone)]
struct Forge {
    user: &'static str,
    domain: &'static str,
    proof_domain: &'static str,
    hash: Option<NtHash>,
    mic_bit: bool,
    spoil_mic: bool,
    nt_len: Option<usize>,
    key_len: usize,
    key_exchange: bool,
    drop_flags: u32,
    lm: Vec<u8>,
}

impl Forge {
    fn new(user: &'static str, password: &str) -> Self {
        Self {
            user,
            domain: "WORKGROUP",
            proof_domain: "WORKGROUP",
            hash: Some(NtHash::from_password(password)),
            mic_bit: true,
            spoil_mic: false,
            nt_len: None,
            key_len: 16,
            key_exchange: true,
            drop_flags: 0,
            lm: vec![0; 24],
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
        let blob = client::client_blob(5, &[9; 8], &list);
        let hash = self.hash.clone().unwrap_or(NtHash::from_bytes([0; 16]));
        let key = keys::ntowf_v2(&hash, self.user, self.proof_domain);
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

fn user_of(step: Result<Step, AuthError>) -> UserIdentity {
    match step {
        Ok(Step::Done {
            identity: Identity::User(user),
            ..
        }) => user,
        other => panic!("{other:?}"),
    }
}

#[test]
fn right_password_with_and_without_mic_and_key_exchange() {
    let mut f = Fixture::new();
    let right = Forge::new("ANNA", "geheim");
    let user = user_of(f.raw(&right));
    assert_eq!(
        (user.name.as_str(), user.domain.as_str(), user.rid),
        ("anna", "SERVER", 1000)
    );
    user_of(f.raw(&Forge {
        mic_bit: false,
        ..right.clone()
    }));
    user_of(f.raw(&Forge {
        proof_domain: "",
        ..right.clone()
    }));
    let no_exchange = Forge {
        key_exchange: false,
        key_len: 0,
        drop_flags: flags::KEY_EXCH,
        ..right
    };
    user_of(f.raw(&no_exchange));
    assert_eq!(
        f.gate.lock().unwrap().0,
        0,
        "successes take their count back"
    );
}

#[test]
fn wrong_password_never_passes() {
    let mut f = Fixture::new();
    let wrong = Forge::new("anna", "Geheim");
    let denied = AuthError::WrongPassword {
        name: "anna".into(),
        domain: "WORKGROUP".into(),
    };
    for forge in [
        wrong.clone(),
        Forge {
            mic_bit: false,
            ..wrong.clone()
        },
        Forge {
            proof_domain: "",
            ..wrong.clone()
        },
        Forge {
            mic_bit: false,
            key_exchange: false,
            key_len: 0,
            drop_flags: flags::KEY_EXCH,
            ..wrong.clone()
        },
        Forge {
            proof_domain: "OTHER",
            ..Forge::new("anna", "geheim")
        },
        Forge {
            hash: None,
            ..wrong
        },
    ] {
        assert_eq!(f.raw(&forge).unwrap_err(), denied);
    }
    assert_eq!(f.gate.lock().unwrap().0, 6, "each failure counts once");
}

#[test]
fn unknown_and_passwordless_users_are_refused() {
    let mut f = Fixture::new();
    for (user, password) in [
        ("nobody", "x"),
        ("none", ""),
        ("none", "x"),
        ("empty", ""),
        ("anna ", "geheim"),
        ("WORKGROUP\\anna", "geheim"),
    ] {
        let error = f.raw(&Forge::new(user, password)).unwrap_err();
        assert!(error.is_logon_failure(), "{user}: {error:?}");
        let zero = Forge {
            hash: None,
            ..Forge::new(user, "")
        };
        assert!(f.raw(&zero).unwrap_err().is_logon_failure(), "{user}");
    }
    let mut params = (*f.params).clone();
    params.allow_empty_passwords = true;
    f.params = Arc::new(params);
    assert_eq!(user_of(f.raw(&Forge::new("empty", ""))).name, "empty");
    assert!(
        f.raw(&Forge::new("none", "")).is_err(),
        "no hash is not an empty password"
    );
}

#[test]
fn disabled_is_told_only_to_who_knows_the_password() {
    let mut f = Fixture::new();
    assert_eq!(
        f.raw(&Forge::new("off", "x")).unwrap_err(),
        AuthError::Disabled { name: "off".into() }
    );
    assert!(
        f.raw(&Forge::new("off", "y"))
            .unwrap_err()
            .is_logon_failure()
    );
}

#[test]
fn changed_mic_is_refused() {
    let mut f = Fixture::new();
    let forge = Forge {
        spoil_mic: true,
        ..Forge::new("anna", "geheim")
    };
    assert_eq!(f.raw(&forge).unwrap_err(), AuthError::BadMic);
    // Announced, but the message has no room for it: the payload is moved over its place.
    let (mut acceptor, negotiate, challenge) = f.challenged();
    let (mut message, _) = Forge::new("anna", "geheim").authenticate(&negotiate, &challenge);
    message.drain(72..88);
    for at in [12, 20, 28, 36, 44, 52] {
        let offset = u32::from_le_bytes(message[at + 4..at + 8].try_into().unwrap()) - 16;
        message[at + 4..at + 8].copy_from_slice(&offset.to_le_bytes());
    }
    assert_eq!(
        f.step(&mut acceptor, &message).unwrap_err(),
        AuthError::BadMic
    );
}

#[test]
fn short_nt_answers_are_refused() {
    let mut f = Fixture::new();
    for len in 0..=43 {
        let forge = Forge {
            nt_len: Some(len),
            ..Forge::new("anna", "geheim")
        };
        let error = f.raw(&forge).unwrap_err();
        let expected = if len <= 24 {
            AuthError::NtlmV1Refused
        } else {
            AuthError::InvalidToken("NTLM: NT answer too short")
        };
        assert_eq!(error, expected, "{len}");
    }
    let cut = Forge {
        nt_len: Some(44),
        ..Forge::new("anna", "geheim")
    };
    // Proof and fixed part, but no list of AV pairs.
    assert!(matches!(f.raw(&cut), Err(AuthError::InvalidToken(_))));
    let long = Forge {
        nt_len: Some(message::MAX_NT + 1),
        ..Forge::new("anna", "geheim")
    };
    assert_eq!(
        f.raw(&long).unwrap_err(),
        AuthError::InvalidToken("NTLM: NT answer")
    );
}

#[test]
fn session_key_of_wrong_length_is_refused() {
    let mut f = Fixture::new();
    for key_len in [0, 1, 15, 17, 32, 65_535] {
        let forge = Forge {
            key_len,
            ..Forge::new("anna", "geheim")
        };
        assert!(
            matches!(f.raw(&forge).unwrap_err(), AuthError::InvalidToken(_)),
            "{key_len}"
        );
    }
    // A length that lies about bytes that are not there.
    let (mut acceptor, negotiate, challenge) = f.challenged();
    let (mut message, _) = Forge::new("anna", "geheim").authenticate(&negotiate, &challenge);
    message[52..54].copy_from_slice(&u16::MAX.to_le_bytes());
    assert!(matches!(
        f.step(&mut acceptor, &message),
        Err(AuthError::InvalidToken(_))
    ));
}

#[test]
fn a_challenge_is_answered_once_and_only_itself() {
    let mut f = Fixture::new();
    let (mut first, negotiate, challenge) = f.challenged();
    let (message, _) = Forge {
        mic_bit: false,
        ..Forge::new("anna", "geheim")
    }
    .authenticate(&negotiate, &challenge);
    user_of(f.step(&mut first, &message));
    assert_eq!(
        f.step(&mut first, &message).unwrap_err(),
        AuthError::OutOfSequence
    );
    let (mut second, _, other) = f.challenged();
    assert_ne!(challenge, other);
    assert!(
        f.step(&mut second, &message)
            .unwrap_err()
            .is_logon_failure()
    );
    assert_eq!(
        f.step(&mut second, &message).unwrap_err(),
        AuthError::OutOfSequence
    );
}

#[test]
fn lm_answers_and_missing_flags_never_authenticate() {
    let mut f = Fixture::new();
    let right = Forge::new("anna", "geheim");
    let lm_only = Forge {
        nt_len: Some(0),
        lm: vec![3; 24],
        ..right.clone()
    };
    assert_eq!(f.raw(&lm_only).unwrap_err(), AuthError::NtlmV1Refused);
    // A client that has no password asks so first, with whatever flags.
    let without = |user| Forge {
        lm: Vec::new(),
        drop_flags: flags::EXTENDED_SESSIONSECURITY,
        ..Forge {
            nt_len: Some(0),
            ..Forge::new(user, "")
        }
    };
    let counted = f.gate.lock().unwrap().0;
    assert!(matches!(
        f.raw(&without("anna")).unwrap_err(),
        AuthError::WrongPassword { .. }
    ));
    assert!(matches!(
        f.raw(&without("nobody-here")).unwrap_err(),
        AuthError::UnknownUser { .. }
    ));
    assert_eq!(f.gate.lock().unwrap().0, counted + 2, "they are failures");
    for flag in [flags::UNICODE, flags::EXTENDED_SESSIONSECURITY] {
        let forge = Forge {
            drop_flags: flag,
            ..right.clone()
        };
        assert!(matches!(f.raw(&forge), Err(AuthError::InvalidToken(_))));
        let mut acceptor = Acceptor::new(f.params.clone());
        let oem = flags::OEM & flag << 1;
        let negotiate = message::build_negotiate(0xe208_8297 & !flag & !oem);
        assert!(matches!(
            f.step(&mut acceptor, &negotiate),
            Err(AuthError::NotSupported(_) | AuthError::InvalidToken(_))
        ));
    }
}

#[test]
fn the_gate_is_asked_before_the_hash() {
    let mut f = Fixture::new();
    f.gate.lock().unwrap().1 = false;
    let error = f.raw(&Forge::new("anna", "geheim")).unwrap_err();
    assert_eq!(
        error,
        AuthError::TooManyFailures {
            name: "anna".into()
        }
    );
    assert!(error.is_logon_failure());
}

#[test]
fn anonymous_is_reported_and_only_when_asked_for() {
    let mut f = Fixture::new();
    let null = Forge {
        nt_len: Some(0),
        lm: vec![0],
        domain: "",
        ..Forge::new("", "")
    };
    let Ok(Step::Done {
        identity: Identity::Anonymous,
        ..
    }) = f.raw(&null)
    else {
        panic!()
    };
    assert_eq!(f.gate.lock().unwrap().0, 0);
    // An answer without a user name, or a user name without an answer, is not anonymous.
    assert!(
        f.raw(&Forge {
            nt_len: None,
            ..null.clone()
        })
        .is_err()
    );
    assert!(
        f.raw(&Forge {
            user: "anna",
            ..null.clone()
        })
        .is_err()
    );
    assert!(
        f.raw(&Forge {
            lm: vec![0; 24],
            ..null
        })
        .is_err()
    );
}

// ---- SPNEGO ----

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

#[test]
fn both_ends_agree() {
    for user in ["anna", ""] {
        let mut f = Fixture::new();
        let (mut i, mut a) = (initiator(user, "geheim"), Acceptor::new(f.params.clone()));
        let mut random = |b: &mut [u8]| b.fill(0x42);
        let mut token = Acceptor::negotiate_hint();
        let (mut rounds, mut done) = (0, None);
        while let Some(out) = i.step(&token, 7, &mut random).unwrap() {
            rounds += 1;
            match f.step(&mut a, &out).unwrap() {
                Step::Continue(next) => token = next,
                Step::Done {
                    token: last,
                    identity,
                    session_key,
                } => {
                    token = last.unwrap();
                    done = Some((identity, session_key));
                }
            }
        }
        let (identity, key) = done.unwrap();
        assert_eq!(rounds, 2);
        assert_eq!(identity == Identity::Anonymous, user.is_empty());
        assert_eq!(i.session_key(), Some(&key));
    }
}

#[test]
fn initiator_refuses_a_server_that_cannot_prove_itself() {
    let mut f = Fixture::new();
    let mut random = |b: &mut [u8]| b.fill(0x42);
    let finals = [
        Resp {
            state: Some(NegState::AcceptCompleted),
            ..Resp::default()
        },
        Resp {
            state: Some(NegState::AcceptCompleted),
            mic: Some(&[1; 16]),
            ..Resp::default()
        },
        Resp {
            state: Some(NegState::Reject),
            ..Resp::default()
        },
    ];
    for last in finals {
        let (mut i, mut a) = (initiator("anna", "geheim"), Acceptor::new(f.params.clone()));
        let first = i.step(&[], 7, &mut random).unwrap().unwrap();
        let Step::Continue(challenge) = f.step(&mut a, &first).unwrap() else {
            panic!()
        };
        i.step(&challenge, 7, &mut random).unwrap().unwrap();
        assert!(
            i.step(&spnego::build_resp(&last), 7, &mut random).is_err(),
            "{last:?}"
        );
    }
}

/// A SPNEGO exchange with the given mechanism order; `mic` makes the client's mechListMIC.
fn spnego_login(
    mechs: &[Mech],
    forge: &Forge,
    mic: impl FnOnce(&MicKeys, &[u8]) -> Option<Vec<u8>>,
) -> (Vec<Option<NegState>>, Result<Step, AuthError>) {
    let mut f = Fixture::new();
    let mut a = Acceptor::new(f.params.clone());
    let list = spnego::build_mech_list(mechs);
    let negotiate = client::negotiate();
    let mut states = Vec::new();
    let optimistic: &[u8] = if mechs[0] == Mech::Ntlmssp {
        &negotiate
    } else {
        b"a Kerberos token"
    };
    let Step::Continue(mut reply) = f
        .step(&mut a, &spnego::build_init(&list, optimistic))
        .unwrap()
    else {
        panic!()
    };
    states.push(spnego::parse_resp(&reply).unwrap().state);
    assert_eq!(
        spnego::parse_resp(&reply).unwrap().mech,
        Some(Mech::Ntlmssp)
    );
    if spnego::parse_resp(&reply).unwrap().token.is_none() {
        let next = Resp {
            token: Some(&negotiate),
            ..Resp::default()
        };
        let Step::Continue(second) = f.step(&mut a, &spnego::build_resp(&next)).unwrap() else {
            panic!()
        };
        states.push(spnego::parse_resp(&second).unwrap().state);
        reply = second;
    }
    let challenge = spnego::parse_resp(&reply).unwrap().token.unwrap().to_vec();
    let (message, keys) = forge.authenticate(&negotiate, &challenge);
    let mic = mic(&keys, &list);
    let last = Resp {
        token: Some(&message),
        mic: mic.as_deref(),
        ..Resp::default()
    };
    let step = f.step(&mut a, &spnego::build_resp(&last));
    if let Ok(Step::Done {
        token: Some(token), ..
    }) = &step
    {
        let resp = spnego::parse_resp(token).unwrap();
        states.push(resp.state);
        assert_eq!(resp.mic.is_some(), mic.is_some());
        if let Some(mic) = resp.mic {
            assert_eq!(mic, keys.sign(Sender::Server, &list));
        }
    }
    (states, step)
}

#[test]
fn ntlm_as_second_choice_needs_a_mech_list_mic() {
    let order = [Mech::MsKerberos, Mech::Kerberos, Mech::Ntlmssp];
    let right = Forge {
        mic_bit: false,
        ..Forge::new("anna", "geheim")
    };
    let sign = |k: &MicKeys, list: &[u8]| Some(k.sign(Sender::Client, list).to_vec());
    let (states, step) = spnego_login(&order, &right, sign);
    user_of(step);
    use NegState::*;
    assert_eq!(
        states,
        [
            Some(RequestMic),
            Some(AcceptIncomplete),
            Some(AcceptCompleted)
        ]
    );
    let (_, step) = spnego_login(&order, &right, |_, _| None);
    assert_eq!(step.unwrap_err(), AuthError::BadMic);
    // A list an attacker shortened to force NTLM does not fit the client's MIC.
    let all = spnego::build_mech_list(&order);
    let (_, step) = spnego_login(&[Mech::Ntlmssp], &right, |k, _| {
        Some(k.sign(Sender::Client, &all).to_vec())
    });
    assert_eq!(step.unwrap_err(), AuthError::BadMic);
}

#[test]
fn mech_list_mic_is_checked_whenever_sent_and_needed_with_an_ntlm_mic() {
    let first = [Mech::Ntlmssp];
    let plain = Forge {
        mic_bit: false,
        ..Forge::new("anna", "geheim")
    };
    user_of(spnego_login(&first, &plain, |_, _| None).1);
    let with_mic = Forge::new("anna", "geheim");
    user_of(
        spnego_login(&first, &with_mic, |k, l| {
            Some(k.sign(Sender::Client, l).to_vec())
        })
        .1,
    );
    assert_eq!(
        spnego_login(&first, &with_mic, |_, _| None).1.unwrap_err(),
        AuthError::BadMic
    );
    for forge in [&plain, &with_mic] {
        for bad in [vec![], vec![0; 16], vec![1; 15], vec![1; 17]] {
            let (_, step) = spnego_login(&first, forge, |_, _| Some(bad));
            assert_eq!(step.unwrap_err(), AuthError::BadMic);
        }
        let (_, step) = spnego_login(&first, forge, |k, l| {
            Some(k.sign(Sender::Server, l).to_vec())
        });
        assert_eq!(
            step.unwrap_err(),
            AuthError::BadMic,
            "the server's own MIC reflected"
        );
    }
    let wrong = Forge::new("anna", "falsch");
    let (_, step) = spnego_login(&first, &wrong, |k, l| {
        Some(k.sign(Sender::Client, l).to_vec())
    });
    assert!(matches!(step, Err(AuthError::WrongPassword { .. })));
}

#[test]
fn unknown_mechanisms_and_wrong_tokens() {
    let mut f = Fixture::new();
    let list = spnego::build_mech_list(&[Mech::Kerberos]);
    let mut a = Acceptor::new(f.params.clone());
    let error = f.step(&mut a, &spnego::build_init(&list, &[])).unwrap_err();
    assert_eq!(error, AuthError::NotSupported("no mechanism in common"));
    for token in [
        &b""[..],
        b"NTLMSSP",
        b"NTLMSSP\0\x03\0\0\0",
        &[0x60; 50],
        &[0xa1, 0],
        &vec![0x30; 70_000],
    ] {
        let mut a = Acceptor::new(f.params.clone());
        assert!(f.step(&mut a, token).is_err());
        assert_eq!(
            f.step(&mut a, token).unwrap_err_kind(),
            "finished or too long"
        );
    }
}

trait ErrKind {
    fn unwrap_err_kind(self) -> &'static str;
}

impl ErrKind for Result<Step, AuthError> {
    fn unwrap_err_kind(self) -> &'static str {
        match self.unwrap_err() {
            AuthError::OutOfSequence | AuthError::InvalidToken("token too long") => {
                "finished or too long"
            }
            _ => "another",
        }
    }
}

mod mutated {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that the proof, a MIC or a length rule protects: nearly all of the message.
    fn mutate(message: &mut Vec<u8>, edits: &[(usize, u8)], cut: Option<usize>) {
        for (at, byte) in edits {
            let len = message.len();
            if let Some(b) = message.get_mut(at % len.max(1)) {
                *b ^= byte | 1;
            }
        }
        if let Some(cut) = cut {
            let len = message.len();
            message.truncate(cut % (len + 1));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// With the wrong password no change of the last message lets anybody in.
        #[test]
        fn wrong_password_stays_wrong(
            edits in proptest::collection::vec((0usize..600, any::<u8>()), 0..6),
            cut in proptest::option::weighted(0.1, 0usize..600),
            mic_bit: bool,
        ) {
            let mut f = Fixture::new();
            let (mut a, negotiate, challenge) = f.challenged();
            let forge = Forge { mic_bit, ..Forge::new("anna", "falsch") };
            let (mut message, _) = forge.authenticate(&negotiate, &challenge);
            mutate(&mut message, &edits, cut);
            let step = f.step(&mut a, &message);
            let user = matches!(step, Ok(Step::Done { identity: Identity::User(_), .. }));
            prop_assert!(!user);
        }

        /// With the right password any single change of a message with a MIC is refused,
        /// or it changed nothing the server looked at: then the MIC was not announced.
        #[test]
        fn mic_protects_every_byte(at in 0usize..600, byte: u8) {
            let mut f = Fixture::new();
            let (mut a, negotiate, challenge) = f.challenged();
            let (mut message, _) = Forge::new("anna", "geheim").authenticate(&negotiate, &challenge);
            mutate(&mut message, &[(at, byte)], None);
            let step = f.step(&mut a, &message);
            let user = matches!(step, Ok(Step::Done { identity: Identity::User(_), .. }));
            prop_assert!(!user);
        }

        #[test]
        fn mutated_spnego_never_panics(
            edits in proptest::collection::vec((0usize..600, any::<u8>()), 1..6),
            cut in proptest::option::weighted(0.3, 0usize..600),
            which in 0usize..3,
        ) {
            let mut f = Fixture::new();
            let mut a = Acceptor::new(f.params.clone());
            let list = spnego::build_mech_list(&[Mech::Ntlmssp, Mech::Kerberos]);
            let negotiate = client::negotiate();
            let mut first = spnego::build_init(&list, &negotiate);
            if which == 0 { mutate(&mut first, &edits, cut); }
            if let Ok(Step::Continue(reply)) = f.step(&mut a, &first) {
                let resp = spnego::parse_resp(&reply).unwrap();
                if let Some(challenge) = resp.token {
                    let (message, keys) = Forge::new("anna", "falsch").authenticate(&negotiate, challenge);
                    let mic = keys.sign(Sender::Client, &list);
                    let last = Resp { token: Some(&message), mic: Some(&mic), ..Resp::default() };
                    let mut last = spnego::build_resp(&last);
                    if which == 1 { mutate(&mut last, &edits, cut); }
                    let step = f.step(&mut a, &last);
                    let user = matches!(step, Ok(Step::Done { identity: Identity::User(_), .. }));
                    prop_assert!(!user);
                }
            }
            let mut hint = Acceptor::negotiate_hint();
            if which == 2 { mutate(&mut hint, &edits, cut); }
            let mut random = |b: &mut [u8]| b.fill(1);
            let _ = initiator("anna", "x").step(&hint, 1, &mut random);
        }

        /// A client fed any challenge neither panics nor sends something unparsable.
        #[test]
        fn client_survives_any_challenge(
            edits in proptest::collection::vec((8usize..400, any::<u8>()), 0..8),
            cut in proptest::option::weighted(0.3, 0usize..400),
        ) {
            let mut f = Fixture::new();
            let (_, negotiate, mut challenge) = f.challenged();
            mutate(&mut challenge, &edits, cut);
            let params = InitiatorParams {
                credentials: Credentials::password("anna", "D", "x"),
                workstation: String::new(),
                target_spn: None,
            };
            let mut random = |b: &mut [u8]| b.fill(1);
            if let Ok(answer) = client::answer(&negotiate, &challenge, &params, 3, &mut random) {
                message::parse_authenticate(&answer.authenticate, UNICODE).unwrap();
            }
        }
    }
}
