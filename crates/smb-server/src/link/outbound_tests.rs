//! The memory of replies that wait for the socket.

use super::*;

fn frame(head: BytesMut) -> Frame {
    let reply = Outgoing {
        head,
        payload: None,
        file: None,
        header: Header::default(),
        sign: None,
    };
    assemble(vec![reply], None).unwrap()
}

fn read(asked: usize, got: usize) -> BytesMut {
    let mut head = for_data(asked);
    head.resize(head.len() + got, 7);
    head
}

#[test]
fn a_short_answer_to_a_large_read_holds_little() {
    for asked in [0, 4096, 65_536, 8 << 20] {
        for got in [0, 1, 100, asked / 2, asked] {
            let got = got.min(asked);
            let head = read(asked, got);
            let expected = head.to_vec();
            let head = fitted(head);
            assert_eq!(head, expected, "{got} of {asked}");
            let held = frame(head).held;
            assert!(held <= 2 * got + SLACK + 2048, "{got} of {asked}: {held}");
        }
    }
}

#[test]
fn a_full_answer_stays_where_it_was_read() {
    let head = read(8 << 20, 8 << 20);
    let place = head.as_ptr();
    assert_eq!(fitted(head).as_ptr(), place);
}

#[test]
fn what_a_reply_holds_is_counted() {
    let body = |len| {
        let mut head = blank();
        head.resize(head.len() + len, 0);
        head
    };
    for len in [9, 300, 1000] {
        let head = body(len);
        let (capacity, sent) = (head.capacity(), HEADROOM + Header::SIZE + len);
        let frame = frame(head);
        assert!(frame.held > capacity && frame.held > sent, "{frame:?}");
    }
    let payload = Outgoing {
        head: body(9),
        payload: Some(Bytes::from(vec![0; 5000])),
        file: None,
        header: Header::default(),
        sign: None,
    };
    let frame = assemble(vec![payload], None).unwrap();
    assert!(frame.held > 5000 + HEADROOM + 256, "{}", frame.held);
}
