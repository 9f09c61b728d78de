//! The event table of the design, written a second time and compared with the function
//! for every event, policy, option and combination of request flags.

use crate::*;

type When = fn(&RequestFlags, &ShareDurability) -> bool;

const ALWAYS: When = |_, _| true;
const THROUGH: When = |f, s| {
    f.write_through
        || f.open_write_through
        || (s.unbuffered_is_write_through && (f.unbuffered || f.open_unbuffered))
};
const OPEN_THROUGH: When = |f, _| f.write_through || f.open_write_through;

const FLUSHES: &[Event] = &[
    Event::Flush(FlushTarget::File),
    Event::Flush(FlushTarget::Directory),
    Event::Flush(FlushTarget::ShareRoot),
];

/// The first row whose events and condition fit gives the answer, by policy: honor, strict,
/// host, bounded.
///
/// `-` nothing (marked only); `inode` waits; `dsync` durable write, then names; `defer` asked for
/// and not given; `bound` stays dirty under a bound; `both` of these.
#[rustfmt::skip]
const TABLE: &[(&[Event], When, [&str; 4])] = &[
    // AAPL full sync: honor anyway unless ignored.
    (FLUSHES, |f, s| f.full_sync && !s.ignore_full_sync, ["inode", "inode", "inode", "inode"]),
    (FLUSHES, ALWAYS,                                    ["inode", "inode", "defer", "both"]),
    (&[Event::Write], THROUGH,                           ["dsync", "inode", "defer", "both"]),
    (&[Event::Write], ALWAYS,                            ["-",     "inode", "-",     "bound"]),
    (&[Event::WriteStream], THROUGH,                     ["inode", "inode", "defer", "both"]),
    (&[Event::WriteStream], ALWAYS,                      ["-",     "inode", "-",     "bound"]),
    (&[Event::Content], THROUGH,                         ["inode", "inode", "defer", "both"]),
    (&[Event::Meta(Meta::Security)],
        |f, s| s.durable_acl && OPEN_THROUGH(f, s),      ["inode", "inode", "inode", "both"]),
    (&[Event::Meta(Meta::Security)],
        |_, s| s.durable_acl,                            ["inode", "inode", "inode", "bound"]),
    (&[Event::Move], OPEN_THROUGH,                       ["inode", "inode", "defer", "inode"]),
    (&[Event::Move], ALWAYS,                             ["inode", "inode", "-",     "inode"]),
    // FILE_WRITE_THROUGH: its SET_INFO and names synced too.
    (&[Event::Resize, Event::Content, Event::Meta(Meta::Security), Event::Meta(Meta::Times),
       Event::Meta(Meta::Attributes), Event::Meta(Meta::Eas),
       Event::Create, Event::Rename, Event::Link, Event::Remove, Event::Stream], OPEN_THROUGH,
                                                         ["inode", "inode", "defer", "both"]),
    (&[Event::Resize, Event::Content, Event::Meta(Meta::Security), Event::Meta(Meta::Times),
       Event::Meta(Meta::Attributes), Event::Meta(Meta::Eas),
       Event::Create, Event::Rename, Event::Link, Event::Remove, Event::Stream], ALWAYS,
                                                         ["-",     "inode", "-",     "bound"]),
    (&[Event::Close], ALWAYS,                            ["-",     "inode", "-",     "-"]),
];

fn cell(text: &str) -> Barriers {
    let none = Barriers::default();
    match text {
        "-" => none,
        "inode" => Barriers {
            wait: Wait::Inode,
            ..none
        },
        "dsync" => Barriers {
            durable_write: true,
            wait: Wait::Names,
            ..none
        },
        "defer" => Barriers {
            deferred: true,
            ..none
        },
        "bound" => Barriers {
            bounded: true,
            ..none
        },
        "both" => Barriers {
            bounded: true,
            deferred: true,
            ..none
        },
        _ => panic!("{text}"),
    }
}

const EVENTS: [Event; 18] = [
    Event::Flush(FlushTarget::File),
    Event::Flush(FlushTarget::Directory),
    Event::Flush(FlushTarget::ShareRoot),
    Event::Write,
    Event::WriteStream,
    Event::Create,
    Event::Close,
    Event::Resize,
    Event::Rename,
    Event::Move,
    Event::Link,
    Event::Remove,
    Event::Stream,
    Event::Content,
    Event::Meta(Meta::Security),
    Event::Meta(Meta::Times),
    Event::Meta(Meta::Attributes),
    Event::Meta(Meta::Eas),
];

#[test]
fn the_function_is_the_table() {
    let bounded = "bounded:50ms,4MiB".parse().unwrap();
    let policies = [
        Policy::Honor,
        Policy::StrictSync,
        Policy::TreatHostAsStableStorage,
        bounded,
    ];
    let mut used = vec![0; TABLE.len()];
    for event in EVENTS {
        for (column, policy) in policies.into_iter().enumerate() {
            for bits in 0..1u32 << 9 {
                let bit = |n: u32| bits >> n & 1 == 1;
                let settings = ShareDurability {
                    policy,
                    ignore_full_sync: bit(0),
                    durable_acl: bit(1),
                    unbuffered_is_write_through: bit(2),
                    sync_on_stop: bit(3),
                    flush_times: true,
                };
                let flags = RequestFlags {
                    write_through: bit(4),
                    unbuffered: bit(5),
                    full_sync: bit(6),
                    open_write_through: bit(7),
                    open_unbuffered: bit(8),
                };
                let (row, (_, _, cells)) = TABLE
                    .iter()
                    .enumerate()
                    .find(|(_, (events, when, _))| {
                        events.contains(&event) && when(&flags, &settings)
                    })
                    .expect("a row for every event");
                used[row] += 1;
                assert_eq!(
                    barriers(event, &settings, flags),
                    cell(cells[column]),
                    "{event:?} {settings:?} {flags:?}"
                );
            }
        }
    }
    assert!(
        used.iter().all(|n| *n > 0),
        "a row is never reached: {used:?}"
    );
}

#[test]
fn strict_never_waits_for_less_than_any_other() {
    for event in EVENTS {
        for policy in [Policy::Honor, Policy::TreatHostAsStableStorage] {
            let strict = barriers(
                event,
                &ShareDurability::with_policy(Policy::StrictSync),
                RequestFlags::default(),
            );
            let other = barriers(
                event,
                &ShareDurability::with_policy(policy),
                RequestFlags::default(),
            );
            assert!(
                strict.wait >= other.wait && !strict.deferred && !strict.bounded,
                "{event:?}"
            );
            assert!(strict.wait > Wait::Nothing, "{event:?}");
        }
    }
}
