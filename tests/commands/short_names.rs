//! Short (8.3) names ([MS-FSCC] 2.1.5.2.1): reported and accepted everywhere, or nowhere.

use bytes::BytesMut;
use smb_client::{CreateArgs, Tree};
use smb_tests::{HoldfastServer, Options, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{
    DirectoryEntries, DirectoryFormat, FileAction, FileInformationClass as Class,
    FileNameInformation, FileNotifyEntry, FileRenameInformationEx, FileStandardInformation,
    RenameFlags,
};
use smb_wire::msg::{
    ChangeNotifyFlags, CreateOptions, NotifyFilter, QueryDirectoryFlags, ShareAccess,
};

const LONG: &str = "a long name.txt";
/// Classes whose entries have a short name.
const TELLING: [Class; 4] = [
    Class::BOTH_DIRECTORY,
    Class::ID_BOTH_DIRECTORY,
    Class::ID_64_EXTD_BOTH_DIRECTORY,
    Class::ID_ALL_EXTD_BOTH_DIRECTORY,
];

/// Queries FileAlternateNameInformation of a file or directory.
fn alternate(tree: &Tree, name: &str) -> Result<String, Status> {
    let look = AccessMask::FILE_READ_ATTRIBUTES;
    let file = tree.create(&CreateArgs::open(name).access(look)).unwrap();
    let asked = file.query(Class::ALTERNATE_NAME);
    file.close().unwrap();
    match asked {
        Ok(bytes) => Ok(FileNameInformation::read(&bytes).unwrap().file_name),
        Err(error) => Err(error.status().unwrap()),
    }
}

/// Returns the long and short names in a class of QUERY_DIRECTORY.
fn listed(tree: &Tree, class: Class, pattern: &str) -> Vec<(String, String)> {
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let restart = QueryDirectoryFlags::RESTART_SCANS;
    let bytes = match root.query_directory(class, pattern, restart, 65_536) {
        Ok(bytes) => bytes,
        Err(error) => {
            assert_eq!(error.status(), Some(Status::NO_SUCH_FILE));
            return Vec::new();
        }
    };
    let format = DirectoryFormat::of(class).unwrap();
    assert!(format.has_short_name());
    let entries = DirectoryEntries::new(format, &bytes).map(Result::unwrap);
    let mut names: Vec<_> = entries
        .map(|one| (one.file_name, one.short_name))
        .filter(|(name, _)| !matches!(name.as_str(), "." | ".."))
        .collect();
    names.sort();
    names
}

#[test]
fn a_share_without_short_names_neither_reports_nor_accepts_them() {
    let server = HoldfastServer::start(&Options {
        share: "short_names = false".into(),
        ..Options::default()
    });
    let tree = server.tree();
    for name in [LONG, "SHORT.TXT"] {
        tree.write_file(name, b"x").unwrap();
        assert_eq!(alternate(&tree, name), Err(Status::OBJECT_NAME_NOT_FOUND));
    }
    for class in TELLING {
        let names = listed(&tree, class, "*");
        assert!(names.iter().all(|(_, short)| short.is_empty()), "{names:?}");
        assert_eq!(names.len(), 2);
    }
    assert_eq!(listed(&tree, Class::BOTH_DIRECTORY, "*~1*"), []);
    let elsewhere = HoldfastServer::new();
    let told = elsewhere.tree();
    told.write_file(LONG, b"x").unwrap();
    let short = alternate(&told, LONG).unwrap();
    assert_eq!(listed(&tree, Class::BOTH_DIRECTORY, &short), []);
    assert_eq!(
        tree.create_status(&CreateArgs::open(&short)).unwrap(),
        Status::OBJECT_NAME_NOT_FOUND
    );
}

#[test]
fn a_file_recreated_by_its_short_name_gets_its_long_name_back() {
    // [MS-FSA] 2.1.5.1.1, tunnel caching, which smb2.mangle tests.
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file(LONG, b"x").unwrap();
    let short = alternate(&tree, LONG).unwrap();
    tree.delete(&short).unwrap();
    tree.write_file(&short, b"y").unwrap();
    assert_eq!(std::fs::read(server.path(LONG)).unwrap(), b"y");
    assert_eq!(alternate(&tree, LONG).unwrap(), short);
    tree.delete(LONG).unwrap();
    // In another folder it is an ordinary name.
    tree.mkdir("d").unwrap();
    tree.write_file(&format!("d\\{short}"), b"z").unwrap();
    assert!(server.path(&format!("d/{short}")).exists());
}

#[test]
fn searches_by_extension_do_not_match_short_names_of_longer_extensions() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in ["page.html", "letter.docx", "plain text.txt"] {
        tree.write_file(name, b"x").unwrap();
    }
    let found = |pattern| listed(&tree, Class::BOTH_DIRECTORY, pattern).len();
    assert_eq!((found("*.htm"), found("*.doc"), found("*.txt")), (0, 0, 1));
    assert_eq!(found("*~1*"), 3);
    // `*.` and eight question marks, as clients send them.
    tree.write_file("no extension", b"x").unwrap();
    assert_eq!((found("<"), found(">>>>>>>>")), (1, 1));
}

