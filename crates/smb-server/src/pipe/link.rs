//! The RPC association on one pipe: written bytes become PDUs, PDUs become calls, answers become messages to be
//! read (C706 12.5, 12.6; [MS-RPCE] 3.3.1.5, 3.3.3.5).
//!
//! There is no I/O here. Any input of a client ends in an answer, a fault, or a broken pipe, and never uses more memory
//! than the limits here allow. The pipe is in message mode: each fragment of a response is one message.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use bytes::{Bytes, BytesMut};
use smb_wire::{
    fsctl::PipePeekResponse,
    rpc::{
        Bind, BindAck, BindNak, ContextResult, FaultPdu, FaultStatus, Interface,
        MAX_FRAGMENT_BYTES, MIN_FRAGMENT_BYTES, PduHeader, PduType, ProviderReason, Reassembly,
        RequestPdu, ResultCode, WholeRequest, answer_contexts, encode_response,
    },
    status::Status,
};

use super::{handles::Handles, services, world::World};
use crate::{
    failure::Failure,
    limits::PIPE_MEMORY,
    memory::{Account, Held, Portion},
};

/// Most bytes that may wait to be read. If a client sends more requests without reading its answers, its pipe breaks.
const UNREAD_BYTES_MAX: usize = 8 << 20;

/// About the memory that an unread message takes besides its bytes: its place in the queue and the spare room of its
/// buffer. Most answers are shorter.
const MESSAGE_MEMORY: usize = 160;

/// Most presentation contexts of an association; further ones are rejected.
const CONTEXTS_MAX: usize = 64;

/// The association group. Pipes of one client share nothing, so all have the same number.
const ASSOCIATION_GROUP: u32 = 0x53f0;

/// FILE_PIPE_CONNECTED_STATE and FILE_PIPE_CLOSING_STATE ([MS-FSCC] 2.3.47).
const CONNECTED: u32 = 3;
const CLOSING: u32 = 4;

pub(super) struct RpcLink {
    interface: Interface,
    /// Bytes of an incomplete PDU; fewer than the longest fragment.
    partial: BytesMut,
    reassembly: Reassembly,
    /// Accepted presentation contexts and their interfaces; none before the bind.
    contexts: Vec<(u16, Interface)>,
    bound: bool,
    /// Longest fragment the client takes.
    fragment: u16,
    unread: VecDeque<Bytes>,
    unread_bytes: usize,
    handles: Handles,
    /// The part of all this that is charged to the server's memory budget.
    held: Option<Held>,
    /// The client does not speak RPC, so nothing more is accepted.
    broken: bool,
}

impl RpcLink {
    pub(super) fn new(interface: Interface) -> Self {
        Self {
            interface,
            partial: BytesMut::new(),
            reassembly: Reassembly::default(),
            contexts: Vec::new(),
            bound: false,
            fragment: MAX_FRAGMENT_BYTES,
            unread: VecDeque::new(),
            unread_bytes: 0,
            handles: Handles::default(),
            held: None,
            broken: false,
        }
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        Ok(Status::PIPE_BROKEN.when(self.broken)?)
    }

    /// Whether a READ would not have to wait.
    pub(super) fn is_readable(&self) -> bool {
        self.broken || !self.unread.is_empty()
    }

    /// Up to `max` bytes of the first message, and whether more of it remains. `None` if there is nothing to read.
    pub(super) fn read(&mut self, max: usize) -> Result<Option<(Bytes, bool)>, Failure> {
        let Some(message) = self.unread.front_mut() else {
            self.check()?;
            return Ok(None);
        };
        let data = message.split_to(message.len().min(max));
        let more = !message.is_empty();
        if !more {
            self.unread.pop_front();
        }
        self.unread_bytes = self.unread_bytes.saturating_sub(data.len());
        let bytes = self.memory();
        if let Some(held) = &mut self.held
            && bytes < held.bytes()
        {
            held.resize(bytes, Portion::Half);
        }
        Ok(Some((data, more)))
    }

    /// The waiting bytes, and whether the first message is longer than `max`.
    pub(super) fn peek(&self, max: usize) -> (bool, PipePeekResponse) {
        let first = self.unread.front().map_or(&[][..], |first| first);
        let shown = first.get(..max).unwrap_or(first);
        let count = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let answer = PipePeekResponse {
            named_pipe_state: if self.broken { CLOSING } else { CONNECTED },
            read_data_available: count(self.unread_bytes),
            number_of_messages: count(self.unread.len()),
            message_length: count(first.len()),
            data: shown.to_vec(),
        };
        (shown.len() < first.len(), answer)
    }

