//! Reads the share afterwards, for the simulator's oracle.

use smb_client::{CreateArgs, File, Tree};
use smb_sim::oracle::{Found, FoundStream, Key, Value, View};
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fscc::{FileBasicInformation, FileInformationClass, read_ea_list},
};

use crate::{
    player::{ATTRIBUTES, EA, index},
    snapshot::{named_streams, walk},
};

/// Everything on the share. Anything that cannot be read fails the test.
pub(crate) fn view(tree: &Tree) -> View {
    let mut view = View::new();
    walk(tree, |path| {
        let found = look(tree, path);
        let directory = found.directory;
        view.add(&path.replace('\\', "/"), found);
        directory
    });
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
        for (name, data) in named_streams(tree, path, &file) {
            let name = name.trim_start_matches(':').to_owned();
            found.streams.insert(name, FoundStream::read(&data));
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
