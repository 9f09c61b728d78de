//! "The Nth call of kind K on pattern P": which call is hit, and by what.
//!
//! Every rule counts the calls that fit it, from when it was added; it acts from the `nth` on,
//! `count` times (0: for ever). When several act on one call the oldest wins, the others count
//! on. At most [`RULES_MAX`] at a time.

use crate::kind::{Kind, Kinds};
use vfs::sim::Cut;

/// Most rules at a time.
pub const RULES_MAX: usize = 256;

/// The effect on a call that a rule hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It fails with this errno and changes nothing. A sync that fails does as on Linux: waiting
    /// changes are lost by chance and count as clean, and every descriptor reports the error once.
    Fail(i32),
    /// It takes place, and its caller gets this errno.
    Done(i32),
    /// It takes place after so many milliseconds.
    Delay(u64),
    /// It waits for `release`.
    Hang,
    /// Of a write so many bytes arrive, then it fails with EIO.
    Tear(usize),
    /// A write or read does half of what was asked and says so.
    Short,
    /// The power goes just before it.
    Cut(Cut),
    /// The power goes just after it; its caller gets no answer.
    CutAfter(Cut),
}

const ERRNOS: [(&str, i32); 12] = [
    ("EIO", libc::EIO),
    ("ENOSPC", libc::ENOSPC),
    ("EDQUOT", libc::EDQUOT),
    ("EROFS", libc::EROFS),
    ("EACCES", libc::EACCES),
    ("EPERM", libc::EPERM),
    ("ENOENT", libc::ENOENT),
    ("EMFILE", libc::EMFILE),
    ("ENOMEM", libc::ENOMEM),
    ("EINTR", libc::EINTR),
    ("EAGAIN", libc::EAGAIN),
    ("ESTALE", libc::ESTALE),
];

/// An errno by its name.
///
/// # Errors
/// The word, when it is none of the few known here.
pub fn errno(name: &str) -> Result<i32, String> {
    ERRNOS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
        .ok_or_else(|| format!("no errno: {name}"))
}

/// How to cut: `nothing` or `everything` of what waits survives, or a seed's choice.
///
/// # Errors
/// The word, when it is neither.
pub fn cut(text: &str) -> Result<Cut, String> {
    match text {
        "nothing" => Ok(Cut::Nothing),
        "everything" => Ok(Cut::Everything),
        _ => number(text).map(Cut::Seed),
    }
}

/// A number.
///
/// # Errors
/// The word, when it is none.
pub fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("no number: {text}"))
}

impl Action {
    /// `EIO`, `done:EIO`, `delay:MS`, `hang`, `tear:BYTES`, `short`, `cut:HOW`, `cut-after:HOW`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (verb, value) = text.split_once(':').unwrap_or((text, ""));
        match verb {
            "done" => errno(value).map(Self::Done),
            "delay" => number(value).map(Self::Delay),
            "hang" => Ok(Self::Hang),
            "tear" => number(value).map(|n| Self::Tear(usize::try_from(n).unwrap_or(0))),
            "short" => Ok(Self::Short),
            "cut" => cut(value).map(Self::Cut),
            "cut-after" => cut(value).map(Self::CutAfter),
            _ => errno(text).map(Self::Fail),
        }
    }
}

/// A rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its number.
    pub id: u64,
    kinds: Kinds,
    pattern: String,
    nth: u64,
    count: u64,
    action: Action,
    /// Calls that fitted so far.
    pub seen: u64,
    /// Calls that were hit so far.
    pub hits: u64,
    /// The last call that was hit.
    pub victim: String,
}

impl Rule {
    /// `KINDS PATTERN NTH COUNT ACTION`. The pattern is matched with whole paths such as
    /// `/dir/file`; `*` is any run of bytes.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(id: u64, text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [kinds, pattern, nth, count, action] = words[..] else {
            return Err("a rule is KINDS PATTERN NTH COUNT ACTION".to_owned());
        };
        Ok(Self {
            id,
            kinds: Kinds::parse(kinds)?,
            pattern: pattern.to_owned(),
            nth: number(nth)?.max(1),
            count: number(count)?,
            action: Action::parse(action)?,
            seen: 0,
            hits: 0,
            victim: String::new(),
        })
    }

    fn fits(&self, kind: Kind, paths: &[String]) -> bool {
        self.kinds.contains(kind)
            && paths
                .iter()
                .any(|path| matches(self.pattern.as_bytes(), path.as_bytes()))
    }
}

/// Whether `text` fits `pattern`, in which `*` is any run of bytes.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => {
            (0..=text.len()).any(|at| text.get(at..).is_some_and(|tail| matches(rest, tail)))
        }
        Some((byte, rest)) => text
            .split_first()
            .is_some_and(|(first, tail)| first == byte && matches(rest, tail)),
    }
}

/// The rules in force, oldest first.
#[derive(Debug, Default)]
pub struct Plan {
    rules: Vec<Rule>,
    next: u64,
}

impl Plan {
    /// Adds a rule; its number.
    ///
    /// # Errors
    /// Says what is wrong with it, or that there are too many.
    pub fn add(&mut self, text: &str) -> Result<u64, String> {
        if self.rules.len() >= RULES_MAX {
            return Err(format!("{RULES_MAX} rules are enough"));
        }
        self.next += 1;
        self.rules.push(Rule::parse(self.next, text)?);
        Ok(self.next)
    }

    /// Removes one, or all.
    pub fn clear(&mut self, id: Option<u64>) {
        self.rules.retain(|rule| id.is_some_and(|id| rule.id != id));
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Counts a call; what happens to it.
    pub fn hit(&mut self, kind: Kind, paths: &[String]) -> Option<Action> {
        let mut action = None;
        for rule in &mut self.rules {
            if !rule.fits(kind, paths) {
                continue;
            }
            rule.seen += 1;
            let acts =
                rule.seen >= rule.nth && (rule.count == 0 || rule.seen < rule.nth + rule.count);
            if acts && action.is_none() {
                rule.hits += 1;
                rule.victim = format!("{} {}", kind.name(), paths.join(" "));
                action = Some(rule.action);
            }
        }
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_of_a_kind_on_a_pattern_is_hit() {
        let mut plan = Plan::default();
        let id = plan.add("write,fsync /d/*.db 2 1 EIO").unwrap();
        let mut hit = |kind, path: &str| plan.hit(kind, &[path.to_owned()]);
        assert_eq!(hit(Kind::Write, "/d/a.db"), None);
        assert_eq!(hit(Kind::Write, "/e/a.db"), None);
        assert_eq!(hit(Kind::Create, "/d/a.db"), None);
        assert_eq!(hit(Kind::Fsync, "/d/b.db"), Some(Action::Fail(libc::EIO)));
        assert_eq!(hit(Kind::Fsync, "/d/b.db"), None);
        assert_eq!(plan.rules()[0].seen, 3);
        assert_eq!((plan.rules()[0].id, plan.rules()[0].hits), (id, 1));
        plan.clear(Some(id));
        assert!(plan.rules().is_empty());
    }

    #[test]
    fn actions_are_read() {
        assert_eq!(Action::parse("cut:7"), Ok(Action::Cut(Cut::Seed(7))));
        assert_eq!(Action::parse("tear:512"), Ok(Action::Tear(512)));
        assert_eq!(Action::parse("done:EIO"), Ok(Action::Done(libc::EIO)));
        assert!(Action::parse("EWHAT").is_err());
        assert!(matches(b"*", b"/a") && matches(b"/a*c", b"/abbc") && !matches(b"/a", b"/ab"));
    }
}
