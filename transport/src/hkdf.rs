//! Derives secrets from secrets: HKDF-SHA256 (RFC 5869).

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};

/// A secret that two ranks, or the two ends of a direction, share.
pub(crate) type Secret = [u8; 32];

/// HKDF-Expand (RFC 5869, 2.3): `N` bytes, at most 8,160. Every `purpose` starts with a label of
/// its own, followed by parts of which at most one varies in length.
pub(crate) fn expand<const N: usize>(secret: &Secret, purpose: &[&[u8]]) -> [u8; N] {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut out = [0; N];
    Prk::new_less_safe(HKDF_SHA256, secret)
        .expand(purpose, Length(N))
        .and_then(|okm| okm.fill(&mut out))
        .expect("HKDF-SHA256 gives up to 8,160 bytes");
    out
}
