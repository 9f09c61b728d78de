//! NTSTATUS: the result of a command ([MS-ERREF] 2.3).
//!
//! Names are those of the specification without `STATUS_`. An unnamed number is a value like
//! any other; severity is in the two highest bits ([MS-ERREF] 2.3, figure of NTSTATUS).

enum_of_the_wire! {
    /// The status of a reply.
    #[must_use]
    pub struct Status(u32) {
        SUCCESS = 0x0000_0000,
        TIMEOUT = 0x0000_0102,
        PENDING = 0x0000_0103,
        REPARSE = 0x0000_0104,
        SOME_NOT_MAPPED = 0x0000_0107,
        OPLOCK_BREAK_IN_PROGRESS = 0x0000_0108,
        NOTIFY_CLEANUP = 0x0000_010b,
        NOTIFY_ENUM_DIR = 0x0000_010c,
        BUFFER_OVERFLOW = 0x8000_0005,
        NO_MORE_FILES = 0x8000_0006,
        NO_MORE_EAS = 0x8000_0012,
        INVALID_EA_NAME = 0x8000_0013,
        EA_LIST_INCONSISTENT = 0x8000_0014,
        INVALID_EA_FLAG = 0x8000_0015,
        STOPPED_ON_SYMLINK = 0x8000_002d,
        SEC_E_UNSUPPORTED_FUNCTION = 0x8009_0302,
        SEC_E_INVALID_TOKEN = 0x8009_0308,
        UNSUCCESSFUL = 0xc000_0001,
        NOT_IMPLEMENTED = 0xc000_0002,
        INVALID_INFO_CLASS = 0xc000_0003,
        INFO_LENGTH_MISMATCH = 0xc000_0004,
        INVALID_HANDLE = 0xc000_0008,
        INVALID_PARAMETER = 0xc000_000d,
        NO_SUCH_DEVICE = 0xc000_000e,
        NO_SUCH_FILE = 0xc000_000f,
        INVALID_DEVICE_REQUEST = 0xc000_0010,
        END_OF_FILE = 0xc000_0011,
        MORE_PROCESSING_REQUIRED = 0xc000_0016,
        NO_MEMORY = 0xc000_0017,
        ACCESS_DENIED = 0xc000_0022,
        BUFFER_TOO_SMALL = 0xc000_0023,
        OBJECT_TYPE_MISMATCH = 0xc000_0024,
        OBJECT_NAME_INVALID = 0xc000_0033,
        OBJECT_NAME_NOT_FOUND = 0xc000_0034,
        OBJECT_NAME_COLLISION = 0xc000_0035,
        OBJECT_PATH_NOT_FOUND = 0xc000_003a,
        OBJECT_PATH_SYNTAX_BAD = 0xc000_003b,
        DATA_ERROR = 0xc000_003e,
        CRC_ERROR = 0xc000_003f,
        SHARING_VIOLATION = 0xc000_0043,
        QUOTA_EXCEEDED = 0xc000_0044,
        EAS_NOT_SUPPORTED = 0xc000_004f,
        EA_TOO_LARGE = 0xc000_0050,
        NONEXISTENT_EA_ENTRY = 0xc000_0051,
        NO_EAS_ON_FILE = 0xc000_0052,
        EA_CORRUPT_ERROR = 0xc000_0053,
        FILE_LOCK_CONFLICT = 0xc000_0054,
        LOCK_NOT_GRANTED = 0xc000_0055,
        DELETE_PENDING = 0xc000_0056,
        INVALID_OWNER = 0xc000_005a,
        INVALID_PRIMARY_GROUP = 0xc000_005b,
        NO_LOGON_SERVERS = 0xc000_005e,
        NO_SUCH_LOGON_SESSION = 0xc000_005f,
        PRIVILEGE_NOT_HELD = 0xc000_0061,
        NO_SUCH_USER = 0xc000_0064,
        WRONG_PASSWORD = 0xc000_006a,
        LOGON_FAILURE = 0xc000_006d,
        ACCOUNT_RESTRICTION = 0xc000_006e,
        INVALID_LOGON_HOURS = 0xc000_006f,
        INVALID_WORKSTATION = 0xc000_0070,
        PASSWORD_EXPIRED = 0xc000_0071,
        ACCOUNT_DISABLED = 0xc000_0072,
        NONE_MAPPED = 0xc000_0073,
        INVALID_ACL = 0xc000_0077,
        INVALID_SID = 0xc000_0078,
        INVALID_SECURITY_DESCR = 0xc000_0079,
        BAD_INHERITANCE_ACL = 0xc000_007d,
        RANGE_NOT_LOCKED = 0xc000_007e,
        DISK_FULL = 0xc000_007f,
        INSUFFICIENT_RESOURCES = 0xc000_009a,
        MEDIA_WRITE_PROTECTED = 0xc000_00a2,
        DEVICE_NOT_READY = 0xc000_00a3,
        BAD_IMPERSONATION_LEVEL = 0xc000_00a5,
        INSTANCE_NOT_AVAILABLE = 0xc000_00ab,
        PIPE_NOT_AVAILABLE = 0xc000_00ac,
        INVALID_PIPE_STATE = 0xc000_00ad,
        PIPE_BUSY = 0xc000_00ae,
        PIPE_DISCONNECTED = 0xc000_00b0,
        PIPE_CLOSING = 0xc000_00b1,
        PIPE_CONNECTED = 0xc000_00b2,
        PIPE_LISTENING = 0xc000_00b3,
        IO_TIMEOUT = 0xc000_00b5,
        FILE_FORCED_CLOSED = 0xc000_00b6,
        FILE_IS_A_DIRECTORY = 0xc000_00ba,
        NOT_SUPPORTED = 0xc000_00bb,
        BAD_NETWORK_PATH = 0xc000_00be,
        NETWORK_BUSY = 0xc000_00bf,
        UNEXPECTED_NETWORK_ERROR = 0xc000_00c4,
        NETWORK_NAME_DELETED = 0xc000_00c9,
        NETWORK_ACCESS_DENIED = 0xc000_00ca,
        BAD_NETWORK_NAME = 0xc000_00cc,
        TOO_MANY_SESSIONS = 0xc000_00ce,
        REQUEST_NOT_ACCEPTED = 0xc000_00d0,
        NOT_SAME_DEVICE = 0xc000_00d4,
        FILE_RENAMED = 0xc000_00d5,
        NO_SECURITY_ON_OBJECT = 0xc000_00d7,
        PIPE_EMPTY = 0xc000_00d9,
        NO_SUCH_DOMAIN = 0xc000_00df,
        OPLOCK_NOT_GRANTED = 0xc000_00e2,
        INVALID_OPLOCK_PROTOCOL = 0xc000_00e3,
        INTERNAL_ERROR = 0xc000_00e5,
        INVALID_USER_BUFFER = 0xc000_00e8,
        DIRECTORY_NOT_EMPTY = 0xc000_0101,
        FILE_CORRUPT_ERROR = 0xc000_0102,
        NOT_A_DIRECTORY = 0xc000_0103,
        NAME_TOO_LONG = 0xc000_0106,
        TOO_MANY_OPENED_FILES = 0xc000_011f,
        CANCELLED = 0xc000_0120,
        CANNOT_DELETE = 0xc000_0121,
        FILE_DELETED = 0xc000_0123,
        FILE_CLOSED = 0xc000_0128,
        LOCAL_DISCONNECT = 0xc000_013b,
        REMOTE_DISCONNECT = 0xc000_013c,
        PIPE_BROKEN = 0xc000_014b,
        LOGON_TYPE_NOT_GRANTED = 0xc000_015b,
        ILLEGAL_CHARACTER = 0xc000_0161,
        INVALID_DEVICE_STATE = 0xc000_0184,
        IO_DEVICE_ERROR = 0xc000_0185,
        TRUSTED_RELATIONSHIP_FAILURE = 0xc000_018d,
        ACCOUNT_EXPIRED = 0xc000_0193,
        FS_DRIVER_REQUIRED = 0xc000_019c,
        INVALID_LOCK_RANGE = 0xc000_01a1,
        USER_SESSION_DELETED = 0xc000_0203,
        INSUFF_SERVER_RESOURCES = 0xc000_0205,
        INVALID_BUFFER_SIZE = 0xc000_0206,
        CONNECTION_DISCONNECTED = 0xc000_020c,
        CONNECTION_RESET = 0xc000_020d,
        PASSWORD_MUST_CHANGE = 0xc000_0224,
        NOT_FOUND = 0xc000_0225,
        DUPLICATE_OBJECTID = 0xc000_022a,
        RETRY = 0xc000_022d,
        ACCOUNT_LOCKED_OUT = 0xc000_0234,
        CONNECTION_REFUSED = 0xc000_0236,
        PATH_NOT_COVERED = 0xc000_0257,
        TOO_MANY_LINKS = 0xc000_0265,
        VOLUME_DISMOUNTED = 0xc000_026e,
        NOT_A_REPARSE_POINT = 0xc000_0275,
        IO_REPARSE_TAG_INVALID = 0xc000_0276,
        IO_REPARSE_DATA_INVALID = 0xc000_0278,
        IO_REPARSE_TAG_NOT_HANDLED = 0xc000_0279,
        REPARSE_POINT_NOT_RESOLVED = 0xc000_0280,
        VOLUME_NOT_UPGRADED = 0xc000_029c,
        REPARSE_ATTRIBUTE_CONFLICT = 0xc000_02b2,
        NETWORK_SESSION_EXPIRED = 0xc000_035c,
        DOWNGRADE_DETECTED = 0xc000_0388,
        FILE_SYSTEM_LIMITATION = 0xc000_0427,
        REQUEST_OUT_OF_SEQUENCE = 0xc000_042a,
        SERVER_UNAVAILABLE = 0xc000_0466,
        FILE_NOT_AVAILABLE = 0xc000_0467,
        SHARE_UNAVAILABLE = 0xc000_0480,
        SYMLINK_CLASS_DISABLED = 0xc000_0715,
        CONTEXT_MISMATCH = 0xc000_0719,
        CANNOT_BREAK_OPLOCK = 0xc000_0909,
        INVALID_SIGNATURE = 0xc000_a000,
        AUTH_TAG_MISMATCH = 0xc000_a002,
        HASH_NOT_PRESENT = 0xc000_a101,
        SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP = 0xc05d_0000,
        SMB_BAD_CLUSTER_DIALECT = 0xc05d_0001,
    }
}

