//! The privileges that the process gives up before it serves.
//!
//! A vulnerability of the server must not give access to the whole machine. Once everything that needs more privileges
//! is done (sockets are bound, the state folder exists), the process keeps only the capabilities it uses
//! (`capabilities.rs`), can gain none (`no_new_privs`), can open nothing of the file system but the shares, its state
//! and the files it reads (`files.rs`, Landlock), and can make no system call but the listed ones (`calls.rs`,
//! seccomp). Each part has a key of `[sandbox]` that turns it off, and `holdfast status` shows which parts are in
//! force.
//!
//! Invariants: this runs on the main thread before any other thread that serves is started, because capabilities
//! and Landlock are inherited and do not apply to existing threads. A part that the kernel does not have is left
//! out with a warning; a part that fails ends the start.

pub mod calls;
mod capabilities;
mod files;

use std::{
    io,
    path::{Path, PathBuf},
};

use vfs::linux::trap;

use crate::{
    Error,
    answers::SandboxStatus,
    config::{self, Config},
};

pub(crate) use capabilities::check_identities;

/// The parts that are in force for this process.
#[derive(Debug, Clone, Default)]
pub struct SandboxReport {
    /// As `holdfast status` shows them, but for the number of refused calls.
    parts: SandboxStatus,
    /// Folders whose contents can still be opened; `None`: all.
    folders: Option<Vec<PathBuf>>,
}

/// Gives up the privileges that a server of this configuration does not need.
///
/// # Errors
/// The part that the kernel refused.
pub fn enter(config: &Config, config_file: Option<&Path>) -> Result<SandboxReport, Error> {
    let settings = &config.sandbox;
    let said = |part: &str, key: &str, error: io::Error| {
        Error::from(format!(
            "the sandbox cannot be entered: {part}: {error}\n  = `{key} = false` in [sandbox] leaves this part out"
        ))
    };
    check_identities()?;
    let mut folders = None;
    let mut parts = SandboxStatus::default();
    if settings.drop_capabilities {
        let kept = capabilities::drop_unused()
            .map_err(|error| said("capabilities", "drop_capabilities", error))?;
        parts.capabilities = Some(kept.into_iter().map(str::to_owned).collect());
    }
    if settings.landlock {
        match files::restrict(config, config_file) {
            Ok(open) => {
                let shown = open.iter().map(|one| one.display().to_string());
                parts.landlock = Some(shown.collect());
                folders = Some(open);
            }
            Err(no_rule) if no_rule.is_left_out => {
                tracing::warn!("Landlock is not in force: {}", no_rule.why);
                parts.without_landlock = Some(no_rule.why);
            }
            Err(no_rule) => {
                return Err(said("Landlock", "landlock", io::Error::other(no_rule.why)));
            }
        }
    }
    if settings.seccomp {
        calls::restrict().map_err(|error| said("seccomp", "seccomp", error))?;
        parts.seccomp = true;
    }
    tracing::info!(
        capabilities = parts.capabilities.as_ref().map(|kept| kept.join(" ")),
        landlock = folders.is_some(),
        seccomp = parts.seccomp,
        "sandbox"
    );
    Ok(SandboxReport { parts, folders })
}

impl SandboxReport {
    /// The first of these folders that this process could not open any more to change something in
    /// it, as a message for the administrator. This may wait for a disk.
    ///
    /// # Errors
    /// One of the folders could not be opened any more; the message names it.
    pub fn reaches<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Result<(), Error> {
        let Some(folders) = &self.folders else {
            return Ok(());
        };
        let paths = paths.into_iter();
        let mut new = paths.filter(|path| !folders.iter().any(|folder| folder == path));
        let outside = |path: &&Path| {
            let (asked, folders) = (path.to_path_buf(), folders.clone());
            let within = config::in_time(path, move || {
                let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
                let path = real(&asked);
                folders.iter().any(|folder| path.starts_with(real(folder)))
            });
            // A folder that does not answer now reports its error when it is opened.
            within == Some(false)
        };
        new.find(outside).map_or(Ok(()), |path| {
            fail!(
                "{} is outside of what this process can still open\n  = restart the server; \
                 `folders` in [sandbox] names where a reload may add shares and find the users",
                path.display()
            )
        })
    }

    /// The parts of the sandbox that are in force, for `holdfast status`.
    #[must_use]
    pub fn status(&self) -> SandboxStatus {
        SandboxStatus {
            calls_refused: trap::refused(),
            ..self.parts.clone()
        }
    }
}
