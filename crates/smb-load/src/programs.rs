//! Commands of the shell as clients: those of others, such as smbclient.
//!
//! A command finds the server in HOST, PORT, SHARE, SMB_USER and SMB_PASSWORD. A run of it is one step, however long it
//! takes; its last line `operations N` says how many operations that were, else it is one.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use crate::{Measured, Watch, cpu, rig::Failure, rig::server::Access};

/// A client that is no part of this project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// The work that is measured.
    pub command: String,
    /// Makes all that has to be there before, such as files.
    #[serde(default)]
    pub prepare: String,
    /// The command that removes everything that is left.
    #[serde(default)]
    pub after: String,
}

impl Program {
    /// Runs it once, in a folder that stays for all its runs.
    pub(crate) fn run(
        &self,
        access: &Access,
        folder: &Path,
        watch: &dyn Watch,
    ) -> Result<Measured, Failure> {
        let shell = |command: &str| shell(command, access, folder);
        shell(&self.prepare)?;
        watch.begins();
        let begun = Instant::now();
        let before = cpu::of_ended_children();
        let said = shell(&self.command);
        let seconds = begun.elapsed().as_secs_f64();
        let used = cpu::of_ended_children() - before;
        watch.ends();
        // It takes away what a command leaves that failed, too; the first failure is the one to report.
        let after = shell(&self.after);
        let operations = operations(&said?)?;
        after?;
        Ok(Measured::of_program(seconds, operations, used))
    }
}

fn shell(command: &str, access: &Access, folder: &Path) -> Result<String, Failure> {
    let output = Command::new("/bin/sh")
        .args(["-e", "-c", command])
        .env("HOST", &access.host)
        .env("PORT", access.port.to_string())
        .env("SHARE", &access.share)
        .env("SMB_USER", &access.user)
        .env("SMB_PASSWORD", &access.password)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // smbclient ends well although a command failed; then it names the status.
    if !output.status.success() || said.contains("NT_STATUS_") {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {said}{complaint}", output.status).into());
    }
    Ok(said)
}

/// The number in the last such line; without one the run is one operation.
fn operations(said: &str) -> Result<u64, Failure> {
    let mut lines = said.lines().rev();
    let number = lines.find_map(|line| line.trim().strip_prefix("operations "));
    number.map_or(Ok(1), |number| {
        let parsed = number.trim().parse::<u64>();
        parsed.map_err(|error| format!("operations {number}: {error}").into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Home, Step,
        experiment::{self, Target, Workload},
    };

    #[test]
    fn a_program_that_did_nothing_or_counts_in_words_has_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::local("127.0.0.1", 4450);
        let connect = || -> Result<Home, String> { Err("a program connects by itself".to_owned()) };
        let step = Step {
            warm_up: std::time::Duration::ZERO,
            length: std::time::Duration::from_secs(1),
        };
        let is_measured = |command: &str| {
            let program = Program {
                command: command.to_owned(),
                prepare: String::new(),
                after: String::new(),
            };
            let target = Target {
                connect: &connect,
                access: Some((&access, folder.path())),
                shares: &[],
                is_limit: false,
            };
            experiment::run(&Workload::Program(program), 1, step, target, &()).is_ok()
        };
        assert!(is_measured("echo operations 7"));
        for wrong in [
            "echo operations 0",
            "echo operations many",
            "echo operations 3.5",
        ] {
            assert!(!is_measured(wrong), "{wrong}");
        }
    }

    fn ran(program: &Program) -> Result<Measured, Failure> {
        let folder = tempfile::tempdir().unwrap();
        program.run(&Access::local("127.0.0.1", 4450), folder.path(), &())
    }

    #[test]
    fn what_a_command_leaves_that_failed_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program {
            prepare: "touch left".to_owned(),
            command: "echo from the command; false".to_owned(),
            after: "rm left; false".to_owned(),
        };
        let access = Access::local("127.0.0.1", 4450);
        let error = program.run(&access, folder.path(), &()).unwrap_err();
        assert!(error.to_string().contains("from the command"), "{error}");
        assert!(!folder.path().join("left").exists());
    }

    #[test]
    fn a_program_says_how_many_operations_its_run_was() {
        let mut program = Program {
            prepare: "echo 12 > number".to_owned(),
            command: "echo operations $(cat number); test $PORT = 4450".to_owned(),
            after: "rm number".to_owned(),
        };
        assert_eq!(ran(&program).unwrap().operations, 12);
        program.command = "true".to_owned();
        assert_eq!(ran(&program).unwrap().operations, 1);
        program.command = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done".to_owned();
        assert!(ran(&program).unwrap().client_cpu > 0.0);
        for wrong in ["false", "echo NT_STATUS_NO_SUCH_FILE", "false; true"] {
            program.command = wrong.to_owned();
            assert!(ran(&program).is_err(), "{wrong}");
        }
    }
}
