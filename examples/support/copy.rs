//! Copies between a stream here and a file there, several requests under way.

use std::{
    collections::VecDeque,
    io::{Read, Write},
};

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    msg::{CreateDisposition, ReadResponse, WriteFlags, WriteResponse},
};

/// Requests under way at a time.
const DEPTH: usize = 4;

/// Bytes of one request, unless the server takes less.
const PIECE_BYTES: u32 = 1 << 20;

/// The address of a host, which ends with a port or has SMB's; an IPv6 address is in brackets.
pub fn address(host: &str) -> String {
    // Colons in brackets are those of an IPv6 address.
    let behind = host.rsplit(']').next().unwrap_or(host);
    match behind.contains(':') {
        true => host.to_owned(),
        false => format!("{host}:445"),
    }
}

/// Copies all of `from` to a file that is made or replaced, and flushes it. Returns its size.
///
/// # Errors
/// Those of either side. The file may then be there in part.
pub fn put(tree: &Tree, from: &mut impl Read, name: &str) -> Result<u64, ClientError> {
    let file = tree.create(&CreateArgs::new(name, CreateDisposition::OVERWRITE_IF))?;
    let most = tree.client().negotiated().max_write_size;
    let mut piece = vec![0; to_usize(PIECE_BYTES.min(most))];
    let mut under_way = VecDeque::new();
    let mut at = 0;
    loop {
        let len = fill(from, &mut piece)?;
        if under_way.len() == DEPTH || len == 0 {
            let all = if len == 0 { under_way.len() } else { 1 };
            for (id, len) in under_way.drain(..all) {
                let reply = tree.client().wait(id)?.ok()?;
                if to_usize(WriteResponse::read(&reply.message)?.count) != len {
                    return Err(ClientError::Protocol("short WRITE"));
                }
            }
        }
        if len == 0 {
            break;
        }
        let data = piece.get(..len).unwrap_or_default();
        let id = tree.send(file.write_request(at, data, WriteFlags::empty()))?;
        under_way.push_back((id, len));
        at += len as u64;
    }
    // Until here the bytes are in the server's memory; after it they survive its power.
    file.flush(false)?;
    file.close()?;
    Ok(at)
}

/// Copies a whole file to `to`. Returns its size.
///
/// # Errors
/// Those of either side.
pub fn get(tree: &Tree, name: &str, to: &mut impl Write) -> Result<u64, ClientError> {
    let open = CreateArgs::open(name).access(AccessMask::FILE_GENERIC_READ);
    let file = tree.create(&open)?;
    let size = file.created().facts.end_of_file;
    let piece = PIECE_BYTES.min(tree.client().negotiated().max_read_size);
    let mut under_way = VecDeque::new();
    let (mut asked, mut got) = (0, 0);
    while got < size {
        while under_way.len() < DEPTH && asked < size {
            let len = u32::try_from(size - asked).unwrap_or(u32::MAX).min(piece);
            under_way.push_back((asked, len, tree.send(file.read_request(asked, len, 0))?));
            asked += u64::from(len);
        }
        let Some((at, len, id)) = under_way.pop_front() else {
            break;
        };
        let reply = tree.client().wait(id)?;
        if reply.status() == Status::END_OF_FILE {
            break;
        }
        let reply = reply.ok()?;
        let mut data = ReadResponse::read(&reply.message)?.data.to_vec();
        complete(&file, at, len, &mut data)?;
        to.write_all(&data)?;
        got += data.len() as u64;
    }
    for (_, _, id) in under_way {
        tree.client().wait(id)?;
    }
    file.close()?;
    Ok(got)
}

/// A server may answer with less than was asked for.
fn complete(file: &File, at: u64, len: u32, data: &mut Vec<u8>) -> Result<(), ClientError> {
    while data.len() < to_usize(len) {
        let missing = len - u32::try_from(data.len()).unwrap_or(len);
        match file.read(at + data.len() as u64, missing) {
            Ok(more) if !more.is_empty() => data.extend_from_slice(&more),
            Ok(_) | Err(ClientError::Status(Status::END_OF_FILE)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the stream ends.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize, ClientError> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

fn to_usize(len: u32) -> usize {
    smb_wire::codec::size(len)
}
