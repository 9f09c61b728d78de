//! SPNEGO messages: NegTokenInit, NegTokenInit2, NegTokenResp (RFC 4178 4.2, [MS-SPNG] 2.2.1).
//!
//! This file only encodes and decodes; `acceptor` and `initiator` implement the exchange. The
//! mechanism list is preserved *as received*, since the mechListMIC is computed over its bytes (RFC
//! 4178 section 5) and re-encoding could change them. Unknown fields are ignored.

use crate::der::{self, ENUMERATED, GENERAL_STRING, OCTET_STRING, OID, Reader, SEQUENCE, context};
use crate::{AuthError, KEPT_MAX};

/// Maximum number of mechanisms that are read from a list; Windows sends at most five.
pub(crate) const MAX_MECHS: usize = 32;

const OID_SPNEGO: &[u8] = &[0x2b, 6, 1, 5, 5, 2];
/// 1.3.6.1.4.1.311.2.2.10
const OID_NTLMSSP: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10];
/// [MS-SPNG] 3.2.5.2
const HINT_NAME: &[u8] = b"not_defined_in_RFC4178@please_ignore";

/// The one mechanism that is implemented, and all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mech {
    Ntlmssp,
    Other,
}

impl Mech {
    fn from_oid(oid: &[u8]) -> Self {
        if oid == OID_NTLMSSP {
            Self::Ntlmssp
        } else {
            Self::Other
        }
    }

    fn oid(self) -> &'static [u8] {
        match self {
            Self::Ntlmssp => OID_NTLMSSP,
            Self::Other => &[],
        }
    }
}

/// negState of NegTokenResp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NegState {
    AcceptCompleted = 0,
    AcceptIncomplete = 1,
    Reject = 2,
    RequestMic = 3,
}

/// A decoded NegTokenInit or NegTokenInit2.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Init<'a> {
    pub(crate) mechs: Vec<Mech>,
    /// The MechTypeList SEQUENCE as received; the mechListMIC is computed over it.
    pub(crate) mech_list: &'a [u8],
    pub(crate) mech_token: Option<&'a [u8]>,
}

/// A decoded NegTokenResp.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Resp<'a> {
    pub(crate) state: Option<NegState>,
    pub(crate) mech: Option<Mech>,
    pub(crate) token: Option<&'a [u8]>,
    pub(crate) mic: Option<&'a [u8]>,
}

/// Decodes the first token of a client, with its GSS-API wrapper.
pub(crate) fn parse_init(token: &[u8]) -> Result<Init<'_>, AuthError> {
    let mut gss = Reader::new(der::only(token, der::APPLICATION_0)?.content)?;
    let is_other = gss.expect(OID)?.content != OID_SPNEGO;
    AuthError::NotSupported("GSS-API mechanism is not SPNEGO").when(is_other)?;
    let choice = gss.expect(context(0))?;
    let mut fields = Reader::new(der::only(choice.content, SEQUENCE)?.content)?;
    let mut init = Init {
        mechs: Vec::new(),
        mech_list: &[],
        mech_token: None,
    };
    while !fields.is_empty() {
        let field = fields.next()?;
        if field.tag == context(0) {
            let list = der::only(field.content, SEQUENCE)?;
            let is_long = list.raw.len() > KEPT_MAX;
            AuthError::InvalidToken("SPNEGO: mechanism list too long").when(is_long)?;
            init.mech_list = list.raw;
            init.mechs = parse_mechs(list.content)?;
        } else if field.tag == context(2) {
            init.mech_token = Some(der::only(field.content, OCTET_STRING)?.content);
        }
        // reqFlags [1] must be ignored ([MS-SPNG] 3.1.5.3); negHints and a MIC in the first token are ignored as well.
    }
    AuthError::InvalidToken("SPNEGO: no mechanism list").when(init.mechs.is_empty())?;
    Ok(init)
}

fn parse_mechs(content: &[u8]) -> Result<Vec<Mech>, AuthError> {
    let mut reader = Reader::new(content)?;
    let mut mechs = Vec::new();
    while !reader.is_empty() {
        AuthError::InvalidToken("SPNEGO: too many mechanisms").when(mechs.len() == MAX_MECHS)?;
        mechs.push(Mech::from_oid(reader.expect(OID)?.content));
    }
    Ok(mechs)
}

