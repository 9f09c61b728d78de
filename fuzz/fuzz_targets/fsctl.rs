//! Inputs of IOCTL from strangers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_wire::fsctl::*;

#[macro_use]
#[path = "../support/try_all.rs"]
mod try_all;

fuzz_target!(|bytes: &[u8]| {
    try_all!(bytes;
        CopyChunkCopy,
        CopyChunkResponse,
        RequestResumeKeyResponse,
        DuplicateExtents,
        DuplicateExtentsEx,
        CompressionFormat,
        SetZeroData,
        ValidateNegotiateInfoRequest,
        ValidateNegotiateInfoResponse,
        PipeWaitRequest,
        SnapshotArray,
    );
    let _ = read_network_interfaces(bytes);
    let _ = read_allocated_ranges(bytes);
});
