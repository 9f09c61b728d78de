//! Reports of changes to those who watch directories ([MS-FSA] 2.1.4.1).

use std::sync::Arc;

use smb_wire::msg::NotifyFilter;
use vfs::Vfs;

use super::{Open, Server, breaks::perform};
use crate::file::{Change, Reported, SharePath};

/// Tells watchers of directories above what happened.
pub(crate) fn report<V: Vfs>(server: &Arc<Server<V>>, reports: &[Reported]) {
    let effects = server.files.changed(reports);
    perform(server, effects);
}

/// One change of an object that is no stream.
pub(crate) fn change(path: SharePath, action: u32, filter: NotifyFilter) -> Reported {
    Reported {
        path,
        stream: None,
        action,
        filter,
    }
}

/// The filter of a name's coming or going.
pub(crate) fn name_filter(directory: bool) -> NotifyFilter {
    if directory {
        NotifyFilter::DIR_NAME
    } else {
        NotifyFilter::FILE_NAME
    }
}

/// A change of what an open stands for, reported as [`Change::MODIFIED`].
pub(crate) fn modified<V: Vfs>(server: &Arc<Server<V>>, open: &Open<V>, filter: NotifyFilter) {
    if let Ok(path) = server.path_of(open) {
        report(server, &[change(path, Change::MODIFIED, filter)]);
    }
}
