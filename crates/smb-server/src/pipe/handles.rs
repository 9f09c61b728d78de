//! Context handles of one pipe ([MS-RPCE] 2.2.2.3): the results of a client's Open and Connect calls.
//!
//! A handle is valid only on the pipe that returned it. Its bytes are a number that counts up, so
//! that a closed handle is never reused.

use std::collections::BTreeMap;

use smb_wire::{
    dtyp::Sid,
    rpc::{ContextHandle, FaultStatus},
    status::Status,
};

/// Most handles of a pipe; one more gets `INSUFFICIENT_RESOURCES`.
pub(super) const HANDLES_MAX: usize = 256;

/// About the memory of a handle in the table: nodes of a map to which numbers are only added stay half empty.
const HANDLE_MEMORY: usize = 2 * (size_of::<u64>() + size_of::<Object>());

/// The object that a handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    /// The policy of lsarpc.
    Policy,
    /// The server of samr.
    Server,
    /// A domain of samr: the machine's or BUILTIN.
    Domain(Sid),
    /// A user of samr, by its relative id in the machine's domain.
    User(u32),
}

#[derive(Debug, Default)]
pub(super) struct Handles {
    open: BTreeMap<u64, Object>,
    last: u64,
}

impl Handles {
    pub(super) fn open(&mut self, object: Object) -> Result<ContextHandle, Status> {
        Status::INSUFFICIENT_RESOURCES.when(self.open.len() >= HANDLES_MAX)?;
        self.last += 1;
        self.open.insert(self.last, object);
        // Four bytes of attributes, always zero, then sixteen bytes of our choice.
        let mut bytes = [0; 20];
        if let Some(place) = bytes.get_mut(4..12) {
            place.copy_from_slice(&self.last.to_le_bytes());
        }
        Ok(ContextHandle(bytes))
    }

    pub(super) fn memory(&self) -> usize {
        self.open.len() * HANDLE_MEMORY
    }

    fn number(handle: &ContextHandle) -> Option<u64> {
        let (head, rest) = handle.0.split_at_checked(4)?;
        let (number, tail) = rest.split_first_chunk::<8>()?;
        let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        (zero(head) && zero(tail)).then(|| u64::from_le_bytes(*number))
    }

    /// The object that a handle stands for, if the handle was given out and not closed.
    pub(super) fn get(&self, handle: &ContextHandle) -> Option<Object> {
        self.open.get(&Self::number(handle)?).copied()
    }

    /// Checks that a handle stands for `object`.
    pub(super) fn check(&self, handle: &ContextHandle, object: Object) -> Result<(), FaultStatus> {
        match self.get(handle) == Some(object) {
            true => Ok(()),
            false => Err(FaultStatus::CONTEXT_MISMATCH),
        }
    }

    /// Closes a handle; a fault when there is none.
    pub(super) fn close(&mut self, handle: &ContextHandle) -> Result<(), FaultStatus> {
        let closed = Self::number(handle).and_then(|number| self.open.remove(&number));
        closed.map(|_| ()).ok_or(FaultStatus::CONTEXT_MISMATCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_counted_and_never_come_back() {
        let mut handles = Handles::default();
        let first = handles.open(Object::Policy).unwrap();
        assert_ne!(first, ContextHandle::default());
        assert_eq!(handles.get(&first), Some(Object::Policy));
        let mut forged = first;
        forged.0[19] = 1;
        assert_eq!(handles.get(&forged), None);
        assert_eq!(handles.close(&first), Ok(()));
        assert_eq!(handles.close(&first), Err(FaultStatus::CONTEXT_MISMATCH));
        assert_ne!(handles.open(Object::Server).unwrap(), first);
        for _ in 1..HANDLES_MAX {
            handles.open(Object::Policy).unwrap();
        }
        assert_eq!(
            handles.open(Object::Policy),
            Err(Status::INSUFFICIENT_RESOURCES)
        );
    }
}