/// Decodes a NegTokenResp.
pub(crate) fn parse_resp(token: &[u8]) -> Result<Resp<'_>, AuthError> {
    let choice = der::only(token, context(1))?;
    let mut fields = Reader::new(der::only(choice.content, SEQUENCE)?.content)?;
    let mut resp = Resp::default();
    while !fields.is_empty() {
        let field = fields.next()?;
        match field.tag & 0x1f {
            0 if field.tag == context(0) => {
                resp.state = Some(match der::only(field.content, ENUMERATED)?.content {
                    [0] => NegState::AcceptCompleted,
                    [1] => NegState::AcceptIncomplete,
                    [2] => NegState::Reject,
                    [3] => NegState::RequestMic,
                    _ => return Err(AuthError::InvalidToken("SPNEGO: negState")),
                });
            }
            1 if field.tag == context(1) => {
                resp.mech = Some(Mech::from_oid(der::only(field.content, OID)?.content));
            }
            2 if field.tag == context(2) => {
                resp.token = Some(der::only(field.content, OCTET_STRING)?.content);
            }
            3 if field.tag == context(3) => {
                resp.mic = Some(der::only(field.content, OCTET_STRING)?.content);
            }
            _ => {}
        }
    }
    Ok(resp)
}

/// Encodes the MechTypeList SEQUENCE of these mechanisms.
pub(crate) fn build_mech_list(mechs: &[Mech]) -> Vec<u8> {
    let oids: Vec<Vec<u8>> = mechs.iter().map(|m| der::wrap(OID, &[m.oid()])).collect();
    let parts: Vec<&[u8]> = oids.iter().map(Vec::as_slice).collect();
    der::wrap(SEQUENCE, &parts)
}

fn gss_wrap(fields: &[&[u8]]) -> Vec<u8> {
    let choice = der::wrap(context(0), &[&der::wrap(SEQUENCE, fields)]);
    der::wrap(
        der::APPLICATION_0,
        &[&der::wrap(OID, &[OID_SPNEGO]), &choice],
    )
}

/// Encodes the client's first token.
pub(crate) fn build_init(mech_list: &[u8], mech_token: &[u8]) -> Vec<u8> {
    let list = der::wrap(context(0), &[mech_list]);
    let token = der::wrap(context(2), &[&der::wrap(OCTET_STRING, &[mech_token])]);
    gss_wrap(&[&list, &token])
}

/// Encodes the server's hint for the NEGOTIATE response ([MS-SPNG] 2.2.1).
pub(crate) fn build_init2(mechs: &[Mech]) -> Vec<u8> {
    let list = der::wrap(context(0), &[&build_mech_list(mechs)]);
    let name = der::wrap(context(0), &[&der::wrap(GENERAL_STRING, &[HINT_NAME])]);
    let hints = der::wrap(context(3), &[&der::wrap(SEQUENCE, &[&name])]);
    gss_wrap(&[&list, &hints])
}

