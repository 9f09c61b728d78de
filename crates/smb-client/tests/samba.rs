//! Tests the client with Debian's smbd, so that its understanding of the protocol is not only our
//! own.
//!
//! The test needs `smbd` and root. If they are missing, it says so; with `HOLDFAST_REQUIRE_ROOT=1`
//! (`tests/run`) it fails. One smbd serves all tests of this file.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use smb_client::{
    Client, ClientError, CreateArgs, Encryption, Login, MultiProtocol, Options, Signing, Tree,
};
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::fscc::FileInformationClass;
use smb_wire::ids::LeaseKey;
use smb_wire::msg::{
    ChangeNotifyFlags, CloseFlags, Dialect, LockFlags, NotifyFilter, OplockLevel, WriteFlags,
};

const PASSWORD: &str = "Client-pw1";

struct Samba {
    child: Child,
    addr: SocketAddr,
    user: String,
    _dir: tempfile::TempDir,
}

impl Drop for Samba {
    fn drop(&mut self) {
        // SIGTERM, so that smbd ends its child processes too: it is the leader of its own group.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

fn config(dir: &Path, port: u16) -> String {
    let at = |name: &str| {
        let path = dir.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path.display().to_string()
    };
    format!(
        "[global]\nserver role = standalone server\ninterfaces = lo\nbind interfaces only = yes\n\
         smb ports = {port}\ndisable netbios = yes\nprivate dir = {}\nlock directory = {}\n\
         state directory = {}\ncache directory = {}\npid directory = {}\nncalrpc dir = {}\n\
         log file = {}/log\npassdb backend = tdbsam\nload printers = no\ndisable spoolss = yes\n\
         server min protocol = SMB2_02\nserver multi channel support = yes\nkernel oplocks = no\n\
         [share]\npath = {}\nread only = no\n\
         [sealed]\npath = {}\nread only = no\nserver smb encrypt = required\n",
        at("private"),
        at("lock"),
        at("state"),
        at("cache"),
        at("pid"),
        at("ncalrpc"),
        dir.display(),
        at("share"),
        at("sealed"),
    )
}

fn start() -> Option<Samba> {
    let root = output(Command::new("id").arg("-u")).is_some_and(|id| id == "0");
    let present = output(Command::new("smbd").arg("-V")).is_some();
    if !(root && present) {
        assert!(
            std::env::var_os("HOLDFAST_REQUIRE_ROOT").is_none_or(|value| value != "1"),
            "HOLDFAST_REQUIRE_ROOT=1, but there is no smbd, or this is not root"
        );
        eprintln!("missing: smbd, or root");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let conf = dir.path().join("smb.conf");
    std::fs::write(&conf, config(dir.path(), port)).unwrap();
    let user = output(Command::new("id").arg("-un")).unwrap();
    let mut smbpasswd = Command::new("smbpasswd")
        .arg("-c")
        .arg(&conf)
        .args(["-s", "-a", &user])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(
        smbpasswd.stdin.as_mut().unwrap(),
        format!("{PASSWORD}\n{PASSWORD}\n").as_bytes(),
    )
    .unwrap();
    assert!(smbpasswd.wait().unwrap().success());
    let child = Command::new("smbd")
        .args(["-F", "-s"])
        .arg(&conf)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let samba = Samba {
        child,
        addr,
        user,
        _dir: dir,
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(addr).is_err() {
        assert!(Instant::now() < deadline, "smbd did not come up");
        std::thread::sleep(Duration::from_millis(100));
    }
    Some(samba)
}

impl Samba {
    fn tree(&self, options: Options) -> Tree {
        self.tree_of("share", options)
    }

    fn tree_of(&self, share: &str, options: Options) -> Tree {
        let client = Client::connect(self.addr, options).unwrap();
        let session = client.login(&self.user, PASSWORD, "").unwrap();
        session.tree(share).unwrap()
    }
}

fn round_trip(tree: &Tree, name: &str) {
    let data: Vec<u8> = (0..200_000u32).map(|i| i.to_le_bytes()[0]).collect();
    let file = tree.create(&CreateArgs::create(name)).unwrap();
    file.write_all(0, &data).unwrap();
    file.flush(false).unwrap();
    assert_eq!(file.read_all().unwrap(), data);
    let closed = file.close_with(CloseFlags::POSTQUERY_ATTRIB).unwrap();
    assert_eq!(closed.facts.end_of_file, 200_000);
    assert_eq!(
        file.read(0, 1).unwrap_err().status(),
        Some(Status::FILE_CLOSED)
    );
    tree.delete(name).unwrap();
}

fn dialects_with_and_without_signing(samba: &Samba) {
    for dialect in Dialect::ALL {
        for signing in [Signing::IfRequired, Signing::Required] {
            let tree = samba.tree(Options::dialect(dialect).signing(signing));
            assert_eq!(tree.client().negotiated().dialect, dialect);
            round_trip(&tree, "dialect");
            tree.disconnect().unwrap();
            tree.session().logoff().unwrap();
        }
    }
    let tree = samba.tree(Options::default());
    assert_eq!(tree.client().negotiated().dialect, Dialect::SMB_3_1_1);
}

fn secure_negotiate_is_checked_on_3_0_2(samba: &Samba) {
    let options = Options {
        dialects: Dialect::ALL[..4].to_vec(),
        ..Options::default()
    };
    assert_eq!(
        samba.tree(options).client().negotiated().dialect,
        Dialect::SMB_3_0_2
    );
}

fn multi_protocol(samba: &Samba) {
    for (multi_protocol, dialect) in [
        (MultiProtocol::Wildcard, Dialect::SMB_3_1_1),
        (MultiProtocol::Smb2002, Dialect::SMB_2_0_2),
    ] {
        let tree = samba.tree(Options {
            multi_protocol,
            validate_negotiate: false,
            ..Options::default()
        });
        assert_eq!(tree.client().negotiated().dialect, dialect);
        round_trip(&tree, "multi");
    }
}

fn ciphers_and_signing_algorithms(samba: &Samba) {
    for cipher in [
        Cipher::Aes128Ccm,
        Cipher::Aes128Gcm,
        Cipher::Aes256Ccm,
        Cipher::Aes256Gcm,
    ] {
        let options = Options::default()
            .cipher(cipher)
            .encryption(Encryption::Always);
        let tree = samba.tree(options);
        assert_eq!(tree.client().negotiated().cipher, Some(cipher));
        round_trip(&tree, "cipher");
    }
    let v3 = Options::dialect(Dialect::SMB_3_0).encryption(Encryption::Always);
    round_trip(&samba.tree(v3), "cipher");
    for algorithm in [
        SigningAlgorithm::HmacSha256,
        SigningAlgorithm::AesCmac,
        SigningAlgorithm::AesGmac,
    ] {
        let options = Options::default()
            .signing_algorithm(algorithm)
            .signing(Signing::Required);
        let tree = samba.tree(options);
        assert_eq!(tree.client().negotiated().signing_algorithm, algorithm);
        round_trip(&tree, "signing");
    }
    // The share requires encryption, the session does not.
    round_trip(&samba.tree_of("sealed", Options::default()), "sealed");
}

fn wrong_password_and_wrong_share(samba: &Samba) {
    let client = Client::connect(samba.addr, Options::default()).unwrap();
    let refused = client.login(&samba.user, "wrong", "").unwrap_err();
    assert_eq!(refused.status(), Some(Status::LOGON_FAILURE));
    let session = client.login(&samba.user, PASSWORD, "").unwrap();
    let refused = session.tree("nowhere").unwrap_err();
    assert_eq!(refused.status(), Some(Status::BAD_NETWORK_NAME));
    session
        .reauthenticate(&Login::user(&samba.user, PASSWORD, ""))
        .unwrap();
    client.echo().unwrap();
}

fn a_wrong_signature_is_refused(samba: &Samba) {
    let tree = samba.tree(Options::default().signing(Signing::Required));
    let request = CreateArgs::open("x")
        .request()
        .overriding(|o| o.corrupt_signature = true);
    match tree.reply(request) {
        Ok(reply) => assert_eq!(reply.status(), Status::ACCESS_DENIED),
        Err(ClientError::Disconnected) => {}
        Err(other) => panic!("{other}"),
    }
}

fn pipelining_and_compounds(samba: &Samba) {
    let tree = samba.tree(Options::default());
    let file = tree.create(&CreateArgs::create("pipe")).unwrap();
    let ids: Vec<_> = (0..16u8)
        .map(|i| {
            let data = vec![i; 65_536];
            let request = file.write_request(u64::from(i) << 16, &data, WriteFlags::empty());
            tree.send(request).unwrap()
        })
        .collect();
    for id in ids.into_iter().rev() {
        tree.client().wait(id).unwrap().ok().unwrap();
    }
    let back = file.read_all().unwrap();
    assert_eq!(back.len(), 1 << 20);
    assert!(
        back.iter()
            .enumerate()
            .all(|(at, byte)| at >> 16 == usize::from(*byte))
    );
    let any = smb_wire::ids::FileId::ANY;
    let replies = tree
        .client()
        .compound(vec![
            tree.address(CreateArgs::open("pipe").request()),
            tree.address(smb_client::Request::flush(any)).related(),
            tree.address(smb_client::Request::close(any)).related(),
        ])
        .unwrap();
    for reply in replies {
        assert_eq!(reply.status(), Status::SUCCESS);
    }
    file.close().unwrap();
    tree.delete("pipe").unwrap();
}

fn locks_oplocks_and_notifications(samba: &Samba) {
    let one = samba.tree(Options::default());
    let two = samba.tree(Options::default());
    let file = one
        .create(&CreateArgs::create("shared").oplock(OplockLevel::BATCH))
        .unwrap();
    assert_eq!(file.created().oplock_level, OplockLevel::BATCH);
    let other = two.send(CreateArgs::open("shared").request()).unwrap();
    let broken = one.client().next_break(Duration::from_secs(10)).unwrap();
    assert!(matches!(
        broken,
        Some(smb_client::Break::Oplock { file_id, level: OplockLevel::II }) if file_id == file.id()
    ));
    file.acknowledge_oplock(OplockLevel::II).unwrap();
    let other = two
        .file(&two.client().wait(other).unwrap().ok().unwrap())
        .unwrap();
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    file.lock(0, 10, exclusive).unwrap();
    assert_eq!(
        other.lock(5, 10, exclusive).unwrap_err().status(),
        Some(Status::LOCK_NOT_GRANTED)
    );
    file.unlock(0, 10).unwrap();
    other.close().unwrap();
    file.close().unwrap();

    let leased = one
        .create(&CreateArgs::open("shared").lease_v2(LeaseKey([5; 16]), LeaseState::RWH, 0))
        .unwrap();
    assert_eq!(
        leased.created().lease().unwrap().lease_state,
        LeaseState::RWH
    );
    leased.close().unwrap();

    let root = one.create(&CreateArgs::directory("")).unwrap();
    let watch = root
        .notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096)
        .unwrap();
    assert!(one.client().wait_pending(watch).unwrap().is_some());
    two.rename("shared", "moved", false).unwrap();
    let changes = root.changes(one.client().wait(watch).unwrap()).unwrap();
    assert!(changes.iter().any(|c| c.file_name == "shared"));
    let watch = root
        .notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096)
        .unwrap();
    // The second answer may contain the rest of the first change.
    if one.client().wait_pending(watch).unwrap().is_some() {
        let session = one.session().id();
        one.client().connection().cancel(watch, session).unwrap();
        let end = one.client().wait(watch).unwrap().status();
        assert!(end == Status::CANCELLED || end == Status::SUCCESS, "{end}");
    }
    let names: Vec<_> = one.list("", "mov*").unwrap();
    assert_eq!(names.len(), 1);
    let moved = one.create(&CreateArgs::open("moved")).unwrap();
    assert_eq!(
        moved.query(FileInformationClass::STANDARD).unwrap().len(),
        24
    );
    moved.set_end_of_file(77).unwrap();
    moved.close().unwrap();
    one.delete("moved").unwrap();
}

fn a_second_channel(samba: &Samba) {
    let tree = samba.tree(Options::default().signing(Signing::Required));
    let guid = tree.client().connection().core().guid();
    let second = Client::connect(
        samba.addr,
        Options::default().signing(Signing::Required).guid(guid),
    )
    .unwrap();
    let login = Login::user(&samba.user, PASSWORD, "");
    let session = second
        .bind(tree.session().secret().unwrap(), &login)
        .unwrap();
    assert_eq!(session.id(), tree.session().id());
    let through = session.tree_of(tree.id(), *tree.info());
    round_trip(&through, "channel");
}

#[test]
fn everything_works_with_samba() {
    let Some(samba) = start() else { return };
    dialects_with_and_without_signing(&samba);
    secure_negotiate_is_checked_on_3_0_2(&samba);
    multi_protocol(&samba);
    ciphers_and_signing_algorithms(&samba);
    wrong_password_and_wrong_share(&samba);
    a_wrong_signature_is_refused(&samba);
    pipelining_and_compounds(&samba);
    locks_oplocks_and_notifications(&samba);
    a_second_channel(&samba);
}
