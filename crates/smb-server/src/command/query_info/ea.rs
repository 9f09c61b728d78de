//! FileFullEaInformation ([MS-SMB2] 3.3.5.20.1, [MS-FSA] 2.1.5.12.12): all extended attributes,
//! those named by the request, or those from an index on.

use std::{
    borrow::{Borrow, Cow},
    collections::{HashMap, HashSet},
};

use smb_wire::{
    fscc::{EaEntry, MAX_EA_NAME_BYTES, check_ea_name, encode_ea_list, read_get_ea_list},
    msg::{QueryInfoFlags, QueryInfoRequest},
    status::Status,
};
use vfs::{Vfs, VfsError};

use super::InfoAnswer;
use crate::{command::engine::OnDisk, failure::Failure, state::Open};

/// The client-visible extended attributes, as far as the wire can carry them.
async fn entries<V: Vfs>(on: &OnDisk<'_, V>) -> Result<Vec<EaEntry>, VfsError> {
    let eas = match on.vfs().eas(&on.disk.node).await {
        Err(VfsError::NotSupported) => Vec::new(),
        other => other?,
    };
    Ok(eas
        .into_iter()
        .filter(|(name, value)| {
            name.len() <= MAX_EA_NAME_BYTES && u16::try_from(value.len()).is_ok()
        })
        .map(|(name, value)| EaEntry::new(name, value))
        .collect())
}

pub(super) async fn query<V: Vfs>(
    on: &OnDisk<'_, V>,
    request: &QueryInfoRequest<'_>,
    max: usize,
) -> Result<InfoAnswer, Failure> {
    // [MS-SMB2] 3.3.5.20.1: as for every class, the fixed part must fit.
    Status::INFO_LENGTH_MISMATCH.when(max < EaEntry::MIN)?;
    let all = entries(on).await?;
    let single = request.flags.contains(QueryInfoFlags::RETURN_SINGLE_ENTRY);
    if !request.input.is_empty() {
        let mut chosen = named(&all, request.input)?;
        chosen.truncate(if single { 1 } else { usize::MAX });
        return Ok(list(&chosen, max)?.0);
    }
    Status::NO_EAS_ON_FILE.when(all.is_empty())?;
    let start = start(on.open, request, all.len())?;
    let count = if single { 1 } else { all.len() };
    let chosen: Vec<EaEntry> = all.into_iter().skip(start).take(count).collect();
    Status::NO_MORE_EAS.when(chosen.is_empty())?;
    let (answer, fitted) = list(&chosen, max)?;
    // [MS-SMB2] 3.3.5.20.1: an answer that starts at an index does not move the scan.
    if !request.flags.contains(QueryInfoFlags::INDEX_SPECIFIED) {
        on.open.state().ea_index = start + fitted;
    }
    Ok(answer)
}

/// The index of the first attribute to return. SL_INDEX_SPECIFIED counts from one and takes
/// precedence over SL_RESTART_SCAN.
fn start<V: Vfs>(
    open: &Open<V>,
    request: &QueryInfoRequest<'_>,
    count: usize,
) -> Result<usize, Failure> {
    if request.flags.contains(QueryInfoFlags::INDEX_SPECIFIED) {
        return usize::try_from(request.additional_information)
            .ok()
            .and_then(|index| index.checked_sub(1))
            .filter(|index| *index < count)
            .ok_or(Failure::Status(Status::NONEXISTENT_EA_ENTRY));
    }
    let mut state = open.state();
    if request.flags.contains(QueryInfoFlags::RESTART_SCAN) {
        // [MS-SMB2] 3.3.5.20.1: the scan begins anew, even if no attribute fits into this answer.
        state.ea_index = 0;
    }
    Ok(state.ea_index)
}

/// The attributes named in the request, each once; one that does not exist is returned with an empty value.
fn named<'a>(all: &'a [EaEntry], input: &[u8]) -> Result<Vec<Cow<'a, EaEntry>>, Failure> {
    let names = read_get_ea_list(input).map_err(|_| Status::EA_LIST_INCONSISTENT)?;
    let known: HashMap<_, _> = all
        .iter()
        .map(|entry| (entry.name.to_ascii_uppercase(), entry))
        .collect();
    let mut chosen = Vec::new();
    let mut before = HashSet::new();
    for name in names {
        check_ea_name(&name).map_err(|_| Status::INVALID_EA_NAME)?;
        let folded = name.to_ascii_uppercase();
        let entry = known.get(&folded);
        if !before.insert(folded) {
            continue;
        }
        chosen.push(match entry {
            Some(entry) => Cow::Borrowed(*entry),
            None => Cow::Owned(EaEntry::new(name, [])),
        });
    }
    Ok(chosen)
}

/// The answer with as many attributes as fit, and their number.
fn list(entries: &[impl Borrow<EaEntry>], max: usize) -> Result<(InfoAnswer, usize), Failure> {
    let (bytes, fitted) = encode_ea_list(entries, max);
    Status::BUFFER_TOO_SMALL.when(fitted == 0 && !entries.is_empty())?;
    let cut = fitted < entries.len();
    Ok((InfoAnswer { bytes, cut }, fitted))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use smb_wire::fscc::{encode_get_ea_list, read_ea_list};

    use super::*;

    fn entry(name: &str, value: &[u8]) -> EaEntry {
        EaEntry::new(name, value)
    }

    #[test]
    fn asked_names_are_found_without_case_and_absent_ones_are_empty() {
        let all = [entry("user.One", b"1")];
        let mut input = BytesMut::new();
        encode_get_ea_list(&[b"USER.ONE", b"two"], &mut input);
        let found = named(&all, &input).unwrap();
        let found: Vec<_> = found.into_iter().map(Cow::into_owned).collect();
        assert_eq!(found, [entry("user.One", b"1"), entry("two", b"")]);
        assert!(named(&all, &[1, 0, 0]).is_err());
    }

    #[test]
    fn a_name_that_is_asked_again_and_again_is_listed_once_and_not_copied() {
        let all = [entry("One", &[7; 60_000])];
        let mut input = BytesMut::new();
        encode_get_ea_list(&vec![&b"one"[..]; 5000], &mut input);
        let found = named(&all, &input).unwrap();
        assert!(matches!(&found[..], [Cow::Borrowed(one)] if std::ptr::eq(*one, &all[0])));
    }

    #[test]
    fn a_list_is_cut_between_entries() {
        let all = [entry("a", b"1"), entry("b", b"22")];
        let (whole, fitted) = list(&all, 1000).unwrap();
        assert!(!whole.cut && fitted == 2);
        let (cut, fitted) = list(&all, whole.bytes.len() - 1).unwrap();
        assert!(cut.cut && fitted == 1);
        assert_eq!(read_ea_list(&cut.bytes).unwrap(), all[..1]);
        assert!(list(&all, 8).is_err());
    }
}
