//! The checks of RDMA devices: their state, and the settings that a lossy fabric wants. Every job
//! sees them, but only to a job that asks for RDMA they are warnings or problems.

use std::io;
use std::path::Path;

use gradwire_protocol::job::{Job, WireChoice};
use gradwire_protocol::units::Dscp;
use gradwire_transport::interface;
use gradwire_transport::probe::dcb::{self, DcbSettings};
use gradwire_transport::probe::device::{self, LinkPause};
use gradwire_transport::probe::rdma::{self, NicCongestionControl, SysfsDevice, SysfsPort};

use super::finding::{FindingState, HostFinding};
use super::host::HostPlan;

/// gradwire's header in a packet.
const HEADER_BYTES: u32 = 64;
/// The state of a port that carries packets.
const ACTIVE: &str = "ACTIVE";
const UDP_INSTEAD: &str = "a job with transport.wire = \"rdma\" does not start; \"udp\" does";

/// Checks the RDMA devices of this host.
pub fn check(wanted: &HostPlan<'_>) -> Vec<HostFinding> {
    let root = Path::new("/");
    let job = wanted.job;
    let named = &job.transport.rdma_device;
    let all = rdma::devices(root);
    let asked = |device: &&SysfsDevice| named.is_empty() || named.contains(&device.name);
    let mut findings: Vec<HostFinding> = named
        .iter()
        .filter(|name| !all.iter().any(|device| device.name == **name))
        .map(|name| absent(name, &all))
        .collect();
    if all.is_empty() && named.is_empty() {
        findings.push(none());
    }
    for device in all.iter().filter(asked) {
        findings.push(access(device, device.file.as_deref().map(rdma::access)));
        for port in &device.ports {
            let beneath = port.interface.as_deref().map(|name| Beneath {
                mtu: interface::mtu_of(name).ok(),
                bridging: dcb::bridging(name).ok(),
                pause: device::pause(name).ok(),
                own_control: rdma::own_control(root, name),
                name,
            });
            findings.extend(of_port(device, port, beneath.as_ref(), job));
        }
    }
    match job.transport.wire {
        WireChoice::Rdma => findings,
        _ => findings.into_iter().map(HostFinding::for_others).collect(),
    }
}

/// The interface under a port, and its settings; `None` where its driver does not know them.
#[derive(Clone, Debug)]
struct Beneath<'a> {
    name: &'a str,
    mtu: Option<u32>,
    bridging: Option<DcbSettings>,
    pause: Option<LinkPause>,
    own_control: Option<NicCongestionControl>,
}

fn of_port(
    device: &SysfsDevice,
    port: &SysfsPort,
    beneath: Option<&Beneath<'_>>,
    job: &Job,
) -> Vec<HostFinding> {
    let place = match device.ports.len() {
        1 => device.name.clone(),
        _ => format!("{} port {}", device.name, port.number),
    };
    let mut findings = vec![state(&place, port), gids(&place, port)];
    findings.push(forced_class((&place, device), port));
    let Some(beneath) = beneath else {
        return findings;
    };
    findings.push(mtu(&place, beneath));
    findings.push(pausing(&place, beneath));
    findings.push(sorting(&place, beneath, job));
    findings.push(marking(&place, beneath));
    findings
}

fn none() -> HostFinding {
    let found = "this host has no RDMA device; packets go by UDP";
    HostFinding::problem("rdma_device", found)
        .costs(UDP_INSTEAD)
        .mend(
            "rdma link  # lists them once the NIC's driver is loaded (mlx5_ib, irdma, bnxt_re); to \
             try without: rdma link add rxe0 type rxe netdev eth0",
        )
}

fn absent(name: &str, there: &[SysfsDevice]) -> HostFinding {
    let names: Vec<&str> = there.iter().map(|device| &*device.name).collect();
    let there = match names.join(", ") {
        none if none.is_empty() => "none".to_owned(),
        names => names,
    };
    let found = format!("transport.rdma_device names {name}; there are: {there}");
    HostFinding::problem("rdma_device", found)
        .costs(UDP_INSTEAD)
        .mend("rdma link  # and transport.rdma_device = \"auto\" takes the rank's address")
}

