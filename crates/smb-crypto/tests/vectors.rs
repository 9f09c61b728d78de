//! Known answers for key derivation, signing and sealing.
//!
//! Sources, named at each test: RFC 4493; NIST SP 800-38D test case 4 (McGrew & Viega); the
//! sample data Microsoft published on its Open Specifications blog ("SMB 2 and SMB 3 security in
//! Windows 10: the anatomy of signing and cryptographic keys"; "Encryption in SMB 3.0 / 3.1.1: a
//! protocol perspective"). Where nothing is published (GMAC signatures, AES-256 keys and
//! messages, HMAC signatures) the answers were computed with Python's `cryptography` (OpenSSL).

use hex_literal::hex;
use smb_crypto::*;

/// Bytes of the Nonce field that are used.
fn nonce_len(cipher: Cipher) -> usize {
    match cipher {
        Cipher::Aes128Ccm | Cipher::Aes256Ccm => 11,
        Cipher::Aes128Gcm | Cipher::Aes256Gcm => 12,
    }
}

const NO_NONCE: SignNonce = SignNonce {
    message_id: 0,
    is_server: false,
    is_cancel: false,
};
const HASH_1: [u8; 64] = hex!(
    "0DD13628CC3ED218EF9DF9772D436D0887AB9814BFAE63A80AA845F36909DB79
     28622DDDAD522D9751640A459762C5A9D6BB084CBB3CE6BDADEF5D5BCE3C6C01"
);

// ---- Microsoft: anatomy of signing and cryptographic keys ----

#[test]
fn microsoft_keys_of_3_0() {
    let keys = derive_keys(
        0x0300,
        &hex!("7CD451825D0450D235424E44BA6E78CC"),
        None,
        Some(Cipher::Aes128Ccm),
    )
    .unwrap();
    assert_eq!(keys.signing, hex!("0B7E9C5CAC36C0F6EA9AB275298CEDCE"));
    // The blog names keys from the client's side.
    assert_eq!(
        keys.client_to_server.as_ref().unwrap().as_bytes(),
        hex!("FAD27796665B313EBB578F388632B4F7")
    );
    assert_eq!(
        keys.server_to_client.as_ref().unwrap().as_bytes(),
        hex!("B0F0427F7CEB416D1D9DCC0CD4F99447")
    );
    let second = derive_keys(
        0x0302,
        &hex!("4E01A2B313BCF660CC250BEF021AEDE6"),
        None,
        None,
    )
    .unwrap();
    assert_eq!(second.signing, hex!("BA1A17DBBFEC349BCA105563D598952F"));
    assert!(second.client_to_server.is_none() && second.sealing_server_to_client().is_none());
}

#[test]
fn microsoft_keys_of_3_1_1() {
    let keys = derive_keys(
        0x0311,
        &hex!("270E1BA896585EEB7AF3472D3B4C75A7"),
        Some(&HASH_1),
        Some(Cipher::Aes128Gcm),
    )
    .unwrap();
    assert_eq!(keys.signing, hex!("73FE7A9A77BEF0BDE49C650D8CCB5F76"));
    assert_eq!(
        keys.client_to_server.as_ref().unwrap().as_bytes(),
        hex!("629BCBC54422A0F572B97F45989B6073")
    );
    assert_eq!(
        keys.server_to_client.as_ref().unwrap().as_bytes(),
        hex!("E2AF0DCEFAC68DA71A0DFBD0D1350D74")
    );
}

/// The final SESSION_SETUP response of the same example, signed with AES-CMAC.
#[test]
fn microsoft_signed_session_setup() {
    let message = hex!(
        "FE534D4240000100000000000100800009000000000000000300000000000000FFFE000000000000
         1900000000100000EBE146DA120BA25FC3376A49DFE31BC10900000048001D00A11B3019A0030A01
         00A3120410010000003B453CDC3524164200000000"
    );
    let key = SigningKey::new(
        SigningAlgorithm::AesCmac,
        &hex!("73FE7A9A77BEF0BDE49C650D8CCB5F76"),
    );
    assert!(key.verify(&message, NO_NONCE));
    let mut copy = message;
    assert!(key.verify_in_place(&mut copy, NO_NONCE));
    assert_eq!(copy, message, "verification must restore the signature");
    copy[48..64].fill(0xee);
    key.sign(&mut copy, NO_NONCE).unwrap();
    assert_eq!(copy, message);
}

