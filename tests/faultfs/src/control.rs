//! The control socket: one command a line, answered when it has taken effect.
//!
//! An answer is any number of lines that begin with two spaces, then `ok`, `ok VALUE` or
//! `error WHY`. The commands:
//!
//! | command | effect |
//! |---|---|
//! | `rule KINDS PATTERN NTH COUNT ACTION` | adds a rule; its number ([`crate::rules`], [`crate::kind`]) |
//! | `rules` | lists: number, calls that fitted, calls that were hit, the last of these |
//! | `clear [ID]` | removes one rule or all |
//! | `wait ID HITS MS` | until the rule has hit so often; how often it has |
//! | `release go\|fail` | lets calls that hang go on or fail; how many |
//! | `off-mode error\|hang` | what calls meet while the power is off |
//! | `cut HOW` | the power goes: `nothing`, `everything` or a seed of what waits survives |
//! | `thaw` | the power comes back |
//! | `reset SEED PROFILE` | a new, empty disk: `posix-min`, `journal`, `log-tree`, `untracked` |
//! | `capacity BLOCKS` | size of the disk in blocks of 4,096 bytes |
//! | `fail-write-back ERRNO` | what waited longest is lost at write-back; the inode number |
//! | `state` | `on` or `off`, waiting effects, hanging calls, open files |
//! | `stats` | calls by kind |
//! | `trace` | the last calls and how they ended |
//!
//! Every client of the socket is trusted; lines longer than [`LINE_MAX`] end the conversation.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    time::{Duration, Instant},
};

use vfs::sim::Profile;

use crate::{
    Shared,
    kind::KINDS,
    rules::{cut, errno, number},
    world::World,
};

/// Longest command in bytes.
pub const LINE_MAX: u64 = 4096;

/// A profile by its name.
///
/// # Errors
/// The word, when it is none.
pub fn profile(name: &str) -> Result<Profile, String> {
    match name {
        "posix-min" => Ok(Profile::PosixMin),
        "journal" => Ok(Profile::Journal),
        "log-tree" => Ok(Profile::LogTree),
        "untracked" => Ok(Profile::Untracked),
        _ => Err(format!("no profile: {name}")),
    }
}

/// Serves the socket until the process ends; one thread a conversation.
pub fn serve(listener: &UnixListener, shared: &Shared) {
    for stream in listener.incoming().flatten() {
        let shared = shared.clone();
        std::thread::spawn(move || converse(stream, &shared));
    }
}

fn converse(stream: UnixStream, shared: &Shared) {
    let Ok(mut out) = stream.try_clone() else {
        return;
    };
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        match (&mut input).take(LINE_MAX).read_line(&mut line) {
            Ok(n) if n > 0 && line.ends_with('\n') => {}
            _ => return,
        }
        let mut lines = Vec::new();
        let answer = match command(line.trim(), shared, &mut lines) {
            Ok(value) if value.is_empty() => "ok".to_owned(),
            Ok(value) => format!("ok {value}"),
            Err(why) => format!("error {why}"),
        };
        let mut text = String::new();
        for line in lines {
            text.push_str("  ");
            text.push_str(&line);
            text.push('\n');
        }
        if out
            .write_all(format!("{text}{answer}\n").as_bytes())
            .is_err()
        {
            return;
        }
    }
}