fn access(device: &SysfsDevice, opened: Option<io::Result<()>>) -> HostFinding {
    let check = "rdma_access";
    let SysfsDevice { name, file, .. } = device;
    let path = file
        .as_deref()
        .unwrap_or_else(|| Path::new("/dev/infiniband"));
    let path = path.display();
    match opened {
        Some(Ok(())) => HostFinding::ok(check, format!("{name}: {path} may be used")),
        Some(Err(error)) => HostFinding::problem(check, format!("{name}: {path}: {error}"))
            .costs(UDP_INSTEAD)
            .mend(format!(
                "chmod 666 {path}  # of a container: --device /dev/infiniband"
            )),
        None => HostFinding::problem(check, format!("{name} has no file under {path}"))
            .costs(UDP_INSTEAD)
            .mend("modprobe ib_uverbs"),
    }
}

fn state(place: &str, port: &SysfsPort) -> HostFinding {
    let check = "rdma_device";
    let SysfsPort {
        state,
        link_layer,
        rate,
        ..
    } = port;
    let on = port
        .interface
        .as_ref()
        .map_or_else(String::new, |name| format!(", on {name}"));
    let found = format!("{place}: {link_layer}, {state}, {rate}{on}");
    let mend = match &port.interface {
        _ if state == ACTIVE => return HostFinding::ok(check, found),
        Some(name) => format!("ip link set dev {name} up  # and look at the cable: ethtool {name}"),
        None => "ibstat  # a port comes up when a subnet manager (opensm) has seen it".to_owned(),
    };
    HostFinding::problem(check, found)
        .costs(UDP_INSTEAD)
        .mend(mend)
}

fn gids(place: &str, port: &SysfsPort) -> HostFinding {
    let check = "rdma_gid";
    let list: Vec<String> = port
        .gids
        .iter()
        .map(|gid| {
            let address = gid.address.to_canonical();
            format!("{} {address} ({})", gid.index, gid.kind)
        })
        .collect();
    let found = match list.join(", ") {
        none if none.is_empty() => format!("{place}: no addresses"),
        list => format!("{place}: {list}"),
    };
    // InfiniBand's own packets carry no IP header, nor need one.
    if port.link_layer != "Ethernet" || port.gids.iter().any(rdma::Gid::is_routable) {
        return HostFinding::ok(check, found);
    }
    let name = port.interface.as_deref().unwrap_or("IF");
    HostFinding::problem(check, found)
        .costs("no packet can leave: RoCE v2 takes the interface's IP address as its source")
        .mend(format!(
            "ip address add 10.0.0.1/24 dev {name}  # this host's own"
        ))
}

fn forced_class((place, device): (&str, &SysfsDevice), port: &SysfsPort) -> HostFinding {
    let check = "rdma_tags";
    let Some(octet) = port.forced_class else {
        return HostFinding::ok(check, format!("{place}: DSCP and ECN are the sender's"));
    };
    let (dscp, ecn) = (octet >> 2, octet & 3);
    let found = format!("{place}: every packet gets DSCP {dscp} and ECN {ecn} from the driver");
    let SysfsDevice { name, .. } = device;
    let number = port.number;
    HostFinding::problem(check, found)
        .costs(
            "switches see one class; droppable and protected packets look the same, so none or \
             all are dropped early",
        )
        .mend(format!(
            "echo tclass=-1 > /sys/class/infiniband/{name}/tc/{number}/traffic_class"
        ))
}

