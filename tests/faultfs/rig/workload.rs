//! A fixed sequence of requests that touches everything a client can change or ask.
//!
//! Each step is one request on named handles, and says in short what the answer contained, so that
//! two runs can be compared step by step.

use std::collections::BTreeMap;

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fscc::{
        EaEntry, FileBasicInformation, FileInformationClass, FileLinkInformation, encode_ea_list,
    },
    fsctl::{CopyChunk, CopyChunkCopy, FsctlCode, RequestResumeKeyResponse},
    ids::FileTime,
    msg::{CreateDisposition, CreateOptions, InfoType, WriteFlags},
};

use crate::snapshot::runs;

/// 2020-01-01.
const TIME: u64 = 132_223_104_000_000_000;

/// DACL_SECURITY_INFORMATION.
const DACL: u32 = 4;

/// The client's side of a run.
pub(crate) struct Run {
    pub(crate) tree: Tree,
    files: BTreeMap<&'static str, File>,
}

type Outcome = Result<String, ClientError>;

/// The result that a step's retry after a refusal must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It then succeeds as if nothing had been.
    Succeeds,
    /// The handle is gone, or the inode is poisoned: nothing is asked.
    Nothing,
}

/// One request.
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) again: Again,
    run: Box<dyn Fn(&mut Run) -> Outcome>,
}

impl Step {
    pub(crate) fn run(&self, run: &mut Run) -> Outcome {
        (self.run)(run)
    }
}

impl Run {
    pub(crate) fn new(tree: Tree) -> Self {
        Self {
            tree,
            files: BTreeMap::new(),
        }
    }

    fn file(&self, handle: &str) -> File {
        self.files[handle].clone()
    }
}

#[derive(Default)]
struct Steps(Vec<Step>);

impl Steps {
    fn add(
        &mut self,
        name: impl Into<String>,
        again: Again,
        run: impl Fn(&mut Run) -> Outcome + 'static,
    ) {
        self.0.push(Step {
            name: name.into(),
            again,
            run: Box::new(run),
        });
    }

    fn create(&mut self, handle: &'static str, args: CreateArgs) {
        let name = smb_wire::utf16::decode_lossy(&args.name);
        let name = format!("CREATE {name} {:?} as {handle}", args.disposition);
        self.add(name, Again::Succeeds, move |run| {
            let file = run.tree.create(&args)?;
            let made = file.created();
            let told = format!(
                "{:?} {:?} {}",
                made.create_action, made.facts.file_attributes, made.facts.end_of_file
            );
            run.files.insert(handle, file);
            Ok(told)
        });
    }

    fn open(&mut self, handle: &'static str, name: &str) {
        self.create(handle, CreateArgs::open(name));
    }

    fn on(
        &mut self,
        what: &str,
        handle: &'static str,
        again: Again,
        run: impl Fn(File) -> Outcome + 'static,
    ) {
        self.add(format!("{what} {handle}"), again, move |r| {
            run(r.file(handle))
        });
    }

    fn write(&mut self, handle: &'static str, at: u64, byte: u8, len: usize) {
        self.on("WRITE", handle, Again::Succeeds, move |file| {
            let count = file.write(at, &vec![byte; len], WriteFlags::empty())?;
            Ok(count.to_string())
        });
    }

    fn through(&mut self, handle: &'static str, at: u64, byte: u8, len: usize) {
        // A failed write-through latches; rewriting all of it repairs.
        self.on("WRITE_THROUGH", handle, Again::Nothing, move |file| {
            let count = file.write(at, &vec![byte; len], WriteFlags::WRITE_THROUGH)?;
            Ok(count.to_string())
        });
    }

    fn flush(&mut self, handle: &'static str) {
        self.on("FLUSH", handle, Again::Nothing, |file| {
            file.flush(false).map(|()| String::new())
        });
    }

    fn close(&mut self, handle: &'static str) {
        self.on("CLOSE", handle, Again::Nothing, |file| {
            file.close().map(|()| String::new())
        });
    }

