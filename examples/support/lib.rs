//! The common parts of the examples, and the test that runs them against each other.
//!
//! [`memory`] serves a share that lives in memory on a thread; [`copy`] copies a file to or from a share. The
//! examples themselves are command lines around these.

pub mod copy;
pub mod memory;

#[cfg(test)]
mod tests {
    use super::*;
    use smb_client::{Client, ClientError, Options};

    #[test]
    fn a_host_without_a_port_has_that_of_smb() {
        for (host, address) in [
            ("nas", "nas:445"),
            ("nas:4450", "nas:4450"),
            ("[::1]", "[::1]:445"),
            ("[::1]:4450", "[::1]:4450"),
        ] {
            assert_eq!(copy::address(host), address);
        }
    }

    #[test]
    fn what_is_copied_to_memory_comes_back() {
        let share = memory::Share::start("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = Client::connect(share.address(), Options::default()).unwrap();
        let refused = client.login(memory::USER, "wrong", "");
        assert!(matches!(refused, Err(ClientError::Status(_))));
        let session = client.login(memory::USER, memory::PASSWORD, "").unwrap();
        let tree = session.tree(memory::SHARE).unwrap();
        let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let sent = copy::put(&tree, &mut &data[..], "a file").unwrap();
        assert_eq!(sent, 3_000_000);
        let mut back = Vec::new();
        assert_eq!(copy::get(&tree, "a file", &mut back).unwrap(), 3_000_000);
        assert!(back == data);
        assert_eq!(copy::put(&tree, &mut &b"x"[..], "a file").unwrap(), 1);
        let mut back = Vec::new();
        copy::get(&tree, "a file", &mut back).unwrap();
        assert_eq!(back, b"x");
    }
}
