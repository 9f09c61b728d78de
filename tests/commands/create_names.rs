//! Names in CREATE ([MS-SMB2] 3.3.5.9, [MS-FSCC] 2.1.5, [MS-FSA] 2.1.5.1): which ones are valid,
//! and that none of them leaves the share.

use bytes::BytesMut;
use smb_client::{CreateArgs, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{FileInformationClass, FileLinkInformation};
use smb_wire::msg::{CreateDisposition, CreateOptions, ShareAccess};

fn create(tree: &Tree, name: &str) -> Status {
    tree.create_status(&CreateArgs::create(name)).unwrap()
}

fn raw(tree: &Tree, name: &[u8]) -> Status {
    let mut args = CreateArgs::create("");
    args.name = name.to_vec();
    tree.create_status(&args).unwrap()
}

#[test]
fn names_of_all_kinds_are_preserved() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let long = "n".repeat(255);
    for name in [
        "plain.txt",
        "with spaces",
        "Ünïcödé",
        "日本語",
        "emoji 🦀",
        "semi;colon,comma=[x]{y}",
        ".hidden",
        "two..dots",
        "percent%20",
        "quote'",
        &long,
    ] {
        assert_eq!(create(&tree, name), Status::SUCCESS, "{name}");
        let names: Vec<_> = tree.list("", name).unwrap();
        assert_eq!(names.len(), 1, "{name}");
        assert_eq!(names[0].file_name, name);
        assert_eq!(create(&tree, name), Status::OBJECT_NAME_COLLISION, "{name}");
    }
}

#[test]
fn case_is_preserved_and_ignored_in_comparisons() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("MixedCase.TXT", b"x").unwrap();
    assert_eq!(tree.read_file("mixedcase.txt").unwrap(), b"x");
    assert_eq!(
        create(&tree, "MIXEDCASE.txt"),
        Status::OBJECT_NAME_COLLISION
    );
    assert!(server.path("MixedCase.TXT").exists());
    tree.write_file("Größe", b"y").unwrap();
    assert_eq!(tree.read_file("GRÖßE").unwrap(), b"y");
}

#[test]
fn forbidden_characters_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for bad in ['"', '*', '<', '>', '?', '|', '/', '\u{1}', '\u{1f}', '\0'] {
        let name = format!("a{bad}b");
        let refused = create(&tree, &name);
        assert!(
            [Status::OBJECT_NAME_INVALID, Status::OBJECT_PATH_SYNTAX_BAD].contains(&refused)
                || (bad == '/' && refused == Status::OBJECT_PATH_NOT_FOUND),
            "{name:?}: {refused}"
        );
    }
    assert_eq!(tree.list("", "*").unwrap().len(), 2);
}

#[test]
fn invalid_utf_16_is_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let lone = [b'a', 0, 0x00, 0xd8, b'b', 0];
    let refused = raw(&tree, &lone);
    assert!(
        [Status::OBJECT_NAME_INVALID, Status::ILLEGAL_CHARACTER].contains(&refused),
        "{refused}"
    );
    // [MS-SMB2] 3.3.5.9: NameLength is a multiple of 2.
    assert_eq!(raw(&tree, b"a\0b"), Status::INVALID_PARAMETER);
}

#[test]
fn too_long_names_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in [
        "n".repeat(256),
        format!("d\\{}", "n".repeat(300)),
        "x".repeat(30_000),
    ] {
        tree.mkdir("d").ok();
        let refused = create(&tree, &name);
        assert!(
            [Status::OBJECT_NAME_INVALID, Status::NAME_TOO_LONG].contains(&refused),
            "{}: {refused}",
            name.len()
        );
    }
    // 255 UTF-16 units are 765 bytes of UTF-8, more than Linux allows in a name.
    let wide = "語".repeat(255);
    let end = create(&tree, &wide);
    assert!(
        [Status::SUCCESS, Status::NAME_TOO_LONG].contains(&end),
        "{end}"
    );
}

