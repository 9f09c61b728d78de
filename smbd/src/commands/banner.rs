//! The text that `holdfast serve PATH` prints before it serves: how to connect, and the promise of the policy.
//!
//! It is made only of the given facts. The password is shown only if it was generated here, since nobody could know it
//! otherwise.

use std::{
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use crate::{
    accounts::acting,
    config::{Policy, SMB_PORT, ShareSettings, is_loopback, policy},
    runtime::listener::NOT_PERMITTED,
    status::text::{Text, put},
};

#[derive(Debug)]
pub struct Facts<'a> {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Name of this machine, used if the server listens on all addresses.
    pub host: &'a str,
    pub shares: &'a [ShareSettings],
    /// The user who can log in.
    pub user: &'a str,
    pub generated_password: Option<&'a str>,
    /// The policy that is in force.
    pub policy: Policy,
    /// The reason why the port is not 445, if no other port was requested.
    pub why_not_445: Option<&'a str>,
    pub encryption_required: bool,
    /// No address to listen on was given.
    pub loopback_by_default: bool,
    /// Facts that keep a user from working.
    pub warnings: &'a [String],
}

pub fn text(facts: &Facts<'_>) -> String {
    let mut out = Text::default();
    for share in facts.shares {
        let (folder, name, address) = (share.path.display(), &share.name, facts.address);
        let acts_as = share.owner.map(acting::in_words).unwrap_or_default();
        put!(out, 0; "Serving {folder} as share \"{name}\" on {address}");
        put!(out, 1; "Files are read and made as {acts_as}");
    }
    for warning in facts.warnings {
        put!(out, 0; "{warning}");
    }
    let (address, port) = (facts.address, facts.address.port());
    if facts.loopback_by_default {
        put!(out, 0; "ONLY THIS MACHINE can connect. For others: --listen 0.0.0.0:{port} or --listen [::]:{port}");
    } else if !is_loopback(address.ip()) {
        put!(out, 0; "Everybody who can reach {address} can try to log in.");
    }
    if let Some(why) = facts.why_not_445 {
        put!(out, 0; "Port 445 is not ours: {why}.");
        if why == NOT_PERMITTED {
            put!(out, 0; "To permit it:");
            put!(out, 2; "sudo setcap cap_net_bind_service=+ep \"$(command -v holdfast)\"");
        }
    }
    out.gap();
    put!(out, 1; "User:      {}", facts.user);
    match facts.generated_password {
        Some(password) => put!(out, 1; "Password:  {password}   (made up for this run)"),
        None => put!(out, 1; "Password:  as you gave it"),
    }
    match facts.encryption_required {
        true => put!(out, 1; "Traffic:   signed and encrypted, always"),
        false => put!(out, 1; "Traffic:   signed always, encrypted when the client asks"),
    }
    let promise = policy::promise(&facts.policy, true);
    put!(out, 1; "Durability \"{}\": {promise}.", facts.policy);
    if let Some(ShareSettings { name, .. }) = facts.shares.first() {
        connect(&mut out, facts, name);
    }
    out.gap();
    put!(out, 0; "Stop with Ctrl-C; dirty data are synced first.");
    out.finish()
}

fn connect(out: &mut Text, facts: &Facts<'_>, share: &str) {
    let user = facts.user;
    let host = Host::of(facts);
    let port = match facts.address.port() {
        SMB_PORT => None,
        other => Some(other),
    };
    let with = |lead: &str| port.map_or_else(String::new, |port| format!("{lead}{port}"));
    let (flag, option) = (with(" -p "), with(",port="));
    let (colon_port, tcp) = (with(":"), with(" /TCPPORT:"));
    let place = quote(&format!("//{}/{share}", host.plain));
    let (quoted, mount_option) = (quote(user), host.mount_option);
    let url = format!(
        "{}@{}{colon_port}/{}",
        percent(user),
        host.in_url,
        percent(share)
    );
    let mut unc = format!("\\\\{}\\{share}", host.in_unc);
    if unc.contains(' ') {
        unc = format!("\"{unc}\"");
    }
    out.gap();
    put!(out, 0; "Connect:");
    put!(out, 1; "smbclient     smbclient {place} -U {quoted}{flag}");
    put!(out, 1; "Linux         sudo mount -t cifs {place} /mnt -o username={quoted},vers=3.1.1{option}{mount_option}");
    put!(out, 1; "macOS Finder  Go > Connect to Server:  smb://{url}");
    put!(out, 1; "Windows       net use Z: {unc} /user:{user}{tcp}");
    if port.is_some() {
        put!(out, 8; "(/TCPPORT: Windows 11 24H2 or Server 2025 and later; earlier ones need port 445)");
    }
}

/// The name of this server as each client writes it.
struct Host {
    plain: String,
    in_url: String,
    in_unc: String,
    mount_option: String,
}

impl Host {
    fn of(facts: &Facts<'_>) -> Self {
        match facts.address.ip().to_canonical() {
            ip if ip.is_unspecified() => Self::same(facts.host),
            ip @ IpAddr::V4(_) => Self::same(&ip.to_string()),
            // Linux takes a name in the UNC and the address as an option; a Windows UNC cannot
            // hold colons, so Microsoft resolves this domain locally.
            IpAddr::V6(ip) => Self {
                plain: ip.to_string(),
                in_url: format!("[{ip}]"),
                in_unc: format!("{}.ipv6-literal.net", ip.to_string().replace(':', "-")),
                mount_option: format!(",ip={ip}"),
            },
        }
    }

