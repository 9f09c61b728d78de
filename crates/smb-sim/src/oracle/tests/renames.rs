//! Hand-made histories of files that move, and of what had their names before.

use super::*;

#[test]
fn after_a_rename_there_is_one_name() {
    let mut tale = Tale::default();
    let (file, version) = tale.file("f");
    tale.history.identify(file, 7);
    tale.flush(file);
    tale.done(Request::rename(
        file,
        (Object::ROOT, "f"),
        (Object::ROOT, "g"),
    ));
    let mut there = with(&fill(file, "", 0, 16, version));
    there.index = Some(7);
    let mut both = one("f", there.clone());
    both.add("g", there);
    assert_eq!(tale.broken(&both, Policy::Honor), NONE, "not asked");
    let mut terms = tale.terms(Policy::Honor);
    terms.renames_atomic = true;
    assert_eq!(rules(&check(&tale.history, &both, &terms)), [Rule::OneName]);
    tale.flush(file);
    let broken = tale.broken(&both, Policy::Honor);
    assert!(broken.contains(&Rule::OneName), "{broken:?}");
}

#[test]
fn a_rename_that_is_stable_before_its_answer_is_there() {
    let bounded = Policy::Bounded(Bound::new(ms(60_000), 1 << 20).unwrap());
    let mut tale = Tale::default();
    let (d, e) = (tale.history.object(), tale.history.object());
    tale.done(Request::create(Object::ROOT, "d", d));
    tale.done(Request::create(Object::ROOT, "e", e));
    let (mut before, mut after) = (one("d", directory()), one("d", directory()));
    before.add("e", directory());
    after.add("d/e", directory());
    let (from, to) = ((Object::ROOT, "e"), (d, "e"));
    let host = Policy::TreatHostAsStableStorage;
    let rule = [(bounded, Rule::Bound), (Policy::Honor, Rule::Acknowledged)];
    // A directory anywhere; a file only where a rename may be kept by half.
    tale.done(Request::move_directory(e, from, to));
    for (policy, rule) in rule {
        assert_eq!(tale.broken(&after, policy), NONE);
        assert!(tale.broken(&before, policy).contains(&rule), "{policy:?}");
    }
    assert_eq!(tale.broken(&before, host), NONE);
    let mut tale = Tale::default();
    let (d, e) = (tale.history.object(), tale.history.object());
    tale.done(Request::create(Object::ROOT, "d", d));
    tale.done(Request::create(Object::ROOT, "e", e));
    tale.done(Request::rename(e, from, to));
    for (policy, rule) in rule {
        let mut terms = tale.terms(policy);
        assert!(check(&tale.history, &before, &terms).is_empty());
        terms.moves_stable = true;
        assert!(rules(&check(&tale.history, &before, &terms)).contains(&rule));
        assert!(check(&tale.history, &after, &terms).is_empty());
    }
}

#[test]
fn what_had_a_promised_name_is_found_wherever_a_rename_stopped() {
    let mut tale = Tale::default();
    let (file, version) = tale.file("f");
    tale.flush(file);
    let there = with(&fill(file, "", 0, 16, version));
    let mut terms = tale.terms(Policy::Honor);
    terms.renames_synced = true;
    // Moved, and nobody asked for that to be stable: either name will do, none will not.
    tale.done(Request::rename(
        file,
        (Object::ROOT, "f"),
        (Object::ROOT, "g"),
    ));
    terms.cut = tale.terms(Policy::Honor).cut;
    for name in ["f", "g"] {
        let view = one(name, there.clone());
        assert_eq!(rules(&check(&tale.history, &view, &terms)), NONE, "{name}");
    }
    let broken = rules(&check(&tale.history, &View::new(), &terms));
    assert_eq!(broken, [Rule::OneName]);
    // On a file system that may lose one half by itself nobody promised more.
    terms.renames_synced = false;
    assert_eq!(rules(&check(&tale.history, &View::new(), &terms)), NONE);
    terms.renames_synced = true;
    tale.done(Request::remove(Object::ROOT, "g", file));
    terms.cut = tale.terms(Policy::Honor).cut;
    assert_eq!(rules(&check(&tale.history, &View::new(), &terms)), NONE);
}

#[test]
fn what_replaces_another_file_is_found_like_any_other() {
    let mut tale = Tale::default();
    tale.file("f");
    let (file, version) = tale.file("g");
    tale.flush(file);
    // Under way: it is found where it was, or where it goes.
    tale.begin(Request::rename(
        file,
        (Object::ROOT, "g"),
        (Object::ROOT, "f"),
    ));
    let mut terms = tale.terms(Policy::Honor);
    terms.renames_synced = true;
    for name in ["f", "g"] {
        let view = one(name, with(&fill(file, "", 0, 16, version)));
        assert_eq!(rules(&check(&tale.history, &view, &terms)), NONE, "{name}");
    }
    let broken = rules(&check(&tale.history, &View::new(), &terms));
    assert_eq!(broken, [Rule::OneName]);
}

#[test]
fn what_moved_away_before_another_took_its_name_is_found_like_any_other() {
    let mut tale = Tale::default();
    let (file, version) = tale.file("f");
    tale.history.identify(file, 7);
    tale.flush(file);
    tale.done(Request::rename(
        file,
        (Object::ROOT, "f"),
        (Object::ROOT, "g"),
    ));
    let (other, new) = tale.file("f");
    tale.history.identify(other, 8);
    let mut terms = tale.terms(Policy::Honor);
    terms.renames_synced = true;
    let there = |object, version, index| {
        let mut found = with(&fill(object, "", 0, 16, version));
        found.index = Some(index);
        found
    };
    let old = one("f", there(file, version, 7));
    assert_eq!(rules(&check(&tale.history, &old, &terms)), NONE);
    let mut both = one("f", there(other, new, 8));
    let broken = rules(&check(&tale.history, &both, &terms));
    assert_eq!(broken, [Rule::OneName]);
    both.add("g", there(file, version, 7));
    assert_eq!(rules(&check(&tale.history, &both, &terms)), NONE);
    let broken = rules(&check(&tale.history, &View::new(), &terms));
    assert_eq!(broken, [Rule::OneName]);
    // If it came back to the name, the other one has replaced it.
    let mut tale = Tale::default();
    let (file, _) = tale.file("f");
    tale.flush(file);
    let [f, g, h] = ["f", "g", "h"].map(|name| (Object::ROOT, name));
    tale.done(Request::rename(file, f, g));
    tale.done(Request::rename(file, g, f));
    let (other, _) = tale.file("h");
    tale.done(Request::rename(other, h, f));
    terms.cut = tale.terms(Policy::Honor).cut;
    let broken = rules(&check(&tale.history, &View::new(), &terms));
    assert_eq!(broken, NONE);
}
