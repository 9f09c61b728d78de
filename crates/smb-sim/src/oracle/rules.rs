//! The values that each register may hold: rules 1 to 5, register by register.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use super::{
    Object, Rule, Violation,
    history::{Content, Effect, History, Key, Size, Value},
    promise::{Covered, Place, Registers},
    stamp::{SECTOR, Sector, Stamp, stream_number},
    view::{Found, FoundStream},
};

const PAGE_SECTORS: u64 = 8;
/// Copies of copies followed to their source.
const COPIES_MAX: usize = 8;
/// Texts kept of what was lost.
const TEXTS_MAX: usize = 4;

/// A register that is not what it must be.
pub(super) struct Miss {
    /// The inode that the miss is charged to.
    object: Object,
    /// When the oldest request that is missing was answered.
    answered: Option<Duration>,
    /// Written bytes that are missing.
    bytes: u64,
    pub(super) what: String,
}

impl Miss {
    pub(super) fn new(object: Object, what: String) -> Self {
        Self {
            object,
            answered: None,
            bytes: 0,
            what,
        }
    }

    /// That these effects came after what was found.
    fn of(registers: &Registers<'_>, object: Object, found: &str, after: &[Place]) -> Self {
        Self {
            answered: oldest(registers, after),
            ..Self::new(
                object,
                format!("{found}, had to be {}", described(registers, after)),
            )
        }
    }

    /// Charged to the directory if it is about something to be deleted. That directory may be to be deleted as well,
    /// and so on up.
    pub(super) fn charged(mut self, lost: &BTreeMap<Object, Object>) -> Self {
        let mut seen = BTreeSet::new();
        while let Some(dir) = lost.get(&self.object)
            && seen.insert(self.object)
        {
            self.object = *dir;
        }
        self
    }

    /// The same without an age.
    pub(super) fn without(mut self, lost: &BTreeMap<Object, Object>) -> Self {
        if lost.contains_key(&self.object) {
            self.answered = None;
        }
        self.charged(lost)
    }
}

/// The loss of answered requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loss {
    /// Bytes written (not those of objects that are gone altogether).
    pub bytes: u64,
    /// Objects of which anything is lost.
    pub inodes: BTreeSet<Object>,
    /// When the oldest thing lost was answered.
    pub oldest: Option<Duration>,
    /// Some of it in words.
    pub what: Vec<String>,
}

impl Loss {
    pub(super) fn add(&mut self, miss: &Miss) {
        self.bytes += miss.bytes;
        self.inodes.insert(miss.object);
        self.oldest = match (self.oldest, miss.answered) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if self.what.len() < TEXTS_MAX {
            self.what.push(miss.what.clone());
        }
    }
}

/// Whether a register may hold what was found: `from` are the effects that put it there,
/// `initial` whether it is what was there before all. If not, the covered effects that came after.
fn superseded(
    registers: &Registers<'_>,
    covered: &Covered,
    places: &[Place],
    from: &[Place],
    initial: bool,
) -> Option<Vec<Place>> {
    let promised = those(places, |p| covered.has(*p));
    if promised.is_empty() && (initial || !from.is_empty()) {
        return None;
    }
    let fits = |e: &Place| !promised.iter().any(|c| registers.precedes(e.0, c.0));
    if from.iter().any(fits) {
        return None;
    }
    let after = those(&promised, |c| {
        from.iter().all(|e| registers.precedes(e.0, c.0))
    });
    Some(if after.is_empty() { promised } else { after })
}

fn those(places: &[Place], are_meant: impl Fn(&Place) -> bool) -> Vec<Place> {
    places.iter().copied().filter(are_meant).collect()
}

fn oldest(registers: &Registers<'_>, places: &[Place]) -> Option<Duration> {
    places
        .iter()
        .filter_map(|place| registers.ops[place.0].answered_at())
        .min()
}

fn described(registers: &Registers<'_>, places: &[Place]) -> String {
    let one = |place: &Place| {
        let op = &registers.ops[place.0];
        format!("#{} {:?}", place.0, registers.effect(*place))
            + &op
                .answered_at()
                .map_or(String::new(), |at| format!(" answered at {at:?}"))
    };
    places.last().map_or_else(|| "nothing".to_owned(), one)
}

pub(super) fn name(
    registers: &Registers<'_>,
    covered: &Covered,
    slot: (Object, &str),
    found: Option<Object>,
) -> Vec<Miss> {
    let Some(places) = registers.names.get(&slot) else {
        return Vec::new();
    };
    let gave = |p: &Place| matches!(registers.effect(*p), Effect::Name { to, .. } if *to == found);
    let from = those(places, gave);
    let Some(after) = superseded(registers, covered, places, &from, found.is_none()) else {
        return Vec::new();
    };
    let lost = after.last().map_or(Object::ROOT, |p| bearer(registers, *p));
    let what = format!("name {:?} in {:?}: found {found:?}", slot.1, slot.0);
    vec![Miss::of(registers, lost, &what, &after)]
}