fn mtu(place: &str, beneath: &Beneath<'_>) -> HostFinding {
    let check = "rdma_mtu";
    let name = beneath.name;
    let Some(mtu) = beneath.mtu else {
        return HostFinding::ok(check, format!("{place}: {name} does not report its MTU"));
    };
    let Some(payload) = rdma::payload(mtu) else {
        return HostFinding::problem(check, format!("{place}: {mtu} bytes of {name} carry none"))
            .costs(UDP_INSTEAD)
            .mend(format!("ip link set dev {name} mtu 4200"));
    };
    let found = format!("{place}: {payload} bytes a packet, since {name} carries {mtu}");
    if payload == 4_096 {
        return HostFinding::ok(check, found);
    }
    let share = |payload: u32| f64::from(HEADER_BYTES) / f64::from(payload) * 100.0;
    let costs = format!(
        "{} packets for what 4096 bytes carry in one; headers are {:.1} % of the payload, not \
         {:.1} %",
        4_096 / payload,
        share(payload),
        share(4_096)
    );
    HostFinding::warning(check, found)
        .costs(costs)
        .mend(format!(
            "ip link set dev {name} mtu 4200  # on every host and every switch port between them"
        ))
}

/// Pauses are for fabrics that must not drop; here they stop traffic that would have been dropped.
fn pausing(place: &str, beneath: &Beneath<'_>) -> HostFinding {
    let check = "rdma_pfc";
    let name = beneath.name;
    let costs = "a full queue anywhere stops this sender, its other traffic too; gradwire's \
                 droppable packets are dropped instead, and it repairs what it must";
    let paused = beneath.bridging.as_ref().map(|told| told.paused.as_slice());
    let whole = beneath.pause.is_some_and(|it| it.receives || it.sends);
    if whole {
        let found = format!("{place}: {name} pauses the whole link");
        return HostFinding::warning(check, found)
            .costs(costs)
            .mend(format!("ethtool -A {name} rx off tx off"));
    }
    match paused {
        None => HostFinding::ok(check, format!("{place}: {name} has no PFC settings")),
        Some([]) => HostFinding::ok(check, format!("{place}: {name} pauses no priority")),
        Some(some) => HostFinding::warning(check, format!("{place}: {name} pauses {}", list(some)))
            .costs(costs)
            .mend(format!(
                "dcb pfc set dev {name} prio-pfc all:off  # or mlnx_qos -i {name} --pfc \
                 0,0,0,0,0,0,0,0; on the switch, too"
            )),
    }
}

/// Whether the NIC's own queues tell the job's classes apart.
fn sorting(place: &str, beneath: &Beneath<'_>, job: &Job) -> HostFinding {
    let check = "rdma_classes";
    let name = beneath.name;
    let Some(told) = &beneath.bridging else {
        let found = format!("{place}: {name} does not report how it maps DSCPs to priorities");
        return HostFinding::ok(check, found);
    };
    let dscps: Vec<u8> = job.priority.dscps.iter().map(|Dscp(dscp)| *dscp).collect();
    let priority = |dscp: u8| {
        let found = told.by_dscp.iter().find(|(one, _)| *one == dscp);
        found.map(|(_, priority)| *priority)
    };
    let known: Vec<(u8, u8)> = dscps
        .iter()
        .filter_map(|dscp| Some((*dscp, priority(*dscp)?)))
        .collect();
    if known.len() == dscps.len() {
        let pairs: Vec<String> = known.iter().map(|(d, p)| format!("{d}:{p}")).collect();
        let found = format!("{place}: priorities by DSCP are {}", pairs.join(" "));
        return HostFinding::ok(check, found);
    }
    let wanted: Vec<String> = dscps
        .iter()
        .zip((0..=6).rev())
        .map(|(dscp, priority)| format!("{dscp}:{priority}"))
        .collect();
    let found = format!(
        "{place}: {name} has a priority for {} of the job's {} DSCPs",
        known.len(),
        dscps.len()
    );
    HostFinding::warning(check, found)
        .costs("classes share a queue of the NIC: a front layer waits behind back ones")
        .mend(format!(
            "dcb app replace dev {name} dscp-prio {}  # or mlnx_qos -i {name} --trust dscp",
            wanted.join(" ")
        ))
}

