//! The messages that validate a NEGOTIATE ([MS-SMB2] 2.2.31.4, 2.2.32.6) and list the server's network interfaces
//! ([MS-SMB2] 2.2.32.5).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::fscc::record::{Chain, encode_chain, records};
use crate::ids::Guid;

/// VALIDATE_NEGOTIATE_INFO request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ValidateNegotiateInfoRequest {
    /// Capabilities as negotiated.
    pub capabilities: u32,
    /// The client's GUID.
    pub guid: Guid,
    /// The client's security mode.
    pub security_mode: u16,
    /// The offered dialects.
    pub dialects: Vec<u16>,
}

impl ValidateNegotiateInfoRequest {
    /// Bytes before the dialects.
    pub const MIN: usize = 24;

    /// Reads the input.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer dialects than announced.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, "VALIDATE_NEGOTIATE_INFO");
        let capabilities = reader.u32()?;
        let guid = Guid(reader.array()?);
        let security_mode = reader.u16()?;
        let count = reader.u16()?;
        let dialects = (0..count).map(|_| reader.u16()).collect::<Result<_, _>>()?;
        Ok(Self {
            capabilities,
            guid,
            security_mode,
            dialects,
        })
    }

    /// Appends the input.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(self.capabilities);
        out.put_slice(&self.guid.0);
        out.put_u16_le(self.security_mode);
        out.put_u16_le(u16::try_from(self.dialects.len()).unwrap_or(u16::MAX));
        for dialect in self.dialects.iter().take(usize::from(u16::MAX)) {
            out.put_u16_le(*dialect);
        }
    }
}

records! {
    /// VALIDATE_NEGOTIATE_INFO response.
    ValidateNegotiateInfoResponse {
        /// The server's capabilities on this connection.
        capabilities: u32;
        /// The server's GUID.
        guid: Guid;
        /// The server's security mode.
        security_mode: u16;
        /// The dialect.
        dialect: u16;
    }
}

flags_of_the_wire! {
    /// The capabilities of an interface. One that spreads connections over cores (RSS) has clients open several to its
    /// one address.
    pub struct InterfaceCapability(u32) {
        RSS_CAPABLE = 1,
    }
}

/// One address of the server ([MS-SMB2] 2.2.32.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkInterfaceInfo {
    /// Number of the interface, the same for all its addresses; not 0.
    pub if_index: u32,
    /// Its capabilities.
    pub capability: InterfaceCapability,
    /// Bits per second.
    pub link_speed_bits: u64,
    /// The address.
    pub address: IpAddr,
    /// Scope of an IPv6 address.
    pub scope_id: u32,
}

/// Bytes of one entry, of which 128 are the socket address.
const ENTRY: usize = 152;
const FAMILY_IPV4: u16 = 2;
const FAMILY_IPV6: u16 = 0x17;

/// Encodes as many interfaces as fit into a list of at most `limit` bytes; returns the list and their number.
pub fn encode_network_interfaces(
    interfaces: &[NetworkInterfaceInfo],
    limit: usize,
) -> (BytesMut, usize) {
    encode_chain(interfaces, limit, 8, |interface, out| {
        // The entry begins with its NextEntryOffset.
        let start = out.len() - 4;
        out.put_u32_le(interface.if_index);
        out.put_u32_le(interface.capability.0);
        out.put_u32_le(0);
        out.put_u64_le(interface.link_speed_bits);
        match interface.address {
            IpAddr::V4(address) => {
                out.put_u16_le(FAMILY_IPV4);
                out.put_u16_le(0);
                out.put_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.put_u16_le(FAMILY_IPV6);
                out.put_u16_le(0);
                out.put_u32_le(0);
                out.put_slice(&address.octets());
                out.put_u32_le(interface.scope_id);
            }
        }
        out.resize(start + ENTRY, 0);
    })
}

/// Reads a list of interfaces; addresses of other families are omitted.
///
/// # Errors
/// [`Malformed`] for a chain that exceeds the buffer.
pub fn read_network_interfaces(bytes: &[u8]) -> Result<Vec<NetworkInterfaceInfo>, Malformed> {
    let mut interfaces = Vec::new();
    for entry in Chain::new(bytes, "NETWORK_INTERFACE_INFO") {
        let mut reader = Reader::new(entry?, "NETWORK_INTERFACE_INFO");
        reader.skip(4)?;
        let if_index = reader.u32()?;
        let capability = InterfaceCapability(reader.u32()?);
        reader.skip(4)?;
        let link_speed_bits = reader.u64()?;
        let family = reader.u16()?;
        reader.skip(2)?;
        let (address, scope_id) = match family {
            FAMILY_IPV4 => (IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?)), 0),
            FAMILY_IPV6 => {
                reader.skip(4)?;
                let address = Ipv6Addr::from(reader.array::<16>()?);
                (IpAddr::V6(address), reader.u32()?)
            }
            _ => continue,
        };
        interfaces.push(NetworkInterfaceInfo {
            if_index,
            capability,
            link_speed_bits,
            address,
            scope_id,
        });
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiations_round_trip() {
        let request = ValidateNegotiateInfoRequest {
            capabilities: 0x7f,
            guid: Guid([3; 16]),
            security_mode: 1,
            dialects: vec![0x202, 0x300],
        };
        let mut out = BytesMut::new();
        request.encode(&mut out);
        assert_eq!(ValidateNegotiateInfoRequest::read(&out), Ok(request));
        assert!(ValidateNegotiateInfoRequest::read(&out[..27]).is_err());
        assert_eq!(ValidateNegotiateInfoResponse::MIN, 24);
    }

    #[test]
    fn interfaces_round_trip() {
        let interfaces = ["192.0.2.1", "2001:db8::1"].map(|address| NetworkInterfaceInfo {
            if_index: 3,
            capability: InterfaceCapability::RSS_CAPABLE,
            link_speed_bits: 1_000_000_000,
            address: address.parse().unwrap(),
            scope_id: 0,
        });
        let (out, fitted) = encode_network_interfaces(&interfaces, 1000);
        assert_eq!((out.len(), fitted), (304, 2));
        assert_eq!(out[28..32], [192, 0, 2, 1]);
        assert_eq!(
            read_network_interfaces(&out).as_deref(),
            Ok(&interfaces[..])
        );
        assert_eq!(encode_network_interfaces(&interfaces, 303).1, 1);
    }
}
