//! IPv6, and addresses that may and may not connect.

use std::time::Duration;

use bytes::BytesMut;
use smb_client::{Client, CreateArgs, File, Login, Options, Tree};
use smb_wire::fsctl::{DuplicateExtents, FsctlCode};

use crate::support::{PASSWORD, Plan, USER, closed, eventually};

fn ipv6_is_there() -> bool {
    let there = std::net::TcpListener::bind("[::1]:0").is_ok();
    assert!(
        there || std::env::var_os("HOLDFAST_REQUIRE_IPV6").is_none(),
        "no IPv6 loopback here"
    );
    if !there {
        eprintln!("not run: no IPv6 loopback here");
    }
    there
}

#[test]
fn an_ipv6_listener_serves() {
    if !ipv6_is_there() {
        return;
    }
    let plan = Plan {
        listen: "::1",
        ..Plan::default()
    };
    let daemon = plan.start();
    let tree = daemon.tree();
    tree.write_file("six", b"over six").unwrap();
    assert_eq!(tree.read_file("six").unwrap(), b"over six");
    assert!(daemon.ask(&["status"]).unwrap().contains("[::1]:"));
    let v4 = std::net::SocketAddr::from(([127, 0, 0, 1], daemon.address.port()));
    assert!(std::net::TcpStream::connect(v4).is_err());
}

#[test]
fn one_socket_serves_both_and_the_servers_rules_distinguish_them() {
    if !ipv6_is_there() {
        return;
    }
    let plan = Plan {
        listen: "::",
        server: "hosts_allow = [\"127.0.0.0/8\", \"::/0\"]\nhosts_deny = [\"::1\"]".into(),
        ..Plan::default()
    };
    let daemon = plan.start();
    let port = daemon.address.port();
    let denied = std::net::TcpStream::connect(("::1", port)).unwrap();
    assert!(closed(&denied, Duration::from_secs(5)));
    // An IPv4 peer of an IPv6 socket is judged as the IPv4 address it is.
    let client = Client::connect(("127.0.0.1", port), Options::default()).unwrap();
    let session = client.login(USER, PASSWORD, "").unwrap();
    session.tree("data").unwrap().write_file("a", b"b").unwrap();
    assert!(daemon.ask(&["status"]).unwrap().contains("1 refused"));
    daemon.edit(|text| text.replace("hosts_deny = [\"::1\"]", "hosts_deny = [\"127.0.0.1\"]"));
    daemon.ask(&["reload"]).unwrap();
    Client::connect(("::1", port), Options::default()).unwrap();
    let denied = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(closed(&denied, Duration::from_secs(5)));
    // A client that was connected is disconnected.
    eventually("the connection is closed", || client.echo().is_err());
}

#[test]
fn a_share_has_rules_of_its_own() {
    let plan = Plan {
        share: "hosts_deny = [\"127.0.0.1\"]".into(),
        tables: "[[share]]\nname = \"open\"\npath = \"data\"\nhosts_allow = [\"127.0.0.1\"]\n\
                 [[share]]\nname = \"elsewhere\"\npath = \"data\"\nhosts_allow = [\"192.0.2.0/24\"]"
            .into(),
        ..Plan::default()
    };
    let daemon = plan.start();
    let session = daemon.client().login(USER, PASSWORD, "").unwrap();
    session.tree("open").unwrap();
    for share in ["data", "elsewhere"] {
        let refused = session.tree(share).err().unwrap();
        assert_eq!(
            refused.status(),
            Some(smb_wire::Status::ACCESS_DENIED),
            "{share}"
        );
    }
}

#[test]
fn a_share_is_out_of_reach_over_a_channel_from_where_it_refuses() {
    if !ipv6_is_there() {
        return;
    }
    let plan = Plan {
        listen: "::",
        share: "hosts_deny = [\"::1\"]".into(),
        tables: "[[share]]\nname = \"open\"\npath = \"data\"\n".into(),
        ..Plan::default()
    };
    let daemon = plan.start();
    let port = daemon.address.port();
    let options = || Options::default().guid(smb_wire::ids::Guid([7; 16]));
    let first = Client::connect(("127.0.0.1", port), options()).unwrap();
    let session = first.login(USER, PASSWORD, "").unwrap();
    let trees = ["data", "open"].map(|share| session.tree(share).unwrap());
    let files = ["a", "b"].map(CreateArgs::open_if);
    let [(data, file), (_, other)] = [(&trees[0], &files[0]), (&trees[1], &files[1])]
        .map(|(tree, args)| (tree, tree.create(args).unwrap()));
    file.write_all(0, b"over IPv4").unwrap();
    // The same session over another channel, from an address that the share refuses.
    let second = Client::connect(("::1", port), options()).unwrap();
    let login = Login::user(USER, PASSWORD, "");
    let channel = second.bind(session.secret().unwrap(), &login).unwrap();
    let over = |tree: &Tree| channel.tree_of(tree.id(), *tree.info());
    let denied = Some(smb_wire::Status::ACCESS_DENIED);
    let read = file.through(&over(data)).read(0, 9);
    assert_eq!(read.err().unwrap().status(), denied);
    let opened = over(data).create(&CreateArgs::open("a"));
    assert_eq!(opened.err().unwrap().status(), denied);
    assert_eq!(channel.tree("data").err().unwrap().status(), denied);
    let elsewhere = other.through(&over(&trees[1]));
    elsewhere.read(0, 0).unwrap();
    // The server does not read the file on the client's behalf either.
    let ask = |target: &File, code, input: &[u8]| {
        let tree = target.tree();
        let request = tree.address(target.ioctl_request(code, input, 12));
        tree.reply(request).unwrap().status()
    };
    let chunks = file.copy_chunks(&[(0, 0, 9)]).unwrap();
    let mut extents = BytesMut::new();
    let extent = DuplicateExtents {
        source_file_id: file.id(),
        source_file_offset: 0,
        target_file_offset: 0,
        byte_count: 9,
    };
    extent.encode(&mut extents);
    for (code, input) in [
        (FsctlCode::SRV_COPYCHUNK, &chunks[..]),
        (FsctlCode::SRV_COPYCHUNK_WRITE, &chunks[..]),
        (FsctlCode::DUPLICATE_EXTENTS_TO_FILE, &extents[..]),
    ] {
        let status = ask(&elsewhere, code, input);
        assert_eq!(Some(status), denied, "{code:?}");
        assert_eq!(other.read_all().unwrap(), b"", "{code:?}");
    }
    assert!(ask(&other, FsctlCode::SRV_COPYCHUNK, &chunks).is_success());
    assert_eq!(other.read(0, 9).unwrap(), b"over IPv4");
    assert_eq!(file.read(0, 9).unwrap(), b"over IPv4");
}
