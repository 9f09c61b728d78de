//! The bits of DOS attributes, as in [MS-FSCC] 2.6.

pub(super) const READONLY: u32 = 0x1;
pub(super) const HIDDEN: u32 = 0x2;
pub(super) const SYSTEM: u32 = 0x4;
pub(super) const DIRECTORY: u32 = 0x10;
pub(super) const ARCHIVE: u32 = 0x20;
pub(super) const NORMAL: u32 = 0x80;
pub(super) const TEMPORARY: u32 = 0x100;
pub(super) const SPARSE: u32 = 0x200;
pub(super) const OFFLINE: u32 = 0x1000;
pub(super) const NOT_CONTENT_INDEXED: u32 = 0x2000;
/// The attributes that a client may set.
pub(super) const SETTABLE: u32 =
    READONLY | HIDDEN | SYSTEM | ARCHIVE | TEMPORARY | OFFLINE | NOT_CONTENT_INDEXED;
