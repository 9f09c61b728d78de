//! Policy by who opens what and how: rules of a share, tried in order, first match wins.
//!
//! Owns the rules, what an open says about itself ([`Opener`]), and the decision between them.
//! Which opens an inode has, and that the strictest decides for it, is `opens.rs`; what a policy
//! means is `policy.rs`. Patterns are validated by parsing; every list is limited
//! by a named constant, and a pattern takes at most its length times that of the path to match.

use std::{fmt, net::IpAddr, ops::RangeInclusive, str::FromStr, sync::Arc};

use vfs::fold;

use super::settings::{InvalidPolicy, Policy, ShareDurability};

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
    /// Path from the share's root, `/` between components, without the stream; empty for the
    /// root.
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
    /// Account names, one of which it is; case does not count.
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
    /// The policy of the opens that it holds for.
    pub policy: Policy,
    /// Whether a FLUSH covers the times of a file whose contents changed; `None`: as the share has it.
    pub flush_times: Option<bool>,
}

/// The settings that a rule gives to the opens that it holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RuleTerms {
    pub(crate) policy: Policy,
    pub(crate) flush_times: Option<bool>,
}

impl Rule {
    pub(crate) fn terms(&self) -> RuleTerms {
        RuleTerms {
            policy: self.policy,
            flush_times: self.flush_times,
        }
    }

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
pub struct Decision {
    /// The policy.
    pub policy: Policy,
    /// The rule that says so; `None`: the share's own policy.
    pub rule: Option<Arc<Rule>>,
}

impl Decision {
    /// Whether a FLUSH covers the times of a file whose contents changed, on a share that has it so.
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

    /// Rules in this order, if they keep the limits.
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

    /// The policy of an open: that of the first rule that holds, otherwise that of the share.
    pub fn decide(&self, share: Policy, opener: &Opener) -> Decision {
        let rule = self.find(opener).cloned();
        let policy = rule.as_ref().map_or(share, |rule| rule.policy);
        Decision { policy, rule }
    }

    /// The first rule that holds.
    pub(crate) fn find(&self, opener: &Opener) -> Option<&Arc<Rule>> {
        let path = if self.0.iter().any(|rule| !rule.paths.is_empty()) {
            components(&opener.path)
        } else {
            Vec::new()
        };
        self.0.iter().find(|rule| rule.holds(opener, &path))
    }

    /// Whether a continuously available share may have these rules; if not, which one is in the
    /// way: its handles promise write-through.
    pub fn check_continuous_availability(&self) -> Result<(), (Arc<Rule>, InvalidPolicy)> {
        self.0.iter().try_for_each(|rule| {
            ShareDurability::with_policy(rule.policy)
                .check_continuous_availability()
                .map_err(|error| (Arc::clone(rule), error))
        })
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

/// A pattern over paths from the share's root, without regard to case. `*` stands for any
/// characters of one component and `?` for one; `**` as a whole component stands for any number
/// of components, none included. Without `/` it is matched against the last component wherever
/// that is; with one (a leading `/` says no more than that) against the whole path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    /// `None` is `**`.
    parts: Vec<Option<Vec<char>>>,
    anywhere: bool,
}

impl PathPattern {
    /// Longest pattern, in bytes.
    pub const LENGTH_MAX: usize = 1024;

    /// Whether the path (`/` between its components) matches.
    pub fn matches(&self, path: &str) -> bool {
        self.holds(&components(path))
    }

