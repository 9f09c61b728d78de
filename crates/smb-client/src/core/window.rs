//! Message ids and credits of the client ([MS-SMB2] 3.2.4.1.2, 3.2.4.1.6, 3.2.5.1.4).
//!
//! Ids are used in order, as many as a request is charged. Every reply can grant credits.

use smb_wire::ids::MessageId;

use crate::error::ClientError;

/// The ids and credits of a connection. It starts with id 0 and one credit.
#[derive(Debug)]
pub(super) struct CreditWindow {
    next: u64,
    available: u32,
}

impl CreditWindow {
    pub(super) fn new() -> Self {
        Self {
            next: 0,
            available: 1,
        }
    }

    pub(super) fn available(&self) -> u32 {
        self.available
    }

    pub(super) fn next(&self) -> MessageId {
        MessageId(self.next)
    }

    /// Uses `charge` ids and credits; the first id becomes the request's. With `force` the ids are
    /// used even if there are not enough credits.
    pub(super) fn take(&mut self, charge: u16, force: bool) -> Result<MessageId, ClientError> {
        let needed = u32::from(charge.max(1));
        if needed > self.available && !force {
            return Err(ClientError::NoCredits {
                needed,
                available: self.available,
            });
        }
        self.available = self.available.saturating_sub(needed);
        let id = MessageId(self.next);
        self.next = self.next.saturating_add(u64::from(needed));
        Ok(id)
    }

    pub(super) fn grant(&mut self, credits: u16) {
        self.available = self.available.saturating_add(u32::from(credits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_with_credits() {
        let mut window = CreditWindow::new();
        assert_eq!(window.take(1, false).unwrap(), MessageId(0));
        assert!(matches!(
            window.take(1, false),
            Err(ClientError::NoCredits {
                needed: 1,
                available: 0
            })
        ));
        assert_eq!(window.take(1, true).unwrap(), MessageId(1));
        window.grant(4);
        assert_eq!(window.take(3, false).unwrap(), MessageId(2));
        assert!(window.take(2, false).is_err());
        assert_eq!(window.take(0, false).unwrap(), MessageId(5));
        assert_eq!(window.available(), 0);
    }
}
