//! FILE_NOTIFY_INFORMATION lists: the body of a CHANGE_NOTIFY response ([MS-FSCC] 2.7.1).
//!
//! The writer respects the length of the client's buffer: if an entry does not fit, the caller
//! answers STATUS_NOTIFY_ENUM_DIR instead ([MS-SMB2] 3.3.5.19).

use bytes::{BufMut, BytesMut};

use super::name::{put_name, read_name};
use super::record::{Chain, ChainWriter};
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

/// Packs changes into a buffer of the client's length.
#[derive(Debug)]
pub struct NotifyWriter(ChainWriter);

impl NotifyWriter {
    /// A list of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(ChainWriter::new(limit, 4))
    }

    /// Appends a change. Returns `false`, and appends nothing, if it does not fit.
    #[must_use]
    pub fn push(&mut self, action: FileAction, file_name: &str) -> bool {
        self.0.push(|out| {
            out.put_u32_le(0);
            out.put_u32_le(action.0);
            put_name(out, file_name);
        })
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The list.
    #[must_use]
    pub fn finish(self) -> BytesMut {
        self.0.finish()
    }
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
        let mut writer = NotifyWriter::new(1000);
        assert!(writer.push(FileAction::RENAMED_OLD_NAME, "a"));
        assert!(writer.push(FileAction::RENAMED_NEW_NAME, "d\\bcd"));
        let out = writer.finish();
        assert_eq!(&out[..16], b"\x10\0\0\0\x04\0\0\0\x02\0\0\0a\0\0\0");
        let list = read_notify_list(&out).unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[1].file_name, "d\\bcd");
        assert_eq!(list[1].action, FileAction::RENAMED_NEW_NAME);
        assert_eq!(read_notify_list(&[]), Ok(vec![]));
    }

    #[test]
    fn a_change_that_does_not_fit_leaves_no_trace() {
        let mut writer = NotifyWriter::new(29);
        assert!(writer.push(FileAction::ADDED, "a"));
        assert!(!writer.push(FileAction::ADDED, "b"));
        assert_eq!(&writer.finish()[..], b"\0\0\0\0\x01\0\0\0\x02\0\0\0a\0");
        let mut writer = NotifyWriter::new(30);
        assert!(writer.push(FileAction::ADDED, "a"));
        assert!(writer.push(FileAction::ADDED, "b"));
        assert_eq!(writer.finish().len(), 30);
    }
}
