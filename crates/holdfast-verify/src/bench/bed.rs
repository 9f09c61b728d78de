//! The disk and the servers of a round of a matrix.
//!
//! All servers of a disk run at once, each with a folder of its own on it, and are measured in turn; one that waits
//! for its turn does nothing. A server that ended or refused is started anew for its next step.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use smb_load::{
    limit,
    rig::{
        config::{Holdfast, Samba, configured, holdfast_config, samba, samba_config},
        device::{self, Counts, Device, Setting},
        pin::Pin,
        server::{PASSWORD, Place as Folder, SHARE, Server, USER, free_port, open_up},
    },
};

use super::{
    plan::{DiskPlan, ServerKind, ServerPlan, slug},
    program,
    result::{Disk, write_whole},
};
use crate::{
    ReadPassword, remark,
    verify_flush::{Access, Login, Place},
};

/// Where `vm.*` is set.
const VM: &str = "/proc/sys/vm";

/// Any error, for people to read.
pub(super) type Failure = Box<dyn std::error::Error>;

/// A server that takes steps.
pub(super) struct Running {
    /// None of one that somebody else began.
    pub(super) server: Option<Server>,
    pub(super) metrics: Option<u16>,
    pub(super) login: Login,
    pub(super) folder: Place,
    /// Further shares by their whole paths.
    pub(super) further: Vec<String>,
}

/// A disk with what is served from it.
pub(super) struct Bed {
    /// By the place of their server in the plan. They go before the disk does.
    servers: BTreeMap<usize, Running>,
    device: Option<Device>,
    /// The folder below which all are served.
    folder: PathBuf,
    scratch: PathBuf,
    pin: Option<Pin>,
    /// Connections that a server of this program's making must allow.
    connections: u32,
    before: Option<Settings>,
    pub(super) disk: Disk,
}

impl Bed {
    /// Makes the disk; servers start when they are needed.
    pub(super) fn make(
        plan: &DiskPlan,
        scratch: &Path,
        pin: Option<Pin>,
        connections: u32,
    ) -> Result<Self, Failure> {
        let before = Settings::set(&plan.vm, Path::new(VM), scratch)?;
        let device = match plan.class {
            super::plan::DiskClass::Folder => None,
            _ => {
                let setting = Setting {
                    speed: plan.speed(),
                    options: &plan.mount,
                };
                Some(Device::make(plan.file_system, scratch, setting)?)
            }
        };
        let folder = match (&device, &plan.folder) {
            (Some(device), _) => device.mount.clone(),
            (None, Some(folder)) => folder.clone(),
            (None, None) => scratch.join("shares"),
        };
        fs::create_dir_all(&folder)?;
        open_up(&folder)?;
        Ok(Self {
            disk: Disk {
                name: plan.name.clone(),
                class: plan.class,
                facts: facts(&folder),
            },
            device,
            folder,
            scratch: scratch.to_owned(),
            pin,
            connections,
            before,
            servers: BTreeMap::new(),
        })
    }

    /// The counters of the disk; `None` if it has none.
    pub(super) fn counts(&self) -> Option<Counts> {
        match &self.device {
            Some(device) => device.counts().ok(),
            None => {
                let device = fs::metadata(&self.folder).ok()?.dev();
                let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
                let stat = format!("/sys/dev/block/{major}:{minor}/stat");
                device::counts(&fs::read_to_string(stat).ok()?)
            }
        }
    }

