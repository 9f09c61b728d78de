//! Every signing algorithm and cipher at the sizes that SMB moves: a small request, 4 KiB,
//! 64 KiB, 1 MiB. In place, on warm memory, with one key.

use std::{hint::black_box, sync::mpsc, thread};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use smb_crypto::{Cipher, PreauthHash, SealingKey, SignNonce, SigningAlgorithm, SigningKey};

const SIZES: [usize; 4] = [120, 4096 + 112, 65_536 + 112, (1 << 20) + 112];

/// Bytes of the transform header that are authenticated.
const AAD_BYTES: usize = 32;

const SIGNING: [(&str, SigningAlgorithm); 3] = [
    ("hmac-sha256", SigningAlgorithm::HmacSha256),
    ("aes-128-cmac", SigningAlgorithm::AesCmac),
    ("aes-128-gmac", SigningAlgorithm::AesGmac),
];

const CIPHERS: [(&str, Cipher); 4] = [
    ("aes-128-gcm", Cipher::Aes128Gcm),
    ("aes-256-gcm", Cipher::Aes256Gcm),
    ("aes-128-ccm", Cipher::Aes128Ccm),
    ("aes-256-ccm", Cipher::Aes256Ccm),
];

fn nonce(message_id: u64) -> SignNonce {
    SignNonce {
        message_id,
        is_server: true,
        is_cancel: false,
    }
}

/// Signs messages of all sizes with all algorithms by `sign`.
fn each_signature(
    criterion: &mut Criterion,
    what: &str,
    sign: impl Fn(&SigningKey, &mut [u8], SignNonce),
) {
    for (name, algorithm) in SIGNING {
        let mut group = criterion.benchmark_group(format!("crypto/{what}/{name}"));
        let key = SigningKey::new(algorithm, &[7; 16]);
        for size in SIZES {
            let mut message = vec![0x5a; size];
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_with_input(BenchmarkId::from_parameter(size), &size, |b, _| {
                let mut id = 0;
                b.iter(|| {
                    id += 1;
                    sign(&key, black_box(&mut message), nonce(id));
                });
            });
        }
        group.finish();
    }
}

fn sign(criterion: &mut Criterion) {
    each_signature(criterion, "sign", |key, message, nonce| {
        key.sign(message, nonce).unwrap();
    });
}

/// As for a READ response: the head, and the data where it lies.
fn sign_segments(criterion: &mut Criterion) {
    each_signature(criterion, "sign-segments", |key, message, nonce| {
        let (head, data) = message.split_at_mut(80);
        key.sign_parts(head, &[data], nonce).unwrap();
    });
}

fn verify(criterion: &mut Criterion) {
    for (name, algorithm) in SIGNING {
        let mut group = criterion.benchmark_group(format!("crypto/verify/{name}"));
        let key = SigningKey::new(algorithm, &[7; 16]);
        for size in SIZES {
            let mut message = vec![0x5a; size];
            key.sign(&mut message, nonce(1)).unwrap();
            assert!(key.verify(&message, nonce(1)));
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_with_input(BenchmarkId::from_parameter(size), &size, |b, _| {
                b.iter(|| key.verify_in_place(black_box(&mut message), nonce(1)));
            });
        }
        group.finish();
    }
}

fn seal(criterion: &mut Criterion) {
    for (name, cipher) in CIPHERS {
        let mut group = criterion.benchmark_group(format!("crypto/seal/{name}"));
        let key = SealingKey::new(cipher, &[7; 32][..cipher.key_len()]).unwrap();
        for size in SIZES {
            let mut message = vec![0x5a; size];
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_with_input(BenchmarkId::from_parameter(size), &size, |b, _| {
                let mut counter = 0_u128;
                b.iter(|| {
                    counter += 1;
                    let nonce = counter.to_le_bytes();
                    key.seal_in_place(&nonce, &[1; AAD_BYTES], black_box(&mut message))
                        .unwrap()
                });
            });
        }
        group.finish();
    }
}

/// The same by a thread that sleeps until a message comes, and back: what sealing off the worker would
/// cost one message, to be read beside `crypto/seal`.
fn seal_elsewhere(criterion: &mut Criterion) {
    let cipher = Cipher::Aes128Gcm;
    let mut group = criterion.benchmark_group("crypto/seal-elsewhere/aes-128-gcm");
    for size in SIZES {
        let (to, messages) = mpsc::channel::<Vec<u8>>();
        let (back, sealed) = mpsc::channel();
        let key = SealingKey::new(cipher, &[7; 32][..cipher.key_len()]).unwrap();
        let other = thread::spawn(move || {
            for (counter, mut message) in (1_u128..).zip(messages) {
                key.seal_in_place(&counter.to_le_bytes(), &[1; AAD_BYTES], &mut message)
                    .unwrap();
                back.send(message).unwrap();
            }
        });
        let mut message = Some(vec![0x5a; size]);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_with_input(BenchmarkId::from_parameter(size), &size, |b, _| {
            b.iter(|| {
                to.send(message.take().unwrap()).unwrap();
                message = Some(sealed.recv().unwrap());
            });
        });
        drop(to);
        other.join().unwrap();
    }
    group.finish();
}

fn preauth(criterion: &mut Criterion) {
    let mut hash = PreauthHash::new();
    criterion.bench_function("crypto/preauth-hash/300", |b| {
        b.iter(|| hash.update(black_box(&[7; 300])));
    });
}

criterion_group!(
    benches,
    sign,
    sign_segments,
    verify,
    seal,
    seal_elsewhere,
    preauth
);
criterion_main!(benches);
