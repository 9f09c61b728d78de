//! "A refused operation changes nothing": every call of a fixed workload fails once.
//!
//! The workload runs undisturbed first; what the share held after each step is kept. Then it runs
//! again and again, the first call failing, the second, ..., until none is left to fail. The step
//! that met the failure must have answered the error and left the share as it was before, or
//! success and left it as it was after; also to a server started anew, and a retry must do what
//! the step did undisturbed.

use smb_client::ClientError;
use smb_wire::Status;

use crate::{
    Rig,
    snapshot::{Snapshot, difference, snapshot},
    workload::{Again, Run, Step, steps},
};

/// Failures that are known to leave a part: words of the place of failure, and why.
const KNOWN: [(&[&str], &str); 4] = [
    (
        &["copy chunks"],
        "what was copied before the failure stays, as on Windows",
    ),
    // FUSE asks for attributes within open(O_CREAT), after it made the file.
    (&["(getattr", "CREATE f CREATE"], MADE_AND_REFUSED),
    (&["(getattr", "CREATE r CREATE"], MADE_AND_REFUSED),
    (&["(getattr", "CREATE copy CREATE"], MADE_AND_REFUSED),
];
const MADE_AND_REFUSED: &str =
    "the kernel makes the file and fails the open: nobody can tell any more whose it is";
/// Without `FAULTFS_ALL` every so many points one is tried.
const STRIDE: usize = 16;
/// Safety against a workload that never runs out of calls.
const POINTS_MAX: usize = 2000;

struct Reference {
    steps: Vec<Step>,
    told: Vec<Result<String, Status>>,
    /// Before the first step, after the first, ...
    states: Vec<Snapshot>,
}

fn status_of(result: Result<String, ClientError>) -> Result<String, Status> {
    match result {
        Ok(text) => Ok(text),
        Err(ClientError::Status(status)) => Err(status),
        Err(other) => panic!("no answer: {other}"),
    }
}

fn fresh(rig: &mut Rig, running: bool) -> Run {
    if running {
        rig.server.kill();
    }
    rig.mount.send("reset 1 posix-min");
    rig.server.forget();
    rig.server.start();
    Run::new(rig.server.tree())
}

fn undisturbed(rig: &mut Rig, piece: u32) -> Reference {
    let steps = steps(piece);
    let mut run = fresh(rig, false);
    let look = rig.server.tree();
    let (mut results, mut states) = (Vec::new(), vec![snapshot(&look)]);
    for step in &steps {
        let told = status_of(step.run(&mut run));
        assert!(told.is_ok(), "{}: {told:?}", step.name);
        results.push(told);
        states.push(snapshot(&look));
    }
    Reference {
        steps,
        told: results,
        states,
    }
}

/// One point of failure. `None` when there is no such call.
fn fail_at(
    rig: &mut Rig,
    reference: &Reference,
    kinds: &str,
    point: usize,
    action: &str,
    expected: &[Status],
) -> Option<Result<(), String>> {
    let mut run = fresh(rig, true);
    let rule = rig
        .mount
        .send(&format!("rule {kinds} * {point} 1 {action}"));
    for (at, step) in reference.steps.iter().enumerate() {
        let answer = status_of(step.run(&mut run));
        let (hits, victim) = rig.mount.hit(&rule);
        if hits == 0 {
            if answer != reference.told[at] {
                let said = format!("{}: {answer:?} without any failure", step.name);
                return Some(Err(said));
            }
            continue;
        }
        rig.mount.send("clear");
        let judged = judge(rig, reference, at, &answer, expected, &mut run);
        let place = format!(
            "call {point} ({victim}) {action} in step {at}, {}",
            step.name
        );
        return Some(judged.map_err(|why| format!("{place}: answered {answer:?}: {why}")));
    }
    None
}

