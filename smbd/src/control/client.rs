//! The client side of the control socket, for the command line. It blocks and needs no runtime.

use std::{
    fs, io,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde::de::DeserializeOwned;

use super::protocol::{ANSWER_BYTES_MAX, Request, parse_answer, request_line};
use crate::Error;
use crate::config::places::{CONTROL_SOCKET, check_private, of_last_resort};

/// A stricter policy first syncs everything that is dirty, which takes as long as the disk needs.
const PATIENCE: Duration = Duration::from_secs(600);
/// A request that only shows something does not wait for a disk that hangs, and a monitor that makes one soon gives up
/// itself.
const PATIENCE_IF_SHOWN: Duration = Duration::from_secs(8);
/// How long a server that is looked for may leave its callers in the kernel's queue.
const PATIENCE_IF_SOUGHT: Duration = Duration::from_millis(100);
/// The way out for a user whom the server does not obey.
const NOT_OBEYED: &str =
    "only root and the user who runs the server may ask it: use sudo, or become that user";
/// The way out where the server has closed the connection.
const CLOSED: &str = "only root and the user who runs the server may ask it: use sudo, or become that user; if it \
                      obeys this one, it has ended meanwhile, and its log says why, or this program was silent too \
                      long while others wanted its place";
/// Folders below the state folder that are looked into for servers without configuration.
const SERVERS_MAX: usize = 64;

/// Asks the server behind `socket`.
///
/// # Errors
/// A message for the administrator.
pub fn ask<T: DeserializeOwned>(socket: &Path, request: &Request) -> Result<T, Error> {
    ask_within(socket, request, patience(request))
}

/// Whether a request waits for no disk, or not for long.
fn only_shows(request: &Request) -> bool {
    matches!(
        request,
        Request::Status {} | Request::Explain { .. } | Request::Policy { set: None, .. }
    )
}

/// How long an answer to this request may take.
pub(super) fn patience(request: &Request) -> Duration {
    match only_shows(request) {
        true => PATIENCE_IF_SHOWN,
        false => PATIENCE,
    }
}

/// As [`ask`], with the longest wait for the answer.
pub(super) fn ask_within<T: DeserializeOwned>(
    socket: &Path,
    request: &Request,
    most: Duration,
) -> Result<T, Error> {
    let failed = |error| unanswered(socket, request, &error, most);
    let mut stream = connect(socket, most).map_err(failed)?;
    stream.set_read_timeout(Some(most)).map_err(failed)?;
    stream
        .write_all(request_line(request).as_bytes())
        .map_err(failed)?;
    let mut line = Vec::new();
    BufReader::new(stream)
        .take(ANSWER_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .map_err(failed)?;
    if line.is_empty() {
        return fail!(
            "{}: the server closed the connection without an answer\n  = {CLOSED}",
            socket.display()
        );
    }
    let answer = parse_answer(&line)?;
    serde_json::from_value(answer).map_err(|error| {
        format!("the answer is not understood: {error}\n  = is the server of another version?")
            .into()
    })
}

/// Connects to a server. The wait for a place in its queue, and later each write, has a bound: a server that accepts
/// nobody has a full queue.
fn connect(socket: &Path, most: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let stream = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, Some(most))?;
    net::connect(&stream, &address)?;
    Ok(stream.into())
}

/// An error of the socket, with a way out.
fn unanswered(socket: &Path, request: &Request, error: &io::Error, waited: Duration) -> Error {
    let way_out = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "no server runs there, or its start is not over, and its log says what it waits for: start it, or name the \
             one that runs by --config FILE or --socket PATH; if state_dir was edited since its start, its socket is \
             still in the former folder"
        }
        io::ErrorKind::PermissionDenied => NOT_OBEYED,
        // It does so to a user whom it does not obey, perhaps before the request is sent.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => CLOSED,
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let way_out = match only_shows(request) {
                true => {
                    "it hangs, or this machine has too much to do: the log may say why; if that lasts, end it, by \
                     SIGKILL if need be, and start it again: it syncs before it serves"
                }
                false => "a disk may hang; `holdfast status` and the log say what is in force",
            };
            let socket = socket.display();
            let text =
                format!("{socket}: the server has not answered for {waited:?}\n  = {way_out}");
            return text.into();
        }
        _ => "the log of the server may say why",
    };
    format!("{}: {error}\n  = {way_out}", socket.display()).into()
}

/// Whether a server answers behind `socket`.
#[must_use]
pub fn answers(socket: &Path) -> bool {
    let found = connect(socket, PATIENCE_IF_SOUGHT);
    // Its queue is full: it has too much to do, or hangs.
    found.is_ok() || found.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Finds the one server that answers in one of `state_dirs`, or in a folder of a `serve PATH` below.
///
/// # Errors
/// If none answers, or more than one.
pub fn find(state_dirs: &[PathBuf]) -> Result<PathBuf, Error> {
    let below = |state_dir: &PathBuf| {
        let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
        let folders = entries.map(|entry| entry.path());
        let folders = folders.filter(|path| path.is_dir()).take(SERVERS_MAX);
        std::iter::once(state_dir.clone()).chain(folders)
    };
    let in_tmp = of_last_resort();
    let ours = state_dirs.iter().filter(|folder| is_ours(folder, &in_tmp));
    let mut alive: Vec<PathBuf> = (ours.flat_map(below))
        .map(|folder| folder.join(CONTROL_SOCKET))
        .filter(|socket| answers(socket))
        .collect();
    alive.sort();
    match alive.as_slice() {
        [one] => Ok(one.clone()),
        [] => fail!(
            "no server of this user answers in {}\n  = start one with `holdfast serve`; for root's, use sudo; for one \
             with another state_dir, give --config FILE or --socket PATH",
            state_dirs
                .first()
                .map_or(Path::new(""), PathBuf::as_path)
                .display()
        ),
        many => {
            let list: Vec<String> = many
                .iter()
                .map(|socket| format!("\n    --socket {}", socket.display()))
                .collect();
            fail!("more than one server answers; choose one:{}", list.concat())
        }
    }
}

/// Whether a server in this folder can be believed. Any user may have made the one in `/tmp`, and answer there; a
/// server uses it only if nobody else has access to it.
fn is_ours(folder: &Path, in_tmp: &Path) -> bool {
    folder != in_tmp || check_private(folder).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_in_tmp_that_others_can_use_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for (mode, ours) in [(0o700, true), (0o755, false)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_ours(path, path), ours);
            assert!(is_ours(path, Path::new("/tmp/holdfast-0")), "elsewhere");
        }
    }
}