/// For the name that a rename takes away, what was renamed.
fn bearer(registers: &Registers<'_>, place: Place) -> Object {
    let effect = registers.effect(place);
    if let Effect::Name {
        to: None, about, ..
    } = effect
    {
        let stays =
            |other: &Effect| matches!(other, Effect::Name { to: Some(to), .. } if to == about);
        if registers.ops[place.0].request.effects.iter().any(stays) {
            return *about;
        }
    }
    effect.bearer()
}

/// Streams, sizes, sectors and metadata of an object that was found.
pub(super) fn contents(
    registers: &Registers<'_>,
    covered: &Covered,
    object: Object,
    found: &Found,
) -> Vec<Miss> {
    let mut misses = Vec::new();
    let empty = FoundStream::default();
    for ((_, stream), places) in registers
        .streams
        .range((object, "")..)
        .take_while(|((of, _), _)| *of == object)
    {
        let there = found.streams.get(*stream);
        if !stream.is_empty() {
            let missing = presence(
                registers,
                covered,
                (object, stream),
                places,
                there.is_some(),
            );
            let absent = there.is_none() && missing.is_none();
            misses.extend(missing);
            if absent {
                continue;
            }
        }
        let there = there.unwrap_or(&empty);
        misses.extend(size(registers, covered, (object, stream), places, there));
        misses.extend(sectors(registers, covered, (object, stream), places, there));
    }
    for (key, value) in &found.meta {
        if let Some(places) = registers.meta.get(&(object, key)) {
            misses.extend(meta(registers, covered, (object, key), places, value));
        }
    }
    misses
}

fn presence(
    registers: &Registers<'_>,
    covered: &Covered,
    (object, stream): (Object, &str),
    places: &[Place],
    there: bool,
) -> Option<Miss> {
    let present = |p: &Place| match registers.effect(*p) {
        Effect::Stream { present, .. } => Some(*present),
        _ => None,
    };
    let of_it = those(places, |p| present(p).is_some());
    let from = those(&of_it, |p| present(p) == Some(there));
    let initial = !there || of_it.is_empty();
    let after = superseded(registers, covered, &of_it, &from, initial)?;
    let what = format!("stream {stream:?} of {object:?}: found {there}");
    Some(Miss::of(registers, object, &what, &after))
}

/// The end of file lies between what was promised and what was ever asked for.
fn size(
    registers: &Registers<'_>,
    covered: &Covered,
    (object, stream): (Object, &str),
    places: &[Place],
    found: &FoundStream,
) -> Option<Miss> {
    let sized = |p: &Place| match registers.effect(*p) {
        Effect::Size { size, .. } => Some(*size),
        _ => None,
    };
    let end = |size: Size| match size {
        Size::AtLeast(end) | Size::Exactly(end) => end,
    };
    let all: Vec<(Place, Size)> = places
        .iter()
        .filter_map(|p| sized(p).map(|size| (*p, size)))
        .collect();
    let not_before = |c: &Place, p: &Place| !registers.precedes(p.0, c.0);
    let miss = |c: Place, what: &str, limit: u64| Miss {
        object,
        answered: registers.ops[c.0].answered_at(),
        bytes: 0,
        what: format!(
            "size of {object:?} stream {stream:?}: {} bytes, {what} {limit} sectors by {}",
            found.size,
            described(registers, &[c])
        ),
    };
    // Of what an end that was set later replaces, nothing is left to be missed.
    let replaced = |c: &Place| {
        let mut later = all.iter().filter(|(p, _)| covered.has(*p));
        later.any(|(p, size)| {
            matches!(size, Size::Exactly(_)) && registers.precedes(c.0, p.0) && p != c
        })
    };
    for (c, size) in all.iter().filter(|(p, _)| covered.has(*p) && !replaced(p)) {
        let shrunk = all.iter().filter_map(|(p, size)| match size {
            Size::Exactly(end) if p != c && not_before(c, p) => Some(*end),
            _ => None,
        });
        let least = shrunk
            .min()
            .map_or(end(*size), |shrunk| shrunk.min(end(*size)));
        if found.whole() < least {
            return Some(miss(*c, "at least", least));
        }
        if let Size::Exactly(exact) = size {
            let grown = all.iter().filter(|(p, _)| p != c && not_before(c, p));
            let most = grown
                .map(|(_, size)| end(*size))
                .max()
                .unwrap_or(0)
                .max(*exact);
            if found.size > History::bytes(most) {
                return Some(miss(*c, "at most", most));
            }
        }
    }
    let most = all.iter().map(|(_, size)| end(*size)).max().unwrap_or(0);
    (found.size > History::bytes(most)).then(|| {
        Miss::new(
            object,
            format!(
                "size of {object:?} stream {stream:?}: {} bytes, never more than {most} sectors",
                found.size
            ),
        )
    })
}

