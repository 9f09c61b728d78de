use super::*;

const MIB: usize = 1 << 20;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn numbered(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

/// Takes as much as it gets, in pieces.
fn fill(held: &mut Held, piece: usize) -> usize {
    while held.resize(held.bytes() + piece, Portion::Half) {}
    held.bytes()
}

#[test]
fn one_connection_takes_half_of_half() {
    let memory = Memory::new(64 * MIB);
    let mut held = memory.account(numbered(1)).nothing();
    assert_eq!(fill(&mut held, 4096), 16 * MIB);
    assert_eq!(memory.figures().used, 16 * MIB);
    // After a long wait it may take all that its network may.
    assert_eq!(memory.most_for_one(), 32 * MIB);
    assert!(held.resize(32 * MIB, Portion::All));
    assert!(!held.resize(32 * MIB + 1, Portion::All));
    drop(held);
    assert_eq!(memory.figures().used, 0);
    assert_eq!(memory.take_peak(), 32 * MIB);
    assert_eq!(memory.take_peak(), 0);
}

#[test]
fn a_network_takes_half_however_many_connections_it_has() {
    let memory = Memory::new(64 * MIB);
    let mut all = Vec::new();
    for number in 0..200 {
        // One IPv6 host has many addresses.
        let account = memory.account(ip(&format!("2001:db8::{number:x}")));
        let mut held = account.nothing();
        fill(&mut held, 4096);
        all.push(held);
    }
    let used = memory.figures().used;
    assert!(used <= 32 * MIB && used > 31 * MIB, "{used}");
    let mut other = memory.account(ip("2001:db8:0:1::1")).nothing();
    assert!(other.resize(8 * MIB, Portion::Half), "half of half is free");
}

#[test]
fn the_next_network_always_finds_something() {
    let memory = Memory::new(1 << 30);
    let mut all = Vec::new();
    for number in 0..8 {
        for _ in 0..100 {
            let mut held = memory.account(numbered(number)).nothing();
            fill(&mut held, 65_536);
            all.push(held);
        }
    }
    let mut late = memory.account(numbered(99)).nothing();
    assert!(late.resize(MIB, Portion::Half), "{:?}", memory.figures());
}

#[test]
fn what_an_open_keeps_is_refused_and_counted() {
    let memory = Memory::new(MIB);
    let account = memory.account(numbered(1));
    let kept = account.keep(200_000).unwrap();
    assert!(account.keep(200_000).is_none());
    assert_eq!(memory.figures().refusals, 1);
    drop(account);
    assert_eq!(memory.networks.lock().len(), 1, "what is kept counts on");
    drop(kept);
    assert_eq!(memory.figures().used, 0);
    assert!(memory.networks.lock().is_empty());
}

#[test]
fn a_smaller_limit_takes_nothing_away_and_grants_nothing() {
    let memory = Memory::new(64 * MIB);
    let mut held = memory.account(numbered(1)).nothing();
    assert!(held.resize(16 * MIB, Portion::Half));
    memory.set_limit(8 * MIB);
    assert!(!held.resize(16 * MIB + 1, Portion::All));
    assert!(held.resize(MIB, Portion::Half), "less is always granted");
    assert!(held.resize(2 * MIB, Portion::Half));
}

/// Threads take and give back at random: the sums never go below nothing or above the limit.
#[test]
fn the_sums_hold_through_takes_and_returns() {
    const LIMIT: usize = 3_000_000;
    let memory = Memory::new(LIMIT);
    let networks: Vec<_> = (0..3)
        .map(|number| memory.account(numbered(number)))
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (memory, networks) = (&memory, &networks);
            scope.spawn(move || {
                let mut state = thread + 1;
                let mut random = move || {
                    // xorshift64
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    usize::try_from(state >> 33).unwrap()
                };
                let mut own: Vec<Held> = (0..4)
                    .map(|number| memory.account(numbered(number)).nothing())
                    .collect();
                for _ in 0..20_000 {
                    let share = [Portion::Half, Portion::All][random() % 2];
                    let which = random() % own.len();
                    let held = &mut own[which];
                    let (before, wanted) = (held.bytes(), random() % 1_500_000);
                    let granted = held.resize(wanted, share);
                    assert_eq!(held.bytes(), if granted { wanted } else { before });
                    assert!(granted || wanted > before);
                    assert!(memory.used.load(Relaxed) <= LIMIT);
                    for account in networks {
                        // The count includes amounts that are just being requested.
                        let held = account.network.load(Relaxed);
                        assert!(held <= LIMIT / 2 + 4 * 1_500_000, "{held}");
                    }
                }
            });
        }
    });
    assert_eq!(memory.used.load(Relaxed), 0);
    for account in &networks {
        assert_eq!(account.network.load(Relaxed), 0);
    }
}

#[test]
fn who_frees_nothing_while_others_wait_is_found() {
    let memory = Memory::new(64 * MIB);
    let (hog, other) = (memory.account(numbered(1)), memory.account(numbered(2)));
    let at = Duration::from_millis;
    let mut seen = Seen::default();
    hog.set_untaken(MIB);
    // Only this connection itself waits.
    let itself = hog.wait();
    for look in 0..20 {
        assert_eq!(hog.stuck(&mut seen, at(5_000 + look * 250)), None);
    }
    drop(itself);
    let _other = other.wait();
    // A connection that has made progress since the last check has not been idle for so long.
    let mut now = 10_000;
    for _ in 0..10 {
        hog.moved();
        assert_eq!(hog.stuck(&mut seen, at(now)), None);
        now += 250;
    }
    let idle = (0..4).map(|look| hog.stuck(&mut seen, at(now + look * 250)));
    let idle: Vec<_> = idle.collect();
    assert_eq!(idle, [None, None, None, Some(MIB)]);
    // No connection is closed for a small amount, nor because of a check that was long ago.
    hog.set_untaken(MEMORY_STUCK_BYTES - 1);
    assert_eq!(hog.stuck(&mut seen, at(now + 1_000)), None);
    hog.set_untaken(MIB);
    assert_eq!(hog.stuck(&mut seen, at(now + 1_250)), None);
    assert_eq!(hog.stuck(&mut seen, at(now + 60_000)), None);
}

#[test]
fn many_who_wait_look_less_often() {
    let memory = Memory::new(MIB);
    assert_eq!(memory.again(), MEMORY_AGAIN);
    let account = memory.account(numbered(1));
    let waiting: Vec<_> = (0..3 * MEMORY_WAITERS_STEP)
        .map(|_| account.wait())
        .collect();
    assert_eq!(memory.again(), 4 * MEMORY_AGAIN);
    let more: Vec<_> = (0..10_000).map(|_| account.wait()).collect();
    assert_eq!(memory.again(), MEMORY_AGAIN_MAX);
    drop((waiting, more));
    assert_eq!(
        (memory.again(), memory.figures().waiting),
        (MEMORY_AGAIN, 0)
    );
}

#[test]
fn one_looks_at_a_time() {
    let memory = Memory::new(MIB);
    let at = Duration::from_millis;
    assert!(memory.is_time_to_look(at(1_000)));
    assert!(!memory.is_time_to_look(at(1_100)));
    assert!(memory.is_time_to_look(at(1_000) + MEMORY_LOOK));
}
