//! The Prometheus page: a loopback listener that answers `GET /metrics` and nothing else.
//!
//! HTTP/1.1 by hand, one request per connection. Head, clients and time are bounded. The caller renders the
//! figures.
//!
//! A request that names another host than this machine is refused: an attacker can make a browser send one here
//! under a name of the attacker's (DNS rebinding), and the page would reveal the names of the shares.

pub mod exposition;

use std::{collections::VecDeque, io, net::IpAddr, rc::Rc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use crate::{config, runtime::listener::AcceptErrors};

/// Longest request head in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most clients at a time. A further one takes the place of the oldest, because any local user can connect and ask
/// nothing.
const CLIENTS_MAX: usize = 8;
/// The longest time from accept to the last byte.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Writes the page; must not block.
pub type Render = Rc<dyn Fn() -> String>;

/// Serves until dropped; run on the front's runtime.
pub async fn serve(listener: TcpListener, render: Render) {
    let mut clients: VecDeque<JoinHandle<()>> = VecDeque::new();
    let mut errors = AcceptErrors::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                clients.retain(|client| !client.is_finished());
                if clients.len() >= CLIENTS_MAX
                    && let Some(oldest) = clients.pop_front()
                {
                    oldest.abort();
                }
                let render = Rc::clone(&render);
                clients.push_back(tokio::task::spawn_local(async move {
                    // A scraper that disconnects is no error.
                    let _ = timeout(TIME_MAX, client(stream, &render)).await;
                }));
            }
            Err(error) => errors.take("requests for the metrics page", error).await,
        }
    }
}

async fn client(mut stream: TcpStream, render: &Render) -> io::Result<()> {
    let mut head = Vec::with_capacity(1_024);
    let answer = loop {
        if head.windows(4).any(|four| four == b"\r\n\r\n") {
            break respond(&head, render);
        }
        if head.len() >= HEAD_BYTES_MAX {
            break page("431 Request Header Fields Too Large", "head too long\n");
        }
        let room = HEAD_BYTES_MAX - head.len();
        if (&mut stream).take(room as u64).read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn respond(head: &[u8], render: &Render) -> String {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
    let mut words = line.split(|byte| *byte == b' ');
    match (words.next(), words.next(), words.next()) {
        (Some(_), Some(_), Some(b"HTTP/1.1" | b"HTTP/1.0")) if !names_this_machine(head) => {
            page("421 Misdirected Request", "ask by a loopback address\n")
        }
        (Some(b"GET"), Some(b"/metrics"), Some(b"HTTP/1.1" | b"HTTP/1.0")) => {
            page("200 OK", &render())
        }
        (Some(b"GET"), Some(_), Some(b"HTTP/1.1" | b"HTTP/1.0")) => {
            page("404 Not Found", "the page is /metrics\n")
        }
        (Some(_), Some(_), Some(b"HTTP/1.1" | b"HTTP/1.0")) => {
            page("405 Method Not Allowed", "only GET\n")
        }
        _ => page("400 Bad Request", "no HTTP/1.1\n"),
    }
}

/// Whether each Host field of a request names the loopback interface, with or without a port.
/// HTTP/1.0 has requests without one, which no browser sends.
fn names_this_machine(head: &[u8]) -> bool {
    let fields = head.split(|byte| *byte == b'\n').skip(1);
    let mut hosts = fields.filter_map(|field| {
        let mut parts = field.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next()?, parts.next()?);
        name.eq_ignore_ascii_case(b"host")
            .then(|| value.trim_ascii())
    });
    hosts.all(|host| str::from_utf8(host).is_ok_and(names_loopback))
}

fn names_loopback(authority: &str) -> bool {
    let host = match authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, _port)) => host,
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(config::is_loopback)
}

fn page(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{self, SocketAddr},
    };

    fn while_serving(talk: impl FnOnce(SocketAddr) + Send + 'static) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::task::spawn_local(serve(listener, Rc::new(|| "holdfast_up 1\n".to_owned())));
            tokio::task::spawn_blocking(move || talk(address))
                .await
                .unwrap();
        });
    }

    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = net::TcpStream::connect(address).unwrap();
        let _ = stream.write_all(request);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn one_page_and_nothing_else() {
        while_serving(|address| {
            let ok = exchange(
                address,
                b"GET /metrics HTTP/1.1\r\nHost: localhost:9445\r\n\r\n",
            );
            assert!(ok.starts_with("HTTP/1.1 200 OK\r\n"), "{ok}");
            assert!(
                ok.contains("Content-Length: 14\r\n") && ok.ends_with("\r\n\r\nholdfast_up 1\n")
            );
            let start = |request: &[u8]| exchange(address, request)[..12].to_owned();
            assert_eq!(start(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
            assert_eq!(start(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
            assert_eq!(start(b"\xfeSMB\r\n\r\n"), "HTTP/1.1 400");
            assert_eq!(start(&[b'x'; HEAD_BYTES_MAX]), "HTTP/1.1 431");
        });
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in [
            "localhost",
            "LocalHost:80",
            "127.0.0.1",
            "127.9.9.9:9445",
            "[::1]:9445",
        ] {
            let head = format!("GET /metrics HTTP/1.1\r\nX: y\r\nhOST:  {host} \r\n\r\n");
            assert!(names_this_machine(head.as_bytes()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9445",
            "192.0.2.1",
            "[2001:db8::1]",
            "127.0.0.1.evil",
        ] {
            let head = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: {host}\r\n\r\n");
            assert!(!names_this_machine(head.as_bytes()), "{host}");
        }
        assert!(names_this_machine(b"GET /metrics HTTP/1.0\r\n\r\n"));
        while_serving(|address| {
            let answer = exchange(
                address,
                b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            );
            assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
            assert!(!answer.contains("holdfast_up"));
        });
    }

    #[test]
    fn clients_that_ask_nothing_keep_nobody_else_out() {
        while_serving(|address| {
            let mut silent: Vec<_> = (0..CLIENTS_MAX)
                .map(|_| net::TcpStream::connect(address).unwrap())
                .collect();
            let answer = exchange(address, b"GET /metrics HTTP/1.1\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            assert_eq!(silent[0].read(&mut [0; 16]).unwrap_or(0), 0);
            let wait = silent[1].set_read_timeout(Some(Duration::from_millis(50)));
            wait.unwrap();
            assert!(silent[1].read(&mut [0; 16]).is_err(), "it has time left");
        });
    }
}
