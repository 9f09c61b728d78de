//! What the process gives up before it serves anybody.
//!
//! A hole in the server must not be a hole in the machine. Once everything that needs more is done
//! (sockets are bound, the state folder is there), the process keeps only the capabilities it uses
//! (`capabilities.rs`), can gain none (`no_new_privs`), sees nothing of the file system but the
//! shares, its state and what it reads (`files.rs`, Landlock), and makes no system call but those
//! it was written for (`calls.rs`, seccomp). Each part has a key of `[sandbox]` that turns it off,
//! and `holdfast status` shows what holds.
//!
//! Invariants: runs on the main thread before any other thread that serves is started, as
//! capabilities and Landlock are inherited and not spread. A part that the kernel does not have is
//! left out with a warning, a part that fails ends the start.

pub mod calls;
mod capabilities;
mod files;

use std::{
    io,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::config::{self, Config};

/// What holds for this process.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Names of the capabilities that are left; `None`: those it was started with.
    capabilities: Option<Vec<&'static str>>,
    /// Folders whose contents can still be opened; `None`: all.
    folders: Option<Vec<PathBuf>>,
    /// Why Landlock is not in force though it was wanted.
    without_landlock: Option<String>,
    seccomp: bool,
}

/// Gives up what a server of this configuration does not need.
///
/// # Errors
/// What the kernel refused.
pub fn enter(config: &Config, config_file: Option<&Path>) -> Result<Report, String> {
    let settings = &config.sandbox;
    let said = |part: &str, key: &str, error: io::Error| {
        format!(
            "the sandbox cannot be entered: {part}: {error}\n  = `{key} = false` in [sandbox] leaves this part out"
        )
    };
    let mut report = Report::default();
    if settings.drop_capabilities {
        let kept = capabilities::drop_unused(config)
            .map_err(|error| said("capabilities", "drop_capabilities", error))?;
        report.capabilities = Some(kept);
    }
    if settings.landlock {
        match files::restrict(config, config_file) {
            Ok(folders) => report.folders = Some(folders),
            Err(files::Failure::Without(why)) => {
                tracing::warn!("Landlock is not in force: {why}");
                report.without_landlock = Some(why);
            }
            Err(files::Failure::Failed(why)) => {
                return Err(said("Landlock", "landlock", io::Error::other(why)));
            }
        }
    }
    if settings.seccomp {
        calls::restrict().map_err(|error| said("seccomp", "seccomp", error))?;
        report.seccomp = true;
    }
    tracing::info!(
        capabilities = report.capabilities.as_ref().map(|kept| kept.join(" ")),
        landlock = report.folders.is_some(),
        seccomp = report.seccomp,
        "sandbox"
    );
    Ok(report)
}

impl Report {
    /// The first share of a new configuration that this process could not open any more. May wait
    /// for a disk.
    #[must_use]
    pub fn out_of_reach(&self, config: &Config) -> Option<PathBuf> {
        let folders = self.folders.as_ref()?;
        let paths = config.shares.iter().map(|share| &share.path);
        let mut new = paths.filter(|path| !folders.contains(path));
        let outside = |path: &&PathBuf| {
            let (path, folders) = ((*path).clone(), folders.clone());
            let within = config::in_time(move || {
                let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
                let path = real(&path);
                folders.iter().any(|folder| path.starts_with(real(folder)))
            });
            // Whoever opens what does not answer now finds out.
            within == Some(false)
        };
        new.find(outside).cloned()
    }

    /// For `holdfast status`.
    #[must_use]
    pub fn status(&self) -> Value {
        json!({
            "capabilities": self.capabilities,
            "landlock": self.folders,
            "without_landlock": self.without_landlock,
            "seccomp": self.seccomp,
            "calls_refused": calls::refused(),
        })
    }
}
