//! The checks of this host: how much its interfaces and its kernel grant a job. [`machine`] checks
//! everything beside the network, [`rdma`] the RDMA devices.
//!
//! Each check is a measurement and a judgement; the judgements take plain numbers.

use std::io;
use std::net::IpAddr;

use gradwire_protocol::job::{Job, Mtu};
use gradwire_protocol::launch::{self, LaunchFacts};
use gradwire_protocol::units::ByteCount;
use gradwire_transport::interface;
use gradwire_transport::probe::offload::Offload;
use gradwire_transport::probe::{device, offload, system};

use super::finding::HostFinding;
use super::machine::{self, mebibytes, number};
use super::rdma;

/// The buffer that each socket asks for.
const BUFFER_BYTES_MAX: u64 = 8 << 20;
/// Room for the super-packets of a batch on their way out.
const SEND_BUFFER_BYTES: u64 = 1 << 20;
/// IP, UDP and gradwire's header.
const HEADER_BYTES: u32 = 20 + 8 + 64;

/// The job and the addresses that the checks are for.
#[derive(Clone, Debug)]
pub struct HostPlan<'a> {
    /// The job.
    pub job: &'a Job,
    /// Addresses that packets may leave by.
    pub addresses: &'a [IpAddr],
    /// Ranks of the job on this host.
    pub ranks: u32,
    /// All ranks of the job.
    pub world: u32,
}

/// Checks this host.
pub fn check(wanted: &HostPlan<'_>) -> Vec<HostFinding> {
    let mut findings = Vec::new();
    for address in wanted.addresses {
        findings.extend(run_kept(*address, offload::offload(*address)));
        if let Ok(name) = interface::name(*address) {
            findings.extend(features(&name));
            findings.push(mtu(
                &name,
                interface::mtu_of(&name),
                wanted.job.transport.mtu,
            ));
        }
    }
    if let Some(address) = wanted.addresses.first() {
        let granted = system::receive_buffer(*address, wanted.job.transport.entropies);
        findings.push(receive_buffer(granted, wanted));
    }
    findings.push(send_buffer(
        number("/proc/sys/net/core/wmem_max"),
        may_force(),
    ));
    findings.extend(machine::check(wanted));
    findings.extend(rdma::check(wanted));
    findings
}

fn run_kept(address: IpAddr, measured: io::Result<Offload>) -> Vec<HostFinding> {
    let offload = match measured {
        Ok(offload) => offload,
        Err(error) => {
            let found = format!("cannot open a UDP socket on {address}: {error}");
            let mend = "ip address show  # and give --bind an address of this host";
            return vec![HostFinding::problem("gso", found).mend(mend)];
        }
    };
    let packets = offload.packets;
    if let Some(error) = offload.refused {
        let found = format!("{address}: the kernel refuses a run of {packets} packets: {error}");
        let name = interface::name(address).unwrap_or_else(|_| "IF".to_owned());
        return vec![
            HostFinding::problem("gso", found)
                .costs("packets leave one by one: an eighth of the speed (5 of 40 Gb/s a core)")
                .mend(format!(
                    "ethtool -K {name} tx on gso on  # and Linux 4.18 or later"
                )),
        ];
    }
    let sent = HostFinding::ok(
        "gso",
        format!("{address}: {packets} packets leave as one run"),
    );
    let received = match offload.glued {
        glued if glued == packets => HostFinding::ok(
            "gro",
            format!("{address}: {packets} packets arrive as one run"),
        ),
        glued => {
            let found = format!("{address}: of a run of {packets} packets {glued} arrive together");
            HostFinding::problem("gro", found)
                .costs("packets are read one by one: a third of the speed (13 of 40 Gb/s a core)")
                .mend("uname -r  # Linux 5.0 or later glues runs; sandboxes such as gVisor do not")
        }
    };
    vec![sent, received]
}

