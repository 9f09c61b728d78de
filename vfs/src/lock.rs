//! Locks that go on after a panic.
//!
//! A panic ends one task. The state that it leaves under a lock is complete, or wrong at most for that task's
//! own work; a poisoned lock would end every other task that needs it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic under the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
