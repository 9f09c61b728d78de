//! For tests: what they need is not always there.

/// Prints that a test cannot run here; with `HOLDFAST_REQUIRE_ROOT=1` (`tests/run`) it fails.
#[track_caller]
pub(crate) fn missing(what: &str) {
    assert!(
        std::env::var_os("HOLDFAST_REQUIRE_ROOT").is_none_or(|value| value != "1"),
        "HOLDFAST_REQUIRE_ROOT=1, but there is no {what}"
    );
    eprintln!("missing: {what}");
}
