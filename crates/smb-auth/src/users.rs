//! The user database: users, groups, relative identifiers, the machine SID.
//!
//! The database is pure: mutations are methods of [`UserDb`], the text form is parsed by
//! [`UserDb::parse`] and written by [`UserDb::serialise`] (see `users/format.rs`). The daemon owns
//! the files, their mode 0600 and their atomic replacement.
//!
//! Invariants: names are unique regardless of case, over users and groups together; RIDs start at
//! 1000 and are never reused, not even after a removal; every group in a user's list exists.
//! Passwords are never stored, only NT hashes, which are equivalent to the password.

mod format;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::BTreeMap;

use crate::{Account, NtHash, UserRecord, UserStore, fold_name};

/// First RID of users and groups; lower ones belong to well-known accounts.
pub const FIRST_RID: u32 = 1000;
/// All RIDs are below this number.
pub const MAX_RID: u32 = 0x4000_0000;
/// Maximum number of users and groups together.
pub const MAX_ACCOUNTS: usize = 100_000;
/// Maximum number of groups of one user.
pub const MAX_GROUPS_PER_USER: usize = 1000;
/// Longest user or group name, in characters.
pub const MAX_NAME_CHARS: usize = 64;
/// Longest full name, in characters.
pub const MAX_FULL_NAME_CHARS: usize = 256;

/// The three sub-authorities that distinguish this machine's SID `S-1-5-21-a-b-c` from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineSid(pub [u32; 3]);

impl MachineSid {
    /// Creates a SID from 12 random bytes.
    pub fn from_random(random: [u8; 12]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = random;
        Self([
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
            u32::from_le_bytes([i, j, k, l]),
        ])
    }

    /// Parses `S-1-5-21-a-b-c`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("S-1-5-21-")?.split('-');
        let mut next = || format::decimal(parts.next()?);
        let sid = Self([next()?, next()?, next()?]);
        parts.next().is_none().then_some(sid)
    }
}

impl fmt::Display for MachineSid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.0;
        write!(f, "S-1-5-21-{a}-{b}-{c}")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// Name in the spelling it was created with.
    pub name: String,
    /// Relative identifier.
    pub rid: u32,
}

/// The reason why a mutation was refused or a text could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDbError {
    /// The text is not a user database; line numbers start at 1.
    #[error("line {line}: {what}")]
    Line {
        line: usize,
        /// Description of the error.
        what: &'static str,
    },
    /// The text is longer than [`MAX_TEXT_LEN`].
    #[error("user database is too long")]
    TooLong,
    /// The name is empty, too long, or contains a forbidden character.
    #[error("not a usable name")]
    BadName,
    /// The full name is too long or contains a control character.
    #[error("not a usable full name")]
    BadFullName,
    /// A user or group of this name already exists.
    #[error("a user or group of this name exists")]
    Exists,
    #[error("no such user")]
    NoUser,
    #[error("no such group")]
    NoGroup,
    /// A named limit is reached.
    #[error("the user database is full")]
    Full,
}

pub use format::MAX_TEXT_LEN;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDb {
    machine_sid: MachineSid,
    next_rid: u32,
    users: BTreeMap<String, UserRecord>,
    groups: BTreeMap<String, GroupRecord>,
    /// The upper-cased names of users and groups by their RIDs.
    names: BTreeMap<u32, String>,
}

impl UserDb {
    /// An empty database.
    pub fn new(machine_sid: MachineSid) -> Self {
        Self {
            machine_sid,
            next_rid: FIRST_RID,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            names: BTreeMap::new(),
        }
    }

    /// The SID that all RIDs belong to.
    pub fn machine_sid(&self) -> MachineSid {
        self.machine_sid
    }

    /// The RID of the next user or group.
    pub fn next_rid(&self) -> u32 {
        self.next_rid
    }

    /// All users, by upper-cased name.
    pub fn users(&self) -> impl Iterator<Item = &UserRecord> {
        self.users.values()
    }

    /// All groups, by upper-cased name.
    pub fn groups(&self) -> impl Iterator<Item = &GroupRecord> {
        self.groups.values()
    }