fn command(text: &str, shared: &Shared, lines: &mut Vec<String>) -> Result<String, String> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    if verb == "wait" {
        return wait(&words, shared);
    }
    let world = &mut shared.lock();
    let done = Ok(String::new());
    match (verb, &words[..]) {
        ("rule", _) => return world.plan.add(rest).map(|id| id.to_string()),
        ("clear", []) => world.plan.clear(None),
        ("clear", [id]) => world.plan.clear(Some(number(id)?)),
        ("release", ["go"]) => return Ok(world.release(true).to_string()),
        ("release", ["fail"]) => return Ok(world.release(false).to_string()),
        ("off-mode", ["hang"]) => world.hangs = true,
        ("off-mode", ["error"]) => world.hangs = false,
        ("reset", [seed, name]) => world.reset(number(seed)?, profile(name)?),
        ("capacity", [blocks]) => world.disk().set_capacity(number(blocks)?),
        ("cut", [how]) => {
            let waiting = world.disk().pending();
            let cut = world.cut(cut(how)?);
            let off = || "the power is off already".to_owned();
            return cut.then(|| waiting.to_string()).ok_or_else(off);
        }
        ("thaw", []) if world.thaw() => {}
        ("thaw", []) => return Err("the power is on".to_owned()),
        ("fail-write-back", [name]) => {
            let lost = world.disk().fail_write_back(errno(name)?);
            let lost = lost.map(|ino| ino.to_string());
            return lost.ok_or_else(|| "nothing waits".to_owned());
        }
        _ => return send(text, world, lines),
    }
    done
}

/// The commands that only look.
fn send(text: &str, world: &World, lines: &mut Vec<String>) -> Result<String, String> {
    match text {
        "rules" => {
            let rules = world.plan.rules().iter();
            lines.extend(rules.map(|r| format!("{} {} {} {}", r.id, r.seen, r.hits, r.victim)));
        }
        "stats" => {
            for (kind, name) in KINDS {
                lines.push(format!("{name} {}", world.stats[kind.index()]));
            }
        }
        "trace" => lines.extend(world.trace.iter().cloned()),
        "state" => {
            return Ok(format!(
                "{} {} {} {}",
                if world.is_off() { "off" } else { "on" },
                world.disk().pending(),
                world.parked.len(),
                world.open_files(),
            ));
        }
        _ => return Err(format!("not understood: {text}")),
    }
    Ok(String::new())
}

fn wait(words: &[&str], shared: &Shared) -> Result<String, String> {
    let [id, hits, ms] = words else {
        return Err("wait ID HITS MS".to_owned());
    };
    let (id, hits) = (number(id)?, number(hits)?);
    let end = Instant::now() + Duration::from_millis(number(ms)?);
    loop {
        let had = shared
            .lock()
            .plan
            .rules()
            .iter()
            .find(|rule| rule.id == id)
            .map(|rule| rule.hits)
            .ok_or_else(|| format!("no rule {id}"))?;
        if had >= hits {
            return Ok(had.to_string());
        }
        if Instant::now() >= end {
            return Err(format!("only {had} hits"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The other side of the socket.
#[derive(Debug)]
pub struct Control {
    input: BufReader<UnixStream>,
    out: UnixStream,
}

impl Control {
    /// Connects.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn connect(path: &Path) -> std::io::Result<Self> {
        let out = UnixStream::connect(path)?;
        Ok(Self {
            input: BufReader::new(out.try_clone()?),
            out,
        })
    }

    /// Sends a command; the lines of the answer and its value.
    ///
    /// # Errors
    /// Why it was refused, or why the conversation ended.
    pub fn ask(&mut self, command: &str) -> Result<(Vec<String>, String), String> {
        let mut lines = Vec::new();
        self.out
            .write_all(format!("{command}\n").as_bytes())
            .map_err(|e| e.to_string())?;
        loop {
            let mut line = String::new();
            let got = self.input.read_line(&mut line);
            if !matches!(got, Ok(n) if n > 0) {
                return Err(format!("faultfs ended: {got:?}"));
            }
            let line = line.trim_end_matches('\n');
            match line.split_once(' ').unwrap_or((line, "")) {
                ("", _) => lines.push(line.trim_start().to_owned()),
                ("ok", value) => return Ok((lines, value.to_owned())),
                (_, why) => return Err(format!("{command}: {why}")),
            }
        }
    }

    /// Sends a command; the value of the answer.
    ///
    /// # Panics
    /// When it is refused: a test that cannot plant its fault proves nothing.
    #[track_caller]
    pub fn send(&mut self, command: &str) -> String {
        match self.ask(command) {
            Ok((_, value)) => value,
            Err(why) => panic!("{why}"),
        }
    }
}
