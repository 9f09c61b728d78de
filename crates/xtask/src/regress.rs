//! Checks whether a change made the server slower: an older commit and this tree, measured in turn by the same client.
//!
//! Both servers are built here and take every step of one matrix, one after the other, so that a disturbance of the
//! machine affects both. The CPU time of an operation decides, which depends less on other programs than a rate does.
//! The client is that of this tree for both. Then each runs its own criterion benches of whole requests, in turn, where
//! the median time decides. It fails where the whole 95 % interval of the ratios of the rounds is above the limit, and
//! where too little could be measured to have such intervals. All measurements stay in JSON.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;
use serde::Serialize;
use smb_load::statistics::{median, widest};

use crate::{
    Failure,
    chore::{self, Run, git, root, run, said, target},
};

/// The highest ratio that is no failure.
const LIMIT: f64 = 1.25;
/// Rounds; six are the fewest of which an interval of 95 % can be had.
const ROUNDS: usize = 6;
/// Workloads of `plan_text`.
const WORKLOADS: usize = 4;
/// So often the matrix is run where single measurements fail, as one that finds its port taken does.
const ATTEMPTS: usize = 3;
/// The older commit is at least so many seconds older, so that it is no part of the same change.
const OLDER: i64 = 6 * 3600;
/// One whose server an earlier run has kept serves as well, if it is no more than so many seconds older.
const OLDEST: i64 = 36 * 3600;
/// Servers that are kept, and as many programs of benches.
const KEPT_MAX: usize = 8;
/// The benches that are compared, as criterion's filter: the rest differ in the size or the cipher.
const BENCHES: &str =
    "request/((echo|read-4k|write-64k|create-remove)/plain|(read-4k|write-64k)/sealed-gcm)";

/// The options of the chore.
#[derive(Args)]
pub(crate) struct Options {
    /// Compare with this commit (default: the newest that is 6 hours older than HEAD)
    #[arg(long, value_name = "COMMIT")]
    base: Option<String>,
    /// How both are built
    #[arg(long, value_name = "NAME", default_value = "dev")]
    profile: String,
    /// Only build the older commit, beside other work, for a comparison that follows
    #[arg(long)]
    prepare: bool,
    /// Where servers and numbers go
    #[arg(long, value_name = "FOLDER", default_value = "target/regress")]
    to: PathBuf,
}

struct Programs {
    server: PathBuf,
    /// Its benches of whole requests.
    bench: PathBuf,
}

impl Programs {
    /// At a place, where they may not be yet.
    fn at(server: PathBuf) -> Self {
        let bench = server.with_added_extension("bench");
        Self { server, bench }
    }

    fn exist(&self) -> bool {
        self.server.exists() && self.bench.exists()
    }

    fn copy(&self, to: &Self) -> Result<(), Failure> {
        fs::copy(&self.server, &to.server)?;
        fs::copy(&self.bench, &to.bench)?;
        Ok(())
    }
}

/// One workload: what an operation costs this tree, divided by what it costs the older commit.
#[derive(Serialize)]
struct Row {
    workload: String,
    /// The medians of both, nanoseconds.
    base_ns: f64,
    head_ns: f64,
    ratio: f64,
    interval: Option<(f64, f64)>,
    is_slower: bool,
}

/// The numbers of a run.
#[derive(Serialize)]
struct Comparison<'a> {
    base: &'a str,
    /// The commit of this tree; it ends in `-dirty` if files differ from it.
    head: &'a str,
    rows: &'a [Row],
}

