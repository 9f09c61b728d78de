//! Reads the share afterwards, for the simulator's oracle.

use smb_client::{CreateArgs, File, Tree};
use smb_sim::oracle::{Found, FoundStream, Key, Value, View};
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fscc::{FileBasicInformation, FileInformationClass, read_ea_list, read_stream_list},
    msg::CreateOptions,
};

use crate::player::{ATTRIBUTES, EA, index};

/// Everything on the share. Anything that cannot be read fails the test.
pub(crate) fn view(tree: &Tree) -> View {
    let mut view = View::new();
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
                entry.file_name.clone()
            } else {
                format!("{directory}\\{}", entry.file_name)
            };
            let found = look(tree, &path);
            if found.directory {
                left.push(path.clone());
            }
            view.add(&path.replace('\\', "/"), found);
        }
    }
    view
}

fn look(tree: &Tree, path: &str) -> Found {
    let args = CreateArgs::open(path).access(AccessMask::FILE_GENERIC_READ);
    let file = tree.create(&args).unwrap();
    let basic = file.query(FileInformationClass::BASIC).unwrap();
    let attributes = FileBasicInformation::read(&basic).unwrap().file_attributes;
    let directory = attributes.contains(FileAttributes::DIRECTORY);
    let mut found = Found {
        index: Some(index(&file).unwrap()),
        directory,
        ..Found::default()
    };
    if !directory {
        let bits = (attributes.bits() & ATTRIBUTES).to_le_bytes().to_vec();
        found.meta = vec![
            (Key::Attributes, Value::Bytes(bits)),
            (Key::Ea("NOTE".to_owned()), note(&file)),
        ];
        let data = file.read_all().unwrap();
        found
            .streams
            .insert(String::new(), FoundStream::read(&data));
        let list = file.query(FileInformationClass::STREAM).unwrap();
        for stream in read_stream_list(&list).unwrap() {
            let name = stream.name.trim_end_matches(":$DATA");
            if name == ":" {
                continue; // The unnamed one.
            }
            let args = CreateArgs::open(&format!("{path}{name}"))
                .access(AccessMask::FILE_READ_DATA)
                .options(CreateOptions::NON_DIRECTORY_FILE);
            let opened = tree.create(&args).unwrap();
            let data = opened.read_all().unwrap();
            let name = name.trim_start_matches(':').to_owned();
            found.streams.insert(name, FoundStream::read(&data));
            let _ = opened.close();
        }
    }
    let _ = file.close();
    found
}

fn note(file: &File) -> Value {
    let list = file.query(FileInformationClass::FULL_EA);
    let entries = list.map_or_else(|_| Vec::new(), |list| read_ea_list(&list).unwrap());
    let note = entries.into_iter().find(|one| one.name == EA);
    note.map_or(Value::Nothing, |one| Value::Bytes(one.value))
}
