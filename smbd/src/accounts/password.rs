//! Gets passwords from a file, standard input or a prompt without echo, or makes random ones.
//!
//! Every copy is wiped when dropped, and none is written anywhere. A password is one line of up to
//! [`PASSWORD_CHARS_MAX`] characters.

use std::{
    fmt::Display,
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// Longest password in characters; Windows accepts no longer ones.
pub const PASSWORD_CHARS_MAX: usize = 256;
/// Most bytes read for one password: four for each character, and the line's end.
const LINE_BYTES_MAX: u64 = 4 * PASSWORD_CHARS_MAX as u64 + 2;
/// Letters and digits that cannot be mistaken for one another; 32 of them, five bits each.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";
const GENERATED_GROUPS: usize = 4;
const GROUP_LETTERS: usize = 4;

/// A password; wiped when dropped.
pub type Password = Zeroizing<String>;

/// Takes the first line of a file.
pub fn from_file(path: &Path) -> io::Result<Password> {
    let name = |error: io::Error| with_way_out(path.display(), &error);
    let file = File::open(path).map_err(name)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        // It is not refused, because containers provide their secrets like this.
        let _ = writeln!(io::stderr(), "warning: others can read {}", path.display());
    }
    first_line(file).map_err(name)
}

fn with_way_out(source: impl Display, error: &io::Error) -> io::Error {
    let way_out = format!(
        "its first line must be the password, of 1 to {PASSWORD_CHARS_MAX} characters in UTF-8"
    );
    io::Error::new(error.kind(), format!("{source}: {error}\n  = {way_out}"))
}

/// Reads a password from a file, or from standard input for `-`.
pub fn read(file: &Path) -> io::Result<Password> {
    if file == Path::new("-") {
        ask("Password: ", false)
    } else {
        from_file(file)
    }
}

/// Asks on the terminal, without echo, and twice if `confirm`; reads a line if standard input is no
/// terminal.
///
/// # Errors
/// If nothing can be read, the answers differ, or there is no password in them.
pub fn ask(prompt: &str, confirm: bool) -> io::Result<Password> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return first_line(stdin).map_err(|error| with_way_out("standard input", &error));
    }
    let password = ask_once(prompt)?;
    if confirm && *ask_once("Once more: ")? != *password {
        return Err(io::Error::other("the two passwords differ"));
    }
    Ok(password)
}

fn ask_once(prompt: &str) -> io::Result<Password> {
    let stdin = io::stdin();
    let mut stderr = io::stderr();
    write!(stderr, "{prompt}")?;
    stderr.flush()?;
    let quiet = Quiet::new(&stdin)?;
    let line = first_line(&stdin);
    drop(quiet);
    // The line is there, whether or not the cursor moves on.
    let _ = writeln!(stderr);
    line
}

/// Turns the echo off while it lives.
struct Quiet<'a, F: AsFd> {
    terminal: &'a F,
    before: Termios,
}

impl<'a, F: AsFd> Quiet<'a, F> {
    fn new(terminal: &'a F) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        quiet.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl<F: AsFd> Drop for Quiet<'_, F> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

fn first_line(from: impl Read) -> io::Result<Password> {
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_BYTES_MAX as usize));
    BufReader::with_capacity(1, from)
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)?;
    let text =
        std::str::from_utf8(&line).map_err(|_| io::Error::other("the password is not UTF-8"))?;
    // Some editors write a byte order mark, which nobody would type.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let password = text.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Err(io::Error::other("there is no password in the first line"));
    }
    if password.chars().count() > PASSWORD_CHARS_MAX {
        return Err(io::Error::other(format!(
            "the password is longer than {PASSWORD_CHARS_MAX} characters"
        )));
    }
    Ok(Zeroizing::new(password.to_owned()))
}

/// A password of 80 random bits that can be read aloud.
#[expect(
    clippy::indexing_slicing,
    reason = "five bits are below the alphabet's length"
)]
pub fn generate() -> io::Result<Password> {
    let mut random = Zeroizing::new([0; GENERATED_GROUPS * GROUP_LETTERS]);
    getrandom::fill(random.as_mut_slice()).map_err(io::Error::other)?;
    let mut password = Zeroizing::new(String::with_capacity(32));
    for (index, byte) in random.iter().enumerate() {
        if index > 0 && index % GROUP_LETTERS == 0 {
            password.push('-');
        }
        password.push(char::from(ALPHABET[usize::from(byte & 31)]));
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_a_password() {
        assert_eq!(*first_line(&b"secret\nmore"[..]).unwrap(), "secret");
        assert_eq!(*first_line(&b" sp ace \r\n"[..]).unwrap(), " sp ace ");
        assert_eq!(
            *first_line("\u{feff}secret\r\n".as_bytes()).unwrap(),
            "secret"
        );
        let longest = "\u{1f511}".repeat(PASSWORD_CHARS_MAX);
        assert_eq!(*first_line(longest.as_bytes()).unwrap(), longest);
        for bad in [
            "".as_bytes(),
            b"\nsecret",
            b"\xff\n",
            "x".repeat(257).as_bytes(),
            "x".repeat(90_000).as_bytes(),
        ] {
            first_line(bad).unwrap_err();
        }
    }

    #[test]
    fn generated_ones_differ_and_can_be_typed() {
        let one = generate().unwrap();
        assert_eq!(one.len(), 19);
        assert_ne!(*one, *generate().unwrap());
        assert!(one.bytes().all(|b| b == b'-' || ALPHABET.contains(&b)));
        assert!(
            ALPHABET
                .iter()
                .enumerate()
                .all(|(at, letter)| !ALPHABET[..at].contains(letter))
        );
    }

    #[test]
    fn files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "secret\n").unwrap();
        assert_eq!(*from_file(&path).unwrap(), "secret");
        let missing = from_file(&folder.path().join("none"))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("none: "), "{missing}");
        let way_out = "\n  = its first line must be the password";
        assert!(missing.contains(way_out), "{missing}");
    }
}
