//! QUERY_INFO ([MS-SMB2] 3.3.5.20): queries about an open, its object and its file system.
//!
//! Owns the rules about output buffers that all classes share ([MS-SMB2] 3.3.5.20.1 to 3.3.5.20.3): a
//! buffer shorter than the fixed part fails with INFO_LENGTH_MISMATCH, a name or list that does not
//! fit is truncated with BUFFER_OVERFLOW, a security descriptor is never truncated. The content of
//! each class is built in `query_info/`. Nothing here changes the disk.

/// The answer with a structure that ends in a name; see [`InfoAnswer::named`].
macro_rules! named {
    ($max:expr, $structure:ident, $value:expr) => {{
        let value = &$value;
        let (min, fixed) = ($structure::MIN, $structure::FIXED);
        InfoAnswer::named($max, min, fixed, |out| value.encode(out))
    }};
}

mod ea;
mod file;
mod filesystem;
mod security;

use bytes::{Bytes, BytesMut};
use smb_wire::{
    codec::size,
    fscc::Field,
    msg::{InfoType, QueryInfoRequest, QueryInfoResponse},
    status::Status,
};
use vfs::Vfs;

pub(in crate::command) use file::mode;
pub(in crate::command) use filesystem::volume_id;

use super::{Call, Handled, Reply};
use crate::failure::Failure;

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = QueryInfoRequest::read(&call.message)?;
    // [MS-SMB2] 3.3.5.20: the open is looked up before the lengths are checked.
    let open = call.open(request.file_id)?;
    Status::INVALID_PARAMETER.when(request.output_buffer_length > call.io_max())?;
    let max = size(request.output_buffer_length);
    call.check_charge(request.input.len(), max)?;
    let answer = match request.info_type {
        InfoType::FILE => file::query(call, &open, &request, max).await,
        InfoType::FILESYSTEM => filesystem::query(call, &open, request.info_class, max).await,
        InfoType::SECURITY => {
            security::query(call, &open, request.additional_information, max).await
        }
        // [MS-SMB2] 3.3.5.20.4: a store without quotas.
        InfoType::QUOTA => return Err(Status::NOT_SUPPORTED.into()),
        _ => return Err(Status::INVALID_PARAMETER.into()),
    };
    let answer = answer.map_err(with_context)?;
    let status = match answer.cut {
        true => Status::BUFFER_OVERFLOW,
        false => Status::SUCCESS,
    };
    let buffer: &[u8] = &answer.bytes;
    Ok(Reply::with_status(status, &QueryInfoResponse { buffer }))
}

/// [MS-SMB2] 3.3.5.20.1, 3.3.5.20.2: a buffer that is too short is refused with an error context without data.
fn with_context(failure: Failure) -> Failure {
    match failure {
        Failure::Status(Status::INFO_LENGTH_MISMATCH) => {
            Failure::WithData(Status::INFO_LENGTH_MISMATCH, Bytes::new())
        }
        other => other,
    }
}

#[derive(Debug)]
struct InfoAnswer {
    bytes: BytesMut,
    /// Something did not fit and was left out.
    cut: bool,
}

impl InfoAnswer {
    /// An answer that fits.
    fn whole(bytes: BytesMut) -> Self {
        Self { bytes, cut: false }
    }

    /// A structure of fixed size.
    ///
    /// # Errors
    /// `INFO_LENGTH_MISMATCH` when it does not fit into `max` bytes.
    fn fixed<F: Field>(max: usize, structure: &F) -> Result<Self, Failure> {
        Status::INFO_LENGTH_MISMATCH.when(F::SIZE > max)?;
        let mut bytes = BytesMut::with_capacity(F::SIZE);
        structure.put(&mut bytes);
        Ok(Self::whole(bytes))
    }

    /// A structure of `fixed` bytes and a name, of which at least `min` bytes must fit.
    ///
    /// # Errors
    /// `INFO_LENGTH_MISMATCH` when `max` is below `min`.
    fn named(
        max: usize,
        min: usize,
        fixed: usize,
        encode: impl FnOnce(&mut BytesMut),
    ) -> Result<Self, Failure> {
        Status::INFO_LENGTH_MISMATCH.when(max < min)?;
        let mut bytes = BytesMut::with_capacity(fixed);
        encode(&mut bytes);
        let cut = bytes.len() > max;
        if cut {
            // A UTF-16 unit is never cut in half.
            bytes.truncate(fixed + max.saturating_sub(fixed) / 2 * 2);
        }
        Ok(Self { bytes, cut })
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    #[test]
    fn names_are_cut_between_units_and_fixed_parts_never() {
        let put = |out: &mut BytesMut| out.put_bytes(7, 4 + 6);
        let named = |max| InfoAnswer::named(max, 8, 4, put);
        let whole = named(10).unwrap();
        assert!(!whole.cut && whole.bytes.len() == 10);
        let cut = named(9).unwrap();
        assert!(cut.cut && cut.bytes.len() == 8);
        assert!(matches!(
            named(7),
            Err(Failure::Status(Status::INFO_LENGTH_MISMATCH))
        ));
        assert!(matches!(
            InfoAnswer::fixed(9, &[0_u8; 10]),
            Err(Failure::Status(Status::INFO_LENGTH_MISMATCH))
        ));
        assert!(InfoAnswer::fixed(10, &[0_u8; 10]).is_ok());
    }
}
