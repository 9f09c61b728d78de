//! The pool's threads, queues and their limits.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    mpsc,
};

use super::*;

const IO_ANY: Place = Place {
    group: ThreadGroup::Io,
    device: ANY,
    local: false,
};

impl GroupThreads {
    /// Queues a job of a request for a file system that may be anywhere.
    fn submit(&'static self, device: u64, job: Job) -> DiskResult<()> {
        self.submit_for(Purpose::Request, ThreadGroup::Io.of(device), job)
    }
}

/// Posts jobs that occupy threads of a group until the result is dropped.
pub(in crate::linux) fn hold_up(place: Place, jobs: usize) -> mpsc::Sender<()> {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    for _ in 0..jobs {
        let gate = Arc::clone(&gate);
        post(place, move || {
            let _ = crate::lock(&gate).recv();
        });
    }
    release
}

/// Polls the future and parks the thread in between.
fn wait<F: Future>(future: F) -> F::Output {
    crate::testing::block_on(future)
}

/// One requester's jobs fill half of the queue; each other one's next job is done after one of each.
#[test]
fn requesters_take_turns_in_the_queue_and_have_a_share_of_it() {
    // Its threads are this test, so that nothing depends on time.
    static TURNS: GroupThreads = GroupThreads::with_start("turns", || 4, |_| Ok(()));
    let (send, done) = mpsc::channel();
    let submit = |requester: u64| {
        let _entered = requester::enter(Requester(requester));
        let send = send.clone();
        TURNS.submit(1, Box::new(move || send.send(requester).unwrap()))
    };
    let fill = |requester| {
        (0..QUEUE_MAX)
            .take_while(|_| submit(requester).is_ok())
            .count()
    };
    assert_eq!(fill(5), QUEUE_MAX / 2);
    assert_eq!(submit(5), Err(Errno(libc::EAGAIN)));
    for requester in [7, 6, 7] {
        submit(requester).unwrap();
    }
    let work = || {
        let (owner, job) = TURNS.lock().take(4).unwrap();
        job();
        TURNS.lock().ended(owner);
        done.recv().unwrap()
    };
    let order: Vec<u64> = (0..6).map(|_| work()).collect();
    assert_eq!(order, [5, 6, 7, 5, 7, 5]);
    submit(6).unwrap();
    assert_eq!([work(), work()], [6, 5]);
    // The server's own jobs have places of their own, and take none from others.
    assert_eq!(fill(0), QUEUE_MAX);
    assert_eq!(submit(0), Err(Errno(libc::EAGAIN)));
    assert_eq!(work(), 0);
    assert!(submit(6).is_ok());
    // Every second turn is the server's.
    let order: Vec<u64> = (0..4).map(|_| work()).collect();
    assert_eq!(order, [6, 0, 5, 0]);
}

/// A lone requester has all threads; while its jobs take long, each other one has a spare thread.
#[test]
fn jobs_that_take_long_leave_a_thread_to_each_other_requester() {
    static CROWDED: GroupThreads = GroupThreads::with_start("crowded", || 8, |_| Ok(()));
    let submit = |requester: u64, jobs: usize| {
        let _entered = requester::enter(Requester(requester));
        (0..jobs).for_each(|_| CROWDED.submit(1, Box::new(|| {})).unwrap());
    };
    let begin = || {
        let begun = CROWDED.lock().take(8);
        begun.map(|((_, requester), _)| requester.0)
    };
    let begin_all = || std::iter::from_fn(begin).collect::<Vec<_>>();
    let end = |requester| CROWDED.lock().ended((1, Requester(requester)));
    submit(5, 10);
    assert_eq!(begin_all(), [5; 8]);
    submit(5, 1);
    assert_eq!(CROWDED.lock().ready(8), 0, "no thread is woken in vain");
    submit(6, 2);
    submit(7, 1);
    submit(0, 1);
    assert_eq!(begin_all(), [0, 6, 7], "one each");
    (8..20).for_each(|requester| submit(requester, 1));
    assert_eq!(begin_all(), [8, 9, 10, 11, 12], "eight in all are spare");
    end(6);
    assert_eq!(begin_all(), [13]);
    end(0);
    assert_eq!(begin_all(), [14], "6 has its turn after the others");
    // The usual threads go by turns.
    [5; 4].into_iter().for_each(end);
    assert_eq!(begin_all(), [15, 16, 17, 18]);
    [5; 4].into_iter().for_each(end);
    assert_eq!(begin_all(), [19, 5, 6, 5]);
    (7..20).for_each(end);
    assert_eq!(begin_all(), [5]);
    [5, 5, 5, 6].into_iter().for_each(end);
    assert!(CROWDED.lock().file_systems.is_empty());
}

