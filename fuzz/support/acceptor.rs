//! A server to which any bytes come as tokens.

use std::sync::Arc;

use smb_auth::{Acceptor, AcceptorParams};

pub(crate) fn acceptor() -> Acceptor {
    Acceptor::new(Arc::new(AcceptorParams {
        netbios_computer: "S".into(),
        netbios_domain: "D".into(),
        dns_computer: "s".into(),
        dns_domain: String::new(),
        allow_empty_passwords: true,
    }))
}
