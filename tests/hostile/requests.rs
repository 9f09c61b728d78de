//! One rightful request of every command, for others to spoil.

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
}

impl Attacker {
    pub(crate) fn new(server: &HoldfastServer, options: Options) -> Self {
        let session = server.session(options);
        let tree = session.tree(DATA).unwrap();
        let file = tree.create(&CreateArgs::open_if("playground")).unwrap();
        let root = tree.create(&CreateArgs::directory("")).unwrap();
        Self {
            session,
            tree,
            file,
            root,
        }
    }

    /// The command's name and a request of it.
    pub(crate) fn requests(&self) -> Vec<(&'static str, Request)> {
        let (file, root) = (&self.file, &self.root);
        let create = CreateArgs::open_if("playground")
            .context(name::QUERY_MAXIMAL_ACCESS, b"")
            .context(name::QUERY_ON_DISK_ID, b"");
        let exclusive = LockElement {
            offset: 0,
            length: 1,
            flags: LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
        };
        let mut rename = BytesMut::new();
        FileRenameInformation {
            replace_if_exists: false,
            root_directory: 0,
            file_name: "playground".into(),
        }
        .encode(&mut rename);
        let setup = SessionSetupRequest {
            flags: SessionSetupFlags::empty(),
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::empty(),
            previous_session_id: smb_wire::ids::SessionId(0),
            security_buffer: b"no token at all",
        };
        let notify = ChangeNotifyRequest {
            flags: ChangeNotifyFlags::empty(),
            output_buffer_length: 1024,
            file_id: root.id(),
            completion_filter: NotifyFilter::EA,
        };
        let acknowledge = OplockBreak {
            oplock_level: OplockLevel::NONE,
            file_id: file.id(),
        };
        let end = FileInformationClass::END_OF_FILE.0;
        let tree = |request| self.tree.address(request);
        vec![
            ("SESSION_SETUP", Request::new(&setup)),
            (
                "TREE_CONNECT",
                self.session.tree_connect(r"\\127.0.0.1\data"),
            ),
            ("CREATE", tree(create.request())),
            ("FLUSH", tree(file.flush_request(true))),
            ("READ", tree(file.read_request(0, 16, 1))),
            (
                "WRITE",
                tree(file.write_request(0, b"0123456789abcdef", WriteFlags::empty())),
            ),
            ("LOCK", tree(file.lock_request(0, &[exclusive, exclusive]))),
            (
                "IOCTL",
                tree(file.ioctl_request(FsctlCode::SET_ZERO_DATA, &[0; 16], 64)),
            ),
            (
                "ECHO",
                Request::new(&EchoRequest).session(self.session.id()),
            ),
            (
                "QUERY_DIRECTORY",
                tree(root.query_directory_request(
                    FileInformationClass::ID_BOTH_DIRECTORY,
                    "play*",
                    QueryDirectoryFlags::RESTART_SCANS,
                    4096,
                )),
            ),
            ("CHANGE_NOTIFY", tree(Request::new(&notify))),
            (
                "QUERY_INFO",
                tree(file.query_info_request(InfoType::FILE, FileInformationClass::ALL.0, 0, 4096)),
            ),
            (
                "SET_INFO",
                tree(file.set_info_request(InfoType::FILE, end, 0, &77u64.to_le_bytes())),
            ),
            (
                "SET_INFO rename",
                tree(file.set_info_request(
                    InfoType::FILE,
                    FileInformationClass::RENAME.0,
                    0,
                    &rename,
                )),
            ),
            ("OPLOCK_BREAK", tree(Request::new(&acknowledge))),
            (
                "CLOSE",
                tree(file.close_request(CloseFlags::POSTQUERY_ATTRIB)),
            ),
            (
                "TREE_DISCONNECT",
                tree(Request::new(&TreeDisconnectRequest)),
            ),
            (
                "LOGOFF",
                Request::new(&LogoffRequest).session(self.session.id()),
            ),
        ]
    }
}

/// How a spoilt request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Status(smb_wire::Status),
    /// It waits, which it may; nobody will wake it.
    Pending,
    Closed,
}

/// Sends one request and sees how it ends.
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

/// Files that nobody asks to change.
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