    /// Takes bytes out of `data` and acts upon the first PDU that is complete. Returns how many bytes it and its answer
    /// have; `None` if there is none, or the pipe is broken.
    pub(super) fn take_pdu(&mut self, data: &mut &[u8], world: &World) -> Option<usize> {
        if self.broken {
            return None;
        }
        let before = self.unread_bytes;
        let pdu = self.next_pdu(data)?;
        if pdu.len() < PduHeader::SIZE || self.pdu(&pdu, world).is_err() {
            self.refuse(&pdu);
        }
        let answered = self.unread_bytes.saturating_sub(before);
        if self.unread_bytes > UNREAD_BYTES_MAX {
            self.unread.clear();
            self.unread_bytes = 0;
            self.broken = true;
        }
        Some(pdu.len() + answered)
    }

    /// The next PDU, as far as its length says; if it is not complete, its bytes are kept.
    fn next_pdu<'a>(&mut self, data: &mut &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.partial.is_empty()
            && let Some(length) = PduHeader::frag_length_of(data)
            && length >= PduHeader::SIZE
            && let Some(pdu) = data.split_off(..length)
        {
            return Some(Cow::Borrowed(pdu));
        }
        loop {
            let known = PduHeader::frag_length_of(&self.partial);
            let length = known.unwrap_or(PduHeader::SIZE);
            if known.is_some() && self.partial.len() >= length {
                return Some(Cow::Owned(std::mem::take(&mut self.partial).into()));
            }
            let missing = length.saturating_sub(self.partial.len()).max(1);
            let (more, rest) = data.split_at_checked(missing).unwrap_or((*data, &[]));
            if more.is_empty() {
                return None;
            }
            self.partial.extend_from_slice(more);
            *data = rest;
        }
    }

    /// Called when the rest of what was written is lost: nothing that follows could be understood.
    pub(super) fn abandon(&mut self) {
        self.broken = true;
    }

    /// Answers a PDU that cannot be acted upon and breaks the pipe. Integers in big-endian order are among these.
    fn refuse(&mut self, bytes: &[u8]) {
        let (pdu_type, call_id) = PduHeader::call_of(bytes).unwrap_or((PduType::REQUEST, 0));
        if pdu_type == PduType::BIND && !self.bound {
            let mut out = BytesMut::new();
            BindNak::REASON_NOT_SPECIFIED.encode(call_id, &mut out);
            self.push(out);
        } else {
            self.fault(call_id, 0, FaultStatus::PROTO_ERROR);
        }
        self.broken = true;
    }

    /// Called when the writer waits for an answer. Services answer at once, so if there is no answer now, none will
    /// come: the PDU is incomplete, or one that nothing answers.
    pub(super) fn must_answer(&mut self) {
        if !self.is_readable() {
            let partial = std::mem::take(&mut self.partial);
            self.refuse(&partial);
        }
    }

    /// Memory beyond the first [`PIPE_MEMORY`] bytes.
    fn memory(&self) -> usize {
        let bytes = self.unread_bytes + self.partial.len() + self.reassembly.bytes();
        let beside = self.unread.len() * MESSAGE_MEMORY + self.handles.memory();
        (bytes + beside).saturating_sub(PIPE_MEMORY)
    }

    /// Charges the memory held now to the server's budget; if that has no room, the pipe breaks as with
    /// [`UNREAD_BYTES_MAX`].
    pub(super) fn charge(&mut self, account: &Arc<Account>) -> Result<(), Failure> {
        let bytes = self.memory();
        if bytes == 0 {
            self.held = None;
            return Ok(());
        }
        let held = self.held.get_or_insert_with(|| account.nothing());
        if !held.resize(bytes, Portion::Half) {
            *self = Self {
                broken: true,
                ..Self::new(self.interface)
            };
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        Ok(())
    }

    fn push(&mut self, message: BytesMut) {
        self.unread_bytes += message.len();
        self.unread.push_back(message.freeze());
    }

    fn fault(&mut self, call_id: u32, context_id: u16, status: FaultStatus) {
        let mut out = BytesMut::new();
        FaultPdu { context_id, status }.encode(call_id, &mut out);
        self.push(out);
    }

    /// Handles one PDU; an error breaks the pipe.
    fn pdu(&mut self, bytes: &[u8], world: &World) -> Result<(), smb_wire::Malformed> {
        let (header, body, _) = PduHeader::read(bytes)?;
        match header.pdu_type {
            PduType::BIND if !self.bound => self.bind(&header, body),
            PduType::ALTER_CONTEXT if self.bound => self.bind(&header, body),
            PduType::REQUEST if self.bound => self.request(&header, body, world),
            // The client gave up a call that it had begun to send.
            PduType::ORPHANED => {
                self.reassembly = Reassembly::default();
                Ok(())
            }
            // A call has already ended when it could be cancelled, and no authentication is under way.
            PduType::CO_CANCEL | PduType::AUTH3 => Ok(()),
            _ => Err(smb_wire::Malformed {
                what: "RPC PDU out of place",
            }),
        }
    }

    /// [MS-RPCE] 3.3.1.5.2: bind and alter_context.
    fn bind(&mut self, header: &PduHeader, body: &[u8]) -> Result<(), smb_wire::Malformed> {
        let alters = header.pdu_type == PduType::ALTER_CONTEXT;
        let mut out = BytesMut::new();
        if header.auth_length != 0 {
            // The SMB session is authenticated already; RPC authentication is not supported.
            if alters {
                self.fault(header.call_id, 0, FaultStatus::ACCESS_DENIED);
            } else {
                BindNak::AUTHENTICATION_TYPE_NOT_RECOGNIZED.encode(header.call_id, &mut out);
                self.push(out);
            }
            return Ok(());
        }
        let bind = Bind::read(body)?;
        let mut results = answer_contexts(&bind, self.interface);
        for (context, answer) in bind.contexts.iter().zip(&mut results) {
            let Some(interface) = Interface::of(&context.abstract_syntax) else {
                continue;
            };
            if answer.result != ResultCode::ACCEPTANCE {
                continue;
            }
            if let Err(reason) = self.accept(context.id, interface) {
                *answer = ContextResult {
                    result: ResultCode::PROVIDER_REJECTION,
                    reason,
                    ..ContextResult::default()
                };
            }
        }
        if !alters {
            let limits = MIN_FRAGMENT_BYTES..=MAX_FRAGMENT_BYTES;
            self.fragment = bind.max_recv_frag.clamp(*limits.start(), *limits.end());
            self.bound = true;
        }
        let ack = BindAck {
            max_xmit_frag: self.fragment,
            max_recv_frag: MAX_FRAGMENT_BYTES,
            assoc_group_id: ASSOCIATION_GROUP,
            secondary_address: if alters {
                String::new()
            } else {
                format!(r"\pipe\{}", self.interface.pipe_name())
            },
            results,
        };
        let answer = if alters {
            PduType::ALTER_CONTEXT_RESP
        } else {
            PduType::BIND_ACK
        };
        ack.encode(answer, header.call_id, &mut out);
        self.push(out);
        Ok(())
    }

    /// Enters a presentation context. A number stays with its interface, because calls under way go by it.
    fn accept(&mut self, id: u16, interface: Interface) -> Result<(), ProviderReason> {
        match self.contexts.iter().find(|(known, _)| *known == id) {
            Some((_, of)) if *of == interface => Ok(()),
            Some(_) => Err(ProviderReason::REASON_NOT_SPECIFIED),
            None if self.contexts.len() >= CONTEXTS_MAX => {
                Err(ProviderReason::LOCAL_LIMIT_EXCEEDED)
            }
            None => {
                self.contexts.push((id, interface));
                Ok(())
            }
        }
    }

    fn request(
        &mut self,
        header: &PduHeader,
        body: &[u8],
        world: &World,
    ) -> Result<(), smb_wire::Malformed> {
        let fragment = RequestPdu::read(header, body)?;
        let context = fragment.context_id;
        if header.auth_length != 0 {
            self.fault(header.call_id, context, FaultStatus::ACCESS_DENIED);
            return Ok(());
        }
        match self.reassembly.push(header, &fragment) {
            Ok(None) => {}
            Ok(Some(whole)) => self.call(&whole, world),
            Err(status) => self.fault(header.call_id, context, status),
        }
        Ok(())
    }

    fn call(&mut self, request: &WholeRequest, world: &World) {
        let mut contexts = self.contexts.iter();
        let answered = match contexts.find(|(id, _)| *id == request.context_id) {
            Some((_, interface)) => services::answer(
                *interface,
                world,
                &mut self.handles,
                request.opnum,
                &request.stub,
            ),
            None => Err(FaultStatus::UNK_IF),
        };
        match answered {
            Err(status) => self.fault(request.call_id, request.context_id, status),
            Ok(stub) => {
                let mut out = BytesMut::new();
                let lengths = encode_response(
                    request.call_id,
                    request.context_id,
                    &stub,
                    self.fragment,
                    &mut out,
                );
                for length in lengths {
                    let message = out.split_to(length.min(out.len()));
                    self.push(message);
                }
            }
        }
    }
}
