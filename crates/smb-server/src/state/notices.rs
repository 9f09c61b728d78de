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

/// The report of a change of a named stream of a file or directory in the directory `parent`.
pub(crate) fn change_of_stream(
    path: SharePath,
    parent: Option<FileKey>,
    stream: &str,
    action: u32,
    filter: NotifyFilter,
) -> Reported {
    Reported {
        stream: Some(stream.to_owned()),
        ..change(path, parent, action, filter)
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

/// The path of an open, and the directory that has its name; none if the name is gone, because another file may have it
/// by now.
fn named<V: Vfs>(server: &Server<V>, open: &Open<V>) -> Option<(SharePath, Option<FileKey>)> {
    let disk = open.disk().ok()?;
    let parent = server.files.parent_of(&disk.place, open.engine)?;
    Some((server.path_of(open).ok()?, Some(parent)))
}

/// Reports a change of an open's file or directory as [`Change::MODIFIED`], unless its name is gone.
pub(crate) fn modified<V: Vfs>(server: &Arc<Server<V>>, open: &Open<V>, filter: NotifyFilter) {
    if let Some((path, parent)) = named(server, open) {
        report(server, &[change(path, parent, Change::MODIFIED, filter)]);
    }
}

/// Reports a change of an open's named stream, unless the name of its file is gone.
pub(crate) fn stream_changed<V: Vfs>(
    server: &Arc<Server<V>>,
    open: &Open<V>,
    stream: &str,
    (action, filter): (u32, NotifyFilter),
) {
    if let Some((path, parent)) = named(server, open) {
        let changed = change_of_stream(path, parent, stream, action, filter);
        report(server, &[changed]);
    }
}
