//! A named stream under a new name: [`StreamRename`].

use std::cell::Cell;

use super::*;

fn of(rig: &Rig, name: &str, share: ShareAccess) -> OpenRequest {
    OpenRequest {
        place: stream(1, name),
        share,
        ..rig.request(1, READ)
    }
}

#[test]
fn everything_moves_with_the_stream() {
    let rig = Rig::new();
    let only = OpenRequest {
        cache: lease(1, RWH),
        client: client(1),
        ..of(&rig, "A", ShareAccess::empty())
    };
    rig.open(&only);
    let woken = Cell::new(0);
    let wake = |effects: Effects| woken.set(woken.get() + effects.wakes.len());
    let renaming = rig.files.rename_stream(only.open, stream(1, "B"), wake);
    // An open of the stream by either name waits meanwhile.
    for name in ["A", "B"] {
        assert!(rig.waits(&of(&rig, name, SHARE_ALL)).is_empty());
    }
    let place = renaming.unwrap().done();
    assert_eq!(woken.get(), 2);
    assert_eq!(place, stream(1, "B"));
    let bound = rig.files.places_of_lease(client(1), lease_key(1));
    assert_eq!(bound, std::slice::from_ref(&place));
    assert!(rig.files.is_stream_open(&place));
    assert!(!rig.files.is_stream_open(&stream(1, "A")));
    let new = of(&rig, "A", ShareAccess::empty());
    rig.open(&new);
    let _ = rig.close(&new);
    assert!(!rig.files.is_stream_open(&stream(1, "A")));
    let _ = rig.close(&OpenRequest { place, ..only });
    assert!(rig.files.is_empty());
}

#[test]
fn a_rename_that_is_not_carried_out_leaves_both_names_free() {
    let rig = Rig::new();
    let only = of(&rig, "A", SHARE_ALL);
    rig.open(&only);
    let rename = || rig.files.rename_stream(only.open, stream(1, "B"), drop);
    drop(rename().unwrap());
    for name in ["A", "B"] {
        let other = of(&rig, name, SHARE_ALL);
        rig.open(&other);
        let refused = rename();
        let expected = match name {
            "A" => Status::SHARING_VIOLATION,
            _ => Status::INVALID_PARAMETER,
        };
        assert_eq!(refused.err(), Some(expected), "{name}");
        let _ = rig.close(&other);
        assert_eq!(rig.files.count(only.place.key, None), 1);
    }
    let _ = rig.close(&only);
    assert!(rig.files.is_empty());
}