// ---- Microsoft: encryption in SMB 3.0 and 3.1.1 ----

/// Splits a transform message into nonce field, associated data, tag and ciphertext.
fn transform(bytes: &[u8]) -> ([u8; 16], Vec<u8>, [u8; 16], Vec<u8>) {
    assert_eq!(bytes[..4], *b"\xfdSMB");
    let nonce = bytes[20..36].try_into().unwrap();
    (
        nonce,
        bytes[20..52].to_vec(),
        bytes[4..20].try_into().unwrap(),
        bytes[52..].to_vec(),
    )
}

fn check_transform(key: &SealingKey, message: &[u8], clear: &[u8]) {
    let (nonce, aad, tag, sealed) = transform(message);
    let mut buffer = sealed.clone();
    key.open_in_place(&nonce, &aad, &tag, &mut buffer).unwrap();
    assert_eq!(buffer, clear);
    assert_eq!(key.seal_in_place(&nonce, &aad, &mut buffer).unwrap(), tag);
    assert_eq!(buffer, sealed);
}

#[test]
fn microsoft_encrypted_write_in_3_0() {
    let keys = derive_keys(
        0x0300,
        &hex!("B4546771B515F766A86735532DD6C4F0"),
        None,
        Some(Cipher::Aes128Ccm),
    )
    .unwrap();
    assert_eq!(
        keys.client_to_server.as_ref().unwrap().as_bytes(),
        hex!("261B72350558F2E9DCF613070383EDBF")
    );
    assert_eq!(
        keys.server_to_client.as_ref().unwrap().as_bytes(),
        hex!("8FE2B57EC34D2DB5B1A9727F526BBDB5")
    );
    check_transform(
        &keys.sealing_client_to_server().unwrap(),
        &hex!(
            "FD534D4281A286535415445DAE393921E44FA42E66E69A111892584FB5ED524A
             744DA3EE87000000000001001100001400E4080025C8FEE16605A437832D1CD5
             2DA9F4645333482A175FE5384563F45FCDAFAEF38BC62BA4D5C62897996625A4
             4C29BE5658DE2E6117585779E7B59FFD971278D08580D7FA899E410E910EABF5
             AA1DB43050B33B49182637759AC15D84BFCDF5B6B238993C0F4CF4D6012023F6
             C627297075D84B7803912D0A9639634453595EF3E33FFE4E7AC2AB"
        ),
        &hex!(
            "FE534D4240000100000000000900400008000000000000000400000000000000
             FFFE0000010000001100001400E4080000000000000000000000000000000000
             3100700017000000000000000000000015010000390000020100000039020000
             00000000000000007000000000000000536D623320656E6372797074696F6E20
             74657374696E67"
        ),
    );
    // The response. Its nonce field is not zero behind the 11 bytes that CCM uses.
    check_transform(
        &keys.sealing_server_to_client().unwrap(),
        &hex!(
            "FD534D42A6015530A18F6D9AFFE22AFAE8E66484860000000000000011000014
             00E4080050000000000001001100001400E40800DBF46435C5F14169293CE079
             E344479BF670227E49873F458672C3098DAC467DD5809F369D67409166515787
             1483E01F7BECD02064EAC3E235F913668BBC2F097980D4B378F1993EFF6E60D1
             77309E5B"
        ),
        &hex!(
            "FE534D4240000100000000000900210009000000000000000400000000000000
             FFFE0000010000001100001400E4080000000000000000000000000000000000
             11000000170000000000000000000000"
        ),
    );
}

