//! AAPL: the query that a Mac sends with the first CREATE of a session, and its answer.
//!
//! The layout follows Apple's "Time Machine over SMB Specification", and Apple's published client where the
//! specification says nothing. The client keeps the answer for the whole session and all of its shares, and unmounts if
//! the server does not answer again after a lost connection. So every CREATE that asks is answered.
//!
//! A capability is announced only if the server has it. It has none of the server capabilities: READ_DIR_ATTR and
//! NFS_ACE would change the meaning of listings and security descriptors, OSX_COPYFILE promises more than
//! SRV_COPYCHUNK does, and UNIX_BASED makes the client rely on symbolic links by reparse points. Of the volume
//! capabilities it has full sync: a FLUSH with Reserved1 = 0xFFFF, which the client sends for F_FULLFSYNC, is
//! stable before its answer. Names are not case-sensitive, and RESOLVE_ID is not supported.

use smb_wire::{
    create_context::{
        AppleBitmap, AppleRequest, AppleResponse, AppleServerCapabilities, AppleVolumeCapabilities,
        CreateContextList, name,
    },
    utf16,
};
use vfs::Vfs;

use crate::{command::Call, failure::Failure};

/// The parts that a request asks for. Other commands are unknown and get no answer.
pub(super) fn asked(request: AppleRequest) -> Option<AppleBitmap> {
    match request {
        AppleRequest::ServerQuery { bitmap, .. } => Some(bitmap),
        AppleRequest::ResolveId { .. } | AppleRequest::Other { .. } => None,
    }
}

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
