//! Messages that end with bytes of a file, which go to the socket straight from the page cache.
//!
//! Such a message leaves at once, without the queue, before the kernel drops the file's pages. If the socket does not
//! take all of it, the rest is read into memory and queued before everything else.

use bytes::Bytes;
use vfs::{Vfs, disk::InMemory};

use super::{Connection, Outbox};
use crate::link::outbound;

/// The part of a message that the socket did not take; it ends with bytes of a file.
pub(crate) struct Rest {
    head: Bytes,
    file: Box<dyn InMemory>,
}

impl<V: Vfs> Connection<V> {
    /// Whether a message can be sent from a file now: the transport supports it, and nothing has to leave before.
    pub(crate) fn may_send_from_file(&self) -> bool {
        let outbox = &self.outbox;
        let idle = outbox.held.get() == 0 && !outbox.gap.get() && !outbox.closed.get();
        self.direct.is_some() && idle
    }

    /// Sends a message that ends with bytes of a file, as far as the socket takes them now. The rest must be given to
    /// [`Connection::send_rest`] at once.
    pub(crate) fn send_from_file(
        &self,
        mut head: Bytes,
        mut file: Box<dyn InMemory>,
    ) -> Option<Rest> {
        if self.is_closed() {
            return None;
        }
        let whole = head.len() + file.left();
        if self.may_send_from_file()
            && let Some(direct) = &self.direct
            && let Err(error) = direct.send(&mut head, &mut *file)
        {
            tracing::debug!(peer = %self.peer, %error, "connection closed: nothing can be sent");
            self.abandon();
            return None;
        }
        let left = head.len() + file.left();
        if left < whole {
            self.turn.did(whole - left);
            self.flow.account.moved();
        }
        (left > 0).then(|| {
            self.outbox.gap.set(true);
            Rest { head, file }
        })
    }

    /// Queues the rest of a message before all others. Where the file has ended since its length was announced, or
    /// cannot be read, the connection is closed: the message cannot be completed.
    pub(crate) async fn send_rest(&self, rest: Rest) {
        let read = rest.file.read().await;
        let outbox = &self.outbox;
        outbox.gap.set(false);
        if outbox.abandoned.get() {
            return;
        }
        match read {
            Err(error) => {
                tracing::info!(
                    peer = %self.peer, %error,
                    "connection closed: a file became shorter, or unreadable, while it was being sent"
                );
                self.abandon();
            }
            Ok(data) => {
                let frame = outbound::rest(rest.head, data.freeze());
                outbox.held.set(outbox.held.get() + frame.held);
                let mut segments = outbox.segments.borrow_mut();
                if let Some(data) = frame.payload {
                    segments.push_front(data);
                }
                segments.push_front(frame.head);
                drop(segments);
                self.report_untaken();
                if !outbox.writer_follows.get() {
                    Outbox::wake(&outbox.writer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell, collections::VecDeque, future::Future, io, os::fd::BorrowedFd, pin::Pin,
        rc::Rc,
    };

    use bytes::{Buf, BytesMut};
    use vfs::{VfsError, VfsResult};

    use super::*;
    use crate::{
        limits::ServerLimits,
        link::outbound::Frame,
        restore::world::{Back, World, connection, run},
        transport::Direct,
    };

    /// A file with the number of bytes left, and whether they can be read.
    #[derive(Debug)]
    struct Memory(usize, bool);

    impl InMemory for Memory {
        fn left(&self) -> usize {
            self.0
        }
        fn send(&mut self, _: BorrowedFd<'_>) -> io::Result<usize> {
            let sent = self.0.min(1000);
            self.0 -= sent;
            Ok(sent)
        }
        fn read(self: Box<Self>) -> Pin<Box<dyn Future<Output = VfsResult<BytesMut>>>> {
            Box::pin(async move {
                let read = BytesMut::from(&vec![b'f'; self.0][..]);
                self.1.then_some(read).ok_or(VfsError::Io)
            })
        }
    }

    /// A socket that takes this many bytes of the head, and after a whole head one piece of the file.
    struct Takes(Rc<RefCell<usize>>);

    impl Direct for Takes {
        fn send(&self, head: &mut Bytes, file: &mut dyn InMemory) -> io::Result<()> {
            head.advance(head.len().min(*self.0.borrow()));
            if head.is_empty() {
                let nowhere = std::fs::File::open("/dev/null")?;
                file.send(std::os::fd::AsFd::as_fd(&nowhere))?;
            }
            Ok(())
        }
    }

    fn taking(takes: &Rc<RefCell<usize>>) -> Rc<Connection<Back>> {
        let server = World::new(false, ServerLimits::default()).server;
        let direct: Box<dyn Direct> = Box::new(Takes(Rc::clone(takes)));
        connection(&server, Some(direct))
    }

    fn frame(text: &'static [u8]) -> Frame {
        Frame {
            head: Bytes::from_static(text),
            payload: None,
            file: None,
            held: text.len(),
        }
    }

    /// All queued bytes, as they would be sent.
    fn queued(connection: &Connection<Back>) -> Vec<u8> {
        let mut queue = VecDeque::new();
        let held = run(connection.outbox.take(&mut queue)).unwrap();
        connection.outbox.sent(held);
        Vec::from(queue).concat()
    }

    #[test]
    fn the_rest_of_a_message_leaves_before_what_was_queued_meanwhile() {
        let takes = Rc::new(RefCell::new(2));
        let connection = taking(&takes);
        assert!(connection.may_send_from_file());
        let head = Bytes::from_static(b"head");
        let rest = connection.send_from_file(head.clone(), Box::new(Memory(3, true)));
        assert!(
            !connection.may_send_from_file(),
            "another must not overtake it"
        );
        connection.send(frame(b"next"));
        run(connection.send_rest(rest.unwrap()));
        assert_eq!(queued(&connection), b"adfffnext");

        *takes.borrow_mut() = 4;
        let rest = connection.send_from_file(head.clone(), Box::new(Memory(1002, true)));
        run(connection.send_rest(rest.unwrap()));
        assert!(!connection.may_send_from_file(), "something is queued");
        assert_eq!(queued(&connection), b"ff");

        let rest = connection.send_from_file(head, Box::new(Memory(1000, true)));
        assert!(rest.is_none() && connection.may_send_from_file());
    }

    #[test]
    fn a_message_that_cannot_be_completed_ends_its_connection() {
        let connection = taking(&Rc::new(RefCell::new(2)));
        let head = Bytes::from_static(b"head");
        let rest = connection.send_from_file(head, Box::new(Memory(3, false)));
        connection.send(frame(b"next"));
        run(connection.send_rest(rest.unwrap()));
        assert!(connection.is_closed() && connection.outbox.abandoned.get());
        let mut queue = VecDeque::new();
        assert_eq!(run(connection.outbox.take(&mut queue)), None);
        assert!(queue.is_empty(), "nothing that was queued is sent");
    }

    #[test]
    fn the_rest_of_a_message_is_still_sent_where_its_connection_was_closed() {
        let connection = taking(&Rc::new(RefCell::new(2)));
        let head = Bytes::from_static(b"head");
        let rest = connection.send_from_file(head.clone(), Box::new(Memory(3, true)));
        connection.close();
        run(connection.send_rest(rest.unwrap()));
        assert_eq!(queued(&connection), b"adfff");
        let late = connection.send_from_file(head, Box::new(Memory(3, true)));
        assert!(late.is_none());
    }
}
