//! The contents of a share, as a client sees them, in a form that can be compared.
//!
//! Times count only where a test set them (they are long ago); others are "lately".

use std::collections::BTreeMap;

use smb_client::{CreateArgs, File, Tree};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    fscc::{FileBasicInformation, FileInformationClass, read_ea_list, read_stream_list},
    ids::FileTime,
    msg::{CreateOptions, InfoType},
};

/// 2024-01-01: later is "lately".
const LATELY: u64 = 133_485_408_000_000_000;
/// Owner, group and DACL.
pub(crate) const SECURITY: u32 = 7;

/// Everything about a file or directory.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Shown {
    /// How opening it ended, when that was not SUCCESS.
    refused: Option<String>,
    attributes: u32,
    times: [Option<u64>; 2],
    streams: BTreeMap<String, String>,
    attributes_extended: Vec<(Vec<u8>, Vec<u8>)>,
    security: Vec<u8>,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let security = self.security.iter().fold(0u32, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
        });
        write!(
            f,
            "{:?} {:#x} {:?} {:?} {:?} security {security:x}",
            self.refused, self.attributes, self.times, self.streams, self.attributes_extended
        )
    }
}

/// All of a share, by path.
pub(crate) type Snapshot = BTreeMap<String, Shown>;

fn set_at(time: FileTime) -> Option<u64> {
    (time.0 < LATELY).then_some(time.0)
}

/// Long contents in short: every run of one byte.
pub(crate) fn runs(data: &[u8]) -> String {
    let mut text = String::new();
    for run in data.chunk_by(|a, b| a == b) {
        text.push_str(&format!("{}x{:02x} ", run.len(), run[0]));
    }
    text
}

/// Calls `look` with every path on the share; it says whether that is a directory.
pub(crate) fn walk(tree: &Tree, mut look: impl FnMut(&str) -> bool) {
    let mut left = vec![String::new()];
    while let Some(directory) = left.pop() {
        let opened = tree.create(&CreateArgs::directory(&directory)).unwrap();
        let entries = opened.list("*").unwrap();
        let _ = opened.close(); // An error where the inode is poisoned.
        for entry in entries {
            let name = entry.file_name.as_str();
            if matches!(name, "." | "..") {
                continue;
            }
            let path = if directory.is_empty() {
                name.to_owned()
            } else {
                format!("{directory}\\{name}")
            };
            if look(&path) {
                left.push(path);
            }
        }
    }
}

/// Looks at everything.
pub(crate) fn snapshot(tree: &Tree) -> Snapshot {
    let mut found = Snapshot::new();
    walk(tree, |path| {
        let (shown, is_directory) = look(tree, path);
        found.insert(path.to_owned(), shown);
        is_directory
    });
    found
}

fn look(tree: &Tree, path: &str) -> (Shown, bool) {
    let access = AccessMask::FILE_READ_ATTRIBUTES
        | AccessMask::FILE_READ_EA
        | AccessMask::FILE_READ_DATA
        | AccessMask::READ_CONTROL;
    let file = match tree.create(&CreateArgs::open(path).access(access)) {
        Ok(file) => file,
        Err(error) => {
            let refused = Some(error.to_string());
            let shown = Shown {
                refused,
                ..Shown::default()
            };
            return (shown, false);
        }
    };
    let basic = FileBasicInformation::read(&file.query(FileInformationClass::BASIC).unwrap());
    let basic = basic.unwrap();
    let directory = basic
        .file_attributes
        .contains(smb_wire::file_attributes::FileAttributes::DIRECTORY);
    let shown = Shown {
        refused: None,
        attributes: basic.file_attributes.bits(),
        times: [set_at(basic.creation_time), set_at(basic.last_write_time)],
        streams: streams(tree, path, &file, directory),
        attributes_extended: extended(&file),
        security: file.query_info(InfoType::SECURITY, 0, SECURITY).unwrap(),
    };
    let _ = file.close();
    (shown, directory)
}

fn streams(tree: &Tree, path: &str, file: &File, directory: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if !directory {
        found.insert(String::new(), runs(&file.read_all().unwrap()));
    }
    for (name, data) in named_streams(tree, path, file) {
        found.insert(name, runs(&data));
    }
    found
}

/// The named streams of a file, each as `:name`, and their contents.
pub(crate) fn named_streams(tree: &Tree, path: &str, file: &File) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let list = file.query(FileInformationClass::STREAM).unwrap();
    for stream in read_stream_list(&list).unwrap() {
        let name = stream.name.trim_end_matches(":$DATA").to_owned();
        if name == ":" {
            continue; // The unnamed one.
        }
        let args = CreateArgs::open(&format!("{path}{name}"))
            .access(AccessMask::FILE_READ_DATA)
            .options(CreateOptions::NON_DIRECTORY_FILE);
        let opened = tree.create(&args).unwrap();
        found.push((name, opened.read_all().unwrap()));
        let _ = opened.close();
    }
    found
}

fn extended(file: &File) -> Vec<(Vec<u8>, Vec<u8>)> {
    let list = file.query(FileInformationClass::FULL_EA);
    if status_of(&list) != Status::SUCCESS {
        return Vec::new();
    }
    let entries = read_ea_list(&list.unwrap()).unwrap().into_iter();
    let mut entries: Vec<_> = entries.map(|one| (one.name, one.value)).collect();
    entries.sort();
    entries
}

fn status_of(result: &Result<Vec<u8>, smb_client::ClientError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(error) => error.status().unwrap_or_else(|| panic!("{error}")),
    }
}

/// Describes the differences, for a message.
pub(crate) fn difference(expected: &Snapshot, found: &Snapshot) -> String {
    let mut text = String::new();
    for path in expected
        .keys()
        .chain(found.keys().filter(|p| !expected.contains_key(*p)))
    {
        let (old, new) = (expected.get(path), found.get(path));
        if old != new {
            text.push_str(&format!(
                "{path}:\n  expected {old:?}\n  found    {new:?}\n"
            ));
        }
    }
    text
}
