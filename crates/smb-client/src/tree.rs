//! A share of a server, and operations by name: open, delete, rename, list.

use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::OwnedDirectoryEntry;
use smb_wire::fsctl::{FsctlCode, ValidateNegotiateInfoResponse};
use smb_wire::ids::{FileId, MessageId, TreeId};
use smb_wire::msg::{CreateOptions, IoctlResponse, TreeConnectResponse, TreeDisconnectRequest};

use crate::client::{Client, Session};
use crate::core::Reply;
use crate::create::{CreateArgs, Created};
use crate::error::ClientError;
use crate::file::File;
use crate::request::Request;

/// A connected share.
///
/// # Errors
/// Where a function says nothing else: the server's status, or any other error.
#[derive(Clone, Debug)]
pub struct Tree {
    session: Session,
    id: TreeId,
    response: TreeConnectResponse,
    encrypt: bool,
}

impl Tree {
    pub(crate) fn new(
        session: Session,
        id: TreeId,
        response: TreeConnectResponse,
        encrypt: bool,
    ) -> Self {
        Self {
            session,
            id,
            response,
            encrypt,
        }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn client(&self) -> &Client {
        self.session.client()
    }

    pub fn id(&self) -> TreeId {
        self.id
    }

    /// The TREE_CONNECT response of the share.
    pub fn info(&self) -> &TreeConnectResponse {
        &self.response
    }

    /// Addresses a request to this tree.
    pub fn address(&self, request: Request) -> Request {
        let encrypt = self.encrypt;
        request
            .session(self.session.id())
            .tree(self.id)
            .overriding(|o| {
                if encrypt && o.encrypt.is_none() {
                    o.encrypt = Some(true);
                }
            })
    }

    /// Sends a request to this tree and waits for the reply; a status of the server that is an
    /// error is returned as one.
    pub fn call(&self, request: Request) -> Result<Reply, ClientError> {
        self.reply(request)?.ok()
    }

    /// Sends a request to this tree and waits for the reply with any status.
    pub fn reply(&self, request: Request) -> Result<Reply, ClientError> {
        self.client().call(self.address(request))
    }

    /// Sends a request to this tree without waiting.
    pub fn send(&self, request: Request) -> Result<MessageId, ClientError> {
        self.client().send(self.address(request))
    }

    pub fn create(&self, args: &CreateArgs) -> Result<File, ClientError> {
        let reply = self.call(args.request())?;
        self.file(&reply)
    }

    /// Returns the file that a reply to a CREATE has opened.
    pub fn file(&self, reply: &Reply) -> Result<File, ClientError> {
        Ok(File::new(self.clone(), Created::read(&reply.message)?))
    }

    /// Returns the status of a CREATE; a file that it opened is closed again.
    pub fn create_status(&self, args: &CreateArgs) -> Result<Status, ClientError> {
        match self.create(args) {
            Ok(file) => {
                file.close()?;
                Ok(Status::SUCCESS)
            }
            Err(ClientError::Status(status)) => Ok(status),
            Err(other) => Err(other),
        }
    }

    /// Deletes a file or an empty directory.
    pub fn delete(&self, name: &str) -> Result<(), ClientError> {
        let args = CreateArgs::open(name)
            .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
            .options(CreateOptions::DELETE_ON_CLOSE | CreateOptions::OPEN_REPARSE_POINT);
        self.create(&args)?.close()
    }

    pub fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), ClientError> {
        let args = CreateArgs::open(from).access(
            AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE,
        );
        let file = self.create(&args)?;
        let renamed = file.rename(to, replace);
        file.close()?;
        renamed
    }

    pub fn mkdir(&self, name: &str) -> Result<(), ClientError> {
        self.create(&CreateArgs::create_directory(name))?.close()
    }

    /// Returns the entries of a directory, including "." and "..".
    pub fn list(&self, name: &str, pattern: &str) -> Result<Vec<OwnedDirectoryEntry>, ClientError> {
        let directory = self.create(&CreateArgs::directory(name))?;
        let entries = directory.list(pattern);
        directory.close()?;
        entries
    }

    pub fn read_file(&self, name: &str) -> Result<Vec<u8>, ClientError> {
        let file = self.create(&CreateArgs::open(name).access(AccessMask::FILE_GENERIC_READ))?;
        let data = file.read_all();
        file.close()?;
        data
    }

    /// Creates or overwrites a file with exactly this content.
    pub fn write_file(&self, name: &str, data: &[u8]) -> Result<(), ClientError> {
        let args = CreateArgs::new(name, smb_wire::msg::CreateDisposition::OVERWRITE_IF);
        let file = self.create(&args)?;
        let written = file.write_all(0, data);
        file.close()?;
        written
    }

    /// Executes an FSCTL that needs no file.
    pub fn ioctl(&self, code: FsctlCode, input: &[u8], max: u32) -> Result<Vec<u8>, ClientError> {
        let reply = self.call(Request::ioctl(FileId::ANY, code, input, max))?;
        Ok(IoctlResponse::read(&reply.message)?.output.to_vec())
    }

    /// Verifies the negotiation with the server ([MS-SMB2] 3.2.5.5), if the dialect requires it.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] if somebody tampered with the negotiation.
    pub fn validate_negotiate(&self) -> Result<(), ClientError> {
        let client = self.client();
        let signed = self.session.secret().is_some();
        let input = client.connection().core().validate_negotiate_input();
        let Some(input) = input.filter(|_| signed) else {
            return Ok(());
        };
        let request = Request::ioctl(FileId::ANY, FsctlCode::VALIDATE_NEGOTIATE_INFO, &input, 24)
            .overriding(|o| o.sign = (!self.encrypt).then_some(true));
        let reply = self.reply(request)?;
        ClientError::Unsigned(smb_wire::Command::IOCTL).when(!reply.signed && !reply.encrypted)?;
        // [MS-SMB2] 3.2.5.14.12: a signed refusal proves that the server does not implement SMB 3.
        if !reply.status().is_success() {
            return Ok(());
        }
        let body = IoctlResponse::read(&reply.message)?;
        let response = ValidateNegotiateInfoResponse::read(body.output)?;
        let negotiated = client.negotiated();
        let is_same = response.dialect == negotiated.dialect.0
            && response.guid == negotiated.server_guid
            && response.capabilities == negotiated.capabilities.bits()
            && response.security_mode == negotiated.security_mode.bits();
        ClientError::Protocol("the negotiation was changed").when(!is_same)
    }

    pub fn disconnect(&self) -> Result<(), ClientError> {
        self.call(Request::new(&TreeDisconnectRequest)).map(|_| ())
    }
}
