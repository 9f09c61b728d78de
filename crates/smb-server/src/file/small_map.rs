//! An ordered map for few entries, mostly one.
//!
//! An inode usually has one open on one stream, for which a B-tree allocates a node of eleven. A lookup
//! takes logarithmic time; inserting and removing take linear time, since entries of 16 to 24 bytes
//! are moved: at the limit of 65,536 opens, closing the oldest moves 1 MiB.

/// Entries in the order of their keys.
#[derive(Debug)]
pub(super) struct SmallMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    fn find(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(key))
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let at = self.find(key).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// Inserts a value and replaces an earlier one of the same key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.room();
            at
        });
        let same = self.0.get_mut(at).filter(|(known, _)| *known == key);
        match same {
            Some((_, known)) => *known = value,
            None => self.0.insert(at, (key, value)),
        }
    }

    /// The value of that key; inserted if there is none.
    #[expect(clippy::indexing_slicing, reason = "the place was just found or made")]
    pub(super) fn or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        let at = self.find(key).unwrap_or_else(|at| {
            self.room();
            self.0.insert(at, (key.clone(), V::default()));
            at
        });
        &mut self.0[at].1
    }

    /// Reserves room for one entry first, not for the four with which a vector begins.
    fn room(&mut self) {
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key).ok()?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keeps(key, value));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|entry| (&entry.0, &entry.1))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The standard library's map is the model.
        #[test]
        fn is_a_map(operations in prop::collection::vec((0..5_u8, 0..8_u8, 0..100_u8), 0..64)) {
            let (mut few, mut model) = (SmallMap::default(), BTreeMap::new());
            for (what, key, value) in operations {
                match what {
                    0 | 1 => {
                        few.insert(key, value);
                        model.insert(key, value);
                    }
                    2 => prop_assert_eq!(few.remove(&key), model.remove(&key)),
                    3 => prop_assert_eq!(few.or_default(&key), model.entry(key).or_default()),
                    _ => {
                        few.retain(|known, held| *known != key && *held != value);
                        model.retain(|known, held| *known != key && *held != value);
                    }
                }
                prop_assert_eq!(few.get(&key), model.get(&key));
                prop_assert_eq!(few.get_mut(&key), model.get_mut(&key));
                prop_assert_eq!(few.contains_key(&key), model.contains_key(&key));
                prop_assert_eq!((few.len(), few.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(few.iter().eq(model.iter()));
                prop_assert!(few.values().eq(model.values()));
                prop_assert!(few.values_mut().eq(model.values_mut()));
            }
        }
    }
}
