//! The source that `check` reads: a folder of a share, or a folder of this machine (mounted, or the server's own).
//!
//! A loss (no such name, past the end, a medium that cannot be read) is distinguished from a failure to look (no
//! access, no connection): the second is never reported as the first.

use std::{
    collections::BTreeSet,
    fs,
    io::{ErrorKind, Read, Seek, SeekFrom},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    fscc::{FileBasicInformation, FileInformationClass},
    ids::FileTime,
};
use vfs::posix::name::DEPOT;

use super::{access::Place, plan::STREAM};

/// Most read at once, bytes.
const PIECE: u32 = 1 << 20;
/// Samba's and Holdfast's attribute for the stream; the value ends in a zero byte of theirs.
const STREAM_ATTRIBUTE: &str = "user.DosStream.verify:$DATA";
/// Longest value of an extended attribute of Linux, bytes.
const ATTRIBUTE_MAX: usize = 65_536;

/// Why nothing was read.
#[derive(Debug)]
pub(super) enum Fault {
    /// There is no such name.
    Absent,
    /// The medium, or the file system, cannot give it back.
    Unreadable(String),
    /// Something else: nothing is known.
    Unknown(String),
}

/// Something that holds a run's files.
pub(super) trait Source {
    /// Up to `length` bytes; fewer only at the end.
    fn read(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, Fault>;

    /// The same of its stream [`STREAM`].
    fn read_stream(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, Fault>;

    /// When its contents were modified last: a FILETIME.
    fn modified(&mut self, name: &str) -> Result<u64, Fault>;

    /// All names in the folder; none where it is missing.
    fn names(&mut self) -> Result<BTreeSet<String>, String>;

    /// Most bytes that [`Source::read`] gives.
    fn piece(&self) -> u32;
}

pub(super) struct Share {
    tree: Tree,
    place: Place,
    /// The last file read, left open.
    open: Option<(String, File)>,
}

impl Share {
    pub(super) fn new(tree: Tree, place: Place) -> Self {
        Self {
            tree,
            place,
            open: None,
        }
    }

    fn file(&mut self, name: &str) -> Result<File, ClientError> {
        if let Some((open, file)) = &self.open
            && open == name
        {
            return Ok(file.clone());
        }
        if let Some((_, file)) = self.open.take() {
            file.close()?;
        }
        let path = self.place.path(name);
        let args = CreateArgs::open(&path).access(AccessMask::FILE_GENERIC_READ);
        let file = self.tree.create(&args)?;
        self.open = Some((name.to_owned(), file.clone()));
        Ok(file)
    }
}

/// The modification time of an open file as the server reports it: a FILETIME.
pub(super) fn modified(file: &File) -> Result<u64, ClientError> {
    let bytes = file.query(FileInformationClass::BASIC)?;
    let basic = FileBasicInformation::read(&bytes)?;
    Ok(basic.last_write_time.0)
}

fn fault(error: &ClientError) -> Fault {
    const DISK_CORRUPT: Status = Status(0xc000_0032);
    const UNEXPECTED_IO: Status = Status(0xc000_00e9);
    match error.status() {
        Some(Status::OBJECT_NAME_NOT_FOUND | Status::OBJECT_PATH_NOT_FOUND) => Fault::Absent,
        Some(
            Status::DATA_ERROR
            | Status::CRC_ERROR
            | Status::IO_DEVICE_ERROR
            | Status::FILE_CORRUPT_ERROR
            | DISK_CORRUPT
            | UNEXPECTED_IO,
        ) => Fault::Unreadable(error.to_string()),
        _ => Fault::Unknown(error.to_string()),
    }
}

impl Source for Share {
    fn read(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, Fault> {
        let file = self.file(name).map_err(|error| fault(&error))?;
        let mut data = Vec::new();
        while data.len() < length as usize {
            let at = offset + data.len() as u64;
            let left = length - u32::try_from(data.len()).unwrap_or(length);
            match file.read(at, left.min(self.piece())) {
                Ok(more) if more.is_empty() => break,
                Ok(more) => data.extend_from_slice(&more),
                Err(ClientError::Status(Status::END_OF_FILE)) => break,
                Err(error) => return Err(fault(&error)),
            }
        }
        Ok(data)
    }

    fn read_stream(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, Fault> {
        self.read(&format!("{name}:{STREAM}"), offset, length)
    }

    fn modified(&mut self, name: &str) -> Result<u64, Fault> {
        let file = self.file(name).map_err(|error| fault(&error))?;
        modified(&file).map_err(|error| fault(&error))
    }

    fn names(&mut self) -> Result<BTreeSet<String>, String> {
        match self.tree.list(self.place.folder(), "*") {
            Ok(entries) => Ok(entries.into_iter().map(|entry| entry.file_name).collect()),
            Err(error) => match fault(&error) {
                Fault::Absent => Ok(BTreeSet::new()),
                Fault::Unreadable(why) | Fault::Unknown(why) => Err(why),
            },
        }
    }

    fn piece(&self) -> u32 {
        let most = self.tree.client().negotiated().max_read_size;
        most.clamp(1, PIECE)
    }
}

/// A folder of this machine.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// Whether the share that this folder is in may keep its streams in files, whose names only a server knows.
    fn may_have_depot(&self) -> bool {
        let path = fs::canonicalize(&self.0).unwrap_or_else(|_| self.0.clone());
        path.ancestors().any(|above| above.join(DEPOT).is_dir())
    }
}

fn local_fault(error: &std::io::Error) -> Fault {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Fault::Absent,
        // EIO and EUCLEAN ("structure needs cleaning"), which have no kind of their own.
        _ if matches!(error.raw_os_error(), Some(libc::EIO | libc::EUCLEAN)) => {
            Fault::Unreadable(error.to_string())
        }
        _ => Fault::Unknown(error.to_string()),
    }
}

fn read_at(path: &Path, offset: u64, length: u32) -> std::io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut data = Vec::new();
    file.take(u64::from(length)).read_to_end(&mut data)?;
    Ok(data)
}

impl Source for Folder {
    fn read(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, Fault> {
        read_at(&self.0.join(name), offset, length).map_err(|error| local_fault(&error))
    }

    fn read_stream(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, Fault> {
        // A mount of the share knows streams by name; the server's own folder has attributes.
        match self.read(&format!("{name}:{STREAM}"), offset, length) {
            Err(Fault::Absent) => {}
            other => return other,
        }
        let path = self.0.join(name);
        fs::symlink_metadata(&path).map_err(|error| local_fault(&error))?;
        let mut value = vec![0; ATTRIBUTE_MAX];
        match rustix::fs::getxattr(&path, STREAM_ATTRIBUTE, &mut value) {
            Ok(got) => {
                value.truncate(got.saturating_sub(1));
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = value.get(from..).unwrap_or_default();
                Ok(rest.iter().copied().take(length as usize).collect())
            }
            Err(rustix::io::Errno::NODATA) if self.may_have_depot() => Err(Fault::Unknown(
                format!("its stream may be below {DEPOT}, and is found by way of the share only"),
            )),
            Err(rustix::io::Errno::NODATA) => Err(Fault::Absent),
            Err(error) => Err(local_fault(&error.into())),
        }
    }

    fn modified(&mut self, name: &str) -> Result<u64, Fault> {
        let meta = fs::metadata(self.0.join(name)).map_err(|error| local_fault(&error))?;
        let nanos = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
        Ok(FileTime::from_unix(meta.mtime(), nanos).0)
    }

    fn names(&mut self) -> Result<BTreeSet<String>, String> {
        let said = |error: std::io::Error| format!("{}: {error}", self.0.display());
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(said(error)),
        };
        let mut names = BTreeSet::new();
        for entry in entries {
            let name = entry.map_err(said)?.file_name();
            names.insert(String::from_utf8_lossy(name.as_bytes()).into_owned());
        }
        Ok(names)
    }

    fn piece(&self) -> u32 {
        PIECE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_may_be_in_a_depot_is_not_called_lost() {
        let share = tempfile::tempdir().unwrap();
        let folder = share.path().join("verify");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("f"), "").unwrap();
        fs::create_dir(share.path().join(DEPOT)).unwrap();
        let found = Folder(folder).read_stream("f", 0, 9);
        assert!(matches!(found, Err(Fault::Unknown(_))), "{found:?}");
    }
}
