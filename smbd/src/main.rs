//! The `holdfast` binary: the command line, the protocol joined to the daemon, and the commands that are clients.
#![forbid(unsafe_code)]

use std::{path::Path, process::ExitCode};

use clap::Parser;
use holdfast_verify::StateFolder;
use smbd::{
    accounts::password,
    cli::Cli,
    config::{self, places},
    daemon,
    service::Holdfast,
    state::{flush_journal, state_dir},
};

fn main() -> ExitCode {
    Cli::<holdfast_verify::Command>::parse().run(
        |setup| daemon::run(setup, Holdfast::new),
        |command| {
            let read_password = |file: Option<&Path>, prompt: &str| {
                let read = match file {
                    Some(file) => password::read(file),
                    None => password::ask(prompt, false),
                };
                read.map_err(|error| error.to_string())
            };
            command.run(read_password, find_state)
        },
    )
}

/// The state folder that a report reads: this one, that of a configuration, or the default one.
fn find_state(file: Option<&Path>, folder: Option<&Path>) -> Result<StateFolder, String> {
    let path = match (folder, file) {
        (Some(folder), _) => folder.to_owned(),
        // The folders of the shares do not matter: after a crash, a disk may not have come back.
        (None, Some(file)) => config::state_dir_of(file).map_err(|error| error.to_string())?,
        (None, None) => places::default(),
    };
    let journal = path.join(flush_journal::FOLDER);
    Ok(StateFolder {
        in_use: state_dir::is_owned(&journal),
        boot: flush_journal::boot_id(),
        journal,
        path,
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    type Holdfast = smbd::cli::Cli<holdfast_verify::Command>;

    #[test]
    fn clap_agrees() {
        Holdfast::command().debug_assert();
    }

    #[test]
    fn help_fits_a_terminal() {
        let help = Holdfast::command().render_long_help().to_string();
        assert!(help.contains("holdfast serve /srv/data"), "{help}");
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let parse =
            |line: &str| Holdfast::try_parse_from(line.split(' ')).map_err(|e| e.to_string());
        parse("holdfast serve a b=c --listen 127.0.0.1:4450 --durability bounded:50ms,4MiB")
            .unwrap();
        parse("holdfast serve --config h.toml").unwrap();
        parse("holdfast status --check --config h.toml").unwrap();
        parse("holdfast policy clear-latch data").unwrap();
        parse("holdfast close session 7 --config h.toml --json").unwrap();
        parse("holdfast close user bob").unwrap();
        parse("holdfast policy explain s/p --user u --client ::1 --dialect 3.0 --write-through")
            .unwrap();
        parse("holdfast user add alice --owner 1000:1000 --group staff --config h.toml").unwrap();
        for bad in [
            "holdfast",
            "holdfast serve",
            "holdfast serve a --config h.toml",
            "holdfast serve --config h.toml --user alice",
            "holdfast serve a --encrypt maybe",
            "holdfast serve a --listen everywhere",
            "holdfast user add alice --owner alice",
            "holdfast status --check --json",
            "holdfast policy set data",
            "holdfast close",
            "holdfast close session",
            "holdfast close session bob",
            "holdfast close open -1",
            "holdfast policy explain",
            "holdfast policy explain p --client host",
            "holdfast policy explain p --dialect 1.0",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
