//! A model of the access that an open of an existing file grants to somebody who does not own it,
//! by [MS-FSA] 2.1.5.1, 2.1.5.1.2 and 2.1.5.1.2.1 and [MS-DTYP] 2.5.3.2, in its simplest form; and
//! the sets of requested and stored values.

use smb_wire::Status;
use smb_wire::msg::{CreateDisposition as Disposition, CreateOptions as With};

/// FILE_GENERIC_READ and FILE_GENERIC_WRITE ([MS-SMB2] 2.2.13.1).
pub(crate) const GENERIC_READ: u32 = 0x0012_0089;
pub(crate) const GENERIC_WRITE: u32 = 0x0012_0116;
pub(crate) const GENERIC_EXECUTE: u32 = 0x0012_00a0;
pub(crate) const ALL: u32 = 0x001f_01ff;
pub(crate) const READ_DATA: u32 = 0x1;
pub(crate) const WRITE_DATA: u32 = 0x2;
pub(crate) const APPEND_DATA: u32 = 0x4;
pub(crate) const WRITE_EA: u32 = 0x10;
pub(crate) const EXECUTE: u32 = 0x20;
pub(crate) const DELETE_CHILD: u32 = 0x40;
pub(crate) const READ_ATTRIBUTES: u32 = 0x80;
pub(crate) const WRITE_ATTRIBUTES: u32 = 0x100;
pub(crate) const DELETE: u32 = 0x1_0000;
pub(crate) const MAXIMUM: u32 = 0x0200_0000;

pub(crate) const ACCESSES: [u32; 24] = [
    READ_DATA,
    WRITE_DATA,
    APPEND_DATA,
    0x8,
    WRITE_EA,
    EXECUTE,
    DELETE_CHILD,
    READ_ATTRIBUTES,
    WRITE_ATTRIBUTES,
    DELETE,
    0x2_0000,
    0x4_0000,
    0x8_0000,
    0x10_0000,
    // Generic rights.
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
    0x8000_0000,
    MAXIMUM,
    // Combinations that clients request.
    READ_DATA | WRITE_DATA,
    READ_DATA | DELETE,
    GENERIC_READ | GENERIC_WRITE | DELETE,
    MAXIMUM | DELETE,
    MAXIMUM | WRITE_DATA,
];

pub(crate) const DISPOSITIONS: [Disposition; 6] = [
    Disposition::SUPERSEDE,
    Disposition::OPEN,
    Disposition::CREATE,
    Disposition::OPEN_IF,
    Disposition::OVERWRITE,
    Disposition::OVERWRITE_IF,
];

/// The accesses that are combined with requests that are refused for any access.
pub(crate) const FEW: [u32; 4] = [
    READ_DATA,
    DELETE,
    MAXIMUM,
    GENERIC_READ | GENERIC_WRITE | DELETE,
];

pub(crate) const OPTIONS: [With; 6] = [
    With::empty(),
    With::DELETE_ON_CLOSE,
    With::DIRECTORY_FILE,
    With::NON_DIRECTORY_FILE,
    With(With::DIRECTORY_FILE.0 | With::DELETE_ON_CLOSE.0),
    With(With::DIRECTORY_FILE.0 | With::NON_DIRECTORY_FILE.0),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Everyone,
    Carol,
    Owner,
    OwnerRights,
}

/// An entry: whether it allows, for whom, which rights, and whether it is inherit-only.
pub(crate) type Entry = (bool, Who, u32, bool);

/// The part of the object that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The file or directory itself.
    Itself,
    /// A named stream that is there.
    Stream,
    /// A named stream that is not.
    NewStream,
}

/// The stored security descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stored {
    /// None: permission bits that allow others only to read.
    Nothing,
    /// A descriptor without a list, which allows everybody.
    Null,
    /// A list without entries, which allows nobody.
    Empty,
    List(&'static [Entry]),
}

use Stored::List;

pub(crate) const EVERYBODY: Stored = List(&[(true, Who::Everyone, ALL, false)]);
pub(crate) const READERS: Stored = List(&[(true, Who::Everyone, GENERIC_READ, false)]);

