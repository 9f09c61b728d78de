//! A client that does whatever comes to its mind until the server is gone.
//!
//! Names are its own (so that it knows what they lead to), directories are everybody's, and it
//! flushes the files of others too. Contents are whole sectors that say what they are.

use std::{collections::BTreeMap, sync::Arc, sync::Mutex};

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Tree};
use smb_sim::SimRng;
use smb_sim::oracle::{Covers, Effect, Key, Object, Request, Value, fill};
use smb_wire::{
    file_attributes::FileAttributes,
    fscc::{EaEntry, FileBasicInformation, FileInformationClass, encode_ea_list},
    ids::FileTime,
    msg::{CreateOptions, WriteFlags},
};

use crate::recorder::{Ended, Gone, Recorder};

/// Bits of the attributes that are looked at: what the players set.
pub(crate) const ATTRIBUTES: u32 = 0x6;
/// The extended attribute that players set.
pub(crate) const EA: &[u8] = b"NOTE";
const SECTOR: u64 = 512;
const FILE_SECTORS: u64 = 64;
const NAMES: u64 = 3;

/// Directories that are there: path and object.
pub(crate) type Directories = Vec<(&'static str, Object)>;

/// Files whose place is known, for others: path by index number and object.
pub(crate) type Known = Arc<Mutex<BTreeMap<(usize, String), (u64, Object)>>>;

/// One of its files.
struct Mine {
    object: Object,
    dir: usize,
    name: String,
    file: Option<File>,
    /// Opened with FILE_WRITE_THROUGH.
    through: bool,
    stream: Option<File>,
    has_stream: bool,
}

/// A client.
pub(crate) struct Player {
    pub(crate) number: usize,
    pub(crate) tree: Tree,
    pub(crate) recorder: Recorder,
    pub(crate) directories: Directories,
    pub(crate) known: Known,
    pub(crate) rng: SimRng,
}

struct Hand {
    player: Player,
    files: Vec<Mine>,
}

fn joined(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}\\{name}")
    }
}

/// The server's index number of an open file.
pub(crate) fn index(file: &File) -> Result<u64, smb_client::ClientError> {
    let bytes = file.query(FileInformationClass::INTERNAL)?;
    Ok(u64::from_le_bytes(bytes[..8].try_into().unwrap()))
}

impl Player {
    /// Plays so many steps, or until the server is gone.
    pub(crate) fn play(self, steps: usize) {
        let mut hand = Hand {
            player: self,
            files: Vec::new(),
        };
        for _ in 0..steps {
            if hand.step().is_err() {
                return;
            }
        }
    }
}

impl Hand {
    fn step(&mut self) -> Result<(), Gone> {
        let choice = self.player.rng.below(100);
        if self.files.is_empty() || choice < 8 {
            return self.create();
        }
        let which = self.player.rng.below(self.files.len() as u64) as usize;
        match choice {
            8..30 => self.write(which),
            30..48 => self.flush(which),
            48..54 => self.stream(which),
            54..58 => self.resize(which),
            58..63 => self.attributes(which),
            63..68 => self.extended(which),
            68..80 => self.rename(which),
            80..85 => self.delete(which),
            85..90 => self.close(which),
            90..93 => self.flush_directory(),
            _ => self.flush_another(),
        }
    }

    fn path(&self, mine: &Mine) -> String {
        joined(self.player.directories[mine.dir].0, &mine.name)
    }

    fn free_place(&mut self) -> Option<(usize, String)> {
        let rng = &mut self.player.rng;
        let dir = rng.below(self.player.directories.len() as u64) as usize;
        let name = format!("c{}n{}", self.player.number, rng.below(NAMES));
        let taken = self.files.iter().any(|f| f.dir == dir && f.name == name);
        (!taken).then_some((dir, name))
    }

    fn publish(&self, which: usize, index: Option<u64>) {
        let mine = &self.files[which];
        let mut known = self.player.known.lock().unwrap();
        let key = (self.player.number, self.path(mine));
        if let Some(index) = index {
            known.insert(key, (index, mine.object));
        } else {
            known.remove(&key);
        }
    }

    fn create(&mut self) -> Result<(), Gone> {
        let Some((dir, name)) = self.free_place() else {
            return Ok(());
        };
        let player = &mut self.player;
        let through = player.rng.below(6) == 0;
        let object = player.recorder.object();
        let (path, parent) = player.directories[dir];
        let mut request = Request::create(parent, &name, object).through_if(through);
        // Nobody specifies their value before somebody sets them.
        request.effects.push(Effect::Meta {
            object,
            key: Key::Attributes,
            value: Value::Unknown,
        });
        request.effects.push(Effect::Meta {
            object,
            key: Key::Ea("NOTE".to_owned()),
            value: Value::Nothing,
        });
        let mut args = CreateArgs::create(&joined(path, &name));
        if through {
            args = args.options(CreateOptions::WRITE_THROUGH);
        }
        let tree = player.tree.clone();
        let made = player
            .recorder
            .ask(request, || tree.create(&args))
            .value()?;
        let Some(file) = made else { return Ok(()) };
        let number = player.recorder.quietly(index(&file)).value()?;
        if let Some(number) = number {
            player.recorder.lock().identify(object, number);
        }
        self.files.push(Mine {
            object,
            dir,
            name,
            file: Some(file),
            through,
            stream: None,
            has_stream: false,
        });
        self.publish(self.files.len() - 1, number);
        Ok(())
    }

