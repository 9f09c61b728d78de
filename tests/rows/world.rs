//! A share on the weakest legal disk: what is there before a request, what the reply acknowledged,
//! and what a power cut leaves of it.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, Created, Options, Reply, Request, Signing};
use smb_sim::{MemoryOptions, Sim, SimClient, SimServer};
use smb_tests::state::ea_list;
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::{FsctlCode, RequestResumeKeyResponse};
use smb_wire::ids::FileId;
use smb_wire::msg::{
    CloseFlags, CloseRequest, CreateOptions, Dialect, FlushRequest, InfoType, IoctlResponse,
};
use vfs::posix::{PosixOptions, PosixVfs};
use vfs::sim::{Cut, Profile, SimDisk, SimOptions};
use vfs::{
    ClientAttributes, Contents as _, Descriptors, Directories, Identity, IoAccess, Kind,
    NamedStreams, Paths, StreamOpen, Volume,
};

/// The contents of a small stream, which is stored in an attribute.
pub(crate) const SMALL: &[u8] = b"in an attribute";
/// The contents of a large one, which is stored in the depot.
pub(crate) const LARGE: [u8; 5000] = [7; 5000];

/// A client, and whether its opens are write-through.
pub(crate) struct Actor {
    pub(crate) client: SimClient,
    pub(crate) through: bool,
}

impl Actor {
    pub(crate) async fn enter(server: &SimServer, through: bool) -> Self {
        let options = Options::dialect(Dialect::SMB_3_1_1).signing(Signing::Required);
        Self {
            client: SimClient::enter(server, options).await.unwrap(),
            through,
        }
    }

    pub(crate) async fn open(&mut self, args: CreateArgs) -> FileId {
        let options = match self.through {
            true => CreateOptions::WRITE_THROUGH,
            false => CreateOptions::empty(),
        };
        let args = args.access(AccessMask::FILE_ALL_ACCESS).options(options);
        self.client.create(&args).await.unwrap()
    }

    pub(crate) async fn write(&mut self, file: FileId, offset: u64, data: &[u8]) {
        self.client.write_at(file, offset, data).await.unwrap();
    }

    pub(crate) async fn set(&mut self, file: FileId, class: FileInformationClass, buffer: &[u8]) {
        self.set_as(file, InfoType::FILE, class.0, 0, buffer).await;
    }

    pub(crate) async fn set_as(
        &mut self,
        file_id: FileId,
        info_type: InfoType,
        info_class: u8,
        additional_information: u32,
        buffer: &[u8],
    ) {
        let request = Request::set_info(
            file_id,
            info_type,
            info_class,
            additional_information,
            buffer,
        );
        self.client.call(request).await.unwrap();
    }

    pub(crate) async fn ioctl(
        &mut self,
        file_id: FileId,
        code: FsctlCode,
        input: &[u8],
    ) -> Vec<u8> {
        let request = Request::ioctl(file_id, code, input, 64);
        let reply = self.client.call(request).await.unwrap();
        let output = IoctlResponse::read(&reply.message).unwrap().output;
        output.to_vec()
    }

    /// The key by which a copy names its source.
    pub(crate) async fn resume_key(&mut self, source: FileId) -> [u8; 24] {
        let code = FsctlCode::SRV_REQUEST_RESUME_KEY;
        let output = self.ioctl(source, code, &[]).await;
        RequestResumeKeyResponse::read(&output).unwrap().resume_key
    }

    pub(crate) async fn close(&mut self, file: FileId) {
        self.client.close(file).await.unwrap();
    }

    pub(crate) async fn reply(&mut self, request: Request) -> Reply {
        let id = self.client.send(request).unwrap();
        self.client.wait(id).await.unwrap()
    }

    pub(crate) async fn status(&mut self, request: Request) -> Status {
        self.reply(request).await.status()
    }
}

pub(crate) fn flush(file_id: FileId, full: bool) -> Request {
    Request::new(&FlushRequest {
        reserved: if full { FlushRequest::FULL_SYNC } else { 0 },
        file_id,
    })
}

pub(crate) fn close(file_id: FileId) -> Request {
    Request::new(&CloseRequest {
        flags: CloseFlags::POSTQUERY_ATTRIB,
        file_id,
    })
}

/// The FileId of a CREATE's reply.
pub(crate) fn opened(reply: Reply) -> Result<FileId, ClientError> {
    Ok(Created::read(&reply.ok()?.message)?.file_id)
}

/// Everybody may do what `mask` says.
pub(crate) fn descriptor(mask: u32) -> Vec<u8> {
    let mut out = BytesMut::new();
    // Revision 1, self-relative with a DACL at 20.
    out.extend_from_slice(&[1, 0, 4, 0x80]);
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&20u32.to_le_bytes());
    // An ACL of one ACE for S-1-1-0.
    out.extend_from_slice(&[2, 0, 28, 0, 1, 0, 0, 0, 0, 0, 20, 0]);
    out.extend_from_slice(&mask.to_le_bytes());
    out.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    out.to_vec()
}

/// A server's options for a policy; `, flush_times = false` may follow it.
pub(crate) fn with_policy(policy: &str, depot: bool) -> MemoryOptions {
    let cheap = policy.strip_suffix(", flush_times = false");
    MemoryOptions {
        policy: cheap.unwrap_or(policy).parse().unwrap(),
        flush_times: [cheap.is_none(), true],
        depot,
        ..MemoryOptions::default()
    }
}

