//! Drives the Rust crate `smb` by commands, one per line (tests/interop/libraries.py).

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;

use smb::{
    Client, ClientConfig, ConnectionConfig, CreateOptions, Directory, File, FileAccessMask,
    FileAttributes, FileBasicInformation, FileCreateArgs, FileDispositionInformation,
    FileEndOfFileInformation, FileFullDirectoryInformation, FileRenameInformation, GetLen, ReadAt,
    Resource, UncPath, WriteAt, binrw_util::prelude::FileTime,
};

type Said = Result<String, Box<dyn Error>>;

/// Seconds from 1601 to 1970.
const EPOCH: u64 = 11_644_473_600;

struct Work {
    client: Client,
    share: UncPath,
    user: String,
    password: String,
}

/// How often a login is tried again. The crate installs the keys of a session after it has sent the last
/// SESSION_SETUP (its session setup), and its receiving thread takes an answer that comes earlier
/// for one with a wrong signature.
const LOGINS_MAX: usize = 30;

fn connect(port: &str, share: &str, user: &str, password: &str) -> Result<Work, Box<dyn Error>> {
    let mut tried = 0;
    loop {
        tried += 1;
        match connect_once(port, share, user, password) {
            Err(why) if tried < LOGINS_MAX && why.to_string().contains("SignVerify") => {}
            end => return end,
        }
    }
}

