//! Two hosts and a router between them, each a network namespace. They are gone when the test is.

use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Address of the host that answers probes.
pub(crate) const SERVER: &str = "10.77.2.1";
/// Interfaces of the two hosts and, with the same names, of the router towards them.
pub(crate) const NEAR: &str = "near";
pub(crate) const FAR: &str = "far";

/// Where a command runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The host that asks.
    Client,
    /// The one that answers.
    Server,
    /// Between them.
    Router,
}

/// The namespaces.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
}

impl Network {
    /// Two hosts that reach each other; or `None`, with the reason printed, where this process
    /// may not make namespaces.
    pub(crate) fn new() -> Option<Self> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let network = Self {
            name: format!("gwdoctor{}-{count}", std::process::id()),
        };
        let made = network.make();
        if let Err(reason) = &made {
            eprintln!("skipped: no network namespaces here: {reason}");
        }
        made.ok().map(|()| network)
    }

    fn make(&self) -> Result<(), String> {
        let [client, server, router] = [Place::Client, Place::Server, Place::Router];
        for place in [client, server, router] {
            run(&["ip", "netns", "add", &self.namespace(place)])?;
            self.ip(place, "link set lo up")?;
        }
        let sides = [(client, NEAR, "10.77.1"), (server, FAR, "10.77.2")];
        for (host, interface, net) in sides {
            let (host_name, router_name) = (self.namespace(host), self.namespace(router));
            let link = format!(
                "ip link add {interface} netns {host_name} type veth peer name {interface} netns \
                 {router_name}"
            );
            run(&words(&link))?;
            for (place, number) in [(host, 1), (router, 2)] {
                self.ip(
                    place,
                    &format!("address add {net}.{number}/24 dev {interface}"),
                )?;
                self.ip(place, &format!("link set {interface} up"))?;
            }
            self.ip(host, &format!("route add default via {net}.2"))?;
        }
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        self.output(router, &["sh", "-c", forward]).map(|_| ())
    }

    /// Runs `ip` in a namespace.
    pub(crate) fn ip(&self, place: Place, arguments: &str) -> Result<(), String> {
        let name = self.namespace(place);
        run(&[&["ip", "-n", &name], &words(arguments)[..]].concat())
    }

    /// Runs a command in a namespace to its end; its errors are text.
    pub(crate) fn output(&self, place: Place, command: &[&str]) -> Result<Output, String> {
        let mut inside = self.command(place, command);
        let output = inside
            .output()
            .map_err(|error| format!("{command:?}: {error}"))?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("{command:?}: {said}"))
    }

    /// Starts a command in a namespace.
    pub(crate) fn start(&self, place: Place, command: &[&str]) -> Child {
        let mut inside = self.command(place, command);
        let started = inside.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        started.expect("a namespace was made, so ip starts")
    }

    /// A command in a namespace.
    pub(crate) fn command(&self, place: Place, command: &[&str]) -> Command {
        let mut inside = Command::new("ip");
        inside
            .args(["netns", "exec", &self.namespace(place)])
            .args(command)
            .env_remove("GRADWIRE_JOB")
            .env_remove("GRADWIRE_TOKEN");
        inside
    }

    fn namespace(&self, place: Place) -> String {
        let place = match place {
            Place::Client => "client",
            Place::Server => "server",
            Place::Router => "router",
        };
        format!("{}-{place}", self.name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for place in [Place::Client, Place::Server, Place::Router] {
            // A namespace that was never made cannot be removed.
            let _ = run(&["ip", "netns", "delete", &self.namespace(place)]);
        }
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn run(command: &[&str]) -> Result<(), String> {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", command[0]))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
