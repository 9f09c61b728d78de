//! Compares Holdfast with Samba: the cost of the same work on each server.
//!
//! A comparison is a matrix (`holdfast bench matrix`) with the rows of `catalogue.rs`: every round runs every workload
//! on every server, one server after the other. The server's CPU time counts (user and system, all threads and
//! children, and the kernel's workers of its rings, which are its threads); rate and latency depend on the client, too.
//! The result is the ratio to the best Samba of the same round, or to the limit (the same bytes without a protocol):
//! its median over the rounds and the interval of that median are compared with the goal of the row.

mod catalogue;
mod report;
mod table;

use std::{fmt::Write, fs, path::PathBuf};

use clap::Args;
use smb_load::rig::config::samba_has_uring;

use crate::{
    Failure,
    chore::{self, cargo, root},
};
use catalogue::{Row, SERVERS, Sizes};
use report::{Maker, Sample};

/// Most rounds.
const ROUNDS_MAX: usize = 100;

/// The options of a comparison.
#[derive(Args)]
pub(crate) struct Options {
    /// Small sizes, short steps and 2 rounds
    #[arg(long)]
    quick: bool,
    /// Rounds over all servers (default 10; verdicts need 6)
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Seconds of a step (default 1)
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Only rows that are called so, or, where no row is, have one of these in their name ("read-4k,netbench")
    #[arg(long, value_name = "LIST")]
    only: Option<String>,
    /// Only servers whose name contains one of these ("sync,uring,limit")
    #[arg(long, value_name = "LIST")]
    servers: Option<String>,
    /// This holdfast instead of a release build of this tree; it is the client, too
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The smbd of this unpacked root of another distribution
    #[arg(long, value_name = "DIR")]
    samba_root: Option<PathBuf>,
    /// The servers on these cores, the clients on those ("0-1:2,3")
    #[arg(long, value_name = "CORES:CORES")]
    pin: Option<String>,
    /// Where the shares are: a folder of an existing file system, or `raw`, `ssd`, `array` or `ide-2003` for an XFS of
    /// its own on a disk as fast as that; several to compare on each of them
    #[arg(long = "disk", value_name = "DISK")]
    disks: Vec<String>,
    /// The results; what is there of another comparison goes
    #[arg(long, value_name = "DIR", default_value = "target/compare")]
    to: PathBuf,
    /// Go on where the same comparison was interrupted
    #[arg(long)]
    resume: bool,
    /// TOML with more servers and workloads, each an inline table in a line of its own, as `server = { ... }` or
    /// `workload = { ... }`; they are those of `holdfast bench matrix`
    #[arg(long, value_name = "FILE")]
    add: Option<PathBuf>,
    /// Put the table between the marks of this page (docs/performance.md)
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Whether a name has one of the parts of a list in it, if there is a list.
fn is_among(list: Option<&str>, name: &str) -> bool {
    list.is_none_or(|list| list.split(',').any(|part| name.contains(part)))
}

/// The rows that were asked for. A part of the list that is a row's whole name means this row alone.
fn rows_asked(only: Option<&str>, sizes: Sizes) -> Vec<Row> {
    let rows = catalogue::rows(sizes);
    let Some(list) = only else { return rows };
    let parts: Vec<(&str, bool)> = list
        .split(',')
        .map(|part| (part, rows.iter().any(|row| row.name == part)))
        .collect();
    rows.into_iter()
        .filter(|row| {
            parts.iter().any(|&(part, is_whole)| match is_whole {
                true => row.name == part,
                false => row.name.contains(part),
            })
        })
        .collect()
}

pub(crate) fn compare(options: &Options) -> Result<(), Failure> {
    let sizes = match options.quick {
        true => Sizes::QUICK,
        false => Sizes::FULL,
    };
    let rows = rows_asked(options.only.as_deref(), sizes);
    let plan = plan(options, sizes, &rows)?;
    let program = match &options.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => chore::build(&mut cargo(&root(), "release", &["build"])?, "release")?,
    };
    let results = std::path::absolute(&options.to)?;
    if !options.resume {
        // The rest is the matrix's to take away: a disk may still be mounted in it.
        let gone = |path: PathBuf| match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        };
        gone(results.join("runs"))?;
        gone(results.join("plan.toml"))?;
    }
    let runs = chore::matrix(&program, &plan, &results)?;
    let one_disk = options.disks.len() < 2;
    let samples = runs.iter();
    let samples: Vec<Sample> = samples
        .filter_map(|run| Sample::of(run, &rows, one_disk))
        .collect();
    let rows = report::rows(&samples, &rows);
    fs::write(
        results.join("rows.json"),
        serde_json::to_string_pretty(&rows)?,
    )?;
    print!("{}", table::text(&rows));
    if let Some(page) = &options.markdown {
        table::insert(page, &table::markdown(options.quick, &runs, &rows))?;
    }
    println!("numbers: {}", results.display());
    match runs.len() - samples.len() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} runs failed", runs.len()).into()),
    }
}

