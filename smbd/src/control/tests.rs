//! The control socket from outside, over a real socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, net},
    path::PathBuf,
};

use serde_json::{Value, json};

use super::*;
use crate::args::Question;

struct Echo;

impl Control for Echo {
    fn answer(&self, request: Request, caller: Caller) -> Answer<'_> {
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        assert_eq!(caller.pid, i32::try_from(std::process::id()).ok());
        Box::pin(async move {
            match request {
                Request::Reload {} => Err("nothing to reload".into()),
                Request::Close { .. } => std::future::pending().await,
                Request::ClearLatch { .. } => panic!("no thread can be started"),
                other => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok(json!(other))
                }
            }
        })
    }
}

/// Runs `talk` in a thread while the socket is served.
fn while_serving<T: Send + 'static>(talk: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    // The socket of a server that died does not matter.
    fs::write(&path, "left over").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let listener = bind(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        tokio::task::spawn_local(serve(listener, Rc::new(Echo)));
        tokio::task::spawn_blocking(move || talk(path))
            .await
            .unwrap()
    })
}

#[test]
fn questions_and_answers() {
    while_serving(|path| {
        assert_eq!(
            client::ask(&path, &Request::Status {}),
            Ok(json!({ "cmd": "status" }))
        );
        assert_eq!(
            client::ask::<Value>(&path, &Request::Reload {}),
            Err("nothing to reload".into())
        );
        assert_eq!(client::find(&[path.parent().unwrap().to_owned()]), Ok(path));
    });
}

#[test]
fn one_connection_can_ask_often_and_mistakes_do_not_end_it() {
    while_serving(|path| {
        let mut stream = net::UnixStream::connect(path).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        stream
            .write_all(b"rubbish\n{\"v\":1,\"cmd\":\"status\"}\n")
            .unwrap();
        assert!(answers.next().unwrap().unwrap().contains("no JSON"));
        assert!(answers.next().unwrap().unwrap().contains("\"ok\":true"));
        stream.write_all(b"{\"v\":1,\"cmd\":\"status\"}").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // The last line may lack its end.
        assert!(answers.next().unwrap().unwrap().contains("\"ok\":true"));
        assert!(answers.next().is_none());
    });
}

#[test]
fn endless_lines_are_refused() {
    while_serving(|path| {
        let mut stream = net::UnixStream::connect(path).unwrap();
        // The server may hang up while we still write.
        let _ = stream.write_all(&vec![b'x'; REQUEST_BYTES_MAX + 1]);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("at most 65536 bytes"), "{answer}");
    });
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    while_serving(|path| {
        let silent = Vec::from_iter((0..2 * CLIENTS_MAX).map(|_| {
            let mut stream = net::UnixStream::connect(&path).unwrap();
            stream.write_all(b"{\"v\":1,\"cmd\":\"status\"}\n").unwrap();
            let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
            assert!(answers.next().unwrap().unwrap().contains("\"ok\":true"));
            stream
        }));
        assert!(client::ask::<Value>(&path, &Request::Status {}).is_ok());
        // The clients that have been silent longest have lost their places, and the last ones have kept theirs.
        let is_served = |mut stream: &net::UnixStream| {
            stream.write_all(b"rubbish\n").is_ok() && matches!(stream.read(&mut [0]), Ok(1))
        };
        assert!(!is_served(&silent[0]) && is_served(&silent[2 * CLIENTS_MAX - 1]));
    });
}

/// A disk that hangs keeps a command waiting, and its caller gives up.
#[test]
fn clients_that_leave_without_an_answer_make_room() {
    while_serving(|path| {
        let what = protocol::Closing::Session(1);
        let unanswered = protocol::request_line(&Request::Close { what });
        for _ in 0..2 * CLIENTS_MAX {
            let mut stream = net::UnixStream::connect(&path).unwrap();
            stream.write_all(unanswered.as_bytes()).unwrap();
        }
        let mut stream = net::UnixStream::connect(&path).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        let status = protocol::request_line(&Request::Status {});
        stream.write_all(status.as_bytes()).unwrap();
        let answer = BufReader::new(stream).lines().next().unwrap().unwrap();
        assert!(answer.contains("\"ok\":true"), "{answer}");
    });
}

/// Disks that hang keep commands waiting, and their callers wait on.
#[test]
fn clients_whose_requests_hang_do_not_keep_others_out() {
    while_serving(|path| {
        let what = protocol::Closing::Session(1);
        let unanswered = protocol::request_line(&Request::Close { what });
        let hung = Vec::from_iter((0..CLIENTS_MAX).map(|_| {
            let mut stream = net::UnixStream::connect(&path).unwrap();
            stream.write_all(unanswered.as_bytes()).unwrap();
            stream
        }));
        assert!(client::ask::<Value>(&path, &Request::Status {}).is_ok());
        let answers = hung.into_iter().filter(|stream| {
            stream.set_nonblocking(true).unwrap();
            let answer = BufReader::new(stream).lines().next();
            answer.is_some_and(|line| line.is_ok_and(|line| line.contains("it goes on")))
        });
        assert_eq!(answers.count(), 1);
    });
}

