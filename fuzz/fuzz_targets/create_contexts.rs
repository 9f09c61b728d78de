//! A list of create contexts: walked, decoded by name, written and walked again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_wire::create_context::{CreateContextList, CreateContexts};

fuzz_target!(|data: &[u8]| {
    assert!(CreateContexts::new(data).count() <= data.len() / 16 + 1);
    let mut raw = CreateContextList::new();
    for context in CreateContexts::new(data).flatten() {
        raw.push(context.name, context.data);
        let _ = context.request();
        let _ = context.response();
    }
    let read: Vec<_> = CreateContexts::new(data)
        .flatten()
        .map(|context| (context.name.to_vec(), context.data.to_vec()))
        .collect();
    let again: Vec<_> = CreateContexts::new(raw.bytes())
        .map(|context| context.expect("what was written is readable"))
        .map(|context| (context.name.to_vec(), context.data.to_vec()))
        .collect();
    assert_eq!(again, read);
});
