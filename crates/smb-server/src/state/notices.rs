//! Reports changes to the watchers of directories ([MS-FSA] 2.1.4.1).

use std::sync::Arc;

use smb_wire::msg::NotifyFilter;
use vfs::{FileKey, Vfs};

use super::{Open, Server, breaks::perform};
use crate::file::{Change, Reported, SharePath};

/// Reports changes to the watchers of the directories above.
pub(crate) fn report<V: Vfs>(server: &Arc<Server<V>>, reports: &[Reported]) {
    let effects = server.files.changed(reports);
    perform(server, effects);
}

/// The report of a change of a file or directory in the directory `parent`.
pub(crate) fn change(
    path: SharePath,
    parent: Option<FileKey>,
    action: u32,
    filter: NotifyFilter,
) -> Reported {
    Reported {
        path,
        parent,
        stream: None,
        action,
        filter,
    }
}

/// The report of a change of a named stream of the file or directory at the path.
pub(crate) fn change_of_stream(
    path: SharePath,
    stream: &str,
    action: u32,
    filter: NotifyFilter,
) -> Reported {
    Reported {
        stream: Some(stream.to_owned()),
        ..change(path, None, action, filter)
    }
}

/// The filter for the data of a named stream.
pub(crate) const STREAM_DATA: NotifyFilter =
    NotifyFilter(NotifyFilter::STREAM_SIZE.0 | NotifyFilter::STREAM_WRITE.0);

/// The filter for a name that stays and now leads to another file ([MS-FSA] 2.1.5.15.7, 2.1.5.15.12).
pub(crate) const ANOTHER_FILE: NotifyFilter = NotifyFilter(
    NotifyFilter::ATTRIBUTES.0
        | NotifyFilter::SIZE.0
        | NotifyFilter::LAST_WRITE.0
        | NotifyFilter::LAST_ACCESS.0
        | NotifyFilter::CREATION.0
        | NotifyFilter::SECURITY.0
        | NotifyFilter::EA.0,
);

/// The filter for a name that is made or removed.
pub(crate) fn name_filter(directory: bool) -> NotifyFilter {
    if directory {
        NotifyFilter::DIR_NAME
    } else {
        NotifyFilter::FILE_NAME
    }
}

/// Reports a change of an open's file, directory or stream as [`Change::MODIFIED`], unless its name is gone: another
/// file may have that by now.
pub(crate) fn modified<V: Vfs>(server: &Arc<Server<V>>, open: &Open<V>, filter: NotifyFilter) {
    if let (Ok(disk), Ok(path)) = (open.disk(), server.path_of(open))
        && !server.files.is_unlinked(&disk.place, open.engine)
    {
        let parent = server.files.parent_of(&disk.place, open.engine);
        report(server, &[change(path, parent, Change::MODIFIED, filter)]);
    }
}