#[test]
fn misplaced_separators_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"x").unwrap();
    assert_eq!(create(&tree, "\\new"), Status::INVALID_PARAMETER);
    let open = |name, options| {
        tree.create_status(&CreateArgs::open(name).options(options))
            .unwrap()
    };
    assert_eq!(
        open("f\\", CreateOptions::NON_DIRECTORY_FILE),
        Status::OBJECT_NAME_INVALID
    );
    // A name that ends in a separator is that of a directory.
    for name in ["f\\", "new\\", "f:s\\"] {
        let args = CreateArgs::open_if(name);
        let refused = tree.create_status(&args).unwrap();
        assert_eq!(refused, Status::OBJECT_NAME_INVALID, "{name}");
    }
    assert!(!server.path("new").exists());
    let none = CreateOptions::empty();
    assert_eq!(open("new\\", none), Status::OBJECT_NAME_NOT_FOUND);
    assert_eq!(open("d\\", none), Status::SUCCESS);
    let directory = CreateOptions::DIRECTORY_FILE;
    assert_eq!(open("d\\", directory), Status::SUCCESS);
    assert_eq!(open("f\\", directory), Status::NOT_A_DIRECTORY);
    let made = CreateArgs::create_directory("new\\");
    assert_eq!(tree.create_status(&made).unwrap(), Status::SUCCESS);
    // [MS-FSA] 2.1.5.1, phase 3: redundant separators are stripped.
    assert_eq!(create(&tree, "d\\\\inner"), Status::SUCCESS);
    assert!(server.path("d/inner").exists());
    assert_eq!(open("d\\\\", directory), Status::SUCCESS);
    let nowhere = create(&tree, "missing\\\\new");
    assert_eq!(nowhere, Status::OBJECT_PATH_NOT_FOUND);
    let unnamed = create(&tree, "d\\\\\\::$DATA");
    assert_eq!(unnamed, Status::OBJECT_NAME_INVALID);
}

/// [MS-FSCC] 2.1.5.1: "." is the directory named before it. [MS-SMB2] 3.3.5.9, note 303: Windows refuses a path that
/// leads up again.
#[test]
fn a_dot_names_the_directory_before_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    assert_eq!(create(&tree, "d\\.\\f"), Status::SUCCESS);
    assert!(server.path("d/f").exists());
    assert_eq!(
        create(&tree, ".\\d\\.\\.\\f"),
        Status::OBJECT_NAME_COLLISION
    );
    let directory = CreateArgs::directory("d\\.");
    assert_eq!(tree.create_status(&directory).unwrap(), Status::SUCCESS);
    assert_eq!(tree.list(".", "*").unwrap().len(), 3);
    for name in ["d\\..\\g", "d\\..", "d\\.\\..\\g"] {
        assert_eq!(create(&tree, name), Status::INVALID_PARAMETER, "{name}");
    }
    for name in ["..\\g", "..", ".\\..\\g", "..\\..\\.."] {
        assert_eq!(
            create(&tree, name),
            Status::OBJECT_PATH_SYNTAX_BAD,
            "{name}"
        );
    }
    assert_eq!(tree.list("", "*").unwrap().len(), 3);
    assert_eq!(create(&tree, "d\\..."), Status::SUCCESS);
}

/// [MS-FSA] 2.1.5.1: the list of a directory's names is its stream `$I30` of the type `$INDEX_ALLOCATION`.
#[test]
fn a_directory_can_be_named_by_its_index() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let make = |name| tree.create_status(&CreateArgs::create_directory(name));
    assert_eq!(make("d::$INDEX_ALLOCATION").unwrap(), Status::SUCCESS);
    assert!(server.path("d").is_dir());
    // The type alone makes it a directory.
    assert_eq!(create(&tree, "e:$i30:$index_allocation"), Status::SUCCESS);
    assert!(server.path("e").is_dir());
    tree.write_file("d:$I30:$INDEX_ALLOCATION\\f", b"x")
        .unwrap();
    assert_eq!(tree.read_file("d::$INDEX_ALLOCATION\\f").unwrap(), b"x");
    assert_eq!(tree.list("d::$INDEX_ALLOCATION", "*").unwrap().len(), 3);
    tree.rename("d\\f", "e::$INDEX_ALLOCATION\\g", false)
        .unwrap();
    assert!(server.path("e/g").exists());
}

