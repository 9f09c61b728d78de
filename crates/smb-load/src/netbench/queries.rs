//! Queries by name as clients send them: CREATE, the query and CLOSE as one compound.

use smb_client::{ClientError, CreateArgs, File, Reply, Request, Tree};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    fscc::FileInformationClass,
    ids::FileId,
    msg::{InfoType, QueryDirectoryFlags},
};

use crate::{LoadError, error::refused};

/// QUERY_PATH_INFORMATION.
pub(super) fn path_info(
    tree: &Tree,
    path: &str,
    class: FileInformationClass,
    wanted: Status,
) -> Result<(), LoadError> {
    let query = Request::query_info(FileId::ANY, InfoType::FILE, class.0, 0, 256);
    let open = CreateArgs::open(path).access(AccessMask::FILE_READ_ATTRIBUTES);
    compound(tree, "path-info", &open, query, wanted)
}

/// FIND_FIRST.
pub(super) fn find(
    tree: &Tree,
    folder: &str,
    pattern: &str,
    wanted: Status,
) -> Result<(), LoadError> {
    let query = Request::query_directory(
        FileId::ANY,
        FileInformationClass::BOTH_DIRECTORY,
        pattern,
        QueryDirectoryFlags::RESTART_SCANS,
        16_384,
    );
    compound(tree, "find", &CreateArgs::directory(folder), query, wanted)
}

/// Sets FileBasicInformation; [MS-FSCC] 2.4.7: zeros change nothing.
pub(super) fn set_info(file: &File) -> Result<(), ClientError> {
    file.set(FileInformationClass::BASIC, &[0; 40])
}

/// The status of the query counts, which is that of a CREATE that failed.
fn compound(
    tree: &Tree,
    operation: &'static str,
    open: &CreateArgs,
    query: Request,
    wanted: Status,
) -> Result<(), LoadError> {
    let close = Request::close(FileId::ANY);
    let requests = vec![
        tree.address(open.request()),
        tree.address(query).related(),
        tree.address(close).related(),
    ];
    let replies = tree.client().compound(requests);
    let replies = replies.map_err(refused(operation))?;
    let status = replies.get(1).map_or(Status::SUCCESS, Reply::status);
    expect(operation, status, wanted)
}

/// An error unless the server answered as a correct one does.
pub(super) fn expect(
    operation: &'static str,
    got: Status,
    wanted: Status,
) -> Result<(), LoadError> {
    if got == wanted {
        return Ok(());
    }
    Err(LoadError::Status {
        operation,
        got,
        wanted,
    })
}
