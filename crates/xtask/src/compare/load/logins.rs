//! New connections, and further sessions on a live one.

use std::time::Instant;

use smb_client::Client;

use super::{Context, Done, Protection, Ready, connect, micros};
use crate::Failure;

/// TCP, NEGOTIATE, NTLM, TREE_CONNECT, LOGOFF, and the end of the connection.
pub(super) fn connections(count: u64, context: &Context<'_>) -> Result<Ready, Failure> {
    let access = context.access.clone();
    Ok(Ready::new(move || {
        let mut latencies = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            let client = Client::connect(access.address(), Protection::Plain.options())?;
            let session = client.login(&access.user, &access.password, "")?;
            session.tree(&access.share)?;
            session.logoff()?;
            latencies.push(micros(begun));
        }
        // Nothing is kept: the end of each connection belongs to its cost.
        Ok(Done::new(count as f64).latencies(latencies))
    }))
}

/// NTLM, TREE_CONNECT and LOGOFF beside a session that stays.
pub(super) fn sessions(count: u64, context: &Context<'_>) -> Result<Ready, Failure> {
    let access = context.access.clone();
    let tree = connect(&access, Protection::Plain)?;
    Ok(Ready::new(move || {
        let mut latencies = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            let session = tree.client().login(&access.user, &access.password, "")?;
            session.tree(&access.share)?;
            session.logoff()?;
            latencies.push(micros(begun));
        }
        Ok(Done::new(count as f64).latencies(latencies).keep(tree))
    }))
}
