//! Encodes create contexts that were decoded, to compare them with captured ones.

use crate::create_context::{CreateContextList, RequestContext, ResponseContext, name};

impl RequestContext<'_> {
    /// Appends the context to a list.
    pub(super) fn encode(&self, list: &mut CreateContextList) {
        match self {
            Self::ExtendedAttributes(data) => list.push(name::EXTENDED_ATTRIBUTES, data),
            Self::SecurityDescriptor(data) => list.push(name::SECURITY_DESCRIPTOR, data),
            Self::DurableHandleRequest => list.push(name::DURABLE_HANDLE_REQUEST, &[0; 16]),
            Self::DurableHandleReconnect(data) => {
                list.push_with(name::DURABLE_HANDLE_RECONNECT, |out| data.encode(out));
            }
            Self::DurableHandleRequestV2(data) => {
                list.push_with(name::DURABLE_HANDLE_REQUEST_V2, |out| data.encode(out));
            }
            Self::DurableHandleReconnectV2(data) => {
                list.push_with(name::DURABLE_HANDLE_RECONNECT_V2, |out| data.encode(out));
            }
            Self::QueryMaximalAccess(data) => {
                list.push_with(name::QUERY_MAXIMAL_ACCESS, |out| data.encode(out));
            }
            Self::QueryOnDiskId => list.push(name::QUERY_ON_DISK_ID, &[]),
            Self::AllocationSize(size) => {
                list.push(name::ALLOCATION_SIZE, &size.to_le_bytes());
            }
            Self::TimewarpToken(time) => list.push(name::TIMEWARP_TOKEN, &time.0.to_le_bytes()),
            Self::Lease(data) => list.push_with(name::REQUEST_LEASE, |out| data.encode(out)),
            Self::AppInstanceId(data) => {
                list.push_with(name::APP_INSTANCE_ID, |out| data.encode(out));
            }
            Self::AppInstanceVersion(data) => {
                list.push_with(name::APP_INSTANCE_VERSION, |out| data.encode(out));
            }
            Self::Apple(data) => list.push_with(name::APPLE, |out| data.encode(out)),
            Self::Unknown(context) => list.push(context.name, context.data),
        }
    }
}

impl ResponseContext<'_> {
    /// Appends the context to a list.
    pub(super) fn encode(&self, list: &mut CreateContextList) {
        match self {
            Self::DurableHandle => list.push(name::DURABLE_HANDLE_REQUEST, &[0; 8]),
            Self::DurableHandleV2(data) => {
                list.push_with(name::DURABLE_HANDLE_REQUEST_V2, |out| data.encode(out));
            }
            Self::QueryMaximalAccess(data) => {
                list.push_with(name::QUERY_MAXIMAL_ACCESS, |out| data.encode(out));
            }
            Self::QueryOnDiskId(data) => {
                list.push_with(name::QUERY_ON_DISK_ID, |out| data.encode(out));
            }
            Self::Lease(data) => list.push_with(name::REQUEST_LEASE, |out| data.encode(out)),
            Self::Apple(data) => list.push_with(name::APPLE, |out| data.encode(out)),
            Self::Unknown(context) => list.push(context.name, context.data),
        }
    }
}
