//! Properties that hold under every schedule: an oracle notes every acknowledgement and looks at
//! the fake disk after every single step of the executor.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use proptest::prelude::*;
use vfs::{Env, env::LocalTask};

use super::{
    fake::{Fake, FakeNode, PAGE, dir, file},
    flush::{PLAIN, THROUGH},
    sim::{Rng, TestEnv, join, ms, run},
};
use crate::{share::lock, *};

const FILES: u64 = 3;
const DIRS: u64 = 2;
const FIRST_DIR: u64 = 100;

/// The changes that were acknowledged.
#[derive(Default)]
struct Acked {
    /// By page: versions and when.
    pages: BTreeMap<(u64, u64), Vec<(u64, Duration)>>,
    /// Names: file, id, when.
    names: Vec<(u64, u64, Duration)>,
    meta: BTreeMap<u64, u64>,
    /// FLUSHes that succeeded.
    flushes: u64,
}

struct Run {
    env: Arc<TestEnv>,
    fake: Arc<Fake>,
    engine: Arc<Durability<Fake>>,
    gate: Arc<Gate<Fake>>,
    acked: RefCell<Acked>,
    rng: RefCell<Rng>,
}

impl Run {
    fn new(policy: Policy, seed: u64, sync: Duration, fail_one_in: u64) -> Rc<Self> {
        let env = Arc::new(TestEnv::default());
        let fake = Fake::new(&env, sync, Duration::from_micros(500));
        {
            let mut times = lock(&fake.times);
            times.rng = Some(Rng::new(seed ^ 0xABCD));
            times.fail_one_in = fail_one_in;
        }
        let limits = Limits {
            dirty_age_max: ms(400),
            dirty_inodes_max: 4,
            ..Limits::default()
        };
        let engine = Durability::new(Arc::clone(&env) as Arc<dyn Env>, limits);
        let settings = ShareDurability::with_policy(policy);
        let gate = engine.share("share", Arc::clone(&fake), settings);
        let rng = RefCell::new(Rng::new(seed));
        Rc::new(Self {
            env,
            fake,
            engine,
            gate,
            acked: RefCell::default(),
            rng,
        })
    }

