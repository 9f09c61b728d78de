//! `guest_account`: the local user for everybody who has none of his own on disk.
//!
//! A name is looked up in `/etc/passwd`; a server that runs as root must not start with an unknown
//! one, or with another name of root.

use super::{LocalIds, raw, validate::Findings};
use crate::config::local_users;

/// The default: the account that distributions have for this purpose.
const DEFAULT: &str = "nobody";
/// The ids if there is no such account: those that the kernel uses for ids without a mapping
/// (`/proc/sys/kernel/overflowuid`).
const OVERFLOW: LocalIds = LocalIds {
    uid: 65_534,
    gid: 65_534,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAccount {
    /// Its name; `None` if the administrator wrote numbers.
    pub name: Option<String>,
    /// Uid and primary group.
    pub ids: LocalIds,
}

/// The account of a configuration that names none.
pub fn default_guest_account() -> GuestAccount {
    let known = local_users::ids_of(DEFAULT).filter(|ids| ids.uid != 0);
    GuestAccount {
        name: Some(DEFAULT.to_owned()),
        ids: known.unwrap_or(OVERFLOW),
    }
}

/// The account that a configuration names.
pub(super) fn guest_account(field: &raw::At<String>, findings: &mut Findings) -> GuestAccount {
    let Some(at) = field else {
        return default_guest_account();
    };
    let found = written(at.get_ref(), local_users::ids_of);
    found.unwrap_or_else(|(message, way_out)| {
        findings.add(Some(at.span()), message, way_out);
        GuestAccount {
            name: None,
            ids: OVERFLOW,
        }
    })
}

/// The account as written, or a message and advice.
fn written(
    text: &str,
    look_up: impl FnOnce(&str) -> Option<LocalIds>,
) -> Result<GuestAccount, (String, &'static str)> {
    let numbers = text.parse::<LocalIds>().ok();
    let name = numbers.is_none().then(|| text.to_owned());
    let Some(ids) = numbers.or_else(|| look_up(text)) else {
        let way_out = "use a name in /etc/passwd, or the numbers of a user and a group, as in \
                       \"65534:65534\"";
        return Err((format!("there is no local user `{text}`"), way_out));
    };
    if ids.uid == 0 && text != "0:0" {
        let message = format!("`{text}` is root, as whom guests could read and change everything");
        let way_out = "use an unprivileged account, as in \"nobody\"; only \"0:0\" means root";
        return Err((message, way_out));
    }
    Ok(GuestAccount { name, ids })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Option<LocalIds> {
        let id = |uid, gid| Some(LocalIds { uid, gid });
        match name {
            "nobody" => id(65_534, 65_533),
            "root" | "toor" => id(0, 0),
            _ => None,
        }
    }

    #[test]
    fn names_and_numbers_are_taken() {
        let of = |text| {
            let GuestAccount { name, ids } = written(text, known).unwrap();
            (name, ids.to_string())
        };
        let nobody = Some("nobody".to_owned());
        assert_eq!(of("nobody"), (nobody, "65534:65533".to_owned()));
        assert_eq!(of("12:13"), (None, "12:13".to_owned()));
        assert_eq!(of("0:0"), (None, "0:0".to_owned()));
    }

    #[test]
    fn root_is_only_who_is_written_so() {
        for text in ["root", "toor", "0:5"] {
            let (message, way_out) = written(text, known).unwrap_err();
            assert!(message.contains(text) && way_out.contains("\"0:0\""));
        }
        let (message, way_out) = written("nobdy", known).unwrap_err();
        assert!(message.contains("no local user `nobdy`"), "{message}");
        assert!(way_out.contains("65534:65534"));
    }
}