/// The comparison as a plan of a matrix.
fn plan(options: &Options, sizes: Sizes, rows: &[Row]) -> Result<String, Failure> {
    let uring = samba_has_uring(options.samba_root.as_deref());
    if !uring {
        println!("missing: samba-vfs-modules. The best Samba is one of two settings, not of three");
    }
    let wanted = |(name, _): &&(&str, &str)| {
        let is_possible = uring || !name.starts_with("samba-uring");
        let is_used = rows.iter().any(|row| row.fits(name));
        is_possible && is_used && is_among(options.servers.as_deref(), name)
    };
    let mut servers = String::new();
    let mut names = Vec::new();
    for (name, plan) in SERVERS.iter().filter(wanted) {
        let root = options.samba_root.as_ref();
        let root = root.filter(|_| Maker::of(name) == Maker::Samba);
        let root = root.map(std::path::absolute).transpose()?;
        let root = root.map_or_else(String::new, |root| {
            format!(", root = {:?}", root.display().to_string())
        });
        writeln!(servers, "    {{ name = {name:?}, {plan}{root} }},")?;
        names.push((*name).to_owned());
    }
    let added = match &options.add {
        Some(file) => Added::read(&fs::read_to_string(file)?),
        None => Added::default(),
    };
    names.extend(added.names);
    servers += &added.servers;
    let mut workloads = String::new();
    for row in rows {
        let Row { name, plan, .. } = row;
        let fit: Vec<&String> = names.iter().filter(|server| row.fits(server)).collect();
        if !fit.is_empty() {
            writeln!(
                workloads,
                "    {{ name = {name:?}, servers = {fit:?}, {plan} }},"
            )?;
        }
    }
    let disks = disks(&options.disks)?;
    let rounds = if options.quick { 2 } else { 10 };
    let rounds = options.rounds.unwrap_or(rounds).clamp(1, ROUNDS_MAX);
    let seconds = options.seconds.unwrap_or(sizes.seconds);
    let pin = options.pin.as_ref();
    let pin = pin.map_or_else(String::new, |pin| format!("pin = {pin:?}\n"));
    Ok(format!(
        "seconds = {seconds:?}\nwarm_up = {:?}\nrounds = {rounds}\nclients = [1]\n{pin}\
         server = [\n{servers}]\nworkload = [\n{workloads}{}]\n{disks}",
        seconds / 10.0,
        added.workloads,
    ))
}

/// Servers and workloads of a file, as lines of the plan.
#[derive(Default)]
struct Added {
    names: Vec<String>,
    servers: String,
    workloads: String,
}

impl Added {
    fn read(text: &str) -> Self {
        let mut this = Self::default();
        for line in text.lines() {
            let Some((key, table)) = line.split_once('=') else {
                continue;
            };
            let table = table.trim();
            match key.trim() {
                "server" => {
                    this.servers += &format!("    {table},\n");
                    this.names.extend(name_of(table));
                }
                "workload" => this.workloads += &format!("    {table},\n"),
                _ => {}
            }
        }
        this
    }
}

/// The disks as the plan has them: none for the folder of the results.
fn disks(disks: &[String]) -> Result<String, Failure> {
    let mut text = String::new();
    for disk in disks {
        let kind = match disk.as_str() {
            "raw" | "ssd" | "array" | "ide-2003" => {
                format!("class = {disk:?}, file_system = \"xfs\"")
            }
            folder => format!("class = \"folder\", folder = {folder:?}"),
        };
        writeln!(text, "    {{ name = {disk:?}, {kind} }},")?;
    }
    Ok(match text.as_str() {
        "" => text,
        disks => format!("disk = [\n{disks}]\n"),
    })
}

/// The name in an inline table.
fn name_of(table: &str) -> Option<String> {
    let (_, rest) = table.split_once("name")?;
    Some(rest.split('"').nth(1)?.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn made(arguments: &[&str]) -> String {
        let arguments = ["compare"].iter().chain(arguments);
        let options = Line::try_parse_from(arguments).unwrap().options;
        let rows = rows_asked(options.only.as_deref(), Sizes::QUICK);
        plan(&options, Sizes::QUICK, &rows).unwrap()
    }

    #[test]
    fn options_become_parts_of_the_plan() {
        let add = tempfile::NamedTempFile::new().unwrap();
        let lines = "server = { name = \"old NAS\", kind = \"address\" }\nworkload = { kind = \"replay\" }\n";
        fs::write(add.path(), lines).unwrap();
        let plan = made(&[
            "--only=write-flush-4k,flush-4k-la",
            "--servers=sync,threads,limit",
            "--samba-root=/srv/trixie",
            "--pin=0:1",
            "--disk=ssd",
            "--disk=/mnt/disk",
            "--rounds=7",
            "--add",
            add.path().to_str().unwrap(),
        ]);
        for part in [
            "rounds = 7\n",
            "pin = \"0:1\"\n",
            "{ name = \"samba-sync\", kind = \"samba\", strict_sync = true, root = \"/srv/trixie\" },",
            "{ name = \"ssd\", class = \"ssd\", file_system = \"xfs\" },",
            "{ name = \"/mnt/disk\", class = \"folder\", folder = \"/mnt/disk\" },",
            "{ name = \"old NAS\", kind = \"address\" },",
            "{ kind = \"replay\" },",
            "servers = [\"samba-sync-lax\", \"holdfast-threads-lax\", \"samba-threads-lax\", \"limit-lax\", \"old NAS\"]",
        ] {
            assert!(plan.contains(part), "{part}\n{plan}");
        }
        assert!(!plan.contains("name = \"write-flush-4k-8\""), "{plan}");
        assert!(!plan.contains("uring") && !plan.contains("limit-sendfile"));
    }
}