impl Status {
    /// Severity 3: the command failed.
    pub const fn is_error(self) -> bool {
        self.0 >> 30 == 3
    }

    /// Fails with this status if `condition` holds.
    ///
    /// # Errors
    /// This status.
    #[inline]
    pub const fn when(self, condition: bool) -> Result<(), Self> {
        if condition { Err(self) } else { Ok(()) }
    }

    /// Severity 0 or 1: the command succeeded (or is pending: STATUS_PENDING).
    pub const fn is_success(self) -> bool {
        self.0 >> 31 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_follow_the_top_bits() {
        assert!(Status::SUCCESS.is_success() && Status::PENDING.is_success());
        assert!(!Status::BUFFER_OVERFLOW.is_error());
        assert!(Status::OBJECT_NAME_NOT_FOUND.is_error());
        assert!(!Status::ACCESS_DENIED.is_success());
    }

    #[test]
    fn a_condition_that_holds_fails_with_the_status() {
        assert_eq!(Status::ACCESS_DENIED.when(false), Ok(()));
        let failed = Status::ACCESS_DENIED.when(true);
        assert_eq!(failed, Err(Status::ACCESS_DENIED));
    }

    #[test]
    fn statuses_print_their_name_or_their_number() {
        assert_eq!(Status::ACCESS_DENIED.to_string(), "ACCESS_DENIED");
        assert_eq!(format!("{:?}", Status(0xc123_4567)), "Status(0xc1234567)");
    }

    #[test]
    fn every_number_has_one_name() {
        let mut all: Vec<_> = Status::KNOWN.to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Status::KNOWN.len());
    }
}
