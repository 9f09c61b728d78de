//! srvsvc ([MS-SRVS] 3.1.4): the shares that the client may see, the server, its clock. Calls on sessions and opens
//! are answered in `activity.rs`.
//!
//! Paths are shown as `C:\share`, whatever the host's paths are (CVE-2023-34968 was a leak of these).

use bytes::BytesMut;
use smb_wire::rpc::{
    FaultStatus,
    srvsvc::{
        ServerInfo, ShareInfo, SrvsvcRequest, Stype, TimeOfDay, Win32Error, encode_remote_tod,
        encode_server_disk_enum, encode_server_get_info, encode_share_enum, encode_share_get_info,
    },
};
use vfs::Timestamp;

use super::{
    activity,
    world::{SeenShare, World},
};

/// SV_PLATFORM_ID_NT.
pub(super) const PLATFORM_NT: u32 = 500;
/// The version that Samba reports too, so that clients know how to treat it.
pub(super) const VERSION: (u32, u32) = (6, 1);
/// SV_TYPE_WORKSTATION, _SERVER, _SERVER_UNIX, _NT, _SERVER_NT ([MS-SRVS] 2.2.2.7).
const SERVER_TYPE: u32 = 0x0000_9803;
/// SHI1005_FLAGS_ACCESS_BASED_DIRECTORY_ENUM and _ENCRYPT_DATA ([MS-SRVS] 2.2.4.29).
const FLAG_ACCESS_BASED: u32 = 0x0800;
const FLAG_ENCRYPTED: u32 = 0x8000;

pub(super) fn answer(world: &World, opnum: u16, stub: &[u8]) -> Result<BytesMut, FaultStatus> {
    let request = SrvsvcRequest::decode(opnum, stub)?;
    let seen = match world.may_list() {
        true => Ok(()),
        false => Err(Win32Error::ACCESS_DENIED),
    };
    Ok(match request {
        SrvsvcRequest::ShareEnum(listing) => {
            let from = usize::try_from(listing.resume_handle.unwrap_or(0)).unwrap_or(usize::MAX);
            let shares: Vec<_> = listed(world).skip(from).collect();
            encode_share_enum(&listing, seen.map(|()| &shares[..]))
        }
        SrvsvcRequest::ShareGetInfo { net_name, level } => {
            let found = seen.and_then(|()| find(world, &net_name));
            encode_share_get_info(level, found.as_ref().map_err(|error| *error))
        }
        _ if !world.may_browse() => return Err(FaultStatus::ACCESS_DENIED),
        SrvsvcRequest::ServerGetInfo { level } => encode_server_get_info(level, &server(world)),
        // The drive on which all shares are shown.
        SrvsvcRequest::ServerDiskEnum { level, resumes } => {
            encode_server_disk_enum(level, resumes, &["C:"])
        }
        SrvsvcRequest::RemoteTod => encode_remote_tod(&time_of_day(world)),
        SrvsvcRequest::Activity(request) => activity::answer(world, &request),
    })
}

/// Whether the client sees a share. An anonymous client that may list shares also sees those that every user may use,
/// because clients show the shares before the user logs in.
fn visible(world: &World, share: &SeenShare) -> bool {
    let shown = world.token.anonymous && world.config.anonymous_listing;
    share.admitted || (shown && share.open)
}

fn listed(world: &World) -> impl Iterator<Item = ShareInfo<'_>> {
    world
        .shares
        .iter()
        .filter(|share| share.browseable && visible(world, share))
        .map(info)
        .chain(std::iter::once(pipes()))
}

fn find<'a>(world: &'a World, name: &str) -> Result<ShareInfo<'a>, Win32Error> {
    if name.eq_ignore_ascii_case("IPC$") {
        return Ok(pipes());
    }
    let name = name.to_uppercase();
    let mut shares = world.shares.iter();
    match shares.find(|share| share.name.to_uppercase() == name) {
        Some(share) if visible(world, share) && (share.browseable || world.may_browse()) => {
            Ok(info(share))
        }
        // A client that has not signed in must not learn which other names exist.
        None if world.may_browse() => Err(Win32Error::NERR_NET_NAME_NOT_FOUND),
        _ => Err(Win32Error::ACCESS_DENIED),
    }
}

/// A share at any level: none shows more than every client may know (docs/protocol-notes.md, "Levels of shares for
/// administrators").
fn info(share: &SeenShare) -> ShareInfo<'_> {
    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    ShareInfo {
        net_name: &share.name,
        share_type: share_type(&share.name),
        remark: &share.comment,
        max_uses: u32::MAX,
        current_uses: 0,
        path: format!(r"C:\{}", share.name),
        security_descriptor: None,
        flags: flag(share.access_based, FLAG_ACCESS_BASED) | flag(share.encrypted, FLAG_ENCRYPTED),
    }
}

/// [MS-SRVS] 2.2.2.4: only shares for administration (`ADMIN$`, `C$`) are special. Clients themselves hide every name
/// that ends in a dollar sign.
fn share_type(name: &str) -> Stype {
    let stem = name.strip_suffix('$').unwrap_or_default();
    let of_drive = matches!(stem.as_bytes(), [letter] if letter.is_ascii_alphabetic());
    Stype::SPECIAL.when(of_drive || stem.eq_ignore_ascii_case("ADMIN"))
}

fn pipes() -> ShareInfo<'static> {
    ShareInfo {
        net_name: "IPC$",
        share_type: Stype::IPC | Stype::SPECIAL,
        remark: "IPC Service",
        max_uses: u32::MAX,
        ..ShareInfo::default()
    }
}

fn server(world: &World) -> ServerInfo<'_> {
    let config = &world.config;
    ServerInfo {
        platform_id: PLATFORM_NT,
        name: &config.netbios_name,
        version_major: VERSION.0,
        version_minor: VERSION.1,
        server_type: SERVER_TYPE,
        comment: &config.comment,
        users: u32::try_from(config.limits.sessions).unwrap_or(u32::MAX),
        disconnect_min: -1,
    }
}

fn time_of_day(world: &World) -> TimeOfDay {
    let Timestamp { secs, nanos } = world.now;
    let of_day = u32::try_from(secs.rem_euclid(86_400)).unwrap_or(0);
    let days = secs.div_euclid(86_400);
    let (year, month, day) = world.now.date();
    let weekday = u32::try_from((days + 4).rem_euclid(7)).unwrap_or(0);
    let uptime_ms = world.seconds_since(world.started).wrapping_mul(1000);
    TimeOfDay {
        elapsed_secs: u32::try_from(secs).unwrap_or(u32::MAX),
        uptime_ms: u32::try_from(uptime_ms & 0xffff_ffff).unwrap_or(0),
        hours: of_day / 3600,
        minutes: of_day / 60 % 60,
        seconds: of_day % 60,
        hundredths: nanos / 10_000_000,
        timezone_min: 0,
        day,
        month,
        year,
        weekday,
    }
}

#[cfg(test)]
mod tests {
    use super::{Stype, share_type};

    #[test]
    fn only_shares_for_administration_are_special() {
        for name in ["C$", "d$", "ADMIN$", "admin$"] {
            assert_eq!(share_type(name), Stype::SPECIAL, "{name}");
        }
        for name in ["data", "mine$", "ab$", "ä$", "1$", "$", "ADMIN", "C"] {
            assert_eq!(share_type(name), Stype::empty(), "{name}");
        }
    }
}