    /// Returns a user by name, ignoring case.
    pub fn user(&self, name: &str) -> Option<&UserRecord> {
        self.users.get(&fold_name(name))
    }

    /// Returns a group by name, ignoring case.
    pub fn group(&self, name: &str) -> Option<&GroupRecord> {
        self.groups.get(&fold_name(name))
    }

    /// Returns the name of the user or group with a RID, for SID-to-name lookups.
    pub fn name_of_rid(&self, rid: u32) -> Option<&str> {
        let key = self.names.get(&rid)?;
        let user = self.users.get(key).map(|user| &user.name);
        user.or_else(|| self.groups.get(key).map(|group| &group.name))
            .map(String::as_str)
    }

    fn insert_user(&mut self, key: String, user: UserRecord) {
        self.names.insert(user.rid, key.clone());
        self.users.insert(key, user);
    }

    fn insert_group(&mut self, key: String, group: GroupRecord) {
        self.names.insert(group.rid, key.clone());
        self.groups.insert(key, group);
    }

    fn take_rid(&mut self) -> Result<u32, UserDbError> {
        if self.users.len() + self.groups.len() >= MAX_ACCOUNTS || self.next_rid >= MAX_RID {
            return Err(UserDbError::Full);
        }
        let rid = self.next_rid;
        self.next_rid += 1;
        Ok(rid)
    }

