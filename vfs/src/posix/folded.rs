//! The names of one directory by their folded form, and the codes of their short forms.
//!
//! Names that fold alike are kept together, ordered by their bytes: a host may make any number of them. There is no
//! I/O here.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};

use super::{name, short_name::Code};

/// The memory in bytes that a name needs beside its own bytes and its folded form: its places in the tables, which may
/// be up to twice as large as their contents, and the overhead of the allocator.
const NAME_BYTES: usize = 128;

/// Names on disk that fold alike: nearly always one.
enum Names {
    One(Box<[u8]>),
    Many(BTreeSet<Box<[u8]>>),
}

impl Names {
    fn first(&self) -> Option<&[u8]> {
        match self {
            Names::One(name) => Some(name),
            Names::Many(names) => names.first().map(AsRef::as_ref),
        }
    }
}

/// Names of a directory, by their folded form.
pub(super) struct Folded {
    names: HashMap<Box<str>, Names>,
    count: usize,
    bytes: usize,
    /// How many of the names have a short form with this code; `None` in a share without short names.
    codes: Option<HashMap<Code, u32>>,
}

/// A name that a lookup searches for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) folded: &'a str,
    /// Its code, if it may be the short form of a name.
    pub(super) code: Option<Code>,
}

impl Folded {
    /// An empty set with room for this many names, in a share with short names or without.
    pub(super) fn with_capacity(names: usize, short_names: bool) -> Self {
        Self {
            names: HashMap::with_capacity(names),
            count: 0,
            bytes: 0,
            codes: short_names.then(HashMap::new),
        }
    }

    /// The names, to be dropped one by one.
    pub(super) fn into_names(self) -> impl Iterator {
        self.names.into_iter()
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The memory of all names, in bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The name on disk with this folded form; of several the first by its bytes.
    pub(super) fn first(&self, folded: &str) -> Option<&[u8]> {
        self.names.get(folded).and_then(Names::first)
    }

    /// Whether no name has a short form with this code.
    pub(super) fn lacks(&self, code: Code) -> bool {
        let codes = self.codes.as_ref();
        codes.is_some_and(|codes| !codes.contains_key(&code))
    }

    pub(super) fn add(&mut self, on_disk: &[u8]) {
        let shown = name::to_client(on_disk);
        let folded = crate::fold(&shown).into_boxed_str();
        let new = Box::<[u8]>::from(on_disk);
        let bytes = bytes_of(on_disk, &folded);
        match self.names.get_mut(&folded) {
            None => drop(self.names.insert(folded, Names::One(new))),
            Some(Names::Many(names)) => {
                if !names.insert(new) {
                    return;
                }
            }
            Some(Names::One(old)) if *old == new => return,
            Some(place @ Names::One(_)) => {
                let one = std::mem::replace(place, Names::Many(BTreeSet::from([new])));
                if let (Names::One(old), Names::Many(names)) = (one, place) {
                    names.insert(old);
                }
            }
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if let (Some(codes), Some(code)) = (&mut self.codes, Code::of_long(&shown)) {
            *codes.entry(code).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, on_disk: &[u8]) {
        let shown = name::to_client(on_disk);
        let folded = crate::fold(&shown);
        let gone = match self.names.get_mut(folded.as_str()) {
            None => return,
            Some(Names::One(only)) if **only != *on_disk => return,
            Some(Names::One(_)) => true,
            Some(Names::Many(names)) => {
                if !names.remove(on_disk) {
                    return;
                }
                names.is_empty()
            }
        };
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes_of(on_disk, &folded));
        if gone {
            self.names.remove(folded.as_str());
        }
        if let (Some(codes), Some(code)) = (&mut self.codes, Code::of_long(&shown))
            && let Entry::Occupied(mut left) = codes.entry(code)
        {
            *left.get_mut() -= 1;
            if *left.get() == 0 {
                left.remove();
            }
        }
    }
}

fn bytes_of(on_disk: &[u8], folded: &str) -> usize {
    NAME_BYTES + on_disk.len() + folded.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name of 20 letters that folds like all others of this function.
    fn spelling(number: u32) -> Vec<u8> {
        let letter = |bit: u32| match (number >> bit) & 1 {
            0 => b'a',
            _ => b'A',
        };
        (0..20).map(letter).collect()
    }

    #[test]
    fn names_that_fold_alike_are_each_kept_once() {
        let mut folded = Folded::with_capacity(0, true);
        let all = [2, 0, 1, 2, 0].map(spelling);
        for (added, count) in all.iter().zip([1, 2, 3, 3, 3]) {
            folded.add(added);
            assert_eq!(folded.count(), count);
        }
        let sought = crate::fold("aaaaaaaaaaaaaaaaaaaa");
        assert_eq!(folded.first(&sought), Some(&*spelling(1)));
        for (removed, left) in [(1, 2), (1, 2), (2, 1), (0, 0)] {
            folded.remove(&spelling(removed));
            assert_eq!(folded.count(), left);
        }
        assert_eq!((folded.first(&sought), folded.bytes()), (None, 0));
    }
}
