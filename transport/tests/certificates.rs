//! Ranks that authenticate with certificates, over real loopback sockets: which meet, which are
//! refused and in which words, and the errors about files that are not certificates.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use gradwire_protocol::units::Rank;
use gradwire_transport::control::{
    CertificateFiles, CertificateHolder, Certificates, ControlEvent, ControlPlane, JoinError,
    JoinRefusal, JoinRole, Listener, Membership, join,
};
use gradwire_transport::lanes::AegisLanes;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// A certificate and its key as `openssl x509 -req` makes them without extensions.
const FIRST_VERSION: (&str, &str) = (
    "-----BEGIN CERTIFICATE-----
MIIBFjCBvQIUGIuCS3im+9vEBS6D03M65Dh7/aYwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCdjEwIBcNMjYxMTIzMDA0MTE4WhgPMjEyNjEwMzAwMDQxMThaMA0xCzAJ
BgNVBAMMAnYxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEJkaK7QJKwR1ydnF1
yk4/l5WAOXYw+O2yE6SrfjB47s6EvGp5U/ee9bJlvLLkEF3+mv9omT3sBV76qQh4
LgYfhzAKBggqhkjOPQQDAgNIADBFAiEAoI2C00Oj3ue0YfuOxDun+Kw/NjLVVqil
uuRPguhE6JUCIGBRVn4QIHM6jhkgFz8p6b91y9vZeW3c7EqRF0kQfuet
-----END CERTIFICATE-----
",
    "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg5CP8Jp7hl3vXx8YB
kUqJ8Y8n32n+IPqsFscNqdlN8bOhRANCAAQmRortAkrBHXJ2cXXKTj+XlYA5djD4
7bITpKt+MHjuzoS8anlT9571smW8suQQXf6a/2iZPewFXvqpCHguBh+H
-----END PRIVATE KEY-----
",
);

/// A folder of one test, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gradwire-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("room for a small file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An authority that signs the certificates of ranks.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("valid parameters"))
    }

    /// A certificate and its key, both in PEM.
    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = CertificateParams::new(vec!["any.name".to_owned()]).expect("a name");
        change(&mut params);
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.0).expect("valid parameters");
        (certificate.pem(), key.serialize_pem())
    }

    fn files(&self, folder: &Folder, name: &str, signed: (String, String)) -> CertificateFiles {
        CertificateFiles {
            certificate: folder.write(&format!("{name}.crt"), &signed.0),
            key: folder.write(&format!("{name}.key"), &signed.1),
            authority: folder.write(&format!("{name}.ca"), &self.0.pem()),
        }
    }

    /// The certificates of a rank that this authority has signed.
    fn certificates(&self, change: impl FnOnce(&mut CertificateParams)) -> Certificates {
        let folder = Folder::new(&format!("certificates-{:?}", std::thread::current().id()));
        let files = self.files(&folder, "rank", self.sign(change));
        Certificates::read(&files).expect("made a moment ago")
    }
}

fn plain(_: &mut CertificateParams) {}

fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
}

fn membership(rank: u16, certificates: Option<Certificates>) -> Membership {
    Membership {
        rank: Rank(rank),
        world_size: 2,
        token: String::new(),
        certificates,
        job: BTreeMap::new(),
        data_addresses: Vec::new(),
        host: "here".into(),
        mtu: 1500,
        receive_buffer: 1 << 20,
        lanes: AegisLanes::of_this_host(),
        memory: None,
        peer_timeout: PATIENCE,
    }
}

type Joining = JoinHandle<Result<ControlPlane, JoinError>>;

struct Leader {
    joining: Joining,
    address: SocketAddr,
    events: Receiver<ControlEvent>,
}

fn leader(certificates: Option<Certificates>) -> Leader {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("free ports");
    let address = listener.local_addr();
    let (sender, events) = channel();
    let joining = spawn(move || {
        let on_event = Box::new(move |event| drop(sender.send(event)));
        let membership = membership(0, certificates);
        join(JoinRole::Leader(listener), membership, PATIENCE, on_event)
    });
    Leader {
        joining,
        address,
        events,
    }
}

fn member(leader: &Leader, certificates: Option<Certificates>) -> Result<ControlPlane, JoinError> {
    let role = JoinRole::Member(leader.address);
    join(role, membership(1, certificates), PATIENCE, Box::new(drop))
}

/// The refusal that a member with these certificates receives, and the one that rank 0 reports.
fn refusals(leader: &Leader, certificates: Option<Certificates>) -> (JoinRefusal, JoinRefusal) {
    let Err(JoinError::Refused(told)) = member(leader, certificates) else {
        panic!("not refused over certificates");
    };
    let event = leader.events.recv_timeout(PATIENCE);
    let Ok(ControlEvent::Refused { refusal: heard, .. }) = event else {
        panic!("rank 0 hears of it: {event:?}");
    };
    (told, heard)
}

fn refusal(holder: CertificateHolder, reason: &str) -> JoinRefusal {
    let reason = reason.to_owned();
    JoinRefusal::Certificate { holder, reason }
}

