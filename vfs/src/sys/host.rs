//! stub
pub type HostDisk = super::SysDisk;