    /// Waits until the disk has what earlier steps wrote.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        rustix::fs::syncfs(fs::File::open(&self.folder)?)?;
        Ok(())
    }

    /// Starts the server of this place in the plan, unless it runs.
    pub(super) fn ready(
        &mut self,
        number: usize,
        plan: &ServerPlan,
        password: ReadPassword,
    ) -> Result<(), Failure> {
        if !self.servers.contains_key(&number) {
            let running = self.start(plan, password)?;
            if !matches!(plan.kind, ServerKind::Limit { .. }) {
                running.login.make_folders(&running.further)?;
            }
            self.servers.insert(number, running);
        }
        Ok(())
    }

    /// The server of this place in the plan, if it runs.
    pub(super) fn running(&self, number: usize) -> Option<&Running> {
        self.servers.get(&number)
    }

    /// Waits until the server of this place in the plan has done what a step left behind.
    pub(super) fn rest(&mut self, number: usize) -> Result<(), Failure> {
        let running = self.servers.get_mut(&number);
        match running.and_then(|running| running.server.as_mut()) {
            Some(server) => server.settle(),
            None => Ok(()),
        }
    }

    /// Ends a server; it is started anew for its next step.
    pub(super) fn stop(&mut self, number: usize) {
        self.servers.remove(&number);
    }

    fn start(&self, plan: &ServerPlan, password: ReadPassword) -> Result<Running, Failure> {
        if let ServerKind::Address {
            place,
            user,
            domain,
            password_file,
            pid,
            shares,
        } = &plan.kind
        {
            let folder: Place = place.parse()?;
            let access = Access {
                user: Some(user.clone()),
                domain: domain.clone(),
                password_file: Some(password_file.clone()),
                password_env: None,
                encrypt: false,
                timeout: 30,
            };
            let login = access.login(&folder, password)?;
            let server = pid.map(|pid| Server::running(&plan.name, login.access(), Some(pid)));
            let further = shares.iter().map(|share| folder.path_of(share)).collect();
            return Ok(Running {
                server,
                metrics: None,
                login,
                folder,
                further,
            });
        }
        let name = slug(&plan.name);
        let home = self.scratch.join("servers").join(&name);
        // Nothing is left of one that ended, but for what it served.
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        fs::create_dir_all(&home)?;
        open_up(&self.scratch.join("servers"))?;
        let place = Folder::new(home, self.folder.join(&name))?;
        let metrics = matches!(plan.kind, ServerKind::Holdfast { .. })
            .then(free_port)
            .transpose()?;
        let command = command(&plan.kind, &place, metrics, self.connections)?;
        let start = || Server::launch(&plan.name, &place, &command);
        let server = Pin::start(self.pin.as_ref(), start)?;
        let folder: Place = format!("//127.0.0.1:{}/{SHARE}/bench", place.port).parse()?;
        Ok(Running {
            server: Some(server),
            metrics,
            login: Login::new(&folder, USER, PASSWORD),
            folder,
            further: Vec::new(),
        })
    }

    /// Ends the servers and takes the disk away.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.servers.clear();
        if let Some(device) = self.device.take() {
            device.end()?;
        }
        if let Some(before) = self.before.take() {
            before.restore()?;
        }
        Ok(())
    }
}

/// The command that serves `place`.
fn command(
    kind: &ServerKind,
    place: &Folder,
    metrics: Option<u16>,
    connections: u32,
) -> Result<Command, Failure> {
    match kind {
        ServerKind::Holdfast {
            policy,
            flush_times,
            file_io,
            sync_threads,
            ..
        } => {
            let settings = Holdfast {
                policy,
                flush_times: *flush_times,
                file_io: file_io.as_deref(),
                metrics,
                connections,
                listeners: &[],
            };
            let text = holdfast_config(settings, place);
            let mut command = configured(&program::path(kind)?, place, &text)?;
            command
                .envs(sync_threads.map(|threads| ("HOLDFAST_SYNC_THREADS", threads.to_string())));
            Ok(command)
        }
        ServerKind::Samba {
            strict_sync,
            sync_always,
            io,
            root,
        } => {
            let settings = Samba {
                io: *io,
                strict_sync: *strict_sync,
                sync_always: *sync_always,
            };
            samba(place, &samba_config(settings, place), root.as_deref())
        }
        ServerKind::Limit { way } => {
            let file = place.folder.join("field");
            limit::command(&std::env::current_exe()?, place.port, &file, *way)
        }
        ServerKind::Address { .. } => Err("a server elsewhere is not started".into()),
    }
}

/// Linux's own words about the disk below a folder.
pub(super) fn facts(folder: &Path) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut note = |name: &str, text: std::io::Result<String>| {
        let text = text.unwrap_or_default();
        if !text.trim().is_empty() {
            facts.insert(name.to_owned(), text.trim().to_owned());
        }
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if let Some([source, system, options]) = mount_of(&mounts, folder) {
        note("source", Ok(source.to_owned()));
        note("file system", Ok(system.to_owned()));
        note("mount options", Ok(options.to_owned()));
    }
    let device = fs::metadata(folder).map_or(0, |metadata| metadata.dev());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    for name in [
        "scheduler",
        "write_cache",
        "fua",
        "nr_requests",
        "rotational",
    ] {
        let of_device = format!("/sys/dev/block/{major}:{minor}");
        let own = fs::read_to_string(format!("{of_device}/queue/{name}"));
        // A partition has the queue of its disk.
        note(
            name,
            own.or_else(|_| fs::read_to_string(format!("{of_device}/../queue/{name}"))),
        );
    }
    for entry in fs::read_dir(VM).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("dirty_") && name != "dirtytime_expire_seconds" {
            note(&format!("vm.{name}"), fs::read_to_string(entry.path()));
        }
    }
    facts
}

