//! The environment of an NCCL process: the only place of this library that reads it, since NCCL
//! loads the library by itself and no caller passes values.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use gradwire_protocol::job::Job;
use gradwire_runtime::interface::{self, Interface};

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub(super) struct NcclLaunch {
    job: Option<PathBuf>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    has_certificates: bool,
    interface: Option<String>,
    pub(super) log: Option<String>,
    /// The folder in which NCCL's events are to be written.
    pub(super) events: Option<String>,
    /// Whether the user has chosen NCCL's protocols.
    pub(super) names_protocols: bool,
}

impl NcclLaunch {
    /// Reads the variables; empty ones count as absent.
    #[expect(
        clippy::disallowed_methods,
        reason = "NCCL loads this library by itself: the environment is its only argument"
    )]
    pub(super) fn read() -> Self {
        let given = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let certificates = ["GRADWIRE_CERT", "GRADWIRE_KEY", "GRADWIRE_CA"];
        Self {
            job: given("GRADWIRE_JOB").map(PathBuf::from),
            token: given("GRADWIRE_TOKEN"),
            token_file: given("GRADWIRE_TOKEN_FILE").map(PathBuf::from),
            has_certificates: certificates.into_iter().any(|name| given(name).is_some()),
            interface: given("GRADWIRE_IFNAME").or_else(|| given("NCCL_SOCKET_IFNAME")),
            log: given("GRADWIRE_LOG"),
            events: given("GRADWIRE_EVENTS"),
            names_protocols: given("NCCL_PROTO").is_some(),
        }
    }

    /// The job file, or the default job.
    pub(super) fn job(&self) -> Result<Job, String> {
        let Some(path) = &self.job else {
            return Ok(Job::default());
        };
        let named = |error: String| format!("GRADWIRE_JOB {}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        Job::from_toml(&text).map_err(|error| named(error.to_string()))
    }

    /// The secret that all processes share; empty for none.
    pub(super) fn token(&self) -> Result<String, String> {
        if self.has_certificates {
            return Err(
                "GRADWIRE_CERT, GRADWIRE_KEY and GRADWIRE_CA: connections of NCCL are \
                 authenticated by a token; unset them, and set GRADWIRE_TOKEN_FILE"
                    .to_owned(),
            );
        }
        match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => Err("GRADWIRE_TOKEN and GRADWIRE_TOKEN_FILE are both set: set \
                                       one of them"
                .to_owned()),
            (Some(token), None) => Ok(token.clone()),
            (None, Some(path)) => token_of(path),
            (None, None) => Ok(String::new()),
        }
    }

    /// The interface and address to use: the named one, or the first that is up and leads
    /// elsewhere, else loopback.
    pub(super) fn interface(&self) -> Result<(String, IpAddr), String> {
        let all = interface::all().map_err(|error| format!("no interfaces are listed: {error}"))?;
        choose(&all, self.interface.as_deref())
    }
}

fn token_of(path: &Path) -> Result<String, String> {
    let named = |reason: String| {
        let path = path.display();
        format!("GRADWIRE_TOKEN_FILE {path}: {reason}; it is a text file with the job's token")
    };
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    match text.trim() {
        "" => Err(named("it is empty".to_owned())),
        token => Ok(token.to_owned()),
    }
}

/// Chooses by an address, or by NCCL's notation: beginnings of names, `=` before whole names, `^`
/// before those that are not wanted.
fn choose(all: &[Interface], wanted: Option<&str>) -> Result<(String, IpAddr), String> {
    let usable = |one: &&Interface| one.is_up && !is_link_local(one.address);
    let found = |one: &Interface| (one.name.clone(), one.address);
    let Some(wanted) = wanted else {
        let mut usable = all.iter().filter(usable);
        // IPv4 first, as NCCL does.
        let elsewhere: Vec<&Interface> = usable.by_ref().filter(|one| !one.is_loopback).collect();
        let first = elsewhere.iter().find(|one| one.address.is_ipv4());
        let first = first.or_else(|| elsewhere.first()).copied();
        let loopback = ("lo".to_owned(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        return Ok(first.map_or(loopback, found));
    };
    if let Ok(address) = wanted.parse::<IpAddr>() {
        let own = all.iter().find(|one| one.address == address);
        return own.map(found).ok_or_else(|| unknown(wanted, all));
    }
    let is_excluded = wanted.starts_with('^');
    let names = wanted.trim_start_matches('^');
    let is_exact = names.starts_with('=');
    let names: Vec<&str> = names.trim_start_matches('=').split(',').collect();
    let is_named = |one: &Interface| {
        names.iter().any(|name| match is_exact {
            true => one.name == *name,
            false => one.name.starts_with(name),
        })
    };
    let mut chosen = all.iter().filter(usable).filter(|one| match is_excluded {
        true => !is_named(one) && !one.is_loopback,
        false => is_named(one),
    });
    let first = chosen.clone().find(|one| one.address.is_ipv4());
    let first = first.or_else(|| chosen.next());
    first.map(found).ok_or_else(|| unknown(wanted, all))
}

fn unknown(wanted: &str, all: &[Interface]) -> String {
    let mut names: Vec<String> = all
        .iter()
        .map(|one| format!("{} ({})", one.name, one.address))
        .collect();
    names.dedup();
    format!(
        "GRADWIRE_IFNAME or NCCL_SOCKET_IFNAME {wanted:?} names no interface of this host that is \
         up; there are {}",
        names.join(", ")
    )
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        let one = |name: &str, address: &str, is_up| Interface {
            name: name.to_owned(),
            address: address.parse().expect("an address"),
            is_up,
            is_loopback: name == "lo",
        };
        vec![
            one("lo", "127.0.0.1", true),
            one("eth0", "fe80::1", true),
            one("eth0", "2001:db8::1", true),
            one("eth0", "10.0.0.1", true),
            one("eth1", "10.1.0.1", true),
            one("ib0", "10.2.0.1", false),
        ]
    }

    fn chosen(wanted: Option<&str>) -> String {
        let (name, address) = choose(&host(), wanted).expect("there is one");
        format!("{name} {address}")
    }

    #[test]
    fn interfaces_are_chosen_in_the_notation_of_nccl() {
        assert_eq!(chosen(None), "eth0 10.0.0.1");
        assert_eq!(chosen(Some("eth1")), "eth1 10.1.0.1");
        assert_eq!(chosen(Some("=eth1,ib0")), "eth1 10.1.0.1");
        assert_eq!(chosen(Some("^eth0")), "eth1 10.1.0.1");
        assert_eq!(chosen(Some("lo")), "lo 127.0.0.1");
        assert_eq!(chosen(Some("2001:db8::1")), "eth0 2001:db8::1");
        let lone = choose(&host()[..1], None).expect("loopback is left");
        assert_eq!(lone.0, "lo");
    }

    #[test]
    fn an_interface_that_is_down_is_refused_with_the_others() {
        let error = choose(&host(), Some("ib0")).expect_err("it is down");
        assert!(
            error.contains("ib0") && error.contains("eth1 (10.1.0.1)"),
            "{error}"
        );
    }

    #[test]
    fn certificates_are_refused_with_the_remedy() {
        let launch = NcclLaunch {
            has_certificates: true,
            ..NcclLaunch::default()
        };
        let error = launch.token().expect_err("only tokens serve");
        assert!(error.contains("GRADWIRE_TOKEN_FILE"), "{error}");
    }
}