    fn check_new_name(&self, name: &str) -> Result<String, UserDbError> {
        if !is_usable_name(name) {
            return Err(UserDbError::BadName);
        }
        let key = fold_name(name);
        if self.users.contains_key(&key) || self.groups.contains_key(&key) {
            return Err(UserDbError::Exists);
        }
        Ok(key)
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut UserRecord, UserDbError> {
        self.users
            .get_mut(&fold_name(name))
            .ok_or(UserDbError::NoUser)
    }

    /// Adds a user without a password, as whom nobody can log in yet. Returns its RID.
    ///
    /// # Errors
    /// [`UserDbError`] `BadName`, `Exists`, `Full`.
    pub fn add_user(&mut self, name: &str) -> Result<u32, UserDbError> {
        let key = self.check_new_name(name)?;
        let rid = self.take_rid()?;
        let user = UserRecord {
            name: name.to_owned(),
            rid,
            nt_hash: None,
            disabled: false,
            full_name: String::new(),
            group_rids: Vec::new(),
            uid_gid: None,
            password_set: 0,
        };
        self.insert_user(key, user);
        Ok(rid)
    }

    /// Removes a user. Its RID is never reused.
    ///
    /// # Errors
    /// [`UserDbError::NoUser`].
    pub fn remove_user(&mut self, name: &str) -> Result<(), UserDbError> {
        let removed = self.users.remove(&fold_name(name));
        self.names.remove(&removed.ok_or(UserDbError::NoUser)?.rid);
        Ok(())
    }

    /// Sets or removes (`None`) a password. `now` is seconds since 1970.
    ///
    /// # Errors
    /// [`UserDbError::NoUser`].
    pub fn set_password(
        &mut self,
        name: &str,
        hash: Option<NtHash>,
        now: u64,
    ) -> Result<(), UserDbError> {
        let user = self.user_mut(name)?;
        user.password_set = if hash.is_some() { now } else { 0 };
        user.nt_hash = hash;
        Ok(())
    }

    /// Disables or enables a user.
    ///
    /// # Errors
    /// [`UserDbError::NoUser`].
    pub fn set_disabled(&mut self, name: &str, disabled: bool) -> Result<(), UserDbError> {
        self.user_mut(name)?.disabled = disabled;
        Ok(())
    }

    /// Sets the full name.
    ///
    /// # Errors
    /// [`UserDbError`] `NoUser`, `BadFullName`.
    pub fn set_full_name(&mut self, name: &str, full_name: &str) -> Result<(), UserDbError> {
        if !is_usable_full_name(full_name) {
            return Err(UserDbError::BadFullName);
        }
        full_name.clone_into(&mut self.user_mut(name)?.full_name);
        Ok(())
    }

    /// Binds a user to a local uid and gid, or removes the binding.
    ///
    /// # Errors
    /// [`UserDbError::NoUser`].
    pub fn set_uid_gid(&mut self, name: &str, ids: Option<(u32, u32)>) -> Result<(), UserDbError> {
        self.user_mut(name)?.uid_gid = ids;
        Ok(())
    }

    /// Adds a group. Returns its RID.
    ///
    /// # Errors
    /// [`UserDbError`] `BadName`, `Exists`, `Full`.
    pub fn add_group(&mut self, name: &str) -> Result<u32, UserDbError> {
        let key = self.check_new_name(name)?;
        let rid = self.take_rid()?;
        let name = name.to_owned();
        self.insert_group(key, GroupRecord { name, rid });
        Ok(rid)
    }

    /// Removes a group and all memberships in it.
    ///
    /// # Errors
    /// [`UserDbError::NoGroup`].
    pub fn remove_group(&mut self, name: &str) -> Result<(), UserDbError> {
        let group = self.groups.remove(&fold_name(name));
        let rid = group.ok_or(UserDbError::NoGroup)?.rid;
        self.names.remove(&rid);
        for user in self.users.values_mut() {
            user.group_rids.retain(|r| *r != rid);
        }
        Ok(())
    }

    /// Makes a user a member of a group; no change if the user is one already.
    ///
    /// # Errors
    /// [`UserDbError`] `NoUser`, `NoGroup`, `Full`.
    pub fn add_member(&mut self, group: &str, user: &str) -> Result<(), UserDbError> {
        let rid = self.group(group).ok_or(UserDbError::NoGroup)?.rid;
        let rids = &mut self.user_mut(user)?.group_rids;
        if let Err(place) = rids.binary_search(&rid) {
            if rids.len() >= MAX_GROUPS_PER_USER {
                return Err(UserDbError::Full);
            }
            rids.insert(place, rid);
        }
        Ok(())
    }

    /// Ends a membership; no change if there is none.
    ///
    /// # Errors
    /// [`UserDbError`] `NoUser`, `NoGroup`.
    pub fn remove_member(&mut self, group: &str, user: &str) -> Result<(), UserDbError> {
        let rid = self.group(group).ok_or(UserDbError::NoGroup)?.rid;
        self.user_mut(user)?.group_rids.retain(|r| *r != rid);
        Ok(())
    }

    pub fn members(&self, group_rid: u32) -> impl Iterator<Item = &UserRecord> {
        self.users
            .values()
            .filter(move |u| u.group_rids.binary_search(&group_rid).is_ok())
    }
}

impl UserStore for UserDb {
    fn find(&self, name: &str) -> Option<UserRecord> {
        self.user(name).cloned()
    }

    fn users(&self, from: usize, most: usize) -> Vec<Account> {
        let users = self.users.values().skip(from).take(most);
        users.map(Account::of).collect()
    }

    fn groups(&self, from: usize, most: usize) -> Vec<Account> {
        let groups = self.groups.values().skip(from).take(most);
        groups.map(Account::from).collect()
    }

    fn by_rid(&self, rid: u32) -> Option<Account> {
        let key = self.names.get(&rid)?;
        let user = self.users.get(key).map(Account::of);
        user.or_else(|| self.groups.get(key).map(Account::from))
    }

    fn by_name(&self, name: &str) -> Option<Account> {
        let user = self.user(name).map(Account::of);
        user.or_else(|| self.group(name).map(Account::from))
    }
}

/// Returns whether a name is allowed for a user or group: Windows' rules, and at most 64 characters.
pub fn is_usable_name(name: &str) -> bool {
    let forbidden = |c: char| c.is_control() || "\"/\\[]:;|=,+*?<>@%".contains(c);
    !name.is_empty()
        && name.chars().count() <= MAX_NAME_CHARS
        && name.trim() == name
        && !name.ends_with('.')
        && !name.contains(forbidden)
}

fn is_usable_full_name(name: &str) -> bool {
    name.chars().count() <= MAX_FULL_NAME_CHARS && !name.contains(char::is_control)
}
