//! The grouping of folders by mounts, and mounts that go.

use super::*;

#[test]
fn a_mount_below_a_share_that_cannot_be_opened_is_no_mistake() {
    let state = tempfile::tempdir().unwrap();
    let lost = Arc::new(Lost::open(state.path()).unwrap());
    let sync = |_: &Path, _: &File| Ok(());
    let asking = Asking::new(Some(Box::new(sync)), lost);
    let gone = state.path().join("gone");
    for (folder, mistake) in [(state.path(), false), (gone.as_path(), true)] {
        let refusal = asking.sync_once(&gone, folder).unwrap_err();
        assert_eq!(refusal.mistake, mistake, "{refusal:?}");
    }
}

fn unreadable() -> io::Result<Vec<PathBuf>> {
    Err(io::Error::other("no table"))
}

fn points(points: &[&str]) -> io::Result<Vec<PathBuf>> {
    Ok(points.iter().map(PathBuf::from).collect())
}

#[test]
fn without_a_mount_table_only_what_has_failed_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let lost = Arc::new(Lost::open(state.path()).unwrap());
    let asking = Asking::new(None, lost);
    let folders = ["/a", "/b"].map(PathBuf::from).to_vec();
    let mut groups = asking.by_mount(folders, unreadable());
    assert_eq!(groups.len(), 2, "neither waits for the other");
    let mut place = groups.remove(0).remove(0);
    assert!(place.is_where_it_was(unreadable()).is_ok());
    place.has_failed = true;
    let refusal = place.is_where_it_was(unreadable()).unwrap_err();
    assert!(refusal.is_of_table && !refusal.mistake, "{refusal:?}");
    assert!(place.is_where_it_was(points(&["/"])).is_ok());
}

#[test]
fn no_folder_waits_for_one_with_mounts_below() {
    let state = tempfile::tempdir().unwrap();
    let lost = Arc::new(Lost::open(state.path()).unwrap());
    let asking = Asking::new(None, lost);
    let folders = ["/srv", "/srv/a", "/srv/b", "/srv/c"].map(PathBuf::from);
    let groups = asking.by_mount(folders.to_vec(), points(&["/", "/srv", "/srv/a/n"]));
    let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1, 1], "b and c, and the others by themselves");
}

#[test]
fn a_mount_that_comes_is_no_mount_that_has_gone() {
    let mut place = Place {
        folder: PathBuf::from("/no/such/a"),
        mount: Some(PathBuf::from("/no")),
        real: None,
        has_failed: true,
    };
    assert!(place.is_where_it_was(points(&["/", "/no"])).is_ok());
    let more = ["/", "/no", "/no/such"];
    assert!(place.is_where_it_was(points(&more)).is_ok());
    let refusal = place.is_where_it_was(points(&["/", "/no"])).unwrap_err();
    assert!(refusal.error.contains("at /no/such any"), "{refusal:?}");
}