#[test]
fn microsoft_encrypted_write_in_3_1_1() {
    let hash = hex!(
        "B23F3CBFD69487D9832B79B1594A367CDD950909B774C3A4C412B4FCEA9EDDDB
         A7DB256BA2EA30E977F11F9B113247578E0E915C6D2A513B8F2FCA5707DC8770"
    );
    let keys = derive_keys(
        0x0311,
        &hex!("419FDDF34C1E001909D362AE7FB6AF79"),
        Some(&hash),
        Some(Cipher::Aes128Gcm),
    )
    .unwrap();
    assert_eq!(
        keys.client_to_server.as_ref().unwrap().as_bytes(),
        hex!("A2F5E80E5D59103034F32E52F698E5EC")
    );
    assert_eq!(
        keys.server_to_client.as_ref().unwrap().as_bytes(),
        hex!("748C50868C90F302962A5C35F5F9A8BF")
    );
    check_transform(
        &keys.sealing_client_to_server().unwrap(),
        &hex!(
            "FD534D42BD73D97D2BC9001BCAFAC0FDFF5FEEBCC7D6822D269CAF48904C664C0000000087000000
             0000010025000000001000006ECDD2A7AFC7B47763057A041B8FD4DAFFE990B70C9E09D36C084E02
             D14EF247F8BDE38ACF6256F8B1D3B56F77FBDEB312FEA5E92CBCC1ED8FB2EBBFAA75E49A4A394BB4
             4576545567C24D4C014D47C9FBDFDAFD2C4F9B72F8D256452620A299F48E29E53D6B61D1C13A19E9
             1AF013F00D17E3ABC2FC3D36C8C1B6B93973253852DBD442E46EE8"
        ),
        &hex!(
            "FE534D4240000100000000000900010008000000000000000500000000000000FFFE000001000000
             25000000001000000000000000000000000000000000000031007000170000000000000000000000
             0600000004000000010000000400000000000000000000007000000000000000536D623320656E63
             72797074696F6E2074657374696E67"
        ),
    );
    check_transform(
        &keys.sealing_server_to_client().unwrap(),
        &hex!(
            "FD534D42ACBE1CB7ED343ADF1725EF144D90D4B0E06831DD2E8EB7B4000000000000000050000000
             00000100250000000010000026BBBF949983A6C1C796559D0F2C510CB651D1F7B6AC8DED32A2A0B8
             F2D793A815C6F6B848D69767A215841A42D400AE6DDB5F0B44173A014973321FDD7950DA6179159B
             82E03C9E18A050FF0EA1C967"
        ),
        &hex!(
            "FE534D4240000100000000000900010001000000000000000500000000000000FFFE000001000000
             25000000001000000000000000000000000000000000000011000000170000000000000000000000"
        ),
    );
}

// ---- RFC and NIST ----

