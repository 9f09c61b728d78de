//! The configuration of `serve PATH`: the values of the command line, and defaults for the rest.
//!
//! It is converted into the same tables as a file and checked by the same code, so that nothing is
//! allowed here that a file may not contain.

use std::path::{Path, PathBuf};

use serde_spanned::Spanned;

use super::{Config, Encryption, Problem, raw, validate, values::WrittenPath};

/// The arguments of `serve PATH`.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// Name and folder of each share.
    pub shares: Vec<(String, PathBuf)>,
    pub state_dir: PathBuf,
    /// Durability policy, as written.
    pub durability: Option<String>,
    pub accept_loss: bool,
    pub encryption: Option<Encryption>,
    pub read_only: bool,
}

/// The command line has no rules.
const NO_FILE: super::rules::Source<'static> = super::rules::Source { file: "", text: "" };

/// Makes the configuration; the caller must set the listeners once the port is known.
pub fn from_command_line(line: &CommandLine) -> Result<Config, Vec<Problem>> {
    let share = |(name, path): &(String, PathBuf)| {
        spanned(raw::ShareTable {
            name: at(name.clone()),
            path: at(WrittenPath(path.clone())),
            read_only: at(line.read_only),
            ..raw::ShareTable::default()
        })
    };
    let file = raw::File {
        server: raw::ServerTable {
            state_dir: at(WrittenPath(line.state_dir.clone())),
            encryption: line.encryption.map(spanned),
            ..raw::ServerTable::default()
        },
        share: line.shares.iter().map(share).collect(),
        durability: raw::DurabilityTable {
            policy: line.durability.clone().map(spanned),
            accept_loss: at(line.accept_loss),
            ..raw::DurabilityTable::default()
        },
        ..raw::File::default()
    };
    validate::validate(&file, Path::new(""), NO_FILE, &[])
        .map_err(|problems| problems.into_iter().map(in_command_line_words).collect())
}

fn in_command_line_words(problem: Problem) -> Problem {
    let way_out = problem.way_out.map(|text| {
        if text == super::share::UNGUARDED.1 {
            "say --accept-loss; or use --durability bounded:50ms,4MiB".to_owned()
        } else if text == super::apart::STATE {
            super::apart::WITHOUT_FILE.to_owned()
        } else if text == "rename one of the two" {
            "name them apart: NAME=PATH".to_owned()
        } else {
            let first = "set max_delay and max_bytes, or ";
            text.replace(first, "").replace(
                "policy = \"bounded:50ms,4MiB\"",
                "--durability bounded:50ms,4MiB",
            )
        }
    });
    Problem {
        message: problem.message,
        span: None,
        way_out,
    }
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn at<T>(value: T) -> raw::At<T> {
    Some(spanned(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Policy, Signing};

    fn line(shares: &[(&str, &Path)]) -> CommandLine {
        let shares = shares
            .iter()
            .map(|(name, path)| ((*name).to_owned(), path.to_path_buf()));
        CommandLine {
            shares: shares.collect(),
            state_dir: "/no/such/state".into(),
            ..CommandLine::default()
        }
    }

    #[test]
    fn the_same_rules_hold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let config = from_command_line(&line(&[("a", path), ("b", path)])).unwrap();
        assert_eq!(config.shares.len(), 2);
        assert_eq!(config.server.signing, Signing::Required);
        assert_eq!(config.shares[0].durability.policy, Policy::Honor);
        let strict = CommandLine {
            durability: Some("strict-sync".into()),
            encryption: Some(Encryption::Required),
            read_only: true,
            ..line(&[("a", path)])
        };
        let config = from_command_line(&strict).unwrap();
        assert_eq!(config.shares[0].durability.policy, Policy::StrictSync);
        assert_eq!(config.shares[0].encryption, Encryption::Required);
        assert!(config.shares[0].read_only);
    }

    #[test]
    fn complaints_speak_of_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let complain = |line: &CommandLine| {
            let problems = from_command_line(line).unwrap_err();
            assert!(problems.iter().all(|problem| problem.span.is_none()));
            let first = problems.into_iter().next().unwrap();
            format!("{}; {}", first.message, first.way_out.unwrap_or_default())
        };
        let loose = "treat-host-as-stable-storage".to_owned();
        let mut unguarded = CommandLine {
            durability: Some(loose),
            ..line(&[("a", path)])
        };
        assert!(complain(&unguarded).contains("say --accept-loss"));
        unguarded.accept_loss = true;
        from_command_line(&unguarded).unwrap();
        assert!(complain(&line(&[("a", path), ("A", path)])).contains("NAME=PATH"));
        assert!(complain(&line(&[("a/b", path)])).contains("cannot write `/`"));
        assert!(complain(&line(&[("a", Path::new("/no/such"))])).contains("mkdir -p /no/such"));
        let bounded = CommandLine {
            durability: Some("bounded".into()),
            ..line(&[("a", path)])
        };
        assert!(complain(&bounded).contains("write --durability bounded:50ms,4MiB"));
    }
}
