//! Two hosts: network namespaces joined by a link, and `ip` and `tc` in them.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

/// The ends of the link, one per host.
pub(crate) const LINKS: [&str; 2] = ["gw0", "gw1"];

/// Two hosts that reach each other. They end with their sockets.
pub(crate) struct Hosts([File; 2]);

impl Hosts {
    /// Makes them; `None` where this user may not make namespaces.
    pub(crate) fn linked() -> Option<Self> {
        let made = [(); 2].map(|()| on_a_thread(new_namespace));
        let [Some(left), Some(right)] = made else {
            eprintln!("skipped: this user makes no network namespaces");
            return None;
        };
        let hosts = Self([left, right]);
        let other = format!("/proc/{}/fd/{}", std::process::id(), hosts.descriptor(1));
        let [near, far] = LINKS;
        hosts.run(
            0,
            &format!("ip link add {near} type veth peer {far} netns {other}"),
        );
        for host in [0, 1] {
            let (link, address) = (LINKS[host], Self::address(host));
            hosts.run(host, &format!("ip address add {address}/24 dev {link}"));
            hosts.run(host, "ip link set lo up");
            hosts.run(host, &format!("ip link set {link} up"));
        }
        Some(hosts)
    }

    fn descriptor(&self, host: usize) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.0[host])
    }

    /// The address of a host.
    pub(crate) fn address(host: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 9, 0, host as u8 + 1))
    }

    /// Does something on a host. Sockets that it opens stay there.
    pub(crate) fn on<T: Send>(&self, host: usize, act: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            setns(&self.0[host], CloneFlags::CLONE_NEWNET).expect("the namespace exists");
            act()
        })
    }

    /// Runs a command on a host, which must succeed.
    pub(crate) fn run(&self, host: usize, command: &str) {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().expect("a command has a name"));
        let output = self.on(host, || program.args(words).output());
        let output = output.expect("iproute2 is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {errors}");
    }
}

fn new_namespace() -> Option<File> {
    unshare(CloneFlags::CLONE_NEWNET).ok()?;
    File::open("/proc/thread-self/ns/net").ok()
}

/// A thread changes only its own namespace.
fn on_a_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(act).join().expect("it does not panic"))
}
