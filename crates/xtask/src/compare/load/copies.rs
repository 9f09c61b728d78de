//! Clients from outside this project: smbclient's copies, and whatever `--client` names.
//!
//! Several copies go through one connection, so that its set-up weighs little.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use smb_client::Tree;

use super::{Context, Done, Protection, Ready, connect, folder, names_in};
use smb_load::rig::server::Access;

use crate::Failure;

/// Whole copies in one smbclient run.
const COPIES: usize = 4;
/// Bytes of a small file.
const SMALL_BYTES: usize = 8192;
const PUT_SMALL: &str = "cd small; lcd small; prompt off; mput file-*";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Copy {
    Put,
    Get,
    PutSmall,
    GetSmall,
    RemoveSmall,
    Sessions,
}

/// Makes what is sent.
pub(super) fn prepare(scratch: &Path, big_mib: u64, small_files: u64) -> Result<PathBuf, Failure> {
    let input = scratch.join("input");
    fs::create_dir_all(input.join("small"))?;
    fs::create_dir_all(input.join("back"))?;
    let mut block = vec![0_u8; 1 << 20];
    for (index, byte) in block.iter_mut().enumerate() {
        *byte = u8::try_from((index * 31 + index / 251) % 251)?;
    }
    let mut big = fs::File::create(input.join("big"))?;
    for _ in 0..big_mib {
        std::io::Write::write_all(&mut big, &block)?;
    }
    for number in 0..small_files {
        let content = block.get(..SMALL_BYTES).unwrap_or_default();
        fs::write(input.join(format!("small/file-{number:05}")), content)?;
    }
    Ok(input)
}

/// smbclient as it is run on one server.
#[derive(Clone)]
struct Smbclient {
    access: Access,
    input: PathBuf,
    login: PathBuf,
    protection: &'static str,
}

impl Smbclient {
    fn new(context: &Context<'_>, protection: &'static str) -> Result<Self, Failure> {
        let access = context.access.clone();
        let login = context.input.join(format!("login-{}", access.port));
        let text = format!(
            "username = {}\npassword = {}\n",
            access.user, access.password
        );
        fs::write(&login, text)?;
        fs::set_permissions(&login, fs::Permissions::from_mode(0o600))?;
        Ok(Self {
            access,
            input: context.input.to_owned(),
            login,
            protection,
        })
    }

    fn run(&self, commands: &str) -> Result<(), Failure> {
        let output = Command::new("smbclient")
            .arg(format!("//{}/{}", self.access.host, self.access.share))
            .args(["-p", &self.access.port.to_string(), "-m", "SMB3_11", "-A"])
            .arg(&self.login)
            .arg(format!("--client-protection={}", self.protection))
            .args(["-t", "120", "-c", commands])
            .current_dir(&self.input)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        // smbclient ends well although a command failed; then it names the status.
        if !output.status.success() || said.contains("NT_STATUS_") {
            return Err(format!("smbclient {commands}: {said}").into());
        }
        Ok(())
    }
}

pub(super) fn ready(
    what: Copy,
    protection: &'static str,
    context: &Context<'_>,
) -> Result<Ready, Failure> {
    let client = Smbclient::new(context, protection)?;
    let sizes = context.sizes;
    match what {
        Copy::Put | Copy::Get => client.run("put big big")?,
        Copy::PutSmall | Copy::GetSmall | Copy::RemoveSmall => {
            let tree = connect(context.access, Protection::Plain)?;
            folder(&tree, "small")?;
            if what == Copy::PutSmall {
                remove_all(&tree)?;
            } else if (names_in(&tree, "small")?.len() as u64) < sizes.small_files {
                client.run(PUT_SMALL)?;
            }
        }
        Copy::Sessions => {}
    }
    Ok(Ready::new(move || {
        let units = match what {
            Copy::Put | Copy::Get => sizes.big_mib as f64 * COPIES as f64 / 1024.0,
            Copy::Sessions => sizes.sessions as f64,
            _ => sizes.small_files as f64,
        };
        match what {
            Copy::Put => client.run(&"put big big;".repeat(COPIES))?,
            // One file over and over: what is replaced gives its memory to what replaces it.
            // (New pages of a virtual machine can cost the writer many times the copy.)
            Copy::Get => client.run(&"get big /dev/null;".repeat(COPIES))?,
            Copy::PutSmall => client.run(PUT_SMALL)?,
            Copy::GetSmall => client.run("cd small; lcd back; prompt off; mget file-*")?,
            Copy::RemoveSmall => client.run("cd small; del file-*")?,
            Copy::Sessions => {
                for _ in 0..sizes.sessions {
                    client.run("exit")?;
                }
            }
        }
        Ok(Done::new(units))
    }))
}

fn remove_all(tree: &Tree) -> Result<(), Failure> {
    for name in names_in(tree, "small")? {
        tree.delete(&format!("small\\{name}"))?;
    }
    Ok(())
}

/// A command of the shell that finds the server in HOST, PORT, SHARE, SMB_USER and SMB_PASSWORD, and may
/// end its output with a line `operations N`.
pub(super) fn outside(command: &str, context: &Context<'_>) -> Result<Ready, Failure> {
    let access = context.access.clone();
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", command])
        .env("HOST", &access.host)
        .env("PORT", access.port.to_string())
        .env("SHARE", &access.share)
        .env("SMB_USER", &access.user)
        .env("SMB_PASSWORD", &access.password)
        .stdin(Stdio::null());
    Ok(Ready::new(move || {
        let output = shell.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {said}{complaint}", output.status).into());
        }
        Ok(Done::new(operations(&said)))
    }))
}

/// The number in the last such line; without one the run is one operation.
fn operations(said: &str) -> f64 {
    let told = said.lines().rev().find_map(|line| {
        let number = line.trim().strip_prefix("operations ")?;
        number.trim().parse::<u32>().ok()
    });
    told.map_or(1.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_another_client() {
        assert_eq!(operations("x\noperations 12\nbye\n"), 12.0);
        assert_eq!(operations("operations many\n"), 1.0);
    }
}