#[test]
fn every_command_accepts_the_reported_short_names() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file(LONG, b"x").unwrap();
    tree.write_file("SHORT.TXT", b"y").unwrap();
    let short = alternate(&tree, LONG).unwrap();
    assert_eq!(alternate(&tree, "short.txt").unwrap(), "SHORT.TXT");
    for class in TELLING {
        let names = listed(&tree, class, "*");
        let long = (LONG.to_owned(), short.clone());
        assert_eq!(
            names,
            [("SHORT.TXT".to_owned(), String::new()), long.clone()]
        );
        for pattern in [
            &short,
            &short.to_lowercase(),
            "*~1*",
            "A?????~1.*",
            "a*~1\"txt",
        ] {
            assert_eq!(
                listed(&tree, class, pattern),
                std::slice::from_ref(&long),
                "{pattern}"
            );
        }
    }
    assert_eq!(tree.read_file(&short.to_lowercase()).unwrap(), b"x");
    assert_eq!(
        tree.create_status(&CreateArgs::create(&short)).unwrap(),
        Status::OBJECT_NAME_COLLISION
    );
    // Renames from the short name, onto it, and of the file to its own short name.
    tree.rename(&short, "moved away.txt", false).unwrap();
    let moved = alternate(&tree, "moved away.txt").unwrap();
    assert_eq!(
        status(tree.rename("SHORT.TXT", &moved, false)),
        Status::OBJECT_NAME_COLLISION
    );
    tree.rename("SHORT.TXT", &moved, true).unwrap();
    assert_eq!(tree.read_file(&moved).unwrap(), b"y");
    assert!(!server.path("moved away.txt").exists());
    tree.write_file(LONG, b"x").unwrap();
    tree.rename(LONG, &short, false).unwrap();
    assert!(server.path(LONG).exists(), "it has that name already");
    tree.delete(&short).unwrap();
    // Deletion by disposition and on close.
    for options in [CreateOptions::DELETE_ON_CLOSE, CreateOptions::empty()] {
        tree.write_file(LONG, b"x").unwrap();
        let file = tree
            .create(&CreateArgs::open(&short).options(options))
            .unwrap();
        if options.is_empty() {
            file.set_delete(true).unwrap();
        }
        file.close().unwrap();
        assert!(!server.path(LONG).exists());
    }
}

