//! The common needs of measuring chores: root, a release binary, a scratch folder, and the options that all of them
//! understand.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;
use tempfile::TempDir;

use crate::Failure;

/// Most rounds.
const ROUNDS_MAX: usize = 100;

/// Options of all measuring chores.
#[derive(Args)]
pub(crate) struct Common {
    /// Small sizes and few rounds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds over all servers (compare: 10, quick: 2, verdicts need 6; price: 3, quick: 1)
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Only what has one of these in its name ("read-4k,netbench")
    #[arg(long, value_name = "LIST")]
    only: Option<String>,
    /// This holdfast instead of a release build of this tree
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where state, images, mounts and shares go (default: the temporary folder)
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Where the numbers go (default: target/CHORE.json)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Common {
    /// Rounds over all servers; `full` and `quick` are the chore's own.
    pub(crate) fn rounds(&self, full: usize, quick: usize) -> usize {
        let own = if self.quick { quick } else { full };
        self.rounds.unwrap_or(own).clamp(1, ROUNDS_MAX)
    }

    /// Where the numbers of a chore go.
    pub(crate) fn json(&self, chore: &str) -> PathBuf {
        let json = self.json.clone();
        json.unwrap_or_else(|| format!("target/{chore}.json").into())
    }

    /// Whether something of this name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        is_among(self.only.as_deref(), name)
    }
}

/// Whether a name has one of the parts of a list in it, if there is a list.
pub(crate) fn is_among(list: Option<&str>, name: &str) -> bool {
    list.is_none_or(|list| list.split(',').any(|part| name.contains(part)))
}

/// Where a chore works and with what.
pub(crate) struct Bed {
    /// The server.
    pub(crate) binary: PathBuf,
    /// Ends with this value.
    pub(crate) scratch: TempDir,
}

impl Bed {
    /// Checks for root, builds the server unless one was named, and makes the scratch folder.
    pub(crate) fn make(common: &Common, chore: &str, why_root: &str) -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(format!("{chore} needs root: {why_root}").into());
        }
        let binary = match &common.binary {
            Some(binary) => std::path::absolute(binary)?,
            None => build()?,
        };
        let prefix = format!("holdfast-{chore}");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        let scratch = match &common.scratch {
            Some(folder) => builder.tempdir_in(folder)?,
            None => builder.tempdir()?,
        };
        smb_load::rig::server::open_up(scratch.path())?;
        Ok(Self { binary, scratch })
    }

    /// The scratch folder.
    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }
}

/// A release build of this tree.
fn build() -> Result<PathBuf, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--package",
            "smbd",
            "--bin",
            "holdfast",
        ])
        .current_dir(&root)
        .status()?;
    if !status.success() {
        return Err("holdfast does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(std::path::absolute(target.join("release/holdfast"))?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn own_options_take_values_among_the_common_ones() {
        #[derive(clap::Parser)]
        struct Options {
            #[command(flatten)]
            common: Common,
            #[arg(long)]
            size: u32,
        }

        let args = ["x", "--only", "read,write", "--size", "7", "--quick"];
        let options = Options::try_parse_from(args).unwrap();
        let common = options.common;
        let rounds = common.rounds(5, 2);
        assert_eq!((options.size, rounds, common.quick), (7, 2, true));
        assert!(common.wants("small-write") && !common.wants("echo"));
        assert!(Options::try_parse_from(&args[..3]).is_err());
    }
}
