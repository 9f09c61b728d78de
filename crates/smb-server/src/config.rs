//! The configuration of the protocol core and its shares: plain values, already validated.
//!
//! The daemon makes these from its configuration file; tests and the simulator make them by hand. A snapshot is
//! never changed in place: a reload replaces it.

use std::{collections::BTreeMap, net::IpAddr};

use durability::Network;
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_wire::{dtyp::Sid, ids::Guid, msg::Dialect};

use crate::limits::ServerLimits;
pub use crate::local_accounts::LocalAccounts;

/// The server as a whole.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// NetBIOS computer name, upper case.
    pub netbios_name: String,
    /// NetBIOS domain or workgroup, upper case.
    pub workgroup: String,
    /// DNS name.
    pub dns_name: String,
    /// Text shown beside the server's name.
    pub comment: String,
    /// The model of the machine that is sent to Macs when they ask; if empty, none is sent.
    pub apple_model: String,
    /// ServerGuid of NEGOTIATE; stable across restarts.
    pub server_guid: Guid,
    /// The machine's SID, the domain of its users and groups.
    pub machine_sid: Sid,
    /// Lowest dialect spoken.
    pub dialect_min: Dialect,
    /// Highest dialect spoken.
    pub dialect_max: Dialect,
    /// Every session must sign (or encrypt).
    pub signing_required: bool,
    /// Sessions without encryption are refused. Where this is false, encryption is offered to every client that
    /// supports it, and used where a share or the client requires it.
    pub encryption_required: bool,
    /// Ciphers, the most wanted first.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms of 3.1.1, the most wanted first.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// Whether a user whose stored password is empty may log in.
    pub allow_empty_passwords: bool,
    /// Whether an anonymous session may list the shares even if none of them allows guests.
    pub anonymous_listing: bool,
    /// RID of the group whose members may see and end sessions and opens by remote administration; `None`: nobody.
    pub administrators: Option<u32>,
    /// Users bound to a local uid and gid act as those on disk (the server runs as root).
    pub switch_identity: bool,
    /// Uid and gid on disk of everybody who has none of his own, guests included. Where identities are switched they
    /// are the guest account's; otherwise they are the service's and apply to everybody.
    pub guest_ids: (u32, u32),
    /// Supplementary groups of local users, by uid; a user bound to such a uid has them on disk.
    pub local_groups: BTreeMap<u32, Vec<u32>>,
    /// The accounts that local users and groups stand for.
    pub local_accounts: LocalAccounts,
    /// Limits.
    pub limits: ServerLimits,
}

/// The addresses from which something may be used. Deny takes precedence; an empty allow list allows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRules {
    /// Allowed ranges; empty: every address.
    pub allow: Vec<Network>,
    /// Denied ranges.
    pub deny: Vec<Network>,
}

impl HostRules {
    /// Whether any address is excluded.
    pub fn limits(&self) -> bool {
        !self.allow.is_empty() || !self.deny.is_empty()
    }

    /// Whether `peer` is allowed.
    pub fn admits(&self, peer: IpAddr) -> bool {
        !self.deny.iter().any(|range| range.contains(peer))
            && (self.allow.is_empty() || self.allow.iter().any(|range| range.contains(peer)))
    }
}

/// One share of a folder. IPC$ needs no configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareConfig {
    /// Name as shown; compared without case.
    pub name: String,
    /// Text shown beside the name.
    pub comment: String,
    /// Nothing on it may be changed.
    pub read_only: bool,
    /// Users who may connect (names without case); `None`: every user.
    pub users: Option<Vec<String>>,
    /// RIDs of groups whose members may connect besides `users`.
    pub group_rids: Vec<u32>,
    /// Users without an account may connect, as guest.
    pub guest: bool,
    /// Uid and gid under which everybody acts on the share, and which own all new objects there; only where
    /// [`ServerConfig::switch_identity`] holds.
    pub act_as: Option<(u32, u32)>,
    /// Only encrypted sessions may use it.
    pub encryption_required: bool,
    /// Opens may be persistent: recorded so that they outlive a crash of the server (Share.IsCA).
    /// Its durability policy must write through.
    pub continuous_availability: bool,
    /// The share is listed by share enumeration.
    pub browseable: bool,
    /// Entries that the user may not open for generic read are left out of listings.
    pub access_based_enumeration: bool,
    /// Whether changes by other programs on the host are watched: caching is broken and watchers are notified.
    pub host_changes: bool,
    /// Addresses that may connect.
    pub hosts: HostRules,
    /// The path of the folder on the host, without links, if it is known: shares that lie in one another are found by
    /// it.
    pub folder: Option<Vec<u8>>,
}

impl ShareConfig {
    /// A share with the defaults: every user, read and write.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            comment: String::new(),
            read_only: false,
            users: None,
            group_rids: Vec::new(),
            guest: false,
            act_as: None,
            encryption_required: false,
            continuous_availability: false,
            browseable: true,
            access_based_enumeration: false,
            host_changes: true,
            hosts: HostRules::default(),
            folder: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str, prefix: u8) -> Network {
        let address = text.parse().unwrap();
        Network { address, prefix }
    }

    #[test]
    fn deny_wins_and_an_empty_allow_list_allows_all() {
        let mut rules = HostRules::default();
        assert!(rules.admits("1.2.3.4".parse().unwrap()));
        rules.deny.push(range("1.2.3.4", 32));
        assert!(!rules.admits("1.2.3.4".parse().unwrap()));
        rules.allow.push(range("1.2.3.0", 24));
        assert!(!rules.admits("1.2.3.4".parse().unwrap()));
        assert!(rules.admits("1.2.3.5".parse().unwrap()));
        assert!(!rules.admits("1.2.4.5".parse().unwrap()));
    }
}