    /// The handle of a file, opened if need be.
    fn file(&mut self, which: usize) -> Result<Option<File>, Gone> {
        if let Some(file) = &self.files[which].file {
            return Ok(Some(file.clone()));
        }
        let path = self.path(&self.files[which]);
        let opened = self.player.tree.create(&CreateArgs::open(&path));
        let file = self.player.recorder.quietly(opened).value()?;
        self.files[which].file.clone_from(&file);
        self.files[which].through = false;
        Ok(file)
    }

    fn write(&mut self, which: usize) -> Result<(), Gone> {
        let Some(file) = self.file(which)? else {
            return Ok(());
        };
        let (object, opened_through) = (self.files[which].object, self.files[which].through);
        let player = &mut self.player;
        let first = player.rng.below(FILE_SECTORS);
        let count = 1 + player.rng.below(20);
        let through = player.rng.below(4) == 0;
        let version = player.recorder.lock().version();
        let mut request = Request::write(object, "", first..first + count, version);
        if through || opened_through {
            request = request.through();
        }
        let flags = if through {
            WriteFlags::WRITE_THROUGH
        } else {
            WriteFlags::empty()
        };
        let data = fill(object, "", first, count, version);
        let call = || file.write(first * SECTOR, &data, flags);
        player.recorder.ask(request, call).value().map(drop)
    }

    fn flush(&mut self, which: usize) -> Result<(), Gone> {
        let Some(file) = self.file(which)? else {
            return Ok(());
        };
        let covers = Covers::Object(self.files[which].object);
        let full = self.player.rng.below(8) == 0;
        let request = if full {
            Request::full_sync(covers)
        } else {
            Request::flush(covers)
        };
        let call = || file.flush(full);
        self.player.recorder.ask(request, call).value().map(drop)
    }

    fn stream(&mut self, which: usize) -> Result<(), Gone> {
        let object = self.files[which].object;
        if self.files[which].stream.is_none() {
            let path = format!("{}:s", self.path(&self.files[which]));
            let tree = self.player.tree.clone();
            let open = || tree.create(&CreateArgs::open_if(&path));
            let opened = if self.files[which].has_stream {
                self.player.recorder.quietly(open())
            } else {
                let made = Effect::Stream {
                    object,
                    stream: "s".to_owned(),
                    present: true,
                };
                self.player.recorder.ask(Request::new(vec![made]), open)
            };
            self.files[which].stream = opened.value()?;
            self.files[which].has_stream |= self.files[which].stream.is_some();
        }
        let Some(stream) = self.files[which].stream.clone() else {
            return Ok(());
        };
        let player = &mut self.player;
        if player.rng.below(3) == 0 {
            let request = Request::flush(Covers::Stream(object, "s".to_owned()));
            let call = || stream.flush(false);
            return player.recorder.ask(request, call).value().map(drop);
        }
        // Small ones live in an extended attribute, large ones do not.
        let most = if player.rng.below(3) == 0 { 16 } else { 3 };
        let (first, count) = (player.rng.below(most), 1 + player.rng.below(most));
        let version = player.recorder.lock().version();
        let mut request = Request::write(object, "s", first..first + count, version);
        let through = player.rng.below(4) == 0;
        let mut flags = WriteFlags::empty();
        if through {
            request = request.through();
            flags = WriteFlags::WRITE_THROUGH;
        }
        let data = fill(object, "s", first, count, version);
        let call = || stream.write(first * SECTOR, &data, flags);
        player.recorder.ask(request, call).value().map(drop)
    }

    fn resize(&mut self, which: usize) -> Result<(), Gone> {
        let Some(file) = self.file(which)? else {
            return Ok(());
        };
        let sectors = self.player.rng.below(FILE_SECTORS + 20);
        let mine = &self.files[which];
        let request = Request::set_size(mine.object, "", sectors).through_if(mine.through);
        let call = || file.set_end_of_file(sectors * SECTOR);
        self.player.recorder.ask(request, call).value().map(drop)
    }

    fn attributes(&mut self, which: usize) -> Result<(), Gone> {
        let Some(file) = self.file(which)? else {
            return Ok(());
        };
        let bits = self.player.rng.draw() as u32 & ATTRIBUTES;
        let mut buffer = BytesMut::new();
        FileBasicInformation {
            creation_time: FileTime(0),
            last_access_time: FileTime(0),
            last_write_time: FileTime(0),
            change_time: FileTime(0),
            file_attributes: FileAttributes(bits) | FileAttributes::ARCHIVE,
        }
        .encode(&mut buffer);
        let value = Value::Bytes(bits.to_le_bytes().to_vec());
        let mine = &self.files[which];
        let request = Request::meta(mine.object, Key::Attributes, value).through_if(mine.through);
        let call = || file.set(FileInformationClass::BASIC, &buffer);
        self.player.recorder.ask(request, call).value().map(drop)
    }

