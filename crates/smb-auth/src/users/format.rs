//! The text form of the user database: lines of fields separated by one TAB.
//!
//! ```text
//! holdfast-users  1
//! machine-sid     S-1-5-21-1-2-3
//! next-rid        1003
//! group  1000  staff
//! user   1001  anna  a4f4...d852  -         1766000000  1000:1000  1000  Anna Schmidt
//! user   1002  bert  -            disabled  0           -          -
//! ```
//!
//! User fields: RID, name, NT hash or `-`, flags or `-`, seconds since 1970 of the last password
//! change, `uid:gid` or `-`, group RIDs with commas or `-`, full name (may be empty). The version
//! line comes first; machine-sid and next-rid come before the accounts, groups before users. Empty
//! lines and lines that begin with `#` are skipped, and lost when the file is written again. The
//! parser rejects anything it does not know instead of guessing, and reports the line.

use std::collections::BTreeSet;

use zeroize::Zeroizing;

use super::{
    FIRST_RID, GroupRecord, MAX_ACCOUNTS, MAX_GROUPS_PER_USER, MAX_RID, MachineSid, UserDb,
    UserDbError, is_usable_full_name,
};
use crate::{NtHash, UserRecord};

/// Longest text that is parsed, in bytes.
pub const MAX_TEXT_LEN: usize = 64 << 20;
const VERSION: &str = "1";
const FLAG_DISABLED: &str = "disabled";

/// A decimal number without sign or leading zeros.
pub(super) fn decimal<T: core::str::FromStr>(text: &str) -> Option<T> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[derive(Default)]
struct Partial {
    version: bool,
    machine_sid: Option<MachineSid>,
    next_rid: Option<u32>,
    db: Option<UserDb>,
    rids: BTreeSet<u32>,
    group_rids: BTreeSet<u32>,
}

impl UserDb {
    /// Parses the text form.
    ///
    /// # Errors
    /// [`UserDbError::Line`] with the first wrong line, [`UserDbError::TooLong`].
    pub fn parse(text: &str) -> Result<Self, UserDbError> {
        if text.len() > MAX_TEXT_LEN {
            return Err(UserDbError::TooLong);
        }
        let mut partial = Partial::default();
        let mut last = 1;
        for (index, line) in text.lines().enumerate() {
            last = index + 1;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let result = partial.line(line);
            result.map_err(|what| UserDbError::Line { line: last, what })?;
        }
        partial
            .finish()
            .map_err(|what| UserDbError::Line { line: last, what })
    }

    /// Returns the text form, which is wiped on drop because it contains the hashes.
    pub fn serialise(&self) -> Zeroizing<String> {
        // Reserved up front, since a growing string would leave copies behind.
        let accounts = self.users.len() + self.groups.len();
        let names: usize = self
            .users
            .values()
            .map(|u| u.name.len() + u.full_name.len() + u.group_rids.len() * 11)
            .chain(self.groups.values().map(|g| g.name.len()))
            .sum();
        let mut text = Zeroizing::new(String::with_capacity(256 + accounts * 160 + names));
        text.push_str("holdfast-users\t1\n# Written by the server's user tool. NT hashes are as good as passwords.\n");
        text.push_str(&format!("machine-sid\t{}\n", self.machine_sid));
        text.push_str(&format!("next-rid\t{}\n", self.next_rid));
        for group in self.groups.values() {
            text.push_str(&format!("group\t{}\t{}\n", group.rid, group.name));
        }
        for user in self.users.values() {
            push_user(&mut text, user);
        }
        text
    }
}

fn push_user(text: &mut String, user: &UserRecord) {
    text.push_str(&format!("user\t{}\t{}\t", user.rid, user.name));
    match &user.nt_hash {
        Some(hash) => text.push_str(&hash.to_hex()),
        None => text.push('-'),
    }
    text.push('\t');
    text.push_str(if user.disabled { FLAG_DISABLED } else { "-" });
    text.push_str(&format!("\t{}\t", user.password_set));
    match user.uid_gid {
        Some((uid, gid)) => text.push_str(&format!("{uid}:{gid}")),
        None => text.push('-'),
    }
    text.push('\t');
    let groups: Vec<String> = user.group_rids.iter().map(u32::to_string).collect();
    text.push_str(if groups.is_empty() { "-" } else { "" });
    text.push_str(&groups.join(","));
    text.push_str(&format!("\t{}\n", user.full_name));
}

