//! Arguments and results of a CREATE, as owned values.

use bytes::Bytes;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{
    CreateContextList, CreateContexts, DurableHandleReconnectV2, DurableHandleRequestV2,
    LeaseContext, LeaseFlags, LeaseState, LeaseV2, ResponseContext, name,
};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::FileFacts;
use smb_wire::ids::{FileId, LeaseKey};
use smb_wire::msg::{
    CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateResponse,
    CreateResponseFlags, ImpersonationLevel, OplockLevel, ShareAccess,
};
use smb_wire::utf16;

use crate::error::ClientError;
use crate::request::Request;

/// All fields of a CREATE. The constructors allow all sharing.
#[derive(Debug, Clone)]
#[must_use]
pub struct CreateArgs {
    /// The name in raw UTF-16LE, relative to the share.
    pub name: Vec<u8>,
    pub desired_access: AccessMask,
    /// The attributes of a file that is created or overwritten.
    pub file_attributes: FileAttributes,
    /// The access that other opens may have at the same time.
    pub share_access: ShareAccess,
    /// The disposition: the action if the file exists, and if it does not.
    pub disposition: CreateDisposition,
    pub options: CreateOptions,
    /// The requested oplock level.
    pub oplock_level: OplockLevel,
    /// The impersonation level: how far the server may act in the client's name.
    pub impersonation_level: ImpersonationLevel,
    pub contexts: CreateContextList,
}

impl CreateArgs {
    /// Opens a name with a disposition, for reading, writing and deleting.
    pub fn new(name: &str, disposition: CreateDisposition) -> Self {
        Self {
            name: utf16::encode(name),
            desired_access: AccessMask::FILE_GENERIC_READ
                | AccessMask::FILE_GENERIC_WRITE
                | AccessMask::DELETE,
            file_attributes: FileAttributes::empty(),
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition,
            options: CreateOptions::empty(),
            oplock_level: OplockLevel::NONE,
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            contexts: CreateContextList::new(),
        }
    }

    pub fn open(name: &str) -> Self {
        Self::new(name, CreateDisposition::OPEN)
    }

    pub fn create(name: &str) -> Self {
        Self::new(name, CreateDisposition::CREATE)
    }

    /// Opens a file, or creates it if it does not exist.
    pub fn open_if(name: &str) -> Self {
        Self::new(name, CreateDisposition::OPEN_IF)
    }

    /// Opens an existing directory, for listing and watching.
    pub fn directory(name: &str) -> Self {
        Self::open(name)
            .access(AccessMask::FILE_GENERIC_READ)
            .options(CreateOptions::DIRECTORY_FILE)
    }

    /// Creates a directory that does not exist.
    pub fn create_directory(name: &str) -> Self {
        Self::create(name).options(CreateOptions::DIRECTORY_FILE)
    }

    pub fn access(mut self, access: AccessMask) -> Self {
        self.desired_access = access;
        self
    }

    pub fn share(mut self, share: ShareAccess) -> Self {
        self.share_access = share;
        self
    }

    /// With these options too.
    pub fn options(mut self, options: CreateOptions) -> Self {
        self.options |= options;
        self
    }

    pub fn attributes(mut self, attributes: FileAttributes) -> Self {
        self.file_attributes = attributes;
        self
    }

    pub fn disposition(mut self, disposition: CreateDisposition) -> Self {
        self.disposition = disposition;
        self
    }

    pub fn oplock(mut self, level: OplockLevel) -> Self {
        self.oplock_level = level;
        self
    }

    pub fn context(mut self, name: &[u8], data: &[u8]) -> Self {
        self.contexts.push(name, data);
        self
    }

    pub fn lease(self, key: LeaseKey, state: LeaseState) -> Self {
        self.lease_context(&LeaseContext {
            lease_key: key,
            lease_state: state,
            flags: LeaseFlags::empty(),
            v2: None,
        })
    }

    /// With a lease of version 2 without a parent.
    pub fn lease_v2(self, key: LeaseKey, state: LeaseState, epoch: u16) -> Self {
        self.lease_context(&LeaseContext {
            lease_key: key,
            lease_state: state,
            flags: LeaseFlags::empty(),
            v2: Some(LeaseV2 {
                parent_lease_key: LeaseKey::default(),
                epoch,
            }),
        })
    }

    pub fn lease_context(mut self, lease: &LeaseContext) -> Self {
        self.oplock_level = OplockLevel::LEASE;
        self.contexts
            .push_with(name::REQUEST_LEASE, |out| lease.encode(out));
        self
    }

    pub fn durable_v2(mut self, request: DurableHandleRequestV2) -> Self {
        let name = name::DURABLE_HANDLE_REQUEST_V2;
        self.contexts.push_with(name, |out| request.encode(out));
        self
    }

    pub fn durable_v2_again(mut self, reconnect: DurableHandleReconnectV2) -> Self {
        let name = name::DURABLE_HANDLE_RECONNECT_V2;
        self.contexts.push_with(name, |out| reconnect.encode(out));
        self
    }

    /// Builds the request, without a session and a tree.
    pub fn request(&self) -> Request {
        Request::new(&CreateRequest {
            oplock_level: self.oplock_level,
            impersonation_level: self.impersonation_level,
            desired_access: self.desired_access,
            file_attributes: self.file_attributes,
            share_access: self.share_access,
            disposition: self.disposition,
            options: self.options,
            name: &self.name,
            contexts: self.contexts.bytes(),
        })
    }
}

#[derive(Debug, Clone)]
pub struct Created {
    pub oplock_level: OplockLevel,
    pub flags: CreateResponseFlags,
    pub create_action: CreateAction,
    /// The file after the open.
    pub facts: FileFacts,
    pub file_id: FileId,
    /// The raw create contexts.
    pub contexts: Bytes,
}

impl Created {
    pub fn read(message: &Bytes) -> Result<Self, ClientError> {
        let response = CreateResponse::read(message)?;
        Ok(Self {
            oplock_level: response.oplock_level,
            flags: response.flags,
            create_action: response.create_action,
            facts: response.facts,
            file_id: response.file_id,
            contexts: Bytes::copy_from_slice(response.contexts),
        })
    }

    /// Returns the data of a create context by its name.
    pub fn context(&self, name: &[u8]) -> Option<&[u8]> {
        CreateContexts::new(&self.contexts)
            .find(name)
            .map(|context| context.data)
    }

    pub fn lease(&self) -> Option<LeaseContext> {
        let context = CreateContexts::new(&self.contexts).find(name::REQUEST_LEASE)?;
        match context.response().ok()? {
            ResponseContext::Lease(lease) => Some(lease),
            _ => None,
        }
    }
}
