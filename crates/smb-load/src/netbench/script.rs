//! A load file of dbench: the operations of one client in the order in which they were recorded.
//!
//! Such a file is read where it is installed (Debian's package `dbench`) and is no part of this project. All names in
//! it lie below one folder, which each client replaces by its own. The lines are those of dbench 4.

use std::{collections::HashMap, fs, path::Path};

use smb_wire::{
    Status,
    msg::{CreateDisposition, CreateOptions},
};

use super::operation::{Name, Operation};

/// Where Debian's package has it.
pub const PLACE: &str = "/usr/share/dbench/client.txt";
/// The folder of the recorded client.
const RECORDED: &str = "\\clients\\client1";
/// Bytes of the longest file that is read.
const BYTES_MAX: u64 = 256 << 20;
/// Bytes of the longest READ or WRITE: a client holds as many to write, and to compare with what it reads.
const PIECE_MAX: u64 = 8 << 20;
/// FileAttributeTagInformation, as SMB 1 numbers it.
const ATTRIBUTE_TAG_LEVEL: u32 = 1035;

/// Bytes of a READ or WRITE; 0 for all others.
fn length(step: Option<Operation>) -> u64 {
    let (read, written) = step.map_or((0, 0), |step| step.moved());
    read + written
}

/// A whole load file.
#[derive(Debug, Default)]
pub struct Script {
    /// The operations with their answers; without an operation, the folder is emptied.
    pub(super) steps: Vec<(Option<Operation>, Status)>,
    names: Vec<String>,
}

/// The words of a line; a name in quotes is one.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (number, part) in line.split('"').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_ascii_whitespace()),
            _ => words.push(part),
        }
    }
    words
}

