//! The user database for the daemon and the command line: `user_file` reads and writes the text,
//! `smb_auth` parses it, and a new file gets a machine SID.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use smb_auth::{MachineSid, NtHash, UserDb, UserDbError};

use crate::Error;
use crate::accounts::user_file;

/// A database without users, under a new machine SID.
pub fn empty() -> Result<UserDb, Error> {
    let mut random = [0; 12];
    getrandom::fill(&mut random)?;
    Ok(UserDb::new(MachineSid::from_random(random)))
}

/// The database in `path`.
pub fn load(path: &Path) -> Result<UserDb, Error> {
    read(path)?.ok_or_else(|| {
        let path = path.display();
        format!(
            "there is no user file {path}\n  = make the first user: holdfast user add NAME, with the --config or \
             --users-file of the server"
        )
        .into()
    })
}

/// An error about a name, with a way out.
pub(crate) fn refused(name: &str, error: &UserDbError) -> Error {
    let way_out = match error {
        UserDbError::BadName => {
            "\n  = use 1 to 64 characters, no blank at the ends, no dot at the end, and none of \"/\\[]:;|=,+*?<>@%"
        }
        UserDbError::NoUser => "\n  = `holdfast user list` lists the users",
        UserDbError::NoGroup => {
            "\n  = `holdfast group list` lists the groups, and `holdfast group add` makes one"
        }
        UserDbError::Exists => {
            "\n  = `holdfast user list` and `holdfast group list` list them; choose another name"
        }
        UserDbError::BadFullName => "\n  = use up to 256 characters, and no control characters",
        _ => "",
    };
    format!("{name}: {error}{way_out}").into()
}

/// The words for a mistake in the user file, with the way to correct it.
fn damaged(path: &Path, error: &UserDbError) -> String {
    let path = path.display();
    format!("{path}: {error}\n  = correct the file by hand, or put back a copy of it")
}

/// The database in `path`; `None` if there is none yet.
pub(crate) fn read(path: &Path) -> Result<Option<UserDb>, Error> {
    let Some(text) = user_file::load(path)? else {
        return Ok(None);
    };
    let users = UserDb::parse(&text).map_err(|error| damaged(path, &error))?;
    Ok(Some(users))
}

/// The database in `path`, or a new one that is stored there, because its machine SID is part of
/// every security descriptor that this server will write.
pub fn load_or_make(path: &Path) -> Result<UserDb, Error> {
    match read(path)? {
        Some(users) => Ok(users),
        None => edit(path, |_| Ok(())).and_then(|()| load(path)),
    }
}

/// Changes the database in `path`, making it if it does not exist.
///
/// # Errors
/// A message for the administrator; nothing has changed then.
pub fn edit<T>(
    path: &Path,
    change: impl FnOnce(&mut UserDb) -> Result<T, Error>,
) -> Result<T, Error> {
    user_file::edit(path, |text| {
        let mut db = match text {
            None => empty()?,
            Some(text) => UserDb::parse(text).map_err(|error| damaged(path, &error))?,
        };
        let answer = change(&mut db)?;
        Ok((db.serialise(), answer))
    })
}

/// Sets a password, with the present time as its time of change.
pub fn set_password(db: &mut UserDb, name: &str, password: &str) -> Result<(), Error> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    db.set_password(name, Some(NtHash::from_password(password)), now)
        .map_err(|error| format!("{name}: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_sid_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        assert!(
            load(&path)
                .unwrap_err()
                .to_string()
                .contains("holdfast user add")
        );
        let first = load_or_make(&path).unwrap().machine_sid();
        assert_eq!(load_or_make(&path).unwrap().machine_sid(), first);
        assert_ne!(empty().unwrap().machine_sid(), first);
        edit(&path, |db| {
            db.add_user("alice")?;
            set_password(db, "alice", "secret")
        })
        .unwrap();
        let db = load(&path).unwrap();
        assert_eq!(db.machine_sid(), first);
        let alice = db.user("ALICE").unwrap();
        assert_eq!(alice.nt_hash, Some(NtHash::from_password("secret")));
        assert!(alice.password_set > 0);
    }

    #[test]
    fn a_broken_file_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        // An empty one is what a copy leaves on a full disk: another machine SID would belong to no descriptor.
        for broken in ["not a user file\n", ""] {
            crate::state::atomic::replace(&path, broken.as_bytes()).unwrap();
            let refused = edit(&path, |_| Ok(())).unwrap_err().to_string();
            assert!(refused.contains("line 1"), "{refused}");
            assert!(refused.contains("\n  = correct the file"), "{refused}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
        }
    }
}
