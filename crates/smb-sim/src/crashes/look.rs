//! Reading everything that is on a share through SMB.

use smb_client::{ClientError, CreateArgs, Created, Options, Request as Wire};
use smb_wire::{
    access_mask::AccessMask,
    dtyp::SecurityInformation,
    fscc::{
        DirectoryEntries, DirectoryFormat, FileInformationClass, OwnedDirectoryEntry, read_ea_list,
        read_stream_list,
    },
    ids::FileId,
    msg::{InfoType, QueryDirectoryFlags, QueryDirectoryResponse, QueryInfoResponse, ReadResponse},
    status::Status,
};
use vfs::sim::BLOCK;

use super::contents::{EA, attribute_bits, created_value, security_read, sparse_value};
use crate::{
    client::SimClient,
    oracle::{Found, FoundStream, Key, Value, View},
    server::SimServer,
};

/// Largest file looked at.
const READ_MAX: u32 = 256 << 10;
const QUERY_MAX: u32 = 16 << 10;
/// Deepest path looked at.
const DEPTH_MAX: usize = 8;

/// Everything on the share, and that the server also serves changes.
pub(super) async fn look(
    server: &SimServer,
    options: Options,
    (probe, security): (bool, bool),
) -> Result<View, ClientError> {
    let mut reader = Reader {
        client: SimClient::enter(server, options).await?,
        view: View::new(),
        security,
    };
    let mut next = vec![Vec::new()];
    while let Some(path) = next.pop() {
        if path.len() > DEPTH_MAX {
            return Err(ClientError::Usage("a path without end"));
        }
        for entry in reader.list(&path).await? {
            let mut below = path.clone();
            below.push(entry.file_name.clone());
            if reader.entry(&below, &entry).await? {
                next.push(below);
            }
        }
    }
    if probe {
        reader.probe().await?;
    }
    Ok(reader.view)
}

struct Reader {
    client: SimClient,
    view: View,
    /// Looks at security descriptors too.
    security: bool,
}

impl Reader {
    async fn list(&mut self, path: &[String]) -> Result<Vec<OwnedDirectoryEntry>, ClientError> {
        const CLASS: FileInformationClass = FileInformationClass::ID_BOTH_DIRECTORY;
        let format = DirectoryFormat::of(CLASS).ok_or(ClientError::Usage("no such class"))?;
        let args = CreateArgs::directory(&path.join("\\"));
        let dir = self.client.create(&args).await?;
        let mut entries = Vec::new();
        loop {
            let flags = QueryDirectoryFlags::empty();
            let request = Wire::query_directory(dir, CLASS, "*", flags, QUERY_MAX);
            let reply = match self.client.call(request).await {
                Err(ClientError::Status(Status::NO_MORE_FILES)) => break,
                other => other?,
            };
            let bytes = QueryDirectoryResponse::read(&reply.message)?.buffer;
            for entry in DirectoryEntries::new(format, bytes) {
                let entry = entry?;
                if entry.file_name != "." && entry.file_name != ".." {
                    entries.push(entry);
                }
            }
        }
        self.client.close(dir).await?;
        Ok(entries)
    }

    /// Looks at one entry; whether it is a directory.
    async fn entry(
        &mut self,
        path: &[String],
        entry: &OwnedDirectoryEntry,
    ) -> Result<bool, ClientError> {
        use smb_wire::file_attributes::FileAttributes;
        let directory = entry.file_attributes.contains(FileAttributes::DIRECTORY);
        let mut found = Found {
            index: Some(entry.file_id),
            directory,
            ..Found::default()
        };
        if !directory {
            found
                .meta
                .push((Key::Attributes, attribute_bits(entry.file_attributes)));
            let sparse = entry.file_attributes.contains(FileAttributes::SPARSE_FILE);
            found.meta.push((Key::Sparse, sparse_value(sparse)));
            found
                .meta
                .push((Key::Created, created_value(entry.creation_time)));
            let written = Value::NotBefore(entry.last_write_time.0);
            found.meta.push((Key::Written, written));
            self.file(&path.join("\\"), entry, &mut found).await?;
        }
        self.view.entries.insert(path.to_vec(), found);
        Ok(directory)
    }