fn number(word: Option<&&str>) -> Option<u64> {
    let word = word?;
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn status(word: &str) -> Option<Status> {
    Some(match word {
        "NT_STATUS_OK" => Status::SUCCESS,
        "NT_STATUS_NO_SUCH_FILE" => Status::NO_SUCH_FILE,
        "NT_STATUS_OBJECT_NAME_NOT_FOUND" => Status::OBJECT_NAME_NOT_FOUND,
        "NT_STATUS_OBJECT_PATH_NOT_FOUND" => Status::OBJECT_PATH_NOT_FOUND,
        _ => return None,
    })
}

impl Script {
    /// Reads a load file.
    ///
    /// # Errors
    /// A file that cannot be read, and the first line that is not understood or reads or writes too much.
    pub fn load(path: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = fs::metadata(path).map_err(|error| failed(&error))?.len();
        if bytes > BYTES_MAX {
            return Err(failed(&format!("larger than {BYTES_MAX} bytes")));
        }
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        Self::parse(&text).map_err(|error| failed(&error))
    }

    /// Reads the text of a load file.
    ///
    /// # Errors
    /// The first line that is not understood or reads or writes too much.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut this = Self::default();
        let mut ids = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let words = words(line);
            // The folder above that of the client is there already.
            if words.is_empty() || words.first() == Some(&"Mkdir") {
                continue;
            }
            let step = this.step(&words, &mut ids);
            let step = step.zip(words.last().and_then(|word| status(word)));
            // The client expects success of everything but these.
            let step = step.filter(|(step, wanted)| {
                let may_fail = matches!(
                    step,
                    Some(
                        Operation::Create { .. }
                            | Operation::PathInfo { .. }
                            | Operation::Find { .. }
                    )
                );
                may_fail || *wanted == Status::SUCCESS
            });
            let (step, wanted) = step.ok_or_else(|| format!("line {}: {line}", at + 1))?;
            if length(step) > PIECE_MAX {
                let number = at + 1;
                return Err(format!(
                    "line {number}: more than {PIECE_MAX} bytes: {line}"
                ));
            }
            this.steps.push((step, wanted));
        }
        match this.steps.is_empty() {
            true => Err("no operation".to_owned()),
            false => Ok(this),
        }
    }

    fn step<'a>(
        &mut self,
        words: &[&'a str],
        ids: &mut HashMap<&'a str, u32>,
    ) -> Option<Option<Operation>> {
        let at = |place: usize| number(words.get(place));
        let small = |place: usize| u32::try_from(at(place)?).ok();
        let mut name = |place: usize| {
            let text = words.get(place)?.strip_prefix(RECORDED)?;
            let next = u32::try_from(ids.len()).ok()?;
            Some(Name::Recorded(*ids.entry(text).or_insert_with(|| {
                self.names.push(text.trim_start_matches('\\').to_owned());
                next
            })))
        };
        let handle = small(1);
        Some(Some(match *words.first()? {
            "Deltree" => return Some(None),
            "NTCreateX" => Operation::Create {
                name: name(1)?,
                options: CreateOptions(small(2)?),
                disposition: CreateDisposition(small(3)?),
                handle: small(4)?,
            },
            "Close" => Operation::Close { handle: handle? },
            "ReadX" => Operation::Read {
                handle: handle?,
                offset: at(2)?,
                length: small(4)?,
            },
            "WriteX" => Operation::Write {
                handle: handle?,
                offset: at(2)?,
                length: small(3)?,
            },
            "Flush" => Operation::Flush { handle: handle? },
            "LockX" => Operation::Lock {
                handle: handle?,
                offset: at(2)?,
                length: at(3)?,
            },
            "UnlockX" => Operation::Unlock {
                handle: handle?,
                offset: at(2)?,
                length: at(3)?,
            },
            "QUERY_PATH_INFORMATION" => Operation::PathInfo {
                name: name(1)?,
                tag: small(2)? == ATTRIBUTE_TAG_LEVEL,
            },
            "FIND_FIRST" => Operation::Find { name: name(1)? },
            "Unlink" => Operation::Unlink { name: name(1)? },
            "Rename" => Operation::Rename {
                from: name(1)?,
                to: name(2)?,
            },
            "QUERY_FS_INFORMATION" => Operation::FsInfo,
            "QUERY_FILE_INFORMATION" => Operation::FileInfo { handle: handle? },
            "SET_FILE_INFORMATION" => Operation::SetInfo { handle: handle? },
            _ => return None,
        }))
    }

    /// Lines that fill the folder before the mix begins: those before the first READ.
    pub(super) fn fill(&self) -> usize {
        let mut steps = self.steps.iter();
        let first = steps.position(|(step, _)| matches!(step, Some(Operation::Read { .. })));
        first.unwrap_or(0)
    }

    /// Bytes of the longest READ or WRITE.
    pub(super) fn longest(&self) -> usize {
        let lengths = self.steps.iter().map(|(step, _)| length(*step));
        lengths.max().unwrap_or(0) as usize
    }

    /// A name below the folder of a client; empty for the folder itself.
    pub(super) fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{mix, operation::Kind},
        *,
    };

    #[test]
    fn lines_are_understood() {
        let text = "Deltree \"\\clients\\client1\" NT_STATUS_OK\nMkdir \"\\clients\" NT_STATUS_OK\n\
                    NTCreateX \"\\clients\\client1\\a b\" 0x40 0x2 7 NT_STATUS_OK\n\
                    WriteX 7 65534 1 1 NT_STATUS_OK\n\
                    QUERY_PATH_INFORMATION \"\\clients\\client1\\a b\" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND\n";
        let script = Script::parse(text).unwrap();
        let create = Operation::Create {
            name: Name::Recorded(0),
            options: CreateOptions::NON_DIRECTORY_FILE,
            disposition: CreateDisposition::CREATE,
            handle: 7,
        };
        let write = Operation::Write {
            handle: 7,
            offset: 65_534,
            length: 1,
        };
        let query = Operation::PathInfo {
            name: Name::Recorded(0),
            tag: false,
        };
        assert_eq!(
            script.steps,
            [
                (None, Status::SUCCESS),
                (Some(create), Status::SUCCESS),
                (Some(write), Status::SUCCESS),
                (Some(query), Status::OBJECT_NAME_NOT_FOUND),
            ]
        );
        assert_eq!(script.name(0), "a b");
        assert_eq!(script.fill(), 0);
        let whole = format!("{text}ReadX 7 0 1 1 NT_STATUS_OK\nReadX 7 0 1 1 NT_STATUS_OK\n");
        assert_eq!(Script::parse(&whole).unwrap().fill(), 4);
        for wrong in [
            "",
            "Close x NT_STATUS_OK",
            "Close 1 NT_STATUS_BUSY",
            "Unlink \"\\clients\\client1\\a\" NT_STATUS_OBJECT_NAME_NOT_FOUND",
            "Jump 1",
        ] {
            assert!(Script::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_that_reads_or_writes_too_much_is_refused_with_its_number() {
        let (most, more) = (PIECE_MAX, PIECE_MAX + 1);
        let fits = format!(
            "ReadX 7 0 {most} {most} NT_STATUS_OK\nWriteX 7 0 {most} {most} NT_STATUS_OK\n"
        );
        assert!(Script::parse(&fits).is_ok());
        for line in [
            format!("ReadX 7 0 {more} {more} NT_STATUS_OK"),
            format!("WriteX 7 0 {more} {more} NT_STATUS_OK"),
        ] {
            let refused = Script::parse(&format!("{fits}{line}\n")).unwrap_err();
            assert_eq!(refused, format!("line 3: more than 8388608 bytes: {line}"));
        }
    }

    /// The counts of the built-in mix are those of the load file, where it is installed.
    #[test]
    fn the_mix_has_the_counts_of_the_load_file() {
        if !Path::new(PLACE).exists() {
            let is_required = std::env::var_os("HOLDFAST_REQUIRE_ROOT").is_some();
            assert!(!is_required, "missing: Debian package dbench");
            println!("missing: Debian package dbench");
            return;
        }
        let script = Script::load(Path::new(PLACE)).unwrap();
        let steps = script.steps.iter();
        let steps = steps.filter_map(|(step, status)| Some((step.as_ref()?, *status)));
        let of = |wanted: &dyn Fn(&Operation, Status) -> bool| {
            let found = steps.clone().filter(|(step, status)| wanted(step, *status));
            found.count() as u64
        };
        for (kind, count) in Kind::ALL.into_iter().zip(mix::COUNTS) {
            assert_eq!(of(&|step, _| step.kind() == kind), count, "{kind:?}");
        }
        let failed = |kind| of(&|step, status| step.kind() == kind && !status.is_success());
        assert_eq!(failed(Kind::Create), mix::CREATES[0]);
        assert_eq!(failed(Kind::PathInfo), mix::PATH_INFOS[0]);
        assert_eq!(failed(Kind::Find), mix::FINDS[0]);
        let bytes = steps.clone().map(|(step, _)| step.moved());
        let sum = bytes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert_eq!(sum, (mix::BYTES_READ, mix::BYTES_WRITTEN));
    }
}
