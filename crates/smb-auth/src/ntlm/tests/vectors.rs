//! The examples of [MS-NLMP] 4.2.4.

use hex_literal::hex;

use super::*;

const BLOB: &[u8] = &hex!(
    "0101000000000000 0000000000000000 aaaaaaaaaaaaaaaa 00000000
     02000c00 44006f006d00610069006e00 01000c00 530065007200760065007200 00000000 00000000"
);
const SERVER_CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
const VECTOR_FLAGS: u32 = 0xe28a_8233;

#[test]
fn ms_nlmp_4_2_4_keys() {
    let hash = NtHash::from_password("Password");
    let key = keys::ntowf_v2(&hash, "User", "Domain");
    assert_eq!(key.to_vec(), hex!("0c868a403bfd7a93a3001ef22ef02e3f"));
    let pairs =
        hex!("02000c00 44006f006d00610069006e00 01000c00 530065007200760065007200 00000000");
    assert_eq!(client::client_blob(0, &[0xaa; 8], &pairs), BLOB);
    let proof = keys::nt_proof(&key, &SERVER_CHALLENGE, BLOB);
    assert_eq!(proof.to_vec(), hex!("68cd0ab851e51c96aabc927bebef6a1c"));
    let base = keys::session_base_key(&key, &proof[..]);
    assert_eq!(base.to_vec(), hex!("8de40ccadbc14a82f15cb0ad0de95ca3"));
    let mut random_session_key = [0x55; 16];
    keys::rc4(&base[..], &mut random_session_key);
    assert_eq!(
        random_session_key.to_vec(),
        hex!("c5dad2544fc979909 4ce1ce90bc9d03e")
    );
    let mut lm = keys::hmac_md5(&key[..], &[&SERVER_CHALLENGE, &[0xaa; 8]]).to_vec();
    lm.extend_from_slice(&[0xaa; 8]);
    assert_eq!(lm, hex!("86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa"));
}

#[test]
fn ms_nlmp_4_2_4_4_signature() {
    let keys = MicKeys::new(&[0x55; 16], VECTOR_FLAGS);
    let (sign, seal) = (keys.client_sign, keys.client_seal);
    assert_eq!(sign.to_vec(), hex!("4788dc861b4782f35d43fd98fe1a2d39"));
    assert_eq!(seal.to_vec(), hex!("59f600973cc4960a25480a7c196e4c58"));
    // In the document the signature follows 18 bytes of sealed data in the RC4 stream; ours is the
    // first use of the stream. The test shifts the stream to compare the checksum.
    let text = keys::utf16("Plaintext");
    let ours = keys.sign(Sender::Client, &text);
    assert_eq!(ours[..4], [1, 0, 0, 0]);
    assert_eq!(ours[12..], [0; 4]);
    let mut checksum = ours[4..12].to_vec();
    keys::rc4(&seal, &mut checksum);
    assert_eq!(checksum, hex!("703528 51f2564309"));
    let mut stream = text.clone();
    stream.extend_from_slice(&checksum);
    keys::rc4(&seal, &mut stream);
    assert_eq!(
        stream,
        hex!("54e50165bf1936dc996020c1811b0f06fb5f 7fb38ec5c55d4976")
    );
}

const CHALLENGE_MESSAGE: &[u8] = &hex!(
    "4e544c4d53535000 02000000 0c000c00 38000000 33828ae2
     0123456789abcdef 0000000000000000 24002400 44000000 06007017 0000000f
     530065007200760065007200 02000c00 44006f006d00610069006e00 01000c00
     530065007200760065007200 00000000"
);
const AUTHENTICATE_MESSAGE: &[u8] = &hex!(
    "4e544c4d53535000 03000000 18001800 6c000000 54005400 84000000
     0c000c00 48000000 08000800 54000000 10001000 5c000000 10001000 d8000000 358288e2
     0501280a0000000f 44006f006d00610069006e00 5500730065007200 43004f004d005000550054004500520 0
     86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa 68cd0ab851e51c96aabc927bebef6a1c
     0101000000000000 0000000000000000 aaaaaaaaaaaaaaaa 00000000
     02000c00 44006f006d00610069006e00 01000c00 530065007200760065007200 00000000 00000000
     c5dad2544fc9799094ce1ce90bc9d03e"
);

#[test]
fn ms_nlmp_4_2_4_3_messages() {
    let challenge = message::parse_challenge(CHALLENGE_MESSAGE).unwrap();
    assert_eq!(challenge.flags, VECTOR_FLAGS);
    assert_eq!(challenge.server_challenge, SERVER_CHALLENGE);
    let pairs: Vec<_> = AvPairs::new(challenge.target_info)
        .map(Result::unwrap)
        .collect();
    assert_eq!(pairs[0], (av::NB_DOMAIN, &keys::utf16("Domain")[..]));
    assert_eq!(pairs[1], (av::NB_COMPUTER, &keys::utf16("Server")[..]));

    let parsed = message::parse_authenticate(AUTHENTICATE_MESSAGE, UNICODE).unwrap();
    assert_eq!(
        (parsed.user.as_str(), parsed.domain.as_str()),
        ("User", "Domain")
    );
    assert_eq!(
        parsed.mic, None,
        "the payload begins at 72, where a MIC would be"
    );
    assert_eq!(parsed.encrypted_key.len(), 16);
    assert_eq!(
        message::NtAnswer::parse(parsed.nt)
            .unwrap()
            .av_pairs()
            .flags(),
        Ok(0)
    );
    for cut in 0..AUTHENTICATE_MESSAGE.len() {
        assert!(
            message::parse_authenticate(&AUTHENTICATE_MESSAGE[..cut], UNICODE).is_err(),
            "{cut}"
        );
    }
}

#[test]
fn the_acceptor_accepts_the_authenticate_of_the_document() {
    let mut fixture = Fixture::new();
    fixture.db.add_user("user").unwrap();
    fixture
        .db
        .set_password("user", Some(NtHash::from_password("Password")), 1)
        .unwrap();
    let state = server::Challenged {
        negotiate: Vec::new(),
        challenge: Vec::new(),
        server_challenge: SERVER_CHALLENGE,
        flags: 0xe28a_8233,
        charset: message::Charset::Unicode,
    };
    let params = fixture.params.clone();
    let accepted = fixture.env(|env| state.authenticate(AUTHENTICATE_MESSAGE, &params, env));
    assert_eq!(accepted.unwrap().session_key.as_bytes(), [0x55; 16]);
}
