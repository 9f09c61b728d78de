//! The payloads of IOCTL: the FSCTL codes of [MS-SMB2] 2.2.31 and [MS-FSCC] 2.3 and their input
//! and output structures, both directions. Declarations only.
//!
//! Sizes, counts and offsets are checked against the length of the input; the server decides
//! whether a request is allowed and which status refuses it ([MS-SMB2] 3.3.5.15).

mod code;
mod copychunk;
mod extents;
mod fixed;
mod network;
mod pipe;
#[cfg(test)]
mod random;
mod ranges;

pub use code::FsctlCode;
pub use copychunk::{
    CopyChunk, CopyChunkCopy, CopyChunkResponse, MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_COPY_BYTES,
    RequestResumeKeyResponse, ResumeKey,
};
pub use extents::{DuplicateExtents, DuplicateExtentsEx, DuplicateExtentsFlags};
pub use fixed::{
    CompressionFormat, LmrRequestResiliency, MarkHandleInfo, SetSparse, SetZeroData, SnapshotArray,
};
pub use network::{
    InterfaceCapability, NetworkInterfaceInfo, ValidateNegotiateInfoRequest,
    ValidateNegotiateInfoResponse, encode_network_interfaces, read_network_interfaces,
};
pub use pipe::{PipePeekResponse, PipeWaitRequest};
pub use ranges::{AllocatedRange, encode_allocated_ranges, read_allocated_ranges};

pub use crate::fscc::FileObjectIdBuffer;