/// Builds both, measures both, and fails if this tree is slower.
pub(crate) fn regress(options: &Options) -> Result<(), Failure> {
    let root = root();
    let Some(base) = base(options, &root)? else {
        // A comparison that could not be made has not passed: `tests/run` counts.
        println!("missing: history that is six hours older\n0 passed, 0 failed");
        return Ok(());
    };
    let folder = std::path::absolute(&options.to)?;
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let older = kept(&base, &options.profile)?;
    if !older.exist() {
        // A change that cannot be compared has not passed; `--base` names another commit.
        build_base(&root, &base, &options.profile, &folder, &older)
            .map_err(|error| format!("not compared: {base} does not build: {error}"))?;
    }
    if options.prepare {
        return Ok(());
    }
    // Before it is built: a commit that is made meanwhile is not what was measured.
    let head = head(&root)?;
    let newer = Programs::at(folder.join("head"));
    build(&root, &options.profile, &newer)?;
    keep(&root, &options.profile, &newer)?;
    let plan = plan_text(&older.server, &newer.server);
    let mut costs = costs(&measure(&newer.server, &plan, &folder.join("results"))?);
    costs.extend(bench(&older, &newer, &folder)?);
    let rows = rows(&costs);
    // Beside the folder, which the next run removes: a person plots the lines of many commits.
    let numbers = folder.with_extension("jsonl");
    let comparison = Comparison {
        base: &base,
        head: &head,
        rows: &rows,
    };
    append(&numbers, &serde_json::to_string(&comparison)?)?;
    let base = base.get(..12).unwrap_or(&base);
    println!("Time of an operation, this tree divided by {base}:");
    for row in &rows {
        let interval = row.interval.map_or_else(String::new, |(low, high)| {
            format!(" ({low:.2} to {high:.2})")
        });
        let verdict = if row.is_slower { ": SLOWER" } else { "" };
        println!("{:>32} {:.2}{interval}{verdict}", row.workload, row.ratio);
    }
    println!("numbers: {}", numbers.display());
    if !suffice(&rows) {
        return Err("too little was measured".into());
    }
    match rows.iter().any(|row| row.is_slower) {
        true => Err(format!("slower than {LIMIT} times {base}").into()),
        false => Ok(()),
    }
}

/// The commit of this tree, also where a tag could name it.
fn head(root: &Path) -> Result<String, Failure> {
    let describe = [
        "describe",
        "--always",
        "--exclude=*",
        "--abbrev=40",
        "--dirty",
    ];
    git(root, &describe)
}

fn append(file: &Path, line: &str) -> Result<(), Failure> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?;
    writeln!(file, "{line}")?;
    Ok(())
}

/// Where the programs of a commit are kept, so that a later run need not build them.
fn kept(commit: &str, profile: &str) -> Result<Programs, Failure> {
    let folder = target()?.join("regress-kept");
    fs::create_dir_all(&folder)?;
    Ok(Programs::at(folder.join(format!("{profile}-{commit}"))))
}

/// Keeps the programs of this tree, if they are those of a commit, and takes away the oldest of too many.
fn keep(root: &Path, profile: &str, programs: &Programs) -> Result<(), Failure> {
    let git = |args: &[&str]| git(root, args);
    if !git(&["status", "--porcelain"])?.is_empty() {
        return Ok(());
    }
    let place = kept(&git(&["rev-parse", "HEAD"])?, profile)?;
    programs.copy(&place)?;
    let mut all = Vec::new();
    for entry in fs::read_dir(place.server.parent().unwrap_or(root))? {
        let entry = entry?;
        all.push((entry.metadata()?.modified()?, entry.path()));
    }
    all.sort();
    let too_many = all.len().saturating_sub(2 * KEPT_MAX);
    for (_, path) in all.into_iter().take(too_many) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Runs the matrix, and again what failed of it.
fn measure(program: &Path, plan: &str, results: &Path) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for _ in 0..ATTEMPTS {
        // It measures nothing again that it has a result of.
        runs = chore::matrix(program, plan, results)?;
        if runs.iter().all(|run| run.record.outcome.is_some()) {
            return Ok(runs);
        }
        remove_failed(&results.join("runs"))?;
    }
    let failed = runs.iter().filter_map(|run| run.record.error.as_deref());
    Err(failed.collect::<Vec<_>>().join("\n").into())
}

