//! The folder of a share in which a workload lives.

use smb_client::Tree;

/// A connection with a tree, and a folder in it.
#[derive(Debug, Clone)]
pub struct Home {
    /// The share.
    pub tree: Tree,
    folder: String,
}

impl Home {
    /// The folder, relative to the share and with backslashes; empty for the share's root.
    #[must_use]
    pub fn new(tree: Tree, folder: &str) -> Self {
        Self {
            tree,
            folder: folder.to_owned(),
        }
    }

    /// A name in the folder, relative to the share.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        match self.folder.as_str() {
            "" => name.to_owned(),
            folder => format!("{folder}\\{name}"),
        }
    }
}
