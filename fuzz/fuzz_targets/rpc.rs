//! RPC PDUs and stubs from strangers, put together as a pipe would.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_wire::rpc::{
    Bind, BindAck, FaultPdu, Interface, PduHeader, Reassembly, RequestPdu, Response,
    answer_contexts, dssetup, lsarpc, samr, srvsvc, wkssvc,
};

fn stub(opnum: u16, stub: &[u8]) {
    let _ = srvsvc::SrvsvcRequest::decode(opnum, stub);
    let _ = wkssvc::decode_level(opnum, stub);
    let _ = dssetup::decode_level(opnum, stub);
    let _ = lsarpc::LsarpcRequest::decode(opnum, stub);
    let _ = samr::SamrRequest::decode(opnum, stub);
}

fuzz_target!(|bytes: &[u8]| {
    if let [opnum, rest @ ..] = bytes {
        stub(u16::from(*opnum), rest);
    }
    let mut rest = bytes;
    let mut reassembly = Reassembly::default();
    while let Ok((header, body, after)) = PduHeader::read(rest) {
        if let Ok(bind) = Bind::read(body) {
            let _ = answer_contexts(&bind, Interface::Srvsvc);
        }
        let _ = BindAck::read(body);
        let _ = Response::read(body);
        let _ = FaultPdu::read(body);
        if let Ok(request) = RequestPdu::read(&header, body)
            && let Ok(Some(whole)) = reassembly.push(&header, &request)
        {
            stub(whole.opnum, &whole.stub);
        }
        rest = after;
    }
});
