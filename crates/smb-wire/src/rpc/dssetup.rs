//! dssetup, the setup of the directory service: DsRolerGetPrimaryDomainInformation ([MS-DSSP] 3.2.5.1), by which
//! Windows' dialog for users and groups learns whether a computer is in a domain. Every other operation is out of
//! range.

use bytes::BytesMut;

use super::ndr::{NdrReader, NdrWriter};
use super::pdu::FaultStatus;
use super::srvsvc::Win32Error;

/// DsRolePrimaryDomainInfoBasic.
const LEVEL_BASIC: u16 = 1;

/// DsRole_RoleStandaloneServer.
const STANDALONE_SERVER: u16 = 2;

/// Decodes a stub; returns the level.
///
/// # Errors
/// OP_RNG_ERROR for another operation, BAD_STUB_DATA for a stub that does not match it.
pub fn decode_level(opnum: u16, stub: &[u8]) -> Result<u16, FaultStatus> {
    if opnum != 0 {
        return Err(FaultStatus::OP_RNG_ERROR);
    }
    Ok(NdrReader::new(stub).u16()?)
}

/// Encodes the response of a server that belongs to a workgroup and to no domain; ERROR_INVALID_PARAMETER for levels
/// other than the basic one.
pub fn encode_primary_domain_information(level: u16, workgroup: &str) -> BytesMut {
    let mut writer = NdrWriter::new();
    let known = level == LEVEL_BASIC;
    writer.pointer(known);
    if known {
        writer.u16(level);
        writer.align(4);
        writer.u16(STANDALONE_SERVER);
        writer.u32(0); // no directory service
        writer.pointer(true);
        writer.pointer(false); // no DNS domain
        writer.pointer(false); // no forest
        writer.bytes(&[0; 16]); // no GUID of a domain
        writer.wide_string(workgroup);
    }
    let result = match known {
        true => Win32Error::SUCCESS,
        false => Win32Error::INVALID_PARAMETER,
    };
    writer.finish_with(result.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standalone_server_has_a_workgroup_only() {
        assert_eq!(decode_level(0, &[1, 0]), Ok(1));
        assert_eq!(decode_level(0, &[1]), Err(FaultStatus::BAD_STUB_DATA));
        assert_eq!(decode_level(1, &[1, 0]), Err(FaultStatus::OP_RNG_ERROR));
        // The pointer; the level; the role and its flags; pointers to the names; the GUID; the workgroup; the result.
        let expected = [
            &[0, 0, 2, 0][..],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0; 16],
            &[3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
            b"W\0G\0\0\0\0\0",
            &[0; 4],
        ];
        let encoded = encode_primary_domain_information(1, "WG");
        assert_eq!(encoded[..], expected.concat());
        let refused = encode_primary_domain_information(2, "WG");
        assert_eq!(refused[..], [0, 0, 0, 0, 87, 0, 0, 0]);
    }
}
