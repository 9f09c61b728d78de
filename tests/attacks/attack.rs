//! The attacks. Each one runs on threads of its own until it is asked to stop; a refusal or a
//! closed connection ends one go, and the next begins with a new connection.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use smb_client::{Client, ClientError, CreateArgs, File, Options, Request, Tree};
use smb_tests::{DATA, HoldfastServer, PASSWORD, USER};
use smb_wire::{
    Status,
    fscc::FileInformationClass,
    fsctl::FsctlCode,
    msg::{ChangeNotifyFlags, LockFlags, NotifyFilter, QueryDirectoryFlags, WriteFlags},
};

/// Entries of the folder that is listed.
const ENTRIES: u32 = 20_000;
/// Requests that an attacker has under way.
const DEPTH: usize = 16;
/// Bytes of a READ whose answer nobody takes.
const UNTAKEN: u32 = 64 << 10;

/// One way to be a nuisance.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Threads that do it.
    pub(crate) threads: usize,
    /// More of the configuration.
    pub(crate) tables: &'static str,
    pub(crate) prepare: fn(&Target<'_>),
    pub(crate) run: fn(&Target<'_>, usize, &AtomicBool),
}

/// Whom it is done to, and what must outlive one go.
pub(crate) struct Target<'a> {
    server: &'a HoldfastServer,
    held: Mutex<Vec<TcpStream>>,
    /// Steps of the attack that the server let through.
    steps: AtomicU64,
}

const fn attack(
    name: &'static str,
    threads: usize,
    run: fn(&Target<'_>, usize, &AtomicBool),
) -> Attack {
    Attack {
        name,
        threads,
        tables: "",
        prepare: |_| {},
        run,
    }
}

/// All of them.
pub(crate) const ATTACKS: &[Attack] = &[
    attack("none", 0, |_, _, _| {}),
    Attack {
        prepare: many_entries,
        ..attack("patterns", 6, patterns)
    },
    Attack {
        prepare: many_entries,
        ..attack("listings", 6, listings)
    },
    attack("deep-paths", 6, deep_paths),
    attack("unread-reads", 8, unread_reads),
    attack("silent-sockets", 4, silent_sockets),
    attack("negotiations", 4, negotiations),
    Attack {
        tables: "[limits]\nfailed_logins = 10000\n",
        ..attack("wrong-passwords", 4, wrong_passwords)
    },
    attack("opens", 2, opens),
    attack("locks", 2, locks),
    attack("waiting-locks", 2, waiting_locks),
    attack("watchers", 4, watchers),
    attack("compounds", 4, compounds),
    attack("large-writes", 4, large_writes),
    attack("slow-writes", 8, slow_writes),
    attack("copies", 4, copies),
    attack("names", 4, names),
    attack("streams", 4, streams),
    attack("extended-attributes", 4, extended_attributes),
    attack("security-descriptors", 4, security_descriptors),
    attack("flushes", 4, flushes),
    attack("connections", 4, connections),
];

impl<'a> Target<'a> {
    pub(crate) fn new(server: &'a HoldfastServer) -> Self {
        Self {
            server,
            held: Mutex::default(),
            steps: AtomicU64::new(0),
        }
    }

    /// Counts a step that the server let through.
    fn count(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    fn options() -> Options {
        Options {
            credits: 512,
            timeout: Duration::from_secs(10),
            ..Options::default()
        }
    }

    fn tree(&self) -> Result<Tree, ClientError> {
        let client = Client::connect(self.server.addr(), Self::options())?;
        client.login(USER, PASSWORD, "")?.tree(DATA)
    }
}

/// Does something with a tree again and again until it is stopped or refused.
fn again(
    target: &Target<'_>,
    stop: &AtomicBool,
    mut go: impl FnMut(&Tree, u64) -> Result<(), ClientError>,
) {
    let Ok(tree) = target.tree() else { return };
    for round in 0.. {
        if stop.load(Ordering::Relaxed) || go(&tree, round).is_err() {
            return;
        }
        target.count();
    }
}

/// Sends requests and takes all answers, whatever they are.
fn pipelined(tree: &Tree, requests: impl IntoIterator<Item = Request>) -> Result<(), ClientError> {
    let mut ids = Vec::new();
    for request in requests {
        ids.push(tree.send(request)?);
    }
    ids.into_iter()
        .try_for_each(|id| tree.client().wait(id).map(drop))
}

fn many_entries(target: &Target<'_>) {
    let folder = target.server.path("many");
    let _ = std::fs::create_dir(&folder);
    for n in 0..ENTRIES {
        let name = format!("{}-{n}", "a".repeat(200));
        std::fs::write(folder.join(name), b"").expect("an entry");
    }
}

fn patterns(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    let lengths = [241, 255, 2_001, 30_001];
    let length = lengths[number % lengths.len()];
    let pattern = format!("{}b", "*a".repeat(length / 2));
    search(target, stop, &pattern);
}

fn listings(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    search(target, stop, "*");
}

fn search(target: &Target<'_>, stop: &AtomicBool, pattern: &str) {
    again(target, stop, |tree, _| {
        let folder = tree.create(&CreateArgs::directory("many"))?;
        let class = FileInformationClass::ID_BOTH_DIRECTORY;
        let flags = QueryDirectoryFlags::RESTART_SCANS;
        let request = Request::query_directory(folder.id(), class, pattern, flags, 65_536);
        tree.reply(request)?;
        folder.close()
    });
}

fn deep_paths(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    let deep = vec!["d"; 3_000].join("\\");
    let less = vec!["d"; 250].join("\\");
    again(target, stop, |tree, round| {
        let path = if round % 2 == 0 { &deep } else { &less };
        let request = || CreateArgs::open(path).request();
        pipelined(tree, (0..DEPTH).map(|_| request()))
    });
}

fn unread_reads(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    let go = || -> Result<(), ClientError> {
        let tree = target.tree()?;
        let file = tree.create(&CreateArgs::open_if("unread"))?;
        file.write_all(0, &[1; UNTAKEN as usize])?;
        for _ in 0..400 {
            let request = tree.address(file.read_request(0, UNTAKEN, 1));
            let request = request.overriding(|how| how.ignore_credits = true);
            tree.client().send(request)?;
            target.count();
        }
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    };
    // Several connections for each thread.
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| drop(go()));
        }
    });
}