#[test]
fn an_index_is_refused_where_there_is_none() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"x").unwrap();
    let open = |name, disposition| {
        let args = CreateArgs::new(name, disposition);
        tree.create_status(&args).unwrap()
    };
    use CreateDisposition as Does;
    for (name, disposition, status) in [
        (
            "d:x:$INDEX_ALLOCATION",
            Does::OPEN,
            Status::INVALID_PARAMETER,
        ),
        (
            "d:x:$INDEX_ALLOCATION",
            Does::CREATE,
            Status::INVALID_PARAMETER,
        ),
        (
            "g:x:$INDEX_ALLOCATION",
            Does::CREATE,
            Status::INVALID_PARAMETER,
        ),
        (
            "g:x:$INDEX_ALLOCATION",
            Does::OPEN,
            Status::OBJECT_NAME_NOT_FOUND,
        ),
        // Clients look for quotas here.
        (
            "$Extend\\$Quota:$Q:$INDEX_ALLOCATION",
            Does::OPEN,
            Status::OBJECT_PATH_NOT_FOUND,
        ),
        (
            "d::$INDEX_ALLOCATION",
            Does::CREATE,
            Status::OBJECT_NAME_COLLISION,
        ),
        (
            "d::$INDEX_ALLOCATION",
            Does::OVERWRITE_IF,
            Status::OBJECT_NAME_COLLISION,
        ),
        ("f::$INDEX_ALLOCATION", Does::OPEN, Status::NOT_A_DIRECTORY),
        (
            "f::$INDEX_ALLOCATION",
            Does::CREATE,
            Status::OBJECT_NAME_COLLISION,
        ),
        (
            "g::$INDEX_ALLOCATION",
            Does::OPEN,
            Status::OBJECT_NAME_NOT_FOUND,
        ),
        ("d:x\\f", Does::OPEN, Status::OBJECT_NAME_INVALID),
        ("d::$DATA\\f", Does::OPEN, Status::OBJECT_NAME_INVALID),
        ("d:$I30\\f", Does::OPEN, Status::OBJECT_NAME_INVALID),
        (
            "f::$INDEX_ALLOCATION\\g",
            Does::OPEN,
            Status::OBJECT_PATH_NOT_FOUND,
        ),
    ] {
        assert_eq!(open(name, disposition), status, "{name} {disposition:?}");
    }
}

#[test]
fn no_path_leaves_the_share() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let outside = server.share_path("", "outside");
    std::fs::write(&outside, b"secret").unwrap();
    for name in [
        "..",
        "..\\outside",
        "d\\..\\..\\outside",
        "d\\..\\..",
        "..\\data\\f",
        ".\\..\\outside",
        "d\\..",
        "../outside",
        "d/../../outside",
        "..\\..\\..\\..\\etc\\passwd",
        "...\\..\\outside",
    ] {
        for disposition in [CreateDisposition::OPEN, CreateDisposition::OPEN_IF] {
            let args = CreateArgs::new(name, disposition).access(AccessMask::FILE_READ_DATA);
            let refused = tree.create_status(&args).unwrap();
            assert!(refused.is_error(), "{name}: {refused}");
        }
    }
    assert_eq!(std::fs::read(&outside).unwrap(), b"secret");
    std::fs::remove_file(outside).unwrap();
}

