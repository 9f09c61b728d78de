//! The capabilities that a server of root keeps.
//!
//! | capability | what for |
//! |---|---|
//! | `CAP_SETUID`, `CAP_SETGID` | to take on the file-system identity of a user |
//! | `CAP_CHOWN`, `CAP_FOWNER` | owner, mode and times as an authorised client sets them |
//! | `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH` | what the server does for itself in a share: attributes, streams, directories that are synced. A thread that has taken on a user has neither: the kernel withdraws them with the uid |
//! | `CAP_SYS_ADMIN` | to store `security.NTACL`, which Samba reads too |

use std::io;

use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::Error;

const KEPT: [(CapabilitySet, &str); 7] = [
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
];

/// Refuses to serve as root where the server cannot act as its users: without the capabilities for that, or in a user
/// namespace whose maker may set no groups (user_namespaces(7)).
pub(crate) fn check_identities() -> Result<(), Error> {
    let groups = std::fs::read_to_string("/proc/self/setgroups");
    if geteuid().is_root() && groups.is_ok_and(|may| may.trim() == "deny") {
        return fail!(
            "root of a user namespace without setgroups cannot act as the users of the shares\n  = give the namespace \
             ranges of users and groups (newuidmap and newgidmap, as rootless podman does), or start the server as \
             another user"
        );
    }
    let has = capabilities(None)?.effective;
    let needed = (CapabilitySet::SETUID | CapabilitySet::SETGID) - has;
    let missing = KEPT.iter().filter(|(one, _)| needed.contains(*one));
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    if missing.is_empty() || !geteuid().is_root() {
        return Ok(());
    }
    fail!(
        "root without {} cannot act as the users of the shares\n  = let the process keep it (CapabilityBoundingSet= of a \
         systemd unit, --cap-add of a container), or start the server as another user",
        missing.join(" and ")
    )
}

/// Drops all other capabilities for good, and returns the names of those left.
pub(super) fn drop_unused() -> io::Result<Vec<&'static str>> {
    let has = capabilities(None)?;
    let mut kept: Vec<(CapabilitySet, &str)> = KEPT.into();
    kept.retain(|(capability, _)| has.permitted.contains(*capability));
    let left = kept
        .iter()
        .fold(CapabilitySet::empty(), |all, (one, _)| all | *one);
    if has.permitted.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            if !left.contains(capability) {
                match remove_capability_from_bounding_set(capability) {
                    // A capability that this kernel does not know.
                    Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: left & has.effective,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)?;
    Ok(kept.into_iter().map(|(_, name)| name).collect())
}
