//! IPv6, and addresses that may and may not connect.

use std::time::Duration;

use smb_client::{Client, Options};

use crate::support::{PASSWORD, Plan, USER, closed};

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
fn one_socket_serves_both_and_the_servers_rules_tell_them_apart() {
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
    // Who is in stays in.
    client.echo().unwrap();
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
