//! A right NEGOTIATE, then any bytes as AUTHENTICATE; and any bytes as a user database.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_auth::*;

use acceptor::acceptor;

#[path = "../support/acceptor.rs"]
mod acceptor;

const NEGOTIATE: &[u8] =
    b"NTLMSSP\0\x01\0\0\0\x37\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A user with a hash that the fuzzer cannot know.
struct OneUser;

impl UserStore for OneUser {
    fn find(&self, name: &str) -> Option<UserRecord> {
        Some(UserRecord {
            name: name.to_owned(),
            rid: 1000,
            nt_hash: Some(NtHash::from_password("7f2c9d3b51e84a60")),
            disabled: false,
            full_name: String::new(),
            group_rids: Vec::new(),
            uid_gid: None,
            password_set: 1,
        })
    }
}

fuzz_target!(|data: &[u8]| {
    let mut random = |b: &mut [u8]| b.fill(7);
    let mut acceptor = acceptor();
    let mut step = |token: &[u8]| {
        let mut env = AuthEnv {
            now_filetime: 1,
            users: &OneUser,
            random: &mut random,
            gate: &OpenGate,
        };
        acceptor.step(token, &mut env)
    };
    assert!(matches!(step(NEGOTIATE), Ok(AuthStep::Continue(_))));
    assert!(!matches!(
        step(data),
        Ok(AuthStep::Done {
            identity: PeerIdentity::User(_),
            ..
        })
    ));
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(db) = UserDb::parse(text)
    {
        assert_eq!(UserDb::parse(&db.serialise()).as_ref(), Ok(&db));
    }
});
