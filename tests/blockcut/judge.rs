//! Finds the parts of the record that an image lacks.
//!
//! For every cell it looks for the newest version that explains the image. A request is *lost* if
//! it covers a newer version of a cell than the one found: what it promised to be stable is not
//! there, and nothing asked for later explains that. Contents nobody ever wrote there are
//! *foreign*.
//!
//! This is the counting oracle: it says which answers turned out to be wrong, and by how much.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::block_log::BlockLog;
use crate::record::{
    Cell, Contents, DATA, Fork, History, Kind, Moment, Object, Promise, STREAMS, UNIT, Value,
};
use crate::view::{Node, View};

/// Number of a version in its cell; below 0: what was there before all.
type Version = i32;
/// A cell at this version satisfies every request: its contents are there, or rightly gone.
const NEWEST: Version = Version::MAX;
const BEFORE: Version = -1;

struct Track {
    cell: Cell,
    /// Number of the operation, and the value.
    versions: Vec<(usize, Value)>,
}

/// A history, sorted by cells.
pub(crate) struct Judge<'a> {
    pub(crate) history: &'a History,
    /// A FLUSH covers times, as a write-through change other than a WRITE always does.
    flush_times: bool,
    tracks: Vec<Track>,
    index: BTreeMap<Cell, usize>,
    /// Of each operation, what it covers: number of the track, of the version.
    own: Vec<Vec<(usize, Version)>>,
    promised: Vec<Vec<(usize, Version)>>,
    /// Of each FLUSH of a directory, the names in it that the host took away: number of the track, of the version.
    left: Vec<Vec<(usize, Version)>>,
    /// The objects that ever had a path, in order.
    owners: BTreeMap<&'a str, Vec<Object>>,
}

/// A point in time at which the power fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// Before this entry of the log.
    pub(crate) entry: usize,
    /// The last moment of a client before it ([`crate::record::Moment::order`]).
    pub(crate) order: u64,
    /// The time of that moment.
    pub(crate) at: Duration,
}

impl Cut {
    fn saw(&self, moment: Option<Moment>) -> bool {
        moment.is_some_and(|moment| moment.order <= self.order)
    }
}

/// The changes that an image lacks, counted.
#[derive(Debug, Default, Clone)]
pub(crate) struct Verdict {
    /// Operations whose promise under `honor` is broken.
    pub(crate) promised: Vec<usize>,
    /// Operations answered with success whose own effects are missing.
    pub(crate) answered: Vec<usize>,
    /// How many operations had promised something by then, and been answered.
    pub(crate) promises: usize,
    /// Bytes written and answered that are missing.
    pub(crate) bytes: u64,
    /// Inodes that lack something answered.
    pub(crate) inodes: usize,
    /// Age at the cut of the oldest operation that is missing.
    pub(crate) oldest: Duration,
    /// Contents that nobody wrote there, and names nobody gave.
    pub(crate) foreign: Vec<String>,
    /// For each operation the first missing cell, and the reason in words for people.
    pub(crate) missing: BTreeMap<usize, (Cell, String)>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(history: &'a History, flush_times: bool) -> Self {
        let mut this = Self {
            history,
            flush_times,
            tracks: Vec::new(),
            index: BTreeMap::new(),
            own: vec![Vec::new(); history.operations.len()],
            promised: vec![Vec::new(); history.operations.len()],
            left: vec![Vec::new(); history.operations.len()],
            owners: BTreeMap::new(),
        };
        for (number, operation) in history.operations.iter().enumerate() {
            for (cell, value) in &operation.effects {
                let track = *this.index.entry(*cell).or_insert_with(|| {
                    let (cell, versions) = (*cell, Vec::new());
                    this.tracks.push(Track { cell, versions });
                    this.tracks.len() - 1
                });
                let versions = &mut this.tracks[track].versions;
                this.own[number].push((track, versions.len() as Version));
                versions.push((number, value.clone()));
                if let Value::Path(path) = value {
                    let owners = this.owners.entry(path).or_default();
                    owners.push(cell.object());
                }
            }
        }
        for number in 0..history.operations.len() {
            this.promised[number] = this.covered(number);
            this.left[number] = this.left(number);
        }
        this
    }

