//! Requests that change what a file has besides its contents and names: extended attributes, its security descriptor
//! and whether it is sparse.

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, File};
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, SecurityInformation, Sid};
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::FsctlCode;
use smb_wire::msg::{CreateOptions, InfoType};

use super::{Client, wire};
use crate::record::{Cell, EA, Kind, Value, account};

impl Client<'_> {
    /// FileFullEaInformation ([MS-FSCC] 2.4.16): sets one extended attribute, or removes it.
    pub(super) fn extended_attribute(&mut self, at: usize) -> Option<()> {
        let mark = self.mark(25);
        let value = if mark == 0 {
            &[][..]
        } else {
            &mark.to_le_bytes()
        };
        let mut buffer = vec![0, 0, 0, 0, 0, EA.len() as u8];
        buffer.extend((value.len() as u16).to_le_bytes());
        buffer.extend(EA.bytes().chain([0]));
        buffer.extend(value);
        self.through_another(at, Kind::Ea, Cell::Ea, mark, |file| {
            file.set(FileInformationClass::FULL_EA, &buffer)
        })
    }

    /// Sets a DACL that names an account of its own beside everyone.
    pub(super) fn descriptor(&mut self, at: usize) -> Option<()> {
        let mark = self.mark(0);
        let account = Sid::read(&account(mark)).ok()?;
        let allow = |sid, mask| Ace::allow(sid, mask, AceFlags::empty());
        let aces = vec![
            allow(Sid::EVERYONE, AccessMask::FILE_ALL_ACCESS),
            allow(account, AccessMask::FILE_GENERIC_READ),
        ];
        let descriptor = SecurityDescriptor {
            dacl: Some(Acl::new(aces)),
            ..SecurityDescriptor::default()
        };
        let mut buffer = BytesMut::new();
        descriptor.encode(&mut buffer).ok()?;
        let part = SecurityInformation::DACL.bits();
        self.through_another(at, Kind::Descriptor, Cell::Descriptor, mark, |file| {
            let request = file.set_info_request(InfoType::SECURITY, 0, part, &buffer);
            file.tree().call(request).map(drop)
        })
    }

    /// FSCTL_SET_SPARSE ([MS-FSCC] 2.3.83).
    pub(super) fn sparse(&mut self, at: usize) -> Option<()> {
        let sparse = self.rng.percent(60);
        let code = FsctlCode::SET_SPARSE;
        let mark = u32::from(sparse);
        self.files[at].sparse = true;
        self.through_another(at, Kind::Sparse, Cell::Sparse, mark, |file| {
            file.ioctl(code, &[u8::from(sparse)], 0).map(drop)
        })
    }

    /// A new value; 0, which says that there is none, with this chance in a hundred.
    fn mark(&mut self, none: usize) -> u32 {
        self.version += 1;
        if self.rng.percent(none) {
            0
        } else {
            self.version
        }
    }

    /// Changes a file through an open of its own, which may change everything of the file.
    fn through_another(
        &mut self,
        at: usize,
        kind: Kind,
        cell: fn(u32) -> Cell,
        mark: u32,
        request: impl FnOnce(&File) -> Result<(), ClientError>,
    ) -> Option<()> {
        let through = self.rng.percent(20);
        let mut args =
            CreateArgs::open(&wire(&self.files[at].path)).access(AccessMask::FILE_ALL_ACCESS);
        if through {
            args = args.options(CreateOptions::WRITE_THROUGH);
        }
        let file = self.quietly(|tree| tree.create(&args))?;
        let object = self.files[at].object;
        let promise = self.promise(object, through);
        let effects = vec![(cell(object), Value::Mark(mark))];
        self.act(kind, effects, promise, || request(&file))?;
        self.quietly(|_| file.close())
    }
}
