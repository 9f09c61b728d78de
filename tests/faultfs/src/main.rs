//! `faultfs MOUNTPOINT SOCKET`: mounts, listens, and runs until it is unmounted or killed.
//!
//! Says "ready" on standard output once the mount is there and the socket answers. Needs root and
//! /dev/fuse. SIGTERM and the end of standard input unmount it, so that it never outlives the
//! test that started it.

#![forbid(unsafe_code)]

use std::{
    io::{Read, Write},
    os::unix::net::UnixListener,
    path::PathBuf,
    process::ExitCode,
};

use faultfs::{Shared, control, fs::FaultFs, world::World};
use fuser::{Config, MountOption, Session, SessionACL};
use vfs::sim::Profile;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [mount_point, socket] = &arguments[..] else {
        eprintln!("usage: faultfs MOUNTPOINT SOCKET");
        return ExitCode::from(2);
    };
    match run(mount_point, socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faultfs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mount_point: &PathBuf, socket: &PathBuf) -> std::io::Result<()> {
    let shared = Shared::new(World::new(0, Profile::PosixMin));
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("faultfs".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(2);
    let listener = UnixListener::bind(socket)?;
    let mut session = Session::new(FaultFs::new(shared.clone()), mount_point, &config)?;
    let mut unmounter = session.unmount_callable();
    let (held, at) = (shared.clone(), mount_point.clone());
    std::thread::spawn(move || control::serve(&listener, &shared));
    // The process that started this one holds the other end of standard input.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        held.lock().release(false);
        if unmounter.unmount().is_err() {
            // A server that outlives its test still has files open here.
            let lazily = std::process::Command::new("umount")
                .arg("-l")
                .arg(&at)
                .status();
            drop(lazily);
        }
        std::process::exit(0);
    });
    let mut out = std::io::stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;
    session.run()
}