    /// The versions a FLUSH or write-through promises: what had been answered when it was issued.
    fn covered(&self, number: usize) -> Vec<(usize, Version)> {
        let operation = &self.history.operations[number];
        let mut covered = BTreeMap::new();
        match operation.promise {
            Promise::Nothing => {}
            Promise::Everything => self.cover_known(number, &mut covered),
            Promise::Object(object) => {
                let of_it = |cell: Cell| cell.object() == object;
                self.cover(number, of_it, &mut covered);
                self.cover_path(number, object, &mut covered);
                self.cover_links(number, object, &mut covered);
            }
            Promise::Itself(object) => self.cover_itself(number, object, &mut covered),
            Promise::Directory(object) => {
                self.cover_path(number, object, &mut covered);
                if let Some(path) = self.path_before(number, object) {
                    self.cover_names(number, path, &mut covered);
                }
            }
        }
        if !self.flush_times && !matches!(operation.promise, Promise::Itself(_)) {
            covered.retain(|track, _| !matches!(self.tracks[*track].cell, Cell::Written(_)));
        }
        covered.into_iter().collect()
    }

    /// The effects of an operation on an object, and the names by which it is found then. Of one that is deleted only
    /// its own name counts, which is gone.
    fn cover_itself(&self, number: usize, object: Object, covered: &mut BTreeMap<usize, Version>) {
        let operation = &self.history.operations[number];
        if operation.kind != Kind::Delete {
            self.cover_path(number, object, covered);
        }
        // Last, as the operation may give or take the very name.
        for ((cell, value), (track, version)) in operation.effects.iter().zip(&self.own[number]) {
            // The time of a WRITE follows later.
            let follows = operation.kind == Kind::WriteThrough && *cell == Cell::Written(object);
            if cell.object() != object || follows {
                continue;
            }
            if let Value::Path(path) = value {
                self.cover_above(number, path, covered);
            }
            covered.insert(*track, *version);
        }
    }

    /// The newest version of a track answered before an operation was issued.
    fn before(&self, number: usize, track: &Track) -> Option<Version> {
        self.newest_before(number, track, |_| true)
    }

    /// The newest version among those that `counts` counts.
    fn newest_before(
        &self,
        number: usize,
        track: &Track,
        counts: impl Fn(Kind) -> bool,
    ) -> Option<Version> {
        let issued = self.history.operations[number].issued.order;
        let answered = |(number, _): &(usize, Value)| {
            let operation = &self.history.operations[*number];
            counts(operation.kind) && operation.acknowledged.is_some_and(|at| at.order < issued)
        };
        let newest = track.versions.iter().rposition(answered)?;
        Some(newest as Version)
    }

    /// Everything that was changed through the server. A FLUSH of the root does not look for what another program
    /// has changed on the host: the server learns of that when somebody opens the file.
    fn cover_known(&self, number: usize, covered: &mut BTreeMap<usize, Version>) {
        for (place, track) in self.tracks.iter().enumerate() {
            if let Some(version) = self.newest_before(number, track, |kind| !kind.is_host()) {
                covered.insert(place, version);
            }
        }
    }

    fn cover(
        &self,
        number: usize,
        which: impl Fn(Cell) -> bool,
        covered: &mut BTreeMap<usize, Version>,
    ) {
        for (place, track) in self.tracks.iter().enumerate() {
            if which(track.cell)
                && let Some(version) = self.before(number, track)
            {
                covered.insert(place, version);
            }
        }
    }

