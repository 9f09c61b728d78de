//! Runs one end of an authentication exchange over stdin and stdout, one token per line in hex, to
//! test our SPNEGO and NTLM against other implementations (see `tests/interop.py`).
//!
//! `auth_pipe accept USER PASSWORD` accepts; `auth_pipe initiate USER PASSWORD` begins.
//! Lines: `token HEX`, `done NAME HEXKEY`, `error TEXT`. An empty token is an empty line.

use std::io::{BufRead, Write};
use std::sync::Arc;

use base16ct::{lower::encode_string as hex, mixed::decode_vec};
use smb_auth::*;

fn unhex(text: &str) -> Result<Vec<u8>, AuthError> {
    decode_vec(text).map_err(|_| AuthError::NotSupported("a line that is not hexadecimal"))
}

fn say(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

// Not random at all, which is acceptable because this is a test tool.
fn random(buffer: &mut [u8]) {
    for (i, b) in buffer.iter_mut().enumerate() {
        *b = u8::try_from(i % 251).unwrap_or(0) ^ 0x3c;
    }
}

fn accept(user: &str, password: &str) -> Result<(), AuthError> {
    let mut db = UserDb::new(MachineSid([1, 2, 3]));
    let _ = db.add_user(user);
    let _ = db.set_password(user, Some(NtHash::from_password(password)), 1);
    let params = AcceptorParams {
        netbios_computer: "SERVER".into(),
        netbios_domain: "WORKGROUP".into(),
        dns_computer: "server.example".into(),
        dns_domain: "example".into(),
        allow_empty_passwords: false,
    };
    let mut acceptor = Acceptor::new(Arc::new(params));
    let mut source = random;
    say(&format!("token {}", hex(&Acceptor::negotiate_hint())));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut env = AuthEnv {
            now_filetime: 134_000_000_000_000_000,
            users: &db,
            random: &mut source,
            gate: &OpenGate,
        };
        match acceptor.step(&unhex(&line)?, &mut env)? {
            AuthStep::Continue(token) => say(&format!("token {}", hex(&token))),
            AuthStep::Done {
                token,
                identity,
                session_key,
            } => {
                say(&format!("token {}", hex(&token.unwrap_or_default())));
                let name = match identity {
                    PeerIdentity::Anonymous => "(anonymous)".to_owned(),
                    PeerIdentity::User(user) => user.name,
                };
                say(&format!("done {name} {}", hex(session_key.as_bytes())));
                return Ok(());
            }
        }
    }
    Err(AuthError::OutOfSequence)
}

fn initiate(user: &str, password: &str) -> Result<(), AuthError> {
    let credentials = if user.is_empty() {
        Credentials::Anonymous
    } else {
        Credentials::password(user, "WORKGROUP", password)
    };
    let mut initiator = Initiator::new(InitiatorParams {
        credentials,
        workstation: "CLIENT".into(),
        target_spn: Some("cifs/server".into()),
    });
    let mut source = random;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match initiator.step(&unhex(&line)?, 134_000_000_000_000_000, &mut source)? {
            Some(token) => say(&format!("token {}", hex(&token))),
            None => {
                let key = initiator.session_key().map(|k| hex(k.as_bytes()));
                say(&format!("done {user} {}", key.unwrap_or_default()));
                return Ok(());
            }
        }
    }
    Err(AuthError::OutOfSequence)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["accept", user, password] => accept(user, password),
        ["initiate", user, password] => initiate(user, password),
        _ => Err(AuthError::NotSupported(
            "usage: auth_pipe accept|initiate USER PASSWORD",
        )),
    };
    if let Err(error) = result {
        say(&format!("error {error}"));
    }
}