/// Nobody would see how a change of the policy ends, while clients that ask nothing keep their places.
#[test]
fn a_client_that_asks_nothing_leaves_before_one_whose_request_is_under_way() {
    while_serving(|path| {
        let what = protocol::Closing::Session(1);
        let unanswered = protocol::request_line(&Request::Close { what });
        let mut busy = net::UnixStream::connect(&path).unwrap();
        busy.write_all(unanswered.as_bytes()).unwrap();
        std::thread::sleep(ANSWERED_MIN + SILENT_MIN);
        let silent = Vec::from_iter((1..CLIENTS_MAX).map(|_| {
            let mut stream = net::UnixStream::connect(&path).unwrap();
            stream.write_all(b"{\"v\":1,\"cmd\":\"status\"}\n").unwrap();
            let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
            assert!(answers.next().unwrap().unwrap().contains("\"ok\":true"));
            stream
        }));
        assert!(client::ask::<Value>(&path, &Request::Status {}).is_ok());
        let is_kept = |mut stream: &net::UnixStream| {
            stream.set_nonblocking(true).unwrap();
            let kept = stream.read(&mut [0]);
            kept.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!(is_kept(&busy));
        assert_eq!(silent.iter().filter(|one| !is_kept(one)).count(), 1);
    });
}

#[test]
fn a_command_that_panics_is_answered() {
    while_serving(|path| {
        let clear = Request::ClearLatch { share: None };
        let error = client::ask::<Value>(&path, &clear).unwrap_err().to_string();
        assert!(error.contains("no thread can be started"), "{error}");
        assert!(client::ask::<Value>(&path, &Request::Status {}).is_ok());
    });
}

#[test]
fn places_that_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let none = client::find(&[folder.path().to_owned()]);
    let none = none.unwrap_err().to_string();
    assert!(
        none.contains("no server of this user answers") && none.contains("--socket"),
        "{none}"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let long = folder.path().join("x".repeat(108));
    assert!(
        bind(&long)
            .unwrap_err()
            .to_string()
            .contains("shorter state_dir")
    );
}

#[test]
fn a_server_that_does_not_answer_has_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let reason = || {
        let answer = client::ask::<Value>(&path, &Request::Status {});
        answer.unwrap_err().to_string()
    };
    let absent = reason();
    assert!(absent.contains("\n  = no server runs there"), "{absent}");
    assert!(absent.contains("edited since its start"), "{absent}");
    assert!(absent.contains("its start is not over"), "{absent}");
    let listener = net::UnixListener::bind(&path).unwrap();
    let refusing = std::thread::spawn(move || drop(listener.accept()));
    let refused = reason();
    refusing.join().unwrap();
    assert!(refused.contains("use sudo"), "{refused}");
    assert!(refused.contains("has ended meanwhile"), "{refused}");
    // The listener is gone, and the socket is still there, as after a kill.
    let killed = reason();
    assert!(killed.contains("\n  = no server runs there"), "{killed}");
}

#[test]
fn what_is_in_the_way_of_the_socket_is_named() {
    for name in ["control.sock", "control.new"] {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(name).join("full")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _in_runtime = runtime.enter();
        let path = folder.path().join("control.sock");
        let error = bind(&path).unwrap_err().to_string();
        assert!(error.contains("control.sock: "), "{name}: {error}");
        assert!(error.contains("\n  = remove"), "{name}: {error}");
    }
}

#[test]
fn a_monitor_is_not_kept_waiting_by_a_server_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let hangs = net::UnixListener::bind(&path).unwrap();
    let show = Request::Policy {
        share: None,
        set: None,
        accept_loss: false,
        without_rules: false,
    };
    let question = Question {
        path: "data/f".to_owned(),
        host_path: folder.path().join("data/f"),
        share: None,
        user: String::new(),
        client: None,
        dialect: 0x311,
        write_through: false,
        unbuffered: false,
    };
    let explain = Request::Explain { question };
    let short = Duration::from_millis(50);
    let reason = |request: &Request| {
        let error = client::ask_within::<Value>(&path, request, short).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("has not answered for 50ms"), "{error}");
        error
    };
    for request in [Request::Status {}, show, explain] {
        assert!(client::patience(&request) < Duration::from_secs(10));
        let error = reason(&request);
        assert!(!error.contains("`holdfast status`"), "{error}");
    }
    assert!(reason(&Request::Reload {}).contains("`holdfast status`"));
    // Its queue is full, so that nobody gets as far as to ask.
    rustix::net::listen(&hangs, 0).unwrap();
    reason(&Request::Status {});
    assert_eq!(client::find(&[folder.path().to_owned()]), Ok(path.clone()));
}
