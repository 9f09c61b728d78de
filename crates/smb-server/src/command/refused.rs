//! The log line for a refused request at level debug: the user, the request and the status.
//!
//! Nothing is formatted while that level is off. Names come from clients: they are shortened, and unprintable
//! characters are escaped.

use smb_wire::{
    header::Command,
    msg::{CreateRequest, IoctlRequest, QueryInfoRequest, SetInfoRequest, TreeConnectRequest},
    status::Status,
    utf16,
};
use vfs::Vfs;

use super::Call;

const NAME_MAX: usize = 256;

/// Logs that a request was answered with an error.
pub(super) fn log<V: Vfs>(call: &Call<V>, status: Status) {
    // This status is an error by its severity, although the login continues.
    let goes_on = status == Status::MORE_PROCESSING_REQUIRED;
    if !tracing::enabled!(tracing::Level::DEBUG) || !status.is_error() || goes_on {
        return;
    }
    let token = call.token().ok();
    let user = token.as_ref().map_or("", |token| token.user.as_str());
    let share = call.tree.as_ref().map_or("", |tree| tree.name());
    let (path, asked) = (path(call), asked(call));
    tracing::debug!(
        peer = %call.connection.peer,
        command = %call.header.command,
        %status,
        user,
        share,
        path = ?path.chars().take(NAME_MAX).collect::<String>(),
        asked,
        "request refused"
    );
}

/// The object of the request: the name in the request, or that of its open.
fn path<V: Vfs>(call: &Call<V>) -> String {
    let text = |name: &[u8]| utf16::decode(name, "name").unwrap_or_default();
    match call.header.command {
        Command::CREATE => {
            CreateRequest::read(&call.message).map_or_else(|_| String::new(), |r| text(r.name))
        }
        Command::TREE_CONNECT => {
            TreeConnectRequest::read(&call.message).map_or_else(|_| String::new(), |r| text(r.path))
        }
        _ => {
            let open = call.chain.file.get().and_then(|id| {
                let session = call.session().ok()?;
                session.tables().opens.get(&id.volatile).cloned()
            });
            open.map_or_else(String::new, |open| call.server().shown_path(&open))
        }
    }
}

/// The variant of the command that was requested.
fn asked<V: Vfs>(call: &Call<V>) -> String {
    let message = &call.message;
    let asked = match call.header.command {
        Command::CREATE => CreateRequest::read(message).map(|asked| {
            let (access, options) = (asked.desired_access, asked.options);
            format!("{} {access} {options}", asked.disposition)
        }),
        Command::QUERY_INFO => QueryInfoRequest::read(message)
            .map(|asked| format!("{} {}", asked.info_type, asked.info_class)),
        Command::SET_INFO => SetInfoRequest::read(message)
            .map(|asked| format!("{} {}", asked.info_type, asked.info_class)),
        Command::IOCTL => IoctlRequest::read(message).map(|asked| asked.ctl_code.to_string()),
        _ => return String::new(),
    };
    asked.unwrap_or_else(|malformed| malformed.to_string())
}
