//! Locks that go on after a panic.
//!
//! A panic ends one task, and what it left under a lock is whole, or at worst wrong for what the task
//! was doing. A poisoned lock would end every other task that needs it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic under the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
