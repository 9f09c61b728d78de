//! The logins that the acceptor admits, and those that it refuses.

use super::*;

/// Whether the credentials are at fault: the server answers STATUS_LOGON_FAILURE.
fn is_logon_failure(error: &AuthError) -> bool {
    matches!(
        error,
        AuthError::UnknownUser { .. }
            | AuthError::WrongPassword { .. }
            | AuthError::NtlmV1Refused
            | AuthError::TooManyFailures { .. }
            | AuthError::BadMic
    )
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
fn each_upper_case_of_a_name_is_accepted() {
    let mut f = Fixture::new();
    let all: [fn(&str) -> String; 3] =
        [keys::upper, keys::upper_of_windows, str::to_ascii_uppercase];
    for name in ["νίκος", "yılmaz", "გიორგი", "jürgen"] {
        let hash = Some(NtHash::from_password("geheim"));
        f.db.add_user(name).unwrap();
        f.db.set_password(name, hash, 1).unwrap();
        for upper in all {
            for proof_domain in ["WORKGROUP", ""] {
                let right = Forge {
                    upper,
                    proof_domain,
                    ..Forge::new(name, "geheim")
                };
                assert_eq!(user_of(f.raw(&right)).name, name);
                let wrong = Forge {
                    hash: None,
                    ..right
                };
                assert!(is_logon_failure(&f.raw(&wrong).unwrap_err()), "{name}");
            }
        }
    }
    let odd = "yılmaz νίκος გიორგი jürgen \u{b5}ß";
    assert_eq!(
        keys::upper_of_windows(odd),
        "YıLMAZ ΝΊΚΟς გიორგი JÜRGEN \u{b5}ß"
    );
    assert_eq!(keys::upper_cases("anna"), ["ANNA"]);
    assert_eq!(keys::upper_cases("jürgen"), ["JÜRGEN", "JüRGEN"]);
    assert_eq!(keys::upper_cases("νς"), ["ΝΣ", "Νς", "νς"]);
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
        assert!(is_logon_failure(&error), "{user}: {error:?}");
        let zero = Forge {
            hash: None,
            ..Forge::new(user, "")
        };
        assert!(is_logon_failure(&f.raw(&zero).unwrap_err()), "{user}");
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
fn an_account_is_reported_as_disabled_only_after_the_right_password() {
    let mut f = Fixture::new();
    assert_eq!(
        f.raw(&Forge::new("off", "x")).unwrap_err(),
        AuthError::Disabled { name: "off".into() }
    );
    assert!(is_logon_failure(
        &f.raw(&Forge::new("off", "y")).unwrap_err()
    ));
}

#[test]
fn changed_mic_is_refused() {
    let mut f = Fixture::new();
    let forge = Forge {
        spoil_mic: true,
        ..Forge::new("anna", "geheim")
    };
    assert_eq!(f.raw(&forge).unwrap_err(), AuthError::BadMic);
    // The MIC is announced, but the message has no room for it: the payload is moved over its place.
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
    // The response has the proof and the fixed part, but not the list of AV pairs that the proof covers.
    assert!(is_logon_failure(&f.raw(&cut).unwrap_err()));
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
    // The length field covers bytes that do not exist.
    let (mut acceptor, negotiate, challenge) = f.challenged();
    let (mut message, _) = Forge::new("anna", "geheim").authenticate(&negotiate, &challenge);
    message[52..54].copy_from_slice(&u16::MAX.to_le_bytes());
    assert!(matches!(
        f.step(&mut acceptor, &message),
        Err(AuthError::InvalidToken(_))
    ));
}

#[test]
fn a_challenge_is_valid_once_and_for_its_own_exchange() {
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
    assert!(is_logon_failure(
        &f.step(&mut second, &message).unwrap_err()
    ));
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
    // A client without a password sends this first, with any flags.
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
    assert_eq!(
        f.gate.lock().unwrap().0,
        counted + 2,
        "both count as failures"
    );
    for flag in [flags::UNICODE, flags::EXTENDED_SESSIONSECURITY] {
        let forge = Forge {
            drop_flags: flag,
            ..right.clone()
        };
        assert!(matches!(f.raw(&forge), Err(AuthError::InvalidToken(_))));
        // An NTLMv1 answer is refused as one, whatever the flags are.
        let version_1 = Forge {
            nt_len: Some(24),
            lm: vec![3; 24],
            ..forge
        };
        assert_eq!(f.raw(&version_1).unwrap_err(), AuthError::NtlmV1Refused);
    }
    let mut acceptor = Acceptor::new(f.params.clone());
    let negotiate = message::build_negotiate(0xe208_8297 & !flags::UNICODE & !flags::OEM);
    assert!(matches!(
        f.step(&mut acceptor, &negotiate),
        Err(AuthError::InvalidToken(_))
    ));
}

#[test]
fn a_client_without_extended_session_security_proves_itself_with_ntlmv2() {
    let mut f = Fixture::new();
    let mut login = |forge: &Forge| {
        let mut acceptor = Acceptor::new(f.params.clone());
        let asked = flags::UNICODE | flags::NTLM | flags::REQUEST_TARGET;
        let negotiate = message::build_negotiate(asked);
        let AuthStep::Continue(challenge) = f.step(&mut acceptor, &negotiate).unwrap() else {
            panic!("no challenge");
        };
        let (message, _) = forge.authenticate(&negotiate, &challenge);
        f.step(&mut acceptor, &message)
    };
    let right = Forge {
        mic_bit: false,
        key_exchange: false,
        key_len: 0,
        drop_flags: flags::EXTENDED_SESSIONSECURITY | flags::KEY_EXCH,
        ..Forge::new("anna", "geheim")
    };
    user_of(login(&right));
    let lm_only = Forge {
        nt_len: Some(24),
        ..right.clone()
    };
    assert_eq!(login(&lm_only).unwrap_err(), AuthError::NtlmV1Refused);
    let wrong = Forge {
        mic_bit: false,
        key_exchange: false,
        key_len: 0,
        drop_flags: flags::EXTENDED_SESSIONSECURITY | flags::KEY_EXCH,
        ..Forge::new("anna", "Geheim")
    };
    assert!(is_logon_failure(&login(&wrong).unwrap_err()));
}

#[test]
fn the_gate_is_consulted_before_the_hash_is_computed() {
    let mut f = Fixture::new();
    f.gate.lock().unwrap().1 = false;
    let error = f.raw(&Forge::new("anna", "geheim")).unwrap_err();
    assert_eq!(
        error,
        AuthError::TooManyFailures {
            name: "anna".into()
        }
    );
    assert!(is_logon_failure(&error));
}

#[test]
fn anonymous_is_reported_only_when_requested() {
    let mut f = Fixture::new();
    let null = Forge {
        nt_len: Some(0),
        lm: vec![0],
        domain: "",
        ..Forge::new("", "")
    };
    let Ok(AuthStep::Done {
        identity: PeerIdentity::Anonymous,
        ..
    }) = f.raw(&null)
    else {
        panic!()
    };
    assert_eq!(f.gate.lock().unwrap().0, 0);
    // A response without a user name and a user name without a response are not anonymous logins.
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

/// Old clients send no list of AV pairs, or none with an end; others one of their own.
#[test]
fn a_proof_counts_whatever_list_it_covers() {
    let mut f = Fixture::new();
    let with = |list: &[u8]| Forge {
        mic_bit: false,
        list: Some(list.to_vec()),
        ..Forge::new("anna", "geheim")
    };
    let name = [2, 0, 2, 0, b'W', 0];
    let mut foreign = Vec::new();
    message::push_av(&mut foreign, av::NB_COMPUTER, &keys::utf16("OTHER"));
    message::push_av(&mut foreign, av::TIMESTAMP, &NEVER_SET.to_le_bytes());
    message::push_av(&mut foreign, av::EOL, &[]);
    for list in [&b""[..], &[0; 4], &name, &foreign] {
        user_of(f.raw(&with(list)));
    }
    let cut = f.raw(&with(&name[..5]));
    assert!(matches!(cut, Err(AuthError::InvalidToken(_))));
    let wrong = Forge {
        list: Some(Vec::new()),
        mic_bit: false,
        ..Forge::new("anna", "Geheim")
    };
    assert!(is_logon_failure(&f.raw(&wrong).unwrap_err()));
}