/// File systems that hang have a bounded number of threads in all, however often others use theirs.
#[test]
fn a_thread_that_becomes_free_is_not_lost_to_a_file_system_that_hangs() {
    static ALL: GroupThreads = GroupThreads::with_start("all", || 8, |_| Ok(()));
    const BUSY: u64 = BUSY_FILE_SYSTEMS_MAX as u64;
    let submit = |device: u64, jobs: usize| {
        (0..jobs).for_each(|_| ALL.submit(device, Box::new(|| {})).unwrap());
    };
    let begin = || ALL.lock().take(8).map(|((device, _), _)| device);
    let begin_all = || std::iter::from_fn(begin).collect::<Vec<_>>();
    let end = |device| ALL.lock().ended((device, Requester::SERVER));
    (1..=BUSY).for_each(|device| submit(device, 20));
    assert_eq!(begin_all().len(), 8 * BUSY_FILE_SYSTEMS_MAX);
    submit(50, 20);
    assert_eq!(begin_all(), [50; THREADS_MIN]);
    for _ in 0..20 {
        submit(60, 1);
        assert_eq!(begin_all(), [60]);
        end(60);
        assert_eq!(begin_all(), [0; 0], "it waits for a job of another one");
    }
    // File systems that answer again make room, first for the one that has fewest threads.
    (0..THREADS_MIN).for_each(|_| end(1));
    assert_eq!(begin_all(), [0; 0]);
    end(1);
    assert_eq!(begin_all(), [1], "it has no more than its few");
    (0..2).for_each(|_| end(2));
    assert_eq!(begin_all(), [1, 50]);
}

/// Where several file systems hang, one user's long jobs on a healthy one leave a thread to each other user.
#[test]
fn among_file_systems_that_hang_a_long_job_leaves_a_thread_to_others() {
    static AMONG: GroupThreads = GroupThreads::with_start("among", || 8, |_| Ok(()));
    const HEALTHY: u64 = 50;
    let submit = |device: u64, requester: u64, jobs: usize| {
        let _entered = requester::enter(Requester(requester));
        (0..jobs).for_each(|_| AMONG.submit(device, Box::new(|| {})).unwrap());
    };
    let begin = || {
        let begun = AMONG.lock().take(8);
        begun.map(|((device, requester), _)| (device, requester.0))
    };
    let begin_all = || std::iter::from_fn(begin).collect::<Vec<_>>();
    (1..=BUSY_FILE_SYSTEMS_MAX as u64).for_each(|device| submit(device, 5, 20));
    assert_eq!(begin_all().len(), 8 * BUSY_FILE_SYSTEMS_MAX);
    submit(HEALTHY, 5, 20);
    assert_eq!(begin_all(), [(HEALTHY, 5); THREADS_MIN]);
    submit(HEALTHY, 6, 2);
    assert_eq!(AMONG.lock().free(), 1, "one is started for it");
    assert_eq!(begin_all(), [(HEALTHY, 6)], "one each");
    (7..20).for_each(|requester| submit(HEALTHY, requester, 1));
    let next = (7..14).map(|requester| (HEALTHY, requester));
    assert_eq!(begin_all(), next.collect::<Vec<_>>(), "eight in all");
    AMONG.lock().ended((HEALTHY, Requester(6)));
    assert_eq!(begin_all(), [(HEALTHY, 14)]);
}

/// A server with hundreds of homes of another machine, which does not answer any more.
#[test]
fn however_many_remote_file_systems_hang_a_local_one_is_served() {
    static HOMES: GroupThreads = GroupThreads::with_start("homes", || 8, |_| Ok(()));
    const MOST: u64 = FILE_SYSTEMS_MAX as u64;
    let begin = || HOMES.lock().take(8).map(|((device, _), _)| device);
    for device in 1..=MOST + 100 {
        HOMES.submit(device, Box::new(|| {})).unwrap();
    }
    while begin().is_some() {}
    // All that are beyond the limit have the queue of one.
    let any = HOMES.lock().file_systems[&ANY].running();
    assert_eq!(any, THREADS_MIN);
    assert_eq!(HOMES.lock().file_systems.len(), FILE_SYSTEMS_MAX + 1);
    let local = ThreadGroup::Io.of(1000).local(true);
    HOMES
        .submit_for(Purpose::Request, local, Box::new(|| {}))
        .unwrap();
    assert_eq!(begin(), Some(1000));
}

