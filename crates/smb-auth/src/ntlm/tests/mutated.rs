//! AUTHENTICATE messages with random changes.

use super::*;
use proptest::prelude::*;

/// Changes bytes of the message, nearly all of which are protected by the proof, a MIC or a length rule.
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

    /// With the wrong password no change of AUTHENTICATE admits anybody.
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
        let user = matches!(step, Ok(AuthStep::Done { identity: PeerIdentity::User(_), .. }));
        prop_assert!(!user);
    }

    /// With the right password any single change of a message with a MIC is refused, unless it
    /// removes the announcement of the MIC or concerns a byte that the server does not read.
    #[test]
    fn mic_protects_every_byte(at in 0usize..600, byte: u8) {
        let mut f = Fixture::new();
        let (mut a, negotiate, challenge) = f.challenged();
        let (mut message, _) = Forge::new("anna", "geheim").authenticate(&negotiate, &challenge);
        mutate(&mut message, &[(at, byte)], None);
        let step = f.step(&mut a, &message);
        let user = matches!(step, Ok(AuthStep::Done { identity: PeerIdentity::User(_), .. }));
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
        let list = spnego::build_mech_list(&[Mech::Ntlmssp, Mech::Other]);
        let negotiate = client::negotiate();
        let mut first = spnego::build_init(&list, &negotiate);
        if which == 0 { mutate(&mut first, &edits, cut); }
        if let Ok(AuthStep::Continue(reply)) = f.step(&mut a, &first) {
            let resp = spnego::parse_resp(&reply).unwrap();
            if let Some(challenge) = resp.token {
                let (message, keys) = Forge::new("anna", "falsch").authenticate(&negotiate, challenge);
                let mic = keys.sign(Sender::Client, &list);
                let last = Resp { token: Some(&message), mic: Some(&mic), ..Resp::default() };
                let mut last = spnego::build_resp(&last);
                if which == 1 { mutate(&mut last, &edits, cut); }
                let step = f.step(&mut a, &last);
                let user = matches!(step, Ok(AuthStep::Done { identity: PeerIdentity::User(_), .. }));
                prop_assert!(!user);
            }
        }
        let mut hint = Acceptor::negotiate_hint();
        if which == 2 { mutate(&mut hint, &edits, cut); }
        let mut random = |b: &mut [u8]| b.fill(1);
        let _ = initiator("anna", "x").step(&hint, 1, &mut random);
    }

    /// For any challenge the client neither panics nor sends a message that cannot be parsed.
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