fn marking(place: &str, beneath: &Beneath<'_>) -> HostFinding {
    let check = "rdma_ecn";
    let found = match &beneath.own_control {
        None => format!(
            "{place}: receivers read marks from each packet; {} has no congestion control settings",
            beneath.name
        ),
        Some(told) => format!(
            "{place}: receivers read marks from each packet; the NIC's own control, which slows \
             connected queue pairs only, answers marks of {} and reacts for {}",
            list(&told.notifies),
            list(&told.reacts)
        ),
    };
    HostFinding::ok(check, found)
}

fn list(priorities: &[u8]) -> String {
    let words: Vec<String> = priorities.iter().map(u8::to_string).collect();
    match words.len() {
        0 => "no priority".to_owned(),
        1 => format!("priority {}", words[0]),
        _ => format!("priorities {}", words.join(", ")),
    }
}

impl HostFinding {
    /// The finding for a job that does not need the device: no fault.
    fn for_others(mut self) -> Self {
        self.state = FindingState::Ok;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::mended;
    use super::*;
    use gradwire_transport::probe::rdma::Gid;

    fn nic() -> SysfsDevice {
        let gid = |index, kind: &str| Gid {
            index,
            address: std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(),
            kind: kind.to_owned(),
        };
        let port = SysfsPort {
            number: 1,
            state: ACTIVE.to_owned(),
            link_layer: "Ethernet".to_owned(),
            rate: "100 Gb/sec (4X EDR)".to_owned(),
            interface: Some("eth2".to_owned()),
            gids: vec![gid(2, "IB/RoCE v1"), gid(3, "RoCE v2")],
            forced_class: None,
        };
        SysfsDevice {
            name: "mlx5_0".to_owned(),
            ports: vec![port],
            file: None,
        }
    }

    fn fitting() -> Beneath<'static> {
        let priorities = [40, 34, 26, 18, 10, 8, 0].into_iter().zip((0..=6).rev());
        Beneath {
            name: "eth2",
            mtu: Some(9_000),
            bridging: Some(DcbSettings {
                paused: vec![],
                by_dscp: priorities.collect(),
            }),
            pause: None,
            own_control: None,
        }
    }

    fn judged(device: &SysfsDevice, beneath: &Beneath<'_>) -> Vec<HostFinding> {
        of_port(device, &device.ports[0], Some(beneath), &Job::default())
    }

    /// The one finding that is not as it should be.
    fn fault(device: &SysfsDevice, beneath: &Beneath<'_>) -> HostFinding {
        let mut faults = judged(device, beneath);
        faults.retain(|finding| finding.state != FindingState::Ok);
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults.remove(0)
    }

    #[test]
    fn lossy_fabric_nics_are_listed_without_complaint() {
        let findings = judged(&nic(), &fitting());
        assert!(
            findings
                .iter()
                .all(|finding| finding.state == FindingState::Ok),
            "{findings:?}"
        );
        let told: Vec<&str> = findings.iter().map(|one| &*one.found).collect();
        for text in [
            "mlx5_0: Ethernet, ACTIVE, 100 Gb/sec (4X EDR), on eth2",
            "mlx5_0: 2 10.0.0.1 (IB/RoCE v1), 3 10.0.0.1 (RoCE v2)",
            "mlx5_0: 4096 bytes a packet, since eth2 carries 9000",
            "mlx5_0: eth2 pauses no priority",
            "mlx5_0: priorities by DSCP are 40:6 34:5 26:4 18:3 10:2 8:1 0:0",
        ] {
            assert!(told.contains(&text), "{text:?} is in {told:?}");
        }
    }

