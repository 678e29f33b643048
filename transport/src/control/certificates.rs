//! Certificates from files: an alternative to the job token, or an addition to it.
//!
//! - Every rank has a certificate of the job's authority, and TLS verifies it in both directions.
//! - The holder of a certificate may be any rank of the job: names in certificates are ignored.
//! - An extended key usage, if a certificate has one, must allow server and client authentication.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Paths of a rank's certificate, key and authority: three PEM files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    /// The certificate, followed by any intermediate certificates up to the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates of the authority that must have signed every rank's certificate.
    pub authority: PathBuf,
}

impl CertificateFiles {
    /// The files if all are given, `None` if none is given.
    ///
    /// # Errors
    /// [`CertificateError::Incomplete`] in all other cases.
    pub fn all_or_none(
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
        authority: Option<PathBuf>,
    ) -> Result<Option<Self>, CertificateError> {
        let missing: Vec<&str> = [
            ("certificate", &certificate),
            ("key", &key),
            ("authority", &authority),
        ]
        .into_iter()
        .filter_map(|(what, path)| path.is_none().then_some(what))
        .collect();
        match (certificate, key, authority) {
            (Some(certificate), Some(key), Some(authority)) => Ok(Some(Self {
                certificate,
                key,
                authority,
            })),
            (None, None, None) => Ok(None),
            _ => Err(CertificateError::Incomplete {
                missing: missing.join(" and no "),
            }),
        }
    }
}

/// Certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Some files are given and others are not.
    #[error(
        "certificates need three files, certificate, key and authority, but no {missing} is given: \
         give all three, or none to rely on the job token alone"
    )]
    Incomplete {
        /// The missing files.
        missing: String,
    },
    /// A file cannot be read.
    #[error(
        "the {what} {}: {reason}; allowed are files in PEM that this user can read",
        path.display()
    )]
    Unreadable {
        /// The role of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The certificate is of a version before 3.
    #[error(
        "the certificate {} is of X.509 version {version}, and version 3 is needed: give `openssl \
         x509 -req` its extensions by -extfile, or make it by `openssl req -x509`",
        path.display()
    )]
    Version {
        /// The certificate's file.
        path: PathBuf,
        /// Its version.
        version: u8,
    },
    /// The certificate was made for another key.
    #[error(
        "the certificate {} does not go with the key {}: {reason}; give the key it was made for",
        certificate.display(),
        key.display()
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The reason that the TLS library gives.
        reason: rustls::Error,
    },
}

/// A rank's certificate with its key, and the authority it trusts.
#[derive(Clone)]
pub struct Certificates {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: Arc<PrivateKeyDer<'static>>,
    pub(super) authority: Arc<RootCertStore>,
}

/// Prints no key.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`CertificateError`] names the file and its fault. The other ranks check whether the
    /// authority signed the certificate and whether it is valid now.
    pub fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let chain = certificates("certificate", &files.certificate)?;
        if let Some(version) = chain.iter().map(|one| version_of(one)).find(|&one| one < 3) {
            let path = files.certificate.clone();
            return Err(CertificateError::Version { path, version });
        }
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| unreadable("key", &files.key, words(&error, "private key")))?;
        let mut authority = RootCertStore::empty();
        for certificate in certificates("authority", &files.authority)? {
            authority
                .add(certificate)
                .map_err(|error| unreadable("authority", &files.authority, error.to_string()))?;
        }
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &default_provider()).map_err(
            |reason| CertificateError::Mismatch {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
                reason,
            },
        )?;
        Ok(Self {
            chain,
            key: Arc::new(key),
            authority: Arc::new(authority),
        })
    }
}

fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let failed = |error: pem::Error| unreadable(what, path, words(&error, "certificate"));
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(failed)?
        .collect();
    let found = found.map_err(failed)?;
    match found.is_empty() {
        true => Err(failed(pem::Error::NoItemsFound)),
        false => Ok(found),
    }
}

/// The version of an X.509 certificate in DER (RFC 5280, 4.1), which leaves version 1 out. The TLS
/// library refuses files that are not certificates at all.
fn version_of(certificate: &[u8]) -> u8 {
    const SEQUENCE: u8 = 0x30;
    const VERSION: [u8; 4] = [0xa0, 3, 2, 1];
    let body = inside(certificate, SEQUENCE).and_then(|signed| inside(signed, SEQUENCE));
    match body.map(|body| body.strip_prefix(&VERSION)) {
        Some(Some([number, ..])) => number.saturating_add(1),
        Some(_) => 1,
        None => 3,
    }
}

/// The bytes after the tag and the length of a DER value.
fn inside(der: &[u8], tag: u8) -> Option<&[u8]> {
    let (&length, rest) = der.strip_prefix(&[tag])?.split_first()?;
    // Above 127 it is the number of bytes of the length.
    match length {
        0..0x80 => Some(rest),
        long => rest.get(usize::from(long - 0x80)..),
    }
}

fn unreadable(what: &'static str, path: &Path, reason: String) -> CertificateError {
    CertificateError::Unreadable {
        what,
        path: path.to_owned(),
        reason,
    }
}

fn words(error: &pem::Error, wanted: &str) -> String {
    match error {
        pem::Error::NoItemsFound => format!("no {wanted} in it"),
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}