/// Effects on one sector.
fn on_sector(registers: &Registers<'_>, places: &[Place], sector: u64) -> Vec<Place> {
    let is_on = |p: &Place| matches!(registers.effect(*p), Effect::Data { sectors, .. } if sectors.contains(&sector));
    those(places, is_on)
}

/// Whether an effect put this into a sector.
fn puts(
    registers: &Registers<'_>,
    place: Place,
    number: u64,
    sector: Sector,
    depth: usize,
) -> bool {
    let Effect::Data {
        object,
        stream,
        sectors,
        content,
    } = registers.effect(place)
    else {
        return false;
    };
    match content {
        Content::Zero => sector == Sector::Zero,
        Content::Version(version) => {
            sector
                == Sector::Stamp(Stamp {
                    object: *object,
                    stream: stream_number(stream),
                    sector: number,
                    version: *version,
                })
        }
        Content::Copy {
            object,
            stream,
            first,
        } => {
            if depth >= COPIES_MAX {
                return true;
            }
            let source = first + (number - sectors.start);
            let Some(places) = registers.streams.get(&(*object, stream.as_str())) else {
                return sector == Sector::Zero;
            };
            let on = on_sector(registers, places, source);
            // The contents of the source at some moment between request and answer.
            let is_over =
                |p: &Place| registers.ops[p.0].succeeded() && registers.precedes(p.0, place.0);
            let before = those(&on, is_over);
            let there = |p: &Place| {
                !registers.precedes(place.0, p.0)
                    && !before.iter().any(|later| registers.precedes(p.0, later.0))
                    && puts(registers, *p, source, sector, depth + 1)
            };
            (sector == Sector::Zero && before.is_empty()) || on.iter().any(there)
        }
    }
}

/// Covered effects that make zeros and that no other covered one surely came after.
fn last_zeros(registers: &Registers<'_>, covered: &Covered, on: &[Place]) -> Vec<Place> {
    let promised = || on.iter().copied().filter(|p| covered.has(*p));
    let is_zero = |p: &Place| {
        matches!(
            registers.effect(*p),
            Effect::Data {
                content: Content::Zero,
                ..
            }
        )
    };
    let is_last = |p: &Place| !promised().any(|other| registers.precedes(p.0, other.0));
    promised().filter(is_zero).filter(is_last).collect()
}

fn sectors(
    registers: &Registers<'_>,
    covered: &Covered,
    (object, stream): (Object, &str),
    places: &[Place],
    found: &FoundStream,
) -> Vec<Miss> {
    let ends = places.iter().filter_map(|p| match registers.effect(*p) {
        Effect::Data { sectors, .. } if sectors.end != u64::MAX => Some(sectors.end),
        _ => None,
    });
    let end = ends.max().unwrap_or(0).max(found.sectors.len() as u64);
    let mut misses: Vec<Miss> = Vec::new();
    let mut run: Option<(Range<u64>, Miss)> = None;
    for number in 0..end {
        let there = found.sector(number);
        let on = on_sector(registers, places, number);
        let from = those(&on, |p| puts(registers, *p, number, there, 0));
        let Some(after) = superseded(registers, covered, &on, &from, there == Sector::Zero) else {
            misses.extend(run.take().map(|(_, miss)| miss));
            continue;
        };
        // Where it may have been cut off or made zeros last, nothing written is missed, and nothing older than that.
        // Zeros that may be older than what was found need not be missed.
        let zeros = last_zeros(registers, covered, &on);
        let bytes = if zeros.is_empty() && !after.is_empty() {
            SECTOR as u64
        } else {
            0
        };
        let zeroed = zeros
            .iter()
            .filter_map(|p| registers.ops[p.0].answered_at());
        let answered = zeroed.max().max(oldest(registers, &after));
        // Neighbours that miss the same are one miss.
        if let Some((range, miss)) = &mut run
            && range.end == number
            && miss.answered == answered
        {
            range.end += 1;
            miss.bytes += bytes;
            continue;
        }
        misses.extend(run.take().map(|(_, miss)| miss));
        let what = format!("{object:?} stream {stream:?} from sector {number}: found {there:?}");
        run = Some((
            number..number + 1,
            Miss {
                answered,
                bytes,
                ..Miss::of(registers, object, &what, &after)
            },
        ));
    }
    misses.extend(run.map(|(_, miss)| miss));
    misses
}