#[test]
fn symbolic_links_of_the_host_do_not_leave_the_share() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let outside = server.share_path("", "target");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink(&outside, server.path("out")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), server.path("file")).unwrap();
    for name in ["out\\secret", "file"] {
        match tree.read_file(name) {
            Ok(data) => assert_ne!(data, b"secret", "{name}"),
            Err(error) => assert!(error.status().is_some(), "{name}: {error}"),
        }
    }
    let made = create(&tree, "out\\new");
    assert!(!outside.join("new").exists(), "{made}");
    std::fs::remove_dir_all(outside).unwrap();
}

#[test]
fn missing_parents_give_object_path_not_found() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let open = |name| tree.create_status(&CreateArgs::open(name)).unwrap();
    assert_eq!(open("missing"), Status::OBJECT_NAME_NOT_FOUND);
    assert_eq!(open("missing\\f"), Status::OBJECT_PATH_NOT_FOUND);
    assert_eq!(create(&tree, "missing\\f"), Status::OBJECT_PATH_NOT_FOUND);
    // A file cannot be traversed like a directory.
    assert_eq!(open("f\\g"), Status::OBJECT_PATH_NOT_FOUND);
}

#[test]
fn the_empty_name_is_the_root() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree
        .create(&CreateArgs::open("").access(AccessMask::FILE_READ_ATTRIBUTES))
        .unwrap();
    root.close().unwrap();
    assert_eq!(create(&tree, ""), Status::OBJECT_NAME_COLLISION);
    let delete = CreateArgs::open("")
        .access(AccessMask::DELETE)
        .options(CreateOptions::DELETE_ON_CLOSE);
    let end = tree.create_status(&delete).unwrap();
    assert!(server.path("").exists(), "{end}");
    tree.write_file("f", b"x").unwrap();
}

#[test]
fn streams_are_files_of_their_own() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"main").unwrap();
    tree.write_file("f:extra", b"stream").unwrap();
    assert_eq!(tree.read_file("f").unwrap(), b"main");
    assert_eq!(tree.read_file("f:extra").unwrap(), b"stream");
    assert_eq!(tree.read_file("f:EXTRA:$DATA").unwrap(), b"stream");
    assert_eq!(tree.read_file("f::$DATA").unwrap(), b"main");
    assert_eq!(
        status(tree.read_file("f:missing")),
        Status::OBJECT_NAME_NOT_FOUND
    );
    tree.delete("f:extra").unwrap();
    assert_eq!(
        status(tree.read_file("f:extra")),
        Status::OBJECT_NAME_NOT_FOUND
    );
    assert_eq!(tree.read_file("f").unwrap(), b"main");
}

#[test]
fn invalid_stream_names_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"main").unwrap();
    for name in ["f:", "f:s:", "f:s:$WHAT", "f:a:b:c", "f:a/b", "f:a\\b"] {
        let refused = create(&tree, name);
        assert!(
            [
                Status::OBJECT_NAME_INVALID,
                Status::INVALID_PARAMETER,
                Status::OBJECT_PATH_NOT_FOUND,
                Status::OBJECT_PATH_SYNTAX_BAD,
            ]
            .contains(&refused),
            "{name}: {refused}"
        );
    }
    let directory = CreateArgs::create("f:s").options(CreateOptions::DIRECTORY_FILE);
    assert_eq!(
        tree.create_status(&directory).unwrap(),
        Status::NOT_A_DIRECTORY
    );
}

#[test]
fn a_name_outside_its_message_is_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let good = || CreateArgs::create("name").request();
    // NameOffset is at 44 of the body, NameLength at 46.
    for (at, value) in [
        (108usize, 0u16),
        (108, 0x40),
        (108, 0x79),
        (108, 0xffff),
        (110, 0xffff),
        (110, 100),
    ] {
        let spoilt: Request =
            good().mutate(|m| m[at..at + 2].copy_from_slice(&value.to_le_bytes()));
        let reply = tree.reply(spoilt).unwrap();
        assert!(
            [Status::INVALID_PARAMETER, Status::OBJECT_NAME_INVALID].contains(&reply.status())
                || (at == 108 && value == 0x79),
            "{at} {value:#x}: {}",
            reply.status()
        );
    }
    tree.call(good()).unwrap();
}

