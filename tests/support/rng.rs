//! Random numbers from a seed. The same seed produces a similar load, not the same one: the results depend on the
//! timing of the clients.

/// The generator.
pub struct Rng(fastrand::Rng);

impl Rng {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns any number.
    pub fn draw(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end.max(1))
    }

    /// Returns true once in `times` calls on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the values.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }
}