    fn path_before(&self, number: usize, object: Object) -> Option<&'a str> {
        let operations = &self.history.operations;
        let track = &self.tracks[*self.index.get(&Cell::Name(object))?];
        let version = usize::try_from(self.before(number, track)?).ok()?;
        let effects = &operations[track.versions[version].0].effects;
        effects.iter().find_map(|(cell, value)| match value {
            Value::Path(path) if *cell == track.cell => Some(path.as_str()),
            _ => None,
        })
    }

    /// The object's name and those of the directories above.
    fn cover_path(&self, number: usize, object: Object, covered: &mut BTreeMap<usize, Version>) {
        self.cover(number, |cell| cell == Cell::Name(object), covered);
        let path = self.path_before(number, object).unwrap_or_default();
        self.cover_above(number, path, covered);
    }

    /// The further names that a file has. That those which it had are gone is not covered.
    fn cover_links(&self, number: usize, file: Object, covered: &mut BTreeMap<usize, Version>) {
        let links = self.history.links.iter();
        for (link, _) in links.filter(|(_, of)| **of == file) {
            let track = self.index.get(&Cell::Name(*link)).copied();
            let path = self.path_before(number, *link);
            if let (Some(track), Some(path)) = (track, path)
                && let Some(version) = self.before(number, &self.tracks[track])
            {
                covered.insert(track, version);
                self.cover_above(number, path, covered);
            }
        }
    }

    /// The names of the directories above a path.
    fn cover_above(&self, number: usize, mut path: &str, covered: &mut BTreeMap<usize, Version>) {
        while let Some((above, _)) = path.rsplit_once('/') {
            for owner in self.owners.get(above).into_iter().flatten() {
                self.cover(number, |cell| cell == Cell::Name(*owner), covered);
            }
            path = above;
        }
    }

    /// Names that came or went in a directory. An object that has left it, by a deletion or for another
    /// directory, must no longer be found under the name it had there; where it went is not covered.
    fn cover_names(&self, number: usize, path: &str, covered: &mut BTreeMap<usize, Version>) {
        let here = |(_, value): &(usize, Value)| is_in(value, path);
        for (place, track) in self.tracks.iter().enumerate() {
            let Cell::Name(_) = track.cell else {
                continue;
            };
            let known = self.before(number, track).unwrap_or(BEFORE);
            let known = &track.versions[..usize::try_from(known + 1).unwrap_or(0)];
            let Some(last) = known.iter().rposition(here) else {
                continue;
            };
            let version = if last + 1 < known.len() {
                last + 1
            } else {
                last
            };
            covered.insert(place, version as Version);
        }
    }

    /// The names that a FLUSH of a directory promises to be gone from it, although the server does not know of them.
    fn left(&self, number: usize) -> Vec<(usize, Version)> {
        let path = match self.history.operations[number].promise {
            Promise::Directory(object) => self.path_before(number, object),
            _ => None,
        };
        let Some(path) = path else {
            return Vec::new();
        };
        let mut left = Vec::new();
        for (place, track) in self.tracks.iter().enumerate() {
            let Cell::Name(_) = track.cell else {
                continue;
            };
            let known = self.before(number, track).unwrap_or(BEFORE);
            for ((_, value), version) in track.versions.iter().zip(0..known) {
                if is_in(value, path) && self.is_left_by_host(place, version) {
                    left.push((place, version));
                }
            }
        }
        left
    }

    /// Whether another program on the host took away the name that a version gave.
    fn is_left_by_host(&self, track: usize, version: Version) -> bool {
        let versions = &self.tracks[track].versions;
        let place = usize::try_from(version).ok();
        let next = place.and_then(|place| versions.get(place + 1));
        next.is_some_and(|(number, _)| self.history.operations[*number].kind.is_host())
    }

    /// The operations whose promise cannot hold, wherever the power is cut: between a write that they cover and their
    /// answer the device made nothing stable.
    pub(crate) fn without_sync(&self, log: &BlockLog) -> Vec<usize> {
        let operations = &self.history.operations;
        let unsynced = |number: &usize| {
            let Some(answered) = operations[*number].acknowledged else {
                return false;
            };
            let covered = self.promised[*number].iter();
            let changed = covered.filter_map(|(track, version)| {
                let track = &self.tracks[*track];
                let change = track.versions.get(usize::try_from(*version).ok()?)?.0;
                matches!(track.cell, Cell::Unit(..)).then_some(operations[change].issued.log)
            });
            let first = changed.max();
            first.is_some_and(|first| !log.makes_stable(first..answered.log))
        };
        (0..operations.len()).filter(unsynced).collect()
    }

    /// Compares a record with an image.
    pub(crate) fn judge(&self, view: &View, cut: Cut) -> Verdict {
        let mut verdict = Verdict::default();
        let mut found = Found {
            judge: self,
            cut,
            newest: vec![BEFORE; self.tracks.len()],
            named: BTreeSet::new(),
            deleted: BTreeSet::new(),
            foreign: Vec::new(),
        };
        found.place(view);
        verdict.foreign = found.foreign;
        let (newest, named, deleted) = (found.newest, found.named, found.deleted);
        let kept = self.replaced(&newest, &named, view);
        let lost =
            |newest: &[Version], covered: &[(usize, Version)], missed: &dyn Fn(Cell) -> bool| {
                let mut covered = covered.iter();
                let missing = covered.find(|(track, version)| {
                    *version > newest[*track] && missed(self.tracks[*track].cell)
                });
                missing.copied()
            };
        let missed =
            |cell: Cell| matches!(cell, Cell::Name(_)) || !deleted.contains(&cell.object());
        let mut inodes = BTreeSet::new();
        for (number, operation) in self.history.operations.iter().enumerate() {
            let Some(at) = operation.acknowledged.filter(|at| cut.saw(Some(*at))) else {
                continue;
            };
            let promises = operation.promise != Promise::Nothing;
            verdict.promises += usize::from(promises);
            let missing = lost(&kept, &self.promised[number], &|_| true);
            let missing = missing.map(|missing| (missing, kept[missing.0]));
            let back = self.left[number].iter().find(|name| named.contains(name));
            let back = back.map(|(track, version)| ((*track, version + 1), *version));
            if let Some((missing, found)) = missing.or(back) {
                verdict.promised.push(number);
                let why = self.explain(missing, found);
                verdict.missing.insert(number, why);
            }
            if operation.kind.is_host() {
                continue;
            }
            if let Some(missing) = lost(&newest, &self.own[number], &missed) {
                verdict.answered.push(number);
                let why = self.explain(missing, newest[missing.0]);
                verdict.missing.entry(number).or_insert(why);
                let age = cut.at.saturating_sub(at.at);
                verdict.oldest = verdict.oldest.max(age);
                inodes.insert(self.bearer(number, missing.0));
            }
        }
        verdict.inodes = inodes.len();
        verdict.bytes = self.lost_bytes(&newest, &deleted, cut);
        verdict
    }

    /// The versions found, as a promise is held to them. A replaced file is rightly gone only if the file that replaced
    /// it came to its name; otherwise the rename took the name away.
    fn replaced(
        &self,
        newest: &[Version],
        named: &BTreeSet<(usize, Version)>,
        view: &View,
    ) -> Vec<Version> {
        let mut kept = newest.to_vec();
        // Backwards, as the file that replaced it may have been replaced as well.
        for (operation, own) in self.history.operations.iter().zip(&self.own).rev() {
            if matches!(operation.kind, Kind::Replace | Kind::LinkOver)
                && let [(_, Value::Path(path)), _] = &operation.effects[..]
                && let [(by, came), (gone, removed)] = own[..]
                && kept[gone] == removed
                && named.range((gone, BEFORE)..(gone, NEWEST)).next().is_none()
                && kept[by] < came
                && !view.contains_key(path)
            {
                kept[gone] = BEFORE;
            }
        }
        kept
    }

    /// The inode that the loss is counted for: for a name that is removed, its directory.
    fn bearer(&self, number: usize, track: usize) -> String {
        let operation = &self.history.operations[number];
        let track = &self.tracks[track];
        if operation.kind == Kind::Delete {
            let last = track
                .versions
                .iter()
                .rev()
                .find_map(|(_, value)| match value {
                    Value::Path(path) => path.rsplit_once('/'),
                    _ => None,
                });
            return last.map_or_else(String::new, |(above, _)| above.to_owned());
        }
        self.history.file(track.cell.object()).to_string()
    }

    fn lost_bytes(&self, newest: &[Version], deleted: &BTreeSet<Object>, cut: Cut) -> u64 {
        let mut units = 0;
        for (track, newest) in self.tracks.iter().zip(newest) {
            let answered = |(number, _): &(usize, Value)| {
                cut.saw(self.history.operations[*number].acknowledged)
            };
            let last = track.versions.iter().rposition(answered);
            if let (Cell::Unit(..), Some(last)) = (track.cell, last)
                && last as Version > *newest
                && !deleted.contains(&track.cell.object())
                && track.versions[last].1 != Value::Contents(Contents::Zero)
                // The server acknowledged nothing that the host wrote.
                && !self.history.operations[track.versions[last].0].kind.is_host()
            {
                units += 1;
            }
        }
        units * UNIT as u64
    }

    fn explain(&self, (track, version): (usize, Version), found: Version) -> (Cell, String) {
        let track = &self.tracks[track];
        let told = |version: Version| {
            let place = usize::try_from(version).ok();
            place
                .and_then(|place| track.versions.get(place))
                .map_or_else(
                    || "nothing".to_owned(),
                    |(number, value)| {
                        let operation = &self.history.operations[*number];
                        let at = operation.acknowledged.map(|at| (at.at, at.log));
                        format!("{value:?} of #{number} ({}, {at:?})", operation.kind.name())
                    },
                )
        };
        let why = format!(
            "{:?}: had to be {}, found {}",
            track.cell,
            told(version),
            told(found)
        );
        (track.cell, why)
    }
}