pub(crate) const STORED: [(&str, Stored); 13] = [
    ("nothing", Stored::Nothing),
    ("null", Stored::Null),
    ("empty", Stored::Empty),
    ("readers", READERS),
    (
        "writer",
        List(&[(true, Who::Carol, GENERIC_READ | GENERIC_WRITE, false)]),
    ),
    (
        "data only",
        List(&[(
            true,
            Who::Carol,
            READ_DATA | WRITE_DATA | APPEND_DATA,
            false,
        )]),
    ),
    (
        "attributes only",
        List(&[(true, Who::Carol, WRITE_EA | WRITE_ATTRIBUTES, false)]),
    ),
    ("delete only", List(&[(true, Who::Everyone, DELETE, false)])),
    (
        "denied",
        List(&[
            (false, Who::Carol, WRITE_DATA | DELETE, false),
            (true, Who::Everyone, ALL, false),
        ]),
    ),
    (
        "denied too late",
        List(&[
            (true, Who::Everyone, ALL, false),
            (false, Who::Carol, WRITE_DATA | DELETE, false),
        ]),
    ),
    ("owner", List(&[(true, Who::Owner, ALL, false)])),
    (
        "owner rights",
        List(&[(true, Who::OwnerRights, ALL, false)]),
    ),
    (
        "for what is below",
        List(&[(true, Who::Everyone, ALL, true)]),
    ),
];

/// The access control of the parent directory: it grants nothing, or DELETE and READ_ATTRIBUTES.
pub(crate) const ABOVE: [(&str, Stored); 2] = [
    ("strict", List(&[(true, Who::Everyone, EXECUTE, false)])),
    ("generous", EVERYBODY),
];

/// [MS-DTYP] 2.5.3.2 for one right of somebody who is not the owner: the first matching entry that
/// names it decides.
pub(crate) fn allows(stored: Stored, right: u32, directory: bool) -> bool {
    let entries = match stored {
        Stored::Null => return true,
        Stored::Empty => return false,
        // Others may read, and execute files that they can read; they may list and traverse
        // directories.
        Stored::Nothing => {
            let may = if directory {
                GENERIC_READ | GENERIC_EXECUTE
            } else {
                GENERIC_READ | EXECUTE
            };
            return may & right != 0;
        }
        List(entries) => entries,
    };
    for (allow, who, mask, below) in entries {
        let his = matches!(who, Who::Everyone | Who::Carol);
        if his && !below && mask & right != 0 {
            return *allow;
        }
    }
    false
}

/// One open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) directory: bool,
    pub(crate) part: Part,
    pub(crate) readonly: bool,
    pub(crate) stored: Stored,
    pub(crate) above: Stored,
    pub(crate) disposition: Disposition,
    pub(crate) access: u32,
    pub(crate) options: With,
}

impl Case {
    /// Whether the disposition is one that empties what is there.
    pub(crate) fn overwrites(&self) -> bool {
        use Disposition as D;
        matches!(
            self.disposition,
            D::SUPERSEDE | D::OVERWRITE | D::OVERWRITE_IF
        )
    }

    fn creates(&self) -> bool {
        use Disposition as D;
        !matches!(self.disposition, D::OPEN | D::OVERWRITE)
    }

    /// Whether the open changes what is there, if it is granted.
    pub(crate) fn changes(&self) -> bool {
        let made = self.part == Part::NewStream && self.creates();
        made || self.overwrites() || self.options.contains(With::DELETE_ON_CLOSE)
    }

    /// The access asked for, generic rights by their meaning.
    fn desired(&self) -> u32 {
        let meanings = [
            (0x8000_0000, GENERIC_READ),
            (0x4000_0000, GENERIC_WRITE),
            (0x2000_0000, GENERIC_EXECUTE),
            (0x1000_0000, ALL),
        ];
        let named = |(bit, meaning)| if self.access & bit == 0 { 0 } else { meaning };
        self.access & 0x0fff_ffff | meanings.into_iter().map(named).fold(0, |a, b| a | b)
    }

