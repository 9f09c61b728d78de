//! The information about a domain that SamrQueryInformationDomain returns.

use bytes::BytesMut;

use crate::rpc::ndr::NdrWriter;
use crate::status::Status;

/// The facts about a domain that the server reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DomainFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// The name of the server.
    pub server: &'a str,
    /// The description of the server.
    pub comment: &'a str,
    /// The number of its users.
    pub users: usize,
    /// The number of its groups.
    pub groups: usize,
    /// The number of its aliases.
    pub aliases: usize,
}

/// Encodes the response to SamrQueryInformationDomain ([MS-SAMR] 2.2.3.17); INVALID_INFO_CLASS for a class that does
/// not exist. Passwords follow no rules and never expire, nobody is locked out, and changes are not counted.
pub fn encode_query_domain(class: u16, domain: &DomainFacts<'_>) -> BytesMut {
    let mut writer = NdrWriter::new();
    let known = matches!(class, 1..=9 | 11..=13);
    writer.pointer(known);
    if known {
        writer.u16(class);
        writer.align(8);
        put_domain(class, domain, &mut writer);
    }
    let status = match known {
        true => Status::SUCCESS,
        false => Status::INVALID_INFO_CLASS,
    };
    writer.finish_with(status.0)
}

fn put_domain(class: u16, domain: &DomainFacts<'_>, writer: &mut NdrWriter) {
    /// A span of time without an end.
    const NEVER: u64 = i64::MIN.cast_unsigned();
    /// Half an hour, as Windows has it where nobody is locked out.
    const LOCKOUT: u64 = (-18_000_000_000_i64).cast_unsigned();
    const SERVER_ENABLED: u16 = 1;
    const ROLE_PRIMARY: u16 = 3;
    let texts: &[&str] = match class {
        2 | 11 => &[domain.comment, domain.name, domain.server],
        4 => &[domain.comment],
        5 => &[domain.name],
        6 => &[domain.server],
        _ => &[],
    };
    // OLD_LARGE_INTEGER: its parts are aligned to four only.
    let old_numbers: &[u64] = match class {
        // After the least length, the history and the properties: the longest and the shortest age.
        1 => &[0, NEVER, 0],
        // The time after which users are logged off.
        2 | 3 | 11 => &[NEVER],
        // The number of changes, the time of creation, and the number at the last promotion.
        8 => &[0, 0],
        13 => &[0, 0, 0],
        _ => &[],
    };
    for number in old_numbers {
        writer.bytes(&number.to_le_bytes());
    }
    for text in texts {
        writer.unicode_string_head(text);
    }
    if matches!(class, 2 | 11) {
        writer.bytes(&[0; 8]); // the number of changes
        writer.u32(SERVER_ENABLED.into());
        writer.u32(ROLE_PRIMARY.into());
        writer.u32(1); // compatible with LAN Manager: a byte
        for count in [domain.users, domain.groups, domain.aliases] {
            writer.count(count);
        }
    }
    match class {
        7 => writer.u16(ROLE_PRIMARY),
        9 => writer.u16(SERVER_ENABLED),
        11 | 12 => {
            // The span of a lockout, and the one in which failed logins are counted.
            writer.bytes(&LOCKOUT.to_le_bytes());
            writer.bytes(&LOCKOUT.to_le_bytes());
            writer.u16(0);
        }
        _ => {}
    }
    for text in texts {
        writer.unicode_text(text);
    }
}
