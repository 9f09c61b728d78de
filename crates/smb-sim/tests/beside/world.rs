//! A server with a disk that answers after random times, and three clients.

use std::{
    cell::{RefCell, RefMut},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::BytesMut;
use smb_client::{CreateArgs, Options, Request, Signing};
use smb_sim::{MemoryOptions, Sim, SimClient, SimEnv, SimServer, memory_disk};
use smb_wire::{
    Status,
    fscc::{FileInformationClass, FileLinkInformation},
    ids::{FileId, Guid, MessageId},
    msg::{ChangeNotifyFlags, ChangeNotifyRequest, Dialect, InfoType, NotifyFilter},
};
use vfs::Env;

/// The longest pause, in microseconds.
const PAUSE_MAX: u64 = 3_000;

/// The result of an open.
pub(crate) struct Outcome {
    pub(crate) file: Option<FileId>,
    pub(crate) name: String,
}

type Slot = Rc<RefCell<Option<SimClient>>>;

/// One seed.
pub(crate) struct World {
    sim: Option<Sim>,
    pub(crate) server: Rc<SimServer>,
    pub(crate) env: Arc<SimEnv>,
    clients: [Slot; 3],
}

/// The parts that a separate task may use.
pub(crate) struct Aside {
    env: Arc<SimEnv>,
}

impl Aside {
    pub(crate) async fn pause(&self) {
        let pause = Duration::from_micros(self.env.choose(PAUSE_MAX));
        self.env.sleep(pause).await;
    }
}

fn options(client: u8) -> Options {
    Options::dialect(Dialect::SMB_3_1_1)
        .signing(Signing::Required)
        .guid(Guid([client; 16]))
}

impl World {
    /// Three clients that have entered.
    pub(crate) fn new(seed: u64) -> Self {
        Self::under(seed, MemoryOptions::default())
    }

    /// The same with a server like this.
    pub(crate) fn under(seed: u64, memory: MemoryOptions) -> Self {
        let mut sim = Sim::new(seed);
        let env = sim.env();
        let as_env: Arc<dyn Env> = env.clone();
        let disk = memory_disk(&as_env, seed, &memory);
        let server = Rc::new(SimServer::plain(&mut sim, disk, &memory).unwrap());
        let clients = [1, 2, 3].map(|number| {
            let entered = sim.run(SimClient::enter(&server, options(number)));
            Rc::new(RefCell::new(Some(entered.unwrap().unwrap())))
        });
        Self {
            sim: Some(sim),
            server,
            env,
            clients,
        }
    }

    /// Runs until `act` is done.
    pub(crate) fn play<T>(&mut self, act: impl AsyncFnOnce(&mut Self) -> T) -> T {
        let mut sim = self.sim.take().unwrap();
        let value = sim.run(act(self)).unwrap();
        self.sim = Some(sim);
        value
    }

    fn client(&self, number: usize) -> RefMut<'_, SimClient> {
        RefMut::map(self.clients[number].borrow_mut(), |slot| {
            slot.as_mut().expect("under way elsewhere")
        })
    }

    pub(crate) fn first(&self) -> RefMut<'_, SimClient> {
        self.client(0)
    }

    pub(crate) fn second(&self) -> RefMut<'_, SimClient> {
        self.client(1)
    }

    pub(crate) fn third(&self) -> RefMut<'_, SimClient> {
        self.client(2)
    }

    /// Makes a file of four bytes.
    pub(crate) async fn make(&self, name: &str) {
        let mut first = self.first();
        let file = first.create(&CreateArgs::create(name)).await.unwrap();
        first.write_at(file, 0, b"none").await.unwrap();
        first.close(file).await.unwrap();
    }

    /// From now on the disk takes its time.
    pub(crate) fn slow(&self) {
        let env = Arc::clone(&self.env);
        self.server.disk.set_hook(Some(Arc::new(move |_| {
            let pause = Duration::from_micros(env.choose(1_000));
            (env.choose(2) > 0).then(|| env.sleep(pause))
        })));
    }

    /// The second client opens, at some time.
    pub(crate) fn beside(
        &mut self,
        args: CreateArgs,
        refusals: &'static [Status],
    ) -> impl Future<Output = Outcome> + use<> {
        self.slow();
        let slot = Rc::clone(&self.clients[1]);
        let aside = self.aside();
        let name: Vec<u8> = args.name.to_vec();
        let name = String::from_utf8_lossy(&name).replace('\0', "");
        self.env.start(async move {
            aside.pause().await;
            let mut client = slot.borrow_mut().take().unwrap();
            let opened = client.create(&args).await;
            slot.replace(Some(client));
            let file = match opened {
                Ok(file) => Some(file),
                Err(error) => {
                    let status = error.status().expect("a status");
                    assert!(refusals.contains(&status), "{status:?}");
                    None
                }
            };
            Outcome { file, name }
        })
    }

    /// The first client does something, at some time; [`World::back`] takes it back.
    pub(crate) fn apart<F: AsyncFnOnce(SimClient, Aside) -> SimClient + 'static>(
        &self,
        act: F,
    ) -> impl Future<Output = SimClient> + use<F> {
        let client = self.clients[0].borrow_mut().take().unwrap();
        let aside = self.aside();
        self.env.start(async move {
            aside.pause().await;
            act(client, aside).await
        })
    }

    pub(crate) fn back(&self, client: SimClient) {
        self.clients[0].replace(Some(client));
    }

    pub(crate) fn aside(&self) -> Aside {
        Aside {
            env: Arc::clone(&self.env),
        }
    }
}

pub(crate) fn set(file_id: FileId, class: FileInformationClass, buffer: &[u8]) -> Request {
    Request::set_info(file_id, InfoType::FILE, class.0, 0, buffer)
}

/// Asks for the changes of names in the root, and returns once the request waits there; there must be a file `f`.
pub(crate) async fn watch_names(client: &mut SimClient) -> MessageId {
    let root = client.create(&CreateArgs::directory("")).await.unwrap();
    let watches = Request::new(&ChangeNotifyRequest {
        flags: ChangeNotifyFlags(0),
        output_buffer_length: 1024,
        file_id: root,
        completion_filter: NotifyFilter::FILE_NAME,
    });
    let watches = client.send(watches).unwrap();
    // Served by the time it has its answer, which comes after the notification is parked.
    client.create(&CreateArgs::open("f")).await.unwrap();
    watches
}

pub(crate) fn close(file_id: FileId) -> Request {
    Request::close(file_id)
}

pub(crate) fn rename(file_id: FileId, to: &str, replace: bool) -> Request {
    Request::rename(file_id, to, replace)
}

pub(crate) fn link(file_id: FileId, to: &str, replace: bool) -> Request {
    let mut buffer = BytesMut::new();
    FileLinkInformation {
        replace_if_exists: replace,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut buffer);
    set(file_id, FileInformationClass::LINK, &buffer)
}
