//! The programs of servers, so that the measurements of two builds of one version are never mixed.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use super::{bed::Failure, plan::ServerKind, result::Run};

/// Bytes of a program that are read at once, a multiple of a word.
const BLOCK: u64 = 1 << 20;

/// A server's program: its version, and length and checksum of its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Build {
    pub(super) version: String,
    pub(super) file: String,
}

/// Refuses to go on with the measurements of a server whose program is another one now: medians would be of both.
pub(super) fn check(runs: &[Run], server: &str, build: &Build) -> Result<(), String> {
    let mut of_server = runs.iter().filter(|run| run.record.server == server);
    let is_other = |of: &str, now: &str| !of.is_empty() && of != now;
    let other = of_server.find(|run| {
        is_other(&run.server_version, &build.version) || is_other(&run.server_program, &build.file)
    });
    match other {
        None => Ok(()),
        Some(run) => Err(format!(
            "{server:?} was another program when it was measured ({} {}) than it is now ({} {}): delete its files in \
             the folder runs, or take another folder of results",
            run.server_version, run.server_program, build.version, build.file
        )),
    }
}

/// The program of a server that is started here.
pub(super) fn path(kind: &ServerKind) -> Result<PathBuf, Failure> {
    match kind {
        ServerKind::Holdfast {
            binary: Some(binary),
            ..
        } => Ok(std::path::absolute(binary)?),
        ServerKind::Samba { .. } => Ok("smbd".into()),
        _ => Ok(std::env::current_exe()?),
    }
}

/// The programs of servers, as their measurements state them. Several servers may have one file, which is read once.
pub(super) fn builds<'a>(
    kinds: impl Iterator<Item = &'a ServerKind>,
) -> Result<Vec<Build>, Failure> {
    let mut known: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut builds = Vec::new();
    for kind in kinds {
        let mut file = String::new();
        if let ServerKind::Holdfast { .. } | ServerKind::Limit { .. } = kind {
            let path = path(kind)?;
            file = match known.get(&path) {
                Some(file) => file.clone(),
                None => identity(&path)?,
            };
            known.insert(path, file.clone());
        }
        let version = version(kind);
        builds.push(Build { version, file });
    }
    Ok(builds)
}

/// Length and checksum (FNV-1a over words) of a file.
fn identity(path: &Path) -> Result<String, Failure> {
    let mut file = fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut length, mut sum) = (0, 0xCBF2_9CE4_8422_2325_u64);
    let mut block = Vec::new();
    loop {
        block.clear();
        file.by_ref().take(BLOCK).read_to_end(&mut block)?;
        if block.is_empty() {
            return Ok(format!("{length} bytes, {sum:016x}"));
        }
        length += block.len();
        for chunk in block.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

/// The version that the server's program states; empty if it runs elsewhere.
fn version(kind: &ServerKind) -> String {
    if let ServerKind::Address { .. } = kind {
        return String::new();
    }
    let output = path(kind).and_then(|program| {
        let mut command = match kind {
            ServerKind::Samba {
                root: Some(root), ..
            } => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.arg("--version").output().map_err(Failure::from)
    });
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_built_anew_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let of = |bytes: &[u8]| {
            let path = folder.path().join("program");
            fs::write(&path, bytes).unwrap();
            identity(&path).unwrap()
        };
        assert_eq!(of(b"one program"), of(b"one program"));
        for other in [
            &b"one_program"[..],
            b"one programs",
            b"one program\0",
            b"eno program",
            b"",
        ] {
            assert_ne!(of(b"one program"), of(other));
        }
        assert!(identity(&folder.path().join("none")).is_err());
    }
}