/// However many requesters have no thread, the usual ones go by turns: every second one is the server's.
#[test]
fn many_requesters_take_no_turn_from_the_server() {
    static MANY: GroupThreads = GroupThreads::with_start("many", || 4, |_| Ok(()));
    let submit = |requester: u64, jobs: usize| {
        let _entered = requester::enter(Requester(requester));
        (0..jobs).for_each(|_| MANY.submit(1, Box::new(|| {})).unwrap());
    };
    let begin = || {
        let begun = MANY.lock().take(4);
        begun.map(|((_, requester), _)| requester.0)
    };
    submit(0, 30);
    (1..=30).for_each(|requester| submit(requester, 1));
    let under_way: Vec<u64> = std::iter::from_fn(begin).collect();
    assert_eq!(under_way, [0, 1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let next = under_way.into_iter().map(|requester| {
        MANY.lock().ended((1, Requester(requester)));
        begin().unwrap()
    });
    let next: Vec<u64> = next.collect();
    assert_eq!(next, [0, 11, 0, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
}

/// The thread whose job ends takes the next one by turns, and its requester's next job gets a spare thread.
#[test]
fn the_end_of_one_job_lets_two_begin() {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    fn start(_: &'static GroupThreads) -> io::Result<()> {
        STARTED.fetch_add(1, SeqCst);
        Ok(())
    }
    static BOTH: GroupThreads = GroupThreads::with_start("both", || 2, start);
    let submit = |requester: u64| {
        let _entered = requester::enter(Requester(requester));
        BOTH.submit(1, Box::new(|| {})).unwrap();
    };
    let next = || BOTH.next().map(|((_, requester), _)| requester.0);
    for requester in [5, 6] {
        submit(requester);
        assert_eq!(next(), Some(requester));
    }
    [5, 6].into_iter().for_each(submit);
    assert_eq!(STARTED.load(SeqCst), 2, "both wait for the usual threads");
    BOTH.lock().ended((1, Requester(6)));
    assert_eq!(next(), Some(5));
    assert_eq!(STARTED.load(SeqCst), 3);
    assert_eq!(next(), Some(6));
    assert_eq!(STARTED.load(SeqCst), 3);
}

#[test]
fn a_spare_thread_starts_beside_those_that_hang() {
    const DEVICE: u64 = 4101;
    let place = ThreadGroup::Leases.of(DEVICE);
    let first = requester::enter(Requester(5));
    let release = hold_up(place, IO_THREADS_MAX + 1);
    drop(first);
    let running = || {
        LEASES
            .lock()
            .file_systems
            .get(&DEVICE)
            .map_or(0, FsJobs::running)
    };
    while running() < IO_THREADS_MAX {
        thread::sleep(Duration::from_millis(1));
    }
    let _second = requester::enter(Requester(6));
    let (send, ran) = mpsc::channel();
    post(place, move || send.send(()).unwrap());
    ran.recv_timeout(Duration::from_secs(10)).unwrap();
    drop(release);
}

#[test]
fn answers_and_panics_come_back() {
    assert_eq!(wait(run(IO_ANY, Identity::Service, || Ok(7))), Ok(7));
    let lost: DiskResult<()> = wait(run(IO_ANY, Identity::Service, || panic!("planted")));
    assert_eq!(lost, Err(Errno(libc::EIO)));
    assert_eq!(wait(run(IO_ANY, Identity::Service, || Ok(8))), Ok(8));
}

/// Fills the group of a file system with jobs that hang until the sender is dropped.
fn hang(device: u64, jobs: usize) -> (mpsc::Sender<()>, Vec<oneshot::Receiver<()>>) {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let hung = (0..jobs).map(|_| {
        let gate = Arc::clone(&gate);
        let (send, receive) = oneshot::channel();
        let job = Box::new(move || {
            let _ = gate.lock().unwrap().recv();
            let _ = send.send(());
        });
        SYNC.submit(device, job).unwrap();
        receive
    });
    let hung = hung.collect();
    (release, hung)
}

fn threads_of(device: u64) -> usize {
    SYNC.lock()
        .file_systems
        .get(&device)
        .map_or(0, FsJobs::running)
}

/// Waits until the file system has this many threads.
fn until(device: u64, threads: usize) {
    for _ in 0..1000 {
        if threads_of(device) == threads {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{} threads of {device}", threads_of(device));
}

/// The tests run one after the other, because they share the process's group.
static GROUP: Mutex<()> = Mutex::new(());

/// The process may start no more threads, and those it has hang on another file system.
#[test]
fn without_a_thread_that_is_free_nobody_waits_for_one() {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    fn start(group: &'static GroupThreads) -> io::Result<()> {
        if REFUSED.load(SeqCst) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        group.start_thread()
    }
    static LIMITED: GroupThreads = GroupThreads::with_start("limited", || 8, start);
    let (release, gate) = mpsc::channel::<()>();
    let (begins, begun) = mpsc::channel();
    let hangs = Box::new(move || {
        begins.send(()).unwrap();
        let _ = gate.recv();
    });
    LIMITED.submit(1, hangs).unwrap();
    begun.recv_timeout(Duration::from_secs(10)).unwrap();
    REFUSED.store(true, SeqCst);
    let (send, given_up) = mpsc::channel::<()>();
    LIMITED.submit(2, Box::new(move || drop(send))).unwrap();
    let told = given_up.recv_timeout(Duration::from_secs(10));
    assert_eq!(told, Err(mpsc::RecvTimeoutError::Disconnected));
    assert_eq!(LIMITED.lock().threads, 1);
    // Its own jobs wait for the thread that works for them.
    let (send, done) = mpsc::channel();
    LIMITED
        .submit(1, Box::new(move || send.send(()).unwrap()))
        .unwrap();
    drop(release);
    done.recv_timeout(Duration::from_secs(10)).unwrap();
}

/// A thread that cannot begin leaves its job to an idle one on any core.
#[test]
fn who_ends_before_its_job_calls_another() {
    static ENDS: AtomicBool = AtomicBool::new(false);
    fn start(group: &'static GroupThreads) -> io::Result<()> {
        let end = move || group.retire();
        match ENDS.load(SeqCst) {
            true => thread::Builder::new().spawn(end).map(drop),
            false => group.start_thread(),
        }
    }
    static LEFT: GroupThreads = GroupThreads::with_start("left", || 8, start);
    let (send, done) = mpsc::channel();
    let job = |send: &mpsc::Sender<()>| {
        let send = send.clone();
        Box::new(move || send.send(()).unwrap())
    };
    LEFT.submit(1, job(&send)).unwrap();
    done.recv_timeout(Duration::from_secs(10)).unwrap();
    let elsewhere = |state: &mut MutexGuard<'_, GroupState>| {
        let idle = state.idle.first_mut();
        idle.map(|one| one.home = Some(usize::MAX)).is_some()
    };
    while !elsewhere(&mut LEFT.lock()) {
        thread::sleep(Duration::from_millis(1));
    }
    ENDS.store(true, SeqCst);
    LEFT.submit(1, job(&send)).unwrap();
    done.recv_timeout(Duration::from_secs(10)).unwrap();
}

/// The job of a thread that is pinned to a core runs on that core.
#[test]
fn a_thread_of_the_own_core_is_called() {
    static NEAR: GroupThreads = GroupThreads::new("near", || 8);
    let own = rustix::thread::sched_getaffinity(None).unwrap();
    let cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| own.is_set(*core));
    let cores: Vec<usize> = cores.take(2).collect();
    for core in cores.iter().chain(&cores).chain(&cores) {
        let core = *core;
        let asks = thread::spawn(move || {
            let mut set = rustix::thread::CpuSet::new();
            set.set(core);
            rustix::thread::sched_setaffinity(None, &set).unwrap();
            let (send, ran) = mpsc::channel();
            let job = Box::new(move || send.send(home()).unwrap());
            NEAR.submit(1, job).unwrap();
            ran.recv_timeout(Duration::from_secs(10)).unwrap()
        });
        assert_eq!(asks.join().unwrap(), Some(core));
        // The thread must be idle before it can be woken.
        let is_idle = |state: MutexGuard<'_, GroupState>| state.idle.len() == state.threads;
        while !is_idle(NEAR.lock()) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(NEAR.lock().threads, cores.len(), "and no other was started");
}

#[test]
fn a_full_sync_group_does_not_stop_reads() {
    let _group = GROUP.lock().unwrap();
    let (release, hung) = hang(1001, SYNC_THREADS_MAX + 8);
    assert_eq!(wait(run(IO_ANY, Identity::Service, || Ok(1))), Ok(1));
    drop(release);
    for one in hung {
        wait(one).unwrap();
    }
}

#[test]
fn file_systems_that_hang_hold_up_no_other_one() {
    let _group = GROUP.lock().unwrap();
    let on = |device| {
        wait(run(
            ThreadGroup::Sync.of(device),
            Identity::Service,
            move || Ok(device),
        ))
    };
    let hung = 1001..1001 + BUSY_FILE_SYSTEMS_MAX as u64;
    let mut stuck = Vec::new();
    for device in hung.clone() {
        stuck.push(hang(device, SYNC_THREADS_MAX));
        until(device, SYNC_THREADS_MAX);
        stuck.push(hang(device, QUEUE_MAX));
        assert_eq!(on(device), Err(Errno(libc::EAGAIN)), "its own are told");
    }
    // All threads hang; others get theirs, and hang too, and still others get theirs.
    for device in 2001..2010 {
        assert_eq!(on(device), Ok(device));
    }
    let more: Vec<_> = (2001..2010).map(|device| hang(device, 20)).collect();
    (2001..2010).for_each(|device| until(device, THREADS_MIN));
    assert_eq!(on(3000), Ok(3000));
    for (release, hung) in stuck.into_iter().chain(more) {
        drop(release);
        for one in hung {
            wait(one).unwrap();
        }
    }
    for device in hung.chain(2001..2010) {
        until(device, 0);
    }
}
