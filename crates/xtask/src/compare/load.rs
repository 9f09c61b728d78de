//! The work that each server is given.
//!
//! Copies are smbclient's, several in one connection so that its set-up weighs little; small
//! operations are `smb-client`'s, whose connection is open and whose file is filled before the
//! clock starts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use smb_client::{Client, CreateArgs, File, Options, Signing, Tree};
use smb_wire::{access_mask::AccessMask, msg::WriteFlags};

use super::servers::{PASSWORD, SHARE, Server, USER};
use crate::Failure;

/// Whole copies in one smbclient run.
const COPIES: usize = 4;

/// Bytes of a small file.
const SMALL_BYTES: usize = 8192;

/// Bytes of the file that small reads and writes go to.
const FIELD_BYTES: usize = 16 << 20;

/// Sizes and counts.
pub(crate) struct Sizes {
    pub(crate) big_mib: u64,
    small_files: u64,
    operations: u64,
    sessions: u64,
}

impl Sizes {
    pub(crate) const QUICK: Self = Self {
        big_mib: 48,
        small_files: 100,
        operations: 2000,
        sessions: 10,
    };
    pub(crate) const FULL: Self = Self {
        big_mib: 256,
        small_files: 400,
        operations: 20_000,
        sessions: 40,
    };
}

/// What a cost is told per.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Gib,
    Operation,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Put,
    Get,
    PutSmall,
    GetSmall,
    RemoveSmall,
    Sessions,
    /// Bytes each, how many outstanding.
    Read(u32, usize),
    Write(u32, usize),
    OpenClose,
    CreateRemove,
    WriteFlush,
    Echo,
}

/// One kind of work.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    task: Task,
    /// smbclient's `--client-protection`.
    protection: &'static str,
}

/// All of them.
pub(crate) fn workloads() -> Vec<Workload> {
    use Unit::{Gib, Operation};
    let work = |name, unit, task, protection| Workload {
        name,
        unit,
        task,
        protection,
    };
    vec![
        work("copy-to-plain", Gib, Task::Put, "off"),
        work("copy-from-plain", Gib, Task::Get, "off"),
        work("copy-to-signed", Gib, Task::Put, "sign"),
        work("copy-from-signed", Gib, Task::Get, "sign"),
        work("copy-to-encrypted", Gib, Task::Put, "encrypt"),
        work("copy-from-encrypted", Gib, Task::Get, "encrypt"),
        work("small-files-to", Operation, Task::PutSmall, "sign"),
        work("small-files-from", Operation, Task::GetSmall, "sign"),
        work("small-files-remove", Operation, Task::RemoveSmall, "sign"),
        work("session", Operation, Task::Sessions, "sign"),
        work("read-4k-q1", Operation, Task::Read(4096, 1), "off"),
        work("read-4k-q16", Operation, Task::Read(4096, 16), "off"),
        work("read-64k-q4", Operation, Task::Read(65_536, 4), "off"),
        work("write-4k-q16", Operation, Task::Write(4096, 16), "off"),
        work("write-64k-q4", Operation, Task::Write(65_536, 4), "off"),
        work(
            "read-4k-q16-signed",
            Operation,
            Task::Read(4096, 16),
            "sign",
        ),
        work("write-flush-4k", Operation, Task::WriteFlush, "off"),
        work("open-close", Operation, Task::OpenClose, "off"),
        work("create-remove", Operation, Task::CreateRemove, "off"),
        work("echo", Operation, Task::Echo, "off"),
    ]
}

/// Makes the files that clients send; returns their folder.
pub(crate) fn prepare(scratch: &Path, sizes: &Sizes) -> Result<PathBuf, Failure> {
    let input = scratch.join("input");
    fs::create_dir_all(input.join("small"))?;
    fs::create_dir_all(input.join("back"))?;
    let mut block = vec![0_u8; 1 << 20];
    for (index, byte) in block.iter_mut().enumerate() {
        *byte = u8::try_from((index * 31 + index / 251) % 251)?;
    }
    let mut big = fs::File::create(input.join("big"))?;
    for _ in 0..sizes.big_mib {
        std::io::Write::write_all(&mut big, &block)?;
    }
    for number in 0..sizes.small_files {
        let content = block.get(..SMALL_BYTES).unwrap_or_default();
        fs::write(input.join(format!("small/file-{number:05}")), content)?;
    }
    fs::write(
        input.join("login"),
        format!("username = {USER}\npassword = {PASSWORD}\n"),
    )?;
    Ok(input)
}

/// What is ready before the clock starts.
pub(crate) struct Prepared(Option<(Tree, File)>);

/// Brings a server into the state a workload begins with.
pub(crate) fn setup(work: &Workload, server: &Server, input: &Path) -> Result<Prepared, Failure> {
    let mut prepared = Prepared(None);
    match work.task {
        Task::Put | Task::Get => {
            smbclient(server, input, work.protection, "put big big")?;
        }
        Task::PutSmall => {
            let _ = fs::remove_dir_all(server.folder.join("small"));
            smbclient(server, input, work.protection, "mkdir small")?;
        }
        Task::GetSmall | Task::RemoveSmall if !server.folder.join("small/file-00000").exists() => {
            smbclient(server, input, work.protection, "mkdir small").ok();
            smbclient(server, input, work.protection, PUT_SMALL)?;
        }
        Task::GetSmall | Task::RemoveSmall | Task::Sessions => {}
        _ => prepared.0 = Some(field(server, work)?),
    }
    // What the preparation left to do is not the workload's.
    std::thread::sleep(Duration::from_millis(30));
    Ok(prepared)
}

