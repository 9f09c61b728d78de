//! One image of a simulated disk: inodes, their blocks, names and attributes.
//!
//! Two of these make a [`crate::sim::SimDisk`]: the live one that every call sees, and the
//! durable one that a power loss leaves. Images are changed only by applying an
//! [`super::effects::Effect`], so that both run through the same code. Cloning is cheap: inodes
//! and blocks are shared until one side changes them.
//!
//! Invariants: `blocks` holds no entry that was never written or reserved; bytes of a block
//! beyond the end of file are zero; every map is ordered, so that nothing depends on hashing.

use std::{collections::BTreeMap, sync::Arc};

use libc::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

use crate::Timestamp;

/// Bytes of a block, the unit of allocation and of write-back.
pub const BLOCK: u64 = 4096;
/// [`BLOCK`] as a length.
pub(super) const BLOCK_LEN: usize = 4096;
/// The grain at which an unsynced block may be torn by a power loss.
pub(super) const SECTOR: usize = 512;
/// Inode number of the root directory.
pub(super) const ROOT: u64 = 2;

pub(super) type Page = Arc<[u8; BLOCK_LEN]>;

/// The contents of a block's place. `None` as a map's value stands for a block that is reserved but never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    /// Nothing allocated: reads as zeros.
    Hole,
    /// Allocated, never written: reads as zeros.
    Reserved,
    Data(Page),
}

#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) size: u64,
    pub(super) accessed: Timestamp,
    pub(super) written: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) born: Timestamp,
    /// Block number to bytes; `None`: reserved.
    pub(super) blocks: BTreeMap<u64, Option<Page>>,
    pub(super) xattrs: BTreeMap<Box<str>, Arc<[u8]>>,
    /// Names, for a directory.
    pub(super) entries: BTreeMap<Box<[u8]>, u64>,
    /// The directory above, for a directory.
    pub(super) parent: u64,
    /// Target, for a symbolic link.
    pub(super) target: Box<[u8]>,
}

impl Inode {
    pub(super) fn new(mode: u32, uid: u32, gid: u32, parent: u64, now: Timestamp) -> Self {
        Self {
            mode,
            uid,
            gid,
            links: if mode & S_IFMT == S_IFDIR { 2 } else { 1 },
            size: 0,
            accessed: now,
            written: now,
            changed: now,
            born: now,
            blocks: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
            parent,
            target: Box::default(),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    pub(super) fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }

    pub(super) fn is_link(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK
    }

    pub(super) fn dirent_kind(&self) -> u8 {
        u8::try_from((self.mode & S_IFMT) >> 12).unwrap_or(0)
    }

    pub(super) fn block(&self, number: u64) -> Block {
        match self.blocks.get(&number) {
            None => Block::Hole,
            Some(None) => Block::Reserved,
            Some(Some(page)) => Block::Data(Arc::clone(page)),
        }
    }

    /// Puts a block in place. Returns how many more blocks are allocated than before.
    pub(super) fn set_block(&mut self, number: u64, block: Block) -> i64 {
        let had = match block {
            Block::Hole => return -i64::from(self.blocks.remove(&number).is_some()),
            Block::Reserved => self.blocks.insert(number, None),
            Block::Data(page) => self.blocks.insert(number, Some(page)),
        };
        i64::from(had.is_none())
    }

    /// Moves the end of file. Shrinking frees the blocks beyond and zeroes the rest of the last block, unless
    /// `keeps_tail`. Returns the change of allocated blocks.
    pub(super) fn set_size(&mut self, size: u64, keeps_tail: bool) -> i64 {
        let shrinks = size < self.size;
        self.size = size;
        if !shrinks {
            return 0;
        }
        let gone = self.blocks.split_off(&size.div_ceil(BLOCK)).len();
        if !keeps_tail {
            self.zero_tail();
        }
        -i64::try_from(gone).unwrap_or(i64::MAX)
    }

    /// Zeroes the bytes of the last block that lie beyond the end of file.
    pub(super) fn zero_tail(&mut self) {
        let (number, rest) = (self.size / BLOCK, self.size % BLOCK);
        if rest != 0
            && let Some(Some(page)) = self.blocks.get_mut(&number)
            && let Some(tail) = page.get(usize::try_from(rest).unwrap_or(0)..)
            && tail.iter().any(|b| *b != 0)
            && let Some(tail) = Arc::make_mut(page).get_mut(usize::try_from(rest).unwrap_or(0)..)
        {
            tail.fill(0);
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    pub(super) inodes: BTreeMap<u64, Arc<Inode>>,
    /// The image is the disk of btrfs, where a truncated file keeps the rest of its last block.
    pub(super) keeps_tails: bool,
}

impl Image {
    pub(super) fn get(&self, ino: u64) -> Option<&Inode> {
        self.inodes.get(&ino).map(Arc::as_ref)
    }

    pub(super) fn get_mut(&mut self, ino: u64) -> Option<&mut Inode> {
        self.inodes.get_mut(&ino).map(Arc::make_mut)
    }

    /// Changes bytes of a written block if nothing else shares it, and returns whether it did.
    pub(super) fn overwrite(&mut self, ino: u64, number: u64, within: usize, new: &[u8]) -> bool {
        let block = |node: &mut Inode| -> Option<()> {
            let page = Arc::get_mut(node.blocks.get_mut(&number)?.as_mut()?)?;
            let place = page.get_mut(within..within + new.len())?;
            place.copy_from_slice(new);
            Some(())
        };
        self.get_mut(ino).and_then(block).is_some()
    }

    /// The work of a file-system check after a power loss: drops inodes without a name, names without an inode and
    /// second names of directories, counts links again, and clears bytes beyond ends of files. It visits directories
    /// breadth first from the root and in the order of names, so it is deterministic.
    pub(super) fn check(&mut self) {
        let mut links: BTreeMap<u64, u32> = BTreeMap::from([(ROOT, 2)]);
        let mut parents: BTreeMap<u64, u64> = BTreeMap::from([(ROOT, ROOT)]);
        let mut queue = std::collections::VecDeque::from([ROOT]);
        while let Some(dir) = queue.pop_front() {
            let Some(names) = self.get(dir).map(|d| d.entries.clone()) else {
                continue;
            };
            for (name, ino) in names {
                let kept = match self.get(ino) {
                    None => false,
                    Some(node) if node.is_dir() => !parents.contains_key(&ino),
                    Some(_) => true,
                };
                if !kept {
                    if let Some(d) = self.get_mut(dir) {
                        d.entries.remove(&name);
                    }
                } else if self.get(ino).is_some_and(Inode::is_dir) {
                    links.insert(ino, 2);
                    *links.entry(dir).or_default() += 1;
                    parents.insert(ino, dir);
                    queue.push_back(ino);
                } else {
                    *links.entry(ino).or_default() += 1;
                }
            }
        }
        self.inodes.retain(|ino, _| links.contains_key(ino));
        for (ino, node) in &mut self.inodes {
            let node = Arc::make_mut(node);
            node.links = links.get(ino).copied().unwrap_or(1);
            node.parent = parents.get(ino).copied().unwrap_or(0);
            let end = node.size.div_ceil(BLOCK);
            node.blocks
                .retain(|number, page| *number < end || page.is_none());
            if !self.keeps_tails {
                node.zero_tail();
            }
        }
    }

    /// Blocks in use, one more for every inode.
    pub(super) fn used(&self) -> u64 {
        self.inodes
            .values()
            .map(|n| 1 + n.blocks.len() as u64)
            .sum()
    }
}
