//! The common needs of measuring chores: root, a release binary, a scratch folder, and the options that all of them
//! understand.

use std::{
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use tempfile::TempDir;

use crate::Failure;

/// Most rounds.
const ROUNDS_MAX: usize = 100;

/// Options of all measuring chores.
pub(crate) struct Common {
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    /// Part of the names of what is wanted.
    pub(crate) only: Option<String>,
    binary: Option<PathBuf>,
    scratch: Option<PathBuf>,
    pub(crate) json: PathBuf,
}

/// The rest of a command line while an option takes its value.
pub(crate) struct Values<'a> {
    option: &'a str,
    rest: std::slice::Iter<'a, String>,
}

impl<'a> Values<'a> {
    /// The whole of a command line.
    pub(crate) fn new(args: &'a [String]) -> Self {
        Self {
            option: "",
            rest: args.iter(),
        }
    }

    /// The next option.
    pub(crate) fn next(&mut self) -> Option<&'a String> {
        let option = self.rest.next()?;
        self.option = option;
        Some(option)
    }

    /// The value of the option at hand.
    pub(crate) fn text(&mut self) -> Result<&'a String, Failure> {
        let value = self.rest.next();
        value.ok_or_else(|| format!("{} needs a value", self.option).into())
    }

    /// The same, of any type.
    pub(crate) fn parse<T>(&mut self) -> Result<T, Failure>
    where
        T: FromStr<Err: std::error::Error + 'static>,
    {
        Ok(self.text()?.parse()?)
    }
}

impl Common {
    /// Reads a command line. `rounds` are the defaults, full and quick; `own` is given each
    /// option that is not common, and says whether it knows it.
    pub(crate) fn parse(
        args: &[String],
        chore: &str,
        rounds: (usize, usize),
        mut own: impl FnMut(&str, &mut Values<'_>) -> Result<bool, Failure>,
    ) -> Result<Self, Failure> {
        let quick = args.iter().any(|arg| arg == "--quick");
        let mut this = Self {
            quick,
            rounds: if quick { rounds.1 } else { rounds.0 },
            only: None,
            binary: None,
            scratch: None,
            json: PathBuf::from(format!("target/{chore}.json")),
        };
        let mut values = Values::new(args);
        while let Some(arg) = values.next() {
            match arg.as_str() {
                "--quick" => {}
                "--rounds" => this.rounds = values.parse::<usize>()?.clamp(1, ROUNDS_MAX),
                "--only" => this.only = Some(values.text()?.clone()),
                "--binary" => this.binary = Some(values.text()?.into()),
                "--scratch" => this.scratch = Some(values.text()?.into()),
                "--json" => this.json = values.text()?.into(),
                other if own(other, &mut values)? => {}
                _ => return Err(crate::HELP.into()),
            }
        }
        Ok(this)
    }

    /// Whether something of this name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let only = self.only.as_deref().unwrap_or_default();
        only.split(',').any(|part| name.contains(part))
    }
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
    use super::*;

    #[test]
    fn own_options_take_values_among_the_common_ones() {
        let args = ["--only", "read,write", "--size", "7", "--quick"].map(String::from);
        let mut size = 0_u32;
        let common = Common::parse(&args, "x", (5, 2), |option, values| {
            if option == "--size" {
                size = values.parse()?;
            }
            Ok(option == "--size")
        })
        .unwrap();
        assert_eq!((size, common.rounds, common.quick), (7, 2, true));
        assert!(common.wants("small-write") && !common.wants("echo"));
        assert!(Common::parse(&args, "x", (5, 2), |_, _| Ok(false)).is_err());
    }
}
