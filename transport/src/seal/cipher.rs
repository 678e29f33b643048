//! The AEAD of a key: AEGIS-128L or AES-128-GCM, as the job says.

use aegis::aegis128l::Aegis128L;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use gradwire_protocol::job::PacketCipher;
use gradwire_protocol::wire::TAG_BYTES;

use super::rejection::PacketRejection;
use crate::hkdf::{Secret, expand};

const KEY_BYTES: usize = 16;
const AEGIS_NONCE_BYTES: usize = 16;

/// A key and the IV of its nonces.
pub(super) enum PacketKey {
    /// libaegis takes the processor's AES instructions, on x86-64 only beside AVX.
    Aegis {
        key: [u8; KEY_BYTES],
        iv: [u8; AEGIS_NONCE_BYTES],
    },
    AesGcm {
        key: LessSafeKey,
        iv: [u8; NONCE_LEN],
    },
}

impl PacketKey {
    /// The key that belongs to a secret.
    pub(super) fn of(secret: &Secret, cipher: PacketCipher) -> Self {
        let key: [u8; KEY_BYTES] = expand(secret, &[b"gradwire key"]);
        match cipher {
            PacketCipher::Aegis128L => Self::Aegis {
                key,
                iv: expand(secret, &[b"gradwire iv"]),
            },
            PacketCipher::Aes128Gcm => {
                let unbound = UnboundKey::new(&AES_128_GCM, &key);
                Self::AesGcm {
                    key: LessSafeKey::new(unbound.expect("AES-128 has keys of 16 bytes")),
                    iv: expand(secret, &[b"gradwire iv"]),
                }
            }
        }
    }

    /// Encrypts `payload` into the start of `body`, and writes the tag behind it. The length of
    /// `body` must be exactly payload and tag.
    #[inline]
    pub(super) fn seal(&self, number: u64, header: &[u8], payload: &[u8], body: &mut [u8]) {
        let (out, tag) = body.split_at_mut(payload.len());
        match self {
            Self::Aegis { key, iv } => {
                // The library encrypts in place fastest; the copy stays in the first cache.
                out.copy_from_slice(payload);
                let aead = Aegis128L::<TAG_BYTES>::new(key, &nonce(iv, number));
                tag.copy_from_slice(&aead.encrypt_in_place(out, header));
            }
            Self::AesGcm { key, iv } => {
                let nonce = Nonce::assume_unique_for_key(nonce(iv, number));
                key.seal_out_of_place_scatter(nonce, Aad::from(header), payload, out, &[], tag)
                    .expect("the room is exact and a packet far below the limits of GCM");
            }
        }
    }

    /// Decrypts a body (payload, tag) in place.
    ///
    /// # Errors
    /// [`PacketRejection::Forged`] when the tag is wrong; the body is garbage then.
    #[inline]
    pub(super) fn open(
        &self,
        number: u64,
        header: &[u8],
        body: &mut [u8],
    ) -> Result<(), PacketRejection> {
        match self {
            Self::Aegis { key, iv } => {
                let (sealed, tag) =
                    (body.split_last_chunk_mut::<TAG_BYTES>()).ok_or(PacketRejection::Forged)?;
                let aead = Aegis128L::<TAG_BYTES>::new(key, &nonce(iv, number));
                let opened = aead.decrypt_in_place(sealed, tag, header);
                opened.map_err(|_| PacketRejection::Forged)
            }
            Self::AesGcm { key, iv } => {
                let nonce = Nonce::assume_unique_for_key(nonce(iv, number));
                let opened = key.open_in_place(nonce, Aad::from(header), body);
                opened.map(|_| ()).map_err(|_| PacketRejection::Forged)
            }
        }
    }
}

/// The IV XOR the number, in network byte order at its end (RFC 8446, 5.3).
fn nonce<const BYTES: usize>(iv: &[u8; BYTES], number: u64) -> [u8; BYTES] {
    let mut nonce = *iv;
    let low = nonce.last_chunk_mut();
    let low = low.expect("nonces have eight bytes and more");
    *low = (u64::from_be_bytes(*low) ^ number).to_be_bytes();
    nonce
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    impl PacketKey {
        /// The key's IV, which no other key has, and the nonce of a packet.
        pub(in crate::seal) fn iv_and_nonce(&self, number: u64) -> (Vec<u8>, Vec<u8>) {
            match self {
                Self::Aegis { iv, .. } => (iv.to_vec(), nonce(iv, number).to_vec()),
                Self::AesGcm { iv, .. } => (iv.to_vec(), nonce(iv, number).to_vec()),
            }
        }
    }

    const HEADER: [u8; 64] = [3; 64];

    fn keys() -> [PacketKey; 2] {
        [PacketCipher::Aegis128L, PacketCipher::Aes128Gcm]
            .map(|cipher| PacketKey::of(&[7; 32], cipher))
    }

    fn sealed(key: &PacketKey, number: u64, payload: &[u8]) -> Vec<u8> {
        let mut body = vec![0; payload.len() + TAG_BYTES];
        key.seal(number, &HEADER, payload, &mut body);
        body
    }

    #[test]
    fn a_body_opens_as_it_was_sealed() {
        for key in keys() {
            for length in [0, 1, 15, 16, 33, 1_392, 8_892] {
                let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
                let mut body = sealed(&key, u64::MAX, &payload);
                assert_eq!(key.open(u64::MAX, &HEADER, &mut body), Ok(()));
                assert_eq!(body[..length as usize], payload);
            }
        }
    }

    #[test]
    fn a_body_that_was_changed_does_not_open() {
        for key in keys() {
            let body = sealed(&key, 5, b"gradient");
            let opened =
                |number, header: &[u8], body: &[u8]| key.open(number, header, &mut body.to_vec());
            assert_eq!(opened(5, &HEADER, &body), Ok(()));
            let forged = Err(PacketRejection::Forged);
            for at in 0..body.len() {
                let mut changed = body.clone();
                changed[at] ^= 1;
                assert_eq!(opened(5, &HEADER, &changed), forged, "byte {at}");
                assert_eq!(opened(5, &HEADER, &body[..at]), forged, "the first {at}");
            }
            let mut header = HEADER;
            header[0] ^= 1;
            assert_eq!(opened(5, &header, &body), forged);
            assert_eq!(opened(6, &HEADER, &body), forged, "of another number");
        }
    }

    #[test]
    fn aegis_is_that_of_the_draft() {
        // draft-irtf-cfrg-aegis-aead, AEGIS-128L, test vector 1.
        let (mut key, mut iv) = ([0; KEY_BYTES], [0; AEGIS_NONCE_BYTES]);
        (key[0], key[1], iv[0], iv[2]) = (0x10, 0x01, 0x10, 0x02);
        let mut body = [0; 16 + TAG_BYTES];
        PacketKey::Aegis { key, iv }.seal(0, &[], &[0; 16], &mut body);
        let expected = "c1c0e58bd913006feba00f4b3cc3594eabe0ece80c24868a226a35d16bdae37a";
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }

    #[test]
    fn no_two_numbers_seal_alike() {
        for key in keys() {
            let bodies = [0, 1, 1 << 63].map(|number| sealed(&key, number, b"gradient"));
            assert_eq!(BTreeSet::from(bodies).len(), 3);
        }
    }
}
