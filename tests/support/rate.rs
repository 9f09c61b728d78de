//! How fast a server answers reads on several channels at once.

use std::io::Read;
use std::time::Instant;

use smb_client::{File, Tree};

/// Bytes of each READ.
const BLOCK: u32 = 1 << 20;

/// Reads on all trees at the same time, as fast as their credits allow; returns the bytes and the
/// rate in MB/s. The replies are counted and dropped without decryption, so that the clients use
/// little time.
///
/// # Panics
/// When a connection ends.
#[must_use]
pub fn read(trees: &[Tree], file: &File) -> (f64, f64) {
    let started = Instant::now();
    let reader = |tree: &Tree| {
        let blocks = tree.client().connection().core().credits() / 16 - 1;
        for block in 0..blocks {
            let at = u64::from(block % 64) * u64::from(BLOCK);
            tree.send(file.read_request(at, BLOCK, BLOCK)).unwrap();
        }
        let all = u64::from(blocks) * u64::from(BLOCK);
        let mut connection = tree.client().connection();
        let mut buffer = vec![0; BLOCK as usize];
        let mut seen = 0;
        while seen < all {
            seen += connection.stream_mut().read(&mut buffer).unwrap() as u64;
        }
        all
    };
    let bytes: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = trees
            .iter()
            .map(|tree| scope.spawn(move || reader(tree)))
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum()
    });
    let bytes = bytes as f64;
    (bytes, bytes / 1e6 / started.elapsed().as_secs_f64())
}
