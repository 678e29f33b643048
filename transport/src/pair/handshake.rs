//! How two processes prove that they have the same ticket and token, and agree on a secret.
//!
//! ```text
//!   root  = HMAC(token, ticket)
//!   hello:   dialer's X25519 key and offer,                 HMAC(root, "dial" hello)
//!   answer:  listener's X25519 key, offer and job number,   HMAC(root, "answer" hello answer)
//!   proof:                                                  HMAC(pair, "proof")
//!   pair  = HMAC(root, "pair" X25519(both keys) hello answer)
//! ```
//!
//! 1. Keys are new for each connection, so that later knowledge of the token opens no earlier one.
//! 2. The answer covers the hello, so neither can be replayed with another; the proof shows that
//!    the dialer is there now.
//! 3. A side that refuses says why, in clear, before it closes.

use aws_lc_rs::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};
use aws_lc_rs::rand::{SystemRandom, fill};
use serde::{Deserialize, Serialize};

use gradwire_protocol::units::JobId;
use gradwire_protocol::wire;

use super::line::PairLine;
use super::{PairError, PairOffer, PairTerms, PairedProcess};
use crate::control::PairSecrets;
use crate::hkdf::Secret;

/// The form of the frames, and of the packets that follow them.
const VERSION: u32 = 1 << 8 | wire::VERSION as u32;
const MAC_BYTES: usize = 32;
/// First byte of a frame.
const SAYS: u8 = 1;
const REFUSES: u8 = 2;
const PROOF: &[u8] = b"proof";

/// Who begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PairSide {
    Dialer,
    Listener,
}

/// The body of hello and answer.
#[derive(Deserialize, Serialize)]
struct Introduction {
    version: u32,
    key: [u8; 32],
    job_id: u32,
    offer: PairOffer,
}

/// One side of a handshake.
pub(super) struct PairHandshake {
    line: Option<PairLine>,
    side: PairSide,
    root: Key,
    offer: PairOffer,
    key: Option<EphemeralPrivateKey>,
    stage: HandshakeStage,
}

enum HandshakeStage {
    /// The dialer has not sent its hello yet, or it is on its way.
    Begins,
    /// The dialer waits for the answer to this hello.
    Greeted(Vec<u8>),
    /// The listener waits for the proof of a pair.
    Answered(AnsweredPair),
}

/// A pair without its dialer's proof.
struct AnsweredPair {
    job: JobId,
    secret: Secret,
    offer: PairOffer,
}

/// Prints no key.
impl std::fmt::Debug for PairHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PairHandshake({:?})", self.side)
    }
}

impl PairHandshake {
    pub(super) fn new(line: PairLine, side: PairSide, secret: &Secret, terms: &PairTerms) -> Self {
        let token = Key::new(HMAC_SHA256, terms.token.as_bytes());
        Self {
            line: Some(line),
            side,
            root: Key::new(HMAC_SHA256, sign(&token, secret).as_ref()),
            offer: terms.offer.clone(),
            key: None,
            stage: HandshakeStage::Begins,
        }
    }

    /// The other process, once both have paired. `is_taken` tells which jobs this process has
    /// already.
    pub(super) fn poll(
        &mut self,
        is_taken: &dyn Fn(JobId) -> bool,
    ) -> Result<Option<PairedProcess>, PairError> {
        let result = self.step(is_taken);
        if let Err(error) = &result
            && let Some(line) = &mut self.line
        {
            if !matches!(error, PairError::Refused(_) | PairError::Ended) {
                let text = error.to_string();
                line.send(&[&[REFUSES], text.as_bytes()].concat());
            }
            let _ = line.flush();
        }
        result
    }

    fn step(
        &mut self,
        is_taken: &dyn Fn(JobId) -> bool,
    ) -> Result<Option<PairedProcess>, PairError> {
        if matches!(self.stage, HandshakeStage::Begins) && self.side == PairSide::Dialer {
            let hello = self.introduction(JobId(0));
            let frame = self.sealed(b"dial", &[], &hello);
            self.line().send(&frame);
            self.stage = HandshakeStage::Greeted(hello);
        }
        if !self.line().flush()? {
            return Ok(None);
        }
        let Some(frame) = self.line().frame()? else {
            return Ok(None);
        };
        let said = match frame.split_first() {
            Some((&SAYS, said)) => said,
            Some((&REFUSES, text)) => {
                let text = String::from_utf8_lossy(text).into_owned();
                return Err(PairError::Refused(text));
            }
            _ => return Err(PairError::Foreign),
        };
        match std::mem::replace(&mut self.stage, HandshakeStage::Begins) {
            HandshakeStage::Begins if self.side == PairSide::Listener => {
                self.answer(said, is_taken)?;
                Ok(None)
            }
            HandshakeStage::Begins => Err(PairError::Foreign),
            HandshakeStage::Greeted(hello) => {
                let answered = self.prove(&hello, said, is_taken)?;
                Ok(self.paired(answered))
            }
            HandshakeStage::Answered(answered) => {
                let proof = verify(&Key::new(HMAC_SHA256, &answered.secret), PROOF, said);
                proof.map_err(|_| PairError::Token)?;
                Ok(self.paired(answered))
            }
        }
    }

