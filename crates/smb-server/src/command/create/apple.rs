//! AAPL: what a Mac asks a server at the first CREATE of a session, and what it is told.
//!
//! The layout is that of Apple's "Time Machine over SMB Specification", where it is written down,
//! and of Apple's published client, where it is not. The client keeps the answer for the whole
//! session, all shares of it, and gives a mount up whose server does not answer again after a lost
//! connection: so every CREATE that asks is answered.
//!
//! A capability is announced only where it is there. None of the server's is: READ_DIR_ATTR and
//! NFS_ACE would change what listings and security descriptors mean, OSX_COPYFILE promises more than
//! SRV_COPYCHUNK does, and UNIX_BASED makes the client rely on symbolic links by reparse points. Of the
//! volume's it is full sync: a FLUSH with Reserved1 = 0xFFFF, as which F_FULLFSYNC comes, is stable
//! before its answer. A name is the same in either case, and RESOLVE_ID is not there.

use smb_wire::{
    create_context::{
        AppleBitmap, AppleRequest, AppleResponse, AppleServerCapabilities, AppleVolumeCapabilities,
        CreateContextList, name,
    },
    utf16,
};
use vfs::Vfs;

use crate::command::{Call, Failure};

/// The parts that a request asks for. Of other commands nothing is known, and they get no answer.
pub(super) fn asked(request: AppleRequest) -> Option<AppleBitmap> {
    match request {
        AppleRequest::ServerQuery { bitmap, .. } => Some(bitmap),
        AppleRequest::ResolveId { .. } | AppleRequest::Other { .. } => None,
    }
}

/// Answers a server query.
pub(super) fn push_answer<V: Vfs>(
    call: &Call<V>,
    asked: AppleBitmap,
    list: &mut CreateContextList,
) -> Result<(), Failure> {
    let full_sync = call.share()?.gate.honors_full_sync();
    let model = utf16::encode(&call.server().config().apple_model);
    let part = |bit| asked.contains(bit);
    let answer = AppleResponse {
        server_capabilities: part(AppleBitmap::SERVER_CAPABILITIES)
            .then(AppleServerCapabilities::empty),
        volume_capabilities: part(AppleBitmap::VOLUME_CAPABILITIES)
            .then(|| AppleVolumeCapabilities::SUPPORTS_FULL_SYNC.when(full_sync)),
        model: (part(AppleBitmap::MODEL_INFO) && !model.is_empty()).then_some(&model),
    };
    list.push_with(name::APPLE, |out| answer.encode(out));
    Ok(())
}