/// The contents of an image, cell by cell.
struct Found<'a> {
    judge: &'a Judge<'a>,
    cut: Cut,
    newest: Vec<Version>,
    /// The names under which objects are found: number of the track, of the version that gave the name.
    named: BTreeSet<(usize, Version)>,
    /// Objects whose removal was answered: what was not promised of them nobody misses.
    deleted: BTreeSet<Object>,
    foreign: Vec<String>,
}

impl Found<'_> {
    fn issued(&self, track: usize) -> &[(usize, Value)] {
        let versions = &self.judge.tracks[track].versions;
        let operations = &self.judge.history.operations;
        let issued = versions.partition_point(|(n, _)| self.cut.saw(Some(operations[*n].issued)));
        &versions[..issued]
    }

    /// Finds every object, then its contents.
    fn place(&mut self, view: &View) {
        let mut places: BTreeMap<Object, Vec<&str>> = BTreeMap::new();
        for (path, node) in view {
            match self.owner(path, node) {
                Some(object) => places.entry(object).or_default().push(path),
                None => self.foreign.push(format!("{path}: nobody gave this name")),
            }
        }
        for track in 0..self.judge.tracks.len() {
            if let Cell::Name(object) = self.judge.tracks[track].cell {
                let paths = places.get(&object).map_or(&[][..], Vec::as_slice);
                let named = self.named(track, paths);
                self.newest[track] = self.name(track, &named);
                let named = named.into_iter().map(|version| (track, version));
                self.named.extend(named);
                self.contents(track, object, paths, view);
            }
        }
    }

    /// The object that has a path; several may have had it one after the other.
    fn owner(&self, path: &str, node: &Node) -> Option<Object> {
        let owners = self.judge.owners.get(path)?;
        if let [one] = owners[..] {
            return Some(one);
        }
        let inodes = &self.judge.history.inodes;
        let known = |object: &Object| inodes.get(object).copied();
        let given = |object: &&Object| {
            let at = |(_, value): &(usize, Value)| matches!(value, Value::Path(p) if p == path);
            let track = self.judge.index[&Cell::Name(**object)];
            self.issued(track).iter().any(at)
        };
        let mut owners: Vec<Object> = owners.iter().filter(given).copied().collect();
        if node.inode.is_some() {
            // One whose creation was not answered has no known number.
            let same = |object: &Object| known(object) == node.inode;
            let same: Vec<Object> = owners.iter().copied().filter(same).collect();
            owners.retain(|object| known(object).is_none());
            if !same.is_empty() {
                owners = same;
            }
        }
        if let [] | [_] = owners[..] {
            return owners.first().copied();
        }
        // The inode number is unknown, or was used again: the contents decide.
        let data = node.forks[usize::from(DATA)].as_deref().unwrap_or_default();
        let says = data
            .chunks(UNIT)
            .find_map(|unit| match Contents::read(unit) {
                Some(Contents::Fill { object, .. }) if owners.contains(&object) => Some(object),
                _ => None,
            });
        says.or_else(|| {
            // Nothing in it: the one of which the least is missing.
            let missing = |object: &&Object| self.missing(**object, node);
            owners.iter().rev().min_by_key(missing).copied()
        })
    }

    /// How much of an object's contents is missing, were it this one.
    fn missing(&self, object: Object, node: &Node) -> usize {
        let operations = &self.judge.history.operations;
        let cells = Cell::Unit(object, DATA, 0)..=Cell::Unit(object, DATA, u32::MAX);
        let size = Cell::Size(object, DATA);
        let tracks = self.judge.index.range(cells);
        let lost = |(cell, track): &(&Cell, &usize)| {
            let answered = |(n, _): &(usize, Value)| self.cut.saw(operations[*n].acknowledged);
            let last = self.issued(**track).iter().rposition(answered);
            last.is_some_and(|last| last as Version > self.version(**cell, **track, node).0)
        };
        let tracks = tracks.chain(self.judge.index.range(size..=size));
        tracks.filter(lost).count()
    }

    /// The versions that gave an object the names under which it is found.
    fn named(&self, track: usize, paths: &[&str]) -> Vec<Version> {
        let issued = self.issued(track);
        let given = |path: &&str| {
            let same = |(_, value): &(usize, Value)| matches!(value, Value::Path(p) if p == path);
            let place = issued.iter().rposition(same);
            place.map_or(BEFORE, |place| place as Version)
        };
        paths.iter().map(given).collect()
    }

    /// The version of a name. Under two names an object is where it was first: a promise that it had left that is
    /// broken. But a promise is about the name that the object has, where another program on the host took away the
    /// former: the server does not know of that one. Such a name says nothing where there is another, or where the
    /// object was to be deleted.
    fn name(&self, track: usize, named: &[Version]) -> Version {
        let mut issued = self.issued(track).iter();
        let gone = issued.rposition(|(_, value)| *value == Value::Gone);
        let gone = gone.map_or(BEFORE, |place| place as Version);
        let known = named.iter().copied();
        let known = known.filter(|version| !self.judge.is_left_by_host(track, *version));
        let last = named.iter().copied().max().unwrap_or(BEFORE);
        known.min().unwrap_or(last.max(gone))
    }

    fn contents(&mut self, name: usize, object: Object, paths: &[&str], view: &View) {
        let judge = self.judge;
        let operations = &judge.history.operations;
        let issued = self.issued(name).iter();
        let mut gone = issued.filter(|(_, value)| *value == Value::Gone);
        let deleted = gone
            .next()
            .map(|(number, _)| operations[*number].acknowledged);
        let gone = deleted.is_some();
        if deleted.is_some_and(|answered| self.cut.saw(answered)) {
            self.deleted.insert(object);
        }
        let node = paths.iter().find_map(|path| view.get(*path));
        let single = [
            Cell::Attributes(object),
            Cell::Written(object),
            Cell::Mark(object),
            Cell::Ea(object),
            Cell::Descriptor(object),
            Cell::Sparse(object),
        ];
        let cells = (single.into_iter().map(|cell| cell..=cell))
            .chain((0..3).map(|fork| Cell::Size(object, fork)..=Cell::Size(object, fork)))
            .chain([Cell::Unit(object, 0, 0)..=Cell::Unit(object, Fork::MAX, u32::MAX)]);
        for (cell, track) in cells.flat_map(|range| judge.index.range(range)) {
            self.newest[*track] = match node {
                None if gone => NEWEST,
                None => BEFORE,
                // Even if it is back because nobody made its removal stable: then it is whole.
                Some(node) => self.cell(*cell, *track, node),
            };
        }
    }

    fn cell(&mut self, cell: Cell, track: usize, node: &Node) -> Version {
        let (version, foreign) = self.version(cell, track, node);
        self.foreign.extend(foreign);
        version
    }

    /// The newest version that explains what is in a node, and what no version does.
    fn version(&self, cell: Cell, track: usize, node: &Node) -> (Version, Option<String>) {
        let issued = self.issued(track);
        let newest = |which: &dyn Fn(&Value) -> bool| {
            let place = issued.iter().rposition(|(_, value)| which(value));
            place.map(|place| place as Version)
        };
        match cell {
            Cell::Name(_) => (BEFORE, None),
            Cell::Attributes(_) => {
                let same = |value: &Value| *value == Value::Attributes(node.attributes);
                (newest(&same).unwrap_or(BEFORE), None)
            }
            Cell::Written(_) => {
                let Some(at) = node.written else {
                    return (NEWEST, None);
                };
                let late = |value: &Value| matches!(value, Value::Written(least) if *least <= at);
                (newest(&late).unwrap_or(BEFORE), None)
            }
            Cell::Mark(_) => {
                let Some(mark) = node.mark else {
                    return (NEWEST, None);
                };
                let same = |value: &Value| *value == Value::Mark(mark);
                (newest(&same).unwrap_or(BEFORE), None)
            }
            Cell::Ea(_) | Cell::Descriptor(_) | Cell::Sparse(_) => {
                let Some([ea, descriptor, sparse]) = node.client_marks else {
                    return (NEWEST, None);
                };
                let mark = match cell {
                    Cell::Ea(_) => ea,
                    Cell::Descriptor(_) => descriptor,
                    _ => sparse,
                };
                let same = |value: &Value| *value == Value::Mark(mark);
                (newest(&same).unwrap_or(BEFORE), None)
            }
            Cell::Size(_, fork) => {
                let fork = &node.forks[usize::from(fork)];
                (size(issued, fork.as_ref().map_or(0, Vec::len)), None)
            }
            Cell::Unit(object, fork, unit) => {
                let data = node.forks[usize::from(fork)].as_deref().unwrap_or_default();
                let at = unit as usize * UNIT;
                let there = data.get(at..data.len().min(at + UNIT)).unwrap_or_default();
                let contents = match there {
                    [] => Some(Contents::Zero),
                    there => Contents::read(there),
                };
                let same =
                    |value: &Value| matches!(value, Value::Contents(c) if Some(*c) == contents);
                let version = newest(&same);
                let foreign = version.is_none() && contents != Some(Contents::Zero);
                let stream = STREAMS[usize::from(fork)];
                let what = || {
                    let ends = ends(there);
                    format!("object {object} {stream:?} unit {unit}: {contents:?} ({ends})")
                };
                (version.unwrap_or(BEFORE), foreign.then(what))
            }
        }
    }
}

/// Whether a name lies in the directory of this path.
fn is_in(value: &Value, path: &str) -> bool {
    match value {
        Value::Path(name) => name
            .rsplit_once('/')
            .is_some_and(|(above, _)| above == path),
        _ => false,
    }
}

/// How many bytes there are, and the first and last: a sector with bytes of two versions, or less than a whole one, is
/// another finding than bytes from elsewhere.
fn ends(there: &[u8]) -> String {
    let first: Option<&[u8; 16]> = there.first_chunk();
    let last: Option<&[u8; 16]> = there.last_chunk();
    format!("{} bytes, {first:02x?} to {last:02x?}", there.len())
}

/// The newest version from which on some version is as short and some as long as what is found:
/// a length may be anything between two.
fn size(issued: &[(usize, Value)], found: usize) -> Version {
    let (mut least, mut most) = (usize::MAX, 0);
    for (place, (_, value)) in issued.iter().enumerate().rev() {
        if let Value::Size(size) = value {
            least = least.min(*size as usize);
            most = most.max(*size as usize);
        }
        if (least..=most).contains(&found) {
            return place as Version;
        }
    }
    BEFORE
}