fn silent_sockets(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    for n in 0..2_000_u16 {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let [high, _] = n.to_be_bytes();
        let third = 1 + u8::try_from(number).unwrap_or(0);
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, third, 1 + high % 4));
        if let Ok(stream) = smb_client::connect_from(from, target.server.addr()) {
            let mut held = target.held.lock().expect("nobody panics");
            if held.len() > 1_500 {
                held.drain(..500);
            }
            held.push(stream);
            target.count();
        }
    }
}

fn negotiations(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(client) = Client::connect(target.server.addr(), Target::options()) else {
            return;
        };
        drop(client);
        target.count();
    }
}

fn wrong_passwords(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(client) = Client::connect(target.server.addr(), Target::options()) else {
            return;
        };
        for _ in 0..8 {
            match client.login(USER, "wrong", "") {
                Err(ClientError::Status(Status::LOGON_FAILURE)) => target.count(),
                Err(_) => break,
                Ok(_) => return,
            }
        }
    }
}

fn opens(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    let mut files: Vec<File> = Vec::new();
    again(target, stop, |tree, round| {
        match tree.create(&CreateArgs::open_if(&format!(
            "open-{number}-{}",
            round % 64
        ))) {
            Ok(file) => files.push(file),
            Err(ClientError::Status(_)) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
        Ok(())
    });
}

fn locks(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    let mut files = Vec::new();
    again(target, stop, |tree, round| {
        if files.is_empty() {
            files.push(tree.create(&CreateArgs::open_if("locks"))?);
        }
        let flags = LockFlags::SHARED | LockFlags::FAIL_IMMEDIATELY;
        match files[0].lock(round * 2, 1, flags) {
            Ok(()) | Err(ClientError::Status(_)) => Ok(()),
            Err(error) => Err(error),
        }
    });
}

fn waiting_locks(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    use smb_wire::msg::LockElement;
    let mut holder = None;
    again(target, stop, |tree, round| {
        let name = format!("waits-{number}");
        if holder.is_none() {
            let file = tree.create(&CreateArgs::open_if(&name))?;
            file.lock(0, 1, LockFlags::EXCLUSIVE)?;
            holder = Some((file, tree.create(&CreateArgs::open_if(&name))?));
        }
        if let Some((_, waiter)) = &holder
            && round < 400
        {
            let element = LockElement {
                offset: 0,
                length: 1,
                flags: LockFlags::EXCLUSIVE,
            };
            tree.send(waiter.lock_request(0, &[element]))?;
        } else {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    });
}

fn watchers(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    let mut folders = Vec::new();
    again(target, stop, |tree, round| {
        if round < 200 {
            let folder = tree.create(&CreateArgs::directory(""))?;
            let filter = NotifyFilter::FILE_NAME;
            folder.notify(filter, ChangeNotifyFlags::WATCH_TREE, 4_096)?;
            folders.push(folder);
            return Ok(());
        }
        let name = format!("watched-{number}-{}", round % 16);
        tree.write_file(&name, b"x")?;
        tree.delete(&name)
    });
}

fn compounds(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    again(target, stop, |tree, _| {
        let file = CreateArgs::open_if("compound");
        let requests = (0..32).map(|_| tree.address(file.request())).collect();
        for reply in tree.client().compound(requests)? {
            if let Ok(file) = tree.file(&reply) {
                file.close()?;
            }
        }
        Ok(())
    });
}

fn large_writes(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    let data = vec![3; 1 << 20];
    let mut file = None;
    again(target, stop, |tree, round| {
        if file.is_none() {
            file = Some(tree.create(&CreateArgs::open_if(&format!("large-{number}")))?);
        }
        let file = file.as_ref().ok_or(ClientError::Usage("just made"))?;
        let offset = (round % 64) << 20;
        pipelined(
            tree,
            (0..4).map(|n| file.write_request(offset + (n << 20), &data, WriteFlags::empty())),
        )
    });
}

/// A frame that says it has 1 MiB, and comes a byte at a time.
fn slow_writes(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    let Ok(tree) = target.tree() else { return };
    let mut connection = tree.client().connection();
    let stream = connection.stream_mut();
    let mut bytes = vec![0, 0x10, 0, 0, 0xfe, b'S', b'M', b'B'];
    while !stop.load(Ordering::Relaxed) && stream.write_all(&bytes).is_ok() {
        bytes = vec![0];
        target.count();
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn copies(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    let name = format!("copied-{number}");
    again(target, stop, |tree, _| {
        let file = tree.create(&CreateArgs::open_if(&name))?;
        file.write_all(0, &vec![5; 1 << 20])?;
        let key = file.ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32)?;
        let mut input = key.get(..24).ok_or(ClientError::Usage("no key"))?.to_vec();
        input.extend(16_u32.to_le_bytes());
        input.extend([0; 4]);
        for chunk in 0..16_u64 {
            input.extend(0_u64.to_le_bytes());
            input.extend((chunk << 20).to_le_bytes());
            input.extend((1_u32 << 20).to_le_bytes());
            input.extend([0; 4]);
        }
        for _ in 0..4 {
            file.ioctl(FsctlCode::SRV_COPYCHUNK_WRITE, &input, 12)?;
        }
        file.close()
    });
}

fn names(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    again(target, stop, |tree, round| {
        let (from, to) = (
            format!("from-{number}-{round}"),
            format!("to-{number}-{round}"),
        );
        tree.write_file(&from, b"x")?;
        tree.rename(&from, &to, true)?;
        tree.delete(&to)
    });
}

fn streams(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    again(target, stop, |tree, round| {
        let name = format!("streams-{number}:s{}", round % 200);
        match tree.write_file(&name, &[1; 3_000]) {
            Ok(()) | Err(ClientError::Status(_)) => Ok(()),
            Err(error) => Err(error),
        }
    });
}

/// Sets as many attributes as a file takes, again and again.
fn extended_attributes(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    again(target, stop, |tree, round| {
        let file = tree.create(&CreateArgs::open_if(&format!("ea-{number}-{}", round % 8)))?;
        let mut list = Vec::new();
        for n in 0..200_u32 {
            let name = format!("attribute-{n}-{round}");
            let value = [7; 40];
            let mut entry = vec![0; 4];
            entry.push(0);
            entry.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            entry.extend(40_u16.to_le_bytes());
            entry.extend(name.as_bytes());
            entry.push(0);
            entry.extend(value);
            entry.resize(entry.len().next_multiple_of(4), 0);
            if n + 1 < 200 {
                let length = u32::try_from(entry.len()).unwrap_or(0);
                entry[..4].copy_from_slice(&length.to_le_bytes());
            }
            list.extend(entry);
        }
        let _ = file.set(FileInformationClass::FULL_EA, &list);
        file.close()
    });
}

/// A list of 1,000 entries, set and asked for.
fn security_descriptors(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    use smb_wire::msg::InfoType;
    let mut list = Vec::new();
    let ace_bytes = 20_u16;
    for n in 0..1_000_u32 {
        list.extend([0, 0]);
        list.extend(ace_bytes.to_le_bytes());
        list.extend(0x001f_01ff_u32.to_le_bytes());
        list.extend([1, 1, 0, 0, 0, 0, 0, 5]);
        list.extend((1_000 + n).to_le_bytes());
    }
    let mut descriptor = vec![1, 0, 4, 0x80];
    descriptor.extend([0; 12]);
    descriptor.extend(20_u32.to_le_bytes());
    let length = 8 + u16::try_from(list.len()).unwrap_or(0);
    descriptor.extend([2, 0]);
    descriptor.extend(length.to_le_bytes());
    descriptor.extend(1_000_u16.to_le_bytes());
    descriptor.extend([0, 0]);
    descriptor.extend(list);
    again(target, stop, |tree, round| {
        use smb_wire::access_mask::AccessMask;
        let access =
            AccessMask::FILE_GENERIC_READ | AccessMask::WRITE_DAC | AccessMask::READ_CONTROL;
        let name = format!("sd-{number}-{round}");
        let file = tree.create(&CreateArgs::create(&name).access(access))?;
        let request = || Request::set_info(file.id(), InfoType::SECURITY, 0, 4, &descriptor);
        pipelined(tree, (0..4).map(|_| request()))?;
        file.close()
    });
}

fn flushes(target: &Target<'_>, number: usize, stop: &AtomicBool) {
    again(target, stop, |tree, round| {
        let file = tree.create(&CreateArgs::open_if(&format!(
            "flush-{number}-{}",
            round % 8
        )))?;
        file.write_all(0, &[9; 4_096])?;
        file.flush(false)?;
        file.close()
    });
}

fn connections(target: &Target<'_>, _: usize, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if target.tree().is_err() {
            return;
        }
        target.count();
    }
}
