//! `holdfast user` and `holdfast group`: edits of the user file.
//!
//! Passwords never appear in arguments, where every user of the machine could see them.

use std::path::PathBuf;

use smb_auth::{UserDb, UserDbError};

use super::out;
use crate::{
    Error,
    accounts::{
        acting,
        password::{self, Password},
        users,
    },
    args::{AccountPlace, GroupCommand, UserCommand},
    config::{self, places},
    state::state_dir,
    status::text::{Text, list},
};

/// The user file to use, and the server that it belongs to.
struct Accounts {
    file: PathBuf,
    /// The folder that is made with the file, if that is the server's own.
    folder: Option<PathBuf>,
    config_file: Option<PathBuf>,
    server: Option<config::ServerSettings>,
}

impl Accounts {
    fn of(place: &AccountPlace) -> Result<Self, Error> {
        let config_file = place.config.clone();
        if let Some(file) = &place.users_file {
            return Ok(Self {
                file: file.clone(),
                folder: None,
                config_file,
                server: None,
            });
        }
        let server = config_file.as_deref().map(config::server_of).transpose()?;
        let (folder, file) = match &server {
            Some(server) => (server.state_dir.clone(), server.users_file.clone()),
            None => (
                places::default(),
                places::default().join(places::USERS_FILE),
            ),
        };
        Ok(Self {
            file,
            folder: Some(folder),
            config_file,
            server,
        })
    }

    /// Changes the user file, which is made if it does not exist.
    fn edit<T>(&self, change: impl FnOnce(&mut UserDb) -> Result<T, Error>) -> Result<T, Error> {
        if let Some(folder) = &self.folder {
            state_dir::prepare(folder)?;
        }
        users::edit(&self.file, change)
    }

    /// Says what was changed, and in which file, because a server may read another one.
    fn report(&self, done: &str) -> Result<(), Error> {
        let (file, config) = (self.file.display(), self.config());
        out::print(&format!(
            "{done} in {file} (a running server learns it by: holdfast reload{config})\n"
        ))
    }

    /// The option that names the configuration, for commands that are advised.
    fn config(&self) -> String {
        let file = self.config_file.as_ref();
        file.map_or_else(String::new, |file| format!(" --config {}", file.display()))
    }

    /// The option by which another command finds the same user file.
    fn option(&self) -> String {
        match self.folder {
            Some(_) => self.config(),
            None => format!(" --users-file {}", self.file.display()),
        }
    }

    /// Says as which local user an account bound to `owner` acts, for the administrator who has just set that.
    fn acts_as(&self, here: acting::Server, name: &str, owner: Option<config::LocalIds>) -> String {
        let owner = owner.map(|owner| (owner.uid, owner.gid));
        let server = self.server.as_ref();
        let guest = server.map_or_else(config::default_guest_account, |server| {
            server.guest_account.clone()
        });
        let acts_as = here.user(owner, &guest);
        let mut text = format!("on disk {name} acts as {acts_as}\n");
        // A server without root acts as its own user, whatever is set.
        if owner.is_none() && here.is_root() {
            let option = self.option();
            text += &format!(
                "  = for a local user of {name}'s own: holdfast user owner {name} UID:GID{option} (`id NAME`)\n"
            );
        }
        text
    }

    /// Warns of the parts of the configuration that name a group which has gone: they keep a reload and a start from
    /// succeeding.
    fn warn_of_places_with(&self, group: &str) -> Result<(), Error> {
        let file = self.config_file.as_deref();
        let places = file.map(|file| config::places_with(file, group));
        for place in places.into_iter().flatten() {
            out::print(&format!(
                "{place} names the group: take it out of the configuration, or no reload and no start succeeds\n"
            ))?;
        }
        Ok(())
    }
}

fn named(name: &str) -> impl Fn(UserDbError) -> Error {
    move |error| users::refused(name, &error)
}

/// Names the one of the two that an error is about.
fn member<'a>(group: &'a str, user: &'a str) -> impl Fn(UserDbError) -> Error + 'a {
    move |error| {
        let name = match error {
            UserDbError::NoUser => user,
            _ => group,
        };
        users::refused(name, &error)
    }
}

