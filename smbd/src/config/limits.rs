//! Checks of `[limits]`: every figure within the range in which the server can keep it.

use std::time::Duration;

use super::{
    LimitSettings, raw,
    validate::{Findings, within},
    values::ByteSize,
};

/// Most of anything that is counted for the whole server.
const MANY: u32 = 1_000_000;
/// Most of anything that is counted in a 16-bit field or for one connection.
const SOME: u32 = 65_535;
/// The least `io_size` and `directory_buffer` in bytes: clients assume 64 KiB of every server.
const BUFFER_BYTES_MIN: u32 = 64 << 10;
/// The most that the credits of one 2.1 request can pay for.
const BUFFER_BYTES_MAX: u32 = 8 << 20;
/// The least `buffer_memory`, in multiples of `io_size`.
const IO_SIZES_MIN: u64 = 8;
/// The most `buffer_memory` in bytes; no machine needs more.
const BUFFER_MEMORY_MAX: u64 = 1 << 40;
/// The most `compound_length`: longer chains are refused before the limit is checked.
const COMPOUND_MAX: u32 = smb_wire::compound::COMPOUND_ELEMENTS_MAX as u32;
/// The most `locks_per_open`: more would leave other opens of the file no room.
const LOCKS_MAX: u32 = smb_server::limits::RANGES_PER_OPEN_MAX as u32;
/// The fewest `credits`: with less a client that reads ahead would stop.
const CREDITS_MIN: u32 = 64;
/// A shorter time-out would disconnect clients that are still logging in.
const AUTHENTICATION_TIMEOUT_MIN: Duration = Duration::from_secs(1);

pub(super) fn limits(table: &raw::LimitsTable, findings: &mut Findings) -> LimitSettings {
    let mut limits = LimitSettings::default();
    // Each field has one name in the file and in the result.
    macro_rules! counts {
        ($( $limit:ident: $range:expr; )*) => { $(
            limits.$limit = within(&table.$limit, limits.$limit, $range, findings);
        )* };
    }
    counts! {
        connections_per_address: 1..=MANY;
        unauthenticated_connections: 1..=MANY;
        trees_per_session: 1..=SOME;
        opens_per_session: 16..=MANY;
        locks_per_open: 1..=LOCKS_MAX;
        pending_per_connection: 8..=SOME;
        compound_length: 4..=COMPOUND_MAX;
        failed_logins: 1..=10_000;
    }
    derived(table, &mut limits, findings);
    let credits = limits.credits.into();
    let credits = within(&table.credits, credits, CREDITS_MIN..=SOME, findings);
    limits.credits = u16::try_from(credits).unwrap_or(limits.credits);
    bytes(&table.io_size, &mut limits.io_size_bytes, findings);
    bytes(
        &table.directory_buffer,
        &mut limits.directory_buffer_bytes,
        findings,
    );
    buffer_memory(&table.buffer_memory, &mut limits, findings);
    if let Some(at) = &table.authentication_timeout {
        limits.authentication_timeout = at.get_ref().0;
        if limits.authentication_timeout < AUTHENTICATION_TIMEOUT_MIN {
            let message = "nobody logs in that fast";
            let way_out = "use \"1s\" or more";
            findings.add(Some(at.span()), message, way_out);
        }
    }
    limits
}

/// Fills in the limits that depend on the machine if the file leaves them out.
fn derived(table: &raw::LimitsTable, l: &mut LimitSettings, findings: &mut Findings) {
    let fields = [
        (&table.connections, &mut l.connections, 1..=MANY),
        (
            &table.sessions_per_connection,
            &mut l.sessions_per_connection,
            1..=SOME,
        ),
        (&table.opens, &mut l.opens, 16..=MANY),
        // A rename needs three: the open that it is made through, and two for its names.
        (&table.opens_per_user, &mut l.opens_per_user, 3..=MANY),
    ];
    for (field, value, range) in fields {
        if let Some(at) = field {
            *value = Some(within(field, *at.get_ref(), range, findings));
        }
    }
    if let (Some(all), Some(each), Some(at)) = (l.opens, l.opens_per_user, &table.opens_per_user)
        && each > all
    {
        let message = format!("one user cannot have {each} opens where there are {all} in all");
        let way_out = "make `opens_per_user` smaller, or `opens` larger";
        findings.add(Some(at.span()), message, way_out);
    }
}

/// Checks `buffer_memory`: a single connection gets half of what its address may have, which is half of what is free,
/// and a request of `io_size` must fit into that together with its receive buffer.
fn buffer_memory(field: &raw::At<ByteSize>, limits: &mut LimitSettings, findings: &mut Findings) {
    let Some(at) = field else { return };
    let bytes = at.get_ref().0;
    let least = IO_SIZES_MIN * u64::from(limits.io_size_bytes);
    if !(least..=BUFFER_MEMORY_MAX).contains(&bytes) {
        findings.add(
            Some(at.span()),
            format!("{bytes} bytes are out of range here"),
            &format!(
                "use \"{}MiB\" ({IO_SIZES_MIN} times io_size) to \"1024GiB\"",
                least.div_ceil(1 << 20)
            ),
        );
    }
    limits.buffer_memory = Some(bytes);
}

fn bytes(field: &raw::At<ByteSize>, value: &mut u32, findings: &mut Findings) {
    let Some(at) = field else { return };
    match u32::try_from(at.get_ref().0) {
        Ok(size) if (BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&size) => *value = size,
        _ => findings.add(
            Some(at.span()),
            format!("{} bytes are out of range here", at.get_ref().0),
            "use \"64KiB\" to \"8MiB\"",
        ),
    }
}
