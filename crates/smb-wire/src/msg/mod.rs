//! The messages of [MS-SMB2] 2.2.2 to 2.2.40, one file per command. Declarations only.
//!
//! Every `read` takes the message from its SMB2 header to its end; every `encode` takes the output
//! and the position `start` of this message's header in it, and expects the output to end with
//! exactly that header. Variable parts are borrowed raw bytes.

mod cancel;
mod change_notify;
mod close;
mod create;
mod echo;
mod error;
mod flush;
mod ioctl;
mod lock;
mod logoff;
mod negotiate;
mod oplock_break;
mod query_directory;
mod query_info;
mod read;
mod session_setup;
mod set_info;
mod tree_connect;
mod tree_disconnect;
mod write;

pub use cancel::CancelRequest;
pub use change_notify::{
    ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse, NotifyFilter,
};
pub use close::{CloseFlags, CloseRequest, CloseResponse};
pub use create::{
    CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateResponse,
    CreateResponseFlags, ImpersonationLevel, OplockLevel, ShareAccess,
};
pub use echo::{EchoRequest, EchoResponse};
pub use error::{ErrorContext, ErrorId, ErrorResponse};
pub use flush::{FlushRequest, FlushResponse};
pub use ioctl::{IoctlFlags, IoctlRequest, IoctlResponse};
pub use lock::{LockElement, LockFlags, LockRequest, LockResponse};
pub use logoff::{LogoffRequest, LogoffResponse};
pub use negotiate::{Capabilities, Dialect, NegotiateRequest, NegotiateResponse, SecurityMode};
pub use oplock_break::{
    LeaseBreak, LeaseBreakAcknowledgment, LeaseBreakFlags, LeaseBreakNotification,
    LeaseBreakResponse, OplockBreak, OplockBreakAcknowledgment, OplockBreakNotification,
    OplockBreakRequest, OplockBreakResponse, OplockBreakServerMessage,
};
pub use query_directory::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse};
pub use query_info::{InfoType, QueryInfoFlags, QueryInfoRequest, QueryInfoResponse};
pub use read::{Channel, READ_HEAD_SIZE, ReadFlags, ReadRequest, ReadResponse, ReadResponseFlags};
pub use session_setup::{
    SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
};
pub use set_info::{SetInfoRequest, SetInfoResponse};
pub use tree_connect::{
    ShareCapabilities, ShareFlags, ShareType, TreeConnectFlags, TreeConnectRequest,
    TreeConnectResponse,
};
pub use tree_disconnect::{TreeDisconnectRequest, TreeDisconnectResponse};
pub use write::{WriteFlags, WriteRequest, WriteResponse};

#[cfg(test)]
mod tests;