fn features(name: &str) -> Vec<HostFinding> {
    let Ok(features) = device::features(name) else {
        let found = format!("{name} does not report its features");
        return vec![HostFinding::ok("interface_gro", found)];
    };
    let on = |feature: &str| features.get(feature).copied().unwrap_or(false);
    let received = if on("rx-gro") {
        HostFinding::ok(
            "interface_gro",
            format!("{name}: generic-receive-offload is on"),
        )
    } else {
        HostFinding::warning(
            "interface_gro",
            format!("{name}: generic-receive-offload is off"),
        )
        .costs(
            "packets from other hosts are read one by one, a third of the speed (13 of 40 \
             Gb/s), unless a virtual interface hands runs on whole",
        )
        .mend(format!("ethtool -K {name} gro on"))
    };
    let sent = match (on("tx-generic-segmentation"), on("tx-udp-segmentation")) {
        (_, true) => HostFinding::ok(
            "interface_gso",
            format!("{name}: tx-udp-segmentation is on"),
        ),
        (true, false) => {
            let found =
                format!("{name}: runs are cut by the kernel, since the interface cuts none");
            HostFinding::ok("interface_gso", found)
        }
        (false, false) => {
            let found = format!("{name}: generic-segmentation-offload is off");
            HostFinding::warning("interface_gso", found)
                .costs("runs are cut early: up to an eighth of the speed (5 of 40 Gb/s a core)")
                .mend(format!("ethtool -K {name} gso on tx-udp-segmentation on"))
        }
    };
    vec![received, sent]
}

fn mtu(name: &str, interface: io::Result<u32>, wanted: Mtu) -> HostFinding {
    let check = "interface_mtu";
    let Ok(mtu) = interface else {
        return HostFinding::warning(check, format!("{name} does not report its MTU"))
            .costs("a job with transport.mtu = \"auto\" does not start")
            .mend(format!("ip link show dev {name}"));
    };
    match wanted {
        Mtu::Bytes(bytes) if bytes > mtu => {
            let found = format!("{name}: {mtu} bytes, and the job's packets have {bytes}");
            HostFinding::problem(check, found)
                .costs("every packet is cut in two and sent alone: an eighth of the speed")
                .mend(format!(
                    "ip link set dev {name} mtu {bytes}  # or transport.mtu = {mtu}"
                ))
        }
        _ if mtu < 1_500 => {
            let share = |mtu: u32| f64::from(HEADER_BYTES) / f64::from(mtu) * 100.0;
            let costs = format!(
                "headers are {:.1} % of what is sent, with 1500 bytes {:.1} %",
                share(mtu),
                share(1_500)
            );
            HostFinding::warning(check, format!("{name}: {mtu} bytes"))
                .costs(costs)
                .mend(format!("ip link set dev {name} mtu 1500"))
        }
        _ => HostFinding::ok(check, format!("{name}: {mtu} bytes")),
    }
}

/// Windows shrink until those of all peers fill half of a rank's receive buffers.
fn receive_buffer(granted: io::Result<u64>, wanted: &HostPlan<'_>) -> HostFinding {
    let check = "receive_buffer";
    let transport = &wanted.job.transport;
    let entropies = u64::from(transport.entropies.max(1));
    let granted = match granted {
        Ok(granted) => granted,
        Err(error) => {
            return HostFinding::problem(check, error.to_string()).mend("ulimit -n 65536");
        }
    };
    let peers = u64::from(wanted.world.saturating_sub(1).max(1));
    let window = transport.window.short();
    let needed = 2 * window.get() * peers;
    let sizes = format!(
        "{} in {entropies} sockets; windows of {} from {peers} peers need {}",
        mebibytes(granted),
        window,
        mebibytes(needed)
    );
    let fitting = granted / 2 / peers;
    if granted >= needed {
        let facts = LaunchFacts {
            mtu: 1_500,
            receive_buffer: ByteCount::new(granted),
            peers,
        };
        let fitted = launch::fitted(wanted.job.clone(), &facts);
        let longest = fitted.transport.window.most();
        let found = match longest > window {
            true => format!(
                "{sizes}; on long paths they grow to {}",
                mebibytes(longest.get())
            ),
            false => sizes,
        };
        return HostFinding::ok(check, found);
    }
    let costs = format!(
        "windows shrink to {} KiB: at most {:.1} Gb/s from each peer at a round trip of 100 us",
        fitting >> 10,
        fitting as f64 * 8.0 / 100e-6 / 1e9
    );
    let each = needed.div_ceil(entropies);
    let mend = if each <= BUFFER_BYTES_MAX {
        format!("sysctl -w net.core.rmem_max={each}")
    } else {
        let most = BUFFER_BYTES_MAX;
        format!("sysctl -w net.core.rmem_max={most}  # the most that is asked for")
    };
    HostFinding::warning(check, sizes).costs(costs).mend(mend)
}

