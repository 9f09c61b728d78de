//! A list of create contexts: walked, decoded by name, written and walked again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_wire::create_context::{
    CreateContextList, CreateContexts, RequestContext, ResponseContext,
};

fuzz_target!(|data: &[u8]| {
    assert!(CreateContexts::new(data).count() <= data.len() / 16 + 1);
    let mut raw = CreateContextList::new();
    let mut requests = CreateContextList::new();
    let mut responses = CreateContextList::new();
    for context in CreateContexts::new(data).flatten() {
        raw.push(context.name, context.data);
        if let Ok(request) = context.request() {
            request.encode(&mut requests);
        }
        if let Ok(response) = context.response() {
            response.encode(&mut responses);
        }
    }
    let all = |list: &CreateContextList| {
        let members: Result<Vec<_>, _> = CreateContexts::new(list.bytes())
            .map(|c| c.map(|c| (c.name.to_vec(), c.data.to_vec())))
            .collect();
        members.expect("what was written is readable")
    };
    let read: Vec<_> = CreateContexts::new(data)
        .flatten()
        .map(|context| (context.name.to_vec(), context.data.to_vec()))
        .collect();
    assert_eq!(all(&raw), read);
    all(&requests);
    all(&responses);
    let mut again = CreateContextList::new();
    for context in CreateContexts::new(requests.bytes()) {
        let request: RequestContext<'_> = context.unwrap().request().expect("readable");
        request.encode(&mut again);
    }
    assert_eq!(again.bytes(), requests.bytes());
    let mut again = CreateContextList::new();
    for context in CreateContexts::new(responses.bytes()) {
        let response: ResponseContext<'_> = context.unwrap().response().expect("readable");
        response.encode(&mut again);
    }
    assert_eq!(again.bytes(), responses.bytes());
});