    fn set(&mut self, handle: &'static str, class: FileInformationClass, buffer: BytesMut) {
        let what = format!("SET_INFO {class:?}");
        self.on(&what, handle, Again::Succeeds, move |file| {
            file.set(class, &buffer).map(|()| String::new())
        });
    }

    fn rename(&mut self, handle: &'static str, to: &'static str, replace: bool) {
        let what = format!("rename to {to}");
        self.on(&what, handle, Again::Succeeds, move |file| {
            file.rename(to, replace).map(|()| String::new())
        });
    }

    fn read(&mut self, handle: &'static str) {
        self.on("READ", handle, Again::Succeeds, |file| {
            Ok(runs(&file.read(0, 1 << 20)?))
        });
    }

    fn query(&mut self, handle: &'static str, class: FileInformationClass) {
        let what = format!("QUERY_INFO {class:?}");
        self.on(&what, handle, Again::Succeeds, move |file| {
            let told = file.query(class)?;
            Ok(match class {
                // Times and index numbers differ from run to run.
                FileInformationClass::STANDARD | FileInformationClass::STREAM => {
                    format!("{told:?}")
                }
                _ => told.len().to_string(),
            })
        });
    }

    fn list(&mut self, handle: &'static str) {
        self.on("QUERY_DIRECTORY", handle, Again::Succeeds, |file| {
            let mut told: Vec<String> = file
                .list("*")?
                .iter()
                .map(|e| format!("{} {:?} {}", e.file_name, e.file_attributes, e.end_of_file))
                .collect();
            told.sort();
            Ok(told.join(", "))
        });
    }
}

fn basic(attributes: FileAttributes) -> BytesMut {
    let mut out = BytesMut::new();
    FileBasicInformation {
        creation_time: FileTime(TIME),
        last_access_time: FileTime(0),
        last_write_time: FileTime(TIME + 10_000_000),
        change_time: FileTime(0),
        file_attributes: attributes,
    }
    .encode(&mut out);
    out
}

fn link(to: &str) -> BytesMut {
    let mut out = BytesMut::new();
    FileLinkInformation {
        replace_if_exists: false,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut out);
    out
}

fn extended(name: &[u8], value: &[u8]) -> BytesMut {
    let entry = EaEntry {
        name: name.to_vec(),
        value: value.to_vec(),
        ..EaEntry::default()
    };
    encode_ea_list(&[entry], 4096).0
}

fn deleting(name: &str) -> CreateArgs {
    CreateArgs::open(name)
        .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
        .options(CreateOptions::DELETE_ON_CLOSE)
}

/// Files: made, written, described, linked, moved, replaced, overwritten.
fn files(steps: &mut Steps) {
    use FileInformationClass as Class;
    // Without DELETE: names may come and go in it while it is open.
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
    steps.create("dir", CreateArgs::create_directory("dir").access(access));
    steps.create(
        "f",
        CreateArgs::create("f")
            .access(CreateArgs::create("f").desired_access | AccessMask::WRITE_DAC)
            .attributes(FileAttributes::HIDDEN),
    );
    steps.write("f", 0, 1, 3000);
    steps.flush("f");
    steps.through("f", 3000, 2, 3000);
    steps.set(
        "f",
        Class::END_OF_FILE,
        BytesMut::from(&4000u64.to_le_bytes()[..]),
    );
    steps.set(
        "f",
        Class::ALLOCATION,
        BytesMut::from(&65536u64.to_le_bytes()[..]),
    );
    steps.set(
        "f",
        Class::BASIC,
        basic(FileAttributes::ARCHIVE | FileAttributes::SYSTEM),
    );
    steps.set("f", Class::FULL_EA, extended(b"AUTHOR", b"somebody"));
    steps.set("f", Class::FULL_EA, extended(b"AUTHOR", b"somebody else"));
    steps.on(
        "set the security descriptor of",
        "f",
        Again::Succeeds,
        |file| {
            // As it is, but for the order of things: it is stored from now on.
            let descriptor = file.query_info(InfoType::SECURITY, 0, DACL)?;
            let request = file.set_info_request(InfoType::SECURITY, 0, DACL, &descriptor);
            file.tree().call(request).map(|_| String::new())
        },
    );
    steps.read("f");
    steps.query("f", Class::STANDARD);
    steps.query("f", Class::FULL_EA);
    steps.set("f", Class::LINK, link("linked"));
    steps.rename("f", "dir\\g", false);
    steps.list("dir");
    steps.flush("dir");
    steps.close("dir");
    steps.close("f");
    steps.create("r", CreateArgs::create("r"));
    steps.write("r", 0, 3, 100);
    steps.rename("r", "dir\\g", true);
    steps.flush("r");
    steps.close("r");
    steps.create(
        "o",
        CreateArgs::new("linked", CreateDisposition::OVERWRITE_IF)
            .attributes(FileAttributes::HIDDEN | FileAttributes::SYSTEM),
    );
    steps.write("o", 0, 4, 9000);
}

