//! Links and addresses of the host over rtnetlink: names, flags and receive queues of links, usable addresses. Read
//! only; two queries, no subscription.
//!
//! Answers are bounds-checked like anything from outside; unknown parts are skipped.

use std::{collections::BTreeMap, io, net::IpAddr, time::Duration};

use rustix::{
    fd::OwnedFd,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
};

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) loopback: bool,
    pub(crate) up: bool,
    pub(crate) receive_queues: u32,
}

/// An address of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// The index of its link.
    pub(crate) index: u32,
    pub(crate) ip: IpAddr,
    /// The address must not be used: it is tentative, a duplicate or deprecated.
    pub(crate) unusable: bool,
}

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h.
const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// NLM_F_REQUEST | NLM_F_DUMP.
const DUMP: u16 = 0x301;
const LINK_BODY: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
const ADDRESS_BODY: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Failed detection of duplicates, deprecated, tentative.
const IFA_UNUSABLE: u32 = 0x08 | 0x20 | 0x40;

/// How long the kernel may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// A part of an answer; the kernel sends no larger ones.
const PART_BYTES: usize = 64 * 1024;
/// Parts of an answer; a host with more links than fit these is cut off.
const PARTS_MAX: usize = 256;

/// Reads links, by their index, and addresses.
pub(crate) fn read() -> io::Result<(BTreeMap<u32, Link>, Vec<Address>)> {
    let mut links = BTreeMap::new();
    dump(RTM_GETLINK, LINK_BODY, |kind, body| {
        if kind == RTM_NEWLINK {
            links.extend(link(body));
        }
    })?;
    let mut addresses = Vec::new();
    dump(RTM_GETADDR, ADDRESS_BODY, |kind, body| {
        if kind == RTM_NEWADDR {
            addresses.extend(address(body));
        }
    })?;
    Ok((links, addresses))
}

/// Asks for everything of a kind and passes the type and body of each message to `take`.
fn dump(question: u16, body: usize, mut take: impl FnMut(u16, &[u8])) -> io::Result<()> {
    // NETLINK_ROUTE is protocol 0.
    let kind = None;
    let socket: OwnedFd = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        kind,
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    let length = u32::try_from(HEADER + body).unwrap_or(0);
    let mut request = Vec::with_capacity(HEADER + body);
    request.extend_from_slice(&length.to_ne_bytes());
    request.extend_from_slice(&question.to_ne_bytes());
    request.extend_from_slice(&DUMP.to_ne_bytes());
    request.resize(HEADER + body, 0);
    send(&socket, &request, SendFlags::empty())?;
    let mut part = vec![0; PART_BYTES];
    for _ in 0..PARTS_MAX {
        let (length, _) = recv(&socket, part.as_mut_slice(), RecvFlags::empty())?;
        if messages(part.get(..length).unwrap_or_default(), &mut take)? {
            return Ok(());
        }
    }
    Ok(())
}

/// True with the last message of an answer.
fn messages(mut part: &[u8], take: &mut impl FnMut(u16, &[u8])) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(part, 0), u16_at(part, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(body) = part.get(HEADER..length) else {
            break;
        };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let errno = u32_at(body, 0).unwrap_or(0).cast_signed().saturating_neg();
                return Err(io::Error::from_raw_os_error(errno));
            }
            _ => take(kind, body),
        }
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// struct ifinfomsg and its attributes.
fn link(body: &[u8]) -> Option<(u32, Link)> {
    let index = u32_at(body, 4)?;
    let flags = u32_at(body, 8)?;
    let mut name = None;
    let mut receive_queues = 1;
    attributes(body.get(LINK_BODY..)?, |kind, value| match kind {
        IFLA_IFNAME => {
            let end = value.iter().position(|byte| *byte == 0);
            let text = value.get(..end.unwrap_or(value.len())).unwrap_or_default();
            name = Some(String::from_utf8_lossy(text).into_owned());
        }
        IFLA_NUM_RX_QUEUES => receive_queues = u32_at(value, 0).unwrap_or(1),
        _ => {}
    });
    let link = Link {
        name: name?,
        loopback: flags & IFF_LOOPBACK != 0,
        up: flags & IFF_UP != 0,
        receive_queues,
    };
    (index != 0).then_some((index, link))
}

/// struct ifaddrmsg and its attributes. On a link to one peer IFA_ADDRESS is the peer's, and
/// IFA_LOCAL ours.
fn address(body: &[u8]) -> Option<Address> {
    let mut flags = u32::from(*body.get(2)?);
    let index = u32_at(body, 4)?;
    let (mut ours, mut any) = (None, None);
    attributes(body.get(ADDRESS_BODY..)?, |kind, value| match kind {
        IFA_LOCAL => ours = ip(value),
        IFA_ADDRESS => any = ip(value),
        IFA_FLAGS => flags = u32_at(value, 0).unwrap_or(flags),
        _ => {}
    });
    Some(Address {
        index,
        ip: ours.or(any)?,
        unusable: flags & IFA_UNUSABLE != 0,
    })
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(value).map(IpAddr::from);
    v4.or(v6).ok()
}

fn attributes(mut list: &[u8], mut take: impl FnMut(u16, &[u8])) {
    while let (Some(length), Some(kind)) = (u16_at(list, 0), u16_at(list, 2)) {
        let length = usize::from(length);
        let Some(value) = list.get(4..length) else {
            return;
        };
        take(kind, value);
        list = list.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut out = length.to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn an_address_is_ours_and_not_the_peers() {
        let mut body = vec![2, 32, 0, 0];
        body.extend(7u32.to_ne_bytes());
        body.extend(attribute(IFA_ADDRESS, &[10, 0, 0, 2]));
        body.extend(attribute(IFA_LOCAL, &[10, 0, 0, 1]));
        let read = address(&body).unwrap();
        assert_eq!((read.index, read.ip), (7, "10.0.0.1".parse().unwrap()));
        assert!(!read.unusable);
        body.extend(attribute(IFA_FLAGS, &0x40u32.to_ne_bytes()));
        assert!(address(&body).unwrap().unusable);
    }

    #[test]
    fn a_link_has_a_name_flags_and_queues() {
        let mut body = vec![0; LINK_BODY];
        body[4..8].copy_from_slice(&3u32.to_ne_bytes());
        body[8..12].copy_from_slice(&(IFF_UP | IFF_LOOPBACK).to_ne_bytes());
        assert_eq!(link(&body), None);
        body.extend(attribute(IFLA_IFNAME, b"eth0\0"));
        body.extend(attribute(IFLA_NUM_RX_QUEUES, &4u32.to_ne_bytes()));
        let (index, read) = link(&body).unwrap();
        assert_eq!((index, read.name.as_str()), (3, "eth0"));
        assert!(read.up && read.loopback);
        assert_eq!(read.receive_queues, 4);
    }

    #[test]
    fn nothing_that_comes_is_believed_without_looking() {
        let mut seen = 0;
        let mut take = |_: u16, _: &[u8]| seen += 1;
        for part in [
            &[][..],
            &[1, 0, 0, 0, 20, 0, 0, 0],
            &[0; 64],
            &[0xff; 64],
            &[16, 0, 0, 0, 20, 0],
        ] {
            assert!(!messages(part, &mut take).unwrap());
        }
        assert_eq!(seen, 0);
        for length in 0..40 {
            let _ = (link(&vec![0xff; length]), address(&vec![3; length]));
        }
        let mut error = vec![20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        error.extend((-1i32).to_ne_bytes());
        let refused = messages(&error, &mut |_, _| {}).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(1));
    }
}
