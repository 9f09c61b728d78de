//! Names in an OEM character set ([MS-NLMP] 2.2.2.5, bits A and B), which small client libraries
//! send.

use super::keys;
use super::message::{self, AuthenticateFields, flags};
use super::tests::Fixture;
use crate::*;

/// The flags of Node's `ntlm2` 0.3.0: OEM, no key exchange, no signature.
const ASKED: u32 = flags::OEM
    | flags::REQUEST_TARGET
    | flags::NTLM
    | flags::ALWAYS_SIGN
    | flags::EXTENDED_SESSIONSECURITY;

/// Logs in with the user name in these bytes. The proof is computed over `meant`, the name that the
/// client means by them.
fn login(f: &mut Fixture, asked: u32, bytes: &[u8], meant: &str) -> Result<AuthStep, AuthError> {
    let mut acceptor = Acceptor::new(f.params.clone());
    let negotiate = message::build_negotiate(asked);
    let AuthStep::Continue(challenge) = f.step(&mut acceptor, &negotiate)? else {
        panic!("no challenge")
    };
    let parsed = message::parse_challenge(&challenge).unwrap();
    let oem = asked & flags::UNICODE == 0;
    assert_eq!(parsed.flags & flags::OEM != 0, oem);
    assert_eq!(parsed.flags & flags::UNICODE == 0, oem);
    // TargetName is in the negotiated character set, the AV pairs are not.
    let target = if oem {
        b"SERVER".to_vec()
    } else {
        keys::utf16("SERVER")
    };
    assert_eq!(challenge[56..56 + target.len()], target);
    assert_eq!(usize::from(challenge[12]), target.len());
    let pair = message::AvPairs::new(parsed.target_info).next();
    assert_eq!(pair.unwrap().unwrap().1, keys::utf16("WORKGROUP"));

    let blob = super::client::client_blob(5, &[9; 8], parsed.target_info);
    let hash = NtHash::from_password("geheim");
    let key = keys::ntowf_v2(&hash, meant, "");
    let mut nt = keys::nt_proof(&key, &parsed.server_challenge, &blob).to_vec();
    nt.extend_from_slice(&blob);
    let authenticate = message::build_authenticate(&AuthenticateFields {
        lm: &[0; 24],
        nt: &nt,
        domain: &[],
        user: bytes,
        workstation: b"odd",
        encrypted_key: &[7; 16],
        flags: parsed.flags,
    });
    f.step(&mut acceptor, &authenticate)
}

fn name(step: Result<AuthStep, AuthError>) -> String {
    match step {
        Ok(AuthStep::Done {
            identity: PeerIdentity::User(user),
            ..
        }) => user.name,
        other => panic!("{other:?}"),
    }
}

fn fixture() -> Fixture {
    let mut f = Fixture::new();
    f.db.add_user("jürgen").unwrap();
    let hash = Some(NtHash::from_password("geheim"));
    f.db.set_password("jürgen", hash, 1).unwrap();
    f
}

#[test]
fn a_user_whose_name_is_ascii_signs_in() {
    let mut f = fixture();
    assert_eq!(name(login(&mut f, ASKED, b"Anna", "Anna")), "anna");
    let wrong = login(&mut f, ASKED, b"Anna", "Otto").unwrap_err();
    assert!(matches!(wrong, AuthError::WrongPassword { .. }));
}

#[test]
fn unicode_takes_precedence_over_oem_and_one_of_them_is_required() {
    let mut f = fixture();
    let both = ASKED | flags::UNICODE;
    assert_eq!(
        name(login(&mut f, both, &keys::utf16("anna"), "anna")),
        "anna"
    );
    let none = login(&mut f, ASKED & !flags::OEM, b"anna", "anna").unwrap_err();
    assert!(matches!(none, AuthError::InvalidToken(_)), "{none}");
}

#[test]
fn a_name_beyond_ascii_is_read_as_utf_8_or_latin_1() {
    let mut f = fixture();
    for bytes in ["jürgen".as_bytes(), b"j\xfcrgen", b"J\xdcRGEN"] {
        let meant = if bytes[0] == b'J' {
            "JÜRGEN"
        } else {
            "jürgen"
        };
        assert_eq!(name(login(&mut f, ASKED, bytes, meant)), "jürgen");
    }
    // In code page 850, which a DOS client would send, the same bytes are read as another name.
    let error = login(&mut f, ASKED, b"j\x81rgen", "jürgen").unwrap_err();
    assert!(matches!(error, AuthError::UnknownUser { .. }), "{error}");
}
