//! Decides which processes are trusted. TLS 1.3 gives a secret channel to *some* process; the job
//! token, certificates, or both say which process that is.
//!
//! - Without certificates, rank 0 makes a new one at start. Other ranks cannot know it in advance,
//!   so they accept any.
//! - Both sides then prove the token over keying material exported from this very channel (RFC
//!   8446, 7.5): HMAC-SHA256(token, side || exported). A man in the middle has two channels with
//!   different material, and can neither make a proof nor pass one on.
//! - With certificates, TLS verifies both sides against the job's authority, whatever names the
//!   certificates carry. The token is proved all the same; it may then be empty.
//! - A process that pretends to be rank 0 receives a proof and can try tokens against it offline.
//!   So a token must be random and long, not a word.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, ConnectionError, IdleTimeout};
use quinn::{ServerConfig, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::certificates::Certificates;
use super::error::JoinError;
use super::refusal::{CertificateHolder, JoinRefusal};

/// The name that both sides put into the certificate and the handshake. It carries no trust.
pub(super) const SERVER_NAME: &str = "gradwire";
/// Names the protocol, and with it the form of the first message.
const ALPN: &[u8] = b"gradwire/1";
/// Keep-alives per `peer_timeout`, so that several may be lost before a rank counts as dead.
const SIGNS_OF_LIFE: u32 = 16;
/// The minimum silence after which a rank counts as dead, whatever the job says: keep-alives should
/// be rare, and a busy host delays them.
const SILENCE_MIN: Duration = Duration::from_millis(500);
/// Round-trip time assumed before the first measurement. Hosts of one job are near each other, and
/// a rank that starts before rank 0 should retry often.
const INITIAL_RTT: Duration = Duration::from_millis(50);
const EXPORT_LABEL: &[u8] = b"EXPORTER-gradwire-token";
const EXPORT_PURPOSE: &[u8] = b"gradwire/1 token proof";
const EXPORT_DATA_LABEL: &[u8] = b"EXPORTER-gradwire-data";
const EXPORT_DATA_PURPOSE: &[u8] = b"gradwire/1 packet secrets";

/// Keying material that only the two ends of one channel can export.
pub(super) type Binding = [u8; 32];

/// The end that makes a proof. It is part of the proof, so that a proof cannot be sent back as the
/// answer to itself.
#[derive(Clone, Copy)]
pub(super) enum TokenSide {
    Leader,
    Member,
}

/// The job token: a process that proves it may join the job.
#[derive(Clone)]
pub(super) struct Token {
    key: hmac::Key,
    is_empty: bool,
}

impl Token {
    pub(super) fn new(secret: &str) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
            is_empty: secret.is_empty(),
        }
    }

    /// Whether there is no secret: certificates decide about trust.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(super) fn prove(&self, side: TokenSide, binding: &Binding) -> Vec<u8> {
        hmac::sign(&self.key, &statement(side, binding))
            .as_ref()
            .to_vec()
    }

    /// Compares in constant time.
    pub(super) fn accepts(&self, side: TokenSide, binding: &Binding, proof: &[u8]) -> bool {
        hmac::verify(&self.key, &statement(side, binding), proof).is_ok()
    }
}

fn statement(side: TokenSide, binding: &Binding) -> Vec<u8> {
    let role: &[u8] = match side {
        TokenSide::Leader => b"leader",
        TokenSide::Member => b"member",
    };
    [role, binding].concat()
}

/// The material that a proof on this connection is made over.
pub(super) fn binding(connection: &Connection) -> Binding {
    exported(connection, EXPORT_LABEL, EXPORT_PURPOSE)
}

/// The material that this connection contributes to packet secrets.
pub(super) fn data_material(connection: &Connection) -> Binding {
    exported(connection, EXPORT_DATA_LABEL, EXPORT_DATA_PURPOSE)
}

fn exported(connection: &Connection, label: &[u8], purpose: &[u8]) -> Binding {
    let mut material = [0; 32];
    connection
        .export_keying_material(&mut material, label, purpose)
        .expect("a completed TLS 1.3 handshake exports any 32 bytes");
    material
}