/// `holdfast user ...`
pub(crate) fn user(place: &AccountPlace, command: UserCommand) -> Result<(), Error> {
    let accounts = Accounts::of(place)?;
    let file = &accounts.file;
    let done = match command {
        UserCommand::List => return out::print(&list_users(&users::load(file)?)),
        UserCommand::Add {
            name,
            password_file,
            full_name,
            owner,
            groups,
        } => {
            let add = |db: &mut UserDb| -> Result<(), Error> {
                if let Some(user) = db.user(&name) {
                    let (name, option) = (&user.name, accounts.option());
                    return fail!(
                        "there is a user {name} already\n  = holdfast user passwd {name}{option}"
                    );
                }
                db.add_user(&name).map_err(named(&name))?;
                db.set_full_name(&name, &full_name).map_err(named(&name))?;
                let ids = owner.map(|owner| (owner.uid, owner.gid));
                db.set_uid_gid(&name, ids).map_err(named(&name))?;
                for group in &groups {
                    db.add_member(group, &name).map_err(named(group))?;
                }
                Ok(())
            };
            // It is tried first, so that no password is typed in vain.
            let known = users::read(file)?.map_or_else(users::empty, Ok);
            add(&mut known?)?;
            let password = new_password(&name, password_file)?;
            accounts.edit(|db| {
                add(db)?;
                users::set_password(db, &name, &password)
            })?;
            let here = acting::Server::here();
            out::print(&accounts.acts_as(here, &name, owner))?;
            format!("user {name} added")
        }
        UserCommand::Owner { name, owner } => {
            let ids = owner.map(|owner| (owner.uid, owner.gid));
            accounts.edit(|db| db.set_uid_gid(&name, ids).map_err(named(&name)))?;
            let here = acting::Server::here();
            out::print(&accounts.acts_as(here, &name, owner))?;
            format!("owner of {name} changed")
        }
        UserCommand::Passwd {
            name,
            password_file,
        } => {
            if users::load(file)?.user(&name).is_none() {
                return Err(users::refused(&name, &UserDbError::NoUser));
            }
            let password = new_password(&name, password_file)?;
            accounts.edit(|db| users::set_password(db, &name, &password))?;
            format!("password of {name} changed")
        }
        UserCommand::Remove { name } => {
            accounts.edit(|db| db.remove_user(&name).map_err(named(&name)))?;
            format!("user {name} removed")
        }
        UserCommand::Enable { name } => {
            accounts.edit(|db| db.set_disabled(&name, false).map_err(named(&name)))?;
            format!("user {name} enabled")
        }
        UserCommand::Disable { name } => {
            accounts.edit(|db| db.set_disabled(&name, true).map_err(named(&name)))?;
            format!("user {name} disabled")
        }
    };
    accounts.report(&done)
}

/// `holdfast group ...`
pub(crate) fn group(place: &AccountPlace, command: GroupCommand) -> Result<(), Error> {
    let accounts = Accounts::of(place)?;
    let done = match command {
        GroupCommand::List => return out::print(&list_groups(&users::load(&accounts.file)?)),
        GroupCommand::Add { name } => {
            accounts.edit(|db| db.add_group(&name).map_err(named(&name)))?;
            format!("group {name} added")
        }
        GroupCommand::Remove { name } => {
            accounts.edit(|db| db.remove_group(&name).map_err(named(&name)))?;
            accounts.warn_of_places_with(&name)?;
            format!("group {name} removed")
        }
        GroupCommand::Join { group, user } => {
            accounts.edit(|db| db.add_member(&group, &user).map_err(member(&group, &user)))?;
            format!("{user} is a member of {group}")
        }
        GroupCommand::Leave { group, user } => {
            accounts.edit(|db| {
                db.remove_member(&group, &user)
                    .map_err(member(&group, &user))
            })?;
            format!("{user} is no member of {group}")
        }
    };
    accounts.report(&done)
}

fn new_password(name: &str, file: Option<PathBuf>) -> Result<Password, Error> {
    Ok(match file {
        Some(file) => password::read(&file)?,
        None => password::ask(&format!("Password for {name}: "), true)?,
    })
}

/// The users, one on each line. Without any the list is empty, for scripts.
fn list_users(db: &UserDb) -> String {
    let rows = db.users().map(|user| {
        let groups = user.group_rids.iter();
        let groups = groups.filter_map(|rid| db.name_of_rid(*rid).map(str::to_owned));
        let state = match (user.disabled, user.nt_hash.is_some()) {
            (true, _) => "disabled",
            (false, true) => "enabled",
            (false, false) => "no password",
        };
        let owner = user.uid_gid.map(|(uid, gid)| format!("{uid}:{gid}"));
        [
            user.name.clone(),
            user.rid.to_string(),
            state.to_owned(),
            owner.unwrap_or_else(|| "-".to_owned()),
            list(&groups.collect::<Vec<_>>()),
            user.full_name.clone(),
        ]
    });
    let heads = ["NAME", "NUMBER", "STATE", "OWNER", "GROUPS", "FULL NAME"];
    let mut out = Text::default();
    out.table(0, heads, rows);
    out.finish()
}