/// Source, file system and options of what is mounted where a folder is.
fn mount_of<'a>(mounts: &'a str, folder: &Path) -> Option<[&'a str; 3]> {
    let above = device::mounted(mounts).filter(|(_, place, ..)| folder.starts_with(place));
    // The last mount of the longest path is the one that is seen.
    let seen = above.max_by_key(|(_, place, ..)| place.as_os_str().len());
    seen.map(|(source, _, system, options)| [source, system, options])
}

/// Values of `vm.*` that were there before, in a file, so that the next run restores them if this one is killed. They
/// are restored with this value, too, if a step between fails.
struct Settings {
    /// The folder of the settings.
    vm: PathBuf,
    kept: PathBuf,
}

impl Settings {
    fn in_scratch(vm: &Path, scratch: &Path) -> Self {
        Self {
            vm: vm.to_owned(),
            kept: scratch.join("vm.json"),
        }
    }

    fn set(
        wanted: &BTreeMap<String, u64>,
        vm: &Path,
        scratch: &Path,
    ) -> Result<Option<Self>, Failure> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let mut before = BTreeMap::new();
        // To set one of a pair clears the other.
        let twins = wanted.keys().filter_map(|name| twin(name));
        for name in wanted.keys().cloned().chain(twins) {
            let text = fs::read_to_string(vm.join(&name))?;
            before.insert(name, text.trim().parse::<u64>()?);
        }
        let this = Self::in_scratch(vm, scratch);
        write_whole(&this.kept, &serde_json::to_string(&before)?)?;
        for (name, value) in wanted {
            fs::write(vm.join(name), value.to_string())?;
        }
        Ok(Some(this))
    }

    /// Restores them, unless that was done.
    fn restore(&self) -> Result<(), Failure> {
        if !self.kept.exists() {
            return Ok(());
        }
        let before: BTreeMap<String, u64> = serde_json::from_str(&fs::read_to_string(&self.kept)?)?;
        for (name, value) in before {
            // Of a pair one is always 0, and 0 cannot be written to it.
            if value != 0 || twin(&name).is_none() {
                fs::write(self.vm.join(name), value.to_string())?;
            }
        }
        fs::remove_file(&self.kept)?;
        Ok(())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            remark(format_args!("vm.* is not restored: {error}"));
        }
    }
}

/// The other one of a pair like `dirty_ratio` and `dirty_bytes`, of which only one is in force.
fn twin(name: &str) -> Option<String> {
    let of = |from: &str, to: &str| Some(format!("{}{to}", name.strip_suffix(from)?));
    of("_ratio", "_bytes").or_else(|| of("_bytes", "_ratio"))
}

/// Removes everything that a run that was killed left in its scratch folder.
pub(super) fn clear(scratch: &Path) -> Result<(), Failure> {
    if !scratch.exists() {
        return Ok(());
    }
    Settings::in_scratch(Path::new(VM), scratch).restore()?;
    device::clear(scratch)?;
    fs::remove_dir_all(scratch)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_a_folder_is_the_last_mount_of_the_longest_path_above_it() {
        let mounts = "/dev/sda1 / ext4 rw 0 0\n/dev/loop0 /r/my\\040results xfs ro 0 0\n\
                      /dev/loop1 /r/my\\040results btrfs rw 0 0\n/dev/sdb1 /r/my ext2 rw 0 0\n";
        let of = |folder: &str| mount_of(mounts, Path::new(folder));
        assert_eq!(of("/r/my results/a"), Some(["/dev/loop1", "btrfs", "rw"]));
        assert_eq!(of("/r/mine"), Some(["/dev/sda1", "ext4", "rw"]));
    }

    #[test]
    fn settings_of_the_kernel_are_restored_also_if_a_step_between_fails() {
        let (vm, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let value = |name: &str| fs::read_to_string(vm.path().join(name)).unwrap();
        let write = |name: &str, text: &str| fs::write(vm.path().join(name), text).unwrap();
        write("dirty_ratio", "0\n");
        write("dirty_bytes", "4096\n");
        write("dirty_writeback_centisecs", "0\n");
        let wanted = BTreeMap::from([
            ("dirty_ratio".to_owned(), 80),
            ("dirty_writeback_centisecs".to_owned(), 500),
        ]);
        let set = Settings::set(&wanted, vm.path(), scratch.path()).unwrap();
        assert_eq!(value("dirty_ratio"), "80");
        // A run that was killed while it wrote them has left no half of the file.
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
        // As the kernel does with the other one of a pair.
        write("dirty_bytes", "0\n");
        drop(set);
        assert_eq!(value("dirty_bytes"), "4096");
        assert_eq!(value("dirty_writeback_centisecs"), "0");
        assert!(!scratch.path().join("vm.json").exists());
    }
}