#[test]
fn short_names_work_for_parent_folders_and_streams() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("a long folder").unwrap();
    tree.mkdir("a long folder\\another one").unwrap();
    let folder = alternate(&tree, "a long folder").unwrap();
    let inner = alternate(&tree, &format!("{folder}\\another one")).unwrap();
    tree.write_file(&format!("{folder}\\{inner}\\f:stream"), b"s")
        .unwrap();
    assert_eq!(
        tree.read_file("a long folder\\another one\\f:stream")
            .unwrap(),
        b"s"
    );
    tree.rename(
        "a long folder\\another one\\f",
        &format!("{folder}\\g"),
        false,
    )
    .unwrap();
    assert!(server.path("a long folder/g").exists());
    // Both names open the same file.
    let alone = CreateArgs::open("a long folder\\g").share(ShareAccess(0));
    let alone = tree.create(&alone).unwrap();
    let by_short = CreateArgs::open(&format!("{folder}\\g"));
    assert_eq!(
        tree.create_status(&by_short).unwrap(),
        Status::SHARING_VIOLATION
    );
    alone.close().unwrap();
}

/// [MS-FSA] 2.1.5.15.12: a name of the file that matches exactly, also a short one, is neither removed nor added.
#[test]
fn a_file_that_is_renamed_to_its_own_short_name_stays() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file(LONG, b"x").unwrap();
    let short = alternate(&tree, LONG).unwrap();
    for replace in [false, true] {
        tree.rename(LONG, &short, replace).unwrap();
        assert!(server.path(LONG).exists());
    }
    // Of another name, only that is removed.
    std::fs::hard_link(server.path(LONG), server.path("other")).unwrap();
    tree.rename("other", &short, true).unwrap();
    assert!(server.path(LONG).exists() && !server.path("other").exists());
    // In other letter case it is a new name.
    let lower = short.to_lowercase();
    tree.rename(LONG, &lower, false).unwrap();
    assert!(server.path(&lower).exists() && !server.path(LONG).exists());
}

#[test]
fn a_file_replaced_by_its_short_name_disappears_under_its_long_one() {
    // [MS-FSA] 2.1.5.15.12: a link is found by its ShortName as well. The new link has the
    // requested name.
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file(LONG, b"old").unwrap();
    tree.write_file("new", b"new").unwrap();
    let short = alternate(&tree, LONG).unwrap();
    let root = other.create(&CreateArgs::directory("")).unwrap();
    let watch = || root.notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 65_536);
    let mut asked = watch().unwrap();
    other.client().wait_pending(asked).unwrap();
    let reader = other.create(&CreateArgs::open(LONG)).unwrap();
    let file = tree
        .create(&CreateArgs::open("new").access(AccessMask::DELETE))
        .unwrap();
    let mut buffer = BytesMut::new();
    FileRenameInformationEx {
        flags: RenameFlags::REPLACE_IF_EXISTS | RenameFlags::POSIX_SEMANTICS,
        root_directory: 0,
        file_name: short.clone(),
    }
    .encode(&mut buffer);
    file.set(Class::RENAME_EX, &buffer).unwrap();
    file.close().unwrap();
    // The handle of the replaced file refers to a file without a name.
    assert_eq!(reader.read_all().unwrap(), b"old");
    let standard = reader.query(Class::STANDARD).unwrap();
    let standard = FileStandardInformation::read(&standard).unwrap();
    assert!(standard.delete_pending);
    assert!(!server.path(LONG).exists());
    assert_eq!(tree.read_file(&short).unwrap(), b"new");
    let mut changes = Vec::new();
    while changes.len() < 3 {
        let reply = other.client().wait(asked).unwrap();
        let entries: Vec<FileNotifyEntry> = root.changes(reply).unwrap();
        changes.extend(entries.into_iter().map(|one| (one.action, one.file_name)));
        asked = watch().unwrap();
    }
    let expected = [
        (FileAction::REMOVED, LONG.to_owned()),
        (FileAction::RENAMED_OLD_NAME, "new".to_owned()),
        (FileAction::RENAMED_NEW_NAME, short),
    ];
    assert_eq!(changes, expected);
}
