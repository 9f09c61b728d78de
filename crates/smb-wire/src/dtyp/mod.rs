//! Security types of [MS-DTYP] 2.4 and 2.5: SID, ACE, ACL, security descriptor in its
//! self-relative form, the access check and the computation of a new object's descriptor.
//!
//! Declarations only. The two algorithms are here and not in the server because they are pure
//! functions fixed by the specification.

mod access_check;
mod ace;
mod acl;
mod inherit;
#[cfg(test)]
mod inherit_model;
#[cfg(test)]
mod random;
mod security_descriptor;
mod sid;

pub use access_check::maximal_access;
pub use ace::{Ace, AceBody, AceFlags, AceType};
pub use acl::{Acl, MAX_ACES, MAX_ACL_BYTES};
pub use inherit::inherit;
pub use security_descriptor::{
    MAX_SECURITY_DESCRIPTOR_BYTES, SecurityDescriptor, SecurityDescriptorControl,
    SecurityInformation,
};
pub use sid::{MAX_SUB_AUTHORITIES, Sid};