/// The groups, one on each line. Without any the list is empty, for scripts.
fn list_groups(db: &UserDb) -> String {
    let rows = db.groups().map(|group| {
        let members = db.members(group.rid).map(|user| user.name.clone());
        let members: Vec<String> = members.collect();
        [group.name.clone(), group.rid.to_string(), members.join(",")]
    });
    let mut out = Text::default();
    out.table(0, ["NAME", "NUMBER", "MEMBERS"], rows);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::too_many_lines)]
    fn accounts_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let place = AccountPlace {
            config: None,
            users_file: Some(file.clone()),
        };
        let password_file = folder.path().join("pw");
        std::fs::write(&password_file, "secret\n").unwrap();
        let add = |name: &str, groups: &[&str]| UserCommand::Add {
            name: name.to_owned(),
            password_file: Some(password_file.clone()),
            full_name: "A. Person".to_owned(),
            owner: "1000:100".parse().ok(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        };
        assert!(
            user(&place, add("alice", &["staff"]))
                .unwrap_err()
                .to_string()
                .contains("staff: no such group\n  = `holdfast group list`")
        );
        group(
            &place,
            GroupCommand::Add {
                name: "staff".into(),
            },
        )
        .unwrap();
        // No password is asked for in vain.
        std::fs::remove_file(&password_file).unwrap();
        let refused = user(&place, add("a/b", &[])).unwrap_err().to_string();
        assert!(refused.contains("64 characters"), "{refused}");
        std::fs::write(&password_file, "secret\n").unwrap();
        user(&place, add("alice", &["staff"])).unwrap();
        user(&place, add("bob", &[])).unwrap();
        let staff = GroupCommand::Add {
            name: "Staff".into(),
        };
        let refused = group(&place, staff).unwrap_err().to_string();
        assert!(
            refused.contains("exists\n  = `holdfast user list`"),
            "{refused}"
        );
        let refused = user(&place, add("Alice", &[])).unwrap_err().to_string();
        assert!(refused.contains("user passwd alice "), "{refused}");
        for (of, who, says) in [
            ("staff", "x", "x: no such user"),
            ("y", "bob", "y: no such"),
        ] {
            let join = GroupCommand::Join {
                group: of.into(),
                user: who.into(),
            };
            let refused = group(&place, join).unwrap_err().to_string();
            assert!(refused.starts_with(says), "{refused}");
        }
        let join = GroupCommand::Join {
            group: "staff".into(),
            user: "bob".into(),
        };
        group(&place, join).unwrap();
        user(&place, UserCommand::Disable { name: "bob".into() }).unwrap();
        let db = users::load(&file).unwrap();
        let list = list_users(&db);
        assert!(list.starts_with("NAME "), "{list}");
        assert_eq!(list.lines().count(), 3, "{list}");
        assert!(
            list.contains("disabled") && list.contains("1000:100") && list.contains("A. Person")
        );
        assert!(
            list_groups(&db).contains("alice,bob"),
            "{}",
            list_groups(&db)
        );
        group(
            &place,
            GroupCommand::Leave {
                group: "staff".into(),
                user: "alice".into(),
            },
        )
        .unwrap();
        user(&place, UserCommand::Enable { name: "bob".into() }).unwrap();
        user(
            &place,
            UserCommand::Remove {
                name: "alice".into(),
            },
        )
        .unwrap();
        group(
            &place,
            GroupCommand::Remove {
                name: "staff".into(),
            },
        )
        .unwrap();
        let db = users::load(&file).unwrap();
        assert_eq!((db.users().count(), db.groups().count()), (1, 0));
        assert_eq!(list_groups(&db), "");
        let missing = UserCommand::Passwd {
            name: "carol".into(),
            password_file: None,
        };
        assert!(
            user(&place, missing)
                .unwrap_err()
                .to_string()
                .contains("no such user")
        );
    }

    #[test]
    fn only_root_is_advised_to_set_an_owner() {
        for (uid, is_advised) in [(0, true), (1000, false)] {
            let own = config::LocalIds { uid, gid: 100 };
            let accounts = Accounts {
                file: "there/users".into(),
                folder: Some("there".into()),
                config_file: Some("h.toml".into()),
                server: None,
            };
            let text = accounts.acts_as(acting::Server { own }, "ann", None);
            assert!(text.starts_with("on disk ann acts as the "), "{text}");
            let advice = "user owner ann UID:GID --config h.toml";
            assert_eq!(text.contains(advice), is_advised, "{text}");
        }
    }
}
