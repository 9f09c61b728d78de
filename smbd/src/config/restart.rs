//! The keys that only a restart can bring into force.

use super::Config;

/// Replaces what a running server cannot change in a configuration that was `read` again by what the server was
/// `started` with, and returns the tables in which they differ.
///
/// The configuration in force says what the server does, so whatever is derived from it (limits, the state folder
/// that is hidden and guarded, `status`) holds for the running server, and each reload compares with it.
pub(crate) fn keep_until_restart(read: &mut Config, started: &Config) -> Vec<&'static str> {
    read.dirty_inodes = started.dirty_inodes;
    let differing = [
        (
            "[[listener]]",
            replace(&mut read.listeners, &started.listeners),
        ),
        ("[metrics]", replace(&mut read.metrics, &started.metrics)),
        ("[sandbox]", replace(&mut read.sandbox, &started.sandbox)),
        ("[log]", replace(&mut read.log, &started.log)),
        (
            "[server] state_dir, file_io, shutdown_grace",
            server(read, started),
        ),
        (
            "[durability] dirty_inodes_max, dirty_age_max, syncs_in_flight_max, latched_inodes_max",
            engine(read, started),
        ),
    ];
    let differing = differing.into_iter();
    differing
        .filter_map(|(table, differs)| differs.then_some(table))
        .collect()
}

fn server(read: &mut Config, started: &Config) -> bool {
    let (read, started) = (&mut read.server, &started.server);
    replace(&mut read.state_dir, &started.state_dir)
        | replace(&mut read.file_io, &started.file_io)
        | replace(&mut read.shutdown_grace, &started.shutdown_grace)
}

/// The durability engine's own settings.
fn engine(read: &mut Config, started: &Config) -> bool {
    let (read, started) = (&mut read.durability, &started.durability);
    replace(&mut read.dirty_inodes_max, &started.dirty_inodes_max)
        | replace(&mut read.dirty_age_max, &started.dirty_age_max)
        | replace(&mut read.syncs_in_flight_max, &started.syncs_in_flight_max)
        | replace(&mut read.latched_inodes_max, &started.latched_inodes_max)
}

/// Whether there was anything to replace.
fn replace<T: Clone + PartialEq>(read: &mut T, started: &T) -> bool {
    let differs = read != started;
    if differs {
        read.clone_from(started);
    }
    differs
}
