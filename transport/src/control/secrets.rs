//! Secrets of pairs of ranks, from which packet keys derive.
//!
//! 1. When all ranks have joined, rank 0 makes a root secret from its own random bytes and from
//!    keying material that it exports from the TLS session of every other rank (RFC 8446, 7.5). The
//!    root is as hard to guess as the best randomness of any of them.
//! 2. From the root derives one secret for each pair of ranks, bound to job and epoch.
//! 3. Each rank receives the row of its own pairs over its own TLS session, and no other secret.
//!
//! This protects against three attackers:
//! - One who sees or alters all traffic knows no secret: TLS 1.3, authenticated by the job token or
//!   by certificates, carried them.
//! - One who learns a rank's row can speak as that rank and to that rank, but not as one other rank
//!   to another.
//! - One who learns this job's secrets learns nothing about other jobs or about later memberships.
//!
//! Rank 0 knows all secrets and is trusted with them. `seal::keys` derives keys from the secret of
//! a pair.

use std::fmt;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand::fill;
use serde::{Deserialize, Serialize};

use gradwire_protocol::units::{JobId, Rank};

use super::identity::Binding;
use crate::hkdf::{Secret, expand};

/// The secrets that one rank shares with each rank. The one with itself is unused.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PairSecrets(Vec<Secret>);

impl PairSecrets {
    /// The secrets of each of two ranks that have agreed on one.
    pub(crate) fn of_two(secret: Secret) -> Self {
        Self(vec![secret; 2])
    }

    /// How many ranks the job has.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The secret shared with `rank`.
    ///
    /// # Panics
    /// When the job has no such rank.
    pub(crate) fn with(&self, rank: Rank) -> &Secret {
        &self.0[usize::from(rank.0)]
    }
}

/// Prints no secret.
impl fmt::Debug for PairSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PairSecrets({} ranks)", self.0.len())
    }
}

/// Hexadecimal digits of all secrets, in the order of ranks.
impl From<PairSecrets> for String {
    fn from(secrets: PairSecrets) -> Self {
        let bytes = secrets.0.iter().flatten();
        let digit = |value: u8| char::from_digit(value.into(), 16).expect("below 16");
        bytes
            .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
            .collect()
    }
}

impl TryFrom<String> for PairSecrets {
    type Error = &'static str;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        let secrets = digits.as_bytes().chunks(2 * size_of::<Secret>());
        let secrets: Option<Vec<Secret>> = secrets.map(secret).collect();
        secrets
            .map(Self)
            .ok_or("secrets are 64 hexadecimal digits for each rank")
    }
}

fn secret(digits: &[u8]) -> Option<Secret> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |two: &[u8]| u8::try_from(value(two[0])? << 4 | value(two[1])?).ok();
    let bytes: Option<Vec<u8>> = digits.chunks_exact(2).map(byte).collect();
    Secret::try_from(bytes?).ok()
}

/// One membership of a job, to which pair secrets are bound.
#[derive(Clone, Copy)]
pub(super) struct JobEpoch {
    pub(super) job: JobId,
    pub(super) epoch: u16,
}

/// The secret from which all pair secrets of a job derive. It never leaves rank 0.
pub(super) struct RootSecret(Secret);

impl RootSecret {
    /// Draws one, mixing in the material that rank 0 shares with each other rank.
    pub(super) fn draw(shared: impl Iterator<Item = (Rank, Binding)>) -> Self {
        let mut random = Secret::default();
        fill(&mut random).expect("the system's randomness already served the handshakes");
        let material: Vec<u8> = shared
            .flat_map(|(rank, material)| rank.0.to_be_bytes().into_iter().chain(material))
            .collect();
        // HKDF-Extract (RFC 5869, 2.2) is this HMAC, with the random bytes as salt.
        let extracted = sign(&Key::new(HMAC_SHA256, &random), &material);
        let root = Secret::try_from(extracted.as_ref());
        Self(root.expect("HMAC-SHA256 gives 32 bytes"))
    }

    /// The secrets of one rank's pairs in a membership of a job.
    pub(super) fn row(
        &self,
        membership: JobEpoch,
        rank: Rank,
        ranks: impl Iterator<Item = Rank>,
    ) -> PairSecrets {
        let with = |other| self.pair(membership, rank.min(other), rank.max(other));
        PairSecrets(ranks.map(with).collect())
    }

    fn pair(&self, membership: JobEpoch, low: Rank, high: Rank) -> Secret {
        let JobEpoch { job, epoch } = membership;
        let (job, epoch) = (job.0.to_be_bytes(), epoch.to_be_bytes());
        let (low, high) = (low.0.to_be_bytes(), high.0.to_be_bytes());
        expand(&self.0, &[b"gradwire pair", &job, &epoch, &low, &high])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const JOB: JobEpoch = JobEpoch {
        job: JobId(3),
        epoch: 0,
    };

    #[test]
    fn only_a_pairs_own_ranks_have_its_secret() {
        let root = RootSecret::draw([(Rank(1), [1; 32])].into_iter());
        let ranks = || (0..5).map(Rank);
        let rows: Vec<PairSecrets> = ranks().map(|rank| root.row(JOB, rank, ranks())).collect();
        let mut pairs = BTreeSet::new();
        for (low, high) in (0..5_u16).flat_map(|high| (0..high).map(move |low| (low, high))) {
            let secret = rows[usize::from(low)].with(Rank(high));
            assert_eq!(secret, rows[usize::from(high)].with(Rank(low)));
            let others =
                (0..5).filter(|&rank| ![usize::from(low), usize::from(high)].contains(&rank));
            assert!(others.clone().all(|rank| !rows[rank].0.contains(secret)));
            assert!(pairs.insert(*secret), "a secret of its own for each pair");
        }
    }

    #[test]
    fn another_epoch_or_job_has_other_secrets() {
        let root = RootSecret([1; 32]);
        let rows = [(3, 0), (3, 1), (4, 0)].map(|(job, epoch)| {
            let job = JobId(job);
            let row = root.row(JobEpoch { job, epoch }, Rank(0), (0..2).map(Rank));
            *row.with(Rank(1))
        });
        assert_eq!(BTreeSet::from(rows).len(), 3);
    }

    #[test]
    fn a_root_is_drawn_anew_for_each_job() {
        let draw = || RootSecret::draw([(Rank(1), [1; 32])].into_iter()).0;
        assert_ne!(draw(), draw());
    }

    #[test]
    fn secrets_survive_encoding_and_are_never_printed() {
        let row = PairSecrets(vec![[0xAB; 32], [0x07; 32]]);
        let digits = String::from(row.clone());
        assert!(digits.starts_with("abab") && digits.ends_with("0707"));
        assert_eq!(PairSecrets::try_from(digits.clone()), Ok(row.clone()));
        assert!(PairSecrets::try_from(digits[1..].to_owned()).is_err());
        assert!(PairSecrets::try_from("g".repeat(64)).is_err());
        assert!(PairSecrets::try_from("ä".repeat(32)).is_err());
        assert_eq!(format!("{row:?}"), "PairSecrets(2 ranks)");
    }
}
