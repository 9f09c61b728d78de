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

/// CREATE, a query and CLOSE as one compound.
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
    let statuses: Vec<Status> = replies.iter().map(Reply::status).collect();
    expect(operation, outcome(&statuses, wanted), wanted)
}

/// The status of a compound: that of its first part that fails if all are to succeed, else that of the query, which is
/// also that of a CREATE that failed.
fn outcome(statuses: &[Status], wanted: Status) -> Status {
    let mut all = statuses.iter().copied();
    let counts = match wanted == Status::SUCCESS {
        true => all.find(|status| *status != Status::SUCCESS),
        false => all.nth(1),
    };
    counts.unwrap_or(Status::SUCCESS)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_compound_has_to_succeed() {
        let (good, missing) = (Status::SUCCESS, Status::OBJECT_NAME_NOT_FOUND);
        let denied = Status::ACCESS_DENIED;
        assert_eq!(outcome(&[good, good, good], good), good);
        for place in 0..3 {
            let mut statuses = [good; 3];
            statuses[place] = denied;
            assert_eq!(outcome(&statuses, good), denied);
        }
        // The CLOSE of a search that found nothing succeeds.
        assert_eq!(outcome(&[good, missing, good], missing), missing);
        assert_eq!(outcome(&[missing; 3], missing), missing);
        assert_eq!(outcome(&[good; 3], missing), good);
    }
}
