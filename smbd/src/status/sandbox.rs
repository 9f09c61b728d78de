//! The privileges that the server has given up, in words.

use super::text::{Text, put};
use crate::answers::SandboxStatus;

/// One line of `status`.
pub(super) fn write(out: &mut Text, sandbox: &SandboxStatus) {
    let capabilities = match &sandbox.capabilities {
        Some(kept) if kept.is_empty() => "no capabilities".to_owned(),
        Some(kept) => format!("capabilities {}", kept.join(" ")),
        None => "ALL CAPABILITIES that it was started with".to_owned(),
    };
    let landlock = match (&sandbox.landlock, &sandbox.without_landlock) {
        (Some(folders), _) => format!("Landlock leaves {} folders", folders.len()),
        (None, Some(why)) => format!("WITHOUT LANDLOCK: {why}"),
        (None, None) => "WITHOUT LANDLOCK".to_owned(),
    };
    let seccomp = match (sandbox.seccomp, sandbox.calls_refused) {
        (true, refused) => format!("seccomp, {refused} system calls refused"),
        (false, _) => "WITHOUT SECCOMP".to_owned(),
    };
    put!(out, 0; "sandbox: {capabilities}; {landlock}; {seccomp}");
}
