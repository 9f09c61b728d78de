//! Inputs of IOCTL from strangers.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smb_wire::fsctl::*;

fuzz_target!(|bytes: &[u8]| {
    let mut out = BytesMut::new();
    macro_rules! try_all {
        ($($type:ty),* $(,)?) => {
            $( if let Ok(value) = <$type>::read(bytes) { value.encode(&mut out); } )*
        };
    }
    try_all!(
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
