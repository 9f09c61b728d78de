//! Any bytes as the first and second token of a server, and as the server's tokens of a client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_auth::*;

use acceptor::acceptor;

#[path = "../support/acceptor.rs"]
mod acceptor;

struct NoUsers;

impl UserStore for NoUsers {
    fn find(&self, _: &str) -> Option<UserRecord> {
        None
    }
}

fuzz_target!(|data: &[u8]| {
    let mut random = |b: &mut [u8]| b.fill(7);
    let (one, two) = data.split_at(data.len() / 2);
    let mut acceptor = acceptor();
    for token in [one, two] {
        let mut env = AuthEnv {
            now_filetime: 1,
            users: &NoUsers,
            random: &mut random,
            gate: &OpenGate,
        };
        let step = acceptor.step(token, &mut env);
        // Nobody has a password here: at most a null session may come out.
        assert!(!matches!(
            step,
            Ok(AuthStep::Done {
                identity: PeerIdentity::User(_),
                ..
            })
        ));
    }
    let mut initiator = Initiator::new(InitiatorParams {
        credentials: Credentials::password("u", "d", "p"),
        workstation: String::new(),
        target_spn: None,
    });
    let _ = initiator.step(&[], 1, &mut random);
    for token in [one, two] {
        let _ = initiator.step(token, 1, &mut random);
    }
    let mut first = Initiator::new(InitiatorParams {
        credentials: Credentials::Anonymous,
        workstation: String::new(),
        target_spn: None,
    });
    let _ = first.step(data, 1, &mut random);
});
