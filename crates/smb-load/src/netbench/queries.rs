//! Queries by name as clients send them: CREATE, the query and CLOSE as one compound.

use smb_client::{ClientError, CreateArgs, File, Reply, Request, Tree};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    fscc::{DirectoryEntries, DirectoryFormat, FileInformationClass},
    ids::FileId,
    msg::{InfoType, QueryDirectoryFlags, QueryDirectoryResponse},
};

use crate::{LoadError, error::refused};

pub(super) fn path_info(
    tree: &Tree,
    path: &str,
    class: FileInformationClass,
    wanted: Status,
) -> Result<(), LoadError> {
    let query = Request::query_info(FileId::ANY, InfoType::FILE, class.0, 0, 256);
    let open = CreateArgs::open(path).access(AccessMask::FILE_READ_ATTRIBUTES);
    compound(tree, "path-info", &open, query, wanted).map(|_| ())
}

/// The class of the entries of [`find`].
const CLASS: FileInformationClass = FileInformationClass::BOTH_DIRECTORY;

/// FIND_FIRST: a search that succeeds must have found what it searched for.
pub(super) fn find(
    tree: &Tree,
    folder: &str,
    pattern: &str,
    wanted: Status,
) -> Result<(), LoadError> {
    let query = Request::query_directory(
        FileId::ANY,
        CLASS,
        pattern,
        QueryDirectoryFlags::RESTART_SCANS,
        16_384,
    );
    let open = CreateArgs::directory(folder);
    let replies = compound(tree, "find", &open, query, wanted)?;
    match replies.get(1) {
        Some(reply) if wanted == Status::SUCCESS => found(reply, pattern).map_err(refused("find")),
        _ => Ok(()),
    }
}

/// An error unless the answer to a search has the name, or any name that matches wildcards.
fn found(reply: &Reply, pattern: &str) -> Result<(), ClientError> {
    let entries = QueryDirectoryResponse::read(&reply.message)?.buffer;
    match has(entries, pattern)? {
        true => Ok(()),
        false => Err(ClientError::Protocol("a search did not find what is there")),
    }
}

fn has(entries: &[u8], pattern: &str) -> Result<bool, ClientError> {
    let format = DirectoryFormat::of(CLASS).ok_or(ClientError::Usage("no directory class"))?;
    // [MS-FSA] 2.1.4.4: the wildcards.
    let is_name = !pattern.contains(['*', '?', '<', '>', '"']);
    let mut is_there = false;
    for entry in DirectoryEntries::new(format, entries) {
        let name = entry?.file_name;
        is_there |= !is_name || name.eq_ignore_ascii_case(pattern);
    }
    Ok(is_there)
}

/// Sets FileBasicInformation; [MS-FSCC] 2.4.7: zeros change nothing.
pub(super) fn set_info(file: &File) -> Result<(), ClientError> {
    file.set(FileInformationClass::BASIC, &[0; 40])
}

/// CREATE, a query and CLOSE as one compound; returns their answers.
fn compound(
    tree: &Tree,
    operation: &'static str,
    open: &CreateArgs,
    query: Request,
    wanted: Status,
) -> Result<Vec<Reply>, LoadError> {
    let close = Request::close(FileId::ANY);
    let requests = vec![
        tree.address(open.request()),
        tree.address(query).related(),
        tree.address(close).related(),
    ];
    let replies = tree.client().compound(requests);
    let replies = replies.map_err(refused(operation))?;
    let statuses: Vec<Status> = replies.iter().map(Reply::status).collect();
    expect(operation, outcome(&statuses, wanted), wanted)?;
    Ok(replies)
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
    use smb_wire::fscc::{DirectoryEntry, DirectoryWriter, Pushed};

    use super::*;

    #[test]
    fn a_search_must_find_the_name_that_is_there() {
        let format = DirectoryFormat::of(CLASS).unwrap();
        let answer = |names: &[&str]| {
            let mut writer = DirectoryWriter::new(format, 16_384);
            for name in names {
                let entry = DirectoryEntry {
                    file_name: *name,
                    ..DirectoryEntry::default()
                };
                assert_eq!(writer.push(&entry), Pushed::Pushed);
            }
            writer.finish()
        };
        let both = answer(&["doc-001.dat", "doc-002.dat"]);
        assert!(has(&both, "doc-002.dat").unwrap() && has(&both, "DOC-001.DAT").unwrap());
        assert!(!has(&both, "doc-003.dat").unwrap() && !has(&both, "doc-00").unwrap());
        assert!(has(&both, "*").unwrap() && has(&both, "<.DAT").unwrap());
        assert!(!has(&[], "*").unwrap() && !has(&[], "doc-001.dat").unwrap());
        let cut = both.len() - 1;
        assert!(has(&both[..cut], "*").is_err());
    }

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
