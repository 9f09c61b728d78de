//! DCE/RPC over named pipes, as a file server needs it: connection-oriented PDUs (C706 chapter
//! 12, [MS-RPCE] 2.2.2), NDR of 32 bits (C706 chapter 14), and the stubs of srvsvc, wkssvc,
//! lsarpc, dssetup and samr that browsing and name lookups use.
//!
//! This module only encodes and decodes; the server knows the shares and users. Each interface
//! decodes `(opnum, stub)`, to an enum of its requests if it has several operations, and has structs that
//! encode the response's stub. A stub that cannot be decoded becomes a [`FaultStatus`], to be sent as a fault PDU.
//!
//! Declarations only.

pub mod activity;
mod bind;
#[cfg(test)]
mod captured;
pub mod dssetup;
mod fragment;
mod interface;
pub mod lsarpc;
mod ndr;
mod pdu;
pub mod samr;
pub mod srvsvc;
pub mod wkssvc;

pub use bind::{
    Bind, BindAck, BindNak, ContextResult, MAX_CONTEXTS, PresentationContext, ProviderReason,
    ResultCode, answer_contexts,
};
pub use fragment::{MAX_REQUEST_BYTES, Reassembly, WholeRequest, encode_response};
pub use interface::{Interface, SyntaxId};
pub use ndr::{ContextHandle, MAX_ARRAY_ELEMENTS, MAX_STRING_UNITS, NdrReader, NdrWriter};
pub use pdu::{
    FaultPdu, FaultStatus, MAX_FRAGMENT_BYTES, MIN_FRAGMENT_BYTES, PduHeader, PduType, PfcFlags,
    RequestPdu, Response,
};
