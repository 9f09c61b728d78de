//! One valid request of every command, for the tests to corrupt.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Session, Tree};
use smb_tests::{DATA, HoldfastServer};
use smb_wire::create_context::name;
use smb_wire::fscc::{FileInformationClass, FileRenameInformation};
use smb_wire::fsctl::FsctlCode;
use smb_wire::msg::{
    Capabilities, ChangeNotifyFlags, ChangeNotifyRequest, CloseFlags, EchoRequest, InfoType,
    LockElement, LockFlags, LogoffRequest, NotifyFilter, OplockBreak, OplockLevel,
    QueryDirectoryFlags, SecurityMode, SessionSetupFlags, SessionSetupRequest,
    TreeDisconnectRequest, WriteFlags,
};

/// A session with open files, on a connection that may be lost.
pub(crate) struct Attacker {
    pub(crate) session: Session,
    pub(crate) tree: Tree,
    pub(crate) file: File,
    pub(crate) root: File,
    /// The file's name, which no other attacker uses.
    pub(crate) name: String,
}

impl Attacker {
    pub(crate) fn new(server: &HoldfastServer, options: Options) -> Self {
        let session = server.session(options);
        let tree = session.tree(DATA).unwrap();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("playground{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let file = tree.create(&CreateArgs::open_if(&name)).unwrap();
        let root = tree.create(&CreateArgs::directory("")).unwrap();
        Self {
            session,
            tree,
            file,
            root,
            name,
        }
    }

    /// Returns the name of every command and a request. The requests that end the attacker's
    /// session come last.
    pub(crate) fn requests(&self) -> Vec<(&'static str, Request)> {
        let mut all = self.of_session();
        all.extend(self.of_file());
        all.extend(self.of_root());
        all.extend(self.ends());
        all
    }

    fn of_session(&self) -> Vec<(&'static str, Request)> {
        let create = CreateArgs::open_if(&self.name)
            .context(name::QUERY_MAXIMAL_ACCESS, b"")
            .context(name::QUERY_ON_DISK_ID, b"");
        let setup = SessionSetupRequest {
            flags: SessionSetupFlags::empty(),
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::empty(),
            previous_session_id: smb_wire::ids::SessionId(0),
            security_buffer: b"no token at all",
        };
        let id = self.session.id();
        vec![
            ("SESSION_SETUP", Request::new(&setup)),
            (
                "TREE_CONNECT",
                self.session.tree_connect(r"\\127.0.0.1\data"),
            ),
            ("CREATE", self.tree.address(create.request())),
            ("ECHO", Request::new(&EchoRequest).session(id)),
        ]
    }

    fn of_file(&self) -> Vec<(&'static str, Request)> {
        let file = &self.file;
        let exclusive = LockElement {
            offset: 0,
            length: 1,
            flags: LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
        };
        let mut rename = BytesMut::new();
        FileRenameInformation {
            replace_if_exists: false,
            root_directory: 0,
            file_name: self.name.clone(),
        }
        .encode(&mut rename);
        let acknowledge = OplockBreak {
            oplock_level: OplockLevel::NONE,
            file_id: file.id(),
        };
        let data = b"0123456789abcdef";
        let set = |class: FileInformationClass, buffer: &[u8]| {
            file.set_info_request(InfoType::FILE, class.0, 0, buffer)
        };
        let all = FileInformationClass::ALL.0;
        [
            ("FLUSH", file.flush_request(true)),
            ("READ", file.read_request(0, 16, 1)),
            ("WRITE", file.write_request(0, data, WriteFlags::empty())),
            ("LOCK", file.lock_request(0, &[exclusive, exclusive])),
            (
                "IOCTL",
                file.ioctl_request(FsctlCode::SET_ZERO_DATA, &[0; 16], 64),
            ),
            (
                "QUERY_INFO",
                Request::query_info(file.id(), InfoType::FILE, all, 0, 4096),
            ),
            (
                "SET_INFO",
                set(FileInformationClass::END_OF_FILE, &77u64.to_le_bytes()),
            ),
            (
                "SET_INFO rename",
                set(FileInformationClass::RENAME, &rename),
            ),
            ("OPLOCK_BREAK", Request::new(&acknowledge)),
        ]
        .map(|(command, request)| (command, self.tree.address(request)))
        .to_vec()
    }

    fn of_root(&self) -> Vec<(&'static str, Request)> {
        let notify = ChangeNotifyRequest {
            flags: ChangeNotifyFlags::empty(),
            output_buffer_length: 1024,
            file_id: self.root.id(),
            completion_filter: NotifyFilter::EA,
        };
        let query = Request::query_directory(
            self.root.id(),
            FileInformationClass::ID_BOTH_DIRECTORY,
            "play*",
            QueryDirectoryFlags::RESTART_SCANS,
            4096,
        );
        vec![
            ("QUERY_DIRECTORY", self.tree.address(query)),
            ("CHANGE_NOTIFY", self.tree.address(Request::new(&notify))),
        ]
    }

    fn ends(&self) -> Vec<(&'static str, Request)> {
        let close = self.file.close_request(CloseFlags::POSTQUERY_ATTRIB);
        let disconnect = Request::new(&TreeDisconnectRequest);
        vec![
            ("CLOSE", self.tree.address(close)),
            ("TREE_DISCONNECT", self.tree.address(disconnect)),
            (
                "LOGOFF",
                Request::new(&LogoffRequest).session(self.session.id()),
            ),
        ]
    }
}

/// The result of a corrupted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Status(smb_wire::Status),
    /// The request is pending, which is allowed; nothing will complete it.
    Pending,
    Closed,
}

/// Sends one request and returns its result.
#[track_caller]
pub(crate) fn end(attacker: &Attacker, request: Request, what: &str) -> End {
    use smb_client::ClientError;
    let client = attacker.session.client();
    let end = client
        .send(request)
        .and_then(|id| match client.wait_pending(id)? {
            Some(_) => Ok(End::Pending),
            None => Ok(End::Status(client.wait(id)?.status())),
        });
    match end {
        Ok(end) => end,
        Err(ClientError::Disconnected) => End::Closed,
        Err(other) => panic!("{what}: {other}"),
    }
}

/// Files that no request may change.
pub(crate) struct Precious {
    file: std::path::PathBuf,
}

impl Precious {
    const CONTENT: &'static [u8] = b"nobody touches this";

    pub(crate) fn new(server: &HoldfastServer) -> Self {
        let file = server.path("precious");
        std::fs::write(&file, Self::CONTENT).unwrap();
        Self { file }
    }

    #[track_caller]
    pub(crate) fn check(&self, what: &str) {
        let content = std::fs::read(&self.file);
        assert_eq!(content.ok().as_deref(), Some(Self::CONTENT), "{what}");
    }
}
