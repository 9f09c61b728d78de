//! Decodes random bytes with every reader of this folder: none panics, and everything that was
//! decoded can be encoded.

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        let mut out = BytesMut::new();
        macro_rules! try_all {
            ($($type:ty),* $(,)?) => {
                $( if let Ok(value) = <$type>::read(&bytes) { value.encode(&mut out); } )*
            };
        }
        try_all!(
            CopyChunkCopy, CopyChunkResponse, RequestResumeKeyResponse,
            DuplicateExtents, DuplicateExtentsEx, CompressionFormat, SetZeroData, MarkHandleInfo,
            ValidateNegotiateInfoRequest, ValidateNegotiateInfoResponse, PipeWaitRequest,
            SnapshotArray, FileObjectIdBuffer,
        );
        let _ = read_network_interfaces(&bytes);
        let _ = read_allocated_ranges(&bytes);
        let _ = SetSparse::read(&bytes);
    }
}
