//! Two network namespaces joined by two pairs of veth, and a server in one of them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use smb_tests::{PASSWORD, USER};

/// The server's addresses, one for each interface.
pub(crate) const SERVER: [&str; 2] = ["10.77.1.1", "10.77.2.1"];
const CLIENT: [&str; 2] = ["10.77.1.2", "10.77.2.2"];
pub(crate) const PORT: u16 = 445;
/// The configured speed of the second interface; veth itself reports 10 Gbit/s.
pub(crate) const SECOND_SPEED: u64 = 25_000_000_000;
const START_MAX: Duration = Duration::from_secs(20);

/// The namespaces and the server; gone when dropped.
pub(crate) struct Net {
    server: String,
    clients: String,
    holdfast: Option<Child>,
    dir: tempfile::TempDir,
}

/// Runs `ip` with these words.
pub(crate) fn ip(words: &str) -> Result<(), String> {
    let said = Command::new("ip")
        .args(words.split_whitespace())
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    if said.status.success() {
        Ok(())
    } else {
        Err(format!(
            "ip {words}: {}",
            String::from_utf8_lossy(&said.stderr).trim()
        ))
    }
}

/// The server's end of a pair, in the server's namespace; the clients' end has the same name there.
pub(crate) fn link(nth: usize) -> String {
    format!("nic{nth}")
}

impl Net {
    /// Makes everything.
    pub(crate) fn new() -> Result<Self, String> {
        let id = std::process::id();
        let mut net = Self {
            server: format!("holdfast-s{id}"),
            clients: format!("holdfast-c{id}"),
            holdfast: None,
            dir: tempfile::tempdir().map_err(|error| error.to_string())?,
        };
        net.connect()?;
        net.start()?;
        Ok(net)
    }

    fn connect(&self) -> Result<(), String> {
        let (server, clients) = (&self.server, &self.clients);
        for space in [server, clients] {
            ip(&format!("netns add {space}"))?;
            ip(&format!("-n {space} link set lo up"))?;
        }
        for (nth, (here, there)) in SERVER.iter().zip(CLIENT).enumerate() {
            let name = link(nth);
            ip(&format!(
                "link add {name} netns {server} type veth peer name {name} netns {clients}"
            ))?;
            for (space, address) in [(server, here), (clients, &there)] {
                ip(&format!("-n {space} address add {address}/24 dev {name}"))?;
                ip(&format!("-n {space} link set {name} up"))?;
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        let (root, config) = (self.dir.path(), self.config());
        for folder in ["state", "data"] {
            std::fs::create_dir(root.join(folder)).map_err(|error| error.to_string())?;
        }
        let cores = if std::thread::available_parallelism().map_or(1, usize::from) > 1 {
            [0, 1]
        } else {
            [0, 0]
        };
        let text = format!(
            "[server]\nstate_dir = \"{root}/state\"\n\
             [[listener]]\naddress = \"{}:{PORT}\"\ninterface = \"{}\"\ncores = [{}]\n\
             [[listener]]\naddress = \"{}:{PORT}\"\ninterface = \"{}\"\ncores = [{}]\nspeed = \"25Gbit\"\n\
             [[share]]\nname = \"data\"\npath = \"{root}/data\"\n",
            SERVER[0],
            link(0),
            cores[0],
            SERVER[1],
            link(1),
            cores[1],
            root = root.display(),
        );
        let failed = |error: std::io::Error| error.to_string();
        std::fs::write(&config, text).map_err(failed)?;
        let password = root.join("password");
        std::fs::write(&password, format!("{PASSWORD}\n")).map_err(failed)?;
        let added = Command::new(smb_tests::binary())
            .args(["user", "add", USER, "--owner", "0:0", "--password-file"])
            .arg(&password)
            .arg("--config")
            .arg(&config)
            .output()
            .map_err(failed)?;
        if !added.status.success() {
            return Err(String::from_utf8_lossy(&added.stderr).into_owned());
        }
        let log = std::fs::File::create(root.join("log")).map_err(failed)?;
        let child = Command::new("ip")
            .args(["netns", "exec", &self.server])
            .arg(smb_tests::binary())
            .args(["serve", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        self.holdfast = Some(child);
        let end = Instant::now() + START_MAX;
        // The control socket comes last.
        while !root.join("state/control.sock").exists() {
            if Instant::now() > end {
                return Err(self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("holdfast.toml")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Runs a part of this program where the clients are; whether it ended well.
    pub(crate) fn in_clients(&self, part: &str) -> bool {
        let this = std::env::current_exe();
        // `ip netns exec` becomes the program it starts: this is the server's own id.
        let pid = self.holdfast.as_ref().map_or(0, Child::id);
        let ended = this.and_then(|this| {
            let mut command = Command::new("ip");
            command
                .args(["netns", "exec", &self.clients])
                .arg(this)
                .arg(part);
            command
                .arg(&self.server)
                .arg(self.dir.path().join("data"))
                .arg(self.config())
                .env("HOLDFAST_BIN", smb_tests::binary())
                .env(super::scale::PID, pid.to_string())
                .status()
        });
        let log = self.log();
        // A thread that panics may serve nobody any more without any client's notice.
        let well = ended.is_ok_and(|status| status.success()) && !log.contains("panicked");
        if !well {
            eprintln!("--- what the server said\n{log}");
        }
        well
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if let Some(mut child) = self.holdfast.take() {
            // `ip netns exec` becomes the program it starts: this is the server's own id.
            let _gone = child.kill();
            let _gone = child.wait();
        }
        for space in [&self.server, &self.clients] {
            // The links go with their namespaces.
            if let Err(why) = ip(&format!("netns delete {space}")) {
                eprintln!("left behind: {why}");
            }
        }
    }
}
