//! The facts of a connection that decide how its received messages are cut, decrypted, verified and admitted.

use std::sync::Arc;

use smb_crypto::SigningKey;
use smb_wire::{
    codec::size,
    header::{Header, TRANSPORT_LENGTH_MAX},
    ids::SessionId,
};
use vfs::Vfs;

use super::Connection;
use crate::{
    limits::{COMPOUND_OVERHEAD_MAX, NEGOTIATE_BYTES_MAX, REQUEST_OVERHEAD_MAX},
    link::{
        inbound::{Keys, PLAIN_REQUEST_MAX},
        misbehaved::Misbehaved,
        sealing::Sealing,
    },
};

impl<V: Vfs> Connection<V> {
    /// The longest message that may arrive now.
    pub(crate) fn frame_max(&self) -> usize {
        // Before a login, clients send little: negotiation and tokens.
        let Some(facts) = self.negotiated().filter(|_| !self.is_a_strangers()) else {
            return NEGOTIATE_BYTES_MAX;
        };
        if !facts.multi_credit {
            return PLAIN_REQUEST_MAX;
        }
        let most = self.request_max().saturating_add(COMPOUND_OVERHEAD_MAX);
        most.min(TRANSPORT_LENGTH_MAX)
    }
}

impl<V: Vfs> Keys for Connection<V> {
    fn admit(&self, request: &Header) -> Result<(), Misbehaved> {
        let multi = self.negotiated().is_some_and(|facts| facts.multi_credit);
        let charge = if multi { request.credit_charge } else { 1 };
        let mut credits = self.credits.borrow_mut();
        credits.admit(request.message_id.0, charge)
    }

    fn request_max(&self) -> usize {
        let facts = self.negotiated().filter(|facts| facts.multi_credit);
        facts.map_or(PLAIN_REQUEST_MAX, |facts| {
            size(facts.io_bytes).saturating_add(REQUEST_OVERHEAD_MAX)
        })
    }

    fn signing(&self, session: SessionId) -> Option<Option<Arc<SigningKey>>> {
        let channels = self.channels.borrow();
        Some(channels.get(&session)?.signing.clone())
    }

    fn unseal(
        &self,
        session: SessionId,
        open: impl FnOnce(&Sealing) -> Result<(), Misbehaved>,
    ) -> Result<(), Misbehaved> {
        let channel = self.channel(session);
        let channel = channel.ok_or(Misbehaved::Encryption("unknown session"))?;
        // [MS-SMB2] 3.3.5.2.1.1: everybody knows the keys of an anonymous session.
        if channel.session.established.anonymous && self.is_constrained() {
            return Err(Misbehaved::Encryption("nobody has authenticated"));
        }
        let sealing = channel.session.sealing.as_ref();
        open(sealing.ok_or(Misbehaved::Encryption("session has no keys"))?)
    }
}
