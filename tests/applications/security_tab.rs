//! The security tab of Explorer: reads the descriptor, adds an entry, disables inheritance.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::{DATA, HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::{Ace, AceFlags, SecurityDescriptorControl as Control, Sid};

use crate::requests::{OWNER_GROUP_DACL, asking, delete, descriptor, entries, set_entries};

/// Logs in two users who differ only in descriptors: neither has a local user of his own.
fn two_people(server: &HoldfastServer) -> [Tree; 2] {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(smb_tests::binary());
        command.args(arguments).arg("--config").arg(server.config());
        assert!(command.status().unwrap().success(), "{arguments:?}");
    };
    let file = server.config().with_file_name("secret");
    std::fs::write(&file, "Theirs-pw-3\n").unwrap();
    set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let people = ["dora", "erik"];
    for name in people {
        run(&[
            "user",
            "add",
            name,
            "--password-file",
            file.to_str().unwrap(),
        ]);
    }
    run(&["reload"]);
    for (path, mode) in [(server.path(""), 0o777), (server.path(".."), 0o755)] {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    people.map(|name| {
        let client = server.client(Options::default());
        let session = client.login(name, "Theirs-pw-3", "").unwrap();
        session.tree(DATA).unwrap()
    })
}

/// Opens for the security tab.
#[track_caller]
fn security_tab(tree: &Tree, name: &str) -> File {
    let access = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    let args = CreateArgs::open(name).access(access | AccessMask::FILE_READ_ATTRIBUTES);
    tree.create(&asking(args)).unwrap()
}

fn owner_of(tree: &Tree, name: &str) -> Sid {
    let file = security_tab(tree, name);
    let owner = descriptor(&file, OWNER_GROUP_DACL).owner.unwrap();
    file.close().unwrap();
    owner
}

/// Returns the masks and flags of the entries for a SID.
fn of(sid: &Sid, entries: &[Ace]) -> Vec<(AccessMask, AceFlags)> {
    let theirs = entries.iter().filter_map(|ace| {
        let (mask, who) = ace.access()?;
        (who == sid).then_some((mask, ace.flags))
    });
    theirs.collect()
}

#[test]
fn the_security_tab_adds_a_user_to_a_folder() {
    let server = HoldfastServer::new();
    let [tree, erik] = two_people(&server);
    erik.write_file("his", b"").unwrap();
    tree.mkdir("team").unwrap();
    let (his, mine) = (owner_of(&erik, "his"), owner_of(&tree, "team"));
    assert_ne!(his, mine);
    tree.write_file("team\\before", b"before").unwrap();
    let modify = AccessMask(0x0013_01bf);
    let whole = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    let write = |name: &str| {
        let access = AccessMask::FILE_WRITE_DATA;
        status(erik.create(&CreateArgs::open(name).access(access)))
    };
    assert_eq!(write("team\\before"), Status::ACCESS_DENIED);
    // "erik: Modify; this folder, subfolders and files", behind the existing entries.
    let folder = security_tab(&tree, "team");
    let mut list = entries(&folder);
    list.push(Ace::allow(his, modify, whole));
    set_entries(&folder, &list, Control::DACL_AUTO_INHERITED).unwrap();
    assert_eq!(entries(&folder), list);
    folder.close().unwrap();
    // Explorer itself applies the change to existing files below.
    let child = security_tab(&tree, "team\\before");
    let mut list = entries(&child);
    list.push(Ace::allow(his, modify, AceFlags::INHERITED));
    set_entries(&child, &list, Control::DACL_AUTO_INHERITED).unwrap();
    let back = of(&his, &entries(&child));
    assert_eq!(back, [(modify, AceFlags::INHERITED)]);
    child.close().unwrap();
    assert_eq!(write("team\\before"), Status::SUCCESS);
    // Files that either user creates from now on inherit erik's entry, and still belong to their
    // creator.
    for maker in [&tree, &erik] {
        maker.mkdir("team\\sub").unwrap();
        maker.write_file("team\\sub\\after", b"after").unwrap();
        assert_eq!(maker.read_file("team\\sub\\after").unwrap(), b"after");
        let file = security_tab(maker, "team\\sub\\after");
        let inherited = of(&his, &entries(&file));
        assert!(inherited.contains(&(modify, AceFlags::INHERITED)));
        file.close().unwrap();
        assert_eq!(write("team\\sub\\after"), Status::SUCCESS);
        assert_eq!(delete(maker, "team\\sub\\after"), Status::SUCCESS);
        assert_eq!(delete(maker, "team\\sub"), Status::SUCCESS);
    }
    // "Disable inheritance", converting the entries to explicit ones.
    let child = security_tab(&tree, "team\\before");
    let mut list = entries(&child);
    list.retain(|ace| ace.access().is_none_or(|(_, who)| *who != his));
    set_entries(&child, &list, Control::DACL_PROTECTED).unwrap();
    let sd = descriptor(&child, OWNER_GROUP_DACL);
    assert!(sd.control.contains(Control::DACL_PROTECTED));
    assert_eq!(sd.owner, Some(mine));
    child.close().unwrap();
    assert_eq!(write("team\\before"), Status::ACCESS_DENIED);
    assert_eq!(tree.read_file("team\\before").unwrap(), b"before");
}