/// Removes the measurements that failed, so that the next run of the matrix repeats them.
fn remove_failed(runs: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(runs)? {
        let path = entry?.path();
        let run: Run = serde_json::from_str(&fs::read_to_string(&path)?)?;
        if run.record.outcome.is_none() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The commit to compare with.
fn base(options: &Options, root: &Path) -> Result<Option<String>, Failure> {
    let git = |args: &[&str]| git(root, args);
    if let Some(base) = &options.base {
        return git(&["rev-parse", "--verify", base]).map(Some);
    }
    // A tree that was exported has no history.
    let Ok(of_head) = git(&["log", "-1", "--format=%ct"]) else {
        return Ok(None);
    };
    let of_head: i64 = of_head.parse()?;
    let before = format!("--before=@{}", of_head - OLDER);
    let newest = git(&["rev-list", "-1", &before, "HEAD"])?;
    let after = format!("--after=@{}", of_head - OLDEST);
    let recent = git(&["rev-list", &before, &after, "HEAD"])?;
    for commit in recent.lines() {
        if kept(commit, &options.profile)?.exist() {
            return Ok(Some(commit.to_owned()));
        }
    }
    Ok((!newest.is_empty()).then_some(newest))
}

/// Builds the programs of a commit in a work tree of its own.
fn build_base(
    root: &Path,
    commit: &str,
    profile: &str,
    folder: &Path,
    to: &Programs,
) -> Result<(), Failure> {
    let tree = folder.join("tree");
    // By force: an earlier run that was interrupted has left its place in git's list.
    let add = ["worktree", "add", "--force", "--quiet", "--detach"];
    run(Command::new("git")
        .arg("-C")
        .arg(root)
        .args(add)
        .arg(&tree)
        .arg(commit))?;
    let built = build(&tree, profile, to);
    run(Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["worktree", "remove", "--force"])
        .arg(&tree))?;
    built
}

/// Builds the programs of a tree with the target folder of this one, and keeps them under other names.
fn build(tree: &Path, profile: &str, to: &Programs) -> Result<(), Failure> {
    let mut command = lean(tree, profile, &["build"])?;
    fs::copy(chore::build(&mut command, profile)?, &to.server)?;
    // As `cargo test` builds it, so that nothing is built twice.
    let bench = ["test", "--bench", "request", "--no-run"];
    let messages = said(lean(tree, profile, &bench)?.arg("--message-format=json"))?;
    let program = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        // The package's other programs are built beside it.
        let is_bench = message["target"]["name"] == "request";
        Some(
            message["executable"]
                .as_str()
                .filter(|_| is_bench)?
                .to_owned(),
        )
    };
    let built = messages.lines().find_map(program);
    fs::copy(
        built.ok_or("cargo names no program of the benches")?,
        &to.bench,
    )?;
    Ok(())
}

fn lean(tree: &Path, profile: &str, what: &[&str]) -> Result<Command, Failure> {
    let mut command = chore::cargo(tree, profile, what)?;
    if tree != root() {
        // Nobody debugs the older one, and it is built in less time without what that takes.
        command.env("CARGO_PROFILE_DEV_DEBUG", "none");
        command.arg("--config").arg(profiles(tree)?);
    }
    Ok(command)
}

/// Writes the profiles of this tree beside another one, which is built with them: code is compared, not how it is
/// optimised, and what both depend on is built once.
fn profiles(tree: &Path) -> Result<PathBuf, Failure> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let mut within = false;
    let mut text = String::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            within = line.starts_with("[profile.");
        }
        if within {
            text += line;
            text.push('\n');
        }
    }
    let path = tree.with_extension("profiles.toml");
    fs::write(&path, text)?;
    Ok(path)
}

fn plan_text(older: &Path, newer: &Path) -> String {
    let server = |name: &str, binary: &Path| {
        format!(
            "[[server]]\nname = \"{name}\"\nkind = \"holdfast\"\npolicy = \"honor\"\nbinary = {:?}\n",
            binary.display().to_string()
        )
    };
    format!(
        "seconds = 1\nwarm_up = 0\nrounds = {ROUNDS}\nclients = [4]\n{}{}\
         [[workload]]\nkind = \"netbench\"\ndocuments = 8\n[[workload]]\nkind = \"flush-ladder\"\n\
         [[workload]]\nkind = \"file-copy\"\nmebibytes = 8\n[[workload]]\nkind = \"metadata\"\n",
        server("base", older),
        server("head", newer)
    )
}

