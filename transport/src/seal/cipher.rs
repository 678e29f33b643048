//! The AEAD of a key: AEGIS-128X4, AEGIS-128X2 or AES-128-GCM.

use aegis::aegis128x2::Aegis128X2;
use aegis::aegis128x4::Aegis128X4;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use gradwire_protocol::job::PacketCipher;
use gradwire_protocol::wire::TAG_BYTES;

use super::rejection::PacketRejection;
use crate::hkdf::{Secret, expand};
use crate::lanes::AegisLanes;

const KEY_BYTES: usize = 16;
const AEGIS_NONCE_BYTES: usize = 16;

/// A cipher in the form in which both ends of a path compute it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PacketAead {
    Aegis(AegisLanes),
    Aes128Gcm,
}

impl PacketAead {
    #[cfg(test)]
    pub(super) const ALL: [Self; 3] = [
        Self::Aegis(AegisLanes::Two),
        Self::Aegis(AegisLanes::Four),
        Self::Aes128Gcm,
    ];

    /// The form of `cipher` with these lanes.
    pub(super) fn of(cipher: PacketCipher, lanes: AegisLanes) -> Self {
        match cipher {
            PacketCipher::Aegis => Self::Aegis(lanes),
            PacketCipher::Aes128Gcm => Self::Aes128Gcm,
        }
    }

    /// The name to which keys are bound.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Aegis(AegisLanes::Two) => "aegis-128x2",
            Self::Aegis(AegisLanes::Four) => "aegis-128x4",
            Self::Aes128Gcm => PacketCipher::Aes128Gcm.into(),
        }
    }
}

/// A key and the IV of its nonces.
pub(super) enum PacketKey {
    /// libaegis takes the processor's AES instructions, on x86-64 only beside AVX.
    Aegis {
        lanes: AegisLanes,
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
    pub(super) fn of(secret: &Secret, aead: PacketAead) -> Self {
        let key: [u8; KEY_BYTES] = expand(secret, &[b"gradwire key"]);
        match aead {
            PacketAead::Aegis(lanes) => Self::Aegis {
                lanes,
                key,
                iv: expand(secret, &[b"gradwire iv"]),
            },
            PacketAead::Aes128Gcm => {
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
            Self::Aegis { lanes, key, iv } => {
                // The library encrypts in place fastest; the copy stays in the first cache.
                out.copy_from_slice(payload);
                let nonce = nonce(iv, number);
                let written: [u8; TAG_BYTES] = match lanes {
                    AegisLanes::Two => Aegis128X2::new(key, &nonce).encrypt_in_place(out, header),
                    AegisLanes::Four => Aegis128X4::new(key, &nonce).encrypt_in_place(out, header),
                };
                tag.copy_from_slice(&written);
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
        let is_genuine = match self {
            Self::Aegis { lanes, key, iv } => {
                let (sealed, tag) =
                    (body.split_last_chunk_mut::<TAG_BYTES>()).ok_or(PacketRejection::Forged)?;
                let nonce = nonce(iv, number);
                let opened = match lanes {
                    AegisLanes::Two => {
                        Aegis128X2::new(key, &nonce).decrypt_in_place(sealed, tag, header)
                    }
                    AegisLanes::Four => {
                        Aegis128X4::new(key, &nonce).decrypt_in_place(sealed, tag, header)
                    }
                };
                opened.is_ok()
            }
            Self::AesGcm { key, iv } => {
                let nonce = Nonce::assume_unique_for_key(nonce(iv, number));
                key.open_in_place(nonce, Aad::from(header), body).is_ok()
            }
        };
        is_genuine.then_some(()).ok_or(PacketRejection::Forged)
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

    fn keys() -> [PacketKey; 3] {
        PacketAead::ALL.map(|aead| PacketKey::of(&[7; 32], aead))
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

    /// Tags of the draft (draft-irtf-cfrg-aegis-aead), test vectors 2.
    const DRAFT: [(AegisLanes, &str); 2] = [
        (AegisLanes::Two, "1aebc200804f405cab637f2adebb6d77"),
        (AegisLanes::Four, "0e56ab94e2e85db80f9d54010caabfb4"),
    ];

    #[test]
    fn aegis_is_that_of_the_draft() {
        let message = [4, 5, 6, 7].repeat(30);
        for (lanes, expected) in DRAFT {
            let (key, iv) = (counted(), counted().map(|byte| byte + 0x10));
            let mut body = vec![0; message.len() + TAG_BYTES];
            let key = PacketKey::Aegis { lanes, key, iv };
            key.seal(0, &[1, 2, 3, 4, 1, 2, 3, 4], &message, &mut body);
            let tag = &body[message.len()..];
            let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected, "{lanes:?}");
        }
    }

    fn counted() -> [u8; 16] {
        std::array::from_fn(|at| at as u8)
    }

    #[test]
    fn no_two_numbers_seal_alike() {
        for key in keys() {
            let bodies = [0, 1, 1 << 63].map(|number| sealed(&key, number, b"gradient"));
            assert_eq!(BTreeSet::from(bodies).len(), 3);
        }
    }
}
