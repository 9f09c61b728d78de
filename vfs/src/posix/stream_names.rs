//! The names of a file's streams, in both places: which of them a client means, and the list of all.

use std::collections::BTreeSet;

use super::{
    PosixNode, PosixVfs,
    depot::STREAMS_MAX,
    ea::{PORTION, names_length},
    errno::unless,
    samba_xattr::{stream_attribute, stream_file, stream_of_attribute, stream_of_file},
    streams::check_stream_name,
};
use crate::{
    StreamInfo, VfsResult,
    disk::{Disk, RawEntry},
};

/// Names of streams that are compared before other tasks have their turn.
const NAMES_PORTION: usize = 256;

/// The result of looking for a stream by its name.
pub(super) enum Stored {
    /// The stream exists under this stored name.
    As(String),
    /// There is no such stream; the file has this many others, and names of attributes of this length.
    Not { others: usize, names: usize },
}

impl<D: Disk> PosixVfs<D> {
    /// The stored name of a stream, exact or in another case.
    pub(super) async fn stored_stream(
        &self,
        node: &PosixNode<D>,
        asked: &str,
    ) -> VfsResult<Stored> {
        let in_attribute = match stream_attribute(asked) {
            Some(attribute) => self.xattr(node.fd(), &attribute).await?.is_some(),
            None => false,
        };
        if in_attribute {
            return Ok(Stored::As(asked.to_owned()));
        }
        let folder = self.depot_folder(node).await?;
        // A listing of all streams is needed only to find a name in another case.
        if let (Some(folder), Some(file)) = (&folder, stream_file(asked))
            && unless(self.disk.stat_at(folder, &file).await, &[libc::ENOENT])?.is_some()
        {
            return Ok(Stored::As(asked.to_owned()));
        }
        let mut names: Vec<String> = Vec::new();
        let attributes = self.attribute_names(node.fd()).await?;
        for attribute in &attributes {
            names.extend(stream_of_attribute(attribute).map(str::to_owned));
        }
        if let Some(folder) = folder {
            names.extend(self.depot_names(&folder, STREAMS_MAX).await?);
        }
        let (folded, count) = (crate::fold(asked), names.len());
        for (at, name) in (1..).zip(names) {
            if at % NAMES_PORTION == 0 {
                self.options.pause.pause().await;
            }
            if crate::fold(&name) == folded {
                return Ok(Stored::As(name));
            }
        }
        Ok(Stored::Not {
            others: count,
            names: names_length(&attributes),
        })
    }

    /// All streams of a file, at most [`STREAMS_MAX`], in the order of their names.
    pub(super) async fn all_streams(&self, node: &PosixNode<D>) -> VfsResult<Vec<StreamInfo>> {
        let mut streams = Vec::new();
        for (at, attribute) in (1..).zip(self.attribute_names(node.fd()).await?) {
            let Some(name) = stream_of_attribute(&attribute) else {
                continue;
            };
            if at % PORTION == 0 {
                self.options.pause.pause().await;
            }
            // Whether the value ends in a NUL, which is not part of the stream, shows only when it is read.
            if let Some(value) = self.xattr(node.fd(), &attribute).await? {
                let size = value
                    .len()
                    .saturating_sub(usize::from(value.last() == Some(&0)));
                streams.push(StreamInfo {
                    name: name.to_owned(),
                    size: size as u64,
                    allocated: size as u64,
                });
            }
        }
        let known: BTreeSet<String> = streams.iter().map(|stream| stream.name.clone()).collect();
        let in_depot = self.depot_streams(node).await?.into_iter();
        streams.extend(in_depot.filter(|stream| !known.contains(&stream.name)));
        // Other programs may have made streams that no client can name. To list them would keep clients from replacing
        // the file, which opens and removes each of its streams.
        streams.retain(|stream| check_stream_name(&stream.name).is_ok());
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        streams.truncate(STREAMS_MAX);
        Ok(streams)
    }

    pub(super) async fn depot_streams(&self, node: &PosixNode<D>) -> VfsResult<Vec<StreamInfo>> {
        let Some(folder) = self.depot_folder(node).await? else {
            return Ok(Vec::new());
        };
        let mut streams = Vec::new();
        let names = self.depot_names(&folder, STREAMS_MAX).await?;
        for (at, name) in (1..).zip(names) {
            if at % NAMES_PORTION == 0 {
                self.options.pause.pause().await;
            }
            let Some(file) = stream_file(&name) else {
                continue;
            };
            let stat = self.disk.stat_at(&folder, &file).await;
            if let Some(stat) = unless(stat, &[libc::ENOENT])? {
                streams.push(StreamInfo {
                    name,
                    size: stat.size,
                    allocated: stat.blocks.saturating_mul(512),
                });
            }
        }
        Ok(streams)
    }

    /// The entries of a folder that have names of streams, at most `max`: none if the folder was removed since it was
    /// found. The user as whom Samba made the folder may put anything into it.
    pub(super) async fn depot_entries(
        &self,
        folder: &D::Fd,
        max: usize,
    ) -> VfsResult<Vec<RawEntry>> {
        let entries = self.entries_in(folder, max).await;
        let mut entries = unless(entries, &[libc::ENOENT])?.unwrap_or_default();
        entries.retain(|entry| stream_of_file(&entry.name).is_some());
        Ok(entries)
    }

    /// The names of the streams among the [`PosixVfs::depot_entries`]; [`stream_file`] returns their files. Many
    /// requests may hold them at once.
    pub(super) async fn depot_names(&self, folder: &D::Fd, max: usize) -> VfsResult<Vec<String>> {
        let entries = self.depot_entries(folder, max).await?.into_iter();
        // No FIFO or directory can be synced.
        let files = entries.filter(|entry| [libc::DT_REG, libc::DT_UNKNOWN].contains(&entry.kind));
        let names = files.filter_map(|entry| stream_of_file(&entry.name).map(str::to_owned));
        Ok(names.collect())
    }
}
