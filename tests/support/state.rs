//! All state of files that a refused request must leave unchanged, as lines of text: from the host,
//! and as a client sees it.

use std::fs::{self, File as HostFile};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use smb_client::{CreateArgs, File, Request, Tree};
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{InfoType, QueryInfoFlags, QueryInfoRequest, QueryInfoResponse};

/// Longest extended attribute that is read, in bytes.
const XATTR_MAX: usize = 4096;

/// Longer than a tick of the clock that sets inode times.
const TICK: Duration = Duration::from_millis(12);

/// Returns a reading that is not affected by reading: the first read after a change updates the
/// access time, and so does the second within the same tick (mount(8), relatime).
pub fn settled<T>(look: impl Fn() -> T) -> T {
    look();
    std::thread::sleep(TICK);
    look();
    look()
}

/// Describes a folder and everything below it on the host.
///
/// # Panics
/// When a file cannot be read.
#[must_use]
pub fn on_host(folder: &Path) -> Vec<String> {
    let mut lines = vec![inode(folder)];
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap()).collect();
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        if entry.file_type().unwrap().is_dir() {
            lines.extend(on_host(&entry.path()));
        } else {
            lines.push(inode(&entry.path()));
        }
    }
    lines
}

/// Describes a file or directory: its inode, its extended attributes and its content.
fn inode(path: &Path) -> String {
    let meta = fs::symlink_metadata(path).unwrap();
    let time = |seconds, nanoseconds| format!("{seconds}.{nanoseconds:09}");
    let mut line = format!(
        "{}: inode {} mode {:o} owner {}:{} links {} size {} blocks {} read {} written {} changed {}",
        path.display(),
        meta.ino(),
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.nlink(),
        meta.size(),
        meta.blocks(),
        time(meta.atime(), meta.atime_nsec()),
        time(meta.mtime(), meta.mtime_nsec()),
        time(meta.ctime(), meta.ctime_nsec()),
    );
    for (name, value) in xattrs(path) {
        line += &format!(" {name}={value:02x?}");
    }
    if meta.is_file() {
        // Reading must not update the access time.
        let flags = i32::try_from(OFlags::NOATIME.bits()).unwrap();
        let mut file = HostFile::options()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .unwrap();
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        line += &format!(" content {content:02x?}");
    }
    line
}

/// Returns the extended attributes of a file on the host.
///
/// # Panics
/// When they cannot be read.
#[must_use]
pub fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = [0; XATTR_MAX];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0);
    let value = |name: &[u8]| {
        let name = str::from_utf8(name).unwrap();
        let mut value = [0; XATTR_MAX];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        (name.to_owned(), value[..length].to_vec())
    };
    names.filter(|name| !name.is_empty()).map(value).collect()
}

/// Describes a file, stream or directory as seen by a client that may read it.
///
/// # Panics
/// When it cannot be opened for reading.
#[must_use]
pub fn by_smb(tree: &Tree, name: &str) -> Vec<String> {
    let args = CreateArgs::open(name).access(AccessMask::FILE_GENERIC_READ);
    let file = tree.create(&args).unwrap();
    let parts = SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
    let mut lines = vec![
        line_of(name, "all", &file.query(FileInformationClass::ALL)),
        line_of(
            name,
            "times",
            &file.query(FileInformationClass::NETWORK_OPEN),
        ),
        line_of(name, "streams", &file.query(FileInformationClass::STREAM)),
        line_of(name, "attributes", &all_attributes(&file)),
        line_of(
            name,
            "security",
            &file.query_info(InfoType::SECURITY, 0, parts.bits()),
        ),
    ];
    lines.push(match file.list("*") {
        Ok(entries) => format!("{name} entries {entries:?}"),
        Err(_) => line_of(name, "content", &file.read_all()),
    });
    file.close().unwrap();
    lines
}

/// Queries all extended attributes, from the first: without RESTART_SCAN a query continues after the
/// last one.
///
/// # Errors
/// The server's status, or any other error.
pub fn all_attributes(file: &File) -> Result<Vec<u8>, smb_client::ClientError> {
    let request = Request::new(&QueryInfoRequest {
        info_type: InfoType::FILE,
        info_class: FileInformationClass::FULL_EA.0,
        output_buffer_length: 65_536,
        additional_information: 0,
        flags: QueryInfoFlags::RESTART_SCAN,
        file_id: file.id(),
        input: &[],
    });
    let reply = file.tree().call(request)?;
    Ok(QueryInfoResponse::read(&reply.message)?.buffer.to_vec())
}

/// FILE_FULL_EA_INFORMATION with one attribute ([MS-FSCC] 2.4.16).
///
/// # Panics
/// When the name or the value is too long.
#[must_use]
pub fn ea_list(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, 0, u8::try_from(name.len()).unwrap()];
    out.extend_from_slice(&u16::try_from(value.len()).unwrap().to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    out.extend_from_slice(value);
    out
}

fn line_of(name: &str, what: &str, answer: &Result<Vec<u8>, smb_client::ClientError>) -> String {
    match answer {
        Ok(bytes) => format!("{name} {what} {bytes:02x?}"),
        Err(error) => format!("{name} {what} refused: {error}"),
    }
}

/// Asserts that both are the same, and prints only the differences.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn assert_same(before: &[String], after: &[String], why: &str) {
    if before == after {
        return;
    }
    let gone = before.iter().filter(|line| !after.contains(line));
    let come = after.iter().filter(|line| !before.contains(line));
    let list = |sign, lines: Vec<&String>| -> String {
        lines
            .into_iter()
            .map(|line| format!("\n{sign} {line}"))
            .collect()
    };
    panic!(
        "{why} changed{}{}",
        list('-', gone.collect()),
        list('+', come.collect())
    );
}