/// A disk with a few files, all of it stable. The streams of `f` are in both places.
pub(crate) fn prepared(profile: Profile) -> SimDisk {
    let disk = SimDisk::new(SimOptions {
        clones: true,
        profile,
        ..SimOptions::default()
    });
    let disk = filled(disk, false, async |it| {
        for name in ["d", "e"] {
            let dir = it.open(CreateArgs::create_directory(name)).await;
            it.close(dir).await;
        }
        for name in ["f", "g", "victim", "d\\in"] {
            let file = it.open(CreateArgs::create(name)).await;
            it.write(file, 0, &name.as_bytes()[..1].repeat(8192)).await;
            it.close(file).await;
        }
        let file = it.open(CreateArgs::open("f")).await;
        it.set(file, FileInformationClass::FULL_EA, &ea_list("OLD", b"old"))
            .await;
        it.close(file).await;
        stream(it, "f:small", SMALL).await;
    });
    filled(disk, true, async |it| stream(it, "f:large", &LARGE).await)
}

async fn stream(it: &mut Actor, name: &str, data: &[u8]) {
    let stream = it.open(CreateArgs::create(name)).await;
    it.write(stream, 0, data).await;
    it.close(stream).await;
}

/// The disk after a server of it was used, all of it stable.
fn filled(disk: SimDisk, depot: bool, fill: impl AsyncFnOnce(&mut Actor)) -> SimDisk {
    let mut sim = Sim::new(1);
    let server = SimServer::plain(&mut sim, disk, &with_policy("honor", depot)).unwrap();
    sim.run(async {
        let mut it = Actor::enter(&server, false).await;
        fill(&mut it).await;
    })
    .unwrap();
    let disk = server.cut_power(Cut::Everything);
    sim.kill();
    disk
}

/// Everything that is in a share, as text by path.
pub(crate) type Contents = BTreeMap<String, String>;

/// Which times of files and directories are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    No,
    /// When files were written to.
    Written,
    /// All that a client can set.
    All,
}

/// The contents of a disk, with these times.
pub(crate) fn contents(disk: SimDisk, times: Times) -> Contents {
    let mut sim = Sim::new(2);
    sim.run(async {
        let vfs = PosixVfs::new(disk, PosixOptions::default()).await.unwrap();
        let mut found = Contents::new();
        let mut todo = vec![Vec::<String>::new()];
        while let Some(path) = todo.pop() {
            let (node, attr) = vfs.lookup(&WHO, &path).await.unwrap().found.unwrap();
            let mut text = format!("{:#x}, {} bytes", attr.dos_attributes, attr.size);
            if times == Times::Written && attr.kind == Kind::File {
                text += &format!(", written {:?}", attr.written);
            }
            if times == Times::All {
                let set = (attr.created, attr.accessed, attr.written);
                text += &format!(", {set:?}");
            }
            text += &format!(", eas {:?}", vfs.eas(&node).await.unwrap());
            text += &format!(", descriptor {:?}", vfs.security(&node, None).await.ok());
            for stream in vfs.streams(&node).await.unwrap() {
                let how = StreamOpen::Existing;
                let opened = vfs.open_stream(&WHO, &node, &stream.name, how).await;
                let data = match opened {
                    Ok((stream, _)) => digest(&vfs, &stream, attr.size).await,
                    Err(error) => format!("{error:?}"),
                };
                text += &format!(", {}: {data}", stream.name);
            }
            if attr.kind == Kind::Directory {
                for entry in vfs.list(&WHO, &node, 1000).await.unwrap() {
                    let mut below = path.clone();
                    below.push(entry.name);
                    todo.push(below);
                }
            } else {
                text += &format!(", data {}", digest(&vfs, &node, attr.size).await);
            }
            found.insert(path.join("\\"), text);
        }
        found
    })
    .unwrap()
}

const WHO: Identity = Identity::Service;

/// A checksum of what a file or stream holds.
async fn digest(
    vfs: &PosixVfs<SimDisk>,
    node: &<PosixVfs<SimDisk> as Volume>::Node,
    size: u64,
) -> String {
    let read = IoAccess {
        read: true,
        write: false,
    };
    let node = match vfs.open(&WHO, node, read).await {
        Ok(node) => node,
        Err(error) => return format!("{error:?}"),
    };
    let most = usize::try_from(size).unwrap().max(1 << 20);
    match vfs.read(&node, 0, most, BytesMut::new()).await {
        Ok(data) => {
            let sum = data.iter().fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
                (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
            });
            format!("{} bytes {sum:016x}", data.len())
        }
        Err(error) => format!("{error:?}"),
    }
}

/// Plays a scene on a server of `policy` on a copy of `disk`; returns the server as the scene left it.
pub(crate) fn scene(
    seed: u64,
    disk: &SimDisk,
    policy: &str,
    play: impl AsyncFnOnce(&SimServer),
) -> Rc<SimServer> {
    let mut sim = Sim::new(seed);
    let server = served(&mut sim, disk, policy);
    sim.run(play(&server)).unwrap();
    server
}

/// A server of `policy` on a copy of `disk`, which keeps streams in attributes.
pub(crate) fn served(sim: &mut Sim, disk: &SimDisk, policy: &str) -> Rc<SimServer> {
    served_with(sim, disk, policy, false)
}

/// The same; `depot`: which keeps streams in the depot.
pub(crate) fn served_with(
    sim: &mut Sim,
    disk: &SimDisk,
    policy: &str,
    depot: bool,
) -> Rc<SimServer> {
    let copy = disk.cut(Cut::Everything);
    Rc::new(SimServer::plain(sim, copy, &with_policy(policy, depot)).unwrap())
}