    async fn file(
        &mut self,
        path: &str,
        entry: &OwnedDirectoryEntry,
        found: &mut Found,
    ) -> Result<(), ClientError> {
        let access = AccessMask::FILE_GENERIC_READ;
        let args = CreateArgs::open(path).access(access);
        let reply = self.client.call(args.request()).await?;
        let file = Created::read(&reply.message)?;
        if file.facts.end_of_file != entry.end_of_file {
            return Err(ClientError::Protocol("two sizes of one file"));
        }
        let data = self.read(file.file_id, file.facts.end_of_file).await?;
        found.streams.insert(String::new(), data);
        let (id, class) = (file.file_id, FileInformationClass::FULL_EA.0);
        let value = match self.query(id, InfoType::FILE, (class, 0)).await {
            Ok(list) => {
                let list = read_ea_list(&list)?;
                let named = list
                    .into_iter()
                    .find(|one| one.name.eq_ignore_ascii_case(EA.as_bytes()));
                named.map_or(Value::Nothing, |one| Value::Bytes(one.value))
            }
            Err(ClientError::Status(Status::NO_EAS_ON_FILE)) => Value::Nothing,
            Err(other) => return Err(other),
        };
        found.meta.push((Key::Ea(EA.to_owned()), value));
        if self.security {
            let parts = (0, SecurityInformation::DACL.0);
            let descriptor = self.query(id, InfoType::SECURITY, parts).await?;
            let value = security_read(&descriptor);
            found.meta.push((Key::Security, value));
        }
        let class = FileInformationClass::STREAM.0;
        let list = self.query(id, InfoType::FILE, (class, 0)).await?;
        self.client.close(id).await?;
        for stream in read_stream_list(&list)? {
            let name = stream.name.split(':').nth(1).unwrap_or_default();
            if name.is_empty() {
                continue;
            }
            let args = CreateArgs::open(&format!("{path}:{name}")).access(access);
            let id = self.client.create(&args).await?;
            let data = self.read(id, stream.size).await?;
            self.client.close(id).await?;
            found.streams.insert(name.to_owned(), data);
        }
        Ok(())
    }

    async fn read(&mut self, file: FileId, size: u64) -> Result<FoundStream, ClientError> {
        let len = u32::try_from(size).ok().filter(|len| *len <= READ_MAX);
        let Some(len) = len else {
            return Err(ClientError::Usage("a file is larger than anything written"));
        };
        if len == 0 {
            return Ok(FoundStream::default());
        }
        let reply = self.client.call(Wire::read(file, 0, len)).await?;
        let data = ReadResponse::read(&reply.message)?.data;
        if data.len() as u64 != size {
            return Err(ClientError::Protocol("a READ is shorter than the file"));
        }
        Ok(FoundStream::read(data))
    }

    async fn query(
        &mut self,
        file_id: FileId,
        info_type: InfoType,
        (class, additional): (u8, u32),
    ) -> Result<Vec<u8>, ClientError> {
        let query = Wire::query_info(file_id, info_type, class, additional, QUERY_MAX);
        let reply = self.client.call(query).await?;
        Ok(QueryInfoResponse::read(&reply.message)?.buffer.to_vec())
    }

    /// A new file can be made, flushed, read and removed.
    async fn probe(&mut self) -> Result<(), ClientError> {
        let args = CreateArgs::create("probe of the simulator")
            .options(smb_wire::msg::CreateOptions::DELETE_ON_CLOSE);
        let file = self.client.create(&args).await?;
        let data = vec![7; usize::try_from(BLOCK).unwrap_or(0)];
        self.client.write_at(file, 0, &data).await?;
        self.client.flush(file).await?;
        if self
            .client
            .read_at(file, 0, u32::try_from(BLOCK).unwrap_or(0))
            .await?
            != data
        {
            return Err(ClientError::Protocol("read is not what was written"));
        }
        self.client.close(file).await
    }
}
