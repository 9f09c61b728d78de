//! The policy of an open, by its client, user, path and flags: the first rule of a share that matches decides.
//!
//! `dirty/share.rs` knows the opens of an inode and lets the strictest decide for it; `policy.rs` says what a
//! policy means. Every list is limited by a named constant.

use std::{fmt, net::IpAddr, ops::RangeInclusive, sync::Arc};

use vfs::fold;

use super::{
    patterns::{PathPattern, components},
    policy::{InvalidPolicy, Policy},
};

/// The facts about an open that rules look at. Made once per open and shared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opener {
    /// Address of the client, if it has one.
    pub client: Option<IpAddr>,
    /// Account name; empty for anonymous.
    pub user: Box<str>,
    /// Groups of the account as far as the server knows them, as rules name them.
    pub groups: Arc<[Box<str>]>,
    /// Dialect of the connection, as on the wire: 0x0202 to 0x0311.
    pub dialect: u16,
    /// Path from the share's root, `/` between components, without the stream; empty for the root.
    pub path: Box<str>,
    /// Opened with FILE_WRITE_THROUGH.
    pub write_through: bool,
    /// Opened with FILE_NO_INTERMEDIATE_BUFFERING.
    pub unbuffered: bool,
}

/// One rule. An empty criterion holds for every open; all that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// The name that an administrator knows it by, such as `rule 2 (holdfast.toml:41)`.
    pub name: String,
    /// Addresses, one of which the client has.
    pub clients: Vec<Network>,
    /// Account names, one of which is the user's; case does not count.
    pub users: Vec<String>,
    /// Groups, one of which the account is in; case does not count.
    pub groups: Vec<String>,
    /// Dialects as on the wire.
    pub dialects: Option<RangeInclusive<u16>>,
    /// Patterns, one of which the path matches.
    pub paths: Vec<PathPattern>,
    /// Opened with FILE_WRITE_THROUGH, or not.
    pub write_through: Option<bool>,
    /// Opened with FILE_NO_INTERMEDIATE_BUFFERING, or not.
    pub unbuffered: Option<bool>,
    /// The policy of the opens for which the rule holds.
    pub policy: Policy,
    /// Whether a FLUSH covers the times of a file whose contents changed; `None`: as the share's setting says.
    pub flush_times: Option<bool>,
}

impl Rule {
    /// Whether the rule is for this open; `path` is the opener's, folded, by components.
    fn holds(&self, opener: &Opener, path: &[Vec<char>]) -> bool {
        let same = |a: &str, b: &str| a == b || fold(a) == fold(b);
        let any = |names: &[String], name: &str| names.iter().any(|known| same(known, name));
        let client = |ip: IpAddr| self.clients.iter().any(|network| network.contains(ip));
        let flag = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
        (self.clients.is_empty() || opener.client.is_some_and(client))
            && (self.users.is_empty() || any(&self.users, &opener.user))
            && (self.groups.is_empty() || opener.groups.iter().any(|g| any(&self.groups, g)))
            && (self.dialects.as_ref()).is_none_or(|range| range.contains(&opener.dialect))
            && flag(self.write_through, opener.write_through)
            && flag(self.unbuffered, opener.unbuffered)
            && (self.paths.is_empty() || self.paths.iter().any(|p| p.holds(path)))
    }
}

/// The policy of an open, and the rule that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The policy.
    pub policy: Policy,
    /// The rule that says so; `None`: the share's own policy.
    pub rule: Option<Arc<Rule>>,
}

impl PolicyDecision {
    /// Whether a FLUSH covers the times of a file whose contents changed. `share` is the share's own setting.
    #[must_use]
    pub fn flushes_times(&self, share: bool) -> bool {
        let own = self.rule.as_ref().and_then(|rule| rule.flush_times);
        self.policy.flushes_times(own.unwrap_or(share))
    }
}

/// The rules of a share, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules(Vec<Arc<Rule>>);

impl Rules {
    /// Most rules of a share.
    pub const RULES_MAX: usize = 256;
    /// Most entries of one criterion of a rule.
    pub const ENTRIES_MAX: usize = 256;

    /// Rules in this order. Fails if they are more than [`Rules::RULES_MAX`] or [`Rules::ENTRIES_MAX`] allow.
    pub fn new(rules: Vec<Rule>) -> Result<Self, InvalidPolicy> {
        if rules.len() > Self::RULES_MAX {
            return Err(InvalidPolicy("a share has at most 256 policy rules"));
        }
        let too_long = |rule: &Rule| {
            let names = rule.users.len().max(rule.groups.len());
            names.max(rule.clients.len()).max(rule.paths.len()) > Self::ENTRIES_MAX
        };
        if rules.iter().any(too_long) {
            return Err(InvalidPolicy(
                "a criterion of a policy rule has at most 256 entries",
            ));
        }
        Ok(Self(rules.into_iter().map(Arc::new).collect()))
    }

    /// The rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The policy of an open: the one of the first rule that matches the open, or the share's if none does.
    pub fn decide(&self, share: Policy, opener: &Opener) -> PolicyDecision {
        let rule = self.find(opener).cloned();
        let policy = rule.as_ref().map_or(share, |rule| rule.policy);
        PolicyDecision { policy, rule }
    }

    pub(crate) fn find(&self, opener: &Opener) -> Option<&Arc<Rule>> {
        let path = if self.0.iter().any(|rule| !rule.paths.is_empty()) {
            components(&opener.path)
        } else {
            Vec::new()
        };
        self.0.iter().find(|rule| rule.holds(opener, &path))
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// An address within the range.
    pub address: IpAddr,
    /// Leading bits that must agree.
    pub prefix: u8,
}

impl Network {
    /// Whether the address lies within. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let same = |a: u128, b: u128, bits: u32| {
            let ignored = bits - u32::from(self.prefix).min(bits);
            a.checked_shr(ignored) == b.checked_shr(ignored)
        };
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}
