//! Short reads and writes, full disks, torn writes: the answer is true, the rest is untouched.

use smb_wire::{Status, msg::WriteFlags};

use crate::{Rig, open, snapshot::runs, status};

/// The disk does half of what it is asked; the client never sees that.
fn short(io: &str) {
    let Some(mut rig) = Rig::started(&format!("file_io = \"{io}\""), "") else {
        return;
    };
    let tree = rig.server.tree();
    let file = open(&tree, "f");
    let data: Vec<u8> = (0..100_000u32).map(|n| (n / 500) as u8).collect();
    rig.mount.send("rule write,read /f 1 5 short");
    file.write_all(0, &data).unwrap();
    let through = file.write(100_000, &[7; 5000], WriteFlags::WRITE_THROUGH);
    assert_eq!(through.unwrap(), 5000);
    rig.mount.send("clear");
    rig.mount.send("rule write,read /f 1 5 short");
    let mut found = file.read_all().unwrap();
    assert_eq!(found.split_off(100_000), [7; 5000], "{io}: written through");
    assert_eq!(runs(&found), runs(&data), "{io}");
    assert_eq!(file.read(50_000, 1 << 20).unwrap().len(), 55_000, "{io}");
}

#[test]
fn short_reads_and_writes_go_on_threads() {
    short("threads");
}

#[test]
fn short_reads_and_writes_go_on_auto() {
    short("auto");
}

#[test]
fn a_full_disk_refuses_writes_and_harms_nothing() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    let tree = rig.server.tree();
    let file = open(&tree, "f");
    file.write_all(0, &[1; 8192]).unwrap();
    file.flush(false).unwrap();
    rig.mount.send("capacity 1");
    for flags in [WriteFlags::empty(), WriteFlags::WRITE_THROUGH] {
        assert_eq!(
            status(file.write(8192, &[2; 8192], flags)),
            Status::DISK_FULL
        );
    }
    assert_eq!(status(file.set_end_of_file(4096)), Status::SUCCESS);
    // The data that could not be made stable are cut off: no doubt is left once that is on disk.
    file.flush(false).unwrap();
    assert_eq!(runs(&file.read_all().unwrap()), "4096x01 ");
    for name in ["new", "f:stream"] {
        let args = smb_client::CreateArgs::create(name);
        let made = tree.create_status(&args).unwrap();
        assert!(
            [Status::DISK_FULL, Status::SUCCESS].contains(&made),
            "{name}: {made}"
        );
        if made == Status::DISK_FULL {
            let args = smb_client::CreateArgs::open(name);
            let there = tree.create_status(&args).unwrap();
            assert_eq!(
                there,
                Status::OBJECT_NAME_NOT_FOUND,
                "{name}: refused and there"
            );
        }
    }
    rig.mount.send("capacity 100000");
    file.write_all(4096, &[3; 100]).unwrap();
    file.flush(false).unwrap();
    assert_eq!(runs(&tree.read_file("f").unwrap()), "4096x01 100x03 ");
}

#[test]
fn a_torn_write_is_an_error_and_tears_nothing_else() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    let tree = rig.server.tree();
    for (name, flags) in [
        ("plain", WriteFlags::empty()),
        ("through", WriteFlags::WRITE_THROUGH),
    ] {
        let file = open(&tree, name);
        file.write_all(0, &[1; 16384]).unwrap();
        file.flush(false).unwrap();
        rig.mount.send(&format!("rule write /{name} 1 1 tear:1536"));
        let torn = status(file.write(4096, &[2; 4096], flags));
        assert_eq!(torn, Status::IO_DEVICE_ERROR);
        let found = runs(&file.read_all().unwrap());
        assert_eq!(found, "4096x01 1536x02 10752x01 ", "{name}");
        assert_eq!(status(file.write(4096, &[2; 4096], flags)), Status::SUCCESS);
        assert_eq!(
            status(file.flush(false)),
            Status::SUCCESS,
            "{name}: rewritten"
        );
    }
}
