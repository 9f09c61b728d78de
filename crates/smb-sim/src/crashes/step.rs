//! One step: an operation of one client, encoded in four bytes.

use std::{fmt, str::FromStr};

use vfs::sim::SimRng;

/// Kinds to draw from; one that stands there twice comes up twice as often.
macro_rules! lot {
    ($($kind:ident)+) => { &[$(Kind::$kind),+] };
}
pub(super) use lot;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $weight:expr,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$name,)*];
            const WEIGHTS: &[u64] = &[$($weight,)*];
        }
    };
}

kinds! {
    /// Sectors are written to a file's unnamed stream.
    Write = 30,
    /// FLUSH of a file; the flag asks for Apple's full sync.
    Flush = 16,
    /// A file is made; the flag opens it with FILE_WRITE_THROUGH.
    Create = 12,
    Close = 5,
    /// A file moves; the flag lets it replace another.
    Rename = 9,
    Remove = 3,
    SetSize = 3,
    Attributes = 3,
    /// The time of creation is set.
    Times = 2,
    Ea = 2,
    /// Sectors are written to a named stream, which is made.
    WriteStream = 4,
    FlushStream = 2,
    RemoveStream = 1,
    MakeDir = 4,
    MoveDir = 2,
    RemoveDir = 1,
    FlushDir = 3,
    FlushRoot = 1,
    /// Sectors are copied by the server from one file to another.
    Copy = 2,
    Zero = 2,
    /// A further name is made.
    Link = 1,
    /// The connection breaks, and there is a new one.
    Disconnect = 1,
    /// The client rests.
    Pause = 4,
    /// The kernel fails to write something back; nobody has been informed yet. Flagged: another program on the host
    /// is informed first.
    WriteBack = 0,
    /// The server's process dies and another one takes its place.
    Kill = 0,
    Security = 3,
    Policy = 1,
    /// Somebody on the host moves a file, sets an attribute of it or makes one, behind the server's
    /// back; the flag has the file flushed by a client that opens it then.
    Host = 4,
    /// The client waits for all others to be as far.
    Meet = 0,
    /// DOS attributes are set through an open that may do nothing else.
    BareAttributes = 0,
    /// A reload of the configuration gives a share another policy. Flagged: one reload removes the share, although
    /// clients have files open, and a later one brings it back.
    Reload = 0,
    /// An existing file is emptied by CREATE; the flag opens it with FILE_WRITE_THROUGH.
    Supersede = 0,
    /// As [`Kind::Remove`], but the open that deletes the file is closed before another one.
    RemoveLater = 0,
    /// As [`Kind::Copy`], by extents that both files share.
    Duplicate = 0,
    /// A file is made sparse, or no longer so.
    Sparse = 0,
}

/// A step: kind, who and what, and two numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct Step(pub [u8; 4]);

impl Step {
    /// A step of a client on a file slot and a directory slot, through the first share.
    pub fn new(kind: Kind, client: u8, file: u8, dir: u8) -> Self {
        Self([
            kind as u8,
            (client & 3) | (file & 3) << 2 | (dir & 3) << 4,
            0,
            0,
        ])
    }

    pub fn flagged(mut self) -> Self {
        self.0[1] |= 0x40;
        self
    }

    /// Not waited for by its client.
    pub fn hasty(mut self) -> Self {
        self.0[1] |= 0x80;
        self
    }

    /// Through the second share, if there is one.
    pub fn second(mut self) -> Self {
        self.0[0] |= 0x80;
        self
    }

    /// On another directory slot.
    pub(super) fn in_dir(mut self, dir: u8) -> Self {
        self.0[1] = (self.0[1] & !(3 << 4)) | (dir & 3) << 4;
        self
    }

    pub fn with(mut self, a: u8, b: u8) -> Self {
        (self.0[2], self.0[3]) = (a, b);
        self
    }

    /// Any step but the rare ones that a plan asks for by name.
    pub fn random(rng: &mut SimRng) -> Self {
        let sum: u64 = Kind::WEIGHTS.iter().sum();
        let mut at = rng.below(sum);
        let mut kind = 0;
        for (index, weight) in Kind::WEIGHTS.iter().enumerate() {
            if at < *weight {
                kind = index;
                break;
            }
            at -= weight;
        }
        let bits = rng.draw().to_le_bytes();
        let mut what = bits[0] & 0x3F;
        if bits[1] < 64 {
            what |= 0x40;
        }
        if bits[2] < 40 {
            what |= 0x80;
        }
        Self([u8::try_from(kind).unwrap_or(0), what, bits[3], bits[4]])
    }

    pub fn kind(self) -> Kind {
        Kind::ALL[usize::from(self.0[0] & 0x7F) % Kind::ALL.len()]
    }

    /// The client that carries it out, of so many.
    pub fn client(self, of: usize) -> usize {
        usize::from(self.0[1] & 3) % of.max(1)
    }

    /// Which file slot, 0 to 3.
    pub fn file(self) -> usize {
        usize::from(self.0[1] >> 2 & 3)
    }

    /// Which directory slot: 0 is the root, 1 and 2 may be there.
    pub fn dir(self) -> usize {
        usize::from(self.0[1] >> 4 & 3) % 3
    }

    pub fn flag(self) -> bool {
        self.0[1] & 0x40 != 0
    }

    pub fn is_second(self) -> bool {
        self.0[0] & 0x80 != 0
    }

    pub fn is_hasty(self) -> bool {
        self.0[1] & 0x80 != 0
    }

    pub fn a(self) -> u8 {
        self.0[2]
    }

    pub fn b(self) -> u8 {
        self.0[3]
    }

    /// The sectors of a write: whole pages half of the time.
    #[must_use]
    pub fn sectors(self) -> std::ops::Range<u64> {
        let (a, b) = (u64::from(self.a()), u64::from(self.b()));
        if b & 0x80 != 0 {
            let first = a % 4 * 8;
            first..first + 8 * (1 + b % 2)
        } else {
            let first = a % 28;
            first..first + 1 + b % 12
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{:?} client {} file {} dir {} ({}, {}){}{}",
            self,
            self.kind(),
            self.0[1] & 3,
            self.file(),
            self.dir(),
            self.a(),
            self.b(),
            match (self.flag(), self.is_hasty()) {
                (false, false) => "",
                (true, false) => " flagged",
                (false, true) => " hasty",
                (true, true) => " flagged hasty",
            },
            if self.is_second() { " second" } else { "" }
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(" ")
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        u32::from_str_radix(text, 16)
            .map(|number| Self(number.to_be_bytes()))
            .map_err(|_| format!("{text:?} is no step"))
    }
}
