//! Renames by a user who does not own what is in the way: every right of the handle, over stored
//! access control lists of what has the new name and of the directory that it is in, the READONLY
//! attribute, and both forms of the request. The decision is the one of [MS-FSA] 2.1.5.15.12, and
//! what is refused changes nothing.
//!
//! Needs root: only then is a user somebody else on disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs};
use smb_tests::missing;
use smb_tests::state::{assert_same, on_host, settled};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask as Mask;
use smb_wire::fscc::{
    FileInformationClass, FileRenameInformation, FileRenameInformationEx, RenameFlags,
};
use smb_wire::msg::CreateOptions as With;

use crate::fsctl_matrix::RIGHTS;
use crate::open_matrix::{World, store};
use crate::open_model::{
    ALL, DELETE, DELETE_CHILD, EXECUTE, STORED, Stored, WRITE_ATTRIBUTES, Who, allows,
};

/// FILE_ADD_FILE and FILE_ADD_SUBDIRECTORY.
const ADD_FILE: u32 = 0x2;
const ADD_FOLDER: u32 = 0x4;

/// The rights that the directory of the new name gives.
const DIRECTORIES: [(&str, Stored); 6] = [
    (
        "passing",
        Stored::List(&[(true, Who::Everyone, EXECUTE, false)]),
    ),
    (
        "files",
        Stored::List(&[(true, Who::Everyone, EXECUTE | ADD_FILE, false)]),
    ),
    (
        "folders",
        Stored::List(&[(true, Who::Everyone, EXECUTE | ADD_FOLDER, false)]),
    ),
    (
        "adding",
        Stored::List(&[(true, Who::Everyone, EXECUTE | ADD_FILE | ADD_FOLDER, false)]),
    ),
    (
        "keeping",
        Stored::List(&[
            (false, Who::Carol, DELETE_CHILD, false),
            (true, Who::Everyone, ALL, false),
        ]),
    ),
    (
        "generous",
        Stored::List(&[(true, Who::Everyone, ALL, false)]),
    ),
];

/// The object that has the new name.
#[derive(Debug, Clone, Copy)]
enum InTheWay {
    Nothing,
    File { stored: Stored, readonly: bool },
    Directory,
}

/// How it is asked: FileRenameInformation, or the Ex form with these flags besides.
#[derive(Debug, Clone, Copy)]
enum Form {
    Plain,
    Ex(RenameFlags),
}

const FORMS: [Form; 4] = [
    Form::Plain,
    Form::Ex(RenameFlags(0)),
    Form::Ex(RenameFlags::POSIX_SEMANTICS),
    Form::Ex(RenameFlags::IGNORE_READONLY_ATTRIBUTE),
];

/// One rename.
#[derive(Debug, Clone, Copy)]
struct Case {
    above: Stored,
    there: InTheWay,
    directory: bool,
    access: Mask,
    replace: bool,
    form: Form,
}

impl Case {
    fn decision(&self) -> Result<(), Status> {
        let deletes = Mask::DELETE | Mask::GENERIC_ALL | Mask::MAXIMUM_ALLOWED;
        let add = if self.directory { ADD_FOLDER } else { ADD_FILE };
        if !self.access.intersects(deletes) || !allows(self.above, add, true) {
            return Err(Status::ACCESS_DENIED);
        }
        if let InTheWay::Nothing = self.there {
            return Ok(());
        }
        if !self.replace {
            return Err(Status::OBJECT_NAME_COLLISION);
        }
        let InTheWay::File { stored, readonly } = self.there else {
            return Err(Status::ACCESS_DENIED);
        };
        // As [MS-FSA] 2.1.5.15.4 has it of deletions: who may change the attribute may ignore it.
        let asked = matches!(self.form, Form::Ex(flags) if flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE));
        let ignores = asked && allows(stored, WRITE_ATTRIBUTES, false);
        let may = allows(stored, DELETE, false) || allows(self.above, DELETE_CHILD, true);
        if (readonly && !ignores) || !may {
            return Err(Status::ACCESS_DENIED);
        }
        Ok(())
    }

    fn request(&self, to: &str) -> (FileInformationClass, BytesMut) {
        let mut out = BytesMut::new();
        let file_name = to.to_owned();
        match self.form {
            Form::Plain => {
                FileRenameInformation {
                    replace_if_exists: self.replace,
                    root_directory: 0,
                    file_name,
                }
                .encode(&mut out);
                (FileInformationClass::RENAME, out)
            }
            Form::Ex(flags) => {
                FileRenameInformationEx {
                    flags: flags | RenameFlags::REPLACE_IF_EXISTS.when(self.replace),
                    root_directory: 0,
                    file_name,
                }
                .encode(&mut out);
                (FileInformationClass::RENAME_EX, out)
            }
        }
    }
}

/// The folder with the new name, and the one that Carol's own file or folder comes from.
struct Renames<'a> {
    world: &'a mut World,
    to: String,
    from: String,
}