/// Runs the benches of both in turn, which of them first changing from round to round.
fn bench(older: &Programs, newer: &Programs, folder: &Path) -> Result<Costs, Failure> {
    let mut costs = Costs::new();
    for round in 0..ROUNDS {
        let mut both = [("base", older), ("head", newer)];
        if round % 2 == 1 {
            both.reverse();
        }
        for (name, programs) in both {
            let home = folder.join(format!("criterion/{round}-{name}"));
            said(
                Command::new(&programs.bench)
                    .args(["--bench", "--noplot", "--sample-size", "10"])
                    // Only the median counts here, and intervals of 100,000 resamples take most of the time.
                    .args(["--nresamples", "1000"])
                    .args([
                        "--warm-up-time",
                        "0.1",
                        "--measurement-time",
                        "0.2",
                        BENCHES,
                    ])
                    .env("CRITERION_HOME", &home),
            )?;
            for (bench, nanoseconds) in estimates(&home)? {
                let of_round = costs.entry((bench, round as u64)).or_default();
                of_round.insert(name.to_owned(), nanoseconds);
            }
        }
    }
    Ok(costs)
}

/// The median of each bench that criterion left in a folder.
fn estimates(home: &Path) -> Result<Vec<(String, f64)>, Failure> {
    let mut found = Vec::new();
    for group in fs::read_dir(home)? {
        for bench in fs::read_dir(group?.path())? {
            let new = bench?.path().join("new");
            let Ok(estimates) = fs::read_to_string(new.join("estimates.json")) else {
                continue;
            };
            let about: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(new.join("benchmark.json"))?)?;
            let estimates: serde_json::Value = serde_json::from_str(&estimates)?;
            let median = estimates["median"]["point_estimate"].as_f64();
            if let (Some(name), Some(median)) = (about["full_id"].as_str(), median) {
                found.push((name.to_owned(), median));
            }
        }
    }
    Ok(found)
}

/// The time of an operation in nanoseconds, by workload, round and server: only its ratios count.
type Costs = BTreeMap<(String, u64), BTreeMap<String, f64>>;

fn costs(runs: &[Run]) -> Costs {
    let mut costs = Costs::new();
    for run in runs {
        if let (Some(cpu), Some(outcome)) = (run.server_cpu, &run.record.outcome) {
            let of_round = costs.entry((run.title.clone(), run.round as u64));
            let cost = cpu * 1e9 / outcome.measured.operations.max(1) as f64;
            of_round
                .or_default()
                .insert(run.record.server.clone(), cost);
        }
    }
    costs
}

fn rows(costs: &Costs) -> Vec<Row> {
    let mut pairs: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for ((title, _), of_round) in costs {
        let of = |name: &str| of_round.get(name).copied().filter(|cost| *cost > 0.0);
        // A cost of nothing is one that was too low to be counted, and has no ratio.
        if let (Some(base), Some(head)) = (of("base"), of("head")) {
            pairs.entry(title).or_default().push((base, head));
        }
    }
    let middle = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    let row = |(workload, pairs): (&str, Vec<(f64, f64)>)| {
        let of = |value: fn(&(f64, f64)) -> f64| pairs.iter().map(value).collect::<Vec<f64>>();
        let ratios = of(|(base, head)| head / base);
        let interval = widest(&ratios).filter(|(_, _, sure)| *sure >= 0.95);
        Row {
            workload: workload.to_owned(),
            base_ns: middle(&of(|pair| pair.0)),
            head_ns: middle(&of(|pair| pair.1)),
            ratio: middle(&ratios),
            is_slower: interval.is_some_and(|(low, ..)| low > LIMIT),
            interval: interval.map(|(low, high, _)| (low, high)),
        }
    };
    pairs.into_iter().map(row).collect()
}

/// Whether there is more than the workloads, as some of the benches should be there, and all of it in every round.
fn suffice(rows: &[Row]) -> bool {
    rows.len() > WORKLOADS && rows.iter().all(|row| row.interval.is_some())
}

#[cfg(test)]
mod tests;