impl Partial {
    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let fields: Vec<&str> = line.splitn(10, '\t').collect();
        if !self.version {
            return match fields.as_slice() {
                ["holdfast-users", VERSION] => {
                    self.version = true;
                    Ok(())
                }
                ["holdfast-users", _] => Err("unknown version"),
                _ => Err("not a holdfast user database"),
            };
        }
        match fields.as_slice() {
            ["machine-sid", sid] if self.machine_sid.is_none() && self.db.is_none() => {
                self.machine_sid = Some(MachineSid::parse(sid).ok_or("bad machine SID")?);
                Ok(())
            }
            ["next-rid", rid] if self.next_rid.is_none() && self.db.is_none() => {
                let rid = decimal(rid).filter(|r| (FIRST_RID..=MAX_RID).contains(r));
                self.next_rid = Some(rid.ok_or("bad next-rid")?);
                Ok(())
            }
            ["group", rid, name] => self.group(rid, name),
            ["user", rest @ ..] if rest.len() == 8 => self.user(rest),
            ["user", ..] => Err("a user line has nine fields"),
            _ => Err("unknown or repeated line"),
        }
    }

    fn db(&mut self) -> Result<&mut UserDb, &'static str> {
        if self.db.is_none() {
            self.db = Some(UserDb {
                next_rid: self.next_rid.ok_or("next-rid must come first")?,
                ..UserDb::new(self.machine_sid.ok_or("machine-sid must come first")?)
            });
        }
        self.db.as_mut().ok_or("empty database")
    }

    fn account(&mut self, rid: &str, name: &str) -> Result<(u32, String), &'static str> {
        let db = self.db()?;
        if db.users.len() + db.groups.len() >= MAX_ACCOUNTS {
            return Err("too many accounts");
        }
        let key = db.check_new_name(name).map_err(|e| match e {
            UserDbError::Exists => "name is taken twice",
            _ => "bad name",
        })?;
        let rid = decimal(rid).filter(|r| (FIRST_RID..db.next_rid).contains(r));
        let rid = rid.ok_or("RID is not between 1000 and next-rid")?;
        if !self.rids.insert(rid) {
            return Err("RID is taken twice");
        }
        Ok((rid, key))
    }

    fn group(&mut self, rid: &str, name: &str) -> Result<(), &'static str> {
        let (rid, key) = self.account(rid, name)?;
        self.group_rids.insert(rid);
        let name = name.to_owned();
        self.db()?.insert_group(key, GroupRecord { name, rid });
        Ok(())
    }

    fn user(&mut self, fields: &[&str]) -> Result<(), &'static str> {
        let [rid, name, hash, flags, set, ids, groups, full_name] = fields else {
            return Err("a user line has nine fields");
        };
        let (rid, key) = self.account(rid, name)?;
        let nt_hash = match *hash {
            "-" => None,
            hex => Some(NtHash::from_hex(hex).ok_or("bad NT hash")?),
        };
        let disabled = match *flags {
            "-" => false,
            FLAG_DISABLED => true,
            _ => return Err("unknown flag"),
        };
        let uid_gid = match ids.split_once(':') {
            Some((uid, gid)) => Some((
                decimal(uid).ok_or("bad uid")?,
                decimal(gid).ok_or("bad gid")?,
            )),
            None if *ids == "-" => None,
            None => return Err("bad uid:gid"),
        };
        if !is_usable_full_name(full_name) {
            return Err("bad full name");
        }
        let group_rids = parse_groups(groups, &self.group_rids)?;
        let user = UserRecord {
            name: (*name).to_owned(),
            rid,
            nt_hash,
            disabled,
            full_name: (*full_name).to_owned(),
            group_rids,
            uid_gid,
            password_set: decimal(set).ok_or("bad time of password change")?,
        };
        self.db()?.insert_user(key, user);
        Ok(())
    }

    fn finish(mut self) -> Result<UserDb, &'static str> {
        if !self.version {
            return Err("not a holdfast user database");
        }
        self.db()?;
        self.db.ok_or("empty database")
    }
}

fn parse_groups(text: &str, known: &BTreeSet<u32>) -> Result<Vec<u32>, &'static str> {
    let mut rids = Vec::new();
    if text == "-" {
        return Ok(rids);
    }
    for part in text.split(',') {
        let rid = decimal(part).ok_or("bad group list")?;
        if !known.contains(&rid) {
            return Err("group does not exist");
        }
        if rids.len() >= MAX_GROUPS_PER_USER {
            return Err("too many groups");
        }
        rids.push(rid);
    }
    rids.sort_unstable();
    let before = rids.len();
    rids.dedup();
    if rids.len() == before {
        Ok(rids)
    } else {
        Err("group is named twice")
    }
}
