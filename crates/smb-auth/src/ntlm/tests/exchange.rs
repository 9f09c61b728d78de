//! Exchanges between our initiator and our acceptor, with and without SPNEGO.

use super::*;

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
                AuthStep::Continue(next) => token = next,
                AuthStep::Done {
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
        assert_eq!(identity == PeerIdentity::Anonymous, user.is_empty());
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
        let AuthStep::Continue(challenge) = f.step(&mut a, &first).unwrap() else {
            panic!()
        };
        i.step(&challenge, 7, &mut random).unwrap().unwrap();
        assert!(
            i.step(&spnego::build_resp(&last), 7, &mut random).is_err(),
            "{last:?}"
        );
    }
}

/// Runs a SPNEGO exchange with the given mechanism order; `mic` computes the client's mechListMIC.
fn spnego_login(
    mechs: &[Mech],
    forge: &Forge,
    mic: impl FnOnce(&MicKeys, &[u8]) -> Option<Vec<u8>>,
) -> (Vec<Option<NegState>>, Result<AuthStep, AuthError>) {
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
    let AuthStep::Continue(mut reply) = f
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
        let AuthStep::Continue(second) = f.step(&mut a, &spnego::build_resp(&next)).unwrap() else {
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
    if let Ok(AuthStep::Done {
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
    let order = [Mech::Other, Mech::Other, Mech::Ntlmssp];
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
    // If an attacker shortened the list to force NTLM, it does not match the client's MIC.
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
fn unknown_mechanisms_and_wrong_tokens_are_refused() {
    let mut f = Fixture::new();
    let list = spnego::build_mech_list(&[Mech::Other]);
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

impl ErrKind for Result<AuthStep, AuthError> {
    fn unwrap_err_kind(self) -> &'static str {
        match self.unwrap_err() {
            AuthError::OutOfSequence | AuthError::InvalidToken("token too long") => {
                "finished or too long"
            }
            _ => "another",
        }
    }
}
