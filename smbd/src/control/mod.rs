//! The control socket: the interface for `holdfast status`, `reload`, `close` and `policy` to the running server.
//!
//! A Unix socket in the private state folder, mode 0600; in addition, the kernel is asked for the client's uid, and
//! only root and this server's own user are served. Requests are answered on the main thread's runtime, one at a time
//! for each client and for a few clients at once. A client that takes no answer or has left makes room for the next
//! one. If the next one finds no room, the client that has sent nothing for longest leaves, and if there is none, the
//! one that has waited for its answer for longest, because the disks of several requests may hang; but none in its
//! first seconds. A request that was begun is carried out even if its client has left, because a reload must not end
//! half-way.

mod caller;
pub mod client;
pub mod protocol;

use std::{
    fs::{self, Permissions},
    future::Future,
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{Error, runtime::listener::AcceptErrors};

pub use caller::Caller;
use protocol::{REQUEST_BYTES_MAX, Request, answer_line, parse_request};

/// Clients served at once; more wait in the kernel's queue.
const CLIENTS_MAX: usize = 16;
/// A client that sends nothing for this long is disconnected.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// A client that sends nothing keeps its place at least for so long.
const SILENT_MIN: Duration = Duration::from_secs(1);
/// The longest wait for a client that sends nothing to leave, before one that waits for an answer must.
const SILENT_LEAVE_MAX: Duration = Duration::from_secs(2);
/// A client that waits for an answer keeps its place at least for so long.
const ANSWERED_MIN: Duration = Duration::from_secs(3);
/// The answer to a client that has lost its place.
const STILL_UNDER_WAY: &str = "others ask as well, and this request has not ended: it goes on, and if it changes \
                               something, the log will say how it ends\n  = a disk may hang; `holdfast status` says what is in force";
/// How often a client that has ended its requests is checked for having left.
const LEFT_AGAIN: Duration = Duration::from_secs(1);
/// Longest path of a Unix socket, without the closing zero.
const SOCKET_PATH_MAX: usize = 107;

/// An answer on its way; the error is for the administrator.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Value, Error>> + 'a>>;

/// The server side of the control socket: answers requests.
pub trait Control: 'static {
    /// Answers one request. Must not block the thread.
    fn answer(&self, request: Request, caller: Caller) -> Answer<'_>;
}

/// Makes the socket; one that a dead server left is replaced. The caller owns the folder.
///
/// # Errors
/// If the path is too long for a socket, or the socket cannot be made.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    check_path(path)?;
    make(path).map_err(|error| {
        let text = format!(
            "control socket {}: {error}\n  = remove what is in its place, there or with the ending .new; the state \
             folder must have room",
            path.display()
        );
        io::Error::new(error.kind(), text)
    })
}

fn make(path: &Path) -> io::Result<UnixListener> {
    // Under its name there is a socket that accepts connections, or none: a client may come between bind and listen.
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    // Between bind and here the folder's mode 0700 keeps others out.
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    fs::rename(&new, path)?;
    Ok(listener)
}

/// Refuses a path that is too long for a socket.
pub(crate) fn check_path(path: &Path) -> io::Result<()> {
    if path.as_os_str().len() <= SOCKET_PATH_MAX {
        return Ok(());
    }
    let text = format!(
        "{} is too long for a socket; choose a shorter state_dir",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Ends the wait of the client that has waited longest: for its next request, or for an answer.
#[derive(Default)]
struct Wanted {
    silent: Notify,
    unanswered: Notify,
}

/// A place for a new client.
async fn place(places: &Arc<Semaphore>, wanted: &Wanted) -> Option<OwnedSemaphorePermit> {
    if places.available_permits() == 0 {
        wanted.silent.notify_one();
    }
    let mut place = pin!(Arc::clone(places).acquire_owned());
    let place = match timeout(SILENT_LEAVE_MAX, &mut place).await {
        Ok(place) => place,
        Err(_) => {
            wanted.unanswered.notify_one();
            place.await
        }
    };
    // A place that came free otherwise leaves a notification, which must not end the next wait.
    pin!(wanted.silent.notified()).enable();
    pin!(wanted.unanswered.notified()).enable();
    place.ok()
}

/// Serves clients until dropped; run on the front's runtime.
pub async fn serve(listener: UnixListener, control: Rc<dyn Control>) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    let wanted = Rc::new(Wanted::default());
    let mut errors = AcceptErrors::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(place) = place(&places, &wanted).await else {
                    return;
                };
                let (control, wanted) = (Rc::clone(&control), Rc::clone(&wanted));
                tokio::task::spawn_local(async move {
                    if let Err(error) = client(stream, control, &wanted).await {
                        tracing::debug!(%error, "control client left");
                    }
                    drop(place);
                });
            }
            Err(error) => errors.take("control clients", error).await,
        }
    }
}

/// Serves a client until it leaves, or until its place is `wanted`.
async fn client(stream: UnixStream, control: Rc<dyn Control>, wanted: &Wanted) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let (peer, pid) = (credentials.uid(), credentials.pid());
    if peer != 0 && peer != rustix::process::geteuid().as_raw() {
        tracing::warn!(
            uid = peer,
            "a request on the control socket was refused: it obeys root and the user who runs the server"
        );
        return Ok(());
    }
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let bound = REQUEST_BYTES_MAX as u64 + 1;
        let mut bounded = (&mut read).take(bound);
        tokio::select! {
            biased;
            read = timeout(IDLE_MAX, bounded.read_until(b'\n', &mut line)) => drop(read??),
            () = makes_room(SILENT_MIN, &wanted.silent) => return Ok(()),
        }
        let whole = line.pop_if(|last| *last == b'\n').is_some();
        if !whole && line.is_empty() {
            return Ok(());
        }
        let answer = match parse_request(&line) {
            _ if !whole && line.len() > REQUEST_BYTES_MAX => {
                let text = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
                let line = answer_line(&Err(text.into()));
                return timeout(IDLE_MAX, write.write_all(line.as_bytes())).await?;
            }
            Ok(request) => {
                let (control, caller) = (Rc::clone(&control), Caller { uid: peer, pid });
                let answering = async move { control.answer(request, caller).await };
                tokio::select! {
                    biased;
                    answer = tokio::task::spawn_local(answering) => {
                        answer.unwrap_or_else(|error| Err(error.into()))
                    }
                    () = left(&mut read, &write) => return Ok(()),
                    () = makes_room(ANSWERED_MIN, &wanted.unanswered) => {
                        let line = answer_line(&Err(STILL_UNDER_WAY.into()));
                        return timeout(IDLE_MAX, write.write_all(line.as_bytes())).await?;
                    }
                }
            }
            Err(error) => Err(error),
        };
        timeout(IDLE_MAX, write.write_all(answer_line(&answer).as_bytes())).await??;
    }
}

/// Completes when the place of the client is wanted, but not before `least` is over.
async fn makes_room(least: Duration, wanted: &Notify) {
    tokio::time::sleep(least).await;
    wanted.notified().await;
}

/// Completes when the client has closed the connection; one that has only ended its requests waits for the answer.
async fn left(read: &mut BufReader<OwnedReadHalf>, write: &OwnedWriteHalf) {
    if read.fill_buf().await.is_ok_and(|more| !more.is_empty()) {
        // The next request, which stays in the buffer.
        std::future::pending::<()>().await;
    }
    let open = async || {
        let ready = write.ready(Interest::WRITABLE).await;
        ready.is_ok_and(|ready| !ready.is_write_closed())
    };
    while open().await {
        tokio::time::sleep(LEFT_AGAIN).await;
    }
}

#[cfg(test)]
mod tests;