/// Encodes a NegTokenResp with the fields that are present.
pub(crate) fn build_resp(resp: &Resp<'_>) -> Vec<u8> {
    let state = resp
        .state
        .map(|s| der::wrap(context(0), &[&der::wrap(ENUMERATED, &[&[s as u8]])]));
    let mech = resp
        .mech
        .map(|m| der::wrap(context(1), &[&der::wrap(OID, &[m.oid()])]));
    let octets = |n, bytes: &[u8]| der::wrap(context(n), &[&der::wrap(OCTET_STRING, &[bytes])]);
    let token = resp.token.map(|t| octets(2, t));
    let mic = resp.mic.map(|m| octets(3, m));
    let fields: Vec<&[u8]> = [&state, &mech, &token, &mic]
        .into_iter()
        .filter_map(|f| f.as_deref())
        .collect();
    der::wrap(context(1), &[&der::wrap(SEQUENCE, &fields)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_round_trip() {
        let list = build_mech_list(&[Mech::Other, Mech::Other, Mech::Ntlmssp]);
        let token = build_init(&list, b"NTLMSSP\0...");
        let init = parse_init(&token).unwrap();
        assert_eq!(init.mechs, [Mech::Other, Mech::Other, Mech::Ntlmssp]);
        assert_eq!(init.mech_list, list);
        assert_eq!(init.mech_token, Some(&b"NTLMSSP\0..."[..]));
    }

    #[test]
    fn only_ntlm_is_known_of_the_mechanisms_of_windows_clients() {
        let oids: [&[u8]; 4] = [
            // Kerberos with the number that Windows 2000 got wrong, Kerberos and NEGOEX.
            &[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2],
            &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2],
            &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 30],
            OID_NTLMSSP,
        ];
        let oids = oids.map(|oid| der::wrap(OID, &[oid]));
        let list = der::wrap(SEQUENCE, &oids.each_ref().map(Vec::as_slice));
        let token = build_init(&list, b"of Kerberos");
        let init = parse_init(&token).unwrap();
        let expected = [Mech::Other, Mech::Other, Mech::Other, Mech::Ntlmssp];
        assert_eq!(init.mechs, expected);
        assert_eq!(init.mech_list, list);
    }

    #[test]
    fn resp_round_trip() {
        let resp = Resp {
            state: Some(NegState::RequestMic),
            mech: Some(Mech::Ntlmssp),
            token: Some(&[1; 300]),
            mic: Some(&[2; 16]),
        };
        assert_eq!(parse_resp(&build_resp(&resp)).unwrap(), resp);
        let empty = Resp::default();
        assert_eq!(parse_resp(&build_resp(&empty)).unwrap(), empty);
    }

    #[test]
    fn hint_is_the_one_windows_clients_know() {
        // The NegTokenInit2 of an NTLM-only server, taken from captures of Windows and Samba.
        let hint = build_init2(&[Mech::Ntlmssp]);
        let expected = hex_literal::hex!(
            "604806062b0601050502a03e303ca00e300c060a2b06010401823702020aa32a3028a026
             1b246e6f745f646566696e65645f696e5f5246433431373840706c656173655f69676e6f7265"
        );
        assert_eq!(hint, expected);
        let init = parse_init(&hint).unwrap();
        assert_eq!((init.mechs, init.mech_token), (vec![Mech::Ntlmssp], None));
    }

    #[test]
    fn deep_nesting_is_rejected_or_skipped() {
        let mut nested = Vec::new();
        for _ in 0..4000 {
            nested = der::wrap(SEQUENCE, &[&nested]);
        }
        assert!(parse_init(&nested).is_err());
        assert!(parse_resp(&der::wrap(context(1), &[&nested])).is_ok());
        let list = build_mech_list(&[Mech::Ntlmssp]);
        let list = der::wrap(context(0), &[&list]);
        let odd = der::wrap(context(9), &[&nested]);
        assert_eq!(
            parse_init(&gss_wrap(&[&list, &odd])).unwrap().mechs.len(),
            1
        );
    }

    #[test]
    fn every_truncation_is_refused() {
        let list = build_mech_list(&[Mech::Ntlmssp]);
        let init = build_init(&list, &[9; 40]);
        for cut in 0..init.len() {
            assert!(parse_init(&init[..cut]).is_err());
        }
        let many = build_mech_list(&[Mech::Ntlmssp; MAX_MECHS + 1]);
        assert!(parse_init(&build_init(&many, &[])).is_err());
    }

    #[test]
    fn a_long_mechanism_list_is_refused() {
        let list = |oid: usize| {
            let mut oids = build_mech_list(&[Mech::Ntlmssp])[2..].to_vec();
            oids.extend([0x06, 0x82, (oid >> 8) as u8, oid as u8]);
            oids.resize(oids.len() + oid, 1);
            let mut list = vec![0x30, 0x82, (oids.len() >> 8) as u8, oids.len() as u8];
            list.extend(oids);
            build_init(&list, &[])
        };
        let kept = list(900);
        assert_eq!(parse_init(&kept).unwrap().mechs.len(), 2);
        assert!(parse_init(&list(KEPT_MAX)).is_err());
    }
}