/// Streams small and large, one piece beside another, and server-side copies.
fn streams(steps: &mut Steps, piece: u32) {
    use FileInformationClass as Class;
    steps.create("s", CreateArgs::create("linked:small"));
    steps.write("s", 0, 5, 100);
    steps.flush("s");
    steps.create("l", CreateArgs::create("linked:large"));
    steps.write("l", 0, 6, piece as usize);
    steps.write("l", piece.into(), 7, piece as usize);
    let end = u64::from(piece) * 3 / 2;
    steps.set(
        "l",
        Class::END_OF_FILE,
        BytesMut::from(&end.to_le_bytes()[..]),
    );
    steps.flush("l");
    steps.query("o", Class::STREAM);
    steps.close("s");
    steps.close("l");
    steps.on("zero a part of", "o", Again::Succeeds, |file| {
        let range = [100u64.to_le_bytes(), 200u64.to_le_bytes()].concat();
        file.ioctl(FsctlCode::SET_ZERO_DATA, &range, 0)
            .map(|_| String::new())
    });
    steps.create("c", CreateArgs::create("copy"));
    steps.add("copy chunks to c", Again::Succeeds, |run| {
        let output = run
            .file("o")
            .ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32)?;
        let chunk = |source_offset, target_offset, length| CopyChunk {
            source_offset,
            target_offset,
            length,
        };
        let mut input = BytesMut::new();
        CopyChunkCopy {
            source_key: RequestResumeKeyResponse::read(&output)?.resume_key,
            chunk_count: 2,
            chunks: vec![chunk(0, 0, 4096), chunk(4096, 8192, 4000)],
        }
        .encode(&mut input);
        let told = run.file("c").ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12)?;
        Ok(format!("{told:?}"))
    });
    steps.close("c");
    steps.close("o");
}

/// Directories and ends.
fn ends(steps: &mut Steps) {
    steps.create("d", deleting("linked:small"));
    steps.close("d");
    steps.open("m", "dir");
    steps.rename("m", "folder", false);
    steps.close("m");
    steps.create("again", CreateArgs::directory("folder"));
    steps.list("again");
    steps.close("again");
    steps.open("p", "folder\\g");
    steps.read("p");
    steps.on("set the disposition of", "p", Again::Succeeds, |file| {
        file.set_delete(true).map(|()| String::new())
    });
    steps.close("p");
    steps.create("e", deleting("linked"));
    steps.close("e");
    steps.create(
        "x",
        deleting("folder").options(CreateOptions::DIRECTORY_FILE),
    );
    steps.close("x");
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
    steps.create("root", CreateArgs::directory("").access(access));
    steps.list("root");
    steps.flush("root");
    steps.close("root");
}

/// The whole sequence, with large streams of twice `piece` bytes.
pub(crate) fn steps(piece: u32) -> Vec<Step> {
    let mut steps = Steps::default();
    files(&mut steps);
    streams(&mut steps, piece);
    ends(&mut steps);
    steps.0
}
