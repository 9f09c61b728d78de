//! Information classes of named pipes ([MS-FSCC] 2.4.37 to 2.4.39). Layout only.

use super::record::records;

records! {
    /// FilePipeInformation ([MS-FSCC] 2.4.37): query and set.
    FilePipeInformation {
        /// 0 stream of bytes, 1 messages.
        read_mode: u32;
        /// 0 blocking, 1 not.
        completion_mode: u32;
    }

    /// FilePipeLocalInformation ([MS-FSCC] 2.4.38).
    FilePipeLocalInformation {
        /// 0 stream of bytes, 1 messages.
        named_pipe_type: u32;
        /// 0 inbound, 1 outbound, 2 both.
        named_pipe_configuration: u32;
        /// Maximum number of instances of the pipe.
        maximum_instances: u32;
        /// Current number of instances.
        current_instances: u32;
        /// Bytes of the inbound buffer.
        inbound_quota: u32;
        /// Bytes ready to be read.
        read_data_available: u32;
        /// Bytes of the outbound buffer.
        outbound_quota: u32;
        /// Bytes that may be written.
        write_quota_available: u32;
        /// 1 disconnected, 2 listening, 3 connected, 4 closing.
        named_pipe_state: u32;
        /// 0 client, 1 server.
        named_pipe_end: u32;
    }
}
