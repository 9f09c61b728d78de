//! FILE_NOTIFY_INFORMATION lists: the body of a CHANGE_NOTIFY response ([MS-FSCC] 2.7.1).
//!
//! A list is not longer than the client's buffer: if an entry does not fit, the caller answers
//! STATUS_NOTIFY_ENUM_DIR instead ([MS-SMB2] 3.3.5.19).

use bytes::{BufMut, BytesMut};

use super::name::{put_name, read_name};
use super::record::{Chain, encode_chain};
use crate::codec::{Malformed, Reader};

enum_of_the_wire! {
    /// The kind of a change ([MS-FSCC] 2.7.1).
    pub struct FileAction(u32) {
        ADDED = 1,
        REMOVED = 2,
        MODIFIED = 3,
        RENAMED_OLD_NAME = 4,
        RENAMED_NEW_NAME = 5,
        ADDED_STREAM = 6,
        REMOVED_STREAM = 7,
        MODIFIED_STREAM = 8,
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNotifyEntry {
    /// The kind of the change.
    pub action: FileAction,
    /// The path of the changed name, relative to the watched directory, with backslashes.
    pub file_name: String,
}

/// Encodes as many of `changes` as fit into a list of at most `limit` bytes; returns the list and their number.
pub fn encode_notify_list<'a>(
    changes: impl IntoIterator<Item = (FileAction, &'a str)>,
    limit: usize,
) -> (BytesMut, usize) {
    encode_chain(changes, limit, 4, |(action, file_name), out| {
        out.put_u32_le(action.0);
        put_name(out, file_name);
    })
}

/// Reads a list of changes.
///
/// # Errors
/// [`Malformed`] for a chain that exceeds the buffer or a name that is not valid UTF-16.
pub fn read_notify_list(bytes: &[u8]) -> Result<Vec<FileNotifyEntry>, Malformed> {
    const WHAT: &str = "FILE_NOTIFY_INFORMATION";
    Chain::new(bytes, WHAT)
        .map(|entry| {
            let mut reader = Reader::new(entry?, WHAT);
            reader.skip(4)?;
            Ok(FileNotifyEntry {
                action: FileAction(reader.u32()?),
                file_name: read_name(&mut reader)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_chained_on_four_bytes() {
        let changes = [
            (FileAction::RENAMED_OLD_NAME, "a"),
            (FileAction::RENAMED_NEW_NAME, "d\\bcd"),
        ];
        let (out, fitted) = encode_notify_list(changes, 1000);
        assert_eq!(fitted, 2);
        assert_eq!(&out[..16], b"\x10\0\0\0\x04\0\0\0\x02\0\0\0a\0\0\0");
        let list = read_notify_list(&out).unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[1].file_name, "d\\bcd");
        assert_eq!(list[1].action, FileAction::RENAMED_NEW_NAME);
        assert_eq!(read_notify_list(&[]), Ok(vec![]));
    }

    #[test]
    fn a_change_that_does_not_fit_leaves_no_trace() {
        let changes = [(FileAction::ADDED, "a"), (FileAction::ADDED, "b")];
        let (out, fitted) = encode_notify_list(changes, 29);
        assert_eq!(fitted, 1);
        assert_eq!(&out[..], b"\0\0\0\0\x01\0\0\0\x02\0\0\0a\0");
        let (out, fitted) = encode_notify_list(changes, 30);
        assert_eq!((out.len(), fitted), (30, 2));
    }
}