    fn extended(&mut self, which: usize) -> Result<(), Gone> {
        let Some(file) = self.file(which)? else {
            return Ok(());
        };
        let value = self.player.rng.draw().to_le_bytes().to_vec();
        let entry = EaEntry {
            name: EA.to_vec(),
            value: value.clone(),
            ..EaEntry::default()
        };
        let (list, _) = encode_ea_list(&[entry], 4096);
        let key = Key::Ea("NOTE".to_owned());
        let mine = &self.files[which];
        let request = Request::meta(mine.object, key, Value::Bytes(value)).through_if(mine.through);
        let call = || file.set(FileInformationClass::FULL_EA, &list);
        self.player.recorder.ask(request, call).value().map(drop)
    }

    fn rename(&mut self, which: usize) -> Result<(), Gone> {
        let Some((dir, name)) = self.free_place() else {
            return Ok(());
        };
        // With an open stream it may be refused; that is not the question here.
        self.close_stream(which)?;
        let Some(file) = self.file(which)? else {
            return Ok(());
        };
        self.publish(which, None);
        let mine = &self.files[which];
        let (_, old_dir) = self.player.directories[mine.dir];
        let (new_path, new_dir) = self.player.directories[dir];
        let request = Request::rename(mine.object, (old_dir, &mine.name), (new_dir, &name))
            .through_if(mine.through);
        let to = joined(new_path, &name);
        let ended = self
            .player
            .recorder
            .ask(request, || file.rename(&to, false));
        match ended {
            Ended::Well(()) => {
                let number = self.player.recorder.quietly(index(&file)).value()?;
                let mine = &mut self.files[which];
                (mine.dir, mine.name) = (dir, name);
                self.publish(which, number);
            }
            Ended::Badly(false) => {}
            Ended::Badly(true) => {
                self.files.swap_remove(which); // Nobody knows what it is called.
            }
            Ended::Never => return Err(Gone),
        }
        Ok(())
    }

    fn close_stream(&mut self, which: usize) -> Result<(), Gone> {
        if let Some(stream) = self.files[which].stream.take() {
            let request = Request::close(self.files[which].object, Vec::new());
            let call = || stream.close();
            self.player.recorder.ask(request, call).value()?;
        }
        Ok(())
    }

    fn close(&mut self, which: usize) -> Result<(), Gone> {
        self.close_stream(which)?;
        if let Some(file) = self.files[which].file.take() {
            let request = Request::close(self.files[which].object, Vec::new());
            let call = || file.close();
            self.player.recorder.ask(request, call).value()?;
        }
        Ok(())
    }

    fn delete(&mut self, which: usize) -> Result<(), Gone> {
        self.close_stream(which)?;
        let Some(file) = self.file(which)? else {
            return Ok(());
        };
        self.publish(which, None);
        let marked = self.player.recorder.quietly(file.set_delete(true));
        if marked.value()?.is_none() {
            return Ok(());
        }
        let mine = self.files.swap_remove(which);
        let parent = self.player.directories[mine.dir].1;
        let mut gone = Request::remove(parent, &mine.name, mine.object).effects;
        if mine.has_stream {
            // A file whose deletion is lost with the power may come back without it.
            gone.extend(Request::stream(mine.object, "s", false).effects);
        }
        let request = Request::close(mine.object, gone).through_if(mine.through);
        let call = || file.close();
        self.player.recorder.ask(request, call).value().map(drop)
    }

    fn flush_directory(&mut self) -> Result<(), Gone> {
        let player = &mut self.player;
        let (path, object) =
            player.directories[player.rng.below(player.directories.len() as u64) as usize];
        let opened = player.tree.create(&CreateArgs::open(path));
        let Some(dir) = player.recorder.quietly(opened).value()? else {
            return Ok(());
        };
        let covers = if object == Object::ROOT {
            Covers::Root
        } else {
            Covers::Directory(object)
        };
        let ended = player
            .recorder
            .ask(Request::flush(covers), || dir.flush(false));
        ended.value()?;
        player.recorder.quietly(dir.close()).value().map(drop)
    }

    /// A FLUSH covers what others wrote to the file.
    fn flush_another(&mut self) -> Result<(), Gone> {
        let table = Arc::clone(&self.player.known);
        // Held to the end: a deletion is one at its own CLOSE only if nobody else has it open.
        let known = table.lock().unwrap();
        let others: Vec<_> = known
            .iter()
            .filter(|((owner, _), _)| *owner != self.player.number)
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let one = self.player.rng.below(others.len() as u64) as usize;
        let ((_, path), (number, object)) = others[one];
        let (path, number, object) = (path.clone(), *number, *object);
        let recorder = &self.player.recorder;
        let opened = self.player.tree.create(&CreateArgs::open(&path));
        let Some(file) = recorder.quietly(opened).value()? else {
            return Ok(());
        };
        if recorder.quietly(index(&file)).value()? == Some(number) {
            let request = Request::flush(Covers::Object(object));
            recorder.ask(request, || file.flush(false)).value()?;
        }
        recorder.quietly(file.close()).value().map(drop)
    }
}