fn send_buffer(wmem_max: Option<u64>, force: Force) -> HostFinding {
    let check = "send_buffer";
    let shown = wmem_max.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
    let forced = match force {
        Force::Allowed => "which this process may exceed (CAP_NET_ADMIN)",
        Force::Denied => "which is the limit without CAP_NET_ADMIN",
    };
    let found = format!("net.core.wmem_max is {shown}, {forced}");
    if force == Force::Allowed || wmem_max.is_none_or(|bytes| bytes >= SEND_BUFFER_BYTES) {
        return HostFinding::ok(check, found);
    }
    HostFinding::warning(check, found)
        .costs("sending waits for the NIC after a few runs of 64 KiB")
        .mend(format!("sysctl -w net.core.wmem_max={BUFFER_BYTES_MAX}"))
}

/// Whether buffers may be larger than the system's limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Force {
    Allowed,
    Denied,
}

fn may_force() -> Force {
    const CAP_NET_ADMIN: u32 = 12;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    match bits.unwrap_or(0) >> CAP_NET_ADMIN & 1 {
        1 => Force::Allowed,
        _ => Force::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{FindingState, mended};
    use super::*;

    #[test]
    fn small_receive_buffers_name_the_limit_that_is_needed() {
        let job = Job::default();
        let wanted = |world| HostPlan {
            job: &job,
            addresses: &[],
            ranks: 2,
            world,
        };
        let granted = 8 * 212_992;
        let finding = receive_buffer(Ok(granted), &wanted(2));
        assert_eq!(finding.state, FindingState::Warning);
        assert_eq!(mended(&finding), "sysctl -w net.core.rmem_max=262144");
        assert_eq!(
            receive_buffer(Ok(2 << 20), &wanted(2)).state,
            FindingState::Ok
        );
        let large = receive_buffer(Ok(16 << 20), &wanted(3));
        let found = &large.found;
        assert!(
            found.ends_with("on long paths they grow to 4 MiB"),
            "{found}"
        );
        let crowded = receive_buffer(Ok(8 << 20), &wanted(64));
        assert!(mended(&crowded).contains("rmem_max=8388608"), "{crowded:?}");
    }

    #[test]
    fn refused_or_cut_runs_are_a_problem() {
        let address = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        let offload = |refused, glued| Offload {
            packets: 16,
            refused,
            glued,
        };
        let refused = io::Error::from_raw_os_error(5);
        let refused = run_kept(address, Ok(offload(Some(refused), 0)));
        assert_eq!(refused[0].state, FindingState::Problem);
        assert!(mended(&refused[0]).starts_with("ethtool -K lo tx on"));
        let cut = run_kept(address, Ok(offload(None, 1)));
        assert_eq!(
            (cut[0].state, cut[1].state),
            (FindingState::Ok, FindingState::Problem)
        );
        let whole = run_kept(address, Ok(offload(None, 16)));
        assert!(
            whole
                .iter()
                .all(|finding| finding.state == FindingState::Ok)
        );
    }

    #[test]
    fn an_interface_must_take_the_packets_of_the_job() {
        assert_eq!(mtu("eth0", Ok(1_500), Mtu::Auto).state, FindingState::Ok);
        assert_eq!(
            mtu("eth0", Ok(1_280), Mtu::Auto).state,
            FindingState::Warning
        );
        let small = mtu("eth0", Ok(1_500), Mtu::Bytes(9_000));
        assert_eq!(small.state, FindingState::Problem);
        assert!(mended(&small).contains("mtu 9000"), "{small:?}");
    }
}