    fn pick(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    /// One client: `ops` random operations.
    async fn client(&self, ops: u64) {
        for _ in 0..ops {
            self.env.sleep(Duration::from_micros(self.pick(4000))).await;
            let f = file(self.pick(FILES) + 1);
            match self.pick(12) {
                0..=5 => self.write(&f).await,
                6..=8 => self.flush(&f).await,
                9 => {
                    let d = dir(FIRST_DIR + self.pick(DIRS));
                    let id = self.fake.name(d.ino);
                    let made = self.fake.set_meta(f.ino);
                    if self
                        .gate
                        .created(&f, &d, RequestFlags::default())
                        .await
                        .is_ok()
                    {
                        self.ack_name(&f, id, made);
                    }
                }
                10 => {
                    let (old, new) = (dir(FIRST_DIR), dir(FIRST_DIR + 1));
                    let ids = [self.fake.name(new.ino), self.fake.name(old.ino)];
                    let made = self.fake.set_meta(f.ino);
                    if self
                        .gate
                        .renamed(&f, &old, &new, RequestFlags::default())
                        .await
                        .is_ok()
                    {
                        ids.map(|id| self.ack_name(&f, id, made));
                    }
                }
                _ => {
                    let made = self.fake.set_meta(f.ino);
                    if self
                        .gate
                        .meta_changed(&f, Meta::Security, PLAIN)
                        .await
                        .is_ok()
                    {
                        let mut acked = self.acked.borrow_mut();
                        let known = acked.meta.entry(f.ino).or_default();
                        *known = made.max(*known);
                    }
                }
            }
        }
    }

    fn ack_name(&self, f: &FakeNode, id: u64, made: u64) {
        let now = self.env.monotonic();
        let mut acked = self.acked.borrow_mut();
        acked.names.push((f.ino, id, now));
        let known = acked.meta.entry(f.ino).or_default();
        *known = made.max(*known);
    }

    async fn write(&self, f: &FakeNode) {
        let (page, n) = (self.pick(6), self.pick(3) + 1);
        let through = self.pick(8) == 0;
        let data = Bytes::from(vec![0; (n * PAGE) as usize]);
        let before: Vec<u64> = (page..page + n).map(|p| self.fake.live(f.ino, p)).collect();
        let flags = if through { THROUGH } else { PLAIN };
        let honors = matches!(
            self.gate.effective_policy(),
            Policy::Honor | Policy::StrictSync
        );
        if self.gate.write(f, page * PAGE, data, flags).await.is_err() {
            return;
        }
        let now = self.env.monotonic();
        for (page, before) in (page..page + n).zip(before) {
            // Another client may have overwritten it meanwhile: the oldest version that is
            // surely not older than this write is the next one.
            let version = before + 1;
            let known = &mut self.acked.borrow_mut().pages;
            known.entry((f.ino, page)).or_default().push((version, now));
            if through && honors {
                let durable = lock(&self.fake.state).pages[&(f.ino, page)].durable;
                assert!(
                    durable >= version,
                    "write-through was acknowledged before the disk had it"
                );
            }
        }
    }

    async fn flush(&self, f: &FakeNode) {
        let begun = self.env.monotonic();
        let meta = self.acked.borrow().meta.get(&f.ino).copied().unwrap_or(0);
        let honors = matches!(
            self.gate.effective_policy(),
            Policy::Honor | Policy::StrictSync
        );
        let pages: Vec<_> = {
            let acked = self.acked.borrow();
            let mine = acked.pages.range((f.ino, 0)..=(f.ino, u64::MAX));
            mine.map(|(place, all)| (*place, all.iter().map(|a| a.0).max().unwrap_or(0)))
                .collect()
        };
        if self.gate.flush(f, FlushTarget::File, PLAIN).await.is_err() || !honors {
            return;
        }
        self.acked.borrow_mut().flushes += 1;
        let state = lock(&self.fake.state);
        for (place, version) in pages {
            assert!(
                state.pages[&place].durable >= version,
                "flushed page {place:?} is not there"
            );
        }
        let names = &self.acked.borrow().names;
        for (_, id, _) in names
            .iter()
            .filter(|(ino, _, at)| *ino == f.ino && *at < begun)
        {
            let (dir, stable) = state.names[id];
            // A name that failed in its directory is reported to each FLUSH of the file until it
            // is named again; then only the new name counts.
            assert!(
                stable || dir == u64::MAX,
                "flushed name {id} of {} is not there",
                f.ino
            );
        }
        let durable = state.meta.get(&f.ino).map_or(0, |meta| meta.1);
        assert!(durable >= meta, "flushed metadata is not there");
    }

    /// Acknowledged pages that a crash now would lose, and when the oldest was acknowledged.
    fn volatile(&self) -> (u64, Option<Duration>) {
        let state = lock(&self.fake.state);
        let mut bytes = 0;
        let mut oldest: Option<Duration> = None;
        for (place, acked) in &self.acked.borrow().pages {
            let durable = state.pages.get(place).map_or(0, |page| page.durable);
            let lost = acked.iter().filter(|(version, _)| *version > durable);
            if let Some(at) = lost.map(|(_, at)| *at).min() {
                bytes += PAGE;
                oldest = Some(oldest.map_or(at, |old| old.min(at)));
            }
        }
        for (_, id, at) in &self.acked.borrow().names {
            // A name that failed is no longer dirty: its inode is poisoned until named again.
            let (dir, stable) = state.names[id];
            if !stable && dir != u64::MAX {
                oldest = Some(oldest.map_or(*at, |old| old.min(*at)));
            }
        }
        (bytes, oldest)
    }

    fn clients(self: &Rc<Self>, n: u64, ops: u64) -> Vec<LocalTask> {
        (0..n)
            .map(|_| {
                let run = Rc::clone(self);
                Box::pin(async move { run.client(ops).await }) as LocalTask
            })
            .collect()
    }
}

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Honor),
        Just(Policy::TreatHostAsStableStorage),
        Just(Policy::StrictSync),
        Just("bounded:50ms,64KiB".parse().unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Nothing acknowledged longer than N ago, and no more than M bytes, would be lost, as long
    /// as a sync takes at most N/10 (a chain has five: one under way, the inode, two
    /// directories, one under way there).
    #[test]
    fn bounded_keeps_its_bound(seed: u64, delay in 20u64..80) {
        let max_bytes = Bound::BYTES_MIN;
        let policy = Policy::Bounded(Bound::new(ms(delay), max_bytes).unwrap());
        let r = Run::new(policy, seed, ms(delay) / 14, 0);
        let (main, watch) = (Rc::clone(&r), Rc::clone(&r));
        let most = Rc::new(RefCell::new((0, Duration::ZERO)));
        let seen = Rc::clone(&most);
        run(seed, &r.env, async move {
            join(&main.env, main.clients(4, 40)).await;
            main.env.sleep(ms(delay)).await;
            assert_eq!(main.volatile(), (0, None), "all is paid without being asked");
        }, move || {
            let (bytes, oldest) = watch.volatile();
            let age = oldest.map_or(Duration::ZERO, |at| watch.env.monotonic() - at);
            assert!(bytes <= max_bytes, "{bytes} bytes are volatile");
            assert!(age <= ms(delay), "something acknowledged {age:?} ago is volatile");
            let mut seen = seen.borrow_mut();
            *seen = (seen.0.max(bytes), seen.1.max(age));
        });
        let most = *most.borrow();
        prop_assert!(most.0 > 0 && most.1 > ms(delay) / 10, "the test looked at nothing: {most:?}");
    }

    /// With syncs of any length the bytes hold all the same, and the delay is broken by nothing
    /// acknowledged while something was too old.
    #[test]
    fn bounded_holds_back_when_the_disk_is_slow(seed: u64) {
        let policy: Policy = "bounded:20ms,64KiB".parse().unwrap();
        let r = Run::new(policy, seed, ms(90), 0);
        let (main, watch) = (Rc::clone(&r), Rc::clone(&r));
        run(seed, &r.env, async move {
            join(&main.env, main.clients(4, 15)).await;
        }, move || {
            assert!(watch.volatile().0 <= Bound::BYTES_MIN);
        });
        prop_assert!(r.gate.counters().backpressure > 0);
    }

    /// Under every policy, with failing syncs: the exposure is never less than what a crash
    /// would take, and what FLUSH and write-through promise is kept (asserted in the clients).
    #[test]
    fn exposure_is_an_upper_bound(
        seed: u64,
        policy in policies(),
        fail_one_in in prop_oneof![Just(0u64), Just(4), Just(20)],
    ) {
        let r = Run::new(policy, seed, ms(8), fail_one_in);
        let (main, watch) = (Rc::clone(&r), Rc::clone(&r));
        run(seed, &r.env, async move {
            join(&main.env, main.clients(4, 40)).await;
            let report = main.engine.sync_all().await;
            if fail_one_in == 0 {
                assert_eq!(report.failed, 0);
                assert_eq!(main.gate.exposure(), Exposure::default());
                assert_eq!(main.volatile(), (0, None), "the stop left something");
            }
            lock(&main.fake.times).fail_one_in = 0;
            main.env.sleep(ms(1000)).await;
            let left = main.gate.exposure();
            assert_eq!((left.bytes, left.inodes), (0, 0), "everything is synced or poisoned");
        }, move || {
            let (bytes, oldest) = watch.volatile();
            let exposed = watch.gate.exposure();
            let claimed = exposed.bytes + exposed.unproven_bytes;
            assert!(claimed >= bytes, "{claimed} bytes claimed, {bytes} volatile");
            if let Some(at) = oldest
                && exposed.poisoned_inodes == 0
            {
                assert!(exposed.oldest_age >= watch.env.monotonic() - at, "{exposed:?} since {at:?}");
            }
        });
        if policy == Policy::Honor && fail_one_in == 0 {
            prop_assert!(r.acked.borrow().flushes > 0);
        }
    }
}