fn judge(
    rig: &mut Rig,
    reference: &Reference,
    at: usize,
    answer: &Result<String, Status>,
    expected: &[Status],
    run: &mut Run,
) -> Result<(), String> {
    let (before, after) = (&reference.states[at], &reference.states[at + 1]);
    let name = &reference.steps[at].name;
    // FUSE may keep half of a rename, so a rename is made stable before its answer, and may be done
    // and not known to be stable.
    let is_rename = name.starts_with("rename");
    let wanted = match answer {
        Ok(_) => vec![after],
        // The handle is gone, and with it the wish to delete.
        Err(_) if name.starts_with("CLOSE") => vec![before, &reference.states[at - 1]],
        // Written, and not known to be stable.
        Err(_) if name.starts_with("WRITE_THROUGH") => vec![before, after],
        Err(_) if is_rename => vec![before, after],
        Err(_) => vec![before],
    };
    let agree = |found: &Snapshot, when: &str| {
        if wanted.contains(&found) {
            return Ok(());
        }
        Err(format!("{when}:\n{}", difference(wanted[0], found)))
    };
    let found = snapshot(&rig.server.tree());
    agree(&found, "what is there then")?;
    match answer {
        Ok(text) if Ok(text) != reference.told[at].as_ref() => {
            return Err(format!("undisturbed it tells {:?}", reference.told[at]));
        }
        Err(status) if !expected.contains(status) => {
            return Err(format!("one of {expected:?} would be true"));
        }
        _ => {}
    }
    let step = &reference.steps[at];
    if answer.is_err() && step.again == Again::Succeeds && !(is_rename && found == *after) {
        let again = status_of(step.run(run));
        if again != reference.told[at] {
            return Err(format!("again, without a failure: {again:?}"));
        }
        let found = snapshot(&rig.server.tree());
        if found != *after {
            return Err(format!("after a retry:\n{}", difference(after, &found)));
        }
    } else if !answer
        .as_ref()
        .is_err_and(|_| step.name.starts_with("CLOSE"))
    {
        rig.restart();
        // A file that is to be deleted at the last close stays when the server dies.
        if !step.name.contains("disposition") {
            agree(&snapshot(&rig.server.tree()), "to a server started anew")?;
        }
    }
    rig.server.assert_sound_so_far();
    Ok(())
}

/// Only of states that differ: a panic or a hang never is.
fn is_known(why: &str) -> bool {
    let place = why.split("answered").next().unwrap_or("");
    let fits = |words: &[&str]| words.iter().all(|word| place.contains(word));
    why.contains("what is there then") && KNOWN.iter().any(|(words, _)| fits(words))
}

/// A way to keep streams: its word in the configuration, and the size of a stream that it can hold.
type Streams = (&'static str, u32);
const ATTRIBUTES: Streams = ("xattr", 600);
const DEPOT: Streams = ("depot", 20_000);

fn every_call_fails(
    (streams, piece): Streams,
    kinds: &str,
    action: &str,
    expected: &[Status],
    stride: usize,
) {
    let share = format!("durability = \"honor\"\nstreams = \"{streams}\"");
    let Some(mut rig) = Rig::new("file_io = \"threads\"", &share) else {
        return;
    };
    let reference = undisturbed(&mut rig, piece);
    let (mut wrong, mut known) = (Vec::new(), 0);
    let (mut points, mut tried) = (0, 0);
    let all = std::env::var_os("FAULTFS_ALL").is_some();
    for point in (1..POINTS_MAX).step_by(if all { 1 } else { stride }) {
        match fail_at(&mut rig, &reference, kinds, point, action, expected) {
            None => break,
            Some(Ok(())) => {}
            Some(Err(why)) if is_known(&why) => known += 1,
            Some(Err(why)) => wrong.push(why),
        }
        (points, tried) = (point, tried + 1);
    }
    rig.server.assert_sound();
    println!(
        "{action}: {tried} of {points} points of failure, {} wrong, {known} known",
        wrong.len()
    );
    assert!(points > 20, "the workload makes too few calls: {points}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_call_fails_once_with_an_io_error() {
    every_call_fails(ATTRIBUTES, "any", "EIO", &[Status::IO_DEVICE_ERROR], STRIDE);
}

#[test]
fn every_call_fails_once_with_an_io_error_beside_a_depot() {
    every_call_fails(DEPOT, "any", "EIO", &[Status::IO_DEVICE_ERROR], STRIDE);
}

/// The statuses where there is no space. An attribute may have no room though the disk has.
const NO_SPACE: [Status; 3] = [
    Status::DISK_FULL,
    Status::FILE_SYSTEM_LIMITATION,
    Status::EA_TOO_LARGE,
];

#[test]
fn every_change_fails_once_for_want_of_space() {
    every_call_fails(ATTRIBUTES, "change,sync", "ENOSPC", &NO_SPACE, 1);
}

#[test]
fn every_change_fails_once_for_want_of_space_beside_a_depot() {
    every_call_fails(DEPOT, "change,sync", "ENOSPC", &NO_SPACE, 1);
}