/// [MS-FSA] 2.1.5.1: an invalid pathname is OBJECT_NAME_INVALID in every request that contains one.
/// A path with more components than the server walks is invalid, even if no part of it exists.
#[test]
fn paths_are_limited_in_depth() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let deep = |components: usize| vec!["d"; components].join("\\");
    assert_eq!(create(&tree, &deep(256)), Status::OBJECT_PATH_NOT_FOUND);
    assert_eq!(create(&tree, &deep(257)), Status::OBJECT_NAME_INVALID);
    assert_eq!(create(&tree, &deep(3000)), Status::OBJECT_NAME_INVALID);
    let stream = format!("{}:s", deep(257));
    assert_eq!(create(&tree, &stream), Status::OBJECT_NAME_INVALID);
    tree.write_file("f", b"x").unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    for (components, expected) in [
        (256, Status::OBJECT_PATH_NOT_FOUND),
        (257, Status::OBJECT_NAME_INVALID),
    ] {
        assert_eq!(status(file.rename(&deep(components), false)), expected);
        let mut link = BytesMut::new();
        FileLinkInformation {
            replace_if_exists: false,
            root_directory: 0,
            file_name: deep(components),
        }
        .encode(&mut link);
        let linked = file.set(FileInformationClass::LINK, &link);
        assert_eq!(status(linked), expected);
    }
    // The deepest possible file.
    let mut at = server.path("");
    for _ in 0..255 {
        at.push("d");
        std::fs::create_dir(&at).unwrap();
    }
    tree.write_file(&deep(256), b"down here").unwrap();
    assert_eq!(std::fs::read(at.join("d")).unwrap(), b"down here");
    assert_eq!(tree.read_file(&deep(256)).unwrap(), b"down here");
    tree.delete(&deep(256)).unwrap();
    assert!(!at.join("d").exists());
}

/// Both spellings of names that end in a dot or a blank: unmapped, and as in listings.
const LAST: [(&str, &str); 4] = [
    ("Notes v1.", "Notes v1\u{F029}"),
    ("blank ", "blank\u{F028}"),
    ("both. ", "both.\u{F028}"),
    ("...", "..\u{F029}"),
];

#[test]
fn a_last_dot_or_blank_is_preserved() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for (sent, listed) in LAST {
        for made in [sent, listed] {
            tree.write_file(made, b"x").unwrap();
            assert_eq!(std::fs::read(server.path(sent)).unwrap(), b"x");
            for found in [sent, listed] {
                assert_eq!(create(&tree, found), Status::OBJECT_NAME_COLLISION);
                let names = tree.list("", found).unwrap();
                let names: Vec<_> = names.into_iter().map(|entry| entry.file_name).collect();
                assert_eq!(names, [listed], "{found}");
            }
            // Both spellings are the same file for sharing and oplocks.
            let alone = CreateArgs::open(sent).share(ShareAccess(0));
            let alone = tree.create(&alone).unwrap();
            let other = tree.create_status(&CreateArgs::open(listed)).unwrap();
            assert_eq!(other, Status::SHARING_VIOLATION);
            alone.close().unwrap();
            tree.delete(if made == sent { listed } else { sent })
                .unwrap();
            assert!(!server.path(sent).exists());
        }
    }
}