    fn line(&mut self) -> &mut PairLine {
        self.line
            .as_mut()
            .expect("a handshake that is over is not asked")
    }

    /// The listener: takes a hello and answers.
    fn answer(&mut self, said: &[u8], is_taken: &dyn Fn(JobId) -> bool) -> Result<(), PairError> {
        let hello = self.opened(b"dial", &[], said)?;
        let theirs = self.read(&hello)?;
        let job = draw(is_taken);
        let answer = self.introduction(job);
        let frame = self.sealed(b"answer", &hello, &answer);
        let secret = self.pair(&theirs, &[&hello, &answer])?;
        self.line().send(&frame);
        let offer = theirs.offer;
        self.stage = HandshakeStage::Answered(AnsweredPair { job, secret, offer });
        self.line().flush()?;
        Ok(())
    }

    /// The dialer: takes the answer, and proves that it is there.
    fn prove(
        &mut self,
        hello: &[u8],
        said: &[u8],
        is_taken: &dyn Fn(JobId) -> bool,
    ) -> Result<AnsweredPair, PairError> {
        let answer = self.opened(b"answer", hello, said)?;
        let theirs = self.read(&answer)?;
        let (job, secret) = (JobId(theirs.job_id), self.pair(&theirs, &[hello, &answer])?);
        if is_taken(job) {
            return Err(PairError::Taken);
        }
        let proof = sign(&Key::new(HMAC_SHA256, &secret), PROOF);
        let frame = [&[SAYS], proof.as_ref()].concat();
        self.line().send(&frame);
        // A connection that has just carried a frame has room for this one.
        self.line().flush()?;
        let offer = theirs.offer;
        Ok(AnsweredPair { job, secret, offer })
    }

    fn paired(&mut self, answered: AnsweredPair) -> Option<PairedProcess> {
        let line = self.line.take()?;
        Some(PairedProcess {
            job: answered.job,
            secrets: PairSecrets::of_two(answered.secret),
            offer: answered.offer,
            line,
        })
    }

    /// Draws a key, and introduces this side with it.
    fn introduction(&mut self, job: JobId) -> Vec<u8> {
        let random = SystemRandom::new();
        let key = EphemeralPrivateKey::generate(&X25519, &random);
        let key = key.expect("the system has randomness");
        let public = key.compute_public_key().expect("X25519 has public keys");
        self.key = Some(key);
        let introduction = Introduction {
            version: VERSION,
            key: public.as_ref().try_into().expect("32 bytes"),
            job_id: job.0,
            offer: self.offer.clone(),
        };
        serde_json::to_vec(&introduction).expect("plain values are JSON")
    }

    /// Reads what the other side says of itself, and compares the jobs.
    fn read(&self, said: &[u8]) -> Result<Introduction, PairError> {
        let theirs: Introduction = serde_json::from_slice(said).map_err(|_| PairError::Foreign)?;
        if theirs.version != VERSION {
            return Err(PairError::Foreign);
        }
        if theirs.offer.job != self.offer.job {
            return Err(PairError::Job {
                ours: self.offer.job.clone(),
                theirs: theirs.offer.job,
            });
        }
        match self.offer.reaches(&theirs.offer) {
            true => Ok(theirs),
            false => Err(PairError::Path {
                ours: self.offer.path(),
                theirs: theirs.offer.path(),
            }),
        }
    }

    fn pair(&mut self, theirs: &Introduction, said: &[&[u8]]) -> Result<Secret, PairError> {
        let key = self.key.take().ok_or(PairError::Foreign)?;
        let peer = UnparsedPublicKey::new(&X25519, &theirs.key);
        let said = said.concat();
        agree_ephemeral(key, peer, PairError::Foreign, |shared| {
            let pair = sign(&self.root, &[b"pair", shared, &said].concat());
            Ok(Secret::try_from(pair.as_ref()).expect("HMAC-SHA256 gives 32 bytes"))
        })
    }

    fn sealed(&self, purpose: &[u8], before: &[u8], body: &[u8]) -> Vec<u8> {
        let mac = sign(&self.root, &[purpose, before, body].concat());
        [&[SAYS], body, mac.as_ref()].concat()
    }

    fn opened(&self, purpose: &[u8], before: &[u8], said: &[u8]) -> Result<Vec<u8>, PairError> {
        let body = said.len().checked_sub(MAC_BYTES);
        let (body, mac) = said.split_at(body.ok_or(PairError::Foreign)?);
        let proof = verify(&self.root, &[purpose, before, body].concat(), mac);
        proof.map_err(|_| PairError::Token)?;
        Ok(body.to_vec())
    }
}

/// The number of a job that is not taken.
fn draw(is_taken: &dyn Fn(JobId) -> bool) -> JobId {
    let mut bytes = [0; 4];
    loop {
        fill(&mut bytes).expect("the system has randomness");
        let job = JobId(u32::from_be_bytes(bytes));
        if !is_taken(job) {
            return job;
        }
    }
}