    fn holds(&self, path: &[Vec<char>]) -> bool {
        let last = path.len().saturating_sub(1);
        let from = if self.anywhere { last } else { 0 };
        wild(
            &self.parts,
            path.get(from..).unwrap_or_default(),
            |part| part.is_none(),
            |part, component| {
                part.as_ref().is_some_and(|part| {
                    wild(part, component, |c| *c == '*', |p, c| *p == '?' || p == c)
                })
            },
        )
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for PathPattern {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        if text.len() > Self::LENGTH_MAX {
            return Err(InvalidPolicy("a path pattern has at most 1024 bytes"));
        }
        if text.contains('\\') {
            return Err(InvalidPolicy(
                "components of a path pattern are divided by /",
            ));
        }
        let part = |part: &str| match part {
            "**" => Ok(None),
            "" | "." | ".." => Err(InvalidPolicy(
                "a component of a path pattern is empty, . or ..",
            )),
            _ if part.contains("**") => Err(InvalidPolicy("** stands alone between slashes")),
            _ if part.contains(|c: char| c.is_control()) => {
                Err(InvalidPolicy("a path pattern has no control characters"))
            }
            _ => Ok(Some(fold(part).chars().collect())),
        };
        let whole = text.strip_prefix('/').unwrap_or(text);
        Ok(Self {
            text: text.to_owned(),
            parts: whole.split('/').map(part).collect::<Result<_, _>>()?,
            anywhere: !text.contains('/') && text != "**",
        })
    }
}

fn components(path: &str) -> Vec<Vec<char>> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| fold(part).chars().collect()).collect()
}

/// Matches with wild cards for any run of items. Of several wild cards only the last one passed
/// is ever tried again, so the work is at most the product of the two lengths.
fn wild<P, T>(
    pattern: &[P],
    text: &[T],
    is_run: impl Fn(&P) -> bool,
    is_one: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut t) = (0, 0);
    // After the last run passed: where the pattern goes on, and where its text began.
    let mut again: Option<(usize, usize)> = None;
    while let Some(item) = text.get(t) {
        match pattern.get(p) {
            Some(part) if is_run(part) => {
                p += 1;
                again = Some((p, t));
            }
            Some(part) if is_one(part, item) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after, begun)) = again else {
                    return false;
                };
                // The run takes one more.
                p = after;
                t = begun + 1;
                again = Some((after, t));
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(is_run)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        text.parse().unwrap()
    }

    #[test]
    fn patterns() {
        for (p, yes, no) in [
            (
                "*.mdb",
                &["a.mdb", "x/y/B.MDB", ".mdb"][..],
                &["a.mdb/x", "mdb", ""][..],
            ),
            (
                "scratch/**",
                &["scratch", "Scratch/a", "scratch/a/b"],
                &["x/scratch", "scratchy"],
            ),
            ("/top", &["top", "TOP"], &["a/top", "top/a"]),
            ("a/*/c", &["a/b/c"], &["a/c", "a/b/b/c"]),
            ("a/**/c", &["a/c", "a/b/c", "a/b/b/c"], &["a/b", "c"]),
            (
                "**/db/*.log",
                &["db/1.log", "x/y/db/2.log"],
                &["db/x/1.log"],
            ),
            ("**", &["", "a", "a/b"], &[]),
            ("?", &["a", "x/ä"], &["ab", ""]),
            ("straße", &["STRAßE"], &["STRASSE"]),
        ] {
            for path in yes {
                assert!(pattern(p).matches(path), "{p} {path}");
            }
            for path in no {
                assert!(!pattern(p).matches(path), "{p} {path}");
            }
        }
        let long = "a".repeat(PathPattern::LENGTH_MAX + 1);
        for bad in [
            "", "/", "a//b", "a/", "../a", "a\\b", "a**", "x/**y/z", "\u{0}", &long,
        ] {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_worst_pattern_takes_no_more_than_the_product() {
        let p = pattern(&"*a".repeat(500));
        assert!(!p.matches(&"a".repeat(100_000).replace('a', "ab")));
        let p = pattern(&("**/a/".repeat(200) + "c"));
        assert!(!p.matches(&"b/a/".repeat(20_000)));
    }

    /// The obvious matcher, exponential.
    fn naive(p: &[char], t: &[char]) -> bool {
        match (p.first(), t.first()) {
            (None, None) => true,
            (Some('*'), _) => naive(&p[1..], t) || (!t.is_empty() && naive(p, &t[1..])),
            (Some('?'), Some(_)) => naive(&p[1..], &t[1..]),
            (Some(a), Some(b)) => a == b && naive(&p[1..], &t[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn wild_cards_match_as_the_obvious_matcher(p in "[ab?*]{0,8}", t in "[ab]{0,8}") {
            let (p, t): (Vec<char>, Vec<char>) = (p.chars().collect(), t.chars().collect());
            let fast = wild(&p, &t, |c| *c == '*', |p, c| *p == '?' || p == c);
            prop_assert_eq!(fast, naive(&p, &t));
        }

        #[test]
        fn any_text_is_a_pattern_or_refused(p in "\\PC{0,40}", t in "\\PC{0,40}") {
            if let Ok(p) = p.parse::<PathPattern>() {
                p.matches(&t);
                prop_assert_eq!(p.to_string().parse::<PathPattern>().unwrap(), p);
            }
        }
    }

    fn net(address: &str, prefix: u8) -> Network {
        let address = address.parse().unwrap();
        Network { address, prefix }
    }

    #[test]
    fn networks() {
        for (network, inside, outside) in [
            (net("10.1.0.0", 16), "10.1.255.3", "10.2.0.1"),
            (net("10.1.0.0", 16), "::ffff:10.1.2.3", "::10.1.2.3"),
            (net("10.1.2.128", 25), "10.1.2.200", "10.1.2.100"),
            (net("127.0.0.1", 32), "::ffff:127.0.0.1", "127.0.0.2"),
            (net("0.0.0.0", 0), "8.8.8.8", "::1"),
            (net("fe80::", 10), "febf::1", "127.0.0.1"),
            (net("::", 0), "fe80::1", "::ffff:1.2.3.4"),
            (net("::1", 128), "::1", "::2"),
        ] {
            assert!(network.contains(inside.parse().unwrap()), "{inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{outside}");
        }
    }

    fn rule(name: &str, policy: &str) -> Rule {
        Rule {
            name: name.to_owned(),
            policy: policy.parse().unwrap(),
            ..Rule::default()
        }
    }

    #[test]
    fn the_first_rule_all_of_whose_criteria_hold_decides() {
        let rules = Rules::new(vec![
            Rule {
                clients: vec![net("10.0.0.0", 8)],
                users: vec!["Anna".to_owned()],
                dialects: Some(0x300..=0x311),
                ..rule("one", "strict-sync")
            },
            Rule {
                paths: vec![pattern("scratch/**"), pattern("*.tmp")],
                groups: vec!["staff".to_owned()],
                ..rule("two", "treat-host-as-stable-storage")
            },
            Rule {
                write_through: Some(true),
                unbuffered: Some(false),
                ..rule("three", "bounded:50ms,4MiB")
            },
        ])
        .unwrap();
        let opener = Opener {
            client: Some("10.2.3.4".parse().unwrap()),
            user: "ANNA".into(),
            groups: Arc::from(["Staff".into(), "wheel".into()]),
            dialect: 0x311,
            path: "scratch/a".into(),
            write_through: false,
            unbuffered: false,
        };
        let why = |opener: Opener| {
            let decision = rules.decide(Policy::Honor, &opener);
            decision
                .rule
                .map_or("share".to_owned(), |rule| rule.name.clone())
        };
        assert_eq!(why(opener.clone()), "one");
        let old = Opener {
            dialect: 0x210,
            ..opener.clone()
        };
        assert_eq!(why(old.clone()), "two");
        let local = Opener {
            client: None,
            ..opener.clone()
        };
        assert_eq!(why(local), "two");
        let alone = Opener {
            groups: Arc::from([]),
            ..old.clone()
        };
        assert_eq!(why(alone.clone()), "share");
        let through = Opener {
            write_through: true,
            ..alone.clone()
        };
        assert_eq!(why(through.clone()), "three");
        assert_eq!(
            why(Opener {
                unbuffered: true,
                ..through
            }),
            "share"
        );
        assert_eq!(
            rules.decide(Policy::StrictSync, &alone).policy,
            Policy::StrictSync
        );
        let (in_the_way, _) = rules.check_continuous_availability().unwrap_err();
        assert_eq!(in_the_way.name, "two");
    }

    #[test]
    fn rules_have_limits() {
        let one = rule("r", "honor");
        assert!(Rules::new(vec![one.clone(); Rules::RULES_MAX]).is_ok());
        assert!(Rules::new(vec![one.clone(); Rules::RULES_MAX + 1]).is_err());
        let users = vec![String::new(); Rules::ENTRIES_MAX + 1];
        assert!(Rules::new(vec![Rule { users, ..one }]).is_err());
    }
}
