//! Copies one file to or from a share.
//!
//! `cargo run --example copy_client -- put FILE //HOST:PORT/SHARE/NAME`, or `get` with the same
//! two in the same order. The user is `$SMB_USER`, the password `$SMB_PASSWORD`.

use std::fs::File;

use smb_client::{Client, Options};
use smb_examples::copy;

const HELP: &str = "copy_client put|get FILE //HOST[:PORT]/SHARE/NAME
with SMB_USER and SMB_PASSWORD in the environment";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [verb, local, remote] = &args[..] else {
        return Err(HELP.into());
    };
    let mut parts = remote.strip_prefix("//").ok_or(HELP)?.splitn(3, '/');
    let mut part = || parts.next().filter(|part| !part.is_empty()).ok_or(HELP);
    let (host, share, name) = (part()?, part()?, part()?.replace('/', "\\"));
    let user = std::env::var("SMB_USER").map_err(|_| HELP)?;
    let password = std::env::var("SMB_PASSWORD").map_err(|_| HELP)?;

    let client = Client::connect(copy::address(host), Options::default())?;
    let session = client.login(&user, &password, "")?;
    let tree = session.tree(share)?;
    let bytes = match verb.as_str() {
        "put" => copy::put(&tree, &mut File::open(local)?, &name)?,
        "get" => copy::get(&tree, &name, &mut File::create(local)?)?,
        _ => return Err(HELP.into()),
    };
    session.logoff()?;
    println!("{bytes} bytes");
    Ok(())
}