    #[test]
    fn lossless_fabric_settings_must_be_undone() {
        let mut paused = fitting();
        paused.bridging.as_mut().expect("it tells").paused = vec![3, 4];
        let fault_of = |beneath| fault(&nic(), beneath);
        let found = fault_of(&paused);
        assert_eq!(found.found, "mlx5_0: eth2 pauses priorities 3, 4");
        assert!(mended(&found).starts_with("dcb pfc set dev eth2 prio-pfc all:off"));
        let mut whole = fitting();
        whole.pause = Some(LinkPause {
            receives: true,
            sends: false,
        });
        assert_eq!(mended(&fault_of(&whole)), "ethtool -A eth2 rx off tx off");
        let mut forced = nic();
        forced.ports[0].forced_class = Some(106);
        let forced = fault(&forced, &fitting());
        assert_eq!(
            forced.found,
            "mlx5_0: every packet gets DSCP 26 and ECN 2 from the driver"
        );
        assert!(mended(&forced).ends_with("infiniband/mlx5_0/tc/1/traffic_class"));
    }

    #[test]
    fn dscps_without_priority_get_a_command() {
        let mut mixed = fitting();
        mixed.bridging = Some(DcbSettings {
            paused: vec![],
            by_dscp: vec![(26, 3)],
        });
        let found = fault(&nic(), &mixed);
        assert!(
            found.found.ends_with("for 1 of the job's 7 DSCPs"),
            "{found:?}"
        );
        let mend = mended(&found);
        let command = "dcb app replace dev eth2 dscp-prio 40:6 34:5 26:4 18:3 10:2 8:1 0:0";
        assert!(mend.starts_with(command), "{mend}");
    }

    #[test]
    fn a_small_mtu_is_counted_in_packets() {
        let mut small = fitting();
        small.mtu = Some(1_500);
        let found = fault(&nic(), &small);
        assert_eq!(found.state, FindingState::Warning);
        let costs = found.costs.as_deref().unwrap_or_default();
        assert!(
            costs.starts_with("4 packets for what 4096 bytes carry"),
            "{costs}"
        );
        assert!(mended(&found).starts_with("ip link set dev eth2 mtu 4200"));
        small.mtu = Some(300);
        assert_eq!(fault(&nic(), &small).state, FindingState::Problem);
    }

    #[test]
    fn what_keeps_a_job_from_starting_is_a_problem() {
        let mut down = nic();
        down.ports[0].state = "DOWN".to_owned();
        let found = fault(&down, &fitting());
        assert!(
            mended(&found).starts_with("ip link set dev eth2 up"),
            "{found:?}"
        );
        let mut bare = nic();
        bare.ports[0].gids.remove(1);
        let found = fault(&bare, &fitting());
        assert!(mended(&found).starts_with("ip address add"), "{found:?}");
        let refused = access(&nic(), Some(Err(io::ErrorKind::PermissionDenied.into())));
        assert!(mended(&refused).contains("--device /dev/infiniband"));
        assert_eq!(mended(&access(&nic(), None)), "modprobe ib_uverbs");
        for found in [none(), absent("mlx5_1", &[nic()])] {
            assert_eq!(found.state, FindingState::Problem);
            assert!(mended(&found).starts_with("rdma link"), "{found:?}");
        }
        assert!(
            absent("mlx5_1", &[nic()])
                .found
                .ends_with("there are: mlx5_0")
        );
    }

    #[test]
    fn a_job_that_goes_another_way_is_only_told() {
        let mut job = Job::default();
        job.transport.rdma_device = vec!["nowhere0".to_owned()];
        let states = |job: &Job| {
            let wanted = HostPlan {
                job,
                addresses: &[],
                ranks: 2,
                world: 2,
            };
            let findings = check(&wanted);
            let of_it = findings.iter().find(|one| one.found.contains("nowhere0"));
            of_it.expect("an absent device is told").state
        };
        assert_eq!(states(&job), FindingState::Ok);
        job.transport.wire = WireChoice::Rdma;
        assert_eq!(states(&job), FindingState::Problem);
    }
}
