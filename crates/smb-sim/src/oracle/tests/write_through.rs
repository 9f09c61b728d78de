//! Hand-made histories of requests whose answers promise: under strict-sync, and with write-through.

use super::*;

#[test]
fn strict_sync_promises_every_answer() {
    let mut tale = Tale::default();
    let (file, _) = tale.file("f");
    let view = one("f", with(&[]));
    assert!(
        tale.broken(&view, Policy::StrictSync)
            .iter()
            .all(|rule| *rule == Rule::Strict)
    );
    assert!(!tale.broken(&view, Policy::StrictSync).is_empty());
    // Not answered: not promised.
    let mut tale = Tale::default();
    tale.begin(Request::create(Object::ROOT, "f", file));
    assert_eq!(tale.broken(&View::new(), Policy::StrictSync), NONE);
}

#[test]
fn write_through_covers_itself_and_its_name() {
    let mut tale = Tale::default();
    let (file, old) = tale.file("f");
    let new = tale.history.version();
    tale.done(Request::write(file, "", 0..8, new).through());
    assert_eq!(
        tale.broken(&View::new(), Policy::Honor),
        [Rule::Acknowledged]
    );
    let mut bytes = fill(file, "", 0, 8, new);
    bytes.extend(fill(file, "", 8, 8, old));
    for len in [8, 16] {
        let view = one("f", with(&bytes[..len * SECTOR]));
        assert_eq!(tale.broken(&view, Policy::Honor), NONE, "{len}");
    }
    let view = one("f", with(&fill(file, "", 0, 8, old)));
    assert_eq!(tale.broken(&view, Policy::Honor), [Rule::Acknowledged]);
}

#[test]
fn write_through_covers_the_time_of_last_write_but_for_a_write() {
    let mut tale = Tale::default();
    let (file, old) = tale.file("f");
    tale.flush(file);
    let cut = Request::set_size(file, "", 4).written(file, 100);
    tale.done(cut.through());
    let found = |version, at| {
        let mut found = with(&fill(file, "", 0, 4, version));
        found.meta.push((Key::Written, Value::NotBefore(at)));
        one("f", found)
    };
    assert_eq!(tale.broken(&found(old, 100), Policy::Honor), NONE);
    assert_eq!(
        tale.broken(&found(old, 99), Policy::Honor),
        [Rule::Acknowledged]
    );
    let mut terms = tale.terms(Policy::Honor);
    terms.flush_times = false;
    let broken = check(&tale.history, &found(old, 99), &terms);
    assert_eq!(rules(&broken), [Rule::Acknowledged]);
    let new = tale.history.version();
    let write = Request::write(file, "", 0..4, new).written(file, 200);
    tale.done(write.through());
    assert_eq!(tale.broken(&found(new, 100), Policy::Honor), NONE);
    // Once it is old, its time is stored, whatever a FLUSH covers.
    tale.now += 31_000;
    let mut terms = tale.terms(Policy::Honor);
    for flush_times in [true, false] {
        terms.flush_times = flush_times;
        let broken = check(&tale.history, &found(new, 199), &terms);
        assert_eq!(rules(&broken), [Rule::Acknowledged]);
        assert_eq!(check(&tale.history, &found(new, 200), &terms), []);
    }
    terms.device_keeps_up = false;
    assert_eq!(check(&tale.history, &found(new, 100), &terms), []);
}

#[test]
fn a_flush_without_times_leaves_attributes_of_the_host_to_their_age() {
    let mut tale = Tale::default();
    let (file, _) = tale.file("f");
    tale.flush(file);
    let key = Key::Ea("HOST".to_owned());
    let set = Request::meta(file, key.clone(), Value::Bytes(vec![1]));
    tale.done(set.by_host());
    let version = tale.write(file, 0..16);
    tale.flush(file);
    let mut found = with(&fill(file, "", 0, 16, version));
    found.meta.push((key, Value::Nothing));
    let view = one("f", found);
    assert_eq!(tale.broken(&view, Policy::Honor), [Rule::Acknowledged]);
    let mut terms = tale.terms(Policy::Honor);
    terms.flush_times = false;
    assert_eq!(check(&tale.history, &view, &terms), []);
    terms.cut.at += ms(31_000);
    let broken = check(&tale.history, &view, &terms);
    assert_eq!(rules(&broken), [Rule::Acknowledged]);
}

#[test]
fn what_a_write_through_request_deletes_comes_back_under_no_former_name() {
    let deleted = |by_host: bool| {
        let mut tale = Tale::default();
        let (file, version) = tale.file("f");
        tale.flush(file);
        let rename = Request::rename(file, (Object::ROOT, "f"), (Object::ROOT, "g"));
        tale.done(match by_host {
            true => rename.by_host(),
            false => rename,
        });
        tale.done(Request::remove(Object::ROOT, "g", file).through());
        (tale, with(&fill(file, "", 0, 16, version)))
    };
    let (mut tale, there) = deleted(false);
    assert_eq!(tale.broken(&View::new(), Policy::Honor), NONE);
    for name in ["f", "g"] {
        let broken = tale.broken(&one(name, there.clone()), Policy::Honor);
        assert_eq!(broken, [Rule::Acknowledged], "{name}");
    }
    // The server does not know the name that another program on the host took away.
    let (mut tale, there) = deleted(true);
    assert_eq!(tale.broken(&one("f", there.clone()), Policy::Honor), NONE);
    let broken = tale.broken(&one("g", there), Policy::Honor);
    assert_eq!(broken, [Rule::Acknowledged]);
}
