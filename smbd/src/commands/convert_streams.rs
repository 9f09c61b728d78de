//! `holdfast convert-streams`: moves all named streams of a share to the place that its
//! configuration names.
//!
//! No server may be serving the folder: the command locks the state folder, which a running server
//! with the same configuration has locked.

use std::{
    io::{self, Write},
    path::Path,
};

use vfs::{
    VfsError,
    linux::LinuxDisk,
    posix::{Converted, Moved, PosixOptions, PosixVfs, StreamStore},
};

use super::out;
use crate::{
    Error,
    config::{self, Config, ShareSettings},
    runtime::settings,
    state::state_dir,
};

/// `holdfast convert-streams SHARE --config FILE`
pub(crate) fn run(name: &str, config: &Path) -> Result<(), Error> {
    let config = config::load(config)?;
    let share = config::share_named(&config.shares, name)?;
    let _state = own(&config)?;
    let done = convert(&config, share)?;
    out::print(&format!("{}\n", in_words(share, &done)))?;
    match done.failed {
        0 => Ok(()),
        failed => fail!(
            "the streams of {failed} files or folders are not where the share keeps them\n  \
             = they are served all the same; Samba shows those of one place only"
        ),
    }
}

fn own(config: &Config) -> Result<state_dir::Ownership, Error> {
    let folder = &config.server.state_dir;
    let owned = state_dir::prepare(folder).and_then(|()| state_dir::own(folder));
    owned.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            "a server with this configuration runs\n  = stop it first: clients may have streams open"
                .into()
        }
        _ => error.into(),
    })
}

fn convert(config: &Config, share: &ShareSettings) -> Result<Converted, Error> {
    let failed = |error: String| Error::from(format!("{}: {error}", share.path.display()));
    let disk = LinuxDisk::open(&share.path).map_err(|errno| failed(errno.to_string()))?;
    let options = PosixOptions {
        read_only: false,
        ..settings::files(share, &settings::hidden(config))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let done = runtime.block_on(async {
        let vfs = PosixVfs::new(disk, options).await?;
        vfs.convert_streams(|path, moved| {
            let said = match moved {
                Ok(moved) => moved_in_words(&moved),
                Err(error) => format!("stays as it is: {}", reason(error)),
            };
            let path = vfs::shown(path);
            // The conversion continues even if nobody reads this.
            let _ = writeln!(io::stdout(), "{path}: {said}");
        })
        .await
    });
    done.map_err(|error| failed(reason(error)))
}

fn moved_in_words(moved: &Moved) -> String {
    let mut text = match moved.streams {
        0 => String::new(),
        1 => format!("1 stream, {} bytes", moved.bytes),
        streams => format!("{streams} streams, {} bytes", moved.bytes),
    };
    if moved.folder {
        let lead = if text.is_empty() { "" } else { "; " };
        text += lead;
        text += "their folder has the present number of the device in its name";
    }
    text
}

fn reason(error: VfsError) -> String {
    match error {
        VfsError::TooLarge => "a stream is larger than the file system's attributes".to_owned(),
        VfsError::NotFound => {
            "the folder of its streams is not found: its name has another device number".to_owned()
        }
        VfsError::NameTooLong => "a stream's name is too long for an attribute".to_owned(),
        other => other.to_string(),
    }
}

fn in_words(share: &ShareSettings, done: &Converted) -> String {
    let place = match share.streams {
        StreamStore::Xattr => "extended attributes",
        StreamStore::Depot => "the depot (.streams)",
    };
    let Moved { streams, bytes, .. } = done.moved;
    let mut text = match done.inodes {
        0 => format!("share {}: nothing to move to {place}", share.name),
        inodes => format!(
            "share {}: {streams} streams ({bytes} bytes) of {inodes} files and folders are in {place} now",
            share.name
        ),
    };
    if done.depot {
        text += "\nsomething is left in .streams: what could not be moved, or streams of files that are gone";
    }
    text
}