#[test]
fn ranks_of_one_authority_meet_without_a_token() {
    let authority = Authority::new("ours");
    let leader = leader(Some(authority.certificates(plain)));
    let usages = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
    };
    let member = member(&leader, Some(authority.certificates(usages))).expect("joins");
    let leader = leader.joining.join().expect("no panic").expect("joins");
    assert_eq!(leader.roster(), member.roster());
}

#[test]
fn certificates_of_another_authority_are_refused() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let leader = leader(Some(ours.certificates(plain)));
    let unknown = "is not of the other side's authority";
    let stranger = Some(theirs.certificates(plain));
    let (told, heard) = refusals(&leader, stranger);
    assert_eq!(
        told,
        refusal(CertificateHolder::Leader, unknown),
        "seen first"
    );
    assert_eq!(heard, told);
    // A stranger that trusts rank 0 learns that rank 0 does not trust it.
    let folder = Folder::new("stranger");
    let mut files = theirs.files(&folder, "rank", theirs.sign(plain));
    files.authority = folder.write("ours.ca", &ours.0.pem());
    let (told, heard) = refusals(&leader, Certificates::read(&files).ok());
    assert_eq!(told, refusal(CertificateHolder::Member, unknown));
    assert_eq!(heard, told);
    assert!(
        told.to_string()
            .contains("certificate of this rank is refused")
    );
    member(&leader, Some(ours.certificates(plain))).expect("joins after all of that");
}

#[test]
fn expired_certificates_are_refused() {
    let authority = Authority::new("ours");
    let expired_words = "has expired or is not valid yet";
    let sound = leader(Some(authority.certificates(plain)));
    let (told, heard) = refusals(&sound, Some(authority.certificates(expired)));
    assert_eq!(told, refusal(CertificateHolder::Member, expired_words));
    assert_eq!(heard, told);
    let stale = leader(Some(authority.certificates(expired)));
    let (told, heard) = refusals(&stale, Some(authority.certificates(plain)));
    assert_eq!(told, refusal(CertificateHolder::Leader, expired_words));
    assert_eq!(heard, told);
}

#[test]
fn a_rank_without_a_certificate_is_refused() {
    let authority = Authority::new("ours");
    let guarded = leader(Some(authority.certificates(plain)));
    let (told, heard) = refusals(&guarded, None);
    assert_eq!(told, refusal(CertificateHolder::Member, "was not shown"));
    assert_eq!(heard, told);
    let open = leader(None);
    let (told, _) = refusals(&open, Some(authority.certificates(plain)));
    assert!(matches!(
        told,
        JoinRefusal::Certificate {
            holder: CertificateHolder::Leader,
            ..
        }
    ));
}

#[test]
fn a_wrong_token_fails_despite_certificates() {
    let authority = Authority::new("ours");
    let leader = leader(Some(authority.certificates(plain)));
    let mut stranger = membership(1, Some(authority.certificates(plain)));
    stranger.token = "guess".into();
    let error = join(
        JoinRole::Member(leader.address),
        stranger,
        PATIENCE,
        Box::new(drop),
    );
    // Rank 0 has none, which is distinguished from another one.
    assert!(matches!(
        error,
        Err(JoinError::Refused(JoinRefusal::TokenMissing {
            rank: Rank(0)
        }))
    ));
}

#[test]
fn invalid_certificate_files_are_named() {
    let (folder, authority) = (Folder::new("files"), Authority::new("ours"));
    let right = authority.files(&folder, "rank", authority.sign(plain));
    let text = folder.write("text", "hello");
    let said = |change: &dyn Fn(&mut CertificateFiles)| {
        let mut files = right.clone();
        change(&mut files);
        let error = Certificates::read(&files).expect_err("one file is wrong");
        error.to_string()
    };
    let name = text.display();
    let message = said(&|files| files.certificate.clone_from(&text));
    assert!(message.starts_with(&format!("the certificate {name}: no certificate in it")));
    let message = said(&|files| files.key.clone_from(&text));
    assert!(message.starts_with(&format!("the key {name}: no private key in it")));
    let (certificate, key) = FIRST_VERSION;
    let (certificate, key) = (
        folder.write("v1.crt", certificate),
        folder.write("v1.key", key),
    );
    let message = said(&|files| {
        files.certificate.clone_from(&certificate);
        files.key.clone_from(&key);
    });
    assert!(
        message.contains("is of X.509 version 1, and version 3 is needed"),
        "{message}"
    );
    let message = said(&|files| files.authority = Path::new("/nowhere").into());
    assert!(
        message.starts_with("the authority /nowhere: No such file"),
        "{message}"
    );
    let message = said(&|files| {
        let other = authority.files(&folder, "other", authority.sign(plain));
        files.key = other.key;
    });
    assert!(message.contains("does not go with the key"), "{message}");
    let some = CertificateFiles::all_or_none(Some(text.clone()), None, None);
    let message = some.expect_err("two are missing").to_string();
    assert!(
        message.contains("no key and no authority is given"),
        "{message}"
    );
    let none = CertificateFiles::all_or_none(None, None, None);
    assert!(none.is_ok_and(|files| files.is_none()));
}