fn connect_once(
    port: &str,
    share: &str,
    user: &str,
    password: &str,
) -> Result<Work, Box<dyn Error>> {
    let mut connection = ConnectionConfig {
        port: Some(port.parse()?),
        ..Default::default()
    };
    connection.auth_methods.kerberos = false;
    let client = Client::new(ClientConfig {
        connection,
        ..Default::default()
    });
    let share = UncPath::new("127.0.0.1")?.with_share(share)?;
    client.share_connect(&share, user, password.to_owned())?;
    Ok(Work {
        client,
        share,
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

impl Work {
    fn open(&self, name: &str, args: &FileCreateArgs) -> Result<Resource, smb::Error> {
        self.client
            .create_file(&self.share.clone().with_path(name), args)
    }

    fn existing(&self, name: &str) -> Result<File, smb::Error> {
        let access = FileAccessMask::new()
            .with_generic_read(true)
            .with_generic_write(true);
        Ok(self
            .open(name, &FileCreateArgs::make_open_existing(access))?
            .unwrap_file())
    }

    fn put(&self, name: &str, local: &str) -> Said {
        let args = FileCreateArgs::make_overwrite(FileAttributes::new(), CreateOptions::new());
        let file = self.open(name, &args)?.unwrap_file();
        write_all(&file, &std::fs::read(local)?, 0)?;
        done(file.close())
    }

    fn append(&self, name: &str, local: &str) -> Said {
        let file = self.existing(name)?;
        write_all(&file, &std::fs::read(local)?, file.get_len()?)?;
        done(file.close())
    }

    fn get(&self, name: &str, local: &str) -> Said {
        let access = FileAccessMask::new().with_generic_read(true);
        let file = self
            .open(name, &FileCreateArgs::make_open_existing(access))?
            .unwrap_file();
        let mut data = vec![0; usize::try_from(file.get_len()?)?];
        let mut at = 0;
        while at < data.len() {
            match file.read_at(&mut data[at..], at as u64)? {
                0 => return Err("the file ends too early".into()),
                got => at += got,
            }
        }
        std::fs::write(local, data)?;
        done(file.close())
    }

    fn delete(&self, name: &str) -> Said {
        let args = FileCreateArgs::make_open_existing(FileAccessMask::new().with_delete(true));
        match self.open(name, &args)? {
            Resource::File(file) => gone(&file),
            Resource::Directory(folder) => gone(&folder),
            Resource::Pipe(_) => Err("a pipe".into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Said {
        let args = FileCreateArgs::make_open_existing(FileAccessMask::new().with_delete(true));
        let file = self.open(from, &args)?.unwrap_file();
        let renamed = file.set_info(FileRenameInformation {
            replace_if_exists: false.into(),
            root_directory: 0,
            file_name: to.into(),
        });
        file.close()?;
        done(renamed)
    }

    fn list(&self, name: &str, pattern: &str) -> Said {
        let access = FileAccessMask::new().with_generic_read(true);
        let folder = self
            .open(name, &FileCreateArgs::make_open_existing(access))?
            .unwrap_dir();
        let folder = Arc::new(folder);
        let mut names = Vec::new();
        for entry in Directory::query::<FileFullDirectoryInformation>(&folder, pattern)? {
            names.push(entry?.file_name.to_string());
        }
        folder.close()?;
        names.retain(|name| name != "." && name != "..");
        Ok(names.join("\t"))
    }

    fn stat(&self, name: &str) -> Said {
        let file = self.existing(name)?;
        let size = file.get_len()?;
        let basic = file.query_info::<FileBasicInformation>()?;
        file.close()?;
        Ok(format!(
            "{size}\t{}",
            *basic.last_write_time / 10_000_000 - EPOCH
        ))
    }

    fn set_time(&self, name: &str, seconds: &str) -> Said {
        let file = self.existing(name)?;
        let basic = file.query_info::<FileBasicInformation>()?;
        let last_write_time = FileTime::from((seconds.parse::<u64>()? + EPOCH) * 10_000_000);
        file.set_info(FileBasicInformation {
            last_write_time,
            ..basic
        })?;
        done(file.close())
    }

    fn truncate(&self, name: &str, size: &str) -> Said {
        let file = self.existing(name)?;
        file.set_info(FileEndOfFileInformation {
            end_of_file: size.parse()?,
        })?;
        done(file.close())
    }

    fn security(&self, name: &str) -> Said {
        let file = self.existing(name)?;
        let wanted = smb::AdditionalInfo::new()
            .with_owner_security_information(true)
            .with_dacl_security_information(true);
        let found = file.query_security_info(wanted)?;
        file.close()?;
        Ok(found
            .owner_sid
            .map_or_else(String::new, |sid| sid.to_string()))
    }

    fn shares(&self) -> Said {
        self.client
            .ipc_connect("127.0.0.1", &self.user, self.password.clone())?;
        let shares = self.client.list_shares("127.0.0.1")?;
        Ok(shares
            .iter()
            .map(|share| format!("{:?}", share.netname))
            .collect::<Vec<_>>()
            .join("\t"))
    }
}

fn done(result: Result<(), smb::Error>) -> Said {
    Ok(result.map(|()| String::new())?)
}

fn gone(handle: &smb::ResourceHandle) -> Said {
    let marked = handle.set_info(FileDispositionInformation {
        delete_pending: true.into(),
    });
    handle.close()?;
    done(marked)
}

fn write_all(file: &File, mut data: &[u8], mut at: u64) -> Result<(), smb::Error> {
    while !data.is_empty() {
        let wrote = file.write_at(data, at)?;
        data = &data[wrote..];
        at += wrote as u64;
    }
    Ok(())
}

fn act(work: &mut Option<Work>, line: &str) -> Said {
    let parts: Vec<&str> = line.split('\t').collect();
    if let ["connect", port, share, user, password] = parts[..] {
        *work = Some(connect(port, share, user, password)?);
        return Ok(String::new());
    }
    let work = work.as_ref().ok_or("not connected")?;
    match parts[..] {
        ["mkdir", name] => {
            let folder = FileAttributes::new().with_directory(true);
            let options = CreateOptions::new().with_directory_file(true);
            let args = FileCreateArgs::make_create_new(folder, options);
            done(work.open(name, &args)?.unwrap_dir().close())
        }
        ["put", name, local] => work.put(name, local),
        ["append", name, local] => work.append(name, local),
        ["get", name, local] => work.get(name, local),
        ["delete", name] | ["rmdir", name] => work.delete(name),
        ["rename", from, to] => work.rename(from, to),
        ["list", name, pattern] => work.list(name, pattern),
        ["stat", name] => work.stat(name),
        ["settime", name, seconds] => work.set_time(name, seconds),
        ["truncate", name, size] => work.truncate(name, size),
        ["security", name] => work.security(name),
        ["shares"] => work.shares(),
        _ => Ok("absent".to_owned()),
    }
}

fn main() {
    let mut work = None;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let said = match act(&mut work, &line) {
            Ok(said) if said == "absent" => said,
            Ok(said) => format!("ok\t{said}"),
            Err(why) => format!("error\t{}", why.to_string().replace('\n', " ")),
        };
        println!("{said}");
        let _ = std::io::stdout().flush();
    }
}