#[test]
fn a_last_dot_or_blank_is_preserved_in_parents_and_in_new_names() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("dir.").unwrap();
    tree.write_file("dir\u{F029}\\f ", b"x").unwrap();
    tree.write_file("dir.\\f\u{F028}:stream.", b"s").unwrap();
    assert_eq!(std::fs::read(server.path("dir./f ")).unwrap(), b"x");
    assert_eq!(tree.read_file("dir.\\f :stream.").unwrap(), b"s");
    tree.rename("dir.\\f ", "dir\u{F029}\\g..", false).unwrap();
    assert_eq!(std::fs::read(server.path("dir./g..")).unwrap(), b"x");
    // The other spelling is the same name: nothing has to be done.
    tree.rename("dir.\\g..", "dir.\\g.\u{F029}", false).unwrap();
    tree.rename("dir.\\g.\u{F029}", "dir.\\G..", false).unwrap();
    tree.write_file("h.", b"y").unwrap();
    assert_eq!(
        status(tree.rename("h\u{F029}", "dir.\\g..", false)),
        Status::OBJECT_NAME_COLLISION
    );
    tree.rename("h.", "dir.\\g.\u{F029}", true).unwrap();
    assert_eq!(tree.read_file("dir.\\g..").unwrap(), b"y");
    for (pattern, found) in [("g*.", 1), ("G*\u{F029}", 1), ("?*..", 1), ("*x.", 0)] {
        let names = tree.list("dir.", pattern);
        assert_eq!(names.map_or(0, |names| names.len()), found, "{pattern}");
    }
    tree.delete("dir\u{F029}\\g..").unwrap();
    tree.rename("dir.", "plain", false).unwrap();
    assert!(server.path("plain").is_dir());
}

#[test]
fn two_names_of_the_host_that_differ_only_by_the_mapping_remain_distinct() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    std::fs::write(server.path("end."), b"plain").unwrap();
    std::fs::write(server.path("end\u{F029}"), b"code point").unwrap();
    assert_eq!(tree.read_file("end.").unwrap(), b"plain");
    assert_eq!(tree.read_file("end\u{F029}").unwrap(), b"plain");
    let names = tree.list("", "end*").unwrap();
    assert_eq!(names.len(), 2);
    for name in names {
        tree.delete(&name.file_name).unwrap();
    }
    assert!(!server.path("end\u{F029}").exists());
}

/// smbclient's `link` sends such names.
#[test]
fn only_the_name_of_a_new_link_may_begin_with_a_backslash() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("d\\g", b"x").unwrap();
    let file = tree.create(&CreateArgs::open("d\\g")).unwrap();
    let mut link = BytesMut::new();
    FileLinkInformation {
        replace_if_exists: false,
        root_directory: 0,
        file_name: "\\h".into(),
    }
    .encode(&mut link);
    file.set(FileInformationClass::LINK, &link).unwrap();
    assert_eq!(std::fs::read(server.path("h")).unwrap(), b"x");
    for bad in ["\\", "\\h2", "\\\\h", "\\..\\h", "\\:s"] {
        let refused = file.rename(bad, false).unwrap_err();
        assert_eq!(refused.status(), Some(Status::INVALID_PARAMETER), "{bad}");
    }
    assert!(server.path("d/g").exists());
}

/// [MS-FSA] 2.1.5.1.2 refuses an overwrite that would take away HIDDEN. A name that begins with a dot has it only by a
/// rule of this server.
#[test]
fn a_hidden_dot_file_of_the_host_can_be_overwritten() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let over = |name: &str, disposition| {
        let args = CreateArgs::new(name, disposition);
        tree.create_status(&args).unwrap()
    };
    for disposition in [
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        let name = format!(".env{}", disposition.0);
        std::fs::write(server.path(&name), b"of the host").unwrap();
        let file = tree.create(&CreateArgs::open(&name)).unwrap();
        let attributes = file.created().facts.file_attributes;
        assert!(attributes.contains(FileAttributes::HIDDEN), "{name}");
        file.close().unwrap();
        assert_eq!(over(&name, disposition), Status::SUCCESS, "{name}");
        assert_eq!(std::fs::read(server.path(&name)).unwrap(), b"");
    }
    // A bit that somebody has set stays protected.
    let hidden = CreateArgs::create(".set").attributes(FileAttributes::HIDDEN);
    tree.create(&hidden).unwrap().close().unwrap();
    let refused = over(".set", CreateDisposition::OVERWRITE);
    assert_eq!(refused, Status::ACCESS_DENIED);
}
