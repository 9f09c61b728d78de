//! The engine's words for objects of a file system.
//!
//! Names are compared as the file system folds them, so this is the one place of the engine that knows how it does.

use vfs::{FileKey, Lookup, Node, posix::name::fold};

use super::paths::{ShareId, SharePath};
use super::types::{Link, Place};

impl Place {
    /// Where the engine keeps the state of a node.
    pub fn of(node: &impl Node) -> Self {
        Self {
            key: node.key(),
            stream: node.stream().map(|name| fold(name).into()),
        }
    }

    /// The same of a named stream of a file.
    #[must_use]
    pub fn of_stream(file: FileKey, name: &str) -> Self {
        Self {
            key: file,
            stream: Some(fold(name).into()),
        }
    }
}

impl Link {
    /// A name in a directory.
    #[must_use]
    pub fn new(parent: FileKey, name: &str) -> Self {
        Self {
            parent,
            name: fold(name).into(),
        }
    }

    /// The name that was looked up.
    #[must_use]
    pub fn of<N: Node>(lookup: &Lookup<N>) -> Self {
        match &lookup.parent {
            None => Self {
                parent: FileKey::default(),
                name: "".into(),
            },
            Some(parent) => Self::new(parent.key(), &lookup.name),
        }
    }
}

impl SharePath {
    /// A path of a share.
    #[must_use]
    pub fn of(share: u32, names: &[String]) -> Self {
        Self::new(ShareId(share), names, fold)
    }

    /// The components as the file system takes them.
    #[must_use]
    pub fn to_names(&self) -> Vec<String> {
        self.names().iter().map(ToString::to_string).collect()
    }
}