const PUT_SMALL: &str = "cd small; lcd small; prompt off; mput file-*";

/// A connection with an open file full of bytes.
fn field(server: &Server, work: &Workload) -> Result<(Tree, File), Failure> {
    let signing = match work.protection {
        "sign" => Signing::Required,
        _ => Signing::IfRequired,
    };
    let options = Options {
        timeout: Duration::from_secs(60),
        ..Options::default().signing(signing)
    };
    let client = Client::connect(("127.0.0.1", server.port), options)?;
    let tree = client.login(USER, PASSWORD, "")?.tree(SHARE)?;
    let file = tree.create(&CreateArgs::open_if("field"))?;
    file.write_all(0, &vec![7; FIELD_BYTES])?;
    Ok((tree, file))
}

/// Does the work; returns how many units it was.
pub(crate) fn run(
    work: &Workload,
    server: &Server,
    input: &Path,
    sizes: &Sizes,
    prepared: Prepared,
) -> Result<f64, Failure> {
    let gib = sizes.big_mib as f64 * COPIES as f64 / 1024.0;
    let client = |commands: &str| smbclient(server, input, work.protection, commands);
    match work.task {
        Task::Put => client(&copies("put")).map(|()| gib),
        Task::Get => client(&copies("get")).map(|()| gib),
        Task::PutSmall => client(PUT_SMALL).map(|()| sizes.small_files as f64),
        Task::GetSmall => {
            client("cd small; lcd back; prompt off; mget file-*").map(|()| sizes.small_files as f64)
        }
        Task::RemoveSmall => client("cd small; del file-*").map(|()| sizes.small_files as f64),
        Task::Sessions => {
            for _ in 0..sizes.sessions {
                client("exit")?;
            }
            Ok(sizes.sessions as f64)
        }
        task => {
            let (tree, file) = prepared.0.ok_or("nothing prepared")?;
            let operations = operations(task, &tree, &file, sizes.operations)?;
            Ok(operations as f64)
        }
    }
}

/// One file over and over: what is replaced gives its memory to what replaces it. (New pages of
/// a virtual machine can cost the writer many times the copy, whoever the writer is.)
fn copies(verb: &str) -> String {
    let one = match verb {
        "put" => "put big big;",
        _ => "get big /dev/null;",
    };
    one.repeat(COPIES)
}

fn smbclient(
    server: &Server,
    input: &Path,
    protection: &str,
    commands: &str,
) -> Result<(), Failure> {
    let output = Command::new("smbclient")
        .arg(format!("//127.0.0.1/{SHARE}"))
        .args(["-p", &server.port.to_string(), "-m", "SMB3_11", "-A"])
        .arg(input.join("login"))
        .arg(format!("--client-protection={protection}"))
        .args(["-t", "120", "-c", commands])
        .current_dir(input)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    // smbclient ends well although a command failed; then it names the status.
    if !output.status.success() || said.contains("NT_STATUS_") {
        return Err(format!("smbclient {commands}: {said}").into());
    }
    Ok(())
}

fn operations(task: Task, tree: &Tree, file: &File, count: u64) -> Result<u64, Failure> {
    match task {
        Task::Read(len, depth) => {
            pipelined(tree, count, len, depth, |at| file.read_request(at, len, 0))?;
            Ok(count)
        }
        Task::Write(len, depth) => {
            let data = vec![9; usize::try_from(len)?];
            pipelined(tree, count, len, depth, |at| {
                file.write_request(at, &data, WriteFlags::empty())
            })?;
            Ok(count)
        }
        Task::WriteFlush => {
            let count = count / 20;
            for number in 0..count {
                file.write(number % 1000 * 4096, &[3; 4096], WriteFlags::empty())?;
                file.flush(false)?;
            }
            Ok(count)
        }
        Task::OpenClose => {
            let open = CreateArgs::open("field").access(AccessMask::FILE_GENERIC_READ);
            let count = count / 4;
            for _ in 0..count {
                tree.create(&open)?.close()?;
            }
            Ok(count)
        }
        Task::CreateRemove => {
            let count = count / 8;
            for _ in 0..count {
                tree.create(&CreateArgs::create("a new file"))?.close()?;
                tree.delete("a new file")?;
            }
            Ok(count)
        }
        _ => {
            for _ in 0..count {
                tree.client().echo()?;
            }
            Ok(count)
        }
    }
}

/// Keeps `depth` requests under way, at places all over the file.
fn pipelined(
    tree: &Tree,
    count: u64,
    len: u32,
    depth: usize,
    request: impl Fn(u64) -> smb_client::Request,
) -> Result<(), Failure> {
    let places = u64::try_from(FIELD_BYTES)? / u64::from(len);
    let mut under_way = std::collections::VecDeque::with_capacity(depth);
    for number in 0..count {
        if under_way.len() >= depth
            && let Some(id) = under_way.pop_front()
        {
            tree.client().wait(id)?.ok()?;
        }
        let at = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % places * u64::from(len);
        under_way.push_back(tree.send(request(at))?);
    }
    for id in under_way {
        tree.client().wait(id)?.ok()?;
    }
    Ok(())
}
