//! Secrets of pairs of ranks: what packet keys are made from.
//!
//! When all ranks have joined, rank 0 makes a root secret from its own random bytes and from
//! keying material that it exports from the TLS session of every other rank (RFC 8446, 7.5), so
//! that it is as hard to guess as the best randomness of any of them. From the root comes a secret
//! for each pair of ranks, bound to job and epoch. Each rank gets the row of its own pairs over its
//! own TLS session and nothing else.
//!
//! What that protects against: who sees or alters all traffic knows no secret, since TLS 1.3 with
//! the job token or certificates carried them; who learns a rank's row can speak as that rank and
//! to that rank, but not as one other rank to another; who learns this job's secrets learns nothing
//! of other jobs or of later memberships. Rank 0 knows all secrets and is trusted with them. What
//! two ranks make of their secret is in `seal::keys`.

use std::fmt;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand::fill;
use serde::{Deserialize, Serialize};

use gradwire_protocol::units::{JobId, Rank};

use super::identity::Binding;
use crate::seal::{Secret, expand};

/// The secrets that one rank shares with each rank; the one with itself is of no use.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PairSecrets(Vec<Secret>);

impl PairSecrets {
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

/// Shows no secret.
impl fmt::Debug for PairSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PairSecrets({} ranks)", self.0.len())
    }
}

/// Hexadecimal digits, all secrets one behind the other.
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

/// What all pair secrets of a job come from; never leaves rank 0.
pub(super) struct RootSecret(Secret);

impl RootSecret {
    /// Draws one, with the material that rank 0 shares with each other rank.
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
        job: (JobId, u16),
        rank: Rank,
        ranks: impl Iterator<Item = Rank>,
    ) -> PairSecrets {
        let with = |other| self.pair(job, rank.min(other), rank.max(other));
        PairSecrets(ranks.map(with).collect())
    }

    fn pair(&self, (job, epoch): (JobId, u16), low: Rank, high: Rank) -> Secret {
        let (job, epoch) = (job.0.to_be_bytes(), epoch.to_be_bytes());
        let (low, high) = (low.0.to_be_bytes(), high.0.to_be_bytes());
        expand(&self.0, &[b"gradwire pair", &job, &epoch, &low, &high])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const JOB: (JobId, u16) = (JobId(3), 0);

    #[test]
    fn both_ranks_of_a_pair_have_its_secret_and_no_other_rank_has() {
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
            let row = root.row((JobId(job), epoch), Rank(0), (0..2).map(Rank));
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
    fn secrets_survive_their_way_and_are_never_shown() {
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