/// GCM specification (McGrew and Viega) test case 4.
#[test]
fn gcm_test_case_4() {
    let key =
        SealingKey::new(Cipher::Aes128Gcm, &hex!("feffe9928665731c6d6a8f9467308308")).unwrap();
    let mut text = hex!(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    );
    let aad = hex!("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let tag = key
        .seal_in_place(&hex!("cafebabefacedbaddecaf888ffffffff"), &aad, &mut text)
        .unwrap();
    assert_eq!(
        text,
        hex!(
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
        )
    );
    assert_eq!(tag, hex!("5bc94fbc3221a5db94fae95ae7121a47"));
}

// ---- Computed with Python's cryptography ----

fn counting(len: usize, factor: usize) -> Vec<u8> {
    (0..len).map(|i| (i * factor) as u8).collect()
}

#[test]
fn keys_of_aes_256_use_the_whole_session_key() {
    let hash: [u8; 64] = counting(64, 3).try_into().unwrap();
    let keys = derive_keys(
        0x0311,
        &counting(32, 1),
        Some(&hash),
        Some(Cipher::Aes256Gcm),
    )
    .unwrap();
    assert_eq!(keys.signing, hex!("8c8e7df416b88e71864c5e2533c586f0"));
    assert_eq!(
        keys.client_to_server.as_ref().unwrap().as_bytes(),
        hex!("6c2947afec75179fe8509efaed1c82632b19d9cc4d7c2bd0955625eecfcf056f")
    );
    assert_eq!(
        keys.server_to_client.as_ref().unwrap().as_bytes(),
        hex!("7a1feb8af4fdc290a068f7358594fb8f9015061acbf94130c93b1309d1366a1d")
    );
    let ntlm = derive_keys(
        0x0311,
        &counting(16, 1),
        Some(&hash),
        Some(Cipher::Aes256Ccm),
    )
    .unwrap();
    assert_eq!(
        ntlm.client_to_server.as_ref().unwrap().as_bytes(),
        hex!("52fc2d70a3bf4c3ade404fcd8a8fe40f7ff1f73eaf8e797f04887ce4f37152d2")
    );
    let aes128 = derive_keys(
        0x0311,
        &counting(32, 1),
        Some(&hash),
        Some(Cipher::Aes128Gcm),
    )
    .unwrap();
    assert_eq!(
        aes128.client_to_server.as_ref().unwrap().as_bytes(),
        hex!("ee2e47a37fc228ef6c167567b29128f2")
    );
    assert_eq!(
        aes128.server_to_client.as_ref().unwrap().as_bytes(),
        hex!("82cfc4acd3ea4dc736d6da1a4fdf6698")
    );
}

#[test]
fn dialects_2_use_the_session_key_itself() {
    let keys = derive_keys(0x0210, &[7; 5], None, Some(Cipher::Aes128Ccm)).unwrap();
    assert_eq!(
        keys.signing,
        [7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert!(keys.client_to_server.is_none());
    assert_eq!(
        derive_keys(0x0311, &[7; 16], None, None).unwrap_err(),
        CryptoError
    );
    assert_eq!(
        derive_keys(0x02ff, &[7; 16], None, None).unwrap_err(),
        CryptoError
    );
    assert_eq!(
        derive_keys(0x0202, &[], None, None).unwrap_err(),
        CryptoError
    );
}

const ID: u64 = 0x1122_3344_5566_7788;
const SERVER: SignNonce = SignNonce {
    message_id: ID,
    is_server: true,
    is_cancel: false,
};
const CANCEL: SignNonce = SignNonce {
    message_id: ID,
    is_server: false,
    is_cancel: true,
};

#[test]
fn signatures_of_all_algorithms() {
    let key: [u8; 16] = counting(16, 1).try_into().unwrap();
    for (algorithm, nonce, expected) in [
        (
            SigningAlgorithm::HmacSha256,
            SERVER,
            hex!("e8cee4032ffa7cd2e8bc031a2d9fd12e"),
        ),
        (
            SigningAlgorithm::AesCmac,
            SERVER,
            hex!("3241f85fdc1ba54f2386a79436700155"),
        ),
        (
            SigningAlgorithm::AesGmac,
            SERVER,
            hex!("3830fd7a712599a47cab90138bb9198d"),
        ),
        (
            SigningAlgorithm::AesGmac,
            CANCEL,
            hex!("22338814fb6db279f81d51a3b3fc088c"),
        ),
    ] {
        let key = SigningKey::new(algorithm, &key);
        let mut whole = counting(150, 7);
        key.sign(&mut whole, nonce).unwrap();
        assert_eq!(whole[48..64], expected, "{algorithm:?}");
        assert!(key.verify(&whole, nonce) && key.verify_in_place(&mut whole, nonce));
        for cut in [64, 80, 149, 150] {
            let mut head = counting(cut, 7);
            let body = &counting(150, 7)[cut..];
            let (one, two) = body.split_at(body.len() / 3);
            key.sign_parts(&mut head, &[one, two], nonce).unwrap();
            assert_eq!(head, whole[..cut], "{algorithm:?} {cut}");
        }
    }
}

#[test]
fn every_changed_byte_breaks_the_signature() {
    for algorithm in [
        SigningAlgorithm::HmacSha256,
        SigningAlgorithm::AesCmac,
        SigningAlgorithm::AesGmac,
    ] {
        let key = SigningKey::new(algorithm, &[3; 16]);
        let mut message = counting(100, 11);
        key.sign(&mut message, SERVER).unwrap();
        for at in 0..message.len() {
            message[at] ^= 1;
            assert!(!key.verify(&message, SERVER), "{algorithm:?} {at}");
            assert!(!key.verify_in_place(&mut message, SERVER));
            message[at] ^= 1;
        }
        assert!(key.verify(&message, SERVER));
        let gmac = algorithm == SigningAlgorithm::AesGmac;
        assert_eq!(
            key.verify(&message, CANCEL),
            !gmac,
            "only GMAC knows the role"
        );
        assert!(!SigningKey::new(algorithm, &[4; 16]).verify(&message, SERVER));
        for len in 0..64 {
            assert!(!key.verify(&message[..len], SERVER));
            assert_eq!(key.sign(&mut counting(len, 1), SERVER), Err(CryptoError));
        }
    }
}

#[test]
fn sealed_messages_of_all_ciphers() {
    let nonce: [u8; 16] = core::array::from_fn(|i| 0x40 + i as u8);
    let aad = counting(32, 1);
    for (cipher, sealed, tag) in [
        (
            Cipher::Aes128Ccm,
            hex!(
                "f944e7789d2720ab02834d8fec5187ee9c5320654414cff17f9741cbb0a35aaf930ad67f21059ddd0e332a8862072b0833d2a7ebab5f8e082bbd4c99d2bfcf191cae49c0808a"
            ),
            hex!("02ede9cd807badc3606e4c8cd18dc1f8"),
        ),
        (
            Cipher::Aes128Gcm,
            hex!(
                "392c63c57952e793a4947128c2663bb31c28e33479bbfbedc33d4aa6f04d9592ad7ff2c52f188c8e5f4f4805dfd9ae623b133480b74d7bd6c30fbc018b5429020fae5e5f017d"
            ),
            hex!("dff9b18f5e4fd596928bc4c1b29e9db7"),
        ),
        (
            Cipher::Aes256Ccm,
            hex!(
                "750879a51ff39c1742f5fabcbde50c7bd8cebd15150d38bac52ce964e3f7596f88b1b12dda33a10ef1794c5d845428595cfd990d301f6c45175d71b23c4cd69a01ea6ad4c77b"
            ),
            hex!("a0b1e073e72cfafdbe1cf6a15fb856dc"),
        ),
        (
            Cipher::Aes256Gcm,
            hex!(
                "e2bca42c32259920e5e92501a725551029930803d35c61500f3acc621b827b4038ad59036a006197e939d9b84dec39313b8450ce37ceec1a9907f6230bdb1efba4569fe55087"
            ),
            hex!("818a6cac40106e8121d98e736ace6baa"),
        ),
    ] {
        let key = SealingKey::new(cipher, &counting(cipher.key_len(), 1)).unwrap();
        let mut buffer = counting(70, 5);
        assert_eq!(
            key.seal_in_place(&nonce, &aad, &mut buffer).unwrap(),
            tag,
            "{cipher:?}"
        );
        assert_eq!(buffer, sealed, "{cipher:?}");
        for at in 0..16 {
            let mut bad = tag;
            bad[at] ^= 0x80;
            assert_eq!(
                key.open_in_place(&nonce, &aad, &bad, &mut buffer.clone()),
                Err(CryptoError)
            );
            let mut other = nonce;
            other[at] ^= 1;
            let used = at < nonce_len(cipher);
            let opened = key.open_in_place(&other, &aad, &tag, &mut buffer.clone());
            assert_eq!(opened.is_err(), used);
        }
        assert_eq!(
            key.open_in_place(&nonce, &aad[1..], &tag, &mut buffer.clone()),
            Err(CryptoError)
        );
        buffer[69] ^= 1;
        assert_eq!(
            key.open_in_place(&nonce, &aad, &tag, &mut buffer.clone()),
            Err(CryptoError)
        );
        buffer[69] ^= 1;
        key.open_in_place(&nonce, &aad, &tag, &mut buffer).unwrap();
        assert_eq!(buffer, counting(70, 5));
        assert_eq!(Cipher::from_id(cipher.id()), Some(cipher));
        assert!(SealingKey::new(cipher, &[0; 24]).is_err());
    }
    assert_eq!((Cipher::from_id(0), Cipher::from_id(5)), (None, None));
}

#[test]
fn debug_shows_no_keys() {
    let keys = derive_keys(0x0300, &[0x5a; 16], None, Some(Cipher::Aes128Ccm)).unwrap();
    assert_eq!(
        format!("{keys:?}"),
        "SessionKeys { cipher: Some(Aes128Ccm), .. }"
    );
    assert_eq!(
        format!("{:?}", keys.client_to_server),
        "Some(CipherKey(16 bytes))"
    );
}