    fn same(name: &str) -> Self {
        Self {
            plain: name.to_owned(),
            in_url: name.to_owned(),
            in_unc: name.to_owned(),
            mount_option: String::new(),
        }
    }
}

/// Quotes a word for a POSIX shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.:@".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Encodes a word for a URL.
fn percent(word: &str) -> String {
    let mut out = String::new();
    for byte in word.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn share(name: &str, folder: &str) -> ShareSettings {
        let top = tempfile::tempdir().unwrap();
        let path = top.path();
        let text = format!("[[share]]\nname = {name:?}\npath = {path:?}\nowner = \"1000:100\"\n");
        let config = crate::config::parse(&text, Path::new("h.toml")).unwrap();
        let share = config.shares.into_iter().next().unwrap();
        ShareSettings {
            path: folder.into(),
            ..share
        }
    }

    fn shares() -> Vec<ShareSettings> {
        vec![share("data", "/srv/data")]
    }

    fn facts<'a>(shares: &'a [ShareSettings], address: &str) -> Facts<'a> {
        Facts {
            address: address.parse().unwrap(),
            host: "nas",
            shares,
            user: "alice",
            generated_password: None,
            policy: Policy::Honor,
            why_not_445: None,
            encryption_required: false,
            loopback_by_default: false,
            warnings: &[],
        }
    }

    #[test]
    fn without_configuration_on_a_high_port() {
        let shares = shares();
        let facts = Facts {
            generated_password: Some("aaaa-bbbb-cccc-dddd"),
            why_not_445: Some(NOT_PERMITTED),
            loopback_by_default: true,
            ..facts(&shares, "127.0.0.1:4450")
        };
        assert_eq!(
            text(&facts),
            "\
Serving /srv/data as share \"data\" on 127.0.0.1:4450
  Files are read and made as 1000:100
ONLY THIS MACHINE can connect. For others: --listen 0.0.0.0:4450 or --listen [::]:4450
Port 445 is not ours: this user may not open ports below 1024.
To permit it:
    sudo setcap cap_net_bind_service=+ep \"$(command -v holdfast)\"

  User:      alice
  Password:  aaaa-bbbb-cccc-dddd   (made up for this run)
  Traffic:   signed always, encrypted when the client asks
  Durability \"honor\": when a client's flush succeeds, the file's data, size, times, attributes and name survive \
a power failure; when a write-through succeeds, its data and the file's name do.

Connect:
  smbclient     smbclient //127.0.0.1/data -U alice -p 4450
  Linux         sudo mount -t cifs //127.0.0.1/data /mnt -o username=alice,vers=3.1.1,port=4450
  macOS Finder  Go > Connect to Server:  smb://alice@127.0.0.1:4450/data
  Windows       net use Z: \\\\127.0.0.1\\data /user:alice /TCPPORT:4450
                (/TCPPORT: Windows 11 24H2 or Server 2025 and later; earlier ones need port 445)

Stop with Ctrl-C; dirty data are synced first.
"
        );
    }

    #[test]
    fn on_the_standard_port_nobody_needs_a_port() {
        let shares = shares();
        let out = text(&facts(&shares, "[::]:445"));
        assert!(out.contains("smbclient //nas/data -U alice\n"), "{out}");
        assert!(
            out.contains("net use Z: \\\\nas\\data /user:alice\n"),
            "{out}"
        );
        assert!(out.contains("smb://alice@nas/data\n"), "{out}");
        assert!(
            out.contains("Everybody who can reach [::]:445 can try to log in."),
            "{out}"
        );
        assert!(!out.contains("TCPPORT") && !out.contains("port="), "{out}");
    }

    #[test]
    fn addresses_and_names_that_need_care() {
        let shares = vec![share("My Files", "/x")];
        let out = text(&Facts {
            user: "j o'b",
            ..facts(&shares, "[2001:db8::1]:4450")
        });
        assert!(
            out.contains("smbclient '//2001:db8::1/My Files' -U 'j o'\\''b' -p 4450"),
            "{out}"
        );
        assert!(
            out.contains("smb://j%20o%27b@[2001:db8::1]:4450/My%20Files"),
            "{out}"
        );
        assert!(
            out.contains("\"\\\\2001-db8--1.ipv6-literal.net\\My Files\""),
            "{out}"
        );
        assert!(out.contains(",ip=2001:db8::1"), "{out}");
    }

    #[test]
    fn loss_is_spelled_out() {
        let shares = shares();
        let loose = Facts {
            policy: Policy::TreatHostAsStableStorage,
            encryption_required: true,
            ..facts(&shares, "127.0.0.1:445")
        };
        assert!(text(&loose).contains("but NOT a crash or power failure of this machine"));
        assert!(text(&loose).contains("signed and encrypted, always"));
        let bounded = Facts {
            policy: "bounded:50ms,4MiB".parse().unwrap(),
            ..facts(&shares, "127.0.0.1:445")
        };
        let bounds = "changes of the last 50ms, and at most 4MiB of them.";
        assert!(text(&bounded).contains(bounds));
    }
}