fn meta(
    registers: &Registers<'_>,
    covered: &Covered,
    (object, key): (Object, &Key),
    places: &[Place],
    found: &Value,
) -> Option<Miss> {
    let right = |value: &Value| match (value, found) {
        (Value::NotBefore(least), Value::NotBefore(at)) => least <= at,
        (Value::Unknown, _) => true,
        (value, found) => value == found,
    };
    let set =
        |p: &Place| matches!(registers.effect(*p), Effect::Meta { value, .. } if right(value));
    let after = superseded(registers, covered, places, &those(places, set), true)?;
    let what = format!("{key:?} of {object:?}: found {found:?}");
    Some(Miss::of(registers, object, &what, &after))
}

/// Rule 2: a page is a mix of two of its states at most. Unless writes are `whole`, each has as many
/// states as sectors: the disk may do less than it was asked for, and be asked for the rest.
pub(super) fn torn(
    registers: &Registers<'_>,
    object: Object,
    found: &Found,
    whole: bool,
) -> Vec<Violation> {
    let mut out = Vec::new();
    for (stream, there) in &found.streams {
        let Some(places) = registers.streams.get(&(object, stream.as_str())) else {
            continue;
        };
        for (page, part) in there.sectors.chunks(PAGE_SECTORS as usize).enumerate() {
            let first = page as u64 * PAGE_SECTORS;
            if part.contains(&Sector::Garbage) {
                out.push(Violation::new(
                    Rule::Torn,
                    format!(
                        "{object:?} stream {stream:?} page {page}: a sector that is no version"
                    ),
                ));
            } else if !mixes_two(registers, places, (first, part), whole) {
                out.push(Violation::new(
                    Rule::Torn,
                    format!("{object:?} stream {stream:?} page {page}: {part:?}"),
                ));
            }
        }
    }
    out
}

/// A page's contents after each of these writes, in order, and if they are not `whole` after each of their sectors.
fn page_states(
    registers: &Registers<'_>,
    on: Vec<Place>,
    (first, sectors_of_page): (u64, usize),
    whole: bool,
) -> Vec<Vec<Sector>> {
    let mut states = vec![vec![Sector::Zero; sectors_of_page]];
    for place in on {
        let mut state = states.last().cloned().unwrap_or_default();
        for (at, number) in (first..).take(sectors_of_page).enumerate() {
            if let Effect::Data {
                object,
                stream,
                sectors,
                content,
            } = registers.effect(place)
                && sectors.contains(&number)
            {
                state[at] = match content {
                    Content::Version(version) => Sector::Stamp(Stamp {
                        object: *object,
                        stream: stream_number(stream),
                        sector: number,
                        version: *version,
                    }),
                    _ => Sector::Zero,
                };
                if !whole {
                    states.push(state.clone());
                }
            }
        }
        states.push(state);
    }
    states
}

/// Whether each sector is from one of two states of the page. Requests that overlapped in time,
/// and copies, leave it open: then yes.
fn mixes_two(
    registers: &Registers<'_>,
    places: &[Place],
    (first, found): (u64, &[Sector]),
    whole: bool,
) -> bool {
    let version = |sector: &Sector| match sector {
        Sector::Stamp(stamp) => stamp.version,
        _ => 0,
    };
    let distinct: BTreeSet<u64> = found.iter().map(version).collect();
    if distinct.len() <= 2 {
        return true;
    }
    let mut on: Vec<Place> = Vec::new();
    for place in places {
        let Effect::Data {
            sectors, content, ..
        } = registers.effect(*place)
        else {
            continue;
        };
        if sectors.start < first + PAGE_SECTORS && sectors.end > first {
            // Nor is it known which part of a failed request was carried out.
            if matches!(content, Content::Copy { .. }) || !registers.ops[place.0].succeeded() {
                return true;
            }
            on.push(*place);
        }
    }
    if on
        .windows(2)
        .any(|two| !registers.precedes(two[0].0, two[1].0))
    {
        return true;
    }
    // A cut of the end of file may get there without what was written before it.
    let cut_short = on.iter().any(|place| {
        matches!(registers.effect(*place), Effect::Data { sectors, content: Content::Zero, .. }
            if sectors.end == u64::MAX)
    });
    let states = page_states(registers, on, (first, found.len()), whole);
    let fits = |old: &Vec<Sector>, new: &Vec<Sector>| {
        found
            .iter()
            .zip(old.iter().zip(new))
            .all(|(there, (old, new))| {
                there == old || there == new || (cut_short && *there == Sector::Zero)
            })
    };
    states
        .iter()
        .enumerate()
        .any(|(index, old)| states.iter().skip(index).any(|new| fits(old, new)))
}
