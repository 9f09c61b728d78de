//! Decodes a context by its name: one match arm for each known context; others are returned as raw
//! bytes.
//!
//! To encode, push the name with the structure's `encode` into a
//! [`CreateContextList`](super::CreateContextList).

use super::{
    AppInstanceId, AppInstanceVersion, AppleRequest, AppleResponse, CreateContext,
    DurableHandleReconnect, DurableHandleReconnectV2, DurableHandleRequestV2,
    DurableHandleResponseV2, LeaseContext, QueryMaximalAccessRequest, QueryMaximalAccessResponse,
    QueryOnDiskIdResponse, name, plain::exactly,
};
use crate::codec::Malformed;
use crate::ids::FileTime;

/// A create context of a request, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestContext<'a> {
    /// ExtA: a FILE_FULL_EA_INFORMATION list, decoded in `fscc`.
    ExtendedAttributes(&'a [u8]),
    /// SecD: a security descriptor, decoded in `dtyp`.
    SecurityDescriptor(&'a [u8]),
    /// DHnQ: 16 reserved bytes.
    DurableHandleRequest,
    /// DHnC.
    DurableHandleReconnect(DurableHandleReconnect),
    /// DH2Q.
    DurableHandleRequestV2(DurableHandleRequestV2),
    /// DH2C.
    DurableHandleReconnectV2(DurableHandleReconnectV2),
    /// MxAc.
    QueryMaximalAccess(QueryMaximalAccessRequest),
    /// QFid.
    QueryOnDiskId,
    /// AlSi: bytes to allocate for a new or overwritten file.
    AllocationSize(u64),
    /// TWrp: the time of the requested version of the file.
    TimewarpToken(FileTime),
    /// RqLs, either version.
    Lease(LeaseContext),
    /// AppInstanceId.
    AppInstanceId(AppInstanceId),
    /// AppInstanceVersion.
    AppInstanceVersion(AppInstanceVersion),
    /// AAPL.
    Apple(AppleRequest),
    /// A context that is not known.
    Unknown(CreateContext<'a>),
}

/// A create context of a response, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseContext<'a> {
    /// DHnQ: 8 reserved bytes.
    DurableHandle,
    /// DH2Q.
    DurableHandleV2(DurableHandleResponseV2),
    /// MxAc.
    QueryMaximalAccess(QueryMaximalAccessResponse),
    /// QFid.
    QueryOnDiskId(QueryOnDiskIdResponse),
    /// RqLs, either version.
    Lease(LeaseContext),
    /// AAPL.
    Apple(AppleResponse<'a>),
    /// A context that is not known.
    Unknown(CreateContext<'a>),
}

impl<'a> CreateContext<'a> {
    /// Decodes the context as one of a request.
    ///
    /// # Errors
    /// [`Malformed`] when the data do not match the name.
    pub fn request(&self) -> Result<RequestContext<'a>, Malformed> {
        use RequestContext as R;
        let data = self.data;
        Ok(match self.name {
            name::EXTENDED_ATTRIBUTES => R::ExtendedAttributes(data),
            name::SECURITY_DESCRIPTOR => R::SecurityDescriptor(data),
            name::DURABLE_HANDLE_REQUEST => {
                exactly(data, 16, "DHnQ").map(|_| R::DurableHandleRequest)?
            }
            name::DURABLE_HANDLE_RECONNECT => {
                R::DurableHandleReconnect(DurableHandleReconnect::read(data)?)
            }
            name::DURABLE_HANDLE_REQUEST_V2 => {
                R::DurableHandleRequestV2(DurableHandleRequestV2::read(data)?)
            }
            name::DURABLE_HANDLE_RECONNECT_V2 => {
                R::DurableHandleReconnectV2(DurableHandleReconnectV2::read(data)?)
            }
            name::QUERY_MAXIMAL_ACCESS => {
                R::QueryMaximalAccess(QueryMaximalAccessRequest::read(data)?)
            }
            name::QUERY_ON_DISK_ID => R::QueryOnDiskId,
            name::ALLOCATION_SIZE => R::AllocationSize(exactly(data, 8, "AlSi")?.u64()?),
            name::TIMEWARP_TOKEN => R::TimewarpToken(FileTime(exactly(data, 8, "TWrp")?.u64()?)),
            name::REQUEST_LEASE => R::Lease(LeaseContext::read(data)?),
            name::APP_INSTANCE_ID => R::AppInstanceId(AppInstanceId::read(data)?),
            name::APP_INSTANCE_VERSION => R::AppInstanceVersion(AppInstanceVersion::read(data)?),
            name::APPLE => R::Apple(AppleRequest::read(data)?),
            _ => R::Unknown(*self),
        })
    }

    /// Decodes the context as one of a response.
    ///
    /// # Errors
    /// [`Malformed`] when the data do not match the name.
    pub fn response(&self) -> Result<ResponseContext<'a>, Malformed> {
        use ResponseContext as R;
        let data = self.data;
        Ok(match self.name {
            name::DURABLE_HANDLE_REQUEST => {
                exactly(data, 8, "DHnQ response").map(|_| R::DurableHandle)?
            }
            name::DURABLE_HANDLE_REQUEST_V2 => {
                R::DurableHandleV2(DurableHandleResponseV2::read(data)?)
            }
            name::QUERY_MAXIMAL_ACCESS => {
                R::QueryMaximalAccess(QueryMaximalAccessResponse::read(data)?)
            }
            name::QUERY_ON_DISK_ID => R::QueryOnDiskId(QueryOnDiskIdResponse::read(data)?),
            name::REQUEST_LEASE => R::Lease(LeaseContext::read(data)?),
            name::APPLE => R::Apple(AppleResponse::read(data)?),
            _ => R::Unknown(*self),
        })
    }
}