/// QUIC settings of rank 0, with a certificate made now unless it has one. A rank that sends
/// nothing for `silence` counts as dead.
pub(super) fn server(
    certificates: Option<&Certificates>,
    silence: Duration,
) -> Result<ServerConfig, JoinError> {
    let provider = Arc::new(provider::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| setup("configuring TLS", &error))?;
    let tls = match certificates {
        Some(Certificates {
            chain,
            key,
            authority,
        }) => {
            let authority = Arc::clone(authority);
            let verifier = WebPkiClientVerifier::builder_with_provider(authority, provider)
                .build()
                .map_err(|error| setup("trusting the authority", &error))?;
            tls.with_client_cert_verifier(verifier)
                .with_single_cert(chain.clone(), key.clone_key())
        }
        None => {
            let certified = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()])
                .map_err(|error| setup("making a certificate", &error))?;
            let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
            tls.with_no_client_auth()
                .with_single_cert(vec![certified.cert.der().clone()], key.into())
        }
    };
    let mut tls = tls.map_err(|error| setup("configuring TLS", &error))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.send_tls13_tickets = 0;
    let quic =
        QuicServerConfig::try_from(tls).map_err(|error| setup("configuring QUIC", &error))?;
    let mut config = ServerConfig::with_crypto(Arc::new(quic));
    config.migration(false).transport_config(transport(silence));
    Ok(config)
}

/// QUIC settings of every other rank.
pub(super) fn client(
    certificates: Option<&Certificates>,
    silence: Duration,
) -> Result<ClientConfig, JoinError> {
    let provider = Arc::new(provider::default_provider());
    let verifier = LeaderCertificate {
        authority: certificates.map(|own| Arc::clone(&own.authority)),
        provider: Arc::clone(&provider),
    };
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| setup("configuring TLS", &error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut tls = match certificates {
        Some(own) => tls
            .with_client_auth_cert(own.chain.clone(), own.key.clone_key())
            .map_err(|error| setup("configuring TLS", &error))?,
        None => tls.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.resumption = Resumption::disabled();
    let quic =
        QuicClientConfig::try_from(tls).map_err(|error| setup("configuring QUIC", &error))?;
    let mut config = ClientConfig::new(Arc::new(quic));
    config.transport_config(transport(silence));
    Ok(config)
}

/// The refusal of a certificate that ended a connection, if one did. `us` is this end.
///
/// TLS alerts (RFC 8446, 6.2) are QUIC errors from 0x100 on (RFC 9001, 4.8).
pub(super) fn distrust(error: &ConnectionError, us: CertificateHolder) -> Option<JoinRefusal> {
    let (code, holder) = match error {
        ConnectionError::TransportError(error) => (error.code, us.other()),
        ConnectionError::ConnectionClosed(close) => (close.error_code, us),
        _ => return None,
    };
    let alert = u64::from(code).checked_sub(0x100)?;
    let reason = match alert {
        42 | 46 | 51 => "is not signed as it must be",
        43 => "is not for authentication between ranks",
        45 => "has expired or is not valid yet",
        48 => "is not of the other side's authority",
        116 => "was not shown",
        _ => return None,
    };
    let reason = reason.to_owned();
    Some(JoinRefusal::Certificate { holder, reason })
}

/// The error of a system or library call that the control plane needs to start.
pub(super) fn setup(what: &'static str, reason: &dyn std::fmt::Display) -> JoinError {
    JoinError::Setup {
        what,
        reason: reason.to_string(),
    }
}

fn transport(silence: Duration) -> Arc<TransportConfig> {
    let silence = silence.max(SILENCE_MIN);
    let idle = IdleTimeout::try_from(silence).expect("an hour at most fits in a QUIC integer");
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(silence / SIGNS_OF_LIFE))
        .initial_rtt(INITIAL_RTT)
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None);
    Arc::new(transport)
}

/// Accepts certificates of the authority, whatever names they carry. Without an authority it
/// accepts every certificate whose key the other side holds; the token then decides about trust.
#[derive(Debug)]
struct LeaderCertificate {
    authority: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for LeaderCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(authority) = &self.authority {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                authority,
                intermediates,
                now,
                algorithms,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Binding = [1; 32];
    const ELSEWHERE: Binding = [2; 32];

    #[test]
    fn proofs_depend_on_token_side_and_channel() {
        let token = Token::new("secret");
        let proof = token.prove(TokenSide::Member, &HERE);
        assert!(token.accepts(TokenSide::Member, &HERE, &proof));
        assert!(!token.accepts(TokenSide::Leader, &HERE, &proof));
        assert!(!token.accepts(TokenSide::Member, &ELSEWHERE, &proof));
        assert!(!Token::new("other").accepts(TokenSide::Member, &HERE, &proof));
        assert!(!Token::new("").accepts(TokenSide::Member, &HERE, &proof));
    }

    #[test]
    fn an_empty_token_is_a_token() {
        let token = Token::new("");
        let proof = token.prove(TokenSide::Leader, &HERE);
        assert!(token.accepts(TokenSide::Leader, &HERE, &proof));
        assert!(!token.accepts(TokenSide::Leader, &HERE, &[]));
    }
}
