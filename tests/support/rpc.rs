//! Messages of DCE/RPC over pipes.

/// A bind to srvsvc 3.0 over NDR (C706 12.6.4.3).
#[must_use]
pub fn bind() -> Vec<u8> {
    bind_in(true, 1)
}

/// The bind with integers in either order, as its data representation label says.
#[must_use]
pub fn bind_in(little_endian: bool, call_id: u32) -> Vec<u8> {
    let short = |n: u16| match little_endian {
        true => n.to_le_bytes(),
        false => n.to_be_bytes(),
    };
    let long = |n: u32| match little_endian {
        true => n.to_le_bytes(),
        false => n.to_be_bytes(),
    };
    let label = if little_endian { 0x10 } else { 0 };
    let mut out = vec![5, 0, 11, 3, label, 0, 0, 0];
    // Lengths and the call; the largest fragments and the group; one context with one transfer syntax.
    out.extend([short(72), short(0)].concat());
    out.extend(long(call_id));
    out.extend([short(0x10b8), short(0x10b8)].concat());
    out.extend(long(0));
    out.extend([1, 0, 0, 0, 0, 0, 1, 0]);
    out.extend(long(0x4b32_4fc8));
    out.extend([short(0x1670), short(0x01d3)].concat());
    out.extend([0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88]);
    out.extend([short(3), short(0)].concat());
    out.extend(long(0x8a88_5d04));
    out.extend([short(0x1ceb), short(0x11c9)].concat());
    out.extend([0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60]);
    out.extend(long(2));
    out
}