    /// Phase 1 of 2.1.5.1: checks that do not depend on the file.
    fn parameters(&self) -> Result<(), Status> {
        let directory = self.options.contains(With::DIRECTORY_FILE);
        let deletes = self.options.contains(With::DELETE_ON_CLOSE);
        if (deletes && self.desired() & DELETE == 0)
            || (directory && self.options.contains(With::NON_DIRECTORY_FILE))
            || (directory && self.overwrites())
        {
            return Err(Status::INVALID_PARAMETER);
        }
        // The name says that this is no directory.
        if directory && self.part != Part::Itself {
            return Err(Status::NOT_A_DIRECTORY);
        }
        Ok(())
    }

    /// Phase 7 of 2.1.5.1 and the beginning of 2.1.5.1.2: a directory is no file even for a request that wants a new
    /// one, but any other existing name collides with it, of whatever kind.
    fn kind(&self) -> Result<(), Status> {
        match self.part {
            Part::NewStream if !self.creates() => return Err(Status::OBJECT_NAME_NOT_FOUND),
            Part::NewStream => return Ok(()),
            Part::Stream if self.disposition != Disposition::CREATE => return Ok(()),
            Part::Stream | Part::Itself => {}
        }
        let itself = matches!(self.part, Part::Itself);
        if itself && self.directory && self.options.contains(With::NON_DIRECTORY_FILE) {
            return Err(Status::FILE_IS_A_DIRECTORY);
        }
        if self.disposition == Disposition::CREATE {
            return Err(Status::OBJECT_NAME_COLLISION);
        }
        if !self.directory && self.options.contains(With::DIRECTORY_FILE) {
            return Err(Status::NOT_A_DIRECTORY);
        }
        if self.directory && self.overwrites() {
            return Err(Status::OBJECT_NAME_COLLISION);
        }
        Ok(())
    }

    /// 2.1.5.1.2.1.
    fn access(&self) -> Result<u32, Status> {
        let desired = self.desired();
        let writes = WRITE_DATA | APPEND_DATA;
        let deletes = self.options.contains(With::DELETE_ON_CLOSE);
        if !self.directory && self.readonly && desired & writes != 0 {
            return Err(Status::ACCESS_DENIED);
        }
        if self.readonly && deletes {
            return Err(Status::CANNOT_DELETE);
        }
        // The text looks only at what is named; Windows and Samba empty no such file.
        if self.readonly && self.overwrites() && !self.directory {
            return Err(Status::ACCESS_DENIED);
        }
        let mut wanted = desired;
        if self.part == Part::NewStream {
            wanted |= WRITE_DATA;
        } else if self.overwrites() {
            // The attributes are not a stream's.
            if self.part == Part::Itself {
                wanted |= WRITE_EA | WRITE_ATTRIBUTES;
            }
            wanted |= match self.disposition {
                Disposition::SUPERSEDE => DELETE,
                _ => WRITE_DATA,
            };
        }
        let maximum = wanted & MAXIMUM != 0;
        let mut granted = 0;
        for bit in (0..32).map(|bit| 1 << bit).filter(|bit| ALL & bit != 0) {
            if (maximum || wanted & bit != 0) && allows(self.stored, bit, self.directory) {
                granted |= bit;
            }
        }
        // READONLY takes no right away that a new stream needs and the request does not name.
        let implied = granted & wanted & !desired;
        if maximum && self.readonly && !self.directory {
            granted &= !(writes | DELETE_CHILD);
        }
        for (right, by) in [(DELETE, DELETE_CHILD), (READ_ATTRIBUTES, READ_DATA)] {
            if (maximum || wanted & right != 0) && allows(self.above, by, true) {
                granted |= right;
            }
        }
        if wanted & !(granted | implied | MAXIMUM) != 0 || granted == 0 {
            return Err(Status::ACCESS_DENIED);
        }
        if deletes && granted & DELETE == 0 {
            return Err(Status::ACCESS_DENIED);
        }
        Ok(granted)
    }

    pub(crate) fn depends_on_access(&self) -> bool {
        let both = With::DIRECTORY_FILE | With::NON_DIRECTORY_FILE;
        self.kind().is_ok() && !self.options.contains(both)
    }

    pub(crate) fn decision(&self) -> Result<u32, Status> {
        self.parameters()?;
        self.kind()?;
        self.access()
    }
}
