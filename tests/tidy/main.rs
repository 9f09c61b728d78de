//! Checks the house rules of CONTRIBUTING.md that no compiler and no lint checks.
//!
//! Each rule produces findings, and each finding is a line such as `vfs/src/linux/pool.rs 600`. Where the source does
//! not obey a rule everywhere yet, the findings that are tolerated are listed in `tests/tidy/known/RULE`. A finding
//! that is not listed fails the test, and so does a listed one that is gone: the lists only shrink. Words and
//! sentences, which every edit may remove, are only held to their bounds.
//! `TIDY_SHRINK=1 cargo test -p smb-tests --test tidy` removes what is gone and lowers what has become less.
//!
//! The test reads text and uses nothing outside the standard library.

mod circles;
mod citations;
mod known;
mod language;
mod rules;
mod source;

use known::{hold, hold_bound};
use source::Tree;

#[test]
fn files_stay_short() {
    hold("file-sizes", rules::file_sizes(&Tree::read()));
}

#[test]
fn every_file_begins_with_its_purpose() {
    hold("heads", rules::heads(&Tree::read()));
}

#[test]
fn citations_resolve() {
    hold("citations", citations::dangling(&Tree::read()));
}

#[test]
fn protocol_notes_are_cited_where_they_are_obeyed() {
    hold("protocol-notes", citations::protocol_notes(&Tree::read()));
}

#[test]
fn tests_against_attacks_are_where_the_page_says() {
    hold("missing-tests", citations::missing_tests(&Tree::read()));
}

#[test]
fn pages_name_the_environment_variables() {
    let tree = Tree::read();
    hold("variables", citations::unnamed_variables(&tree));
    hold("unread-variables", citations::unread_variables(&tree));
}

#[test]
fn imports_make_no_circles_across_folders() {
    hold("circles-of-folders", circles::across_folders(&Tree::read()));
}

#[test]
fn circles_of_files_stay_small() {
    hold("circles-of-files", circles::of_files(&Tree::read()));
}

#[test]
fn crates_name_only_those_below_them() {
    hold("borders", rules::borders(&Tree::read()));
}

#[test]
fn pure_crates_read_no_clock() {
    hold("clocks", rules::clocks(&Tree::read()));
}

#[test]
fn public_types_have_different_names() {
    hold("type-names", rules::type_names(&Tree::read()));
}

#[test]
fn words_are_those_of_the_glossary() {
    hold_bound("words", language::forbidden_words(&Tree::read()));
}

#[test]
fn names_of_items_follow_the_glossary() {
    hold("item-names", language::forbidden_names(&Tree::read()));
}

#[test]
fn sentences_have_a_subject() {
    hold_bound("headless-sentences", language::headless(&Tree::read()));
}

#[test]
fn commit_titles_are_short() {
    hold("commit-titles", rules::commit_titles());
}

#[test]
fn the_oldest_rust_is_named_and_not_newer_than_the_compiler() {
    hold("rust-version", rules::rust_version(&Tree::read()));
}
