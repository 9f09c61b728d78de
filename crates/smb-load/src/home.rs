//! The folder of a share in which a workload has its files.

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::msg::{CreateDisposition, CreateOptions};

/// A connection with a tree, and a folder in it.
#[derive(Debug, Clone)]
pub struct Home {
    pub tree: Tree,
    folder: String,
}

impl Home {
    /// The folder, relative to the share and with backslashes; empty for the share's root.
    pub fn new(tree: Tree, folder: &str) -> Self {
        Self {
            tree,
            folder: folder.to_owned(),
        }
    }

    /// The same folder in another share of the server, `\\server\share`, by the same connection.
    pub fn on(&self, share: &str) -> Result<Self, ClientError> {
        let tree = self.tree.session().tree_at(share)?;
        tree.validate_negotiate()?;
        Ok(Self::new(tree, &self.folder))
    }

    /// A name in the folder, relative to the share.
    pub fn path(&self, name: &str) -> String {
        match self.folder.as_str() {
            "" => name.to_owned(),
            folder => format!("{folder}\\{name}"),
        }
    }
}

/// Opens a directory of that name, which is created if it is not there.
pub(crate) fn open_directory(tree: &Tree, name: &str) -> Result<File, ClientError> {
    let args = CreateArgs::new(name, CreateDisposition::OPEN_IF);
    tree.create(&args.options(CreateOptions::DIRECTORY_FILE))
}
