//! NTLM version 2 ([MS-NLMP]): messages, keys, and the two ends of the exchange.
//!
//! NTLMv1 and LM responses are refused. An NTLMv2 proof and its session key do not depend on extended session security
//! ([MS-NLMP] 3.3.2, 3.4.5.1), so the server takes clients that do not know it, such as some printers. Names may come
//! in an OEM character set. Signing is implemented only as far as SPNEGO's mechListMIC needs it, and only with extended
//! session security: SMB signs its messages by its own means.

pub(crate) mod client;
pub(crate) mod keys;
pub(crate) mod message;
#[cfg(test)]
mod oem_tests;
pub(crate) mod server;
#[cfg(test)]
mod tests;

/// First bytes of every NTLM message.
pub(crate) const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";

/// Length of an NTLM message signature, and so of a mechListMIC.
pub(crate) const MIC_LEN: usize = 16;