impl Renames<'_> {
    /// Makes anew the object that has the new name, and the one to be renamed.
    fn prepare(&self, case: &Case) {
        let (owner, carol) = (&self.world.owner, &self.world.carol);
        let there = format!("{}\\t", self.to);
        let path = self.world.server.path(&self.to).join("t");
        match case.there {
            InTheWay::Nothing => {}
            InTheWay::Directory => fs::create_dir(&path).unwrap(),
            InTheWay::File { stored, readonly } => {
                let args = CreateArgs::create(&there).access(Mask::FILE_ALL_ACCESS);
                let file = owner.create(&args).unwrap();
                file.write_all(0, b"what was there before").unwrap();
                if readonly {
                    let mut basic = vec![0; 40];
                    basic[32] = 1;
                    file.set(FileInformationClass::BASIC, &basic).unwrap();
                }
                file.close().unwrap();
                let list = !matches!(stored, Stored::Nothing);
                let mode = if list { 0o666 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                store(owner, &there, stored);
            }
        }
        let name = format!("{}\\s", self.from);
        match case.directory {
            true => carol.mkdir(&name).unwrap(),
            false => carol.write_file(&name, b"what comes").unwrap(),
        }
    }

    fn remove(&self) {
        for folder in [&self.to, &self.from] {
            for entry in fs::read_dir(self.world.server.path(folder))
                .unwrap()
                .flatten()
            {
                match entry.file_type().unwrap().is_dir() {
                    true => fs::remove_dir(entry.path()).unwrap(),
                    false => fs::remove_file(entry.path()).unwrap(),
                }
            }
        }
    }

    fn look(&self) -> Vec<String> {
        let folders = [&self.to, &self.from];
        let each = folders.map(|folder| on_host(&self.world.server.path(folder)));
        each.concat()
    }

    fn rename(&self, case: &Case) -> Result<(), Status> {
        let name = format!("{}\\s", self.from);
        let mut args = CreateArgs::open(&name).access(case.access);
        if case.directory {
            args = args.options(With::DIRECTORY_FILE);
        }
        let source = self.world.carol.create(&args).unwrap();
        let (class, request) = case.request(&format!("{}\\t", self.to));
        let answer = match source.set(class, &request) {
            Ok(()) => Ok(()),
            Err(ClientError::Status(status)) => Err(status),
            Err(other) => panic!("{case:?}: {other}"),
        };
        source.close().unwrap();
        answer
    }

    /// All of these cases, which differ in the request alone: first those that change nothing.
    fn all(&mut self, cases: &[Case]) {
        let refused: Vec<&Case> = cases.iter().filter(|c| c.decision().is_err()).collect();
        let Some(first) = cases.first() else { return };
        self.prepare(first);
        let mut before = settled(|| self.look());
        for case in refused {
            let (answer, decision) = (self.rename(case), case.decision());
            self.world.count(answer.is_err());
            if answer != decision {
                self.world
                    .wrong(format!("{case:?}: {answer:x?}, not {decision:x?}"));
            }
            if answer.is_ok() {
                self.remove();
                self.prepare(first);
                before = settled(|| self.look());
            }
        }
        assert_same(&before, &self.look(), &format!("{first:?}"));
        self.remove();
        for case in cases.iter().filter(|c| c.decision().is_ok()) {
            self.prepare(case);
            let answer = self.rename(case);
            self.world.count(answer.is_err());
            if answer.is_err() {
                self.world.wrong(format!("{case:?}: {answer:x?}, not Ok"));
            }
            self.remove();
        }
    }
}

#[test]
fn renames_are_decided_as_specified_and_refused_ones_change_nothing() {
    if !rustix::process::geteuid().is_root() {
        missing("root");
        return;
    }
    let mut world = World::new();
    let files = STORED
        .into_iter()
        .flat_map(|(_, stored)| [false, true].map(|readonly| InTheWay::File { stored, readonly }));
    let there: Vec<InTheWay> = files
        .chain([InTheWay::Nothing, InTheWay::Directory])
        .collect();
    for (name, above) in DIRECTORIES {
        let (to, from) = (format!("to-{name}"), format!("from-{name}"));
        world.owner.mkdir(&to).unwrap();
        world.carol.mkdir(&from).unwrap();
        // A list counts as long as the permission bits are those of when it was stored.
        fs::set_permissions(world.server.path(&to), fs::Permissions::from_mode(0o777)).unwrap();
        store(&world.owner, &to, above);
        for (at, there) in there.iter().enumerate() {
            for directory in [false, true] {
                // The effect of a directory on a file in its way is not specified.
                if directory && matches!(there, InTheWay::File { .. }) {
                    continue;
                }
                let mut cases = Vec::new();
                for (right, access) in RIGHTS {
                    // All rights beside the first things in the way, then those that differ.
                    if at > 1 && !["DELETE", "WRITE_DATA", "MAXIMUM_ALLOWED"].contains(&right) {
                        continue;
                    }
                    for (replace, form) in [false, true]
                        .into_iter()
                        .flat_map(|replace| FORMS.map(|form| (replace, form)))
                    {
                        if !world.draw() {
                            continue;
                        }
                        cases.push(Case {
                            above,
                            there: *there,
                            directory,
                            access,
                            replace,
                            form,
                        });
                    }
                }
                let mut renames = Renames {
                    world: &mut world,
                    to: to.clone(),
                    from: from.clone(),
                };
                renames.all(&cases);
            }
        }
    }
    world.end();
}
